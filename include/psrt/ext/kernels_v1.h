/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels, version 1: the lists of what the runtime computes with, so that a program can measure each
 * variant on its own. Nothing here is needed to train.
 */
#ifndef PSRT_EXT_KERNELS_V1_H
#define PSRT_EXT_KERNELS_V1_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/ext/optimizer_v1.h>
#include <psrt/psrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* One variant of one kernel. Kernels with two operands may write to the first one. */
typedef struct psrt_kernel_info {
    size_t size;
    const char *name;    /* "copy", "add_f32", "f16_from_f32", ...                */
    const char *variant; /* "scalar", "avx2", ...; PSRT_CPU takes these           */
    int available;       /* usable on this machine                                */
    uint32_t dst_bytes;  /* bytes of an element of dst; 0: the kernel only reads    */
    uint32_t a_bytes;    /* ... of operand a                                       */
    uint32_t b_bytes;    /* ... of operand b; 0: the kernel has only one           */
} psrt_kernel_info_t;

/**
 * Entry `index` of the list of kernels, the variants of a kernel one after the other, best first.
 * @param info_p its `size` is set by the caller; the texts are static
 * @return OK; ERR_NOT_FOUND past the last entry; ERR_INVALID `size` is not set
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_kernel_query(size_t index, psrt_kernel_info_t *info_p);

/**
 * Runs entry `index` on n elements. A division or multiplication is by 3.
 * @param dst,a,b n elements each, aligned to their size; b is not used by kernels of one operand
 * @return OK; ERR_NOT_FOUND past the last entry; ERR_INVALID not available on this machine
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_kernel_run(size_t index, void *dst, const void *a, const void *b, uint64_t n);

/**
 * Entry `index` of the list of optimizers.
 * @param ops_p static
 * @return OK; ERR_NOT_FOUND past the last entry
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_optimizer_query(size_t index, const psrt_optimizer_ops_t **ops_p);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
