/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that fuse, in one process, with notes and allreduces that take their time by a seed. Time is a number that
 * goes on when nothing else can. */
#ifndef PSRT_TESTS_FUSE_RIG_H
#define PSRT_TESTS_FUSE_RIG_H

#include "runtime/coll/fuse.h"

#define FR_RANKS 9
#define FR_TENSORS 48
#define FR_MS 1000000ull

typedef struct fr_rig fr_rig_t;

typedef struct fr_bucket {
    psrti_fuse_bucket_t *bucket;
    uint64_t number;
} fr_bucket_t;

typedef struct fr_rank {
    psrti_fuse_t *fuse;
    psrti_fuse_item_t items[FR_TENSORS];
    uint8_t state[FR_TENSORS]; /* of the step: not submitted, submitted, begun, ended */
    uint32_t order[FR_TENSORS], count, next;
    uint32_t step;
    uint64_t begun;
    fr_bucket_t running[FR_TENSORS * 4];
    uint32_t nrunning;
    uint64_t timer, may_go;
    psrt_status_t status;
    char text[PSRTI_FUSE_TEXT];
    uint64_t rounds_at[64]; /* rounds when it came to this step */
} fr_rank_t;

/* What a rank submits in a step; 0: not this tensor. */
typedef int (*fr_program_fn)(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t tensor,
                             psrti_fuse_sig_t *sig);

struct fr_rig {
    uint32_t n, steps, tensors;
    uint64_t bucket, alone;
    int flush;
    fr_program_fn program;
    uint64_t timeout, pause; /* pause: in the middle of a step */
    /* the rig's */
    uint64_t random, now;
    fr_rank_t rank[FR_RANKS];
    struct fr_note *first[FR_RANKS][FR_RANKS], *last[FR_RANKS][FR_RANKS];
    char *sent[4096]; /* what was in bucket number i */
    uint32_t begun_by[4096];
};

uint32_t fr_random(fr_rig_t *rig, uint32_t below);
/* Until all ranks did all steps, or all failed. */
void fr_run(fr_rig_t *rig, uint64_t seed);
void fr_close(fr_rig_t *rig);

#endif
