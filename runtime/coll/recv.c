/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of calls: whether they belong to the same call here, and where they go. */
#include <string.h>

#include "runtime/coll/coll_int.h"

#define EARLY_CHARGE 64 /* bytes that an empty message counts */

typedef psrti_comm_t comm_t;
typedef psrti_collsig_t sig_t;

/* ---- signatures --------------------------------------------------------------------------------- */

/* Of a call as all members see it. */
psrti_collsig_t psrti_sig_of(const comm_t *comm, const psrti_coll_call_t *call, uint8_t algorithm)
{
    sig_t sig = { .what = call->what,
                  .dtype = call->dtype,
                  .redop = call->redop,
                  .algorithm = algorithm,
                  .root = psrti_layout_is_pair(call->what) ? 0 : call->root,
                  .count = call->count };
    if (call->what == PSRTI_COLL_ALLGATHERV)
        sig.count = psrti_layout_sum(call->out_counts, comm->size);
    if (call->what == PSRTI_COLL_ALLTOALLV) sig.count = 0;
    return sig;
}

/* Of a call that runs, as it stands in data to or from a member: there alltoallv has the count of the two. */
psrti_collsig_t psrti_sig_for(const psrti_collrun_t *run, uint32_t member, int is_data, int sends)
{
    const psrti_coll_call_t *call = &run->op->call;
    sig_t sig = run->sig;
    if (call->what == PSRTI_COLL_ALLTOALLV && is_data)
        sig.count = sends ? call->in_counts[member] : call->out_counts[member];
    return sig;
}

static sig_t sig_in(const psrt_hdr_t *hdr)
{
    return (sig_t){ .what = hdr->priority & 15,
                    .dtype = hdr->dtype,
                    .redop = hdr->priority >> 4,
                    .algorithm = hdr->status,
                    .root = hdr->vshard,
                    .count = hdr->step };
}

/* The two sides of a message between two ranks are the same call. */
static uint8_t side(uint8_t what)
{
    return what == PSRTI_COLL_RECV_FROM ? PSRTI_COLL_SEND_TO : what;
}

static int is_same(const sig_t *a, const sig_t *b)
{
    return side(a->what) == side(b->what) && a->dtype == b->dtype && a->redop == b->redop &&
           a->algorithm == b->algorithm && a->root == b->root && a->count == b->count;
}

static void sig_text(const sig_t *sig, int with_algorithm, char *buf, size_t size)
{
    psrti_coll_call_t call = { .what = sig->what,
                               .dtype = sig->dtype,
                               .redop = sig->redop,
                               .root = sig->root,
                               .count = sig->count };
    size_t at;
    psrti_coll_call_text(&call, buf, size);
    at = strlen(buf);
    if (!with_algorithm) return;
    (void)psrti_append(buf, size, &at, " by %s",
                       sig->algorithm < PSRTI_ALG_COUNT ? psrti_coll_algorithm_name(sig->algorithm)
                                                        : "shared memory");
}

void psrti_comm_disagree(comm_t *comm, uint32_t member, uint64_t seq, const sig_t *theirs,
                         const sig_t *ours)
{
    char text[PSRTI_COLL_TEXT], a[128], b[128], name[128];
    size_t at = 0;
    int same_call = theirs->what == ours->what && theirs->dtype == ours->dtype &&
                    theirs->redop == ours->redop && theirs->root == ours->root &&
                    theirs->count == ours->count;
    sig_text(theirs, same_call, a, sizeof a);
    sig_text(ours, same_call, b, sizeof b);
    (void)psrti_append(text, sizeof text, &at, "%s", comm->title);
    if (seq)
        (void)psrti_append(text, sizeof text, &at, ", call %llu",
                           psrti_comm_number(comm, ours->what, seq));
    (void)psrti_append(text, sizeof text, &at, ": %s called %s, ",
                       psrti_member_name(comm, member, name), a);
    (void)psrti_append(text, sizeof text, &at, "%s called %s; %s",
                       psrti_member_name(comm, comm->rank, name), b,
                       same_call ? "PSRT_COLL_TUNE, or `tune` of psrt_comm_params_t, must be the "
                                   "same on all ranks"
                                 : "all members must make the same calls in the same order");
    psrti_comm_fail(comm, PSRT_ERR_MISMATCH, text);
}

