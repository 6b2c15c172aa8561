/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are counted here and carried out by the driver, in shared memory. */
#include "runtime/coll/coll_int.h"

typedef psrti_comm_t comm_t;

static psrti_collsig_t flat_sig(const comm_t *comm, const psrti_coll_call_t *call)
{
    return psrti_sig_of(comm, call, PSRTI_FLAT_ALGORITHM);
}

void psrti_comm_remember(comm_t *comm, uint64_t seq, psrti_collsig_t sig)
{
    comm->past[seq % PSRTI_COLL_HISTORY] = (psrti_collpast_t){ seq, sig };
}

/* Calls before it may still wait for a slot: then it is passed when they begin. */
void psrti_comm_pass_counted(comm_t *comm)
{
    psrti_colllane_t *lane = &comm->lane;
    while (comm->state == PSRTI_COMM_READY && lane->next <= lane->last) {
        const psrti_collpast_t *past = &comm->past[lane->next % PSRTI_COLL_HISTORY];
        if (past->seq != lane->next || past->sig.algorithm != PSRTI_FLAT_ALGORITHM) return;
        psrti_recv_counted(comm, lane->next++);
    }
}

void psrti_coll_count(comm_t *comm, const psrti_coll_call_t *call)
{
    psrti_comm_remember(comm, ++comm->lane.last, flat_sig(comm, call));
    psrti_comm_pass_counted(comm);
}

void psrti_coll_queue(comm_t *comm, const psrti_coll_call_t *call, psrti_collop_t *op)
{
    *op = (psrti_collop_t){ .status = PSRT_IN_PROGRESS, .comm = comm, .call = *call };
    psrti_list_init(&op->node);
}

void psrti_coll_begin(psrti_collop_t *op, int counted)
{
    if (!counted) psrti_coll_count(op->comm, &op->call);
    op->seq = op->comm->lane.last;
    op->is_flat = 1;
}

void psrti_coll_watch(psrti_collop_t *op, uint32_t members, uint64_t since, uint64_t now)
{
    comm_t *comm = op->comm;
    uint64_t timeout = comm->coll->p.timeout;
    op->awaited = members;
    if (comm->state != PSRTI_COMM_READY || !psrti_comm_check_closed(comm, op)) return;
    if (timeout && now >= since + timeout) psrti_comm_time_out(comm, op);
}

void psrti_coll_differ(comm_t *comm, uint32_t member, const psrti_coll_call_t *theirs,
                       const psrti_coll_call_t *ours)
{
    psrti_collsig_t a = flat_sig(comm, theirs), b = flat_sig(comm, ours);
    psrti_comm_disagree(comm, member, 0, &a, &b);
}

uint32_t psrti_comm_tuned(const comm_t *comm)
{
    const psrti_coll_tune_t *tune = psrti_comm_rules(comm);
    uint32_t tuned = 0;
    for (size_t i = 0; i < tune->count; i++) {
        const psrti_coll_rule_t *r = &tune->rules[i];
        if (!r->min_bytes && r->max_bytes == UINT64_MAX && r->min_ranks <= 1 &&
            r->max_ranks == UINT32_MAX && r->hosts == PSRTI_COLL_ANY_HOSTS)
            tuned |= 1u << r->collective;
    }
    return tuned;
}

uint64_t psrti_coll_failures(const psrti_coll_t *coll) { return coll->failures; }

void psrti_comm_hide_calls(comm_t *comm) { comm->hidden = comm->lane.last; }

/* As its user counts: from 1, sends and receives apart. */
unsigned long long psrti_comm_number(const comm_t *comm, uint8_t what, uint64_t seq)
{
    return seq - (psrti_layout_is_pair(what) || seq < comm->hidden ? 0 : comm->hidden);
}
