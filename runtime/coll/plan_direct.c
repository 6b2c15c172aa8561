/* SPDX-License-Identifier: Apache-2.0 */
/* Everybody talks to everybody: one message of latency, p - 1 messages a rank. For a few ranks or a few bytes.
 * Pairwise exchanges the same messages one partner at a time, for long ones. */
#include "runtime/coll/plan_int.h"

static void send_to_all(plan_t *p, ref_t src)
{
    for (uint32_t k = 1; k < p->ranks; k++)
        psrti_coll_send(p, ahead(p, p->rank, k), src, 1);
}

/* Adds all contributions in the order of the ranks, where none of them is sent to others: OUT may be IN. */
static void collect(plan_t *p)
{
    const ref_t sum = tmp_block(0);
    uint32_t last = p->ranks - 1;

    p->tmp = 1;
    if (p->rank) psrti_coll_recv(p, 0, sum, 1);
    for (uint32_t r = 1; r <= last; r++) {
        psrti_coll_round(p);
        if (r == p->rank)
            psrti_coll_add(p, in_block(0), sum, 1);
        else
            psrti_coll_fold(p, r, 0, r == 1 && !p->rank ? in_block(0) : sum,
                            r == last ? out_block(0) : sum, 1);
    }
    if (p->rank != last) return;
    psrti_coll_round(p);
    psrti_coll_copy(p, sum, out_block(0), 1);
}

/* Each rank adds all contributions in the order of the ranks, straight into OUT. The others read IN meanwhile. */
void psrti_coll_direct_allreduce(plan_t *p)
{
    p->is_apart = 1;
    send_to_all(p, in_block(0));
    if (p->rank == 0)
        psrti_coll_fold(p, 1, 0, in_block(0), out_block(0), 1);
    else if (p->rank == 1)
        psrti_coll_fold(p, 0, 1, in_block(0), out_block(0), 1);
    else
        psrti_coll_recv(p, 0, out_block(0), 1);
    for (uint32_t r = p->rank < 2 ? 2 : 1; r < p->ranks; r++) {
        psrti_coll_round(p);
        if (r == p->rank)
            psrti_coll_add(p, in_block(0), out_block(0), 1);
        else
            psrti_coll_fold(p, r, 0, out_block(0), out_block(0), 1);
    }
}

void psrti_coll_direct_reduce(plan_t *p)
{
    if (p->rank == p->root)
        collect(p);
    else
        psrti_coll_send(p, p->root, in_block(0), 1);
}

void psrti_coll_direct_broadcast(plan_t *p)
{
    if (p->rank != p->root) {
        psrti_coll_recv(p, p->root, out_block(0), 1);
        return;
    }
    send_to_all(p, in_block(0));
    psrti_coll_copy(p, in_block(0), out_block(0), 1);
}

void psrti_coll_direct_allgather(plan_t *p)
{
    send_to_all(p, in_block(0));
    psrti_coll_copy(p, in_block(0), out_block(p->rank), 1);
    for (uint32_t k = 1; k < p->ranks; k++)
        psrti_coll_recv(p, behind(p, p->rank, k), out_block(behind(p, p->rank, k)), 1);
}

void psrti_coll_direct_gather(plan_t *p)
{
    if (p->rank != p->root) {
        psrti_coll_send(p, p->root, in_block(0), 1);
        return;
    }
    psrti_coll_copy(p, in_block(0), out_block(p->rank), 1);
    for (uint32_t k = 1; k < p->ranks; k++)
        psrti_coll_recv(p, ahead(p, p->rank, k), out_block(ahead(p, p->rank, k)), 1);
}

void psrti_coll_direct_scatter(plan_t *p)
{
    if (p->rank != p->root) {
        psrti_coll_recv(p, p->root, out_block(0), 1);
        return;
    }
    for (uint32_t k = 1; k < p->ranks; k++)
        psrti_coll_send(p, ahead(p, p->rank, k), in_block(ahead(p, p->rank, k)), 1);
    psrti_coll_copy(p, in_block(p->rank), out_block(0), 1);
}

/* ---- one partner a round, or all in one round ---------------------------------------------------- */

static void exchange_all(plan_t *p, int in_turn)
{
    psrti_coll_copy(p, in_block(p->rank), out_block(p->rank), 1);
    for (uint32_t k = 1; k < p->ranks; k++) {
        uint32_t to = ahead(p, p->rank, k), from = behind(p, p->rank, k);
        if (in_turn) psrti_coll_round(p);
        psrti_coll_send(p, to, in_block(to), 1);
        psrti_coll_recv(p, from, out_block(from), 1);
    }
}

void psrti_coll_direct_alltoall(plan_t *p) { exchange_all(p, 0); }
void psrti_coll_pairwise_alltoall(plan_t *p) { exchange_all(p, 1); }

void psrti_coll_pairwise_reduce_scatter(plan_t *p)
{
    for (uint32_t k = 1; k < p->ranks; k++) {
        uint32_t to = ahead(p, p->rank, k), from = behind(p, p->rank, k);
        if (k > 1) psrti_coll_round(p);
        psrti_coll_send(p, to, in_block(to), 1);
        psrti_coll_fold(p, from, 0, k > 1 ? out_block(0) : in_block(p->rank), out_block(0), 1);
    }
}

/* Each rank adds one block up straight out of the buffers of all, and all read it from there: two steps, however many
 * ranks. The sum is in TMP, which a transport need not copy for its readers; of ordinary memory it copies the input, but
 * for the own block, and nothing else. */
void psrti_coll_pairwise_allreduce(plan_t *p)
{
    const ref_t sum = tmp_block(0);

    p->nblocks = p->ranks;
    p->tmp = 1;
    for (uint32_t k = 1; k < p->ranks; k++) {
        uint32_t to = ahead(p, p->rank, k);
        psrti_coll_send(p, to, in_block(to), 1);
    }
    for (uint32_t k = 1; k < p->ranks; k++) {
        psrti_coll_fold(p, behind(p, p->rank, k), 0, k > 1 ? sum : in_block(p->rank), sum, 1);
        psrti_coll_round(p);
    }
    send_to_all(p, sum);
    psrti_coll_copy(p, sum, out_block(p->rank), 1);
    for (uint32_t k = 1; k < p->ranks; k++) {
        uint32_t from = behind(p, p->rank, k);
        psrti_coll_recv(p, from, out_block(from), 1);
    }
}
