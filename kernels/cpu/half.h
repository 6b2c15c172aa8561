/* SPDX-License-Identifier: Apache-2.0 */
/* One element of the 16-bit formats: the reference, and the tails of the vector variants. f16 is IEEE
 * binary16 (1 sign, 5 exponent, 10 mantissa bits), bf16 the upper half of an f32. */
#ifndef PSRTI_KERNELS_HALF_H
#define PSRTI_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float psrti_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t psrti_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Denormals: 0.5f plus the mantissa as its lowest bits, whose unit is 2^-24 as that of f16's
 * denormals, minus 0.5f. Others: the exponent moved by 224 and scaled back by 2^-112, so that 31
 * becomes 255, which the product keeps. */
static inline float psrti_f32_of_f16(uint16_t half)
{
    const uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t denormal = psrti_bits_of_f32(psrti_f32_of_bits(0x3f000000u | magnitude) - 0.5f);
    const uint32_t normal =
        psrti_bits_of_f32(psrti_f32_of_bits((magnitude << 13) + (224u << 23)) * 0x1p-112f);
    return psrti_f32_of_bits((magnitude < 0x400u ? denormal : normal) | sign);
}

/* Denormals: adding 0.5f rounds to multiples of 2^-24. Others: half a unit less one bit, plus the last
 * bit that stays, carries exactly when rounding goes up; the carry may reach the exponent. */
static inline uint16_t psrti_f16_of_f32(float value)
{
    const uint32_t bits = psrti_bits_of_f32(value), magnitude = bits & 0x7fffffffu;
    const uint32_t denormal = psrti_bits_of_f32(psrti_f32_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t half = magnitude < 0x38800000u ? denormal : normal; /* below 2^-14 */
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;            /* 65520 and more */
    half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
    return (uint16_t)(half | ((bits >> 16) & 0x8000u));
}

static inline float psrti_f32_of_bf16(uint16_t half)
{
    return psrti_f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t psrti_bf16_of_f32(float value)
{
    const uint32_t bits = psrti_bits_of_f32(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
