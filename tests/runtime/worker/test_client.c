/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's client, answered by hand: splitting, order, numbers, retries, steps. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"

/* ---- splitting and order ----------------------------------------------------------------------- */

Test(client, one_message_a_slice)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 3 * FX_SLICE + 7, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 4u);
    uint64_t covered = 0;
    for (size_t i = 0; i < 4; i++) {
        const fx_send_t *s = &fx->sent[i];
        uint64_t slice = s->hdr.offset / FX_SLICE;
        cr_assert_eq(s->owner, slice % 2);
        cr_assert_eq(s->hdr.vshard, slice);
        cr_assert_eq(s->hdr.offset % FX_SLICE, 0u);
        cr_assert_eq(s->hdr.length, slice == 3 ? 7 : FX_SLICE);
        cr_assert_eq(s->data, (const void *)(fx->memory + s->hdr.offset));
        cr_assert_eq(s->hdr.flags, PSRTI_F_END | PSRTI_F_WHOLE);
        cr_assert_eq(s->hdr.step, 0u);
        cr_assert(s->hdr.seq == 1 && s->hdr.seq_floor == 0);
        covered |= 1u << slice;
    }
    cr_assert_eq(covered, 15u);
    cr_assert_eq(fx->used, 1u);
    cr_assert_eq(psrti_ctable_next_step(fx->table[1]), 1u);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_null(psrti_client_completed(fx->client));
        fx_ack(fx, i, PSRT_OK, 0, 0);
    }
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

Test(client, a_range_crosses_slices)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 2 * FX_SLICE, "async", 0);
    fx_submit(fx, &op, 1, PULL, FX_SLICE - 3, 8);
    cr_assert_eq(fx->sends, 2u);
    cr_assert(fx->sent[0].hdr.offset == FX_SLICE - 3 && fx->sent[0].hdr.length == 3);
    cr_assert(fx->sent[1].hdr.offset == FX_SLICE && fx->sent[1].hdr.length == 5);
    cr_assert_eq(fx_value(fx, 1, 9, 2.0f), PSRT_RX_DONE);
    cr_assert_eq(fx_value(fx, 0, 7, 1.0f), PSRT_RX_DONE);
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(op.result.version, 7u, "the lowest");
    for (int i = 0; i < 8; i++)
        cr_assert_eq(fx->memory[i], i < 3 ? 1.0f : 2.0f);
    fx_close(fx);
}

Test(client, priorities_reorder_tables_but_never_one_slice)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[6];
    for (uint32_t t = 1; t <= 3; t++)
        fx_table(fx, t, 10, "async", 0);
    fx->full[0] = 1;
    static const struct {
        uint32_t table;
        int priority;
    } asked[6] = { { 1, 0 }, { 1, 9 }, { 2, 5 }, { 3, 5 }, { 1, 9 }, { 2, 5 } };
    memset(op, 0, sizeof op);
    for (int i = 0; i < 6; i++) {
        psrti_transfer_t x = fx_transfer(fx, asked[i].table, PUSH, 0, 0);
        x.priority = asked[i].priority;
        x.grad = fx->memory + i;
        psrti_client_submit(fx->client, &op[i], &x, 1);
    }
    fx_progress(fx);
    fx->full[0] = 0;
    psrti_client_link_writable(fx->client, 0);
    fx_progress(fx);
    /* 2 and 3 by priority, then age; the second of table 2; at last table 1 in its own order */
    static const int expect[6] = { 2, 3, 5, 0, 1, 4 };
    for (size_t i = 0, k = 0; i < fx->sends; i++) {
        if (fx->sent[i].hdr.type != PSRTI_T_PUSH) continue;
        cr_assert_eq((const float *)fx->sent[i].data - fx->memory, expect[k], "message %zu", k);
        k++;
    }
    cr_assert_eq(fx_count(fx, PSRTI_T_PUSH, 0), 6u);
    fx_close(fx);
}

