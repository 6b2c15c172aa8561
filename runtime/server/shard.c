/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, views and sessions of one owner; the gate through which every message comes in. */
#include "runtime/server/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/server/arith.h"
#include "runtime/server/group.h"

/* ---- life -------------------------------------------------------------------------------------- */

psrt_status_t psrti_shard_create(uint32_t owner, const psrti_kernels_t *kernels,
                                 const psrti_shard_env_t *env, psrti_shard_t **shard_p)
{
    psrti_shard_t *s = calloc(1, sizeof *s);
    if (!s) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a server shard");
    s->owner = owner;
    s->k = kernels;
    s->env = *env;
    s->scratch = aligned_alloc(64, PSRTI_APPLY_BLOCK);
    s->fresh = aligned_alloc(64, PSRTI_APPLY_BLOCK);
    if (!s->scratch || !s->fresh) {
        free(s->scratch);
        free(s->fresh);
        free(s);
        return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a server shard");
    }
    s->batches.limit = env->batch_bytes;
    psrti_list_init(&s->peers);
    psrti_list_init(&s->owing);
    psrti_list_init(&s->free_owed);
    psrti_list_init(&s->groups);
    psrti_list_init(&s->dirty_groups);
    psrti_list_init(&s->waiting_groups);
    *shard_p = s;
    return PSRT_OK;
}

static void slice_free(psrti_shard_t *s, psrti_slice_t *slice)
{
    if (!slice) return;
    for (int i = 0; i < 2; i++)
        psrti_step_free(&slice->step[i], s->nworkers);
    for (int i = 0; i < PSRT_OPTIMIZER_MAX_STATES; i++)
        free(slice->state[i]);
    if (slice->cur) psrti_block_drop(s, slice->cur);
    free(slice->average);
    free(slice->master);
    free(slice->bits);
    free(slice->parked);
    free(slice);
}

static void table_free(psrti_shard_t *s, psrti_stable_t *t)
{
    for (uint64_t i = 0; t->slice && i < t->nslices; i++)
        slice_free(s, t->slice[i]);
    for (int i = 0; i < 2; i++)
        while (t->free_blocks[i]) {
            psrti_block_t *b = t->free_blocks[i];
            t->free_blocks[i] = b->next;
            s->env.free(s->env.arg, b->data);
            free(b);
        }
    psrti_init_destroy(t->init);
    free(t->slice);
    free(t->from_step);
    free(t->skipped);
    free(t->clock);
    free(t->changes);
    free(t->collected);
    free(t);
}

