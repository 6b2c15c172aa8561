/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance of transports: a receiver in a process of its own is stopped before, or in the middle of,
 * reading a payload; the sender closes, refills the memory, and the receiver goes on. It must never see
 * what was filled in later. */
#include "conformance/harness.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAYLOAD = 300 * KIB + 400, BEFORE = 3 * 4096 + 40, AFTER = 1000 };
enum { OLD = 7, NEW = 8, GUARD = 9 };                    /* seeds */
enum { FAULT_MIXED = 4, FAULT_NONE = 5, FAULT_MAP = 6 }; /* exit codes of the receiver */

static psrt_hdr_t values_hdr(uint8_t type)
{
    return (psrt_hdr_t){ .type = type, .dtype = PSRT_F32, .seq = 3, .length = PAYLOAD / 4 };
}

/* ---- the receiver ------------------------------------------------------------------------------ */

static unsigned payloads; /* in the process of the receiver */

/* As a fold does: reads from where the payload lies, and is stopped half-way. */
static psrt_rx_t read_in_halves(peer_t *peer, psrt_msg_t *msg)
{
    static uint8_t copy[PAYLOAD];
    const void *data = msg->data;
    if (!data && peer->ops->map(peer->iface, msg, &data) != PSRT_OK) _exit(FAULT_MAP);
    memcpy(copy, data, PAYLOAD / 2);
    raise(SIGSTOP);
    memcpy(copy + PAYLOAD / 2, (const uint8_t *)data + PAYLOAD / 2, PAYLOAD - PAYLOAD / 2);
    int undone = msg->hdr.type == PSRTI_T_VALUE && peer->ops->verify &&
                 peer->ops->verify(peer->iface, msg) == PSRT_ERR_STALE;
    if (!undone && !filled_with(copy, PAYLOAD, OLD)) _exit(FAULT_MIXED);
    payloads++;
    return PSRT_RX_DONE;
}

static void stopped_in_the_middle(world_t *w, peer_t *peer, int stop_fd)
{
    peer->hook = read_in_halves;
    while (!child_should_stop(stop_fd))
        pump(w);
    if (payloads != 1) _exit(FAULT_NONE);
}

/* Stops at the first message, which is small; reads whatever comes afterwards. */
static psrt_rx_t stop_first(peer_t *peer, psrt_msg_t *msg)
{
    static uint8_t copy[PAYLOAD];
    if (msg->hdr.type == PSRTI_T_ACK) {
        raise(SIGSTOP);
        return PSRT_RX_DONE;
    }
    if (read_payload(peer, msg, copy) == PSRT_OK && !filled_with(copy, PAYLOAD, OLD))
        _exit(FAULT_MIXED);
    return PSRT_RX_DONE;
}

static void stopped_before(world_t *w, peer_t *peer, int stop_fd)
{
    peer->hook = stop_first;
    while (!child_should_stop(stop_fd))
        pump(w);
}

static void just_receives(world_t *w, peer_t *peer, int stop_fd)
{
    while (peer->rx_count == 0 || !child_should_stop(stop_fd))
        pump(w);
    if (!filled_with(peer->rx[0].data, PAYLOAD, NEW)) _exit(FAULT_MIXED);
}

/* ---- the sender -------------------------------------------------------------------------------- */

static void until_stopped(world_t *w, const child_t *child)
{
    int status = 0;
    PUMP_UNTIL(w, waitpid(child->pid, &status, WUNTRACED | WNOHANG) == child->pid);
    cr_assert(WIFSTOPPED(status), "%s: the receiver ended: %x", w->ops->name, status);
}

static seen_ep_t *connect_to(world_t *w, const child_t *child)
{
    seen_ep_t *ep = dial(&w->peer[0], child->addr);
    PUMP_UNTIL(w, ep->up);
    return ep;
}

static void send_values(world_t *w, seen_ep_t *ep, uint8_t type, const void *data, test_tx_t *tx)
{
    psrt_hdr_t hdr = values_hdr(type);
    tx_init(tx);
    psrt_status_t status = w->ops->send(ep->ep, &hdr, data, PAYLOAD, 0, &tx->tx);
    cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s: %d", w->ops->name, (int)status);
    if (status == PSRT_OK) tx->done = 1;
}

