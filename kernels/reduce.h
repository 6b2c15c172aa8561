/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of collectives: what the ranks gave, combined from left to right.
 *
 * Sums and products of integers wrap around. AVG is the sum over the number of ranks; of integers the quotient is
 * rounded toward zero, and the sum is one of 64 bits. 16-bit floats are combined in f32 and rounded once, to the
 * nearest value, ties to even. A NaN makes the result of every operation NaN; MIN takes -0 for less than 0. All
 * variants of the kernels give the same bits, except for which NaN a NaN is.
 *
 * An algorithm that combines step by step works in the accumulator's type: widen each contribution, fold, narrow
 * once. Where that is the type itself, widen and narrow copy (nothing, if in place), but AVG divides. */
#ifndef PSRTI_REDUCE_H
#define PSRTI_REDUCE_H

#include "kernels/kernels.h"

const char *psrti_redop_name(psrt_redop_t op); /* "sum", ...; "none" for an unknown one */

psrt_dtype_t psrti_acc_dtype(psrt_dtype_t dtype, psrt_redop_t op);
/* Accumulators from n elements; no overlap, or equal if the types are. */
void psrti_widen(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *acc,
                 const void *src, uint64_t n);
/* dst[i] = a[i] op b[i] of accumulators of `acc` (AVG: their sum); dst may be a, b or both. */
void psrti_fold(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_redop_t op, void *dst,
                const void *a, const void *b, uint64_t n);
/* n elements from accumulators, of AVG divided by `ranks`; no overlap, or equal if the types are. */
void psrti_narrow(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *acc, uint64_t n, uint32_t ranks);

/* dst[i] = src[0][i] op ... op src[nsrc - 1][i], nsrc at least 1, in one pass over memory; AVG divides by `ranks`.
 * dst may be one of the sources and overlaps none else. Same bits as widen, fold and narrow. */
void psrti_reduce(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks);

#endif
