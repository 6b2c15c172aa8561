/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 variant. Loads and stores are unaligned throughout: on processors with AVX2 they cost
 * nothing on aligned data, and slices of a table start wherever the user's memory does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/half_avx2.h"
#include "kernels/cpu/squares.h"

#define COPY_BLOCK 256
/* Below, memcpy does not use `rep movsb` and is better at small sizes than any loop here. */
#define COPY_LIBC_BELOW 2048

PSRTI_TARGET_AVX2 static inline void copy_block(char *dst, const char *src)
{
    const __m256i *from = (const __m256i *)src;
    __m256i *to = (__m256i *)dst;
    __m256i v[8];
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_loadu_si256(from + i);
    for (int i = 0; i < 8; i++)
        _mm256_storeu_si256(to + i, v[i]);
}

/* Why not memcpy: glibc 2.36 copies more than 4 KiB with `rep movsb`, which on some processors
 * falls from 50 to 14 GB/s when source and destination agree modulo 4096, as page-aligned buffers
 * do.
 *
 * GB/s of one buffer, EPYC (Zen 4; L2 1 MiB, L3 32 MiB), both page-aligned; others within the noise
 * (20 %) at destinations 64 and 2048 bytes further:
 *
 *                        64 KiB   1 MiB   4 MiB   16 MiB   64 MiB   256 MiB
 *   256 bytes a turn       57      48      48      29       17       15     this one
 *   128 bytes a turn       57      47      47      29       16       15
 *   2 pages at once        58      46      46      17       11       10
 *   4 pages at once        57      47      47      22       14       12
 *   from the end           57      49      47      27       12       15
 *   non-temporal stores    26      26      28      27       25       22
 *
 * Non-temporal stores win only when the buffers are larger than L3: psrti_stream_avx2 has them. */
PSRTI_TARGET_AVX2 void psrti_copy_avx2(void *dst, const void *src, uint64_t bytes)
{
    if (bytes < COPY_LIBC_BELOW) {
        if (bytes) memcpy(dst, src, bytes);
        return;
    }
    char *to = dst;
    const char *from = src;
    uint64_t i = 0;
    for (; i + COPY_BLOCK <= bytes; i += COPY_BLOCK)
        copy_block(to + i, from + i);
    if (i < bytes) copy_block(to + bytes - COPY_BLOCK, from + bytes - COPY_BLOCK);
}

PSRTI_TARGET_AVX2 static inline void stream_block(char *dst, const char *src)
{
    const __m256i *from = (const __m256i *)src;
    __m256i *to = (__m256i *)dst;
    __m256i v[8];
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_loadu_si256(from + i);
    for (int i = 0; i < 8; i++)
        _mm256_stream_si256(to + i, v[i]);
}

/* Blocks start at a line of dst: half a line written past the cache is slower than either. The fence
 * makes what was written visible before whatever tells of it. */
PSRTI_TARGET_AVX2 void psrti_stream_avx2(void *dst, const void *src, uint64_t bytes)
{
    uint64_t i = -(uintptr_t)dst % 64;
    char *to = dst;
    const char *from = src;
    if (bytes < i + COPY_BLOCK) {
        psrti_copy_avx2(dst, src, bytes);
        return;
    }
    memcpy(to, from, i);
    for (; i + COPY_BLOCK <= bytes; i += COPY_BLOCK)
        stream_block(to + i, from + i);
    _mm_sfence();
    memcpy(to + i, from + i, bytes - i);
}

/* The loops differ in type and operation only. The tail is the scalar operation, which gives the same
 * bits. All loads of a turn come before its stores, so dst may be an operand. */
#define TURN 4 /* vectors */

#define LOAD_ps(p) _mm256_loadu_ps(p)
#define LOAD_pd(p) _mm256_loadu_pd(p)
#define LOAD_epi32(p) _mm256_loadu_si256((const __m256i *)(p))
#define LOAD_epi64(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_ps(p, v) _mm256_storeu_ps(p, v)
#define STORE_pd(p, v) _mm256_storeu_pd(p, v)
#define STORE_epi32(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define STORE_epi64(p, v) _mm256_storeu_si256((__m256i *)(p), v)

