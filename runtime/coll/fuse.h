/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: which of the named tensors of a communicator travel together, and in which order on all ranks. Pure: no
 * I/O, clock, thread, lock. The owner calls it from one thread at a time, carries out what psrti_fuse_next says, and
 * tells what came of it. docs/adr/0015-fusion.md has the reasons.
 *
 * A plan is a list of tensors, packed in buckets; a pass sends each of them once. Buckets have numbers, on all ranks
 * the same, and each rank begins them in this order, each as soon as all of its tensors were submitted here.
 *
 * Invariants
 *  - Bucket n has the same tensors with the same counts, types and reductions on all ranks.
 *  - The plan changes only at the end of a round, in which every rank says what was submitted there and how many
 *    buckets it has begun. Between its word and the round's end a rank begins nothing. So the new plan holds from the
 *    highest of these numbers on; those behind it finish the old plan up to there.
 *  - What follows from a round is a function of the words of all, so all ranks find the same, errors included.
 *  - As long as no rank submits a tensor that the plan does not have, and none of the plan stays away, there is no
 *    round. A round waits for no submission: whoever hears of one gives its word.
 *  - A tensor that was submitted is in a pass once: it is sent with a bucket, or everything fails. */
#ifndef PSRTI_COLL_FUSE_H
#define PSRTI_COLL_FUSE_H

#include <psrt/psrt.h>

#include "base/list.h"

#define PSRTI_FUSE_NAME 255
#define PSRTI_FUSE_PIECE 1024 /* bytes of a note at most */
#define PSRTI_FUSE_TEXT 480

typedef struct psrti_fuse psrti_fuse_t;
typedef struct psrti_fuse_tensor psrti_fuse_tensor_t;

typedef struct psrti_fuse_sig {
    uint64_t count;
    uint8_t dtype, redop;
} psrti_fuse_sig_t;

/* A submission; the owner embeds it. */
typedef struct psrti_fuse_item {
    psrti_list_t node; /* while it waits */
    psrti_fuse_tensor_t *tensor;
    psrti_fuse_sig_t sig;
    struct psrti_fuse_bucket *copies_to; /* its memory is being written; NULL: none */
    int is_ready;
} psrti_fuse_item_t;

typedef struct psrti_fuse_slot {
    psrti_fuse_tensor_t *tensor;
    psrti_fuse_item_t *item; /* of a bucket that was begun */
    psrti_fuse_sig_t sig;
    uint64_t offset; /* in bytes */
} psrti_fuse_slot_t;

typedef struct psrti_fuse_bucket {
    psrti_list_t node;
    psrti_fuse_slot_t *slots;
    uint64_t bytes, elements;
    uint32_t count, last; /* slots; place in the plan of the last one */
    uint32_t refs;
    uint8_t dtype, redop;
    void *
        memory; /* the owner's: `bytes` for the tensors, kept from pass to pass; NULL: none (yet) */
} psrti_fuse_bucket_t;

typedef struct psrti_fuse_params {
    uint32_t rank, size;
    uint64_t alone;   /* bytes of a tensor that has a bucket of its own */
    uint64_t bucket;  /* bytes */
    uint64_t cycle;   /* ns that a tensor without a place waits for others */
    uint64_t stall;   /* ns without progress after which the ranks compare what they have */
    uint64_t timeout; /* ns without progress after which all fails; 0: never */
} psrti_fuse_params_t;

typedef struct psrti_fuse_act {
    enum {
        PSRTI_FUSE_NOTHING, /* until `timer` (UINT64_MAX: none) or an event */
        PSRTI_FUSE_BEGIN,   /* allreduce the bucket; hold it until psrti_fuse_put */
        PSRTI_FUSE_NOTE,    /* send data to all other members, in order */
        PSRTI_FUSE_FAIL     /* the communicator, with status and text */
    } what;
    psrti_fuse_bucket_t *bucket;
    const void *data;
    size_t len;
    psrt_status_t status;
    const char *text;
    uint64_t timer;
} psrti_fuse_act_t;

typedef struct psrti_fuse_counts {
    uint64_t rounds, buckets;
    uint32_t tensors, planned; /* buckets of a pass */
} psrti_fuse_counts_t;

psrt_status_t psrti_fuse_create(const psrti_fuse_params_t *params, psrti_fuse_t **fuse_p);
/* All buckets were put. Memory of buckets is the owner's: it takes all with psrti_fuse_garbage after psrti_fuse_end. */
void psrti_fuse_destroy(psrti_fuse_t *fuse);

/* ERR_BUSY: an earlier one of the name has not ended; ERR_NO_MEMORY. If item->copies_to is set, the owner may write
 * the tensor to item's place there before it says ready; *offset_p has the place. */
psrt_status_t psrti_fuse_submit(psrti_fuse_t *fuse, psrti_fuse_item_t *item, const char *name,
                                psrti_fuse_sig_t sig, uint64_t now, uint64_t *offset_p);
/* 1: psrti_fuse_next has something new to say. */
int psrti_fuse_ready(psrti_fuse_t *fuse, psrti_fuse_item_t *item);
/* This rank submits nothing more before what it submitted has ended. */
void psrti_fuse_flush(psrti_fuse_t *fuse);
/* Of another member. 0: it makes no sense. */
int psrti_fuse_note(psrti_fuse_t *fuse, uint32_t member, const void *data, size_t len);
/* What is to be done, one thing after the other until there is nothing. */
void psrti_fuse_next(psrti_fuse_t *fuse, uint64_t now, psrti_fuse_act_t *act);

/* A submission is over: its name may be submitted again. */
void psrti_fuse_ended(psrti_fuse_t *fuse, psrti_fuse_item_t *item, uint64_t now);
/* A bucket that was begun has ended. */
void psrti_fuse_put(psrti_fuse_t *fuse, psrti_fuse_bucket_t *bucket);
/* A bucket that nobody uses any more, with memory: the owner takes the memory and frees the bucket with
 * psrti_fuse_bucket_free. NULL: none. */
psrti_fuse_bucket_t *psrti_fuse_garbage(psrti_fuse_t *fuse);
void psrti_fuse_bucket_free(psrti_fuse_bucket_t *bucket);

/* It failed or is over: nothing more begins. Then the next submission that waits and is ready (the others become so),
 * NULL: none. */
void psrti_fuse_end(psrti_fuse_t *fuse);
psrti_fuse_item_t *psrti_fuse_waiting(psrti_fuse_t *fuse);

const char *psrti_fuse_name(const psrti_fuse_item_t *item);
/* What is missing, as the last round told: "rank 2 has not submitted tensor b"; "" if nothing was. */
const char *psrti_fuse_missing(const psrti_fuse_t *fuse);
/* For a submission: what it waits for. */
void psrti_fuse_describe(const psrti_fuse_t *fuse, const psrti_fuse_item_t *item, char *buf,
                         size_t size);
psrti_fuse_counts_t psrti_fuse_counts(const psrti_fuse_t *fuse);
/* The note that says that a member leaves. */
extern const uint8_t psrti_fuse_leave[1];

#endif
