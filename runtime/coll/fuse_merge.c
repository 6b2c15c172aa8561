/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a round: from the words of all members to the plan. Every member computes the same. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/fuse_int.h"

typedef psrti_fuse_t fuse_t;
typedef psrti_fuse_tensor_t tensor_t;
typedef psrti_fuse_entry_t entry_t;
typedef psrti_fuse_epoch_t epoch_t;

#define PATIENCE_MAX (3600 * PSRTI_NS_PER_S)

/* The pass to which number `from` belongs, as the newest plan has it. */
typedef struct pass {
    epoch_t *e;
    uint64_t from;
    int is_over;    /* all of its buckets have lower numbers */
    int is_of_rest; /* it is the one in which the plan changed: `excused` is about it */
} pass_t;

static void mismatch(fuse_t *f, const tensor_t *t, uint32_t a, psrti_fuse_sig_t x, uint32_t b,
                     psrti_fuse_sig_t y)
{
    psrti_fuse_fail(f, PSRT_ERR_MISMATCH,
                    "tensor %s: rank %u has %llu %s %s, rank %u has %llu %s %s", t->name, a,
                    (unsigned long long)x.count, psrt_dtype_name((psrt_dtype_t)x.dtype),
                    psrt_redop_name((psrt_redop_t)x.redop), b, (unsigned long long)y.count,
                    psrt_dtype_name((psrt_dtype_t)y.dtype), psrt_redop_name((psrt_redop_t)y.redop));
}

static void miss(fuse_t *f, const tensor_t *t, uint32_t rank)
{
    if (*f->missing) return;
    snprintf(f->missing, sizeof f->missing, "rank %u has not submitted tensor %s", rank, t->name);
}

/* ---- what is spent before the new plan ---------------------------------------------------------- */

/* Of rank r, which has buckets to begin that `ahead` has begun. 0: they differ. */
static int spend_of(fuse_t *f, uint32_t r, uint32_t ahead, uint64_t from)
{
    psrti_fuse_word_t *w = &f->words[0][r];
    for (uint32_t i = 0; i < w->count; i++)
        w->entries[i].tensor->entry = &w->entries[i];
    int same = 1;
    for (uint64_t n = w->begun; n < from && same; n++) {
        const psrti_fuse_bucket_t *b = psrti_fuse_bucket_at(f, n);
        for (uint32_t k = 0; b && k < b->count && same; k++) {
            const psrti_fuse_slot_t *slot = &b->slots[k];
            entry_t *e = slot->tensor->entry;
            if (!e || e->used) {
                miss(f, slot->tensor, r);
                continue;
            }
            e->used = 1;
            same = psrti_fuse_same(e->sig, slot->sig);
            if (!same) mismatch(f, slot->tensor, ahead, slot->sig, r, e->sig);
        }
    }
    for (uint32_t i = 0; i < w->count; i++)
        w->entries[i].tensor->entry = NULL;
    return same;
}

/* The number from which the new plan holds; words that contradict the plan: UINT64_MAX. */
static uint64_t spend(fuse_t *f, uint64_t *behind_p)
{
    uint32_t ahead = 0;
    uint64_t behind = UINT64_MAX;
    for (uint32_t r = 0; r < f->p.size; r++) {
        if (f->words[0][r].begun > f->words[0][ahead].begun) ahead = r;
        behind = PSRTI_MIN(behind, f->words[0][r].begun);
    }
    uint64_t from = f->words[0][ahead].begun;
    if (from - behind > f->nall) { /* what one began and another did not has no tensor twice */
        psrti_fuse_fail(f, PSRT_ERR_PEER_LOST, "rank %u counts %llu buckets, another one %llu",
                        ahead, (unsigned long long)from, (unsigned long long)behind);
        return UINT64_MAX;
    }
    for (uint32_t r = 0; r < f->p.size; r++)
        if (!spend_of(f, r, ahead, from)) return UINT64_MAX;
    *behind_p = behind;
    return from;
}

