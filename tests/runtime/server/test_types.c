/* SPDX-License-Identifier: Apache-2.0 */
/* Values and gradients of every type, against sums in double and 64-bit integers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"
#include "support/half_ref.h"

#define N 40000u /* elements: three blocks of an apply, one slice */

/* How a table's numbers travel. */
typedef struct kind {
    psrt_dtype_t dtype;
    psrti_codec_t codec;
    const char *codec_name;
    const half_format_t *half;
} kind_t;

static const kind_t halves[] = {
    { PSRT_F16, PSRTI_CODEC_NONE, NULL, &half_f16 },
    { PSRT_BF16, PSRTI_CODEC_NONE, "none", &half_bf16 },
    { PSRT_F32, PSRTI_CODEC_F16, "f16", &half_f16 },
    { PSRT_F32, PSRTI_CODEC_BF16, "bf16", &half_bf16 },
};

static void declare(fx_t *fx, const kind_t *k, uint64_t elements, psrt_dense_params_t p)
{
    psrti_table_spec_t spec;
    p.dtype = k->dtype, p.codec = k->codec_name;
    p.ndim = 1, p.shape[0] = elements;
    cr_assert_eq(psrti_table_spec_make("t1", &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_shard_hold(fx->shard, 1, &spec), PSRT_OK, "%s", psrt_last_error());
}

static psrt_rx_t send_as(fx_t *fx, uint32_t rank, psrt_hdr_t *h, psrt_dtype_t dtype, int codec,
                         const void *data, uint64_t elem)
{
    h->dtype = (uint8_t)dtype, h->codec = (uint8_t)codec;
    psrt_msg_t msg = { .hdr = *h, .data = data, .len = h->length * elem };
    return psrti_shard_msg(fx->shard, fx->peer[rank], &msg);
}

static void push(fx_t *fx, const kind_t *k, uint32_t rank, uint64_t step, uint64_t offset,
                 const uint16_t *g, uint64_t count, unsigned flags)
{
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PUSH, 1, step, offset, count, flags);
    cr_assert_eq(send_as(fx, rank, &h, k->dtype, k->codec, g, 2), PSRT_RX_DONE);
}

/* A number with at most 7 bits of significand, other for every rank, step and element. */
static double grad_of(uint32_t rank, uint64_t step, uint64_t i)
{
    return (double)((int)((i * 7 + rank * 31 + step * 5) % 101) - 50) / 16;
}

static void encode_grad(const kind_t *k, uint16_t *out, uint32_t rank, uint64_t step)
{
    for (uint64_t i = 0; i < N; i++)
        out[i] = half_encode(k->half, grad_of(rank, step, i));
}

static const uint16_t *published(fx_t *fx)
{
    const void *values;
    uint64_t version;
    cr_assert_eq(psrti_shard_peek(fx->shard, 1, 0, &values, &version), PSRT_OK);
    return values;
}

static void check_values(fx_t *fx, const kind_t *k, const float *master)
{
    const uint16_t *v = published(fx);
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(v[i], half_encode(k->half, half_round(k->half, master[i])),
                     "%s: element %u is %04x, of %g", k->half->name, (unsigned)i, v[i], master[i]);
}

/* ---- 16 bits ----------------------------------------------------------------------------------- */

/* Sums are exact in f32 here; the average and the update round in f32, which a double of exact
 * operands followed by one rounding gives as well. */
static void sync_steps(const kind_t *k, const char *reduce, int deterministic)
{
    enum { WORKERS = 3, STEPS = 4 };
    static const uint32_t order[STEPS][WORKERS] = {
        { 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 }, { 2, 0, 1 }
    };
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    fx_t *fx = fx_open(WORKERS);
    float *master = malloc(N * sizeof *master);
    uint16_t *g = malloc(N * sizeof *g);
    p.init = "constant:value=0.7", p.optimizer = "sgd:lr=0.25", p.reduce = reduce;
    p.deterministic = deterministic;
    declare(fx, k, N, p);
    for (uint64_t i = 0; i < N; i++)
        master[i] = 0.7f;
    check_values(fx, k, master);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int w = 0; w < WORKERS; w++) {
            encode_grad(k, g, order[step][w], step);
            push(fx, k, order[step][w], step, 0, g, N, PSRTI_F_END | PSRTI_F_WHOLE);
        }
        for (uint64_t i = 0; i < N; i++) {
            double sum = grad_of(0, step, i) + grad_of(1, step, i) + grad_of(2, step, i);
            float mean = (float)(strcmp(reduce, "sum") ? sum / WORKERS : sum);
            master[i] = (float)(master[i] - 0.25 * (double)mean);
        }
        cr_assert_eq(fx_version(fx, 1), step + 1);
        check_values(fx, k, master);
    }
    free(master);
    free(g);
    fx_close(fx);
}

