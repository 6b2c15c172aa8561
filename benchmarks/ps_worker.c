/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "limits.h"
#include "limits_pair.h"
#include "limits_zmq.h"
#include "ps_cell.h"
#include "stats.h"

#define TABLE_NAME_MAX 64

static psrt_dense_params_t table_params(uint64_t elements, const char *consistency)
{
    psrt_dense_params_t params = PSRT_DENSE_PARAMS_INIT;
    params.ndim = 1;
    params.shape[0] = elements;
    params.optimizer = "none";
    params.consistency = consistency;
    params.reduce = "sum";
    return params;
}

/* All workers at once; *us_p is the time of the call. */
static int declare(ps_worker_t *w, size_t count, char (*names)[TABLE_NAME_MAX],
                   const psrt_dense_params_t *params, psrt_table_t **tables, double *us_p)
{
    const char **name = calloc(count, sizeof *name);
    psrt_dense_params_t *all = calloc(count, sizeof *all);
    int failed = 1;
    if (name && all) {
        for (size_t i = 0; i < count; i++) {
            name[i] = names[i];
            all[i] = *params;
        }
        failed = ps_barrier(w);
    } else {
        bench_fail("out of memory");
    }
    uint64_t start = bench_now();
    if (!failed && psrt_dense_create_many(w->ctx, count, name, all, tables) != PSRT_OK)
        failed = bench_fail("tables %s: %s", names[0], psrt_last_error());
    *us_p = (double)(bench_now() - start) / 1000;
    free(name);
    free(all);
    return failed;
}

/* One push by everybody, so that there are distinct values to pull. */
static int first_push(ps_worker_t *w, ps_tables_t *tables)
{
    float *grad = malloc(tables->elements * sizeof *grad);
    if (!grad) return bench_fail("out of memory");
    ps_gradient_fill(grad, tables->elements, w->rank);
    psrt_status_t status = ps_submit(w, tables, grad, NULL, NULL);
    free(grad);
    tables->pushes = 1;
    return status == PSRT_OK ? ps_barrier(w) : bench_fail("push: %s", psrt_last_error());
}

/* How long the memory of the tables takes to be written once is the least that a declaration needs. */
static int declare_row(const ps_tables_t *tables, double us, ps_row_t *row)
{
    limits_t limits;
    if (limits_init(&limits, tables->elements, 0)) return bench_fail("out of memory");
    limits_measure(&limits);
    row->op = PS_DECLARE;
    row->tables = tables->count;
    row->bytes = tables->elements / tables->count * sizeof(float);
    row->p50_us = row->p99_us = us;
    row->ops_per_s = (double)tables->count * 1e6 / us;
    row->limit_us = limits_copy_us(&limits) / (double)tables->count;
    limits_free(&limits);
    return 0;
}

static int create_tables(ps_worker_t *w, uint64_t bytes, const char *consistency,
                         ps_tables_t *tables, ps_row_t *row)
{
    psrt_dense_params_t params = table_params(bytes / sizeof(float), consistency);
    double us = 0;
    tables->count = w->options->tables;
    tables->elements = tables->count * params.shape[0];
    tables->table = calloc(tables->count, sizeof(void *));
    char(*names)[TABLE_NAME_MAX] = calloc(tables->count, sizeof *names);
    int failed = !tables->table || !names ? bench_fail("out of memory") : 0;
    for (uint64_t i = 0; i < tables->count && !failed; i++)
        snprintf(names[i], sizeof names[i], "%s/%llu/%llu", consistency, (unsigned long long)bytes,
                 (unsigned long long)i);
    failed = failed || declare(w, tables->count, names, &params, tables->table, &us) ||
             (w->rank == 0 && tables->count > 1 && declare_row(tables, us, row)) ||
             first_push(w, tables);
    free(names);
    return failed ? -1 : 0;
}

/* A figure under the wrong name is worse than none. The paths are known once something was sent. */
static int check_transport(ps_worker_t *w, ps_transport_t wanted)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    if (psrt_context_query(w->ctx, &attr) != PSRT_OK) return bench_fail("%s", psrt_last_error());
    if (!strcmp(attr.transports, ps_transport_names[wanted])) return 0;
    return bench_fail("the path to the servers is %s, not %s", attr.transports,
                      ps_transport_names[wanted]);
}

