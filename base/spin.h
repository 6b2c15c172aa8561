/* SPDX-License-Identifier: Apache-2.0 */
/* How a poller waits: the one policy of all waits that poll.
 *
 * Where each has a core. Waking a sleeper costs more than most waits of a transfer take, so a poller spins
 * while nobody else wants its core. To find that out it offers the core now and then (sched_yield): if others
 * ran for longer than a moment, there are fewer cores than work, and the next waits sleep almost at once;
 * how many, doubles each time that happens again, and begins anew when an offer finds nobody. Offers cost
 * those others nothing. A gap alone proves nothing: a hypervisor also takes the core away.
 *
 * In a crowd: the job has more pollers on this host than cores. What is waited for comes from one that needs a
 * core, so each poll in vain is an offer: a switch costs less than a wake, and who comes round to it finds all that
 * came meanwhile. After some of them the poller sleeps, since an offer forces nobody to take it: a scheduler that
 * keeps accounts gives the core back to one that offers it while all others have used more than their share.
 * Such is the server that all wait for. Only a sleeper is passed over for certain.
 *
 * No wake is lost by any of this: it says only when the next poll is. Who sleeps announces it and looks once more
 * (psrti_net_sleep). */
#ifndef PSRTI_BASE_SPIN_H
#define PSRTI_BASE_SPIN_H

#include <sched.h>
#include <sys/resource.h>

#include "base/util.h"

#define PSRTI_SPIN_ALONE_NS 2000u /* spun without an offer               */
#define PSRTI_SPIN_OFFER_NS 4000u /* between two offers                  */
#define PSRTI_SPIN_GAP_NS 20000u  /* others that run so long need a core */
#define PSRTI_SPIN_WARY 16u       /* most waits that sleep at once       */

#define PSRTI_SPIN_CROWD_OFFERS 24u      /* of a wait in a crowd, at most                        */
#define PSRTI_SPIN_CROWD_GAP_NS 1500000u /* there, others that run so long use up their slices */

typedef struct psrti_spin {
    uint64_t max_ns;
    uint64_t start;    /* of the present spin; 0: none                          */
    uint64_t offered;  /* when its last offer ended; 0: it made none            */
    uint64_t switches; /* of this thread, before its first offer                */
    unsigned offers;   /* of the present spin                                   */
    unsigned wary;     /* waits still to sleep at once                          */
    unsigned caution;  /* how many it will be when others take the core again   */
    unsigned cores;
    int crowded;
} psrti_spin_t;

static inline void psrti_spin_init(psrti_spin_t *s, uint64_t max_ns, unsigned cores)
{
    if (cores < 2) max_ns = PSRTI_MIN(max_ns, PSRTI_SPIN_ALONE_NS);
    *s = (psrti_spin_t){ .max_ns = max_ns, .caution = 1, .cores = cores };
}

/* So many threads of the job poll on this host. */
static inline void psrti_spin_crowd(psrti_spin_t *s, unsigned pollers)
{
    s->crowded = pollers > s->cores;
}

/* A new wait, or something arrived. */
static inline void psrti_spin_begin(psrti_spin_t *s) { s->start = 0; }

/* Nothing has arrived until `now`: 1 poll again, 0 sleep. */
static inline int psrti_spin_goes_on(psrti_spin_t *s, uint64_t now)
{
    uint64_t most = s->wary ? PSRTI_MIN(s->max_ns, PSRTI_SPIN_ALONE_NS) : s->max_ns;
    if (!s->start) {
        s->start = now;
        s->offered = 0;
        s->offers = 0;
    }
    int patient = !s->crowded || s->offers < PSRTI_SPIN_CROWD_OFFERS;
    if (patient && now - s->start < most) return 1;
    if (s->wary) s->wary--;
    s->start = 0;
    return 0;
}

/* Is it time to offer the core? */
static inline int psrti_spin_offers(const psrti_spin_t *s, uint64_t now)
{
    if (s->crowded && !s->wary) return 1;
    return now - s->start >= PSRTI_SPIN_ALONE_NS && now - s->offered >= PSRTI_SPIN_OFFER_NS;
}

/* An offer of the core ended at `now` and took so long; `switches`: as now. */
static inline void psrti_spin_learn(psrti_spin_t *s, uint64_t took, uint64_t now, uint64_t switches)
{
    s->offered = now;
    s->offers++;
    if (took <= (s->crowded ? PSRTI_SPIN_CROWD_GAP_NS : PSRTI_SPIN_GAP_NS)) {
        s->caution = 1;
    } else if (switches != s->switches) {
        s->wary = s->caution;
        s->caution = PSRTI_MIN(2 * s->caution, PSRTI_SPIN_WARY);
    }
}

static inline uint64_t psrti_spin_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? 0 : (uint64_t)usage.ru_nivcsw;
}

/* Nothing arrived: 1 poll again, 0 sleep now. */
static inline int psrti_spin_again(psrti_spin_t *s)
{
    uint64_t now = psrti_now_ns();
    if (!psrti_spin_goes_on(s, now)) return 0;
    if (!psrti_spin_offers(s, now)) return 1;
    if (!s->offered) s->switches = psrti_spin_switches();
    sched_yield();
    uint64_t after = psrti_now_ns(), took = after - now;
    psrti_spin_learn(s, took, after, took > PSRTI_SPIN_GAP_NS ? psrti_spin_switches() : 0);
    return 1;
}

#endif
