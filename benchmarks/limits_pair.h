/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two processes do with plain loops over memory that they share: the bound for push_pull over shm, and
 * for its round trips.
 *
 * The worker has a gradient and a place for values, the other process a table. It adds the gradient to
 * the table (dst += src), the worker copies the table out: the passes of a push_pull, by the same two
 * processes. Both work at once, on pieces: one piece is copied out while the next one is added. The other
 * process may be an operation ahead, but adds to no piece that is not copied out. Each says how far it is
 * in a cache line that the other polls; nobody sleeps. The best of several sizes of pieces counts.
 */
#ifndef BENCH_LIMITS_PAIR_H
#define BENCH_LIMITS_PAIR_H

#include <stdint.h>

#include "limits.h"

typedef struct limits_pair limits_pair_t;

/* Starts the other process: before the first thread of this one. Operations have at most max_bytes. NULL
 * after it printed what failed. */
limits_pair_t *limits_pair_start(uint64_t max_bytes);
/* Ends it. NULL allowed. */
void limits_pair_stop(limits_pair_t *pair);

/* Memory for operations of that many elements; forgets the rounds. */
void limits_pair_begin(limits_pair_t *pair, uint64_t elements);
/* One round: the push_pull, with the kernels that `alone` found to be faster, if `passes`, and the
 * round trip of a cache line there and one back. */
void limits_pair_measure(limits_pair_t *pair, const limits_t *alone, int passes);
/* Gives the memory back. */
void limits_pair_end(limits_pair_t *pair);

/* Medians of the rounds: us of an operation, us of a round trip. */
double limits_pair_us(limits_pair_t *pair);
double limits_pair_ping_us(limits_pair_t *pair);

#endif
