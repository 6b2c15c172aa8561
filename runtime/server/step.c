/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions: fold, close the step, apply. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/server/arith.h"
#include "runtime/server/group.h"

/* Steps that slices of a table can be apart; more is a malformed message, not a late worker. */
#define MAX_SKIP (1u << 20)

/* ---- apply ------------------------------------------------------------------------------------- */

/* Gradient of n elements in acc_dtype: acc + last, or one of them alone, divided by `divisor`. `acc`
 * has acc_dtype, `last` comes as it was sent. Returns where it lies: one of the inputs when nothing was
 * to be done, else the scratch block. */
static const void *combine(psrti_shard_t *s, const psrti_stable_t *t, const void *acc,
                           const void *last, uint64_t n, uint32_t divisor)
{
    psrt_dtype_t dtype = t->spec.acc_dtype;
    const void *g = s->scratch;
    if (acc && last)
        psrti_arith_add(s->k, dtype, t->wire_grad, s->scratch, acc, last, n);
    else if (acc)
        g = acc;
    else if (t->wire_grad == dtype)
        g = last;
    else
        psrti_arith_widen(s->k, dtype, t->wire_grad, s->scratch, last, n);
    if (divisor > 1) {
        psrti_arith_divide(s->k, dtype, s->scratch, g, divisor, n);
        g = s->scratch;
    }
    return g;
}

/* The update of one block, which lies at element `at` of the slice and becomes part of `out`. A large
 * table's new version has left the caches before it is pulled: it is written past them. */
static void apply_block(psrti_shard_t *s, psrti_slice_t *slice, psrt_apply_t *blk, uint64_t at,
                        const psrti_block_t *in, psrti_block_t *out)
{
    psrti_stable_t *t = slice->table;
    psrt_dtype_t dtype = t->spec.acc_dtype;
    uint64_t off = at * t->acc_bytes;
    int fresh = out != in && !slice->master && t->spec.elements * t->acc_bytes >= PSRTI_BULK_BYTES;
    blk->value_in = (const char *)(slice->master ? slice->master : in->data) + off;
    blk->value_out = fresh ? s->fresh : (char *)(slice->master ? slice->master : out->data) + off;
    for (int j = 0; j < t->opt.num_states; j++)
        blk->state[j] = (char *)slice->state[j] + off;
    if (!t->opt.ops)
        psrti_arith_add(s->k, dtype, dtype, blk->value_out, blk->value_in, blk->grad, blk->n);
    else if (dtype == PSRT_F64)
        t->opt.ops->apply_f64(blk);
    else
        t->opt.ops->apply_f32(blk);
    if (slice->master) psrti_master_publish(s, slice, at, blk->value_out, blk->n, out);
    if (fresh) s->k->stream((char *)out->data + off, s->fresh, blk->n * t->acc_bytes);
    psrti_average_update(slice, at, blk->value_out, blk->n);
}

/* The facts of the whole table, and the scaled gradient, of a block. */
static void set_facts(psrti_shard_t *s, const psrti_stable_t *t, psrt_apply_t *blk,
                      const psrti_facts_t *f)
{
    if (f->scale != 1) {
        const struct psrti_kernels_of_type *k =
            t->spec.acc_dtype == PSRT_F64 ? &s->k->f64 : &s->k->f32;
        k->scale(s->scratch, blk->grad, f->scale, blk->n);
        blk->grad = s->scratch;
    }
    blk->update = (void *)blk->grad; /* prepared: where the update lies */
    blk->grad_norm = f->norms.grad;
    blk->value_norm = f->norms.value;
    blk->update_norm = f->norms.update;
}

