/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/worker/small.h"

#include <stdlib.h>
#include <string.h>

#include "base/futex.h"
#include "base/log.h"

/* Polls of a call that waits. First, before it looks who sleeps: that takes a fence, which is cheap once the own word
 * has left the core. Then, before it becomes an operation, some microseconds, fewer while that was in vain: whoever comes
 * late comes later still where ranks share cores. */
#define FIRST_POLLS 100u
#define LEAST_POLLS 100u
#define MOST_POLLS 4000u
/* In a crowd: it offers its core so many times, then until so much time has passed, since who is alone on a core had them all
 * in vain; then it sleeps, and at last becomes an operation. */
#define CROWD_OFFERS 24u
#define CROWD_SPIN_NS 30000u
#define CROWD_SLEEP_NS (5 * PSRTI_NS_PER_MS)

int psrti_small_takes(const psrt_comm_t *comm, const psrti_coll_call_t *call)
{
    if (!atomic_load_explicit(&comm->small_on, memory_order_acquire)) return 0;
    const psrti_small_t *s = comm->small;
    uint32_t bytes = call->what == PSRTI_COLL_ALLREDUCE ? s->sums : s->bytes;
    return !(s->tuned >> call->what & 1) && psrti_flat_fits(s->size, bytes, call);
}

/* ---- counting ---------------------------------------------------------------------------------- */

static int note_call(psrti_small_t *s, const psrti_coll_call_t *call)
{
    unsigned put = atomic_load_explicit(&s->put, memory_order_relaxed);
    if (put - atomic_load_explicit(&s->got, memory_order_acquire) == PSRTI_SMALL_RING) return 0;
    s->ring[put % PSRTI_SMALL_RING] = psrti_flat_pack(call);
    atomic_store_explicit(&s->put, put + 1, memory_order_release);
    s->calls++;
    return 1;
}

static void count(psrti_small_t *s)
{
    unsigned got = atomic_load_explicit(&s->got, memory_order_relaxed);
    unsigned put = atomic_load_explicit(&s->put, memory_order_acquire);
    if (got == put) return;
    for (; got != put; got++) {
        psrti_coll_call_t call = psrti_flat_unpack(s->ring[got % PSRTI_SMALL_RING]);
        psrti_coll_count(s->comm->core, &call);
    }
    atomic_store_explicit(&s->got, got, memory_order_release);
}

void psrti_smalls_count(psrti_worker_t *w)
{
    for (psrti_list_t *n = w->smalls.next; n != &w->smalls; n = n->next)
        count(PSRTI_LIST_ENTRY(n, psrti_small_t, node));
}

/* ---- the caller's thread ----------------------------------------------------------------------- */

/* With the baton, unless they sleep on the own word. Any message wakes. */
static void wake(const psrti_small_t *s, uint32_t members)
{
    uint32_t own = psrti_comm_rank(s->comm->core);
    for (uint32_t m = 0; m < s->size; m++)
        if (m != own && members >> m & 1) (void)psrti_comm_note(s->comm->core, m, "", 0);
    if (members >> own & 1) psrti_futex_wake(psrti_flat_word(s->flat));
}

static void wake_from_outside(psrti_small_t *s, uint32_t members)
{
    int noted = (members & ~(1u << psrti_comm_rank(s->comm->core))) != 0;
    if (noted) psrti_baton_take(s->comm->worker);
    wake(s, members);
    if (noted) psrti_baton_give(s->comm->worker);
}

static void make_room(psrti_small_t *s)
{
    psrti_baton_take(s->comm->worker);
    count(s);
    psrti_baton_give(s->comm->worker);
}

static void sleep_on_word(psrti_small_t *s, uint64_t ns)
{
    uint32_t number;
    const _Atomic uint32_t *word = psrti_flat_want_word(s->flat, &number);
    if (!word) return;
    psrti_futex_wait(word, number, ns);
    psrti_flat_awake(s->flat);
}

/* The members that are missing need a core. Offering it is cheaper than sleeping as long as others take it: each then runs
 * once a call, and finds all that it waits for when its turn comes again. */
static psrti_flat_state_t wait_in_crowd(psrti_small_t *s)
{
    psrti_flat_state_t state;
    uint64_t start = 0, now = 0;

    uint64_t spin = PSRTI_MIN(s->comm->worker->spin.max_ns, CROWD_SPIN_NS);
    unsigned offers = spin ? CROWD_OFFERS : 0;

    while ((state = psrti_flat_poll(s->flat)) == PSRTI_FLAT_WAITING) {
        wake_from_outside(s, psrti_flat_wakes(s->flat));
        if (offers)
            offers--;
        else
            now = psrti_now_ns();
        if (!start) start = now;
        if (now - start < spin || !now)
            sched_yield();
        else if (now - start < CROWD_SLEEP_NS)
            sleep_on_word(s, CROWD_SLEEP_NS - (now - start));
        else
            break;
    }
    return state;
}

