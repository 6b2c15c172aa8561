/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_rank.h"

#include <stdlib.h>
#include <string.h>

#include <psrt/comm.h>

#include "coll_area.h"
#include "coll_data.h"
#include "coll_limit.h"
#include "flags.h"

static const psrt_dtype_t dtypes[COLL_DTYPES] = {
    PSRT_F32, PSRT_F64, PSRT_F16, PSRT_BF16, PSRT_I8, PSRT_I16, PSRT_I32, PSRT_I64, PSRT_U8,
};
static const psrt_redop_t redops[COLL_REDOPS] = {
    PSRT_SUM, PSRT_PROD, PSRT_MIN, PSRT_MAX, PSRT_AVG,
};

typedef struct rank {
    psrt_context_t *ctx;
    psrt_comm_t *comm;
    uint32_t rank, size;
} rank_t;

/* Around the ring of ranks; one alone has nobody to send to. */
static psrt_status_t sendrecv(const rank_t *r, const coll_call_t *c, psrt_dtype_t dtype)
{
    uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
    psrt_op_t *op;
    if (r->size == 1) {
        memcpy(c->out, c->in, c->count * coll_dtype_size(c->dtype));
        return PSRT_OK;
    }
    psrt_status_t rc = psrt_recv(r->comm, c->out, c->count, dtype, from, &op);
    if (rc) return rc;
    rc = psrt_send(r->comm, c->in, c->count, dtype, to, NULL);
    psrt_status_t received = psrt_op_wait(op, PSRT_FOREVER);
    return rc ? rc : received;
}

/* The blocking calls. */
static psrt_status_t dispatch(const rank_t *r, const coll_call_t *c)
{
    psrt_dtype_t dtype = dtypes[c->dtype];
    psrt_redop_t redop = redops[c->redop];
    switch (c->kind) {
    case COLL_ALLREDUCE:
    case COLL_LATENCY: return psrt_allreduce(r->comm, c->in, c->out, c->count, dtype, redop, NULL);
    case COLL_REDUCE: return psrt_reduce(r->comm, c->in, c->out, c->count, dtype, redop, 0, NULL);
    case COLL_BROADCAST:
        return psrt_broadcast(r->comm, r->rank ? c->out : (void *)c->in, c->count, dtype, 0, NULL);
    case COLL_ALLGATHER: return psrt_allgather(r->comm, c->in, c->out, c->count, dtype, NULL);
    case COLL_REDUCE_SCATTER:
        return psrt_reduce_scatter(r->comm, c->in, c->out, c->count, dtype, redop, NULL);
    case COLL_ALLTOALL: return psrt_alltoall(r->comm, c->in, c->out, c->count, dtype, NULL);
    case COLL_GATHER: return psrt_gather(r->comm, c->in, c->out, c->count, dtype, 0, NULL);
    case COLL_SCATTER: return psrt_scatter(r->comm, c->in, c->out, c->count, dtype, 0, NULL);
    case COLL_ALLGATHERV:
        return psrt_allgatherv(r->comm, c->in, c->out, c->lengths, c->offsets, dtype, NULL);
    case COLL_ALLTOALLV:
        return psrt_alltoallv(r->comm, c->in, c->lengths, c->offsets, c->out, c->lengths,
                              c->offsets, dtype, NULL);
    case COLL_SENDRECV: return sendrecv(r, c, dtype);
    default: return psrt_comm_barrier(r->comm, NULL);
    }
}

static int run(void *state, const coll_call_t *call)
{
    if (dispatch(state, call) == PSRT_OK) return 0;
    return bench_fail("%s: %s", coll_kind_names[call->kind], psrt_last_error());
}

static void *allocate(void *state, coll_buffers_t buffers, uint64_t bytes)
{
    return buffers == COLL_PSRT ? psrt_alloc(((rank_t *)state)->ctx, bytes) : malloc(bytes);
}

static void release(void *state, coll_buffers_t buffers, void *memory)
{
    if (buffers == COLL_PSRT)
        psrt_free(((rank_t *)state)->ctx, memory);
    else
        free(memory);
}

static int join(rank_t *r)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    if (psrt_context_create(NULL, &r->ctx) != PSRT_OK ||
        psrt_comm_create(r->ctx, NULL, &r->comm, NULL) != PSRT_OK ||
        psrt_comm_query(r->comm, &attr) != PSRT_OK)
        return bench_fail("%s", psrt_last_error());
    r->rank = attr.rank;
    r->size = attr.ranks;
    return 0;
}

/* The limit is one of memory: shm has it, zmq is far from it. */
static int run_cells(const coll_options_t *o, coll_area_t *area, rank_t *r,
                     coll_transport_t transport)
{
    coll_limit_t limit;
    coll_backend_t limits[COLL_LIMITS];
    coll_backend_t backend = { .impl = "psrt",
                               .transport = coll_transport_names[transport],
                               .state = r,
                               .rank = r->rank,
                               .size = r->size,
                               .kinds = (1u << COLL_KINDS) - 1,
                               .run = run,
                               .allocate = allocate,
                               .release = release };
    coll_limit_init(&limit, area, r->rank, r->size, limits);
    return coll_cells_run(o, area, &backend, limits, transport == COLL_SHM ? COLL_LIMITS : 0);
}

int coll_rank_run(const coll_options_t *options)
{
    rank_t rank = { 0 };
    coll_transport_t transport = COLL_SHM;
    while (!(options->transports & 1u << transport))
        transport++;
    coll_area_t *area = NULL;
    int failed = join(&rank);
    if (!failed) area = coll_area_open(options->area, rank.rank, rank.size);
    failed = failed || !area || run_cells(options, area, &rank, transport);
    psrt_comm_free(rank.comm);
    psrt_context_destroy(rank.ctx);
    coll_area_close(area);
    return failed ? -1 : 0;
}
