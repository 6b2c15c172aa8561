/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance of transports: the two interfaces belong to two threads. */
#include "conformance/harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 300000, ACKS = 4096 };

/* Peer 1 in a thread of its own: checks each message, acknowledges it, closes what was lost. */
typedef struct server {
    peer_t *peer;
    pthread_t thread;
    atomic_int stop;
    atomic_uint received, torn;
    int hold;             /* answer every other message with HOLD and read it after progress */
    unsigned close_after; /* close the interface after that many messages, 0: never */
    uint8_t *copy;
    struct {
        psrt_ep_t *ep;
        uint64_t seq;
    } ack[ACKS];
    size_t ack_head, ack_count;
} server_t;

static void check_payload(server_t *server, psrt_msg_t *msg)
{
    if (read_payload(server->peer, msg, server->copy) != PSRT_OK) return; /* withdrawn */
    if (!filled_with(server->copy, msg->len, msg->hdr.seq)) atomic_fetch_add(&server->torn, 1);
}

static psrt_rx_t serve(peer_t *peer, psrt_msg_t *msg)
{
    server_t *server = peer->hook_arg;
    unsigned nth = atomic_fetch_add(&server->received, 1);
    if (server->ack_count < ACKS) {
        size_t at = (server->ack_head + server->ack_count++) % ACKS;
        server->ack[at].ep = msg->ep;
        server->ack[at].seq = msg->hdr.seq;
    }
    if (server->hold && nth % 2 && peer->held_count < peer->held_capacity) {
        peer->held[peer->held_count++] = *msg;
        return PSRT_RX_HOLD;
    }
    check_payload(server, msg);
    return PSRT_RX_DONE;
}

static void send_acks(server_t *server)
{
    while (server->ack_count) {
        psrt_ep_t *ep = server->ack[server->ack_head].ep;
        seen_ep_t *seen = peer_ep(server->peer, ep);
        if (seen && !seen->lost) {
            psrt_hdr_t hdr = make_hdr(PSRTI_T_ACK, 0, server->ack[server->ack_head].seq);
            if (server->peer->ops->send(ep, &hdr, NULL, 0, 0, NULL) == PSRT_ERR_AGAIN) return;
        }
        server->ack_head = (server->ack_head + 1) % ACKS;
        server->ack_count--;
    }
}

static void *server_main(void *arg)
{
    server_t *server = arg;
    peer_t *peer = server->peer;
    while (!atomic_load(&server->stop)) {
        pump_peer(peer);
        for (size_t i = 0; i < peer->held_count; i++) {
            check_payload(server, &peer->held[i]);
            peer->ops->release(peer->iface, &peer->held[i]);
        }
        peer->held_count = 0;
        send_acks(server);
        for (size_t i = 0; i < peer->ep_count; i++)
            if (peer->eps[i].lost && !peer->eps[i].closed) hang_up(peer, &peer->eps[i]);
        if (server->close_after && atomic_load(&server->received) >= server->close_after) break;
    }
    peer_close(peer);
    return NULL;
}

static server_t *server_start(world_t *w, int hold, unsigned close_after)
{
    server_t *server = calloc(1, sizeof *server);
    server->peer = peer_open(w, 1, 1);
    server->peer->hook = serve;
    server->peer->hook_arg = server;
    server->peer->held_capacity = 64;
    server->peer->held = calloc(64, sizeof *server->peer->held);
    server->hold = hold;
    server->close_after = close_after;
    server->copy = malloc(LARGEST);
    cr_assert_eq(pthread_create(&server->thread, NULL, server_main, server), 0);
    return server;
}

static void server_end(server_t *server)
{
    atomic_store(&server->stop, 1);
    pthread_join(server->thread, NULL);
    cr_assert_eq(atomic_load(&server->torn), 0, "%s: %u torn messages", server->peer->ops->name,
                 atomic_load(&server->torn));
    peer_clear(server->peer);
    free(server->copy);
    free(server);
}