void psrti_prepare(psrti_shard_t *s, psrti_slice_t *slice, void *acc, const psrti_facts_t *facts)
{
    psrti_stable_t *t = slice->table;
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    psrti_params_for(slice, params);
    psrt_apply_t blk = { .params = params, .t = slice->updates + 1 };
    uint64_t step = PSRTI_APPLY_BLOCK / t->acc_bytes;
    const char *values = slice->master ? slice->master : slice->cur->data;
    for (uint64_t i = 0; i < slice->len; i += step) {
        char *at = (char *)acc + i * t->acc_bytes;
        blk.n = PSRTI_MIN(step, slice->len - i);
        blk.grad = at;
        blk.value_in = values + i * t->acc_bytes;
        for (int j = 0; j < t->opt.num_states; j++)
            blk.state[j] = (char *)slice->state[j] + i * t->acc_bytes;
        set_facts(s, t, &blk, facts);
        blk.update = at;
        (t->spec.acc_dtype == PSRT_F64 ? t->opt.ops->prepare_f64 : t->opt.ops->prepare_f32)(&blk);
    }
}

/* Block by block, so that the sum stays in the cache. Writes in place unless a reader holds the block; a
 * master has no readers. */
psrt_status_t psrti_apply(psrti_shard_t *s, psrti_slice_t *slice, uint64_t first, uint64_t len,
                          const void *acc, const void *last, uint32_t divisor,
                          const psrti_facts_t *facts)
{
    psrti_stable_t *t = slice->table;
    psrti_block_t *in = slice->cur, *out = in;
    psrti_master_review(s, slice);
    if (in->pins) {
        out = psrti_block_new(s, slice);
        if (!out) return PSRT_ERR_NO_MEMORY;
        if (len < slice->len) s->k->copy(out->data, in->data, slice->len * t->value_bytes);
    }
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    psrti_params_for(slice, params);
    psrt_apply_t blk = { .params = params, .t = slice->updates + 1 };
    uint64_t step =
        (slice->master ? psrti_master_block(s, slice) : PSRTI_APPLY_BLOCK) / t->acc_bytes;
    for (uint64_t i = 0; i < len; i += step) {
        blk.n = PSRTI_MIN(step, len - i);
        blk.grad = combine(s, t, acc ? (const char *)acc + i * t->acc_bytes : NULL,
                           last ? (const char *)last + i * t->grad_bytes : NULL, blk.n, divisor);
        if (facts) set_facts(s, t, &blk, facts);
        apply_block(s, slice, &blk, first + i, in, out);
    }
    slice->updates++;
    slice->cur = out;
    return PSRT_OK;
}

/* ---- sync steps -------------------------------------------------------------------------------- */

void psrti_step_free(psrti_step_t *step, uint32_t nworkers)
{
    free(step->acc);
    if (step->staged)
        for (uint32_t r = 0; r < nworkers; r++)
            free(step->staged[r]);
    free(step->staged);
    memset(step, 0, sizeof *step);
}

void *psrti_acc_new(const psrti_slice_t *slice)
{
    uint64_t bytes = slice->len * slice->table->acc_bytes;
    return aligned_alloc(64, (bytes + 63) & ~63ull);
}

/* dst (whole slice in acc_dtype, may be NULL: none yet) += range of g, which comes in `from`. A first
 * whole contribution is copied, a first partial one is added to zeros. */
static psrt_status_t add_range(psrti_shard_t *s, psrti_slice_t *slice, void **dst,
                               psrt_dtype_t from, const void *g, uint64_t first, uint64_t len)
{
    size_t bytes = slice->table->acc_bytes;
    psrt_dtype_t dtype = slice->table->spec.acc_dtype;
    if (!*dst) {
        void *acc = psrti_acc_new(slice);
        if (!acc) return PSRT_ERR_NO_MEMORY;
        *dst = acc;
        if (len == slice->len) {
            psrti_arith_widen(s->k, dtype, from, acc, g, len);
            return PSRT_OK;
        }
        memset(acc, 0, slice->len * bytes);
    }
    char *at = (char *)*dst + first * bytes;
    psrti_arith_add(s->k, dtype, from, at, at, g, len);
    return PSRT_OK;
}

