/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance of transports: connecting, contents, order, flow control, waking. */
#include "conformance/harness.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* ---- connecting -------------------------------------------------------------------------------- */

static void case_connect(world_t *w)
{
    static const char *const foreign[] = { "",     "x",    "inproc:",       "inproc:1:0:1",
                                           "shm:", "zmq:", "GET / HTTP/1.1" };
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    psrt_ep_t *ep = NULL;
    cr_assert(w->ops->reachable(a->iface, b->addr), "%s: %s", w->ops->name, b->addr);
    for (size_t i = 0; i < PSRTI_COUNT(foreign); i++) {
        cr_assert_eq(w->ops->reachable(a->iface, foreign[i]), 0, "%s: reaches \"%s\"", w->ops->name,
                     foreign[i]);
        cr_assert(w->ops->ep_open(a->iface, foreign[i], &ep) < 0 && ep == NULL, "%s: opened \"%s\"",
                  w->ops->name, foreign[i]);
    }
    char tight[4];
    cr_assert(w->ops->iface_addr(b->iface, tight, sizeof tight) < 0);

    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    cr_assert_eq(out->up, 1);
    cr_assert_eq(in->up, 1);
    cr_assert_eq(b->ep_count, 1);
    cr_assert(in->ep->iface == b->iface);
}

Test(conformance, connect, .timeout = 120) { for_each_transport(case_connect); }

static void case_before_up(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *ep = dial(a, b->addr);
    psrt_hdr_t hdr = make_hdr(PSRTI_T_ACK, 0, 1);
    cr_assert_eq(w->ops->send(ep->ep, &hdr, NULL, 0, 0, NULL), PSRT_ERR_AGAIN, "%s", w->ops->name);
    PUMP_UNTIL(w, ep->up && ep->writable);
    PUMP_UNTIL(w, b->ep_count == 1);
    cr_assert_eq(b->rx_count, 0, "%s: a refused send arrived", w->ops->name);
    cr_assert_eq(w->ops->send(ep->ep, &hdr, NULL, 0, 0, NULL), PSRT_OK, "%s", w->ops->name);
    PUMP_UNTIL(w, b->rx_count == 1);
    cr_assert(same_hdr(&b->rx[0].hdr, &hdr));
}

Test(conformance, before_up, .timeout = 120) { for_each_transport(case_before_up); }

/* An interface that dials its own address, where the transport says that it can. */
static void case_self(world_t *w)
{
    peer_t *a = peer_open(w, 0, 1);
    if (!w->ops->reachable(a->iface, a->addr)) return;
    uint8_t data[5000];
    test_tx_t tx;
    tx_init(&tx);
    fill(data, sizeof data, 5);
    seen_ep_t *ep = dial(a, a->addr);
    PUMP_UNTIL(w, a->ep_count == 2 && ep->up);
    psrt_status_t status = send_ctrl(w, ep->ep, data, sizeof data, 5, &tx.tx);
    PUMP_UNTIL(w, a->rx_count == 1 && (status == PSRT_OK || tx.done));
    cr_assert(filled_with(a->rx[0].data, sizeof data, 5));
    cr_assert(a->rx[0].ep == a->eps[1].ep);
    status = send_ctrl(w, a->eps[1].ep, data, 100, 6, NULL);
    cr_assert_eq(status, PSRT_OK);
    PUMP_UNTIL(w, a->rx_count == 2);
    cr_assert(a->rx[1].ep == ep->ep);
    hang_up(a, ep);
    PUMP_UNTIL_NS(w, LOST_NS, a->eps[1].lost);
}

Test(conformance, self, .timeout = 120) { for_each_transport(case_self); }

/* ---- contents ---------------------------------------------------------------------------------- */

static const uint64_t sizes[] = {
    0, 1, 7, 64, 2047, 2048, 2049, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB, 4 * MIB
};