#define DEFINE_ADD(SUFFIX, T, V, PS)                                                               \
    PSRTI_TARGET_AVX2 void psrti_add_##SUFFIX##_avx2(void *dst, const void *a, const void *b,      \
                                                     uint64_t n)                                   \
    {                                                                                              \
        enum { LANES = 32 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = a, *y = b;                                                                    \
        uint64_t i = 0;                                                                            \
        for (; i + TURN * LANES <= n; i += TURN * LANES) {                                         \
            V v[TURN];                                                                             \
            for (int k = 0; k < TURN; k++)                                                         \
                v[k] =                                                                             \
                    _mm256_add_##PS(LOAD_##PS(x + i + k * LANES), LOAD_##PS(y + i + k * LANES));   \
            for (int k = 0; k < TURN; k++)                                                         \
                STORE_##PS(d + i + k * LANES, v[k]);                                               \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] + y[i];                                                                    \
    }

#define DEFINE_DIVIDE(SUFFIX, T, V, PS)                                                            \
    PSRTI_TARGET_AVX2 static void divide_##SUFFIX(void *dst, const void *src, double divisor,      \
                                                  uint64_t n)                                      \
    {                                                                                              \
        enum { LANES = 32 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = src, by = (T)divisor;                                                         \
        uint64_t i = 0;                                                                            \
        for (; i + TURN * LANES <= n; i += TURN * LANES) {                                         \
            V v[TURN];                                                                             \
            for (int k = 0; k < TURN; k++)                                                         \
                v[k] = _mm256_div_##PS(LOAD_##PS(x + i + k * LANES), _mm256_set1_##PS(by));        \
            for (int k = 0; k < TURN; k++)                                                         \
                STORE_##PS(d + i + k * LANES, v[k]);                                               \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] / by;                                                                      \
    }

#define DEFINE_SCALE(SUFFIX, T, V, PS)                                                             \
    PSRTI_TARGET_AVX2 static void scale_##SUFFIX(void *dst, const void *src, double factor,        \
                                                 uint64_t n)                                       \
    {                                                                                              \
        enum { LANES = 32 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = src, by = (T)factor;                                                          \
        uint64_t i = 0;                                                                            \
        for (; i + TURN * LANES <= n; i += TURN * LANES) {                                         \
            V v[TURN];                                                                             \
            for (int k = 0; k < TURN; k++)                                                         \
                v[k] = _mm256_mul_##PS(LOAD_##PS(x + i + k * LANES), _mm256_set1_##PS(by));        \
            for (int k = 0; k < TURN; k++)                                                         \
                STORE_##PS(d + i + k * LANES, v[k]);                                               \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] * by;                                                                      \
    }

DEFINE_ADD(f32, float, __m256, ps)
DEFINE_ADD(f64, double, __m256d, pd)
DEFINE_ADD(i32, uint32_t, __m256i, epi32)
DEFINE_ADD(i64, uint64_t, __m256i, epi64)
DEFINE_DIVIDE(f32, float, __m256, ps)
DEFINE_DIVIDE(f64, double, __m256d, pd)
DEFINE_SCALE(f32, float, __m256, ps)
DEFINE_SCALE(f64, double, __m256d, pd)

/* ---- sums of squares, four lanes of f64 a register --------------------------------------------- */

PSRTI_TARGET_AVX2 static inline __m256d f64_of_f32(const float *x)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(x));
}

PSRTI_TARGET_AVX2 static inline __m256d f64_of_f64(const double *x) { return _mm256_loadu_pd(x); }

#define DEFINE_SQUARES(SUFFIX, T)                                                                  \
    PSRTI_TARGET_AVX2 static void squares_##SUFFIX(psrti_squares_t *sum, const void *src,          \
                                                   uint64_t n)                                     \
    {                                                                                              \
        const T *x = src;                                                                          \
        __m256d lane[4], strange = _mm256_setzero_pd(); /* x - x: 0, or NaN */                     \
        uint64_t i = 0;                                                                            \
        for (int k = 0; k < 4; k++)                                                                \
            lane[k] = _mm256_loadu_pd(sum->lane + 4 * k);                                          \
        for (; i + PSRTI_LANES <= n; i += PSRTI_LANES)                                             \
            for (int k = 0; k < 4; k++) {                                                          \
                const __m256d v = f64_of_##SUFFIX(x + i + 4 * k);                                  \
                lane[k] = _mm256_add_pd(lane[k], _mm256_mul_pd(v, v));                             \
                strange = _mm256_or_pd(strange, _mm256_sub_pd(v, v));                              \
            }                                                                                      \
        for (int k = 0; k < 4; k++)                                                                \
            _mm256_storeu_pd(sum->lane + 4 * k, lane[k]);                                          \
        sum->nonfinite |= _mm256_movemask_pd(_mm256_cmp_pd(strange, strange, _CMP_UNORD_Q)) != 0;  \
        psrti_squares_tail_##SUFFIX(sum, x, i, n);                                                 \
    }

DEFINE_SQUARES(f32, float)
DEFINE_SQUARES(f64, double)

/* ---- 16-bit formats, eight elements at a time -------------------------------------------------- */

#define LOAD_HALF(p) _mm_loadu_si128((const __m128i *)(p))

#define DEFINE_HALF(H)                                                                             \
    PSRTI_TARGET_AVX2 static void H##_to_f32(void *dst, const void *src, uint64_t n)               \
    {                                                                                              \
        float *d = dst;                                                                            \
        const uint16_t *x = src;                                                                   \
        uint64_t i = 0;                                                                            \
        for (; i + 8 <= n; i += 8)                                                                 \
            _mm256_storeu_ps(d + i, f32_of_##H(LOAD_HALF(x + i)));                                 \
        for (; i < n; i++)                                                                         \
            d[i] = psrti_f32_of_##H(x[i]);                                                         \
    }                                                                                              \
    PSRTI_TARGET_AVX2 static void H##_from_f32(void *dst, const void *src, uint64_t n)             \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const float *x = src;                                                                      \
        uint64_t i = 0;                                                                            \
        for (; i + 8 <= n; i += 8)                                                                 \
            _mm_storeu_si128((__m128i *)(d + i), H##_of_f32(_mm256_loadu_ps(x + i)));              \
        for (; i < n; i++)                                                                         \
            d[i] = psrti_##H##_of_f32(x[i]);                                                       \
    }                                                                                              \
    PSRTI_TARGET_AVX2 static void H##_add_to_f32(void *dst, const void *a, const void *b,          \
                                                 uint64_t n)                                       \
    {                                                                                              \
        float *d = dst;                                                                            \
        const float *x = a;                                                                        \
        const uint16_t *y = b;                                                                     \
        uint64_t i = 0;                                                                            \
        for (; i + 8 <= n; i += 8) {                                                               \
            __m256 v = _mm256_add_ps(_mm256_loadu_ps(x + i), f32_of_##H(LOAD_HALF(y + i)));        \
            _mm256_storeu_ps(d + i, v);                                                            \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] + psrti_f32_of_##H(y[i]);                                                  \
    }

DEFINE_HALF(f16)
DEFINE_HALF(bf16)

const psrti_kernels_t psrti_kernels_avx2 = {
    .name = "avx2",
    .score = 20,
    .supported = psrti_cpu_has_avx2,
    .copy = psrti_copy_avx2,
    .stream = psrti_stream_avx2,
    .f32 = { psrti_add_f32_avx2, divide_f32, scale_f32, squares_f32 },
    .f64 = { psrti_add_f64_avx2, divide_f64, scale_f64, squares_f64 },
    .add_i32 = psrti_add_i32_avx2,
    .add_i64 = psrti_add_i64_avx2,
    .f16 = { f16_to_f32, f16_from_f32, f16_add_to_f32 },
    .bf16 = { bf16_to_f32, bf16_from_f32, bf16_add_to_f32 },
    .fold = psrti_fold_avx2,
};
