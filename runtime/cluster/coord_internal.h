/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the coordinator's core:
 *   coord_core.c    events, leases, recovery, the end of the job
 *   coord_join.c    who gets which place
 *   coord_view.c    views and late joins
 *   coord_tables.c  the registry
 *   coord_parts.c   which servers have a part of a table
 *   coord_group.c   groups of tables, and first steps of late workers
 *   coord_barrier.c barriers
 *   coord_set.c     hyper-parameters set for a step
 *   coord_state.c   the state file */
#ifndef PSRTI_COORD_INTERNAL_H
#define PSRTI_COORD_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "runtime/cluster/convert.h"
#include "runtime/cluster/coord_core.h"

#define COORD_WORD_NS (10 * PSRTI_NS_PER_S)
#define COORD_TEXT_MAX 512
#define COORD_KEY_MAX 63
#define COORD_RESULTS 4 /* answered barriers remembered per worker */
/* Between the views of two workers that leave, for every task that is told: a job that ends needs few. */
#define COORD_VIEW_NS 20000ull
#define COORD_END_NS (2 * PSRTI_NS_PER_S) /* wait for tasks to hear it; or the lease, if longer */

typedef enum place_state {
    PLACE_EMPTY,
    PLACE_ALIVE,
    PLACE_JOINING, /* worker that came late: has its incarnation, is in no view yet */
    PLACE_DEAD,
    PLACE_FAILED, /* left and said that it failed */
    PLACE_FINISHED
} place_state_t;

/* A role and rank of the job. */
typedef struct place {
    uint32_t task;
    place_state_t state;
    uint64_t peer; /* connection of the current life; 0: none now */
    uint64_t incarnation, nonce;
    uint64_t seen; /* last sign of life, on the running clock */
    uint32_t pid;
    char host[64];
    int returned;       /* registered with this generation */
    int heard_end;      /* this life answered to Finish   */
    uint64_t view_sent; /* last one over this connection; 0: none */
    int changed;        /* since the state was persisted */

    psrti_list_t parked; /* newcomers that wait for the lease of the current life to end */

    /* servers */
    uint32_t term, first_owner, nthreads;
    psrti_view_owner_t *threads;
    int owes_prepared, owes_set;
    uint32_t lost_before; /* tables with lower ids have lost their part there */

    /* workers */
    int may_be_late;              /* the job begins without it, too */
    char addrs[PSRTI_VIEW_ADDRS]; /* as in views */
    struct {
        uint64_t request;
        psrt_status_t status;
    } results[COORD_RESULTS]; /* ring of answered barriers */
    uint32_t next_result;
    uint64_t set_request, set_step; /* the last set that was granted, and from which step */
    psrti_list_t requests;          /* declares in flight */
    /* After a late join: the first step per table, ascending ids, and the view that says so. */
    uint64_t commit_view;
    uint32_t nfrom;
    uint32_t *from_table;
    uint64_t *from_step;
} place_t;

typedef struct peer {
    uint64_t id;
    uint32_t task;
    place_t *place; /* whose current life this is; NULL: not joined, parked, fenced, left */
    int told_end;   /* it was sent Finish, and hangs up when it knows that this is known */
} peer_t;

struct barrier;

/* A table of the registry. */
typedef struct table {
    psrti_list_t node;        /* in inflight; points at itself else */
    psrti_list_t failed_node; /* in untold                          */
    struct table *next_name;  /* same hash                          */
    uint32_t id;
    uint32_t first_worker; /* who declared it */
    int complete, used;
    psrt_status_t status;
    char *text;
    uint64_t *parts; /* bits of the servers that have a part of it   */
    uint64_t *bits;  /* of those that have not answered; NULL: all have */
    uint32_t owed;   /* how many those are                           */
    struct entry *waiters;
    uint64_t join_view, open_step; /* as reported for the join to that view */
    struct coord_group *group;     /* NULL: alone, or refused by its group */
    psrti_list_t group_node;       /* in group->tables */
    psrti_table_spec_t spec;
} table_t;

/* Tables that are clipped and skipped together. */
typedef struct coord_group {
    struct coord_group *next_name; /* same hash */
    psrti_list_t tables;
    int used;                      /* somebody pushed to one of them    */
    int failed;                    /* with one of them all are          */
    uint64_t join_view, open_step; /* the highest of its tables */
} coord_group_t;

