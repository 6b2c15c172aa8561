/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of `psrt-bench coll`: this library as an implementation. */
#ifndef BENCH_COLL_RANK_H
#define BENCH_COLL_RANK_H

#include "coll.h"

/* Joins the job, measures all cells, prints the rows if it is rank 0. 0 or -1. */
int coll_rank_run(const coll_options_t *options);

#endif
