/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of operations and communicators when members die, lose a connection, leave or cancel. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"
#include "runtime/coll/coll_int.h"

#define MINUTE (60 * FB_SECOND)

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

Test(coll_death, a_member_dies_at_every_message)
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
Test(coll_death, a_lost_connection_can_be_shrunk_away)
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
Test(coll_death, a_failure_is_told_when_there_is_a_link_again)
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

Test(coll_death, two_die_while_survivors_gather)
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

Test(coll_death, one_that_was_started_anew_creates_with_the_others)
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

Test(coll_death, a_member_dies_while_all_gather)
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

/* ---- messages that a link refuses --------------------------------------------------------------- */

/* Whether the link is lost of it or not, all hear what it said. */
Test(coll_death, a_refused_message_is_named)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS];
        uint32_t n = 2 + (uint32_t)seed % 5;
        call_t c;
        psrti_collop_t *ops[FB_RANKS];
        fb_open(&fb, n, seed, NULL);
        fb_world(&fb, "w", comms);
        call_make(&c, n, make_call(PSRTI_COLL_ALLREDUCE, PSRT_F32, PSRT_SUM, 9000, 0), 0, 1);
        fb.most = 100;
        for (uint32_t r = 0; r < n; r++) {
            call_start(&c, r, comms[r]);
            ops[r] = &c.side[r].op;
            if (seed % 2) (void)fb_step(&fb);
        }
        fb_until_ended(&fb, ops, n);
        for (uint32_t r = 0; r < n; r++)
            fb_expect(ops[r], PSRT_ERR_LIMIT, "communicator w: cannot send to rank ", "payload of ",
                      NULL);
        all_failed(&fb, comms, PSRT_ERR_LIMIT, "payload of ");
        call_free(&c);
        fb_close(&fb);
    }
}

/* ---- on purpose --------------------------------------------------------------------------------- */

/* Little data wait for nobody: they are taken out of the sender's memory before the receiver calls. */
Test(coll_death, a_root_does_not_wait_for_those_who_have_not_called)
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
Test(coll_death, members_leave_one_by_one)
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

/* The new life of a member does not know the communicator: a shrink goes on without it. */
Test(coll_death, one_that_was_started_anew_is_in_no_shrink)
{
    for (uint32_t while_gathering = 0; while_gathering < 2; while_gathering++) {
        fabric_t fb;
        psrti_comm_t *comms[FB_RANKS], *next[2];
        psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
        fb_open(&fb, 3, 2, NULL);
        fb_world(&fb, "w", comms);
        fb_cut(&fb, 0, 1);
        fb_link(&fb, 0, 1);
        fb_settle(&fb);
        if (while_gathering) cr_assert_eq(psrti_comm_shrink(comms[0], &ops[0], &next[0]), PSRT_OK);
        fb_kill(&fb, 2);
        fb_settle(&fb);
        fb_restart(&fb, 2);
        fb_settle(&fb);
        for (uint32_t r = while_gathering; r < 2; r++)
            cr_assert_eq(psrti_comm_shrink(comms[r], &ops[r], &next[r]), PSRT_OK);
        fb_until_ended(&fb, list, 2);
        for (uint32_t r = 0; r < 2; r++) {
            fb_expect(&ops[r], PSRT_OK, NULL);
            cr_assert_eq(psrti_comm_size(next[r]), 2);
        }
        fb_close(&fb);
    }
}

/* What is made of two communicators of the same members in different orders does not meet crosswise. */
Test(coll_death, what_is_made_of_one_is_not_taken_for_what_is_made_of_another)
{
    for (uint32_t shrinks = 0; shrinks < 2; shrinks++) {
        fabric_t fb;
        const uint32_t ranks[] = { 0, 1 };
        psrti_comm_t *parent[FB_RANKS], *copy[2], *made[2][2];
        psrti_collop_t ops[4] = { 0 }, *list[] = { &ops[0], &ops[1], &ops[2], &ops[3] };
        fb_open(&fb, 2, 3, NULL);
        fb_world(&fb, "w", parent);
        for (uint32_t r = 0; r < 2; r++)
            cr_assert_eq(psrti_comm_derive(parent[r], ranks, 2, &ops[r], &copy[r]), PSRT_OK);
        fb_until_ended(&fb, list, 2);
        if (shrinks) {
            fb_cut(&fb, 0, 1);
            fb_link(&fb, 0, 1);
            fb_settle(&fb);
        }
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t r = i / 2, of_copy = (i + r) % 2;
            psrti_comm_t *from = of_copy ? copy[r] : parent[r];
            ops[i] = (psrti_collop_t){ 0 };
            psrt_status_t rc = shrinks
                                   ? psrti_comm_shrink(from, &ops[i], &made[r][of_copy])
                                   : psrti_comm_derive(from, ranks, 2, &ops[i], &made[r][of_copy]);
            cr_assert_eq(rc, PSRT_OK);
        }
        fb_until_ended(&fb, list, 4);
        for (uint32_t of_copy = 0; of_copy < 2; of_copy++) {
            call_t c;
            psrti_collop_t *calls[2];
            call_make(&c, 2, make_call(PSRTI_COLL_ALLREDUCE, PSRT_I64, PSRT_SUM, 5 + of_copy, 0), 0,
                      4);
            for (uint32_t r = 0; r < 2; r++) {
                call_start(&c, r, made[r][of_copy]);
                calls[r] = &c.side[r].op;
            }
            fb.on_ended = call_ended;
            fb_until_ended(&fb, calls, 2);
            call_check(&c, "made of another");
            call_free(&c);
            fb.on_ended = NULL;
        }
        fb_close(&fb);
    }
}

