/* SPDX-License-Identifier: Apache-2.0 */
/* Cancel and deadlines at a worker: what ends at once, what is taken back, what is fenced. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"

static void submit_by(fx_t *fx, psrti_cop_t *op, int kind, uint64_t deadline)
{
    psrti_transfer_t x = fx_transfer(fx, 1, kind, 0, 0);
    memset(op, 0, sizeof *op);
    op->deadline = deadline;
    psrti_client_submit(fx->client, op, &x, 1);
    fx_progress(fx);
}

static void cancel(fx_t *fx, psrti_cop_t *op)
{
    psrti_client_cancel(fx->client, op, PSRT_ERR_CANCELED);
    fx_progress(fx);
}

static void not_ended(fx_t *fx) { cr_assert_null(psrti_client_completed(fx->client)); }

Test(cancel, what_was_not_sent_ends_at_once_and_its_step_too)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx->full[0] = 1;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cancel(fx, &op);
    cr_assert(strstr(op.text, "canceled: push of table t1.") && strstr(op.text, "not sent yet"),
              "%s", op.text);
    fx_ended(fx, &op, PSRT_ERR_CANCELED);
    fx->full[0] = 0;
    psrti_client_link_writable(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 1u);
    cr_assert(fx->sent[0].hdr.type == PSRTI_T_CLOCK && fx->sent[0].hdr.step == 0);
    cr_assert_eq(psrti_ctable_next_step(fx->table[1]), 1u, "the step is not pushed again");
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

/* The other workers lag: a server refuses to hear of a third step. All are told in the end, two at a time. */
static void give_up_many(fx_t *fx, uint64_t elements, int kind, uint64_t count)
{
    enum { STEPS = 300 };
    uint64_t heard[FX_OWNERS] = { 0, 0 };
    size_t owners = elements > FX_SLICE ? 2 : 1;
    psrti_cop_t op;

    fx_table(fx, 1, elements, NULL, 0);
    fx->full[0] = fx->full[1] = 1;
    for (int i = 0; i < STEPS; i++) {
        fx_submit(fx, &op, 1, kind, 0, count);
        cancel(fx, &op);
        fx_ended(fx, &op, PSRT_ERR_CANCELED);
    }
    cr_assert_leq(psrti_client_outstanding(fx->client), 2 * owners);
    for (uint32_t o = 0; o < FX_OWNERS; o++) {
        fx->full[o] = 0;
        psrti_client_link_writable(fx->client, o);
    }
    fx_progress(fx);
    for (size_t i = 0; i < fx->sends; i++) {
        const psrt_hdr_t *h = &fx->sent[i].hdr;
        cr_assert_eq(h->type, PSRTI_T_CLOCK);
        cr_assert_eq(h->step, heard[fx->sent[i].owner]++, "each step once, in order");
        fx_ack(fx, i, PSRT_OK, 0, 0);
    }
    for (size_t o = 0; o < owners; o++)
        cr_assert_eq(heard[o], STEPS);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
}

Test(cancel, steps_that_are_given_up_do_not_pile_up)
{
    fx_t *fx = fx_open();
    give_up_many(fx, 10, PUSH, 0);
    fx_close(fx);
}

Test(cancel, nor_do_those_of_ranges)
{
    fx_t *fx = fx_open();
    give_up_many(fx, 2 * FX_SLICE, PUSH, 10);
    fx_close(fx);
}

/* Steps 0 and 1 are open, so step 2 was not sent. */
Test(cancel, a_push_that_waits_for_others_says_so)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[3];
    fx_table(fx, 1, 10, NULL, 0);
    for (int i = 0; i < 3; i++)
        fx_submit(fx, &op[i], 1, PUSH, 0, 0);
    cr_assert_eq(fx_count(fx, PSRTI_T_PUSH, 0), 2u);
    cancel(fx, &op[2]);
    cr_assert(strstr(op[2].text, "step 2, waits for the other workers to end step 0"), "%s",
              op[2].text);
    fx_ended(fx, &op[2], PSRT_ERR_CANCELED);
    fx_close(fx);
}

