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
