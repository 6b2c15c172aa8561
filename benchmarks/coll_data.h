/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks put in and what must come out.
 *
 * An input repeats a block of COLL_PERIOD elements, distinct by rank; every iteration begins at another place
 * of it. So a reduction's result repeats a block too, and writing and checking cost no more than copying
 * and comparing. The period is a prime: no block or chunk of an algorithm is a multiple of it, so what lands in the
 * wrong place is seen. The values are small integers whose results are exact in every type.
 */
#ifndef BENCH_COLL_DATA_H
#define BENCH_COLL_DATA_H

#include "coll.h"

#define COLL_PERIOD 4099u

typedef struct coll_data {
    coll_dtype_t dtype;
    coll_redop_t redop;
    uint32_t rank, ranks;
    char *own; /* this rank's block, twice, so that one can begin anywhere */
    char *reduced,
        *another; /* blocks, twice: of the reduction; of another rank, made when needed */
} coll_data_t;

uint64_t coll_dtype_size(coll_dtype_t dtype);
/* 0, or -1 after it printed what failed. */
int coll_data_init(coll_data_t *data, coll_dtype_t dtype, coll_redop_t redop, uint32_t rank,
                   uint32_t ranks);
void coll_data_free(coll_data_t *data);

/* Elements of the two buffers of a call on this rank. */
uint64_t coll_data_in(const coll_data_t *data, const coll_call_t *call);
uint64_t coll_data_out(const coll_data_t *data, const coll_call_t *call);

/* This rank's input of that iteration. */
void coll_data_fill(const coll_data_t *data, void *in, uint64_t elements, uint64_t iteration);
/* How many elements of call->out are not what they must be after that iteration. */
uint64_t coll_data_wrong(coll_data_t *data, const coll_call_t *call, uint64_t iteration);

#endif
