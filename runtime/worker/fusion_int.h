/* SPDX-License-Identifier: Apache-2.0 */
/* What fusion.c and fusion_bucket.c share. */
#ifndef PSRTI_WORKER_FUSION_INT_H
#define PSRTI_WORKER_FUSION_INT_H

#include "runtime/worker/fusion.h"
#include "runtime/worker/worker_int.h"

/* The operation of a tensor. */
typedef struct psrti_wfused {
    psrt_op_t op; /* first */
    psrt_fusion_t *fusion;
    psrti_fuse_item_t item;
    const void *in;
    void *out;
} psrti_wfused_t;

/* The allreduce of a bucket. */
typedef struct psrti_wbucket {
    psrti_list_t node; /* in fusion->running, then in fusion->ended */
    psrti_wcollop_t op;
    psrt_fusion_t *fusion;
    psrti_fuse_bucket_t *bucket;
    uint32_t next; /* slot that is being copied out, and how many bytes of it were */
    uint64_t copied;
} psrti_wbucket_t;

/* Lock order: the baton, then `lock`; w->lock is never taken with `lock` held. */
struct psrt_fusion {
    psrti_list_t node; /* in w->fusions */
    psrti_worker_t *worker;
    psrti_note_t note; /* MOVE */
    pthread_mutex_t lock;
    psrti_fuse_t *core;   /* lock */
    psrt_status_t status; /* lock: what it failed with */
    char text[PSRTI_ERROR_MAX];
    /* of the holder of the baton */
    psrt_comm_t *comm; /* its own; NULL: freed */
    psrti_list_t running, ended;
    int has_bad_note;
};

static inline psrti_wfused_t *psrti_fused_of(psrti_fuse_item_t *item)
{
    return PSRTI_CONTAINER_OF(item, psrti_wfused_t, item);
}

/* All with the baton. */
/* fusion.c */
void psrti_fused_deliver(psrti_fuse_item_t *item, psrt_status_t status, const char *text);

/* fusion_bucket.c */
void psrti_bucket_begin(psrt_fusion_t *f, psrti_fuse_bucket_t *bucket);
/* Copies some of what ended to where it belongs, so that the transfers of other buckets go on meanwhile; `all`:
 * all of it. Number of events. */
unsigned psrti_buckets_finish(psrt_fusion_t *f, int all);
void psrti_buckets_sweep(psrt_fusion_t *f);  /* memory of buckets that are no more */
void psrti_buckets_forget(psrt_fusion_t *f); /* those that will never end */

#endif
