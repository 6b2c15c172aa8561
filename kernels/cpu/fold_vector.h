/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions in vectors, for a variant to include, which defines before:
 *
 *   FOLD_TARGET             attribute of functions that may use its instructions, or nothing
 *   FOLD_BYTES              size of a vector
 *   fold_load_f16, _bf16    const uint16_t * to a vector of f32 (fold_f32_t)
 *   fold_store_f16, _bf16   such a vector to uint16_t *, with `stream`
 *   fold_store              any vector to memory of any alignment; with `stream` of that of a vector
 *   fold_nan_f32, _f64      whether any element of four vectors is NaN
 *   fold_fence              after stores with `stream`
 *
 * An element goes through all sources in a register, so that each is read once, dst is written once, and may be a
 * source: all loads of a turn come before its stores. Vectors are those of the compiler, gcc's and clang's. */
#include "kernels/cpu/fold.h"

#define TURN 4 /* vectors */

#define FOLD_FUNCTION FOLD_TARGET static inline __attribute__((always_inline))

/* fold_store_TYPE and fold_load_TYPE, where elements are folded as they are. */
#define DEFINE_ACCESS(TYPE, T)                                                                     \
    typedef T fold_at_##TYPE##_t                                                                   \
        __attribute__((vector_size(FOLD_BYTES), aligned(sizeof(T)), may_alias));                   \
    FOLD_FUNCTION fold_##TYPE##_t fold_load_##TYPE(const T *p)                                     \
    {                                                                                              \
        return *(const fold_at_##TYPE##_t *)p;                                                     \
    }                                                                                              \
    FOLD_FUNCTION void fold_store_##TYPE(T *p, fold_##TYPE##_t v, int stream)                      \
    {                                                                                              \
        fold_store(p, (fold_bits_t)v, stream);                                                     \
    }
DEFINE_ACCESS(f32, float)
DEFINE_ACCESS(f64, double)
DEFINE_ACCESS(i8, int8_t)
DEFINE_ACCESS(i16, int16_t)
DEFINE_ACCESS(i32, int32_t)
DEFINE_ACCESS(i64, int64_t)
DEFINE_ACCESS(u8, uint8_t)

/* A comparison gives all bits of an element or none. Neither below, above nor equal: NaN; for min the bits of
 * both, or'ed, are NaN as they stand. Zeros of both signs: or'ed -0, and'ed +0. */
#define DEFINE_FLOAT_OPS(TYPE, QUIET)                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_sum_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_prod_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)        \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_min_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        const fold_bits_t x = (fold_bits_t)a, y = (fold_bits_t)b;                                  \
        const fold_bits_t below = (fold_bits_t)(a < b), above = (fold_bits_t)(a > b);              \
        return (fold_##TYPE##_t)((x & below) | (y & above) | ((x | y) & ~(below | above)));        \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_max_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        const fold_bits_t x = (fold_bits_t)a, y = (fold_bits_t)b;                                  \
        const fold_bits_t below = (fold_bits_t)(a < b), above = (fold_bits_t)(a > b);              \
        const fold_bits_t equal = (fold_bits_t)(a == b);                                           \
        return (fold_##TYPE##_t)((x & above) | (y & below) | (x & y & equal) |                     \
                                 ~(below | above | equal));                                        \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_canonical_##TYPE(fold_##TYPE##_t v)                         \
    {                                                                                              \
        const fold_bits_t nan = (fold_bits_t)(v != v);                                             \
        const fold_bits_t quiet = (fold_bits_t)((fold_##TYPE##_t){ 0 } + QUIET);                   \
        return (fold_##TYPE##_t)(((fold_bits_t)v & ~nan) | (quiet & nan));                         \
    }
DEFINE_FLOAT_OPS(f32, __builtin_nanf(""))
DEFINE_FLOAT_OPS(f64, __builtin_nan(""))

/* As unsigned numbers, which wrap around. */
#define DEFINE_INTEGER_OPS(TYPE, U)                                                                \
    typedef U fold_u_##TYPE##_t __attribute__((vector_size(FOLD_BYTES)));                          \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_sum_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        return (fold_##TYPE##_t)((fold_u_##TYPE##_t)a + (fold_u_##TYPE##_t)b);                     \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_prod_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)        \
    {                                                                                              \
        return (fold_##TYPE##_t)((fold_u_##TYPE##_t)a * (fold_u_##TYPE##_t)b);                     \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_min_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        const fold_bits_t below = (fold_bits_t)(a < b);                                            \
        return (fold_##TYPE##_t)(((fold_bits_t)a & below) | ((fold_bits_t)b & ~below));            \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_max_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        const fold_bits_t above = (fold_bits_t)(a > b);                                            \
        return (fold_##TYPE##_t)(((fold_bits_t)a & above) | ((fold_bits_t)b & ~above));            \
    }
DEFINE_INTEGER_OPS(i8, uint8_t)
DEFINE_INTEGER_OPS(i16, uint16_t)
DEFINE_INTEGER_OPS(i32, uint32_t)
DEFINE_INTEGER_OPS(i64, uint64_t)
DEFINE_INTEGER_OPS(u8, uint8_t)

/* What remains to be done with sums. NaN is rare, so a turn asks once for it. */
#define DEFINE_FLOAT_FINISH(TYPE, T)                                                               \
    FOLD_FUNCTION void fold_finish_##TYPE(fold_##TYPE##_t *v, int vectors, uint32_t ranks)         \
    {                                                                                              \
        const int last = vectors - 1;                                                              \
        if (ranks)                                                                                 \
            for (int k = 0; k < vectors; k++)                                                      \
                v[k] = v[k] / ((fold_##TYPE##_t){ 0 } + (T)ranks);                                 \
        if (fold_nan_##TYPE(v[0], v[last / 3], v[last * 2 / 3], v[last]))                          \
            for (int k = 0; k < vectors; k++)                                                      \
                v[k] = fold_canonical_##TYPE(v[k]);                                                \
    }
DEFINE_FLOAT_FINISH(f32, float)
DEFINE_FLOAT_FINISH(f64, double)
#define fold_finish_integer(v, vectors, ranks) ((void)(ranks))
#define fold_finish_i8 fold_finish_integer
#define fold_finish_i16 fold_finish_integer
#define fold_finish_i32 fold_finish_integer
#define fold_finish_i64 fold_finish_integer
#define fold_finish_u8 fold_finish_integer

/* Elements up to the first whose address a line of the cache begins with. */
static inline uint64_t fold_head(const void *dst, size_t size, uint64_t n)
{
    const uint64_t head = -(uintptr_t)dst % 64 / size;
    return head < n ? head : n;
}

#define DEFINE_FOLD(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, OP)                                       \
    static void fold_tail_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc,          \
                                        uint64_t i, uint64_t n, uint32_t ranks)                    \
    {                                                                                              \
        (void)ranks;                                                                               \
        PSRTI_FOLD_TAIL(T, ACC, LOAD, psrti_##OP##_##ACCTYPE, FINISH)                              \
    }                                                                                              \
    FOLD_FUNCTION void fold_turn_##OP##_##TYPE(T *dst, const void *const *src, unsigned nsrc,      \
                                               uint64_t i, int vectors, uint32_t ranks,            \
                                               int stream)                                         \
    {                                                                                              \
        const uint64_t lanes = FOLD_BYTES / sizeof(ACC);                                           \
        fold_##ACCTYPE##_t v[TURN];                                                                \
        for (int k = 0; k < vectors; k++)                                                          \
            v[k] = fold_load_##TYPE((const T *)src[0] + i + k * lanes);                            \
        for (unsigned j = 1; j < nsrc; j++) {                                                      \
            const T *x = (const T *)src[j] + i;                                                    \
            for (int k = 0; k < vectors; k++)                                                      \
                v[k] = fold_op_##OP##_##ACCTYPE(v[k], fold_load_##TYPE(x + k * lanes));            \
        }                                                                                          \
        fold_finish_##ACCTYPE(v, vectors, ranks);                                                  \
        for (int k = 0; k < vectors; k++)                                                          \
            fold_store_##TYPE(dst + i + k * lanes, v[k], stream);                                  \
    }                                                                                              \
    FOLD_TARGET static void fold_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc,   \
                                               uint64_t n, uint32_t ranks, int stream)             \
    {                                                                                              \
        const uint64_t lanes = FOLD_BYTES / sizeof(ACC);                                           \
        uint64_t i = stream ? fold_head(dst, sizeof(T), n) : 0;                                    \
        fold_tail_##OP##_##TYPE(dst, src, nsrc, 0, i, ranks);                                      \
        for (; n - i >= TURN * lanes; i += TURN * lanes)                                           \
            fold_turn_##OP##_##TYPE(dst, src, nsrc, i, TURN, ranks, stream);                       \
        if (stream) fold_fence();                                                                  \
        for (; n - i >= lanes; i += lanes)                                                         \
            fold_turn_##OP##_##TYPE(dst, src, nsrc, i, 1, ranks, 0);                               \
        fold_tail_##OP##_##TYPE(dst, src, nsrc, i, n, ranks);                                      \
    }
PSRTI_FOLDS(DEFINE_FOLD)
