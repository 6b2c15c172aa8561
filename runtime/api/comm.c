/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators and collectives: the checks of their arguments. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/api/api.h"
#include "runtime/worker/comm.h"

/* ---- communicators ----------------------------------------------------------------------------- */

static psrt_status_t check_list(const psrt_context_t *ctx, const uint32_t *ranks, uint32_t count)
{
    uint8_t *seen = calloc(ctx->workers, 1);
    if (!seen) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %u ranks", count);
    psrt_status_t rc = PSRT_OK;
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (ranks[i] >= ctx->workers)
            rc = psrti_fail(PSRT_ERR_INVALID,
                            "psrt_comm_create: rank %u, but the job has %u workers", ranks[i],
                            ctx->workers);
        else if (seen[ranks[i]]++)
            rc =
                psrti_fail(PSRT_ERR_INVALID, "psrt_comm_create: rank %u is listed twice", ranks[i]);
    }
    if (!rc && !seen[ctx->rank])
        rc = psrti_fail(PSRT_ERR_INVALID,
                        "psrt_comm_create: this worker's rank %u is not listed; only members call",
                        ctx->rank);
    free(seen);
    return rc;
}

/* The handle of a creation that was waited for and failed is of no use. */
static psrt_status_t made(psrt_comm_t *comm, psrt_op_t *op, psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    if (op_p) {
        *op_p = op;
    } else {
        psrt_status_t rc = psrti_worker_wait(op, PSRT_FOREVER);
        if (rc) {
            psrti_worker_comm_free(comm);
            return rc;
        }
    }
    *comm_p = comm;
    return PSRT_OK;
}

static psrt_status_t may_wait(psrti_worker_t *worker, const char *call, psrt_op_t **op_p)
{
    return op_p ? PSRT_OK : psrti_worker_may_wait(worker, call);
}

psrt_status_t psrt_comm_create(psrt_context_t *ctx, const psrt_comm_params_t *params,
                               psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    if (!ctx || !comm_p)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_comm_create: %s is NULL", ctx ? "comm_p" : "ctx");
    if (params && params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_comm_create: params must start as PSRT_COMM_PARAMS_INIT");
    const char *name = params && params->name ? params->name : "";
    if (strlen(name) > PSRTI_COLL_NAME)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_comm_create: the name has more than %d bytes",
                          PSRTI_COLL_NAME);
    int own_rules = params && params->tune && *params->tune;
    psrt_status_t rc = may_wait(ctx->worker, "psrt_comm_create without op_p", op_p);
    uint32_t *all = NULL, count = params ? params->count : 0;
    const uint32_t *ranks = params ? params->ranks : NULL;
    if (!rc && !ranks) {
        rc = psrti_worker_live_ranks(ctx->worker, &all, &count);
        ranks = all;
    }
    if (!rc) rc = check_list(ctx, ranks, count);
    if (!rc && count > 1 && !psrti_config_int(ctx->config, PSRTI_CONF_COLLECTIVES))
        rc = psrti_fail(PSRT_ERR_UNSUPPORTED, "psrt_comm_create: PSRT_COLLECTIVES is off");
    psrt_comm_t *comm;
    psrt_op_t *op;
    psrti_coll_tune_t tune;
    if (!rc && own_rules) rc = psrti_coll_tune_parse(params->tune, "tune", 0, &tune);
    if (!rc)
        rc = psrti_worker_comm_create(ctx->worker, own_rules ? &tune : NULL, name, ranks, count,
                                      &comm, &op);
    free(all);
    return rc ? rc : made(comm, op, comm_p, op_p);
}

/* Is it there, and ready for calls? */
static psrt_status_t check_comm(psrt_comm_t *comm, const char *call, psrt_op_t **op_p,
                                psrt_comm_attr_t *attr)
{
    if (!comm) return psrti_fail(PSRT_ERR_INVALID, "%s: the communicator is NULL", call);
    psrt_status_t rc = may_wait(psrti_comm_worker(comm), call, op_p);
    if (rc || psrti_comm_is_ready(comm, &attr->rank, &attr->ranks)) return rc;
    psrti_worker_comm_query(comm, attr);
    if (attr->ranks == 0 && attr->status == PSRT_ERR_INVALID)
        return psrti_fail(PSRT_ERR_INVALID,
                          "%s: this rank is in no communicator (its colour was negative, or the "
                          "creation failed)",
                          call);
    if (attr->status == PSRT_ERR_BUSY)
        return psrti_fail(PSRT_ERR_BUSY,
                          "%s: the communicator is not ready, wait for the operation of its "
                          "creation",
                          call);
    return PSRT_OK;
}

