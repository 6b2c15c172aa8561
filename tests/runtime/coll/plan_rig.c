/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "support/test.h"

/* ---- values -------------------------------------------------------------------------------------- */

typedef struct sum {
    value_t a, b; /* 0, 0: given */
    uint64_t contributors;
    uint32_t block;
} sum_t;

#define MAX_SUMS (1u << 16)
#define GIVEN(rank, block) (1 + (rank)*RIG_RANKS + (block))
static sum_t sums[MAX_SUMS];
static value_t nsums = GIVEN(RIG_RANKS, 0);

value_t rig_given(uint32_t rank, uint32_t block)
{
    value_t v = GIVEN(rank, block);
    sums[v] = (sum_t){ .contributors = 1ull << rank, .block = block };
    return v;
}

uint64_t rig_contributors(value_t value) { return sums[value].contributors; }
uint32_t rig_block(value_t value) { return sums[value].block; }

static value_t add(const rig_t *rig, value_t a, value_t b)
{
    sum_t s = { .a = a, .b = b };

    cr_assert(a && b, "%s: adds what was never written", rig_name(rig));
    cr_assert(!(sums[a].contributors & sums[b].contributors), "%s: adds a contribution twice",
              rig_name(rig));
    cr_assert_eq(sums[a].block, sums[b].block, "%s: adds different blocks", rig_name(rig));
    for (value_t v = GIVEN(RIG_RANKS, 0); v < nsums; v++)
        if (sums[v].a == s.a && sums[v].b == s.b) return v;
    s.contributors = sums[a].contributors | sums[b].contributors;
    s.block = sums[a].block;
    cr_assert(nsums < MAX_SUMS);
    sums[nsums] = s;
    return nsums++;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static uint32_t in_blocks(const rig_t *rig)
{
    switch (rig->collective) {
    case PSRTI_COLL_REDUCE_SCATTER:
    case PSRTI_COLL_ALLTOALL:
    case PSRTI_COLL_SCATTER: return rig->ranks;
    case PSRTI_COLL_ALLGATHER:
    case PSRTI_COLL_GATHER: return 1;
    case PSRTI_COLL_BARRIER: return 0;
    default: return rig->plan[0]->nblocks;
    }
}

static uint32_t out_blocks(const rig_t *rig)
{
    switch (rig->collective) {
    case PSRTI_COLL_REDUCE_SCATTER:
    case PSRTI_COLL_SCATTER: return 1;
    case PSRTI_COLL_ALLGATHER:
    case PSRTI_COLL_ALLTOALL:
    case PSRTI_COLL_GATHER: return rig->ranks;
    case PSRTI_COLL_BARRIER: return 0;
    default: return rig->plan[0]->nblocks;
    }
}

static int has_in(const rig_t *rig, uint32_t rank)
{
    int root_only =
        rig->collective == PSRTI_COLL_BROADCAST || rig->collective == PSRTI_COLL_SCATTER;
    return !root_only || rank == rig->root;
}

static int has_out(const rig_t *rig, uint32_t rank)
{
    int root_only = rig->collective == PSRTI_COLL_REDUCE || rig->collective == PSRTI_COLL_GATHER;
    return !root_only || rank == rig->root;
}

static void place(rig_t *rig, uint32_t rank)
{
    int in = has_in(rig, rank), out = has_out(rig, rank), gathers = 0, scatters = 0;

    if (in) rig->in[rank] = calloc(in_blocks(rig) + 1, sizeof(value_t));
    if (out) rig->out[rank] = calloc(out_blocks(rig) + 1, sizeof(value_t));
    rig->tmp[rank] = calloc(rig->plan[rank]->tmp + 1, sizeof(value_t));
    if (rig->in_place && in && out) {
        gathers = rig->collective == PSRTI_COLL_ALLGATHER || rig->collective == PSRTI_COLL_GATHER;
        scatters =
            rig->collective == PSRTI_COLL_REDUCE_SCATTER || rig->collective == PSRTI_COLL_SCATTER;
        if (scatters)
            free(rig->out[rank]), rig->out[rank] = rig->in[rank] + rank;
        else
            free(rig->in[rank]), rig->in[rank] = rig->out[rank] + (gathers ? rank : 0);
    }
    for (uint32_t b = 0; in && b < in_blocks(rig); b++)
        rig->in[rank][b] = rig_given(rank, b);
}

psrti_coll_topo_t *rig_topo(uint32_t ranks, uint32_t hosts, uint64_t seed)
{
    uint64_t host[RIG_RANKS];
    uint32_t place[RIG_RANKS];

    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t random = psrti_mix64(seed * RIG_RANKS + r);
        host[r] = hosts ? psrti_mix64(1 + random % hosts) : r;
        place[r] = hosts ? (uint32_t)(random >> 60) : 0;
    }
    psrti_coll_topo_t *topo = psrti_coll_topo_new(ranks, host, place);
    cr_assert_not_null(topo);
    return topo;
}

