/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread can do with a buffer of this size in its own memory: the bound for a transfer. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#define LIMIT_ROUNDS 16 /* measurements that are kept */

typedef void limits_pass_fn(float *dst, const float *src, uint64_t elements);

/* Two implementations of each pass: libc's or the compiler's, and the library's. */
#define LIMIT_KERNELS 2
extern limits_pass_fn *const limits_copies[LIMIT_KERNELS], *const limits_adds[LIMIT_KERNELS];

typedef struct limits {
    float *table, *grad, *value; /* used by nothing else */
    uint64_t elements;
    size_t rounds;
    unsigned copy, add; /* the faster implementations of the last round */
    double copy_us[LIMIT_ROUNDS], add_us[LIMIT_ROUNDS];
} limits_t;

/* The table lies on huge pages; so do gradient and values, unless they are to be what malloc gives.
 * 0, or -1: no memory. */
int limits_init(limits_t *limits, uint64_t elements, int ordinary);
void limits_free(limits_t *limits);
/* One round of both, table += grad and value = table. The faster implementation of each counts, so that a slow kernel of ours does not
 * flatter the ratio. */
void limits_measure(limits_t *limits);
/* Medians of the rounds, in us for the whole buffer. */
double limits_copy_us(limits_t *limits);
double limits_add_us(limits_t *limits);

#endif
