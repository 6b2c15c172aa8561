/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: plain C, whose results every other variant repeats bit for bit. */
#include <string.h>

#include "kernels/cpu/cpu.h"

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

static int supported(void) { return 1; }

const psrti_kernels_t psrti_kernels_scalar = {
    .name = "scalar",
    .score = 10,
    .supported = supported,
    .copy = copy,
    .f32 = { add_f32, divide_f32 },
    .f64 = { add_f64, divide_f64 },
};
