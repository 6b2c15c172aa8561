/* SPDX-License-Identifier: Apache-2.0 */
/* The public key and the token were computed by programs of their own: X25519 in plain integers,
 * BLAKE2b by Python's hashlib. */
#include "base/jobkey.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "support/test.h"

#define SECRET_HEX "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
#define NONCE_HEX "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
#define KEY_TEXT "psrt-job-key 1\nnonce=" NONCE_HEX "\nsecret=" SECRET_HEX "\n"

static char dir[64], path[96];

static void make_dir(void)
{
    snprintf(dir, sizeof(dir), "/tmp/psrt-test-jobkey-XXXXXX");
    cr_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/key", dir);
}

static void remove_dir(void)
{
    unlink(path);
    rmdir(dir);
}

TestSuite(jobkey, .init = make_dir, .fini = remove_dir);

static void put_file(const char *text, size_t len, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, len), (ssize_t)len);
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void assert_refused(const char *part)
{
    psrti_jobkey_t key, untouched;
    memset(&key, 0x5a, sizeof(key));
    memset(&untouched, 0x5a, sizeof(untouched));
    psrti_fail_text("");
    cr_assert(psrti_jobkey_read(path, &key) != PSRT_OK);
    cr_assert(!memcmp(&key, &untouched, sizeof(key)));
    cr_assert(strstr(psrt_last_error(), path) != NULL);
    cr_assert(strstr(psrt_last_error(), part) != NULL, "\"%s\" is not in \"%s\"", part,
              psrt_last_error());
    cr_assert(strstr(psrt_last_error(), "0102030405") == NULL);
}

Test(jobkey, reads_the_documented_format)
{
    static const uint8_t public_key[32] = { 0x07, 0xa3, 0x7c, 0xbc, 0x14, 0x20, 0x93, 0xc8,
                                            0xb7, 0x55, 0xdc, 0x1b, 0x10, 0xe8, 0x6c, 0xb4,
                                            0x26, 0x37, 0x4a, 0xd1, 0x6a, 0xa8, 0x53, 0xed,
                                            0x0b, 0xdf, 0xc0, 0xb2, 0xb8, 0x6d, 0x1c, 0x7c };
    psrti_jobkey_t key;
    put_file(KEY_TEXT, strlen(KEY_TEXT), 0600);
    cr_assert_eq(psrti_jobkey_read(path, &key), PSRT_OK, "%s", psrt_last_error());
    for (int i = 0; i < 32; i++)
        cr_assert_eq(key.secret[i], i + 1);
    for (int i = 0; i < 16; i++)
        cr_assert_eq(key.nonce[i], 0xa0 + i);
    cr_assert(!memcmp(key.public_, public_key, 32));
    put_file(KEY_TEXT, strlen(KEY_TEXT), 0400);
    cr_assert_eq(psrti_jobkey_read(path, &key), PSRT_OK);
}

Test(jobkey, written_file_is_private_and_reads_back)
{
    psrti_jobkey_t key, other, back;
    struct stat st;
    umask(0777); /* must neither widen nor narrow the mode */
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&other), PSRT_OK);
    cr_assert(memcmp(key.secret, other.secret, 32));
    cr_assert(memcmp(key.nonce, other.nonce, 16));
    cr_assert_eq(psrti_jobkey_write(&key, path), PSRT_OK);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_eq(psrti_jobkey_read(path, &back), PSRT_OK);
    cr_assert(!memcmp(&key, &back, sizeof(key)));
}

Test(jobkey, write_replaces_nothing)
{
    psrti_jobkey_t key;
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    put_file(KEY_TEXT, strlen(KEY_TEXT), 0600);
    cr_assert_eq(psrti_jobkey_write(&key, path), PSRT_ERR_IO);
    cr_assert(strstr(psrt_last_error(), path) != NULL);
    cr_assert_eq(psrti_jobkey_read(path, &key), PSRT_OK);
    cr_assert_eq(key.secret[0], 1);
    unlink(path);
    cr_assert_eq(symlink("elsewhere", path), 0);
    cr_assert_eq(psrti_jobkey_write(&key, path), PSRT_ERR_IO);
}

Test(jobkey, write_fails_without_directory)
{
    psrti_jobkey_t key;
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    cr_assert_eq(psrti_jobkey_write(&key, "/nonexistent/key"), PSRT_ERR_IO);
    cr_assert(strstr(psrt_last_error(), "/nonexistent/key") != NULL);
}

Test(jobkey, files_that_others_can_reach_are_refused)
{
    static const mode_t modes[] = { 0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666, 0777 };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        put_file(KEY_TEXT, strlen(KEY_TEXT), modes[i]);
        assert_refused("chmod 600");
    }
}

Test(jobkey, file_of_another_user_is_refused)
{
    put_file(KEY_TEXT, strlen(KEY_TEXT), 0600);
    if (geteuid() == 0)
        cr_assert_eq(chown(path, 12345, (gid_t)-1), 0);
    else
        snprintf(path, sizeof(path), "/etc/passwd");
    assert_refused("belongs to user");
}

Test(jobkey, what_is_no_file_is_refused, .timeout = 30)
{
    assert_refused("cannot open");
    cr_assert_eq(mkfifo(path, 0600), 0);
    assert_refused("not a regular file");
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    assert_refused("not a regular file");
    rmdir(path);
}

Test(jobkey, damaged_files_are_refused)
{
    char text[256];
    size_t len = strlen(KEY_TEXT);
    for (size_t cut = 0; cut < len; cut++) {
        put_file(KEY_TEXT, cut, 0600);
        assert_refused("not a job key");
    }
    for (size_t i = 0; i < len; i++) {
        memcpy(text, KEY_TEXT, len);
        text[i] = 'x';
        put_file(text, len, 0600);
        assert_refused("not a job key");
        text[i] = '\0';
        put_file(text, len, 0600);
        assert_refused("not a job key");
    }
    snprintf(text, sizeof(text), "%s\n", KEY_TEXT);
    put_file(text, strlen(text), 0600);
    assert_refused("not a job key");
}

Test(jobkey, token)
{
    static const uint8_t expected[16] = { 0xe0, 0x95, 0x22, 0x4e, 0xad, 0x2b, 0x6d, 0x3d,
                                          0x48, 0x7b, 0xa8, 0x01, 0x97, 0xc9, 0xe4, 0xa2 };
    psrti_jobkey_t key;
    uint8_t token[16], other[16];
    put_file(KEY_TEXT, strlen(KEY_TEXT), 0600);
    cr_assert_eq(psrti_jobkey_read(path, &key), PSRT_OK);
    psrti_jobkey_token(&key, "who it is", 9, token);
    cr_assert(!memcmp(token, expected, 16));
    cr_assert(psrti_jobkey_token_equal(token, expected));
    psrti_jobkey_token(&key, "who it is", 8, other);
    cr_assert(!psrti_jobkey_token_equal(token, other));
    for (int i = 0; i < 16; i++) {
        memcpy(other, token, 16);
        other[i] ^= 0x80;
        cr_assert(!psrti_jobkey_token_equal(token, other));
    }
}

Test(jobkey, wipe)
{
    psrti_jobkey_t key, zero;
    memset(&zero, 0, sizeof(zero));
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    psrti_jobkey_wipe(&key);
    cr_assert(!memcmp(&key, &zero, sizeof(key)));
}
