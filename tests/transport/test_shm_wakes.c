/* SPDX-License-Identifier: Apache-2.0 */
/* When a sleeping peer is woken. */
#include "transport/shm_rig.h"

#define PAYLOAD 4096u  /* a descriptor, which is given back      */
#define OF_A_SWEEP 64u /* messages of an endpoint, at most       */

static const psrt_transport_ops_t *const shm = &psrti_transport_shm;

static void send_from_a(unsigned count)
{
    static uint8_t data[PAYLOAD];
    for (unsigned i = 0; i < count; i++) {
        pattern(data, sizeof data, i);
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, data, sizeof data), PSRT_OK);
    }
}

/* a sleeps, with messages on their way to b. */
static void open_asleep(unsigned messages)
{
    rig_open();
    rig_connect();
    RIG_UNTIL(!shm->progress(rig.a.iface) && !shm->progress(rig.b.iface));
    send_from_a(messages);
    cr_assert_eq(shm->arm(rig.a.iface), PSRT_OK);
    rig.b.watched = shm->wait_fd(rig.a.iface);
    cr_assert_not(readable(rig.b.watched));
}

Test(shm_wakes, a_sleeper_is_woken_at_the_end_of_the_turn)
{
    open_asleep(3);
    shm->progress(rig.b.iface);
    cr_assert_eq(rig.b.messages, 3u);
    cr_assert_eq(rig.b.ready, 0u, "woken before all that the turn has for it was there");
    cr_assert(readable(rig.b.watched));
    rig_close();
}

/* The sleeper has more there than one look at its lane takes. */
Test(shm_wakes, a_turn_that_tells_a_sleeper_takes_what_else_there_is)
{
    rig_open();
    rig_connect();
    RIG_UNTIL(!shm->progress(rig.a.iface) && !shm->progress(rig.b.iface));
    send_from_a(OF_A_SWEEP + 8);
    shm->progress(rig.b.iface);
    cr_assert_eq(rig.b.messages, OF_A_SWEEP, "a is awake");
    RIG_UNTIL(!shm->progress(rig.a.iface) && !shm->progress(rig.b.iface));

    send_from_a(OF_A_SWEEP + 8);
    rig.b.messages = 0;
    cr_assert_eq(shm->arm(rig.a.iface), PSRT_OK);
    rig.b.watched = shm->wait_fd(rig.a.iface);
    shm->progress(rig.b.iface);
    cr_assert_eq(rig.b.messages, OF_A_SWEEP + 8);
    cr_assert_eq(rig.b.ready, 0u);
    cr_assert(readable(rig.b.watched));
    rig_close();
}

Test(shm_wakes, what_is_written_between_turns_wakes_at_once)
{
    open_asleep(0);
    cr_assert_eq(side_send(&rig.b, PSRTI_T_CTRL, "", 0), PSRT_OK);
    cr_assert(readable(rig.b.watched));
    rig_close();
}