/* Who has what for the buckets to come. 0: they differ. */
static int count_listed(fuse_t *f)
{
    for (uint32_t r = 0; r < f->p.size; r++)
        for (uint32_t i = 0; i < f->words[0][r].count; i++) {
            const entry_t *e = &f->words[0][r].entries[i];
            tensor_t *t = e->tensor;
            if (e->used) continue;
            if (!t->listed++) {
                t->lister = r;
                t->listed_sig = e->sig;
            } else if (!psrti_fuse_same(e->sig, t->listed_sig)) {
                mismatch(f, t, t->lister, t->listed_sig, r, e->sig);
                return 0;
            }
        }
    return 1;
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static void owe_buckets(fuse_t *f, const pass_t *pass, uint64_t end)
{
    for (uint64_t n = pass->from; n < end; n++) {
        const psrti_fuse_bucket_t *b = psrti_fuse_bucket_at(f, n);
        for (uint32_t k = 0; b && k < b->count; k++)
            b->slots[k].tensor->owed = 1;
    }
}

/* Tensors in buckets that the epoch has sent do not stay away. */
static void note_sent(fuse_t *f, const epoch_t *e, uint64_t from)
{
    uint64_t end = PSRTI_MIN(from, e->base + e->rest.count + e->full.count);
    for (uint64_t n = e->base; n < end; n++) {
        const psrti_fuse_bucket_t *b = psrti_fuse_bucket_at(f, n);
        for (uint32_t k = 0; b && k < b->count; k++)
            b->slots[k].tensor->absent = 0;
    }
}

static pass_t find_pass(fuse_t *f, uint64_t from)
{
    pass_t pass = { .e = psrti_fuse_newest(f), .from = from, .is_over = 1, .is_of_rest = 1 };
    if (!pass.e) return pass;
    uint64_t k = from - pass.e->base, rest = pass.e->rest.count, full = pass.e->full.count;
    note_sent(f, pass.e, from);
    pass.is_of_rest = k <= rest;
    uint64_t left = k < rest ? rest - k : full && (k - rest) % full ? full - (k - rest) % full : 0;
    pass.is_over = left == 0;
    owe_buckets(f, &pass, from + left);
    return pass;
}

/* At the end of a pass: did somebody submit a tensor of the next one? Those that stayed away and come late are of the
 * pass that ends. */
static int next_has_begun(const fuse_t *f)
{
    for (uint32_t i = 0; i < f->nplan; i++)
        if (f->plan[i]->listed && !f->plan[i]->excused) return 1;
    return 0;
}

static void begin_pass(fuse_t *f)
{
    for (uint32_t i = 0; i < f->nplan; i++) {
        f->plan[i]->owed = 1;
        f->plan[i]->excused = 0;
    }
}

static unsigned why_stalled(const fuse_t *f)
{
    unsigned why = 0;
    for (uint32_t r = 0; r < f->p.size; r++)
        why |= f->words[0][r].stalled;
    return why;
}

/* Tensors that nobody has, while somebody says that it waits for nothing more. 1: the plan changed. */
static int excuse(fuse_t *f, uint32_t *excused_p)
{
    int changed = 0;
    for (uint32_t i = 0; i < f->nplan; i++) {
        tensor_t *t = f->plan[i];
        if (!t->owed || t->listed) continue;
        t->owed = 0;
        t->excused = 1;
        ++*excused_p;
        if (++t->absent < 2) continue;
        t->planned = 0;
        changed = 1;
    }
    return changed;
}

static int plan_add(fuse_t *f, tensor_t *t)
{
    if (f->nplan == f->plan_cap) {
        uint32_t cap = f->plan_cap ? 2 * f->plan_cap : 64;
        tensor_t **plan = realloc(f->plan, cap * sizeof *plan);
        if (!plan) return 0;
        f->plan = plan;
        f->plan_cap = cap;
    }
    t->planned = 1;
    t->absent = 0;
    f->plan[f->nplan++] = t;
    return 1;
}

static void plan_compact(fuse_t *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->nplan; i++)
        if (f->plan[i]->planned) f->plan[n++] = f->plan[i];
    f->nplan = n;
}

/* A tensor that somebody has gets a place. 1: the plan changed; -1: no memory. */
static int place(fuse_t *f, tensor_t *t)
{
    if (!t->planned) {
        t->sig = t->listed_sig;
        t->is_late = t->excused;
        t->owed = 1;
        t->excused = 0;
        return plan_add(f, t) ? 1 : -1;
    }
    int changed = !psrti_fuse_same(t->sig, t->listed_sig);
    t->sig = t->listed_sig;
    if (t->excused) {
        t->is_late = 1;
        t->owed = 1;
        t->excused = 0;
    }
    return changed;
}

/* In the order of rank 0's submissions, then of what rank 1 has besides, and so on. */
static int place_listed(fuse_t *f)
{
    int changed = 0;
    for (uint32_t r = 0; r < f->p.size; r++)
        for (uint32_t i = 0; i < f->words[0][r].count; i++) {
            const entry_t *e = &f->words[0][r].entries[i];
            if (e->used || e->tensor->lister != r) continue;
            int rc = place(f, e->tensor);
            if (rc < 0) return -1;
            changed |= rc;
        }
    return changed;
}

