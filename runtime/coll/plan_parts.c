/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for hosts with several ranks each, of collectives whose blocks are those of ranks. What crosses the network
 * counts: a reduce_scatter sends the sums of hosts rather than what their ranks gave; an alltoall, a gather and a
 * scatter cannot send less, but a message from one host to another takes the place of one from each rank to each. */
#include "base/util.h"
#include "runtime/coll/plan_int.h"

typedef psrti_coll_topo_t topo_t;

static uint32_t ranks_of(const topo_t *t, uint32_t host)
{
    return t->first[host + 1] - t->first[host];
}

static uint32_t rank_at(const topo_t *t, uint32_t host, uint32_t i)
{
    return t->order[t->first[host] + i];
}

static uint32_t own_number(const plan_t *p)
{
    return p->topo->at[p->rank] - p->topo->first[p->topo->host[p->rank]];
}

/* ---- reduce_scatter by all leaders ---------------------------------------------------------------- */
/* As many ranks of each host as the smallest one has lead a lane each. The blocks of a host's ranks go by the lanes in
 * turn. A leader adds the blocks of its lane up straight out of the buffers of its host's ranks into TMP, the blocks of
 * one host after the other's; sums then go round the hosts and collect on their way, each to the host it is for. */

static uint32_t lane_blocks(const topo_t *t, uint32_t host, uint32_t lane)
{
    return (ranks_of(t, host) - lane + t->fewest - 1) / t->fewest;
}

static uint32_t lane_rank(const topo_t *t, uint32_t host, uint32_t lane, uint32_t i)
{
    return rank_at(t, host, lane + i * t->fewest);
}

/* Where TMP has the blocks of a host's ranks. */
static uint32_t lane_row(const topo_t *t, uint32_t host, uint32_t lane)
{
    uint32_t row = 0;
    for (uint32_t h = 0; h < host; h++)
        row += lane_blocks(t, h, lane);
    return row;
}

static void give_to_lanes(plan_t *p, uint32_t host, uint32_t own)
{
    const topo_t *t = p->topo;
    uint32_t n = ranks_of(t, host);

    for (uint32_t k = 1; k < n; k++) {
        uint32_t lane = (own + k) % n;
        for (uint32_t h = 0; lane < t->fewest && h < t->hosts; h++)
            for (uint32_t i = 0; i < lane_blocks(t, h, lane); i++)
                psrti_coll_send(p, rank_at(t, host, lane), in_block(lane_rank(t, h, lane, i)), 1);
    }
}

static void add_lane(plan_t *p, uint32_t host, uint32_t lane)
{
    const topo_t *t = p->topo;
    uint32_t n = ranks_of(t, host);

    for (uint32_t k = 1; k < n; k++) {
        uint32_t from = (lane + n - k) % n, row = 0;
        int is_before = from < lane;
        if (k > 1) psrti_coll_round(p);
        for (uint32_t h = 0; h < t->hosts; h++)
            for (uint32_t i = 0; i < lane_blocks(t, h, lane); i++, row++) {
                ref_t so_far = k > 1 ? tmp_block(row) : in_block(lane_rank(t, h, lane, i));
                psrti_coll_fold(p, rank_at(t, host, from), is_before, so_far, tmp_block(row), 1);
            }
    }
}

/* What the ranks of this host give for rank i of another one in this lane. */
static ref_t host_sum(const plan_t *p, uint32_t own_host, uint32_t host, uint32_t lane, uint32_t i)
{
    const topo_t *t = p->topo;
    if (ranks_of(t, own_host) == 1) return in_block(lane_rank(t, host, lane, i));
    return tmp_block(lane_row(t, host, lane) + i);
}

/* The first block of a host in a lane is its leader's own. */
static void pass_lane_on(plan_t *p, uint32_t own_host, uint32_t lane)
{
    const topo_t *t = p->topo;
    uint32_t next = rank_at(t, (own_host + 1) % t->hosts, lane);
    uint32_t before = rank_at(t, (own_host + t->hosts - 1) % t->hosts, lane);

    for (uint32_t k = 0; k + 1 < t->hosts; k++) {
        uint32_t send = (own_host + t->hosts - 1 - k) % t->hosts;
        uint32_t fold = (send + t->hosts - 1) % t->hosts;
        if (k) psrti_coll_round(p);
        for (uint32_t i = 0; i < lane_blocks(t, send, lane); i++)
            psrti_coll_send(p, next,
                            k ? tmp_block(lane_row(t, send, lane) + i)
                              : host_sum(p, own_host, send, lane, i),
                            1);
        for (uint32_t i = 0; i < lane_blocks(t, fold, lane); i++)
            psrti_coll_fold(p, before, 1, host_sum(p, own_host, fold, lane, i),
                            fold == own_host && i == 0 ? out_block(0)
                                                       : tmp_block(lane_row(t, fold, lane) + i),
                            1);
    }
}

