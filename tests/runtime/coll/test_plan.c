/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective x algorithm x 1 to 33 ranks x groupings into hosts x roots, in place and not. */
#include <stdlib.h>

#include "base/util.h"
#include "plan_rig.h"
#include "support/test.h"

#define ALL(rig) ((1ull << (rig)->ranks) - 1)

/* ---- what each collective promises -------------------------------------------------------------- */

static int is_rooted(psrti_collective_t c)
{
    return c == PSRTI_COLL_REDUCE || c == PSRTI_COLL_BROADCAST || c == PSRTI_COLL_GATHER ||
           c == PSRTI_COLL_SCATTER;
}

static void expect_sum(const rig_t *rig, uint32_t rank, uint32_t at, uint32_t block)
{
    value_t v = rig->out[rank][at];
    cr_assert_eq(rig_contributors(v), ALL(rig), "%s: rank %u block %u lacks contributions",
                 rig_name(rig), rank, at);
    cr_assert_eq(rig_block(v), block, "%s", rig_name(rig));
}

static void expect_given(const rig_t *rig, uint32_t rank, uint32_t at, uint32_t from,
                         uint32_t block)
{
    cr_assert_eq(rig->out[rank][at], rig_given(from, block), "%s: rank %u block %u is another one",
                 rig_name(rig), rank, at);
}

static void expect_result(const rig_t *rig, uint32_t r)
{
    uint32_t nblocks = rig->plan[r]->nblocks;

    switch (rig->collective) {
    case PSRTI_COLL_ALLREDUCE:
        for (uint32_t b = 0; b < nblocks; b++) {
            expect_sum(rig, r, b, b);
            cr_assert_eq(rig->out[r][b], rig->out[0][b], "%s: rank %u has other bits than rank 0",
                         rig_name(rig), r);
        }
        break;
    case PSRTI_COLL_REDUCE:
        for (uint32_t b = 0; r == rig->root && b < nblocks; b++)
            expect_sum(rig, r, b, b);
        break;
    case PSRTI_COLL_BROADCAST:
        for (uint32_t b = 0; b < nblocks; b++)
            expect_given(rig, r, b, rig->root, b);
        break;
    case PSRTI_COLL_GATHER:
        if (r != rig->root) break;
        /* fall through */
    case PSRTI_COLL_ALLGATHER:
        for (uint32_t i = 0; i < rig->ranks; i++)
            expect_given(rig, r, i, i, 0);
        break;
    case PSRTI_COLL_REDUCE_SCATTER: expect_sum(rig, r, 0, r); break;
    case PSRTI_COLL_ALLTOALL:
        for (uint32_t i = 0; i < rig->ranks; i++)
            expect_given(rig, r, i, i, r);
        break;
    case PSRTI_COLL_SCATTER: expect_given(rig, r, 0, rig->root, r); break;
    case PSRTI_COLL_BARRIER:
        cr_assert_eq(rig->heard[r], ALL(rig), "%s: rank %u goes on before all have come",
                     rig_name(rig), r);
        break;
    default: cr_assert_fail("what does %s promise?", psrti_collective_name(rig->collective));
    }
}

static void expect_width(const rig_t *rig, uint32_t r)
{
    const psrti_coll_plan_t *p = rig->plan[r];
    uint64_t widest = psrti_coll_plan_widest(rig->collective, rig->algorithm, rig->topo);
    for (size_t i = 0; i < p->nsteps; i++)
        cr_assert(p->steps[i].kind == PSRTI_COLL_COPY || p->steps[i].nblocks <= widest ||
                      p->steps[i].nblocks <= p->nblocks,
                  "%s: rank %u has a message of %u blocks", rig_name(rig), r, p->steps[i].nblocks);
}

static int has_in_place(psrti_collective_t c)
{
    return c != PSRTI_COLL_ALLTOALL && c != PSRTI_COLL_BARRIER;
}

static unsigned run_case(psrti_collective_t c, psrti_coll_algorithm_t a,
                         const psrti_coll_topo_t *topo, uint32_t root)
{
    unsigned ran = 0;

    for (int in_place = 0; in_place <= has_in_place(c); in_place++) {
        rig_t rig;
        if (!rig_open(&rig, c, a, topo, root, in_place)) return 0;
        if (in_place && rig.plan[0]->is_apart) {
            rig_close(&rig);
            continue;
        }
        rig_run(&rig);
        for (uint32_t r = 0; r < topo->ranks; r++) {
            expect_result(&rig, r);
            expect_width(&rig, r);
        }
        rig_close(&rig);
        ran++;
    }
    return ran;
}

