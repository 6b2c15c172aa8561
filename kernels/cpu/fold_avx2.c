/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions with AVX2. */
#include <immintrin.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half_avx2.h"

#define FOLD_TARGET PSRTI_TARGET_AVX2
#define FOLD_BYTES 32
#include "kernels/cpu/fold_types.h"

PSRTI_TARGET_AVX2 static inline void fold_store(void *p, fold_bits_t v, int stream)
{
    if (stream)
        _mm256_stream_si256(p, (__m256i)v);
    else
        _mm256_storeu_si256(p, (__m256i)v);
}

PSRTI_TARGET_AVX2 static inline void store_half(void *p, __m128i v, int stream)
{
    if (stream)
        _mm_stream_si128(p, v);
    else
        _mm_storeu_si128(p, v);
}

#define DEFINE_HALF(H)                                                                             \
    PSRTI_TARGET_AVX2 static inline fold_f32_t fold_load_##H(const uint16_t *p)                    \
    {                                                                                              \
        return (fold_f32_t)f32_of_##H(_mm_loadu_si128((const __m128i *)p));                        \
    }                                                                                              \
    PSRTI_TARGET_AVX2 static inline void fold_store_##H(uint16_t *p, fold_f32_t v, int stream)     \
    {                                                                                              \
        store_half(p, H##_of_f32((__m256)v), stream);                                              \
    }
DEFINE_HALF(f16)
DEFINE_HALF(bf16)

/* The instructions give the second operand where one is NaN or both are zeros. So of both ways round, zeros of both
 * signs are -0 or'ed and 0 and'ed; NaN or'ed with anything is NaN, and'ed it need not be. */
#define DEFINE_OPS(TYPE, V, P)                                                                     \
    PSRTI_TARGET_AVX2 static inline fold_##TYPE##_t fold_op_min_##TYPE(fold_##TYPE##_t a,          \
                                                                       fold_##TYPE##_t b)          \
    {                                                                                              \
        const V x = (V)a, y = (V)b;                                                                \
        return (fold_##TYPE##_t)_mm256_or_##P(_mm256_min_##P(x, y), _mm256_min_##P(y, x));         \
    }                                                                                              \
    PSRTI_TARGET_AVX2 static inline fold_##TYPE##_t fold_op_max_##TYPE(fold_##TYPE##_t a,          \
                                                                       fold_##TYPE##_t b)          \
    {                                                                                              \
        const V x = (V)a, y = (V)b, nan = _mm256_cmp_##P(x, y, _CMP_UNORD_Q);                      \
        const V both = _mm256_and_##P(_mm256_max_##P(x, y), _mm256_max_##P(y, x));                 \
        return (fold_##TYPE##_t)_mm256_or_##P(both, nan);                                          \
    }                                                                                              \
    PSRTI_TARGET_AVX2 static inline int fold_nan_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b,      \
                                                        fold_##TYPE##_t c, fold_##TYPE##_t d)      \
    {                                                                                              \
        const V ab = _mm256_cmp_##P((V)a, (V)b, _CMP_UNORD_Q);                                     \
        const V cd = _mm256_cmp_##P((V)c, (V)d, _CMP_UNORD_Q);                                     \
        return _mm256_movemask_##P(_mm256_or_##P(ab, cd));                                         \
    }
DEFINE_OPS(f32, __m256, ps)
DEFINE_OPS(f64, __m256d, pd)

#define fold_fence() _mm_sfence()
#include "kernels/cpu/fold_vector.h"

const psrti_fold_fn psrti_fold_avx2[PSRTI_DTYPES][PSRTI_FOLD_OPS] = PSRTI_FOLD_TABLE;