static void check_message(const world_t *w, const seen_msg_t *msg, uint8_t type, uint64_t length,
                          uint64_t len, uint64_t seed)
{
    psrt_hdr_t want = make_hdr(type, length, seed);
    if (type == PSRTI_T_PUSH) want.dtype = 1;
    cr_assert_eq(msg->hdr.magic, PSRTI_MAGIC, "%s", w->ops->name);
    cr_assert_eq(msg->hdr.version, PSRTI_WIRE_VERSION, "%s", w->ops->name);
    cr_assert(same_hdr(&msg->hdr, &want), "%s: header of %llu", w->ops->name,
              (unsigned long long)seed);
    cr_assert_eq(msg->len, len, "%s: length of %llu", w->ops->name, (unsigned long long)seed);
    cr_assert_eq(msg->stale, 0, "%s", w->ops->name);
    cr_assert(filled_with(msg->data, len, seed), "%s: contents of %llu (%llu bytes)", w->ops->name,
              (unsigned long long)seed, (unsigned long long)len);
}

/* Every size, both directions, as CTRL from odd addresses and as f32 PUSH. */
static void case_sizes(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *buffer = malloc(4 * MIB + 1);
    for (size_t i = 0; i < PSRTI_COUNT(sizes); i++) {
        for (int back = 0; back < 2; back++) {
            peer_t *to = back ? a : b;
            test_tx_t tx;
            tx_init(&tx);
            uint64_t seed = 10 * i + (uint64_t)back + 1;
            fill(buffer + 1, sizes[i], seed);
            psrt_status_t status =
                send_ctrl(w, back ? in->ep : out->ep, buffer + 1, sizes[i], seed, &tx.tx);
            cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s", w->ops->name);
            PUMP_UNTIL(w, to->rx_count == 1 && (status == PSRT_OK || tx.done));
            check_message(w, &to->rx[0], PSRTI_T_CTRL, sizes[i], sizes[i], seed);
            cr_assert(to->rx[0].ep == (back ? out->ep : in->ep));
            cr_assert(status == PSRT_OK ? tx.done == 0 : tx.done == 1 && tx.status == PSRT_OK);
            peer_clear(to);
        }
        uint64_t elements = sizes[i] / 4;
        test_tx_t tx;
        tx_init(&tx);
        psrt_hdr_t hdr = make_hdr(PSRTI_T_PUSH, elements, 1000 + i);
        hdr.dtype = 1;
        fill(buffer, elements * 4, 1000 + i);
        psrt_status_t status = w->ops->send(out->ep, &hdr, buffer, elements * 4, 0, &tx.tx);
        cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s: idle, but %d", w->ops->name,
                  (int)status);
        PUMP_UNTIL(w, b->rx_count == 1 && (status == PSRT_OK || tx.done));
        check_message(w, &b->rx[0], PSRTI_T_PUSH, elements, elements * 4, 1000 + i);
        peer_clear(b);
    }
    free(buffer);
}

Test(conformance, sizes, .timeout = 240) { for_each_transport(case_sizes); }

/* Without a tx up to 2 KiB may be sent, and are captured at once. */
static void case_without_tx(world_t *w)
{
    uint8_t data[2048];
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    fill(data, sizeof data, 3);
    cr_assert_eq(send_ctrl(w, out->ep, data, sizeof data, 3, NULL), PSRT_OK);
    memset(data, 0xee, sizeof data);
    PUMP_UNTIL(w, b->rx_count == 1);
    check_message(w, &b->rx[0], PSRTI_T_CTRL, sizeof data, sizeof data, 3);
}

Test(conformance, without_tx, .timeout = 120) { for_each_transport(case_without_tx); }

#define FLOOD 100000u

static void case_flood(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    for (uint64_t i = 0; i < FLOOD; i++) {
        uint8_t data[24];
        uint64_t len = i % 25;
        fill(data, len, i);
        psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, len, i);
        psrt_status_t status;
        uint32_t flags = i % 16 && i + 1 < FLOOD ? PSRT_SEND_MORE : 0;
        while ((status = w->ops->send(out->ep, &hdr, data, len, flags, NULL)) == PSRT_ERR_AGAIN)
            pump(w);
        cr_assert_eq(status, PSRT_OK, "%s: message %llu", w->ops->name, (unsigned long long)i);
    }
    PUMP_UNTIL(w, b->rx_count == FLOOD);
    for (uint64_t i = 0; i < FLOOD; i++)
        check_message(w, &b->rx[i], PSRTI_T_CTRL, i % 25, i % 25, i);
}

Test(conformance, flood, .timeout = 240) { for_each_transport(case_flood); }

