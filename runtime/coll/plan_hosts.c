/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for hosts with several ranks each: what ranks of a host exchange stays in its memory, and as little as
 * possible crosses the network. With one leader, the leaders alone speak to other hosts, for short data: few messages.
 * With all leaders, the data are cut in lanes, each carried between hosts by one rank of every host, for long data: all
 * ranks of a host add and send at once. There are as many lanes as the host with the fewest ranks has; further ranks
 * of a host only give and get. */
#include "base/util.h"
#include "runtime/coll/plan_int.h"

/* The ranks of this host; `own` is the number of this one. */
static psrti_coll_part_t local_part(const plan_t *p)
{
    const psrti_coll_topo_t *t = p->topo;
    uint32_t host = t->host[p->rank], first = t->first[host];
    return (psrti_coll_part_t){ .list = t->order + first,
                                .count = t->first[host + 1] - first,
                                .own = t->at[p->rank] - first,
                                .in = PSRTI_COLL_IN,
                                .out = PSRTI_COLL_OUT };
}

/* Of each host the rank with this number. */
static psrti_coll_part_t lane_part(const plan_t *p, uint32_t lane)
{
    const psrti_coll_topo_t *t = p->topo;
    return (psrti_coll_part_t){ .list = t->order,
                                .starts = t->first,
                                .lane = lane,
                                .root_lane = lane,
                                .count = t->hosts,
                                .own = t->host[p->rank],
                                .in = PSRTI_COLL_IN,
                                .out = PSRTI_COLL_OUT };
}

/* ---- one leader ----------------------------------------------------------------------------------- */

void psrti_coll_one_leader_allreduce(plan_t *p)
{
    psrti_coll_part_t local = local_part(p), leaders = lane_part(p, 0);

    if (local.count > 1) {
        psrti_coll_within(p, &local, psrti_coll_binomial_reduce);
        leaders.in = PSRTI_COLL_OUT;
        psrti_coll_round(p);
    }
    if (local.own == 0 && leaders.count > 1) {
        psrti_coll_within(p, &leaders, psrti_coll_doubling_allreduce);
        psrti_coll_round(p);
    }
    local.in = PSRTI_COLL_OUT;
    if (local.count > 1) psrti_coll_within(p, &local, psrti_coll_binomial_broadcast);
}

/* The leader of the root's host is the root. */
static void lead_from_root(const plan_t *p, psrti_coll_part_t *local, psrti_coll_part_t *leaders)
{
    const psrti_coll_topo_t *t = p->topo;
    uint32_t host = t->host[p->root];

    *local = local_part(p);
    *leaders = lane_part(p, 0);
    leaders->root = host;
    leaders->root_lane = t->at[p->root] - t->first[host];
    if (leaders->own == host) local->root = leaders->root_lane;
}

/* Leaders other than the root add in TMP. */
void psrti_coll_one_leader_reduce(plan_t *p)
{
    psrti_coll_part_t local, leaders;

    lead_from_root(p, &local, &leaders);
    if (p->rank != p->root) local.out = leaders.out = PSRTI_COLL_TMP;
    p->tmp = p->rank != p->root;
    if (local.count > 1) {
        psrti_coll_within(p, &local, psrti_coll_binomial_reduce);
        leaders.in = leaders.out;
        psrti_coll_round(p);
    }
    if (local.own == local.root && leaders.count > 1)
        psrti_coll_within(p, &leaders, psrti_coll_binomial_reduce);
}

void psrti_coll_one_leader_broadcast(plan_t *p)
{
    psrti_coll_part_t local, leaders;

    lead_from_root(p, &local, &leaders);
    if (p->rank == p->root) psrti_coll_copy(p, in_block(0), out_block(0), 1);
    if (p->rank != p->root) local.in = PSRTI_COLL_OUT;
    if (local.own == local.root && leaders.count > 1) {
        leaders.out = leaders.in;
        if (p->rank != p->root) leaders.in = leaders.out = PSRTI_COLL_OUT;
        psrti_coll_within(p, &leaders, psrti_coll_binomial_broadcast);
        psrti_coll_round(p);
    }
    local.out = local.in;
    if (local.count > 1) psrti_coll_within(p, &local, psrti_coll_binomial_broadcast);
}

void psrti_coll_one_leader_barrier(plan_t *p)
{
    psrti_coll_part_t local = local_part(p), leaders = lane_part(p, 0);

    for (uint32_t i = 1; i < local.count; i++)
        if (local.own == 0)
            psrti_coll_recv(p, local.list[i], out_block(0), 0);
        else if (local.own == i)
            psrti_coll_send(p, local.list[0], in_block(0), 0);
    psrti_coll_round(p);
    if (local.own == 0 && leaders.count > 1) {
        psrti_coll_within(p, &leaders, psrti_coll_dissemination_barrier);
        psrti_coll_round(p);
    }
    for (uint32_t i = 1; i < local.count; i++)
        if (local.own == 0)
            psrti_coll_send(p, local.list[i], in_block(0), 0);
        else if (local.own == i)
            psrti_coll_recv(p, local.list[0], out_block(0), 0);
}

