/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-bench kernels`: each variant of each kernel, and each optimizer's pass, in one thread. */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define KERNELS_SIZES_MAX 32

typedef struct kernels_options {
    uint64_t sizes[KERNELS_SIZES_MAX]; /* bytes, multiples of 8 */
    size_t size_count;
    double seconds; /* of one row */
    const char *json;
} kernels_options_t;

int bench_kernels(int argc, char **argv);

/* BENCH_RUN, or the exit code after --help or a wrong flag. */
int kernels_options_parse(int argc, char **argv, kernels_options_t *out);

/* What a plain C loop does that touches the same bytes. dst and src have n elements of dst_bytes and
 * src_bytes; `fold` adds to dst, else dst is only written; dst_bytes 0: src is only read, dst has room for
 * one element. NULL: no kernel has this shape. */
typedef void kernels_plain_fn(void *dst, const void *src, uint64_t n);
kernels_plain_fn *kernels_plain(uint32_t dst_bytes, uint32_t src_bytes, int fold);

/* The same for an optimizer: reads grad, reads and writes value and the states. */
void kernels_plain_f32(const void *grad, void *value, void *const *state, int states, uint64_t n);
void kernels_plain_f64(const void *grad, void *value, void *const *state, int states, uint64_t n);

#endif
