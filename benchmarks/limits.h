/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread can do with a buffer of this size in its own memory: the bound for a transfer. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#define LIMIT_ROUNDS 16 /* measurements that are kept */

typedef struct limits {
    float *dst, *src; /* distinct buffers, used by nothing else */
    uint64_t elements;
    size_t rounds;
    double copy_us[LIMIT_ROUNDS], add_us[LIMIT_ROUNDS];
} limits_t;

int limits_init(limits_t *limits, uint64_t elements); /* 0, or -1: no memory */
void limits_free(limits_t *limits);
/* One round of both. Of two implementations of each, libc's or the compiler's and the library's,
 * the faster one counts, so that a slow kernel of ours does not flatter the ratio. */
void limits_measure(limits_t *limits);
/* Medians of the rounds, in us for the whole buffer. */
double limits_copy_us(limits_t *limits);
double limits_add_us(limits_t *limits);

#endif
