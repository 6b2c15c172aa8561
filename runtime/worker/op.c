/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as the user holds them: submit, test, wait, release, callbacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/worker_int.h"

#define POLL_EVERY 8 /* submissions: what they send is not answered yet when they return */

static void op_free(psrt_op_t *op)
{
    if (op->coll) {
        free(op->coll->all);
        free(op->coll->lists);
    }
    if (op->transfers != &op->one) free(op->transfers);
    free(op->cop.text);
    free(op);
}

/* w->lock is held. */
static void op_unref(psrt_op_t *op)
{
    if (--op->refs > 0) return;
    psrti_list_remove(&op->node);
    op_free(op);
}

void psrti_ops_free(psrti_worker_t *w)
{
    psrti_list_t *n;
    while ((n = psrti_list_pop(&w->ops)))
        op_free(PSRTI_LIST_ENTRY(n, psrt_op_t, node));
}

void psrti_op_init(psrti_worker_t *w, psrt_op_t *op)
{
    op->worker = w;
    op->refs = 2;
    psrti_list_init(&op->cop.node);
    psrti_list_init(&op->cop.parts);
    op->note.kind = PSRTI_NOTE_SUBMIT;
    op->note.op = op;
}

static psrt_op_t *op_new(psrti_worker_t *w, const psrti_transfer_t *transfers, size_t count)
{
    psrt_op_t *op = malloc(sizeof *op); /* glibc's calloc passes its cache by */
    if (!op) return NULL;
    memset(op, 0, sizeof *op);
    op->transfers = count > 1 ? malloc(count * sizeof *transfers) : &op->one;
    if (!op->transfers) {
        free(op);
        return NULL;
    }
    memcpy(op->transfers, transfers, count * sizeof *transfers);
    op->count = count;
    psrti_op_init(w, op);
    return op;
}

void psrti_op_start(psrti_worker_t *w, psrt_op_t *op)
{
    if (op->coll)
        psrti_comm_op_start(op->coll);
    else
        psrti_client_submit(w->client, &op->cop, op->transfers, op->count);
}

/* ---- callbacks --------------------------------------------------------------------------------- */

/* Whose callback runs on this thread. It holds the baton or is the member's thread: were it to wait, it
 * would wait for itself. */
static __thread const psrti_worker_t *calling;

const psrti_worker_t *psrti_callback_enter(const psrti_worker_t *w)
{
    const psrti_worker_t *outer = calling;
    calling = w;
    return outer;
}

void psrti_callback_leave(const psrti_worker_t *outer) { calling = outer; }

psrt_status_t psrti_worker_may_wait(const psrti_worker_t *w, const char *call)
{
    if (calling != w) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "%s: a callback must not wait", call);
}

/* For the next barrier. What the user canceled is no failure. */
static void keep_failure(psrti_worker_t *w, const psrt_op_t *op)
{
    psrt_status_t status = op->cop.result.status;
    if (status == PSRT_OK || status == PSRT_ERR_CANCELED || w->failed) return;
    w->failed = op->cop.result.status;
    snprintf(w->failed_text, sizeof w->failed_text, "%s", op->cop.text ? op->cop.text : "");
}

/* w->lock is held. */
static void op_done(psrti_worker_t *w, psrt_op_t *op)
{
    keep_failure(w, op);
    w->live_ops--;
    atomic_store_explicit(&op->done, 1, memory_order_release);
    op_unref(op);
}

static void call_back(psrti_worker_t *w, psrt_op_t *op)
{
    const psrti_worker_t *outer = psrti_callback_enter(w);
    op->callback(op->arg, &op->cop.result);
    psrti_callback_leave(outer);
}

static psrt_op_t *completed(psrti_worker_t *w)
{
    psrti_cop_t *c = psrti_client_completed(w->client);
    if (!c) return NULL;
    if (c->result.version == UINT64_MAX) c->result.version = 0;
    return PSRTI_CONTAINER_OF(c, psrt_op_t, cop);
}