struct psrti_coord {
    psrti_coord_params_t p;
    psrti_coord_env_t env;
    char job[64];
    uint64_t now, run; /* wall of events; own running time, on which leases run */
    uint64_t generation, next_incarnation, view_number;
    size_t state_size, state_tail; /* of the state file: whole, appended since; 0: there is none */
    uint64_t start_deadline, next_word; /* next_word: when to tell again who is missing */
    int formed, recovering;
    psrti_map_t peers;
    place_t *servers, *workers;

    uint32_t nowners;
    uint16_t *owner_of_vshard;
    uint32_t *server_of_owner;
    psrti_view_t *view;   /* last one sent; NULL before the first */
    psrti_view_t *before; /* the one before it */
    uint64_t published;   /* when the last one was sent                */
    uint64_t view_due;    /* when the next one is to be sent; 0: there is none */

    place_t *joiner; /* late join in progress */
    uint64_t join_view;
    uint32_t join_owed;

    /* registry */
    psrti_map_t by_id, by_name, groups;
    psrti_list_t inflight; /* tables that some server has not answered for */
    psrti_list_t untold;   /* tables that failed during this event */
    uint32_t next_table, table_bound;

    struct barrier *barriers;

    psrti_list_t sets;  /* the first may be under way */
    uint64_t set_count; /* begun in this generation   */

    uint64_t gone_since; /* all workers are gone without success; 0: no */
    int ending, ended;
    uint64_t end_deadline;
    psrt_status_t end_status;
    char end_text[COORD_TEXT_MAX];
};

/* coord_core.c */
place_t *psrti_coord_place(psrti_coord_t *c, uint32_t task); /* NULL: no such place */
void psrti_coord_send(psrti_coord_t *c, uint64_t peer, const Psrt__Control *msg); /* 0: nobody */
void psrti_coord_refuse(psrti_coord_t *c, uint64_t peer, psrt_status_t status, const char *text);
void psrti_coord_send_finish(psrti_coord_t *c, uint64_t peer, psrt_status_t status,
                             const char *text);