/* Time alone led to a round that changed nothing, or took a tensor out that came after all: steps take longer, and will. */
static void learn_patience(fuse_t *f, unsigned stalled, uint32_t excused)
{
    uint64_t most = f->p.timeout ? f->p.timeout / 4 : PATIENCE_MAX;
    int was_too_short = stalled == PSRTI_FUSE_TIMED && !excused;
    for (uint32_t i = 0; i < f->nplan && !was_too_short; i++)
        was_too_short = f->plan[i]->is_late;
    if (was_too_short && f->p.stall < most) f->p.stall = PSRTI_MIN(2 * f->p.stall, most);
}

static void find_missing(fuse_t *f)
{
    for (uint32_t i = 0; i < f->nplan && !*f->missing; i++) {
        const tensor_t *t = f->plan[i];
        if (!t->owed || !t->listed || t->listed == f->p.size) continue;
        for (uint32_t r = 0; r < f->p.size; r++) {
            const psrti_fuse_word_t *w = &f->words[0][r];
            uint32_t k = 0;
            while (k < w->count && (w->entries[k].tensor != t || w->entries[k].used))
                k++;
            if (k == w->count) miss(f, t, r);
        }
    }
}

/* ---- the new plan ------------------------------------------------------------------------------ */

static int keep_full(const epoch_t *from, psrti_fuse_layout_t *to)
{
    size_t n = from->full.count;
    to->buckets = calloc(n ? n : 1, sizeof(void *));
    if (!to->buckets) return 0;
    to->count = from->full.count;
    for (size_t i = 0; i < n; i++) {
        to->buckets[i] = from->full.buckets[i];
        to->buckets[i]->refs++;
    }
    return 1;
}

/* Where all tensors are owed a whole pass begins, which needs no buckets of its own. */
static int lay_out(fuse_t *f, epoch_t *e, const epoch_t *old, int changed)
{
    uint32_t owed = 0;
    for (uint32_t i = 0; i < f->nplan; i++)
        owed += f->plan[i]->owed != 0;
    if (old && !changed ? !keep_full(old, &e->full) : !psrti_fuse_pack(f, 1, &e->full)) return 0;
    return owed == f->nplan || psrti_fuse_pack(f, 0, &e->rest);
}

static void adopt(fuse_t *f, uint64_t from, int changed)
{
    epoch_t *old = psrti_fuse_newest(f), *e = calloc(1, sizeof *e);
    if (e) psrti_list_init(&e->node);
    if (!e || !lay_out(f, e, old, changed)) {
        if (e) psrti_fuse_layout_drop(f, &e->full);
        free(e);
        psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for a plan of %u tensors", f->nplan);
        return;
    }
    if (old) old->end = from;
    e->base = from;
    f->nbuckets = e->full.count;
    e->end = UINT64_MAX;
    psrti_list_push(&f->epochs, &e->node);
    for (uint32_t i = 0; i < f->nall; i++) {
        f->all[i]->in_rest = e->rest.count && f->all[i]->owed;
        if (!f->all[i]->planned) f->all[i]->full = NULL;
    }
}

static void clear_scratch(fuse_t *f)
{
    *f->missing = 0;
    for (uint32_t i = 0; i < f->nall; i++) {
        f->all[i]->owed = 0;
        f->all[i]->listed = 0;
        f->all[i]->is_late = 0;
    }
}

void psrti_fuse_merge(fuse_t *f, uint64_t now)
{
    uint64_t behind = 0, from;
    if (!psrti_fuse_read_words(f)) return;
    clear_scratch(f);
    if ((from = spend(f, &behind)) == UINT64_MAX || !count_listed(f)) return;
    pass_t pass = find_pass(f, from);
    if (!pass.is_of_rest)
        for (uint32_t i = 0; i < f->nall; i++)
            f->all[i]->excused = 0;
    if (pass.is_over && next_has_begun(f)) begin_pass(f);
    unsigned stalled = why_stalled(f);
    uint32_t excused = 0;
    int changed = stalled ? excuse(f, &excused) : 0;
    if (changed) plan_compact(f);
    int placed = place_listed(f);
    if (placed < 0) {
        psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for the plan");
        return;
    }
    learn_patience(f, stalled, excused);
    find_missing(f);
    adopt(f, from, changed || placed);
    psrti_fuse_retire(f, behind);
    psrti_fuse_words_done(f);
    f->rounds++;
    f->filled = 0;
    f->compared = now;
    psrti_fuse_look_again(f, now);
}
