/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and the operations on them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/optimizer.h"
#include "runtime/api/api.h"

/* ---- declaring --------------------------------------------------------------------------------- */

static int is_rank0(const psrti_table_spec_t *spec) { return strcmp(spec->init, "rank0") == 0; }

static psrt_status_t check_init_data(const psrt_context_t *ctx, const psrti_table_spec_t *spec,
                                     const psrt_dense_params_t *params)
{
    if (!is_rank0(spec) || ctx->rank != 0 || params->init_data) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "table %s: init is rank0, so worker 0 must give the values in init_data",
                      spec->name);
}

/* Worker 0 hands over the values of its rank0 tables, in one operation. */
static psrt_status_t send_init(psrt_context_t *ctx, size_t count, psrt_table_t **tables,
                               const psrt_dense_params_t *params)
{
    size_t n = 0;
    psrti_transfer_t *x = calloc(count, sizeof *x);
    psrt_status_t rc = x ? PSRT_OK : psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; !rc && ctx->rank == 0 && i < count; i++)
        if (is_rank0(&tables[i]->spec))
            x[n++] = (psrti_transfer_t){ .table = tables[i]->ctable,
                                         .grad = params[i].init_data,
                                         .init = 1,
                                         .count = tables[i]->spec.elements };
    if (n) {
        psrt_op_t *op;
        rc = psrti_worker_submit(ctx->worker, x, n, &(psrti_submit_t){ 0 }, &op);
        if (!rc) rc = psrti_worker_wait(op, PSRT_FOREVER);
    }
    free(x);
    return rc;
}

static psrt_status_t declare(psrt_context_t *ctx, size_t count, const psrti_table_spec_t *specs,
                             const psrt_dense_params_t *params, psrt_table_t **tables)
{
    psrti_ctable_t **ctables = calloc(count, sizeof(void *));
    psrt_status_t rc = ctables ? PSRT_OK : psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; !rc && i < count; i++)
        if (!(tables[i] = calloc(1, sizeof **tables)))
            rc = psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for table %s", specs[i].name);
    if (!rc) rc = psrti_worker_declare(ctx->worker, count, specs, ctables);
    for (size_t i = 0; !rc && i < count; i++) {
        tables[i]->ctx = ctx;
        tables[i]->spec = specs[i];
        tables[i]->ctable = ctables[i];
    }
    if (!rc) rc = send_init(ctx, count, tables, params);
    free(ctables);
    return rc;
}

psrt_status_t psrt_dense_create_many(psrt_context_t *ctx, size_t count, const char *const *names,
                                     const psrt_dense_params_t *params, psrt_table_t **tables_p)
{
    const char *null = !ctx        ? "ctx"
                       : !count    ? NULL
                       : !names    ? "names"
                       : !params   ? "params"
                       : !tables_p ? "table_p"
                                   : NULL;
    if (null) return psrti_fail(PSRT_ERR_INVALID, "psrt_dense_create: %s is NULL", null);
    if (count == 0) return PSRT_OK;
    if (ctx->servers == 0)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: the job has no servers (PSRT_SERVERS=0)",
                          names[0] ? names[0] : "");
    if (psrti_worker_may_wait(ctx->worker, "psrt_dense_create")) return PSRT_ERR_INVALID;
    psrti_table_spec_t *specs = calloc(count, sizeof *specs);
    psrt_table_t **tables = calloc(count, sizeof(void *));
    psrt_status_t rc = PSRT_OK;
    if (!specs || !tables)
        rc = psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %zu tables", count);
    for (size_t i = 0; !rc && i < count; i++) {
        rc = psrti_table_spec_make(names[i], &params[i], &specs[i]);
        if (!rc) rc = check_init_data(ctx, &specs[i], &params[i]);
    }
    if (!rc) rc = declare(ctx, count, specs, params, tables);
    pthread_mutex_lock(&ctx->lock);
    for (size_t i = 0; tables && i < count; i++) {
        if (rc)
            free(tables[i]);
        else
            psrti_list_push(&ctx->tables, &tables[i]->node);
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!rc) memcpy(tables_p, tables, count * sizeof(void *));
    free(specs);
    free(tables);
    return rc;
}

psrt_status_t psrt_dense_create(psrt_context_t *ctx, const char *name,
                                const psrt_dense_params_t *params, psrt_table_t **table_p)
{
    return psrt_dense_create_many(ctx, 1, &name, params, table_p);
}