/* ---- lanes -------------------------------------------------------------------------------------- */

typedef struct where {
    psrti_colllane_t *lane;
    psrti_collknown_t *known;
} where_t;

/* Where a message with this signature belongs; 0: nowhere, or no memory. */
static int find_lane(comm_t *comm, uint32_t member, uint8_t what, where_t *at)
{
    if (what >= PSRTI_COLL_WHATS) return 0;
    if (!psrti_layout_is_pair(what)) {
        *at = (where_t){ &comm->lane, &comm->members[member].known };
        return 1;
    }
    psrti_pair_t *pair = psrti_comm_pair(comm, member);
    if (!pair) return 0;
    *at = what == PSRTI_COLL_SEND_TO ? (where_t){ &pair->recv, &pair->recv_known }
                                     : (where_t){ &pair->send, &pair->send_known };
    return 1;
}

/* What the member has begun may let sends to it go on. */
static void hear(uint32_t member, const where_t *at, uint64_t seq)
{
    if (seq <= at->known->heard) return;
    at->known->heard = seq;
    if (!at->known->is_blocked) return;
    at->known->is_blocked = 0;
    for (uint32_t i = 0; i <= at->lane->mask; i++) {
        psrti_collop_t *op = at->lane->slots[i].op;
        uint32_t w = op ? op->run->sched->way_of[member] : PSRTI_COLL_NOBODY;
        if (w != PSRTI_COLL_NOBODY) psrti_way_flush(op->run, w);
    }
}

static psrti_collop_t *running(const psrti_colllane_t *lane, uint64_t seq)
{
    psrti_collop_t *op = lane->slots[seq & lane->mask].op;
    return op && op->seq == seq ? op : NULL;
}

/* A call that is over here, or went another way: only a different one says something. */
static psrt_rx_t past_call(comm_t *comm, uint32_t member, const psrt_hdr_t *hdr, int is_data)
{
    const psrti_collpast_t *past = &comm->past[hdr->seq % PSRTI_COLL_HISTORY];
    sig_t theirs = sig_in(hdr), ours = past->sig;
    if (psrti_layout_is_pair(theirs.what) || past->seq != hdr->seq)
        return is_data ? PSRT_RX_BAD : PSRT_RX_DONE;
    if (theirs.what == PSRTI_COLL_ALLTOALLV) ours.count = theirs.count;
    if (is_same(&theirs, &ours)) return is_data ? PSRT_RX_BAD : PSRT_RX_DONE;
    psrti_comm_disagree(comm, member, hdr->seq, &theirs, &ours);
    return PSRT_RX_DONE;
}

/* Whether the call that runs is the one that the message is of; if not, the communicator fails. */
static int check_sig(psrti_collrun_t *run, uint32_t member, const psrt_hdr_t *hdr, int is_data)
{
    sig_t theirs = sig_in(hdr), ours = psrti_sig_for(run, member, is_data, 0);
    if (is_same(&theirs, &ours)) return 1;
    psrti_comm_disagree(run->op->comm, member, hdr->seq, &theirs, &ours);
    return 0;
}

/* ---- data --------------------------------------------------------------------------------------- */

