/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizers' files share: one body, written as a macro over the element type, becomes
 * apply_f32 and apply_f64, each for the baseline and for AVX2.
 *
 * A body treats each element alone and uses only + - * / and SQRT, which are rounded correctly and
 * not contracted; so vectors, tails and both variants give the same bits. Facts of the step (step
 * size, bias corrections) are computed in double once for a block, then rounded to T. */
#ifndef PSRTI_KERNELS_OPTIM_H
#define PSRTI_KERNELS_OPTIM_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/optimizer.h"

/* In front of a body's loop: value_out may equal value_in, which `restrict` does not allow, but no
 * element depends on another. */
#if defined(__clang__)
#define PSRTI_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PSRTI_ELEMENTWISE _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define PSRTI_OPTIM_AVX2 PSRTI_TARGET_AVX2
#else
#define PSRTI_OPTIM_AVX2
#endif

/* Defines static apply_f32 and apply_f64. BODY(T, SQRT) stands for statements that see `block`. */
#define PSRTI_DEFINE_APPLY(BODY)                                                                   \
    PSRTI_DEFINE_APPLY_OF(f32, float, sqrtf, BODY)                                                 \
    PSRTI_DEFINE_APPLY_OF(f64, double, sqrt, BODY)

#define PSRTI_DEFINE_APPLY_OF(SUFFIX, T, SQRT, BODY)                                               \
    static void apply_##SUFFIX##_baseline(const psrt_apply_t *block) { BODY(T, SQRT); }            \
    PSRTI_OPTIM_AVX2 static void apply_##SUFFIX##_avx2(const psrt_apply_t *block)                  \
    {                                                                                              \
        BODY(T, SQRT);                                                                             \
    }                                                                                              \
    static void apply_##SUFFIX(const psrt_apply_t *block)                                          \
    {                                                                                              \
        if (psrti_cpu_has_avx2())                                                                  \
            apply_##SUFFIX##_avx2(block);                                                          \
        else                                                                                       \
            apply_##SUFFIX##_baseline(block);                                                      \
    }

/* Gradient with the L2 penalty. Without weight decay the value is left out, as in PyTorch, so that
 * an infinite value does not become NaN. The compiler takes the condition out of the loop. */
#define PSRTI_DECAYED(g, v, wd) ((wd) != 0 ? (g) + (wd) * (v) : (g))

/* Learning rate, weight decay: finite, not negative. NaN fails here and below. */
static inline int psrti_is_rate(double x) { return x >= 0 && x <= DBL_MAX; }

/* Momentum, beta. */
static inline int psrti_is_fraction(double x) { return x >= 0 && x < 1; }

#endif
