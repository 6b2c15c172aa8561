/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/session.h"

#include <string.h>

#include "base/bytes.h"
#include "runtime/core/placement.h"

enum { TOKEN_HELLO = 1, TOKEN_WELCOME = 2 };

/* The kind keeps one side's token from being accepted as the other's. */
static void make_token(const psrti_jobkey_t *key, uint8_t kind, const psrti_acceptor_t *acceptor,
                       const psrti_hello_t *hello, uint32_t session, uint8_t token[16])
{
    uint8_t said[1 + 4 + 4 + 8 + 8 + 4 + 4 + PSRTI_CHALLENGE_BYTES + 4];

    said[0] = kind;
    psrti_put32(said + 1, hello->task);
    psrti_put32(said + 5, hello->channel);
    psrti_put64(said + 9, hello->incarnation);
    psrti_put64(said + 17, hello->challenge);
    psrti_put32(said + 25, hello->level);
    psrti_put32(said + 29, acceptor->task);
    memcpy(said + 33, acceptor->challenge, PSRTI_CHALLENGE_BYTES);
    psrti_put32(said + 33 + PSRTI_CHALLENGE_BYTES, session);
    psrti_jobkey_token(key, said, sizeof said, token);
}

void psrti_hello_sign(const psrti_jobkey_t *key, const psrti_acceptor_t *acceptor,
                      psrti_hello_t *hello)
{
    memcpy(hello->nonce, key->nonce, sizeof hello->nonce);
    make_token(key, TOKEN_HELLO, acceptor, hello, 0, hello->token);
}

void psrti_hello_encode(const psrti_hello_t *hello, uint8_t out[PSRTI_HELLO_BYTES])
{
    memcpy(out, hello->nonce, 16);
    psrti_put32(out + 16, hello->task);
    psrti_put32(out + 20, hello->channel);
    psrti_put64(out + 24, hello->incarnation);
    psrti_put64(out + 32, hello->challenge);
    psrti_put32(out + 40, hello->level);
    memcpy(out + 44, hello->token, 16);
}

psrt_status_t psrti_hello_decode(const void *data, uint64_t len, psrti_hello_t *hello)
{
    const uint8_t *in = data;

    if (!data || len != PSRTI_HELLO_BYTES) return PSRT_ERR_PROTOCOL;
    memcpy(hello->nonce, in, 16);
    hello->task = psrti_get32(in + 16);
    hello->channel = psrti_get32(in + 20);
    hello->incarnation = psrti_get64(in + 24);
    hello->challenge = psrti_get64(in + 32);
    hello->level = psrti_get32(in + 40);
    memcpy(hello->token, in + 44, 16);
    uint32_t role = PSRTI_TASK_ROLE(hello->task);
    return role == PSRTI_SERVER || role == PSRTI_WORKER ? PSRT_OK : PSRT_ERR_PROTOCOL;
}

static const char *level_name(uint32_t level)
{
    static const char *const names[] = { "encrypted", "authenticated", "off" };

    return level < PSRTI_COUNT(names) ? names[level] : "another";
}

psrt_status_t psrti_hello_check(const psrti_hello_t *hello, const psrti_jobkey_t *key,
                                const psrti_acceptor_t *self, uint32_t channel, psrti_level_t level,
                                char *text, size_t size)
{
    uint8_t token[16];

    if (memcmp(hello->nonce, key->nonce, sizeof hello->nonce) != 0) {
        snprintf(text, size, "this address belongs to another job");
        return PSRT_ERR_REFUSED;
    }
    make_token(key, TOKEN_HELLO, self, hello, 0, token);
    if (!psrti_jobkey_token_equal(token, hello->token)) {
        snprintf(text, size, "wrong job key, or a repeated HELLO");
        return PSRT_ERR_REFUSED;
    }
    if (hello->level != level) {
        snprintf(text, size, "PSRT_SECURITY is %s there and %s here", level_name(hello->level),
                 level_name(level));
        return PSRT_ERR_REFUSED;
    }
    if (PSRTI_CHANNEL(hello->channel) != channel) {
        snprintf(text, size, "channel %u was asked for, this is channel %u",
                 PSRTI_CHANNEL(hello->channel), channel);
        return PSRT_ERR_REFUSED;
    }
    return PSRT_OK;
}

void psrti_welcome_token(const psrti_jobkey_t *key, const psrti_acceptor_t *self,
                         const psrti_hello_t *hello, uint32_t session,
                         uint8_t token[PSRTI_WELCOME_BYTES])
{
    make_token(key, TOKEN_WELCOME, self, hello, session, token);
}

static psrt_status_t refusal(const psrt_hdr_t *hdr, const void *data, uint64_t len, char *text,
                             size_t size)
{
    psrt_status_t status = (psrt_status_t) - (int)hdr->status;
    size_t n = PSRTI_MIN((size_t)len, size - 1);

    if (len > PSRTI_WELCOME_TEXT_MAX || (len && !data)) return PSRT_ERR_PROTOCOL;
    for (size_t i = 0; i < n; i++) {
        char c = ((const char *)data)[i];
        text[i] = (unsigned char)c < 0x20 || (unsigned char)c == 0x7f ? '?' : c;
    }
    text[n] = '\0';
    return strcmp(psrt_status_name(status), "PSRT_UNKNOWN") == 0 ? PSRT_ERR_PROTOCOL : status;
}

psrt_status_t psrti_welcome_check(const psrti_jobkey_t *key, const psrti_acceptor_t *acceptor,
                                  const psrti_hello_t *hello, const psrt_hdr_t *hdr,
                                  const void *data, uint64_t len, char *text, size_t size)
{
    uint8_t token[PSRTI_WELCOME_BYTES];
    char name[32];

    snprintf(text, size, "malformed WELCOME");
    if (hdr->status) return refusal(hdr, data, len, text, size);
    if (!data || len != PSRTI_WELCOME_BYTES || hdr->session == 0) return PSRT_ERR_PROTOCOL;
    psrti_welcome_token(key, acceptor, hello, hdr->session, token);
    if (!psrti_jobkey_token_equal(token, data)) {
        snprintf(text, size, "the peer is not %s of this job",
                 psrti_task_name(acceptor->task, name));
        return PSRT_ERR_PROTOCOL;
    }
    return PSRT_OK;
}