/* Lengths can differ where each rank has counts of its own. */
static psrt_rx_t wrong_length(psrti_collrun_t *run, uint32_t member, uint64_t got, uint64_t want)
{
    comm_t *comm = run->op->comm;
    char text[PSRTI_COLL_TEXT], name[128], call[96];
    if (run->cut.layout != PSRTI_LAYOUT_V) return PSRT_RX_BAD;
    psrti_coll_call_text(&run->op->call, call, sizeof call);
    snprintf(text, sizeof text,
             "%s, call %llu, %s: %s sent a piece of %llu bytes, rank %u expects %llu; "
             "the counts of the two differ",
             comm->title, psrti_comm_number(comm, run->op->call.what, run->op->seq), call,
             psrti_member_name(comm, member, name), (unsigned long long)got, comm->rank,
             (unsigned long long)want);
    psrti_comm_fail(comm, PSRT_ERR_MISMATCH, text);
    return PSRT_RX_DONE;
}

typedef struct place {
    psrti_collexec_t *exec;
    uint32_t move;
} place_t;

/* The move that expects a message. 0: none does, and *rx_p says what to answer; the communicator may have failed. */
static int find_place(psrti_collrun_t *run, uint32_t member, const psrt_msg_t *msg, place_t *at,
                      psrt_rx_t *rx_p)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    const psrti_collsched_t *s = run->sched;
    uint32_t w = s->way_of[member];

    *rx_p = PSRT_RX_BAD;
    if (w == PSRTI_COLL_NOBODY || hdr->offset >= s->ways[w].nrecvs || hdr->term < run->base ||
        hdr->term >= run->base + PSRTI_COLL_WINDOW)
        return 0;
    if (hdr->term >= run->cut.chunks) {
        *rx_p = wrong_length(run, member, msg->len, 0);
        return 0;
    }
    at->move = s->recvs[s->ways[w].first_recv + hdr->offset];
    at->exec = psrti_run_exec(run, hdr->term);
    if (!at->exec) {
        psrti_comm_fail_memory(run->op->comm, run->op);
        *rx_p = PSRT_RX_DONE;
        return 0;
    }
    const psrti_collcell_t *cell = &at->exec->cells[at->move];
    if (cell->state != PSRTI_CELL_IDLE || cell->parcel) return 0;
    uint64_t want = psrti_layout_len(at->exec, &s->moves[at->move]) * run->size;
    if (msg->len == want && (want || !hdr->term)) return 1;
    *rx_p = wrong_length(run, member, msg->len, want);
    return 0;
}

/* Of a call that was not begun here: kept, within limits. */
static psrt_rx_t keep_early(comm_t *comm, uint32_t member, const where_t *at, psrt_msg_t *msg)
{
    psrti_coll_t *coll = comm->coll;
    psrti_collmember_t *m = &comm->members[member];
    psrt_rx_t rx;

    if (msg->hdr.seq >= at->lane->next + PSRTI_COLL_AHEAD || msg->len > coll->p.eager ||
        m->early + msg->len > comm->early_max)
        return PSRT_RX_BAD;
    psrti_parcel_t *p = psrti_parcel_new(coll, comm->ranks[member], msg, &rx);
    if (!p) {
        psrti_comm_fail(comm, PSRT_ERR_NO_MEMORY, "out of memory for a message that came early");
        return PSRT_RX_DONE;
    }
    m->early += msg->len + EARLY_CHARGE;
    psrti_list_push(&at->lane->slots[msg->hdr.seq & at->lane->mask].early, &p->node);
    return rx;
}

/* What a member that keeps to the rules can make this one store. */
uint64_t psrti_comm_early_max(const comm_t *comm)
{
    uint64_t messages = PSRTI_COLL_WINDOW * (2 * (uint64_t)comm->size + 16);
    return 3 * PSRTI_COLL_AHEAD * (comm->coll->p.eager + messages * EARLY_CHARGE);
}

