/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives of a communicator whose members are on one host go through shared memory (coll/flat.h,
 * docs/adr/0016): a call that waits runs in its caller's thread, without the baton; others, and those that wait for
 * long, are operations moved by whoever holds it.
 *
 * Invariants
 *  - All members decide alike: a communicator takes this way if every member said, when it was made, that it reads the
 *    memory of all others; a call takes it if psrti_flat_fits says so and no rule names one algorithm for its collective whatever the size.
 *  - Every call is counted by the engine in the order in which it was made. What ran without the baton waits in a ring, and
 *    is counted before the engine begins a call, hears of one, or says how many there were.
 *  - One thread at a time touches the flat object: the holder of the baton while operations are in the queue, else the
 *    caller. `slow` of the handle says which.
 *  - The memory of others stays mapped until the handle is freed, whatever becomes of links and processes. */
#ifndef PSRTI_WORKER_SMALL_H
#define PSRTI_WORKER_SMALL_H

#include "runtime/coll/flat.h"
#include "runtime/worker/worker_int.h"

#define PSRTI_SMALL_COMMS 64 /* of a worker, at most; others send messages */
#define PSRTI_SMALL_RING 256u
/* Of two members with a core each: both copy at once, what only passes one of them is faster as a message. */
#define PSRTI_SMALL_PAIR 8192u

/* What a member tells of its memory, and of where it runs; 40 bytes. */
typedef struct psrti_small_card {
    uint64_t nonce[2]; /* stands in front of it */
    int32_t pid, fd;
    uint64_t cpus; /* that it may use, modulo 64 */
    uint8_t able, crowded, reserved[6];
} psrti_small_card_t;

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines apart on purpose */
typedef struct psrti_small {
    /* of the caller, or of the holder of the baton: see above */
    psrti_flat_t *flat;
    uint32_t size;
    uint32_t tuned;  /* collectives that do not go this way          */
    unsigned budget; /* polls of a caller, before it becomes an operation */
    int crowded;     /* more pollers than cores, as a member saw it when this was made */
    uint32_t sums;   /* bytes that a member contributes to an allreduce, at most */
    uint32_t bytes;  /* to others */
    uint64_t calls;  /* that callers made */

    /* calls that are not counted: packed; written by the caller, read by the holder */
    _Alignas(128) atomic_uint put;
    uint32_t ring[PSRTI_SMALL_RING];
    _Alignas(128) atomic_uint got;

    /* of the holder of the baton */
    psrt_comm_t *comm;
    psrti_list_t node;   /* in w->smalls                                       */
    psrti_list_t active; /* in w->active_smalls: has operations in the queue   */
    psrti_list_t queue;  /* of psrti_wcollop_t, of the engine's too; the first one is begun */
    uint64_t since;      /* when it began */

    /* small_make.c */
    int fd;                           /* of the own memory; -1 once all have it */
    void *memory[PSRTI_FLAT_MEMBERS]; /* by member, others read-only */
    psrti_small_card_t card, cards[PSRTI_FLAT_MEMBERS];
    uint8_t has_cards, able, all_able[PSRTI_FLAT_MEMBERS];
} psrti_small_t;

/* small_make.c: with the baton */

/* A creation whose members have met goes on: asks and tells where the memory is. 1: its operation runs again; 0: it has
 * ended, as op->core says. */
int psrti_small_make(psrti_wcollop_t *op);
void psrti_small_free(psrti_small_t *small); /* NULL allowed; no operation is left */

/* small.c */

/* Any thread. */
int psrti_small_takes(const psrt_comm_t *comm, const psrti_coll_call_t *call);
/* The caller's thread, without the baton. IN_PROGRESS: it has to go as an operation, which has begun if *begun_p. */
psrt_status_t psrti_small_run(psrt_comm_t *comm, const psrti_coll_call_t *call, int *begun_p);
/* A call that has begun cannot go on. */
void psrti_small_give_up(psrt_comm_t *comm, psrt_status_t status, const char *text);

/* With the baton. */

/* An operation of the communicator, whichever way it goes. */
void psrti_small_start(psrti_wcollop_t *op);
/* Counts what callers made. */
void psrti_smalls_count(psrti_worker_t *w);
/* Before the communicator is freed: its operations end with ERR_CANCELED. */
void psrti_small_close(psrt_comm_t *comm);
/* Moves the operations that are queued; number of those that ended. */
unsigned psrti_smalls_move(psrti_worker_t *w, uint64_t now);
/* Before sleeping. 0: look again first. */
int psrti_smalls_sleep(psrti_worker_t *w);
void psrti_smalls_awake(psrti_worker_t *w);

#endif
