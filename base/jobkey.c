/* SPDX-License-Identifier: Apache-2.0 */
/* The file: "psrt-job-key 1", "nonce=<32 hex digits>", "secret=<64 hex digits>", a line each. The
 * public key follows from the secret. */
#include "base/jobkey.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define KEY_HEAD "psrt-job-key 1\n"
#define KEY_NONCE "nonce="
#define KEY_SECRET "secret="

static psrt_status_t init_sodium(void)
{
    if (sodium_init() < 0) return psrti_fail(PSRT_ERR_INTERNAL, "libsodium cannot be initialised");
    return PSRT_OK;
}

psrt_status_t psrti_jobkey_generate(psrti_jobkey_t *key)
{
    psrt_status_t status = init_sodium();
    if (status != PSRT_OK) return status;
    crypto_box_keypair(key->public_, key->secret);
    randombytes_buf(key->nonce, sizeof(key->nonce));
    return PSRT_OK;
}

size_t psrti_jobkey_format(const psrti_jobkey_t *key, char text[PSRTI_JOBKEY_TEXT_MAX])
{
    char nonce[2 * sizeof(key->nonce) + 1], secret[2 * sizeof(key->secret) + 1];
    sodium_bin2hex(nonce, sizeof(nonce), key->nonce, sizeof(key->nonce));
    sodium_bin2hex(secret, sizeof(secret), key->secret, sizeof(key->secret));
    int len = snprintf(text, PSRTI_JOBKEY_TEXT_MAX, KEY_HEAD KEY_NONCE "%s\n" KEY_SECRET "%s\n",
                       nonce, secret);
    sodium_memzero(secret, sizeof(secret));
    return (size_t)len;
}

/* A regular file takes a few bytes at once or has no room for them. */
static int write_fully(int fd, const char *text, size_t len)
{
    ssize_t written = write(fd, text, len);
    if (written == (ssize_t)len) return 0;
    if (written >= 0) errno = ENOSPC;
    return -1;
}

psrt_status_t psrti_jobkey_write(const psrti_jobkey_t *key, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return psrti_fail(PSRT_ERR_IO, "key file %s: cannot create: %m", path);
    char text[PSRTI_JOBKEY_TEXT_MAX];
    size_t len = psrti_jobkey_format(key, text);
    /* fchmod: a umask may have taken the owner's bits. */
    int failed = fchmod(fd, 0600) != 0 || write_fully(fd, text, len) != 0;
    int error = errno;
    sodium_memzero(text, sizeof(text));
    if (close(fd) != 0 && !failed) {
        failed = 1;
        error = errno;
    }
    if (!failed) return PSRT_OK;
    unlink(path);
    errno = error;
    return psrti_fail(PSRT_ERR_IO, "key file %s: cannot write: %m", path);
}

static psrt_status_t check_private(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return psrti_fail(PSRT_ERR_IO, "key file %s: cannot examine: %m", path);
    if (!S_ISREG(st.st_mode))
        return psrti_fail(PSRT_ERR_INVALID, "key file %s: is not a regular file", path);
    if (st.st_uid != geteuid())
        return psrti_fail(PSRT_ERR_INVALID,
                          "key file %s: belongs to user %u, but this process runs as user %u; "
                          "use a key file of your own",
                          path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return psrti_fail(PSRT_ERR_INVALID,
                          "key file %s: mode %04o lets others read it; run: chmod 600 %s", path,
                          (unsigned)(st.st_mode & 07777), path);
    return PSRT_OK;
}

/* Whole file into `text`, terminated; more than fits is cut, which the parser then refuses. */
static psrt_status_t read_private(const char *path, char text[PSRTI_JOBKEY_TEXT_MAX])
{
    /* O_NONBLOCK: a FIFO must not hold us up. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return psrti_fail(PSRT_ERR_IO, "key file %s: cannot open: %m", path);
    psrt_status_t status = check_private(fd, path);
    if (status == PSRT_OK) {
        ssize_t len = read(fd, text, PSRTI_JOBKEY_TEXT_MAX - 1);
        if (len < 0) status = psrti_fail(PSRT_ERR_IO, "key file %s: cannot read: %m", path);
        text[len < 0 ? 0 : len] = '\0';
    }
    close(fd);
    return status;
}

/* One line "<label><hex of exactly `size` bytes>\n" at *text, which moves on; 0 on success. */
static int parse_line(const char **text, const char *label, uint8_t *out, size_t size)
{
    size_t label_len = strlen(label), got;
    const char *end;
    if (strncmp(*text, label, label_len)) return -1;
    const char *hex = *text + label_len;
    size_t hex_len = strcspn(hex, "\n");
    if (hex_len != 2 * size || hex[hex_len] != '\n') return -1;
    if (sodium_hex2bin(out, size, hex, hex_len, NULL, &got, &end) != 0) return -1;
    if (got != size || end != hex + hex_len) return -1;
    *text = hex + hex_len + 1;
    return 0;
}

static psrt_status_t parse_key(const char *path, const char *text, psrti_jobkey_t *key)
{
    psrti_jobkey_t parsed;
    psrt_status_t status = PSRT_OK;
    int bad = strncmp(text, KEY_HEAD, strlen(KEY_HEAD)) != 0;
    text += bad ? 0 : strlen(KEY_HEAD);
    bad = bad || parse_line(&text, KEY_NONCE, parsed.nonce, sizeof(parsed.nonce)) != 0 ||
          parse_line(&text, KEY_SECRET, parsed.secret, sizeof(parsed.secret)) != 0 ||
          *text != '\0' || crypto_scalarmult_base(parsed.public_, parsed.secret) != 0;
    if (bad)
        status = psrti_fail(PSRT_ERR_INVALID, "key file %s: is not a job key of version 1", path);
    else
        *key = parsed;
    psrti_jobkey_wipe(&parsed);
    return status;
}

psrt_status_t psrti_jobkey_read(const char *path, psrti_jobkey_t *key)
{
    psrt_status_t status = init_sodium();
    if (status != PSRT_OK) return status;
    char text[PSRTI_JOBKEY_TEXT_MAX] = "";
    status = read_private(path, text);
    if (status == PSRT_OK) status = parse_key(path, text, key);
    sodium_memzero(text, sizeof(text));
    return status;
}

void psrti_jobkey_token(const psrti_jobkey_t *key, const void *message, size_t size,
                        uint8_t token[16])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, key->secret, sizeof(key->secret), 16);
    crypto_generichash_update(&state, key->nonce, sizeof(key->nonce));
    crypto_generichash_update(&state, message, size);
    crypto_generichash_final(&state, token, 16);
    sodium_memzero(&state, sizeof(state));
}

int psrti_jobkey_token_equal(const uint8_t a[16], const uint8_t b[16])
{
    return sodium_memcmp(a, b, 16) == 0;
}

void psrti_jobkey_wipe(psrti_jobkey_t *key) { sodium_memzero(key, sizeof(*key)); }
