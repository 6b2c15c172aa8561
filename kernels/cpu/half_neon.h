/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-bit formats in registers, four elements at a time. Only for files of the NEON variant. */
#ifndef PSRTI_KERNELS_HALF_NEON_H
#define PSRTI_KERNELS_HALF_NEON_H

#include <arm_neon.h>

static inline float32x4_t f32_of_f16(uint16x4_t half)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}

static inline uint16x4_t f16_of_f32(float32x4_t value)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(value));
}

static inline float32x4_t f32_of_bf16(uint16x4_t half)
{
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* As psrti_bf16_of_f32: BFCVT is an extension that few processors have. */
static inline uint16x4_t bf16_of_f32(float32x4_t value)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(value), upper = vshrq_n_u32(bits, 16);
    const uint32x4_t up = vaddq_u32(vandq_u32(upper, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, up), 16);
    const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(value, value), rounded, quiet));
}

#endif