psrt_status_t psrt_table_query(psrt_table_t *table, psrt_table_attr_t *attr)
{
    if (!table) return psrti_fail(PSRT_ERR_INVALID, "psrt_table_query: table is NULL");
    if (!attr || attr->size != sizeof *attr)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_table_query: attr must start as PSRT_TABLE_ATTR_INIT");
    attr->name = table->spec.name;
    attr->dtype = table->spec.value_dtype;
    attr->ndim = table->spec.ndim;
    memcpy(attr->shape, table->spec.shape, sizeof attr->shape);
    attr->elements = table->spec.elements;
    attr->step = psrti_worker_next_step(table->ctx->worker, table->ctable);
    attr->skipped_steps = psrti_worker_skipped_steps(table->ctx->worker, table->ctable);
    return PSRT_OK;
}

static psrt_status_t check_set(const psrti_table_spec_t *spec, const char *key, double value,
                               uint64_t from_step)
{
    psrti_optimizer_t opt;
    int index;
    psrt_status_t rc = psrti_optimizer_parse(spec->optimizer, &opt);
    if (!rc) rc = psrti_optimizer_set(&opt, key, value, &index);
    if (rc) return psrti_fail(rc, "table %s: %s", spec->name, psrt_last_error());
    if (spec->consistency == PSRTI_SYNC || from_step == PSRT_STEP_NEXT) return PSRT_OK;
    return psrti_fail(
        PSRT_ERR_INVALID,
        "table %s: %s can be set from PSRT_STEP_NEXT on only, steps are counted by the "
        "servers of sync tables",
        spec->name, key);
}

psrt_status_t psrt_table_set(psrt_table_t *table, const char *key, double value, uint64_t from_step,
                             uint64_t *step_p)
{
    uint64_t step;
    if (!table || !key)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_table_set: %s is NULL", table ? "key" : "table");
    psrti_worker_t *worker = table->ctx->worker;
    if (psrti_worker_may_wait(worker, "psrt_table_set")) return PSRT_ERR_INVALID;
    psrt_status_t rc = check_set(&table->spec, key, value, from_step);
    if (!rc) rc = psrti_worker_set(worker, table->ctable, key, value, from_step, &step);
    if (!rc && step_p) *step_p = step;
    return rc;
}

/* ---- submitting -------------------------------------------------------------------------------- */

static int overlaps(const psrt_request_t *r, uint64_t bytes)
{
    uintptr_t g = (uintptr_t)r->grad, v = (uintptr_t)r->value;
    return g && v && g < v + bytes && v < g + bytes;
}

static psrt_status_t check_range(const psrt_request_t *r, const psrti_table_spec_t *s,
                                 uint64_t *count_p)
{
    uint64_t count = r->count;
    if (count == 0 && r->offset == 0) count = s->elements;
    if (count == 0)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: a request of 0 elements at offset %" PRIu64,
                          s->name, r->offset);
    if (r->offset >= s->elements || count > s->elements - r->offset)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: elements %" PRIu64 " to %" PRIu64
                          " are not within its %" PRIu64,
                          s->name, r->offset, r->offset + count, s->elements);
    *count_p = count;
    return PSRT_OK;
}

static psrt_status_t check_request(const psrt_context_t *ctx, const psrt_request_t *r, size_t index,
                                   psrti_transfer_t *out)
{
    if (r->size != sizeof *r)
        return psrti_fail(PSRT_ERR_INVALID, "request %zu must start as PSRT_REQUEST_INIT", index);
    if (!r->table || r->table->ctx != ctx)
        return psrti_fail(PSRT_ERR_INVALID, "request %zu: table is %s", index,
                          r->table ? "of another context" : "NULL");
    const psrti_table_spec_t *s = &r->table->spec;
    if (!r->grad && !r->value)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: neither grad nor value is given", s->name);
    if (r->priority < -128 || r->priority > 127)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: priority %d is not within -128 to 127",
                          s->name, r->priority);
    if (r->more && !r->grad)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: `more` is for pushes", s->name);
    if (r->ema && (r->grad || !psrti_table_spec_averages(s)))
        return psrti_fail(PSRT_ERR_INVALID, "table %s: `ema` is for pulls %s", s->name,
                          r->grad ? "alone" : "of a table whose optimizer has the key ema");
    uint64_t count = 0;
    psrt_status_t rc = check_range(r, s, &count);
    if (rc) return rc;
    if (overlaps(r, count * psrt_dtype_size(s->value_dtype)))
        return psrti_fail(PSRT_ERR_INVALID, "table %s: grad and value overlap", s->name);
    *out = (psrti_transfer_t){ .table = r->table->ctable,
                               .grad = r->grad,
                               .value = r->value,
                               .offset = r->offset,
                               .count = count,
                               .step = r->step,
                               .priority = r->priority,
                               .more = r->more,
                               .average = r->ema };
    return PSRT_OK;
}