void psrti_shard_destroy(psrti_shard_t *s)
{
    if (!s) return;
    size_t pos = 0;
    void *v;
    while (!psrti_list_empty(&s->peers))
        psrti_shard_link_lost(s, PSRTI_LIST_ENTRY(s->peers.next, psrti_peer_t, node));
    for (uint32_t i = 0; s->owners && i < s->view->nowners; i++) {
        if (s->owners[i].out) psrti_shard_link_lost(s, s->owners[i].out);
        if (s->owners[i].in) psrti_shard_link_lost(s, s->owners[i].in);
    }
    while ((v = psrti_map_next(&s->tables, &pos, NULL)))
        table_free(s, v);
    for (pos = 0; (v = psrti_map_next(&s->windows, &pos, NULL));)
        free(v);
    psrti_groups_free(s);
    psrti_map_clear(&s->tables);
    psrti_map_clear(&s->windows);
    while (s->free_tx) {
        psrti_stx_t *stx = s->free_tx;
        s->free_tx = stx->next;
        free(stx);
    }
    psrti_list_t *n;
    while ((n = psrti_list_pop(&s->free_owed)))
        free(PSRTI_LIST_ENTRY(n, psrti_owed_t, node));
    psrti_batches_free(&s->batches);
    psrti_view_unref(s->view);
    free(s->owners);
    free(s->scratch);
    free(s->fresh);
    free(s);
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* First values, and the master copy of a table that is published in another format. */
static psrt_status_t values_new(psrti_shard_t *s, psrti_stable_t *t, psrti_slice_t *slice)
{
    slice->cur = psrti_block_new(s, slice);
    if (!slice->cur) return PSRT_ERR_NO_MEMORY;
    if (t->wire_value != t->spec.acc_dtype) {
        slice->master = psrti_acc_new(slice);
        if (!slice->master) return PSRT_ERR_NO_MEMORY;
    }
    slice->ready = !psrti_init_is_rank0(t->init);
    if (!slice->ready) return PSRT_OK;
    void *values = slice->master ? slice->master : slice->cur->data;
    psrti_init_fill(t->init, t->spec.acc_dtype, values, slice->first, slice->len);
    if (slice->master)
        psrti_arith_round(s->k, t->spec.acc_dtype, t->wire_value, slice->cur->data, values,
                          slice->len);
    psrti_average_start(s, slice);
    return PSRT_OK;
}

static psrt_status_t slice_new(psrti_shard_t *s, psrti_stable_t *t, uint64_t index)
{
    psrti_slice_t *slice = calloc(1, sizeof *slice);
    if (!slice) return PSRT_ERR_NO_MEMORY;
    t->slice[index] = slice;
    slice->table = t;
    slice->index = index;
    slice->first = psrti_slice_first(index);
    slice->len = psrti_slice_len(t->spec.elements, index);
    slice->vshard = psrti_slice_vshard(t->hash, index, s->view->nvshards);
    psrti_list_init(&slice->waiters);
    for (int i = 0; i < t->opt.num_states; i++) {
        slice->state[i] = calloc(slice->len, t->acc_bytes);
        if (!slice->state[i]) return PSRT_ERR_NO_MEMORY;
        psrti_optimizer_state_fill(&t->opt, i, t->spec.acc_dtype, slice->state[i], slice->len);
    }
    if (t->opt.ema > 0 && !(slice->average = psrti_acc_new(slice))) return PSRT_ERR_NO_MEMORY;
    if (t->spec.consistency == PSRTI_SYNC) {
        slice->bits = calloc(4 * psrti_bit_words(s->nworkers), 8);
        if (!slice->bits) return PSRT_ERR_NO_MEMORY;
    }
    return values_new(s, t, slice);
}

static psrt_status_t table_fill(psrti_shard_t *s, psrti_stable_t *t)
{
    t->wire_value = psrti_table_spec_wire(&t->spec, t->spec.value_dtype);
    t->wire_grad = psrti_table_spec_wire(&t->spec, t->spec.grad_dtype);
    t->acc_bytes = psrt_dtype_size(t->spec.acc_dtype);
    t->value_bytes = psrt_dtype_size(t->wire_value);
    t->grad_bytes = psrt_dtype_size(t->wire_grad);
    t->hash = psrti_hash_bytes(t->spec.name, strlen(t->spec.name));
    t->nslices = psrti_slice_count(t->spec.elements);
    t->hold_from = s->preparing ? 0 : UINT64_MAX;
    t->set_hold = UINT64_MAX;
    psrt_status_t rc = psrti_table_spec_optimizer(&t->spec, &t->opt);
    if (!rc)
        rc = psrti_init_parse(t->spec.init, t->spec.name, t->spec.ndim, t->spec.shape, &t->init);
    if (rc) return rc;
    t->slice = calloc(t->nslices, sizeof(void *));
    t->from_step = calloc(s->nworkers, sizeof *t->from_step);
    t->skipped = calloc(s->nworkers, sizeof *t->skipped);
    t->clock = calloc(s->nworkers, sizeof *t->clock);
    if (!t->slice || !t->from_step || !t->skipped || !t->clock) return PSRT_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < t->nslices && !rc; i++) {
        uint16_t v = psrti_slice_vshard(t->hash, i, s->view->nvshards);
        if (s->view->vshards[v].owner == s->owner) rc = slice_new(s, t, i);
    }
    return rc;
}

