/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of coordinator and members together, with a virtual clock and links that delay and break. */
#ifndef PSRT_TESTS_CORES_RIG_H
#define PSRT_TESTS_CORES_RIG_H

#include "base/list.h"
#include "runtime/cluster/coord_core.h"
#include "runtime/cluster/member_core.h"

#define WORKERS 3u
#define SERVERS 2u
#define VSHARDS 16u
#define TASKS (WORKERS + SERVERS)
#define TABLES 6u /* names; the last one does not fit into server 1 */
#define MAX_IDS 65536u
#define STEP (10 * PSRTI_NS_PER_MS)
#define SECOND PSRTI_NS_PER_S
#define HEARTBEAT SECOND
#define LEASE (5 * SECOND)
#define CHAOS_END (150 * SECOND)
#define HEAL_END (CHAOS_END + 300 * SECOND)

typedef struct packet {
    psrti_list_t node;
    uint64_t at;
    int to_coord;
    size_t len;
    uint8_t bytes[];
} packet_t;

struct rig;

/* A process of a task. */
typedef struct process {
    struct rig *rig;
    uint32_t task;
    psrti_member_core_t *core; /* NULL: not running */
    uint64_t start_at, paused_until, next_tick;
    psrti_view_owner_t thread;
    /* link: number is the coordinator's peer id */
    uint64_t link, up_at; /* link 0: none; up_at 0: is up */
    uint64_t lost_at;     /* cut: the member hears of it then; 0: no */
    psrti_list_t wire;
    /* what it saw */
    uint64_t incarnation, view;
    uint64_t former_incarnation; /* of an earlier process of this task */
    psrti_view_t *last_view;
    psrt_status_t answer[TABLES]; /* IN_PROGRESS: asked; ERR_AGAIN: not asked */
    uint32_t id[TABLES];
    uint32_t nheld, held[64]; /* server: ids it was told to hold */
    int large[64];            /* the table that does not fit into server 1 */
    uint32_t answers_due;     /* held, not answered yet */
    uint64_t set_held;        /* server: number of the set it holds for; 0: none */
    uint64_t set_reached;     /* the step that it said                           */
    uint64_t sets, sets_done; /* worker */
    int met, ended;
    psrt_status_t end_status;
    char end_text[128];
} process_t;

typedef struct rig {
    uint64_t random, now;
    psrti_coord_t *coord;
    uint64_t coord_next, coord_back_at, trouble_at;
    char *state;
    uint64_t next_link;
    int coord_finished, finishing, leaving;
    psrt_status_t coord_status;
    process_t tasks[TASKS];
    uint32_t name_of_id[MAX_IDS]; /* 1 + name, once declared OK to somebody */
    uint8_t ready[MAX_IDS];
    uint64_t set_number, set_from; /* last set that a server was told to make */
    uint64_t set_released;         /* last hold that ended without it         */
    unsigned sets, sets_too_late;
    unsigned cuts, kills, pauses, coord_restarts, late_joins, fenced, lost_tables, no_memory;
} rig_t;

rig_t *rig_new(uint64_t seed);
void rig_free(rig_t *r);
uint64_t rig_random(rig_t *r, uint64_t below);

/* One step of the clock, for all. */
void rig_step(rig_t *r);
/* Perhaps cuts, kills or stops somebody. */
void rig_trouble(rig_t *r);
/* While the job ends nobody may be taken for dead, but connections and the coordinator still break. */
void rig_little_trouble(rig_t *r);

/* Processes and links (cores_env.c). */
void rig_start_coord(rig_t *r);
void rig_start(rig_t *r, process_t *p);
void rig_kill(rig_t *r, process_t *p);
/* What is under way is lost; the member hears of it a little later. */
void rig_cut(rig_t *r, process_t *p);
void rig_clear_wire(process_t *p);
/* A server answers for the table that it was told of first. */
void rig_answer_hold(process_t *p);

void rig_name_text(uint32_t name, char buf[32]);
/* The tables have one slice. */
int rig_has_part(const process_t *p, const char *name);

#endif
