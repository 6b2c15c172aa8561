/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/worker/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/frame.h"

/* Polls of a call that waits: before it looks who sleeps, which costs a fence that is cheap once the own word has left
 * the core; and before it becomes an operation. */
#define FIRST_SPINS 100u
#define SPINS 4000u
#define UNCOUNTED 64

typedef struct handover {
    psrt_tx_t tx;
    psrti_small_t *small;
    int sent; /* or there is nothing to send */
} handover_t;

struct psrti_small {
    psrti_list_t node;   /* in w->smalls                          */
    psrti_list_t active; /* in w->active_smalls: has calls queued */
    psrti_worker_t *worker;
    psrt_comm_t *comm; /* NULL: dropped */
    uint32_t rank, size;
    uint32_t ranks[PSRTI_FLAT_MEMBERS]; /* in the job */
    void *segment;
    unsigned pending; /* handovers that peers have not let go of */
    unsigned missing; /* segments that have not come             */
    int able;         /* so far                                  */
    int has_looked;
    handover_t to[PSRTI_FLAT_MEMBERS];
    psrt_msg_t from[PSRTI_FLAT_MEMBERS];
    void *segments[PSRTI_FLAT_MEMBERS]; /* of others: read only */
    uint8_t held[PSRTI_FLAT_MEMBERS], came[PSRTI_FLAT_MEMBERS];
    psrti_flat_t *flat;
    psrti_list_t queue; /* of psrti_wcollop_t, the first one has begun */
    uint64_t since;     /* when it began */
    psrti_coll_call_t uncounted[UNCOUNTED];
    unsigned nuncounted;
};

static unsigned fail_all(psrti_small_t *s, psrt_status_t status, const char *text);

/* ---- handing over ------------------------------------------------------------------------------ */

static void free_if_done(psrti_small_t *s)
{
    if (s->comm || s->pending) return;
    psrti_list_remove(&s->node);
    if (s->segment) psrti_net_free(s->worker->net, s->segment);
    free(s);
}

static void handed_back(psrt_tx_t *tx, psrt_status_t status)
{
    psrti_small_t *s = PSRTI_CONTAINER_OF(tx, handover_t, tx)->small;
    (void)status;
    s->pending--;
    free_if_done(s);
}

/* Only shared memory that is not wrapped shows peers what is written to a segment later. */
static int is_near(const psrti_small_t *s, uint32_t member)
{
    const psrti_wpeer_t *p = &s->worker->peers[s->ranks[member]];
    const char *fault = psrti_config_text(s->worker->p.config, PSRTI_CONF_FAULT);
    return p->up && strcmp(p->link->transport, "shm") == 0 && (!fault || !*fault);
}

psrti_small_t *psrti_small_new(psrt_comm_t *comm)
{
    uint32_t n = psrti_comm_size(comm->core);
    if (n < 2 || n > PSRTI_FLAT_MEMBERS) return NULL;
    psrti_small_t *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->worker = comm->worker;
    s->comm = comm;
    s->rank = psrti_comm_rank(comm->core), s->size = n;
    memcpy(s->ranks, psrti_comm_ranks(comm->core), n * sizeof s->ranks[0]);
    psrti_list_init(&s->active);
    psrti_list_init(&s->queue);
    psrti_list_push(&s->worker->smalls, &s->node);
    s->missing = n - 1;
    s->able = psrti_net_alloc(s->worker->net, PSRTI_FLAT_BYTES, &s->segment) == PSRT_OK;
    if (s->able) psrti_flat_format(s->segment, s->rank, n);
    s->segments[s->rank] = s->segment;
    for (uint32_t m = 0; m < n; m++) {
        s->to[m].small = s;
        s->to[m].tx.done = handed_back;
    }
    return s;
}

int psrti_small_is_of(const psrti_small_t *s)
{
    return psrti_comm_size(s->comm->core) == s->size &&
           memcmp(psrti_comm_ranks(s->comm->core), s->ranks, s->size * sizeof s->ranks[0]) == 0;
}

/* Whether all members are near shows once all links are up. */
static void look_around(psrti_small_t *s)
{
    s->has_looked = 1;
    for (uint32_t m = 0; m < s->size; m++)
        if (m != s->rank && !is_near(s, m)) s->able = 0;
}

