/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: their life, and their end on all members. */
#include "runtime/coll/coll.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/coll/coll_int.h"

typedef psrti_comm_t comm_t;
typedef psrti_collmember_t member_t;

psrt_status_t psrti_comm_status(const comm_t *comm)
{
    return comm->state == PSRTI_COMM_READY     ? PSRT_OK
           : comm->state == PSRTI_COMM_MEETING ? PSRT_ERR_BUSY
                                               : comm->status;
}
const char *psrti_comm_text(const comm_t *comm) { return comm->text; }
uint32_t psrti_comm_rank(const comm_t *comm) { return comm->rank; }
uint32_t psrti_comm_size(const comm_t *comm) { return comm->size; }
const uint32_t *psrti_comm_ranks(const comm_t *comm) { return comm->ranks; }

const char *psrti_member_name(const comm_t *comm, uint32_t member, char buf[128])
{
    uint32_t rank = comm->ranks[member];
    const psrti_view_t *view = comm->coll->view;
    const char *host = view && rank < view->nworkers ? view->workers[rank].host : "";
    if (*host)
        snprintf(buf, 128, "rank %u (worker:%u at %s)", member, rank, host);
    else if (rank != member)
        snprintf(buf, 128, "rank %u (worker:%u)", member, rank);
    else
        snprintf(buf, 128, "rank %u", member);
    return buf;
}

/* All have come and said where they are. */
psrt_status_t psrti_comm_find_hosts(comm_t *comm)
{
    const psrti_coll_params_t *p = &comm->coll->p;
    uint64_t *host = malloc(comm->size * sizeof *host);
    uint32_t *place = malloc(comm->size * sizeof *place);

    comm->members[comm->rank].host = p->host;
    comm->members[comm->rank].place = p->place;
    for (uint32_t m = 0; host && place && m < comm->size; m++) {
        host[m] = comm->members[m].host;
        place[m] = comm->members[m].place;
    }
    if (host && place) comm->topo = psrti_coll_topo_new(comm->size, host, place);
    free(host);
    free(place);
    return comm->topo ? PSRT_OK : PSRT_ERR_NO_MEMORY;
}

uint32_t psrti_comm_hosts(const comm_t *comm) { return comm->topo ? comm->topo->hosts : 0; }

const psrti_coll_tune_t *psrti_comm_rules(const comm_t *comm)
{
    return comm->tune ? comm->tune : &comm->coll->tune;
}

uint8_t psrti_comm_algorithm(const comm_t *comm, const psrti_coll_call_t *call)
{
    psrti_coll_site_t site = { .hosts = psrti_coll_hosts(comm->topo),
                               .most = comm->topo->most,
                               .tune = psrti_comm_rules(comm) };
    int is_v = call->what == PSRTI_COLL_ALLGATHERV || call->what == PSRTI_COLL_ALLTOALLV;
    if (psrti_layout_is_pair(call->what)) return PSRTI_ALG_DIRECT;
    psrti_collective_t collective = psrti_layout_collective(call->what);
    psrti_coll_algorithm_t algorithm =
        psrti_coll_select(&site, collective, psrti_layout_measure(comm, call), comm->size);
    return (uint8_t)(is_v && psrti_coll_plan_packs(collective, algorithm) ? PSRTI_ALG_DIRECT
                                                                          : algorithm);
}

/* ---- lanes -------------------------------------------------------------------------------------- */

void psrti_lane_init(psrti_colllane_t *lane, psrti_collslot_t *slots, uint32_t count)
{
    *lane = (psrti_colllane_t){ .next = 1, .mask = count - 1, .slots = slots };
    psrti_list_init(&lane->waiting);
    for (uint32_t i = 0; i < count; i++) {
        slots[i].op = NULL;
        psrti_list_init(&slots[i].early);
    }
}

psrti_pair_t *psrti_comm_pair(comm_t *comm, uint32_t member)
{
    member_t *m = &comm->members[member];
    if (m->pair) return m->pair;
    m->pair = calloc(1, sizeof *m->pair);
    if (!m->pair) return NULL;
    psrti_lane_init(&m->pair->send, &m->pair->send_slot, 1);
    psrti_lane_init(&m->pair->recv, &m->pair->recv_slot, 1);
    return m->pair;
}

/* Calls f for each lane that there is. */
static void each_lane(comm_t *comm, void (*f)(comm_t *, psrti_colllane_t *))
{
    f(comm, &comm->lane);
    for (uint32_t m = 0; m < comm->size; m++) {
        if (!comm->members[m].pair) continue;
        f(comm, &comm->members[m].pair->send);
        f(comm, &comm->members[m].pair->recv);
    }
}

