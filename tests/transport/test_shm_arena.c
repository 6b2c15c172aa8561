/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of payloads from ordinary memory: the part of the arena that they use, and until when. */
#include "support/test.h"
#include "transport/shm_rig.h"

/* What is given back soon is used again soon; what is not does not keep others from the rest. */
Test(shm_arena, the_arena_is_used_in_laps)
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

Test(shm_arena, those_who_share_cores_share_a_lap)
{
    enum { LEN = 64 << 10 };
    shm_tx_t tx = { 0 };
    uint64_t off, most = 0;
    rig_open();
    rig_connect();
    shm_iface_t *iface = (shm_iface_t *)rig.a.iface;
    cr_assert_eq(psrti_shm_arena_create(iface), PSRT_OK);
    for (iface->cores = 1; iface->cores <= 3; iface->cores++) {
        for (unsigned i = 0; i < 100; i++) {
            cr_assert_eq(psrti_shm_arena_take(iface, LEN, &tx, &off), PSRT_OK);
            most = PSRTI_MAX(most, off + LEN);
            psrti_shm_arena_give(&tx);
        }
        cr_assert_eq(most, SHM_ARENA_LAP / 2 * PSRTI_MIN(iface->cores, 2));
    }
    rig_close();
}

/* A close would withdraw it: whoever leaves waits until there is none. */
Test(shm_arena, what_was_copied_is_untaken_until_the_peer_has_had_it)
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
