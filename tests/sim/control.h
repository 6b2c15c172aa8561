/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane, which cluster.c and member.c share. */
#ifndef PSRT_TESTS_SIM_CONTROL_H
#define PSRT_TESTS_SIM_CONTROL_H

#include "runtime/cluster/coord_core.h"
#include "sim.h"

#define HEARTBEAT (50 * MS)
#define LEASE (400 * MS)
#define MAX_LIVES 4096

/* One connection. Its number is the coordinator's peer. */
typedef struct conn {
    struct conn *next; /* all of the simulation */
    uint64_t number;
    int node, open;
    uint32_t life, coordinator; /* lives of both ends */
    uint64_t last[2];           /* arrivals, by to_coordinator */
} conn_t;

typedef struct packet {
    struct packet *next; /* all of the simulation */
    conn_t *conn;
    size_t len;
    uint8_t bytes[];
} packet_t;

typedef struct member {
    sim_t *sim;
    int node;
    psrti_member_core_t *core;
    conn_t *conn;
    psrti_view_owner_t thread;
    uint64_t timer, requests, answered, sets, sets_done;
    int declared; /* tables asked for */
    int admitted; /* it was in a view; until then it may be declared dead unnoticed */
} member_t;

struct sim_control {
    psrti_coord_t *coord;         /* NULL while it is down */
    uint32_t life, generation_of; /* the life whose generation that is */
    uint64_t timer, numbers, generation;
    char *state; /* the file */
    conn_t *conns;
    packet_t *packets;
    member_t member[2 * SIM_MAX_NODES];
    uint32_t life_of[MAX_LIVES]; /* by incarnation */
    int finished, formed;
    uint64_t changed; /* when the newest view was sent */
};

/* ---- cluster.c */
uint32_t sim_task_of(const sim_t *sim, int node);
conn_t *sim_conn_dial(sim_t *sim, int node); /* to the coordinator */
void sim_conn_send(sim_t *sim, conn_t *conn, int to_coordinator, const Psrt__Control *msg);
void sim_conn_close(sim_t *sim, conn_t *conn);

/* ---- member.c */
void sim_member_after(member_t *m); /* every event at a member ends with it */

#endif
