/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's model: which contributions it finds behind the values of a slice. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "support/test.h"

/* One worker each for three contributions to step 0 and two to step 1, of which only the first is
 * sure to be in; a table of one element that is their sum. */
typedef struct fixture {
    sim_t *sim;
    sim_table_t *table;
    sim_slice_t *slice;
    sim_unit_t unit[5];
    double grad[5];
} fixture_t;

static void setup(fixture_t *f, const double grad[5])
{
    static const uint64_t step[5] = { 0, 0, 0, 1, 1 };
    memset(f, 0, sizeof *f);
    f->sim = calloc(1, sizeof *f->sim);
    f->table = &f->sim->table[0];
    f->table->spec.consistency = PSRTI_SYNC;
    f->table->spec.acc_dtype = PSRT_F64;
    f->table->nslices = 1;
    f->slice = &f->table->slice[0];
    f->slice->len = 1;
    f->slice->state = calloc(SLICE, sizeof *f->slice->state);
    sim_values(f->slice, 0)[0] = 8;
    for (int i = 0; i < 5; i++) {
        f->grad[i] = grad[i];
        f->unit[i] = (sim_unit_t){ .next = i < 4 ? &f->unit[i + 1] : NULL,
                                   .rank = i % 3,
                                   .ok = i == 0,
                                   .step = step[i],
                                   .count = 1,
                                   .grad = &f->grad[i] };
    }
    f->slice->units = f->unit;
}

static void teardown(fixture_t *f)
{
    for (uint64_t v = 0; v < f->slice->capacity; v++)
        free(f->slice->versions[v]);
    free(f->slice->versions);
    free(f->slice->state);
    free(f->sim);
}

static int is_explained(fixture_t *f, uint64_t version, double value)
{
    double seen[SLICE] = { value };
    return sim_is_explained(f->sim, f->table, f->slice, version, seen);
}

Test(explain, finds_the_only_way_over_two_steps)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 120, 1200, 12000, 120000 });
    cr_assert(is_explained(&f, 2, 8 + 12 + 1200 + 120000));
    cr_assert_not(f.sim->given_up);
    cr_assert_eq(sim_values(f.slice, 1)[0], 8 + 12 + 1200);
    cr_assert(f.unit[0].applied && !f.unit[1].applied && f.unit[2].applied);
    cr_assert(!f.unit[3].applied && f.unit[4].applied);
    teardown(&f);
}

Test(explain, finds_nothing_behind_what_is_certain_and_missing)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 120, 1200, 12000, 120000 });
    cr_assert_not(is_explained(&f, 2, 8 + 120));
    cr_assert_not(is_explained(&f, 1, 8 + 12 + 120 + 120));
    teardown(&f);
}

/* 120 of step 0, or 80 and 40 of step 1: the value between is another, and nothing tells which. */
Test(explain, gives_up_where_two_ways_lead_to_the_values)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 120, 1200, 80, 40 });
    cr_assert(is_explained(&f, 2, 8 + 12 + 120));
    cr_assert(f.sim->given_up);
    teardown(&f);
}

/* The same two ways in one step: whichever it was, all that is kept is the same. */
Test(explain, goes_on_where_two_ways_differ_in_nothing_that_counts)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 120, 120, 12000, 120000 });
    cr_assert(is_explained(&f, 2, 8 + 12 + 120 + 12000));
    cr_assert_not(f.sim->given_up);
    cr_assert_eq(sim_values(f.slice, 1)[0], 8 + 12 + 120);
    teardown(&f);
}

/* Two pushes of worker 0 in a batch; worker 1 has two more that make the same sum. */
static void make_async(fixture_t *f)
{
    f->table->spec.consistency = PSRTI_ASYNC;
    f->unit[4].never = 1;
    for (int i = 0; i < 4; i++)
        f->unit[i].rank = i % 2;
}

Test(explain, finds_the_pushes_of_a_batch)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 120, 1200, 12000 });
    make_async(&f);
    cr_assert(is_explained(&f, 2, 8 + 12 + 1200));
    cr_assert_not(f.sim->given_up);
    cr_assert(f.unit[0].applied && !f.unit[1].applied && f.unit[2].applied);
    teardown(&f);
}

Test(explain, gives_up_where_two_pairs_of_pushes_make_the_same_sum)
{
    fixture_t f;
    setup(&f, (const double[5]){ 12, 24, 48, 36 });
    make_async(&f);
    cr_assert(is_explained(&f, 2, 8 + 60));
    cr_assert(f.sim->given_up);
    teardown(&f);
}
