/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reduce.h"

#include <string.h>

#include "base/util.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"

/* Elements of a block that stays in the first cache while its sources are combined. */
#define BLOCK 1024

/* dst may equal a or b, which `restrict` does not allow, but no element depends on another. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define WITH_AVX2 PSRTI_TARGET_AVX2
#else
#define WITH_AVX2
#endif

static const char *const names[] = { "sum", "prod", "min", "max", "avg" };

const char *psrti_redop_name(psrt_redop_t op)
{
    return (size_t)op < PSRTI_COUNT(names) ? names[op] : "none";
}

/* ---- two operands ------------------------------------------------------------------------------ */

/* Integers wrap, so they are combined as unsigned. */
#define INT_PROD(T, U, a, b) ((T)(U)((U)(a) * (U)(b)))
#define INT_MIN_OF(T, U, a, b) ((a) < (b) ? (a) : (b))
#define INT_MAX_OF(T, U, a, b) ((a) > (b) ? (a) : (b))
#define INT_SUM(T, U, a, b) ((T)(U)((U)(a) + (U)(b)))
#define FLOAT_PROD(T, U, a, b) ((a) * (b))
#define FLOAT_MIN_OF(T, U, a, b) (min_##T(a, b))
#define FLOAT_MAX_OF(T, U, a, b) (max_##T(a, b))

/* Zeros of both signs: their bits or'ed are -0, and'ed 0. Branches that the vectoriser turns into blends. */
#define DEFINE_EXTREMES(T, U)                                                                      \
    static inline T min_##T(T a, T b)                                                              \
    {                                                                                              \
        U x, y;                                                                                    \
        memcpy(&x, &a, sizeof x);                                                                  \
        memcpy(&y, &b, sizeof y);                                                                  \
        U r = a < b ? x : y;                                                                       \
        r = a == b ? (x | y) : r;                                                                  \
        r = a != a ? x : r;                                                                        \
        memcpy(&a, &r, sizeof a);                                                                  \
        return a;                                                                                  \
    }                                                                                              \
    static inline T max_##T(T a, T b)                                                              \
    {                                                                                              \
        U x, y;                                                                                    \
        memcpy(&x, &a, sizeof x);                                                                  \
        memcpy(&y, &b, sizeof y);                                                                  \
        U r = a > b ? x : y;                                                                       \
        r = a == b ? (x & y) : r;                                                                  \
        r = a != a ? x : r;                                                                        \
        memcpy(&a, &r, sizeof a);                                                                  \
        return a;                                                                                  \
    }
DEFINE_EXTREMES(float, uint32_t)
DEFINE_EXTREMES(double, uint64_t)

typedef void (*fold_fn)(void *dst, const void *a, const void *b, uint64_t n);

#define DEFINE_FOLD_AS(NAME, TARGET, T, U, EXPR)                                                   \
    TARGET static void NAME(void *dst, const void *a, const void *b, uint64_t n)                   \
    {                                                                                              \
        const T *x = a, *y = b;                                                                    \
        T *out = dst;                                                                              \
        ELEMENTWISE                                                                                \
        for (uint64_t i = 0; i < n; i++)                                                           \
            out[i] = EXPR(T, U, x[i], y[i]);                                                       \
    }
