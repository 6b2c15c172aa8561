/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are updated apart from the block that is sent. Tables that are sent in another format have such a
 * master always. Others get one when a version is still read while the next is made: what another core reads
 * at this moment is slow to read again, so the update reads the master, and writes it out. */
#include <stdlib.h>

#include "runtime/server/arith.h"
#include "runtime/server/shard_int.h"

#define UNREAD_MAX 16 /* updates in a row that nobody's reading disturbs: the master goes */
#define NEAR_BYTES (512u << 10) /* slices below are still in the reader's own cache */
/* Of an update, before it is written out: past the caches or rounded; in them, where gradient, master and target
 * share L1. Past the caches, smaller ones would wait for more fences. */
#define BLOCK 16384u
#define FAR_BLOCK 8192u

static int is_rounded(const psrti_stable_t *t) { return t->wire_value != t->spec.acc_dtype; }

/* Of more slices than one the lines have left the reader's cache when their turn comes. */
static int may_have_spare(const psrti_stable_t *t)
{
    return !is_rounded(t) && t->nslices == 1 &&
           t->spec.elements * t->acc_bytes >= PSRTI_MASTER_BYTES;
}

void psrti_master_review(psrti_shard_t *s, psrti_slice_t *slice)
{
    const psrti_stable_t *t = slice->table;
    if (!may_have_spare(t)) return;
    if (slice->cur->pins) {
        slice->unread = 0;
        if (slice->master) return;
        slice->master = psrti_acc_new(slice); /* NULL: without it goes too */
        if (slice->master) s->k->copy(slice->master, slice->cur->data, slice->len * t->acc_bytes);
    } else if (slice->master && ++slice->unread > UNREAD_MAX) {
        free(slice->master);
        slice->master = NULL;
    }
}

/* Left to the environment, which writes in the caches unless that is slow. */
static int is_far(const psrti_shard_t *s, const psrti_slice_t *slice)
{
    return s->env.write && !is_rounded(slice->table) &&
           slice->len * slice->table->value_bytes >= NEAR_BYTES;
}

uint64_t psrti_master_block(const psrti_shard_t *s, const psrti_slice_t *slice)
{
    return is_far(s, slice) ? FAR_BLOCK : BLOCK;
}

void psrti_master_publish(psrti_shard_t *s, const psrti_slice_t *slice, uint64_t at,
                          const void *values, uint64_t n, psrti_block_t *out)
{
    const psrti_stable_t *t = slice->table;
    char *to = (char *)out->data + at * t->value_bytes;
    if (is_rounded(t))
        psrti_arith_round(s->k, t->spec.acc_dtype, t->wire_value, to, values, n);
    else if (is_far(s, slice))
        s->env.write(s->env.arg, to, values, n * t->value_bytes);
    else
        s->k->stream(to, values, n * t->value_bytes);
}
