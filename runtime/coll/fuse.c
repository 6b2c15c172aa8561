/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: submissions, and what is to be done next. */
#include "runtime/coll/fuse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/fuse_int.h"

typedef psrti_fuse_t fuse_t;
typedef psrti_fuse_tensor_t tensor_t;
typedef psrti_fuse_item_t item_t;

/* ---- life -------------------------------------------------------------------------------------- */

psrt_status_t psrti_fuse_create(const psrti_fuse_params_t *params, fuse_t **fuse_p)
{
    fuse_t *f = calloc(1, sizeof *f);
    if (!f) return PSRT_ERR_NO_MEMORY;
    f->p = *params;
    psrti_list_init(&f->epochs);
    psrti_list_init(&f->waiting);
    psrti_list_init(&f->garbage);
    for (int i = 0; i < 2; i++)
        f->words[i] = calloc(params->size, sizeof *f->words[i]);
    if (!f->words[0] || !f->words[1]) {
        psrti_fuse_destroy(f);
        return PSRT_ERR_NO_MEMORY;
    }
    *fuse_p = f;
    return PSRT_OK;
}

void psrti_fuse_end(fuse_t *f)
{
    f->over = 1;
    for (psrti_list_t *n = f->epochs.next; n != &f->epochs; n = n->next)
        PSRTI_LIST_ENTRY(n, psrti_fuse_epoch_t, node)->end = 0;
    psrti_fuse_retire(f, UINT64_MAX);
}

void psrti_fuse_destroy(fuse_t *f)
{
    if (!f) return;
    psrti_fuse_end(f);
    for (int i = 0; i < 2; i++) {
        for (uint32_t r = 0; f->words[i] && r < f->p.size; r++) {
            free(f->words[i][r].bytes);
            free(f->words[i][r].entries);
        }
        free(f->words[i]);
    }
    for (uint32_t i = 0; i < f->nall; i++) {
        free(f->all[i]->name);
        free(f->all[i]);
    }
    psrti_map_clear(&f->by_hash);
    free(f->all);
    free(f->plan);
    free(f);
}

