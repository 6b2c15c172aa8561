/* SPDX-License-Identifier: Apache-2.0 */
/* Batches at one owner: requests that come together, answers that go together. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runtime/core/batch.h"

#define ANSWERS (1u << PSRTI_T_ACK | 1u << PSRTI_T_VALUE | 1u << PSRTI_T_MOVED)
#define TABLES 3 /* async, t1 to t3, four elements that start as 10 */

typedef struct requests {
    psrti_batches_t pool;
    psrti_batch_t *batch;
} requests_t;

static requests_t *requests_new(void)
{
    requests_t *r = calloc(1, sizeof *r);
    r->pool.limit = PSRTI_BATCH_BYTES;
    r->batch = psrti_batch_take(&r->pool);
    return r;
}

/* A push of four times `g`. */
static psrt_hdr_t add_push(fx_t *fx, requests_t *r, uint32_t rank, uint32_t table, uint64_t step,
                           float g, unsigned flags)
{
    float all[4] = { g, g, g, g };
    psrt_hdr_t h =
        fx_hdr(fx, rank, PSRTI_T_PUSH, table, step, 0, 4, PSRTI_F_END | PSRTI_F_WHOLE | flags);
    cr_assert(psrti_batch_add(r->batch, &h, all, sizeof all));
    return h;
}

static void add_pull(fx_t *fx, requests_t *r, uint32_t rank, uint32_t table)
{
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PULL, table, 0, 0, 4, 0);
    cr_assert(psrti_batch_add(r->batch, &h, NULL, 0));
}

static psrt_rx_t send_bytes(fx_t *fx, uint32_t rank, const void *data, uint64_t len)
{
    psrt_msg_t msg = { .hdr = { .type = PSRTI_T_BATCH, .length = len }, .data = data, .len = len };
    return psrti_shard_msg(fx->shard, fx->peer[rank], &msg);
}

/* Sends them and begins anew. */
static psrt_rx_t send_all(fx_t *fx, requests_t *r, uint32_t rank)
{
    psrt_rx_t rx = send_bytes(fx, rank, r->batch->data, r->batch->bytes);
    psrti_batch_give(r->batch);
    r->batch = psrti_batch_take(&r->pool);
    return rx;
}

static void requests_free(requests_t *r)
{
    psrti_batch_give(r->batch);
    psrti_batches_free(&r->pool);
    free(r);
}

/* The answers in reply i, which is a batch for this worker. */
static size_t answers(const fx_t *fx, size_t i, uint32_t rank, psrt_msg_t *out, size_t max)
{
    const fx_reply_t *r = &fx->reply[i];
    size_t n = 0;
    uint64_t pos = 0;
    cr_assert(i < fx->replies && r->rank == rank && r->hdr.type == PSRTI_T_BATCH);
    cr_assert_eq(psrti_batch_check(r->copy, r->len, ANSWERS), PSRT_OK);
    while (n < max && psrti_batch_next(r->copy, r->len, ANSWERS, &pos, &out[n]) == PSRT_OK)
        n++;
    cr_assert_eq(pos, r->len, "more answers than expected");
    return n;
}

static fx_t *open_async(uint32_t workers)
{
    fx_t *fx = fx_open_batching(workers, PSRTI_BATCH_BYTES);
    for (uint32_t t = 1; t <= TABLES; t++)
        fx_table(fx, t, 4, NULL, "async", NULL, "constant:value=10", 0);
    return fx;
}

