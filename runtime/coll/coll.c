/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/coll.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/coll/coll_int.h"

#define CHECK_MAX (500 * PSRTI_NS_PER_MS) /* stalled operations are looked at this often at least */
#define CHECK_MIN PSRTI_NS_PER_MS

typedef psrti_comm_t comm_t;

/* Whole lines: data are cut at them. */
static uint64_t message_of(const psrti_coll_params_t *params)
{
    uint64_t most = params->message ? params->message : PSRTI_COLL_MESSAGE;
    return PSRTI_MIN(most, PSRTI_COLL_MESSAGE) / PSRTI_COLL_LINE * PSRTI_COLL_LINE;
}

psrt_status_t psrti_coll_create(const psrti_coll_params_t *params, const psrti_coll_env_t *env,
                                psrti_coll_t **coll_p)
{
    psrti_coll_t *coll = calloc(1, sizeof *coll);
    psrti_collpeer_t *peers = calloc(params->workers, sizeof *peers);
    if (!coll || !peers) {
        free(coll);
        free(peers);
        return PSRT_ERR_NO_MEMORY;
    }
    coll->p = *params;
    coll->p.message = message_of(params);
    if (params->tune) coll->tune = *params->tune;
    coll->p.tune = NULL;
    coll->env = *env;
    coll->peers = peers;
    coll->next_check = UINT64_MAX;
    psrti_list_t *lists[] = { &coll->comms, &coll->meeting, &coll->busy, &coll->ready,
                              &coll->ended, &coll->held,    &coll->spare };
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        psrti_list_init(lists[i]);
    for (uint32_t r = 0; r < params->workers; r++) {
        psrti_list_init(&peers[r].queue);
        psrti_list_init(&peers[r].opens);
        psrti_list_init(&peers[r].debts);
    }
    *coll_p = coll;
    return PSRT_OK;
}

void psrti_coll_destroy(psrti_coll_t *coll)
{
    if (!coll) return;
    coll->is_over = 1;
    for (uint32_t r = 0; r < coll->p.workers; r++)
        psrti_coll_link_lost(coll, r, PSRT_ERR_CLOSED, "the engine ends");
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->comms)
    {
        comm_t *comm = PSRTI_LIST_ENTRY(it, comm_t, node);
        psrti_comm_fail(comm, PSRT_ERR_CLOSED, psrt_status_text(PSRT_ERR_CLOSED));
        psrti_comm_forget(comm);
    }
    for (uint32_t r = 0; r < coll->p.workers; r++)
        psrti_peer_forgive(coll, r);
    for (psrti_list_t *n; (n = psrti_list_pop(&coll->spare)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, psrti_parcel_t, node));
    psrti_map_clear(&coll->by_handle);
    psrti_view_unref(coll->view);
    free(coll->peers);
    free(coll);
}

/* ---- operations --------------------------------------------------------------------------------- */

void psrti_coll_end(psrti_collop_t *op, psrt_status_t status, const char *text)
{
    if (op->comm->coll->is_over) return;
    op->status = status;
    if (status != PSRT_OK && text && *text) op->text = strdup(text);
    op->ended = 1;
    psrti_list_push(&op->comm->coll->ended, &op->node);
}

psrti_collop_t *psrti_coll_completed(psrti_coll_t *coll)
{
    psrti_list_t *n = psrti_list_pop(&coll->ended);
    return n ? PSRTI_LIST_ENTRY(n, psrti_collop_t, node) : NULL;
}

/* Begins calls whose turn it is. */
void psrti_lane_pump(comm_t *comm, psrti_colllane_t *lane)
{
    while (comm->state == PSRTI_COMM_READY && !psrti_list_empty(&lane->waiting)) {
        psrti_collop_t *op = PSRTI_LIST_ENTRY(lane->waiting.next, psrti_collop_t, node);
        if (lane->slots[op->seq & lane->mask].op) return;
        psrti_list_remove(&op->node);
        psrti_run_begin(op, lane);
        if (lane == &comm->lane) psrti_comm_pass_counted(comm);
    }
}

static psrti_colllane_t *lane_of(comm_t *comm, const psrti_coll_call_t *call)
{
    if (!psrti_layout_is_pair(call->what)) return &comm->lane;
    psrti_pair_t *pair = psrti_comm_pair(comm, call->root);
    if (!pair) return NULL;
    return call->what == PSRTI_COLL_SEND_TO ? &pair->send : &pair->recv;
}

void psrti_coll_start(comm_t *comm, const psrti_coll_call_t *call, psrti_collop_t *op)
{
    psrti_coll_t *coll = comm->coll;
    op->comm = comm;
    op->call = *call;
    op->status = PSRT_IN_PROGRESS;
    psrti_list_init(&op->node);
    if (comm->state != PSRTI_COMM_READY) {
        psrti_coll_end(op, psrti_comm_status(comm),
                       comm->state == PSRTI_COMM_MEETING ? "its creation has not ended"
                                                         : comm->text);
        return;
    }
    psrti_colllane_t *lane = lane_of(comm, call);
    if (!lane) {
        psrti_comm_fail_memory(comm, op);
        psrti_coll_end(op, comm->status, comm->text);
        return;
    }
    op->seq = ++lane->last;
    if (lane == &comm->lane)
        psrti_comm_remember(comm, op->seq,
                            psrti_sig_of(comm, call, psrti_comm_algorithm(comm, call)));
    psrti_list_push(&lane->waiting, &op->node);
    psrti_lane_pump(comm, lane);
    psrti_coll_drain(coll);
}