/* Little data are out when psrt_send returns: whoever sent them may leave before they are received. */
Test(coll_death, data_outlive_the_communicator_of_their_sender)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    char data[100], got[100] = { 0 };
    psrti_coll_call_t send = make_call(PSRTI_COLL_SEND_TO, PSRT_U8, 0, sizeof data, 1);
    psrti_coll_call_t recv = make_call(PSRTI_COLL_RECV_FROM, PSRT_U8, 0, sizeof data, 0);
    psrti_collop_t ops[3] = { 0 }, *list[] = { &ops[0], &ops[1], &ops[2] };
    memset(data, 7, sizeof data);
    send.in = data;
    recv.out = got;
    fb_open(&fb, 2, 1, NULL);
    fb_world(&fb, "w", comms);
    psrti_coll_start(comms[0], &send, &ops[0]);
    fb_until_ended(&fb, list, 1);
    fb_expect(&ops[0], PSRT_OK, NULL);
    psrti_comm_free(comms[0]);
    fb_settle(&fb);
    fb_kill(&fb, 0);
    fb_settle(&fb);
    psrti_coll_start(comms[1], &recv, &ops[1]);
    psrti_coll_start(comms[1], &recv, &ops[2]);
    fb_until_ended(&fb, list + 1, 2);
    fb_expect(&ops[1], PSRT_OK, NULL);
    cr_assert_eq(memcmp(got, data, sizeof data), 0);
    fb_expect(&ops[2], PSRT_ERR_MISMATCH, "rank 0", "freed it", NULL);
    fb_close(&fb);
}

Test(coll_death, a_call_after_a_member_freed_its_communicator)
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

Test(coll_death, a_canceled_call_ends_on_all)
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

/* Rank 0 has the defaults of the fabric, rank 1 these. */
static void settings_differ(psrti_coll_params_t other, const char *name, const char *theirs,
                            const char *ours)
{
    fabric_t fb;
    const uint32_t ranks[] = { 0, 1 };
    psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
    psrti_comm_t *comms[2];
    fb_open(&fb, 2, 1, NULL);
    fb_kill(&fb, 1);
    if (other.chunk) fb.params.chunk = other.chunk;
    if (other.eager) fb.params.eager = other.eager;
    if (other.message) fb.params.message = other.message;
    if (other.tune) fb.params.tune = other.tune;
    fb_restart(&fb, 1);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(psrti_comm_create(fb.rank[r].coll, "c", ranks, 2, &ops[r], &comms[r]),
                     PSRT_OK);
    fb_until_ended(&fb, list, 2);
    for (uint32_t r = 0; r < 2; r++)
        fb_expect(&ops[r], PSRT_ERR_MISMATCH, name, theirs, ours, NULL);
    fb_close(&fb);
}

Test(coll_death, settings_must_be_the_same)
{
    psrti_coll_tune_t tune;
    cr_assert_eq(psrti_coll_tune_parse("allreduce::ring", "a test", 0, &tune), PSRT_OK);
    settings_differ((psrti_coll_params_t){ .chunk = 512 }, "PSRT_COLL_CHUNK", "512", "256");
    settings_differ((psrti_coll_params_t){ .eager = 2048 }, "PSRT_COLL_EAGER", "2048", "1024");
    settings_differ((psrti_coll_params_t){ .message = 1000 }, "PSRT_MAX_MESSAGE", "960",
                    "16777216");
    settings_differ((psrti_coll_params_t){ .tune = &tune }, "other rules", "PSRT_COLL_TUNE",
                    "`tune` of psrt_comm_params_t");
}
