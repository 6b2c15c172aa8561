/* SPDX-License-Identifier: Apache-2.0 */
/* The index arithmetic of collectives: which blocks a rank sends, receives and combines, and in which order.
 * A plan knows nothing of bytes, types, transports and time, so tests run it for any number of ranks
 * without processes.
 *
 * A rank has three buffers, rows of blocks: IN, which the caller gave and which is only read; OUT, which he
 * gets; TMP. How long a block is says whoever carries the plan out:
 *
 *   collective            IN    OUT   blocks
 *   allreduce, broadcast  n     n     the data cut in n = plan->nblocks parts, alike on all ranks
 *   reduce                n     n     OUT on the root only
 *   allgather             1     p     block i is rank i's
 *   reduce_scatter        p     1     block i is for rank i
 *   alltoall              p     p     block i is for, and from, rank i
 *   gather                1     p     OUT on the root only
 *   scatter               p     1     IN on the root only
 *   barrier               0     0     its messages are empty
 *
 * Invariants, for p ranks that carry out their plans of the same call:
 *  - A rank may begin the steps of a round when all its steps of earlier rounds have ended. Within a round
 *    no step writes what another one reads or writes: they may run at the same time, in any order. That holds
 *    too when IN lies at its place in OUT (allreduce, broadcast, reduce, allgather, gather), or OUT at its
 *    place in IN (reduce_scatter, scatter); a COPY onto itself is then left out. Alltoall and plans that are
 *    `is_apart` need IN and OUT of their own.
 *  - The n-th message from one rank to another is received by the n-th step that expects one; both have the
 *    same number of blocks. A send never waits for its receiver, and with that no order of steps hangs.
 *  - Every contribution is combined exactly once, and each block of a result is either computed by one rank
 *    or in the same way by all, so that all ranks hold the same bits, from run to run. */
#ifndef PSRTI_COLL_PLAN_H
#define PSRTI_COLL_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#include "runtime/coll/topo.h"

#define PSRTI_COLLECTIVES(X)                                                                       \
    X(ALLREDUCE, "allreduce")                                                                      \
    X(REDUCE, "reduce")                                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(ALLGATHER, "allgather")                                                                      \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALLTOALL, "alltoall")                                                                        \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter")                                                                          \
    X(BARRIER, "barrier")

/* Sources: ring (Patarasuk and Yuan 2009), halving and doubling (Rabenseifner 2004), two trees (Sanders, Speck,
 * Traff 2009), bruck (Bruck et al. 1997), scatter_ring (van de Geijn 1994), dissemination (Hensgen et al. 1988),
 * one leader and all leaders of a host (Karonis et al. 2000; Kandalla et al. 2009; Traff 2002). */
#define PSRTI_COLL_ALGORITHMS(X)                                                                   \
    X(DIRECT, "direct")                                                                            \
    X(RING, "ring")                                                                                \
    X(HALVING, "halving")                                                                          \
    X(DOUBLING, "doubling")                                                                        \
    X(BINOMIAL, "binomial")                                                                        \
    X(TWO_TREES, "two_trees")                                                                      \
    X(PAIRWISE, "pairwise")                                                                        \
    X(BRUCK, "bruck")                                                                              \
    X(SCATTER_RING, "scatter_ring")                                                                \
    X(DISSEMINATION, "dissemination")                                                              \
    X(ONE_LEADER, "one_leader")                                                                    \
    X(ALL_LEADERS, "all_leaders")

typedef enum psrti_collective {
#define X(name, text) PSRTI_COLL_##name,
    PSRTI_COLLECTIVES(X)
#undef X
        PSRTI_COLL_COUNT
} psrti_collective_t;

typedef enum psrti_coll_algorithm {
#define X(name, text) PSRTI_ALG_##name,
    PSRTI_COLL_ALGORITHMS(X)
#undef X
        PSRTI_ALG_COUNT
} psrti_coll_algorithm_t;

