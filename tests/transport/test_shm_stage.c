/* SPDX-License-Identifier: Apache-2.0 */
/* Copies for a peer: all bytes, and none more, whatever the length, wherever they come from, through the caches or past
 * them; and the part of the arena that they use. */
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "transport/shm_rig.h"

#define ROOM (128u << 10)
#define GUARD 64u

static uint8_t byte_at(uint64_t i) { return (uint8_t)(i * 7 + i / 251); }

static void copy(shm_stage_t *stage, uint64_t bytes, uint64_t skew)
{
    uint8_t *src = malloc(ROOM + 2 * GUARD), *dst = aligned_alloc(64, ROOM + GUARD);
    cr_assert(src && dst);
    for (uint64_t i = 0; i < bytes; i++)
        src[skew + i] = byte_at(i);
    memset(dst, 0xee, ROOM + GUARD);
    psrti_shm_stage_copy(stage, dst, src + skew, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        cr_assert_eq(dst[i], byte_at(i), "byte %llu of %llu", (unsigned long long)i,
                     (unsigned long long)bytes);
    for (uint64_t i = bytes; i < bytes + GUARD; i++)
        cr_assert_eq(dst[i], 0xee, "%llu bytes: writes behind them", (unsigned long long)bytes);
    free(src);
    free(dst);
}

/* Cost: not known; small; so large that it never falls to what is worth the caches. */
Test(shm_stage, every_length_both_ways)
{
    static const uint64_t lengths[] = { 0,     1,     63,    64,    65,    4096,  16383, 16384,
                                        16385, 16447, 16448, 65536, 65537, 99999, ROOM };
    static const uint64_t costs[] = { 0, 1, UINT64_MAX / 8 };
    for (size_t c = 0; c < sizeof costs / sizeof costs[0]; c++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (uint64_t skew = 0; skew < GUARD; skew += 21) {
                shm_stage_t stage = { .cost = costs[c], .past = skew };
                copy(&stage, lengths[i], skew);
            }
}

/* Copies that were slow go past the caches, and now and then one begins through them: when that is fast again, all do. */
Test(shm_stage, it_comes_back_to_the_caches)
{
    shm_stage_t stage = { .cost = 1u << 20 };
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
        psrti_shm_stage_learn(&stage, 65536, 3000); /* 22 GB/s */
    cr_assert(tries > 1 && tries < 50, "%u", tries);
    uint64_t past = stage.past;
    stage.cost = 1;
    copy(&stage, 65536, 0);
    cr_assert_eq(stage.past, past);
}

Test(shm_stage, an_interrupted_copy_says_little)
{
    shm_stage_t stage = { .cost = 4000 };
    psrti_shm_stage_learn(&stage, 65536, 1000000000);
    cr_assert_eq(stage.cost, 7000);
    stage.cost = 0;
    psrti_shm_stage_learn(&stage, 32768, 2000);
    cr_assert_eq(stage.cost, 4001);
}

/* What is given back soon is used again soon; what is not does not keep others from the rest. */
Test(shm_stage, the_arena_is_used_in_laps)
{
    enum { LEN = 64 << 10 };
    shm_tx_t tx = { 0 }, all[256];
    uint64_t off, taken = 0;
    rig_open();
    shm_iface_t *iface = (shm_iface_t *)rig.a.iface;
    cr_assert_eq(psrti_shm_arena_create(iface), PSRT_OK);
    for (unsigned i = 0; i < 1000; i++) {
        cr_assert_eq(psrti_shm_arena_take(iface, LEN, &tx, &off), PSRT_OK);
        cr_assert(off + LEN <= SHM_ARENA_LAP, "take %u at %llu", i, (unsigned long long)off);
        psrti_shm_arena_give(&tx);
    }
    while (taken < 256 && psrti_shm_arena_take(iface, LEN, &all[taken], &off) == PSRT_OK)
        taken++;
    cr_assert_eq(taken * LEN, iface->arena->size);
    while (taken > 0)
        psrti_shm_arena_give(&all[--taken]);
    rig_close();
}

/* A close would withdraw it: whoever leaves waits until there is none. */
Test(shm_stage, what_was_copied_is_untaken_until_the_peer_has_had_it)
{
    static const uint8_t data[4096] = { 1, 2, 3 };
    const psrt_transport_ops_t *shm = &psrti_transport_shm;
    rig_open();
    rig_connect();
    RIG_UNTIL(!shm->progress(rig.a.iface) && !shm->progress(rig.b.iface));
    cr_assert_eq(shm->untaken(rig.a.iface), 0);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, data, sizeof data), PSRT_OK);
    cr_assert_eq(shm->untaken(rig.a.iface), sizeof data);
    RIG_UNTIL(rig.b.messages == 1);
    RIG_UNTIL(shm->untaken(rig.a.iface) == 0);
    rig_close();
}
