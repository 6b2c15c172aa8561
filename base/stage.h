/* SPDX-License-Identifier: Apache-2.0 */
/* Copies for another process to read from shared memory.
 *
 * Through the caches, where the reader finds them: 15 to 30 GB/s between cores that share a cache. Between others, to write
 * a line that the reader has read once takes so long that it comes to 2 GB/s; there, copies past the caches are made
 * instead, at 7 to 10 GB/s. Which it is shows in the time that a copy takes, and may change: virtual machines move. */
#ifndef PSRTI_BASE_STAGE_H
#define PSRTI_BASE_STAGE_H

#include <stdint.h>

/* Of one writer; zeroed at first. */
typedef struct psrti_stage {
    uint64_t cost; /* ns of 64 KiB through the caches; 0: not known */
    uint64_t past; /* copies past them                              */
} psrti_stage_t;

/* dst: at the beginning of a line, in memory that a peer reads next and that nobody reads here. */
void psrti_stage_copy(psrti_stage_t *stage, void *dst, const void *src, uint64_t bytes);
/* A copy through the caches took so long. */
void psrti_stage_learn(psrti_stage_t *stage, uint64_t bytes, uint64_t ns);

#endif
