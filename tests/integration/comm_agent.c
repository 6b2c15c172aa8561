/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with communicators, driven by lines on stdin as agent.c is. With an argument N, N workers of ranks 0 .. N - 1
 * as threads of one process, which carry out each line at once; the answer is that of the first one that failed.
 *
 *   create | destroy | quit
 *   comm C [RANKS]                     RANKS: "0,2,1"; answers when all members called
 *   split C PARENT COLOUR KEY | dup C PARENT | shrink C PARENT | free C
 *   query C                            "rank=R ranks=N status=S"
 *   hosts C                            how many hosts its members are on
 *   run C WHAT DTYPE REDOP COUNT ROOT [FLAGS]   one call, checked; FLAGS of p (in place), b (buffers of the
 *                                      runtime), n (without an operation)
 *   start C WHAT ... | wait | cancel   the same, the answer comes with wait
 *   loop C N COUNT                     N allreduces of i32, one blocking call after the other, each checked
 *   many C N                           N communicators of the members of C at once, a few calls in each
 *   descriptors N                      no more than N may be opened from now on; -1: as many as before
 *   random C SEED N                    N calls drawn from SEED, up to four at a time, each checked; of those that are
 *                                      alone some ranks wait, others have an operation
 *
 * What a rank gives and what must come out are small integers, which all types and orders of summation have
 * exactly; rank and element can be told from them. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <psrt/comm.h>

#define COMMS 8
#define IN_FLIGHT 4

#define LINE 1024
#define WORKERS 16

static _Thread_local psrt_context_t *ctx;
static _Thread_local const char *rank_setting; /* NULL: the environment has it */
static _Thread_local char said[2 * LINE];

static void answer(psrt_status_t status, const char *text)
{
    if (status == PSRT_OK)
        snprintf(said, sizeof said, "ok %s", text ? text : "");
    else
        snprintf(said, sizeof said, "err %s %s", psrt_status_name(status),
                 text ? text : psrt_last_error());
}

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

enum {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    SCATTER,
    BARRIER,
    RING,
    WHATS
};
static const char *const whats[WHATS] = { "allreduce",  "reduce",         "broadcast", "allgather",
                                          "allgatherv", "reduce_scatter", "alltoall",  "alltoallv",
                                          "gather",     "scatter",        "barrier",   "ring" };
static const char *const redops[] = { "sum", "prod", "min", "max", "avg" };
static const psrt_dtype_t dtypes[] = { PSRT_F32, PSRT_F64, PSRT_F16, PSRT_BF16, PSRT_I8,
                                       PSRT_I16, PSRT_I32, PSRT_I64, PSRT_U8 };
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

typedef struct call {
    uint64_t count;
    uint64_t nin, nout; /* elements of its buffers here */
    void *in, *out;
    uint64_t *counts[2];
    psrt_op_t *op[2];
    int what, redop, in_place, shared, now;
    psrt_dtype_t dtype;
    uint32_t root, rank, ranks;
} call_t;

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
    void *p = c->shared ? psrt_alloc(ctx, bytes) : malloc(bytes);
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

static psrt_status_t begin(call_t *c, psrt_comm_t *comm)
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
        psrt_free(ctx, p);
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