/* Small and large messages mixed: large ones travel another way and must not be overtaken. */
static void case_order(world_t *w)
{
    enum { COUNT = 300, LARGEST = 200000 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *buffers = malloc((size_t)COUNT * LARGEST);
    static test_tx_t tx[COUNT];
    unsigned pending = 0, done = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint8_t *data = buffers + i * LARGEST;
        uint64_t len = psrti_mix64(i) % (i % 3 ? 3000 : LARGEST);
        tx_init(&tx[i]);
        fill(data, len, i);
        pending += send_ctrl(w, out->ep, data, len, i, &tx[i].tx) == PSRT_IN_PROGRESS;
    }
    PUMP_UNTIL(w, b->rx_count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t len = psrti_mix64(i) % (i % 3 ? 3000 : LARGEST);
        check_message(w, &b->rx[i], PSRTI_T_CTRL, len, len, i);
    }
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    while (done != pending) {
        cr_assert(psrti_now_ns() < until, "%s: %u of %u done", w->ops->name, done, pending);
        pump(w);
        done = 0;
        for (size_t i = 0; i < COUNT; i++)
            done += tx[i].done;
    }
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(tx[i].done <= 1 && tx[i].status == PSRT_OK, "%s: tx %zu", w->ops->name, i);
    free(buffers);
}

Test(conformance, order, .timeout = 240) { for_each_transport(case_order); }

/* The sender refills its buffer the moment it may; the receiver must have the old bytes. */
static void case_capture(world_t *w)
{
    enum { LEN = 150000, ROUNDS = 60 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *data = malloc(LEN);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        test_tx_t tx;
        tx_init(&tx);
        fill(data, LEN, i);
        if (send_ctrl(w, out->ep, data, LEN, i, &tx.tx) == PSRT_IN_PROGRESS) PUMP_UNTIL(w, tx.done);
        memset(data, 0xdd, LEN);
    }
    PUMP_UNTIL(w, b->rx_count == ROUNDS);
    for (uint64_t i = 0; i < ROUNDS; i++)
        check_message(w, &b->rx[i], PSRTI_T_CTRL, LEN, LEN, i);
    free(data);
}

Test(conformance, capture, .timeout = 240) { for_each_transport(case_capture); }

static void case_mem_alloc(world_t *w)
{
    enum { LEN = 600000 };
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    if (!w->ops->mem_alloc) return;
    cr_assert(w->ops->mem_free != NULL, "%s", w->ops->name);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    for (uint64_t i = 0; i < 8; i++) {
        void *memory = NULL;
        test_tx_t tx;
        tx_init(&tx);
        cr_assert_eq(w->ops->mem_alloc(a->iface, LEN + i, &memory), PSRT_OK, "%s", w->ops->name);
        cr_assert_eq((uintptr_t)memory % 4096, 0, "%s: alignment", w->ops->name);
        for (size_t k = 0; k < LEN + i; k++)
            cr_assert_eq(((uint8_t *)memory)[k], 0, "%s: not zeroed", w->ops->name);
        uint64_t at = i * 777, len = LEN - at;
        fill((uint8_t *)memory + at, len, i);
        psrt_status_t status = send_ctrl(w, out->ep, (uint8_t *)memory + at, len, i, &tx.tx);
        PUMP_UNTIL(w, b->rx_count == i + 1 && (status == PSRT_OK || tx.done));
        check_message(w, &b->rx[i], PSRTI_T_CTRL, len, len, i);
        memset(memory, 0xcc, LEN + i);
        w->ops->mem_free(a->iface, memory);
    }
}

Test(conformance, mem_alloc, .timeout = 120) { for_each_transport(case_mem_alloc); }

