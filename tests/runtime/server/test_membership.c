/* SPDX-License-Identifier: Apache-2.0 */
/* One owner while workers die and join. */
#include "base/util.h"
#include "fixture.h"

Test(membership, the_dead_are_not_waited_for_and_the_divisor_is_who_contributed)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "average", NULL, 0);
    fx_push(fx, 0, 1, 0, 3, 0);
    fx_push(fx, 1, 1, 0, 3, 0);
    fx_worker_dies(fx, 2);
    cr_assert_eq(fx_version(fx, 1), 1u, "the death completes the step");
    cr_assert_float_eq(fx_value(fx, 1, 0), 3.0f, 0.0, "two contributed");
    fx_push(fx, 0, 1, 1, 3, 0);
    fx_push(fx, 1, 1, 1, 3, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 6.0f, 0.0);
    fx_close(fx);
}

Test(membership, what_the_dead_contributed_counts)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "average", NULL, 0);
    fx_push(fx, 2, 1, 0, 9, 0);
    fx_worker_dies(fx, 2);
    fx_push(fx, 0, 1, 0, 3, 0);
    cr_assert_eq(fx_version(fx, 1), 0u);
    fx_push(fx, 1, 1, 0, 3, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 5.0f, 0.0, "three contributed");
    fx_close(fx);
}

static uint64_t reported;
static void report(void *arg, uint32_t table, uint64_t open_step)
{
    (void)arg;
    cr_assert_eq(table, 1u);
    reported = open_step;
}

Test(membership, prepare_holds_above_the_open_step)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_worker_dies(fx, 2);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_push(fx, 0, 1, 1, 1, 0); /* open: 0 and 1 */
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 1u);
    fx_push(fx, 1, 1, 0, 1, 0);
    fx_push(fx, 1, 1, 1, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 2u, "the reported ones close");
    fx_push(fx, 0, 1, 2, 1, 0);
    fx_push(fx, 1, 1, 2, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 2u, "the next one waits for the view");
    fx_worker_joins(fx, 2, 2);
    cr_assert_eq(fx_version(fx, 1), 2u, "which makes it wait for the joiner");
    fx_push(fx, 2, 1, 2, 10, 0);
    cr_assert_eq(fx_version(fx, 1), 3u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 16.0f, 0.0);
    fx_close(fx);
}

Test(membership, prepare_holds_the_clock_of_ssp_too)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, "ssp:1", NULL, NULL, 0);
    fx_worker_dies(fx, 1);
    fx_clock(fx, 0, 1, 0);
    fx_clock(fx, 0, 1, 1);
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 1u);
    for (uint64_t n = 2; n < 4; n++)
        fx_clock(fx, 0, 1, n);
    cr_assert_not_null(fx_pull(fx, 0, 1, 2));
    cr_assert_null(fx_pull(fx, 0, 1, 3), "the joiner may start at 2");
    fx_forget(fx);
    fx_worker_joins(fx, 1, 2);
    cr_assert_null(fx_last(fx, 0));
    fx_clock(fx, 1, 1, 2);
    cr_assert_not_null(fx_last(fx, 0));
    fx_close(fx);
}

/* All others have made their last step, and stay: what a joiner pulls first must not wait for another. */
Test(membership, a_joiner_waits_for_no_step_after_the_last)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    for (uint64_t n = 0; n < 3; n++)
        for (uint32_t w = 0; w < 2; w++)
            fx_push(fx, w, 1, n, 1, 0);
    for (int again = 0; again < 2; again++) {
        fx_worker_dies(fx, 1);
        psrti_shard_prepare(fx->shard, report, NULL);
        cr_assert_eq(reported, 2u, "step 3 is open, and begun by nobody");
        fx_worker_joins(fx, 1, 3);
        cr_assert_not_null(fx_pull(fx, 1, 1, 3));
    }
    fx_push(fx, 1, 1, 3, 10, 0);
    cr_assert_eq(fx_version(fx, 1), 3u, "the other one is a member");
    fx_worker_dies(fx, 0); /* or leaves */
    cr_assert_eq(fx_version(fx, 1), 4u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 16.0f, 0.0);
    fx_close(fx);
}

