/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's client, answered by hand: many tables, owners that are lost, refusals, odd answers. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"

/* ---- many tables, failures --------------------------------------------------------------------- */

Test(client, many_tables_in_one_op)
{
    fx_t *fx = fx_open();
    psrti_cop_t op = { 0 };
    psrti_transfer_t x[3];
    fx_table(fx, 1, 10, NULL, 0);
    fx_table(fx, 2, 2 * FX_SLICE, NULL, 0);
    fx_table(fx, 3, 10, NULL, 0);
    x[0] = fx_transfer(fx, 1, PUSH, 0, 0);
    x[1] = fx_transfer(fx, 2, PUSH, 0, 0);
    x[2] = fx_transfer(fx, 3, PULL, 0, 0);
    psrti_client_submit(fx->client, &op, x, 3);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 4u);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_null(psrti_client_completed(fx->client));
        if (fx->sent[i].hdr.type == PSRTI_T_PULL)
            fx_value(fx, i, 0, 1);
        else
            fx_ack(fx, i, PSRT_OK, 0, 0);
    }
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

Test(client, a_dead_owner_ends_its_ops_and_no_others)
{
    fx_t *fx = fx_open();
    psrti_cop_t both, mine, other;
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx_table(fx, 2, 10, NULL, 0); /* at owner 0 */
    fx_submit(fx, &both, 1, PUSH | PULL, 0, 0);
    fx_submit(fx, &other, 2, PUSH | PULL, 0, 0);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    cr_assert_eq(fx->sent[2].hdr.table, 2u);
    fx_owner(fx, 1, 0);
    cr_assert(strstr(both.text, "server:1 died"), "%s", both.text);
    fx_ended(fx, &both, PSRT_ERR_SHARD_LOST);
    cr_assert_null(psrti_client_completed(fx->client));
    fx_submit(fx, &mine, 1, PULL, 0, 0);
    fx_ended(fx, &mine, PSRT_ERR_SHARD_LOST);
    fx_submit(fx, &mine, 1, PULL, 0, 10);
    fx_ended(fx, &mine, PSRT_ERR_SHARD_LOST); /* at a living owner, but no step closes there */
    fx_table(fx, 3, 2 * FX_SLICE, NULL, 0);
    fx_submit(fx, &mine, 3, PUSH, 0, 10);
    fx_ended(fx, &mine, PSRT_ERR_SHARD_LOST);
    fx_value(fx, 2, 1, 1);
    fx_ended(fx, &other, PSRT_OK);
    fx_close(fx);
}

/* Tables 1 and 2 are at owner 0 alone, table 3 at both; 1 and 3 are in a group. */
Test(client, a_dead_owner_ends_all_tables_of_a_group)
{
    fx_t *fx = fx_open();
    psrti_cop_t one, two, three;
    fx_group_table(fx, 1, 10, "g");
    fx_group_table(fx, 2, 10, "h");
    fx_group_table(fx, 3, 2 * FX_SLICE, "g");
    fx_submit(fx, &one, 1, PUSH | PULL, 0, 0);
    fx_submit(fx, &two, 2, PUSH | PULL, 0, 0);
    for (size_t i = 0; i < 2; i++)
        fx_ack(fx, i, PSRT_OK, 0, 0);
    fx_owner(fx, 1, 0);
    cr_assert(strstr(one.text, "lost with its group g") && strstr(one.text, "server:1"), "%s",
              one.text);
    fx_ended(fx, &one, PSRT_ERR_SHARD_LOST);
    fx_submit(fx, &three, 3, PUSH, 0, 10);
    fx_ended(fx, &three, PSRT_ERR_SHARD_LOST);
    fx_group_table(fx, 4, 10, "g"); /* too late: its group is lost */
    fx_submit(fx, &three, 4, PUSH, 0, 0);
    fx_ended(fx, &three, PSRT_ERR_SHARD_LOST);
    fx_value(fx, 1, 1, 1);
    fx_ended(fx, &two, PSRT_OK);
    fx_close(fx);
}