/* Is a slice of the table here, or its group decided here? */
static int has_part(const psrti_shard_t *s, const psrti_table_spec_t *spec)
{
    const psrti_view_t *view = s->view;
    uint64_t hash = psrti_hash_bytes(spec->name, strlen(spec->name));
    uint64_t slices = PSRTI_MIN(psrti_slice_count(spec->elements), (uint64_t)view->nvshards);
    if (view->vshards[psrti_table_spec_group_vshard(spec, view->nvshards)].owner == s->owner)
        return 1;
    for (uint64_t i = 0; i < slices; i++)
        if (view->vshards[psrti_slice_vshard(hash, i, view->nvshards)].owner == s->owner) return 1;
    return 0;
}

psrt_status_t psrti_shard_hold(psrti_shard_t *s, uint32_t id, const psrti_table_spec_t *spec)
{
    if (!s->view)
        return psrti_fail(PSRT_ERR_NOT_READY, "table %s comes before any view", spec->name);
    if (psrti_map_get(&s->tables, id)) return PSRT_OK; /* told again */
    psrt_status_t rc = psrti_table_spec_check(spec);
    if (rc || !has_part(s, spec)) return rc;
    psrti_stable_t *t = calloc(1, sizeof *t);
    rc = PSRT_ERR_NO_MEMORY;
    if (t) {
        t->id = id;
        t->spec = *spec;
        rc = table_fill(s, t);
        if (!rc) rc = psrti_map_put(&s->tables, id, t);
        if (!rc && (rc = psrti_group_join(s, t))) psrti_map_remove(&s->tables, id);
    }
    if (!rc) return PSRT_OK;
    if (t) table_free(s, t);
    if (rc != PSRT_ERR_NO_MEMORY) return rc; /* the last error says more */
    return psrti_fail(rc, "table %s: the server has no memory for its part of %llu elements",
                      spec->name, (unsigned long long)spec->elements);
}

/* ---- views ------------------------------------------------------------------------------------- */

static void each_slice(psrti_shard_t *s, void (*fn)(psrti_shard_t *s, psrti_slice_t *slice))
{
    size_t pos = 0;
    psrti_stable_t *t;
    while ((t = psrti_map_next(&s->tables, &pos, NULL)))
        for (uint64_t i = 0; i < t->nslices; i++)
            if (t->slice[i]) fn(s, t->slice[i]);
}

static void review(psrti_shard_t *s, psrti_slice_t *slice)
{
    if (slice->table->spec.consistency == PSRTI_SYNC) psrti_close_steps(s, slice, NULL);
    psrti_wake_slice(s, slice);
}

static void join_worker(psrti_shard_t *s, uint32_t joiner, size_t count, const uint32_t *table,
                        const uint64_t *from_step)
{
    for (size_t i = 0; i < count; i++) {
        psrti_stable_t *t = psrti_map_get(&s->tables, table[i]);
        if (!t) continue;
        t->from_step[joiner] =
            PSRTI_MAX(t->from_step[joiner], from_step[i]); /* told again: as is */
        t->clock[joiner] = PSRTI_MAX(t->clock[joiner], from_step[i]);
        t->last_from = PSRTI_MAX(t->last_from, from_step[i]);
        t->nslowest = 0;
        if (t->spec.deterministic)
            psrti_info("table %s: worker:%u joins at step %llu, sums differ from then on",
                       t->spec.name, joiner, (unsigned long long)from_step[i]);
    }
}

void psrti_shard_view(psrti_shard_t *s, psrti_view_t *view, uint32_t joiner, size_t count,
                      const uint32_t *table, const uint64_t *from_step)
{
    int joins = from_step != NULL && joiner < view->nworkers;
    uint64_t known = s->view ? s->view->number : 0;
    if (view->number < known || (view->number == known && !joins)) return;
    psrti_view_t *old = s->view;
    s->view = psrti_view_ref(view);
    psrti_view_unref(old);
    s->nworkers = view->nworkers;
    s->live = psrti_view_live_workers(view);
    if (!s->owners) s->owners = calloc(view->nowners, sizeof *s->owners);
    psrti_groups_view(s);
    if (joins) join_worker(s, joiner, count, table, from_step);
    size_t pos = 0;
    psrti_stable_t *t;
    /* The same view again tells of another joiner and ends no hold. */
    if (view->number > known) s->preparing = 0;
    while (view->number > known && (t = psrti_map_next(&s->tables, &pos, NULL))) {
        t->hold_from = UINT64_MAX;
        t->nslowest = 0;
    }
    psrti_gather_begin(s);
    each_slice(s, review);
    psrti_groups_run(s);
    psrti_gather_end(s);
}