extern const char *const psrti_collective_names[PSRTI_COLL_COUNT];
extern const char *const psrti_coll_algorithm_names[PSRTI_ALG_COUNT];
const char *psrti_collective_name(psrti_collective_t collective);
const char *psrti_coll_algorithm_name(psrti_coll_algorithm_t algorithm);

typedef enum psrti_coll_buffer {
    PSRTI_COLL_IN,
    PSRTI_COLL_OUT,
    PSRTI_COLL_TMP
} psrti_coll_buffer_t;

typedef enum psrti_coll_kind {
    PSRTI_COLL_SEND,       /* src to peer                                */
    PSRTI_COLL_RECV,       /* dst from peer                              */
    PSRTI_COLL_FOLD_FIRST, /* dst = what peer sent + src                 */
    PSRTI_COLL_FOLD_LAST,  /* dst = src + what peer sent                 */
    PSRTI_COLL_ADD,        /* dst = dst + src                            */
    PSRTI_COLL_COPY        /* dst = src                                  */
} psrti_coll_kind_t;

typedef struct psrti_coll_ref {
    psrti_coll_buffer_t buffer;
    uint32_t block; /* the first one */
} psrti_coll_ref_t;

typedef struct psrti_coll_step {
    psrti_coll_kind_t kind;
    uint32_t round, peer;
    psrti_coll_ref_t src, dst; /* FOLD and ADD: dst may be src, the same blocks */
    uint32_t nblocks;
} psrti_coll_step_t;

/* While it is written: a part of a plan, which some of the ranks carry out on some of the blocks. */
typedef struct psrti_coll_part {
    /* Number i of those who take part is rank list[i], or, with `starts`, list[starts[i] + lane], where the root has
     * a lane of its own. NULL: rank i. */
    const uint32_t *list, *starts;
    uint32_t lane, root_lane;
    uint32_t count, own,
        root;       /* how many; the number of this rank, and of the root                   */
    uint32_t first; /* block of IN and OUT that is 0 there                                  */
    psrti_coll_buffer_t in,
        out; /* what is IN and OUT there                                             */
    int has_ranks_in,
        has_ranks_out; /* block i of IN, or OUT, is that of the rank with number i         */
} psrti_coll_part_t;

typedef struct psrti_coll_plan {
    uint32_t ranks, rank, root;
    const psrti_coll_topo_t *topo;
    psrti_coll_part_t part;
    uint32_t nblocks; /* of the data that is the same size on all ranks; see the table above */
    uint32_t tmp;     /* blocks of TMP; one is as long as the longest block                  */
    uint32_t rounds;
    int is_apart; /* must not be carried out in place: whoever does gives it a copy of IN    */
    int failed;   /* no memory for a step */
    size_t nsteps, room;
    psrti_coll_step_t *steps; /* by round */
} psrti_coll_plan_t;

/* The plan of `rank` of those in `topo`, which outlives it; `root` counts for reduce, broadcast, gather, scatter.
 * ERR_UNSUPPORTED: the algorithm does not do this collective, or not for this number of ranks;
 * ERR_NO_MEMORY. */
psrt_status_t psrti_coll_plan_new(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                                  const psrti_coll_topo_t *topo, uint32_t rank, uint32_t root,
                                  psrti_coll_plan_t **plan_p);
/* Whether there is such a plan. */
int psrti_coll_plan_exists(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                           uint32_t ranks);
/* Whether blocks of several ranks travel as one message out of TMP, which needs blocks of one length. It is asked for
 * collectives that have a form with counts: gather and scatter, by one_leader and binomial, do so too, and say no. */
int psrti_coll_plan_packs(psrti_collective_t collective, psrti_coll_algorithm_t algorithm);
/* Blocks that a message of any rank has at most: alike on all ranks, so it may be more than one of them sends. */
uint64_t psrti_coll_plan_widest(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                                const psrti_coll_topo_t *topo);
void psrti_coll_plan_free(psrti_coll_plan_t *plan);

#endif