void psrti_coll_all_leaders_reduce_scatter(plan_t *p)
{
    const topo_t *t = p->topo;
    uint32_t host = t->host[p->rank], own = own_number(p), row = 0;

    give_to_lanes(p, host, own);
    if (own >= t->fewest) {
        psrti_coll_round(p);
        psrti_coll_recv(p, rank_at(t, host, own % t->fewest), out_block(0), 1);
        return;
    }
    row = lane_row(t, host, own);
    p->tmp = lane_row(t, t->hosts, own);
    add_lane(p, host, own);
    psrti_coll_round(p);
    if (t->hosts == 1) psrti_coll_copy(p, tmp_block(row), out_block(0), 1);
    pass_lane_on(p, host, own);
    psrti_coll_round(p);
    for (uint32_t i = 1; i < lane_blocks(t, host, own); i++)
        psrti_coll_send(p, lane_rank(t, host, own, i), tmp_block(row + i), 1);
}

/* ---- blocks of a host's ranks ----------------------------------------------------------------------- */

typedef void (*move_fn)(plan_t *p, uint32_t peer, ref_t at, uint32_t nblocks);

/* How many of a host's ranks, from the i-th on, have numbers one after the other: their blocks lie side by side. */
static uint32_t run_at(const topo_t *t, uint32_t host, uint32_t i)
{
    uint32_t n = 1;
    while (i + n < ranks_of(t, host) && rank_at(t, host, i + n) == rank_at(t, host, i) + n)
        n++;
    return n;
}

/* The blocks of a host's ranks in IN or OUT, or in a row of TMP from `row` on: a message for each run. */
static void move_blocks(plan_t *p, uint32_t peer, psrti_coll_buffer_t buffer, uint32_t host,
                        uint32_t row, move_fn move)
{
    for (uint32_t i = 0, n; i < ranks_of(p->topo, host); i += n) {
        uint32_t block = buffer == PSRTI_COLL_TMP ? row + i : rank_at(p->topo, host, i);
        n = run_at(p->topo, host, i);
        move(p, peer, (ref_t){ buffer, block }, n);
    }
}

/* ---- gather and scatter by one leader --------------------------------------------------------------- */

/* Of the root's host, the root. */
static uint32_t leader_of(const plan_t *p, uint32_t host)
{
    return host == p->topo->host[p->root] ? p->root : rank_at(p->topo, host, 0);
}

void psrti_coll_one_leader_gather(plan_t *p)
{
    const topo_t *t = p->topo;
    uint32_t host = t->host[p->rank], n = ranks_of(t, host), leader = leader_of(p, host);

    if (p->rank != leader || (n == 1 && p->rank != p->root)) {
        psrti_coll_send(p, p->rank == leader ? p->root : leader, in_block(0), 1);
        return;
    }
    int is_root = p->rank == p->root;
    for (uint32_t i = 0; i < n; i++) {
        ref_t at = is_root ? out_block(rank_at(t, host, i)) : tmp_block(i);
        if (rank_at(t, host, i) == p->rank)
            psrti_coll_copy(p, in_block(0), at, 1);
        else
            psrti_coll_recv(p, rank_at(t, host, i), at, 1);
    }
    for (uint32_t h = 0; is_root && h < t->hosts; h++)
        if (h != host) move_blocks(p, leader_of(p, h), PSRTI_COLL_OUT, h, 0, psrti_coll_recv);
    if (is_root) return;
    p->tmp = n;
    psrti_coll_round(p);
    move_blocks(p, p->root, PSRTI_COLL_TMP, host, 0, psrti_coll_send);
}

void psrti_coll_one_leader_scatter(plan_t *p)
{
    const topo_t *t = p->topo;
    uint32_t host = t->host[p->rank], n = ranks_of(t, host), leader = leader_of(p, host);

    if (p->rank != leader || (n == 1 && p->rank != p->root)) {
        psrti_coll_recv(p, p->rank == leader ? p->root : leader, out_block(0), 1);
        return;
    }
    int is_root = p->rank == p->root;
    for (uint32_t h = 0; is_root && h < t->hosts; h++)
        if (h != host) move_blocks(p, leader_of(p, h), PSRTI_COLL_IN, h, 0, psrti_coll_send);
    if (!is_root) {
        p->tmp = n;
        move_blocks(p, p->root, PSRTI_COLL_TMP, host, 0, psrti_coll_recv);
        psrti_coll_round(p);
    }
    for (uint32_t i = 0; i < n; i++) {
        ref_t at = is_root ? in_block(rank_at(t, host, i)) : tmp_block(i);
        if (rank_at(t, host, i) == p->rank)
            psrti_coll_copy(p, at, out_block(0), 1);
        else
            psrti_coll_send(p, rank_at(t, host, i), at, 1);
    }
}

