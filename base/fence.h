/* SPDX-License-Identifier: Apache-2.0 */
/* A full fence: what was stored before it is seen by others before anything is loaded behind it. */
#ifndef PSRTI_BASE_FENCE_H
#define PSRTI_BASE_FENCE_H

#include <stdatomic.h>

/* GCC's TSan does not model fences, and says so; what they order here are atomics, or memory that is mapped twice,
 * which it does not see to be the same. */
static inline void psrti_full_fence(void)
{
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

#endif