Test(types, sync_steps_of_16_bits_round_when_published)
{
    for (size_t i = 0; i < PSRTI_COUNT(halves); i++) {
        sync_steps(&halves[i], "sum", 0);
        sync_steps(&halves[i], "average", 0);
        sync_steps(&halves[i], "average", 1);
    }
}

/* 2^-12 is lost beside 1 in both formats, but not in the server's f32. */
Test(types, small_updates_are_not_lost)
{
    for (size_t i = 0; i < PSRTI_COUNT(halves); i++) {
        const kind_t *k = &halves[i];
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        fx_t *fx = fx_open(1);
        uint16_t g = half_encode(k->half, 0x1p-12), one = half_encode(k->half, 1);
        p.init = "constant:value=1", p.consistency = "async";
        declare(fx, k, 1, p);
        push(fx, k, 0, 0, 0, &g, 1, PSRTI_F_WHOLE);
        cr_assert_eq(*published(fx), one);
        for (uint64_t n = 1; n < 64; n++)
            push(fx, k, 0, n, 0, &g, 1, PSRTI_F_WHOLE);
        cr_assert_eq(*published(fx), half_encode(k->half, 1 + 0x1p-6));
        fx_close(fx);
    }
}

/* A reader holds the block: a part of the slice is updated in a fresh one, which is whole. */
Test(types, a_range_beside_a_reader)
{
    for (size_t i = 0; i < PSRTI_COUNT(halves); i++) {
        const kind_t *k = &halves[i];
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        fx_t *fx = fx_open(1);
        uint16_t *g = malloc(N * sizeof *g);
        float *master = calloc(N, sizeof *master);
        p.consistency = "async";
        declare(fx, k, N, p);
        encode_grad(k, g, 0, 0);
        push(fx, k, 0, 0, 0, g, N, PSRTI_F_WHOLE);
        for (uint64_t e = 0; e < N; e++)
            master[e] = (float)grad_of(0, 0, e);
        fx->keep = 1;
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 1, 0, 100, 300, 0);
        cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_DONE);
        const fx_reply_t *r = fx_last(fx, 0);
        cr_assert(r->hdr.type == PSRTI_T_VALUE && r->len == 600 && r->hdr.codec == k->codec &&
                  r->hdr.dtype == k->dtype);
        encode_grad(k, g, 1, 1);
        push(fx, k, 0, 1, 16000, g, 17000, 0); /* crosses two blocks of the apply */
        for (uint64_t e = 0; e < 17000; e++)
            master[16000 + e] += (float)grad_of(1, 1, e);
        check_values(fx, k, master);
        cr_assert(memcmp(r->data, r->copy, r->len) == 0, "the reader's block was written");
        cr_assert_eq(fx_counts(fx).blocks, 2u);
        free(g);
        free(master);
        fx_close(fx);
    }
}

/* The values of worker 0 reach an f32 master whole, whatever the codec: 1 + 2^-11 - 2^-15 is
 * published as 1; with 2^-14 more it is beyond the middle of 1 and its neighbour in f16. */
Test(types, first_values_are_not_encoded)
{
    const kind_t *k = &halves[2];
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    fx_t *fx = fx_open(1);
    float first = 1 + 0x1p-11f - 0x1p-15f;
    uint16_t encoded = half_encode(k->half, 1), g = half_encode(k->half, 0x1p-14);
    p.init = "rank0";
    declare(fx, k, 1, p);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 1, 0);
    cr_assert_eq(send_as(fx, 0, &h, PSRT_F32, PSRTI_CODEC_F16, &encoded, 2), PSRT_RX_BAD);
    cr_assert_eq(send_as(fx, 0, &h, PSRT_F32, PSRTI_CODEC_NONE, &first, 4), PSRT_RX_DONE);
    cr_assert_eq(*published(fx), half_encode(k->half, 1));
    push(fx, k, 0, 0, 0, &g, 1, PSRTI_F_END | PSRTI_F_WHOLE);
    cr_assert_eq(*published(fx), half_encode(k->half, 1 + 0x1p-10));
    fx_close(fx);
}

