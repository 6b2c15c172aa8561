/* SPDX-License-Identifier: Apache-2.0 */
/* How operations and communicators end otherwise: different calls, death, lost connections, time. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"
#include "runtime/coll/coll_int.h"

#define MINUTE (60 * FB_SECOND)

static psrti_coll_call_t make_call(uint8_t what, uint8_t dtype, uint8_t redop, uint64_t count,
                                   uint32_t root)
{
    return (psrti_coll_call_t){
        .what = what, .dtype = dtype, .redop = redop, .count = count, .root = root
    };
}

/* All operations of the communicators and later ones have this status and texts. */
static void all_failed(fabric_t *fb, psrti_comm_t **comms, psrt_status_t status, const char *text)
{
    for (uint32_t r = 0; r < fb->n; r++) {
        psrti_collop_t op = { 0 };
        psrti_coll_call_t barrier = make_call(PSRTI_COLL_BARRIER, 0, 0, 0, 0);
        if (fb->rank[r].is_dead) continue;
        cr_assert_eq(psrti_comm_status(comms[r]), status, "rank %u: %s, %s", r,
                     psrt_status_name(psrti_comm_status(comms[r])), psrti_comm_text(comms[r]));
        psrti_coll_start(comms[r], &barrier, &op);
        fb_collect(fb);
        fb_expect(&op, status, text, NULL);
    }
}

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
    psrti_coll_params_t params = { .tune = "broadcast:binomial" };
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

/* ---- death -------------------------------------------------------------------------------------- */

static int has_a_result(const call_t *c, uint32_t r) { return c->side[r].op.status == PSRT_OK; }

/* Survivors shrink and go on. */
static void go_on(fabric_t *fb, psrti_comm_t **comms)
{
    psrti_comm_t *next[FB_RANKS] = { 0 };
    psrti_collop_t ops[FB_RANKS] = { 0 }, *list[FB_RANKS] = { 0 };
    uint32_t n = 0;
    call_t c;
    for (uint32_t r = 0; r < fb->n; r++) {
        if (fb->rank[r].is_dead) continue;
        cr_assert_eq(psrti_comm_shrink(comms[r], &ops[r], &next[r]), PSRT_OK);
        list[n++] = &ops[r];
    }
    fb->on_ended = NULL;
    fb_until_ended(fb, list, n);
    for (uint32_t i = 0; i < n; i++)
        fb_expect(list[i], PSRT_OK, NULL);
    call_make(&c, n, make_call(PSRTI_COLL_ALLREDUCE, PSRT_I64, PSRT_SUM, 50, 0), 0, 9);
    fb->on_ended = call_ended;
    for (uint32_t r = 0; r < fb->n; r++) {
        if (fb->rank[r].is_dead) continue;
        uint32_t at = psrti_comm_rank(next[r]);
        cr_assert_eq(psrti_comm_size(next[r]), n);
        call_start(&c, at, next[r]);
        list[at] = &c.side[at].op;
    }
    fb_until_ended(fb, list, n);
    call_check(&c, "after a shrink");
    call_free(&c);
}

/* Kills one rank at the k-th message of a call; 0: the call was over before. */
static int die_at(uint32_t n, psrti_coll_call_t like, uint32_t victim, uint64_t k)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_collop_t *ops[FB_RANKS];
    uint32_t living = 0;
    call_t c;
    fb_open(&fb, n, 11, NULL);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    call_make(&c, n, like, 0, 5);
    fb.victim = victim;
    fb.kill_at = fb.delivered + k;
    for (uint32_t r = 0; r < n; r++) {
        call_start(&c, r, comms[r]);
        if (r != victim) ops[living++] = &c.side[r].op;
    }
    fb_wait(&fb, 3 * FB_SECOND, ops, living);
    int died = fb.kill_at == 0;
    for (uint32_t r = 0; r < n; r++) {
        if (r == victim) continue;
        cr_assert(c.side[r].op.ended, "rank %u hangs after message %llu", r, (unsigned long long)k);
        if (has_a_result(&c, r)) continue;
        fb_expect(&c.side[r].op, PSRT_ERR_PEER_LOST, "communicator w", NULL);
    }
    if (died) go_on(&fb, comms);
    fb_close(&fb);
    call_free(&c);
    return died;
}

Test(coll_ends, a_member_dies_at_every_message)
{
    static const psrti_coll_call_t calls[] = {
        { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 100 },
        { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F16, .count = 3000, .redop = PSRT_AVG },
        { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_U8, .count = 20000, .root = 1 },
        { .what = PSRTI_COLL_ALLTOALL, .dtype = PSRT_F64, .count = 300 },
        { .what = PSRTI_COLL_GATHER, .dtype = PSRT_I8, .count = 20, .root = 0 },
        { .what = PSRTI_COLL_BARRIER },
    };
    for (size_t i = 0; i < PSRTI_COUNT(calls); i++)
        for (uint32_t victim = 0; victim < 3; victim++)
            for (uint64_t k = 1; die_at(4, calls[i], victim, k); k += k < 40 ? 1 : 17) {}
}

