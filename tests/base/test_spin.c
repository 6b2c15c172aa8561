/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spin.h"

#include "support/test.h"

#define MAX_NS 500000u

/* A spin that began at `start` and offered the core when the thread had been put aside 7 times. */
static void begin(psrti_spin_t *s, uint64_t start)
{
    s->start = s->last = start;
    s->offered = start + PSRTI_SPIN_ALONE_NS;
    s->switches = 7;
}

/* How long the spin goes on from `start` when the core is its own; polls are 1 us apart. */
static uint64_t spun(psrti_spin_t *s, uint64_t start)
{
    uint64_t now = start;
    begin(s, start);
    while (psrti_spin_decide(s, now, 7))
        now += 1000;
    cr_assert_eq(s->start, 0u); /* the next wait is another spin */
    return now - start;
}

Test(spin, spins_for_the_whole_time_while_it_is_alone)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    cr_assert_eq(spun(&s, 1000), MAX_NS);
    cr_assert_eq(spun(&s, 9000000), MAX_NS);
}

Test(spin, one_core_leaves_no_time_to_spin)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 1);
    cr_assert_eq(spun(&s, 1000), PSRTI_SPIN_ALONE_NS);
    psrti_spin_init(&s, 0, 2);
    cr_assert_eq(psrti_spin_again(&s), 0);
}

/* The hypervisor took the core: nobody here would have used it. */
Test(spin, a_gap_alone_changes_nothing)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    begin(&s, 1000);
    cr_assert(psrti_spin_decide(&s, 1000 + 2 * PSRTI_SPIN_GAP_NS, 7));
    cr_assert_eq(spun(&s, 9000000), MAX_NS);
}

Test(spin, when_others_ran_the_next_waits_sleep)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    begin(&s, 1000);
    cr_assert(psrti_spin_decide(&s, 2000, 7));
    cr_assert(!psrti_spin_decide(&s, 2001 + PSRTI_SPIN_GAP_NS, 8));
    for (unsigned i = 0; i < PSRTI_SPIN_WARY; i++)
        cr_assert_eq(spun(&s, 9000000 * (i + 1)), PSRTI_SPIN_ALONE_NS);
    cr_assert_eq(spun(&s, 1), MAX_NS);
}

/* Others that need the core for a moment only are no reason to sleep. */
Test(spin, short_work_of_others_changes_nothing)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    begin(&s, 1000);
    cr_assert(psrti_spin_decide(&s, 1000 + PSRTI_SPIN_GAP_NS, 8));
}

Test(spin, what_arrives_ends_the_spin)
{
    psrti_spin_t s;
    psrti_spin_init(&s, MAX_NS, 2);
    cr_assert(psrti_spin_again(&s));
    psrti_spin_hit(&s);
    cr_assert_eq(s.start, 0u);
}