void psrti_fuse_fail(fuse_t *f, psrt_status_t status, const char *fmt, ...)
{
    va_list args;
    if (f->status) return;
    f->status = status;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static tensor_t *tensor_new(fuse_t *f, const char *name, size_t len, uint64_t hash)
{
    tensor_t *t = calloc(1, sizeof *t);
    if (t) t->name = calloc(len + 1, 1);
    if (t && t->name) memcpy(t->name, name, len);
    if (t && t->name && f->nall == f->all_cap) {
        uint32_t cap = f->all_cap ? 2 * f->all_cap : 64;
        tensor_t **all = realloc(f->all, cap * sizeof *all);
        if (all) f->all = all, f->all_cap = cap;
    }
    if (t) t->same_hash = psrti_map_get(&f->by_hash, hash);
    if (!t || !t->name || f->nall == f->all_cap || psrti_map_put(&f->by_hash, hash, t) != PSRT_OK) {
        if (t) free(t->name);
        free(t);
        return NULL;
    }
    f->all[f->nall++] = t;
    return t;
}

tensor_t *psrti_fuse_tensor(fuse_t *f, const char *name, size_t len)
{
    uint64_t hash = psrti_hash_bytes(name, len);
    for (tensor_t *t = psrti_map_get(&f->by_hash, hash); t; t = t->same_hash)
        if (strlen(t->name) == len && memcmp(t->name, name, len) == 0) return t;
    return tensor_new(f, name, len, hash);
}

/* ---- submissions ------------------------------------------------------------------------------- */

/* Has a submission a place in the plan as this rank stands in it? */
enum { HAS_PLACE, IS_NEW, IS_AGAIN };

static int judge(const fuse_t *f, const item_t *item)
{
    const psrti_fuse_epoch_t *e = psrti_fuse_newest(f);
    const tensor_t *t = item->tensor;
    if (!e) return IS_NEW;
    if (f->begun < e->base) return HAS_PLACE; /* asked again when this rank has come that far */
    if (!t->planned || !psrti_fuse_same(t->sig, item->sig)) return IS_NEW;
    uint64_t k = f->begun - e->base, rest = e->rest.count;
    if (t->excused && k <= rest) return IS_NEW;
    if (k < rest) return t->in_rest && t->begun <= e->base ? HAS_PLACE : IS_AGAIN;
    uint64_t start = f->begun - (k - rest) % e->full.count;
    return t->begun > start && f->begun > start ? IS_AGAIN : HAS_PLACE;
}

static void note_odd(fuse_t *f, const item_t *item, uint64_t now)
{
    if (judge(f, item) == HAS_PLACE) return;
    if (!f->odd_since) {
        f->odd_since = now ? now : 1;
        f->odd_bytes = 0;
        f->odd_is_fresh = 1;
    }
    f->odd_bytes += psrti_fuse_bytes(item->sig);
}

void psrti_fuse_look_again(fuse_t *f, uint64_t now)
{
    f->odd_since = 0;
    for (psrti_list_t *n = f->waiting.next; n != &f->waiting; n = n->next)
        note_odd(f, PSRTI_LIST_ENTRY(n, item_t, node), now);
}

/* Its place in the memory of the bucket with which it will be sent, if that is certain and there. */
static void find_copy(fuse_t *f, item_t *item, uint64_t *offset_p)
{
    const psrti_fuse_epoch_t *e = psrti_fuse_newest(f);
    const tensor_t *t = item->tensor;
    item->copies_to = NULL;
    if (!e || !t->full || !t->full->memory || f->begun < e->base) return;
    if (t->in_rest && f->begun - e->base < e->rest.count) return;
    if (!psrti_fuse_same(t->sig, item->sig)) return;
    item->copies_to = t->full;
    t->full->refs++;
    *offset_p = t->offset;
}

psrt_status_t psrti_fuse_submit(fuse_t *f, item_t *item, const char *name, psrti_fuse_sig_t sig,
                                uint64_t now, uint64_t *offset_p)
{
    tensor_t *t = psrti_fuse_tensor(f, name, strlen(name));
    if (!t) return PSRT_ERR_NO_MEMORY;
    if (t->busy) return PSRT_ERR_BUSY;
    t->busy = 1;
    t->waiting = item;
    item->tensor = t;
    item->sig = sig;
    item->is_ready = 0;
    psrti_list_push(&f->waiting, &item->node);
    f->nwaiting++;
    f->ncopying++;
    f->moved = f->compared = now;
    find_copy(f, item, offset_p);
    note_odd(f, item, now);
    return PSRT_OK;
}

static int is_there(const psrti_fuse_slot_t *slot)
{
    const item_t *item = slot->tensor->waiting;
    return item && item->is_ready && psrti_fuse_same(item->sig, slot->sig);
}

/* The next bucket if all of it is there. */
static psrti_fuse_bucket_t *full_bucket(fuse_t *f)
{
    psrti_fuse_bucket_t *b = psrti_fuse_bucket_at(f, f->begun);
    if (!b) return NULL;
    while (f->filled < b->count && is_there(&b->slots[f->filled]))
        f->filled++;
    return f->filled == b->count ? b : NULL;
}

int psrti_fuse_ready(fuse_t *f, item_t *item)
{
    item->is_ready = 1;
    f->ncopying--;
    if (f->over) return 1;
    if (f->given) return 0;
    int has_timer = f->odd_since && f->odd_is_fresh;
    f->odd_is_fresh = 0;
    return has_timer || (f->odd_since && f->odd_bytes >= f->p.bucket) || f->flushed ||
           full_bucket(f) != NULL;
}

void psrti_fuse_flush(fuse_t *f) { f->flushed = f->nwaiting != 0; }

void psrti_fuse_ended(fuse_t *f, item_t *item, uint64_t now)
{
    item->tensor->busy = 0;
    if (item->copies_to) psrti_fuse_put(f, item->copies_to);
    item->copies_to = NULL;
    if (psrti_list_empty(&item->node)) f->ninflight--;
    f->moved = f->compared = now;
}

item_t *psrti_fuse_waiting(fuse_t *f)
{
    psrti_list_t *n = f->waiting.next;
    while (n != &f->waiting && !PSRTI_LIST_ENTRY(n, item_t, node)->is_ready)
        n = n->next;
    if (n == &f->waiting) return NULL;
    item_t *item = PSRTI_LIST_ENTRY(n, item_t, node);
    psrti_list_remove(n);
    f->nwaiting--;
    f->ninflight++;
    item->tensor->waiting = NULL;
    return item;
}

/* ---- next -------------------------------------------------------------------------------------- */

static void take_items(fuse_t *f, psrti_fuse_bucket_t *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        tensor_t *t = b->slots[i].tensor;
        b->slots[i].item = t->waiting;
        psrti_list_remove(&t->waiting->node);
        t->waiting = NULL;
        t->begun = f->begun + 1;
    }
    f->nwaiting -= b->count;
    f->ninflight += b->count;
}

static int begin(fuse_t *f, uint64_t now, psrti_fuse_act_t *act)
{
    psrti_fuse_bucket_t *b = f->given ? NULL : full_bucket(f);
    if (!b) return 0;
    take_items(f, b);
    b->refs++;
    f->begun++;
    f->filled = 0;
    f->moved = f->compared = now;
    if (f->begun == psrti_fuse_newest(f)->base) psrti_fuse_look_again(f, now);
    act->what = PSRTI_FUSE_BEGIN;
    act->bucket = b;
    return 1;
}

/* A tensor without a place waited for a cycle, or a bucket of them is together. */
static int cycle_is_over(fuse_t *f, uint64_t now)
{
    if (!f->odd_since) return 0;
    if (now < f->odd_since + f->p.cycle && f->odd_bytes < f->p.bucket && !f->flushed) return 0;
    int worst = HAS_PLACE;
    for (psrti_list_t *n = f->waiting.next; n != &f->waiting && worst != IS_NEW; n = n->next) {
        int is = judge(f, PSRTI_LIST_ENTRY(n, item_t, node));
        if (is == IS_NEW || worst == HAS_PLACE) worst = is;
    }
    f->odd_since = 0;
    if (worst == IS_NEW) return 1;
    /* The next pass has begun: what this one lacks may never come. Asked once a bucket, the answer does not change. */
    if (worst == HAS_PLACE || f->asked_at == f->begun + 1) return 0;
    f->asked_at = f->begun + 1;
    f->stalled |= PSRTI_FUSE_TOLD;
    return 1;
}

