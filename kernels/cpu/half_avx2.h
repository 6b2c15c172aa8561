/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-bit formats in registers, eight elements at a time. Only for files of the AVX2 variant. */
#ifndef PSRTI_KERNELS_HALF_AVX2_H
#define PSRTI_KERNELS_HALF_AVX2_H

#include <immintrin.h>

#include "kernels/cpu/cpu.h"

PSRTI_TARGET_AVX2 static inline __m256 f32_of_f16(__m128i half) { return _mm256_cvtph_ps(half); }

PSRTI_TARGET_AVX2 static inline __m128i f16_of_f32(__m256 value)
{
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
}

PSRTI_TARGET_AVX2 static inline __m256 f32_of_bf16(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* As psrti_bf16_of_f32. The values fit in 16 bits, so that packus saturates none. */
PSRTI_TARGET_AVX2 static inline __m128i bf16_of_f32(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value), upper = _mm256_srli_epi32(bits, 16);
    const __m256i last = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#endif
