/* SPDX-License-Identifier: Apache-2.0 */
/* What two phases compute on a slice: the measures of its gradient, its values and its update. */
#include "runtime/server/arith.h"
#include "runtime/server/group.h"

static const struct psrti_kernels_of_type *kernels_of(const psrti_shard_t *s,
                                                      const psrti_stable_t *t)
{
    return t->spec.acc_dtype == PSRT_F64 ? &s->k->f64 : &s->k->f32;
}

static double square_of(const psrti_shard_t *s, const psrti_slice_t *slice, const void *data,
                        uint8_t *nonfinite)
{
    psrti_squares_t sum = { .nonfinite = 0 };
    kernels_of(s, slice->table)->squares(&sum, data, slice->len);
    *nonfinite = sum.nonfinite != 0;
    return psrti_squares_total(&sum);
}

/* The average is taken block by block, and measured while it is in the cache. */
static void measure_gradient(psrti_shard_t *s, psrti_slice_t *slice, void *acc, uint32_t divisor)
{
    const psrti_stable_t *t = slice->table;
    uint64_t step = PSRTI_APPLY_BLOCK / t->acc_bytes;
    psrti_squares_t sum = { .nonfinite = 0 };
    for (uint64_t i = 0; i < slice->len; i += step) {
        uint64_t n = PSRTI_MIN(step, slice->len - i);
        char *at = (char *)acc + i * t->acc_bytes;
        if (divisor > 1) psrti_arith_divide(s->k, t->spec.acc_dtype, at, at, divisor, n);
        kernels_of(s, t)->squares(&sum, at, n);
    }
    slice->partial.square = psrti_squares_total(&sum);
    slice->partial.nonfinite = sum.nonfinite != 0;
}

/* A slice that got no gradient counts as zeros. */
void psrti_group_measure(psrti_shard_t *s, psrti_slice_t *slice)
{
    const psrti_stable_t *t = slice->table;
    uint32_t divisor = psrti_step_sum(s, slice);
    void *acc = slice->step[slice->version % 2].acc;
    slice->partial = (psrti_partial_t){ .known = 0 };
    if (acc) measure_gradient(s, slice, acc, t->spec.average ? divisor : 1);
    if (psrti_optimizer_needs(&t->opt) & PSRT_NEEDS_VALUE_NORM) {
        uint8_t ignored;
        const void *values = slice->master ? slice->master : slice->cur->data;
        slice->partial.value_square = square_of(s, slice, values, &ignored);
    }
}

static psrti_facts_t facts_of(const psrti_stable_t *t, double scale)
{
    return (psrti_facts_t){ scale, t->norms };
}

/* The update takes the place of the gradient, which is needed no more. */
void psrti_group_prepare(psrti_shard_t *s, psrti_slice_t *slice, double scale)
{
    const psrti_stable_t *t = slice->table;
    void *acc = slice->step[slice->version % 2].acc;
    uint8_t ignored;
    slice->partial = (psrti_partial_t){ .known = 0 };
    if (!acc || !(psrti_optimizer_needs(&t->opt) & PSRT_NEEDS_UPDATE_NORM)) return;
    psrti_facts_t facts = facts_of(t, scale);
    psrti_prepare(s, slice, acc, &facts);
    slice->partial.square = square_of(s, slice, acc, &ignored);
}

psrt_status_t psrti_group_apply(psrti_shard_t *s, psrti_slice_t *slice, const psrti_verdict_t *v)
{
    const psrti_stable_t *t = slice->table;
    const void *acc = slice->step[slice->version % 2].acc;
    int prepared = (psrti_optimizer_needs(&t->opt) & PSRT_NEEDS_UPDATE_NORM) != 0;
    if (v->skip || !acc) return PSRT_OK;
    psrti_facts_t facts = facts_of(t, prepared ? 1 : v->scale);
    return psrti_apply(s, slice, 0, slice->len, acc, NULL, 1, &facts);
}