static int open_tables(ps_worker_t *w, uint64_t bytes, ps_transport_t transport,
                       const char *consistency, ps_tables_t *tables)
{
    ps_row_t row = { .transport = transport,
                     .buffers = PS_BUFFERS_NONE,
                     .workers = w->workers,
                     .servers = w->servers };
    if (tables->table) return 0;
    if (create_tables(w, bytes, consistency, tables, &row) || check_transport(w, transport))
        return -1;
    if (w->rank == 0 && tables->count > 1) ps_row_print(&row);
    return 0;
}

static int run_op(ps_worker_t *w, ps_tables_t *tables, ps_op_t op, ps_transport_t transport)
{
    for (unsigned buffers = 0; buffers < PS_BUFFERS; buffers++) {
        ps_row_t row = { .transport = transport };
        if (!(w->options->buffers & 1u << buffers)) continue;
        if (ps_cell_run(w, tables, op, (ps_buffers_t)buffers, &row)) return -1;
        if (w->rank == 0) ps_row_print(&row);
    }
    return 0;
}

/* A size: push and pull share the async tables, push_pull has the sync ones. */
static int run_size(ps_worker_t *w, uint64_t bytes, ps_transport_t transport)
{
    ps_tables_t async_tables = { 0 }, sync_tables = { 0 };
    int failed = 0;
    for (unsigned op = 0; op < PS_OPS && !failed; op++) {
        int sync = op == PS_PUSH_PULL;
        ps_tables_t *tables = sync ? &sync_tables : &async_tables;
        if (!(w->options->ops & 1u << op)) continue;
        failed = open_tables(w, bytes, transport, sync ? "sync" : "async", tables) ||
                 run_op(w, tables, (ps_op_t)op, transport);
    }
    free(async_tables.table);
    free(sync_tables.table);
    return failed ? -1 : 0;
}

static int join(ps_worker_t *w)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    if (psrt_context_create(NULL, &w->ctx) != PSRT_OK ||
        psrt_context_query(w->ctx, &attr) != PSRT_OK)
        return bench_fail("%s", psrt_last_error());
    w->rank = attr.rank;
    w->workers = attr.workers;
    w->servers = attr.servers;
    w->requests = calloc(w->options->tables, sizeof *w->requests);
    if (!w->requests) return bench_fail("out of memory");
    psrt_dense_params_t plan = table_params(2, "async"), rate = table_params(w->workers, "async");
    if (psrt_dense_create(w->ctx, "plan", &plan, &w->plan_table) == PSRT_OK &&
        psrt_dense_create(w->ctx, "rate", &rate, &w->rate_table) == PSRT_OK)
        return 0;
    return bench_fail("tables plan and rate: %s", psrt_last_error());
}

static uint64_t largest_operation(const ps_options_t *o)
{
    uint64_t bytes = 0;
    if (o->tables > 1) return o->tables * o->table_bytes;
    for (size_t i = 0; i < o->size_count; i++)
        if (o->sizes[i] > bytes) bytes = o->sizes[i];
    return bytes;
}

/* That psrt-launch told the job. */
static const char *security_level(void)
{
    const char *level = getenv("PSRT_SECURITY");
    return level ? level : "encrypted";
}

/* The process of the raw limit starts before the runtime does, which has threads. */
static int start_raw(ps_worker_t *w, ps_transport_t transport)
{
    const char *rank = getenv("PSRT_RANK");
    if (transport == PS_INPROC || !rank || strcmp(rank, "0") != 0) return 0;
    if (transport == PS_SHM)
        w->pair = limits_pair_start(largest_operation(w->options));
    else
        w->zmq = limits_zmq_start(security_level(), w->options->seconds);
    return w->pair || w->zmq ? 0 : -1;
}

int ps_worker_run(const ps_options_t *options)
{
    ps_worker_t w = { .options = options };
    ps_transport_t transport = PS_SHM;
    while (!(options->transports & 1u << transport))
        transport++;
    int failed = start_raw(&w, transport) || join(&w);
    if (!failed && options->tables > 1)
        failed = run_size(&w, options->table_bytes, transport);
    else
        for (size_t i = 0; i < options->size_count && !failed; i++)
            failed = run_size(&w, options->sizes[i], transport);
    if (!failed) failed = ps_barrier(&w);
    psrt_context_destroy(w.ctx);
    limits_pair_stop(w.pair);
    limits_zmq_stop(w.zmq);
    free(w.requests);
    return failed ? -1 : 0;
}