Test(batch, requests_are_served_in_order_and_answered_together)
{
    fx_t *fx = open_async(1);
    requests_t *r = requests_new();
    psrt_msg_t a[8];
    psrt_hdr_t first = add_push(fx, r, 0, 1, 0, 1, 0);
    add_push(fx, r, 0, 2, 0, 2, PSRTI_F_PULL);
    add_pull(fx, r, 0, 1);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(fx->replies, 1u);
    cr_assert_eq(answers(fx, 0, 0, a, 8), 3u);
    cr_assert(a[0].hdr.type == PSRTI_T_ACK && a[0].hdr.seq == first.seq);
    cr_assert(a[1].hdr.type == PSRTI_T_VALUE && a[1].hdr.table == 2 && a[1].len == 16);
    cr_assert_float_eq(((const float *)a[1].data)[3], 12.0f, 0.0);
    cr_assert(a[2].hdr.type == PSRTI_T_VALUE && a[2].hdr.table == 1);
    cr_assert_float_eq(((const float *)a[2].data)[0], 11.0f, 0.0);
    cr_assert_eq(fx_counts(fx).applied, 2u);
    cr_assert(fx_counts(fx).batches == 1 && fx_counts(fx).batched == 3);

    fx_forget(fx); /* one answer goes alone */
    add_pull(fx, r, 0, 3);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert(fx->replies == 1 && fx->reply[0].hdr.type == PSRTI_T_VALUE);
    requests_free(r);
    fx_close(fx);
}

/* A number counts once, whether it comes twice in a batch, in two, or in one and alone. */
Test(batch, duplicates)
{
    fx_t *fx = open_async(1);
    requests_t *r = requests_new();
    float ones[4] = { 1, 1, 1, 1 };
    psrt_msg_t a[4];
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_WHOLE | PSRTI_F_END);
    psrti_batch_add(r->batch, &h, ones, sizeof ones);
    psrti_batch_add(r->batch, &h, ones, sizeof ones);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(answers(fx, 0, 0, a, 4), 2u);
    cr_assert(a[0].hdr.status == 0 && a[1].hdr.status == 0 && a[1].hdr.seq == h.seq);
    h.flags |= PSRTI_F_RETRY;
    psrti_batch_add(r->batch, &h, ones, sizeof ones);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(fx_send(fx, 0, &h, ones), PSRT_RX_DONE);
    cr_assert_float_eq(fx_value(fx, 1, 0), 11.0f, 0.0);
    cr_assert(fx_counts(fx).applied == 1 && fx_counts(fx).duplicates == 3);
    requests_free(r);
    fx_close(fx);
}

/* Worker 1's batch closes the steps that worker 0's began: each gets one message. */
Test(batch, answers_of_others_are_gathered_too)
{
    fx_t *fx = fx_open_batching(2, PSRTI_BATCH_BYTES);
    requests_t *r = requests_new();
    psrt_msg_t a[8];
    for (uint32_t t = 1; t <= TABLES; t++)
        fx_table(fx, t, 4, NULL, NULL, "sum", "constant:value=10", 0);
    for (uint32_t t = 1; t <= TABLES; t++)
        add_push(fx, r, 0, t, 0, (float)t, t == 1 ? 0 : PSRTI_F_PULL);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(answers(fx, 0, 0, a, 8), TABLES, "captured");
    fx_forget(fx);
    for (uint32_t t = 1; t <= TABLES; t++)
        add_push(fx, r, 1, t, 0, 100, PSRTI_F_PULL);
    cr_assert_eq(send_all(fx, r, 1), PSRT_RX_DONE);
    cr_assert_eq(fx->replies, 2u);
    size_t own = fx->reply[0].rank == 1 ? 0 : 1;
    cr_assert_eq(answers(fx, own, 1, a, 8), TABLES);
    for (uint32_t t = 1; t <= TABLES; t++)
        cr_assert_float_eq(((const float *)a[t - 1].data)[0], 110.0f + (float)t, 0.0);
    size_t n = answers(fx, !own, 0, a, 8), values = 0, told = 0;
    for (size_t i = 0; i < n; i++) {
        values += a[i].hdr.type == PSRTI_T_VALUE;
        told += a[i].hdr.type == PSRTI_T_ACK && a[i].hdr.seq == 0 && a[i].hdr.step == 1;
    }
    cr_assert(values == 2 && told == TABLES && n == values + told);
    requests_free(r);
    fx_close(fx);
}

/* A view that ends a worker closes what waited for it: the others are told in one message. */
Test(batch, a_view_answers_together)
{
    fx_t *fx = fx_open_batching(2, PSRTI_BATCH_BYTES);
    psrt_msg_t a[8];
    for (uint32_t t = 1; t <= TABLES; t++) {
        fx_table(fx, t, 4, NULL, NULL, "sum", NULL, 0);
        fx_push(fx, 0, t, 0, 1, 0);
    }
    fx_forget(fx);
    fx_worker_dies(fx, 1);
    cr_assert_eq(fx->replies, 1u);
    cr_assert_eq(answers(fx, 0, 0, a, 8), TABLES);
    fx_close(fx);
}