/* What is staged for a rank goes into acc, or becomes it. Needs no memory, so it cannot fail. */
static void unstage(psrti_shard_t *s, psrti_slice_t *slice, psrti_step_t *st, uint32_t rank)
{
    void *own = st->staged ? st->staged[rank] : NULL;
    if (!own) return;
    st->staged[rank] = NULL;
    if (!st->acc) {
        st->acc = own;
        return;
    }
    add_range(s, slice, &st->acc, slice->table->spec.acc_dtype, own, 0, slice->len);
    free(own);
}

/* Deterministic order: everything staged for ranks that are next in line goes into acc, as long as
 * those ranks have ended the step (a range push may still follow). */
static void drain_staged(psrti_shard_t *s, psrti_slice_t *slice, uint64_t n, int all)
{
    psrti_step_t *st = &slice->step[n % 2];
    const uint64_t *ended = psrti_ended(s, slice, n);
    for (; st->next_rank < s->nworkers; st->next_rank++) {
        uint32_t r = st->next_rank;
        if (!all && psrti_step_counts(s, slice->table, r, n) && !psrti_bit_get(ended, r)) break;
        unstage(s, slice, st, r);
    }
}

static psrt_status_t stage(psrti_shard_t *s, psrti_slice_t *slice, psrti_step_t *st, uint32_t rank,
                           const void *g, uint64_t first, uint64_t len)
{
    if (!st->staged) st->staged = calloc(s->nworkers, sizeof *st->staged);
    if (!st->staged) return PSRT_ERR_NO_MEMORY;
    return add_range(s, slice, &st->staged[rank], slice->table->wire_grad, g, first, len);
}

/* Are more workers missing from step n than it can be closed without, when none counts from a later step
 * only? Asked with every push, so it looks at no worker. */
static int lacks_many(const psrti_shard_t *s, const psrti_slice_t *slice, uint64_t n,
                      const psrti_peer_t *with)
{
    const psrti_stable_t *t = slice->table;
    uint32_t there = slice->step[n % 2].ended + (with != NULL) + t->spec.backup;
    return n >= t->last_from && there < s->live;
}

/* Has everyone who counts for step n, but the backup workers, ended it (`with` is about to), or can nobody
 * end it any more? A step that nobody ended is closed only for a worker that starts later. */
static int is_complete(const psrti_shard_t *s, psrti_slice_t *slice, uint64_t n,
                       const psrti_peer_t *with)
{
    const psrti_stable_t *t = slice->table;
    const uint64_t *ended = psrti_ended(s, slice, n);
    int begun = slice->step[n % 2].ended + (with != NULL) != 0, later = 0;
    uint32_t missing = 0, gone = 0; /* of those missing: went on without it */
    if (!slice->ready || n >= t->hold_from || n >= t->set_hold) return 0;
    if (lacks_many(s, slice, n, with)) return 0;
    for (uint32_t r = 0; r < s->nworkers; r++) {
        if (!s->view->workers[r].alive) continue;
        later |= t->from_step[r] > n || t->skipped[r] > n;
        if (!psrti_step_counts(s, t, r, n) || psrti_bit_get(ended, r) || (with && with->rank == r))
            continue;
        missing++;
        gone += t->skipped[r] > n;
    }
    if (missing == gone) return begun || later;
    return begun && missing <= t->spec.backup;
}

/* The divisor of step n without a contribution that is folded last. With backup workers those that
 * were in the middle of the step do not count: what they staged is dropped. */
static uint32_t contributors_of(const psrti_shard_t *s, psrti_slice_t *slice, uint64_t n)
{
    const uint64_t *contributed = psrti_contributed(s, slice, n), *ended = psrti_ended(s, slice, n);
    uint32_t count = 0;
    if (!slice->table->spec.backup) return slice->step[n % 2].contributors;
    for (size_t i = 0; i < psrti_bit_words(s->nworkers); i++)
        count += (uint32_t)__builtin_popcountll(contributed[i] & ended[i]);
    return count;
}

