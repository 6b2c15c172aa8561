/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance/harness.h"

#include <psrt/psrt.h>

#include <stdlib.h>
#include <string.h>

enum { FRAMES = 4000, LEN = 5000 };

static psrti_fault_counts_t run_with(const char *spec, void (*run)(world_t *w))
{
    const psrt_transport_ops_t *ops;
    psrti_fault_counts_t counts;
    cr_assert_eq(psrti_transport_fault_create(&psrti_transport_inproc, spec, &ops), PSRT_OK, "%s",
                 psrt_last_error());
    run_case(ops, run);
    psrti_transport_fault_counts(ops, &counts);
    psrti_transport_fault_destroy(ops);
    return counts;
}

/* Sends FRAMES messages of several sizes; what arrived is in `seen` (times each), `swapped` counts
 * frames that came after a later one. */
static unsigned seen[FRAMES], arrived, swapped;
static uint8_t frame_type = PSRTI_T_PUSH;

static psrt_rx_t tally(peer_t *peer, psrt_msg_t *msg)
{
    static uint8_t copy[LEN];
    uint64_t *newest = peer->hook_arg, seq = msg->hdr.seq;
    cr_assert(seq < FRAMES && msg->len == (seq % 2 ? LEN : 16));
    cr_assert_eq(read_payload(peer, msg, copy), PSRT_OK);
    cr_assert(filled_with(copy, msg->len, seq), "frame %llu is torn", (unsigned long long)seq);
    psrt_hdr_t want = make_hdr(frame_type, msg->hdr.length, seq);
    want.dtype = msg->hdr.dtype;
    cr_assert(same_hdr(&msg->hdr, &want));
    if (seq < *newest) swapped++;
    if (seq > *newest) *newest = seq;
    seen[seq]++;
    arrived++;
    return PSRT_RX_DONE;
}

static void send_frame(world_t *w, seen_ep_t *out, uint8_t *data, uint64_t i)
{
    uint64_t len = i % 2 ? LEN : 16, until = psrti_now_ns() + DEADLINE_NS;
    psrt_hdr_t hdr = make_hdr(frame_type, frame_type == PSRTI_T_PUSH ? len / 4 : len, i);
    test_tx_t tx;
    psrt_status_t status;
    hdr.dtype = frame_type == PSRTI_T_PUSH ? PSRT_F32 : 0;
    tx_init(&tx);
    fill(data, len, i);
    while ((status = w->ops->send(out->ep, &hdr, data, len, 0, &tx.tx)) == PSRT_ERR_AGAIN) {
        cr_assert(psrti_now_ns() < until);
        pump(w);
    }
    cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS);
    if (status == PSRT_IN_PROGRESS) PUMP_UNTIL(w, tx.done);
    cr_assert(status == PSRT_OK || tx.status == PSRT_OK);
    memset(data, 0xee, len); /* a delayed frame must have a copy */
}

static void traffic(world_t *w)
{
    uint64_t newest = 0;
    uint8_t data[LEN];
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    memset(seen, 0, sizeof seen);
    arrived = swapped = 0;
    b->hook = tally;
    b->hook_arg = &newest;
    connect_pair(w, &out, &in);
    for (uint64_t i = 0; i < FRAMES; i++)
        send_frame(w, out, data, i);
    /* arm says OK once nothing is kept back any more. */
    while (pump(w) || w->ops->arm(a->iface) != PSRT_OK || w->ops->arm(b->iface) != PSRT_OK)
        continue;
    cr_assert_eq(out->lost + in->lost, 0);
}

static unsigned missing(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < FRAMES; i++)
        count += seen[i] == 0;
    return count;
}

/* A share of 5 % at each of the two ends, within six standard deviations. */
static void check_share(uint64_t count)
{
    cr_assert(count > 300 && count < 500, "%llu of %d frames, twice 5 %%",
              (unsigned long long)count, FRAMES);
}

Test(fault, drop, .timeout = 120)
{
    psrti_fault_counts_t counts = run_with("seed=7,drop=0.05", traffic);
    check_share(counts.drop);
    cr_assert_eq(missing(), counts.drop);
    cr_assert_eq(arrived, FRAMES - counts.drop);
    cr_assert_eq(swapped, 0);
    cr_assert(counts.dup + counts.reorder + counts.delay + counts.cut == 0);
}