/* ---- numbers ----------------------------------------------------------------------------------- */

Test(client, at_most_256_numbers_of_a_shard_are_out)
{
    fx_t *fx = fx_open();
    static psrti_cop_t op[300];
    fx_table(fx, 1, 10, "async", 0);
    for (int i = 0; i < 300; i++)
        fx_submit(fx, &op[i], 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 256u);
    for (size_t i = 1; i < 256; i++)
        fx_ack(fx, i, PSRT_OK, PSRTI_F_APPLIED, 0);
    cr_assert_eq(fx->sends, 256u, "the floor holds the window");
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 0);
    cr_assert_eq(fx->sends, 300u);
    cr_assert(fx->sent[256].hdr.seq == 257 && fx->sent[256].hdr.seq_floor == 0);
    cr_assert(fx->sent[299].hdr.seq == 300 && fx->sent[299].hdr.seq_floor == 43);
    for (size_t i = 256; i < 300; i++)
        fx_ack(fx, i, PSRT_OK, PSRTI_F_APPLIED, 0);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

/* Captured push_pulls wait for other workers, who may wait for what has no number here. */
Test(client, push_pulls_that_wait_for_others_give_their_numbers_back)
{
    fx_t *fx = fx_open();
    static psrti_cop_t op[300];
    fx_table(fx, 1, 1000, "sync", 3);
    for (int i = 0; i < 299; i++)
        fx_submit(fx, &op[i], 1, PUSH | PULL | MORE, (uint64_t)i, 1);
    fx_submit(fx, &op[299], 1, PUSH | PULL, 299, 1);
    cr_assert_eq(fx->sends, 256u);
    for (size_t i = 0; i < 256; i++)
        fx_ack(fx, i, PSRT_OK, 0, 3);
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_PUSH, 256), 44u);
    cr_assert_eq(fx_count(fx, PSRTI_T_PULL, 256), 44u);
    cr_assert(fx->sent[256].hdr.type == PSRTI_T_PULL && fx->sent[256].hdr.step == 4);
    cr_assert_eq(fx_value(fx, 0, 4, 7), PSRT_RX_DONE);
    cr_assert(!op[0].ended, "that number is given up");
    fx_value(fx, 256, 4, 7);
    cr_assert(op[0].ended && op[0].result.version == 4);
    fx_close(fx);
}

/* A push to a third open step holds no number while it waits for others. */
Test(client, a_refused_number_is_changed)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[3];
    fx_table(fx, 1, 10, "async", 0);
    fx_submit(fx, &op[0], 1, PUSH, 0, 0);
    fx_ack(fx, 0, PSRT_ERR_CANCELED, 0, 0); /* the first answer was lost */
    fx_submit(fx, &op[1], 1, PUSH, 0, 0);
    cr_assert(fx->sent[1].hdr.seq == 2 && fx->sent[1].hdr.seq_floor == 0);
    fx->now += FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx->sent[2].hdr.seq, 3u);
    fx_ack(fx, 2, PSRT_OK, PSRTI_F_APPLIED, 0);
    fx_ended(fx, &op[0], PSRT_OK);
    fx_submit(fx, &op[2], 1, PUSH, 0, 0);
    fx_ack(fx, fx->sends - 1, PSRT_ERR_AGAIN, PSRTI_F_LATE, 0);
    psrti_client_cancel(fx->client, &op[2], PSRT_ERR_CANCELED);
    fx_ended(fx, &op[2], PSRT_ERR_CANCELED); /* nothing of it can be applied any more */
    fx_close(fx);
}

