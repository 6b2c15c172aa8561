/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that no engine sends: they close their link, and touch nothing of other communicators. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/calls.h"
#include "runtime/coll/coll_int.h"

enum { N = 3 };

typedef struct rig {
    fabric_t fb;
    psrti_comm_t *comms[FB_RANKS], *others[FB_RANKS];
    call_t call; /* begun by 0 and 2, so that 0 waits for 1 */
} rig_t;

static rig_t rig;

static void setup(void)
{
    psrti_coll_call_t like = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 700 };
    psrti_coll_tune_t rules;
    cr_assert_eq(psrti_coll_tune_parse("allreduce:direct", "tune", 0, &rules), PSRT_OK);
    psrti_coll_params_t params = { .tune = &rules, .chunk = 1024 };
    fb_open(&rig.fb, N, 4, &params);
    fb_world(&rig.fb, "w", rig.comms);
    const uint32_t pair[] = { 0, 2 };
    psrti_collop_t ops[2] = { 0 }, *list[] = { &ops[0], &ops[1] };
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(psrti_comm_create(rig.fb.rank[pair[i]].coll, "pair", pair, 2, &ops[i],
                                       &rig.others[pair[i]]),
                     PSRT_OK);
    fb_until_ended(&rig.fb, list, 2);
    call_make(&rig.call, N, like, 0, 1);
    call_start(&rig.call, 0, rig.comms[0]);
    call_start(&rig.call, 2, rig.comms[2]);
    fb_settle(&rig.fb);
}

static void teardown(void)
{
    fb_close(&rig.fb);
    call_free(&rig.call);
}

/* A message of rank 1 to rank 0 that is right in every respect: what it would send first. */
static psrt_hdr_t right(uint16_t kind)
{
    const psrti_comm_t *c = rig.comms[1];
    return (psrt_hdr_t){ .seq_floor = kind,
                         .table = c->members[0].handle,
                         .dtype = PSRT_F32,
                         .seq = 1,
                         .step = 700,
                         .priority = PSRTI_COLL_ALLREDUCE,
                         .status = PSRTI_ALG_DIRECT };
}

static void other_goes_on(void)
{
    call_t c;
    psrti_coll_call_t like = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 9 };
    psrti_collop_t *ops[2];
    call_make(&c, 2, like, 0, 1);
    for (uint32_t i = 0; i < 2; i++) {
        call_start(&c, i, rig.others[2 * i]);
        ops[i] = &c.side[i].op;
    }
    rig.fb.on_ended = NULL;
    fb_settle(&rig.fb);
    for (uint32_t i = 0; i < 2; i++)
        fb_expect(ops[i], PSRT_OK, NULL);
    call_free(&c);
}

static void is_refused(psrt_hdr_t hdr, const char *what)
{
    static const char data[8192];
    cr_assert_eq(fb_inject(&rig.fb, 1, 0, hdr, data), PSRT_RX_BAD, "%s was accepted", what);
    fb_settle(&rig.fb);
    for (uint32_t r = 0; r < N; r += 2)
        fb_expect(&rig.call.side[r].op, PSRT_ERR_PEER_LOST, "rank 1", NULL);
    other_goes_on();
}

