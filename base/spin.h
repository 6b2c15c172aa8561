/* SPDX-License-Identifier: Apache-2.0 */
/* How long a poller spins before it sleeps. Waking a sleeper costs more than most waits of a transfer take,
 * so a poller spins while nobody else wants its core. To find that out it offers the core now and then
 * (sched_yield): if others ran meanwhile for longer than a moment, every poller of the machine does not
 * have a core, and the next waits sleep almost at once. A few of them later the offer is made again; it
 * costs those others nothing. A gap alone proves nothing: a hypervisor also takes the core away. */
#ifndef PSRTI_BASE_SPIN_H
#define PSRTI_BASE_SPIN_H

#include <sched.h>
#include <sys/resource.h>

#include "base/util.h"

#define PSRTI_SPIN_ALONE_NS 2000u /* spun without an offer                          */
#define PSRTI_SPIN_OFFER_NS 4000u /* between two offers                             */
#define PSRTI_SPIN_GAP_NS 20000u  /* others that run for longer want the core       */
#define PSRTI_SPIN_WARY 16u       /* waits that sleep at once, after others ran     */

typedef struct psrti_spin {
    uint64_t max_ns;
    uint64_t start, last; /* of the present spin; start 0: none           */
    uint64_t offered;     /* when the core was offered last; 0: not yet   */
    uint64_t switches;    /* of this thread, before the first offer       */
    unsigned wary;
} psrti_spin_t;

static inline void psrti_spin_init(psrti_spin_t *s, uint64_t max_ns, unsigned cores)
{
    *s = (psrti_spin_t){ .max_ns = cores > 1 ? max_ns : PSRTI_MIN(max_ns, PSRTI_SPIN_ALONE_NS) };
}

/* A new wait: time since the last one is no gap. */
static inline void psrti_spin_begin(psrti_spin_t *s) { s->start = 0; }

/* Something arrived. */
static inline void psrti_spin_hit(psrti_spin_t *s) { s->start = 0; }

/* The decision without the clock: at `now` nothing has arrived, and the thread was put aside for others
 * `switches` times in its life. 1 poll again, 0 sleep now. */
static inline int psrti_spin_decide(psrti_spin_t *s, uint64_t now, uint64_t switches)
{
    int others_ran = now - s->last > PSRTI_SPIN_GAP_NS && s->offered && switches != s->switches;
    int goes_on =
        now - s->start < (s->wary ? PSRTI_MIN(s->max_ns, PSRTI_SPIN_ALONE_NS) : s->max_ns);
    s->last = now;
    if (goes_on && !others_ran) return 1;
    if (others_ran)
        s->wary = PSRTI_SPIN_WARY;
    else if (s->wary)
        s->wary--;
    s->start = 0;
    return 0;
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
    if (!s->start) {
        s->start = s->last = now;
        s->offered = 0;
        return s->max_ns > 0;
    }
    int gap = now - s->last > PSRTI_SPIN_GAP_NS && s->offered;
    if (!psrti_spin_decide(s, now, gap ? psrti_spin_switches() : s->switches)) return 0;
    if (now - s->start < PSRTI_SPIN_ALONE_NS || now - s->offered < PSRTI_SPIN_OFFER_NS) return 1;
    if (!s->offered) s->switches = psrti_spin_switches();
    s->offered = now;
    sched_yield();
    return 1;
}

#endif
