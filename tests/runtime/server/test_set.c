/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters that are set for a step, at one owner. One worker pushes ones with "sum", so that a
 * step takes the learning rate away from every element. */
#include <string.h>

#include "fixture.h"

#define NEXT PSRT_STEP_NEXT

static fx_t *one_worker(const char *optimizer, const char *consistency)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, optimizer, consistency, consistency ? NULL : "sum", NULL, 0);
    return fx;
}

static uint64_t prepare(fx_t *fx, uint64_t number, const char *key, double value, uint64_t from)
{
    uint64_t step = 12345;
    cr_assert_eq(psrti_shard_set_prepare(fx->shard, number, 1, key, value, from, &step), PSRT_OK,
                 "%s", psrt_last_error());
    return step;
}

/* Both phases, as if all servers were fine with it. */
static void set(fx_t *fx, uint64_t number, const char *key, double value, uint64_t from)
{
    cr_assert(prepare(fx, number, key, value, from) <= from);
    psrti_shard_set_end(fx->shard, number, 1, from);
}

static void push_steps(fx_t *fx, uint64_t from, uint64_t to)
{
    for (uint64_t n = from; n < to; n++)
        fx_push(fx, 0, 1, n, 1, 0);
    cr_assert_eq(fx_version(fx, 1), to);
}

/* Pushes steps `from` to `to` - 1; their learning rates must have this sum. */
static void rates(fx_t *fx, uint64_t from, uint64_t to, double sum)
{
    float before = fx_value(fx, 1, 0);
    push_steps(fx, from, to);
    cr_assert_float_eq(before - fx_value(fx, 1, 0), sum, 1e-5, "steps %d to %d took %g, not %g",
                       (int)from, (int)to - 1, before - fx_value(fx, 1, 0), sum);
}

Test(set, holds_from_its_step_on)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    set(fx, 1, "lr", 0.5, 2);
    rates(fx, 0, 2, 2.0); /* steps before */
    rates(fx, 2, 5, 1.5); /* its step and later ones */
    fx_close(fx);
}

Test(set, nothing_is_closed_while_it_is_not_decided)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    push_steps(fx, 0, 3);
    cr_assert_eq(prepare(fx, 7, "lr", 0.25, NEXT), 3u, "the lowest open step");
    fx_push(fx, 0, 1, 3, 1, 0);
    fx_push(fx, 0, 1, 4, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 3u);
    psrti_shard_set_end(fx->shard, 7, 1, 4); /* another server was a step ahead */
    cr_assert_eq(fx_version(fx, 1), 5u);
    cr_assert_float_eq(fx_value(fx, 1, 0), -(3 + 1 + 0.25f), 0.0);
    fx_close(fx);
}

Test(set, steps_below_go_on_while_it_is_not_decided)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    cr_assert_eq(prepare(fx, 1, "lr", 0.5, 2), 0u);
    push_steps(fx, 0, 2);
    fx_push(fx, 0, 1, 2, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 2u);
    psrti_shard_set_end(fx->shard, 1, 0, 0);
    cr_assert_eq(fx_version(fx, 1), 3u);
    cr_assert_float_eq(fx_value(fx, 1, 0), -3.0f, 0.0, "it was given up");
    fx_close(fx);
}

Test(set, a_step_that_was_closed_is_told)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    push_steps(fx, 0, 3);
    cr_assert_eq(prepare(fx, 1, "lr", 0.5, 2), 3u);
    psrti_shard_set_end(fx->shard, 1, 0, 0);
    rates(fx, 3, 4, 1.0);
    fx_close(fx);
}

Test(set, the_last_one_holds_from_its_step_on)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    set(fx, 1, "lr", 0.5, 5);
    set(fx, 2, "lr", 0.25, 3);
    set(fx, 3, "lr", 2, 7);
    rates(fx, 0, 3, 3.0);
    rates(fx, 3, 7, 1.0); /* also at 5, which was set before */
    rates(fx, 7, 8, 2.0);
    set(fx, 4, "lr", 4, 8);
    rates(fx, 8, 9, 4.0);
    fx_close(fx);
}

Test(set, hyper_parameters_are_apart)
{
    fx_t *fx = one_worker("momentum:lr=1,momentum=0.5", NULL);
    set(fx, 1, "momentum", 0, 2);
    set(fx, 2, "lr", 2, 3);
    rates(fx, 0, 2, 1 + 1.5);
    rates(fx, 2, 3, 1.0); /* no momentum */
    rates(fx, 3, 4, 2.0);
    fx_close(fx);
}

Test(set, a_learning_rate_with_a_schedule_is_its_base)
{
    fx_t *fx = one_worker("sgd:lr=1,schedule=step,period=2,gamma=0.5", NULL);
    set(fx, 1, "lr", 8, 3);
    rates(fx, 0, 3, 1 + 1 + 0.5);
    rates(fx, 3, 6, 4 + 2 + 2);
    set(fx, 2, "lr", 16, 6);
    rates(fx, 6, 7, 2.0);
    fx_close(fx);
}

