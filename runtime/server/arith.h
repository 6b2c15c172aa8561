/* SPDX-License-Identifier: Apache-2.0 */
/* What fold and apply ask of the kernels, by format. `acc` is the format of accumulators and of the
 * server's values: f32, f64, i32, i64. A format beside it is the same, or with f32 f16 or bf16. */
#ifndef PSRTI_ARITH_H
#define PSRTI_ARITH_H

#include "kernels/kernels.h"

/* dst[i] = a[i] + b[i] in acc; b comes in `from`. dst may be a. */
void psrti_arith_add(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t from, void *dst,
                     const void *a, const void *b, uint64_t n);
/* dst[i] (acc) = src[i] (from), exactly. */
void psrti_arith_widen(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t from, void *dst,
                       const void *src, uint64_t n);
/* dst[i] (to) = src[i] (acc), rounded once. */
void psrti_arith_round(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t to, void *dst,
                       const void *src, uint64_t n);
/* dst[i] = src[i] / divisor in acc; f32 and f64 only. dst may be src. */
void psrti_arith_divide(const psrti_kernels_t *k, psrt_dtype_t acc, void *dst, const void *src,
                        double divisor, uint64_t n);

#endif
