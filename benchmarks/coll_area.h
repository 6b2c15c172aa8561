/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of a benchmark share beside what they measure: a file without a name, which its maker
 * passes on as /proc/PID/fd/N, so that nothing is left of it. */
#ifndef BENCH_COLL_AREA_H
#define BENCH_COLL_AREA_H

#include <stdint.h>

#include "coll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_ITERATIONS_MAX 20000u

typedef struct coll_area coll_area_t;

/* Makes the file for `ranks` ranks, each with two buffers of `max_bytes`; its path goes to `path`, and is
 * valid while this process lives. 0, or -1 after it printed what failed. */
int coll_area_create(uint32_t ranks, uint64_t max_bytes, char path[64]);
/* Also binds the calling thread to a core where there is one for each rank. The file may also be an empty one of somebody else; then there are no buffers. NULL after it printed what
 * failed. */
coll_area_t *coll_area_open(const char *path, uint32_t rank, uint32_t ranks);
void coll_area_close(coll_area_t *area);

/* All ranks arrive before one of them leaves; those that have a core leave at the same moment. */
void coll_area_meet(coll_area_t *area);
/* What rank 0 says. All ranks call it. */
uint64_t coll_area_share(coll_area_t *area, uint64_t value);
/* The sum of what all say, to all. All ranks call it. */
uint64_t coll_area_sum(coll_area_t *area, uint64_t value);

/* This rank's times, COLL_ITERATIONS_MAX of them. */
double *coll_area_times(coll_area_t *area);
/* Into rank 0's times: the slowest rank's time of each iteration. All ranks call it. */
void coll_area_slowest(coll_area_t *area, uint64_t iterations);

/* The two buffers of a rank, from a huge page boundary on; `which` is 0 or 1. */
void *coll_area_buffer(const coll_area_t *area, uint32_t rank, unsigned which);
/* Pages for that many bytes from such a boundary on, huge ones where there are any. */
void coll_area_populate(void *buffer, uint64_t bytes);
/* Gives the memory of this rank's buffers back. */
void coll_area_discard(coll_area_t *area);

/* Flags of the limit: a number that only grows, in a line of its own for each rank. */
void coll_area_tell(coll_area_t *area, uint64_t number);
void coll_area_await(const coll_area_t *area, uint32_t rank, uint64_t number);

#ifdef __cplusplus
}
#endif

#endif
