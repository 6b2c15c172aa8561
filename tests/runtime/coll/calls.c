/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/calls.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/reduce.h"
#include "support/half_ref.h"

int call_reduces(uint8_t what)
{
    return what == PSRTI_COLL_ALLREDUCE || what == PSRTI_COLL_REDUCE ||
           what == PSRTI_COLL_REDUCE_SCATTER;
}

static size_t size_of(const call_t *c)
{
    return c->like.dtype ? psrt_dtype_size((psrt_dtype_t)c->like.dtype) : 1;
}

/* ---- values ------------------------------------------------------------------------------------- */

/* Exact in every type, also summed and multiplied over 9 ranks, but for what wraps. */
static int given(const call_t *c, uint32_t rank, uint64_t element)
{
    if (c->like.redop == PSRT_PROD) return 1 + (rank < 6 && (rank + element + c->salt) % 2);
    return (int)((rank * 5 + element * 3 + c->salt) % 13) + 1;
}

static void put(void *at, uint64_t i, uint8_t dtype, double value)
{
    switch (dtype) {
    case PSRT_F32: ((float *)at)[i] = (float)value; return;
    case PSRT_F64: ((double *)at)[i] = value; return;
    case PSRT_F16:
        ((uint16_t *)at)[i] = half_encode(&half_f16, half_round(&half_f16, (float)value));
        return;
    case PSRT_BF16:
        ((uint16_t *)at)[i] = half_encode(&half_bf16, half_round(&half_bf16, (float)value));
        return;
    case PSRT_I32: ((int32_t *)at)[i] = (int32_t)value; return;
    case PSRT_I64: ((int64_t *)at)[i] = (int64_t)value; return;
    case PSRT_I8: ((int8_t *)at)[i] = (int8_t)value; return;
    case PSRT_I16: ((int16_t *)at)[i] = (int16_t)value; return;
    default: ((uint8_t *)at)[i] = (uint8_t)value; return;
    }
}

static double combined(const call_t *c, uint64_t element)
{
    double sum = given(c, 0, element);
    for (uint32_t r = 1; r < c->n; r++) {
        double v = given(c, r, element);
        switch (c->like.redop) {
        case PSRT_PROD: sum *= v; break;
        case PSRT_MIN: sum = v < sum ? v : sum; break;
        case PSRT_MAX: sum = v > sum ? v : sum; break;
        default: sum += v; break;
        }
    }
    if (c->like.redop != PSRT_AVG) return sum;
    if (c->like.dtype == PSRT_F64) return sum / c->n;
    if (c->like.dtype <= PSRT_BF16) return (double)((float)sum / (float)c->n);
    long quotient = (long)sum / (long)c->n; /* toward zero */
    return (double)quotient;
}

/* Bytes that nobody else gave, for what is only moved. */
static uint8_t moved(const call_t *c, uint32_t rank, uint64_t byte)
{
    return (uint8_t)psrti_mix64(c->salt * 7919 + rank * 1000003ull + byte * 31);
}

/* ---- buffers ------------------------------------------------------------------------------------ */

static uint64_t v_count(const call_t *c, uint32_t from, uint32_t to)
{
    if (c->like.what == PSRTI_COLL_ALLGATHERV) to = 0;
    return c->like.count ? (c->like.count * (1 + (from * 3 + to * 2 + c->salt) % 4)) / 3
                         : (from + to) % 2;
}

static void make_v(call_t *c, uint32_t rank)
{
    side_t *s = &c->side[rank];
    uint64_t in = 1, out = 0; /* a hole before and between the parts */
    for (uint32_t r = 0; r < c->n; r++) {
        s->in_counts[r] = v_count(c, rank, r);
        s->out_counts[r] = v_count(c, r, rank);
        s->in_offsets[r] = in;
        s->out_offsets[r] = out;
        in += s->in_counts[r] + 1;
        out += s->out_counts[r] + 2;
    }
    s->in_bytes = in * size_of(c);
    s->out_bytes = out * size_of(c);
    s->call.in_counts = s->in_counts;
    s->call.in_offsets = s->in_offsets;
    s->call.out_counts = s->out_counts;
    s->call.out_offsets = s->out_offsets;
    s->call.count = 0;
    if (c->like.what == PSRTI_COLL_ALLGATHERV) s->in_bytes = s->out_counts[rank] * size_of(c);
}

