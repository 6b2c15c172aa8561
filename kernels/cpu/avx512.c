/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 variant. On Zen 4 sums of equal types gain nothing from wider registers: as fast as with AVX2 at
 * 64 KiB, 0.83 to 0.93 of it from 16 MiB on, and copies neither, so those of AVX2 serve. Where elements
 * are converted it is faster: bf16 50 against 39 GB/s of one buffer from f32, 78 against 58 to f32.
 *
 * Tails are vectors too: lanes behind the end are masked, neither read nor written.
 * Every operation on a lane is the scalar one, which gives the same bits. All loads of a turn come
 * before its stores, so dst may be an operand. */
#include <immintrin.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/squares.h"

/* Masks of the first n lanes, n below the number of lanes. */
#define FIRST8(n) ((__mmask8)((1u << (n)) - 1))
#define FIRST16(n) ((__mmask16)((1u << (n)) - 1))

#define DEFINE_DIVIDE(SUFFIX, T, V, LANES, PS)                                                     \
    PSRTI_TARGET_AVX512 static void divide_##SUFFIX(void *dst, const void *src, double divisor,    \
                                                    uint64_t n)                                    \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = src;                                                                          \
        const V by = _mm512_set1_##PS((T)divisor);                                                 \
        uint64_t i = 0;                                                                            \
        for (; i + LANES <= n; i += LANES)                                                         \
            _mm512_storeu_##PS(d + i, _mm512_div_##PS(_mm512_loadu_##PS(x + i), by));              \
        if (i < n) {                                                                               \
            const __mmask##LANES m = FIRST##LANES(n - i);                                          \
            V v = _mm512_div_##PS(_mm512_maskz_loadu_##PS(m, x + i), by);                          \
            _mm512_mask_storeu_##PS(d + i, m, v);                                                  \
        }                                                                                          \
    }

#define DEFINE_SCALE(SUFFIX, T, V, LANES, PS)                                                      \
    PSRTI_TARGET_AVX512 static void scale_##SUFFIX(void *dst, const void *src, double factor,      \
                                                   uint64_t n)                                     \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = src;                                                                          \
        const V by = _mm512_set1_##PS((T)factor);                                                  \
        uint64_t i = 0;                                                                            \
        for (; i + LANES <= n; i += LANES)                                                         \
            _mm512_storeu_##PS(d + i, _mm512_mul_##PS(_mm512_loadu_##PS(x + i), by));              \
        if (i < n) {                                                                               \
            const __mmask##LANES m = FIRST##LANES(n - i);                                          \
            V v = _mm512_mul_##PS(_mm512_maskz_loadu_##PS(m, x + i), by);                          \
            _mm512_mask_storeu_##PS(d + i, m, v);                                                  \
        }                                                                                          \
    }

DEFINE_DIVIDE(f32, float, __m512, 16, ps)
DEFINE_DIVIDE(f64, double, __m512d, 8, pd)
DEFINE_SCALE(f32, float, __m512, 16, ps)
DEFINE_SCALE(f64, double, __m512d, 8, pd)

/* ---- sums of squares, eight lanes of f64 a register -------------------------------------------- */

PSRTI_TARGET_AVX512 static inline __m512d f64_of_f32(const float *x)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(x));
}

PSRTI_TARGET_AVX512 static inline __m512d f64_of_f64(const double *x) { return _mm512_loadu_pd(x); }

#define DEFINE_SQUARES(SUFFIX, T)                                                                  \
    PSRTI_TARGET_AVX512 static void squares_##SUFFIX(psrti_squares_t *sum, const void *src,        \
                                                     uint64_t n)                                   \
    {                                                                                              \
        const T *x = src;                                                                          \
        __m512d low = _mm512_loadu_pd(sum->lane), high = _mm512_loadu_pd(sum->lane + 8);           \
        __m512d strange = _mm512_setzero_pd(); /* x - x: 0, or NaN */                              \
        uint64_t i = 0;                                                                            \
        for (; i + PSRTI_LANES <= n; i += PSRTI_LANES) {                                           \
            const __m512d v = f64_of_##SUFFIX(x + i), w = f64_of_##SUFFIX(x + i + 8);              \
            low = _mm512_add_pd(low, _mm512_mul_pd(v, v));                                         \
            high = _mm512_add_pd(high, _mm512_mul_pd(w, w));                                       \
            strange = _mm512_or_pd(strange, _mm512_sub_pd(v, v));                                  \
            strange = _mm512_or_pd(strange, _mm512_sub_pd(w, w));                                  \
        }                                                                                          \
        _mm512_storeu_pd(sum->lane, low);                                                          \
        _mm512_storeu_pd(sum->lane + 8, high);                                                     \
        sum->nonfinite |= _mm512_cmp_pd_mask(strange, strange, _CMP_UNORD_Q) != 0;                 \
        psrti_squares_tail_##SUFFIX(sum, x, i, n);                                                 \
    }

