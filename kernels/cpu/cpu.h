/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU variants share. */
#ifndef PSRTI_KERNELS_CPU_H
#define PSRTI_KERNELS_CPU_H

#include "kernels/kernels.h"

/* Whether the processor has the instructions and the system saves the registers. Alone in features.c,
 * so that a test can link its own answers and run the other variants. */
int psrti_cpu_has_avx2(void);   /* and F16C, which every processor with AVX2 has */
int psrti_cpu_has_avx512(void); /* F, BW, DQ and VL: Skylake servers, Zen 4 and later */

/* In front of a function that may use them. */
#define PSRTI_TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define PSRTI_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

extern const psrti_kernels_t psrti_kernels_scalar;
extern const psrti_fold_fn psrti_fold_scalar[PSRTI_DTYPES][PSRTI_FOLD_OPS];
#if defined(__x86_64__)
extern const psrti_kernels_t psrti_kernels_avx2;
extern const psrti_kernels_t psrti_kernels_avx512;
extern const psrti_fold_fn psrti_fold_avx2[PSRTI_DTYPES][PSRTI_FOLD_OPS];
/* Of psrti_kernels_avx2, which psrti_kernels_avx512 shares. */
void psrti_copy_avx2(void *dst, const void *src, uint64_t bytes);
void psrti_stream_avx2(void *dst, const void *src, uint64_t bytes);
void psrti_add_f32_avx2(void *dst, const void *a, const void *b, uint64_t n);
void psrti_add_f64_avx2(void *dst, const void *a, const void *b, uint64_t n);
void psrti_add_i32_avx2(void *dst, const void *a, const void *b, uint64_t n);
void psrti_add_i64_avx2(void *dst, const void *a, const void *b, uint64_t n);
#elif defined(__aarch64__)
extern const psrti_kernels_t psrti_kernels_neon;
extern const psrti_fold_fn psrti_fold_neon[PSRTI_DTYPES][PSRTI_FOLD_OPS];
#endif

#endif