Test(client, skipped_steps_are_those_that_servers_tell)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    psrt_msg_t msg = { .hdr = fx->sent[0].hdr };
    msg.hdr.type = PSRTI_T_ACK;
    msg.hdr.flags = PSRTI_F_APPLIED;
    msg.hdr.seq = 0, msg.hdr.step = 1, msg.hdr.length = 3;
    cr_assert_eq(psrti_client_msg(fx->client, 0, &msg), PSRT_RX_DONE);
    msg.hdr.step = 2, msg.hdr.length = 2; /* of another slice, which is behind */
    cr_assert_eq(psrti_client_msg(fx->client, 0, &msg), PSRT_RX_DONE);
    cr_assert_eq(psrti_ctable_skipped_steps(fx->table[1]), 3u);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

Test(client, a_restarted_owner_has_lost_old_tables_and_serves_new_ones)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx->keep = 1;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx_owner(fx, 1, 1);
    cr_assert(strstr(op.text, "server:1 was restarted"), "%s", op.text);
    cr_assert_null(psrti_client_completed(fx->client), "sends are in flight");
    for (size_t i = 0; i < fx->sends; i++)
        fx_done(fx, i);
    fx_ack(fx, 0, PSRT_OK, 0, 0); /* the push to the living owner went on */
    fx_ended(fx, &op, PSRT_ERR_SHARD_LOST);
    fx_table(fx, 2, 2 * FX_SLICE, NULL, 0);
    size_t before = fx->sends;
    fx_submit(fx, &op, 2, PUSH, 0, 0);
    cr_assert_eq(fx->sends, before + 2);
    cr_assert_eq(fx->sent[before + 1].hdr.term, 2u);
    fx_close(fx);
}