/* One of them. 0: the communicator failed. */
static int take_early(psrti_collop_t *op, psrti_parcel_t *p)
{
    comm_t *comm = op->comm;
    uint32_t member = comm->place[p->rank], rank = p->rank;
    psrt_rx_t rx = PSRT_RX_DONE;
    place_t at;

    psrti_list_remove(&p->node);
    comm->members[member].early -= p->msg.len + EARLY_CHARGE;
    if (check_sig(op->run, member, &p->msg.hdr, 1) &&
        find_place(op->run, member, &p->msg, &at, &rx)) {
        (void)psrti_exec_message(at.exec, at.move, &p->msg, rank, p);
        return comm->state == PSRTI_COMM_READY;
    }
    psrti_parcel_free(comm->coll, p);
    if (rx == PSRT_RX_BAD) psrti_comm_bad_early(comm, member);
    return 0;
}

/* The call begins: what came for it. 0: the communicator failed. */
int psrti_recv_early(psrti_collop_t *op)
{
    psrti_colllane_t *lane = op->run->lane;
    psrti_list_t *early = &lane->slots[op->seq & lane->mask].early;

    PSRTI_LIST_FOREACH_SAFE(it, tmp, early)
    {
        psrti_parcel_t *p = PSRTI_LIST_ENTRY(it, psrti_parcel_t, node);
        if (p->msg.hdr.seq == op->seq && !take_early(op, p)) return 0;
    }
    return 1;
}

/* The same for a call that goes another way here: whoever sent something did not. */
void psrti_recv_counted(comm_t *comm, uint64_t seq)
{
    psrti_list_t *early = &comm->lane.slots[seq & comm->lane.mask].early;
    if (psrti_list_empty(early)) return;
    psrti_parcel_t *p = PSRTI_LIST_ENTRY(early->next, psrti_parcel_t, node);
    if (p->msg.hdr.seq == seq) (void)past_call(comm, comm->place[p->rank], &p->msg.hdr, 1);
}

static psrt_rx_t got_data(comm_t *comm, uint32_t member, psrt_msg_t *msg)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    where_t at;
    if ((hdr->priority & 15) == PSRTI_COLL_RECV_FROM || !hdr->seq ||
        !find_lane(comm, member, hdr->priority & 15, &at))
        return PSRT_RX_BAD;
    hear(member, &at, hdr->seq);
    if (hdr->seq >= at.lane->next) return keep_early(comm, member, &at, msg);
    psrti_collop_t *op = running(at.lane, hdr->seq);
    if (!op) return past_call(comm, member, hdr, 1);
    place_t place;
    psrt_rx_t rx;
    if (!check_sig(op->run, member, hdr, 1)) return PSRT_RX_DONE;
    if (!find_place(op->run, member, msg, &place, &rx)) return rx;
    return psrti_exec_message(place.exec, place.move, msg, comm->ranks[member], NULL);
}

/* ---- ready -------------------------------------------------------------------------------------- */

static void answer(comm_t *comm, uint32_t member, const where_t *at, const psrt_hdr_t *hdr)
{
    const psrti_collpast_t *past = &comm->past[hdr->seq % PSRTI_COLL_HISTORY];
    psrt_hdr_t reply = *hdr;
    if (hdr->seq >= at->lane->next ||
        (!psrti_layout_is_pair(hdr->priority & 15) && past->seq != hdr->seq))
        return;
    reply.table = comm->members[member].handle;
    reply.term = PSRTI_COLL_WINDOW;
    reply.offset = 0;
    if ((hdr->priority & 15) == PSRTI_COLL_SEND_TO)
        reply.priority = PSRTI_COLL_RECV_FROM;
    else if ((hdr->priority & 15) == PSRTI_COLL_RECV_FROM)
        reply.priority = PSRTI_COLL_SEND_TO;
    psrti_peer_tell(comm->coll, comm->ranks[member], &reply, NULL, 0);
}

