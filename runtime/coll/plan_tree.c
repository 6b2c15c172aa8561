/* SPDX-License-Identifier: Apache-2.0 */
/* Binomial trees, for short data, and two binary trees at once, for long data that are cut in chunks: each rank
 * is inside one of them at most, so that it sends and receives about all of the data once. */
#include "base/util.h"
#include "runtime/coll/plan_int.h"

/* ---- binomial ------------------------------------------------------------------------------------- */
/* Counted from the root, the parent of v is v without its lowest bit; its subtree is v .. v + that bit - 1. */

static uint32_t lowest_bit(const plan_t *p, uint32_t v)
{
    uint32_t bit = 1;
    while (v ? !(v & bit) : bit < p->ranks)
        bit <<= 1;
    return bit;
}

static uint32_t subtree(const plan_t *p, uint32_t v)
{
    return PSRTI_MIN(lowest_bit(p, v), p->ranks - v);
}

static void reduce_up(plan_t *p, uint32_t v, ref_t sum)
{
    uint32_t end = lowest_bit(p, v);
    ref_t from = in_block(0);

    for (uint32_t bit = 1; bit < end && v + bit < p->ranks; bit <<= 1) {
        psrti_coll_fold(p, to_rank(p, v + bit), 0, from, sum, 1);
        psrti_coll_round(p);
        from = sum;
    }
    if (v) psrti_coll_send(p, to_rank(p, v - end), from, 1);
}

static void send_down(plan_t *p, uint32_t v, ref_t from)
{
    uint32_t bit = lowest_bit(p, v);

    if (v) {
        psrti_coll_recv(p, to_rank(p, v - bit), from, 1);
        psrti_coll_round(p);
    }
    for (bit >>= 1; bit; bit >>= 1)
        if (v + bit < p->ranks) psrti_coll_send(p, to_rank(p, v + bit), from, 1);
}

void psrti_coll_binomial_reduce(plan_t *p)
{
    uint32_t v = from_root(p, p->rank);
    p->tmp = v != 0;
    reduce_up(p, v, v ? tmp_block(0) : out_block(0));
}

void psrti_coll_binomial_broadcast(plan_t *p)
{
    uint32_t v = from_root(p, p->rank);
    if (!v) psrti_coll_copy(p, in_block(0), out_block(0), 1);
    send_down(p, v, v ? out_block(0) : in_block(0));
}

void psrti_coll_binomial_allreduce(plan_t *p)
{
    p->root = 0;
    reduce_up(p, p->rank, out_block(0));
    psrti_coll_round(p);
    send_down(p, p->rank, out_block(0));
}

/* TMP holds the subtree of v, its own block first; the root receives in place. A subtree that goes round the circle
 * of ranks travels in two messages. */
static void transfer_subtree(plan_t *p, uint32_t v, uint32_t peer, ref_t at, int up)
{
    uint32_t nblocks = subtree(p, v), first = to_rank(p, v);
    uint32_t head = PSRTI_MIN(nblocks, p->ranks - first);
    void (*move)(plan_t *, uint32_t, ref_t, uint32_t) = up ? psrti_coll_send : psrti_coll_recv;

    move(p, peer, at, head);
    if (head < nblocks) move(p, peer, (ref_t){ at.buffer, at.block + head }, nblocks - head);
}

static void at_root(plan_t *p, uint32_t v, int up)
{
    uint32_t nblocks = subtree(p, v), first = to_rank(p, v);
    uint32_t head = PSRTI_MIN(nblocks, p->ranks - first);
    ref_t at = { up ? PSRTI_COLL_OUT : PSRTI_COLL_IN, first };
    void (*move)(plan_t *, uint32_t, ref_t, uint32_t) = up ? psrti_coll_recv : psrti_coll_send;

    move(p, first, at, head);
    if (head < nblocks) move(p, first, (ref_t){ at.buffer, 0 }, nblocks - head);
}

void psrti_coll_binomial_gather(plan_t *p)
{
    uint32_t v = from_root(p, p->rank), end = lowest_bit(p, v);
    uint32_t nblocks = subtree(p, v);

    if (v && nblocks == 1) {
        transfer_subtree(p, v, to_rank(p, v - end), in_block(0), 1);
        return;
    }
    psrti_coll_copy(p, in_block(0), v ? tmp_block(0) : out_block(p->rank), 1);
    for (uint32_t bit = 1; bit < end && v + bit < p->ranks; bit <<= 1)
        if (v)
            transfer_subtree(p, v + bit, to_rank(p, v + bit), tmp_block(bit), 0);
        else
            at_root(p, bit, 1);
    if (!v) return;
    p->tmp = nblocks;
    psrti_coll_round(p);
    transfer_subtree(p, v, to_rank(p, v - end), tmp_block(0), 1);
}

void psrti_coll_binomial_scatter(plan_t *p)
{
    uint32_t v = from_root(p, p->rank), end = lowest_bit(p, v);
    uint32_t nblocks = subtree(p, v);

    if (v) {
        p->tmp = nblocks > 1 ? nblocks : 0;
        transfer_subtree(p, v, to_rank(p, v - end), p->tmp ? tmp_block(0) : out_block(0), 0);
        if (nblocks == 1) return;
        psrti_coll_round(p);
    }
    for (uint32_t bit = end >> 1; bit; bit >>= 1) {
        if (v + bit >= p->ranks) continue;
        if (v)
            transfer_subtree(p, v + bit, to_rank(p, v + bit), tmp_block(bit), 1);
        else
            at_root(p, bit, 0);
    }
    psrti_coll_copy(p, v ? tmp_block(0) : in_block(p->rank), out_block(0), 1);
}