static psrti_flat_state_t spin_on(psrti_small_t *s)
{
    psrti_flat_state_t state = s->crowded ? wait_in_crowd(s) : psrti_flat_spin(s->flat, s->budget);
    s->budget = state == PSRTI_FLAT_DONE ? PSRTI_MIN(2 * s->budget, MOST_POLLS) : s->budget / 2;
    s->budget = PSRTI_MAX(s->budget, LEAST_POLLS);
    wake_from_outside(s, psrti_flat_wakes(s->flat));
    return state;
}

psrt_status_t psrti_small_run(psrt_comm_t *comm, const psrti_coll_call_t *call, int *begun_p)
{
    psrti_small_t *s = comm->small;
    *begun_p = 0;
    if (atomic_load_explicit(&comm->slow, memory_order_acquire)) return PSRT_IN_PROGRESS;
    while (!note_call(s, call))
        make_room(s);
    psrti_flat_begin(s->flat, call);
    psrti_flat_state_t state = psrti_flat_spin(s->flat, s->crowded ? 1 : FIRST_POLLS);
    wake_from_outside(s, psrti_flat_wakes(s->flat));
    if (state == PSRTI_FLAT_WAITING) state = spin_on(s);
    if (state == PSRTI_FLAT_DONE) return PSRT_OK;
    *begun_p = 1;
    return PSRT_IN_PROGRESS;
}

void psrti_small_give_up(psrt_comm_t *comm, psrt_status_t status, const char *text)
{
    psrti_baton_take(comm->worker);
    psrti_comm_fail(comm->core, status, text);
    psrti_baton_move(comm->worker);
    psrti_baton_give(comm->worker);
}

/* ---- operations -------------------------------------------------------------------------------- */

static psrti_wcollop_t *first(const psrti_small_t *s)
{
    return psrti_list_empty(&s->queue)
               ? NULL
               : PSRTI_LIST_ENTRY(s->queue.next, psrti_wcollop_t, small_node);
}

/* From here on callers may pass it. */
static void give_way(psrt_comm_t *comm)
{
    atomic_fetch_sub_explicit(&comm->slow, 1, memory_order_release);
}

static void end_first(psrti_small_t *s, psrt_status_t status, const char *text)
{
    psrti_worker_t *w = s->comm->worker;
    psrti_wcollop_t *op = first(s);
    psrti_list_remove(&op->small_node);
    give_way(s->comm);
    op->core.ended = 1;
    op->op.cop.result.status = status;
    if (status) op->op.cop.text = strdup(text);
    w->meetings--;
    psrti_op_deliver(w, &op->op);
}

static void start_messages(psrti_wcollop_t *op)
{
    psrti_list_remove(&op->small_node);
    op->core = (psrti_collop_t){ .status = PSRT_OK };
    psrti_coll_start(op->comm, &op->call, &op->core);
    give_way(op->handle);
}

static void fail_all(psrti_small_t *s)
{
    psrti_comm_t *core = s->comm->core;
    atomic_store(&s->comm->small_on, 0);
    while (!psrti_list_empty(&s->queue))
        end_first(s, psrti_comm_status(core), psrti_comm_text(core));
    psrti_list_remove(&s->active);
}

static void begin_first(psrti_small_t *s, psrti_wcollop_t *op, uint64_t now)
{
    int begun = op->stage == PSRTI_CALL_BEGUN;
    psrti_coll_begin(&op->core, begun);
    if (!begun) psrti_flat_begin(s->flat, &op->call);
    op->stage = PSRTI_CALL_RUNS;
    s->since = now;
}

/* 1: it has ended. */
static int move_first(psrti_small_t *s, psrti_wcollop_t *op, uint64_t now)
{
    if (op->stage == PSRTI_CALL_MESSAGES) {
        start_messages(op);
        return 1;
    }
    if (op->stage != PSRTI_CALL_RUNS) begin_first(s, op, now);
    psrti_flat_state_t state = psrti_flat_poll(s->flat);
    wake(s, psrti_flat_wakes(s->flat));
    if (state == PSRTI_FLAT_DONE) end_first(s, PSRT_OK, NULL);
    return state == PSRTI_FLAT_DONE;
}

