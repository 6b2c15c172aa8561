/* SPDX-License-Identifier: Apache-2.0 */
#include "half.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The exponent of f32 is 112 larger; below 2^-14 f16 counts units of 2^-24. */
static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Drops the lowest `count` bits: half a unit less one, plus the bit that becomes the last, carries
 * when, and only when, rounding goes up. */
static uint32_t round_off(uint32_t bits, int count)
{
    return (bits + (1u << (count - 1)) - 1 + (bits >> count & 1u)) >> count;
}

static uint16_t to_f16(float value)
{
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u)
        half = 0x7e00u; /* NaN        */
    else if (magnitude >= 0x477ff000u)
        half = 0x7c00u; /* from 65520 */
    else if (magnitude >= 0x38800000u)
        half = round_off(magnitude - (112u << 23), 13);
    else
        half = (uint32_t)lrintf(from_bits(magnitude) * 0x1p24f); /* below 2^-14 */
    return (uint16_t)(sign | half);
}

static uint16_t to_bf16(float value)
{
    if (isnan(value)) return 0x7fc0u;
    return (uint16_t)round_off(to_bits(value), 16);
}

void half_from_f16(const uint16_t *in, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = from_f16(in[i]);
}

void half_to_f16(const float *in, uint16_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = to_f16(in[i]);
}

void half_from_bf16(const uint16_t *in, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = from_bits((uint32_t)in[i] << 16);
}

void half_to_bf16(const float *in, uint16_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = to_bf16(in[i]);
}