static void end_lane(comm_t *comm, psrti_colllane_t *lane)
{
    for (uint32_t i = 0; i <= lane->mask; i++) {
        psrti_collslot_t *slot = &lane->slots[i];
        PSRTI_LIST_FOREACH_SAFE(it, tmp, &slot->early)
        psrti_parcel_free(comm->coll, PSRTI_LIST_ENTRY(it, psrti_parcel_t, node));
        if (slot->op) psrti_run_doom(slot->op->run);
    }
    for (psrti_list_t *n; (n = psrti_list_pop(&lane->waiting)) != NULL;)
        psrti_coll_end(PSRTI_LIST_ENTRY(n, psrti_collop_t, node), comm->status, comm->text);
}

/* Messages of calls that were not begun, of a member whose link is lost. */
static void drop_early(comm_t *comm, psrti_colllane_t *lane)
{
    for (uint32_t i = 0; i <= lane->mask; i++)
        PSRTI_LIST_FOREACH_SAFE(it, tmp, &lane->slots[i].early)
        {
            psrti_parcel_t *p = PSRTI_LIST_ENTRY(it, psrti_parcel_t, node);
            if (!comm->members[comm->place[p->rank]].handle) psrti_parcel_free(comm->coll, p);
        }
}

void psrti_comm_drop_early(comm_t *comm, uint32_t member)
{
    each_lane(comm, drop_early);
    comm->members[member].early = 0;
}