psrt_status_t psrt_comm_split(psrt_comm_t *parent, int32_t colour, int32_t key,
                              psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    psrt_comm_attr_t attr;
    psrt_comm_t *comm;
    psrt_op_t *op;
    psrt_status_t rc = check_comm(parent, "psrt_comm_split", op_p, &attr);
    if (!rc && !comm_p) rc = psrti_fail(PSRT_ERR_INVALID, "psrt_comm_split: comm_p is NULL");
    if (!rc) rc = psrti_worker_comm_split(parent, colour, key, &comm, &op);
    return rc ? rc : made(comm, op, comm_p, op_p);
}

psrt_status_t psrt_comm_dup(psrt_comm_t *parent, psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    psrt_comm_attr_t attr;
    psrt_comm_t *comm;
    psrt_op_t *op;
    psrt_status_t rc = check_comm(parent, "psrt_comm_dup", op_p, &attr);
    if (!rc && !comm_p) rc = psrti_fail(PSRT_ERR_INVALID, "psrt_comm_dup: comm_p is NULL");
    if (!rc) rc = psrti_worker_comm_dup(parent, &comm, &op);
    return rc ? rc : made(comm, op, comm_p, op_p);
}

psrt_status_t psrt_comm_shrink(psrt_comm_t *failed, psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    psrt_comm_attr_t attr;
    psrt_comm_t *comm;
    psrt_op_t *op;
    psrt_status_t rc = check_comm(failed, "psrt_comm_shrink", op_p, &attr);
    if (!rc && !comm_p) rc = psrti_fail(PSRT_ERR_INVALID, "psrt_comm_shrink: comm_p is NULL");
    if (!rc) rc = psrti_worker_comm_shrink(failed, &comm, &op);
    return rc ? rc : made(comm, op, comm_p, op_p);
}

void psrt_comm_free(psrt_comm_t *comm)
{
    if (comm) psrti_worker_comm_free(comm);
}

psrt_status_t psrt_comm_query(psrt_comm_t *comm, psrt_comm_attr_t *attr)
{
    if (!comm) return psrti_fail(PSRT_ERR_INVALID, "psrt_comm_query: the communicator is NULL");
    if (!attr || attr->size != sizeof *attr)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_comm_query: attr must start as PSRT_COMM_ATTR_INIT");
    psrti_worker_comm_query(comm, attr);
    return PSRT_OK;
}

/* ---- collectives ------------------------------------------------------------------------------- */

/* Which of its buffers this rank needs, and how large they are in parts of `count` elements. */
typedef struct shape {
    const char *call;
    int rooted, reduces;
    int in_everywhere, out_everywhere; /* else on the root alone; of rooted calls */
    int in_parts, out_parts;           /* one part of each rank, not one */
} shape_t;

static const shape_t shapes[PSRTI_COLL_WHATS] = {
    [PSRTI_COLL_ALLREDUCE] = { "psrt_allreduce", 0, 1, 1, 1, 0, 0 },
    [PSRTI_COLL_REDUCE] = { "psrt_reduce", 1, 1, 1, 0, 0, 0 },
    [PSRTI_COLL_BROADCAST] = { "psrt_broadcast", 1, 0, 1, 1, 0, 0 },
    [PSRTI_COLL_ALLGATHER] = { "psrt_allgather", 0, 0, 1, 1, 0, 1 },
    [PSRTI_COLL_REDUCE_SCATTER] = { "psrt_reduce_scatter", 0, 1, 1, 1, 1, 0 },
    [PSRTI_COLL_ALLTOALL] = { "psrt_alltoall", 0, 0, 1, 1, 1, 1 },
    [PSRTI_COLL_GATHER] = { "psrt_gather", 1, 0, 1, 0, 0, 1 },
    [PSRTI_COLL_SCATTER] = { "psrt_scatter", 1, 0, 0, 1, 1, 0 },
    [PSRTI_COLL_BARRIER] = { "psrt_comm_barrier", 0, 0, 0, 0, 0, 0 },
    [PSRTI_COLL_ALLGATHERV] = { "psrt_allgatherv", 0, 0, 1, 1, 0, 0 },
    [PSRTI_COLL_ALLTOALLV] = { "psrt_alltoallv", 0, 0, 1, 1, 0, 0 },
    [PSRTI_COLL_SEND_TO] = { "psrt_send", 1, 0, 1, 0, 0, 0 },
    [PSRTI_COLL_RECV_FROM] = { "psrt_recv", 1, 0, 0, 1, 0, 0 },
};