static void differ(psrti_small_t *s)
{
    psrti_coll_call_t theirs, ours;
    uint32_t member = psrti_flat_culprit(s->flat, &theirs, &ours);
    psrti_coll_differ(s->comm->core, member, &theirs, &ours);
}

/* The first one waits: may it? */
static void look_after(psrti_small_t *s, psrti_wcollop_t *op, uint64_t now)
{
    psrti_worker_t *w = s->comm->worker;
    uint64_t timeout = psrti_config_u64(w->p.config, PSRTI_CONF_COLL_TIMEOUT);
    switch (psrti_flat_poll(s->flat)) {
    case PSRTI_FLAT_MISMATCH: differ(s); break;
    case PSRTI_FLAT_BROKEN:
        psrti_comm_fail(s->comm->core, PSRT_ERR_PROTOCOL,
                        "a member wrote what none writes to its shared memory");
        break;
    default: psrti_coll_watch(&op->core, psrti_flat_missing(s->flat), s->since, now);
    }
    if (timeout) w->timer = PSRTI_MIN(w->timer, s->since + timeout);
}

/* What members gave before they left or died is there: a call that has all it needs ends well. */
static unsigned move(psrti_small_t *s, uint64_t now)
{
    unsigned events = 0;
    psrti_wcollop_t *op;
    while ((op = first(s)) && move_first(s, op, now))
        events++;
    if (op) look_after(s, op, now);
    if (op && psrti_comm_status(s->comm->core) != PSRT_OK) {
        fail_all(s);
        return events + 1;
    }
    if (!op) psrti_list_remove(&s->active);
    return events;
}

void psrti_small_start(psrti_wcollop_t *op)
{
    psrti_small_t *s = op->handle->small;
    int takes = psrti_small_takes(op->handle, &op->call);
    int is_pair = op->call.what == PSRTI_COLL_SEND_TO || op->call.what == PSRTI_COLL_RECV_FROM;
    if (s) count(s);
    if (!s || is_pair || (!takes && psrti_list_empty(&s->queue))) {
        start_messages(op);
        return;
    }
    psrti_coll_queue(op->comm, &op->call, &op->core);
    if (!takes) op->stage = PSRTI_CALL_MESSAGES;
    psrti_list_push(&s->queue, &op->small_node);
    if (psrti_list_empty(&s->active))
        psrti_list_push(&op->handle->worker->active_smalls, &s->active);
    move(s, psrti_now_ns());
}

void psrti_small_close(psrt_comm_t *comm)
{
    psrti_small_t *s = comm->small;
    if (!s) return;
    count(s);
    psrti_debug("worker:%u: %llu small collectives of a communicator were called in shared memory",
                comm->worker->p.rank, (unsigned long long)s->calls);
    if (psrti_list_empty(&s->queue)) return;
    psrti_coll_cancel(&first(s)->core, PSRT_ERR_CANCELED, "it freed the communicator");
    fail_all(s);
}

/* ---- with the baton ---------------------------------------------------------------------------- */

/* Callers of a communicator that failed go to the engine, which says why. */
static void switch_off_failed(psrti_worker_t *w)
{
    w->failures_seen = psrti_coll_failures(w->coll);
    for (psrti_list_t *n = w->smalls.next; n != &w->smalls; n = n->next) {
        psrt_comm_t *comm = PSRTI_LIST_ENTRY(n, psrti_small_t, node)->comm;
        if (comm->core && psrti_comm_status(comm->core) != PSRT_OK)
            atomic_store(&comm->small_on, 0);
    }
}

unsigned psrti_smalls_move(psrti_worker_t *w, uint64_t now)
{
    unsigned events = 0;
    for (psrti_list_t *n = w->active_smalls.next, *next; n != &w->active_smalls; n = next) {
        next = n->next;
        events += move(PSRTI_LIST_ENTRY(n, psrti_small_t, active), now);
    }
    if (w->failures_seen != psrti_coll_failures(w->coll)) switch_off_failed(w);
    return events;
}

int psrti_smalls_sleep(psrti_worker_t *w)
{
    for (psrti_list_t *n = w->active_smalls.next; n != &w->active_smalls; n = n->next)
        if (!psrti_flat_want_wake(PSRTI_LIST_ENTRY(n, psrti_small_t, active)->flat)) {
            psrti_smalls_awake(w);
            return 0;
        }
    return 1;
}

void psrti_smalls_awake(psrti_worker_t *w)
{
    for (psrti_list_t *n = w->active_smalls.next; n != &w->active_smalls; n = n->next)
        psrti_flat_awake(PSRTI_LIST_ENTRY(n, psrti_small_t, active)->flat);
}
