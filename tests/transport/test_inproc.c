/* SPDX-License-Identifier: Apache-2.0 */
/* What inproc promises beyond the table. */
#include "conformance/harness.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "transport/inproc/link.h"

enum { LEN = 100000 };

static const void *seen; /* where the last payload was */

static psrt_rx_t note_address(peer_t *peer, psrt_msg_t *msg)
{
    (void)peer;
    seen = msg->data;
    return PSRT_RX_DONE;
}

/* Payloads above 2 KiB are read where they lie; smaller ones are not. */
static void by_pointer(world_t *w)
{
    static uint8_t data[LEN];
    peer_open(w, 0, 0);
    peer_t *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    test_tx_t tx;
    tx_init(&tx);
    connect_pair(w, &out, &in);
    b->hook = note_address;
    cr_assert_eq(send_ctrl(w, out->ep, data + 3, 2049, 1, &tx.tx), PSRT_IN_PROGRESS);
    PUMP_UNTIL(w, tx.done);
    cr_assert(seen == data + 3);
    cr_assert_eq(send_ctrl(w, out->ep, data + 3, 2048, 1, &tx.tx), PSRT_OK);
    seen = NULL;
    PUMP_UNTIL(w, seen);
    cr_assert(seen != data + 3);
    psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, 2049, 1);
    cr_assert_eq(w->ops->send(out->ep, &hdr, data, 2049, 0, NULL), PSRT_ERR_INVALID);
}

Test(inproc, by_pointer, .timeout = 60) { run_case(&psrti_transport_inproc, by_pointer); }

/* A closing sender takes back what was not copied; the small messages before it still arrive. */
static void prefix(world_t *w)
{
    static uint8_t data[LEN];
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    test_tx_t tx;
    tx_init(&tx);
    connect_pair(w, &out, &in);
    for (uint64_t i = 0; i < 3; i++)
        cr_assert_eq(send_ctrl(w, out->ep, data, 100, i, NULL), PSRT_OK);
    cr_assert_eq(send_ctrl(w, out->ep, data, LEN, 3, &tx.tx), PSRT_IN_PROGRESS);
    cr_assert_eq(send_ctrl(w, out->ep, data, 100, 4, NULL), PSRT_OK);
    hang_up(a, out);
    cr_assert(tx.done == 1 && tx.status == PSRT_ERR_CANCELED);
    PUMP_UNTIL(w, in->lost);
    cr_assert_eq(b->rx_count, 3);
    for (uint64_t i = 0; i < 3; i++)
        cr_assert_eq(b->rx[i].hdr.seq, i);
    cr_assert_eq(in->why, PSRT_ERR_PEER_LOST);
}

Test(inproc, prefix, .timeout = 60) { run_case(&psrti_transport_inproc, prefix); }

/* A holder in the thread that closes cannot be waited for: what it holds is stale, not in use. */
static void stale(world_t *w)
{
    static uint8_t data[LEN];
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    test_tx_t tx;
    tx_init(&tx);
    connect_pair(w, &out, &in);
    b->verdict = PSRT_RX_HOLD;
    cr_assert_eq(send_ctrl(w, out->ep, data, LEN, 1, &tx.tx), PSRT_IN_PROGRESS);
    cr_assert_eq(send_ctrl(w, out->ep, data, 10, 2, NULL), PSRT_OK);
    PUMP_UNTIL(w, b->held_count == 2);
    cr_assert_eq(w->ops->verify(b->iface, &b->held[0]), PSRT_OK);
    uint64_t start = psrti_now_ns();
    hang_up(a, out);
    cr_assert(psrti_now_ns() - start < PSRTI_NS_PER_S / 2, "waited for its own thread");
    cr_assert(tx.done == 1 && tx.status == PSRT_ERR_CANCELED);
    cr_assert_eq(w->ops->verify(b->iface, &b->held[0]), PSRT_ERR_STALE);
    cr_assert_eq(w->ops->verify(b->iface, &b->held[1]), PSRT_OK);
    PUMP_UNTIL(w, in->lost);
    psrt_msg_t copy = b->held[1];
    hang_up(b, in);
    cr_assert_eq(w->ops->verify(b->iface, &copy), PSRT_ERR_STALE);
    w->ops->release(b->iface, &copy);
}

Test(inproc, stale, .timeout = 60) { run_case(&psrti_transport_inproc, stale); }