static psrt_status_t bad(const shape_t *s, const char *what)
{
    return psrti_fail(PSRT_ERR_INVALID, "%s: %s", s->call, what);
}

/* Bytes of all parts fit in an address. */
static int fits(uint64_t count, uint64_t parts, size_t width)
{
    uint64_t elements, bytes;
    return psrti_mul_u64(count, parts, &elements) && psrti_mul_u64(elements, width, &bytes) &&
           bytes <= INT64_MAX;
}

static int is_v(const psrti_coll_call_t *c)
{
    return c->what == PSRTI_COLL_ALLGATHERV || c->what == PSRTI_COLL_ALLTOALLV;
}

static psrt_status_t check_buffers(const shape_t *s, const psrti_coll_call_t *c,
                                   const psrt_comm_attr_t *attr)
{
    int one_sided = c->what == PSRTI_COLL_SEND_TO || c->what == PSRTI_COLL_RECV_FROM;
    int root = s->rooted && !one_sided && c->root == attr->rank;
    if (c->count && !is_v(c)) {
        if ((s->in_everywhere || root) && !c->in) return bad(s, "`in` is NULL");
        if ((s->out_everywhere || root) && !c->out) return bad(s, "`out` is NULL");
    }
    uint64_t parts = s->in_parts || s->out_parts ? attr->ranks : 1;
    if (!fits(c->count, parts, psrt_dtype_size((psrt_dtype_t)c->dtype)))
        return bad(s, "the buffers would be larger than any memory");
    return PSRT_OK;
}

static psrt_status_t check_v(const shape_t *s, const uint64_t *counts, const uint64_t *offsets,
                             const void *buf, uint32_t ranks, size_t width)
{
    uint64_t sum = 0;
    if (!counts) return bad(s, "counts is NULL");
    for (uint32_t i = 0; i < ranks; i++) {
        uint64_t begin = offsets ? offsets[i] : sum;
        if (!fits(begin, 1, width) || !fits(counts[i], 1, width) ||
            !fits(begin + counts[i], 1, width))
            return bad(s, "the buffers would be larger than any memory");
        if (counts[i] && !buf) return bad(s, "a buffer is NULL");
        sum = begin + counts[i];
    }
    return PSRT_OK;
}

static psrt_status_t check_call(const psrti_coll_call_t *c, const psrt_comm_attr_t *attr)
{
    const shape_t *s = &shapes[c->what];
    size_t width = psrt_dtype_size((psrt_dtype_t)c->dtype);
    if (c->what == PSRTI_COLL_BARRIER) return PSRT_OK;
    if (width == 0) return bad(s, "dtype is not one of psrt_dtype_t");
    if (s->reduces && c->redop > PSRT_AVG) return bad(s, "redop is not one of psrt_redop_t");
    if (s->rooted && c->root >= attr->ranks)
        return psrti_fail(PSRT_ERR_INVALID, "%s: rank %u, but the communicator has %u", s->call,
                          c->root, attr->ranks);
    int pairwise = c->what == PSRTI_COLL_SEND_TO || c->what == PSRTI_COLL_RECV_FROM;
    if (pairwise && c->root == attr->rank)
        return psrti_fail(PSRT_ERR_INVALID, "%s: rank %u is the caller's own, copy instead",
                          s->call, c->root);
    psrt_status_t rc = check_buffers(s, c, attr);
    if (!rc && is_v(c)) rc = check_v(s, c->out_counts, c->out_offsets, c->out, attr->ranks, width);
    if (!rc && c->what == PSRTI_COLL_ALLTOALLV)
        rc = check_v(s, c->in_counts, c->in_offsets, c->in, attr->ranks, width);
    if (!rc && c->what == PSRTI_COLL_ALLTOALLV &&
        c->in_counts[attr->rank] != c->out_counts[attr->rank])
        return psrti_fail(
            PSRT_ERR_INVALID,
            "%s: rank %u sends %llu elements to itself and expects %llu: in_counts and "
            "out_counts of the caller's own rank must be the same",
            s->call, attr->rank, (unsigned long long)c->in_counts[attr->rank],
            (unsigned long long)c->out_counts[attr->rank]);
    return rc;
}

