/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-bit formats as their definitions say, in double and slowly: what tests of code that uses the
 * conversion kernels compare with. Normal numbers and zeros only. */
#ifndef PSRT_TESTS_HALF_REF_H
#define PSRT_TESTS_HALF_REF_H

#include <math.h>
#include <stdint.h>

typedef struct half_format {
    const char *name;
    int digits; /* of the significand, with the one before the point */
    int bias;   /* of the exponent                                   */
} half_format_t;

static const half_format_t half_f16 = { "f16", 11, 15 }, half_bf16 = { "bf16", 8, 127 };

/* The nearest number of the format, ties to the even significand. */
static inline double half_round(const half_format_t *f, double x)
{
    int e;
    frexp(x, &e);
    return x == 0 ? x : ldexp(nearbyint(ldexp(x, f->digits - e)), e - f->digits);
}

/* Bits of a number of the format. */
static inline uint16_t half_encode(const half_format_t *f, double x)
{
    int e;
    unsigned sign = signbit(x) ? 0x8000u : 0;
    unsigned significand = (unsigned)ldexp(frexp(fabs(x), &e), f->digits);
    if (x == 0) return (uint16_t)sign;
    return (uint16_t)(sign | (unsigned)(e - 1 + f->bias) << (f->digits - 1) |
                      (significand & ((1u << (f->digits - 1)) - 1)));
}

static inline double half_decode(const half_format_t *f, uint16_t bits)
{
    unsigned fraction = bits & ((1u << (f->digits - 1)) - 1);
    int exponent = (bits & 0x7fff) >> (f->digits - 1);
    double x = exponent
                   ? ldexp((1u << (f->digits - 1)) + fraction, exponent - f->bias - f->digits + 1)
                   : 0;
    return bits & 0x8000u ? -x : x;
}

#endif