/* ---- two trees -------------------------------------------------------------------------------------- */
/* Over the ranks 1 .. n = p - 1 counted from the root, which is the parent of both trees' tops. The first is the binary
 * tree in which a node's height is the number of its trailing zero bits; the second one is its mirror image (n even)
 * or is shifted by one (n odd), so that a node with children in one is a leaf in the other. Tree t carries block t.
 * A rank's messages inside its tree come before what it gets as a leaf: no round waits for another tree. */

typedef struct node {
    uint32_t parent; /* 0: the root */
    uint32_t children[2];
    uint32_t nchildren;
} node_t;

static uint32_t parent_of(uint32_t i, uint32_t n)
{
    if ((i & (i - 1)) == 0 && 2 * i > n) return 0; /* the top */
    do {
        uint32_t bit = i & -i;
        i = (i & ~bit) | (bit << 1);
    } while (i > n);
    return i;
}

static node_t node_of(uint32_t i, uint32_t n)
{
    node_t node = { .parent = parent_of(i, n) };
    uint32_t half = (i & -i) >> 1;

    if (half) node.children[node.nchildren++] = i - half;
    while (half && i + half > n)
        half >>= 1;
    if (half) node.children[node.nchildren++] = i + half;
    return node;
}

static uint32_t to_tree(uint32_t v, uint32_t n, int tree)
{
    if (!tree || !v) return v;
    return n % 2 ? (v == 1 ? n : v - 1) : n + 1 - v;
}

static uint32_t from_tree(uint32_t i, uint32_t n, int tree)
{
    if (!tree || !i) return i;
    return n % 2 ? (i == n ? 1 : i + 1) : n + 1 - i;
}

static uint32_t top_of(uint32_t n)
{
    uint32_t top = 1;
    while (2 * top <= n)
        top *= 2;
    return top;
}

/* v's place in a tree, in ranks counted from the root. */
static node_t place_in(const plan_t *p, uint32_t v, int tree)
{
    uint32_t n = p->ranks - 1;
    if (!v) return (node_t){ .children = { from_tree(top_of(n), n, tree) }, .nchildren = 1 };
    node_t node = node_of(to_tree(v, n, tree), n);
    node.parent = from_tree(node.parent, n, tree);
    for (uint32_t i = 0; i < node.nchildren; i++)
        node.children[i] = from_tree(node.children[i], n, tree);
    return node;
}

static void trees_up(plan_t *p, psrti_coll_buffer_t sum)
{
    uint32_t v = from_root(p, p->rank);
    node_t at[2] = { place_in(p, v, 0), place_in(p, v, 1) };
    psrti_coll_buffer_t from[2] = { PSRTI_COLL_IN, PSRTI_COLL_IN };

    for (uint32_t t = 0; t < 2; t++)
        if (!at[t].nchildren) psrti_coll_send(p, to_rank(p, at[t].parent), in_block(t), 1);
    for (uint32_t c = 0; c < 2; c++) {
        for (uint32_t t = 0; t < 2; t++) {
            if (c >= at[t].nchildren) continue;
            psrti_coll_fold(p, to_rank(p, at[t].children[c]), 0, (ref_t){ from[t], t },
                            (ref_t){ sum, t }, 1);
            from[t] = sum;
        }
        psrti_coll_round(p);
    }
    for (uint32_t t = 0; t < 2; t++)
        if (v && at[t].nchildren)
            psrti_coll_send(p, to_rank(p, at[t].parent), (ref_t){ sum, t }, 1);
}

static void trees_down(plan_t *p, psrti_coll_buffer_t from)
{
    uint32_t v = from_root(p, p->rank);
    node_t at[2] = { place_in(p, v, 0), place_in(p, v, 1) };

    for (uint32_t t = 0; t < 2; t++)
        if (v && at[t].nchildren) psrti_coll_recv(p, to_rank(p, at[t].parent), out_block(t), 1);
    psrti_coll_round(p);
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t c = 0; c < at[t].nchildren; c++)
            psrti_coll_send(p, to_rank(p, at[t].children[c]), (ref_t){ from, t }, 1);
    psrti_coll_round(p);
    for (uint32_t t = 0; t < 2; t++)
        if (!at[t].nchildren) psrti_coll_recv(p, to_rank(p, at[t].parent), out_block(t), 1);
}

void psrti_coll_two_trees_reduce(plan_t *p)
{
    int is_root = p->rank == p->root;
    p->nblocks = 2;
    p->tmp = is_root ? 0 : 2;
    trees_up(p, is_root ? PSRTI_COLL_OUT : PSRTI_COLL_TMP);
}

void psrti_coll_two_trees_broadcast(plan_t *p)
{
    int is_root = p->rank == p->root;
    p->nblocks = 2;
    if (is_root) psrti_coll_copy(p, in_block(0), out_block(0), 2);
    trees_down(p, is_root ? PSRTI_COLL_IN : PSRTI_COLL_OUT);
}

void psrti_coll_two_trees_allreduce(plan_t *p)
{
    p->root = 0;
    p->nblocks = 2;
    trees_up(p, PSRTI_COLL_OUT);
    psrti_coll_round(p);
    trees_down(p, PSRTI_COLL_OUT);
}