/* On hosts with a rank each, on one host, on few and on many with any number of ranks. */
static unsigned run_groupings(psrti_collective_t c, psrti_coll_algorithm_t a, uint32_t ranks)
{
    unsigned ran = 0;

    for (uint32_t i = 0; i < 5; i++) {
        psrti_coll_topo_t *topo = rig_topo(ranks, i < 2 ? i : 1 + (i * i * ranks) % 17, i);
        for (uint32_t root = i % ranks; root < (is_rooted(c) ? ranks : i % ranks + 1);
             root += 1 + ranks / 9)
            ran += run_case(c, a, topo, root);
        psrti_coll_topo_free(topo);
    }
    return ran;
}

static void every_algorithm_of(psrti_collective_t c)
{
    unsigned algorithms = 0;

    for (int a = 0; a < PSRTI_ALG_COUNT; a++) {
        unsigned ran = 0;
        for (uint32_t ranks = 1; ranks <= RIG_RANKS; ranks++)
            ran += run_groupings(c, (psrti_coll_algorithm_t)a, ranks);
        algorithms += ran > 0;
    }
    cr_assert(algorithms > 0, "nothing does %s", psrti_collective_name(c));
}

Test(plan, every_allreduce_ranks_and_hosts) { every_algorithm_of(PSRTI_COLL_ALLREDUCE); }
Test(plan, every_reduce_ranks_and_hosts) { every_algorithm_of(PSRTI_COLL_REDUCE); }
Test(plan, every_broadcast_ranks_and_hosts) { every_algorithm_of(PSRTI_COLL_BROADCAST); }
Test(plan, every_other_collective_ranks_and_hosts)
{
    for (int c = PSRTI_COLL_ALLGATHER; c < PSRTI_COLL_COUNT; c++)
        every_algorithm_of((psrti_collective_t)c);
}

/* ---- what the algorithms are chosen for ----------------------------------------------------------- */

static uint32_t log2_up(uint32_t n)
{
    uint32_t k = 0;
    while ((1u << k) < n)
        k++;
    return k;
}

typedef struct cost {
    uint64_t messages, blocks; /* of the rank that sends most */
    uint32_t nblocks;
} cost_t;

static cost_t cost_of(psrti_collective_t c, psrti_coll_algorithm_t a, uint32_t ranks)
{
    rig_t rig;
    cost_t cost = { 0 };

    psrti_coll_topo_t *topo = rig_topo(ranks, 0, 0);
    cr_assert(rig_open(&rig, c, a, topo, 0, 0));
    rig_run(&rig);
    for (uint32_t r = 0; r < ranks; r++) {
        cost.messages = PSRTI_MAX(cost.messages, rig.messages[r]);
        cost.blocks = PSRTI_MAX(cost.blocks, rig.blocks[r]);
    }
    cost.nblocks = rig.plan[0]->nblocks;
    rig_close(&rig);
    psrti_coll_topo_free(topo);
    return cost;
}

Test(plan, rings_pairwise_and_halving_move_the_fewest_bytes)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cost_t ring = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_RING, p);
        cr_assert_eq(ring.nblocks, p);
        cr_assert_eq(ring.blocks, 2 * (p - 1));
        cr_assert_eq(cost_of(PSRTI_COLL_ALLGATHER, PSRTI_ALG_RING, p).blocks, p - 1);
        cr_assert_eq(cost_of(PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_RING, p).blocks, p - 1);
        cost_t pairwise = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_PAIRWISE, p);
        cr_assert_eq(pairwise.nblocks, p);
        cr_assert_eq(pairwise.blocks, 2 * (p - 1));
        if (p & (p - 1)) continue;
        cost_t halving = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_HALVING, p);
        cr_assert_eq(halving.nblocks, p);
        cr_assert_eq(halving.blocks, 2 * (p - 1));
        cr_assert_eq(halving.messages, 2 * log2_up(p));
    }
}