/* The slices of a table close their steps one by one. */
Test(set, each_slice_uses_it_for_the_same_step)
{
    enum { N = PSRTI_SLICE_ELEMS };
    static float ones[N];
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 2 * N, "sgd:lr=1", NULL, "sum", NULL, 0);
    for (size_t i = 0; i < N; i++)
        ones[i] = 1;
    for (uint64_t step = 0; step < 2; step++) { /* of the first slice alone */
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, step, 0, N, PSRTI_F_END);
        fx_send(fx, 0, &h, ones);
    }
    cr_assert_eq(prepare(fx, 1, "lr", 0.5, NEXT), 2u, "the slice that is ahead");
    psrti_shard_set_end(fx->shard, 1, 1, 3);
    for (uint64_t slice = 0; slice < 2; slice++)
        for (uint64_t step = slice ? 0 : 2; step < 5; step++) {
            psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, step, slice * N, N, PSRTI_F_END);
            fx_send(fx, 0, &h, ones);
        }
    cr_assert_float_eq(fx_value(fx, 1, 0), -4.0f, 0.0);
    cr_assert_float_eq(fx_value(fx, 1, N), -4.0f, 0.0);
    fx_close(fx);
}

Test(set, a_repeated_question_is_answered_again)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    push_steps(fx, 0, 2);
    cr_assert_eq(prepare(fx, 5, "lr", 0.5, NEXT), 2u);
    fx_push(fx, 0, 1, 2, 1, 0);
    cr_assert_eq(prepare(fx, 5, "lr", 0.5, NEXT), 2u);
    psrti_shard_set_end(fx->shard, 5, 1, 2);
    psrti_shard_set_end(fx->shard, 5, 1, 2); /* told again */
    cr_assert_float_eq(fx_value(fx, 1, 0), -2.5f, 0.0);
    fx_close(fx);
}

Test(set, holds_of_others_end)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    prepare(fx, 5, "lr", 0.5, NEXT);
    fx_push(fx, 0, 1, 0, 1, 0);
    psrti_shard_set_end(fx->shard, 4, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 0u, "the end of an older one is not meant");
    cr_assert_eq(prepare(fx, 6, "lr", 0.5, 3), 1u, "the next question ends the hold");
    cr_assert_eq(fx_version(fx, 1), 1u);
    push_steps(fx, 1, 3);
    fx_push(fx, 0, 1, 3, 1, 0);
    cr_assert_eq(fx_version(fx, 1), 3u);
    psrti_shard_set_end(fx->shard, 9, 1, 3);
    cr_assert_eq(fx_version(fx, 1), 4u, "a higher number ends it");
    cr_assert_float_eq(fx_value(fx, 1, 0), -4.0f, 0.0, "and changes nothing");
    fx_close(fx);
}

Test(set, tables_that_are_not_sync_take_it_at_once)
{
    static const char *const consistency[] = { "async", "ssp:1" };
    for (int i = 0; i < 2; i++) {
        fx_t *fx = one_worker("sgd:lr=1", consistency[i]);
        uint64_t step;
        fx_push(fx, 0, 1, 0, 1, 0);
        cr_assert_eq(psrti_shard_set_prepare(fx->shard, 1, 1, "lr", 0.5, 3, &step),
                     PSRT_ERR_INVALID);
        cr_assert_eq(prepare(fx, 2, "lr", 0.5, NEXT), 0u);
        fx_push(fx, 0, 1, 1, 1, 0);
        cr_assert_float_eq(fx_value(fx, 1, 0), -2.0f, 0.0, "not decided, and not held up");
        psrti_shard_set_end(fx->shard, 2, 1, 0);
        fx_push(fx, 0, 1, 2, 1, 0);
        cr_assert_float_eq(fx_value(fx, 1, 0), -2.5f, 0.0);
        fx_close(fx);
    }
}

static void refused(fx_t *fx, const char *key, double value, const char *says)
{
    uint64_t step;
    cr_assert_eq(psrti_shard_set_prepare(fx->shard, 1, 1, key, value, NEXT, &step),
                 PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), says), "%s", psrt_last_error());
}

Test(set, what_the_optimizer_does_not_take_holds_nothing)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    uint64_t step;
    refused(fx, "rl", 0.5, "table t1: optimizer sgd has no hyper-parameter \"rl\": lr, ");
    refused(fx, "lr", -1, "table t1: optimizer sgd with lr=-1: lr");
    rates(fx, 0, 2, 2.0);
    fx_table(fx, 2, 4, NULL, NULL, "sum", NULL, 0);
    cr_assert_eq(psrti_shard_set_prepare(fx->shard, 1, 2, "lr", 1, NEXT, &step), PSRT_ERR_INVALID);
    cr_assert_eq(psrti_shard_set_prepare(fx->shard, 1, 77, "lr", 1, NEXT, &step), PSRT_OK,
                 "no part of it is here");
    cr_assert_eq(step, 0u);
    psrti_shard_set_end(fx->shard, 1, 1, 5);
    fx_close(fx);
}

Test(set, what_is_set_for_later_has_a_limit)
{
    fx_t *fx = one_worker("sgd:lr=1", NULL);
    uint64_t step;
    for (uint64_t n = 1; n <= 256; n++)
        set(fx, n, "lr", 1.0 / (double)n, n);
    cr_assert_eq(psrti_shard_set_prepare(fx->shard, 300, 1, "lr", 1, 300, &step), PSRT_ERR_LIMIT);
    double sum = 1;
    for (int n = 1; n < 100; n++)
        sum += 1.0 / n;
    rates(fx, 0, 100, sum);
    fx_close(fx);
}

Test(set, a_view_ends_no_hold)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, "sgd:lr=1", NULL, "sum", NULL, 0);
    prepare(fx, 1, "lr", 0.5, NEXT);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_worker_dies(fx, 1);
    cr_assert_eq(fx_version(fx, 1), 0u);
    psrti_shard_set_end(fx->shard, 1, 1, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), -0.5f, 0.0);
    fx_close(fx);
}