/* A connection breaks, nobody dies: the communicator is over, a shrink has all members again. */
Test(coll_ends, a_lost_connection_can_be_shrunk_away)
{
    for (uint32_t again = 0; again < 2; again++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        fb_open(&fb, 4, 2, NULL);
        fb_world(&fb, "w", comms);
        fb_cut(&fb, 1, 3);
        if (again) fb_settle(&fb);
        fb_link(&fb, 1, 3);
        fb_settle(&fb);
        go_on(&fb, comms);
        fb_close(&fb);
    }
}

/* Rank 0 has met all and fails with its link to 1, which has not: 1 hears of it over the next link. */
Test(coll_ends, a_failure_is_told_when_there_is_a_link_again)
{
    fabric_t fb;
    const uint32_t ranks[] = { 0, 1, 2 };
    psrti_collop_t ops[3] = { 0 }, *list[] = { &ops[0], &ops[1], &ops[2] };
    psrti_comm_t *comms[3];
    fb_open(&fb, 3, 1, NULL);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(psrti_comm_create(fb.rank[r].coll, "c", ranks, 3, &ops[r], &comms[r]),
                     PSRT_OK);
    fb.rank[1].is_stopped = 1;
    fb_settle(&fb);
    fb_expect(&ops[0], PSRT_OK, NULL);
    fb_cut(&fb, 0, 1);
    fb.rank[1].is_stopped = 0;
    fb_link(&fb, 0, 1);
    fb_until_ended(&fb, list, 3);
    fb_expect(&ops[1], PSRT_ERR_PEER_LOST, "communicator c", "rank 1", NULL);
    fb_close(&fb);
}

Test(coll_ends, two_die_while_survivors_gather)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS], *next[FB_RANKS] = { 0 };
        psrti_collop_t ops[FB_RANKS] = { 0 }, *list[FB_RANKS] = { 0 };
        uint32_t n = 0;
        fb_open(&fb, 5, seed, NULL);
        fb_world(&fb, "w", comms);
        fb_kill(&fb, 4);
        for (uint32_t r = 0; r < 4; r++)
            cr_assert_eq(psrti_comm_shrink(comms[r], &ops[r], &next[r]), PSRT_OK);
        for (uint32_t k = fb_random(&fb, 12); k; k--)
            (void)fb_step(&fb);
        fb_kill(&fb, 1);
        for (uint32_t r = 0; r < 4; r++)
            if (r != 1) list[n++] = &ops[r];
        fb_until_ended(&fb, list, n);
        for (uint32_t r = 0; r < 4; r++) /* what was proposed in vain was taken back */
            for (uint32_t q = 0; q < 4 && r != 1; q++)
                cr_assert_eq(fb.rank[r].coll->peers[q].nopens, 0);
        /* Those who had all members before one died have a communicator that failed: they shrink that. */
        for (uint32_t r = 0; r < 4; r++)
            if (r != 1) fb_expect(&ops[r], PSRT_OK, NULL);
        int failed = 0;
        for (uint32_t r = 0; r < 4; r++)
            failed |= r != 1 && psrti_comm_status(next[r]) != PSRT_OK;
        if (failed) go_on(&fb, next);
        fb_close(&fb);
    }
}

Test(coll_ends, one_that_was_started_anew_creates_with_the_others)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_collop_t *ops[3];
    fb_open(&fb, 3, 2, NULL);
    fb_world(&fb, "w", comms);
    fb_kill(&fb, 1);
    fb_settle(&fb);
    fb_restart(&fb, 1);
    fb_settle(&fb);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    call_make(&c, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_I64, PSRT_SUM, 50, 0), 0, 9);
    for (uint32_t r = 0; r < 3; r++) {
        call_start(&c, r, comms[r]);
        ops[r] = &c.side[r].op;
    }
    fb_until_ended(&fb, ops, 3);
    call_check(&c, "after a restart");
    call_free(&c);
    fb_close(&fb);
}

Test(coll_ends, a_member_dies_while_all_gather)
{
    fabric_t fb;
    const uint32_t ranks[] = { 0, 1, 2, 3 };
    psrti_collop_t ops[3] = { 0 }, *list[] = { &ops[0], &ops[1], &ops[2] };
    psrti_comm_t *comms[3];
    fb_open(&fb, 4, 1, NULL);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(psrti_comm_create(fb.rank[r].coll, "c", ranks, 4, &ops[r], &comms[r]),
                     PSRT_OK);
    fb_settle(&fb);
    fb_kill(&fb, 3);
    fb_until_ended(&fb, list, 3);
    for (uint32_t r = 0; r < 3; r++)
        fb_expect(&ops[r], PSRT_ERR_PEER_LOST, "rank 3 (worker:3 at node1) died", NULL);
    fb_close(&fb);
}

/* ---- on purpose --------------------------------------------------------------------------------- */

