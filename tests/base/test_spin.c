/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spin.h"

#include "support/test.h"

#define MAX_NS 500000u

/* How long a wait spins before it sleeps; polls are 1 us apart. */
static uint64_t spun(psrti_spin_t *s)
{
    uint64_t start = 9000000, now = start;
    psrti_spin_begin(s);
    while (psrti_spin_goes_on(s, now))
        now += 1000;
    cr_assert_eq(s->start, 0u); /* the next wait is another spin */
    return now - start;
}

/* Waits that sleep at once, until one spins again. */
static unsigned wary_waits(psrti_spin_t *s)
{
    unsigned n = 0;
    while (spun(s) != MAX_NS)
        n++;
    return n;
}

static void others_run(psrti_spin_t *s, uint64_t ns)
{
    s->switches = 7;
    psrti_spin_learn(s, ns, 1, 8);
}

Test(spin, spins_for_the_whole_time_while_it_is_alone)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    cr_assert_eq(spun(&s), MAX_NS);
    cr_assert_eq(spun(&s), MAX_NS);
}

Test(spin, one_core_leaves_no_time_to_spin)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 1);
    cr_assert_eq(spun(&s), PSRTI_SPIN_ALONE_NS);
    psrti_spin_init(&s, 0, 2);
    cr_assert_eq(psrti_spin_again(&s), 0);
}

/* The hypervisor took the core: nobody here would have used it. */
Test(spin, a_gap_alone_changes_nothing)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    s.switches = 7;
    psrti_spin_learn(&s, 2 * PSRTI_SPIN_GAP_NS, 1, 7);
    cr_assert_eq(wary_waits(&s), 0u);
}

Test(spin, short_work_of_others_changes_nothing)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    others_run(&s, PSRTI_SPIN_GAP_NS);
    cr_assert_eq(wary_waits(&s), 0u);
}

Test(spin, the_more_often_others_run_the_more_waits_sleep)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    for (unsigned n = 1; n <= PSRTI_SPIN_WARY; n *= 2) {
        others_run(&s, PSRTI_SPIN_GAP_NS + 1);
        cr_assert_eq(wary_waits(&s), n);
    }
    others_run(&s, PSRTI_SPIN_GAP_NS + 1);
    cr_assert_eq(wary_waits(&s), PSRTI_SPIN_WARY);
    psrti_spin_learn(&s, 1000, 1, 0); /* nobody there */
    others_run(&s, PSRTI_SPIN_GAP_NS + 1);
    cr_assert_eq(wary_waits(&s), 1u);
}

/* ---- in a crowd --------------------------------------------------------------------------------- */

static psrti_spin_t crowd(void)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    psrti_spin_crowd(&s, 3);
    return s;
}

/* Offers of a wait in which nothing comes; each takes so long. */
static unsigned offers(psrti_spin_t *s, uint64_t took)
{
    uint64_t now = 9000000;
    unsigned n = 0;
    psrti_spin_begin(s);
    while (psrti_spin_goes_on(s, now)) {
        n += psrti_spin_offers(s, now) != 0;
        s->switches = 7;
        psrti_spin_learn(s, took, now += took, 8);
    }
    return n;
}

Test(spin, as_many_pollers_as_cores_are_no_crowd)
{
    psrti_spin_t s = crowd();
    psrti_spin_crowd(&s, 2); /* one has left */
    cr_assert_eq(psrti_spin_offers(&s, s.start), 0);
    cr_assert_eq(spun(&s), MAX_NS);
}

Test(spin, each_poll_in_a_crowd_is_an_offer_until_it_sleeps)
{
    psrti_spin_t s = crowd();
    cr_assert_eq(offers(&s, 3000), PSRTI_SPIN_CROWD_OFFERS);
    cr_assert_eq(offers(&s, 3000), PSRTI_SPIN_CROWD_OFFERS); /* the next wait is another spin */
}

Test(spin, a_crowd_that_works_does_not_make_wary)
{
    psrti_spin_t s = crowd();
    cr_assert_eq(offers(&s, 4 * PSRTI_SPIN_GAP_NS), 1 + (MAX_NS - 1) / (4 * PSRTI_SPIN_GAP_NS));
    cr_assert_eq(s.wary, 0u);
}

Test(spin, in_a_crowd_one_that_computes_gets_no_more_offers)
{
    psrti_spin_t s = crowd();
    psrti_spin_learn(&s, PSRTI_SPIN_CROWD_GAP_NS + 1, 1, 8);
    cr_assert_eq(wary_waits(&s), 1u);
}

Test(spin, who_must_not_spin_does_not_in_a_crowd_either)
{
    psrti_spin_t s;
    psrti_spin_init(&s, 0, 2);
    psrti_spin_crowd(&s, 9);
    cr_assert_eq(psrti_spin_again(&s), 0);
}
