/* SPDX-License-Identifier: Apache-2.0 */
/* Two-phase apply: steps of tables whose update needs a fact about the whole table or a group of
 * tables (LARS, LAMB, clipping by norm, skipping what is not finite).
 *
 * The tables of a group step together. When step n is complete on a slice, it is *sealed*: its sum is
 * divided and measured, and takes nothing more. When all slices of the group that this owner holds are
 * sealed, their measures (partials) go to the group's owner. It adds them in the order of names and
 * slices, decides, and sends every holder the verdict; then the slices are applied and published. An
 * optimizer that also needs the norm of its update (LAMB) has a second round in between.
 *
 * Invariants
 *  - All slices of a group at one owner have the same version, but while a verdict is being applied.
 *  - A holder reports (step, round) only after it acted on the verdict before. So the group's owner
 *    needs to keep the last verdict alone, and decides from partials of one (step, round) only.
 *  - Partials and verdicts are facts: to send, lose or repeat them changes nothing but time.
 *  - A group that has made a step lives and dies with every owner of its slices and with its own owner:
 *    one whose term has changed since is asked no more. (Before that a table is held anew by a server
 *    that was restarted while it was declared.) */
#ifndef PSRTI_GROUP_H
#define PSRTI_GROUP_H

#include "runtime/server/shard_int.h"

#define PSRTI_GROUP_RETRY_NS (200 * PSRTI_NS_PER_MS) /* first time that a report is repeated */
#define PSRTI_GROUP_RETRY_MAX_NS (16 * PSRTI_GROUP_RETRY_NS)
#define PSRTI_GROUP_CHUNK 127u /* partials or norms in one message: the least PSRT_MAX_MESSAGE */

typedef struct psrti_verdict {
    uint64_t step;
    int round; /* 1, 2; 0: none yet */
    double scale;
    int skip;    /* the step changes nothing                       */
    int prepare; /* the second round follows: the norms of updates */
} psrti_verdict_t;

/* An owner with slices of the group, as the group's owner knows it. It holds no other tables of the
 * group, and is told of no others. */
typedef struct psrti_holder {
    psrti_stable_t **table;
    size_t count, capacity;
    size_t unsent; /* tables of the last verdict that it was not told yet */
} psrti_holder_t;

/* Walks the slices of a group that are held here, by table and slice. */
typedef struct psrti_group_pos {
    size_t table;
    uint64_t slice;
} psrti_group_pos_t;

typedef struct psrti_group {
    psrti_list_t node;    /* in shard->groups                                */
    psrti_list_t dirty;   /* in shard->dirty_groups; self: nothing happened  */
    psrti_list_t waiting; /* in shard->waiting_groups; self: waits for no one */
    uint16_t vshard;
    uint32_t owner, term;   /* of vshard, since the first step   */
    psrti_stable_t **table; /* by name                           */
    size_t count;
    psrti_verdict_t verdict; /* the last one, decided here or told */
    int skip_was_logged;

    /* As a holder of slices. */
    uint64_t local, sealed; /* slices; those whose step is complete                     */
    uint64_t local_tables;  /* tables with slices here                                  */
    uint64_t step;          /* version of all slices here                               */
    int round;              /* reported; 0: the step is not complete                    */
    int judged;             /* the verdict of (step, round) is here                     */
    uint64_t unheard;       /* of local_tables: those whose norms are not here yet      */
    psrti_group_pos_t at;   /* what of the report is not sent yet                       */
    uint64_t due, pause;    /* when to report (or to try to apply) again, and from then */
    uint64_t skipped_steps; /* since the beginning                                      */
    uint64_t skips_counted; /* steps below are in it                                    */

    /* As the group's owner. */
    uint64_t open_step, missing; /* what it collects; partials that have not come */
    int open_round;
    psrti_holder_t *holders; /* by owner; NULL: not the group's owner */
    uint32_t nowners;
} psrti_group_t;

/* Puts a table that needs two phases into its group; of others nothing is done. ERR_INVALID: the group
 * has begun to make steps. */
psrt_status_t psrti_group_join(psrti_shard_t *s, psrti_stable_t *t);
void psrti_groups_view(psrti_shard_t *s); /* there is a newer view */
void psrti_groups_free(psrti_shard_t *s);

/* Step `version` of the slice is complete. */
void psrti_group_seal(psrti_shard_t *s, psrti_slice_t *slice);
/* Does what became possible: reports, decides, applies. Every event at the shard ends with it. */
void psrti_groups_run(psrti_shard_t *s);

/* group_sum.c: arithmetic of a slice. */
void psrti_group_measure(psrti_shard_t *s, psrti_slice_t *slice);
void psrti_group_prepare(psrti_shard_t *s, psrti_slice_t *slice, double scale);
/* ERR_NO_MEMORY: nothing happened. */
psrt_status_t psrti_group_apply(psrti_shard_t *s, psrti_slice_t *slice, const psrti_verdict_t *v);

/* group_link.c: between owners. These send what is not sent yet, as far as the links take it. */
void psrti_group_send_report(psrti_shard_t *s, psrti_group_t *g);
void psrti_group_send_verdict(psrti_shard_t *s, psrti_group_t *g, uint32_t owner);
psrt_rx_t psrti_group_msg(psrti_shard_t *s, psrti_peer_t *peer, psrt_msg_t *msg);
void psrti_owner_writable(psrti_shard_t *s, const psrti_peer_t *peer);
void psrti_owner_lost(psrti_shard_t *s, const psrti_peer_t *peer);

/* group.c, for group_link.c */
psrti_slice_t *psrti_group_next(const psrti_group_t *g, psrti_group_pos_t *pos);
void psrti_group_collect(psrti_group_t *g, psrti_stable_t *t, uint64_t slice,
                         const psrti_partial_t *partial);
void psrti_group_touch(psrti_shard_t *s, psrti_group_t *g);
/* Not so when an owner that the group lived with is gone. */
static inline int psrti_group_is_whole(const psrti_shard_t *s, const psrti_group_t *g)
{
    return s->view->vshards[g->vshard].term == g->term;
}

#endif