/* Two tables whose slices share a virtual shard wait for its numbers; one of them fails then. */
Test(client, all_that_wait_for_numbers_are_woken)
{
    fx_t *fx = fx_open();
    static psrti_cop_t op[258];
    for (uint32_t t = 1; t <= 3; t++)
        fx_table(fx, t, 10, "async", 0);
    for (int i = 0; i < 256; i++)
        fx_submit(fx, &op[i], 1, PUSH, 0, 0);
    fx_submit(fx, &op[256], 2, PUSH, 0, 0);
    fx_submit(fx, &op[257], 3, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 256u);
    for (size_t i = 256; i-- > 1;)
        fx_ack(fx, i, PSRT_OK, PSRTI_F_APPLIED, 0);
    fx->full[0] = 1;
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 0);
    psrti_client_table_fail(fx->client, 3, PSRT_ERR_MISMATCH, "another");
    fx->full[0] = 0;
    psrti_client_link_writable(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 257u);
    cr_assert_eq(fx->sent[256].hdr.table, 2u);
    free(op[257].text);
    fx_close(fx);
}

/* A push that lost its number waits for another one, in no queue but that; then its table fails. */
Test(client, what_waits_for_a_number_again_ends_with_its_table)
{
    fx_t *fx = fx_open();
    static psrti_cop_t op[256], last[2];
    for (uint32_t t = 1; t <= 3; t++)
        fx_table(fx, t, 10, "async", 0);
    for (uint32_t i = 0; i < 2; i++) {
        fx_submit(fx, &last[i], 1 + i, PUSH, 0, 0);
        fx_ack(fx, i, PSRT_ERR_AGAIN, PSRTI_F_LATE, 0);
    }
    for (int i = 0; i < 256; i++)
        fx_submit(fx, &op[i], 3, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 258u);
    fx->now += FX_RETRY / 2;
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_PUSH, 258), 0u, "there is no number");
    psrti_client_table_fail(fx->client, 1, PSRT_ERR_MISMATCH, "another");
    cr_assert(last[0].ended && last[0].result.status == PSRT_ERR_MISMATCH);
    free(last[0].text);
    cr_assert(!last[1].ended);
    fx_close(fx); /* and nothing leaks */
}

Test(client, a_retry_keeps_its_number)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx->now += FX_RETRY / 2;
    fx_progress(fx);
    cr_assert_eq(fx->sends, 1u);
    fx->now += FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(fx->sent[1].hdr.seq, fx->sent[0].hdr.seq);
    cr_assert(fx->sent[1].hdr.flags & PSRTI_F_RETRY);
    psrti_client_link_lost(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u, "there is no link");
    psrti_client_link_up(fx->client, 0);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 3u);
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 1);
    fx_ended(fx, &op, PSRT_OK);
    fx_ack(fx, 2, PSRT_OK, PSRTI_F_APPLIED, 1); /* a second answer fits nothing */
    cr_assert_null(psrti_client_completed(fx->client));
    fx_close(fx);
}

Test(client, again_delays)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx_ack(fx, 0, PSRT_ERR_AGAIN, 0, 0);
    cr_assert_eq(fx->sends, 1u);
    uint64_t next = fx_progress(fx);
    cr_assert(next > fx->now && next < fx->now + FX_RETRY / 10);
    fx->now = next;
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(fx->sent[1].hdr.seq, fx->sent[0].hdr.seq);
    fx_close(fx);
}

/* ---- steps ------------------------------------------------------------------------------------- */

Test(client, the_third_open_step_waits_for_the_first)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[4];
    fx_table(fx, 1, 10, NULL, 0);
    for (int i = 0; i < 4; i++)
        fx_submit(fx, &op[i], 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq(fx->sent[1].hdr.step, 1u);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    fx_ack(fx, 1, PSRT_OK, 0, 0);
    cr_assert_eq(fx->sends, 2u, "captured is not published");
    psrt_msg_t m = {
        .hdr = { .type = PSRTI_T_ACK, .flags = PSRTI_F_APPLIED, .term = 1, .step = 1, .table = 1 }
    };
    psrti_client_msg(fx->client, 0, &m);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 3u);
    cr_assert_eq(fx->sent[2].hdr.step, 2u);
    fx_ack(fx, 2, PSRT_OK, 0, 1);
    fx->now += 2 * FX_RETRY; /* the word about version 2 may be lost: it probes */
    fx_progress(fx);
    cr_assert_eq(fx->sends, 4u);
    cr_assert_eq(fx->sent[3].hdr.step, 3u);
    fx_close(fx);
}