static psrt_status_t prepare(call_t *c, psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    if (rc) return rc;
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

/* Frees the call. */
static psrt_status_t finish(call_t *c, psrt_status_t rc, char *text, size_t size)
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

/* ---- commands ---------------------------------------------------------------------------------- */

static _Thread_local psrt_comm_t *comms[COMMS];
static _Thread_local call_t started;
static _Thread_local psrt_status_t started_rc;

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static int parse_call(char *args, call_t *c, int *comm)
{
    char what[24], dtype[8], redop[8], flags[8] = "";
    *c = (call_t){ 0 };
    if (sscanf(args, "%d %23s %7s %7s %" SCNu64 " %u %7s", comm, what, dtype, redop, &c->count,
               &c->root, flags) < 6)
        return 0;
    c->what = find(whats, WHATS, what);
    c->redop = find(redops, 5, redop);
    c->dtype = PSRT_DTYPE_NONE;
    for (size_t i = 0; i < DTYPES; i++)
        if (strcmp(psrt_dtype_name(dtypes[i]), dtype) == 0) c->dtype = dtypes[i];
    c->in_place = strchr(flags, 'p') != NULL;
    c->shared = strchr(flags, 'b') != NULL;
    c->now = strchr(flags, 'n') != NULL && c->what != RING;
    return c->what >= 0 && c->redop >= 0 && c->dtype && *comm >= 0 && *comm < COMMS;
}

static void cmd_run(char *args, int wait)
{
    char text[1024];
    int comm;
    if (!parse_call(args, &started, &comm)) {
        answer(PSRT_ERR_INVALID, "run C WHAT DTYPE REDOP COUNT ROOT [FLAGS]");
        return;
    }
    started_rc = prepare(&started, comms[comm]);
    if (!started_rc) started_rc = begin(&started, comms[comm]);
    if (!wait) {
        answer(PSRT_OK, NULL);
        return;
    }
    psrt_status_t rc = finish(&started, started_rc, text, sizeof text);
    answer(rc, rc ? text : NULL);
}

static _Thread_local uint64_t state;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

static void draw_call(call_t *c)
{
    static const uint64_t counts[] = { 0, 1, 2, 3, 7, 16, 100, 1000, 4097, 70000, (1 << 20) + 3 };
    *c = (call_t){ .what = (int)draw(WHATS), .redop = (int)draw(5), .in_place = (int)draw(2) };
    c->shared = (int)draw(2);
    c->dtype = dtypes[draw(DTYPES)];
    uint32_t i = draw(8) ? draw(9) : draw(11);
    c->count = counts[i];
    c->root = draw(64);
}

static void cmd_random(psrt_comm_t *comm, uint64_t seed, uint64_t n)
{
    call_t calls[IN_FLIGHT];
    char text[1024] = "";
    psrt_status_t rc = PSRT_OK;
    state = seed;
    while (n > 0 && !rc) {
        uint64_t k = 1 + draw(IN_FLIGHT), made = 0;
        psrt_status_t st[IN_FLIGHT] = { PSRT_OK };
        for (; made < k && made < n; made++) {
            draw_call(&calls[made]);
            st[made] = prepare(&calls[made], comm);
            calls[made].now = k == 1 && calls[made].what != RING && (calls[made].rank + n) % 2;
            if (!st[made]) st[made] = begin(&calls[made], comm);
        }
        for (uint64_t i = 0; i < made; i++) {
            char why[1024];
            psrt_status_t end_rc = finish(&calls[i], st[i], why, sizeof why);
            if (!rc && end_rc) {
                rc = end_rc;
                snprintf(text, sizeof text, "%s", why);
            }
        }
        n -= made;
    }
    answer(rc, rc ? text : NULL);
}

static psrt_status_t loop(psrt_comm_t *comm, uint64_t n, uint64_t count, char *text, size_t size)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    int32_t in[4096], out[4096];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    if (count > 4096) rc = PSRT_ERR_INVALID;
    for (uint64_t i = 0; !rc && i < n; i++) {
        for (uint64_t k = 0; k < count; k++)
            in[k] = (int32_t)(i * (attr.rank + 1) + k);
        rc = psrt_allreduce(comm, in, out, count, PSRT_I32, PSRT_SUM, NULL);
        snprintf(text, size, "%s", psrt_last_error());
        for (uint64_t k = 0; !rc && k < count; k++) {
            uint64_t want = i * attr.ranks * (attr.ranks + 1) / 2 + k * attr.ranks;
            if (out[k] == (int32_t)want) continue;
            snprintf(text, size, "call %" PRIu64 ", element %" PRIu64 ": %d, not %d", i, k, out[k],
                     (int32_t)want);
            rc = PSRT_ERR_INTERNAL;
        }
    }
    return rc;
}

