/* SPDX-License-Identifier: Apache-2.0 */
#include "comm_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------ */

static uint16_t half_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if ((bits & 0x7fffffff) == 0) return (uint16_t)(bits >> 16);
    uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

static float of_half(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x8000) << 16;
    if (h & 0x7fff)
        bits |= ((uint32_t)(h >> 10 & 0x1f) + 127 - 15) << 23 | (uint32_t)(h & 0x3ff) << 13;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static void put(void *buf, uint64_t i, psrt_dtype_t t, int64_t v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    switch (t) {
    case PSRT_F32: ((float *)buf)[i] = f; break;
    case PSRT_F64: ((double *)buf)[i] = (double)v; break;
    case PSRT_F16: ((uint16_t *)buf)[i] = half_of(f); break;
    case PSRT_BF16: ((uint16_t *)buf)[i] = (uint16_t)(bits >> 16); break;
    case PSRT_I32: ((int32_t *)buf)[i] = (int32_t)v; break;
    case PSRT_I64: ((int64_t *)buf)[i] = v; break;
    case PSRT_I8: ((int8_t *)buf)[i] = (int8_t)v; break;
    case PSRT_I16: ((int16_t *)buf)[i] = (int16_t)v; break;
    case PSRT_U8: ((uint8_t *)buf)[i] = (uint8_t)v; break;
    default: abort();
    }
}

static double get(const void *buf, uint64_t i, psrt_dtype_t t)
{
    uint32_t bits;
    float f;
    switch (t) {
    case PSRT_F32: return ((const float *)buf)[i];
    case PSRT_F64: return ((const double *)buf)[i];
    case PSRT_F16: return of_half(((const uint16_t *)buf)[i]);
    case PSRT_BF16:
        bits = (uint32_t)((const uint16_t *)buf)[i] << 16;
        memcpy(&f, &bits, 4);
        return f;
    case PSRT_I32: return ((const int32_t *)buf)[i];
    case PSRT_I64: return (double)((const int64_t *)buf)[i];
    case PSRT_I8: return ((const int8_t *)buf)[i];
    case PSRT_I16: return ((const int16_t *)buf)[i];
    case PSRT_U8: return ((const uint8_t *)buf)[i];
    default: abort();
    }
}

/* ---- calls ------------------------------------------------------------------------------------- */

const char *const whats[WHATS] = { "allreduce",  "reduce",         "broadcast", "allgather",
                                   "allgatherv", "reduce_scatter", "alltoall",  "alltoallv",
                                   "gather",     "scatter",        "barrier",   "ring" };
const char *const redops[5] = { "sum", "prod", "min", "max", "avg" };
const psrt_dtype_t dtypes[DTYPES] = { PSRT_F32, PSRT_F64, PSRT_F16, PSRT_BF16, PSRT_I8,
                                      PSRT_I16, PSRT_I32, PSRT_I64, PSRT_U8 };

/* What `rank` gives at element i of what goes to (or, for one part, is for all) `to`. */
static int64_t given(const call_t *c, uint32_t rank, uint32_t to, uint64_t i)
{
    if (c->what == ALLREDUCE || c->what == REDUCE || c->what == REDUCE_SCATTER) {
        int64_t v = (int64_t)((i * 7 + to * 3) % 11);
        if (c->redop == PSRT_PROD) return 1 + (v + rank) % 2;
        return c->redop == PSRT_AVG ? v + 2 * rank : (v + rank * 5) % 13 + 1;
    }
    return (int64_t)((i * 5 + rank * 17 + to * 29) % 101);
}

static int64_t reduced(const call_t *c, uint32_t to, uint64_t i)
{
    int64_t r = given(c, 0, to, i);
    for (uint32_t k = 1; k < c->ranks; k++) {
        int64_t v = given(c, k, to, i);
        switch (c->redop) {
        case PSRT_PROD: r *= v; break;
        case PSRT_MIN: r = v < r ? v : r; break;
        case PSRT_MAX: r = v > r ? v : r; break;
        default: r += v;
        }
    }
    return c->redop == PSRT_AVG ? r / c->ranks : r;
}

