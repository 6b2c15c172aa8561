/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases of transports share: a world with a job directory and a few peers, each
 * one interface that records all it sees. A case runs once for every transport of the build;
 * PSRT_CONFORMANCE=name picks one. */
#ifndef PSRT_TESTS_CONFORMANCE_HARNESS_H
#define PSRT_TESTS_CONFORMANCE_HARNESS_H

#include "support/test.h"

#include <stdatomic.h>
#include <sys/types.h>

#include <psrt/psrt.h>

#include "base/util.h"
#include "transport/frame.h"
#include "transport/transport.h"

#define KIB 1024u
#define MIB (1024u * 1024u)
#define WINDOW MIB

#define MAX_PEERS 4
#define MAX_EPS 160

/* Sanitizer builds are slower; the deadlines only show that nothing hangs. */
#ifdef PSRT_OWN_TEST_RUNNER
#define PATIENCE 6u
#else
#define PATIENCE 1u
#endif
#define DEADLINE_NS (10u * PATIENCE * PSRTI_NS_PER_S)
#define LOST_NS (5u * PATIENCE * PSRTI_NS_PER_S)

typedef struct seen_ep {
    psrt_ep_t *ep;
    int accepted, closed;
    unsigned up, writable, lost;
    psrt_status_t why;
} seen_ep_t;

typedef struct seen_msg {
    psrt_hdr_t hdr;
    uint8_t *data;
    uint64_t len;
    psrt_ep_t *ep;
    int stale; /* verify said that `data` is not to be used */
} seen_msg_t;

typedef struct peer {
    struct world *world;
    const psrt_transport_ops_t *ops;
    psrt_iface_t *iface; /* NULL: closed */
    char addr[PSRT_ADDR_MAX];
    seen_ep_t eps[MAX_EPS];
    size_t ep_count;
    seen_msg_t *rx;
    size_t rx_count, rx_capacity;
    psrt_msg_t *held; /* messages answered with HOLD, in order */
    size_t held_count, held_capacity;
    psrt_rx_t verdict;                              /* answer of on_msg; BAD is given once */
    psrt_rx_t (*hook)(struct peer *, psrt_msg_t *); /* instead of recording, if set */
    void *hook_arg;
    int in_progress;
} peer_t;

typedef struct world {
    const psrt_transport_ops_t *ops;
    char dir[64];
    uint8_t nonce[16], secret[32];
    uint64_t max_message, window;
    int wait_ms;        /* longest sleep of a pump without events */
    size_t fds;         /* open when it began */
    atomic_uint errors; /* error lines logged */
    peer_t peer[MAX_PEERS];
} world_t;

/* Runs `run` in a fresh world for every transport, then checks that nothing is left of it. */
void for_each_transport(void (*run)(world_t *w));
/* For one. */
void run_case(const psrt_transport_ops_t *ops, void (*run)(world_t *w));
/* Only those that can reach another process. */
void for_each_remote_transport(void (*run)(world_t *w));

peer_t *peer_open(world_t *w, int index, int listen);
void peer_close(peer_t *peer);
/* Forgets the messages received so far. */
void peer_clear(peer_t *peer);
seen_ep_t *peer_ep(peer_t *peer, const psrt_ep_t *ep);
seen_ep_t *dial(peer_t *peer, const char *addr);
void hang_up(peer_t *peer, seen_ep_t *ep);
/* peer[0] dials peer[1]; returns once both are UP. */
void connect_pair(world_t *w, seen_ep_t **dialled_p, seen_ep_t **accepted_p);
/* Copies the payload of `msg`, mapping it where needed; tells what verify says. */
psrt_status_t read_payload(peer_t *peer, psrt_msg_t *msg, void *out);

/* Progress of all open peers; sleeps on their descriptors, at most wait_ms, when nothing happened. */
unsigned pump(world_t *w);
/* The same for one peer alone, for tests with threads. */
unsigned pump_peer(peer_t *peer);
#define PUMP_UNTIL_NS(w, ns, condition)                                                            \
    do {                                                                                           \
        uint64_t until_ = psrti_now_ns() + (ns);                                                   \
        while (!(condition)) {                                                                     \
            cr_assert(psrti_now_ns() < until_, "%s: %s did not come true", (w)->ops->name,         \
                      #condition);                                                                 \
            pump(w);                                                                               \
        }                                                                                          \
    } while (0)
#define PUMP_UNTIL(w, condition) PUMP_UNTIL_NS(w, DEADLINE_NS, condition)

/* A transmission that counts its completions. */
typedef struct test_tx {
    psrt_tx_t tx;
    unsigned done;
    psrt_status_t status;
} test_tx_t;
void tx_init(test_tx_t *tx);

/* Bytes that depend on `seed` and on their place. */
void fill(void *data, uint64_t len, uint64_t seed);
int filled_with(const void *data, uint64_t len, uint64_t seed);
/* A header whose fields differ from seed to seed; CTRL announces `len` bytes. */
psrt_hdr_t make_hdr(uint8_t type, uint64_t len, uint64_t seed);
int same_hdr(const psrt_hdr_t *a, const psrt_hdr_t *b);

/* Sends a CTRL message, pumping the world while it says AGAIN; OK and PENDING are success. */
psrt_status_t send_ctrl(world_t *w, psrt_ep_t *ep, const void *data, uint64_t len, uint64_t seed,
                        psrt_tx_t *tx);

size_t count_fds(void);
void remove_dir_contents(const char *dir);

/* A peer in a process of its own: runs `main_fn` with its peer open (peer 1, listening). */
typedef struct child {
    pid_t pid;
    int to_child, from_child;
    char addr[PSRT_ADDR_MAX];
} child_t;
/* To be called before the test opens an interface of its own. */
void child_start(world_t *w, child_t *child,
                 void (*main_fn)(world_t *w, peer_t *peer, int stop_fd));
/* True once the parent closed its end. */
int child_should_stop(int stop_fd);
void child_stop(child_t *child);
void child_kill(child_t *child);

#endif
