/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of the weights (optimizer key ema): an array beside the values that each update moves, read
 * by pulls with F_AVERAGE. */
#include <stdlib.h>

#include "runtime/server/arith.h"
#include "runtime/server/shard_int.h"

void psrti_average_start(psrti_shard_t *s, psrti_slice_t *slice)
{
    if (!slice->average) return;
    psrt_dtype_t dtype = slice->table->spec.acc_dtype;
    const void *values = slice->master ? slice->master : slice->cur->data;
    psrti_arith_widen(s->k, dtype, dtype, slice->average, values, slice->len);
}

void psrti_average_update(psrti_slice_t *slice, uint64_t at, const void *values, uint64_t n)
{
    const psrti_stable_t *t = slice->table;
    if (!slice->average) return;
    psrti_optimizer_average(t->opt.ema, t->spec.acc_dtype,
                            (char *)slice->average + at * t->acc_bytes, values, n);
}

psrti_block_t *psrti_average_block(psrti_shard_t *s, psrti_slice_t *slice, uint64_t at, uint64_t n)
{
    const psrti_stable_t *t = slice->table;
    psrti_block_t *b = psrti_block_new(s, slice);
    if (!b) return NULL;
    psrti_arith_round(s->k, t->spec.acc_dtype, t->wire_value, (char *)b->data + at * t->value_bytes,
                      (const char *)slice->average + at * t->acc_bytes, n);
    return b;
}