/* ---- all leaders ---------------------------------------------------------------------------------- */

/* Lane i has the blocks i * hosts .. + hosts - 1. Its rank adds them up straight out of the buffers of the other
 * ranks of its host, which a ring between the hosts goes on with. */
static void reduce_lanes(plan_t *p, const psrti_coll_part_t *local, uint32_t lanes)
{
    uint32_t hosts = p->topo->hosts, mine = local->own * hosts;

    for (uint32_t k = 1; k < local->count; k++) {
        uint32_t to = (local->own + k) % local->count;
        if (to < lanes) psrti_coll_send(p, local->list[to], in_block(to * hosts), hosts);
    }
    for (uint32_t k = 1; local->own < lanes && k < local->count; k++) {
        uint32_t from = (local->own + local->count - k) % local->count;
        if (k > 1) psrti_coll_round(p);
        psrti_coll_fold(p, local->list[from], from < local->own,
                        k == 1 ? in_block(mine) : out_block(mine), out_block(mine), hosts);
    }
    psrti_coll_round(p);
}

static void share_lanes(plan_t *p, const psrti_coll_part_t *local, uint32_t lanes)
{
    uint32_t hosts = p->topo->hosts;

    for (uint32_t k = 1; k < local->count; k++) {
        uint32_t to = (local->own + k) % local->count;
        uint32_t from = (local->own + local->count - k) % local->count;
        if (local->own < lanes)
            psrti_coll_send(p, local->list[to], out_block(local->own * hosts), hosts);
        if (from < lanes) psrti_coll_recv(p, local->list[from], out_block(from * hosts), hosts);
    }
}

void psrti_coll_all_leaders_allreduce(plan_t *p)
{
    psrti_coll_part_t local = local_part(p), lane = lane_part(p, local.own);
    uint32_t lanes = p->topo->fewest;

    if (local.count > 1) {
        reduce_lanes(p, &local, lanes);
        lane.in = PSRTI_COLL_OUT;
    }
    lane.first = local.own * lane.count;
    if (local.own < lanes && lane.count > 1) {
        psrti_coll_within(p, &lane, psrti_coll_ring_allreduce);
        psrti_coll_round(p);
    }
    share_lanes(p, &local, lanes);
    p->nblocks = lanes * lane.count;
}

typedef void (*move_fn)(plan_t *p, uint32_t peer, ref_t at, uint32_t nblocks);

/* The blocks of a host that go by this lane: of ranks whose number there is that of the lane, modulo the lanes. */
static void move_host(plan_t *p, uint32_t host, uint32_t lane, uint32_t peer, move_fn move)
{
    const psrti_coll_topo_t *t = p->topo;
    for (uint32_t at = t->first[host] + lane; at < t->first[host + 1]; at += t->fewest)
        move(p, peer, out_block(t->order[at]), 1);
}

/* What came from another host, from its lane to all others here. */
static void share_host(plan_t *p, const psrti_coll_part_t *local, uint32_t host)
{
    uint32_t lanes = p->topo->fewest;
    for (uint32_t k = 1; k < local->count; k++) {
        uint32_t to = (local->own + k) % local->count;
        uint32_t from = (local->own + local->count - k) % local->count;
        if (local->own < lanes) move_host(p, host, local->own, local->list[to], psrti_coll_send);
        if (from < lanes) move_host(p, host, from, local->list[from], psrti_coll_recv);
    }
}

static void share_own(plan_t *p, const psrti_coll_part_t *local)
{
    for (uint32_t i = 0; i < local->count; i++) {
        if (i == local->own) continue;
        psrti_coll_send(p, local->list[i], in_block(0), 1);
        psrti_coll_recv(p, local->list[i], out_block(local->list[i]), 1);
    }
    psrti_coll_copy(p, in_block(0), out_block(p->rank), 1);
}

/* Round the hosts: each gives on what it got last, and shares it among its own ranks at the same time. */
void psrti_coll_all_leaders_allgather(plan_t *p)
{
    const psrti_coll_topo_t *t = p->topo;
    psrti_coll_part_t local = local_part(p);
    uint32_t host = t->host[p->rank], next = (host + 1) % t->hosts;
    uint32_t before = (host + t->hosts - 1) % t->hosts;
    int leads = local.own < t->fewest;

    share_own(p, &local);
    for (uint32_t k = 0; k < t->hosts; k++) {
        uint32_t send = (host + t->hosts - k) % t->hosts;
        psrti_coll_round(p);
        if (k > 0) share_host(p, &local, send);
        if (k + 1 == t->hosts || !leads) continue;
        move_host(p, send, local.own, t->order[t->first[next] + local.own], psrti_coll_send);
        move_host(p, (send + t->hosts - 1) % t->hosts, local.own,
                  t->order[t->first[before] + local.own], psrti_coll_recv);
    }
}
