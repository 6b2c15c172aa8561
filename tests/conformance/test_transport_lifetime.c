/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance of transports: closing, loss, misbehaviour, restart, other processes. */
#include "conformance/harness.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PENDING = 6, BIG = 200000 };

/* Large sends whose receiver does not take part. `old` counts those that were complete at once. */
typedef struct batch {
    uint8_t *data;
    test_tx_t tx[PENDING];
    int pending[PENDING];
    size_t count;
} batch_t;

static void send_batch(world_t *w, psrt_ep_t *ep, batch_t *batch)
{
    batch->data = malloc((size_t)PENDING * BIG);
    batch->count = 0;
    for (uint64_t i = 0; i < PENDING; i++) {
        psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, BIG, 50 + i);
        uint8_t *data = batch->data + i * BIG;
        fill(data, BIG, 50 + i);
        tx_init(&batch->tx[i]);
        psrt_status_t status = w->ops->send(ep, &hdr, data, BIG, 0, &batch->tx[i].tx);
        if (status == PSRT_ERR_AGAIN) break;
        cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s: %d", w->ops->name,
                  (int)status);
        batch->pending[i] = status == PSRT_IN_PROGRESS;
        batch->count++;
    }
    cr_assert(batch->count > 0);
}

/* After ep_close: each pending send was completed exactly once. Scribbles over the payloads. */
static void check_batch(const world_t *w, batch_t *batch, int canceled)
{
    for (size_t i = 0; i < batch->count; i++) {
        cr_assert_eq(batch->tx[i].done, (unsigned)batch->pending[i], "%s: tx %zu done %u times",
                     w->ops->name, i, batch->tx[i].done);
        if (canceled && batch->pending[i])
            cr_assert_eq(batch->tx[i].status, PSRT_ERR_CANCELED, "%s: tx %zu: %d", w->ops->name, i,
                         (int)batch->tx[i].status);
    }
    memset(batch->data, 0xbb, (size_t)PENDING * BIG);
}

/* Whatever arrived of a batch is in order and whole. */
static void check_arrived(const peer_t *peer)
{
    for (size_t i = 0; i < peer->rx_count; i++)
        cr_assert(peer->rx[i].hdr.seq == 50 + i && peer->rx[i].len == BIG &&
                      (peer->rx[i].stale || filled_with(peer->rx[i].data, BIG, 50 + i)),
                  "%s: message %zu is torn", peer->ops->name, i);
}

/* ---- closing ----------------------------------------------------------------------------------- */

static void case_close_pending(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    connect_pair(w, &out, &in);
    send_batch(w, out->ep, &batch);
    hang_up(&w->peer[0], out);
    check_batch(w, &batch, 1);
    PUMP_UNTIL_NS(w, LOST_NS, in->lost);
    check_arrived(b);
    free(batch.data);
    hang_up(b, in);
}

Test(lifetime, close_pending, .timeout = 120) { for_each_transport(case_close_pending); }

static void case_iface_close_pending(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    connect_pair(w, &out, &in);
    send_batch(w, out->ep, &batch);
    peer_close(a);
    check_batch(w, &batch, 1);
    PUMP_UNTIL_NS(w, LOST_NS, in->lost);
    check_arrived(b);
    free(batch.data);
}

Test(lifetime, iface_close_pending, .timeout = 120)
{
    for_each_transport(case_iface_close_pending);
}

/* The sender closes while the receiver holds: what was held is as it was, or known to be stale. */
static void case_close_held(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    connect_pair(w, &out, &in);
    b->verdict = PSRT_RX_HOLD;
    send_batch(w, out->ep, &batch);
    PUMP_UNTIL(w, b->held_count == batch.count);
    hang_up(&w->peer[0], out);
    check_batch(w, &batch, 0);
    uint8_t *copy = malloc(BIG);
    for (size_t i = 0; i < b->held_count; i++) {
        if (read_payload(b, &b->held[i], copy) == PSRT_OK)
            cr_assert(filled_with(copy, BIG, 50 + i), "%s: verify took a torn message",
                      w->ops->name);
        if (i % 2) w->ops->release(b->iface, &b->held[i]);
    }
    PUMP_UNTIL_NS(w, LOST_NS, in->lost);
    hang_up(b, in);
    for (size_t i = 0; i < b->held_count; i += 2)
        w->ops->release(b->iface, &b->held[i]);
    free(copy);
    free(batch.data);
}

Test(lifetime, close_held, .timeout = 120) { for_each_transport(case_close_held); }

