/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PSRTI_KERNELS_POWER_H
#define PSRTI_KERNELS_POWER_H

#include <stdint.h>

/* base^n by squaring. pow would do, but libm picks its code by processor, and servers of a job
 * shall agree to the bit. */
static inline double psrti_power(double base, uint64_t n)
{
    double result = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1) result *= base;
    return result;
}

#endif