/* ---- alltoall by all leaders -------------------------------------------------------------------------- */
/* For each other host, one rank speaks: another one for each, as far as there are ranks. It gets the blocks for that
 * host from its own host's ranks, a row of TMP from each; turns them, so that those for one rank lie in a row; swaps
 * them for those of its partner, one message each way; and gives each rank its row. */

static uint32_t speaker(const topo_t *t, uint32_t host, uint32_t other)
{
    return rank_at(t, host, other % ranks_of(t, host));
}

/* The other hosts in the order of all ranks of a host, the one after it first. */
static uint32_t other_host(const topo_t *t, uint32_t host, uint32_t k)
{
    return (host + k) % t->hosts;
}

static void collect_for(plan_t *p, uint32_t host, uint32_t other, uint32_t rows)
{
    const topo_t *t = p->topo;
    uint32_t to = speaker(t, host, other);

    if (p->rank != to) {
        move_blocks(p, to, PSRTI_COLL_IN, other, 0, psrti_coll_send);
        return;
    }
    for (uint32_t i = 0; i < ranks_of(t, host); i++)
        if (rank_at(t, host, i) != p->rank)
            move_blocks(p, rank_at(t, host, i), PSRTI_COLL_TMP, other,
                        rows + i * ranks_of(t, other), psrti_coll_recv);
}

static void turn(plan_t *p, uint32_t host, uint32_t other, uint32_t rows, uint32_t turned)
{
    const topo_t *t = p->topo;
    uint32_t n = ranks_of(t, host), m = ranks_of(t, other);

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < m; k++)
            psrti_coll_copy(p,
                            rank_at(t, host, i) == p->rank ? in_block(rank_at(t, other, k))
                                                           : tmp_block(rows + i * m + k),
                            tmp_block(turned + k * n + i), 1);
}

static void hand_out(plan_t *p, uint32_t host, uint32_t other, uint32_t rows)
{
    const topo_t *t = p->topo;
    uint32_t from = speaker(t, host, other), m = ranks_of(t, other);

    if (p->rank != from) {
        move_blocks(p, from, PSRTI_COLL_OUT, other, 0, psrti_coll_recv);
        return;
    }
    for (uint32_t i = 0; i < ranks_of(t, host); i++)
        if (rank_at(t, host, i) != p->rank)
            move_blocks(p, rank_at(t, host, i), PSRTI_COLL_TMP, other, rows + i * m,
                        psrti_coll_send);
        else
            for (uint32_t k = 0; k < m; k++)
                psrti_coll_copy(p, tmp_block(rows + i * m + k), out_block(rank_at(t, other, k)), 1);
}

static void exchange_in_host(plan_t *p, uint32_t host)
{
    const topo_t *t = p->topo;

    psrti_coll_copy(p, in_block(p->rank), out_block(p->rank), 1);
    for (uint32_t i = 0; i < ranks_of(t, host); i++) {
        uint32_t peer = rank_at(t, host, i);
        if (peer == p->rank) continue;
        psrti_coll_send(p, peer, in_block(peer), 1);
        psrti_coll_recv(p, peer, out_block(peer), 1);
    }
}

/* TMP has, for each host that this rank speaks to, the rows, which what comes from there replaces, and what is turned. */
void psrti_coll_all_leaders_alltoall(plan_t *p)
{
    enum { COLLECT, TURN, SWAP, HAND_OUT };
    const topo_t *t = p->topo;
    uint32_t host = t->host[p->rank];

    exchange_in_host(p, host);
    for (int phase = COLLECT; phase <= HAND_OUT; phase++) {
        uint32_t rows = 0;
        if (phase > COLLECT) psrti_coll_round(p);
        for (uint32_t k = 1; k < t->hosts; k++) {
            uint32_t other = other_host(t, host, k), size = ranks_of(t, host) * ranks_of(t, other);
            int speaks = p->rank == speaker(t, host, other);
            if (phase == COLLECT) collect_for(p, host, other, rows);
            if (phase == TURN && speaks) turn(p, host, other, rows, rows + size);
            if (phase == SWAP && speaks) {
                psrti_coll_send(p, speaker(t, other, host), tmp_block(rows + size), size);
                psrti_coll_recv(p, speaker(t, other, host), tmp_block(rows), size);
            }
            if (phase == HAND_OUT) hand_out(p, host, other, rows);
            if (speaks) rows += 2 * size;
        }
        p->tmp = rows;
    }
}
