/* SPDX-License-Identifier: Apache-2.0 */
/* How what a job costs grows with it: the real cores at real size, on a network that delivers at once and
 * loses nothing. What is counted is exact and the same on every machine; docs/scaling.md has the table.
 *
 *   scale_memory.c   bytes that each kind of task has allocated
 *   scale_control.c  a coordinator with the members of all tasks
 *   scale_data.c     shards with clients: steps of tables
 *   test_scale.c     growth, and the table */
#ifndef PSRT_TESTS_SCALE_H
#define PSRT_TESTS_SCALE_H

#include <stdint.h>

/* ---- scale_memory.c */
typedef enum scale_role {
    SCALE_DRIVER,
    SCALE_COORDINATOR,
    SCALE_SERVER,
    SCALE_WORKER
} scale_role_t;
/* What is allocated and freed from now on is that role's; returns whose it was before. */
scale_role_t scale_account(scale_role_t role);
uint64_t scale_allocated(scale_role_t role);

typedef struct scale_size {
    uint32_t workers, servers, tables;
} scale_size_t;

/* ---- scale_control.c */
/* Messages and their bytes, with the header of their frame. */
typedef struct scale_traffic {
    uint64_t messages, bytes;
} scale_traffic_t;

typedef struct scale_cost {
    scale_traffic_t up, down;    /* to the coordinator, from it */
    scale_traffic_t server_down; /* of `down`: to servers       */
    uint64_t most;               /* bytes that one task was sent at most */
    uint64_t state;              /* bytes written to the state file      */
    uint64_t heartbeats;         /* messages; not in the others          */
} scale_cost_t;

typedef struct scale_control scale_control_t;

scale_control_t *scale_control_open(const scale_size_t *size);
void scale_control_close(scale_control_t *job);
/* Each does one thing and returns what it cost. */
scale_cost_t scale_join(scale_control_t *job);
scale_cost_t scale_beat(scale_control_t *job); /* every task once */
/* One worker declares all tables in one request, or `requests` of the same size. */
scale_cost_t scale_declare(scale_control_t *job, uint32_t rank, uint32_t requests);
scale_cost_t scale_barrier(scale_control_t *job);
scale_cost_t scale_leave(scale_control_t *job, uint32_t first, uint32_t count); /* workers */
scale_cost_t scale_rejoin(scale_control_t *job, uint32_t rank); /* a worker died, comes again */
scale_cost_t scale_lose_server(scale_control_t *job, uint32_t rank); /* died, started again */
scale_cost_t scale_restart(scale_control_t *job);                    /* of the coordinator */

/* ---- scale_data.c */
typedef struct scale_steps {
    uint64_t requests, answers;            /* messages, alone or in a BATCH     */
    uint64_t request_bytes, answer_bytes;  /* of their headers and payloads     */
    uint64_t frames;                       /* BATCH or alone, in both directions */
    uint64_t server_memory, worker_memory; /* allocated by all of them          */
} scale_steps_t;

typedef struct scale_data_params {
    scale_size_t size;
    uint64_t elements; /* of every table, f32 */
    const char *consistency;
    int pull; /* push_pull, else push */
    int steps;
} scale_data_params_t;

/* What the last of the steps cost. */
scale_steps_t scale_data(const scale_data_params_t *params);

#endif