void psrti_step_closed(psrti_shard_t *s, psrti_slice_t *slice, const psrti_peer_t *except)
{
    uint64_t n = slice->version;
    size_t words = psrti_bit_words(s->nworkers);
    uint64_t *contributed = psrti_contributed(s, slice, n), *ended = psrti_ended(s, slice, n);
    psrti_step_free(&slice->step[n % 2], s->nworkers);
    slice->version = n + 1;
    s->counts.steps++;
    psrti_notify_applied(s, slice, ended, except);
    memset(contributed, 0, words * 8);
    memset(ended, 0, words * 8);
    psrti_wake_slice(s, slice);
}

/* Closes the open step `version`, folding `last` (NULL: none) on the way. */
static psrt_status_t close_step(psrti_shard_t *s, psrti_slice_t *slice, const void *last)
{
    uint64_t n = slice->version;
    psrti_step_t *st = &slice->step[n % 2];
    if (slice->table->spec.deterministic) drain_staged(s, slice, n, 1);
    if (!st->acc && !last) return PSRT_OK;
    uint32_t contributors = contributors_of(s, slice, n) + (last != NULL);
    return psrti_apply(s, slice, 0, slice->len, st->acc, last,
                       slice->table->spec.average ? contributors : 1, NULL);
}

uint32_t psrti_step_sum(psrti_shard_t *s, psrti_slice_t *slice)
{
    if (slice->table->spec.deterministic) drain_staged(s, slice, slice->version, 1);
    return slice->step[slice->version % 2].contributors;
}

void psrti_close_steps(psrti_shard_t *s, psrti_slice_t *slice, const psrti_peer_t *except)
{
    if (slice->table->group) { /* the others of its group have a say */
        if (is_complete(s, slice, slice->version, NULL)) psrti_group_seal(s, slice);
        return;
    }
    while (is_complete(s, slice, slice->version, NULL)) {
        if (close_step(s, slice, NULL)) {
            psrti_error("table %s: no memory to apply step %llu, it stays open",
                        slice->table->spec.name, (unsigned long long)slice->version);
            return;
        }
        psrti_step_closed(s, slice, except);
    }
}

/* In deterministic mode: may this contribution be folded as the last one, after all others? */
static int is_last_in_order(const psrti_shard_t *s, psrti_slice_t *slice, uint64_t n, uint32_t rank)
{
    if (!slice->table->spec.deterministic) return 1;
    const psrti_step_t *st = &slice->step[n % 2];
    if (!st->staged) return 1;
    for (uint32_t r = rank + 1; r < s->nworkers; r++)
        if (st->staged[r]) return 0;
    return 1;
}

/* Adds to the sum; deterministic: only when it is this rank's turn and nothing else will come from it,
 * else into the rank's staging. A joiner whose turn passed before it was there cannot wait for it.
 * With backup workers the step may close in the middle of a worker's pushes: they are staged until it
 * has ended the step, so that its contribution counts whole or not at all. */
static psrt_status_t fold(psrti_shard_t *s, psrti_slice_t *slice, uint64_t n, uint32_t rank,
                          const void *g, uint64_t first, uint64_t len, int only)
{
    psrti_step_t *st = &slice->step[n % 2];
    psrt_dtype_t from = slice->table->wire_grad;
    if (slice->table->spec.backup && !only) return stage(s, slice, st, rank, g, first, len);
    if (!slice->table->spec.deterministic)
        return add_range(s, slice, &st->acc, from, g, first, len);
    drain_staged(s, slice, n, 0);
    if (rank < st->next_rank || (only && rank == st->next_rank))
        return add_range(s, slice, &st->acc, from, g, first, len);
    return stage(s, slice, st, rank, g, first, len);
}

static void end_step(psrti_shard_t *s, psrti_slice_t *slice, uint64_t n, uint32_t rank)
{
    uint64_t *ended = psrti_ended(s, slice, n);
    if (psrti_bit_get(ended, rank)) return;
    psrti_bit_set(ended, rank);
    slice->step[n % 2].ended++;
    if (slice->table->spec.backup) unstage(s, slice, &slice->step[n % 2], rank);
}