/* The highest step that a worker has begun, plus one; 0: none has. One that is open and that nobody has
 * pushed to counts as not begun: it may be the step after the last, and nobody is to wait for it. */
static uint64_t begun_steps(const psrti_shard_t *s, const psrti_stable_t *t)
{
    uint64_t begun = 0;
    for (uint32_t r = 0; r < s->nworkers; r++)
        begun = PSRTI_MAX(begun, t->clock[r]);
    for (uint64_t i = 0; t->spec.consistency == PSRTI_SYNC && i < t->nslices; i++) {
        const psrti_slice_t *slice = t->slice[i];
        if (!slice) continue;
        uint64_t v = slice->version;
        const psrti_step_t *open = &slice->step[v % 2], *ahead = &slice->step[(v + 1) % 2];
        if (ahead->contributors || ahead->ended)
            v += 2;
        else if (open->contributors || open->ended || slice->sealed)
            v += 1;
        begun = PSRTI_MAX(begun, v);
    }
    return begun;
}

/* A table that nobody has begun is not reported: the joiner counts from its step 0, which therefore
 * stays open, whether it is held already or comes before the view. */
void psrti_shard_prepare(psrti_shard_t *s,
                         void (*report)(void *arg, uint32_t table, uint64_t open_step), void *arg)
{
    size_t pos = 0;
    psrti_stable_t *t;
    s->preparing = 1;
    while ((t = psrti_map_next(&s->tables, &pos, NULL))) {
        t->hold_from = begun_steps(s, t);
        if (t->hold_from) report(arg, t->id, t->hold_from - 1);
    }
}

/* ---- sessions ---------------------------------------------------------------------------------- */

psrti_peer_t *psrti_shard_link_up(psrti_shard_t *s, void *link, uint32_t task, uint64_t incarnation)
{
    psrti_peer_t *peer = calloc(1, sizeof *peer);
    if (!peer) return NULL;
    peer->link = link;
    peer->task = task;
    peer->rank = PSRTI_TASK_RANK(task);
    peer->incarnation = incarnation;
    psrti_list_init(&peer->owed);
    psrti_list_init(&peer->waits);
    psrti_list_init(&peer->owing);
    psrti_list_push(&s->peers, &peer->node);
    return peer;
}

void psrti_shard_link_lost(psrti_shard_t *s, psrti_peer_t *peer)
{
    if (peer->is_owner) psrti_owner_lost(s, peer);
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &peer->waits)
    psrti_wait_free(PSRTI_LIST_ENTRY(n, psrti_wait_t, peer_node));
    while (!psrti_list_empty(&peer->owed))
        psrti_owed_free(s, PSRTI_LIST_ENTRY(peer->owed.next, psrti_owed_t, node));
    psrti_list_remove(&peer->owing);
    psrti_list_remove(&peer->node);
    free(peer);
}

/* ---- messages ---------------------------------------------------------------------------------- */

/* May this peer be served? OK, or what to answer. */
static psrt_status_t standing(const psrti_shard_t *s, const psrti_peer_t *peer)
{
    if (!s->view) return PSRT_ERR_AGAIN;
    const psrti_view_worker_t *w = &s->view->workers[peer->rank];
    if (peer->incarnation > w->incarnation) return PSRT_ERR_AGAIN; /* our view is older */
    if (peer->incarnation < w->incarnation || !w->alive) return PSRT_ERR_FENCED;
    return PSRT_OK;
}

/* The slice that a data frame addresses; NULL: it lies outside the table, or not here. */
static psrti_slice_t *slice_of(const psrti_stable_t *t, const psrt_hdr_t *req)
{
    uint64_t i = req->offset >> PSRTI_SLICE_SHIFT;
    if (i >= t->nslices || !t->slice[i]) return NULL;
    psrti_slice_t *slice = t->slice[i];
    uint64_t in = req->offset - slice->first;
    if (slice->vshard != req->vshard || req->length == 0 || in >= slice->len ||
        req->length > slice->len - in)
        return NULL;
    return slice;
}