Test(cancel, what_was_sent_is_taken_back)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH | PULL, 0, 0);
    cancel(fx, &op);
    cr_assert_eq(fx->sends, 2u);
    const psrt_hdr_t *h = &fx->sent[1].hdr;
    cr_assert(h->type == PSRTI_T_CANCEL && h->seq == 1 && h->flags == PSRTI_F_PULL);
    cr_assert(h->dtype == 0 && h->length == 10 && fx->sent[1].len == 0);
    not_ended(fx);
    cr_assert_eq(fx_ack(fx, 0, PSRT_ERR_AGAIN, 0, 0), PSRT_RX_DONE); /* of the push, crossing */
    fx_ack(fx, 0, PSRT_OK, 0, 0); /* captured: the value would follow */
    not_ended(fx);
    psrt_hdr_t *asked = &fx->sent[1].hdr;
    psrt_msg_t m = { .hdr = { .type = PSRTI_T_ACK,
                              .term = asked->term,
                              .seq = asked->seq,
                              .table = 1,
                              .vshard = asked->vshard,
                              .seq_floor = 2,
                              .length = 9,
                              .status = -PSRT_ERR_CANCELED } };
    cr_assert_eq(psrti_client_msg(fx->client, 0, &m), PSRT_RX_DONE);
    fx_progress(fx);
    cr_assert(strstr(op.text, "push_pull") && strstr(op.text, "waits for worker:2, worker:5"), "%s",
              op.text);
    fx_ended(fx, &op, PSRT_ERR_CANCELED);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 1u, "the step ends, if it has not");
    fx->memory[0] = 77;
    fx_value(fx, 0, 1, 5.0f); /* a value that was under way */
    cr_assert_eq(fx->memory[0], 77.0f, "memory of an ended op is quiet");
    fx_close(fx);
}

Test(cancel, an_op_that_is_done_first_ends_as_ever)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 2 * FX_SLICE, "async", 0);
    fx_submit(fx, &op, 1, PULL, 0, 0);
    cancel(fx, &op);
    cancel(fx, &op);
    cr_assert_eq(fx_count(fx, PSRTI_T_CANCEL, 0), 2u);
    fx_value(fx, 0, 3, 1.0f);
    fx_value(fx, 1, 4, 2.0f);
    cr_assert_eq(op.result.version, 3u);
    fx_ended(fx, &op, PSRT_OK);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cancel(fx, &op);
    fx_ack(fx, fx->sends - 1, PSRT_OK, 0, 0); /* CANCEL came too late */
    fx_ack(fx, fx->sends - 2, PSRT_ERR_CANCELED, 0, 0);
    fx_ended(fx, &op, PSRT_ERR_CANCELED); /* one part of it did not */
    fx_close(fx);
}

Test(cancel, an_op_does_not_end_while_its_memory_is_sent)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx->keep = 1;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cancel(fx, &op);
    fx_ack(fx, 1, PSRT_ERR_CANCELED, 0, 0);
    not_ended(fx);
    fx_done(fx, 0);
    fx_ended(fx, &op, PSRT_ERR_CANCELED);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    size_t push = fx->sends - 1;
    cancel(fx, &op);
    fx_ack(fx, push, PSRT_ERR_CANCELED, 0, 0);
    fx->now += FX_CANCEL;
    fx_progress(fx);
    cr_assert_eq(fx->fences, 1u, "the transport is made to let go");
    fx_ended(fx, &op, PSRT_ERR_CANCELED);
    fx_close(fx);
}