Test(client, an_op_ends_after_its_answer_and_its_send)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx->keep = 1;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    cr_assert_null(psrti_client_completed(fx->client), "the transport still reads");
    fx_done(fx, 0);
    fx_ended(fx, &op, PSRT_OK);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx_done(fx, 1);
    cr_assert_null(psrti_client_completed(fx->client), "nobody has it yet");
    fx_ack(fx, 1, PSRT_OK, 0, 0);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

Test(client, push_pull_ends_with_the_value)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH | PULL, 0, 0);
    cr_assert(fx->sent[0].hdr.flags & PSRTI_F_PULL);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    cr_assert_null(psrti_client_completed(fx->client));
    fx->stale = 1;
    cr_assert_eq(fx_value(fx, 0, 1, 5.0f), PSRT_RX_DONE);
    cr_assert_null(psrti_client_completed(fx->client), "withdrawn while it was copied");
    fx->stale = 0;
    fx_value(fx, 0, 1, 6.0f);
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(fx->memory[9], 6.0f);
    cr_assert_eq(op.result.version, 1u);
    fx_close(fx);
}

Test(client, clock_follows_when_everything_is_captured)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[2];
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx_submit(fx, &op[0], 1, PUSH | MORE, 0, 10);
    fx_submit(fx, &op[1], 1, PUSH, FX_SLICE, 10);
    cr_assert_eq(fx->sends, 2u);
    cr_assert_eq((fx->sent[0].hdr.flags | fx->sent[1].hdr.flags) & PSRTI_F_END, 0);
    cr_assert_eq(psrti_ctable_next_step(fx->table[1]), 1u);
    fx_ack(fx, 1, PSRT_OK, 0, 0);
    cr_assert_eq(fx->sends, 2u);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 2u, "to both owners");
    cr_assert(fx->sent[2].owner != fx->sent[3].owner && fx->sent[2].hdr.step == 0);
    fx_ended(fx, &op[1], PSRT_OK);
    fx_ended(fx, &op[0], PSRT_OK);
    cr_assert_eq(psrti_client_outstanding(fx->client), 2u);
    fx_ack(fx, 2, PSRT_OK, 0, 0);
    fx_ack(fx, 3, PSRT_OK, 0, 0);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

Test(client, clock_goes_to_owners_that_got_nothing)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 2 * FX_SLICE, "ssp:1", 0);
    fx_submit(fx, &op, 1, PUSH, 0, 10);
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 1);
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 2u);
    fx_submit(fx, &op, 1, PULL, 0, 10);
    cr_assert_eq(fx->sent[fx->sends - 1].hdr.step, 0u, "one step ahead at most");
    psrti_cop_t other;
    fx_submit(fx, &other, 1, PUSH, 0, 10);
    fx_submit(fx, &other, 1, PULL, 0, 10);
    cr_assert_eq(fx->sent[fx->sends - 1].hdr.step, 1u);
    fx_close(fx);
}

/* The first push came too early and is delayed; the clock of the second must not pass it. */
Test(client, clocks_of_ssp_stay_in_order)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[2];
    fx_table(fx, 1, 10, "ssp:1", 0);
    for (int i = 0; i < 2; i++)
        fx_submit(fx, &op[i], 1, PUSH, 0, 0);
    fx_ack(fx, 0, PSRT_ERR_AGAIN, 0, 0);
    fx_ack(fx, 1, PSRT_OK, PSRTI_F_APPLIED, 1);
    fx_ended(fx, &op[1], PSRT_OK);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 0u);
    fx->now += FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx->sends, 3u);
    fx_ack(fx, 2, PSRT_OK, PSRTI_F_APPLIED, 2);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 0), 2u);
    cr_assert(fx->sent[3].hdr.step == 0 && fx->sent[4].hdr.step == 1);
    fx_close(fx);
}

