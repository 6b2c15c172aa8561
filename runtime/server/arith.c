/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/server/arith.h"

static const struct psrti_kernels_of_half *half_of(const psrti_kernels_t *k, psrt_dtype_t dtype)
{
    return dtype == PSRT_F16 ? &k->f16 : &k->bf16;
}

void psrti_arith_add(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t from, void *dst,
                     const void *a, const void *b, uint64_t n)
{
    if (from != acc) {
        half_of(k, from)->add_to_f32(dst, a, b, n);
        return;
    }
    switch (acc) {
    case PSRT_F64: k->f64.add(dst, a, b, n); break;
    case PSRT_I32: k->add_i32(dst, a, b, n); break;
    case PSRT_I64: k->add_i64(dst, a, b, n); break;
    default: k->f32.add(dst, a, b, n); break;
    }
}

void psrti_arith_widen(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t from, void *dst,
                       const void *src, uint64_t n)
{
    if (from == acc)
        k->copy(dst, src, n * psrt_dtype_size(acc));
    else
        half_of(k, from)->to_f32(dst, src, n);
}

void psrti_arith_round(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_dtype_t to, void *dst,
                       const void *src, uint64_t n)
{
    if (to == acc)
        k->copy(dst, src, n * psrt_dtype_size(acc));
    else
        half_of(k, to)->from_f32(dst, src, n);
}

void psrti_arith_divide(const psrti_kernels_t *k, psrt_dtype_t acc, void *dst, const void *src,
                        double divisor, uint64_t n)
{
    if (acc == PSRT_F64)
        k->f64.divide(dst, src, divisor, n);
    else
        k->f32.divide(dst, src, divisor, n);
}
