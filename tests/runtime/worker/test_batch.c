/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a client: which parts travel together, retries, answers that come together. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runtime/core/batch.h"

#define REQUESTS                                                                                   \
    (1u << PSRTI_T_PUSH | 1u << PSRTI_T_PULL | 1u << PSRTI_T_INIT | 1u << PSRTI_T_CLOCK)
#define TABLES 5 /* t1 to t5, ten elements, at owner 0 */

static fx_t *open_many(uint64_t batch_bytes, const char *consistency)
{
    fx_t *fx = fx_open_batching(batch_bytes);
    fx->keep = 1; /* a batch stays as it was sent */
    for (uint32_t t = 1; t <= TABLES; t++)
        fx_table(fx, t, 10, consistency, 0);
    for (size_t i = 0; i < 64; i++)
        fx->memory[i] = (float)i;
    return fx;
}

/* One op with a transfer of every table; table t pushes from memory + t. */
static void submit_all(fx_t *fx, psrti_cop_t *op, int kind)
{
    psrti_transfer_t x[TABLES];
    for (uint32_t t = 1; t <= TABLES; t++) {
        x[t - 1] = fx_transfer(fx, t, kind, 0, 0);
        if (kind & PUSH) x[t - 1].grad = fx->memory + t;
        if (kind & PULL) x[t - 1].value = fx->memory + 100 * t;
    }
    memset(op, 0, sizeof *op);
    psrti_client_submit(fx->client, op, x, TABLES);
    fx_progress(fx);
}

static size_t requests(const fx_t *fx, size_t i, psrt_msg_t *out, size_t max)
{
    const fx_send_t *s = &fx->sent[i];
    size_t n = 0;
    uint64_t pos = 0;
    cr_assert(i < fx->sends && s->hdr.type == PSRTI_T_BATCH && s->hdr.length == s->len);
    cr_assert_eq(psrti_batch_check(s->data, s->len, REQUESTS), PSRT_OK);
    while (n < max && psrti_batch_next(s->data, s->len, REQUESTS, &pos, &out[n]) == PSRT_OK)
        n++;
    cr_assert_eq(pos, s->len);
    return n;
}

/* Answers of the owner to the requests, together: ACKs, or values 1000 times the table. */
static psrt_rx_t answer(fx_t *fx, const psrt_msg_t *to, size_t n, int type, psrt_status_t status)
{
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *b = psrti_batch_take(&pool);
    for (size_t i = 0; i < n; i++) {
        psrt_hdr_t h = to[i].hdr;
        float v[10];
        for (int k = 0; k < 10; k++)
            v[k] = 1000.0f * (float)h.table + (float)k;
        h.type = (uint8_t)type;
        h.flags = h.seq_floor = 0;
        h.status = (uint8_t)-status;
        h.step = 1;
        h.dtype = type == PSRTI_T_VALUE ? PSRT_F32 : PSRT_DTYPE_NONE;
        if (type == PSRTI_T_ACK) h.length = 0;
        cr_assert(psrti_batch_add(b, &h, v, type == PSRTI_T_VALUE ? sizeof v : 0));
    }
    psrt_msg_t msg = { .hdr = psrti_batch_header(b), .data = b->data, .len = b->bytes };
    psrt_rx_t rx = psrti_client_msg(fx->client, 0, &msg);
    fx_progress(fx);
    psrti_batch_give(b);
    psrti_batches_free(&pool);
    return rx;
}

static int same(const void *sent, const float *memory, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const float *)sent)[i] != memory[i]) return 0;
    return 1;
}

Test(batch, what_is_queued_goes_together)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op;
    psrt_msg_t r[8];
    submit_all(fx, &op, PUSH | PULL);
    cr_assert_eq(fx->sends, 1u);
    cr_assert_eq(requests(fx, 0, r, 8), TABLES);
    for (uint32_t t = 1; t <= TABLES; t++) {
        const psrt_msg_t *m = &r[t - 1];
        cr_assert(m->hdr.type == PSRTI_T_PUSH && m->hdr.table == t &&
                  (m->hdr.flags & PSRTI_F_PULL));
        cr_assert_eq(m->hdr.seq, t, "numbers of one virtual shard");
        cr_assert(m->len == 40 && same(m->data, fx->memory + t, 10));
    }
    cr_assert_eq(fx->used, TABLES);
    cr_assert_eq(answer(fx, r, TABLES, PSRTI_T_VALUE, PSRT_OK), PSRT_RX_DONE);
    fx_ended(fx, &op, PSRT_OK); /* though the batch is still in flight */
    for (uint32_t t = 1; t <= TABLES; t++)
        cr_assert_float_eq(fx->memory[100 * t + 9], 1000.0f * (float)t + 9.0f, 0.0);
    psrti_client_counts_t c;
    psrti_client_counts(fx->client, &c);
    cr_assert(c.batches == 1 && c.batched == TABLES && c.pushed_bytes == TABLES * 40);
    fx_close(fx);
}

Test(batch, one_goes_alone)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert(fx->sends == 1 && fx->sent[0].hdr.type == PSRTI_T_PUSH);
    cr_assert_eq(fx->sent[0].data, (const void *)fx->memory, "not copied");
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 1);
    fx_done(fx, 0);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

