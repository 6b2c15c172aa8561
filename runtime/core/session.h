/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake that opens a session. Pure functions; docs/wire-format.md has the bytes.
 *
 *     acceptor -> dialler   HELLO    its challenge
 *     dialler -> acceptor   HELLO    who it is, its challenge, a token
 *     acceptor -> dialler   WELCOME  the session and a token, or a refusal
 *
 * A token proves knowledge of the job's secret. Both tokens cover all that was said before, so both
 * challenges and both tasks: a HELLO or WELCOME recorded on another connection proves nothing on
 * this one, nor does one that was meant for another task. */
#ifndef PSRTI_SESSION_H
#define PSRTI_SESSION_H

#include <psrt/ext/transport_v1.h>

#include "base/jobkey.h"

#define PSRTI_CHALLENGE_BYTES 16   /* payload of the acceptor's HELLO */
#define PSRTI_HELLO_BYTES 60       /* payload of the dialler's HELLO */
#define PSRTI_WELCOME_BYTES 16     /* payload of an accepting WELCOME: the token */
#define PSRTI_WELCOME_TEXT_MAX 255 /* payload of a refusing one: why, without NUL */

/* In the order of the choices of PSRT_SECURITY. The same for all tasks of a job. */
typedef enum psrti_level {
    PSRTI_LEVEL_ENCRYPTED,
    PSRTI_LEVEL_AUTHENTICATED,
    PSRTI_LEVEL_OFF
} psrti_level_t;

/* What the dialler knows of the other side before it says HELLO. */
typedef struct psrti_acceptor {
    uint32_t task;
    uint8_t challenge[PSRTI_CHALLENGE_BYTES]; /* random, of this connection */
} psrti_acceptor_t;

/* Channel of a HELLO: the acceptor's channel; and of a server's thread that dials which one it is, so
 * that each may have a session with the same acceptor. */
#define PSRTI_CHANNEL(acceptor) ((acceptor)&0xffffu)
#define PSRTI_CHANNEL_FROM(acceptor, thread) ((uint32_t)(acceptor) | ((uint32_t)(thread) + 1) << 16)
#define PSRTI_CHANNEL_THREAD(channel)                                                              \
    (((channel) >> 16) - 1) /* UINT32_MAX: not a server's thread */

typedef struct psrti_hello {
    uint8_t nonce[16]; /* names the job */
    uint32_t task;     /* of the dialler */
    uint32_t channel;  /* data: the acceptor's thread, PSRTI_CHANNEL; control: 0 */
    uint64_t incarnation;
    uint64_t challenge; /* random, of this connection */
    uint32_t level;     /* psrti_level_t */
    uint8_t token[16];
} psrti_hello_t;

/* Fills in nonce and token; the other fields are set. */
void psrti_hello_sign(const psrti_jobkey_t *key, const psrti_acceptor_t *acceptor,
                      psrti_hello_t *hello);
void psrti_hello_encode(const psrti_hello_t *hello, uint8_t out[PSRTI_HELLO_BYTES]);
/* ERR_PROTOCOL if the length is not exact or the task has no role that dials. */
psrt_status_t psrti_hello_decode(const void *data, uint64_t len, psrti_hello_t *hello);
/* Acceptor: OK or ERR_REFUSED with the reason for the dialler in text. */
psrt_status_t psrti_hello_check(const psrti_hello_t *hello, const psrti_jobkey_t *key,
                                const psrti_acceptor_t *self, uint32_t channel, psrti_level_t level,
                                char *text, size_t size);

/* Token of the acceptor's WELCOME to this HELLO. */
void psrti_welcome_token(const psrti_jobkey_t *key, const psrti_acceptor_t *self,
                         const psrti_hello_t *hello, uint32_t session,
                         uint8_t token[PSRTI_WELCOME_BYTES]);
/* Dialler: OK; the status of a refusal, its text copied and made printable; ERR_PROTOCOL if the
 * message is malformed or its token is wrong. */
psrt_status_t psrti_welcome_check(const psrti_jobkey_t *key, const psrti_acceptor_t *acceptor,
                                  const psrti_hello_t *hello, const psrt_hdr_t *hdr,
                                  const void *data, uint64_t len, char *text, size_t size);

#endif
