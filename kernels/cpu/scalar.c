/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: plain C, whose results every other variant repeats bit for bit. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/squares.h"

static void copy(void *dst, const void *src, uint64_t bytes)
{
    if (bytes) memcpy(dst, src, bytes);
}

static void add_f32(void *dst, const void *a, const void *b, uint64_t n)
{
    float *d = dst;
    const float *x = a, *y = b;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] + y[i];
}

static void add_f64(void *dst, const void *a, const void *b, uint64_t n)
{
    double *d = dst;
    const double *x = a, *y = b;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] + y[i];
}

static void divide_f32(void *dst, const void *src, double divisor, uint64_t n)
{
    float *d = dst;
    const float *x = src, by = (float)divisor;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] / by;
}

static void divide_f64(void *dst, const void *src, double divisor, uint64_t n)
{
    double *d = dst;
    const double *x = src;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] / divisor;
}

static void scale_f32(void *dst, const void *src, double factor, uint64_t n)
{
    float *d = dst;
    const float *x = src, by = (float)factor;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] * by;
}

static void scale_f64(void *dst, const void *src, double factor, uint64_t n)
{
    double *d = dst;
    const double *x = src;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] * factor;
}

static void squares_f32(psrti_squares_t *sum, const void *src, uint64_t n)
{
    psrti_squares_tail_f32(sum, src, 0, n);
}

static void squares_f64(psrti_squares_t *sum, const void *src, uint64_t n)
{
    psrti_squares_tail_f64(sum, src, 0, n);
}

/* Unsigned: signed overflow is undefined, and the bits are the same. */
static void add_i32(void *dst, const void *a, const void *b, uint64_t n)
{
    uint32_t *d = dst;
    const uint32_t *x = a, *y = b;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] + y[i];
}

static void add_i64(void *dst, const void *a, const void *b, uint64_t n)
{
    uint64_t *d = dst;
    const uint64_t *x = a, *y = b;
    for (uint64_t i = 0; i < n; i++)
        d[i] = x[i] + y[i];
}

#define DEFINE_HALF(H)                                                                             \
    static void H##_to_f32(void *dst, const void *src, uint64_t n)                                 \
    {                                                                                              \
        float *d = dst;                                                                            \
        const uint16_t *x = src;                                                                   \
        for (uint64_t i = 0; i < n; i++)                                                           \
            d[i] = psrti_f32_of_##H(x[i]);                                                         \
    }                                                                                              \
    static void H##_from_f32(void *dst, const void *src, uint64_t n)                               \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const float *x = src;                                                                      \
        for (uint64_t i = 0; i < n; i++)                                                           \
            d[i] = psrti_##H##_of_f32(x[i]);                                                       \
    }                                                                                              \
    static void H##_add_to_f32(void *dst, const void *a, const void *b, uint64_t n)                \
    {                                                                                              \
        float *d = dst;                                                                            \
        const float *x = a;                                                                        \
        const uint16_t *y = b;                                                                     \
        for (uint64_t i = 0; i < n; i++)                                                           \
            d[i] = x[i] + psrti_f32_of_##H(y[i]);                                                  \
    }

DEFINE_HALF(f16)
DEFINE_HALF(bf16)

static int supported(void) { return 1; }

const psrti_kernels_t psrti_kernels_scalar = {
    .name = "scalar",
    .score = 10,
    .supported = supported,
    .copy = copy,
    .stream = copy,
    .f32 = { add_f32, divide_f32, scale_f32, squares_f32 },
    .f64 = { add_f64, divide_f64, scale_f64, squares_f64 },
    .add_i32 = add_i32,
    .add_i64 = add_i64,
    .f16 = { f16_to_f32, f16_from_f32, f16_add_to_f32 },
    .bf16 = { bf16_to_f32, bf16_from_f32, bf16_add_to_f32 },
    .fold = psrti_fold_scalar,
};