static int is_v(const call_t *c)
{
    return c->like.what == PSRTI_COLL_ALLGATHERV || c->like.what == PSRTI_COLL_ALLTOALLV;
}

static void sizes(call_t *c, uint32_t rank)
{
    side_t *s = &c->side[rank];
    size_t one = c->like.count * size_of(c);
    int is_root = rank == c->like.root;
    s->in_bytes = s->out_bytes = one;
    switch (c->like.what) {
    case PSRTI_COLL_REDUCE: s->out_bytes = is_root ? one : 0; break;
    case PSRTI_COLL_BROADCAST: s->in_bytes = is_root ? one : 0; break;
    case PSRTI_COLL_ALLGATHER: s->out_bytes = one * c->n; break;
    case PSRTI_COLL_REDUCE_SCATTER: s->in_bytes = one * c->n; break;
    case PSRTI_COLL_ALLTOALL: s->in_bytes = s->out_bytes = one * c->n; break;
    case PSRTI_COLL_GATHER: s->out_bytes = is_root ? one * c->n : 0; break;
    case PSRTI_COLL_SCATTER: s->in_bytes = is_root ? one * c->n : 0; break;
    case PSRTI_COLL_BARRIER: s->in_bytes = s->out_bytes = 0; break;
    case PSRTI_COLL_ALLGATHERV:
    case PSRTI_COLL_ALLTOALLV: make_v(c, rank); break;
    default: break;
    }
}

/* Where `in` lies in `out`, or the other way round. */
static void place(call_t *c, uint32_t rank)
{
    side_t *s = &c->side[rank];
    size_t one = c->like.count * size_of(c), part = rank * one;
    s->in_place = c->in_place && s->in_bytes && s->out_bytes;
    s->in = s->in_place ? NULL : malloc(s->in_bytes + !s->in_bytes);
    s->out = s->in_place ? NULL : malloc(s->out_bytes + !s->out_bytes);
    if (!s->in_place) return;
    char *both = malloc(PSRTI_MAX(s->in_bytes, s->out_bytes));
    s->in = s->out = both;
    switch (c->like.what) {
    case PSRTI_COLL_ALLGATHER:
    case PSRTI_COLL_GATHER: s->in = both + part; break;
    case PSRTI_COLL_ALLGATHERV: s->in = both + s->out_offsets[rank] * size_of(c); break;
    case PSRTI_COLL_REDUCE_SCATTER:
    case PSRTI_COLL_SCATTER: s->out = both + part; break;
    default: break;
    }
}

static void fill(call_t *c, uint32_t rank)
{
    side_t *s = &c->side[rank];
    if (!s->in_place) memset(s->out, 0xee, s->out_bytes);
    if (call_reduces(c->like.what))
        for (uint64_t i = 0; i < s->in_bytes / size_of(c); i++)
            put(s->in, i, c->like.dtype, given(c, rank, i));
    else
        for (uint64_t i = 0; i < s->in_bytes; i++)
            ((uint8_t *)s->in)[i] = moved(c, rank, i);
}

void call_make(call_t *c, uint32_t n, psrti_coll_call_t like, int in_place, uint32_t salt)
{
    memset(c, 0, sizeof *c);
    c->n = n;
    c->like = like;
    c->in_place = in_place;
    c->salt = salt;
    for (uint32_t r = 0; r < n; r++) {
        side_t *s = &c->side[r];
        s->call = like;
        sizes(c, r);
        place(c, r);
        fill(c, r);
        s->call.in = s->in_bytes || like.count == 0 ? s->in : NULL;
        s->call.out = s->out_bytes || like.count == 0 ? s->out : NULL;
    }
}

void call_start(call_t *c, uint32_t rank, psrti_comm_t *comm)
{
    psrti_coll_start(comm, &c->side[rank].call, &c->side[rank].op);
}

void call_ended(psrti_collop_t *op)
{
    side_t *s = (side_t *)op;
    s->result = malloc(s->out_bytes + 1);
    if (s->out) memcpy(s->result, s->out, s->out_bytes);
    if (s->in) memset(s->in, 0xdd, s->in_bytes);
    if (s->out) memset(s->out, 0xdd, s->out_bytes);
}

