/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of the weights: what they are, and that a pull gets them whole. */
#include <string.h>

#include "base/util.h"
#include "fixture.h"

#define OPT "sgd:lr=1,ema=0.75"

/* The whole of table 1; NULL when it waits. */
static fx_reply_t *pull_average(fx_t *fx, uint32_t rank, uint64_t want)
{
    size_t before = fx->replies;
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PULL, 1, want, 0, 4, PSRTI_F_AVERAGE);
    cr_assert_eq(fx_send(fx, rank, &h, NULL), PSRT_RX_DONE);
    return fx->replies > before ? fx_last(fx, rank) : NULL;
}

static void gives(const fx_reply_t *r, uint64_t version, float first, float last)
{
    cr_assert(r && r->hdr.type == PSRTI_T_VALUE);
    cr_assert_eq(r->hdr.flags, PSRTI_F_AVERAGE);
    cr_assert_eq(r->hdr.step, version);
    cr_assert_eq(r->len, 4 * sizeof(float));
    cr_assert_float_eq(((const float *)r->copy)[0], first, 0.0);
    cr_assert_float_eq(((const float *)r->copy)[3], last, 0.0);
}

/* v: 10, 14, 22; e: 10, 3/4 * 10 + 1/4 * 14 = 11, 3/4 * 11 + 1/4 * 22 = 13.75 */
Test(average, moves_with_each_update)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, OPT, NULL, "sum", "constant:value=10", 0);
    gives(pull_average(fx, 1, 0), 0, 10, 10);
    for (uint32_t r = 0; r < 2; r++)
        fx_push(fx, r, 1, 0, -2, 0);
    gives(pull_average(fx, 1, 1), 1, 11, 11);
    cr_assert_null(pull_average(fx, 0, 2), "it waits as any pull");
    for (uint32_t r = 0; r < 2; r++)
        fx_push(fx, r, 1, 1, -4, 0);
    gives(fx_last(fx, 0), 2, 13.75f, 13.75f);
    fx_reply_t *r = fx_pull(fx, 1, 1, 2);
    cr_assert_eq(r->hdr.flags, 0);
    cr_assert_float_eq(((const float *)r->copy)[0], 22.0f, 0.0);
    fx_clock(fx, 0, 1, 2); /* a step without a gradient moves nothing */
    fx_clock(fx, 1, 1, 2);
    gives(pull_average(fx, 0, 3), 3, 13.75f, 13.75f);
    fx_close(fx);
}

Test(average, starts_as_what_worker_0_gives)
{
    fx_t *fx = fx_open(1);
    const float values[4] = { 8, 7, 6, 5 };
    fx_table(fx, 1, 4, OPT, NULL, NULL, "rank0", 0);
    cr_assert_null(pull_average(fx, 0, 0));
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 0, &h, values), PSRT_RX_DONE);
    gives(pull_average(fx, 0, 0), 0, 8, 5);
    fx_push(fx, 0, 1, 0, -4, 0);
    gives(pull_average(fx, 0, 1), 1, 9, 6);
    fx_close(fx);
}

Test(average, of_a_range_in_async)
{
    fx_t *fx = fx_open(1);
    const float g[2] = { -4, -8 };
    fx_table(fx, 1, 4, OPT, "async", NULL, NULL, 0);
    fx_range(fx, 0, 1, 0, 2, g, 2);
    gives(pull_average(fx, 0, 0), 1, 0, 2);
    fx_close(fx);
}

/* A reply on its way keeps what it was given, and its memory comes back. */
Test(average, sent_whole)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, OPT, NULL, "sum", "constant:value=10", 0);
    uint64_t blocks = fx_counts(fx).blocks;
    fx->keep = 1;
    fx_reply_t *first = pull_average(fx, 0, 0);
    fx->keep = 0;
    fx_push(fx, 0, 1, 0, -4, 0);
    cr_assert_arr_eq(first->data, first->copy, first->len);
    cr_assert_eq(fx_counts(fx).blocks, blocks + 1);
    fx_done(fx, (size_t)(first - fx->reply));
    cr_assert_eq(fx_counts(fx).blocks, blocks);

    fx->full = 1; /* no room: it is looked up when it goes out */
    cr_assert_null(pull_average(fx, 0, 1));
    cr_assert_eq(fx_counts(fx).blocks, blocks);
    fx->full = 0;
    psrti_shard_link_writable(fx->shard, fx->peer[0]);
    gives(fx_last(fx, 0), 1, 11, 11);
    cr_assert_eq(fx_counts(fx).blocks, blocks);
    fx_close(fx);
}

/* f16 has steps of 2 from 2048 on. From the values in f32, 2049 and 2050, the averages are 2048.5 and
 * 2049.25, which rounds to 2050; from rounded ones it would be 2049, which rounds to 2048. */
Test(average, is_rounded_once)
{
    fx_t *fx = fx_open(1);
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = PSRT_F16, p.ndim = 1, p.shape[0] = 4;
    p.init = "constant:value=2048", p.optimizer = "sgd:lr=1,ema=0.5";
    cr_assert_eq(psrti_table_spec_make("t1", &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_shard_hold(fx->shard, 1, &spec), PSRT_OK);
    for (uint64_t step = 0; step < 2; step++) {
        const uint16_t minus_one[4] = { 0xbc00, 0xbc00, 0xbc00, 0xbc00 };
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, step, 0, 4, PSRTI_F_END | PSRTI_F_WHOLE);
        h.dtype = PSRT_F16;
        psrt_msg_t msg = { .hdr = h, .data = minus_one, .len = sizeof minus_one };
        cr_assert_eq(psrti_shard_msg(fx->shard, fx->peer[0], &msg), PSRT_RX_DONE);
    }
    fx_reply_t *r = pull_average(fx, 0, 2);
    cr_assert(r && r->len == 4 * sizeof(uint16_t));
    cr_assert_eq(((const uint16_t *)r->copy)[0], 0x6801, "2050");
    fx_close(fx);
}

Test(average, of_nothing_is_malformed)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, "sgd:lr=1", NULL, NULL, NULL, 0);
    fx_table(fx, 2, 4, OPT, NULL, NULL, NULL, 0);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 1, 0, 0, 4, PSRTI_F_AVERAGE);
    cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_BAD);
    const float g[4] = { 1, 1, 1, 1 };
    h = fx_hdr(fx, 0, PSRTI_T_PUSH, 2, 0, 0, 4, PSRTI_F_AVERAGE | PSRTI_F_PULL | PSRTI_F_END);
    cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_BAD);
    cr_assert_eq(fx_version(fx, 2), 0u);
    fx_close(fx);
}
