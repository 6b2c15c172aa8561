/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: tensors in buckets, buckets by number. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/fuse_int.h"

typedef psrti_fuse_t fuse_t;
typedef psrti_fuse_bucket_t bucket_t;
typedef psrti_fuse_layout_t layout_t;
typedef psrti_fuse_epoch_t epoch_t;

#define DTYPES 16
#define REDOPS 8

uint64_t psrti_fuse_bytes(psrti_fuse_sig_t sig)
{
    return sig.count * psrt_dtype_size((psrt_dtype_t)sig.dtype);
}

/* ---- buckets ----------------------------------------------------------------------------------- */

void psrti_fuse_bucket_free(bucket_t *b)
{
    free(b->slots);
    free(b);
}

void psrti_fuse_put(fuse_t *f, bucket_t *b)
{
    if (--b->refs) return;
    if (b->memory)
        psrti_list_push(&f->garbage, &b->node);
    else
        psrti_fuse_bucket_free(b);
}

bucket_t *psrti_fuse_garbage(fuse_t *f)
{
    psrti_list_t *n = psrti_list_pop(&f->garbage);
    return n ? PSRTI_LIST_ENTRY(n, bucket_t, node) : NULL;
}

void psrti_fuse_layout_drop(fuse_t *f, layout_t *layout)
{
    for (uint32_t i = 0; i < layout->count; i++)
        psrti_fuse_put(f, layout->buckets[i]);
    free(layout->buckets);
    *layout = (layout_t){ NULL, 0 };
}

/* Makes room for one more where `count` are; room grows by powers of two. */
static void *one_more(void *array, uint32_t count, size_t size)
{
    if (count & (count - 1)) return array;
    return realloc(array, (count ? 2 * (size_t)count : 1) * size);
}

static bucket_t *bucket_new(layout_t *layout, psrti_fuse_sig_t sig)
{
    bucket_t **list = one_more(layout->buckets, layout->count, sizeof *list);
    if (!list) return NULL;
    layout->buckets = list;
    bucket_t *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    psrti_list_init(&b->node);
    b->refs = 1;
    b->dtype = sig.dtype;
    b->redop = sig.redop;
    list[layout->count++] = b;
    return b;
}

static int bucket_add(bucket_t *b, psrti_fuse_tensor_t *t, uint32_t place)
{
    psrti_fuse_slot_t *slots = one_more(b->slots, b->count, sizeof *slots);
    if (!slots) return 0;
    b->slots = slots;
    slots[b->count++] = (psrti_fuse_slot_t){ .tensor = t, .sig = t->sig, .offset = b->bytes };
    b->bytes += psrti_fuse_bytes(t->sig);
    b->elements += t->sig.count;
    b->last = place;
    return 1;
}

/* By the tensor that makes it full: in the order in which they can be sent. */
static int by_last(const void *a, const void *b)
{
    const bucket_t *x = *(bucket_t *const *)a, *y = *(bucket_t *const *)b;
    return x->last < y->last ? -1 : x->last > y->last;
}

static void find_places(layout_t *layout)
{
    for (uint32_t i = 0; i < layout->count; i++)
        for (uint32_t k = 0; k < layout->buckets[i]->count; k++) {
            psrti_fuse_slot_t *slot = &layout->buckets[i]->slots[k];
            slot->tensor->full = layout->buckets[i];
            slot->tensor->offset = slot->offset;
        }
}

/* One bucket of each type and reduction is open at a time; what is large has one of its own. */
int psrti_fuse_pack(fuse_t *f, int all, layout_t *out)
{
    bucket_t *open[DTYPES][REDOPS] = { { NULL } };
    *out = (layout_t){ NULL, 0 };
    for (uint32_t i = 0; i < f->nplan; i++) {
        psrti_fuse_tensor_t *t = f->plan[i];
        uint64_t bytes = psrti_fuse_bytes(t->sig);
        if (!all && !t->owed) continue;
        bucket_t **at = &open[t->sig.dtype % DTYPES][t->sig.redop % REDOPS], *b = *at;
        int alone = bytes >= PSRTI_MIN(f->p.alone, f->p.bucket);
        if (alone || !b || b->bytes + bytes > f->p.bucket) b = bucket_new(out, t->sig);
        if (!b || !bucket_add(b, t, i)) {
            psrti_fuse_layout_drop(f, out);
            return 0;
        }
        if (!alone) *at = b;
    }
    if (out->count) qsort(out->buckets, out->count, sizeof *out->buckets, by_last);
    if (all) find_places(out);
    return 1;
}

/* ---- numbers ----------------------------------------------------------------------------------- */

epoch_t *psrti_fuse_newest(const fuse_t *f)
{
    return psrti_list_empty(&f->epochs) ? NULL : PSRTI_LIST_ENTRY(f->epochs.prev, epoch_t, node);
}

static bucket_t *at_offset(const epoch_t *e, uint64_t k)
{
    if (k < e->rest.count) return e->rest.buckets[k];
    return e->full.count ? e->full.buckets[(k - e->rest.count) % e->full.count] : NULL;
}

bucket_t *psrti_fuse_bucket_at(const fuse_t *f, uint64_t number)
{
    for (psrti_list_t *n = f->epochs.next; n != &f->epochs; n = n->next) {
        const epoch_t *e = PSRTI_LIST_ENTRY(n, epoch_t, node);
        if (number >= e->base && number < e->end) return at_offset(e, number - e->base);
    }
    return NULL;
}

void psrti_fuse_retire(fuse_t *f, uint64_t behind)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &f->epochs)
    {
        epoch_t *e = PSRTI_LIST_ENTRY(it, epoch_t, node);
        if (e->end > behind) return;
        psrti_list_remove(&e->node);
        psrti_fuse_layout_drop(f, &e->rest);
        psrti_fuse_layout_drop(f, &e->full);
        free(e);
    }
}