Test(fault, dup, .timeout = 120)
{
    psrti_fault_counts_t counts = run_with("seed=7,dup=0.05", traffic);
    check_share(counts.dup);
    cr_assert_eq(missing(), 0);
    cr_assert_eq(arrived, FRAMES + counts.dup);
    cr_assert_eq(counts.drop, 0);
}

Test(fault, reorder, .timeout = 120)
{
    psrti_fault_counts_t counts = run_with("seed=7,reorder=0.05", traffic);
    check_share(counts.reorder);
    cr_assert_eq(missing(), 0);
    cr_assert_eq(arrived, FRAMES);
    cr_assert(swapped > counts.reorder / 2 && swapped <= counts.reorder, "%u of %llu swapped",
              swapped, (unsigned long long)counts.reorder);
}

Test(fault, delay, .timeout = 120)
{
    psrti_fault_counts_t counts = run_with("seed=7,delay=0.05", traffic);
    check_share(counts.delay);
    cr_assert_eq(missing(), 0);
    cr_assert_eq(arrived, FRAMES);
    cr_assert(swapped > 0);
}

/* The same seed meets the same faults, another seed others. */
Test(fault, seed, .timeout = 120)
{
    static unsigned first[FRAMES];
    const char *spec = "seed=11,drop=0.02,dup=0.02,reorder=0.02,delay=0.02";
    psrti_fault_counts_t one = run_with(spec, traffic);
    memcpy(first, seen, sizeof first);
    psrti_fault_counts_t two = run_with(spec, traffic);
    cr_assert(memcmp(&one, &two, sizeof one) == 0);
    cr_assert(memcmp(first, seen, sizeof first) == 0);
    cr_assert(one.drop && one.dup && one.reorder && one.delay);
    cr_assert_eq(missing(), one.drop);
    run_with("seed=12,drop=0.02,dup=0.02,reorder=0.02,delay=0.02", traffic);
    cr_assert(memcmp(first, seen, sizeof first) != 0);
}

Test(fault, control_is_spared, .timeout = 120)
{
    frame_type = PSRTI_T_CTRL;
    psrti_fault_counts_t counts = run_with("seed=3,drop=0.5", traffic);
    cr_assert(counts.drop == 0 && missing() == 0);
    counts = run_with("seed=3,drop=0.05,ctrl=1", traffic);
    check_share(counts.drop);
    frame_type = PSRTI_T_HELLO;
    counts = run_with("seed=3,drop=0.5,ctrl=1", traffic);
    cr_assert(counts.drop == 0 && missing() == 0);
}

/* ---- cut --------------------------------------------------------------------------------------- */

static unsigned cut_before, cut_after;

/* One frame and one answer a connection, until it is cut; both sides must learn of it. */
static void reconnecting(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    cut_before = cut_after = 0;
    for (int round = 0; round < 60; round++) {
        seen_ep_t *out, *in;
        uint8_t data[LEN];
        psrt_hdr_t hdr = make_hdr(PSRTI_T_PUSH, LEN / 4, 1);
        test_tx_t tx;
        connect_pair(w, &out, &in);
        hdr.dtype = PSRT_F32;
        fill(data, LEN, 1);
        for (;;) { /* until a cut */
            peer_clear(b);
            tx_init(&tx);
            psrt_status_t status = w->ops->send(out->ep, &hdr, data, LEN, 0, &tx.tx);
            cr_assert(status != PSRT_ERR_AGAIN);
            PUMP_UNTIL(w, out->lost || in->lost || (status == PSRT_IN_PROGRESS && tx.done));
            if (out->lost || in->lost) break;
            cr_assert_eq(b->rx_count, 1);
        }
        PUMP_UNTIL_NS(w, LOST_NS, out->lost && in->lost);
        cr_assert(out->why == PSRT_ERR_PEER_LOST && in->why == PSRT_ERR_PEER_LOST);
        if (b->rx_count) cr_assert(filled_with(b->rx[0].data, LEN, 1));
        *(b->rx_count ? &cut_after : &cut_before) += 1;
        cr_assert(w->ops->send(out->ep, &hdr, data, LEN, 0, &tx.tx) < 0);
        hang_up(a, out);
        hang_up(b, in);
        a->ep_count = b->ep_count = 0;
    }
}