/* The receiver closes while it holds: the sender's payloads come back, and the connection is new. */
static void case_holder_closes(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    connect_pair(w, &out, &in);
    b->verdict = PSRT_RX_HOLD;
    send_batch(w, out->ep, &batch);
    PUMP_UNTIL(w, b->held_count == batch.count);
    hang_up(b, in);
    PUMP_UNTIL_NS(w, LOST_NS, out->lost);
    hang_up(a, out);
    check_batch(w, &batch, 0);
    for (size_t i = 0; i < b->held_count; i++)
        w->ops->release(b->iface, &b->held[i]);
    b->verdict = PSRT_RX_DONE;
    connect_pair(w, &out, &in);
    cr_assert_eq(send_ctrl(w, out->ep, NULL, 0, 7, NULL), PSRT_OK);
    PUMP_UNTIL(w, b->rx_count == 1);
    free(batch.data);
}

Test(lifetime, holder_closes, .timeout = 120) { for_each_transport(case_holder_closes); }

/* Closing an endpoint from inside the callbacks of its interface. */
static psrt_rx_t close_in_hook(peer_t *peer, psrt_msg_t *msg)
{
    seen_ep_t *seen = peer_ep(peer, msg->ep);
    ++*(unsigned *)peer->hook_arg;
    hang_up(peer, seen);
    return PSRT_RX_DONE;
}

static void case_close_in_callback(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    unsigned calls = 0;
    connect_pair(w, &out, &in);
    b->hook = close_in_hook;
    b->hook_arg = &calls;
    send_batch(w, out->ep, &batch);
    PUMP_UNTIL_NS(w, LOST_NS, out->lost);
    cr_assert_eq(calls, 1, "%s: %u messages of a closed endpoint", w->ops->name, calls);
    hang_up(a, out);
    check_batch(w, &batch, 0);
    free(batch.data);
}

Test(lifetime, close_in_callback, .timeout = 120) { for_each_transport(case_close_in_callback); }

/* ---- loss -------------------------------------------------------------------------------------- */

static void case_peer_closes(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    batch_t batch;
    connect_pair(w, &out, &in);
    send_batch(w, out->ep, &batch);
    peer_close(b);
    PUMP_UNTIL_NS(w, LOST_NS, out->lost);
    psrt_hdr_t hdr = make_hdr(PSRTI_T_ACK, 0, 1);
    psrt_status_t status = w->ops->send(out->ep, &hdr, NULL, 0, 0, NULL);
    cr_assert(status < 0 && status != PSRT_ERR_AGAIN, "%s: send after LOST gives %d", w->ops->name,
              (int)status);
    hang_up(a, out);
    check_batch(w, &batch, 0);
    free(batch.data);
}

Test(lifetime, peer_closes, .timeout = 120) { for_each_transport(case_peer_closes); }

/* Nobody is at the address any more. */
static void case_nobody(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    char addr[PSRT_ADDR_MAX];
    memcpy(addr, b->addr, sizeof addr);
    peer_close(b);
    psrt_ep_t *ep = NULL;
    if (w->ops->ep_open(a->iface, addr, &ep) != PSRT_OK) return;
    a->eps[a->ep_count++] = (seen_ep_t){ .ep = ep };
    PUMP_UNTIL_NS(w, LOST_NS, a->eps[0].lost);
    cr_assert_eq(a->eps[0].up, 0);
    hang_up(a, &a->eps[0]);
}

Test(lifetime, nobody, .timeout = 120) { for_each_transport(case_nobody); }

/* Dialling and giving up before the other side looked. */
static void case_give_up(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    for (int i = 0; i < 10; i++) {
        seen_ep_t *ep = dial(a, b->addr);
        for (int k = 0; k < i; k++)
            pump(w);
        hang_up(a, ep);
    }
    connect_pair(w, &out, &in);
    PUMP_UNTIL(w, b->eps[b->ep_count - 1].up);
    for (size_t i = 0; i + 1 < b->ep_count; i++)
        PUMP_UNTIL_NS(w, LOST_NS, b->eps[i].lost);
    dial(a, b->addr); /* and left to iface_close of either side */
    peer_close(b);
}

Test(lifetime, give_up, .timeout = 120) { for_each_transport(case_give_up); }