/* An f16 table's first values are f16. */
Test(types, first_values_of_a_16_bit_table)
{
    for (size_t i = 0; i < 2; i++) {
        const kind_t *k = &halves[i];
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        fx_t *fx = fx_open(1);
        uint16_t *v = malloc(N * sizeof *v);
        encode_grad(k, v, 1, 2);
        p.init = "rank0";
        declare(fx, k, N, p);
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, N, 0);
        cr_assert_eq(send_as(fx, 0, &h, k->dtype, 0, v, 2), PSRT_RX_DONE);
        cr_assert(memcmp(published(fx), v, N * sizeof *v) == 0);
        free(v);
        fx_close(fx);
    }
}

Test(types, another_format_is_a_bad_request)
{
    static const kind_t wrong[] = {
        { PSRT_F32, PSRTI_CODEC_NONE, NULL, NULL },
        { PSRT_F32, PSRTI_CODEC_BF16, NULL, NULL },
        { PSRT_F16, PSRTI_CODEC_NONE, NULL, NULL },
        { PSRT_I32, PSRTI_CODEC_NONE, NULL, NULL },
    };
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    fx_t *fx = fx_open(1);
    uint64_t data[4] = { 0 };
    declare(fx, &halves[2], 4, p);
    for (size_t i = 0; i < PSRTI_COUNT(wrong); i++) {
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
        uint64_t elem = wrong[i].codec ? 2 : psrt_dtype_size(wrong[i].dtype);
        cr_assert_eq(send_as(fx, 0, &h, wrong[i].dtype, wrong[i].codec, data, elem), PSRT_RX_BAD);
    }
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    cr_assert_eq(send_as(fx, 0, &h, PSRT_F32, PSRTI_CODEC_F16, data, 4), PSRT_RX_BAD, "too long");
    cr_assert_eq(fx_counts(fx).applied, 0u);
    fx_close(fx);
}

/* ---- integers ---------------------------------------------------------------------------------- */

static void integer_sums(psrt_dtype_t dtype, int deterministic, const int64_t g[3], int64_t want)
{
    kind_t k = { dtype, PSRTI_CODEC_NONE, NULL, NULL };
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    fx_t *fx = fx_open(3);
    const size_t elem = psrt_dtype_size(dtype);
    char *data = malloc(N * elem);
    p.init = "constant:value=-5", p.deterministic = deterministic;
    declare(fx, &k, N, p);
    for (uint32_t r = 3; r-- > 0;) {
        for (uint64_t i = 0; i < N; i++) {
            int64_t v = g[r] + (int64_t)i;
            if (dtype == PSRT_I32)
                ((int32_t *)data)[i] = (int32_t)v;
            else
                ((int64_t *)data)[i] = v;
        }
        psrt_hdr_t h = fx_hdr(fx, r, PSRTI_T_PUSH, 1, 0, 0, N, PSRTI_F_END | PSRTI_F_WHOLE);
        cr_assert_eq(send_as(fx, r, &h, dtype, 0, data, elem), PSRT_RX_DONE);
    }
    const void *values = published(fx);
    for (uint64_t i = 0; i < N; i++) {
        int64_t v = dtype == PSRT_I32 ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
        cr_assert_eq(v, want - 5 + 3 * (int64_t)i, "element %u", (unsigned)i);
    }
    free(data);
    fx_close(fx);
}

/* Beyond 2^24 and 2^53 no float holds every integer. */
Test(types, sums_of_integers_are_exact)
{
    static const int64_t i32[3] = { (1 << 24) + 1, -3, (1 << 30) + 7 };
    static const int64_t i64[3] = { (1ll << 53) + 1, 1ll << 61, -(1ll << 40) + 3 };
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        integer_sums(PSRT_I32, deterministic, i32, (1 << 24) + (1 << 30) + 5);
        integer_sums(PSRT_I64, deterministic, i64, (1ll << 53) + (1ll << 61) - (1ll << 40) + 4);
    }
}

/* ---- tables beyond 2^32 elements ---------------------------------------------------------------- */

static void *plain_alloc(void *arg, uint64_t bytes)
{
    (void)arg;
    return malloc(bytes);
}

