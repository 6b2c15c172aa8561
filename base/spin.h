/* SPDX-License-Identifier: Apache-2.0 */
/* How long a poller spins before it sleeps. Spinning pays only while every poller has a core: a gap in
 * our own clock means that somebody else wanted it, so the budget shrinks; success lets it grow. */
#ifndef PSRTI_BASE_SPIN_H
#define PSRTI_BASE_SPIN_H

#include "base/util.h"

#define PSRTI_SPIN_MIN_NS 1000u
#define PSRTI_SPIN_GAP_NS 20000u

typedef struct psrti_spin {
    uint64_t max_ns, budget_ns;
    uint64_t start, last; /* of the present spin; start 0: none */
} psrti_spin_t;

static inline void psrti_spin_init(psrti_spin_t *s, uint64_t max_ns, unsigned cores)
{
    s->max_ns = cores > 1 ? max_ns : PSRTI_MIN(max_ns, PSRTI_SPIN_MIN_NS);
    s->budget_ns = s->max_ns;
    s->start = 0;
}

/* A new wait: time since the last one is no gap. */
static inline void psrti_spin_begin(psrti_spin_t *s) { s->start = 0; }

/* Something arrived. */
static inline void psrti_spin_hit(psrti_spin_t *s)
{
    if (s->start) s->budget_ns = PSRTI_MIN(s->max_ns, 2 * s->budget_ns);
    s->start = 0;
}

/* Nothing arrived: 1 poll again, 0 sleep now. */
static inline int psrti_spin_again(psrti_spin_t *s)
{
    uint64_t now = psrti_now_ns();
    if (!s->start) {
        s->start = s->last = now;
        return s->budget_ns > 0;
    }
    if (now - s->last > PSRTI_SPIN_GAP_NS) {
        s->budget_ns = PSRTI_MAX(s->budget_ns / 2, PSRTI_MIN(s->max_ns, PSRTI_SPIN_MIN_NS));
        s->start = 0;
        return 0;
    }
    s->last = now;
    if (now - s->start < s->budget_ns) return 1;
    s->start = 0;
    return 0;
}

#endif
