/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the driver carries out, between those of the engine: their numbers, who calls something else, who has
 * gone, and what their texts say. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"
#include "runtime/coll/coll_int.h"

#define MINUTE (60 * FB_SECOND)

static const psrti_coll_call_t little = { .what = PSRTI_COLL_ALLREDUCE,
                                          .dtype = PSRT_F32,
                                          .count = 4 };

static psrti_coll_call_t as_engine(uint64_t count)
{
    return make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, PSRT_SUM, count, 0);
}

/* More of them than members may be ahead; calls of the engine before and after end well. */
Test(coll_counted, calls_of_the_engine_go_on)
{
    for (uint32_t n = 2; n <= 5; n++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        fb_open(&fb, n, n, NULL);
        fb_world(&fb, "w", comms);
        fb.on_ended = call_ended;
        for (uint32_t round = 0; round < 6; round++) {
            call_t c;
            psrti_collop_t *ops[FB_RANKS];
            call_make(&c, n, as_engine(round % 2 ? 3000 : 5), 0, 1 + round);
            for (uint32_t r = 0; r < n; r++) {
                for (uint32_t i = 0; i < 30 * (round % 3); i++)
                    psrti_coll_count(comms[r], &little);
                call_start(&c, r, comms[r]);
                ops[r] = &c.side[r].op;
                if (round >= 3) fb_settle(&fb);
            }
            fb_until_ended(&fb, ops, n);
            call_check(&c, "between counted ones");
            call_free(&c);
        }
        for (uint32_t r = 0; r < n; r++)
            psrti_comm_free(comms[r]);
        fb_close(&fb);
    }
}

/* Rank `odd` sends messages for what the others do in memory; `before`: calls that both count. */
static void mismatch(uint32_t n, uint32_t odd, uint32_t before, int odd_first)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_collop_t ops[FB_RANKS] = { 0 }, *odd_op;
    call_t c;
    fb_open(&fb, n, n + odd, NULL);
    fb_world(&fb, "w", comms);
    call_make(&c, n, as_engine(4), 0, 1);
    odd_op = &c.side[odd].op;
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; i < before; i++)
            psrti_coll_count(comms[r], &little);
        if (r == odd) call_start(&c, r, comms[r]);
        if (r == odd && odd_first) fb_settle(&fb);
    }
    for (uint32_t r = 0; r < n; r++) {
        if (r == odd) continue;
        psrti_coll_queue(comms[r], &little, &ops[r]);
        psrti_coll_begin(&ops[r], 0);
    }
    fb_wait(&fb, 2 * FB_SECOND, &odd_op, 1);
    fb_expect(odd_op, PSRT_ERR_MISMATCH, "by shared memory", "by direct",
              "allreduce of 4 f32 sum by", NULL);
    all_failed(&fb, comms, PSRT_ERR_MISMATCH, "by shared memory");
    call_free(&c);
    fb_close(&fb);
}

Test(coll_counted, who_sends_messages_for_them_is_told)
{
    for (uint32_t n = 2; n <= 4; n++)
        for (uint32_t odd = 0; odd < n; odd++)
            for (uint32_t before = 0; before < 40; before += 13) {
                mismatch(n, odd, before, 0);
                mismatch(n, odd, before, 1);
            }
}

/* It was counted while calls before it waited for slots, which the member that differs does not end either. */
Test(coll_counted, one_behind_calls_that_wait)
{
    enum { CALLS = PSRTI_COLL_AHEAD + 3 };
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t calls[CALLS], odd;
    psrti_collop_t *ops[2 * CALLS], *last;
    fb_open(&fb, 2, 1, NULL);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    for (uint32_t i = 0; i < CALLS; i++) {
        call_make(&calls[i], 2, as_engine(20), 0, 1 + i);
        call_start(&calls[i], 0, comms[0]);
        ops[2 * i] = &calls[i].side[0].op;
        ops[2 * i + 1] = &calls[i].side[1].op;
    }
    psrti_coll_count(comms[0], &little);
    for (uint32_t i = 0; i < CALLS; i++)
        call_start(&calls[i], 1, comms[1]);
    fb_until_ended(&fb, ops, 2 * CALLS);
    call_make(&odd, 2, as_engine(7), 0, 1);
    call_start(&odd, 1, comms[1]);
    last = &odd.side[1].op;
    fb_wait(&fb, 2 * FB_SECOND, &last, 1);
    fb_expect(last, PSRT_ERR_MISMATCH, "allreduce of 4 f32 sum", "allreduce of 7 f32 sum",
              "call 20", NULL);
    for (uint32_t i = 0; i < CALLS; i++) {
        call_check(&calls[i], "before it");
        call_free(&calls[i]);
    }
    fb.on_ended = NULL;
    all_failed(&fb, comms, PSRT_ERR_MISMATCH, "call 20");
    call_free(&odd);
    fb_close(&fb);
}

Test(coll_counted, texts_count_from_where_the_user_began)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_collop_t op;
    char text[512];
    fb_open(&fb, 3, 1, NULL);
    fb_world(&fb, "w", comms);
    for (uint32_t i = 0; i < 2; i++)
        psrti_coll_count(comms[0], &little);
    psrti_comm_hide_calls(comms[0]);
    psrti_coll_count(comms[0], &little);
    psrti_coll_queue(comms[0], &little, &op);
    psrti_coll_describe(&op, text, sizeof text);
    cr_assert_str_eq(text,
                     "allreduce of 4 f32 sum, in communicator w: calls before it have not ended");
    psrti_coll_begin(&op, 0);
    psrti_coll_watch(&op, 4, 0, 1);
    psrti_coll_describe(&op, text, sizeof text);
    cr_assert(strstr(text, "allreduce of 4 f32 sum, call 2 of communicator w: rank 2") == text,
              "%s", text);
    psrti_coll_queue(comms[0], &little, &op);
    psrti_coll_begin(&op, 1); /* the last one that was counted */
    cr_assert_eq(op.seq, 4);
    psrti_coll_cancel(&op, PSRT_ERR_CANCELED, "enough");
    fb_settle(&fb);
    all_failed(&fb, comms, PSRT_ERR_CANCELED, "enough");
    cr_assert_geq(psrti_coll_failures(fb.rank[0].coll), 1);
    fb_close(&fb);
}

Test(coll_counted, time_and_members_that_left)
{
    for (int left = 0; left < 2; left++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        psrti_collop_t op;
        fb_open(&fb, 3, 1, NULL);
        fb_world(&fb, "w", comms);
        psrti_coll_queue(comms[0], &little, &op);
        psrti_coll_begin(&op, 0);
        if (left) {
            psrti_comm_free(comms[2]);
            fb_settle(&fb);
        }
        psrti_coll_watch(&op, 1u << 2, 5, fb.params.timeout + 4);
        if (!left) {
            cr_assert_eq(psrti_comm_status(comms[0]), PSRT_OK);
            psrti_coll_watch(&op, 1u << 2, 5, fb.params.timeout + 5);
        }
        fb_settle(&fb);
        comms[2] = left ? comms[1] : comms[2];
        all_failed(&fb, comms, left ? PSRT_ERR_MISMATCH : PSRT_ERR_TIMEOUT,
                   left ? "freed it after 0 collectives" : "rank 2");
        fb_close(&fb);
    }
}