/* Memory that peers read in place where the transport has such; the payload starts and ends within pages
 * that hold other data. */
static uint8_t *memory_new(world_t *w)
{
    static uint8_t plain[BEFORE + PAYLOAD + AFTER];
    void *memory = plain;
    if (w->ops->mem_alloc)
        cr_assert_eq(w->ops->mem_alloc(w->peer[0].iface, sizeof plain, &memory), PSRT_OK);
    uint8_t *at = memory;
    fill(at, BEFORE, GUARD);
    fill(at + BEFORE, PAYLOAD, OLD);
    fill(at + BEFORE + PAYLOAD, AFTER, GUARD);
    return at;
}

static void memory_free(world_t *w, uint8_t *memory)
{
    if (w->ops->mem_alloc) w->ops->mem_free(w->peer[0].iface, memory);
}

static void check_guards(const world_t *w, const uint8_t *memory)
{
    cr_assert(filled_with(memory, BEFORE, GUARD) &&
                  filled_with(memory + BEFORE + PAYLOAD, AFTER, GUARD),
              "%s: what lies beside the payload changed", w->ops->name);
}

static void close_and_refill(world_t *w, seen_ep_t *ep, const test_tx_t *tx, uint8_t *memory)
{
    memory[0] ^= 1; /* another thread's, in a page that is about to be taken away */
    hang_up(&w->peer[0], ep);
    memory[0] ^= 1;
    cr_assert_eq(tx->done, 1u, "%s: memory is still in use after ep_close", w->ops->name);
    check_guards(w, memory);
    cr_assert(filled_with(memory + BEFORE, PAYLOAD, OLD), "%s: ep_close changed the payload",
              w->ops->name);
    fill(memory + BEFORE, PAYLOAD, NEW);
    check_guards(w, memory);
}

static void stop_in_the_middle(world_t *w, uint8_t type)
{
    child_t child, other;
    test_tx_t tx;
    child_start(w, &child, stopped_in_the_middle);
    child_start(w, &other, just_receives);
    peer_open(w, 0, 0);
    uint8_t *memory = memory_new(w);
    seen_ep_t *ep = connect_to(w, &child), *next = connect_to(w, &other);
    send_values(w, ep, type, memory + BEFORE, &tx);
    until_stopped(w, &child);
    close_and_refill(w, ep, &tx, memory);
    send_values(w, next, type, memory + BEFORE, &tx); /* the new contents reach whom they are for */
    PUMP_UNTIL(w, tx.done);
    kill(child.pid, SIGCONT);
    child_stop(&other); /* it has inherited the pipe of the first */
    child_stop(&child);
    memory_free(w, memory);
}

static void case_push(world_t *w) { stop_in_the_middle(w, PSRTI_T_PUSH); }
static void case_value(world_t *w) { stop_in_the_middle(w, PSRTI_T_VALUE); }

Test(stopped, in_the_middle_of_a_push, .timeout = 60) { for_each_remote_transport(case_push); }
Test(stopped, in_the_middle_of_a_value, .timeout = 60) { for_each_remote_transport(case_value); }

static void case_before(world_t *w)
{
    child_t child;
    test_tx_t tx;
    psrt_hdr_t ack = { .type = PSRTI_T_ACK };
    child_start(w, &child, stopped_before);
    peer_open(w, 0, 0);
    uint8_t *memory = memory_new(w);
    seen_ep_t *ep = connect_to(w, &child);
    cr_assert_eq(w->ops->send(ep->ep, &ack, NULL, 0, 0, NULL), PSRT_OK);
    until_stopped(w, &child);
    send_values(w, ep, PSRTI_T_PUSH, memory + BEFORE, &tx);
    close_and_refill(w, ep, &tx, memory);
    kill(child.pid, SIGCONT);
    child_stop(&child);
    memory_free(w, memory);
}

Test(stopped, before_it_reads, .timeout = 60) { for_each_remote_transport(case_before); }
