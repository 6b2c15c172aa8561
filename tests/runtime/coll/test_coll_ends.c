/* SPDX-License-Identifier: Apache-2.0 */
/* How operations and communicators end otherwise: different calls, time. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"
#include "runtime/coll/coll_int.h"

#define MINUTE (60 * FB_SECOND)

/* ---- disagreement ------------------------------------------------------------------------------- */

/* Rank `odd` makes call b, the others a. */
static void disagree(uint32_t n, uint32_t odd, psrti_coll_call_t a, psrti_coll_call_t b,
                     uint64_t seed)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_collop_t *ops[FB_RANKS];
    call_t first, ca, cb;
    char text_a[128], text_b[128];
    fb_open(&fb, n, seed, NULL);
    fb_world(&fb, "w", comms);
    call_make(&first, n, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, PSRT_SUM, 3, 0), 0, 1);
    call_make(&ca, n, a, 0, 1);
    call_make(&cb, n, b, 0, 1);
    psrti_coll_call_text(&a, text_a, sizeof text_a);
    psrti_coll_call_text(&b, text_b, sizeof text_b);
    for (uint32_t r = 0; r < n; r++) {
        call_start(&first, r, comms[r]);
        call_start(r == odd ? &cb : &ca, r, comms[r]);
        ops[r] = r == odd ? &cb.side[r].op : &ca.side[r].op;
    }
    fb_wait(&fb, 4 * FB_SECOND, ops, n);
    for (uint32_t r = 0; r < n; r++) {
        if (ops[r]->ended && ops[r]->status == PSRT_OK) continue; /* was over before others began */
        cr_assert(ops[r]->ended, "%s, %s: rank %u of %u hangs", text_a, text_b, r, n);
        fb_expect(ops[r], PSRT_ERR_MISMATCH, text_a, text_b, "communicator w", NULL);
    }
    all_failed(&fb, comms, PSRT_ERR_MISMATCH, text_b);
    call_free(&first);
    call_free(&ca);
    call_free(&cb);
    fb_close(&fb);
}

Test(coll_ends, different_calls_are_named_on_all_ranks)
{
    static const struct {
        psrti_coll_call_t a, b;
    } pairs[] = {
        { { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 100 },
          { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 101 } },
        { { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 3 },
          { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_I32, .count = 3 } },
        { { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 3 },
          { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 3, .redop = PSRT_MAX } },
        { { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F64, .count = 3, .root = 0 },
          { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F64, .count = 3, .root = 1 } },
        { { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F64, .count = 5000, .root = 0 },
          { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F64, .count = 5000, .root = 1 } },
        { { .what = PSRTI_COLL_REDUCE, .dtype = PSRT_F64, .count = 3, .root = 0 },
          { .what = PSRTI_COLL_REDUCE, .dtype = PSRT_F64, .count = 3, .root = 1 } },
        { { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 100 },
          { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F64, .count = 3, .root = 1 } },
        { { .what = PSRTI_COLL_ALLGATHER, .dtype = PSRT_U8, .count = 10 },
          { .what = PSRTI_COLL_BARRIER } },
        { { .what = PSRTI_COLL_GATHER, .dtype = PSRT_U8, .count = 10, .root = 1 },
          { .what = PSRTI_COLL_SCATTER, .dtype = PSRT_U8, .count = 10, .root = 1 } },
        { { .what = PSRTI_COLL_SCATTER, .dtype = PSRT_U8, .count = 10, .root = 0 },
          { .what = PSRTI_COLL_SCATTER, .dtype = PSRT_U8, .count = 10, .root = 1 } },
    };
    for (size_t i = 0; i < PSRTI_COUNT(pairs); i++)
        for (uint32_t n = 2; n <= 5; n++)
            for (uint32_t odd = 0; odd < n; odd++) {
                disagree(n, odd, pairs[i].a, pairs[i].b, 1 + i);
                disagree(n, odd, pairs[i].b, pairs[i].a, 2 + i);
            }
}

/* Two calls in another order: the first ones differ. */
Test(coll_ends, another_order_is_an_error)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t a, b;
    psrti_collop_t *ops[6];
    fb_open(&fb, 3, 3, NULL);
    fb_world(&fb, "w", comms);
    call_make(&a, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, PSRT_SUM, 4, 0), 0, 1);
    call_make(&b, 3, make_call(PSRTI_COLL_ALLGATHER, PSRT_I8, 0, 4, 0), 0, 1);
    for (uint32_t r = 0; r < 3; r++) {
        call_start(r == 1 ? &b : &a, r, comms[r]);
        call_start(r == 1 ? &a : &b, r, comms[r]);
        ops[2 * r] = &a.side[r].op;
        ops[2 * r + 1] = &b.side[r].op;
    }
    fb_wait(&fb, 4 * FB_SECOND, ops, 6);
    for (uint32_t i = 0; i < 6; i++)
        fb_expect(ops[i], PSRT_ERR_MISMATCH, "call 1", "allreduce of 4 f32 sum",
                  "allgather of 4 i8", "same order", NULL);
    call_free(&a);
    call_free(&b);
    fb_close(&fb);
}

