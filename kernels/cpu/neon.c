/* SPDX-License-Identifier: Apache-2.0 */
/* NEON variant. NEON is part of every aarch64 processor, so the compiler makes vectors of scalar.c as
 * well; this file adds the instructions that convert 16-bit formats. The tail is the scalar operation,
 * which gives the same bits. All loads of a turn come before its stores, so dst may be an operand. */
#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/half_neon.h"
#include "kernels/cpu/squares.h"

/* glibc's memcpy for aarch64 is a plain loop of 64 bytes a turn: nothing to gain. */
static void copy(void *dst, const void *src, uint64_t bytes)
{
    if (bytes) memcpy(dst, src, bytes);
}

#define TURN 4 /* vectors */

#define DEFINE_ADD(SUFFIX, T, V, S)                                                                \
    static void add_##SUFFIX(void *dst, const void *a, const void *b, uint64_t n)                  \
    {                                                                                              \
        enum { LANES = 16 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = a, *y = b;                                                                    \
        uint64_t i = 0;                                                                            \
        for (; i + TURN * LANES <= n; i += TURN * LANES) {                                         \
            V v[TURN];                                                                             \
            for (int k = 0; k < TURN; k++)                                                         \
                v[k] = vaddq_##S(vld1q_##S(x + i + k * LANES), vld1q_##S(y + i + k * LANES));      \
            for (int k = 0; k < TURN; k++)                                                         \
                vst1q_##S(d + i + k * LANES, v[k]);                                                \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] + y[i];                                                                    \
    }

#define DEFINE_DIVIDE(SUFFIX, T, S)                                                                \
    static void divide_##SUFFIX(void *dst, const void *src, double divisor, uint64_t n)            \
    {                                                                                              \
        enum { LANES = 16 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = src, by = (T)divisor;                                                         \
        uint64_t i = 0;                                                                            \
        for (; i + LANES <= n; i += LANES)                                                         \
            vst1q_##S(d + i, vdivq_##S(vld1q_##S(x + i), vdupq_n_##S(by)));                        \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] / by;                                                                      \
    }

#define DEFINE_SCALE(SUFFIX, T, S)                                                                 \
    static void scale_##SUFFIX(void *dst, const void *src, double factor, uint64_t n)              \
    {                                                                                              \
        enum { LANES = 16 / sizeof(T) };                                                           \
        T *d = dst;                                                                                \
        const T *x = src, by = (T)factor;                                                          \
        uint64_t i = 0;                                                                            \
        for (; i + LANES <= n; i += LANES)                                                         \
            vst1q_##S(d + i, vmulq_##S(vld1q_##S(x + i), vdupq_n_##S(by)));                        \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] * by;                                                                      \
    }

DEFINE_ADD(f32, float, float32x4_t, f32)
DEFINE_ADD(f64, double, float64x2_t, f64)
DEFINE_ADD(i32, uint32_t, uint32x4_t, u32)
DEFINE_ADD(i64, uint64_t, uint64x2_t, u64)
DEFINE_DIVIDE(f32, float, f32)
DEFINE_DIVIDE(f64, double, f64)
DEFINE_SCALE(f32, float, f32)
DEFINE_SCALE(f64, double, f64)

/* ---- sums of squares, two lanes of f64 a register ---------------------------------------------- */

static inline float64x2_t f64_of_f32(const float *x) { return vcvt_f64_f32(vld1_f32(x)); }

static inline float64x2_t f64_of_f64(const double *x) { return vld1q_f64(x); }

#define DEFINE_SQUARES(SUFFIX, T)                                                                  \
    static void squares_##SUFFIX(psrti_squares_t *sum, const void *src, uint64_t n)                \
    {                                                                                              \
        const T *x = src;                                                                          \
        float64x2_t lane[8];                                                                       \
        uint64x2_t finite = vdupq_n_u64(UINT64_MAX);                                               \
        uint64_t i = 0;                                                                            \
        for (int k = 0; k < 8; k++)                                                                \
            lane[k] = vld1q_f64(sum->lane + 2 * k);                                                \
        for (; i + PSRTI_LANES <= n; i += PSRTI_LANES)                                             \
            for (int k = 0; k < 8; k++) {                                                          \
                const float64x2_t v = f64_of_##SUFFIX(x + i + 2 * k);                              \
                lane[k] = vaddq_f64(lane[k], vmulq_f64(v, v));                                     \
                finite = vandq_u64(finite, vceqzq_f64(vsubq_f64(v, v)));                           \
            }                                                                                      \
        for (int k = 0; k < 8; k++)                                                                \
            vst1q_f64(sum->lane + 2 * k, lane[k]);                                                 \
        sum->nonfinite |= !(vgetq_lane_u64(finite, 0) & vgetq_lane_u64(finite, 1));                \
        psrti_squares_tail_##SUFFIX(sum, x, i, n);                                                 \
    }

DEFINE_SQUARES(f32, float)
DEFINE_SQUARES(f64, double)

/* ---- 16-bit formats, four elements at a time --------------------------------------------------- */

#define DEFINE_HALF(H)                                                                             \
    static void H##_to_f32(void *dst, const void *src, uint64_t n)                                 \
    {                                                                                              \
        float *d = dst;                                                                            \
        const uint16_t *x = src;                                                                   \
        uint64_t i = 0;                                                                            \
        for (; i + 4 <= n; i += 4)                                                                 \
            vst1q_f32(d + i, f32_of_##H(vld1_u16(x + i)));                                         \
        for (; i < n; i++)                                                                         \
            d[i] = psrti_f32_of_##H(x[i]);                                                         \
    }                                                                                              \
    static void H##_from_f32(void *dst, const void *src, uint64_t n)                               \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const float *x = src;                                                                      \
        uint64_t i = 0;                                                                            \
        for (; i + 4 <= n; i += 4)                                                                 \
            vst1_u16(d + i, H##_of_f32(vld1q_f32(x + i)));                                         \
        for (; i < n; i++)                                                                         \
            d[i] = psrti_##H##_of_f32(x[i]);                                                       \
    }                                                                                              \
    static void H##_add_to_f32(void *dst, const void *a, const void *b, uint64_t n)                \
    {                                                                                              \
        float *d = dst;                                                                            \
        const float *x = a;                                                                        \
        const uint16_t *y = b;                                                                     \
        uint64_t i = 0;                                                                            \
        for (; i + 4 <= n; i += 4)                                                                 \
            vst1q_f32(d + i, vaddq_f32(vld1q_f32(x + i), f32_of_##H(vld1_u16(y + i))));            \
        for (; i < n; i++)                                                                         \
            d[i] = x[i] + psrti_f32_of_##H(y[i]);                                                  \
    }

DEFINE_HALF(f16)
DEFINE_HALF(bf16)

static int supported(void) { return 1; }

const psrti_kernels_t psrti_kernels_neon = {
    .name = "neon",
    .score = 20,
    .supported = supported,
    .copy = copy,
    .stream = copy,
    .f32 = { add_f32, divide_f32, scale_f32, squares_f32 },
    .f64 = { add_f64, divide_f64, scale_f64, squares_f64 },
    .add_i32 = add_i32,
    .add_i64 = add_i64,
    .f16 = { f16_to_f32, f16_from_f32, f16_add_to_f32 },
    .bf16 = { bf16_to_f32, bf16_from_f32, bf16_add_to_f32 },
    .fold = psrti_fold_neon,
};
