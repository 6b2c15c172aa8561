/* SPDX-License-Identifier: Apache-2.0 */
/* Results: every collective by every algorithm, between engines whose links do what they may. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"

static const uint64_t counts[] = { 0, 1, 2, 3, 7, 1000, 32, 33, 64, 65, 255, 257 };

/* dtype and redop in turn, so that all pairs come with all sizes. */
static psrti_coll_call_t nth(uint32_t i, uint8_t what, uint64_t count, uint32_t root)
{
    psrti_coll_call_t like = { .what = what, .count = count, .root = root };
    like.dtype = what == PSRTI_COLL_BARRIER ? 0 : (uint8_t)(PSRT_F32 + i % 9);
    if (call_reduces(what)) like.redop = (uint8_t)(PSRT_SUM + i / 9 % 5);
    if (what == PSRTI_COLL_BARRIER) like.count = 0;
    return like;
}

static int has_root(uint8_t what)
{
    return what == PSRTI_COLL_REDUCE || what == PSRTI_COLL_BROADCAST || what == PSRTI_COLL_GATHER ||
           what == PSRTI_COLL_SCATTER;
}

/* An exchange in place is made on one buffer, which the case with counts of its own does not have. */
static void one(fabric_t *fb, psrti_comm_t **comms, psrti_coll_call_t like, int in_place,
                uint32_t salt, const char *about)
{
    call_t c;
    psrti_collop_t *ops[FB_RANKS];
    call_make(&c, fb->n, like, in_place && like.what != PSRTI_COLL_ALLTOALLV, salt);
    for (uint32_t i = 0, first = fb_random(fb, fb->n); i < fb->n; i++) {
        uint32_t r = (first + i) % fb->n;
        ops[r] = &c.side[r].op;
        call_start(&c, r, comms[r]);
        fb_collect(fb);
        for (uint32_t steps = fb_random(fb, 4); steps; steps--)
            (void)fb_step(fb);
    }
    fb_until_ended(fb, ops, fb->n);
    call_check(&c, about);
    call_free(&c);
}

/* All counts and roots by one algorithm on some ranks. */
static void by_algorithm(uint8_t what, uint8_t algorithm, uint32_t n, uint32_t *salt)
{
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS];
    char tune[64], about[96];
    psrti_collective_t plan = what == PSRTI_COLL_ALLGATHERV  ? PSRTI_COLL_ALLGATHER
                              : what == PSRTI_COLL_ALLTOALLV ? PSRTI_COLL_ALLTOALL
                                                             : (psrti_collective_t)what;
    if (!psrti_coll_plan_exists(plan, algorithm, n)) return;
    snprintf(tune, sizeof tune, "%s:%s", psrti_collective_name(plan),
             psrti_coll_algorithm_name(algorithm));
    static psrti_coll_tune_t rules;
    cr_assert_eq(psrti_coll_tune_parse(tune, "tune", 0, &rules), PSRT_OK);
    psrti_coll_params_t params = { .tune = &rules };
    if (*salt % 3 == 1) params.chunk = 64, params.eager = 128, params.message = 128;
    if (*salt % 3 == 2) params.chunk = 1 << 20, params.eager = 1 << 16;
    fb_open(&fb, n, 1 + *salt, &params);
    fb.most = params.message; /* else the links refuse it */
    if (*salt % 2) fb.by_ref = UINT64_MAX;
    fb_world(&fb, "w", comms);
    fb.on_ended = call_ended;
    for (size_t i = 0; i < PSRTI_COUNT(counts); i++)
        for (int in_place = 0; in_place < 2; in_place++, ++*salt) {
            snprintf(about, sizeof about, "%s, salt %u", tune, *salt);
            one(&fb, comms, nth(*salt, what, counts[i], has_root(what) ? *salt % n : 0), in_place,
                *salt, about);
        }
    fb_close(&fb);
}

static void all_of(uint8_t what)
{
    uint32_t salt = what;
    for (uint32_t n = 1; n <= FB_RANKS; n++)
        for (unsigned a = 0; a < PSRTI_ALG_COUNT; a++)
            by_algorithm(what, (uint8_t)a, n, &salt);
}

Test(coll, allreduce) { all_of(PSRTI_COLL_ALLREDUCE); }
Test(coll, reduce) { all_of(PSRTI_COLL_REDUCE); }
Test(coll, broadcast) { all_of(PSRTI_COLL_BROADCAST); }
Test(coll, allgather) { all_of(PSRTI_COLL_ALLGATHER); }
Test(coll, allgatherv) { all_of(PSRTI_COLL_ALLGATHERV); }
Test(coll, reduce_scatter) { all_of(PSRTI_COLL_REDUCE_SCATTER); }
Test(coll, alltoall) { all_of(PSRTI_COLL_ALLTOALL); }
Test(coll, alltoallv) { all_of(PSRTI_COLL_ALLTOALLV); }
Test(coll, gather) { all_of(PSRTI_COLL_GATHER); }
Test(coll, scatter) { all_of(PSRTI_COLL_SCATTER); }
Test(coll, barrier) { all_of(PSRTI_COLL_BARRIER); }
