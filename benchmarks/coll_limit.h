/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks' processes do with plain loops over memory that all of them share: the bound for collectives
 * over shm. All say that they are here, each makes its passes straight from the others' inputs into the others'
 * outputs, all say that they are done. Sums of f32, whatever is measured beside them: the bytes count.
 */
#ifndef BENCH_COLL_LIMIT_H
#define BENCH_COLL_LIMIT_H

#include "coll_area.h"

/* Writing in and past the caches, and allreduce also with each rank summing everything for itself; the fastest one
 * is the limit. */
#define COLL_LIMITS 4

typedef struct coll_limit {
    coll_area_t *area;
    uint32_t rank, size;
    uint64_t told;
    unsigned buffers; /* handed out */
} coll_limit_t;

void coll_limit_init(coll_limit_t *limit, coll_area_t *area, uint32_t rank, uint32_t size,
                     coll_backend_t backends[COLL_LIMITS]);

#endif
