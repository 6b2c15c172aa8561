/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "ps_cell.h"

static int create_table(ps_worker_t *w, const char *name, uint64_t elements,
                        const char *consistency, psrt_table_t **table_p)
{
    psrt_dense_params_t params = PSRT_DENSE_PARAMS_INIT;
    params.ndim = 1;
    params.shape[0] = elements;
    params.optimizer = "none";
    params.consistency = consistency;
    params.reduce = "sum";
    if (psrt_dense_create(w->ctx, name, &params, table_p) == PSRT_OK) return 0;
    return bench_fail("table %s: %s", name, psrt_last_error());
}

/* One push by everybody, so that there are distinct values to pull. */
static int first_push(ps_worker_t *w, ps_table_t *table)
{
    float *grad = malloc(table->elements * sizeof *grad);
    if (!grad) return bench_fail("out of memory");
    ps_gradient_fill(grad, table->elements, w->rank);
    psrt_status_t status = psrt_push(table->table, grad, NULL);
    free(grad);
    table->pushes = 1;
    return status == PSRT_OK ? ps_barrier(w) : bench_fail("push: %s", psrt_last_error());
}

static int create_bench_table(ps_worker_t *w, uint64_t bytes, const char *consistency,
                              ps_table_t *table)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%llu", consistency, (unsigned long long)bytes);
    table->elements = bytes / sizeof(float);
    return create_table(w, name, table->elements, consistency, &table->table) ||
           first_push(w, table);
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

/* A size: push and pull share the async table, push_pull has the sync one. */
static int run_size(ps_worker_t *w, uint64_t bytes, ps_transport_t transport)
{
    const ps_options_t *o = w->options;
    ps_table_t async_table = { 0 }, sync_table = { 0 };
    for (unsigned op = 0; op < PS_OPS; op++) {
        if (!(o->ops & 1u << op)) continue;
        ps_table_t *table = op == PS_PUSH_PULL ? &sync_table : &async_table;
        if (!table->table &&
            (create_bench_table(w, bytes, table == &sync_table ? "sync" : "async", table) ||
             check_transport(w, transport)))
            return -1;
        for (unsigned buffers = 0; buffers < PS_BUFFERS; buffers++) {
            ps_row_t row = { .transport = transport };
            if (!(o->buffers & 1u << buffers)) continue;
            if (ps_cell_run(w, table, (ps_op_t)op, (ps_buffers_t)buffers, &row)) return -1;
            if (w->rank == 0) ps_row_print(&row);
        }
    }
    return 0;
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
    return create_table(w, "plan", 2, "async", &w->plan_table);
}

int ps_worker_run(const ps_options_t *options)
{
    ps_worker_t w = { .options = options };
    ps_transport_t transport = PS_SHM;
    while (!(options->transports & 1u << transport))
        transport++;
    int failed = join(&w);
    for (size_t i = 0; i < options->size_count && !failed; i++)
        failed = run_size(&w, options->sizes[i], transport);
    if (!failed) failed = ps_barrier(&w);
    psrt_context_destroy(w.ctx);
    return failed ? -1 : 0;
}