int rig_open(rig_t *rig, psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
             const psrti_coll_topo_t *topo, uint32_t root, int in_place)
{
    uint32_t ranks = topo->ranks;
    *rig = (rig_t){
        .collective = collective, .algorithm = algorithm, .ranks = ranks, .root = root, .topo = topo
    };
    rig->in_place = in_place;
    rig->random = ranks * 1000 + root;
    for (uint32_t r = 0; r < ranks; r++) {
        psrt_status_t rc = psrti_coll_plan_new(collective, algorithm, topo, r, root, &rig->plan[r]);
        cr_assert(rc == PSRT_OK || rc == PSRT_ERR_UNSUPPORTED);
        if (rc != PSRT_OK) return 0;
    }
    for (uint32_t r = 0; r < ranks; r++)
        place(rig, r);
    return 1;
}

void rig_close(rig_t *rig)
{
    nsums = GIVEN(RIG_RANKS, 0);
    for (uint32_t r = 0; r < rig->ranks; r++) {
        value_t *in = rig->in[r], *out = rig->out[r];
        int scatters =
            rig->collective == PSRTI_COLL_REDUCE_SCATTER || rig->collective == PSRTI_COLL_SCATTER;
        int shared = rig->in_place && in && out;
        if (!shared || scatters) free(in);
        if (!shared || !scatters) free(out);
        free(rig->tmp[r]);
        psrti_coll_plan_free(rig->plan[r]);
    }
}

const char *rig_name(const rig_t *rig)
{
    static char text[128];
    snprintf(text, sizeof text, "%s, %s, %u ranks on %u hosts, root %u%s",
             psrti_collective_name(rig->collective), psrti_coll_algorithm_name(rig->algorithm),
             rig->ranks, rig->topo->hosts, rig->root, rig->in_place ? ", in place" : "");
    return text;
}

static value_t *cells(const rig_t *rig, uint32_t rank, psrti_coll_ref_t ref)
{
    value_t *const at[] = { rig->in[rank], rig->out[rank], rig->tmp[rank] };
    const uint32_t size[] = { in_blocks(rig), out_blocks(rig), rig->plan[rank]->tmp };

    cr_assert(at[ref.buffer] && ref.block <= size[ref.buffer], "%s: rank %u leaves its buffer",
              rig_name(rig), rank);
    return at[ref.buffer] + ref.block;
}

static void check_end(const rig_t *rig, psrti_coll_ref_t ref, uint32_t rank, uint32_t nblocks)
{
    const uint32_t size[] = { in_blocks(rig), out_blocks(rig), rig->plan[rank]->tmp };
    cr_assert(ref.block + nblocks <= size[ref.buffer], "%s: rank %u leaves its buffer",
              rig_name(rig), rank);
}

/* ---- rounds are free of conflicts ------------------------------------------------------------------ */

typedef struct range {
    const value_t *at;
    uint32_t len;
} range_t;

static range_t reads(const rig_t *rig, uint32_t rank, const psrti_coll_step_t *s)
{
    if (s->kind == PSRTI_COLL_RECV || !s->nblocks) return (range_t){ 0 };
    check_end(rig, s->src, rank, s->nblocks);
    return (range_t){ cells(rig, rank, s->src), s->nblocks };
}

static range_t writes(const rig_t *rig, uint32_t rank, const psrti_coll_step_t *s)
{
    if (s->kind == PSRTI_COLL_SEND || !s->nblocks) return (range_t){ 0 };
    check_end(rig, s->dst, rank, s->nblocks);
    range_t w = { cells(rig, rank, s->dst), s->nblocks };
    /* In place: it is there already. */
    if (s->kind == PSRTI_COLL_COPY && w.at == cells(rig, rank, s->src)) w.len = 0;
    return w;
}

