/* SPDX-License-Identifier: Apache-2.0 */
/* The job's key: one CURVE key pair and a nonce that names the job. Lives in a file of mode 0600,
 * never in an argument list or the environment. */
#ifndef PSRTI_BASE_JOBKEY_H
#define PSRTI_BASE_JOBKEY_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

typedef struct psrti_jobkey {
    uint8_t secret[32]; /* Curve25519 secret key, shared by all tasks of the job */
    uint8_t public_[32];
    uint8_t nonce[16]; /* names the job; not secret */
} psrti_jobkey_t;

psrt_status_t psrti_jobkey_generate(psrti_jobkey_t *key);
/* Creates the file exclusively with mode 0600. */
psrt_status_t psrti_jobkey_write(const psrti_jobkey_t *key, const char *path);
/* The text of such a file. */
#define PSRTI_JOBKEY_TEXT_MAX 256
size_t psrti_jobkey_format(const psrti_jobkey_t *key, char text[PSRTI_JOBKEY_TEXT_MAX]);
/* Refuses a file that others can read or that another user owns, naming it and what to do. */
psrt_status_t psrti_jobkey_read(const char *path, psrti_jobkey_t *key);
/* Proves that whoever made it knows the secret: BLAKE2b-128 with the secret as key over the nonce and
 * the message. It is fresh only if the message is. */
void psrti_jobkey_token(const psrti_jobkey_t *key, const void *message, size_t size,
                        uint8_t token[16]);
/* Constant time. */
int psrti_jobkey_token_equal(const uint8_t a[16], const uint8_t b[16]);
void psrti_jobkey_wipe(psrti_jobkey_t *key);

#endif
