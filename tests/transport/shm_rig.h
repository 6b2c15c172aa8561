/* SPDX-License-Identifier: Apache-2.0 */
/* Two shared-memory interfaces of one process, for tests of what only this transport does. */
#ifndef PSRT_TESTS_TRANSPORT_SHM_RIG_H
#define PSRT_TESTS_TRANSPORT_SHM_RIG_H

#include "support/test.h"

#include "transport/shm/shm.h"
#include "transport/transport.h"

#define RIG_DEADLINE_NS (60 * PSRTI_NS_PER_S)
#define RIG_HELD 64

typedef struct side {
    psrt_iface_t *iface; /* NULL: closed */
    char addr[PSRT_ADDR_MAX];
    psrt_ep_t *ep; /* the one that came UP last */
    unsigned up, lost, writable, messages;
    psrt_status_t why; /* of the last loss            */
    psrt_rx_t verdict; /* HOLD keeps payloads in held */
    int keep_lost;     /* do not close lost endpoints */
    uint8_t *last;     /* payload of the last message, a copy */
    uint64_t last_len;
    uint8_t last_type;
    psrt_msg_t held[RIG_HELD];
    unsigned held_count;
    int watched;    /* descriptor that is looked at in each message, -1: none */
    unsigned ready; /* messages that found it readable                        */
    unsigned done;  /* completions of transmissions */
    psrt_status_t done_status;
} side_t;

typedef struct rig {
    char dir[512];
    uint8_t nonce[16];
    uint64_t arena, window, max_message; /* 0: default */
    side_t a, b;                         /* b listens */
    unsigned warnings;                   /* lines of level warn and error */
    char warning[512];                   /* the last of them              */
} rig_t;

extern rig_t rig;

void rig_open(void); /* a and b, not connected */
void rig_connect(void);
void rig_close(void); /* checks that nothing is left */
psrt_status_t side_open(side_t *side, const char *dir, const uint8_t nonce[16], int listen);
void side_close(side_t *side);
void rig_pump(void);
#define RIG_UNTIL(condition)                                                                       \
    do {                                                                                           \
        uint64_t until_ = psrti_now_ns() + RIG_DEADLINE_NS;                                        \
        while (!(condition)) {                                                                     \
            cr_assert(psrti_now_ns() < until_, "%s did not come true", #condition);                \
            rig_pump();                                                                            \
        }                                                                                          \
    } while (0)

/* Sends a CTRL message (private copy at the receiver) or a PUSH (read in place), from a to b or back.
 * Pumps while AGAIN. */
psrt_status_t side_send(side_t *side, uint8_t type, const void *data, uint64_t len);
/* A message from a arrives at b, whole. */
void rig_check_traffic(void);

void pattern(void *data, uint64_t len, uint64_t seed);
int has_pattern(const void *data, uint64_t len, uint64_t seed);
int readable(int fd); /* now */
unsigned open_fds(void);
unsigned mapped_segments(void); /* of any kind, in this process */

#endif