void psrti_coll_cancel(psrti_collop_t *op, psrt_status_t status, const char *text)
{
    comm_t *comm = op->comm;
    char what[192], why[PSRTI_COLL_TEXT], name[128];
    if (op->ended) return;
    psrti_coll_describe(op, what, sizeof what);
    snprintf(why, sizeof why, "%s: ended by %s: %s", what,
             psrti_member_name(comm, comm->rank, name), text ? text : psrt_status_text(status));
    psrti_comm_fail(comm, status, why);
    psrti_coll_drain(comm->coll);
}

/* Goes on with all that can; what does not fit in a message's turn is done here, in the order in which it became
 * possible. */
void psrti_coll_drain(psrti_coll_t *coll)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&coll->ready)) != NULL;)
        psrti_exec_advance(PSRTI_LIST_ENTRY(n, psrti_collexec_t, node));
}

void psrti_coll_fail(psrti_coll_t *coll, psrt_status_t status, const char *text)
{
    if (coll->status) return;
    coll->status = status;
    snprintf(coll->text, sizeof coll->text, "%s", text);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->comms)
    psrti_comm_fail(PSRTI_LIST_ENTRY(it, comm_t, node), status, text);
}

void psrti_coll_view(psrti_coll_t *coll, psrti_view_t *view)
{
    if (coll->view && view->number <= coll->view->number) return;
    psrti_view_unref(coll->view);
    coll->view = psrti_view_ref(view);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->comms)
    psrti_comm_view(PSRTI_LIST_ENTRY(it, comm_t, node));
    for (uint32_t r = 0; r < coll->p.workers && r < view->nworkers; r++)
        if (!view->workers[r].alive) psrti_peer_forgive(coll, r);
    psrti_coll_drain(coll);
}

int psrti_coll_wants(const psrti_coll_t *coll, uint32_t rank)
{
    return coll->peers[rank].wants > 0;
}
uint64_t psrti_coll_unsent(const psrti_coll_t *coll) { return coll->unsent; }

/* ---- time --------------------------------------------------------------------------------------- */

static uint64_t period(const psrti_coll_t *coll)
{
    uint64_t t = coll->p.timeout ? coll->p.timeout / 8 : CHECK_MAX;
    if (coll->p.grace) t = PSRTI_MIN(t, coll->p.grace / 2);
    return PSRTI_MAX(CHECK_MIN, PSRTI_MIN(t, CHECK_MAX));
}

/* It has something to wait for: the clock of the caller may stand, so the time is taken at the next progress. */
void psrti_comm_busy(comm_t *comm)
{
    if (!psrti_list_empty(&comm->busy_node)) return;
    comm->has_moved = 1;
    psrti_list_push(&comm->coll->busy, &comm->busy_node);
    comm->coll->next_check = 0;
}

/* Links of those who hold the memory of failed operations longer than they may. The communicator may be gone
 * afterwards. */
static void drop_links(comm_t *comm)
{
    psrti_coll_t *coll = comm->coll;
    uint32_t rank = psrti_comm_stuck_at(comm), before = PSRTI_COLL_NOBODY;
    while (rank != PSRTI_COLL_NOBODY && rank != before) {
        int may_be_gone = comm->is_freed;
        coll->env.drop(coll->env.arg, rank);
        psrti_coll_link_lost(coll, rank, PSRT_ERR_PEER_LOST,
                             "it did not let go of the memory of a failed operation");
        if (may_be_gone) return; /* the next look finds it, if it is still there */
        before = rank;
        rank = psrti_comm_stuck_at(comm);
    }
}

/* 1: communicators may be gone. */
static int check(comm_t *comm, uint64_t now)
{
    psrti_coll_t *coll = comm->coll;
    if (comm->has_moved) {
        comm->has_moved = 0;
        comm->since = now;
    }
    if (comm->state == PSRTI_COMM_READY) {
        psrti_comm_watch(comm, now);
    } else if (comm->state == PSRTI_COMM_MEETING) {
        if (coll->p.timeout && now >= comm->since + coll->p.timeout)
            psrti_comm_time_out(comm, comm->creation);
    } else if (now >= comm->since + coll->p.grace) {
        drop_links(comm);
        return 1;
    }
    return 0;
}

/* 1: not all were looked at. */
static int check_all(psrti_coll_t *coll, uint64_t now)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->busy)
    {
        comm_t *comm = PSRTI_LIST_ENTRY(it, comm_t, busy_node);
        if (!psrti_comm_has_work(comm))
            psrti_list_remove(&comm->busy_node);
        else if (check(comm, now))
            return 1;
    }
    return 0;
}

uint64_t psrti_coll_progress(psrti_coll_t *coll, uint64_t now)
{
    coll->now = now;
    psrti_coll_drain(coll);
    if (now < coll->next_check) return coll->next_check;
    coll->next_check = UINT64_MAX;
    int some_left = check_all(coll, now);
    psrti_coll_drain(coll);
    if (some_left)
        coll->next_check = now + CHECK_MIN;
    else if (!psrti_list_empty(&coll->busy))
        coll->next_check = PSRTI_MIN(coll->next_check, now + period(coll));
    return coll->next_check;
}
