/* SPDX-License-Identifier: Apache-2.0 */
/* Halving and doubling: log2(p) rounds with a partner whose rank differs in one bit. If p is no power of two,
 * the odd ones of the first 2 * rest ranks give their data to the rank before them and get the result from it. */
#include "runtime/coll/plan_int.h"

typedef struct fold {
    uint32_t size;  /* largest power of two <= ranks    */
    uint32_t rest;  /* ranks - size                     */
    uint32_t place; /* among the `size` that take part  */
    int takes_part;
} fold_t;

static fold_t fold_ranks(const plan_t *p)
{
    fold_t f = { .size = 1, .takes_part = 1 };

    while (2 * f.size <= p->ranks)
        f.size *= 2;
    f.rest = p->ranks - f.size;
    if (p->rank >= 2 * f.rest)
        f.place = p->rank - f.rest;
    else
        f.place = p->rank / 2, f.takes_part = p->rank % 2 == 0;
    return f;
}

static uint32_t rank_at(const fold_t *f, uint32_t place)
{
    return place < f->rest ? 2 * place : place + f->rest;
}

static int has_second(const plan_t *p, const fold_t *f)
{
    return f->takes_part && p->rank < 2 * f->rest;
}

/* The one that does not take part: gives and gets. */
static void stand_aside(plan_t *p)
{
    psrti_coll_send(p, p->rank - 1, in_block(0), p->nblocks);
    psrti_coll_round(p);
    psrti_coll_recv(p, p->rank - 1, out_block(0), p->nblocks);
}

/* Before round 0 of those who take part: where their data are. */
static ref_t take_in(plan_t *p, const fold_t *f, ref_t sum)
{
    if (!has_second(p, f)) return in_block(0);
    psrti_coll_fold(p, p->rank + 1, 0, in_block(0), sum, p->nblocks);
    psrti_coll_round(p);
    return sum;
}

/* ---- allreduce ---------------------------------------------------------------------------------- */

/* Halves the blocks down to `place`, the bits from the highest one; then doubles them up again. */
void psrti_coll_halving_allreduce(plan_t *p)
{
    fold_t f = fold_ranks(p);
    uint32_t low = 0;

    p->nblocks = f.size;
    if (!f.takes_part) {
        stand_aside(p);
        return;
    }
    ref_t from = take_in(p, &f, out_block(0));
    for (uint32_t half = f.size / 2; half; half /= 2) {
        uint32_t peer = rank_at(&f, f.place ^ half), other = low;
        if (f.place & half)
            low += half;
        else
            other += half;
        psrti_coll_send(p, peer, (ref_t){ from.buffer, other }, half);
        psrti_coll_fold(p, peer, peer < p->rank, (ref_t){ from.buffer, low }, out_block(low), half);
        psrti_coll_round(p);
        from = out_block(0);
    }
    for (uint32_t have = 1; have < f.size; have *= 2) {
        uint32_t peer = rank_at(&f, f.place ^ have);
        psrti_coll_send(p, peer, out_block(low), have);
        psrti_coll_recv(p, peer, out_block(low ^ have), have);
        psrti_coll_round(p);
        low &= ~have;
    }
    if (has_second(p, &f)) psrti_coll_send(p, p->rank + 1, out_block(0), p->nblocks);
}

/* All of the data to a partner in each round; each rank computes the same sums in the same order. A round reads one
 * block of TMP and writes the other, since what is sent must stand still. */
void psrti_coll_doubling_allreduce(plan_t *p)
{
    fold_t f = fold_ranks(p);
    uint32_t turn = 0;

    if (!f.takes_part) {
        stand_aside(p);
        return;
    }
    p->tmp = 2;
    ref_t from = take_in(p, &f, tmp_block(0));
    for (uint32_t bit = 1; bit < f.size; bit *= 2) {
        uint32_t peer = rank_at(&f, f.place ^ bit);
        ref_t to = tmp_block(++turn % 2);
        psrti_coll_send(p, peer, from, 1);
        psrti_coll_fold(p, peer, peer < p->rank, from, to, 1);
        psrti_coll_round(p);
        from = to;
    }
    psrti_coll_copy(p, from, out_block(0), 1);
    if (has_second(p, &f)) psrti_coll_send(p, p->rank + 1, from, 1);
}

/* ---- reduce_scatter ------------------------------------------------------------------------------- */

/* TMP holds the half that was kept first; its blocks stay at their places. */
void psrti_coll_halving_reduce_scatter(plan_t *p)
{
    uint32_t low = 0, first_half = p->ranks / 2;

    p->tmp = first_half;
    for (uint32_t half = first_half; half; half /= 2) {
        uint32_t peer = p->rank ^ half, other = low;
        int first = half == first_half;
        if (p->rank & half)
            low += half;
        else
            other += half;
        ref_t sent = first ? in_block(other) : tmp_block(other % first_half);
        ref_t kept = first ? in_block(low) : tmp_block(low % first_half);
        if (!first) psrti_coll_round(p);
        psrti_coll_send(p, peer, sent, half);
        psrti_coll_fold(p, peer, peer < p->rank, kept,
                        half == 1 ? out_block(0) : tmp_block(low % first_half), half);
    }
}
