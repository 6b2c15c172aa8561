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

PSRTI_TARGET_AVX2 static inline int fold_nan_f32(fold_f32_t a, fold_f32_t b, fold_f32_t c,
                                                 fold_f32_t d)
{
    const __m256 ab = _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
    const __m256 cd = _mm256_cmp_ps((__m256)c, (__m256)d, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(ab, cd));
}

PSRTI_TARGET_AVX2 static inline int fold_nan_f64(fold_f64_t a, fold_f64_t b, fold_f64_t c,
                                                 fold_f64_t d)
{
    const __m256d ab = _mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_UNORD_Q);
    const __m256d cd = _mm256_cmp_pd((__m256d)c, (__m256d)d, _CMP_UNORD_Q);
    return _mm256_movemask_pd(_mm256_or_pd(ab, cd));
}

#define fold_fence() _mm_sfence()
#include "kernels/cpu/fold_vector.h"

const psrti_fold_fn psrti_fold_avx2[PSRTI_DTYPES][PSRTI_FOLD_OPS] = PSRTI_FOLD_TABLE;
