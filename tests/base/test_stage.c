/* SPDX-License-Identifier: Apache-2.0 */
/* Copies for another process: all bytes, and none more, whatever the length, wherever they come from, through the caches
 * or past them. */
#include <stdlib.h>
#include <string.h>

#include "base/stage.h"
#include "support/test.h"

#define ROOM (128u << 10)
#define GUARD 64u

static uint8_t byte_at(uint64_t i) { return (uint8_t)(i * 7 + i / 251); }

static void copy(psrti_stage_t *stage, uint64_t bytes, uint64_t skew)
{
    uint8_t *src = malloc(ROOM + 2 * GUARD), *dst = aligned_alloc(64, ROOM + GUARD);
    cr_assert(src && dst);
    for (uint64_t i = 0; i < bytes; i++)
        src[skew + i] = byte_at(i);
    memset(dst, 0xee, ROOM + GUARD);
    psrti_stage_copy(stage, dst, src + skew, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        cr_assert_eq(dst[i], byte_at(i), "byte %llu of %llu", (unsigned long long)i,
                     (unsigned long long)bytes);
    for (uint64_t i = bytes; i < bytes + GUARD; i++)
        cr_assert_eq(dst[i], 0xee, "%llu bytes: writes behind them", (unsigned long long)bytes);
    free(src);
    free(dst);
}

/* Cost: not known; small; so large that it never falls to what is worth the caches. */
Test(stage, every_length_both_ways)
{
    static const uint64_t lengths[] = { 0,     1,     63,    64,    65,    4096,  16383, 16384,
                                        16385, 16447, 16448, 65536, 65537, 99999, ROOM };
    static const uint64_t costs[] = { 0, 1, UINT64_MAX / 8 };
    for (size_t c = 0; c < sizeof costs / sizeof costs[0]; c++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (uint64_t skew = 0; skew < GUARD; skew += 21) {
                psrti_stage_t stage = { .cost = costs[c], .past = skew };
                copy(&stage, lengths[i], skew);
            }
}

/* Copies that were slow go past the caches, and now and then one begins through them: when that is fast again, all do. */
Test(stage, it_comes_back_to_the_caches)
{
    psrti_stage_t stage = { .cost = 1u << 20 };
    unsigned tries = 0;
    for (unsigned i = 0; i < 128; i++) {
        stage.cost = 1u << 20; /* whatever this machine takes */
        copy(&stage, 65536, 0);
        tries += stage.cost != 1u << 20;
    }
    cr_assert_eq(stage.past, 128);
    cr_assert_eq(tries, 2);
    stage.cost = 1u << 20;
    for (tries = 0; tries < 50 && stage.cost > 16384; tries++)
        psrti_stage_learn(&stage, 65536, 3000); /* 22 GB/s */
    cr_assert(tries > 1 && tries < 50, "%u", tries);
    uint64_t past = stage.past;
    stage.cost = 1;
    copy(&stage, 65536, 0);
    cr_assert_eq(stage.past, past);
}

Test(stage, an_interrupted_copy_says_little)
{
    psrti_stage_t stage = { .cost = 4000 };
    psrti_stage_learn(&stage, 65536, 1000000000);
    cr_assert_eq(stage.cost, 7000);
    stage.cost = 0;
    psrti_stage_learn(&stage, 32768, 2000);
    cr_assert_eq(stage.cost, 4001);
}
