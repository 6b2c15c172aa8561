/* SPDX-License-Identifier: Apache-2.0 */
/* Plans made ready to be carried out many times: who is spoken to, which message is which step's, and which sends must
 * be over before a round writes what they read. Kept in the communicator, with the memory of ended runs. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/coll_int.h"

#define SCHEDS_KEPT 64

typedef psrti_collmove_t move_t;
typedef psrti_collsched_t sched_t;

int psrti_move_receives(const move_t *m)
{
    return m->kind == PSRTI_COLL_RECV || m->kind == PSRTI_COLL_FOLD_FIRST ||
           m->kind == PSRTI_COLL_FOLD_LAST;
}

static int reads_src(const move_t *m) { return m->kind != PSRTI_COLL_RECV; }
static int is_message(const move_t *m)
{
    return psrti_move_receives(m) || m->kind == PSRTI_COLL_SEND;
}

/* ---- moves -------------------------------------------------------------------------------------- */

static uint32_t count_moves(const psrti_coll_plan_t *plan, int split)
{
    uint32_t n = 0;
    for (size_t i = 0; i < plan->nsteps; i++)
        n += split && plan->steps[i].nblocks ? plan->steps[i].nblocks : 1;
    return n;
}

static void add_moves(sched_t *s, const psrti_coll_step_t *step)
{
    uint32_t pieces = s->split && step->nblocks ? step->nblocks : 1;
    for (uint32_t i = 0; i < pieces; i++)
        s->moves[s->nmoves++] = (move_t){ .kind = (uint8_t)step->kind,
                                          .way = step->peer, /* the member, until there are ways */
                                          .src = { step->src.buffer, step->src.block + i },
                                          .dst = { step->dst.buffer, step->dst.block + i },
                                          .nblocks = pieces > 1 ? 1 : step->nblocks,
                                          .round = step->round };
}

static void find_rounds(sched_t *s)
{
    uint32_t m = 0;
    for (uint32_t r = 0; r <= s->rounds; r++) {
        while (m < s->nmoves && s->moves[m].round < r)
            m++;
        s->round_at[r] = m;
    }
}

/* A block of TMP is as long as the block of the data that was put there. */
static int find_lengths(sched_t *s)
{
    uint32_t *holds = calloc(s->tmp + 1, sizeof *holds);
    if (!holds) return 0;
    for (uint32_t i = 0; i < s->nmoves; i++) {
        move_t *m = &s->moves[i];
        int has_dst = m->kind != PSRTI_COLL_SEND;
        if (reads_src(m) && m->src.buffer != PSRTI_COLL_TMP)
            m->like = m->src.block;
        else if (has_dst && m->dst.buffer != PSRTI_COLL_TMP)
            m->like = m->dst.block;
        else
            m->like = holds[reads_src(m) ? m->src.block : m->dst.block];
        if (has_dst && m->dst.buffer == PSRTI_COLL_TMP)
            for (uint32_t b = 0; b < m->nblocks; b++)
                holds[m->dst.block + b] = m->like + b;
    }
    free(holds);
    return 1;
}

/* ---- ways --------------------------------------------------------------------------------------- */

static uint32_t way_to(sched_t *s, uint32_t member)
{
    if (s->way_of[member] == PSRTI_COLL_NOBODY) {
        s->way_of[member] = s->nways;
        s->ways[s->nways++] = (psrti_collway_t){ .member = member };
    }
    return s->way_of[member];
}

static void find_ways(sched_t *s)
{
    for (uint32_t i = 0; i < s->nmoves; i++) {
        move_t *m = &s->moves[i];
        if (!is_message(m)) continue;
        m->way = way_to(s, m->way);
        psrti_collway_t *way = &s->ways[m->way];
        m->index = m->kind == PSRTI_COLL_SEND ? way->nsends++ : way->nrecvs++;
        if (m->kind != PSRTI_COLL_SEND) way->nblocks += m->nblocks;
    }
    uint32_t at = 0;
    for (uint32_t w = 0; w < s->nways; w++) {
        s->ways[w].first_recv = at;
        at += s->ways[w].nrecvs;
    }
    for (uint32_t i = 0; i < s->nmoves; i++)
        if (psrti_move_receives(&s->moves[i]))
            s->recvs[s->ways[s->moves[i].way].first_recv + s->moves[i].index] = i;
}

