/* SPDX-License-Identifier: Apache-2.0 */
/* ACKs that answer several numbers: which of them wait for one another, and for how long. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runtime/server/shard_int.h"

#define PATIENT (2 * PSRTI_ACK_RUN) /* numbers out of a client that does not wait for each */

static fx_t *open_async(uint32_t workers)
{
    fx_t *fx = fx_open(workers);
    fx_table(fx, 1, 4, NULL, "async", NULL, "constant:value=10", 0);
    fx_table(fx, 2, 4, NULL, "async", NULL, "constant:value=20", 0);
    return fx;
}

/* A push of a client with so many numbers out; its number. */
static uint64_t push(fx_t *fx, uint32_t rank, uint32_t table, uint16_t out)
{
    static const float ones[4] = { 1, 1, 1, 1 };
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PUSH, table, 0, 0, 4, PSRTI_F_WHOLE | PSRTI_F_END);
    h.seq_floor = out;
    cr_assert_eq(fx_send(fx, rank, &h, ones), PSRT_RX_DONE);
    return h.seq;
}

static void is_ack(const fx_t *fx, size_t i, uint32_t rank, uint64_t seq, uint64_t before)
{
    const fx_reply_t *r = &fx->reply[i];
    cr_assert(i < fx->replies && r->rank == rank && r->hdr.type == PSRTI_T_ACK);
    cr_assert_eq(r->hdr.seq, seq);
    cr_assert_eq(r->hdr.length, before);
    cr_assert(r->hdr.status == 0 && r->hdr.flags == PSRTI_F_APPLIED);
}

/* The numbers of a client that waits for each of them are answered at once. */
static void start(fx_t *fx, uint32_t rank)
{
    for (int i = 0; i < PATIENT; i++) {
        uint64_t seq = push(fx, rank, 1, (uint16_t)i);
        is_ack(fx, (size_t)i, rank, seq, 0);
    }
    fx_forget(fx);
}

Test(ack_runs, full_ones_go_at_once)
{
    fx_t *fx = open_async(1);
    start(fx, 0);
    uint64_t seq = 0;
    for (int i = 0; i < PSRTI_ACK_RUN; i++) {
        cr_assert_eq(fx->replies, 0u);
        seq = push(fx, 0, 1, PATIENT);
    }
    cr_assert_eq(fx->replies, 1u);
    is_ack(fx, 0, 0, seq, PSRTI_ACK_RUN - 1);
    cr_assert_eq(fx->reply[0].hdr.step, (uint64_t)PATIENT + PSRTI_ACK_RUN, "the newest version");
    cr_assert_eq(fx_counts(fx).joined, (uint64_t)PSRTI_ACK_RUN - 1);
    cr_assert_eq(fx_counts(fx).applied, (uint64_t)PATIENT + PSRTI_ACK_RUN);
    fx_close(fx);
}

Test(ack_runs, do_not_wait_for_long)
{
    fx_t *fx = open_async(2);
    start(fx, 0);
    push(fx, 0, 1, PATIENT);
    uint64_t second = push(fx, 0, 1, PATIENT);
    push(fx, 1, 1, 0); /* another worker's are its own */
    cr_assert_eq(fx->replies, 1u);
    cr_assert_eq(fx->reply[0].rank, 1u);
    psrti_shard_progress(fx->shard, 1);
    cr_assert_eq(fx->replies, 2u);
    is_ack(fx, 1, 0, second, 1);
    psrti_shard_progress(fx->shard, 2);
    cr_assert_eq(fx->replies, 2u, "once");
    fx_close(fx);
}

/* Every other answer to the worker comes after those that were kept. */
Test(ack_runs, keep_the_order)
{
    fx_t *fx = open_async(1);
    start(fx, 0);
    uint64_t first = push(fx, 0, 1, PATIENT);
    cr_assert_eq(fx->replies, 0u);
    cr_assert_not_null(fx_pull(fx, 0, 1, 0));
    is_ack(fx, 0, 0, first, 0);
    cr_assert_eq(fx->reply[1].hdr.type, PSRTI_T_VALUE);
    fx_forget(fx);
    uint64_t second = push(fx, 0, 1, PATIENT), third = push(fx, 0, 1, 0);
    is_ack(fx, 0, 0, third, third - second);
    fx_close(fx);
}

/* A gap in the numbers, another table, another status: each has its own ACK. */
Test(ack_runs, of_neighbours_that_are_alike)
{
    fx_t *fx = open_async(1);
    start(fx, 0);
    uint64_t first = push(fx, 0, 1, PATIENT);
    fx->seq[0]++;
    uint64_t second = push(fx, 0, 1, PATIENT), third = push(fx, 0, 2, PATIENT);
    psrti_shard_progress(fx->shard, 1);
    cr_assert_eq(fx->replies, 3u);
    is_ack(fx, 0, 0, first, 0);
    is_ack(fx, 1, 0, second, 0);
    is_ack(fx, 2, 0, third, 0);
    cr_assert_eq(fx_counts(fx).joined, 0u);
    fx_close(fx);
}

/* A link that takes nothing: what is kept for it grows by whole runs only. */
Test(ack_runs, over_a_link_that_is_full)
{
    fx_t *fx = open_async(1);
    start(fx, 0);
    fx->full = 1;
    uint64_t seq = 0;
    for (int i = 0; i < 2 * PSRTI_ACK_RUN; i++)
        seq = push(fx, 0, 1, 0);
    cr_assert_eq(fx->replies, 0u);
    fx->full = 0;
    psrti_shard_link_writable(fx->shard, fx->peer[0]);
    cr_assert_eq(fx->replies, 2u);
    is_ack(fx, 0, 0, seq - PSRTI_ACK_RUN, PSRTI_ACK_RUN - 1);
    is_ack(fx, 1, 0, seq, PSRTI_ACK_RUN - 1);
    fx_close(fx);
}

/* Half a run, and the session is over: nothing of it is left. */
Test(ack_runs, end_with_the_session)
{
    fx_t *fx = open_async(1);
    start(fx, 0);
    push(fx, 0, 1, PATIENT);
    psrti_shard_link_lost(fx->shard, fx->peer[0]);
    psrti_shard_progress(fx->shard, 1);
    cr_assert_eq(fx->replies, 0u);
    fx_close(fx);
}
