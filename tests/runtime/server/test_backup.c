/* SPDX-License-Identifier: Apache-2.0 */
/* Backup workers: a step closes with the first N-b contributions, the others' are late. */
#include "base/util.h"
#include "fixture.h"

static fx_t *open_with(uint32_t workers, const char *consistency, const char *reduce)
{
    fx_t *fx = fx_open(workers);
    fx_table(fx, 1, 4, NULL, consistency, reduce, NULL, 0);
    return fx;
}

static void expect(fx_t *fx, uint64_t version, float value)
{
    cr_assert_eq(fx_version(fx, 1), version, "version %llu, not %llu",
                 (unsigned long long)fx_version(fx, 1), (unsigned long long)version);
    cr_assert_float_eq(fx_value(fx, 1, 0), value, 0.0, "%g, not %g", (double)fx_value(fx, 1, 0),
                       (double)value);
}

Test(backup, the_first_contributions_close_the_step_and_are_its_divisor)
{
    fx_t *fx = open_with(3, "sync:backup=1", "average");
    fx_push(fx, 2, 1, 0, 3, 0);
    expect(fx, 0, 0);
    fx_push(fx, 0, 1, 0, 5, 0);
    expect(fx, 1, 4); /* (3 + 5) / 2 */
    fx_reply_t *r = fx_push(fx, 1, 1, 0, 100, 0);
    cr_assert(r->hdr.flags & PSRTI_F_LATE);
    cr_assert_eq(r->hdr.step, 1u, "it is told where to go on");
    expect(fx, 1, 4);
    cr_assert_eq(fx_counts(fx).late, 1u);
    fx_push(fx, 1, 1, 1, 1, 0); /* and is among the first of the next */
    fx_push(fx, 0, 1, 1, 3, 0);
    expect(fx, 2, 6);
    fx_close(fx);
}

Test(backup, a_late_push_pull_brings_the_values)
{
    fx_t *fx = open_with(3, "sync:backup=2", "sum");
    fx_push(fx, 0, 1, 0, 7, 0);
    expect(fx, 1, 7); /* N-b is one */
    fx_reply_t *r = fx_push(fx, 1, 1, 0, 100, PSRTI_F_PULL);
    cr_assert_eq(r->hdr.type, PSRTI_T_VALUE);
    cr_assert(r->hdr.flags & PSRTI_F_LATE);
    cr_assert_float_eq(((float *)r->copy)[0], 7.0f, 0.0);
    fx_close(fx);
}

Test(backup, the_next_step_may_be_complete_when_its_turn_comes)
{
    fx_t *fx = open_with(3, "sync:backup=1", "sum");
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_push(fx, 0, 1, 1, 10, 0);
    fx_push(fx, 1, 1, 1, 20, 0); /* it skipped step 0 */
    expect(fx, 0, 0);
    fx_push(fx, 2, 1, 0, 2, 0);
    expect(fx, 2, 33);
    fx_close(fx);
}

/* Whole or not at all: the ranges of a worker that has not ended the step are no contribution. */
Test(backup, a_worker_in_the_middle_of_its_ranges_is_late_as_a_whole)
{
    fx_t *fx = open_with(3, "sync:backup=1", "average");
    const float g[4] = { 100, 100, 100, 100 };
    fx_range(fx, 0, 1, 0, 0, g, 2);
    fx_range(fx, 1, 1, 0, 0, g, 2);
    fx_range(fx, 1, 1, 0, 1, g, 3);
    fx_clock(fx, 1, 1, 0);
    expect(fx, 0, 0);
    fx_push(fx, 2, 1, 0, 50, 0);
    expect(fx, 1, 75); /* (100 + 50) / 2 */
    cr_assert_float_eq(fx_value(fx, 1, 1), 125.0f, 0.0, "element 1 was pushed twice");
    cr_assert(fx_range(fx, 0, 1, 0, 2, g, 2)->hdr.flags & PSRTI_F_LATE);
    fx_clock(fx, 0, 1, 0);
    expect(fx, 1, 75);
    fx_close(fx);
}