/* What finds no room waits as headers, and the value that goes out later is the one of then. */
Test(batch, answers_wait_for_room)
{
    fx_t *fx = open_async(1);
    requests_t *r = requests_new();
    psrt_msg_t a[8];
    fx->full = 1;
    for (uint32_t t = 1; t <= TABLES; t++)
        add_pull(fx, r, 0, t);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    add_push(fx, r, 0, 1, 0, 5, 0);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(fx->replies, 0u);
    fx->full = 0;
    fx->keep = 1;
    psrti_shard_link_writable(fx->shard, fx->peer[0]);
    cr_assert_eq(fx->replies, 1u);
    cr_assert_eq(answers(fx, 0, 0, a, 8), TABLES + 1);
    cr_assert_float_eq(((const float *)a[0].data)[0], 15.0f, 0.0);
    cr_assert(a[0].hdr.step == 1 && a[3].hdr.type == PSRTI_T_ACK);
    requests_free(r);
    fx_close(fx); /* the batch is done only now */
}

/* Order within a peer is kept around a value that is too large for a batch. */
Test(batch, a_large_value_goes_alone_in_its_place)
{
    fx_t *fx = open_async(1);
    requests_t *r = requests_new();
    psrt_msg_t a[8];
    uint64_t large = PSRTI_BATCH_PAYLOAD / 4 + 1;
    fx_table(fx, 4, large, NULL, "async", NULL, NULL, 0);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 4, 0, 0, large, 0);
    add_pull(fx, r, 0, 1);
    add_pull(fx, r, 0, 2);
    cr_assert(psrti_batch_add(r->batch, &h, NULL, 0));
    add_pull(fx, r, 0, 3);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_DONE);
    cr_assert_eq(fx->replies, 3u);
    cr_assert_eq(answers(fx, 0, 0, a, 8), 2u);
    cr_assert(fx->reply[1].hdr.table == 4 && fx->reply[1].len == large * 4);
    cr_assert(fx->reply[2].hdr.type == PSRTI_T_VALUE && fx->reply[2].hdr.table == 3);
    requests_free(r);
    fx_close(fx);
}

/* Nothing of a malformed batch is served, however good its beginning is. */
Test(batch, hostile)
{
    fx_t *fx = open_async(1);
    requests_t *r = requests_new();
    add_push(fx, r, 0, 1, 0, 1, 0);
    add_push(fx, r, 0, 2, 0, 1, 0);
    uint32_t bytes = r->batch->bytes;
    cr_assert_eq(send_bytes(fx, 0, r->batch->data, bytes - 8), PSRT_RX_BAD);
    r->batch->data[bytes - PSRTI_FRAME_BYTES] ^= 1;
    cr_assert_eq(send_bytes(fx, 0, r->batch->data, bytes), PSRT_RX_BAD);
    psrt_hdr_t ack = { .type = PSRTI_T_ACK };
    r->batch->data[bytes - PSRTI_FRAME_BYTES] ^= 1;
    cr_assert(psrti_batch_add(r->batch, &ack, NULL, 0));
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_BAD);
    cr_assert_eq(fx_counts(fx).applied, 0u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 10.0f, 0.0);

    /* Well formed, but its second message makes no sense: what was before it counts, as if alone. */
    add_push(fx, r, 0, 1, 0, 1, 0);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 2, 0, 1, 4, 0); /* ends outside of the table */
    cr_assert(psrti_batch_add(r->batch, &h, NULL, 0));
    add_push(fx, r, 0, 3, 0, 1, 0);
    cr_assert_eq(send_all(fx, r, 0), PSRT_RX_BAD);
    cr_assert_float_eq(fx_value(fx, 1, 0), 11.0f, 0.0);
    cr_assert_float_eq(fx_value(fx, 3, 0), 10.0f, 0.0);
    requests_free(r);
    fx_close(fx);
}