/* The segment, or word that there is none. */
static void hand_over(psrti_small_t *s, uint32_t member)
{
    const psrti_wpeer_t *p = &s->worker->peers[s->ranks[member]];
    psrt_hdr_t hdr = { .type = PSRTI_T_COLL,
                       .seq_floor = PSRTI_COLL_SEGMENT,
                       .seq = psrti_comm_key(s->comm->core),
                       .length = s->able ? PSRTI_FLAT_BYTES : 0 };
    if (!p->up) return; /* the engine hears of the loss */
    psrt_status_t rc = psrti_net_send(s->worker->net, p->link, &hdr, s->able ? s->segment : NULL,
                                      hdr.length, s->able ? &s->to[member].tx : NULL);
    if (rc == PSRT_ERR_AGAIN) return;
    s->to[member].sent = 1;
    if (s->able && rc == PSRT_IN_PROGRESS)
        s->pending++;
    else
        s->able = 0; /* copied, or lost */
}

int psrti_small_meet(psrti_small_t *s, int32_t *ok_p)
{
    int unsent = 0;
    if (!s->has_looked) look_around(s);
    for (uint32_t m = 0; m < s->size; m++) {
        if (m == s->rank) continue;
        if (!s->to[m].sent) hand_over(s, m);
        unsent |= !s->to[m].sent;
    }
    if (unsent || s->missing) return 0;
    if (s->able &&
        psrti_flat_create(s->worker->kernels, s->rank, s->size, s->segments, &s->flat) != PSRT_OK)
        s->able = 0;
    *ok_p = s->able;
    return 1;
}

void psrti_small_agree(psrti_small_t *s, int all)
{
    if (all && s->flat) {
        atomic_store_explicit(&s->comm->small_on, 1, memory_order_release);
        return;
    }
    s->comm->small = NULL;
    psrti_small_drop(s);
}

void psrti_small_drop(psrti_small_t *s)
{
    (void)fail_all(s, PSRT_ERR_CANCELED, "the communicator was freed");
    psrti_flat_free(s->flat);
    s->flat = NULL;
    for (uint32_t m = 0; m < s->size; m++)
        if (s->held[m]) psrti_net_release(s->worker->net, &s->from[m]);
    memset(s->held, 0, sizeof s->held);
    s->comm = NULL;
    free_if_done(s);
}

void psrti_smalls_free(psrti_worker_t *w)
{
    psrti_list_t *n;
    while ((n = psrti_list_pop(&w->smalls))) {
        psrti_small_t *s = PSRTI_LIST_ENTRY(n, psrti_small_t, node);
        psrti_flat_free(s->flat);
        free(s);
    }
}

static uint32_t member_of(const psrti_small_t *s, uint32_t rank)
{
    uint32_t m = 0;
    while (m < s->size && s->ranks[m] != rank)
        m++;
    return m;
}

static psrt_rx_t take_segment(psrti_small_t *s, uint32_t member, psrt_msg_t *msg)
{
    const void *p = NULL;
    s->came[member] = 1;
    s->missing--;
    if (msg->len != PSRTI_FLAT_BYTES || msg->data ||
        psrti_net_map(s->worker->net, msg, &p) != PSRT_OK) {
        s->able = 0;
        return PSRT_RX_DONE;
    }
    s->from[member] = *msg;
    s->held[member] = 1;
    s->segments[member] = (void *)(uintptr_t)p;
    return PSRT_RX_HOLD;
}

/* The oldest communicator of this key that has none from this member, as with the engine's OPEN. Who sends it has heard
 * from all members, so ours is there, but maybe not yet ready. */
psrt_rx_t psrti_small_segment(psrti_worker_t *w, uint32_t rank, psrt_msg_t *msg)
{
    for (psrti_list_t *n = w->comms.next; n != &w->comms; n = n->next) {
        psrt_comm_t *comm = PSRTI_LIST_ENTRY(n, psrt_comm_t, node);
        if (!comm->core || psrti_comm_key(comm->core) != msg->hdr.seq) continue;
        if (!comm->small && comm->making) comm->small = psrti_small_new(comm);
        psrti_small_t *s = comm->small;
        uint32_t m = s ? member_of(s, rank) : 0;
        if (!s || m == s->size || m == s->rank || s->came[m]) continue;
        return take_segment(s, m, msg);
    }
    return PSRT_RX_DONE; /* of a communicator that was given up here */
}

