/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizers' files share: one body, written as a macro over the element type, becomes
 * apply_f32 and apply_f64 (or prepare_f32 and prepare_f64), each for the baseline and for AVX2.
 *
 * A body treats each element alone and uses only + - * / and SQRT, which are rounded correctly and
 * not contracted, and selections; so vectors, tails and both variants give the same bits. Facts of
 * the step (step size, bias corrections) are computed in double once for a block, then rounded to
 * T. */
#ifndef PSRTI_KERNELS_OPTIM_H
#define PSRTI_KERNELS_OPTIM_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/optimizer.h"
#include "kernels/power.h"

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
#define PSRTI_DEFINE_APPLY(BODY) PSRTI_DEFINE_PASS(apply, BODY)
/* The same for prepare_f32 and prepare_f64. */
#define PSRTI_DEFINE_PREPARE(BODY) PSRTI_DEFINE_PASS(prepare, BODY)

#define PSRTI_DEFINE_PASS(PASS, BODY)                                                              \
    PSRTI_DEFINE_PASS_OF(PASS, f32, float, sqrtf, BODY)                                            \
    PSRTI_DEFINE_PASS_OF(PASS, f64, double, sqrt, BODY)

#define PSRTI_DEFINE_PASS_OF(PASS, SUFFIX, T, SQRT, BODY)                                          \
    static void PASS##_##SUFFIX##_baseline(const psrt_apply_t *block) { BODY(T, SQRT); }           \
    PSRTI_OPTIM_AVX2 static void PASS##_##SUFFIX##_avx2(const psrt_apply_t *block)                 \
    {                                                                                              \
        BODY(T, SQRT);                                                                             \
    }                                                                                              \
    static void PASS##_##SUFFIX(const psrt_apply_t *block)                                         \
    {                                                                                              \
        if (psrti_cpu_has_avx2())                                                                  \
            PASS##_##SUFFIX##_avx2(block);                                                         \
        else                                                                                       \
            PASS##_##SUFFIX##_baseline(block);                                                     \
    }

/* First line of a body that reads the gradient: the names that PSRTI_CLIPPED uses. The file's enum of
 * hyper-parameters has CLIP_VALUE. Clipping that is off is clipping at infinity: no branch, and no
 * bit changes. */
#define PSRTI_GRADIENT(T)                                                                          \
    const double *const p = block->params;                                                         \
    const T *const g = block->grad;                                                                \
    const T clip = p[CLIP_VALUE] > 0 ? (T)p[CLIP_VALUE] : (T)INFINITY

/* The same for one that changes the values: also the names that PSRTI_DECAYED uses. */
#define PSRTI_BLOCK(T)                                                                             \
    PSRTI_GRADIENT(T);                                                                             \
    const T *const in = block->value_in;                                                           \
    T *const out = block->value_out

/* The gradient, within -clip_value and clip_value; NaN stays NaN. */
#define PSRTI_CLIPPED(i) PSRTI_CLAMP(g[i], clip)

/* The same with the L2 penalty. */
#define PSRTI_DECAYED(i, wd) PSRTI_PENALISED(PSRTI_CLIPPED(i), in[i], wd)

/* x + wd * value. Without weight decay the value is left out, as in PyTorch, so that an infinite value
 * does not become NaN. */
#define PSRTI_PENALISED(x, value, wd)                                                              \
    _Generic((x), float : decayed_f32, double : decayed_f64)(x, value, wd)

/* Selections, for float and double. A NaN of x is the result. Every operand is computed before it
 * is selected: what is computed on a condition stays a branch, which no vectoriser takes. */
#define PSRTI_CLAMP(x, bound) _Generic((x), float : clamp_f32, double : clamp_f64)(x, bound)
#define PSRTI_SIGN(x) _Generic((x), float : sign_f32, double : sign_f64)(x)
#define PSRTI_ABS(x) _Generic((x), float : fabsf, double : fabs)(x)

#define PSRTI_DEFINE_SELECTIONS(SUFFIX, T)                                                         \
    static inline T clamp_##SUFFIX(T x, T bound)                                                   \
    {                                                                                              \
        const T above = x < -bound ? -bound : x;                                                   \
        return above > bound ? bound : above;                                                      \
    }                                                                                              \
    static inline T decayed_##SUFFIX(T gradient, T value, T wd)                                    \
    {                                                                                              \
        const T sum = gradient + wd * value;                                                       \
        return wd != 0 ? sum : gradient;                                                           \
    }                                                                                              \
    static inline T sign_##SUFFIX(T x)                                                             \
    {                                                                                              \
        const T positive = x > 0 ? 1 : x;                                                          \
        return x < 0 ? -1 : positive;                                                              \
    }
PSRTI_DEFINE_SELECTIONS(f32, float)
PSRTI_DEFINE_SELECTIONS(f64, double)

/* Lines of a `check`. NaN fails each. */
#define PSRTI_REQUIRE_RATE(index, name)                                                            \
    if (!(params[index] >= 0 && params[index] <= DBL_MAX))                                         \
    return name " must be a finite number, at least 0"
#define PSRTI_REQUIRE_POSITIVE(index, name)                                                        \
    if (!(params[index] > 0 && params[index] <= DBL_MAX))                                          \
    return name " must be a finite number above 0"
#define PSRTI_REQUIRE_FRACTION(index, name)                                                        \
    if (!(params[index] >= 0 && params[index] < 1)) return name " must be at least 0 and below 1"

#endif
