/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake that opens a session: HELLO from the dialler, WELCOME from the accepting side.
 * Pure functions; docs/wire-format.md has the bytes.
 *
 * HELLO proves that the dialler knows the job's secret (token over task, incarnation, challenge).
 * An accepting WELCOME proves the same of the other side and that it is the task that was meant
 * (token over its task, the dialler's incarnation, the dialler's challenge). */
#ifndef PSRTI_SESSION_H
#define PSRTI_SESSION_H

#include <psrt/ext/transport_v1.h>

#include "base/jobkey.h"

#define PSRTI_HELLO_BYTES 56
#define PSRTI_WELCOME_BYTES 16     /* payload of an accepting WELCOME: the token */
#define PSRTI_WELCOME_TEXT_MAX 255 /* payload of a refusing one: why, without NUL */

typedef struct psrti_hello {
    uint8_t nonce[16]; /* names the job */
    uint32_t task;     /* of the dialler */
    uint32_t channel;  /* data: owner index; control: 0 */
    uint64_t incarnation;
    uint64_t challenge; /* random */
    uint8_t token[16];
} psrti_hello_t;

void psrti_hello_make(const psrti_jobkey_t *key, uint32_t task, uint32_t channel,
                      uint64_t incarnation, uint64_t challenge, psrti_hello_t *hello);
void psrti_hello_encode(const psrti_hello_t *hello, uint8_t out[PSRTI_HELLO_BYTES]);
/* ERR_PROTOCOL if the length is not exact or the task has no role that dials. */
psrt_status_t psrti_hello_decode(const void *data, uint64_t len, psrti_hello_t *hello);
/* OK or ERR_REFUSED with the reason for the dialler in text. */
psrt_status_t psrti_hello_check(const psrti_hello_t *hello, const psrti_jobkey_t *key,
                                uint32_t channel, char *text, size_t size);

/* Token of an accepting WELCOME of `task` to this HELLO. */
void psrti_welcome_token(const psrti_jobkey_t *key, uint32_t task, const psrti_hello_t *hello,
                         uint8_t token[PSRTI_WELCOME_BYTES]);
/* Dialler: OK; the status of a refusal, its text copied and made printable; ERR_PROTOCOL if the
 * message is malformed or its token is wrong. */
psrt_status_t psrti_welcome_check(const psrti_jobkey_t *key, uint32_t task,
                                  const psrti_hello_t *hello, const psrt_hdr_t *hdr,
                                  const void *data, uint64_t len, char *text, size_t size);

#endif
