/* SPDX-License-Identifier: Apache-2.0 */
/* Folds of one element: the reference, and the tails of the vector variants. What is NaN is told apart at
 * the end only, by psrti_canonical_*, so that no order of operands shows. */
#ifndef PSRTI_KERNELS_FOLD_H
#define PSRTI_KERNELS_FOLD_H

#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/kernels.h"

static inline float psrti_canonical_f32(float v)
{
    return v == v ? v : psrti_f32_of_bits(0x7fc00000u);
}

static inline double psrti_canonical_f64(double v)
{
    static const uint64_t quiet = 0x7ff8000000000000u;
    if (v != v) memcpy(&v, &quiet, sizeof v);
    return v;
}

/* NaN: the sum of the two has one. Equal: the same, or zeros of either sign. */
#define PSRTI_DEFINE_FLOAT_OPS(TYPE, T)                                                            \
    static inline T psrti_sum_##TYPE(T a, T b) { return a + b; }                                   \
    static inline T psrti_prod_##TYPE(T a, T b) { return a * b; }                                  \
    static inline T psrti_min_##TYPE(T a, T b)                                                     \
    {                                                                                              \
        if (a != a || b != b) return a + b;                                                        \
        return a < b || (a == b && signbit(a)) ? a : b;                                            \
    }                                                                                              \
    static inline T psrti_max_##TYPE(T a, T b)                                                     \
    {                                                                                              \
        if (a != a || b != b) return a + b;                                                        \
        return a > b || (a == b && !signbit(a)) ? a : b;                                           \
    }
PSRTI_DEFINE_FLOAT_OPS(f32, float)
PSRTI_DEFINE_FLOAT_OPS(f64, double)

/* In 64 bits without sign: the low bits are the same, and nothing overflows. */
#define PSRTI_DEFINE_INTEGER_OPS(TYPE, T)                                                          \
    static inline T psrti_sum_##TYPE(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }          \
    static inline T psrti_prod_##TYPE(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }         \
    static inline T psrti_min_##TYPE(T a, T b) { return a < b ? a : b; }                           \
    static inline T psrti_max_##TYPE(T a, T b) { return a > b ? a : b; }
PSRTI_DEFINE_INTEGER_OPS(i8, int8_t)
PSRTI_DEFINE_INTEGER_OPS(i16, int16_t)
PSRTI_DEFINE_INTEGER_OPS(i32, int32_t)
PSRTI_DEFINE_INTEGER_OPS(i64, int64_t)
PSRTI_DEFINE_INTEGER_OPS(u8, uint8_t)

/* Elements [i, n). LOAD to the type ACC in which OP folds, FINISH(sum, ranks) back. */
#define PSRTI_FOLD_TAIL(T, ACC, LOAD, OP, FINISH)                                                  \
    for (; i < n; i++) {                                                                           \
        ACC sum = LOAD(((const T *)src[0])[i]);                                                    \
        for (unsigned j = 1; j < nsrc; j++)                                                        \
            sum = OP(sum, LOAD(((const T *)src[j])[i]));                                           \
        ((T *)dst)[i] = FINISH(sum, ranks);                                                        \
    }

/* LOAD and FINISH of each type. */
#define PSRTI_SAME(v) (v)
#define PSRTI_FINISH_INTEGER(v, ranks) (v)
static inline float psrti_finish_f32(float v, uint32_t ranks)
{
    return psrti_canonical_f32(ranks ? v / (float)ranks : v);
}
static inline double psrti_finish_f64(double v, uint32_t ranks)
{
    return psrti_canonical_f64(ranks ? v / ranks : v);
}
#define PSRTI_FINISH_F16(v, ranks) psrti_f16_of_f32(psrti_finish_f32(v, ranks))
#define PSRTI_FINISH_BF16(v, ranks) psrti_bf16_of_f32(psrti_finish_f32(v, ranks))

/* For a list of all operations of all types: X(type, element, accumulator, names of its operations, LOAD,
 * FINISH, operation). */
#define PSRTI_FOLDS_OF(X, TYPE, T, ACC, ACCTYPE, LOAD, FINISH)                                     \
    X(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, sum)                                                    \
    X(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, prod)                                                   \
    X(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, min)                                                    \
    X(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, max)
#define PSRTI_FOLDS(X)                                                                             \
    PSRTI_FOLDS_OF(X, f32, float, float, f32, PSRTI_SAME, psrti_finish_f32)                        \
    PSRTI_FOLDS_OF(X, f64, double, double, f64, PSRTI_SAME, psrti_finish_f64)                      \
    PSRTI_FOLDS_OF(X, f16, uint16_t, float, f32, psrti_f32_of_f16, PSRTI_FINISH_F16)               \
    PSRTI_FOLDS_OF(X, bf16, uint16_t, float, f32, psrti_f32_of_bf16, PSRTI_FINISH_BF16)            \
    PSRTI_FOLDS_OF(X, i8, int8_t, int8_t, i8, PSRTI_SAME, PSRTI_FINISH_INTEGER)                    \
    PSRTI_FOLDS_OF(X, i16, int16_t, int16_t, i16, PSRTI_SAME, PSRTI_FINISH_INTEGER)                \
    PSRTI_FOLDS_OF(X, i32, int32_t, int32_t, i32, PSRTI_SAME, PSRTI_FINISH_INTEGER)                \
    PSRTI_FOLDS_OF(X, i64, int64_t, int64_t, i64, PSRTI_SAME, PSRTI_FINISH_INTEGER)                \
    PSRTI_FOLDS_OF(X, u8, uint8_t, uint8_t, u8, PSRTI_SAME, PSRTI_FINISH_INTEGER)

/* The table of a variant whose functions are fold_sum_f32, ... */
#define PSRTI_FOLD_ROW(TYPE)                                                                       \
    {                                                                                              \
        fold_sum_##TYPE, fold_prod_##TYPE, fold_min_##TYPE, fold_max_##TYPE                        \
    }
#define PSRTI_FOLD_TABLE                                                                           \
    {                                                                                              \
        [PSRT_F32] = PSRTI_FOLD_ROW(f32), [PSRT_F64] = PSRTI_FOLD_ROW(f64),                        \
        [PSRT_F16] = PSRTI_FOLD_ROW(f16), [PSRT_BF16] = PSRTI_FOLD_ROW(bf16),                      \
        [PSRT_I32] = PSRTI_FOLD_ROW(i32), [PSRT_I64] = PSRTI_FOLD_ROW(i64),                        \
        [PSRT_I8] = PSRTI_FOLD_ROW(i8), [PSRT_I16] = PSRTI_FOLD_ROW(i16),                          \
        [PSRT_U8] = PSRTI_FOLD_ROW(u8),                                                            \
    }

#endif