/* Elements from one rank to another, of the v ones. */
static uint64_t v_count(const call_t *c, uint32_t from, uint32_t to)
{
    return c->what == ALLGATHERV ? c->count * (from % 3) / 2 : c->count * ((from + 2 * to) % 4) / 3;
}

static void sizes(call_t *c)
{
    uint64_t n = c->count, all = n * c->ranks;
    int root = c->rank == c->root;
    c->nin = c->nout = n;
    switch (c->what) {
    case REDUCE: c->nout = root ? n : 0; break;
    case BROADCAST: c->nin = 0; break;
    case ALLGATHER: c->nout = all; break;
    case REDUCE_SCATTER: c->nin = all; break;
    case ALLTOALL: c->nin = c->nout = all; break;
    case GATHER: c->nout = root ? all : 0; break;
    case SCATTER: c->nin = root ? all : 0; break;
    case BARRIER: c->nin = c->nout = 0; break;
    case ALLGATHERV:
    case ALLTOALLV:
        c->nin = c->nout = 0;
        for (uint32_t r = 0; r < c->ranks; r++) {
            c->counts[0][r] = v_count(c, c->rank, r);
            c->counts[1][r] = v_count(c, r, c->rank);
            c->nin += c->counts[0][r];
            c->nout += c->counts[1][r];
        }
        if (c->what == ALLGATHERV) c->nin = v_count(c, c->rank, 0);
        break;
    default: break;
    }
}

static void *get_memory(const call_t *c, uint64_t elements)
{
    uint64_t bytes = (elements ? elements : 1) * psrt_dtype_size(c->dtype);
    void *p = c->shared ? psrt_alloc(c->ctx, bytes) : malloc(bytes);
    if (!p) abort();
    memset(p, 0x5a, bytes);
    return p;
}

/* Where `in` lies, when it is a part of `out` or the other way round. */
static void place(call_t *c)
{
    size_t width = psrt_dtype_size(c->dtype);
    int in_is_part = c->nin < c->nout;
    if (c->in_place && (c->what == ALLTOALL || c->what == ALLTOALLV || c->what == RING))
        c->in_place = 0;
    if (!c->in_place || c->nin == 0 || c->nout == 0) {
        c->in_place = 0;
        c->in = get_memory(c, c->nin);
        c->out = get_memory(c, c->nout);
        return;
    }
    uint64_t before = c->nin == c->nout ? 0 : c->rank * c->count;
    if (c->what == ALLGATHERV) {
        before = 0;
        for (uint32_t r = 0; r < c->rank; r++)
            before += c->counts[1][r];
    }
    char *whole = get_memory(c, in_is_part ? c->nout : c->nin);
    c->in = in_is_part ? whole + before * width : whole;
    c->out = in_is_part ? whole : whole + before * width;
}

static void fill(call_t *c)
{
    uint64_t at = 0;
    for (uint32_t to = 0; to < c->ranks && at < c->nin; to++) {
        uint64_t n = c->what == ALLTOALLV ? c->counts[0][to]
                     : c->nin > c->count  ? c->count
                                          : c->nin;
        for (uint64_t i = 0; i < n; i++)
            put(c->in, at++, c->dtype, given(c, c->rank, to, i));
    }
    if (c->what == BROADCAST && c->rank == c->root)
        for (uint64_t i = 0; i < c->count; i++)
            put(c->out, i, c->dtype, given(c, c->root, 0, i));
}