/* A callback runs, without the lock, before its op counts as done, so that a waiter finds its effects. */
unsigned psrti_ops_deliver(psrti_worker_t *w)
{
    unsigned events = 0;
    psrt_op_t *op = completed(w);
    while (op) {
        if (op->callback) call_back(w, op);
        pthread_mutex_lock(&w->lock);
        do {
            op_done(w, op);
            events++;
            op = completed(w);
        } while (op && !op->callback);
        if (w->sleepers) pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    return events;
}

void psrti_op_deliver(psrti_worker_t *w, psrt_op_t *op)
{
    pthread_mutex_lock(&w->lock);
    op_done(w, op);
    if (w->sleepers) pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- what the user calls ----------------------------------------------------------------------- */

void psrti_op_submit(psrti_worker_t *w, psrt_op_t *op)
{
    pthread_mutex_lock(&w->lock);
    w->live_ops++;
    psrti_list_push(&w->ops, &op->node);
    if (psrti_baton_try(w)) {
        pthread_mutex_unlock(&w->lock);
        psrti_inbox_read(w);
        psrti_op_start(w, op);
        if (!op->coll && ++w->unpolled < POLL_EVERY)
            psrti_baton_send(w);
        else
            psrti_baton_move(w);
        psrti_baton_give(w);
    } else {
        psrti_list_push(&w->inbox, &op->note.node);
        atomic_store(&w->filled, 1);
        pthread_mutex_unlock(&w->lock);
        psrti_net_wake(w->net);
    }
}

psrt_status_t psrti_worker_submit(psrti_worker_t *w, const psrti_transfer_t *transfers,
                                  size_t count, const psrti_submit_t *how, psrt_op_t **op_p)
{
    psrt_op_t *op = op_new(w, transfers, count);
    if (!op) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for an operation");
    op->callback = how->callback;
    op->arg = how->arg;
    if (how->deadline_ns) op->cop.deadline = psrti_deadline(how->deadline_ns);
    psrti_op_submit(w, op);
    *op_p = op;
    return PSRT_OK;
}

static psrt_status_t op_result(psrt_op_t *op, psrt_result_t *result_p)
{
    psrt_status_t status = op->cop.result.status;
    if (result_p) *result_p = op->cop.result;
    if (status) psrti_fail(status, "%s", op->cop.text ? op->cop.text : psrt_status_text(status));
    return status;
}

psrt_status_t psrti_worker_test(psrt_op_t *op, psrt_result_t *result_p)
{
    psrti_worker_t *w = op->worker;
    if (!atomic_load_explicit(&op->done, memory_order_acquire)) {
        pthread_mutex_lock(&w->lock);
        int mine = psrti_baton_try(w);
        pthread_mutex_unlock(&w->lock);
        if (mine) {
            psrti_baton_move(w);
            psrti_baton_give(w);
        }
    }
    if (!atomic_load_explicit(&op->done, memory_order_acquire)) return PSRT_IN_PROGRESS;
    return op_result(op, result_p);
}

/* What is missing. Looks into the client, so it needs the baton. 0: nothing, it is done. */
static int describe(psrti_worker_t *w, psrt_op_t *op, char *text, size_t size)
{
    snprintf(text, size, "the operation is still being submitted");
    psrti_baton_take(w);
    int done = atomic_load(&op->done);
    if (!done && op->fused)
        psrti_fusion_describe(op, text, size);
    else if (!done && op->coll)
        psrti_coll_describe(&op->coll->core, text, size);
    else if (!done)
        psrti_client_describe(w->client, &op->cop, text, size);
    psrti_baton_give(w);
    return !done;
}

static psrt_status_t op_taken(psrt_op_t *op)
{
    psrt_status_t rc = op_result(op, NULL);
    psrti_worker_release(op);
    return rc;
}

static psrt_status_t wait_until(psrti_worker_t *w, psrt_op_t *op, uint64_t deadline)
{
    psrt_status_t rc = PSRT_OK;
    pthread_mutex_lock(&w->lock);
    while (!atomic_load_explicit(&op->done, memory_order_acquire) && rc == PSRT_OK) {
        if (psrti_baton_try(w)) {
            pthread_mutex_unlock(&w->lock);
            psrti_baton_run(w, &op->done, deadline, 0);
            psrti_baton_give(w);
            pthread_mutex_lock(&w->lock);
            if (psrti_now_ns() >= deadline) rc = PSRT_ERR_TIMEOUT;
        } else {
            rc = psrti_worker_sleep(w, deadline);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return atomic_load_explicit(&op->done, memory_order_acquire) ? PSRT_OK : PSRT_ERR_TIMEOUT;
}

psrt_status_t psrti_worker_wait(psrt_op_t *op, uint64_t timeout_ns)
{
    psrti_worker_t *w = op->worker;
    char text[PSRTI_ERROR_MAX];
    if (atomic_load_explicit(&op->done, memory_order_acquire)) return op_taken(op);
    psrt_status_t rc = psrti_worker_may_wait(w, "psrt_op_wait");
    if (rc) return rc;
    uint64_t stall_ns = psrti_config_u64(w->p.config, PSRTI_CONF_STALL_WARNING);
    uint64_t deadline = timeout_ns == PSRT_FOREVER ? UINT64_MAX : psrti_deadline(timeout_ns);
    uint64_t stall = stall_ns ? psrti_deadline(stall_ns) : UINT64_MAX;
    rc = wait_until(w, op, PSRTI_MIN(stall, deadline));
    if (rc && stall < deadline && describe(w, op, text, sizeof text)) {
        psrti_warn("an operation has waited for %g s: %s", (double)stall_ns / 1e9, text);
        rc = wait_until(w, op, deadline);
    }
    if (rc && describe(w, op, text, sizeof text))
        return psrti_fail(PSRT_ERR_TIMEOUT, "timed out, %s", text);
    return op_taken(op);
}

/* Within a callback the op may still be in the inbox, and its CANCELs are sent by whoever moves. */
void psrti_worker_cancel(psrt_op_t *op)
{
    psrti_worker_t *w = op->worker;
    psrti_baton_take(w);
    psrti_inbox_read(w);
    if (op->fused)
        psrti_fusion_cancel(op);
    else if (!op->coll)
        psrti_client_cancel(w->client, &op->cop, PSRT_ERR_CANCELED);
    else if (!atomic_load(&op->done)) /* else its core may never have begun */
        psrti_coll_cancel(&op->coll->core, PSRT_ERR_CANCELED, "the operation was canceled");
    if (calling != w) psrti_baton_move(w);
    psrti_baton_give(w);
}

void psrti_worker_release(psrt_op_t *op)
{
    psrti_worker_t *w = op->worker;
    pthread_mutex_lock(&w->lock);
    op_unref(op);
    pthread_mutex_unlock(&w->lock);
}