static psrt_rx_t got_ready(comm_t *comm, uint32_t member, const psrt_hdr_t *hdr)
{
    where_t at;
    if (!hdr->seq || hdr->length || hdr->offset > 1 ||
        !find_lane(comm, member, hdr->priority & 15, &at))
        return PSRT_RX_BAD;
    hear(member, &at, hdr->seq);
    if (hdr->seq >= at.lane->next) return PSRT_RX_DONE;
    psrti_collop_t *op = running(at.lane, hdr->seq);
    if (!op) {
        (void)past_call(comm, member, hdr, 0);
    } else if (check_sig(op->run, member, hdr, 0)) {
        uint32_t w = op->run->sched->way_of[member];
        if (w != PSRTI_COLL_NOBODY) {
            psrti_collwayrun_t *way = &op->run->ways[w];
            way->is_ready = 1;
            way->may_send = PSRTI_MAX(way->may_send, hdr->term);
            psrti_way_flush(op->run, w);
        }
    }
    if (comm->state == PSRTI_COMM_READY && hdr->offset) answer(comm, member, &at, hdr);
    return PSRT_RX_DONE;
}

/* ---- messages ----------------------------------------------------------------------------------- */

/* The text or bytes of a small message that a transport has delivered with it. */
static int has_small(const psrt_msg_t *msg, uint64_t max)
{
    return msg->len == msg->hdr.length && msg->len <= max && (!msg->len || msg->data);
}

static psrt_rx_t got_abort(psrti_coll_t *coll, uint32_t rank, psrt_msg_t *msg)
{
    if (!has_small(msg, PSRTI_COLL_TEXT)) return PSRT_RX_BAD;
    psrti_meet_withdrawn(coll, rank, &msg->hdr, msg->data);
    return PSRT_RX_DONE;
}

static psrt_rx_t got_note(comm_t *comm, uint32_t member, psrt_msg_t *msg)
{
    psrti_coll_t *coll = comm->coll;
    if (!has_small(msg, PSRTI_COLL_NOTE)) return PSRT_RX_BAD;
    if (coll->env.note) coll->env.note(coll->env.arg, comm, member, msg->data, msg->len);
    return PSRT_RX_DONE;
}

static psrt_rx_t got_in_comm(comm_t *comm, uint32_t member, psrt_msg_t *msg)
{
    switch (msg->hdr.seq_floor) {
    case PSRTI_COLL_DATA: return got_data(comm, member, msg);
    case PSRTI_COLL_READY: return got_ready(comm, member, &msg->hdr);
    case PSRTI_COLL_CLOSE: psrti_comm_closed(comm, member, &msg->hdr); return PSRT_RX_DONE;
    case PSRTI_COLL_NOTED: return got_note(comm, member, msg);
    default: return PSRT_RX_BAD;
    }
}

static psrt_rx_t got(psrti_coll_t *coll, uint32_t rank, psrt_msg_t *msg)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    if (hdr->type != PSRTI_T_COLL || msg->len != hdr->length) return PSRT_RX_BAD;
    if (hdr->seq_floor == PSRTI_COLL_OPEN) return psrti_meet_open(coll, rank, msg);
    if (hdr->seq_floor == PSRTI_COLL_ABORT) return got_abort(coll, rank, msg);
    comm_t *comm = psrti_map_get(&coll->by_handle, hdr->table);
    if (!comm) /* one that was freed here, or never was */
        return hdr->table && hdr->table <= coll->last_handle ? PSRT_RX_DONE : PSRT_RX_BAD;
    uint32_t member = comm->place[rank];
    if (comm->state == PSRTI_COMM_FAILED) return PSRT_RX_DONE;
    if (member == PSRTI_COLL_NOBODY || !comm->members[member].handle) return PSRT_RX_BAD;
    return got_in_comm(comm, member, msg);
}

psrt_rx_t psrti_coll_msg(psrti_coll_t *coll, uint32_t rank, psrt_msg_t *msg)
{
    if (!coll->peers[rank].up) return PSRT_RX_DONE;
    psrt_rx_t rx = got(coll, rank, msg);
    psrti_coll_drain(coll);
    return rx;
}