static void cmd_loop(psrt_comm_t *comm, uint64_t n, uint64_t count)
{
    char text[1024] = "";
    psrt_status_t rc = loop(comm, n, count, text, sizeof text);
    answer(rc, rc ? text : NULL);
}

static void cmd_many(psrt_comm_t *comm, uint64_t n)
{
    char text[1024] = "";
    psrt_comm_t **all = calloc(n + 1, sizeof(psrt_comm_t *));
    psrt_status_t rc = PSRT_OK;
    for (uint64_t i = 0; !rc && i < n; i++)
        if ((rc = psrt_comm_dup(comm, &all[i], NULL)))
            snprintf(text, sizeof text, "%s", psrt_last_error());
    for (uint64_t i = 0; !rc && i < n; i++)
        rc = loop(all[i], 3 + i % 5, i % 7, text, sizeof text);
    for (uint64_t i = 0; i < n; i++)
        psrt_comm_free(all[i]);
    free(all);
    answer(rc, rc ? text : NULL);
}

static void cmd_descriptors(int more)
{
    static struct rlimit before;
    struct rlimit limit;
    if (!before.rlim_cur) getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    int fd = dup(0);
    close(fd);
    if (more >= 0) limit.rlim_cur = (rlim_t)fd + (rlim_t)more;
    answer(setrlimit(RLIMIT_NOFILE, &limit) ? PSRT_ERR_IO : PSRT_OK, NULL);
}

static void cmd_comm(int at, char *list)
{
    uint32_t ranks[64], n = 0;
    char *save = NULL;
    for (char *s = strtok_r(list, ", \n", &save); s && n < 64; s = strtok_r(NULL, ", \n", &save))
        ranks[n++] = (uint32_t)strtoul(s, NULL, 10);
    psrt_comm_params_t params = PSRT_COMM_PARAMS_INIT;
    params.ranks = n ? ranks : NULL;
    params.count = n;
    answer(psrt_comm_create(ctx, &params, &comms[at], NULL), NULL);
}

static void cmd_query(psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    char text[96];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    snprintf(text, sizeof text, "rank=%u ranks=%u status=%s", attr.rank, attr.ranks,
             psrt_status_name(attr.status));
    answer(rc, rc ? NULL : text);
}

static void cmd_hosts(psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    char text[16];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    snprintf(text, sizeof text, "%u", attr.hosts);
    answer(rc, rc ? NULL : text);
}

static void cmd_derive(const char *verb, int at, psrt_comm_t *parent, int colour, int key)
{
    psrt_status_t rc;
    if (strcmp(verb, "split") == 0)
        rc = psrt_comm_split(parent, colour, key, &comms[at], NULL);
    else if (strcmp(verb, "dup") == 0)
        rc = psrt_comm_dup(parent, &comms[at], NULL);
    else
        rc = psrt_comm_shrink(parent, &comms[at], NULL);
    answer(rc, NULL);
}

static void of_comm(const char *verb, int at, char *rest)
{
    int parent = 0, colour = 0, key = 0;
    uint64_t seed, n;
    if (strcmp(verb, "comm") == 0) {
        cmd_comm(at, rest);
    } else if (strcmp(verb, "free") == 0) {
        psrt_comm_free(comms[at]);
        comms[at] = NULL;
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "query") == 0) {
        cmd_query(comms[at]);
    } else if (strcmp(verb, "hosts") == 0) {
        cmd_hosts(comms[at]);
    } else if (strcmp(verb, "random") == 0 &&
               sscanf(rest, "%" SCNu64 " %" SCNu64, &seed, &n) == 2) {
        cmd_random(comms[at], seed, n);
    } else if (strcmp(verb, "loop") == 0 && sscanf(rest, "%" SCNu64 " %" SCNu64, &seed, &n) == 2) {
        cmd_loop(comms[at], seed, n);
    } else if (strcmp(verb, "many") == 0 && sscanf(rest, "%" SCNu64, &n) == 1) {
        cmd_many(comms[at], n);
    } else if (sscanf(rest, "%d %d %d", &parent, &colour, &key) >= 1 && parent >= 0 &&
               parent < COMMS) {
        cmd_derive(verb, at, comms[parent], colour, key);
    } else {
        answer(PSRT_ERR_INVALID, "unknown command");
    }
}