#define REFUSED(name, kind, change)                                                                \
    Test(coll_hostile, name, .init = setup, .fini = teardown)                                      \
    {                                                                                              \
        psrt_hdr_t hdr = right(kind);                                                              \
        change;                                                                                    \
        is_refused(hdr, #name);                                                                    \
    }

REFUSED(no_handle, PSRTI_COLL_DATA, hdr.table = 0)
REFUSED(handle_that_never_was, PSRTI_COLL_DATA, hdr.table = 1000)
REFUSED(communicator_of_others, PSRTI_COLL_DATA, hdr.table = rig.others[0]->handle)
REFUSED(unknown_kind, 77, (void)0)
REFUSED(unknown_collective, PSRTI_COLL_DATA, hdr.priority = 15)
REFUSED(number_zero, PSRTI_COLL_DATA, hdr.seq = 0)
REFUSED(number_far_ahead, PSRTI_COLL_DATA, hdr.seq = 2 + PSRTI_COLL_AHEAD)
REFUSED(number_of_the_end_of_time, PSRTI_COLL_DATA, hdr.seq = UINT64_MAX)
REFUSED(early_and_too_long, PSRTI_COLL_DATA, (hdr.seq = 2, hdr.length = 2048))
REFUSED(chunk_beyond_the_window, PSRTI_COLL_DATA, hdr.term = PSRTI_COLL_WINDOW)
REFUSED(chunk_of_the_end_of_time, PSRTI_COLL_DATA, hdr.term = UINT32_MAX)
REFUSED(chunk_that_the_call_has_not, PSRTI_COLL_DATA, hdr.term = 5)
REFUSED(index_too_high, PSRTI_COLL_DATA, (hdr.offset = 4, hdr.length = 256))
REFUSED(index_of_the_end_of_time, PSRTI_COLL_DATA, hdr.offset = UINT64_MAX)
REFUSED(too_short, PSRTI_COLL_DATA, hdr.length = 4)
REFUSED(too_long, PSRTI_COLL_DATA, hdr.length = 8192)
REFUSED(ready_with_data, PSRTI_COLL_READY, hdr.length = 8)
REFUSED(ready_number_zero, PSRTI_COLL_READY, hdr.seq = 0)
REFUSED(open_without_handle, PSRTI_COLL_OPEN, (hdr.offset = 0, hdr.length = 16))
REFUSED(open_too_short, PSRTI_COLL_OPEN, (hdr.offset = 9, hdr.length = 15))
REFUSED(open_too_long, PSRTI_COLL_OPEN, (hdr.offset = 9, hdr.length = 17))
REFUSED(long_note, PSRTI_COLL_NOTED, hdr.length = PSRTI_COLL_NOTE + 1)
REFUSED(long_abort, PSRTI_COLL_ABORT, hdr.length = 4096)
REFUSED(data_of_a_receive, PSRTI_COLL_DATA, hdr.priority = PSRTI_COLL_RECV_FROM)

/* The second one of the same place. */
Test(coll_hostile, twice, .init = setup, .fini = teardown)
{
    static const char data[960]; /* a third of 700 elements, in whole lines */
    psrt_hdr_t hdr = right(PSRTI_COLL_DATA);
    hdr.length = sizeof data;
    cr_assert_eq(fb_inject(&rig.fb, 1, 0, hdr, data), PSRT_RX_DONE);
    is_refused(hdr, "a message that came before");
}

/* Opens that nobody asked for are kept up to a limit. */
Test(coll_hostile, opens_without_end, .init = setup, .fini = teardown)
{
    static const char where[16];
    psrt_hdr_t hdr = { .seq_floor = PSRTI_COLL_OPEN, .length = sizeof where };
    uint32_t i = 0;
    psrt_rx_t rx;
    do {
        hdr.seq = hdr.offset = ++i;
        rx = fb_inject(&rig.fb, 1, 0, hdr, where);
    } while (rx == PSRT_RX_DONE && i < 100000);
    cr_assert_eq(rx, PSRT_RX_BAD);
    for (uint32_t r = 0; r < N; r += 2)
        free(rig.call.side[r].op.text), rig.call.side[r].op.text = NULL;
    other_goes_on();
}

/* Empty messages of a call that was not begun: there is an end to them too. */
Test(coll_hostile, early_without_end, .init = setup, .fini = teardown)
{
    psrt_hdr_t hdr = right(PSRTI_COLL_DATA);
    psrt_rx_t rx;
    uint32_t i = 0;
    hdr.seq = 5;
    do
        rx = fb_inject(&rig.fb, 1, 0, hdr, NULL);
    while (rx == PSRT_RX_DONE && ++i < 1000000);
    cr_assert_eq(rx, PSRT_RX_BAD);
    cr_assert(i < 20000);
}

/* Nonsense that was kept is found when its call begins, and ends the communicator. */
Test(coll_hostile, early_nonsense, .init = setup, .fini = teardown)
{
    static const char data[64];
    psrt_hdr_t hdr = right(PSRTI_COLL_DATA);
    call_t c;
    hdr.seq = 2;
    hdr.step = 5;
    hdr.length = 8;
    hdr.offset = 1;
    cr_assert_eq(fb_inject(&rig.fb, 1, 0, hdr, data), PSRT_RX_DONE);
    psrti_coll_call_t like = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 5 };
    call_make(&c, N, like, 0, 1);
    call_start(&c, 0, rig.comms[0]);
    fb_settle(&rig.fb);
    fb_expect(&c.side[0].op, PSRT_ERR_PEER_LOST, "rank 1", NULL);
    call_free(&c);
    other_goes_on();
}

/* An abort's text is shown, but not its control characters. */
Test(coll_hostile, abort_text, .init = setup, .fini = teardown)
{
    static const char text[] = "no\nsuch\x1b[31m thing";
    psrt_hdr_t hdr = right(PSRTI_COLL_ABORT);
    hdr.offset = rig.comms[1]->handle;
    hdr.length = sizeof text - 1;
    hdr.status = 250; /* no status */
    cr_assert_eq(fb_inject(&rig.fb, 1, 0, hdr, text), PSRT_RX_DONE);
    fb_settle(&rig.fb);
    fb_expect(&rig.call.side[0].op, PSRT_ERR_PEER_LOST, "no?such?[31m thing", NULL);
    other_goes_on();
}

/* What comes for a communicator that was freed is dropped. */
Test(coll_hostile, late_message, .init = setup, .fini = teardown)
{
    psrt_hdr_t hdr = right(PSRTI_COLL_READY);
    psrti_comm_free(rig.comms[0]);
    fb_settle(&rig.fb);
    cr_assert_eq(fb_inject(&rig.fb, 1, 0, hdr, NULL), PSRT_RX_DONE);
    other_goes_on();
}
