/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's state: remote.c (connections and tasks), assemble.c (until all hosts are there). */
#ifndef PSRTI_LAUNCHER_CONTROLLER_H
#define PSRTI_LAUNCHER_CONTROLLER_H

#include "base/list.h"
#include "launcher/agentmsg.h"
#include "launcher/remote.h"

typedef enum psrti_phase_of_hosts {
    PSRTI_HOSTS_REACHING, /* agents are started and dial back */
    PSRTI_HOSTS_PROBING,  /* each looks for its neighbour's addresses */
    PSRTI_HOSTS_OPENING,  /* ports are bound */
    PSRTI_HOSTS_READY,
    PSRTI_HOSTS_FAILED
} psrti_phase_of_hosts_t;

typedef enum psrti_node_state {
    PSRTI_NODE_ABSENT,
    PSRTI_NODE_HERE,   /* said hello */
    PSRTI_NODE_PROBED, /* looked for its neighbour */
    PSRTI_NODE_OPENED, /* has its tasks' ports */
    PSRTI_NODE_LOST
} psrti_node_state_t;

typedef struct psrti_node {
    psrti_node_state_t state;
    psrti_channel_t *channel; /* NULL: not connected */
    psrti_facts_t facts;
    uint64_t reached;           /* bit i: its address i, as its neighbour found */
    int64_t clock_ns, skew_ns;  /* its monotonic clock, its date, less ours */
    uint64_t rtt_ns, rtt_at_ns; /* of the measurement that clock_ns is from */
    uint64_t heard_ns;          /* of its last answer */
    unsigned pongs;
    unsigned neighbour; /* of one that comes alone: for whose address it looks */
    uint64_t since_ns;  /* returning: it is tried */
    int known;          /* it was ready once */
    int returning;      /* it is new or was lost, and its agent is not ready yet */
    char why[512];      /* it cannot be used */
} psrti_node_t;

/* A connection; of nobody before its hello. */
typedef struct psrti_conn {
    psrti_list_t node;
    psrti_backend_t *backend;
    psrti_channel_t *channel;
    unsigned host; /* UINT_MAX: of nobody */
    int is_proved; /* it has the key */
} psrti_conn_t;

typedef struct psrti_remote_task {
    int open;                      /* started, and not yet both gone and told to the end */
    int ended, gone, open_streams; /* bits of descriptors */
    unsigned host;
} psrti_remote_task_t;

struct psrti_backend {
    uv_loop_t *loop;
    psrti_job_t *job;
    psrti_backend_events_t events;
    const psrti_starter_ops_t *ops;
    psrti_starter_t *starter;
    psrti_jobkey_t key;
    uv_tcp_t listener;
    uint16_t port;
    uv_timer_t deadline, ping;
    psrti_phase_of_hosts_t phase;
    psrti_node_t *nodes; /* also of hosts that may come; those are lost until they are reached */
    psrti_remote_task_t *tasks;
    psrti_list_t conns;
    size_t conn_count;
    int lock; /* of the directory on this host, for those who ask how the job does */
    int closing;
};

void psrti_controller_send(psrti_node_t *node, psrti_wire_out_t *w); /* clears the writer */
void psrti_controller_lose(psrti_backend_t *b, unsigned host, const char *text);

/* assemble.c */
int psrti_assemble_may_use(const psrti_job_t *job, const psrti_netif_t *netif);
void psrti_assemble_hello(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r);
void psrti_assemble_probed(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r);
void psrti_assemble_opened(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r);
/* A host cannot be used, before all were ready. */
void psrti_assemble_lost(psrti_backend_t *b, unsigned host, const char *text);
void psrti_assemble_deadline(psrti_backend_t *b);

#endif
