/* SPDX-License-Identifier: Apache-2.0 */
/* How values are written that a peer's core has read and reads next, by one server thread.
 *
 * In the caches that goes at 40 GB/s, or at 2, as the two cores share a cache or do not; past the caches at 20 in both
 * cases. Which it is shows in the time that it takes: few writes in the caches are timed, since two looks at the clock
 * cost a third of one of 8 KiB. When some in a row were slow, what follows goes past the caches, until it is tried
 * again: virtual machines move. */
#ifndef PSRTI_WRITER_H
#define PSRTI_WRITER_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Zeroed at first. */
typedef struct psrti_writer {
    uint64_t past;    /* bytes still to write past the caches */
    unsigned untimed; /* writes until one is timed            */
    unsigned slow;    /* timed ones, in a row                 */
} psrti_writer_t;

void psrti_writer_write(psrti_writer_t *w, const psrti_kernels_t *k, void *dst, const void *src,
                        uint64_t bytes);
/* A write in the caches took so long. */
void psrti_writer_learn(psrti_writer_t *w, uint64_t bytes, uint64_t ns);

#endif