static psrt_status_t collective(psrt_comm_t *comm, const psrti_coll_call_t *call, psrt_op_t **op_p)
{
    psrt_comm_attr_t attr;
    psrt_op_t *op;
    psrt_status_t rc = check_comm(comm, shapes[call->what].call, op_p, &attr);
    if (!rc) rc = check_call(call, &attr);
    if (rc) return rc;
    if (!op_p) return psrti_worker_collective_now(comm, call);
    rc = psrti_worker_collective(comm, call, &op);
    if (rc) return rc;
    *op_p = op;
    return PSRT_OK;
}

/* A value that no enumeration has stays one when it is cut to a byte. */
static uint8_t small(int value) { return value < 0 || value > 255 ? 255 : (uint8_t)value; }

psrt_status_t psrt_allreduce(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                             psrt_dtype_t dtype, psrt_redop_t redop, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_ALLREDUCE,
                               .dtype = small(dtype),
                               .redop = small(redop),
                               .count = count,
                               .in = in,
                               .out = out };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_reduce(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                          psrt_dtype_t dtype, psrt_redop_t redop, uint32_t root, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_REDUCE,
                               .dtype = small(dtype),
                               .redop = small(redop),
                               .root = root,
                               .count = count,
                               .in = in,
                               .out = out };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_broadcast(psrt_comm_t *comm, void *buf, uint64_t count, psrt_dtype_t dtype,
                             uint32_t root, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_BROADCAST,
                               .dtype = small(dtype),
                               .root = root,
                               .count = count,
                               .in = buf,
                               .out = buf };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_allgather(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                             psrt_dtype_t dtype, psrt_op_t **op_p)
{
    psrti_coll_call_t call = {
        .what = PSRTI_COLL_ALLGATHER, .dtype = small(dtype), .count = count, .in = in, .out = out
    };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_allgatherv(psrt_comm_t *comm, const void *in, void *out, const uint64_t *counts,
                              const uint64_t *offsets, psrt_dtype_t dtype, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_ALLGATHERV,
                               .dtype = small(dtype),
                               .in = in,
                               .out = out,
                               .out_counts = counts,
                               .out_offsets = offsets };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_reduce_scatter(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                                  psrt_dtype_t dtype, psrt_redop_t redop, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_REDUCE_SCATTER,
                               .dtype = small(dtype),
                               .redop = small(redop),
                               .count = count,
                               .in = in,
                               .out = out };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_alltoall(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                            psrt_dtype_t dtype, psrt_op_t **op_p)
{
    psrti_coll_call_t call = {
        .what = PSRTI_COLL_ALLTOALL, .dtype = small(dtype), .count = count, .in = in, .out = out
    };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_alltoallv(psrt_comm_t *comm, const void *in, const uint64_t *in_counts,
                             const uint64_t *in_offsets, void *out, const uint64_t *out_counts,
                             const uint64_t *out_offsets, psrt_dtype_t dtype, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_ALLTOALLV,
                               .dtype = small(dtype),
                               .in = in,
                               .out = out,
                               .in_counts = in_counts,
                               .in_offsets = in_offsets,
                               .out_counts = out_counts,
                               .out_offsets = out_offsets };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_gather(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                          psrt_dtype_t dtype, uint32_t root, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_GATHER,
                               .dtype = small(dtype),
                               .root = root,
                               .count = count,
                               .in = in,
                               .out = out };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_scatter(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                           psrt_dtype_t dtype, uint32_t root, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_SCATTER,
                               .dtype = small(dtype),
                               .root = root,
                               .count = count,
                               .in = in,
                               .out = out };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_comm_barrier(psrt_comm_t *comm, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_BARRIER };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_send(psrt_comm_t *comm, const void *in, uint64_t count, psrt_dtype_t dtype,
                        uint32_t to, psrt_op_t **op_p)
{
    psrti_coll_call_t call = {
        .what = PSRTI_COLL_SEND_TO, .dtype = small(dtype), .root = to, .count = count, .in = in
    };
    return collective(comm, &call, op_p);
}

psrt_status_t psrt_recv(psrt_comm_t *comm, void *out, uint64_t count, psrt_dtype_t dtype,
                        uint32_t from, psrt_op_t **op_p)
{
    psrti_coll_call_t call = { .what = PSRTI_COLL_RECV_FROM,
                               .dtype = small(dtype),
                               .root = from,
                               .count = count,
                               .out = out };
    return collective(comm, &call, op_p);
}