/* ---- fences ------------------------------------------------------------------------------------- */

/* Blocks that may be the same memory have the same place: the user's, what only `out` has, TMP. */
static uint64_t place_of(const sched_t *s, psrti_coll_ref_t ref, uint32_t rank)
{
    enum { SHARED, OUT_ONLY, TMP };
    uint64_t where = SHARED, block = ref.block;

    if (ref.buffer == PSRTI_COLL_TMP)
        where = TMP;
    else if (ref.buffer == PSRTI_COLL_OUT && (s->is_apart || psrti_layout_is_exchange(s->what)))
        where = OUT_ONLY;
    else if (ref.buffer == PSRTI_COLL_IN &&
             (s->what == PSRTI_COLL_ALLGATHER || s->what == PSRTI_COLL_ALLGATHERV ||
              s->what == PSRTI_COLL_GATHER))
        block = rank;
    else if (ref.buffer == PSRTI_COLL_OUT &&
             (s->what == PSRTI_COLL_REDUCE_SCATTER || s->what == PSRTI_COLL_SCATTER))
        block = rank;
    return where << 32 | block;
}

static int overwrites(const sched_t *s, const move_t *write, const move_t *send, uint32_t rank)
{
    if (write->kind == PSRTI_COLL_SEND) return 0;
    uint64_t w = place_of(s, write->dst, rank), r = place_of(s, send->src, rank);
    return w < r + send->nblocks && r < w + write->nblocks;
}

/* The first round that writes what this send reads; `rounds` if none does. */
static uint32_t fence_of(const sched_t *s, const move_t *send, uint32_t rank)
{
    for (uint32_t i = s->round_at[send->round + 1]; i < s->nmoves; i++)
        if (overwrites(s, &s->moves[i], send, rank)) return s->moves[i].round;
    return s->rounds;
}

static int find_fences(sched_t *s, uint32_t rank)
{
    uint32_t *fence = calloc(s->nmoves + 1, sizeof *fence), at = 0;
    if (!fence) return 0;
    for (uint32_t i = 0; i < s->nmoves; i++) {
        fence[i] = s->rounds;
        if (s->moves[i].kind == PSRTI_COLL_SEND) fence[i] = fence_of(s, &s->moves[i], rank);
    }
    for (uint32_t r = 0; r < s->rounds; r++) { /* nmoves x rounds once; few sends have a fence */
        s->fence_at[r] = at;
        for (uint32_t i = 0; i < s->round_at[r]; i++)
            if (fence[i] == r) s->fences[at++] = i;
    }
    s->fence_at[s->rounds] = at;
    free(fence);
    return 1;
}

/* ---- making and keeping ------------------------------------------------------------------------- */

static void sched_release(sched_t *s)
{
    free(s->moves);
    free(s->round_at);
    free(s->fence_at);
    free(s->fences);
    free(s->recvs);
    free(s->ways);
    free(s->way_of);
    free(s);
}

static int sched_fill(sched_t *s, const psrti_coll_plan_t *plan, uint32_t size, uint32_t rank)
{
    uint32_t n = count_moves(plan, s->split);
    s->nblocks = plan->nblocks;
    s->tmp = plan->tmp;
    s->is_apart = plan->is_apart;
    s->rounds = plan->rounds;
    s->moves = calloc(n + 1, sizeof *s->moves);
    s->round_at = calloc(s->rounds + 1, sizeof *s->round_at);
    s->fence_at = calloc(s->rounds + 1, sizeof *s->fence_at);
    s->fences = calloc(n + 1, sizeof *s->fences);
    s->recvs = calloc(n + 1, sizeof *s->recvs);
    s->ways = calloc(PSRTI_MIN(n, size) + 1, sizeof *s->ways);
    s->way_of = malloc(size * sizeof *s->way_of);
    if (!s->moves || !s->round_at || !s->fence_at || !s->fences || !s->recvs || !s->ways ||
        !s->way_of)
        return 0;
    memset(s->way_of, 0xff, size * sizeof *s->way_of);
    for (size_t i = 0; i < plan->nsteps; i++)
        add_moves(s, &plan->steps[i]);
    find_rounds(s);
    find_ways(s);
    return find_lengths(s) && find_fences(s, rank);
}