static void case_many_endpoints(world_t *w)
{
    enum { COUNT = 64 };
    peer_t *from[2] = { peer_open(w, 0, 0), peer_open(w, 2, 0) }, *b = peer_open(w, 1, 1);
    seen_ep_t *out[COUNT];
    uint8_t data[100];
    for (int i = 0; i < COUNT; i++)
        out[i] = dial(from[i % 2], b->addr);
    for (int i = 0; i < COUNT; i++)
        PUMP_UNTIL(w, out[i]->up);
    PUMP_UNTIL(w, b->ep_count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        fill(data, sizeof data, i);
        cr_assert_eq(send_ctrl(w, out[i]->ep, data, sizeof data, i, NULL), PSRT_OK);
    }
    PUMP_UNTIL(w, b->rx_count == COUNT);
    for (size_t k = 0; k < COUNT; k++) { /* answer where each came from */
        uint64_t seed = b->rx[k].hdr.seq;
        check_message(w, &b->rx[k], PSRTI_T_CTRL, sizeof data, sizeof data, seed);
        for (size_t other = 0; other < k; other++)
            cr_assert(b->rx[k].ep != b->rx[other].ep, "%s: two messages of one", w->ops->name);
        cr_assert_eq(send_ctrl(w, b->rx[k].ep, data, 10, 1000 + seed, NULL), PSRT_OK);
    }
    PUMP_UNTIL(w, from[0]->rx_count + from[1]->rx_count == COUNT);
    for (int side = 0; side < 2; side++)
        for (size_t k = 0; k < from[side]->rx_count; k++) {
            uint64_t i = from[side]->rx[k].hdr.seq - 1000;
            cr_assert(i < COUNT && from[side]->rx[k].ep == out[i]->ep, "%s: answer astray",
                      w->ops->name);
        }
}

Test(conformance, many_endpoints, .timeout = 240) { for_each_transport(case_many_endpoints); }

/* ---- holding ----------------------------------------------------------------------------------- */