Test(cancel, a_silent_server_is_asked_again_then_fenced)
{
    fx_t *fx = fx_open();
    psrti_cop_t gone, other;
    fx_table(fx, 1, 10, "async", 0);
    fx_submit(fx, &gone, 1, PUSH, 0, 0);
    fx_submit(fx, &other, 1, PUSH, 0, 0);
    fx->now += FX_RETRY / 2;
    cancel(fx, &gone);
    fx->now += FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_CANCEL, 0), 2u);
    not_ended(fx);
    cr_assert_eq(fx->fences, 0u);
    fx->now += FX_CANCEL - FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx->fences, 1u);
    cr_assert(strstr(gone.text, "no answer from server:0"), "%s", gone.text);
    fx_ended(fx, &gone, PSRT_ERR_CANCELED);
    not_ended(fx);
    size_t before = fx->sends;
    psrti_client_link_up(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, before + 1, "only the other one is sent again");
    cr_assert(fx->sent[before].hdr.seq == 2 && fx->sent[before].hdr.seq_floor == 0,
              "with its number, above the floor");
    fx_ack(fx, before, PSRT_OK, PSRTI_F_APPLIED, 1);
    fx_ended(fx, &other, PSRT_OK);
    fx_close(fx);
}

Test(cancel, a_session_that_ended_needs_no_answer)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[2];
    fx_table(fx, 1, 10, "async", 0);
    fx_submit(fx, &op[0], 1, PUSH, 0, 0);
    cancel(fx, &op[0]);
    fx_submit(fx, &op[1], 1, PULL, 0, 0);
    psrti_client_link_lost(fx->client, 0);
    fx_ended(fx, &op[0], PSRT_ERR_CANCELED);
    psrti_client_link_up(fx->client, 0); /* not sent again yet */
    psrti_client_cancel(fx->client, &op[1], PSRT_ERR_CANCELED);
    fx_ended(fx, &op[1], PSRT_ERR_CANCELED);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

Test(cancel, deadlines_pass_one_by_one)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[3];
    fx_table(fx, 1, 10, "async", 0);
    submit_by(fx, &op[0], PULL, 900);
    submit_by(fx, &op[1], PUSH, 300);
    submit_by(fx, &op[2], PULL, 0);
    cr_assert_eq(fx_progress(fx), 300u, "the timer is set");
    fx->now = 299;
    cr_assert_eq(fx_progress(fx), 300u);
    cr_assert_eq(fx_count(fx, PSRTI_T_CANCEL, 0), 0u);
    fx->now = 300;
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_CANCEL, 0), 1u);
    fx_ack(fx, fx->sends - 1, PSRT_ERR_CANCELED, 0, 0);
    cr_assert(strstr(op[1].text, "deadline passed: push of table t1."), "%s", op[1].text);
    fx_ended(fx, &op[1], PSRT_ERR_DEADLINE);
    fx_value(fx, 0, 1, 1.0f);
    fx_ended(fx, &op[0], PSRT_OK);
    fx->now = 5000;
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_CANCEL, 0), 1u, "an op that ended has no deadline");
    not_ended(fx);
    fx_value(fx, 2, 1, 1.0f);
    fx_ended(fx, &op[2], PSRT_OK);
    fx_close(fx);
}

/* The last ranges of a step are canceled: what was captured stays in, and CLOCK ends the step. */
Test(cancel, ranges_still_end_their_step)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[2];
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op[0], 1, PUSH | MORE, 0, 4);
    fx_submit(fx, &op[1], 1, PUSH, 4, 6);
    cancel(fx, &op[1]);
    fx_ack(fx, 2, PSRT_ERR_CANCELED, 0, 0);
    fx_ended(fx, &op[1], PSRT_ERR_CANCELED);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 0u, "the first range is not captured yet");
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    fx_ended(fx, &op[0], PSRT_OK);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 1u);
    fx_close(fx);
}

Test(cancel, a_lost_table_ends_what_is_being_taken_back)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cancel(fx, &op);
    fx_owner(fx, 0, 0);
    fx_ended(fx, &op, PSRT_ERR_SHARD_LOST);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}