/* One message, from here or to here. */
static void pair_plan(psrti_coll_plan_t *plan, psrti_coll_step_t *step, uint8_t what, uint32_t peer)
{
    *step =
        (psrti_coll_step_t){ .kind = what == PSRTI_COLL_SEND_TO ? PSRTI_COLL_SEND : PSRTI_COLL_RECV,
                             .peer = peer,
                             .src = { PSRTI_COLL_IN, 0 },
                             .dst = { PSRTI_COLL_OUT, 0 },
                             .nblocks = 1 };
    *plan = (psrti_coll_plan_t){ .nblocks = 1, .rounds = 1, .nsteps = 1, .steps = step };
}

static psrt_status_t sched_new(const psrti_comm_t *comm, const sched_t *key, sched_t **sched_p)
{
    psrti_coll_plan_t pair = { .nsteps = 0 }, *plan = NULL;
    psrti_coll_step_t step;
    psrt_status_t status = PSRT_OK;

    if (psrti_layout_is_pair(key->what))
        pair_plan(&pair, &step, key->what, key->root);
    else
        status = psrti_coll_plan_new(psrti_layout_collective(key->what), key->algorithm, comm->topo,
                                     comm->rank, key->root, &plan);
    if (status != PSRT_OK) return status;
    sched_t *s = malloc(sizeof *s);
    if (s) {
        *s = *key;
        psrti_list_init(&s->spare_runs);
        psrti_list_init(&s->spare_execs);
        if (!sched_fill(s, plan ? plan : &pair, comm->size, comm->rank)) sched_release(s), s = NULL;
    }
    psrti_coll_plan_free(plan);
    *sched_p = s;
    return s ? PSRT_OK : PSRT_ERR_NO_MEMORY;
}

void psrti_sched_free(psrti_coll_t *coll, sched_t *s)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&s->spare_execs)) != NULL;) {
        psrti_collexec_t *exec = PSRTI_LIST_ENTRY(n, psrti_collexec_t, node);
        if (exec->scratch) coll->env.free(coll->env.arg, exec->scratch);
        free(exec);
    }
    for (psrti_list_t *n; (n = psrti_list_pop(&s->spare_runs)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, psrti_collrun_t, node));
    psrti_list_remove(&s->node);
    sched_release(s);
}

/* Makes room for one more, if one is not in use. */
static void forget_oldest(psrti_comm_t *comm)
{
    for (psrti_list_t *n = comm->scheds.prev; n != &comm->scheds; n = n->prev) {
        sched_t *s = PSRTI_LIST_ENTRY(n, sched_t, node);
        if (s->users) continue;
        psrti_sched_free(comm->coll, s);
        comm->nscheds--;
        return;
    }
}

psrt_status_t psrti_sched_get(psrti_comm_t *comm, uint8_t what, uint8_t algorithm, uint32_t root,
                              int split, sched_t **sched_p)
{
    for (psrti_list_t *n = comm->scheds.next; n != &comm->scheds; n = n->next) {
        sched_t *s = PSRTI_LIST_ENTRY(n, sched_t, node);
        if (s->what != what || s->algorithm != algorithm || s->root != root || s->split != split)
            continue;
        psrti_list_remove(n);
        psrti_list_insert_before(comm->scheds.next, n);
        *sched_p = s;
        return PSRT_OK;
    }
    sched_t key = { .what = what, .algorithm = algorithm, .root = root, .split = split };
    psrt_status_t status = sched_new(comm, &key, sched_p);
    if (status != PSRT_OK) return status;
    if (comm->nscheds >= SCHEDS_KEPT) forget_oldest(comm);
    comm->nscheds++;
    psrti_list_insert_before(comm->scheds.next, &(*sched_p)->node);
    return PSRT_OK;
}
