/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of psrti_squares_fn, one element after the other: all of the scalar variant, and the
 * elements behind the last whole turn of the others. */
#ifndef PSRTI_KERNELS_SQUARES_H
#define PSRTI_KERNELS_SQUARES_H

#include "kernels/kernels.h"

#define PSRTI_DEFINE_SQUARES_TAIL(SUFFIX, T)                                                       \
    static inline void psrti_squares_tail_##SUFFIX(psrti_squares_t *sum, const T *x,               \
                                                   uint64_t first, uint64_t n)                     \
    {                                                                                              \
        for (uint64_t i = first; i < n; i++) {                                                     \
            const double v = x[i];                                                                 \
            sum->lane[i % PSRTI_LANES] += v * v;                                                   \
            sum->nonfinite |= !(v - v == 0);                                                       \
        }                                                                                          \
    }

PSRTI_DEFINE_SQUARES_TAIL(f32, float)
PSRTI_DEFINE_SQUARES_TAIL(f64, double)

#endif