Test(plan, doubling_and_bruck_take_the_fewest_messages)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cr_assert_eq(cost_of(PSRTI_COLL_ALLGATHER, PSRTI_ALG_BRUCK, p).messages, log2_up(p));
        cr_assert_eq(cost_of(PSRTI_COLL_ALLTOALL, PSRTI_ALG_BRUCK, p).messages, log2_up(p));
        cr_assert_eq(cost_of(PSRTI_COLL_BARRIER, PSRTI_ALG_DISSEMINATION, p).messages, log2_up(p));
        cr_assert_leq(cost_of(PSRTI_COLL_BROADCAST, PSRTI_ALG_BINOMIAL, p).messages, log2_up(p));
        if (!(p & (p - 1)))
            cr_assert_eq(cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_DOUBLING, p).messages, log2_up(p));
    }
}

/* The root and the leaves send less; a rank inside one tree sends its half to two children, or all of it once. */
Test(plan, two_trees_send_all_data_about_once)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cost_t down = cost_of(PSRTI_COLL_BROADCAST, PSRTI_ALG_TWO_TREES, p);
        cr_assert_leq(down.blocks, down.nblocks);
        cost_t both = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_TWO_TREES, p);
        cr_assert_leq(both.blocks, 2 * both.nblocks);
    }
}

/* ---- hosts ------------------------------------------------------------------------------------------ */

/* Of the data, what the host that sends most sends to others. */
static double crossed(psrti_collective_t c, psrti_coll_algorithm_t a, const psrti_coll_topo_t *topo)
{
    rig_t rig;
    uint64_t most = 0;

    cr_assert(rig_open(&rig, c, a, topo, 0, 0));
    rig_run(&rig);
    for (uint32_t h = 0; h < topo->hosts; h++)
        most = PSRTI_MAX(most, rig.crossed[h]);
    double share = (double)most / rig.plan[0]->nblocks;
    rig_close(&rig);
    return share;
}

Test(plan, leaders_send_as_little_as_one_rank_a_host_would)
{
    for (uint32_t ranks = 2; ranks <= RIG_RANKS; ranks++)
        for (uint32_t hosts = 2; hosts < 9; hosts++) {
            psrti_coll_topo_t *topo = rig_topo(ranks, hosts, hosts);
            double h = topo->hosts, p = ranks;
            double all = crossed(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_ALL_LEADERS, topo);
            cr_assert_float_eq(all, 2 * (h - 1) / h, 1e-9, "%g of %u on %g hosts", all, ranks, h);
            /* A ring crosses each boundary once: 2 (p - 1) of its p blocks a host. */
            double ring = crossed(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_RING, topo);
            cr_assert_float_eq(ring, h > 1 ? 2 * (p - 1) / p : 0, 1e-9, "%g of %u", ring, ranks);
            psrti_coll_topo_free(topo);
        }
}

Test(plan, one_leader_sends_whole_data_log2_times)
{
    psrti_coll_topo_t *topo = rig_topo(RIG_RANKS, 4, 9);
    cr_assert_eq(topo->hosts, 4);
    cr_assert_float_eq(crossed(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_ONE_LEADER, topo), 2, 1e-9);
    cr_assert_float_eq(crossed(PSRTI_COLL_REDUCE, PSRTI_ALG_ONE_LEADER, topo), 1, 1e-9);
    cr_assert_float_eq(crossed(PSRTI_COLL_BROADCAST, PSRTI_ALG_ONE_LEADER, topo), 2, 1e-9);
    psrti_coll_topo_free(topo);
}

static uint32_t ranks_on(const psrti_coll_topo_t *topo, uint32_t host)
{
    return topo->first[host + 1] - topo->first[host];
}

/* A host that has some of the ranks sends a sum for each of the others, once; a ring over all ranks sends one for each
 * rank but one. */
Test(plan, leaders_send_only_sums_of_a_host)
{
    for (uint32_t ranks = 2; ranks <= RIG_RANKS; ranks++)
        for (uint32_t hosts = 2; hosts < 9; hosts++) {
            rig_t rig;
            psrti_coll_topo_t *topo = rig_topo(ranks, hosts, hosts + 1);
            cr_assert(rig_open(&rig, PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_ALL_LEADERS, topo, 0, 0));
            rig_run(&rig);
            for (uint32_t h = 0; h < topo->hosts; h++)
                cr_assert_eq(rig.crossed[h], ranks - ranks_on(topo, h), "%s", rig_name(&rig));
            rig_close(&rig);
            psrti_coll_topo_free(topo);
        }
}