/* ---- calls ------------------------------------------------------------------------------------- */

int psrti_small_takes(const psrt_comm_t *comm, const psrti_coll_call_t *call)
{
    return atomic_load_explicit(&comm->small_on, memory_order_acquire) &&
           psrti_flat_fits(comm->small->size, call);
}

void psrti_small_count(psrt_comm_t *comm)
{
    psrti_small_t *s = comm->small;
    for (unsigned i = 0; s && i < s->nuncounted; i++)
        (void)psrti_comm_count_op(comm->core, &s->uncounted[i]);
    if (s) s->nuncounted = 0;
}

static void wake(psrti_small_t *s, uint32_t members)
{
    for (uint32_t m = 0; m < s->size; m++)
        if (members >> m & 1) (void)psrti_comm_note(s->comm->core, m, "", 0);
}

static void wake_from_outside(psrti_small_t *s, uint32_t members)
{
    psrti_baton_take(s->worker);
    wake(s, members);
    psrti_baton_give(s->worker);
}

psrt_status_t psrti_small_run(psrt_comm_t *comm, const psrti_coll_call_t *call, int *begun_p)
{
    psrti_small_t *s = comm->small;
    *begun_p = 0;
    if (atomic_load_explicit(&comm->slow, memory_order_acquire)) return PSRT_IN_PROGRESS;
    if (s->nuncounted == UNCOUNTED) {
        psrti_baton_take(s->worker);
        psrti_small_count(comm);
        psrti_baton_give(s->worker);
        if (!psrti_small_takes(comm, call)) return PSRT_IN_PROGRESS;
    }
    s->uncounted[s->nuncounted++] = *call;
    psrti_flat_begin(s->flat, call);
    psrti_flat_state_t state = psrti_flat_spin(s->flat, FIRST_SPINS);
    uint32_t sleepers = psrti_flat_wakes(s->flat);
    if (sleepers) wake_from_outside(s, sleepers);
    if (state == PSRTI_FLAT_WAITING) state = psrti_flat_spin(s->flat, SPINS);
    if (state == PSRTI_FLAT_DONE) return PSRT_OK;
    *begun_p = 1;
    return PSRT_IN_PROGRESS;
}

static psrti_wcollop_t *first(const psrti_small_t *s)
{
    return psrti_list_empty(&s->queue)
               ? NULL
               : PSRTI_LIST_ENTRY(s->queue.next, psrti_wcollop_t, small_node);
}

static void begin_first(psrti_small_t *s)
{
    psrti_wcollop_t *op = first(s);
    s->since = psrti_now_ns();
    if (!op->begun) psrti_flat_begin(s->flat, &op->call);
    op->begun = 1;
    (void)psrti_flat_poll(s->flat);
    wake(s, psrti_flat_wakes(s->flat));
}

void psrti_small_start(psrt_comm_t *comm, psrti_wcollop_t *op)
{
    psrti_small_t *s = comm->small;
    psrti_small_count(comm);
    if (!op->begun) (void)psrti_comm_count_op(comm->core, &op->call);
    int alone = psrti_list_empty(&s->queue);
    psrti_list_push(&s->queue, &op->small_node);
    if (!alone) return;
    psrti_list_push(&s->worker->active_smalls, &s->active);
    begin_first(s);
}

/* ---- moving ------------------------------------------------------------------------------------ */

static void name_missing(const psrti_small_t *s, char *buf, size_t size)
{
    uint32_t missing = psrti_flat_missing(s->flat);
    size_t pos = 0;
    *buf = '\0';
    for (uint32_t m = 0; m < s->size; m++)
        if (missing >> m & 1)
            psrti_append(buf, size, &pos, "%srank %u (worker:%u)", pos ? ", " : "", m, s->ranks[m]);
}

void psrti_small_describe(const psrti_wcollop_t *op, char *buf, size_t size)
{
    char call[128], missing[256];
    psrti_coll_call_text(&op->call, call, sizeof call);
    name_missing(op->handle->small, missing, sizeof missing);
    snprintf(buf, size, "%s: %s not called it", call, *missing ? missing : "others have");
}