/* A worker that has not let go of the memory of failed operations; NOBODY: none. */
uint32_t psrti_comm_stuck_at(const comm_t *comm)
{
    for (psrti_list_t *n = comm->dying.next; n != &comm->dying; n = n->next) {
        uint32_t rank = psrti_run_stuck_at(PSRTI_LIST_ENTRY(n, psrti_collrun_t, node));
        if (rank != PSRTI_COLL_NOBODY) return rank;
    }
    return PSRTI_COLL_NOBODY;
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* As far as is known: views may be older than links. */
int psrti_coll_lives(const psrti_view_t *view, uint32_t rank, uint64_t incarnation)
{
    if (!view || rank >= view->nworkers) return 1;
    const psrti_view_worker_t *w = &view->workers[rank];
    return w->incarnation < incarnation || (w->alive && w->incarnation == incarnation);
}

static void tell_member(comm_t *comm, uint32_t member)
{
    psrti_coll_t *coll = comm->coll;
    member_t *m = &comm->members[member];
    uint32_t rank = comm->ranks[member];
    psrt_hdr_t hdr = { .table = m->handle,
                       .offset = comm->handle,
                       .seq_floor = PSRTI_COLL_ABORT,
                       .status = (uint8_t)-comm->status };

    if (m->is_closed || m->told_us) return;
    if (coll->peers[rank].up)
        psrti_peer_tell(coll, rank, &hdr, comm->text, strlen(comm->text));
    else if (m->handle && psrti_coll_lives(coll->view, rank, m->incarnation))
        psrti_peer_owe(coll, rank, m->incarnation, &hdr, comm->text, strlen(comm->text));
}

void psrti_comm_want(comm_t *comm)
{
    for (uint32_t m = 0; m < comm->size; m++)
        if (m != comm->rank) psrti_peer_want(comm->coll, comm->ranks[m]);
}

void psrti_comm_unwant(comm_t *comm)
{
    for (uint32_t m = 0; m < comm->size; m++)
        if (m != comm->rank) comm->coll->peers[comm->ranks[m]].wants--;
}

/* Nothing more is wanted of the members. */
static void let_go(comm_t *comm)
{
    psrti_list_remove(&comm->meeting_node);
    psrti_comm_unwant(comm);
}

/* The communicator fails; `told_by`: the member that said so, or NOBODY. */
void psrti_comm_end(comm_t *comm, psrt_status_t status, const char *text, uint32_t told_by)
{
    if (comm->state == PSRTI_COMM_FAILED) return;
    comm->state = PSRTI_COMM_FAILED;
    comm->coll->failures++;
    comm->status = status;
    snprintf(comm->text, sizeof comm->text, "%s", text);
    if (told_by != PSRTI_COLL_NOBODY) comm->members[told_by].told_us = 1;
    let_go(comm);
    for (uint32_t m = 0; m < comm->size; m++)
        if (m != comm->rank) tell_member(comm, m);
    if (comm->creation) psrti_coll_end(comm->creation, status, comm->text);
    comm->creation = NULL;
    each_lane(comm, end_lane);
    comm->has_moved = 1; /* the grace begins at the next look at the time */
    comm->coll->next_check = 0;
}

void psrti_comm_fail(comm_t *comm, psrt_status_t status, const char *text)
{
    psrti_comm_end(comm, status, text, PSRTI_COLL_NOBODY);
}

void psrti_comm_bad_early(comm_t *comm, uint32_t member)
{
    char why[PSRTI_COLL_TEXT], name[128];
    snprintf(why, sizeof why, "%s: %s sent a message that makes no sense", comm->title,
             psrti_member_name(comm, member, name));
    psrti_comm_fail(comm, PSRT_ERR_PEER_LOST, why);
}

psrt_status_t psrti_comm_note(comm_t *comm, uint32_t member, const void *data, uint64_t len)
{
    psrt_hdr_t hdr = { .table = comm->members[member].handle,
                       .offset = comm->handle,
                       .seq_floor = PSRTI_COLL_NOTED };
    if (comm->state != PSRTI_COMM_READY) return psrti_comm_status(comm);
    if (len > PSRTI_COLL_NOTE || member >= comm->size || member == comm->rank)
        return PSRT_ERR_INVALID;
    psrti_peer_tell(comm->coll, comm->ranks[member], &hdr, data, len);
    return PSRT_OK;
}

/* Frees what nobody uses any more; without a word to anybody. */
void psrti_comm_forget(comm_t *comm)
{
    psrti_coll_t *coll = comm->coll;
    psrti_list_remove(&comm->node);
    psrti_list_remove(&comm->meeting_node);
    psrti_list_remove(&comm->busy_node);
    psrti_map_remove(&coll->by_handle, comm->handle);
    while (!psrti_list_empty(&comm->scheds))
        psrti_sched_free(coll, PSRTI_LIST_ENTRY(comm->scheds.next, psrti_collsched_t, node));
    for (uint32_t m = 0; comm->members && m < comm->size; m++)
        free(comm->members[m].pair);
    free(comm->members);
    psrti_coll_topo_free(comm->topo);
    free(comm->tune);
    free(comm->ranks);
    free(comm->place);
    free(comm->wider);
    free(comm->name);
    free(comm);
}

/* One of the failed operations has ended. */
void psrti_comm_undoom(comm_t *comm)
{
    comm->doomed--;
    if (comm->is_freed && !comm->doomed) psrti_comm_forget(comm);
}

static void say_goodbye(comm_t *comm)
{
    for (uint32_t m = 0; m < comm->size; m++) {
        if (m == comm->rank || comm->members[m].is_closed) continue;
        const psrti_pair_t *pair = comm->members[m].pair;
        psrt_hdr_t hdr = { .table = comm->members[m].handle,
                           .offset = comm->handle,
                           .seq = comm->lane.last,
                           .step = pair ? pair->send.last : 0,
                           .term = pair ? (uint32_t)pair->recv.last : 0,
                           .seq_floor = PSRTI_COLL_CLOSE };
        psrti_peer_tell(comm->coll, comm->ranks[m], &hdr, NULL, 0);
    }
}

/* Has calls of any lane that have not ended. */
static int has_calls(const comm_t *comm)
{
    if (comm->lane.running || !psrti_list_empty(&comm->lane.waiting)) return 1;
    for (uint32_t m = 0; m < comm->size; m++) {
        const psrti_pair_t *pair = comm->members[m].pair;
        if (pair && (pair->send.running || pair->recv.running)) return 1;
    }
    return 0;
}

/* Time passes for it. */
int psrti_comm_has_work(const comm_t *comm)
{
    if (comm->state == PSRTI_COMM_FAILED) return comm->doomed > 0;
    return comm->state == PSRTI_COMM_MEETING || has_calls(comm);
}

int psrti_comm_is_in_use(const comm_t *comm)
{
    return comm->state == PSRTI_COMM_READY && has_calls(comm);
}

void psrti_comm_leave(comm_t *comm)
{
    if (comm->state != PSRTI_COMM_READY || has_calls(comm)) return;
    say_goodbye(comm);
    let_go(comm);
    comm->state = PSRTI_COMM_FAILED;
    comm->status = PSRT_ERR_CLOSED;
    snprintf(comm->text, sizeof comm->text, "%s: this rank has left it", comm->title);
    comm->coll->failures++;
}

void psrti_comm_free(comm_t *comm)
{
    if (!comm) return;
    psrti_coll_t *coll = comm->coll;
    char text[PSRTI_COLL_TEXT], name[128];

    comm->is_freed = 1;
    psrti_comm_leave(comm);
    if (comm->state != PSRTI_COMM_FAILED) {
        snprintf(text, sizeof text, "%s: %s freed it before its operations had ended", comm->title,
                 psrti_member_name(comm, comm->rank, name));
        psrti_comm_fail(comm, PSRT_ERR_CANCELED, text);
    }
    if (!comm->doomed) psrti_comm_forget(comm);
    psrti_coll_drain(coll);
}

/* ---- what others do ------------------------------------------------------------------------------ */

void psrti_comm_link_lost(comm_t *comm, uint32_t member, psrt_status_t status, const char *text)
{
    char why[PSRTI_COLL_TEXT], name[128];
    if (comm->members[member].is_closed) return;
    if (comm->state == PSRTI_COMM_MEETING) psrti_meet_lost(comm, member);
    if (comm->state != PSRTI_COMM_READY) return;
    snprintf(why, sizeof why, "%s: the connection to %s was lost: %s", comm->title,
             psrti_member_name(comm, member, name),
             text && *text ? text : psrt_status_text(status));
    psrti_comm_fail(comm, PSRT_ERR_PEER_LOST, why);
}

void psrti_comm_withdrawn(comm_t *comm, uint32_t member, psrt_status_t status)
{
    char why[PSRTI_COLL_TEXT], name[128];
    snprintf(why, sizeof why, "%s: %s withdrew data that it had sent: %s", comm->title,
             psrti_member_name(comm, member, name), psrt_status_text(status));
    psrti_comm_fail(comm, PSRT_ERR_PEER_LOST, why);
}

void psrti_comm_fail_memory(comm_t *comm, const psrti_collop_t *op)
{
    char why[PSRTI_COLL_TEXT], what[192], name[128];
    psrti_coll_describe(op, what, sizeof what);
    snprintf(why, sizeof why, "%s: out of memory on %s", what,
             psrti_member_name(comm, comm->rank, name));
    psrti_comm_fail(comm, PSRT_ERR_NO_MEMORY, why);
}

void psrti_comm_closed(comm_t *comm, uint32_t member, const psrt_hdr_t *hdr)
{
    member_t *m = &comm->members[member];
    if (m->is_closed) return;
    psrti_parcels_copy_from(comm->coll, comm->ranks[member]);
    m->is_closed = 1;
    m->closed_at = hdr->seq;
    m->closed_sends = hdr->step;
    m->closed_recvs = hdr->term;
    for (uint32_t i = 0; i <= comm->lane.mask && comm->state == PSRTI_COMM_READY; i++) {
        psrti_collop_t *op = comm->slots[i].op;
        if (op) (void)psrti_comm_check_closed(comm, op);
    }
    if (!m->pair || comm->state != PSRTI_COMM_READY) return;
    if (m->pair->send_slot.op && !psrti_comm_check_closed(comm, m->pair->send_slot.op)) return;
    if (m->pair->recv_slot.op) (void)psrti_comm_check_closed(comm, m->pair->recv_slot.op);
}

/* It had made its part of the call before it went. What it sent came before its CLOSE. */
static int had_part_in(const member_t *closed, const psrti_collop_t *op)
{
    if (op->call.what == PSRTI_COLL_RECV_FROM) return op->seq <= closed->closed_sends;
    if (op->call.what == PSRTI_COLL_SEND_TO)
        return (int32_t)(closed->closed_recvs - (uint32_t)op->seq) >= 0;
    return op->seq <= closed->closed_at;
}

/* A call that needs a member that is gone; returns 0 if the communicator failed of it. */
int psrti_comm_check_closed(comm_t *comm, const psrti_collop_t *op)
{
    char text[PSRTI_COLL_TEXT], name[128], call[128];
    int is_pair = psrti_layout_is_pair(op->call.what);
    for (uint32_t m = 0; m < comm->size; m++) {
        const member_t *member = &comm->members[m];
        if (!member->is_closed || (is_pair && op->call.root != m)) continue;
        if (had_part_in(member, op)) continue;
        psrti_coll_call_text(&op->call, call, sizeof call);
        snprintf(text, sizeof text,
                 "%s: %s freed it after %llu collectives, %s called %s, number %llu", comm->title,
                 psrti_member_name(comm, m, name),
                 psrti_comm_number(comm, PSRTI_COLL_BARRIER, member->closed_at), "this rank", call,
                 psrti_comm_number(comm, op->call.what, op->seq));
        psrti_comm_fail(comm, PSRT_ERR_MISMATCH, text);
        return 0;
    }
    return 1;
}

static psrt_status_t status_of(const psrt_hdr_t *hdr)
{
    psrt_status_t status = (psrt_status_t) - (int)hdr->status;
    return status < 0 && strcmp(psrt_status_name(status), "PSRT_UNKNOWN") != 0 ? status
                                                                               : PSRT_ERR_PEER_LOST;
}

/* A member says that the communicator failed, or, while it assembles, that it is in no more. */
void psrti_comm_aborted(comm_t *comm, uint32_t member, const psrt_hdr_t *hdr, const char *data)
{
    char text[PSRTI_COLL_TEXT];
    size_t n = 0;
    if (comm->state == PSRTI_COMM_MEETING && comm->wider) {
        psrti_meet_lost(comm, member);
        return;
    }
    for (; n < hdr->length && n + 1 < sizeof text; n++)
        text[n] = (unsigned char)data[n] < ' ' || data[n] == 127 ? '?' : data[n];
    text[n] = 0;
    psrti_comm_end(comm, status_of(hdr), text, member);
}