DEFINE_SQUARES(f32, float)
DEFINE_SQUARES(f64, double)

/* ---- 16-bit formats, sixteen elements at a time ------------------------------------------------ */

PSRTI_TARGET_AVX512 static inline __m512 f32_of_f16(__m256i half) { return _mm512_cvtph_ps(half); }

PSRTI_TARGET_AVX512 static inline __m256i f16_of_f32(__m512 value)
{
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
}

PSRTI_TARGET_AVX512 static inline __m512 f32_of_bf16(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* As psrti_bf16_of_f32. Not vcvtneps2bf16 of AVX512_BF16: it takes denormals for zero, whatever MXCSR
 * says, and so differs from the reference. */
PSRTI_TARGET_AVX512 static inline __m256i bf16_of_f32(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value), upper = _mm512_srli_epi32(bits, 16);
    const __m512i last = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i half = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(half);
}

#define LOAD_HALF(p) _mm256_loadu_si256((const __m256i *)(p))

#define DEFINE_HALF(H)                                                                             \
    PSRTI_TARGET_AVX512 static void H##_to_f32(void *dst, const void *src, uint64_t n)             \
    {                                                                                              \
        float *d = dst;                                                                            \
        const uint16_t *x = src;                                                                   \
        uint64_t i = 0;                                                                            \
        for (; i + 16 <= n; i += 16)                                                               \
            _mm512_storeu_ps(d + i, f32_of_##H(LOAD_HALF(x + i)));                                 \
        if (i < n) {                                                                               \
            const __mmask16 m = FIRST16(n - i);                                                    \
            _mm512_mask_storeu_ps(d + i, m, f32_of_##H(_mm256_maskz_loadu_epi16(m, x + i)));       \
        }                                                                                          \
    }                                                                                              \
    PSRTI_TARGET_AVX512 static void H##_from_f32(void *dst, const void *src, uint64_t n)           \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const float *x = src;                                                                      \
        uint64_t i = 0;                                                                            \
        for (; i + 16 <= n; i += 16)                                                               \
            _mm256_storeu_si256((__m256i *)(d + i), H##_of_f32(_mm512_loadu_ps(x + i)));           \
        if (i < n) {                                                                               \
            const __mmask16 m = FIRST16(n - i);                                                    \
            _mm256_mask_storeu_epi16(d + i, m, H##_of_f32(_mm512_maskz_loadu_ps(m, x + i)));       \
        }                                                                                          \
    }                                                                                              \
    PSRTI_TARGET_AVX512 static void H##_add_to_f32(void *dst, const void *a, const void *b,        \
                                                   uint64_t n)                                     \
    {                                                                                              \
        float *d = dst;                                                                            \
        const float *x = a;                                                                        \
        const uint16_t *y = b;                                                                     \
        uint64_t i = 0;                                                                            \
        for (; i + 16 <= n; i += 16) {                                                             \
            __m512 v = _mm512_add_ps(_mm512_loadu_ps(x + i), f32_of_##H(LOAD_HALF(y + i)));        \
            _mm512_storeu_ps(d + i, v);                                                            \
        }                                                                                          \
        if (i < n) {                                                                               \
            const __mmask16 m = FIRST16(n - i);                                                    \
            __m512 v = f32_of_##H(_mm256_maskz_loadu_epi16(m, y + i));                             \
            _mm512_mask_storeu_ps(d + i, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i), v));    \
        }                                                                                          \
    }

DEFINE_HALF(f16)
DEFINE_HALF(bf16)

const psrti_kernels_t psrti_kernels_avx512 = {
    .name = "avx512",
    .score = 30,
    .supported = psrti_cpu_has_avx512,
    .copy = psrti_copy_avx2,
    .stream = psrti_stream_avx2,
    .f32 = { psrti_add_f32_avx2, divide_f32, scale_f32, squares_f32 },
    .f64 = { psrti_add_f64_avx2, divide_f64, scale_f64, squares_f64 },
    .add_i32 = psrti_add_i32_avx2,
    .add_i64 = psrti_add_i64_avx2,
    .f16 = { f16_to_f32, f16_from_f32, f16_add_to_f32 },
    .bf16 = { bf16_to_f32, bf16_from_f32, bf16_add_to_f32 },
    .fold = psrti_fold_avx2, /* a pass over memory: wider registers gain nothing */
};