static void fail_mismatch(psrti_small_t *s)
{
    psrti_coll_call_t theirs, ours;
    char text[PSRTI_ERROR_MAX], there[128], here[128];
    uint32_t m = psrti_flat_culprit(s->flat, &theirs, &ours);
    psrti_coll_call_text(&theirs, there, sizeof there);
    psrti_coll_call_text(&ours, here, sizeof here);
    snprintf(text, sizeof text, "rank %u (worker:%u) called %s, rank %u (worker:%u) called %s", m,
             s->ranks[m], there, s->rank, s->ranks[s->rank], here);
    psrti_comm_fail(s->comm->core, PSRT_ERR_MISMATCH, text);
}

static void look_at_time(psrti_small_t *s, uint64_t now)
{
    uint64_t timeout = psrti_config_u64(s->worker->p.config, PSRTI_CONF_COLL_TIMEOUT);
    char what[PSRTI_ERROR_MAX - 64], text[PSRTI_ERROR_MAX];
    if (!timeout || now < s->since || now - s->since < timeout) return;
    psrti_small_describe(first(s), what, sizeof what);
    snprintf(text, sizeof text, "%s within %.3g s", what, (double)timeout / 1e9);
    psrti_comm_fail(s->comm->core, PSRT_ERR_TIMEOUT, text);
}

static void end_first(psrti_small_t *s, psrt_status_t status, const char *text)
{
    psrti_worker_t *w = s->worker;
    psrti_wcollop_t *op = first(s);
    psrti_list_remove(&op->small_node);
    op->op.cop.result.status = status;
    if (status) op->op.cop.text = strdup(text);
    atomic_fetch_sub_explicit(&s->comm->slow, 1, memory_order_release);
    w->meetings--;
    psrti_op_deliver(w, &op->op);
}

static unsigned fail_all(psrti_small_t *s, psrt_status_t status, const char *text)
{
    unsigned events = 0;
    atomic_store(&s->comm->small_on, 0);
    for (; !psrti_list_empty(&s->queue); events++)
        end_first(s, status, text);
    psrti_list_remove(&s->active);
    return events;
}

/* What members gave before they left or died is there: a call that has all it needs ends well. */
static unsigned move(psrti_small_t *s, uint64_t now)
{
    unsigned events = 0;
    psrti_flat_state_t state = PSRTI_FLAT_DONE;
    while (!psrti_list_empty(&s->queue) && (state = psrti_flat_poll(s->flat)) == PSRTI_FLAT_DONE) {
        end_first(s, PSRT_OK, NULL);
        events++;
        if (!psrti_list_empty(&s->queue)) begin_first(s);
    }
    if (psrti_list_empty(&s->queue)) {
        psrti_list_remove(&s->active);
        return events;
    }
    wake(s, psrti_flat_wakes(s->flat));
    if (state == PSRTI_FLAT_MISMATCH)
        fail_mismatch(s);
    else if (state == PSRTI_FLAT_BROKEN)
        psrti_comm_fail(s->comm->core, PSRT_ERR_PROTOCOL, "a member wrote nonsense to its memory");
    else
        look_at_time(s, now);
    psrt_status_t status = psrti_comm_status(s->comm->core);
    return events + (status ? fail_all(s, status, psrti_comm_text(s->comm->core)) : 0);
}

unsigned psrti_smalls_move(psrti_worker_t *w, uint64_t now)
{
    unsigned events = 0;
    for (psrti_list_t *n = w->active_smalls.next, *next; n != &w->active_smalls; n = next) {
        next = n->next;
        events += move(PSRTI_LIST_ENTRY(n, psrti_small_t, active), now);
    }
    return events;
}

int psrti_smalls_sleep(psrti_worker_t *w)
{
    int may = 1;
    for (psrti_list_t *n = w->active_smalls.next; n != &w->active_smalls; n = n->next)
        may &= psrti_flat_want_wake(PSRTI_LIST_ENTRY(n, psrti_small_t, active)->flat);
    return may;
}

void psrti_smalls_awake(psrti_worker_t *w)
{
    for (psrti_list_t *n = w->active_smalls.next; n != &w->active_smalls; n = n->next)
        psrti_flat_awake(PSRTI_LIST_ENTRY(n, psrti_small_t, active)->flat);
}
