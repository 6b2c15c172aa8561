/* SPDX-License-Identifier: Apache-2.0 */
/* Values one after the other in a message: little-endian numbers, texts and bytes with their length
 * in front. What was received is never trusted: a reader that meets its end, or a text that is none,
 * goes bad and gives zeros from there on, so that it suffices to ask once, after the last value. */
#ifndef PSRTI_LAUNCHER_WIRE_H
#define PSRTI_LAUNCHER_WIRE_H

#include <stddef.h>
#include <stdint.h>

typedef struct psrti_wire_out { /* zeroed: empty */
    uint8_t *data;
    size_t len, capacity;
} psrti_wire_out_t;

void psrti_wire_put_u8(psrti_wire_out_t *w, uint8_t value);
void psrti_wire_put_u32(psrti_wire_out_t *w, uint32_t value);
void psrti_wire_put_u64(psrti_wire_out_t *w, uint64_t value);
void psrti_wire_put_bytes(psrti_wire_out_t *w, const void *data,
                          size_t len);                              /* to the end of the message */
void psrti_wire_put_text(psrti_wire_out_t *w, const char *text);    /* may be NULL */
void psrti_wire_put_texts(psrti_wire_out_t *w, char *const *texts); /* NULL-terminated, or NULL */
void psrti_wire_clear(psrti_wire_out_t *w);

typedef struct psrti_wire_in {
    const uint8_t *at, *end;
    int bad;
} psrti_wire_in_t;

uint8_t psrti_wire_get_u8(psrti_wire_in_t *r);
uint32_t psrti_wire_get_u32(psrti_wire_in_t *r);
uint64_t psrti_wire_get_u64(psrti_wire_in_t *r);
const uint8_t *psrti_wire_get_bytes(psrti_wire_in_t *r, size_t len); /* NULL: not so many */
/* In the message itself; NULL for one that was NULL, and when the reader went bad. */
const char *psrti_wire_get_text(psrti_wire_in_t *r);
/* Freed by the caller with psrti_argv_free. Empty for none and when the reader went bad. */
char **psrti_wire_get_texts(psrti_wire_in_t *r);
/* All was there and nothing is left. */
int psrti_wire_is_done(const psrti_wire_in_t *r);

#endif