/* Adds a contribution to open step n; closes the step if this was the missing one. */
static psrt_status_t contribute(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                                const psrt_hdr_t *req, const void *g)
{
    uint64_t n = req->step, first = req->offset - slice->first;
    uint64_t *contributed = psrti_contributed(s, slice, n);
    int end = (req->flags & PSRTI_F_END) != 0, seen = psrti_bit_get(contributed, peer->rank);
    int only = end && !seen && req->length == slice->len;
    if (only && !slice->table->group && n == slice->version && is_complete(s, slice, n, peer) &&
        is_last_in_order(s, slice, n, peer->rank)) {
        psrt_status_t rc = close_step(s, slice, g);
        if (rc) return rc;
        end_step(s, slice, n, peer->rank); /* so that it is told */
        return PSRT_OK;
    }
    psrt_status_t rc = fold(s, slice, n, peer->rank, g, first, req->length, only);
    if (rc) return rc;
    if (!seen) {
        psrti_bit_set(contributed, peer->rank);
        slice->step[n % 2].contributors++;
    }
    if (end) end_step(s, slice, n, peer->rank);
    return PSRT_IN_PROGRESS;
}

/* ---- messages ---------------------------------------------------------------------------------- */

psrti_window_t *psrti_window_of(psrti_shard_t *s, const psrti_peer_t *peer, uint16_t vshard)
{
    uint64_t key = (uint64_t)peer->task << 16 | vshard;
    psrti_window_t *w = psrti_map_get(&s->windows, key);
    if (!w) {
        w = calloc(1, sizeof *w);
        if (!w || psrti_map_put(&s->windows, key, w) != PSRT_OK) {
            free(w);
            return NULL;
        }
        w->incarnation = peer->incarnation;
    }
    if (w->incarnation != peer->incarnation) psrti_window_reset(w, peer->incarnation);
    return w;
}

/* The answer to a push whose contribution is in, now or earlier. */
static void answer_push(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                        const psrt_hdr_t *req)
{
    int sync = slice->table->spec.consistency == PSRTI_SYNC;
    if (req->flags & PSRTI_F_PULL) {
        uint64_t want = req->step + 1;
        if (!sync) want -= PSRTI_MIN(want, slice->table->spec.staleness);
        psrti_pull_or_park(s, peer, slice, req, want, 0);
        return;
    }
    int applied = !sync || slice->version > req->step;
    psrti_reply_ack(s, peer, req, PSRT_OK, applied ? PSRTI_F_APPLIED : 0, slice->version);
}

static void answer_late(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                        const psrt_hdr_t *req)
{
    s->counts.late++;
    if (req->flags & PSRTI_F_PULL)
        psrti_reply_value(s, peer, slice, req->seq, req->offset, req->length, PSRTI_F_LATE,
                          req->priority);
    else
        psrti_reply_ack(s, peer, req, PSRT_OK, PSRTI_F_LATE, slice->version);
}

static psrt_rx_t push_sync(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                           const psrt_hdr_t *req, psrti_window_t *w, const void *g)
{
    if (req->step < slice->version) {
        answer_late(s, peer, slice, req);
        return PSRT_RX_DONE;
    }
    if (req->step > slice->version + 1) { /* a third open step: the client waits and tries again */
        psrti_window_refuse(w, req->seq);
        psrti_reply_ack(s, peer, req, PSRT_ERR_AGAIN, PSRTI_F_LATE, slice->version);
        return PSRT_RX_DONE;
    }
    if (psrti_bit_get(psrti_ended(s, slice, req->step), peer->rank)) {
        s->counts.duplicates++; /* an earlier life of this worker contributed to the step */
        answer_push(s, peer, slice, req);
        return PSRT_RX_DONE;
    }
    if (slice->sealed && req->step == slice->version) { /* it does not count for this step */
        answer_late(s, peer, slice, req);
        return PSRT_RX_DONE;
    }
    psrt_status_t rc = contribute(s, peer, slice, req, g);
    if (rc < 0) {
        psrti_reply_ack(s, peer, req, rc, 0, slice->version);
        return PSRT_RX_DONE;
    }
    psrti_window_record(w, req->seq);
    s->counts.applied++;
    if (rc == PSRT_OK) psrti_step_closed(s, slice, peer);
    psrti_close_steps(s, slice, peer);
    psrti_groups_run(s);
    answer_push(s, peer, slice, req);
    return PSRT_RX_DONE;
}

