/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by member_core.c (connection, joining, views, the end), member_tables.c (what was
 * asked: tables and barriers) and member_set.c (hyper-parameters set for a step). */
#ifndef PSRTI_MEMBER_INTERNAL_H
#define PSRTI_MEMBER_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "runtime/cluster/convert.h"
#include "runtime/cluster/member_core.h"

#define MEMBER_TEXT_MAX 512

typedef enum member_state {
    MEMBER_WAIT, /* until dial_at */
    MEMBER_DIALING,
    MEMBER_JOINING, /* Join sent */
    MEMBER_JOINED,
    MEMBER_ENDED
} member_state_t;

typedef struct declare {
    psrti_list_t node;
    uint64_t request;
    size_t count;
    psrti_table_spec_t specs[];
} declare_t;

typedef struct barrier_wait {
    psrti_list_t node;
    uint64_t request;
    uint32_t count;
    int withdrawn;
    char name[PSRTI_NAME_MAX + 1];
} barrier_wait_t;

/* A table that this task declared or holds. */
typedef struct known {
    uint32_t id;
    psrt_status_t status;
    int pending; /* server: on_hold was called, not answered yet */
    int used;
    char *text; /* NULL: none */
    psrti_table_spec_t spec;
} known_t;

struct psrti_member_core {
    psrti_member_core_params_t p;
    psrti_member_env_t env;
    member_state_t state;
    uint64_t now, started;
    uint64_t dial_at, heard, next_beat;
    unsigned attempts;
    uint64_t incarnation, generation, lease_ns;
    int current, ready, reached; /* reached: a link was up once */
    uint64_t view_number;
    psrti_view_t *view; /* the last one; NULL before the first */
    int leaving, failed;
    char why[MEMBER_TEXT_MAX]; /* last reason of a lost link */
    psrti_map_t tables;
    psrti_list_t declares, barriers;
    psrti_list_t sets; /* the first one is with the coordinator */
};

/* member_core.c */
void psrti_member_end(psrti_member_core_t *m, psrt_status_t status, const char *text);
static inline int psrti_member_can_ask(const psrti_member_core_t *m)
{
    return m->state == MEMBER_JOINED && m->ready;
}

/* member_tables.c */
void psrti_member_ask_again(psrti_member_core_t *m);
psrt_status_t psrti_member_on_declared(psrti_member_core_t *m, const Psrt__Declared *msg);
psrt_status_t psrti_member_on_hold(psrti_member_core_t *m, const Psrt__Hold *msg);
psrt_status_t psrti_member_on_barrier_done(psrti_member_core_t *m, const Psrt__BarrierDone *msg);
psrt_status_t psrti_member_list_held(const psrti_member_core_t *m, psrti_wire_tables_t *tables);
void psrti_member_tables_free(psrti_member_core_t *m);

/* member_set.c */
void psrti_member_ask_set(psrti_member_core_t *m);
psrt_status_t psrti_member_on_set_done(psrti_member_core_t *m, const Psrt__SetDone *msg);
psrt_status_t psrti_member_on_set_prepare(psrti_member_core_t *m, const Psrt__SetPrepare *msg);
void psrti_member_sets_free(psrti_member_core_t *m);

#endif