static psrt_rx_t data_msg(psrti_shard_t *s, psrti_peer_t *peer, psrti_stable_t *t, psrt_msg_t *msg)
{
    const psrt_hdr_t *req = &msg->hdr;
    psrti_slice_t *slice = slice_of(t, req);
    if (!slice) return PSRT_RX_BAD;
    uint16_t average = req->flags & PSRTI_F_AVERAGE;
    if (average && (req->type != PSRTI_T_PULL || !slice->average)) return PSRT_RX_BAD;
    if (req->type == PSRTI_T_PULL) {
        psrti_pull_or_park(s, peer, slice, req, req->step, average);
        return PSRT_RX_DONE;
    }
    if (req->type == PSRTI_T_CANCEL) return psrti_cancel(s, peer, slice, req);
    int init = req->type == PSRTI_T_INIT; /* never encoded: the master starts as given */
    psrt_dtype_t dtype = init ? t->spec.value_dtype : t->spec.grad_dtype;
    uint8_t codec = init ? PSRTI_CODEC_NONE : (uint8_t)t->spec.codec;
    uint64_t bytes = init ? psrt_dtype_size(dtype) : t->grad_bytes;
    if (req->dtype != dtype || req->codec != codec || msg->len != req->length * bytes)
        return PSRT_RX_BAD;
    return psrti_push(s, peer, slice, msg);
}

psrt_rx_t psrti_shard_msg(psrti_shard_t *s, psrti_peer_t *peer, psrt_msg_t *msg)
{
    const psrt_hdr_t *req = &msg->hdr;
    if (msg->len > PSRTI_BATCH_PAYLOAD && !s->gathering) psrti_owing_send(s); /* this takes long */
    if (peer->is_owner) return psrti_group_msg(s, peer, msg);
    if (req->type == PSRTI_T_BYE) return PSRT_RX_DONE;
    if (req->type == PSRTI_T_BATCH) return psrti_batch_msg(s, peer, msg);
    if (req->type != PSRTI_T_PUSH && req->type != PSRTI_T_PULL && req->type != PSRTI_T_INIT &&
        req->type != PSRTI_T_CLOCK && req->type != PSRTI_T_CANCEL)
        return PSRT_RX_BAD;
    if (s->view && (peer->rank >= s->nworkers || req->vshard >= s->view->nvshards))
        return PSRT_RX_BAD;
    psrt_status_t st = standing(s, peer);
    if (st) {
        psrti_reply_ack(s, peer, req, st, 0, 0);
        return PSRT_RX_DONE;
    }
    const psrti_view_vshard_t *v = &s->view->vshards[req->vshard];
    if (v->owner != s->owner || v->term != req->term) {
        psrti_reply_moved(s, peer, req);
        return PSRT_RX_DONE;
    }
    psrti_stable_t *t = psrti_map_get(&s->tables, req->table);
    if (!t) { /* declared before this life of the server: its part is gone */
        psrti_reply_ack(s, peer, req, PSRT_ERR_SHARD_LOST, 0, 0);
        return PSRT_RX_DONE;
    }
    return req->type == PSRTI_T_CLOCK ? psrti_clock(s, peer, t, req) : data_msg(s, peer, t, msg);
}

/* ---- introspection ----------------------------------------------------------------------------- */

void psrti_shard_counts(const psrti_shard_t *s, psrti_shard_counts_t *out) { *out = s->counts; }

psrt_status_t psrti_shard_peek(const psrti_shard_t *s, uint32_t table, uint64_t index,
                               const void **values_p, uint64_t *version_p)
{
    const psrti_stable_t *t = psrti_map_get(&s->tables, table);
    if (!t || index >= t->nslices || !t->slice[index]) return PSRT_ERR_NOT_FOUND;
    *values_p = t->slice[index]->cur->data;
    *version_p = t->slice[index]->version;
    return PSRT_OK;
}