/* Little data wait for nobody: they are taken out of the sender's memory before the receiver calls. */
Test(coll_ends, a_root_does_not_wait_for_those_who_have_not_called)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_collop_t *root, *ops[3];
    psrti_coll_params_t params = { .chunk = 1 << 16, .eager = 1 << 16 };
    fb_open(&fb, 3, 1, &params);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    call_make(&c, 3, make_call(PSRTI_COLL_BROADCAST, PSRT_F32, 0, 9000, 0), 0, 1);
    root = &c.side[0].op;
    call_start(&c, 0, comms[0]);
    fb_until_ended(&fb, &root, 1);
    for (uint32_t r = 0; r < 3; r++) {
        if (r) call_start(&c, r, comms[r]);
        ops[r] = &c.side[r].op;
    }
    fb_until_ended(&fb, ops, 3);
    call_check(&c, "the root was first");
    call_free(&c);
    fb_close(&fb);
}

/* Whoever has all it needs may leave while others still work; who needs more hears why. */
Test(coll_ends, members_leave_one_by_one)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        uint32_t n = 2 + (uint32_t)seed % 6;
        call_t c;
        psrti_collop_t *ops[FB_RANKS];
        psrti_coll_call_t like = seed % 3 == 0 ? make_call(PSRTI_COLL_BARRIER, 0, 0, 0, 0)
                                 : seed % 3 == 1
                                     ? make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, 0, 40, 0)
                                     : make_call(PSRTI_COLL_BROADCAST, PSRT_F32, 0, 900, 1);
        fb_open(&fb, n, seed, NULL);
        fb_world(&fb, "w", comms);
        fb.on_ended = call_ended;
        call_make(&c, n, like, 0, 3);
        for (uint32_t r = 0; r < n; r++) {
            call_start(&c, r, comms[r]);
            ops[r] = &c.side[r].op;
        }
        int moved = 1;
        do {
            moved = fb_step(&fb);
            if (!moved) fb_wait(&fb, 0, NULL, 0);
            for (uint32_t r = 0; r < n; r++) {
                if (!comms[r] || !ops[r]->ended) continue;
                psrti_comm_free(comms[r]);
                comms[r] = NULL;
                while (psrti_coll_unsent(fb.rank[r].coll))
                    (void)fb_step(&fb);
                fb_deliver_from(&fb, r);
                fb_kill(&fb, r); /* the process is gone, too */
                moved = 1;
            }
        } while (moved);
        call_check(&c, "left one by one");
        call_free(&c);
        fb_close(&fb);
    }
}

Test(coll_ends, a_call_after_a_member_freed_its_communicator)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_collop_t *ops[2];
    fb_open(&fb, 3, 1, NULL);
    fb_world(&fb, "w", comms);
    psrti_comm_free(comms[2]);
    fb_settle(&fb);
    call_make(&c, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, 0, 4, 0), 0, 1);
    for (uint32_t r = 0; r < 2; r++) {
        call_start(&c, r, comms[r]);
        ops[r] = &c.side[r].op;
    }
    fb_until_ended(&fb, ops, 2);
    for (uint32_t r = 0; r < 2; r++)
        fb_expect(ops[r], PSRT_ERR_MISMATCH,
                  "rank 2 (worker:2 at node1) freed it after 0 collectives",
                  "allreduce of 4 f32 sum", NULL);
    call_free(&c);
    fb_close(&fb);
}

Test(coll_ends, a_canceled_call_ends_on_all)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    call_t c;
    psrti_collop_t *ops[3];
    fb_open(&fb, 3, 1, NULL);
    fb_world(&fb, "w", comms);
    call_make(&c, 3, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, 0, 4000, 0), 0, 1);
    for (uint32_t r = 0; r < 2; r++) {
        call_start(&c, r, comms[r]);
        ops[r] = &c.side[r].op;
    }
    fb_settle(&fb);
    psrti_coll_cancel(ops[0], PSRT_ERR_DEADLINE, "deadline passed");
    fb_until_ended(&fb, ops, 2);
    for (uint32_t r = 0; r < 2; r++)
        fb_expect(ops[r], PSRT_ERR_DEADLINE, "allreduce of 4000 f32 sum", "rank 0", NULL);
    all_failed(&fb, comms, PSRT_ERR_DEADLINE, "rank 0");
    call_free(&c);
    fb_close(&fb);
}

Test(coll_ends, settings_must_be_the_same)
{
    fabric_t fb;
    const uint32_t ranks[] = { 0, 1 };
    psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
    psrti_comm_t *comms[2];
    fb_open(&fb, 2, 1, NULL);
    fb_kill(&fb, 1);
    fb.params.chunk = 512;
    fb_restart(&fb, 1);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(psrti_comm_create(fb.rank[r].coll, "c", ranks, 2, &ops[r], &comms[r]),
                     PSRT_OK);
    fb_until_ended(&fb, list, 2);
    for (uint32_t r = 0; r < 2; r++)
        fb_expect(&ops[r], PSRT_ERR_MISMATCH, "PSRT_COLL_CHUNK", "512", "256", NULL);
    fb_close(&fb);
}