#define DEFINE_FOLD(SUFFIX, T, U, OP, EXPR)                                                        \
    DEFINE_FOLD_AS(OP##_##SUFFIX##_baseline, , T, U, EXPR)                                         \
    DEFINE_FOLD_AS(OP##_##SUFFIX##_avx2, WITH_AVX2, T, U, EXPR)
#define DEFINE_INTEGER(SUFFIX, T, U)                                                               \
    DEFINE_FOLD(SUFFIX, T, U, sum, INT_SUM)                                                        \
    DEFINE_FOLD(SUFFIX, T, U, prod, INT_PROD)                                                      \
    DEFINE_FOLD(SUFFIX, T, U, min, INT_MIN_OF)                                                     \
    DEFINE_FOLD(SUFFIX, T, U, max, INT_MAX_OF)
#define DEFINE_FLOAT(SUFFIX, T)                                                                    \
    DEFINE_FOLD(SUFFIX, T, T, prod, FLOAT_PROD)                                                    \
    DEFINE_FOLD(SUFFIX, T, T, min, FLOAT_MIN_OF)                                                   \
    DEFINE_FOLD(SUFFIX, T, T, max, FLOAT_MAX_OF)

DEFINE_FLOAT(f32, float)
DEFINE_FLOAT(f64, double)
DEFINE_INTEGER(i8, int8_t, uint8_t)
DEFINE_INTEGER(u8, uint8_t, uint8_t)
DEFINE_INTEGER(i16, int16_t, uint16_t)
DEFINE_INTEGER(i32, int32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t)

#define PAIR(name)                                                                                 \
    {                                                                                              \
        name##_baseline, name##_avx2                                                               \
    }
#define ROW(SUFFIX)                                                                                \
    {                                                                                              \
        PAIR(sum_##SUFFIX), PAIR(prod_##SUFFIX), PAIR(min_##SUFFIX), PAIR(max_##SUFFIX)            \
    }
/* By type and operation, without and with AVX2. Sums of floats are those of the kernels. */
static const fold_fn folds[][4][2] = {
    [PSRT_F32] = { { NULL, NULL }, PAIR(prod_f32), PAIR(min_f32), PAIR(max_f32) },
    [PSRT_F64] = { { NULL, NULL }, PAIR(prod_f64), PAIR(min_f64), PAIR(max_f64) },
    [PSRT_I32] = ROW(i32),
    [PSRT_I64] = ROW(i64),
    [PSRT_I8] = ROW(i8),
    [PSRT_I16] = ROW(i16),
    [PSRT_U8] = ROW(u8),
};

void psrti_fold(const psrti_kernels_t *k, psrt_dtype_t acc, psrt_redop_t op, void *dst,
                const void *a, const void *b, uint64_t n)
{
    if (op == PSRT_AVG) op = PSRT_SUM;
    if (op == PSRT_SUM && acc == PSRT_F32)
        k->f32.add(dst, a, b, n);
    else if (op == PSRT_SUM && acc == PSRT_F64)
        k->f64.add(dst, a, b, n);
    else
        folds[acc][op][psrti_cpu_has_avx2() != 0](dst, a, b, n);
}

/* ---- accumulators ------------------------------------------------------------------------------ */

static int is_integer(psrt_dtype_t t)
{
    return t != PSRT_F32 && t != PSRT_F64 && t != PSRT_F16 && t != PSRT_BF16;
}

psrt_dtype_t psrti_acc_dtype(psrt_dtype_t t, psrt_redop_t op)
{
    if (t == PSRT_F16 || t == PSRT_BF16) return PSRT_F32;
    return op == PSRT_AVG && is_integer(t) ? PSRT_I64 : t;
}

#define WIDEN(T)                                                                                   \
    for (uint64_t i = 0; i < n; i++)                                                               \
    acc[i] = ((const T *)src)[i]
#define NARROW(T)                                                                                  \
    for (uint64_t i = 0; i < n; i++)                                                               \
    ((T *)dst)[i] = (T)(acc[i] / ranks)

static void widen_integers(psrt_dtype_t t, int64_t *acc, const void *src, uint64_t n)
{
    switch (t) {
    case PSRT_I8: WIDEN(int8_t); break;
    case PSRT_U8: WIDEN(uint8_t); break;
    case PSRT_I16: WIDEN(int16_t); break;
    case PSRT_I32: WIDEN(int32_t); break;
    default: memmove(acc, src, n * sizeof *acc); break;
    }
}

static void divide_integers(psrt_dtype_t t, void *dst, const int64_t *acc, uint64_t n, int64_t ranks)
{
    switch (t) {
    case PSRT_I8: NARROW(int8_t); break;
    case PSRT_U8: NARROW(uint8_t); break;
    case PSRT_I16: NARROW(int16_t); break;
    case PSRT_I32: NARROW(int32_t); break;
    default: NARROW(int64_t); break;
    }
}

static const struct psrti_kernels_of_half *half_of(const psrti_kernels_t *k, psrt_dtype_t t)
{
    return t == PSRT_F16 ? &k->f16 : t == PSRT_BF16 ? &k->bf16 : NULL;
}

void psrti_widen(const psrti_kernels_t *k, psrt_dtype_t t, psrt_redop_t op, void *acc,
                 const void *src, uint64_t n)
{
    const struct psrti_kernels_of_half *half = half_of(k, t);

    if (half)
        half->to_f32(acc, src, n);
    else if (psrti_acc_dtype(t, op) != t)
        widen_integers(t, acc, src, n);
    else if (acc != src)
        k->copy(acc, src, n * psrt_dtype_size(t));
}

/* A block of the mean at a time, so that `acc` stays as it is. */
static void round_mean(const psrti_kernels_t *k, const struct psrti_kernels_of_half *half,
                       uint16_t *dst, const float *acc, uint64_t n, uint32_t ranks)
{
    float mean[BLOCK];

    for (uint64_t at = 0; at < n; at += BLOCK) {
        uint64_t m = PSRTI_MIN(n - at, (uint64_t)BLOCK);
        k->f32.divide(mean, acc + at, ranks, m);
        half->from_f32(dst + at, mean, m);
    }
}

void psrti_narrow(const psrti_kernels_t *k, psrt_dtype_t t, psrt_redop_t op, void *dst,
                  const void *acc, uint64_t n, uint32_t ranks)
{
    const struct psrti_kernels_of_half *half = half_of(k, t);

    if (half && op == PSRT_AVG)
        round_mean(k, half, dst, acc, n, ranks);
    else if (half)
        half->from_f32(dst, acc, n);
    else if (op == PSRT_AVG && is_integer(t))
        divide_integers(t, dst, acc, n, ranks);
    else if (op == PSRT_AVG)
        (t == PSRT_F64 ? &k->f64 : &k->f32)->divide(dst, acc, ranks, n);
    else if (dst != acc)
        k->copy(dst, acc, n * psrt_dtype_size(t));
}

/* ---- many operands ----------------------------------------------------------------------------- */

static const void *at_element(const void *p, uint64_t i, size_t width)
{
    return (const char *)p + i * width;
}

/* The accumulators of m elements from `first` on into acc; sources are widened through `wide`. */
static void fold_block(const psrti_kernels_t *k, psrt_dtype_t t, psrt_redop_t op, void *acc,
                       void *wide, const void *const *src, unsigned nsrc, uint64_t first,
                       uint64_t m)
{
    size_t width = psrt_dtype_size(t);
    psrt_dtype_t to = psrti_acc_dtype(t, op);
    const struct psrti_kernels_of_half *half = op == PSRT_SUM || op == PSRT_AVG ? half_of(k, t) : NULL;
    unsigned next = 1;

    if (to != t || nsrc == 1)
        psrti_widen(k, t, op, acc, at_element(src[0], first, width), m);
    else
        psrti_fold(k, to, op, acc, at_element(src[0], first, width),
                   at_element(src[next++], first, width), m);
    for (; next < nsrc; next++) {
        const void *s = at_element(src[next], first, width);
        if (half) {
            half->add_to_f32(acc, acc, s, m);
            continue;
        }
        if (to != t) {
            psrti_widen(k, t, op, wide, s, m);
            s = wide;
        }
        psrti_fold(k, to, op, acc, acc, s, m);
    }
}

/* Is dst a source that is read after the block was written for the first time? */
static int is_read_late(const void *dst, const void *const *src, unsigned nsrc)
{
    for (unsigned i = 2; i < nsrc; i++)
        if (src[i] == dst) return 1;
    return 0;
}

void psrti_reduce(const psrti_kernels_t *k, psrt_dtype_t t, psrt_redop_t op, void *dst,
                  const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks)
{
    int64_t acc[BLOCK], wide[BLOCK]; /* of any accumulator's type */
    size_t width = psrt_dtype_size(t);
    int same = psrti_acc_dtype(t, op) == t;
    int apart = !same || is_read_late(dst, src, nsrc);

    if (same && nsrc == 2 && op != PSRT_AVG) {
        psrti_fold(k, t, op, dst, src[0], src[1], n);
        return;
    }
    for (uint64_t at = 0; at < n; at += BLOCK) {
        uint64_t m = PSRTI_MIN(n - at, (uint64_t)BLOCK);
        void *out = (char *)dst + at * width;
        fold_block(k, t, op, apart ? (void *)acc : out, wide, src, nsrc, at, m);
        psrti_narrow(k, t, op, out, apart ? (void *)acc : out, m, ranks);
    }
}