void psrti_coord_send_welcome(psrti_coord_t *c, const place_t *p);
void psrti_coord_note(psrti_coord_t *c, psrt_log_level_t level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void psrti_coord_end(psrti_coord_t *c, psrt_status_t status, const char *text);
void psrti_coord_no_memory(psrti_coord_t *c);
static inline int psrti_place_live(const place_t *p)
{
    return p->state == PLACE_ALIVE || p->state == PLACE_JOINING;
}
static inline uint32_t psrti_place_count(const psrti_coord_t *c)
{
    return c->p.servers + c->p.workers;
}
/* Servers first: they must know of things before workers use them. */
static inline place_t *psrti_place_at(psrti_coord_t *c, uint32_t i)
{
    return i < c->p.servers ? &c->servers[i] : &c->workers[i - c->p.servers];
}
uint32_t psrti_coord_live_workers(const psrti_coord_t *c);

/* coord_join.c */
psrt_status_t psrti_coord_on_join(psrti_coord_t *c, peer_t *peer, const Psrt__Join *join);
void psrti_coord_try_form(psrti_coord_t *c); /* the first view, when all are there */
void psrti_coord_sign_of_life(psrti_coord_t *c, place_t *p);
void psrti_coord_detach(psrti_coord_t *c, place_t *p);
/* Newcomers: the place is vacant now; one gave a sign of life, hung up; time passed; the job ends. */
void psrti_coord_admit_parked(psrti_coord_t *c, place_t *p);
void psrti_coord_parked_lives(psrti_coord_t *c, place_t *p, uint64_t peer);
void psrti_coord_parked_lost(place_t *p, uint64_t peer);
void psrti_coord_expire_parked(psrti_coord_t *c, place_t *p);
void psrti_coord_finish_parked(psrti_coord_t *c, const place_t *p);
void psrti_coord_forget_parked(place_t *p);

/* coord_view.c */
psrt_status_t psrti_coord_form(psrti_coord_t *c); /* lays out the owners */
void psrti_coord_publish(psrti_coord_t *c);
void psrti_coord_publish_soon(psrti_coord_t *c); /* together with what else changes by then */
void psrti_coord_publish_due(psrti_coord_t *c);
void psrti_coord_send_view(psrti_coord_t *c, place_t *to, uint64_t last_seen);
void psrti_coord_send_commits(psrti_coord_t *c);
void psrti_coord_next_join(psrti_coord_t *c);
void psrti_coord_server_prepared(psrti_coord_t *c, place_t *server); /* or died: owes nothing */
void psrti_coord_on_prepared(psrti_coord_t *c, place_t *server, const Psrt__Prepared *msg);
void psrti_coord_send_prepare(psrti_coord_t *c, const place_t *server);
void psrti_coord_join_gone(psrti_coord_t *c, place_t *worker);
uint64_t psrti_coord_first_step(const place_t *worker, uint32_t table);

/* coord_tables.c */
psrt_status_t psrti_coord_on_declare(psrti_coord_t *c, place_t *worker, const Psrt__Declare *msg);
psrt_status_t psrti_coord_on_held(psrti_coord_t *c, place_t *server, const Psrt__Held *msg);
void psrti_coord_on_used(psrti_coord_t *c, uint32_t table);
/* Registration again: what this task holds or declared. */
psrt_status_t psrti_coord_merge(psrti_coord_t *c, place_t *place, const Psrt__Join *join);
void psrti_coord_send_holds(psrti_coord_t *c, place_t *server);
void psrti_coord_settle_tables(psrti_coord_t *c); /* completes what nobody is waited for */
void psrti_coord_server_reborn(psrti_coord_t *c, place_t *server);
void psrti_coord_server_gone(psrti_coord_t *c, place_t *server);
void psrti_coord_worker_gone(psrti_coord_t *c, place_t *worker);
void psrti_coord_tell_failed(psrti_coord_t *c); /* at the end of an event */
void psrti_coord_fail_table(psrti_coord_t *c, table_t *t, psrt_status_t status, const char *text);

/* coord_parts.c */
void psrti_coord_find_parts(const psrti_coord_t *c, table_t *table);
/* Tables by server: index[first[s]] up to index[first[s + 1]] are places in `ids` of those of which server
 * s has a part. Ids of no table are left out. */
typedef struct psrti_dealt {
    uint32_t *first, *index;
} psrti_dealt_t;
psrt_status_t psrti_coord_deal(const psrti_coord_t *c, const uint32_t *ids, uint32_t n,
                               psrti_dealt_t *dealt);
void psrti_coord_dealt_free(psrti_dealt_t *dealt);

/* coord_group.c */
/* Puts a new table into the group it names, or fails it. `known`: it was in it before this coordinator
 * was started. */
void psrti_coord_group_join(psrti_coord_t *c, table_t *t, int known);
void psrti_coord_group_failed(psrti_coord_t *c, table_t *t); /* with this table */
void psrti_coord_groups_free(psrti_coord_t *c);
/* The highest open step of a table as the servers report it for the join in progress. */
void psrti_coord_open_step(psrti_coord_t *c, uint32_t table, uint64_t step);
psrt_status_t psrti_coord_collect_steps(psrti_coord_t *c, place_t *joiner);
/* Is the table whole, that is, does every server that has a part of it live? The text says why
 * not. */
psrt_status_t psrti_coord_table_standing(const psrti_coord_t *c, uint32_t table, char *text,
                                         size_t size);
const char *psrti_coord_table_name(const psrti_coord_t *c, uint32_t table); /* "?": unknown */
void psrti_coord_tables_free(psrti_coord_t *c);

/* coord_barrier.c */
psrt_status_t psrti_coord_on_barrier(psrti_coord_t *c, place_t *worker, const Psrt__Barrier *msg);
void psrti_coord_barrier_gone(psrti_coord_t *c, place_t *worker);
void psrti_coord_barriers_free(psrti_coord_t *c);

/* coord_set.c */
psrt_status_t psrti_coord_on_set(psrti_coord_t *c, place_t *worker, const Psrt__Set *msg);
psrt_status_t psrti_coord_on_set_prepared(psrti_coord_t *c, place_t *server,
                                          const Psrt__SetPrepared *msg);
void psrti_coord_on_set_ended(psrti_coord_t *c, place_t *server, const Psrt__SetEnded *msg);
void psrti_coord_set_paid(psrti_coord_t *c, place_t *server); /* answered, or gone */
void psrti_coord_set_worker_gone(psrti_coord_t *c, const place_t *worker);
/* What a server that registers again has to know of sets. */
void psrti_coord_resync_set(psrti_coord_t *c, const place_t *server);
void psrti_coord_recover_sets(psrti_coord_t *c);
/* The line of a set that is decided and not yet known to all; false: there is none. */
int psrti_coord_set_line(const psrti_coord_t *c, char *line, size_t size);
int psrti_coord_read_set(psrti_coord_t *c, const char *line); /* false: malformed */
void psrti_coord_sets_free(psrti_coord_t *c);

/* coord_state.c */
void psrti_coord_persist(psrti_coord_t *c);
psrt_status_t psrti_coord_load(psrti_coord_t *c, const char *text);

#endif