Test(backup, ranges_that_end_first_are_the_contribution)
{
    fx_t *fx = open_with(3, "sync:backup=1", "sum");
    const float g[4] = { 1, 2, 3, 4 };
    fx_range(fx, 0, 1, 0, 0, g, 2);
    fx_push(fx, 1, 1, 0, 10, 0);
    expect(fx, 0, 0);
    fx_clock(fx, 0, 1, 0);
    expect(fx, 1, 11);
    cr_assert_float_eq(fx_value(fx, 1, 3), 10.0f, 0.0);
    fx_close(fx);
}

Test(backup, more_backups_than_workers_never_close_an_empty_step)
{
    fx_t *fx = open_with(2, "sync:backup=5", "sum");
    fx_worker_dies(fx, 1);
    expect(fx, 0, 0);
    fx_worker_joins(fx, 1, 2); /* worker 0 counts for steps 0 and 1, and may still end them */
    expect(fx, 0, 0);
    fx_push(fx, 0, 1, 0, 1, 0);
    expect(fx, 1, 1);
    fx_push(fx, 0, 1, 1, 1, 0);
    expect(fx, 2, 2);
    fx_push(fx, 1, 1, 2, 1, 0);
    expect(fx, 3, 3);
    fx_close(fx);
}

/* N is who lives: of two that are left, the step waits for one. */
Test(backup, a_death_is_not_a_backup)
{
    fx_t *fx = open_with(4, "sync:backup=1", "average");
    fx_push(fx, 0, 1, 0, 4, 0);
    fx_push(fx, 3, 1, 0, 8, 0);
    expect(fx, 0, 0);
    fx_worker_dies(fx, 3);
    expect(fx, 0, 0); /* two of three live ones are missing */
    fx_push(fx, 1, 1, 0, 6, 0);
    expect(fx, 1, 6); /* three contributed */
    fx_worker_dies(fx, 2);
    fx_push(fx, 1, 1, 1, 1, 0);
    expect(fx, 2, 7);
    fx_close(fx);
}

Test(backup, a_join_holds_the_steps)
{
    fx_t *fx = open_with(3, "sync:backup=1", "sum");
    fx_worker_dies(fx, 2);
    psrti_shard_prepare(fx->shard, NULL, NULL); /* nothing begun: nothing is reported */
    fx_push(fx, 0, 1, 0, 1, 0);
    expect(fx, 0, 0);
    fx_worker_joins(fx, 2, 0);
    expect(fx, 0, 0); /* three count now, two must end it */
    fx_push(fx, 2, 1, 0, 2, 0);
    expect(fx, 1, 3);
    fx_close(fx);
}

static fx_reply_t *skip_to(fx_t *fx, uint32_t rank, uint64_t step)
{
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_CLOCK, 1, step, 0, 0, PSRTI_F_LATE);
    cr_assert_eq(fx_send(fx, rank, &h, NULL), PSRT_RX_DONE);
    return fx_last(fx, rank);
}

/* Worker 0 brought another slice to version 3 and died; worker 1, late there, goes on from step 3.
 * Nobody will end steps 1 and 2 here. */
Test(backup, steps_that_a_late_worker_skips_do_not_wait_for_it)
{
    fx_t *fx = open_with(2, "sync:backup=1", "sum");
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_worker_dies(fx, 0);
    expect(fx, 1, 1);
    fx_push(fx, 1, 1, 3, 10, 0);
    expect(fx, 1, 1);
    cr_assert_eq(skip_to(fx, 1, 3)->hdr.status, 0);
    expect(fx, 3, 1);
    fx_push(fx, 1, 1, 3, 10, 0);
    expect(fx, 4, 11);
    cr_assert_eq(skip_to(fx, 1, 2)->hdr.status, 0); /* an old one changes nothing */
    expect(fx, 4, 11);
    fx_close(fx);
}