static void case_reconnect(world_t *w)
{
    enum { ROUNDS = 55, WARM_UP = 5 };
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    size_t fds = 0;
    uint8_t data[5000];
    for (uint64_t i = 0; i < ROUNDS; i++) {
        seen_ep_t *out, *in;
        test_tx_t tx;
        tx_init(&tx);
        connect_pair(w, &out, &in);
        fill(data, sizeof data, i);
        psrt_status_t status = send_ctrl(w, out->ep, data, sizeof data, i, &tx.tx);
        PUMP_UNTIL(w, b->rx_count == 1 && (status == PSRT_OK || tx.done));
        cr_assert(filled_with(b->rx[0].data, sizeof data, i) && b->rx[0].ep == in->ep);
        peer_clear(b);
        hang_up(i % 2 ? a : b, i % 2 ? out : in);
        seen_ep_t *other = i % 2 ? in : out;
        PUMP_UNTIL_NS(w, LOST_NS, other->lost);
        hang_up(i % 2 ? b : a, other);
        if (i + 1 == WARM_UP) fds = count_fds();
    }
    PUMP_UNTIL(w, count_fds() <= fds); /* some close in the background */
}

Test(lifetime, reconnect, .timeout = 240) { for_each_transport(case_reconnect); }

/* ---- misbehaviour ------------------------------------------------------------------------------ */

/* Only the endpoint of `bad` is lost; the one of peer 2 works on. */
static void check_only_one_lost(world_t *w, seen_ep_t *bad_out, seen_ep_t *bad_in, seen_ep_t *good)
{
    peer_t *b = &w->peer[1];
    PUMP_UNTIL_NS(w, LOST_NS, bad_out->lost && bad_in->lost);
    cr_assert_eq(good->lost, 0, "%s: another endpoint was lost as well", w->ops->name);
    size_t before = b->rx_count;
    cr_assert_eq(send_ctrl(w, good->ep, "fine", 4, 1, NULL), PSRT_OK);
    PUMP_UNTIL(w, b->rx_count == before + 1);
    cr_assert(memcmp(b->rx[before].data, "fine", 4) == 0);
    hang_up(&w->peer[0], bad_out);
    hang_up(b, bad_in);
}

static seen_ep_t *connect_good(world_t *w)
{
    peer_t *c = peer_open(w, 2, 0);
    size_t before = w->peer[1].ep_count;
    seen_ep_t *good = dial(c, w->peer[1].addr);
    PUMP_UNTIL(w, good->up && w->peer[1].ep_count > before);
    return good;
}

static void case_bad_verdict(world_t *w)
{
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *good = connect_good(w), *out, *in;
    connect_pair(w, &out, &in);
    cr_assert_eq(send_ctrl(w, out->ep, "one", 3, 1, NULL), PSRT_OK);
    PUMP_UNTIL(w, b->rx_count == 1);
    b->verdict = PSRT_RX_BAD;
    cr_assert_eq(send_ctrl(w, out->ep, "two", 3, 2, NULL), PSRT_OK);
    cr_assert_eq(send_ctrl(w, out->ep, "three", 5, 3, NULL), PSRT_OK);
    check_only_one_lost(w, out, in, good);
    cr_assert_eq(in->why, PSRT_ERR_PROTOCOL, "%s: %d", w->ops->name, (int)in->why);
    cr_assert_eq(b->rx_count, 2, "%s: delivered after BAD", w->ops->name);
}

Test(lifetime, bad_verdict, .timeout = 120) { for_each_transport(case_bad_verdict); }

static void case_oversized(world_t *w)
{
    enum { MOST = 64 * KIB };
    peer_t *a = peer_open(w, 0, 0);
    w->max_message = MOST;
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *good = connect_good(w), *out, *in;
    connect_pair(w, &out, &in);
    uint8_t *data = malloc(MOST + 1);
    test_tx_t fits, over;
    tx_init(&fits);
    tx_init(&over);
    fill(data, MOST + 1, 4);
    psrt_status_t status = send_ctrl(w, out->ep, data, MOST, 4, &fits.tx);
    PUMP_UNTIL(w, b->rx_count == 1 && (status == PSRT_OK || fits.done));
    cr_assert(filled_with(b->rx[0].data, MOST, 4));

    psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, MOST + 1, 5);
    status = a->ops->send(out->ep, &hdr, data, MOST + 1, 0, &over.tx);
    check_only_one_lost(w, out, in, good);
    cr_assert_eq(b->rx_count, 2, "%s: the oversized message was delivered", w->ops->name);
    cr_assert_eq(over.done, status == PSRT_IN_PROGRESS, "%s", w->ops->name);
    free(data);
}

Test(lifetime, oversized, .timeout = 120) { for_each_transport(case_oversized); }

