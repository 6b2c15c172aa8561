/* SPDX-License-Identifier: Apache-2.0 */
/* One cell of the benchmark: one operation, size, number of tables and kind of memory. All workers run
 * the same cells with the same numbers of operations; worker 0 measures, decides the numbers, and tells
 * the others. */
#ifndef BENCH_PS_CELL_H
#define BENCH_PS_CELL_H

#include <psrt/psrt.h>

#include "ps.h"

/* Tables of one size that an operation transfers together, with what was pushed to them. In memory they
 * lie one behind the other. Every worker pushed equally often, so that each value is
 * pushes * (sum over the workers of their gradient's value), exact as long as it is below 2^24. */
typedef struct ps_tables {
    psrt_table_t **table;
    uint64_t count;
    uint64_t elements; /* of all together */
    uint64_t pushes;   /* of one worker   */
} ps_tables_t;

typedef struct ps_worker {
    const ps_options_t *options;
    psrt_context_t *ctx;
    uint32_t rank, workers, servers;
    psrt_request_t *requests; /* room for an operation on all tables */
    psrt_table_t *plan_table, *rate_table;
    float plan_sent[2];       /* what worker 0 pushed to plan_table so far */
    float rate_sent;          /* what this worker pushed to rate_table so far */
    struct limits_pair *pair; /* worker 0 of transport shm; else NULL */
    struct limits_zmq *zmq;   /* worker 0 of transport zmq; else NULL */
} ps_worker_t;

/* The gradient of worker `rank` at element i: 0..3, distinct for neighbours and workers. */
float ps_gradient(uint64_t i, uint32_t rank);
void ps_gradient_fill(float *grad, uint64_t elements, uint32_t rank);

int ps_barrier(ps_worker_t *w);

/* The operation on all tables, not waited for. `grad` or `value` NULL: no push, no pull. */
psrt_status_t ps_submit(ps_worker_t *w, const ps_tables_t *tables, const float *grad, float *value,
                        psrt_op_t **op_p);

/* Measures one cell; on worker 0 *row_p is the result. 0 or -1. */
int ps_cell_run(ps_worker_t *w, ps_tables_t *tables, ps_op_t op, ps_buffers_t buffers,
                ps_row_t *row_p);

#endif