Test(backup, what_a_worker_pushed_to_a_step_that_it_skips_counts)
{
    fx_t *fx = open_with(4, "sync:backup=1", "sum");
    fx_push(fx, 1, 1, 0, 1, 0);
    skip_to(fx, 1, 5);
    expect(fx, 0, 0);
    fx_push(fx, 0, 1, 0, 2, 0);
    expect(fx, 0, 0); /* 2 and 3 are missing */
    fx_push(fx, 2, 1, 0, 4, 0);
    expect(fx, 1, 7);
    fx_push(fx, 1, 1, 1, 8, 0); /* was under way when it skipped */
    fx_push(fx, 2, 1, 1, 16, 0);
    fx_push(fx, 3, 1, 1, 32, 0);
    expect(fx, 2, 63);
    fx_close(fx);
}

/* It is one of the backup workers of the steps that it skips: the others are waited for as before. */
Test(backup, a_worker_that_skips_is_a_backup)
{
    fx_t *fx = open_with(3, "sync:backup=1", "sum");
    skip_to(fx, 2, 2);
    fx_push(fx, 0, 1, 0, 1, 0);
    expect(fx, 0, 0);
    fx_push(fx, 1, 1, 0, 2, 0);
    expect(fx, 1, 3);
    skip_to(fx, 1, 2); /* nobody but 0 can end step 1 */
    expect(fx, 1, 3);
    fx_push(fx, 0, 1, 1, 4, 0);
    expect(fx, 2, 7);
    fx_push(fx, 2, 1, 2, 8, 0);
    expect(fx, 2, 7);
    fx_push(fx, 1, 1, 2, 16, 0);
    expect(fx, 3, 31);
    fx_close(fx);
}

Test(backup, a_skip_that_no_worker_would_send_is_refused)
{
    fx_t *fx = open_with(2, "sync:backup=1", "sum");
    fx_table(fx, 2, 4, NULL, "sync", NULL, NULL, 0);
    psrt_hdr_t far = fx_hdr(fx, 0, PSRTI_T_CLOCK, 1, 1ull << 40, 0, 0, PSRTI_F_LATE);
    cr_assert_eq(fx_send(fx, 0, &far, NULL), PSRT_RX_BAD);
    psrt_hdr_t other = fx_hdr(fx, 0, PSRTI_T_CLOCK, 2, 2, 0, 0, PSRTI_F_LATE);
    cr_assert_eq(fx_send(fx, 0, &other, NULL), PSRT_RX_BAD, "every worker is waited for");
    expect(fx, 0, 0);
    fx_close(fx);
}

/* ---- specifications ---------------------------------------------------------------------------- */

static psrt_status_t make(const char *consistency, int deterministic, psrti_table_spec_t *spec)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = 4;
    p.consistency = consistency, p.deterministic = deterministic;
    return psrti_table_spec_make("t", &p, spec);
}

Test(backup, specification)
{
    static const char *const bad[] = { "sync:1",         "sync:backup=-1",
                                       "sync:backup=x",  "sync:backup=1,x=2",
                                       "async:backup=1", "ssp:backup=1",
                                       "sync:backups=1", "sync:backup=1000001" };
    psrti_table_spec_t a, b;
    char why[512];
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        cr_assert_eq(make(bad[i], 0, &a), PSRT_ERR_INVALID, "%s", bad[i]);
        cr_assert_not_null(strstr(psrt_last_error(), "table t"), "%s", psrt_last_error());
    }
    cr_assert_eq(make("sync:backup=1", 1, &a), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "deterministic"), "%s", psrt_last_error());
    cr_assert_eq(make("sync:backup=2", 0, &a), PSRT_OK);
    cr_assert_eq(psrti_table_spec_check(&a), PSRT_OK);
    cr_assert_eq(make("sync", 0, &b), PSRT_OK);
    cr_assert_eq(psrti_table_spec_compare(&a, "worker:0", &b, "worker:1", why, sizeof why),
                 PSRT_ERR_MISMATCH);
    cr_assert_not_null(strstr(why, "sync:backup=2 on worker:0, but sync on worker:1"), "%s", why);
    cr_assert_eq(make("sync:backup=0", 0, &a), PSRT_OK);
    cr_assert_eq(psrti_table_spec_compare(&a, "worker:0", &b, "worker:1", why, sizeof why),
                 PSRT_OK);
}