static void cmd_create(void)
{
    const char *settings[] = { rank_setting, NULL };
    psrt_context_params_t params = PSRT_CONTEXT_PARAMS_INIT;
    params.settings = settings;
    answer(psrt_context_create(&params, &ctx), NULL);
}

static void command(char *line)
{
    char verb[16] = "";
    int at = -1, used = 0;
    sscanf(line, "%15s %n", verb, &used);
    if (strcmp(verb, "create") == 0) {
        cmd_create();
    } else if (strcmp(verb, "destroy") == 0) {
        psrt_context_destroy(ctx);
        ctx = NULL;
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "run") == 0 || strcmp(verb, "start") == 0) {
        cmd_run(line + used, verb[0] == 'r');
    } else if (strcmp(verb, "cancel") == 0) {
        psrt_op_cancel(started.op[0]);
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "descriptors") == 0) {
        cmd_descriptors(atoi(line + used));
    } else if (strcmp(verb, "wait") == 0) {
        char text[1024];
        psrt_status_t rc = finish(&started, started_rc, text, sizeof text);
        answer(rc, rc ? text : NULL);
    } else {
        int more = 0;
        if (sscanf(line + used, "%d %n", &at, &more) < 1 || at < 0 || at >= COMMS)
            answer(PSRT_ERR_INVALID, "which communicator?");
        else
            of_comm(verb, at, line + used + more);
    }
}

/* ---- workers as threads -------------------------------------------------------------------------- */

static struct {
    unsigned count;
    int over;
    char line[LINE];
    char said[WORKERS][2 * LINE];
    pthread_barrier_t begin, end;
} crowd;

static void *work(void *arg)
{
    unsigned rank = (unsigned)(uintptr_t)arg;
    char setting[32], line[LINE];
    snprintf(setting, sizeof setting, "PSRT_RANK=%u", rank);
    rank_setting = setting;
    while (pthread_barrier_wait(&crowd.begin), !crowd.over) {
        memcpy(line, crowd.line, sizeof line);
        command(line);
        memcpy(crowd.said[rank], said, sizeof said);
        pthread_barrier_wait(&crowd.end);
    }
    psrt_context_destroy(ctx);
    return NULL;
}

static void command_all(const char *line)
{
    memcpy(crowd.line, line, LINE);
    pthread_barrier_wait(&crowd.begin);
    pthread_barrier_wait(&crowd.end);
    memcpy(said, crowd.said[0], sizeof said);
    for (unsigned r = 0; r < crowd.count; r++)
        if (strncmp(crowd.said[r], "ok", 2) != 0) {
            memcpy(said, crowd.said[r], sizeof said);
            return;
        }
}

static void serve(int is_crowd)
{
    char line[LINE] = "";
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (is_crowd)
            command_all(line);
        else
            command(line);
        puts(said);
        fflush(stdout);
    }
}

static int serve_crowd(unsigned count)
{
    pthread_t threads[WORKERS];
    crowd.count = count;
    if (pthread_barrier_init(&crowd.begin, NULL, count + 1) ||
        pthread_barrier_init(&crowd.end, NULL, count + 1))
        return 1;
    for (unsigned r = 0; r < count; r++)
        if (pthread_create(&threads[r], NULL, work, (void *)(uintptr_t)r)) abort();
    serve(1);
    crowd.over = 1;
    pthread_barrier_wait(&crowd.begin);
    for (unsigned r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (count > WORKERS) return 2;
    if (count) return serve_crowd(count);
    serve(0);
    psrt_context_destroy(ctx);
    return 0;
}
