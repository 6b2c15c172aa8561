/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions in vectors, for a variant to include, which defines before:
 *
 *   FOLD_TARGET             attribute of functions that may use its instructions, or nothing
 *   FOLD_BYTES              size of a vector
 *   fold_load_f16, _bf16    const uint16_t * to a vector of f32 (fold_f32_t)
 *   fold_store_f16, _bf16   such a vector to uint16_t *, with `stream`
 *   fold_store              any vector to memory of any alignment; with `stream` of that of a vector
 *   fold_op_min_f32, _f64   of two vectors, as psrti_min_f32; any NaN will do
 *   fold_op_max_f32, _f64   likewise
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

/* A comparison gives all bits of an element or none. */
#define DEFINE_FLOAT_OPS(TYPE, QUIET)                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_sum_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    FOLD_FUNCTION fold_##TYPE##_t fold_op_prod_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)        \
    {                                                                                              \
        return a * b;                                                                              \
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

/* `vectors` of them, TURN or 1, from and to memory. */
#define DEFINE_TURN_ACCESS(TYPE, T, ACC, ACCTYPE)                                                  \
    FOLD_FUNCTION void fold_get_##TYPE(fold_##ACCTYPE##_t *v, const T *p, int vectors)             \
    {                                                                                              \
        for (int k = 0; k < vectors; k++)                                                          \
            v[k] = fold_load_##TYPE(p + k * (FOLD_BYTES / sizeof(ACC)));                           \
    }                                                                                              \
    FOLD_FUNCTION void fold_put_##TYPE(T *p, const fold_##ACCTYPE##_t *v, int vectors, int stream) \
    {                                                                                              \
        for (int k = 0; k < vectors; k++)                                                          \
            fold_store_##TYPE(p + k * (FOLD_BYTES / sizeof(ACC)), v[k], stream);                   \
    }
DEFINE_TURN_ACCESS(f32, float, float, f32)
DEFINE_TURN_ACCESS(f64, double, double, f64)
DEFINE_TURN_ACCESS(f16, uint16_t, float, f32)
DEFINE_TURN_ACCESS(i8, int8_t, int8_t, i8)
DEFINE_TURN_ACCESS(i16, int16_t, int16_t, i16)
DEFINE_TURN_ACCESS(i32, int32_t, int32_t, i32)
DEFINE_TURN_ACCESS(i64, int64_t, int64_t, i64)
DEFINE_TURN_ACCESS(u8, uint8_t, uint8_t, u8)

/* bf16 in pairs: the elements with even index, which are the lower halves of words of 32 bits, in one vector of
 * f32, the odd ones in the next. That takes half the instructions of widening and packing them in their order. */
#define UPPER_HALF 0xffff0000u
typedef uint32_t fold_pairs_t
    __attribute__((vector_size(FOLD_BYTES), aligned(sizeof(uint16_t)), may_alias));

FOLD_FUNCTION void fold_get_bf16(fold_f32_t *v, const uint16_t *p, int vectors)
{
    if (vectors == 1) v[0] = fold_load_bf16(p);
    for (int k = 0; k + 1 < vectors; k += 2) {
        const fold_u_i32_t pairs = *(const fold_pairs_t *)(p + k * (FOLD_BYTES / sizeof(float)));
        v[k] = (fold_f32_t)(pairs << 16);
        v[k + 1] = (fold_f32_t)(pairs & UPPER_HALF);
    }
}

/* In the upper half, to the nearest, ties to even; the canonical NaN stays what it is. */
FOLD_FUNCTION fold_u_i32_t fold_rounded_bf16(fold_f32_t v)
{
    const fold_u_i32_t bits = (fold_u_i32_t)v;
    return bits + 0x7fff + ((bits >> 16) & 1);
}

FOLD_FUNCTION void fold_put_bf16(uint16_t *p, const fold_f32_t *v, int vectors, int stream)
{
    if (vectors == 1) fold_store_bf16(p, v[0], stream);
    for (int k = 0; k + 1 < vectors; k += 2) {
        const fold_u_i32_t even = fold_rounded_bf16(v[k]), odd = fold_rounded_bf16(v[k + 1]);
        fold_store(p + k * (FOLD_BYTES / sizeof(float)),
                   (fold_bits_t)((even >> 16) | (odd & UPPER_HALF)), stream);
    }
}

/* Elements up to the first whose address a line of the cache begins with. */
static inline uint64_t fold_head(const void *dst, size_t size, uint64_t n)
{
    const uint64_t head = -(uintptr_t)dst % 64 / size;
    return head < n ? head : n;
}

#define DEFINE_FOLD(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, OP)                                           \
    static void fold_tail_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc,              \
                                        uint64_t i, uint64_t n, uint32_t ranks)                        \
    {                                                                                                  \
        (void)ranks;                                                                                   \
        PSRTI_FOLD_TAIL(T, ACC, LOAD, psrti_##OP##_##ACCTYPE, FINISH)                                  \
    }                                                                                                  \
    FOLD_FUNCTION void fold_turn_##OP##_##TYPE(T *dst, const void *const *src, unsigned nsrc,          \
                                               uint64_t i, int vectors, uint32_t ranks,                \
                                               int stream)                                             \
    {                                                                                                  \
        fold_##ACCTYPE##_t v[TURN], w[TURN];                                                           \
        fold_get_##TYPE(v, (const T *)src[0] + i, vectors);                                            \
        for (unsigned j = 1; j < nsrc; j++) {                                                          \
            fold_get_##TYPE(w, (const T *)src[j] + i, vectors);                                        \
            for (int k = 0; k < vectors; k++)                                                          \
                v[k] = fold_op_##OP##_##ACCTYPE(v[k], w[k]);                                           \
        }                                                                                              \
        fold_finish_##ACCTYPE(v, vectors, ranks);                                                      \
        fold_put_##TYPE(dst + i, v, vectors, stream);                                                  \
    }                                                                                                  \
    FOLD_FUNCTION void fold_all_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc,        \
                                              uint64_t n, uint32_t ranks, int stream)                  \
    {                                                                                                  \
        const uint64_t lanes = FOLD_BYTES / sizeof(ACC);                                               \
        uint64_t i = stream ? fold_head(dst, sizeof(T), n) : 0;                                        \
        fold_tail_##OP##_##TYPE(dst, src, nsrc, 0, i, ranks);                                          \
        for (; n - i >= TURN * lanes; i += TURN * lanes)                                               \
            fold_turn_##OP##_##TYPE(dst, src, nsrc, i, TURN, ranks, stream);                           \
        if (stream) fold_fence();                                                                      \
        for (; n - i >= lanes; i += lanes)                                                             \
            fold_turn_##OP##_##TYPE(dst, src, nsrc, i, 1, ranks, 0);                                   \
        fold_tail_##OP##_##TYPE(dst, src, nsrc, i, n, ranks);                                          \
    }                                                                                                  \
    /* The usual case, two sources into memory that stays in the caches, has no loop within a turn. */ \
    FOLD_TARGET static void fold_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc,       \
                                               uint64_t n, uint32_t ranks, int stream)                 \
    {                                                                                                  \
        if (nsrc == 2 && !ranks && !stream)                                                            \
            fold_all_##OP##_##TYPE(dst, (const void *const[]){ src[0], src[1] }, 2, n, 0, 0);          \
        else                                                                                           \
            fold_all_##OP##_##TYPE(dst, src, nsrc, n, ranks, stream);                                  \
    }
PSRTI_FOLDS(DEFINE_FOLD)
