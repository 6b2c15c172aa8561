/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions with NEON, which has no stores past the caches that gain. */
#include <arm_neon.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half_neon.h"

#define FOLD_TARGET
#define FOLD_BYTES 16
#include "kernels/cpu/fold_types.h"

static inline void fold_store(void *p, fold_bits_t v, int stream)
{
    (void)stream;
    vst1q_u8(p, (uint8x16_t)v);
}

#define DEFINE_HALF(H)                                                                             \
    static inline fold_f32_t fold_load_##H(const uint16_t *p)                                      \
    {                                                                                              \
        return (fold_f32_t)f32_of_##H(vld1_u16(p));                                                \
    }                                                                                              \
    static inline void fold_store_##H(uint16_t *p, fold_f32_t v, int stream)                       \
    {                                                                                              \
        (void)stream;                                                                              \
        vst1_u16(p, H##_of_f32((float32x4_t)v));                                                   \
    }
DEFINE_HALF(f16)
DEFINE_HALF(bf16)

/* FMIN and FMAX order zeros by their sign, and NaN goes through. */
#define DEFINE_OPS(TYPE, V)                                                                        \
    static inline fold_##TYPE##_t fold_op_min_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        return (fold_##TYPE##_t)vminq_##TYPE((V)a, (V)b);                                          \
    }                                                                                              \
    static inline fold_##TYPE##_t fold_op_max_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b)         \
    {                                                                                              \
        return (fold_##TYPE##_t)vmaxq_##TYPE((V)a, (V)b);                                          \
    }                                                                                              \
    static inline int fold_nan_##TYPE(fold_##TYPE##_t a, fold_##TYPE##_t b, fold_##TYPE##_t c,     \
                                      fold_##TYPE##_t d)                                           \
    {                                                                                              \
        const fold_bits_t number = (fold_bits_t)(a == a) & (fold_bits_t)(b == b) &                 \
                                   (fold_bits_t)(c == c) & (fold_bits_t)(d == d);                  \
        return (number[0] & number[1]) != UINT64_MAX;                                              \
    }
DEFINE_OPS(f32, float32x4_t)
DEFINE_OPS(f64, float64x2_t)

#define fold_fence() ((void)0)
#include "kernels/cpu/fold_vector.h"

const psrti_fold_fn psrti_fold_neon[PSRTI_DTYPES][PSRTI_FOLD_OPS] = PSRTI_FOLD_TABLE;