static psrt_rx_t push_now(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                          const psrt_hdr_t *req, psrti_window_t *w, const void *g)
{
    psrt_status_t rc =
        psrti_apply(s, slice, req->offset - slice->first, req->length, NULL, g, 1, NULL);
    if (rc) {
        psrti_reply_ack(s, peer, req, rc, 0, slice->version);
        return PSRT_RX_DONE;
    }
    psrti_window_record(w, req->seq);
    s->counts.applied++;
    slice->version++;
    answer_push(s, peer, slice, req);
    return PSRT_RX_DONE;
}

static void set_values(psrti_shard_t *s, psrti_slice_t *slice, const void *values)
{
    const psrti_stable_t *t = slice->table;
    psrt_dtype_t dtype = t->spec.acc_dtype;
    void *first = slice->master ? slice->master : slice->cur->data;
    psrti_arith_widen(s->k, dtype, t->spec.value_dtype, first, values, slice->len);
    if (slice->master)
        psrti_arith_round(s->k, dtype, t->wire_value, slice->cur->data, first, slice->len);
    psrti_average_start(s, slice);
}

/* Values of a rank0 table; a later one changes nothing. */
static void init_values(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                        const psrt_hdr_t *req, const void *values)
{
    if (!slice->ready) {
        set_values(s, slice, values);
        slice->ready = 1;
        s->counts.applied++;
        if (slice->table->spec.consistency == PSRTI_SYNC) psrti_close_steps(s, slice, NULL);
        psrti_groups_run(s);
        psrti_wake_slice(s, slice);
    }
    psrti_reply_ack(s, peer, req, PSRT_OK, PSRTI_F_APPLIED, slice->version);
}

psrt_rx_t psrti_push(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice, psrt_msg_t *msg)
{
    const psrt_hdr_t *req = &msg->hdr;
    const void *g;
    if (req->seq_floor > req->seq) return PSRT_RX_BAD;
    psrt_status_t rc = s->env.map(s->env.arg, msg, &g);
    if (rc) return PSRT_RX_DONE; /* withdrawn by its sender, who sends it again */
    if (req->type == PSRTI_T_INIT) {
        if (req->length != slice->len || peer->rank != 0) return PSRT_RX_BAD;
        init_values(s, peer, slice, req, g);
        return PSRT_RX_DONE;
    }
    if (!slice->ready) {
        rc = psrti_is_orphan(s, slice) ? PSRT_ERR_PEER_LOST : PSRT_ERR_AGAIN;
        psrti_reply_ack(s, peer, req, rc, 0, slice->version);
        return PSRT_RX_DONE;
    }
    psrti_window_t *w = psrti_window_of(s, peer, slice->vshard);
    if (!w) {
        psrti_reply_ack(s, peer, req, PSRT_ERR_AGAIN, 0, slice->version);
        return PSRT_RX_DONE;
    }
    switch (psrti_window_check(w, req->seq, req->seq - req->seq_floor)) {
    case PSRTI_WINDOW_BAD: return PSRT_RX_BAD;
    case PSRTI_WINDOW_DUPLICATE:
        s->counts.duplicates++;
        answer_push(s, peer, slice, req);
        return PSRT_RX_DONE;
    case PSRTI_WINDOW_REFUSED:
        psrti_reply_ack(s, peer, req, PSRT_ERR_CANCELED, 0, slice->version);
        return PSRT_RX_DONE;
    case PSRTI_WINDOW_NEW: break;
    }
    return slice->table->spec.consistency == PSRTI_SYNC ? push_sync(s, peer, slice, req, w, g)
                                                        : push_now(s, peer, slice, req, w, g);
}