Test(client, an_answer_that_says_lost_ends_everything_of_the_table)
{
    fx_t *fx = fx_open();
    psrti_cop_t op[2];
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx_submit(fx, &op[0], 1, PUSH, 0, 0);
    fx_submit(fx, &op[1], 1, PULL, 0, 10);
    fx_ack(fx, 1, PSRT_ERR_SHARD_LOST, 0, 0);
    for (int i = 0; i < 2; i++)
        fx_ended(fx, &op[i], PSRT_ERR_SHARD_LOST);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

/* What is on its way to a living owner goes on, though its op has failed. */
Test(client, pushes_of_other_tables_go_on)
{
    fx_t *fx = fx_open();
    psrti_cop_t op = { 0 };
    psrti_transfer_t x[2];
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx_table(fx, 2, 10, NULL, 0);
    x[0] = fx_transfer(fx, 1, PUSH, 0, 0);
    x[1] = fx_transfer(fx, 2, PUSH | PULL, 0, 0);
    psrti_client_submit(fx->client, &op, x, 2);
    fx_progress(fx);
    cr_assert_eq(fx->sends, 3u);
    fx_owner(fx, 1, 0);
    cr_assert_eq(op.result.status, PSRT_ERR_SHARD_LOST);
    cr_assert_null(psrti_client_completed(fx->client), "the server may be reading");
    for (size_t i = 0; i < 3; i++)
        if (fx->sent[i].hdr.table == 2) fx_value(fx, i, 1, 3);
    fx_ended(fx, &op, PSRT_ERR_SHARD_LOST);
    cr_assert_eq(fx->memory[0], 0.0f, "nothing is written to an op that failed");
    fx_close(fx);
}

/* What a failed op gives up must not keep the other workers' step open. */
Test(client, a_given_up_push_still_ends_its_step)
{
    fx_t *fx = fx_open();
    psrti_cop_t op = { 0 }, first;
    psrti_transfer_t x[2];
    fx_table(fx, 1, 2 * FX_SLICE, NULL, 0);
    fx_table(fx, 2, 10, NULL, 0);
    for (int i = 0; i < 2; i++)
        fx_submit(fx, &first, 2, PUSH, 0, 0);
    x[0] = fx_transfer(fx, 1, PUSH, 0, 0);
    x[1] = fx_transfer(fx, 2, PUSH, 0, 0); /* step 2: waits for its gate */
    psrti_client_submit(fx->client, &op, x, 2);
    fx_progress(fx);
    size_t before = fx->sends;
    fx_owner(fx, 1, 0);
    cr_assert_eq(fx_count(fx, PSRTI_T_PUSH, before), 0u);
    int found = 0;
    for (size_t i = before; i < fx->sends; i++)
        found += fx->sent[i].hdr.type == PSRTI_T_CLOCK && fx->sent[i].hdr.table == 2 &&
                 fx->sent[i].hdr.step == 2 && fx->sent[i].owner == 0;
    cr_assert_eq(found, 1);
    cr_assert_eq(op.result.status, PSRT_ERR_SHARD_LOST);
    free(op.text);
    fx_close(fx);
}

Test(client, a_refused_op_moves_no_clock)
{
    fx_t *fx = fx_open();
    psrti_cop_t op = { 0 };
    psrti_transfer_t x[2];
    fx_table(fx, 1, 10, NULL, 0);
    fx_table(fx, 2, 2 * FX_SLICE, NULL, 0);
    fx_owner(fx, 1, 0);
    x[0] = fx_transfer(fx, 1, PUSH, 0, 0);
    x[1] = fx_transfer(fx, 2, PUSH, 0, 0);
    psrti_client_submit(fx->client, &op, x, 2);
    fx_progress(fx);
    fx_ended(fx, &op, PSRT_ERR_SHARD_LOST);
    cr_assert_eq(fx->sends, 0u);
    cr_assert_eq(psrti_ctable_next_step(fx->table[1]), 0u);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

Test(client, a_failed_client_refuses_everything)
{
    fx_t *fx = fx_open();
    psrti_cop_t op, later;
    fx_table(fx, 1, 10, NULL, 0);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    psrti_client_fail(fx->client, PSRT_ERR_COORDINATOR_LOST, "it was silent");
    fx_ended(fx, &op, PSRT_ERR_COORDINATOR_LOST);
    fx_submit(fx, &later, 1, PULL, 0, 0);
    fx_ended(fx, &later, PSRT_ERR_COORDINATOR_LOST);
    cr_assert_eq(psrti_client_outstanding(fx->client), 0u);
    fx_close(fx);
}

/* ---- answers that do not fit ------------------------------------------------------------------- */

Test(client, odd_answers_end_nothing)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    fx_table(fx, 1, 10, "async", 0);
    fx_submit(fx, &op, 1, PULL, 0, 0);
    cr_assert_eq(fx_ack(fx, 0, PSRT_OK, PSRTI_F_APPLIED, 1), PSRT_RX_BAD, "a pull wants a value");
    fx_send_t *s = &fx->sent[0];
    const psrt_hdr_t good = s->hdr;
    s->hdr.length = 9;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_BAD);
    s->hdr = good;
    s->hdr.offset = 1;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_BAD);
    s->hdr = good;
    s->hdr.vshard = 8;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_BAD);
    s->hdr = good;
    s->hdr.term = 0;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_DONE, "of a lower term");
    s->hdr = good;
    s->hdr.table = 2;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_DONE);
    s->hdr = good;
    s->owner = 1;
    cr_assert_eq(fx_value(fx, 0, 1, 1), PSRT_RX_DONE, "of another owner");
    s->owner = 0;
    psrt_msg_t m = { .hdr = { .type = PSRTI_T_PUSH } };
    cr_assert_eq(psrti_client_msg(fx->client, 0, &m), PSRT_RX_BAD);
    cr_assert_null(psrti_client_completed(fx->client));
    fx_value(fx, 0, 1, 1);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}
