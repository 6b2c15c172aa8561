/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: operations, and the core (runtime/coll/fuse.h) beside a communicator of its own.
 *
 * A thread that submits copies its tensor into the bucket without the baton, while others move the buckets before it,
 * and takes the baton only if the bucket is full then. */
#include "runtime/worker/fusion.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/comm.h"
#include "runtime/worker/fusion_int.h"

#define STALL_CYCLES 200

psrti_worker_t *psrti_fusion_worker(const psrt_fusion_t *f) { return f->worker; }

int psrti_fusion_is_ready(const psrt_fusion_t *f)
{
    return atomic_load_explicit(&f->comm->ready, memory_order_acquire);
}

/* ---- life -------------------------------------------------------------------------------------- */

static void fusion_destroy(psrt_fusion_t *f)
{
    psrti_buckets_forget(f);
    psrti_fuse_end(f->core);
    psrti_buckets_sweep(f);
    psrti_fuse_destroy(f->core);
    pthread_mutex_lock(&f->worker->lock);
    psrti_list_remove(&f->note.node);
    pthread_mutex_unlock(&f->worker->lock);
    psrti_list_remove(&f->node);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static psrt_fusion_t *fusion_new(psrti_worker_t *w, const psrti_fuse_params_t *params)
{
    psrt_fusion_t *f = calloc(1, sizeof *f);
    if (!f || psrti_fuse_create(params, &f->core) != PSRT_OK) {
        free(f);
        psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a fusion");
        return NULL;
    }
    f->worker = w;
    f->note.kind = PSRTI_NOTE_MOVE;
    psrti_list_t *lists[] = { &f->node, &f->note.node, &f->running, &f->ended };
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        psrti_list_init(lists[i]);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

psrt_status_t psrti_worker_fusion_create(psrt_comm_t *parent, const psrt_fusion_params_t *params,
                                         psrt_fusion_t **fusion_p, psrt_op_t **op_p)
{
    psrti_worker_t *w = parent->worker;
    uint64_t timeout = psrti_config_u64(w->p.config, PSRTI_CONF_COLL_TIMEOUT);
    uint64_t cycle = PSRTI_MIN(params->cycle_ns, UINT64_MAX / 4); /* PSRT_FOREVER: never by time */
    uint64_t stall = cycle > UINT64_MAX / STALL_CYCLES ? UINT64_MAX / 2 : STALL_CYCLES * cycle;
    psrti_fuse_params_t p = { .rank = parent->rank,
                              .size = parent->ranks,
                              .alone = params->alone_bytes,
                              .bucket = params->bucket_bytes,
                              .cycle = cycle,
                              .stall = timeout ? PSRTI_MIN(stall, timeout / 4) : stall,
                              .timeout = timeout };
    psrt_fusion_t *f = fusion_new(w, &p);
    if (!f) return PSRT_ERR_NO_MEMORY;
    psrti_baton_take(w);
    psrt_status_t rc = psrti_worker_comm_dup(parent, &f->comm, op_p);
    if (rc)
        fusion_destroy(f);
    else
        psrti_list_push(&w->fusions, &f->node);
    psrti_baton_give(w);
    if (!rc) *fusion_p = f;
    return rc;
}

/* ---- ends -------------------------------------------------------------------------------------- */

void psrti_fused_deliver(psrti_fuse_item_t *item, psrt_status_t status, const char *text)
{
    psrti_wfused_t *o = psrti_fused_of(item);
    psrt_fusion_t *f = o->fusion;
    const char *why = text ? text : psrt_status_text(status);
    char line[PSRTI_ERROR_MAX];
    if (status != PSRT_OK) {
        size_t pos = 0;
        int is_named = strncmp(why, "tensor ", 7) == 0;
        if (!is_named) psrti_append(line, sizeof line, &pos, "tensor %s: ", psrti_fuse_name(item));
        psrti_append(line, sizeof line, &pos, "%s", why);
        pthread_mutex_lock(&f->lock);
        const char *missing = psrti_fuse_missing(f->core);
        if (status == PSRT_ERR_TIMEOUT && *missing && !strstr(line, missing))
            psrti_append(line, sizeof line, &pos, "; %s", missing);
        pthread_mutex_unlock(&f->lock);
        o->op.cop.text = strdup(line);
    }
    o->op.cop.result.status = status;
    pthread_mutex_lock(&f->lock);
    psrti_fuse_ended(f->core, item, psrti_now_ns());
    pthread_mutex_unlock(&f->lock);
    psrti_op_deliver(f->worker, &o->op);
}

/* What waits ends; buckets under way end by their allreduce. Called again for those that are being copied. */
static unsigned fail(psrt_fusion_t *f, psrt_status_t status, const char *text)
{
    unsigned events = 0;
    for (;; events++) {
        pthread_mutex_lock(&f->lock);
        if (!f->status) {
            f->status = status;
            snprintf(f->text, sizeof f->text, "%s", text);
            psrti_fuse_end(f->core);
        }
        psrti_fuse_item_t *item = psrti_fuse_waiting(f->core);
        pthread_mutex_unlock(&f->lock);
        if (!item) return events;
        psrti_fused_deliver(item, f->status, f->text);
    }
}

static psrti_comm_t *ready_comm(const psrt_fusion_t *f)
{
    return f->comm && atomic_load(&f->comm->ready) ? f->comm->core : NULL;
}

static void tell_all(psrti_comm_t *comm, const void *data, size_t len)
{
    for (uint32_t m = 0; m < psrti_comm_size(comm); m++)
        if (m != psrti_comm_rank(comm)) (void)psrti_comm_note(comm, m, data, len);
}

void psrti_worker_fusion_free(psrt_fusion_t *f)
{
    psrti_worker_t *w = f->worker;
    psrti_baton_take(w);
    psrti_comm_t *comm = ready_comm(f);
    if (comm) tell_all(comm, psrti_fuse_leave, sizeof psrti_fuse_leave);
    (void)fail(f, PSRT_ERR_CANCELED, "the fusion was freed before its operations had ended");
    psrti_worker_comm_free(f->comm);
    f->comm = NULL;
    (void)psrti_fusions_move(w, psrti_now_ns());
    psrti_baton_give(w);
}

void psrti_fusions_close(psrti_worker_t *w)
{
    while (!psrti_list_empty(&w->fusions))
        fusion_destroy(PSRTI_LIST_ENTRY(w->fusions.next, psrt_fusion_t, node));
}

/* ---- moving ------------------------------------------------------------------------------------ */

void psrti_fusion_note(psrti_worker_t *w, const psrti_comm_t *comm, uint32_t member,
                       const void *data, uint64_t len)
{
    for (psrti_list_t *n = w->fusions.next; n != &w->fusions; n = n->next) {
        psrt_fusion_t *f = PSRTI_LIST_ENTRY(n, psrt_fusion_t, node);
        if (!f->comm || f->comm->core != comm || len == 0) continue; /* an empty one only wakes */
        pthread_mutex_lock(&f->lock);
        if (!psrti_fuse_note(f->core, member, data, len)) f->has_bad_note = 1;
        pthread_mutex_unlock(&f->lock);
    }
}

/* Does what the core wants, one thing; 0: there is nothing. A failure is the communicator's, so that all hear of it. */
static int move_one(psrt_fusion_t *f, psrti_comm_t *comm, uint64_t now)
{
    psrti_fuse_act_t act;
    pthread_mutex_lock(&f->lock);
    psrti_fuse_next(f->core, now, &act);
    pthread_mutex_unlock(&f->lock);
    switch (act.what) {
    case PSRTI_FUSE_BEGIN: psrti_bucket_begin(f, act.bucket); return 1;
    case PSRTI_FUSE_NOTE: tell_all(comm, act.data, act.len); return 1;
    case PSRTI_FUSE_FAIL: psrti_comm_fail(comm, act.status, act.text); return 1;
    case PSRTI_FUSE_NOTHING: break;
    }
    f->worker->timer = PSRTI_MIN(f->worker->timer, act.timer);
    return 0;
}

static unsigned move(psrt_fusion_t *f, uint64_t now)
{
    psrti_comm_t *comm = ready_comm(f);
    unsigned events = 0;
    if (comm && f->has_bad_note)
        psrti_comm_fail(comm, PSRT_ERR_PEER_LOST, "a member sent a note that makes no sense");
    while (comm && psrti_comm_status(comm) == PSRT_OK && move_one(f, comm, now))
        events++;
    if (comm && psrti_comm_status(comm) != PSRT_OK)
        events += fail(f, psrti_comm_status(comm), psrti_comm_text(comm));
    events += psrti_buckets_finish(f, f->status != PSRT_OK);
    psrti_buckets_sweep(f);
    if (!f->comm && psrti_list_empty(&f->running) && psrti_list_empty(&f->ended)) fusion_destroy(f);
    return events;
}

unsigned psrti_fusions_move(psrti_worker_t *w, uint64_t now)
{
    unsigned events = 0;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &w->fusions)
    events += move(PSRTI_LIST_ENTRY(it, psrt_fusion_t, node), now);
    return events;
}

/* Somebody looks at the fusion soon: this thread, if nobody else moves things. */
static void kick(psrt_fusion_t *f)
{
    psrti_worker_t *w = f->worker;
    pthread_mutex_lock(&w->lock);
    if (psrti_baton_try(w)) {
        pthread_mutex_unlock(&w->lock);
        psrti_baton_move(w);
        psrti_baton_give(w);
        return;
    }
    if (psrti_list_empty(&f->note.node)) psrti_list_push(&w->inbox, &f->note.node);
    atomic_store(&w->filled, 1);
    pthread_mutex_unlock(&w->lock);
    psrti_net_wake(w->net);
}

/* ---- submissions ------------------------------------------------------------------------------- */

/* With f->lock. */
static psrt_status_t submit(psrt_fusion_t *f, psrti_wfused_t *o, const char *name,
                            psrti_fuse_sig_t sig, uint64_t *offset_p)
{
    if (f->status) return psrti_fail(f->status, "%s", f->text);
    psrt_status_t rc = psrti_fuse_submit(f->core, &o->item, name, sig, psrti_now_ns(), offset_p);
    if (rc == PSRT_ERR_BUSY)
        return psrti_fail(
            rc, "psrt_fusion_allreduce: tensor %s was submitted before and has not ended", name);
    return rc ? psrti_fail(rc, "out of memory for tensor %s", name) : PSRT_OK;
}

static void register_op(psrti_worker_t *w, psrt_op_t *op)
{
    pthread_mutex_lock(&w->lock);
    w->live_ops++;
    psrti_list_push(&w->ops, &op->node);
    if (w->keeper_idle) pthread_cond_signal(&w->keeper_cond);
    pthread_mutex_unlock(&w->lock);
}

psrt_status_t psrti_worker_fuse(psrt_fusion_t *f, const char *name, const void *in, void *out,
                                psrti_fuse_sig_t sig, psrt_op_t **op_p)
{
    uint64_t offset = 0;
    psrti_wfused_t *o = calloc(1, sizeof *o);
    if (!o) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for an operation");
    psrti_op_init(f->worker, &o->op);
    o->op.transfers = &o->op.one;
    o->op.fused = o;
    o->fusion = f;
    o->in = in;
    o->out = out;
    pthread_mutex_lock(&f->lock);
    psrt_status_t rc = submit(f, o, name, sig, &offset);
    pthread_mutex_unlock(&f->lock);
    if (rc) {
        free(o);
        return rc;
    }
    register_op(f->worker, &o->op); /* it cannot end before it is ready */
    if (o->item.copies_to && sig.count)
        memcpy((char *)o->item.copies_to->memory + offset, in,
               sig.count * psrt_dtype_size((psrt_dtype_t)sig.dtype));
    pthread_mutex_lock(&f->lock);
    int has_work = psrti_fuse_ready(f->core, &o->item);
    pthread_mutex_unlock(&f->lock);
    if (has_work) kick(f);
    *op_p = &o->op;
    return PSRT_OK;
}

psrt_status_t psrti_worker_fusion_flush(psrt_fusion_t *f)
{
    pthread_mutex_lock(&f->lock);
    psrt_status_t rc = f->status;
    if (rc) psrti_fail(rc, "%s", f->text);
    if (!rc) psrti_fuse_flush(f->core);
    pthread_mutex_unlock(&f->lock);
    if (!rc) kick(f);
    return rc;
}

void psrti_fusion_cancel(const psrt_op_t *op)
{
    psrti_wfused_t *o = op->fused;
    char text[PSRTI_FUSE_TEXT];
    if (atomic_load(&op->done)) return; /* its fusion may be no more */
    psrti_comm_t *comm = ready_comm(o->fusion);
    if (!comm) return;
    snprintf(text, sizeof text, "tensor %s: rank %u canceled its operation",
             psrti_fuse_name(&o->item), psrti_comm_rank(comm));
    psrti_comm_fail(comm, PSRT_ERR_CANCELED, text);
}

void psrti_fusion_describe(const psrt_op_t *op, char *buf, size_t size)
{
    const psrti_wfused_t *o = op->fused;
    pthread_mutex_lock(&o->fusion->lock);
    psrti_fuse_describe(o->fusion->core, &o->item, buf, size);
    pthread_mutex_unlock(&o->fusion->lock);
}

void psrti_worker_fusion_query(psrt_fusion_t *f, psrt_fusion_attr_t *attr)
{
    psrt_comm_attr_t comm = PSRT_COMM_ATTR_INIT;
    psrti_worker_comm_query(f->comm, &comm);
    pthread_mutex_lock(&f->lock);
    psrti_fuse_counts_t counts = psrti_fuse_counts(f->core);
    attr->status = f->status ? f->status : comm.status;
    pthread_mutex_unlock(&f->lock);
    attr->tensors = counts.tensors;
    attr->buckets = counts.planned;
    attr->sent = counts.buckets;
    attr->rounds = counts.rounds;
}
