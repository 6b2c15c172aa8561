/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are updated apart from what readers hold. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runtime/server/shard_int.h"

#define ELEMS 40000u /* more than one block of an update */

static fx_t *open_table(uint64_t elements)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, elements, NULL, "async", NULL, "constant:value=1", 0);
    return fx;
}

static const psrti_slice_t *slice_of(fx_t *fx)
{
    const psrti_stable_t *t = psrti_map_get(&fx->shard->tables, 1);
    return t->slice[0];
}

/* Element i of the range gets `by` times i more. */
static void push(fx_t *fx, uint64_t offset, uint64_t count, float by)
{
    float *g = malloc(count * sizeof *g);
    for (uint64_t i = 0; i < count; i++)
        g[i] = by * (float)(offset + i);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, offset, count, PSRTI_F_END);
    cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE);
    free(g);
}

static void are(const float *values, uint64_t first, uint64_t end, float times)
{
    for (uint64_t i = first; i < end; i++)
        cr_assert_float_eq(values[i], 1.0f + times * (float)i, 0.0, "element %llu",
                           (unsigned long long)i);
}

/* The pull's send stays pending: a reader holds the version. Its reply. */
static size_t hold(fx_t *fx)
{
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 1, 0, 0, slice_of(fx)->len, 0);
    fx->keep = 1;
    cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_DONE);
    fx->keep = 0;
    return fx->replies - 1;
}

Test(master, an_update_beside_a_reader)
{
    fx_t *fx = open_table(ELEMS);
    cr_assert_null(slice_of(fx)->master, "nobody reads while it is updated");
    push(fx, 0, ELEMS, 1);
    cr_assert_null(slice_of(fx)->master);
    size_t reader = hold(fx);
    push(fx, 0, ELEMS, 2);
    cr_assert_not_null(slice_of(fx)->master);
    are(fx->reply[reader].data, 0, ELEMS, 1); /* the old version stays as it is */
    are(slice_of(fx)->cur->data, 0, ELEMS, 3);
    are(slice_of(fx)->master, 0, ELEMS, 3);
    size_t second = hold(fx);
    push(fx, 100, 20000, 5); /* of a part: the rest goes over */
    are(fx->reply[second].data, 0, ELEMS, 3);
    const void *const now[] = { slice_of(fx)->cur->data, slice_of(fx)->master };
    for (int i = 0; i < 2; i++) {
        are(now[i], 0, 100, 3);
        are(now[i], 100, 20100, 8);
        are(now[i], 20100, ELEMS, 3);
    }
    fx_done(fx, reader);
    fx_done(fx, second);
    fx_close(fx);
}

/* Without readers it goes after a while, and the values stay. */
Test(master, goes_when_nobody_reads)
{
    fx_t *fx = open_table(ELEMS);
    size_t reader = hold(fx);
    push(fx, 0, ELEMS, 1);
    fx_done(fx, reader);
    unsigned n = 0;
    while (slice_of(fx)->master && n < 1000) {
        push(fx, 0, ELEMS, 1);
        n++;
        are(slice_of(fx)->cur->data, 0, ELEMS, (float)(1 + n));
    }
    cr_assert(n > 1 && n < 100, "after %u updates", n);
    push(fx, 0, ELEMS, 1);
    are(slice_of(fx)->cur->data, 0, ELEMS, (float)(2 + n));
    cr_assert_null(slice_of(fx)->master);
    reader = hold(fx);
    push(fx, 0, ELEMS, 1);
    are(slice_of(fx)->master, 0, ELEMS, (float)(3 + n));
    fx_done(fx, reader);
    fx_close(fx);
}

/* What the environment writes is what readers find; it is asked for slices of some size only. */
static unsigned writes;
static uint64_t written;
static void spy(void *arg, void *dst, const void *src, uint64_t bytes)
{
    (void)arg;
    writes++;
    written += bytes;
    memcpy(dst, src, bytes);
}

Test(master, is_written_by_the_environment)
{
    fx_t *fx = open_table(PSRTI_SLICE_ELEMS);
    fx->shard->env.write = spy;
    size_t reader = hold(fx);
    push(fx, 0, PSRTI_SLICE_ELEMS, 1);
    cr_assert_eq(written, PSRTI_SLICE_ELEMS * sizeof(float));
    cr_assert_eq(writes, written / psrti_master_block(fx->shard, slice_of(fx)));
    are(slice_of(fx)->cur->data, 0, PSRTI_SLICE_ELEMS, 1);
    fx_done(fx, reader);
    fx_close(fx);
}

Test(master, small_slices_are_written_past_the_caches)
{
    fx_t *fx = open_table(ELEMS);
    fx->shard->env.write = spy;
    size_t reader = hold(fx);
    push(fx, 0, ELEMS, 1);
    cr_assert_eq(writes, 0u);
    are(slice_of(fx)->cur->data, 0, ELEMS, 1);
    fx_done(fx, reader);
    fx_close(fx);
}