psrt_status_t call_begin(call_t *c, psrt_comm_t *comm)
{
    uint32_t next = (c->rank + 1) % c->ranks, last = (c->rank + c->ranks - 1) % c->ranks;
    psrt_redop_t redop = (psrt_redop_t)c->redop;
    psrt_op_t **op = c->now ? NULL : c->op;
    psrt_status_t rc;
    switch (c->what) {
    case ALLREDUCE: return psrt_allreduce(comm, c->in, c->out, c->count, c->dtype, redop, op);
    case REDUCE: return psrt_reduce(comm, c->in, c->out, c->count, c->dtype, redop, c->root, op);
    case BROADCAST: return psrt_broadcast(comm, c->out, c->count, c->dtype, c->root, op);
    case ALLGATHER: return psrt_allgather(comm, c->in, c->out, c->count, c->dtype, op);
    case ALLGATHERV: return psrt_allgatherv(comm, c->in, c->out, c->counts[1], NULL, c->dtype, op);
    case REDUCE_SCATTER:
        return psrt_reduce_scatter(comm, c->in, c->out, c->count, c->dtype, redop, op);
    case ALLTOALL: return psrt_alltoall(comm, c->in, c->out, c->count, c->dtype, op);
    case ALLTOALLV:
        return psrt_alltoallv(comm, c->in, c->counts[0], NULL, c->out, c->counts[1], NULL, c->dtype,
                              op);
    case GATHER: return psrt_gather(comm, c->in, c->out, c->count, c->dtype, c->root, op);
    case SCATTER: return psrt_scatter(comm, c->in, c->out, c->count, c->dtype, c->root, op);
    case BARRIER: return psrt_comm_barrier(comm, op);
    default:
        rc = psrt_send(comm, c->in, c->count, c->dtype, next, &c->op[0]);
        return rc ? rc : psrt_recv(comm, c->out, c->count, c->dtype, last, &c->op[1]);
    }
}

/* What must be in element i of the part of `out` that is of rank `from`. */
static int64_t expected(const call_t *c, uint32_t from, uint64_t i)
{
    switch (c->what) {
    case ALLREDUCE:
    case REDUCE: return reduced(c, 0, i);
    case REDUCE_SCATTER: return reduced(c, c->rank, i);
    case BROADCAST: return given(c, c->root, 0, i);
    case SCATTER: return given(c, c->root, c->rank, i);
    case RING: return given(c, (c->rank + c->ranks - 1) % c->ranks, 0, i);
    case ALLTOALL:
    case ALLTOALLV: return given(c, from, c->rank, i);
    default: return given(c, from, 0, i);
    }
}

static int check(const call_t *c, char *text, size_t size)
{
    uint64_t at = 0;
    char one[8];
    for (uint32_t from = 0; from < c->ranks && at < c->nout; from++) {
        int v = c->what == ALLGATHERV || c->what == ALLTOALLV;
        uint64_t n = v ? c->counts[1][from] : c->nout > c->count ? c->count : c->nout;
        for (uint64_t i = 0; i < n; i++, at++) {
            int64_t want = expected(c, from, i);
            put(one, 0, c->dtype, want); /* integers wrap */
            if (get(c->out, at, c->dtype) == get(one, 0, c->dtype)) continue;
            snprintf(text, size,
                     "%s of %" PRIu64 " %s %s root %u%s%s: element %" PRIu64 " is %g, not %g",
                     whats[c->what], c->count, psrt_dtype_name(c->dtype), redops[c->redop], c->root,
                     c->in_place ? ", in place" : "", c->shared ? ", shared" : "", at,
                     get(c->out, at, c->dtype), get(one, 0, c->dtype));
            return 0;
        }
    }
    return 1;
}

static void give_back(const call_t *c, void *p)
{
    if (c->shared)
        psrt_free(c->ctx, p);
    else
        free(p);
}

static void end(call_t *c)
{
    int in_is_part = c->nin < c->nout;
    if (!c->in_place || in_is_part) give_back(c, c->out);
    if (!c->in_place || !in_is_part) give_back(c, c->in);
    free(c->counts[0]);
    free(c->counts[1]);
}

psrt_status_t call_prepare(call_t *c, psrt_context_t *ctx, psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    if (rc) return rc;
    c->ctx = ctx;
    c->rank = attr.rank, c->ranks = attr.ranks ? attr.ranks : 1;
    c->root %= c->ranks;
    if (c->what == RING && c->ranks == 1) c->what = BARRIER;
    c->counts[0] = calloc(c->ranks, sizeof(uint64_t));
    c->counts[1] = calloc(c->ranks, sizeof(uint64_t));
    sizes(c);
    place(c);
    fill(c);
    return PSRT_OK;
}

psrt_status_t call_finish(call_t *c, psrt_status_t rc, char *text, size_t size)
{
    for (int i = 0; i < 2; i++) {
        psrt_status_t st = psrt_op_wait(c->op[i], PSRT_FOREVER);
        if (!rc) rc = st;
    }
    snprintf(text, size, "%s", psrt_last_error());
    if (!rc && !check(c, text, size)) rc = PSRT_ERR_INTERNAL;
    end(c);
    return rc;
}