static int wants_round(fuse_t *f, uint64_t now)
{
    if (f->given) return 0;
    if (!f->nwaiting) f->flushed = 0;
    int cycle = cycle_is_over(f, now), flushed = f->flushed && !f->ncopying;
    int stalled = (f->nwaiting || f->ninflight) && now >= f->compared + f->p.stall;
    f->stalled |= (flushed ? PSRTI_FUSE_TOLD : 0) | (stalled ? PSRTI_FUSE_TIMED : 0);
    return cycle || flushed || stalled || f->heard;
}

/* Ours, if we have none in this round and want one, or have to answer. */
static void give_word(fuse_t *f, uint64_t now)
{
    if (!wants_round(f, now)) return;
    if (!psrti_fuse_give_word(f))
        psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for a list of %u tensors",
                        f->nwaiting);
    if (f->stalled & PSRTI_FUSE_TOLD) f->flushed = 0;
    f->stalled = 0;
    f->odd_since = 0;
    f->compared = now;
}

static const char *first_waiting(const fuse_t *f)
{
    return PSRTI_LIST_ENTRY(f->waiting.next, item_t, node)->tensor->name;
}

static void look_at_time(fuse_t *f, uint64_t now)
{
    char text[PSRTI_FUSE_TEXT];
    if (!f->nwaiting) return;
    const item_t *item = PSRTI_LIST_ENTRY(f->waiting.next, item_t, node);
    if (f->left)
        psrti_fuse_fail(f, PSRT_ERR_MISMATCH, "tensor %s: rank %u freed the fusion",
                        first_waiting(f), f->left - 1);
    else if (f->p.timeout && !f->ninflight && now >= f->moved + f->p.timeout) {
        psrti_fuse_describe(f, item, text, sizeof text);
        psrti_fuse_fail(f, PSRT_ERR_TIMEOUT, "%s", text);
    }
}

static uint64_t next_time(const fuse_t *f)
{
    uint64_t t = UINT64_MAX;
    if (f->odd_since && !f->given) t = f->odd_since + f->p.cycle;
    if ((f->nwaiting || f->ninflight) && !f->given) t = PSRTI_MIN(t, f->compared + f->p.stall);
    if (f->nwaiting && !f->ninflight && f->p.timeout) t = PSRTI_MIN(t, f->moved + f->p.timeout);
    return t;
}

static void failed(fuse_t *f, psrti_fuse_act_t *act)
{
    if (f->told) return;
    f->told = 1;
    *act = (psrti_fuse_act_t){ .what = PSRTI_FUSE_FAIL, .status = f->status, .text = f->text };
}

static int piece(fuse_t *f, psrti_fuse_act_t *act)
{
    act->len = psrti_fuse_next_piece(f);
    act->data = f->piece;
    act->what = act->len ? PSRTI_FUSE_NOTE : PSRTI_FUSE_NOTHING;
    return act->len != 0;
}

void psrti_fuse_next(fuse_t *f, uint64_t now, psrti_fuse_act_t *act)
{
    *act = (psrti_fuse_act_t){ .what = PSRTI_FUSE_NOTHING, .timer = UINT64_MAX };
    while (!f->over && !f->status) {
        if (piece(f, act) || begin(f, now, act)) return;
        give_word(f, now);
        if (f->status || piece(f, act)) break;
        if (f->given && psrti_fuse_all_words(f)) {
            psrti_fuse_merge(f, now);
            continue;
        }
        look_at_time(f, now);
        act->timer = next_time(f);
        break;
    }
    if (f->status && !f->over) failed(f, act);
}

/* ---- texts ------------------------------------------------------------------------------------- */

const char *psrti_fuse_name(const item_t *item) { return item->tensor->name; }
const char *psrti_fuse_missing(const fuse_t *f) { return f->missing; }

void psrti_fuse_describe(const fuse_t *f, const item_t *item, char *buf, size_t size)
{
    size_t pos = 0;
    psrti_append(buf, size, &pos, "tensor %s: ", item->tensor->name);
    for (uint32_t r = 0; f->given && r < f->p.size; r++) {
        if (f->words[0][r].is_whole) continue;
        psrti_append(buf, size, &pos, "rank %u does not answer", r);
        return;
    }
    if (*f->missing)
        psrti_append(buf, size, &pos, "%s", f->missing);
    else if (!item->is_ready || psrti_list_empty(&item->node))
        psrti_append(buf, size, &pos, "it is under way");
    else
        psrti_append(buf, size, &pos, "the others of its bucket were not submitted here");
}

psrti_fuse_counts_t psrti_fuse_counts(const fuse_t *f)
{
    return (psrti_fuse_counts_t){
        .rounds = f->rounds, .buckets = f->begun, .tensors = f->nplan, .planned = f->nbuckets
    };
}
