/* SPDX-License-Identifier: Apache-2.0 */
/* Exactly once: which request numbers of one client on one virtual shard were applied.
 * Invariants: a number is recorded in `applied` when, and only when, its message was applied,
 * and in `refused` when its client took it back (CANCEL) before that, or shall come again under
 * another number (a third open step): never in both, so that a late repeat is not applied and
 * not taken for one that was. A number below the floor was applied, or its client gave it up and
 * will not send it again; either way it must not be applied now. The client has at most 256
 * numbers outstanding and tells its floor with each message. */
#ifndef PSRTI_WINDOW_H
#define PSRTI_WINDOW_H

#include <stdint.h>
#include <string.h>

#ifndef PSRTI_WINDOW /* the simulator has fewer, so that they run out */
#define PSRTI_WINDOW 256
#endif

/* Number n at bit n % 256, for floor <= n < floor + 256. */
typedef struct psrti_numbers {
    uint64_t bits[PSRTI_WINDOW / 64];
} psrti_numbers_t;

typedef struct psrti_window {
    uint64_t incarnation; /* of the client                                 */
    uint64_t floor;       /* lowest number that the client may still send  */
    psrti_numbers_t applied, refused;
} psrti_window_t;

typedef enum psrti_window_result {
    PSRTI_WINDOW_NEW,
    PSRTI_WINDOW_DUPLICATE,
    PSRTI_WINDOW_REFUSED, /* taken back by the client */
    PSRTI_WINDOW_BAD      /* beyond the window: the client breaks the protocol */
} psrti_window_result_t;

static inline void psrti_window_reset(psrti_window_t *w, uint64_t incarnation)
{
    memset(w, 0, sizeof *w);
    w->incarnation = incarnation;
}

static inline int psrti_numbers_has(const psrti_numbers_t *m, uint64_t n)
{
    return (int)(m->bits[n % PSRTI_WINDOW / 64] >> (n % 64) & 1);
}

/* Moves the floor up; the bits that fall out become those of the numbers that come in. */
static inline void psrti_window_raise(psrti_window_t *w, uint64_t floor)
{
    if (floor <= w->floor) return;
    if (floor - w->floor >= PSRTI_WINDOW) {
        memset(&w->applied, 0, sizeof w->applied);
        memset(&w->refused, 0, sizeof w->refused);
    } else {
        for (uint64_t n = w->floor; n < floor; n++) {
            w->applied.bits[n % PSRTI_WINDOW / 64] &= ~(1ull << (n % 64));
            w->refused.bits[n % PSRTI_WINDOW / 64] &= ~(1ull << (n % 64));
        }
    }
    w->floor = floor;
}

static inline psrti_window_result_t psrti_window_check(psrti_window_t *w, uint64_t seq,
                                                       uint64_t floor)
{
    psrti_window_raise(w, floor);
    if (seq < w->floor) return PSRTI_WINDOW_DUPLICATE;
    if (seq - w->floor >= PSRTI_WINDOW) return PSRTI_WINDOW_BAD;
    if (psrti_numbers_has(&w->applied, seq)) return PSRTI_WINDOW_DUPLICATE;
    return psrti_numbers_has(&w->refused, seq) ? PSRTI_WINDOW_REFUSED : PSRTI_WINDOW_NEW;
}

/* After the message was applied; seq was NEW. */
static inline void psrti_window_record(psrti_window_t *w, uint64_t seq)
{
    w->applied.bits[seq % PSRTI_WINDOW / 64] |= 1ull << (seq % 64);
}

/* The message will not be applied; seq was NEW. */
static inline void psrti_window_refuse(psrti_window_t *w, uint64_t seq)
{
    w->refused.bits[seq % PSRTI_WINDOW / 64] |= 1ull << (seq % 64);
}

#endif
