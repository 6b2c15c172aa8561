/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of collectives: what the ranks gave, combined from left to right, as psrt_redop_t says.
 *
 * Results are equal to the bit in every variant and on every machine. MIN and MAX do not depend on the order. A NaN
 * that comes out of a fold is the positive quiet one without payload (f32 0x7fc00000), whatever NaN, infinities
 * or order it came from.
 *
 * An algorithm that combines step by step works in the accumulator's type, so that nothing is rounded and no
 * average wraps in between: widen each contribution, fold, narrow once, all ranks in the same order for an
 * element. Where that is the type itself, widen and narrow copy (nothing, if in place), but AVG divides. */
#ifndef PSRTI_REDUCE_H
#define PSRTI_REDUCE_H

#include "kernels/kernels.h"

/* SUM, PROD and AVG of f16 and bf16: f32. AVG of integers: i64. All else: `dtype`. */
psrt_dtype_t psrti_acc_dtype(psrt_dtype_t dtype, psrt_redop_t op);
/* Accumulators from n elements, exactly; no overlap, or equal if the types are. */
void psrti_widen(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *acc,
                 const void *src, uint64_t n);
/* dst[i] = a[i] op b[i] of accumulators of `acc` (AVG: their sum); dst may be a, b or both. */
void psrti_fold(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_redop_t op, void *dst,
                const void *a, const void *b, uint64_t n);
/* n elements from accumulators, of AVG divided by `ranks`, at least 1; no overlap, or equal if the types are. */
void psrti_narrow(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *acc, uint64_t n, uint32_t ranks);

/* dst[i] = src[0][i] op ... op src[nsrc - 1][i], nsrc at least 1; each source is read once. Same bits as widen,
 * fold and narrow. AVG divides by `ranks` (any number: sources may be partial sums), 0: does not; the other
 * operations ignore it. dst may be one of the sources and overlaps none else; sources may be the same.
 * _stream: dst is written past the caches where the variant can, for more than they hold. */
void psrti_reduce(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks);
void psrti_reduce_stream(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                         const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks);

#endif