static int overlap(range_t a, range_t b)
{
    return a.len && b.len && a.at < b.at + b.len && b.at < a.at + a.len;
}

static void check_step(const rig_t *rig, uint32_t rank, const psrti_coll_step_t *s)
{
    const psrti_coll_plan_t *p = rig->plan[rank];
    range_t w = writes(rig, rank, s), r = reads(rig, rank, s);

    cr_assert(s->round < p->rounds && (s == p->steps || s->round >= s[-1].round));
    if (w.at != r.at)
        cr_assert(!overlap(w, r), "%s: rank %u writes over what it reads", rig_name(rig), rank);
    if (!rig->in_place && w.len)
        cr_assert_neq(s->dst.buffer, PSRTI_COLL_IN, "%s: writes its input", rig_name(rig));
    for (const psrti_coll_step_t *o = p->steps; o < p->steps + p->nsteps; o++)
        if (o != s && o->round == s->round)
            cr_assert(!overlap(w, reads(rig, rank, o)) && !overlap(w, writes(rig, rank, o)),
                      "%s: rank %u, round %u: a step writes what another one uses", rig_name(rig),
                      rank, s->round);
}

/* ---- messages ----------------------------------------------------------------------------------------- */

typedef struct message {
    struct message *next;
    uint32_t nblocks;
    uint64_t heard;
    int arrived; /* 0: its place in the order is taken, the data are not sent yet */
    value_t values[];
} message_t;

typedef struct run {
    rig_t *rig;
    message_t *first[RIG_RANKS][RIG_RANKS], **last[RIG_RANKS][RIG_RANKS]; /* from, to */
    size_t at[RIG_RANKS]; /* first step of the round that it is in */
    uint8_t *done[RIG_RANKS];
    message_t **mine[RIG_RANKS]; /* of each SEND of the round */
} run_t;

/* A round begins: the messages that it sends get their places in the order of the steps. */
static void enter_round(run_t *run, uint32_t rank)
{
    const psrti_coll_plan_t *p = run->rig->plan[rank];

    for (size_t i = run->at[rank];
         i < p->nsteps && p->steps[i].round == p->steps[run->at[rank]].round; i++) {
        const psrti_coll_step_t *s = &p->steps[i];
        if (s->kind != PSRTI_COLL_SEND) continue;
        message_t *m = calloc(1, sizeof *m + s->nblocks * sizeof(value_t));
        m->nblocks = s->nblocks;
        *run->last[rank][s->peer] = m;
        run->last[rank][s->peer] = &m->next;
        run->mine[rank][i] = m;
    }
}

static void send_one(run_t *run, uint32_t rank, size_t i)
{
    rig_t *rig = run->rig;
    const psrti_coll_step_t *s = &rig->plan[rank]->steps[i];
    message_t *m = run->mine[rank][i];

    for (uint32_t b = 0; b < s->nblocks; b++) {
        m->values[b] = cells(rig, rank, s->src)[b];
        cr_assert(m->values[b], "%s: rank %u sends what was never written", rig_name(rig), rank);
    }
    m->heard = rig->heard[rank];
    m->arrived = 1;
    rig->messages[rank]++;
    rig->blocks[rank] += s->nblocks;
    if (rig->topo->host[rank] == rig->topo->host[s->peer]) return;
    rig->crossed[rig->topo->host[rank]] += s->nblocks;
    rig->crossings[rig->topo->host[rank]]++;
}

static int take_one(run_t *run, uint32_t rank, const psrti_coll_step_t *s)
{
    rig_t *rig = run->rig;
    message_t *m = run->first[s->peer][rank];

    if (!m || !m->arrived) return 0;
    cr_assert_eq(m->nblocks, s->nblocks, "%s: rank %u expects %u blocks from %u, not %u",
                 rig_name(rig), rank, s->nblocks, s->peer, m->nblocks);
    for (uint32_t b = 0; b < s->nblocks; b++) {
        value_t *dst = &cells(rig, rank, s->dst)[b], got = m->values[b];
        if (s->kind == PSRTI_COLL_RECV)
            *dst = got;
        else if (s->kind == PSRTI_COLL_FOLD_FIRST)
            *dst = add(rig, got, cells(rig, rank, s->src)[b]);
        else
            *dst = add(rig, cells(rig, rank, s->src)[b], got);
    }
    rig->heard[rank] |= m->heard;
    if (!(run->first[s->peer][rank] = m->next))
        run->last[s->peer][rank] = &run->first[s->peer][rank];
    free(m);
    return 1;
}