/* What one sends another is not what that one expects. */
Test(coll_ends, counts_of_a_pair_differ)
{
    static const uint64_t wrong[] = { 0, 3, 5, 4000 };
    for (size_t i = 0; i < PSRTI_COUNT(wrong); i++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        call_t c;
        psrti_collop_t *ops[3];
        fb_open(&fb, 3, 3 + i, NULL);
        fb_world(&fb, "w", comms);
        call_make(&c, 3, make_call(PSRTI_COLL_ALLTOALLV, PSRT_F32, 0, 3000, 0), 0, 1);
        c.side[1].in_counts[2] = wrong[i];
        for (uint32_t r = 0; r < 3; r++) {
            call_start(&c, r, comms[r]);
            ops[r] = &c.side[r].op;
        }
        fb_wait(&fb, 4 * FB_SECOND, ops, 3);
        for (uint32_t r = 0; r < 3; r++)
            fb_expect(ops[r], PSRT_ERR_MISMATCH, "rank 1", "rank 2", "alltoallv", NULL);
        call_free(&c);
        fb_close(&fb);
    }
}

Test(coll_ends, a_send_and_its_receive_differ)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    float in[5] = { 1, 2, 3, 4, 5 }, out[4];
    psrti_collop_t send = { 0 }, recv = { 0 }, *ops[] = { &send, &recv };
    psrti_coll_call_t s = make_call(PSRTI_COLL_SEND_TO, PSRT_F32, 0, 5, 1),
                      r = make_call(PSRTI_COLL_RECV_FROM, PSRT_F32, 0, 4, 0);
    s.in = in;
    r.out = out;
    fb_open(&fb, 2, 3, NULL);
    fb_world(&fb, "w", comms);
    psrti_coll_start(comms[0], &s, &send);
    psrti_coll_start(comms[1], &r, &recv);
    fb_wait(&fb, 4 * FB_SECOND, ops, 2);
    fb_expect(&recv, PSRT_ERR_MISMATCH, "send of 5 f32", "receive of 4 f32", NULL);
    all_failed(&fb, comms, PSRT_ERR_MISMATCH, "send of 5 f32");
    fb_close(&fb);
}

/* ---- time --------------------------------------------------------------------------------------- */

Test(coll_ends, time_names_those_who_have_not_called)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    for (uint32_t what = 0; what < PSRTI_COLL_COUNT; what++) {
        call_t c;
        psrti_collop_t *ops[4] = { 0 };
        psrti_coll_call_t like = make_call((uint8_t)what, PSRT_F32, 0, 700, 0);
        if (what == PSRTI_COLL_BARRIER) like.dtype = 0, like.count = 0;
        fb_open(&fb, 4, 7 + what, NULL);
        fb_world(&fb, "w", comms);
        call_make(&c, 4, like, 0, 1);
        for (uint32_t r = 0; r < 4; r++)
            if (r != 2) call_start(&c, r, comms[r]);
        for (uint32_t r = 0, n = 0; r < 4; r++)
            if (r != 2) ops[n++] = &c.side[r].op;
        fb_wait(&fb, 9 * FB_SECOND, NULL, 0);
        uint32_t waiting = 0;
        for (uint32_t i = 0; i < 3; i++)
            waiting += !ops[i]->ended;
        fb_wait(&fb, 5 * FB_SECOND, ops, 3);
        for (uint32_t i = 0; i < 3; i++)
            if (ops[i]->status != PSRT_OK)
                fb_expect(ops[i], PSRT_ERR_TIMEOUT, "rank 2 (worker:2 at node1) has not called it",
                          "10 s", NULL);
        cr_assert(waiting > 0, "%s ended without rank 2", psrti_collective_name(what));
        all_failed(&fb, comms, PSRT_ERR_TIMEOUT, "rank 2");
        call_free(&c);
        fb_close(&fb);
    }
}

