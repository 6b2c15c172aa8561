/* SPDX-License-Identifier: Apache-2.0 */
/* Put in front of transport/shm's sources by the target shm_lane: each look at memory that a peer can write
 * gives the target a chance to write it first, so that what is checked and then read again is seen to differ. */
#ifndef PSRT_TESTS_FUZZ_HOSTILE_H
#define PSRT_TESTS_FUZZ_HOSTILE_H

#include <stdatomic.h>
#include <string.h>

void fuzz_before_load(void);

#undef atomic_load_explicit
#ifdef __clang__
#define atomic_load_explicit(object, order)                                                        \
    (fuzz_before_load(), __c11_atomic_load((object), (order)))
#else
#define atomic_load_explicit(object, order)                                                        \
    (fuzz_before_load(), __atomic_load_n((object), (int)(order)))
#endif
#undef atomic_load
#define atomic_load(object) atomic_load_explicit((object), memory_order_seq_cst)
#define memcpy(to, from, size) (fuzz_before_load(), (memcpy)((to), (from), (size)))

#endif
