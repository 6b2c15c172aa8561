/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that find differences between variants: every third is NaN, an infinity, a denormal, a
 * zero or at the edge of the range, the others are distinct and of many sizes. */
#ifndef PSRT_TESTS_KERNELS_AWKWARD_H
#define PSRT_TESTS_KERNELS_AWKWARD_H

#include <float.h>
#include <math.h>
#include <string.h>

#include <psrt/psrt.h>

#include "base/util.h"

static inline double awkward(uint64_t index, uint64_t seed)
{
    static const double special[] = { NAN,      INFINITY, -INFINITY, 0.0,     -0.0,      0x1p-149,
                                      0x3p-140, FLT_MIN,  -0x1p-130, FLT_MAX, 0x1p-1074, 0x5p-1060,
                                      DBL_MIN,  DBL_MAX,  -FLT_MAX,  1.0 };
    uint64_t bits = psrti_mix64(index * 31 + seed);
    if (bits % 3 == 0) return special[(bits >> 8) % PSRTI_COUNT(special)];
    double fraction = (double)(bits >> 11) * 0x1p-53 + 0.5;
    return ldexp((bits & 8) ? fraction : -fraction, (int)((bits >> 4) % 60) - 30);
}

static inline void put(psrt_dtype_t dtype, void *array, uint64_t i, double value)
{
    if (dtype == PSRT_F32)
        ((float *)array)[i] = (float)value;
    else
        ((double *)array)[i] = value;
}

static inline double get(psrt_dtype_t dtype, const void *array, uint64_t i)
{
    return dtype == PSRT_F32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

static inline void put_awkward(psrt_dtype_t dtype, void *array, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++)
        put(dtype, array, i, awkward(i, seed));
}

/* Index of the first element whose bits differ, NaN being equal to NaN; n if there is none. */
static inline uint64_t first_difference(psrt_dtype_t dtype, const void *a, const void *b,
                                        uint64_t n)
{
    size_t size = dtype == PSRT_F32 ? sizeof(float) : sizeof(double);
    if (memcmp(a, b, n * size) == 0) return n;
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) continue;
        if (!isnan(get(dtype, a, i)) || !isnan(get(dtype, b, i))) return i;
    }
    return n;
}

#endif
