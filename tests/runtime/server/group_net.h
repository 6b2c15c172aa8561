/* SPDX-License-Identifier: Apache-2.0 */
/* Several owners, whose messages to each other the tests carry, lose, repeat and reorder by hand. */
#ifndef PSRT_TESTS_GROUP_NET_H
#define PSRT_TESTS_GROUP_NET_H

#include "base/util.h"
#include "runtime/server/shard.h"
#include "support/test.h"
#include "transport/frame.h"

#define OWNERS 3
#define WORKERS 2
#define VSHARDS 97
#define TERM 5
#define MAX_FRAMES 64
#define SEND_AGAIN 300 /* ms: longer than the first pause before a report is repeated */

struct node;

/* A link between two owners, or the one between a worker and an owner. */
typedef struct link {
    struct node *from, *to; /* who dialled, who accepted; of a worker: NULL, the owner */
    psrti_peer_t *peer[2];  /* at who dialled, at who accepted */
    uint32_t worker;
    int up;
} link_t;

typedef struct frame {
    psrt_hdr_t hdr;
    link_t *link;
    int to_dialler;
    void *data;
    uint64_t len;
} frame_t;

typedef struct node {
    struct net *net;
    uint32_t owner;
    psrti_shard_t *shard;
    link_t worker[WORKERS];
} node_t;

typedef struct net {
    node_t node[OWNERS];
    link_t link[16];
    size_t links;
    frame_t frame[MAX_FRAMES]; /* between owners, under way */
    size_t frames;
    int room; /* frames that links between owners still take; below 0: any number */
    psrti_view_t *view;
    uint64_t now, seq, last_skipped;
    psrt_hdr_t reply[WORKERS]; /* the last ACK or VALUE to a worker */
    float value[WORKERS][64];  /* that came with it                 */
} net_t;

/* The tables 1 to 3 lie with three owners; no links between them yet. */
net_t *open_net(void);
void close_net(net_t *net);
void connect_all(net_t *net);
void drop(net_t *net, size_t i);
/* Delivers frame i and keeps it. */
void deliver(net_t *net, size_t i);
void carry(net_t *net);
void lose(net_t *net);
void pass_time(net_t *net, uint64_t ms);

/* Declares "t<id>". */
psrt_status_t hold(net_t *net, uint32_t id, const psrt_dense_params_t *params);
/* "t<id>" of 4 elements that start as 1. */
void table_of(net_t *net, uint32_t id, psrt_dense_params_t p);
void table(net_t *net, uint32_t id, const char *optimizer, const char *group);
uint16_t vshard_of(uint32_t id);
node_t *home_of(net_t *net, uint32_t id);

/* Of a push of the whole table that ends the step; a new number. */
psrt_hdr_t header(net_t *net, uint32_t id, uint64_t step, unsigned flags);
/* The answer that is there then. */
psrt_hdr_t push(net_t *net, uint32_t rank, uint32_t id, uint64_t step, float g, unsigned flags);
void push_all(net_t *net, uint32_t id, uint64_t step, float g);
void expect(net_t *net, uint32_t id, uint64_t version, double value);
/* Sums over the owners. */
psrti_shard_counts_t counts(net_t *net);

#endif