#define PEER_UNTIL(peer, condition)                                                                \
    do {                                                                                           \
        uint64_t until_ = psrti_now_ns() + DEADLINE_NS;                                            \
        while (!(condition)) {                                                                     \
            cr_assert(psrti_now_ns() < until_, "%s: " #condition, (peer)->ops->name);              \
            pump_peer(peer);                                                                       \
        }                                                                                          \
    } while (0)

/* Sends from peer 0 while the other thread receives; ends early when the endpoint is lost. */
static int send_from(peer_t *peer, seen_ep_t *ep, const void *data, uint64_t len, uint64_t seed,
                     test_tx_t *tx)
{
    psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, len, seed);
    psrt_status_t status = PSRT_ERR_PEER_LOST;
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    tx_init(tx);
    while (!ep->lost &&
           (status = peer->ops->send(ep->ep, &hdr, data, len, 0, &tx->tx)) == PSRT_ERR_AGAIN) {
        cr_assert(psrti_now_ns() < until, "%s: AGAIN for too long", peer->ops->name);
        pump_peer(peer);
    }
    return status == PSRT_IN_PROGRESS;
}

static void case_traffic(world_t *w)
{
    enum { COUNT = 1500 };
    server_t *server = server_start(w, 1, 0);
    peer_t *a = peer_open(w, 0, 0);
    seen_ep_t *ep = dial(a, server->peer->addr);
    uint8_t *data = malloc(LARGEST);
    PEER_UNTIL(a, ep->up);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t len = psrti_mix64(i) % (i % 8 ? 3000 : LARGEST);
        test_tx_t tx;
        fill(data, len, i);
        if (send_from(a, ep, data, len, i, &tx)) PEER_UNTIL(a, tx.done);
    }
    PEER_UNTIL(a, a->rx_count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++)
        cr_assert_eq(a->rx[i].hdr.seq, i, "%s: acknowledgement %llu", w->ops->name,
                     (unsigned long long)i);
    cr_assert_eq(atomic_load(&server->received), COUNT);
    server_end(server);
    free(data);
}

Test(threads, traffic, .timeout = 240) { for_each_transport(case_traffic); }

/* Closes while the other thread reads or holds, then overwrites: nobody may take torn bytes. */
static void case_close_while_reading(world_t *w)
{
    enum { ROUNDS = 60, BATCH = 4 };
    server_t *server = server_start(w, 1, 0);
    peer_t *a = peer_open(w, 0, 0);
    uint8_t *data = malloc((size_t)BATCH * LARGEST);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        test_tx_t tx[BATCH];
        int pending[BATCH];
        seen_ep_t *ep = dial(a, server->peer->addr);
        PEER_UNTIL(a, ep->up);
        for (uint64_t i = 0; i < BATCH; i++) {
            uint64_t seed = round * BATCH + i;
            fill(data + i * LARGEST, LARGEST, seed);
            pending[i] = send_from(a, ep, data + i * LARGEST, LARGEST, seed, &tx[i]);
        }
        for (uint64_t i = 0; i < round % 4; i++)
            pump_peer(a);
        hang_up(a, ep);
        for (int i = 0; i < BATCH; i++)
            cr_assert_eq(tx[i].done, (unsigned)pending[i], "%s: tx %d", w->ops->name, i);
        memset(data, 0xaa, (size_t)BATCH * LARGEST);
    }
    server_end(server);
    free(data);
}

Test(threads, close_while_reading, .timeout = 240) { for_each_transport(case_close_while_reading); }

/* The receiver closes its interface in the middle of traffic; so does the sender, at the same time. */
static void case_close_in_traffic(world_t *w)
{
    uint8_t *data = malloc((size_t)8 * LARGEST);
    for (unsigned round = 0; round < 16; round++) {
        server_t *server = server_start(w, round % 2, 3 * round + 1);
        peer_t *a = peer_open(w, 0, 0);
        seen_ep_t *ep = dial(a, server->peer->addr);
        test_tx_t tx[8];
        int pending[8] = { 0 };
        PEER_UNTIL(a, ep->up || ep->lost);
        for (uint64_t i = 0; !ep->lost && i < 3 * round + 8; i++) {
            size_t slot = i % 8;
            if (pending[slot]) PEER_UNTIL(a, tx[slot].done || ep->lost);
            if (ep->lost) break;
            fill(data + slot * LARGEST, LARGEST, i);
            pending[slot] = send_from(a, ep, data + slot * LARGEST, LARGEST, i, &tx[slot]);
        }
        if (round % 4 < 2) PEER_UNTIL(a, ep->lost);
        peer_close(a);
        for (int i = 0; i < 8; i++)
            if (pending[i]) cr_assert_eq(tx[i].done, 1, "%s: tx %d", w->ops->name, i);
        peer_clear(a);
        server_end(server);
    }
    free(data);
}

Test(threads, close_in_traffic, .timeout = 240) { for_each_transport(case_close_in_traffic); }