/* The dialler posts its end after the acceptor took the link out of its inbox, and before it looks at it. */
static void given_up_when_taken_out(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    psrti_inproc_iface_t *acceptor = PSRTI_CONTAINER_OF(b->iface, psrti_inproc_iface_t, base);
    seen_ep_t *out = dial(a, b->addr);
    cr_assert_not(psrti_list_empty(&acceptor->inbox));
    psrti_inproc_side_t *side =
        PSRTI_LIST_ENTRY(acceptor->inbox.next, psrti_inproc_side_t, inbox_link);
    hang_up(a, out); /* as posted again: the side is in the inbox while it is run */
    cr_assert_eq(psrti_inproc_run(side, 1), 0u);
    cr_assert(psrti_list_empty(&acceptor->inbox), "a link that is freed is in the inbox");
    cr_assert_eq(w->ops->progress(b->iface), 0u);
}

Test(inproc, given_up_when_taken_out, .timeout = 60)
{
    run_case(&psrti_transport_inproc, given_up_when_taken_out);
}

/* Addresses of another process, of an earlier one with our pid, and of nobody. */
static void addresses(world_t *w)
{
    char other[PSRT_ADDR_MAX + 8], start[64];
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    snprintf(start, sizeof start, "inproc:%d:", (int)getpid());
    cr_assert(strncmp(b->addr, start, strlen(start)) == 0, "%s", b->addr);
    snprintf(other, sizeof other, "inproc:%d:%s", (int)getpid() + 1, b->addr + strlen(start));
    cr_assert_eq(w->ops->reachable(a->iface, other), 0);
    memcpy(other, b->addr, sizeof b->addr);
    other[strlen(start)] ^= 1; /* another nonce */
    cr_assert_eq(w->ops->reachable(a->iface, other), 0);
    snprintf(other, sizeof other, "%s ", b->addr);
    cr_assert_eq(w->ops->reachable(a->iface, other), 0);

    cr_assert_eq(w->ops->iface_addr(a->iface, other, sizeof other), PSRT_OK);
    seen_ep_t *ep = dial(b, other); /* does not listen */
    PUMP_UNTIL(w, ep->lost);
    cr_assert_eq(ep->why, PSRT_ERR_REFUSED);
}

Test(inproc, addresses, .timeout = 60) { run_case(&psrti_transport_inproc, addresses); }

/* ---- a reader in another thread ---------------------------------------------------------------- */

static uint8_t read_slowly_data[LEN];
static atomic_int began, closing, torn;

/* Reads for longer than a closing sender waits for one that merely holds. */
static psrt_rx_t read_slowly(peer_t *peer, psrt_msg_t *msg)
{
    (void)peer;
    atomic_store(&began, 1);
    while (!atomic_load(&closing))
        ;
    uint64_t until = psrti_now_ns() + PSRTI_NS_PER_S * 3 / 2;
    while (psrti_now_ns() < until)
        if (!filled_with(msg->data, LEN, 3)) atomic_store(&torn, 1);
    return PSRT_RX_DONE;
}

static void *receive(void *arg)
{
    peer_t *peer = arg;
    while (!atomic_load(&began))
        pump_peer(peer);
    return NULL;
}

/* ep_close returns when the reader is through, however long it takes. */
static void slow_reader(world_t *w)
{
    peer_t *a = peer_open(w, 0, 0), *b = peer_open(w, 1, 1);
    seen_ep_t *out, *in;
    pthread_t thread;
    test_tx_t tx;
    tx_init(&tx);
    fill(read_slowly_data, LEN, 3);
    connect_pair(w, &out, &in);
    b->hook = read_slowly;
    cr_assert_eq(send_ctrl(w, out->ep, read_slowly_data, LEN, 3, &tx.tx), PSRT_IN_PROGRESS);
    cr_assert_eq(pthread_create(&thread, NULL, receive, b), 0);
    while (!atomic_load(&began))
        ;
    atomic_store(&closing, 1);
    hang_up(a, out);
    memset(read_slowly_data, 0, LEN);
    pthread_join(thread, NULL);
    cr_assert(tx.done == 1 && tx.status == PSRT_ERR_CANCELED);
    cr_assert_eq(atomic_load(&torn), 0, "the payload changed while it was read");
}

Test(inproc, slow_reader, .timeout = 60) { run_case(&psrti_transport_inproc, slow_reader); }