static void case_hold(world_t *w)
{
    enum { COUNT = 12, LEN = 40000 };
    static const unsigned order[COUNT] = { 5, 0, 11, 3, 1, 10, 2, 4, 9, 8, 6, 7 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    b->verdict = PSRT_RX_HOLD;
    static uint8_t data[COUNT][LEN], copy[LEN];
    test_tx_t tx[COUNT];
    int pending[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t len = i % 2 ? LEN : 100 * i;
        tx_init(&tx[i]);
        fill(data[i], len, i);
        pending[i] = send_ctrl(w, out->ep, data[i], len, i, &tx[i].tx) == PSRT_IN_PROGRESS;
        if (!pending[i] || tx[i].done) memset(data[i], 0x11, len); /* held, but captured */
    }
    PUMP_UNTIL(w, b->held_count == COUNT);
    for (size_t k = 0; k < COUNT; k++) {
        psrt_msg_t *msg = &b->held[order[k]];
        cr_assert_eq(msg->hdr.seq, order[k], "%s: order of held messages", w->ops->name);
        cr_assert_eq(read_payload(b, msg, copy), PSRT_OK, "%s: held %u", w->ops->name, order[k]);
        cr_assert(filled_with(copy, msg->len, order[k]), "%s: held %u", w->ops->name, order[k]);
        w->ops->release(b->iface, msg);
        if (pending[order[k]]) PUMP_UNTIL(w, tx[order[k]].done);
    }
    pump(w);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(tx[i].done == (unsigned)pending[i] && tx[i].status == PSRT_OK, "%s: tx %zu",
                  w->ops->name, i);
}

Test(conformance, hold, .timeout = 120) { for_each_transport(case_hold); }

/* As an engine does that finds in on_msg that it can use what it just held. */
static psrt_rx_t hold_and_release(peer_t *peer, psrt_msg_t *msg)
{
    psrt_msg_t copy = *msg;
    static uint8_t data[40000];
    if (read_payload(peer, &copy, data) == PSRT_OK && filled_with(data, copy.len, copy.hdr.seq))
        peer->held_count++;
    peer->ops->release(peer->iface, &copy);
    return PSRT_RX_HOLD;
}

static void case_release_inside(world_t *w)
{
    enum { COUNT = 40, LEN = 40000 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    b->hook = hold_and_release;
    static uint8_t data[COUNT][LEN];
    test_tx_t tx[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t len = i % 2 ? LEN : 100 * i;
        tx_init(&tx[i]);
        fill(data[i], len, i);
        int pending = send_ctrl(w, out->ep, data[i], len, i, &tx[i].tx) == PSRT_IN_PROGRESS;
        if (i % 3 == 0) PUMP_UNTIL(w, b->held_count == i + 1 && (!pending || tx[i].done));
    }
    PUMP_UNTIL(w, b->held_count == COUNT);
    pump(w);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(tx[i].done <= 1 && (!tx[i].done || tx[i].status == PSRT_OK), "%s: tx %zu",
                  w->ops->name, i);
    b->held_count = 0;
}

Test(conformance, release_inside_on_msg, .timeout = 120)
{
    for_each_transport(case_release_inside);
}

/* ---- flow control ------------------------------------------------------------------------------ */

/* Sends to a receiver that does nothing until AGAIN lasts. Returns the number of messages taken. */
static size_t send_until_full(world_t *w, seen_ep_t *out, const uint8_t *data, uint64_t len,
                              test_tx_t *tx, size_t limit)
{
    size_t count = 0;
    for (int idle = 0; idle < 50 && count < limit;) {
        psrt_hdr_t hdr = make_hdr(len ? PSRTI_T_CTRL : PSRTI_T_ACK, len, count);
        if (tx) tx_init(&tx[count]);
        psrt_status_t status = w->ops->send(out->ep, &hdr, data, len, 0, tx ? &tx[count].tx : NULL);
        if (status == PSRT_ERR_AGAIN) {
            idle += pump(w) == 0;
            continue;
        }
        cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s: %d", w->ops->name,
                  (int)status);
        if (tx && status == PSRT_OK) tx[count].done = 1;
        idle = 0;
        count++;
    }
    return count;
}

/* Bytes that a stopped receiver may cost: the window where both share memory; sockets buffer more. */
static uint64_t slack(const world_t *w)
{
    uint32_t shared = PSRT_TRANSPORT_CAP_SAME_PROCESS | PSRT_TRANSPORT_CAP_SAME_HOST;
    return w->ops->caps & shared ? 0 : 32 * MIB;
}

static void case_window(world_t *w)
{
    enum { LEN = 64 * KIB, LIMIT = 4096 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *data = malloc(LEN);
    test_tx_t *tx = malloc(LIMIT * sizeof *tx);
    fill(data, LEN, 9);
    psrt_iface_t *stopped = b->iface;
    b->iface = NULL; /* the pump leaves it alone */
    size_t count = send_until_full(w, out, data, LEN, tx, LIMIT);
    cr_assert(count < LIMIT, "%s: no end of sending to a stopped receiver", w->ops->name);
    cr_assert(count * LEN + LEN > WINDOW, "%s: only %zu messages", w->ops->name, count);
    cr_assert(count * LEN <= WINDOW + slack(w), "%s: %zu messages of 64 KiB with a window of 1 MiB",
              w->ops->name, count);
    unsigned writable = out->writable;
    b->iface = stopped;
    PUMP_UNTIL(w, out->writable > writable);
    PUMP_UNTIL(w, b->rx_count == count);
    for (size_t i = 0; i < count; i++) {
        PUMP_UNTIL(w, tx[i].done);
        cr_assert(tx[i].done == 1 && tx[i].status == PSRT_OK, "%s: tx %zu", w->ops->name, i);
        cr_assert(b->rx[i].hdr.seq == i && filled_with(b->rx[i].data, LEN, 9), "%s", w->ops->name);
    }
    cr_assert(send_ctrl(w, out->ep, data, 100, 1, NULL) == PSRT_OK);
    PUMP_UNTIL(w, b->rx_count == count + 1);
    free(data);
    free(tx);
}

Test(conformance, window, .timeout = 240) { for_each_transport(case_window); }

/* Messages without payload are bounded as well. */
static void case_backlog(world_t *w)
{
    enum { LIMIT = 2000000 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    psrt_iface_t *stopped = b->iface;
    b->iface = NULL;
    size_t count = send_until_full(w, out, NULL, 0, NULL, LIMIT);
    cr_assert(count < LIMIT, "%s: no end of sending to a stopped receiver", w->ops->name);
    b->iface = stopped;
    unsigned writable = out->writable;
    PUMP_UNTIL(w, b->rx_count == count && out->writable > writable);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(b->rx[i].hdr.seq, i, "%s: message %zu", w->ops->name, i);
}

Test(conformance, backlog, .timeout = 240) { for_each_transport(case_backlog); }

/* ---- waking ------------------------------------------------------------------------------------ */

/* Progress of both until neither has anything to do and both may sleep. */
static void settle(world_t *w)
{
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    for (int quiet = 0; quiet < 2;) {
        peer_t *peer = &w->peer[quiet];
        if (w->ops->arm(peer->iface) == PSRT_OK) {
            quiet++;
            continue;
        }
        pump_peer(peer);
        quiet = 0;
        cr_assert(psrti_now_ns() < until, "%s: arm stays busy", w->ops->name);
    }
}

/* Both are armed: sleeps until a descriptor says so, then lets them progress. */
static void sleep_once(world_t *w)
{
    struct pollfd fds[2];
    for (int i = 0; i < 2; i++)
        fds[i] = (struct pollfd){ .fd = w->ops->wait_fd(w->peer[i].iface), .events = POLLIN };
    cr_assert(poll(fds, 2, 10000 * (int)PATIENCE) > 0, "%s: nobody was woken", w->ops->name);
    for (int i = 0; i < 2; i++)
        if (fds[i].revents) pump_peer(&w->peer[i]);
}

/* Nothing but the descriptors moves the two on: from a send to its arrival, and to its completion. */
static void case_wake(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *data = malloc(100000);
    w->wait_ms = 0;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t len = i % 4 == 3 ? 100000 : i;
        psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, len, i);
        test_tx_t tx;
        psrt_status_t status;
        tx_init(&tx);
        fill(data, len, i);
        settle(w);
        while ((status = w->ops->send(out->ep, &hdr, data, len, 0, &tx.tx)) == PSRT_ERR_AGAIN) {
            sleep_once(w);
            settle(w);
        }
        while (b->rx_count == 0 || (status == PSRT_IN_PROGRESS && !tx.done)) {
            sleep_once(w);
            settle(w);
        }
        check_message(w, &b->rx[0], PSRTI_T_CTRL, len, len, i);
        peer_clear(b);
    }
    free(data);
}

Test(conformance, wake, .timeout = 240) { for_each_transport(case_wake); }

/* With nothing to do the descriptors become quiet: a waiter does not spin. */
static void case_idle(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    for (uint64_t i = 0; i < 20; i++) {
        settle(w);
        cr_assert_eq(send_ctrl(w, out->ep, NULL, 0, i, NULL), PSRT_OK);
        PUMP_UNTIL(w, b->rx_count == i + 1);
        uint64_t until = psrti_now_ns() + DEADLINE_NS;
        for (int quiet = 0; !quiet;) {
            struct pollfd fds[2];
            settle(w);
            for (int k = 0; k < 2; k++)
                fds[k] = (struct pollfd){ w->ops->wait_fd(w->peer[k].iface), POLLIN, 0 };
            quiet = poll(fds, 2, 20) == 0;
            for (int k = 0; k < 2 && !quiet; k++)
                pump_peer(&w->peer[k]);
            cr_assert(psrti_now_ns() < until, "%s: idle, but always readable", w->ops->name);
        }
    }
}

Test(conformance, idle, .timeout = 120) { for_each_transport(case_idle); }

/* More than one progress may handle: arm must not let the receiver sleep on the rest. */
static void case_arm(world_t *w)
{
    enum { COUNT = 400 };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    connect_pair(w, &out, &in);
    psrt_iface_t *stopped = b->iface;
    b->iface = NULL;
    for (uint64_t i = 0; i < COUNT; i++)
        cr_assert_eq(send_ctrl(w, out->ep, NULL, 0, i, NULL), PSRT_OK);
    b->iface = stopped;
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    while (b->rx_count < COUNT) {
        struct pollfd fd = { .fd = w->ops->wait_fd(b->iface), .events = POLLIN };
        cr_assert(psrti_now_ns() < until, "%s: %zu arrived", w->ops->name, b->rx_count);
        if (w->ops->arm(b->iface) == PSRT_OK) {
            w->ops->progress(w->peer[0].iface);
            cr_assert(poll(&fd, 1, 10000 * (int)PATIENCE) > 0, "%s: %zu arrived, then asleep",
                      w->ops->name, b->rx_count);
        }
        b->in_progress = 1;
        w->ops->progress(b->iface);
        b->in_progress = 0;
    }
}

Test(conformance, arm, .timeout = 120) { for_each_transport(case_arm); }
