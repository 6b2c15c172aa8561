/* SPDX-License-Identifier: Apache-2.0 */
/* What the zmq tests share: an interface that counts what it sees, and a sink for log lines. */
#ifndef PSRT_TESTS_TRANSPORT_ZMQ_NODE_H
#define PSRT_TESTS_TRANSPORT_ZMQ_NODE_H

#include "support/test.h"

#include <sys/types.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/frame.h"
#include "transport/transport.h"

#define KIB 1024u
#define MIB (1024u * 1024u)
#define WINDOW (4u * MIB)
#define MAX_MESSAGE (8u * MIB)
#define ZMQ_OPS (&psrti_transport_zmq)

/* The deadlines only show that nothing hangs. Sanitizer builds are slower. */
#ifdef PSRT_OWN_TEST_RUNNER
#define DEADLINE_NS (90 * PSRTI_NS_PER_S)
#define LOST_NS (20 * PSRTI_NS_PER_S)
#else
#define DEADLINE_NS (20 * PSRTI_NS_PER_S)
#define LOST_NS (5 * PSRTI_NS_PER_S)
#endif

typedef struct node {
    psrt_iface_t *iface; /* NULL: not open */
    char addr[PSRT_ADDR_MAX];
    psrt_ep_t *ep; /* the last that came UP or was dialled and is not closed */
    unsigned up, lost, writable, received, wrong; /* wrong: payload is not what seq says */
    psrt_status_t why;                            /* of the last LOST */
    uint64_t last_seq;
} node_t;

/* Parameters that work: encrypted with a fixed key, task `task`. */
psrt_iface_params_t node_params(node_t *node, uint32_t task);
void node_open(node_t *node, const psrt_iface_params_t *params);
/* `a` listens, `b` dials it; both are UP afterwards. */
void node_open_pair(node_t *a, node_t *b, int security);
void node_dial(node_t *node, const char *addr);
void node_close(node_t *node);

/* Progress of up to three nodes; sleeps on their descriptors when nothing happened. */
void node_pump(node_t *const *nodes, size_t count);
#define PUMP_NS(ns, condition, ...)                                                                \
    do {                                                                                           \
        node_t *nodes_[] = { __VA_ARGS__ };                                                        \
        uint64_t until_ = psrti_now_ns() + (ns);                                                   \
        while (!(condition)) {                                                                     \
            cr_assert(psrti_now_ns() < until_, "%s did not come true", #condition);                \
            node_pump(nodes_, PSRTI_COUNT(nodes_));                                                \
        }                                                                                          \
    } while (0)
#define PUMP(condition, ...) PUMP_NS(DEADLINE_NS, condition, __VA_ARGS__)

/* CTRL header for a payload of `len` bytes that the receiver can check. */
psrt_hdr_t node_hdr(uint64_t len, uint64_t seq);
/* Bytes that depend on seq and place. */
void node_fill(uint8_t *data, uint64_t len, uint64_t seq);
/* Small and large messages both ways, checked byte by byte: the pair works. */
void node_exchange(node_t *a, node_t *b);

/* Log lines are counted and kept instead of being printed. */
void log_capture(void);
unsigned log_count(const char *part); /* lines that contain it */
void log_clear(void);

size_t count_fds(void);
size_t rss_bytes(void);

/* A task in a process of its own that progresses until it is ended. */
typedef struct node_child {
    pid_t pid;
    int to, from;
    char addr[PSRT_ADDR_MAX]; /* if it listens */
} node_child_t;
/* Before the test opens an interface: forking leaves libzmq's threads behind. `fds` limits the
 * descriptors of the child, 0: as here. */
void child_start(node_child_t *child, int listen, unsigned fds);
void child_dial(node_child_t *child, const char *addr); /* of a child that does not listen */
void child_end(node_child_t *child, int signal_number); /* 0: it ends by itself, without an error */

extern const uint8_t node_secret[32];
extern const uint8_t node_nonce[16];

#endif
