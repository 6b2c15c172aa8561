/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of a fusion: their memory, what is copied in and out, their allreduce. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/fusion_int.h"

#define COPY_AT_ONCE (512u << 10) /* then others may move */

typedef psrti_wbucket_t run_t;
typedef psrti_fuse_slot_t slot_t;

/* ---- begin ------------------------------------------------------------------------------------- */

static int is_alone(const psrti_fuse_bucket_t *b) { return b->count == 1 || b->bytes == 0; }

/* Kept with the bucket from now on, so that submissions of the next pass go there at once. */
static int get_memory(psrt_fusion_t *f, psrti_fuse_bucket_t *b)
{
    void *memory;
    if (is_alone(b) || b->memory) return 1;
    if (psrti_net_alloc(f->worker->net, b->bytes, &memory) != PSRT_OK) return 0;
    pthread_mutex_lock(&f->lock);
    b->memory = memory;
    pthread_mutex_unlock(&f->lock);
    return 1;
}

static void copy_in(const psrti_fuse_bucket_t *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        const slot_t *slot = &b->slots[i];
        const psrti_wfused_t *o = psrti_fused_of(slot->item);
        uint64_t end = i + 1 < b->count ? slot[1].offset : b->bytes;
        if (slot->item->copies_to == b || end == slot->offset) continue;
        memcpy((char *)b->memory + slot->offset, o->in, end - slot->offset);
    }
}

static void deliver_all(const psrti_fuse_bucket_t *b, psrt_status_t status, const char *text)
{
    for (uint32_t i = 0; i < b->count; i++)
        psrti_fused_deliver(b->slots[i].item, status, text);
}

static void put(psrt_fusion_t *f, psrti_fuse_bucket_t *b)
{
    pthread_mutex_lock(&f->lock);
    psrti_fuse_put(f->core, b);
    pthread_mutex_unlock(&f->lock);
}

static void no_memory(psrt_fusion_t *f, psrti_fuse_bucket_t *b)
{
    char text[160];
    snprintf(text, sizeof text, "rank %u: out of memory for a bucket of %llu bytes",
             psrti_comm_rank(f->comm->core), (unsigned long long)b->bytes);
    psrti_comm_fail(f->comm->core, PSRT_ERR_NO_MEMORY, text);
    deliver_all(b, PSRT_ERR_NO_MEMORY, text);
    put(f, b);
}

void psrti_bucket_begin(psrt_fusion_t *f, psrti_fuse_bucket_t *b)
{
    run_t *run = calloc(1, sizeof *run);
    if (!run || !get_memory(f, b)) {
        free(run);
        no_memory(f, b);
        return;
    }
    const psrti_wfused_t *first = psrti_fused_of(b->slots[0].item);
    if (!is_alone(b)) copy_in(b);
    run->fusion = f;
    run->bucket = b;
    run->op.bucket = run;
    run->op.comm = f->comm->core;
    run->op.op.worker = f->worker;
    run->op.call = (psrti_coll_call_t){ .what = PSRTI_COLL_ALLREDUCE,
                                        .dtype = b->dtype,
                                        .redop = b->redop,
                                        .count = b->elements,
                                        .in = is_alone(b) ? first->in : b->memory,
                                        .out = is_alone(b) ? first->out : b->memory };
    psrti_list_push(&f->running, &run->node);
    f->worker->meetings++;
    psrti_coll_start(run->op.comm, &run->op.call, &run->op.core);
}

/* ---- end --------------------------------------------------------------------------------------- */

void psrti_fusion_bucket_ended(psrti_wbucket_t *run)
{
    psrti_list_remove(&run->node);
    psrti_list_push(&run->fusion->ended, &run->node);
}

/* Copies at most *budget bytes of the next slot; 1: it is complete. */
static int copy_out(run_t *run, uint64_t *budget)
{
    const psrti_fuse_bucket_t *b = run->bucket;
    const slot_t *slot = &b->slots[run->next];
    const psrti_wfused_t *o = psrti_fused_of(slot->item);
    uint64_t end = run->next + 1 < b->count ? slot[1].offset : b->bytes;
    uint64_t left = end - slot->offset - run->copied, n = PSRTI_MIN(left, *budget);
    if (n) memcpy((char *)o->out + run->copied, (char *)b->memory + slot->offset + run->copied, n);
    run->copied += n;
    *budget -= n;
    return n == left;
}

static void run_free(run_t *run)
{
    psrti_list_remove(&run->node);
    put(run->fusion, run->bucket);
    free(run->op.core.text);
    free(run);
}

/* 1: it is over. A tensor may be submitted again when it is delivered, so nothing looks at its slot afterwards. */
static int finish(run_t *run, uint64_t *budget)
{
    const psrti_fuse_bucket_t *b = run->bucket;
    psrt_status_t status = run->op.core.status;
    if (status != PSRT_OK || is_alone(b)) {
        deliver_all(b, status, run->op.core.text);
        run->next = b->count;
    }
    while (run->next < b->count && copy_out(run, budget)) {
        run->copied = 0;
        psrti_fused_deliver(b->slots[run->next++].item, PSRT_OK, NULL);
    }
    return run->next == b->count;
}

unsigned psrti_buckets_finish(psrt_fusion_t *f, int all)
{
    uint64_t budget = all ? UINT64_MAX : COPY_AT_ONCE;
    unsigned events = 0;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &f->ended)
    {
        run_t *run = PSRTI_LIST_ENTRY(it, run_t, node);
        events++;
        if (!finish(run, &budget)) break;
        run_free(run);
    }
    return events;
}

void psrti_buckets_sweep(psrt_fusion_t *f)
{
    psrti_fuse_bucket_t *b;
    do {
        pthread_mutex_lock(&f->lock);
        b = psrti_fuse_garbage(f->core);
        pthread_mutex_unlock(&f->lock);
        if (!b) return;
        psrti_net_free(f->worker->net, b->memory);
        psrti_fuse_bucket_free(b);
    } while (b);
}

void psrti_buckets_forget(psrt_fusion_t *f)
{
    psrti_list_t *lists[] = { &f->running, &f->ended };
    for (int i = 0; i < 2; i++)
        while (!psrti_list_empty(lists[i]))
            run_free(PSRTI_LIST_ENTRY(lists[i]->next, run_t, node));
}
