/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of different lengths, for allgatherv and alltoallv: of n parts, part i is (i + 1) shares of the
 * n (n + 1) / 2 that all elements are cut in, so the last one is n times the first. In an allgatherv, rank i gives
 * part i; in an alltoallv, rank a sends rank b part (a + b) mod n, which makes every rank send and receive all parts
 * once. */
#ifndef BENCH_COLL_PARTS_H
#define BENCH_COLL_PARTS_H

#include "coll.h"

typedef struct coll_parts {
    uint64_t lengths[COLL_RANKS_MAX], offsets[COLL_RANKS_MAX];
} coll_parts_t;

/* The parts in the output of `rank`, dense: from each rank. Those in its input of an alltoallv, to each rank, are the
 * same. */
void coll_parts_init(coll_parts_t *parts, coll_kind_t kind, uint64_t elements, uint32_t rank,
                     uint32_t ranks);

#endif