/* Ranks in a row, hosts of 3, the last one of fewer. */
static psrti_coll_topo_t *row_of_hosts(uint32_t ranks)
{
    uint64_t host[RIG_RANKS];
    uint32_t place[RIG_RANKS] = { 0 };
    for (uint32_t r = 0; r < ranks; r++)
        host[r] = r / 3;
    psrti_coll_topo_t *topo = psrti_coll_topo_new(ranks, host, place);
    cr_assert_not_null(topo);
    return topo;
}

/* Between two hosts there is one message, whatever it holds. */
static void check_crossings(psrti_collective_t c, psrti_coll_algorithm_t a, uint32_t ranks,
                            uint32_t root)
{
    rig_t rig;
    psrti_coll_topo_t *topo = row_of_hosts(ranks);
    uint32_t hosts = topo->hosts, root_host = topo->host[root];

    cr_assert(rig_open(&rig, c, a, topo, root, 0));
    rig_run(&rig);
    for (uint32_t h = 0; h < hosts; h++) {
        uint64_t messages = hosts - 1, n = ranks_on(topo, h), blocks = n * (ranks - n);
        if (c == PSRTI_COLL_GATHER) messages = h != root_host, blocks = messages * n;
        if (c == PSRTI_COLL_SCATTER) {
            messages = h == root_host ? hosts - 1 : 0;
            blocks = h == root_host ? ranks - n : 0;
        }
        cr_assert_eq(rig.crossings[h], messages, "%s: host %u", rig_name(&rig), h);
        cr_assert_eq(rig.crossed[h], blocks, "%s: host %u", rig_name(&rig), h);
    }
    rig_close(&rig);
    psrti_coll_topo_free(topo);
}

Test(plan, leaders_send_one_message_from_host_to_host)
{
    for (uint32_t ranks = 2; ranks <= RIG_RANKS; ranks++) {
        check_crossings(PSRTI_COLL_ALLTOALL, PSRTI_ALG_ALL_LEADERS, ranks, 0);
        for (uint32_t root = 0; root < ranks; root++) {
            check_crossings(PSRTI_COLL_GATHER, PSRTI_ALG_ONE_LEADER, ranks, root);
            check_crossings(PSRTI_COLL_SCATTER, PSRTI_ALG_ONE_LEADER, ranks, root);
        }
    }
}

Test(plan, order_of_ranks)
{
    static const uint64_t host[] = { 70, 9, 70, 9, 5, 70, 9 };
    static const uint32_t place[] = { 3, 0, 1, 0, 0, 1, 0 };
    static const uint32_t order[] = { 2, 5, 0, 1, 3, 6, 4 }, hosts[] = { 0, 1, 0, 1, 2, 0, 1 };
    static const uint32_t first[] = { 0, 3, 6, 7 };
    psrti_coll_topo_t *t = psrti_coll_topo_new(7, host, place);
    cr_assert_eq(t->hosts, 3);
    cr_assert_eq(t->fewest, 1);
    cr_assert_eq(t->most, 3);
    for (uint32_t i = 0; i < 7; i++) {
        cr_assert_eq(t->order[i], order[i], "place %u: %u", i, t->order[i]);
        cr_assert_eq(t->at[order[i]], i);
        cr_assert_eq(t->host[i], hosts[i]);
    }
    for (uint32_t h = 0; h <= 3; h++)
        cr_assert_eq(t->first[h], first[h]);
    psrti_coll_topo_free(t);
}

/* ---- refusals --------------------------------------------------------------------------------------- */

Test(plan, what_is_not_there_is_refused)
{
    psrti_coll_plan_t *p = NULL;
    psrti_coll_topo_t *topo = rig_topo(6, 0, 0);

    cr_assert_eq(psrti_coll_plan_new(PSRTI_COLL_BARRIER, PSRTI_ALG_RING, topo, 0, 0, &p),
                 PSRT_ERR_UNSUPPORTED);
    cr_assert_eq(psrti_coll_plan_new(PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_HALVING, topo, 0, 0, &p),
                 PSRT_ERR_UNSUPPORTED);
    cr_assert_null(p);
    psrti_coll_topo_free(topo);
}