Test(fault, cut, .timeout = 120)
{
    psrti_fault_counts_t counts = run_with("seed=5,cut=0.2", reconnecting);
    cr_assert(counts.cut >= 60);
    cr_assert(cut_before > 10 && cut_after > 5, "%u before, %u after", cut_before, cut_after);
}

/* A user that holds a message when its endpoint is cut may read it until it closes. */
static void hold_over_cut(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    static uint8_t data[LEN * 64], copy[LEN];
    test_tx_t tx[64];
    unsigned sent = 0, pending = 0;
    connect_pair(w, &out, &in);
    b->verdict = PSRT_RX_HOLD;
    psrt_hdr_t hdr = make_hdr(PSRTI_T_PUSH, LEN / 4, 1);
    hdr.dtype = PSRT_F32;
    while (sent < 64 && !in->lost && !out->lost) {
        fill(data + sent * LEN, LEN, sent);
        tx_init(&tx[sent]);
        hdr.seq = sent;
        psrt_status_t status = w->ops->send(out->ep, &hdr, data + sent * LEN, LEN, 0, &tx[sent].tx);
        if (status < 0) break;
        pending += status == PSRT_IN_PROGRESS;
        sent++;
        pump(w);
    }
    PUMP_UNTIL(w, in->lost || out->lost);
    if (in->lost && !out->lost) { /* cut at the receiver: the sender may not get its memory yet */
        for (size_t i = 0; i < b->held_count; i++) {
            cr_assert_eq(read_payload(b, &b->held[i], copy), PSRT_OK);
            cr_assert(filled_with(copy, LEN, b->held[i].hdr.seq));
        }
        for (size_t i = 0; i < b->held_count; i++)
            w->ops->release(b->iface, &b->held[i]);
    }
    hang_up(a, out);
    unsigned done = 0;
    for (unsigned i = 0; i < sent; i++)
        done += tx[i].done;
    cr_assert_eq(done, pending);
}

Test(fault, hold_over_cut, .timeout = 120)
{
    for (int seed = 1; seed <= 20; seed++) {
        char spec[64];
        snprintf(spec, sizeof spec, "seed=%d,cut=0.1", seed);
        run_with(spec, hold_over_cut);
    }
}

/* ---- specification ----------------------------------------------------------------------------- */

Test(fault, bad_specifications)
{
    static const char *const bad[] = { "drop",     "drop=x",   "drop=-0.1",
                                       "drop=1.1", "dorp=0.1", "drop=0.6,dup=0.6",
                                       "seed=-1",  "drop=nan", "seed=1 ,x=1" };
    const psrt_transport_ops_t *ops = NULL;
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        cr_assert_eq(psrti_transport_fault_create(&psrti_transport_inproc, bad[i], &ops),
                     PSRT_ERR_INVALID, "%s", bad[i]);
        cr_assert(ops == NULL && psrt_last_error()[0], "%s", bad[i]);
    }
    psrti_transport_fault_create(&psrti_transport_inproc, "dorp=0.1", &ops);
    cr_assert(strstr(psrt_last_error(), "drop") != NULL, "no nearest name in: %s",
              psrt_last_error());
}

/* Several wrappers at one time, a readable end, and room again afterwards. */
Test(fault, many_wrappers)
{
    const psrt_transport_ops_t *ops[100];
    int count = 0;
    psrt_status_t status;
    while (count < 100 && (status = psrti_transport_fault_create(&psrti_transport_inproc, "",
                                                                 &ops[count])) == PSRT_OK)
        count++;
    cr_assert_eq(status, PSRT_ERR_LIMIT);
    cr_assert(count >= 8 && strstr(psrt_last_error(), "wrappers") != NULL);
    for (int i = 0; i < count; i++)
        psrti_transport_fault_destroy(ops[i]);
    cr_assert_eq(psrti_transport_fault_create(&psrti_transport_inproc, "", &ops[0]), PSRT_OK);
    cr_assert_str_eq(ops[0]->name, "fault(inproc)");
    psrti_transport_fault_destroy(ops[0]);
    psrti_transport_fault_destroy(NULL);
}
