/* SPDX-License-Identifier: Apache-2.0 */
/* What fuse.c, fuse_plan.c and fuse_round.c share. */
#ifndef PSRTI_COLL_FUSE_INT_H
#define PSRTI_COLL_FUSE_INT_H

#include "base/map.h"
#include "runtime/coll/fuse.h"

struct psrti_fuse_tensor {
    char *name;
    psrti_fuse_tensor_t *same_hash;
    psrti_fuse_item_t *waiting; /* submitted, its bucket not begun */
    int busy;                   /* submitted, not ended            */
    uint64_t begun;             /* number of the last bucket that had it, plus 1; 0: none */
    /* as agreed: of the newest plan */
    psrti_fuse_sig_t sig;
    int planned, in_rest;
    int excused;               /* stayed away on all ranks in the pass that `rest` is of */
    int absent;                /* passes in a row from which it stayed away */
    psrti_fuse_bucket_t *full; /* its bucket of whole passes, and the place there */
    uint64_t offset;
    /* of the round that is being evaluated */
    int owed, is_late;       /* late: in a pass from which it was excused */
    uint32_t listed, lister; /* ranks that have it waiting; the first of them */
    psrti_fuse_sig_t listed_sig;
    struct psrti_fuse_entry *entry;
};

typedef struct psrti_fuse_layout {
    psrti_fuse_bucket_t **buckets;
    uint32_t count;
} psrti_fuse_layout_t;

/* Buckets from number `base` on: the rest of the pass in which the plan changed, then whole passes. */
typedef struct psrti_fuse_epoch {
    psrti_list_t node;
    uint64_t base, end; /* end: where the next one begins; UINT64_MAX: the newest */
    psrti_fuse_layout_t rest, full;
} psrti_fuse_epoch_t;

typedef struct psrti_fuse_entry {
    psrti_fuse_tensor_t *tensor;
    psrti_fuse_sig_t sig;
    int used; /* by a bucket before the new plan */
} psrti_fuse_entry_t;

/* Why a member says that it waits for nothing more: its caller did so, or for long nothing moved. */
#define PSRTI_FUSE_TOLD 1u
#define PSRTI_FUSE_TIMED 2u

/* The word of a member, as it comes in. */
typedef struct psrti_fuse_word {
    uint8_t *bytes;
    uint32_t total, have;
    int is_whole;
    /* read */
    uint64_t begun;
    psrti_fuse_entry_t *entries;
    uint32_t count;
    unsigned stalled; /* PSRTI_FUSE_TOLD, PSRTI_FUSE_TIMED */
} psrti_fuse_word_t;

struct psrti_fuse {
    psrti_fuse_params_t p;
    psrti_map_t by_hash;
    psrti_fuse_tensor_t **all; /* in the order in which they became known here */
    uint32_t nall, all_cap;
    psrti_fuse_tensor_t **plan;         /* the planned ones, in order; the same on all ranks */
    uint32_t nplan, plan_cap, nbuckets; /* buckets of a pass */
    psrti_list_t epochs;                /* oldest first */
    psrti_list_t waiting, garbage;
    uint32_t nwaiting, ncopying, ninflight;

    uint64_t begun;  /* buckets */
    uint32_t filled; /* slots of the next one that are known to be there */

    uint32_t round;
    psrti_fuse_word_t *words[2]; /* of the members for this round and the next */
    int given;                   /* our word; nothing begins until the round's end */
    uint32_t sent;               /* bytes of it */
    int heard;                   /* somebody else began the round */

    int flushed, odd_is_fresh;
    unsigned stalled;              /* for the next word */
    uint64_t odd_since, odd_bytes; /* when something without a place was submitted; 0: nothing */
    uint64_t asked_at;             /* `begun` + 1 when a repeated tensor led to a round */
    uint64_t moved, compared;      /* last progress; last progress or round */
    uint64_t rounds;

    uint32_t left; /* a member left: its number plus 1 */
    psrt_status_t status;
    int over, told;
    char text[PSRTI_FUSE_TEXT], missing[PSRTI_FUSE_TEXT];
    uint8_t piece[PSRTI_FUSE_PIECE];
};

static inline int psrti_fuse_same(psrti_fuse_sig_t a, psrti_fuse_sig_t b)
{
    return a.count == b.count && a.dtype == b.dtype && a.redop == b.redop;
}

/* fuse.c */
psrti_fuse_tensor_t *psrti_fuse_tensor(psrti_fuse_t *f, const char *name, size_t len);
void psrti_fuse_fail(psrti_fuse_t *f, psrt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* After the plan changed: is there something that has no place? */
void psrti_fuse_look_again(psrti_fuse_t *f, uint64_t now);

/* fuse_plan.c */
uint64_t psrti_fuse_bytes(psrti_fuse_sig_t sig);
/* The bucket with this number; NULL: there is no plan. */
psrti_fuse_bucket_t *psrti_fuse_bucket_at(const psrti_fuse_t *f, uint64_t number);
psrti_fuse_epoch_t *psrti_fuse_newest(const psrti_fuse_t *f); /* NULL: none */
/* Packs the tensors whose `owed` (or planned, if all) is set; 0: no memory. */
int psrti_fuse_pack(psrti_fuse_t *f, int all, psrti_fuse_layout_t *out);
void psrti_fuse_layout_drop(psrti_fuse_t *f, psrti_fuse_layout_t *layout);
/* Forgets epochs that all ranks have behind them. */
void psrti_fuse_retire(psrti_fuse_t *f, uint64_t behind);

/* fuse_round.c */
int psrti_fuse_give_word(psrti_fuse_t *f); /* 0: no memory */
/* The next piece of it into f->piece; its length, 0: all was said. */
size_t psrti_fuse_next_piece(psrti_fuse_t *f);
int psrti_fuse_read_words(psrti_fuse_t *f); /* 0: failed */
int psrti_fuse_all_words(const psrti_fuse_t *f);
void psrti_fuse_words_done(psrti_fuse_t *f);

/* fuse_merge.c: the end of a round */
void psrti_fuse_merge(psrti_fuse_t *f, uint64_t now);

#endif