/* The same with clocks: it has the highest of them, not one more. */
Test(membership, a_joiner_of_ssp_is_not_ahead_of_the_fastest)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, "ssp:0", NULL, NULL, 0);
    for (uint64_t n = 0; n < 3; n++)
        for (uint32_t w = 0; w < 2; w++)
            fx_clock(fx, w, 1, n);
    fx_worker_dies(fx, 1);
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 2u);
    fx_worker_joins(fx, 1, 3);
    cr_assert_not_null(fx_pull(fx, 1, 1, 3));
    fx_close(fx);
}

Test(membership, another_view_ends_the_hold)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_worker_dies(fx, 2);
    fx_push(fx, 0, 1, 0, 1, 0);
    reported = 7;
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 0u);
    fx_push(fx, 1, 1, 0, 1, 0);
    for (uint64_t n = 1; n < 2; n++)
        for (uint32_t w = 0; w < 2; w++)
            fx_push(fx, w, 1, n, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 1u);
    fx_worker_dies(fx, 1); /* the joiner's coming was given up */
    cr_assert_eq(fx_version(fx, 1), 2u);
    fx_close(fx);
}

/* The joiner is not told a step of a table that nobody has begun, or that comes after Prepare. */
Test(membership, tables_that_nobody_has_begun_wait_for_the_joiner)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_worker_dies(fx, 1);
    reported = 7;
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 7u, "not reported");
    fx_table(fx, 2, 4, NULL, NULL, "sum", NULL, 0);
    for (uint32_t t = 1; t <= 2; t++) {
        fx_push(fx, 0, t, 0, 1, 0);
        cr_assert_eq(fx_version(fx, t), 0u);
    }
    fx_worker_joins(fx, 1, 0);
    for (uint32_t t = 1; t <= 2; t++) {
        cr_assert_eq(fx_version(fx, t), 0u);
        fx_push(fx, 1, t, 0, 1, 0);
        cr_assert_eq(fx_version(fx, t), 1u);
    }
    fx_close(fx);
}

Test(membership, a_joiner_counts_from_its_step)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "average", NULL, 0);
    fx_push(fx, 0, 1, 0, 2, 0);
    fx_worker_dies(fx, 1);
    fx_worker_joins(fx, 1, 3);
    for (uint64_t n = 1; n < 3; n++)
        fx_push(fx, 0, 1, n, 2, 0);
    cr_assert_eq(fx_version(fx, 1), 3u, "steps before do not wait for it");
    fx_push(fx, 0, 1, 3, 2, 0);
    cr_assert_eq(fx_version(fx, 1), 3u);
    fx_push(fx, 1, 1, 3, 4, 0);
    cr_assert_eq(fx_version(fx, 1), 4u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 9.0f, 0.0);
    fx_close(fx);
}

Test(membership, numbers_of_an_earlier_life_mean_nothing)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_push(fx, 1, 1, 0, 1, 0);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_worker_dies(fx, 1);
    fx_worker_joins(fx, 1, 1);
    fx_push(fx, 1, 1, 1, 10, 0); /* number 1 again */
    fx_push(fx, 0, 1, 1, 10, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 22.0f, 0.0);
    fx_close(fx);
}

/* Nobody will end the steps between the deaths and the joiner's first step. */
Test(membership, a_joiner_that_is_alone_is_not_stuck_behind_an_empty_step)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    for (uint64_t n = 0; n < 3; n++)
        fx_push(fx, 0, 1, n, 1, 0);
    fx_worker_dies(fx, 0);
    psrti_shard_prepare(fx->shard, report, NULL);
    cr_assert_eq(reported, 2u);
    fx_worker_joins(fx, 0, 4); /* it got further on another server */
    for (uint64_t n = 4; n < 8; n++)
        cr_assert_eq(fx_push(fx, 0, 1, n, 1, 0)->hdr.status, 0);
    cr_assert_eq(fx_version(fx, 1), 8u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 7.0f, 0.0);
    fx_close(fx);
}