static int do_step(run_t *run, uint32_t rank, size_t i)
{
    rig_t *rig = run->rig;
    const psrti_coll_step_t *s = &rig->plan[rank]->steps[i];

    if (s->kind == PSRTI_COLL_SEND) return send_one(run, rank, i), 1;
    if (s->kind != PSRTI_COLL_ADD && s->kind != PSRTI_COLL_COPY) return take_one(run, rank, s);
    for (uint32_t b = 0; b < s->nblocks; b++) {
        value_t src = cells(rig, rank, s->src)[b], *dst = &cells(rig, rank, s->dst)[b];
        cr_assert(src, "%s: rank %u copies what was never written", rig_name(rig), rank);
        *dst = s->kind == PSRTI_COLL_COPY ? src : add(rig, *dst, src);
    }
    return 1;
}

/* Receives from one peer keep their order; all else of a round may come in any. */
static int earlier_from(const psrti_coll_step_t *s, const psrti_coll_step_t *o)
{
    return o->kind != PSRTI_COLL_SEND && o->kind < PSRTI_COLL_ADD && s->kind != PSRTI_COLL_SEND &&
           s->kind < PSRTI_COLL_ADD && o->peer == s->peer;
}

/* Tries one step of the round that a rank is in, any of them; 0: none can be done now. */
static int advance(run_t *run, uint32_t rank)
{
    const psrti_coll_plan_t *p = run->rig->plan[rank];
    size_t begin = run->at[rank], end = begin, left = 0, moved = 0;

    if (begin == p->nsteps) return 0;
    do
        end++;
    while (end < p->nsteps && p->steps[end].round == p->steps[begin].round);
    size_t from = begin + psrti_mix64(run->rig->random++) % (end - begin);
    for (size_t k = 0; k < end - begin; k++) {
        size_t i = begin + (from - begin + k) % (end - begin);
        if (run->done[rank][i]) continue;
        int waits = 0;
        for (size_t j = begin; j < i; j++)
            waits |= !run->done[rank][j] && earlier_from(&p->steps[i], &p->steps[j]);
        if (!moved && !waits) run->done[rank][i] = moved = (size_t)do_step(run, rank, i) != 0;
        left += !run->done[rank][i];
    }
    if (left) return moved != 0;
    run->at[rank] = end;
    if (end < p->nsteps) enter_round(run, rank);
    return 1;
}

static void run_open(run_t *run, rig_t *rig)
{
    *run = (run_t){ .rig = rig };
    for (uint32_t r = 0; r < rig->ranks; r++) {
        const psrti_coll_plan_t *p = rig->plan[r];
        for (uint32_t o = 0; o < rig->ranks; o++)
            run->last[r][o] = &run->first[r][o];
        run->done[r] = calloc(p->nsteps + 1, 1);
        run->mine[r] = calloc(p->nsteps + 1, sizeof *run->mine[r]);
        rig->heard[r] = 1ull << r;
        for (size_t i = 0; i < p->nsteps; i++)
            check_step(rig, r, &p->steps[i]);
        if (p->nsteps) enter_round(run, r);
    }
}

static void run_close(run_t *run)
{
    for (uint32_t r = 0; r < run->rig->ranks; r++) {
        for (uint32_t o = 0; o < run->rig->ranks; o++)
            cr_assert_null(run->first[r][o], "%s: a message is left over", rig_name(run->rig));
        free(run->done[r]);
        free(run->mine[r]);
    }
}

void rig_run(rig_t *rig)
{
    run_t *run = malloc(sizeof *run);
    uint32_t idle = 0;

    run_open(run, rig);
    /* From a random rank round the circle: when none of them can move, they hang. */
    for (uint32_t r = 0; idle < rig->ranks; r = (r + 1) % rig->ranks) {
        if (!idle) r = (uint32_t)(psrti_mix64(rig->random++) % rig->ranks);
        idle = advance(run, r) ? 0 : idle + 1;
    }
    for (uint32_t r = 0; r < rig->ranks; r++)
        cr_assert_eq(run->at[r], rig->plan[r]->nsteps, "%s: rank %u hangs in round %u",
                     rig_name(rig), r, rig->plan[r]->steps[run->at[r]].round);
    run_close(run);
    free(run);
}
