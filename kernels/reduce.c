/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reduce.h"

#include "base/util.h"

#define BLOCK 1024 /* elements, whose accumulators stay in L1 */

static int is_half(psrt_dtype_t dtype) { return dtype == PSRT_F16 || dtype == PSRT_BF16; }

static int is_integer(psrt_dtype_t dtype)
{
    return !is_half(dtype) && dtype != PSRT_F32 && dtype != PSRT_F64;
}

static const struct psrti_kernels_of_half *half_of(const psrti_kernels_t *k, psrt_dtype_t dtype)
{
    return dtype == PSRT_F16 ? &k->f16 : &k->bf16;
}

psrt_dtype_t psrti_acc_dtype(psrt_dtype_t dtype, psrt_redop_t op)
{
    if (op == PSRT_MIN || op == PSRT_MAX) return dtype;
    if (is_half(dtype)) return PSRT_F32;
    return op == PSRT_AVG && is_integer(dtype) ? PSRT_I64 : dtype;
}

/* ---- AVG of integers --------------------------------------------------------------------------- */

#define DEFINE_INTEGER(TYPE, T)                                                                    \
    static void widen_##TYPE(int64_t *acc, const void *src, uint64_t n)                            \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                           \
            acc[i] = (int64_t)((const T *)src)[i];                                                 \
    }                                                                                              \
    static void divide_##TYPE(void *dst, const int64_t *acc, uint64_t n, int64_t ranks)            \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                           \
            ((T *)dst)[i] = (T)(acc[i] / ranks);                                                   \
    }
DEFINE_INTEGER(i8, int8_t)
DEFINE_INTEGER(i16, int16_t)
DEFINE_INTEGER(i32, int32_t)
DEFINE_INTEGER(i64, int64_t)
DEFINE_INTEGER(u8, uint8_t)

static void widen_integers(psrt_dtype_t dtype, int64_t *acc, const void *src, uint64_t n)
{
    switch (dtype) {
    case PSRT_I8: widen_i8(acc, src, n); break;
    case PSRT_I16: widen_i16(acc, src, n); break;
    case PSRT_I32: widen_i32(acc, src, n); break;
    case PSRT_I64: widen_i64(acc, src, n); break;
    case PSRT_U8: widen_u8(acc, src, n); break;
    default: break;
    }
}

static void divide_integers(psrt_dtype_t dtype, void *dst, const int64_t *acc, uint64_t n,
                            uint32_t ranks)
{
    const int64_t by = ranks ? ranks : 1;
    switch (dtype) {
    case PSRT_I8: divide_i8(dst, acc, n, by); break;
    case PSRT_I16: divide_i16(dst, acc, n, by); break;
    case PSRT_I32: divide_i32(dst, acc, n, by); break;
    case PSRT_I64: divide_i64(dst, acc, n, by); break;
    case PSRT_U8: divide_u8(dst, acc, n, by); break;
    default: break;
    }
}

/* All sources of a block are read before dst is written, so dst may be one of them. */
static void average_integers(const psrti_kernels_t *k, psrt_dtype_t dtype, void *dst,
                             const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks)
{
    const size_t size = psrt_dtype_size(dtype);
    int64_t sum[BLOCK], next[BLOCK];
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint64_t m = PSRTI_MIN(n - at, (uint64_t)BLOCK);
        widen_integers(dtype, sum, (const char *)src[0] + at * size, m);
        for (unsigned j = 1; j < nsrc; j++) {
            widen_integers(dtype, next, (const char *)src[j] + at * size, m);
            k->add_i64(sum, sum, next, m);
        }
        divide_integers(dtype, (char *)dst + at * size, sum, m, ranks);
    }
}

/* ---- the interface ----------------------------------------------------------------------------- */

static void reduce(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                   const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks, int stream)
{
    if (op == PSRT_AVG && ranks && is_integer(dtype)) {
        average_integers(k, dtype, dst, src, nsrc, n, ranks);
        return;
    }
    const psrt_redop_t fold = op == PSRT_AVG ? PSRT_SUM : op;
    k->fold[dtype][fold](dst, src, nsrc, n, op == PSRT_AVG ? ranks : 0, stream);
}

void psrti_reduce(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks)
{
    reduce(k, dtype, op, dst, src, nsrc, n, ranks, 0);
}

void psrti_reduce_stream(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                         const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks)
{
    reduce(k, dtype, op, dst, src, nsrc, n, ranks, 1);
}

void psrti_fold(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_redop_t op, void *dst,
                const void *a, const void *b, uint64_t n)
{
    const void *src[] = { a, b };
    reduce(k, acc, op, dst, src, 2, n, 0, 0);
}

void psrti_widen(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *acc,
                 const void *src, uint64_t n)
{
    if (psrti_acc_dtype(dtype, op) == dtype) {
        if (acc != src) k->copy(acc, src, n * psrt_dtype_size(dtype));
    } else if (is_half(dtype))
        half_of(k, dtype)->to_f32(acc, src, n);
    else
        widen_integers(dtype, acc, src, n);
}

/* The quotient of a block goes through L1, to be rounded. */
static void narrow_half(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                        const float *acc, uint64_t n, uint32_t ranks)
{
    float quotient[BLOCK];
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint64_t m = PSRTI_MIN(n - at, (uint64_t)BLOCK);
        const void *src = acc + at;
        psrti_reduce(k, PSRT_F32, op, quotient, &src, 1, m, ranks);
        half_of(k, dtype)->from_f32((uint16_t *)dst + at, quotient, m);
    }
}

void psrti_narrow(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                  const void *acc, uint64_t n, uint32_t ranks)
{
    if (psrti_acc_dtype(dtype, op) == PSRT_F32 && is_half(dtype))
        narrow_half(k, dtype, op, dst, acc, n, ranks);
    else if (op == PSRT_AVG && is_integer(dtype))
        divide_integers(dtype, dst, acc, n, ranks);
    else if (op == PSRT_AVG)
        psrti_reduce(k, dtype, op, dst, &acc, 1, n, ranks);
    else if (dst != acc)
        k->copy(dst, acc, n * psrt_dtype_size(dtype));
}