/* ---- clocks ------------------------------------------------------------------------------------ */

static void find_slowest(const psrti_shard_t *s, psrti_stable_t *t)
{
    t->slowest = UINT64_MAX;
    for (uint32_t r = 0; r < s->nworkers; r++) {
        if (!s->view->workers[r].alive || t->clock[r] > t->slowest) continue;
        t->nslowest = t->clock[r] == t->slowest ? t->nslowest + 1 : 1;
        t->slowest = t->clock[r];
    }
}

/* A worker that is about to join starts at the held step or later. Clocks only grow, so all are looked at
 * when the last of the slowest moves on, not with every one that does. */
uint64_t psrti_min_clock(const psrti_shard_t *s, psrti_stable_t *t)
{
    if (t->nslowest == 0) find_slowest(s, t);
    return PSRTI_MIN(t->hold_from, t->slowest);
}

static void set_clock(psrti_stable_t *t, uint32_t rank, uint64_t clock)
{
    if (t->nslowest && t->clock[rank] == t->slowest) t->nslowest--;
    t->clock[rank] = clock;
}

/* A worker that came late goes on from step n of the table. It ends none of the steps before any more, on
 * whatever slice they are still open; what it pushed to them counts. */
static psrt_rx_t skip_to(psrti_shard_t *s, psrti_peer_t *peer, psrti_stable_t *t,
                         const psrt_hdr_t *req)
{
    uint64_t n = req->step;
    if (!t->spec.backup) return PSRT_RX_BAD;
    for (uint64_t i = 0; i < t->nslices; i++)
        if (t->slice[i] && n > t->slice[i]->version + MAX_SKIP) return PSRT_RX_BAD;
    if (n > t->skipped[peer->rank]) {
        t->skipped[peer->rank] = n;
        t->last_from = PSRTI_MAX(t->last_from, n);
        for (uint64_t i = 0; i < t->nslices; i++)
            if (t->slice[i]) psrti_close_steps(s, t->slice[i], NULL);
    }
    psrti_reply_ack(s, peer, req, PSRT_OK, 0, 0);
    return PSRT_RX_DONE;
}

static psrt_status_t clock_sync(psrti_shard_t *s, const psrti_peer_t *peer, psrti_stable_t *t,
                                uint64_t n)
{
    for (uint64_t i = 0; i < t->nslices; i++) {
        const psrti_slice_t *slice = t->slice[i];
        if (!slice) continue;
        /* What was pushed to an orphan was refused, so that only its step ends are left. */
        if (n > slice->version + 1 || (!slice->ready && !psrti_is_orphan(s, slice)))
            return PSRT_ERR_AGAIN;
    }
    for (uint64_t i = 0; i < t->nslices; i++) {
        psrti_slice_t *slice = t->slice[i];
        if (!slice || n < slice->version) continue;
        end_step(s, slice, n, peer->rank);
        psrti_close_steps(s, slice, NULL);
    }
    psrti_groups_run(s);
    return PSRT_OK;
}

psrt_rx_t psrti_clock(psrti_shard_t *s, psrti_peer_t *peer, psrti_stable_t *t,
                      const psrt_hdr_t *req)
{
    psrt_status_t status = PSRT_OK;
    if (req->flags & PSRTI_F_LATE) return skip_to(s, peer, t, req);
    if (t->spec.consistency == PSRTI_SYNC) {
        status = clock_sync(s, peer, t, req->step);
    } else if (t->clock[peer->rank] < req->step + 1) {
        uint64_t before = psrti_min_clock(s, t);
        set_clock(t, peer->rank, req->step + 1);
        if (psrti_min_clock(s, t) > before)
            for (uint64_t i = 0; i < t->nslices; i++)
                if (t->slice[i]) psrti_wake_slice(s, t->slice[i]);
    }
    psrti_reply_ack(s, peer, req, status, 0, 0);
    return PSRT_RX_DONE;
}
