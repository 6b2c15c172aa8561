/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 variant. Loads and stores are unaligned throughout: on processors with AVX2 they cost
 * nothing on aligned data, and slices of a table start wherever the user's memory does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

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
 * Non-temporal stores win only when the buffers are larger than L3; the runtime copies slices of a
 * MiB or two that are read right after, so they are not used. */
PSRTI_TARGET_AVX2 static void copy(void *dst, const void *src, uint64_t bytes)
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

/* The four loops differ in type and operation only. The tail is the scalar operation, which gives
 * the same bits. All loads of a turn come before its stores, so dst may be an operand. */
#define DEFINE_ADD(SUFFIX, T, LANES, PS)                                                           \
    PSRTI_TARGET_AVX2 static void add_##SUFFIX(void *dst, const void *a, const void *b,            \
                                               uint64_t n)                                         \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = a, *y = b;                                                                    \
        uint64_t i = 0;                                                                            \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                               \
            const T *p = x + i, *q = y + i;                                                        \
            __typeof__(_mm256_setzero_##PS()) v[4];                                                \
            for (int k = 0; k < 4; k++)                                                            \
                v[k] = _mm256_add_##PS(_mm256_loadu_##PS(p + k * LANES),                           \
                                       _mm256_loadu_##PS(q + k * LANES));                          \
            for (int k = 0; k < 4; k++)                                                            \
                _mm256_storeu_##PS(d + i + k * LANES, v[k]);                                       \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] + y[i];                                                                    \
    }

#define DEFINE_DIVIDE(SUFFIX, T, LANES, PS)                                                        \
    PSRTI_TARGET_AVX2 static void divide_##SUFFIX(void *dst, const void *src, double divisor,      \
                                                  uint64_t n)                                      \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = src, by = (T)divisor;                                                         \
        uint64_t i = 0;                                                                            \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                               \
            __typeof__(_mm256_setzero_##PS()) v[4];                                                \
            for (int k = 0; k < 4; k++)                                                            \
                v[k] =                                                                             \
                    _mm256_div_##PS(_mm256_loadu_##PS(x + i + k * LANES), _mm256_set1_##PS(by));   \
            for (int k = 0; k < 4; k++)                                                            \
                _mm256_storeu_##PS(d + i + k * LANES, v[k]);                                       \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] / by;                                                                      \
    }

DEFINE_ADD(f32, float, 8, ps)
DEFINE_ADD(f64, double, 4, pd)
DEFINE_DIVIDE(f32, float, 8, ps)
DEFINE_DIVIDE(f64, double, 4, pd)

const psrti_kernels_t psrti_kernels_avx2 = {
    .name = "avx2",
    .score = 20,
    .supported = psrti_cpu_has_avx2,
    .copy = copy,
    .f32 = { add_f32, divide_f32 },
    .f64 = { add_f64, divide_f64 },
};