/* Rank 2 waits for 3; it has never heard of 1, which has long ended the call. */
Test(coll_ends, time_does_not_name_those_who_are_done)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_coll_tune_t rules;
    cr_assert_eq(psrti_coll_tune_parse("broadcast:binomial", "tune", 0, &rules), PSRT_OK);
    psrti_coll_params_t params = { .tune = &rules };
    fb_open(&fb, 4, 3, &params);
    fb_world(&fb, "w", comms);
    call_make(&c, 4, make_call(PSRTI_COLL_BROADCAST, PSRT_F32, 0, 5000, 0), 0, 1);
    for (uint32_t r = 0; r < 3; r++)
        call_start(&c, r, comms[r]);
    psrti_collop_t *waits = &c.side[2].op;
    fb_wait(&fb, MINUTE, &waits, 1);
    fb_expect(waits, PSRT_ERR_TIMEOUT, "rank 3 (worker:3 at node1) has not called it", NULL);
    call_free(&c);
    fb_close(&fb);
}

/* A member that comes late is asked what it calls, more than once, and all ends well. */
Test(coll_ends, a_late_member_is_waited_for)
{
    for (unsigned what = 0; what < PSRTI_COLL_SEND_TO; what++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        call_t c;
        psrti_collop_t *ops[4];
        psrti_coll_call_t like = make_call((uint8_t)what, PSRT_F32, 0, 700, 0);
        if (what == PSRTI_COLL_BARRIER) like.dtype = 0, like.count = 0;
        fb_open(&fb, 4, 7 + what, NULL);
        fb_world(&fb, "w", comms);
        fb.on_ended = call_ended;
        call_make(&c, 4, like, 0, 1);
        for (uint32_t r = 0; r < 4; r++) {
            ops[r] = &c.side[r].op;
            if (r == 1) fb_wait(&fb, 4 * FB_SECOND, NULL, 0);
            call_start(&c, r, comms[r]);
        }
        fb_until_ended(&fb, ops, 4);
        call_check(&c, "late");
        call_free(&c);
        fb_close(&fb);
    }
}

/* Messages between two keep moving; the collective that does not is noticed all the same. */
Test(coll_ends, time_runs_for_each_call)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    float x[4] = { 0 };
    fb_open(&fb, 3, 1, NULL);
    fb_world(&fb, "w", comms);
    call_make(&c, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, 0, 40, 0), 0, 1);
    call_start(&c, 0, comms[0]);
    for (uint32_t i = 0; i < 30 && !c.side[0].op.ended; i++) {
        psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
        psrti_coll_call_t s = make_call(PSRTI_COLL_SEND_TO, PSRT_F32, 0, 4, 1),
                          r = make_call(PSRTI_COLL_RECV_FROM, PSRT_F32, 0, 4, 0);
        s.in = r.out = x;
        psrti_coll_start(comms[0], &s, &ops[0]);
        psrti_coll_start(comms[1], &r, &ops[1]);
        fb_until_ended(&fb, list, 2);
        free(ops[0].text);
        free(ops[1].text);
        fb_wait(&fb, FB_SECOND / 2, NULL, 0);
    }
    fb_expect(&c.side[0].op, PSRT_ERR_TIMEOUT, "rank 1", "rank 2", "have not called it", NULL);
    call_free(&c);
    fb_close(&fb);
}

Test(coll_ends, time_names_those_who_have_not_created)
{
    fabric_t fb;
    const uint32_t ranks[] = { 0, 1, 2 };
    psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
    psrti_comm_t *comms[2];
    fb_open(&fb, 3, 1, NULL);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(psrti_comm_create(fb.rank[r].coll, "late", ranks, 3, &ops[r], &comms[r]),
                     PSRT_OK);
    fb_wait(&fb, MINUTE, list, 2);
    for (uint32_t r = 0; r < 2; r++) {
        fb_expect(&ops[r], PSRT_ERR_TIMEOUT, "communicator late", "rank 2", "not created it", NULL);
        psrti_comm_free(comms[r]);
    }
    fb_close(&fb);
}

/* One that is stopped keeps memory; its link is closed after the grace, and operations end. */
Test(coll_ends, a_stopped_member_does_not_hold_memory_for_ever)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_collop_t *ops[3];
    psrti_coll_params_t params = { .eager = 1 << 20, .chunk = 1 << 16 };
    fb_open(&fb, 3, 1, &params);
    fb.window = 1000;
    fb_world(&fb, "w", comms);
    call_make(&c, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, 0, 1000, 0), 0, 1);
    fb.rank[2].is_stopped = 1;
    for (uint32_t r = 0; r < 3; r++) {
        if (r < 2) call_start(&c, r, comms[r]);
        ops[r] = &c.side[r].op;
    }
    fb_wait(&fb, 10 * FB_SECOND, NULL, 0);
    fb_wait(&fb, 5 * FB_SECOND, ops, 2);
    cr_assert_gt(fb.drops, 0);
    for (uint32_t r = 0; r < 2; r++)
        fb_expect(ops[r], PSRT_ERR_TIMEOUT, "rank 2", NULL);
    call_free(&c);
    fb_close(&fb);
}