static psrt_status_t submit(psrt_context_t *ctx, const psrt_request_t *requests, size_t count,
                            const psrt_submit_params_t *params, psrti_transfer_t *transfers,
                            psrt_op_t **op_p)
{
    for (size_t i = 0; i < count; i++) {
        psrt_status_t rc = check_request(ctx, &requests[i], i, &transfers[i]);
        if (rc) return rc;
    }
    psrt_op_t *op;
    if (!op_p && psrti_worker_may_wait(ctx->worker, "a request without op_p"))
        return PSRT_ERR_INVALID;
    psrti_submit_t how = { 0 };
    if (params) {
        how.callback = params->callback;
        how.arg = params->arg;
        how.deadline_ns = params->deadline_ns;
    }
    if (!how.deadline_ns) how.deadline_ns = psrti_config_u64(ctx->config, PSRTI_CONF_OP_DEADLINE);
    psrt_status_t rc = psrti_worker_submit(ctx->worker, transfers, count, &how, &op);
    if (rc) return rc;
    if (!op_p) return psrti_worker_wait(op, PSRT_FOREVER);
    *op_p = op;
    return PSRT_OK;
}

psrt_status_t psrt_submit(psrt_context_t *ctx, const psrt_request_t *requests, size_t count,
                          const psrt_submit_params_t *params, psrt_op_t **op_p)
{
    if (!ctx || !requests || count == 0)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_submit: %s",
                          !ctx    ? "ctx is NULL"
                          : count ? "requests is NULL"
                                  : "count is 0");
    if (params && params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_submit: params must start as PSRT_SUBMIT_PARAMS_INIT");
    psrti_transfer_t one;
    if (count == 1) return submit(ctx, requests, 1, params, &one, op_p);
    psrti_transfer_t *many = malloc(count * sizeof *many);
    if (!many) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %zu requests", count);
    psrt_status_t rc = submit(ctx, requests, count, params, many, op_p);
    free(many);
    return rc;
}

static psrt_status_t whole(psrt_table_t *table, const void *grad, void *value, psrt_op_t **op_p)
{
    psrt_request_t r = PSRT_REQUEST_INIT;
    r.table = table;
    r.grad = grad;
    r.value = value;
    return psrt_submit(table->ctx, &r, 1, NULL, op_p);
}

static psrt_status_t is_null(const char *call, const char *argument)
{
    return psrti_fail(PSRT_ERR_INVALID, "%s: %s is NULL", call, argument);
}

psrt_status_t psrt_push(psrt_table_t *table, const void *grad, psrt_op_t **op_p)
{
    if (!table || !grad) return is_null("psrt_push", table ? "grad" : "table");
    return whole(table, grad, NULL, op_p);
}

psrt_status_t psrt_pull(psrt_table_t *table, void *value, psrt_op_t **op_p)
{
    if (!table || !value) return is_null("psrt_pull", table ? "value" : "table");
    return whole(table, NULL, value, op_p);
}

psrt_status_t psrt_push_pull(psrt_table_t *table, const void *grad, void *value, psrt_op_t **op_p)
{
    if (!table || !grad || !value)
        return is_null("psrt_push_pull", !table ? "table" : grad ? "value" : "grad");
    return whole(table, grad, value, op_p);
}

psrt_status_t psrt_op_test(psrt_op_t *op, psrt_result_t *result_p)
{
    if (op) return psrti_worker_test(op, result_p);
    if (result_p) memset(result_p, 0, sizeof *result_p);
    return PSRT_OK;
}

psrt_status_t psrt_op_wait(psrt_op_t *op, uint64_t timeout_ns)
{
    return op ? psrti_worker_wait(op, timeout_ns) : PSRT_OK;
}

void psrt_op_cancel(psrt_op_t *op)
{
    if (op) psrti_worker_cancel(op);
}

void psrt_op_release(psrt_op_t *op)
{
    if (op) psrti_worker_release(op);
}