Test(client, late_jumps_to_the_open_step)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 3);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sent[0].hdr.step, 3u);
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_LATE, 9);
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(op.result.late, 1);
    cr_assert_eq(psrti_ctable_next_step(fx->table[1]), 9u);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sent[1].hdr.step, 9u);
    fx_close(fx);
}

/* A step of a slice may be closed by others while another slice of the table still waits for this worker:
 * its owners learn that it never ends the steps between. */
Test(client, late_with_backup_workers_tells_every_owner_where_it_goes_on)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 2 * FX_SLICE, "sync:backup=1", 3);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 2u);
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_LATE, 9);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u, "it must not pass the push that is under way");
    fx_ack(fx, 1, PSRT_OK, 0, 3);
    fx_ended(fx, &op, PSRT_OK);
    cr_assert_eq(op.result.late, 1);
    fx_progress(fx);
    cr_assert_eq(fx_count(fx, PSRTI_T_CLOCK, 2), 2u);
    cr_assert_neq(fx->sent[2].owner, fx->sent[3].owner);
    for (size_t i = 2; i < 4; i++) {
        cr_assert_eq(fx->sent[i].hdr.step, 9u);
        cr_assert_eq(fx->sent[i].hdr.flags, PSRTI_F_LATE);
    }
    cr_assert_eq(psrti_client_outstanding(fx->client), 2u, "a lost one is repeated");
    fx_ack(fx, 2, PSRT_OK, 0, 0);
    fx_ack(fx, 3, PSRT_OK, 0, 0);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_submit(fx, &op, 1, PUSH, 0, FX_SLICE);
    cr_assert_eq(fx->sent[4].hdr.step, 9u);
    fx_close(fx);
}

/* Two of them wait for one push. */
Test(client, every_skip_is_told)
{
    fx_t *fx = fx_open();
    psrti_cop_t a, b;
    fx_table(fx, 1, 3 * FX_SLICE, "sync:backup=1", 0);
    fx_submit(fx, &a, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 3u);
    fx_ack(fx, 0, PSRT_OK, PSRTI_F_LATE, 5);
    cr_assert_eq(fx->sent[1].hdr.offset, 2 * FX_SLICE); /* one owner after the other */
    fx_ack(fx, 1, PSRT_OK, PSRTI_F_LATE, 7);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 3u);
    fx_ack(fx, 2, PSRT_OK, 0, 1);
    fx_ended(fx, &a, PSRT_OK);
    fx_progress(fx);
    unsigned fives = 0, sevens = 0;
    for (size_t i = 3; i < fx->sends; i++) {
        cr_assert_eq(fx->sent[i].hdr.type, PSRTI_T_CLOCK);
        fives += fx->sent[i].hdr.step == 5;
        sevens += fx->sent[i].hdr.step == 7;
    }
    cr_assert(fives == 2 && sevens == 2, "%u and %u", fives, sevens);
    for (size_t i = 3; i < 7; i++)
        fx_ack(fx, i, PSRT_OK, 0, 0);
    fx_submit(fx, &b, 1, PUSH, 2 * FX_SLICE, FX_SLICE); /* the pushes of before count no more */
    fx_ack(fx, 7, PSRT_OK, PSRTI_F_LATE, 9);
    fx_ended(fx, &b, PSRT_OK);
    fx_progress(fx);
    unsigned nines = 0;
    for (size_t i = 8; i < fx->sends; i++)
        nines += fx->sent[i].hdr.step == 9;
    cr_assert_eq(nines, 2u);
    fx_close(fx);
}