static void plain_free(void *arg, void *ptr)
{
    (void)arg;
    free(ptr);
}

typedef struct sink {
    psrt_hdr_t hdr;
    char data[16];
    uint64_t len;
} sink_t;

static psrt_status_t keep_reply(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                                uint64_t len, psrt_tx_t *tx)
{
    sink_t *s = arg;
    (void)link, (void)tx;
    s->hdr = *hdr;
    s->len = len;
    cr_assert(len <= sizeof s->data);
    if (len) memcpy(s->data, data, len);
    return PSRT_OK;
}

static psrt_status_t map_data(void *arg, psrt_msg_t *msg, const void **data_p)
{
    (void)arg;
    *data_p = msg->data;
    return PSRT_OK;
}

/* One of 1024 virtual shards of a table of 2^32 + 3 elements: the one with its first and last slice. */
static void last_slice(psrt_dtype_t dtype, const void *g, const void *want)
{
    const uint64_t elements = (1ull << 32) + 3, elem = psrt_dtype_size(dtype);
    const uint64_t slices = (1ull << 14) + 1;
    sink_t sink = { .len = 0 };
    psrti_shard_env_t env = { &sink, keep_reply, map_data, plain_alloc, plain_free, NULL, 0, NULL };
    const psrti_kernels_t *kernels;
    psrti_shard_t *shard;
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    uint32_t link;
    cr_assert_eq(psrti_kernels_select(NULL, &kernels), PSRT_OK);
    cr_assert_eq(psrti_shard_create(0, kernels, &env, &shard), PSRT_OK);
    psrti_view_t *view = psrti_view_new(1, 2, 1024);
    uint16_t vshard = (uint16_t)((psrti_hash_bytes("big", 3) + (slices - 1)) % 1024);
    view->number = 1;
    view->workers[0] = (psrti_view_worker_t){ .incarnation = 1, .alive = 1 };
    for (uint32_t v = 0; v < 1024; v++)
        view->vshards[v] = (psrti_view_vshard_t){ .owner = v != vshard, .term = 1 };
    psrti_shard_view(shard, view, 0, 0, NULL, NULL);
    p.dtype = dtype, p.ndim = 2, p.shape[0] = 1, p.shape[1] = elements, p.consistency = "async";
    cr_assert_eq(psrti_table_spec_make("big", &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_shard_hold(shard, 1, &spec), PSRT_OK, "%s", psrt_last_error());
    psrti_peer_t *peer = psrti_shard_link_up(shard, &link, PSRTI_TASK(PSRTI_WORKER, 0), 1);

    psrt_msg_t msg = { .hdr = { .type = PSRTI_T_PUSH,
                                .table = 1,
                                .term = 1,
                                .vshard = vshard,
                                .seq = 1,
                                .flags = PSRTI_F_PULL | PSRTI_F_WHOLE,
                                .dtype = (uint8_t)dtype,
                                .offset = elements - 3,
                                .length = 3 },
                       .data = g,
                       .len = 3 * elem };
    cr_assert_eq(psrti_shard_msg(shard, peer, &msg), PSRT_RX_DONE);
    cr_assert(sink.hdr.type == PSRTI_T_VALUE && sink.hdr.offset == 1ull << 32 &&
              sink.len == 3 * elem);
    cr_assert(memcmp(sink.data, want, 3 * elem) == 0);
    msg.hdr.seq = 2, msg.hdr.offset = elements - 2; /* one element past the end */
    cr_assert_eq(psrti_shard_msg(shard, peer, &msg), PSRT_RX_BAD);
    /* Slice 0, where an offset of 32 bits would have gone, lives here too and has its first values. */
    static const char zeros[16];
    const void *values;
    uint64_t version;
    cr_assert_eq(psrti_shard_peek(shard, 1, 0, &values, &version), PSRT_OK);
    cr_assert(version == 0 && memcmp(values, zeros, 3 * elem) == 0);
    psrti_shard_destroy(shard);
    psrti_view_unref(view);
}

Test(types, the_last_slice_beyond_2_to_the_32)
{
    const float f32[3] = { 1.5f, -2, 3 };
    const uint16_t bf16[3] = { 0x3fc0, 0xc000, 0x4040 };
    last_slice(PSRT_F32, f32, f32);
    last_slice(PSRT_BF16, bf16, bf16);
}