/* Three fit: two batches, the second of two. */
Test(batch, the_limit)
{
    fx_t *fx = open_many(3 * (PSRTI_FRAME_BYTES + 40), "async");
    psrti_cop_t op;
    psrt_msg_t r[8];
    submit_all(fx, &op, PUSH);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(requests(fx, 0, r, 8), 3u);
    cr_assert_eq(requests(fx, 1, r + 3, 5), 2u);
    cr_assert_eq(answer(fx, r, TABLES, PSRTI_T_ACK, PSRT_OK), PSRT_RX_DONE);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

/* Priorities order what is in a batch, and a large part ends it. */
Test(batch, order)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op[4];
    psrt_msg_t r[8];
    static const int priority[4] = { 1, 3, 2, 0 };
    fx_table(fx, 6, PSRTI_BATCH_PAYLOAD / 4 + 1, "async", 0);
    memset(op, 0, sizeof op);
    for (uint32_t i = 0; i < 4; i++) {
        psrti_transfer_t x = fx_transfer(fx, i == 3 ? 6 : i + 1, PUSH, 0, 0);
        x.priority = priority[i];
        psrti_client_submit(fx->client, &op[i], &x, 1);
    }
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(requests(fx, 0, r, 8), 3u);
    cr_assert(r[0].hdr.table == 2 && r[1].hdr.table == 3 && r[2].hdr.table == 1);
    cr_assert(fx->sent[0].hdr.priority == 3 + 128);
    cr_assert(fx->sent[1].hdr.type == PSRTI_T_PUSH && fx->sent[1].hdr.table == 6);
    fx_close(fx);
}

/* Without room they stay queued and keep their numbers; what is more urgent overtakes them. */
Test(batch, again)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op, urgent = { 0 };
    psrt_msg_t r[8];
    fx->full[0] = 1;
    submit_all(fx, &op, PUSH);
    psrti_transfer_t x = fx_transfer(fx, 3, PULL, 0, 0);
    x.priority = 9;
    fx_table(fx, 6, 10, "async", 0);
    x.table = fx->table[6];
    psrti_client_submit(fx->client, &urgent, &x, 1);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 0u);
    fx->full[0] = 0;
    psrti_client_link_writable(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 1u);
    cr_assert_eq(requests(fx, 0, r, 8), TABLES + 1);
    cr_assert_eq(r[0].hdr.type, PSRTI_T_PULL);
    for (uint32_t t = 1; t <= TABLES; t++)
        cr_assert(r[t].hdr.table == t && r[t].hdr.seq == t && !(r[t].hdr.flags & PSRTI_F_RETRY));
    fx_close(fx);
}

/* A batch that was cut: what was not answered is sent anew with the same numbers, together. */
Test(batch, link_loss)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op;
    psrt_msg_t r[8], again[8];
    submit_all(fx, &op, PUSH);
    cr_assert_eq(requests(fx, 0, r, 8), TABLES);
    cr_assert_eq(answer(fx, r + 1, 2, PSRTI_T_ACK, PSRT_OK), PSRT_RX_DONE);
    psrti_client_link_lost(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 1u, "there is no link");
    psrti_client_link_up(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(requests(fx, 1, again, 8), 3u);
    static const uint32_t left[3] = { 1, 4, 5 };
    for (size_t i = 0; i < 3; i++) {
        cr_assert(again[i].hdr.table == left[i] && again[i].hdr.seq == left[i]);
        cr_assert(again[i].hdr.flags & PSRTI_F_RETRY);
        cr_assert(same(again[i].data, fx->memory + left[i], 10));
    }
    cr_assert_eq(answer(fx, again, 3, PSRTI_T_ACK, PSRT_OK), PSRT_RX_DONE);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

/* Of two pushes of one slice the second leaves only after the first: a batch has each slice once. */
Test(batch, a_slice_at_a_time)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op[2];
    psrt_msg_t r[16];
    fx->full[0] = 1;
    submit_all(fx, &op[0], PUSH);
    submit_all(fx, &op[1], PUSH);
    fx->full[0] = 0;
    psrti_client_link_writable(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(requests(fx, i, r, 16), TABLES);
        for (uint32_t t = 1; t <= TABLES; t++)
            cr_assert(r[t - 1].hdr.table == t);
    }
    fx_close(fx);
}

Test(batch, refused_and_hostile_answers)
{
    fx_t *fx = open_many(PSRTI_BATCH_BYTES, "async");
    psrti_cop_t op;
    psrt_msg_t r[8];
    submit_all(fx, &op, PULL);
    cr_assert_eq(requests(fx, 0, r, 8), TABLES);
    cr_assert_eq(answer(fx, r, 2, PSRTI_T_PULL, PSRT_OK), PSRT_RX_BAD, "a request");
    cr_assert_eq(answer(fx, r, 1, PSRTI_T_ACK, PSRT_OK), PSRT_RX_BAD, "a pull has a value");
    psrt_msg_t none = { .hdr = { .type = PSRTI_T_BATCH }, .data = fx->memory };
    cr_assert_eq(psrti_client_msg(fx->client, 0, &none), PSRT_RX_BAD);
    cr_assert_eq(answer(fx, r, 1, PSRTI_T_ACK, PSRT_ERR_SHARD_LOST), PSRT_RX_DONE);
    fx_ended(fx, &op, PSRT_ERR_SHARD_LOST);
    cr_assert_eq(answer(fx, r + 1, TABLES - 1, PSRTI_T_VALUE, PSRT_OK), PSRT_RX_DONE, "dropped");
    fx_close(fx);
}