/* The same, while the slice has no values yet. */
Test(membership, steps_before_a_joiner_close_when_the_first_values_come)
{
    fx_t *fx = fx_open(1);
    float v[4] = { 1, 2, 3, 4 };
    fx_table(fx, 1, 4, NULL, NULL, "sum", "rank0", 0);
    fx_worker_dies(fx, 0);
    fx_worker_joins(fx, 0, 3); /* it got further on another server */
    cr_assert_null(fx_pull(fx, 0, 1, 3));
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 0, &h, v), PSRT_RX_DONE);
    cr_assert_eq(fx_version(fx, 1), 3u);
    cr_assert_float_eq(fx_value(fx, 1, 3), 4.0f, 0.0);
    fx_close(fx);
}

/* While nobody is there to give the first values nothing waits for them; a new life gives them. */
Test(membership, what_worker_0_did_not_give_is_not_waited_for)
{
    fx_t *fx = fx_open(2);
    float v[4] = { 1, 2, 3, 4 };
    fx_table(fx, 1, 4, NULL, NULL, "sum", "rank0", 0);
    cr_assert_null(fx_pull(fx, 1, 1, 0));
    fx_worker_dies(fx, 0);
    cr_assert_eq(fx_last(fx, 1)->hdr.status, -PSRT_ERR_PEER_LOST, "the pull that waited");
    cr_assert_eq(fx_pull(fx, 1, 1, 0)->hdr.status, -PSRT_ERR_PEER_LOST);
    cr_assert_eq(fx_push(fx, 1, 1, 0, 5, 0)->hdr.status, -PSRT_ERR_PEER_LOST);
    cr_assert_eq(fx_clock(fx, 1, 1, 0)->hdr.status, 0, "the step of the refused push");
    fx_worker_joins(fx, 0, 1);
    cr_assert_null(fx_pull(fx, 1, 1, 1));
    cr_assert_eq(fx_push(fx, 1, 1, 1, 5, 0)->hdr.status, -PSRT_ERR_AGAIN);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 0, &h, v), PSRT_RX_DONE);
    cr_assert_eq(fx_version(fx, 1), 1u, "step 0 closes, empty");
    cr_assert_float_eq(((float *)fx_last(fx, 1)->copy)[3], 4.0f, 0.0);
    fx_push(fx, 1, 1, 1, 5, 0);
    fx_push(fx, 0, 1, 1, 5, 0);
    cr_assert_float_eq(fx_value(fx, 1, 3), 14.0f, 0.0);
    fx_close(fx);
}

/* In rank order the dead worker's turn may have passed before its new life contributes. */
Test(membership, a_joiners_contribution_is_added_in_deterministic_mode_too)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "average", NULL, 1);
    fx_worker_dies(fx, 0);
    fx_push(fx, 1, 1, 0, 3, 0);
    psrti_shard_prepare(fx->shard, report, NULL);
    fx_push(fx, 1, 1, 1, 3, 0);
    fx_worker_joins(fx, 0, 1);
    fx_push(fx, 2, 1, 0, 3, 0);
    fx_push(fx, 0, 1, 1, 6, 0);
    fx_push(fx, 2, 1, 1, 3, 0);
    cr_assert_eq(fx_version(fx, 1), 2u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 7.0f, 0.0);
    fx_close(fx);
}

/* A server that missed two late joins is told both with the same view. */
Test(membership, several_joins_may_come_with_one_view)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_worker_dies(fx, 1);
    fx_worker_dies(fx, 2);
    fx_worker_joins(fx, 1, 1);
    fx->view->workers[2].alive = 1; /* the shard shares this view: as if it had come so */
    uint32_t table = 1;
    uint64_t from = 2;
    psrti_shard_view(fx->shard, fx->view, 2, 1, &table, &from);
    fx_push(fx, 0, 1, 0, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 1u, "nobody else counts for step 0");
    fx_push(fx, 0, 1, 1, 1, 0);
    fx_push(fx, 1, 1, 1, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 2u, "worker 2 counts from step 2");
    fx_push(fx, 0, 1, 2, 1, 0);
    fx_push(fx, 1, 1, 2, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 2u);
    fx_close(fx);
}