/* A header that announces another length than the payload has, and one whose size overflows. */
static void case_lying_header(world_t *w)
{
    static const struct {
        uint8_t type, dtype, flags;
        uint64_t length;
    } lies[] = {
        { PSRTI_T_CTRL, 0, 0, 5 }, { PSRTI_T_CTRL, 0, 0, 3 },  { PSRTI_T_PUSH, 1, 0, UINT64_MAX },
        { PSRTI_T_PUSH, 0, 0, 4 }, { PSRTI_T_ACK, 0, 0, 4 },   { 0, 0, 0, 4 },
        { 200, 0, 0, 4 },          { PSRTI_T_CTRL, 99, 0, 4 },
    };
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *good = connect_good(w);
    for (size_t i = 0; i < PSRTI_COUNT(lies); i++) {
        seen_ep_t *out, *in;
        connect_pair(w, &out, &in);
        psrt_hdr_t hdr = { .type = lies[i].type, .dtype = lies[i].dtype, .length = lies[i].length };
        psrt_status_t status = w->ops->send(out->ep, &hdr, "abcd", 4, 0, NULL);
        size_t before = b->rx_count;
        if (status < 0) { /* noticed at the source: nothing was sent */
            hang_up(&w->peer[0], out);
            continue;
        }
        check_only_one_lost(w, out, in, good);
        cr_assert_eq(b->rx_count, before + 1, "%s: lie %zu was delivered", w->ops->name, i);
    }
}

Test(lifetime, lying_header, .timeout = 120) { for_each_transport(case_lying_header); }

/* ---- other processes --------------------------------------------------------------------------- */

/* Sends back every message, in order. */
static void echo_main(world_t *w, peer_t *peer, int stop_fd)
{
    size_t next = 0;
    static test_tx_t tx[1024];
    while (!child_should_stop(stop_fd) || next < peer->rx_count) {
        pump(w);
        for (; next < peer->rx_count && next < PSRTI_COUNT(tx); next++) {
            seen_msg_t *msg = &peer->rx[next];
            tx_init(&tx[next]);
            if (w->ops->send(msg->ep, &msg->hdr, msg->data, msg->len, 0, &tx[next].tx) ==
                PSRT_ERR_AGAIN)
                break;
        }
    }
}

static void case_echo(world_t *w)
{
    enum { COUNT = 200, LARGEST = 300000 };
    child_t child;
    child_start(w, &child, echo_main);
    peer_t *a = peer_open(w, 0, 0);
    cr_assert(w->ops->reachable(a->iface, child.addr), "%s: %s", w->ops->name, child.addr);
    seen_ep_t *ep = dial(a, child.addr);
    PUMP_UNTIL(w, ep->up);
    uint8_t *data = malloc(LARGEST);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t len = psrti_mix64(i) % (i % 4 ? 3000 : LARGEST);
        test_tx_t tx;
        tx_init(&tx);
        fill(data, len, i);
        if (send_ctrl(w, ep->ep, data, len, i, &tx.tx) == PSRT_IN_PROGRESS) PUMP_UNTIL(w, tx.done);
    }
    PUMP_UNTIL(w, a->rx_count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        psrt_hdr_t want = make_hdr(PSRTI_T_CTRL, a->rx[i].len, i);
        cr_assert(same_hdr(&a->rx[i].hdr, &want), "%s: header %llu", w->ops->name,
                  (unsigned long long)i);
        cr_assert_eq(a->rx[i].len, psrti_mix64(i) % (i % 4 ? 3000 : LARGEST));
        cr_assert(filled_with(a->rx[i].data, a->rx[i].len, i), "%s: echo %llu", w->ops->name,
                  (unsigned long long)i);
    }
    free(data);
    child_stop(&child);
    PUMP_UNTIL_NS(w, LOST_NS, ep->lost);
}

Test(lifetime, echo, .timeout = 240) { for_each_remote_transport(case_echo); }

/* Holds all that it gets until it is killed. */
static void hold_main(world_t *w, peer_t *peer, int stop_fd)
{
    peer->verdict = PSRT_RX_HOLD;
    while (!child_should_stop(stop_fd))
        pump(w);
}

static void case_killed(world_t *w)
{
    child_t child;
    batch_t batch;
    child_start(w, &child, hold_main);
    peer_t *a = peer_open(w, 0, 0);
    seen_ep_t *ep = dial(a, child.addr);
    PUMP_UNTIL(w, ep->up);
    send_batch(w, ep->ep, &batch);
    for (int i = 0; i < 5; i++)
        pump(w);
    child_kill(&child);
    PUMP_UNTIL_NS(w, LOST_NS, ep->lost);
    cr_assert(ep->why < 0);
    hang_up(a, ep);
    check_batch(w, &batch, 0);
    free(batch.data);
    remove_dir_contents(w->dir); /* the dead one's socket: its launcher removes the directory */
}

Test(lifetime, killed, .timeout = 120) { for_each_remote_transport(case_killed); }
