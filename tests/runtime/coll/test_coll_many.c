/* SPDX-License-Identifier: Apache-2.0 */
/* Many operations at once: in one communicator, in several, between pairs; and what a slow member makes others
 * store. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"

#define OPS 60

static psrti_coll_call_t random_call(fabric_t *fb, uint32_t n)
{
    static const uint64_t counts[] = { 0, 1, 5, 33, 64, 300, 900 };
    psrti_coll_call_t like = { .what = (uint8_t)fb_random(fb, PSRTI_COLL_SEND_TO) };
    like.dtype = like.what == PSRTI_COLL_BARRIER ? 0 : (uint8_t)(1 + fb_random(fb, 9));
    like.count = like.what == PSRTI_COLL_BARRIER ? 0 : counts[fb_random(fb, 7)];
    if (call_reduces(like.what)) like.redop = (uint8_t)fb_random(fb, 5);
    if (like.what == PSRTI_COLL_REDUCE || like.what == PSRTI_COLL_BROADCAST ||
        like.what == PSRTI_COLL_GATHER || like.what == PSRTI_COLL_SCATTER)
        like.root = fb_random(fb, n);
    return like;
}

/* Each rank begins its calls when it likes, on two communicators at once. */
static void mixed(uint32_t n, uint64_t seed)
{
    fabric_t fb;
    psrti_comm_t *comms[2][FB_RANKS];
    psrti_coll_params_t params = { .chunk = 128, .eager = 256 };
    call_t *calls = calloc(OPS, sizeof *calls);
    psrti_collop_t *ops[OPS * FB_RANKS];
    uint32_t begun[FB_RANKS] = { 0 };
    size_t total = 0;
    fb_open(&fb, n, seed, &params);
    fb_world(&fb, "one", comms[0]);
    fb_world(&fb, "two", comms[1]);
    fb.on_ended = call_ended;
    for (uint32_t i = 0; i < OPS; i++) {
        call_make(&calls[i], n, random_call(&fb, n), 0, (uint32_t)seed + i);
        for (uint32_t r = 0; r < n; r++)
            ops[total++] = &calls[i].side[r].op;
    }
    for (size_t left = total; left;) {
        uint32_t r = fb_random(&fb, n);
        for (uint32_t k = fb_random(&fb, 12); k && begun[r] < OPS; k--, left--) {
            call_start(&calls[begun[r]], r, comms[calls[begun[r]].salt % 2][r]);
            begun[r]++;
        }
        fb_collect(&fb);
        for (uint32_t k = fb_random(&fb, 40); k; k--)
            (void)fb_step(&fb);
    }
    fb_until_ended(&fb, ops, total);
    for (uint32_t i = 0; i < OPS; i++) {
        call_check(&calls[i], "mixed");
        call_free(&calls[i]);
    }
    free(calls);
    fb_close(&fb);
}

Test(coll_many, collectives_of_two_communicators)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        mixed(1 + (uint32_t)seed % FB_RANKS, seed);
}

/* ---- pairs -------------------------------------------------------------------------------------- */

#define SENDS 24

typedef struct pair {
    side_t send, recv; /* `op` first, for the hook */
    uint32_t from, to;
} pair_t;

static void pair_make(fabric_t *fb, pair_t *p, uint32_t n)
{
    static const uint64_t counts[] = { 0, 1, 31, 64, 700 };
    memset(p, 0, sizeof *p);
    p->from = fb_random(fb, n);
    p->to = (p->from + 1 + fb_random(fb, n - 1)) % n;
    uint64_t bytes = counts[fb_random(fb, 5)] * 4;
    p->send.in = malloc(bytes + 1);
    p->recv.out = malloc(bytes + 1);
    p->send.in_bytes = p->recv.out_bytes = bytes;
    p->send.in_counts[0] = fb->random; /* what the bytes come from */
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)p->send.in)[i] = (uint8_t)psrti_mix64(fb->random + i);
    p->send.call = (psrti_coll_call_t){ .what = PSRTI_COLL_SEND_TO,
                                        .dtype = PSRT_F32,
                                        .root = p->to,
                                        .count = bytes / 4,
                                        .in = p->send.in };
    p->recv.call = (psrti_coll_call_t){ .what = PSRTI_COLL_RECV_FROM,
                                        .dtype = PSRT_F32,
                                        .root = p->from,
                                        .count = bytes / 4,
                                        .out = p->recv.out };
}

