/* SPDX-License-Identifier: Apache-2.0 */
/* How long a poller spins before it sleeps. Waking a sleeper costs more than most waits of a transfer take,
 * so a poller spins while nobody else wants its core. To find that out it offers the core now and then
 * (sched_yield): if others ran for longer than a moment, there are fewer cores than work, and the next
 * waits sleep almost at once; how many, doubles each time that happens again, and begins anew when an
 * offer finds nobody. Offers cost those others nothing. A gap alone proves nothing: a hypervisor also
 * takes the core away. */
#ifndef PSRTI_BASE_SPIN_H
#define PSRTI_BASE_SPIN_H

#include <sched.h>
#include <sys/resource.h>

#include "base/util.h"

#define PSRTI_SPIN_ALONE_NS 2000u /* spun without an offer               */
#define PSRTI_SPIN_OFFER_NS 4000u /* between two offers                  */
#define PSRTI_SPIN_GAP_NS 20000u  /* others that run so long need a core */
#define PSRTI_SPIN_WARY 16u       /* most waits that sleep at once       */

typedef struct psrti_spin {
    uint64_t max_ns;
    uint64_t start;    /* of the present spin; 0: none                          */
    uint64_t offered;  /* when its last offer ended; 0: it made none            */
    uint64_t switches; /* of this thread, before its first offer                */
    unsigned wary;     /* waits still to sleep at once                          */
    unsigned caution;  /* how many it will be when others take the core again   */
} psrti_spin_t;

static inline void psrti_spin_init(psrti_spin_t *s, uint64_t max_ns, unsigned cores)
{
    if (cores < 2) max_ns = PSRTI_MIN(max_ns, PSRTI_SPIN_ALONE_NS);
    *s = (psrti_spin_t){ .max_ns = max_ns, .caution = 1 };
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
    }
    if (now - s->start < most) return 1;
    if (s->wary) s->wary--;
    s->start = 0;
    return 0;
}

/* An offer of the core ended at `now` and took so long; `switches`: as now. */
static inline void psrti_spin_learn(psrti_spin_t *s, uint64_t took, uint64_t now, uint64_t switches)
{
    s->offered = now;
    if (took <= PSRTI_SPIN_GAP_NS) {
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
    if (now - s->start < PSRTI_SPIN_ALONE_NS || now - s->offered < PSRTI_SPIN_OFFER_NS) return 1;
    if (!s->offered) s->switches = psrti_spin_switches();
    sched_yield();
    uint64_t after = psrti_now_ns(), took = after - now;
    psrti_spin_learn(s, took, after, took > PSRTI_SPIN_GAP_NS ? psrti_spin_switches() : 0);
    return 1;
}

#endif
