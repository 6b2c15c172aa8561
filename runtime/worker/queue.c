/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of an owner: a heap of keys, so that ordering thousands of small parts touches none of
 * them. */
#include <stdlib.h>

#include "runtime/worker/client_int.h"

/* Repeats first, so that nothing of the same slice passes them; then by priority, then by age. */
static uint64_t key_of(const psrti_part_t *p)
{
    uint64_t age = p->order & ((1ull << 55) - 1);
    if (p->resend) return age;
    return 1ull << 63 | (uint64_t)(127 - p->priority) << 55 | age;
}

static void sift_up(psrti_queued_t *h, size_t i)
{
    psrti_queued_t q = h[i];
    for (; i && q.key < h[(i - 1) / 2].key; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = q;
}

static void sift_down(psrti_queued_t *h, size_t n, size_t i)
{
    psrti_queued_t q = h[i];
    for (;;) {
        size_t kid = 2 * i + 1;
        if (kid >= n) break;
        if (kid + 1 < n && h[kid + 1].key < h[kid].key) kid++;
        if (h[kid].key >= q.key) break;
        h[i] = h[kid];
        i = kid;
    }
    h[i] = q;
}

psrt_status_t psrti_queue_push(psrti_cowner_t *o, psrti_part_t *part)
{
    if (o->count == o->capacity) {
        size_t cap = o->capacity ? 2 * o->capacity : 64;
        psrti_queued_t *h = realloc(o->heap, cap * sizeof *h);
        if (!h) return PSRT_ERR_NO_MEMORY;
        o->heap = h;
        o->capacity = cap;
    }
    o->heap[o->count] = (psrti_queued_t){ key_of(part), part };
    sift_up(o->heap, o->count++);
    return PSRT_OK;
}

psrti_part_t *psrti_queue_head(const psrti_cowner_t *o)
{
    return o->count ? o->heap[0].part : NULL;
}

static void remove_at(psrti_cowner_t *o, size_t i)
{
    if (i == --o->count) return;
    o->heap[i] = o->heap[o->count];
    sift_down(o->heap, o->count, i);
    sift_up(o->heap, i);
}

void psrti_queue_pop(psrti_cowner_t *o) { remove_at(o, 0); }

/* Where the key is in the part of the heap below i, or o->count. Looks only at smaller keys, of which
 * there are few when an operation is given up from its oldest part on. */
static size_t find(const psrti_cowner_t *o, size_t i, uint64_t key)
{
    if (i >= o->count || o->heap[i].key > key) return o->count;
    if (o->heap[i].key == key) return i;
    size_t at = find(o, 2 * i + 1, key);
    return at < o->count ? at : find(o, 2 * i + 2, key);
}

void psrti_queue_remove(psrti_cowner_t *o, const psrti_part_t *part)
{
    size_t i = find(o, 0, key_of(part));
    if (i < o->count) remove_at(o, i);
}