static void pair_check(pair_t *p)
{
    cr_assert_eq(p->send.op.status, PSRT_OK);
    cr_assert_eq(p->recv.op.status, PSRT_OK);
    for (uint64_t i = 0; i < p->recv.out_bytes; i++)
        cr_assert_eq(((uint8_t *)p->recv.result)[i],
                     (uint8_t)psrti_mix64(p->send.in_counts[0] + i));
    free(p->send.in);
    free(p->recv.out);
    free(p->send.result);
    free(p->recv.result);
}

static void pairs(uint32_t n, uint64_t seed)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_coll_params_t params = { .chunk = 128, .eager = 256 };
    pair_t *p = calloc(SENDS, sizeof *p);
    psrti_collop_t *ops[2 * SENDS];
    uint32_t sent = 0, received = 0;
    fb_open(&fb, n, seed, &params);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    for (uint32_t i = 0; i < SENDS; i++) {
        pair_make(&fb, &p[i], n);
        ops[2 * i] = &p[i].send.op;
        ops[2 * i + 1] = &p[i].recv.op;
    }
    while (sent < SENDS || received < SENDS) {
        if (fb_random(&fb, 2) && sent < SENDS) {
            psrti_coll_start(comms[p[sent].from], &p[sent].send.call, &p[sent].send.op);
            sent++;
        } else if (received < SENDS) {
            psrti_coll_start(comms[p[received].to], &p[received].recv.call, &p[received].recv.op);
            received++;
        }
        fb_collect(&fb);
        for (uint32_t k = fb_random(&fb, 10); k; k--)
            (void)fb_step(&fb);
    }
    fb_until_ended(&fb, ops, 2 * SENDS);
    for (uint32_t i = 0; i < SENDS; i++)
        pair_check(&p[i]);
    free(p);
    fb_close(&fb);
}

Test(coll_many, sends_and_receives)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        pairs(2 + (uint32_t)seed % (FB_RANKS - 1), seed);
}

/* ---- a slow member ------------------------------------------------------------------------------ */

/* What reaches a member that does not call is little, however much others call. */
Test(coll_many, what_a_member_that_does_not_call_stores_is_bounded)
{
    enum { CALLS = 50, COUNT = 200 };
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    psrti_coll_params_t params = { .chunk = 128, .eager = 512 };
    call_t *calls = calloc(CALLS, sizeof *calls);
    psrti_collop_t *ops[2 * CALLS];
    fb_open(&fb, 2, 5, &params);
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    uint64_t before = fb.delivered;
    for (uint32_t i = 0; i < CALLS; i++) {
        psrti_coll_call_t like = { .what = PSRTI_COLL_BROADCAST,
                                   .dtype = PSRT_F32,
                                   .count = COUNT };
        call_make(&calls[i], 2, like, 0, i);
        call_start(&calls[i], 0, comms[0]);
        ops[2 * i] = &calls[i].side[0].op;
        ops[2 * i + 1] = &calls[i].side[1].op;
    }
    fb_settle(&fb);
    uint64_t early = fb.delivered - before;
    cr_assert_leq(early, PSRTI_COLL_AHEAD * (512 / 128), "%llu messages",
                  (unsigned long long)early);
    for (uint32_t i = 0; i < CALLS; i++) {
        call_start(&calls[i], 1, comms[1]);
        fb_settle(&fb);
    }
    fb_until_ended(&fb, ops, 2 * CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        call_check(&calls[i], "slow");
        call_free(&calls[i]);
    }
    free(calls);
    fb_close(&fb);
}
