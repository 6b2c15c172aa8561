/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU variants share. */
#ifndef PSRTI_KERNELS_CPU_H
#define PSRTI_KERNELS_CPU_H

#include "kernels/kernels.h"

/* Alone in features.c, so that a test can link its own answer and run the other variant. */
int psrti_cpu_has_avx2(void);

/* In front of a function that may use AVX2. */
#define PSRTI_TARGET_AVX2 __attribute__((target("avx2")))

extern const psrti_kernels_t psrti_kernels_scalar;
#if defined(__x86_64__)
extern const psrti_kernels_t psrti_kernels_avx2;
#endif

#endif