void call_free(call_t *c)
{
    for (uint32_t r = 0; r < c->n; r++) {
        side_t *s = &c->side[r];
        char *first = s->in_place && (char *)s->out < (char *)s->in ? s->out : s->in;
        free(s->in_place ? first : s->in);
        if (!s->in_place) free(s->out);
        free(s->result);
        free(s->op.text);
    }
}

/* ---- results ------------------------------------------------------------------------------------ */

static int is_result(const call_t *c, uint32_t rank)
{
    if (c->like.what == PSRTI_COLL_REDUCE || c->like.what == PSRTI_COLL_GATHER)
        return rank == c->like.root;
    return c->like.what != PSRTI_COLL_BARRIER;
}

static int right_sum(const call_t *c, uint32_t rank)
{
    const side_t *s = &c->side[rank];
    uint64_t first = c->like.what == PSRTI_COLL_REDUCE_SCATTER ? rank * c->like.count : 0;
    char want[8];
    for (uint64_t i = 0; i < c->like.count; i++) {
        put(want, 0, c->like.dtype, combined(c, first + i));
        if (memcmp(want, (char *)s->result + i * size_of(c), size_of(c)) != 0) return 0;
    }
    return 1;
}

static int same(const call_t *c, const side_t *s, uint64_t at, uint32_t from, uint64_t byte,
                uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (((uint8_t *)s->result)[at + i] != moved(c, from, byte + i)) return 0;
    return 1;
}

static int right_move(const call_t *c, uint32_t rank)
{
    const side_t *s = &c->side[rank];
    uint64_t one = c->like.count * size_of(c);
    int right = 1;
    switch (c->like.what) {
    case PSRTI_COLL_BROADCAST: return same(c, s, 0, c->like.root, 0, one);
    case PSRTI_COLL_SCATTER: return same(c, s, 0, c->like.root, rank * one, one);
    default: break;
    }
    for (uint32_t r = 0; r < c->n; r++) {
        uint64_t at = r * one, byte = c->like.what == PSRTI_COLL_ALLTOALL ? rank * one : 0, n = one;
        if (is_v(c)) {
            at = s->out_offsets[r] * size_of(c);
            n = s->out_counts[r] * size_of(c);
            byte =
                c->like.what == PSRTI_COLL_ALLTOALLV ? c->side[r].in_offsets[rank] * size_of(c) : 0;
        }
        right &= same(c, s, at, r, byte, n);
    }
    return right;
}

void call_check(call_t *c, const char *about)
{
    char text[128];
    psrti_coll_call_text(&c->like, text, sizeof text);
    for (uint32_t r = 0; r < c->n; r++) {
        const side_t *s = &c->side[r];
        cr_assert_eq(s->op.status, PSRT_OK, "%s, %s, rank %u of %u: %s: %s", about, text, r, c->n,
                     psrt_status_name(s->op.status), s->op.text ? s->op.text : "");
        if (!is_result(c, r)) continue;
        int right = call_reduces(c->like.what) ? right_sum(c, r) : right_move(c, r);
        cr_assert(right, "%s, %s%s, rank %u of %u: wrong result", about, text,
                  c->in_place ? " in place" : "", r, c->n);
    }
}

psrti_coll_call_t make_call(uint8_t what, uint8_t dtype, uint8_t redop, uint64_t count,
                            uint32_t root)
{
    return (psrti_coll_call_t){
        .what = what, .dtype = dtype, .redop = redop, .count = count, .root = root
    };
}

void all_failed(fabric_t *fb, psrti_comm_t **comms, psrt_status_t status, const char *text)
{
    for (uint32_t r = 0; r < fb->n; r++) {
        psrti_collop_t op = { 0 };
        psrti_coll_call_t barrier = make_call(PSRTI_COLL_BARRIER, 0, 0, 0, 0);
        if (fb->rank[r].is_dead) continue;
        cr_assert_eq(psrti_comm_status(comms[r]), status, "rank %u: %s, %s", r,
                     psrt_status_name(psrti_comm_status(comms[r])), psrti_comm_text(comms[r]));
        psrti_coll_start(comms[r], &barrier, &op);
        fb_collect(fb);
        fb_expect(&op, status, text, NULL);
    }
}
