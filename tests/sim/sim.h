/* SPDX-License-Identifier: Apache-2.0 */
/* A deterministic simulator of one job: the real cores of servers and workers under one seeded
 * scheduler with a virtual clock.
 *
 *   engine.c   events, random numbers, failing, trace
 *   net.c      links that carry encoded frames and payloads, and what goes wrong with them
 *   server.c   processes of servers around a shard
 *   worker.c   processes of workers around a client, and the programs that they run
 *   set.c      hyper-parameters that workers set for a step
 *   cluster.c  the control plane: the coordinator and its connections
 *   member.c   a member of it in every process
 *   ends.c     what operations must return
 *   tables.c   the tables, their gradients and first values
 *   model.c    what the values must be; checked after every event
 *   explain.c  which pushes make the values that a slice has, in plain arithmetic
 *   faults.c   what goes wrong with processes and the network, and when
 *   check.c    views, clocks and memory, after every event
 *   run.c      one seed from start to end
 *   shrink.c   what of a seed that fails is not needed for it
 *   main.c     many seeds, on many processes
 *
 * A node is a process: servers are 0..S-1, workers S..S+W-1. Its events carry the number of its
 * life and are dropped when it was killed meanwhile, put off while it is stopped. */
#ifndef PSRT_TESTS_SIM_H
#define PSRT_TESTS_SIM_H

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "runtime/cluster/member_core.h"
#include "runtime/core/batch.h"
#include "runtime/server/shard.h"
#include "runtime/worker/client.h"
#include "transport/frame.h"

#define SLICE PSRTI_SLICE_ELEMS
#define SIM_MAX_NODES 4 /* of a kind */
#define SIM_MAX_TABLES 24
#define SIM_MAX_SLICES 8
#define SIM_MAX_TRANSFERS 6
#define SIM_MAX_VIEWS 512
#define SIM_NOBODY (-1)
#define SIM_COORDINATOR (2 * SIM_MAX_NODES) /* as an end of a partition */
#define US 1000ull
#define MS (1000 * US)

typedef struct sim sim_t;
typedef struct sim_link sim_link_t;
typedef struct sim_worker sim_worker_t;
typedef struct sim_server sim_server_t;
typedef struct sim_table sim_table_t;
typedef struct sim_op sim_op_t;
typedef struct sim_unit sim_unit_t;

/* What happened, over many seeds. Every one must have happened. */
#define SIM_COUNTS(X)                                                                              \
    X(events)                                                                                      \
    X(messages)                                                                                    \
    X(dropped)                                                                                     \
    X(duplicates)                                                                                  \
    X(stale_sessions)                                                                              \
    X(stale_memory)                                                                                \
    X(old_terms)                                                                                   \
    X(asked_to_wait)                                                                               \
    X(twice_a_push_pull)                                                                           \
    X(clocks_to_empty)                                                                             \
    X(skips)                                                                                       \
    X(steps_held_for_sets)                                                                         \
    X(steps_held_for_joins)                                                                        \
    X(late_starts)                                                                                 \
    X(joins_at_a_step)                                                                             \
    X(joins_at_the_end)                                                                            \
    X(pulls_at_the_end)                                                                            \
    X(trains_on_alone)                                                                             \
    X(windows_full)                                                                                \
    X(reorderings)                                                                                 \
    X(cuts)                                                                                        \
    X(cut_short)                                                                                   \
    X(partitions)                                                                                  \
    X(held_by_partitions)                                                                          \
    X(withdrawn)                                                                                   \
    X(backpressure)                                                                                \
    X(stops)                                                                                       \
    X(long_stops)                                                                                  \
    X(frozen_events)                                                                               \
    X(leaves)                                                                                      \
    X(server_restarts)                                                                             \
    X(worker_restarts)                                                                             \
    X(joins)                                                                                       \
    X(coordinator_restarts)                                                                        \
    X(fenced)                                                                                      \
    X(moved)                                                                                       \
    X(late)                                                                                        \
    X(backup_late)                                                                                 \
    X(window_duplicates)                                                                           \
    X(retries)                                                                                     \
    X(parked)                                                                                      \
    X(request_batches)                                                                             \
    X(batched_requests)                                                                            \
    X(answer_batches)                                                                              \
    X(batched_answers)                                                                             \
    X(joined_answers)                                                                              \
    X(kept_answers)                                                                                \
    X(batches_cut)                                                                                 \
    X(batches_twice)                                                                               \
    X(shard_lost)                                                                                  \
    X(orphaned)                                                                                    \
    X(canceled)                                                                                    \
    X(deadlines)                                                                                   \
    X(done_though_asked)                                                                           \
    X(taken_back)                                                                                  \
    X(fences)                                                                                      \
    X(ops)                                                                                         \
    X(sync_steps)                                                                                  \
    X(applied)                                                                                     \
    X(pinned_reads)                                                                                \
    X(ssp_at_bound)                                                                                \
    X(optional_contributions)                                                                      \
    X(sets)                                                                                        \
    X(sets_too_late)                                                                               \
    X(sets_refused)                                                                                \
    X(reports)                                                                                     \
    X(reports_repeated)                                                                            \
    X(verdicts_repeated)                                                                           \
    X(owner_links_lost)                                                                            \
    X(scaled_twice)                                                                                \
    X(averages_pulled)                                                                             \
    X(scheduled_updates)                                                                           \
    X(halves_pulled)                                                                               \
    X(clipped)                                                                                     \
    X(skipped)                                                                                     \
    X(given_up) /* seeds that the model left */
/* The most there ever was of something that is bounded. */
#define SIM_PEAKS(X)                                                                               \
    X(most_waits)                                                                                  \
    X(most_owed)                                                                                   \
    X(most_numbers)                                                                                \
    X(slowest_end) /* us from the last fault to the end */
typedef struct sim_counts {
#define SIM_COUNT_FIELD(name) uint64_t name;
    SIM_COUNTS(SIM_COUNT_FIELD)
    SIM_PEAKS(SIM_COUNT_FIELD)
#undef SIM_COUNT_FIELD
} sim_counts_t;

/* What can go wrong, and can be left out to make a seed simpler. Each has its own random
 * numbers, so that the others stay what they are. */
#define SIM_KINDS(X)                                                                               \
    X(drop)                                                                                        \
    X(duplicate)                                                                                   \
    X(reorder)                                                                                     \
    X(cut)                                                                                         \
    X(withdraw)                                                                                    \
    X(backpressure)                                                                                \
    X(loss_of_links)                                                                               \
    X(partition)                                                                                   \
    X(stop)                                                                                        \
    X(long_stop)                                                                                   \
    X(kill_of_servers)                                                                             \
    X(kill_of_workers)                                                                             \
    X(isolation)                                                                                   \
    X(kill_of_coordinator)                                                                         \
    X(loss_of_control)                                                                             \
    X(leave)                                                                                       \
    X(hurry)                                                                                       \
    X(set)
typedef enum sim_kind {
#define SIM_KIND_VALUE(name) SIM_##name,
    SIM_KINDS(SIM_KIND_VALUE)
#undef SIM_KIND_VALUE
        SIM_KIND_COUNT
} sim_kind_t;

/* A seed, or less of it. */
typedef struct sim_case {
    uint64_t seed;
    unsigned without; /* bits of sim_kind_t              */
    uint64_t until;   /* no fault begins later; 0: as drawn */
} sim_case_t;

/* Per cent, or pieces, drawn from the seed. */
typedef struct sim_faults {
    unsigned rate[SIM_backpressure + 1]; /* per cent of messages */
    unsigned pend;
    unsigned window; /* messages in flight in one direction */
    uint64_t latency;
    uint64_t batch;       /* bytes of a batch at most, 0: none are made */
    uint64_t span, until; /* faults are drawn for that time; none begins later than `until` */
} sim_faults_t;

typedef void (*sim_event_fn)(sim_t *sim, void *obj, uint64_t arg);

typedef struct sim_node {
    uint32_t life;     /* grows with every start and kill */
    int alive, fenced; /* fenced: declared dead while it lives */
    int doubted;       /* the coordinator may take it for dead at some time */
    int frozen; /* was stopped for longer than the lease, and not confirmed since: serves nobody */
    unsigned sending; /* sends that read its memory */
    int left;         /* a worker that asked to leave: no other takes its place */
    uint64_t stopped_until, cut_off_until, incarnation; /* cut off from the coordinator */
} sim_node_t;

struct sim_server {
    int index;
    psrti_shard_t *shard; /* from its first view on */
    sim_t *sim;
    sim_link_t *out[SIM_MAX_NODES];      /* that it dialled  */
    uint64_t incarnation[SIM_MAX_NODES]; /* of those, by view */
    uint64_t timer;
};

struct sim_worker {
    int rank;
    psrti_client_t *client;
    sim_t *sim;
    sim_link_t *link[SIM_MAX_NODES];
    psrti_ctable_t *table[SIM_MAX_TABLES];
    int gone[SIM_MAX_TABLES];       /* an op on it ended with SHARD_LOST */
    uint64_t known[SIM_MAX_TABLES]; /* version that all slices had when last pulled whole */
    uint64_t first[SIM_MAX_TABLES]; /* step that it began with */
    psrti_view_t *view;
    uint64_t timer;
    unsigned running, appetite; /* ops in flight now, at most */
    uint64_t
        leaving; /* since when; begins nothing more, and goes when all has ended. 0: it stays */
};

/* One message's worth of a push, as the model knows it. */
struct sim_unit {
    sim_unit_t *next;   /* of the slice, in the order of submission */
    const sim_op_t *op; /* NULL: its worker was killed before it ended */
    int rank, ok, late, applied;
    int maybe;    /* accepted, and yet it may have come late */
    int unsure;   /* the values do not say if it is in       */
    int canceled; /* its op was, and it was not applied by then */
    int never;    /* it may not be applied any more           */
    uint32_t life;
    uint64_t step, version; /* version: the first that contains it */
    uint64_t first, count;  /* in the slice */
    double *grad;
};

typedef struct sim_version {
    double value[SLICE],
        average[SLICE];    /* average: of the values so far, where the table has them */
    uint64_t first, count; /* what the update to it changed */
} sim_version_t;

typedef struct sim_slice {
    int server;
    uint32_t life; /* of the server that holds it; 0: not held yet */
    int ready;
    uint64_t len, version;
    double *state;    /* momentum                                         */
    double params[2]; /* not sync: lr and momentum as its server has them */
    sim_version_t **versions;
    uint64_t capacity;
    sim_unit_t *units, *last_unit;
} sim_slice_t;

/* As kernels/schedule.h has them. */
typedef struct sim_schedule {
    enum { SIM_CONSTANT, SIM_BY_STEPS, SIM_LINEAR } kind;
    double warmup, period, total, final;
} sim_schedule_t;

struct sim_table {
    int index;
    uint32_t id; /* given by the coordinator; 0: not yet */
    psrti_table_spec_t spec;
    int two_phase, group; /* group: with the others of the simulation that have it set */
    char text[256];       /* of the optimizer */
    int rank0, exact;     /* values that sum exactly in any order */
    int half, averages;   /* half: values or messages have 16 bits */
    sim_schedule_t schedule;
    enum { SIM_NONE, SIM_SGD, SIM_MOMENTUM, SIM_LAMB } optimizer;
    uint32_t made_in[SIM_MAX_NODES]; /* lives of the servers */
    /* It was forgotten, and declared anew under its name. A worker and a server that were both
     * declared dead and do not know it yet may still use it; nobody looks. */
    int abandoned;
    int declared, lost, replaced;
    uint64_t from[SIM_MAX_NODES]; /* first step of the worker's life that joined late */
    uint32_t from_life[SIM_MAX_NODES];
    uint64_t nslices, pushes;
    struct {
        int index; /* 0 lr, 1 momentum */
        double value;
        uint64_t from_step;
    } set[256]; /* in the order of the decisions */
    size_t nsets;
    sim_slice_t slice[SIM_MAX_SLICES];
};

struct sim_op {
    psrti_cop_t cop;
    sim_op_t *next;
    sim_worker_t *worker;
    unsigned number;
    size_t count;
    psrti_transfer_t x[SIM_MAX_TRANSFERS];
    sim_table_t *table[SIM_MAX_TRANSFERS];
    uint64_t from_version[SIM_MAX_TRANSFERS][SIM_MAX_SLICES]; /* published when it was submitted */
    uint64_t step[SIM_MAX_TRANSFERS], want[SIM_MAX_TRANSFERS];
    int late;         /* its steps are closed already              */
    unsigned unheard; /* servers whose link was lost meanwhile     */
    int ranges;       /* of a step that ends with CLOCK */
};

struct sim {
    sim_case_t what;
    uint64_t random, randoms[SIM_KIND_COUNT], now;
    FILE *trace; /* NULL: none */
    int failed;
    int worker_kills; /* the membership may change */
    int certain;      /* who contributes to a step is known: only then are norms and NaN of use */
    double clip;      /* clip_norm of all two-phase tables            */
    int skip;         /* they have skip_nonfinite                     */
    unsigned hurry;   /* per cent: of ops with a deadline, of thoughts that cancel one */
    int renumbered;   /* servers may hold slices under a number that is not used */
    int given_up;     /* the model does not know any more what must be           */
    unsigned guesses; /* of the model, at the slice that it looks at             */
    char text[512];
    struct sim_queue *queue;
    sim_faults_t faults;
    sim_counts_t counts;
    int nservers, nworkers, ntables;
    int start_workers; /* with which the job begins; others come later */
    uint32_t vshards;
    int running;     /* the tables of the start are declared */
    int group_owner; /* the server that decides for the group */
    uint64_t steps;  /* of every worker on every table */
    sim_node_t node[2 * SIM_MAX_NODES];
    struct { /* the views that were seen; those of a number are alike */
        uint64_t number, hash;
    } view[SIM_MAX_VIEWS];
    uint64_t newest_view;
    uint64_t silent_until[2 * SIM_MAX_NODES + 1][2 * SIM_MAX_NODES + 1]; /* from, to */
    sim_server_t server[SIM_MAX_NODES];
    sim_worker_t worker[SIM_MAX_NODES];
    sim_table_t table[SIM_MAX_TABLES];
    struct { /* the set that is under way, or was last */
        uint64_t number;
        uint32_t table;
        int index, decided;
        double value;
    } set;
    struct sim_control *control;
    struct sim_net *net;
    sim_op_t *ops; /* in flight */
    unsigned nops; /* so far */
};

/* ---- engine.c */
uint64_t sim_random(sim_t *sim, uint64_t below); /* 0 when below is 0 */
int sim_chance(sim_t *sim, unsigned percent);
uint64_t sim_random_of(sim_t *sim, sim_kind_t kind, uint64_t below);
/* Shall something of this kind happen now? */
int sim_fault(sim_t *sim, sim_kind_t kind, unsigned percent);
void sim_schedule(sim_t *sim, uint64_t at, int node, sim_event_fn fn, void *obj, uint64_t arg);
int sim_next(sim_t *sim); /* runs one event; 0: none is left */
void sim_queue_free(sim_t *sim);
void sim_fail(sim_t *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(sim_t *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sim_node_name(const sim_t *sim, int node, char buf[32]);

/* ---- net.c */
void sim_net_open(sim_t *sim);
void sim_net_close(sim_t *sim);
sim_link_t *sim_dial(sim_t *sim, int node, int server);
psrt_status_t sim_send(sim_link_t *link, int from_server, psrt_hdr_t *hdr, const void *data,
                       uint64_t len, psrt_tx_t *tx);
/* For env.map and env.verify of the receiver. */
psrt_status_t sim_map(sim_t *sim, psrt_msg_t *msg, const void **data_p);
psrt_status_t sim_verify(sim_t *sim, const psrt_msg_t *msg);
void sim_link_drop(sim_link_t *link); /* who dialled closes it, and is told nothing */
void sim_cut_some_link(sim_t *sim);
/* All links of a process that is killed. */
void sim_cut_node(sim_t *sim, int node);
int sim_link_server(const sim_link_t *link);
/* When what is sent now arrives, if it takes until `at` where nothing is silent. */
uint64_t sim_arrival(sim_t *sim, int from, int to, uint64_t at);

/* ---- server.c */
void sim_server_start(sim_t *sim, int index);
void sim_server_kill(sim_t *sim, int index);
void sim_server_view(sim_server_t *server, psrti_view_t *view, int joiner, size_t count,
                     const uint32_t *table, const uint64_t *from);
void sim_server_hold(sim_server_t *server, sim_table_t *table);
/* `node` dialled. */
psrti_peer_t *sim_server_link_up(sim_server_t *server, sim_link_t *link, int node,
                                 uint64_t incarnation);
void sim_server_link_lost(sim_server_t *server, sim_link_t *link); /* one that it had dialled */
void sim_server_after(sim_server_t *server); /* every event at a server ends with it */

/* ---- worker.c */
void sim_worker_start(sim_t *sim, int rank);
void sim_worker_kill(sim_t *sim, int rank);
void sim_worker_view(sim_worker_t *worker, psrti_view_t *view);
void sim_worker_table(sim_worker_t *worker, sim_table_t *table, uint64_t first_step);
void sim_worker_link_up(sim_worker_t *worker, int server);
/* The link is gone, what it had pending was given up. */
void sim_worker_link_lost(sim_worker_t *worker, sim_link_t *link);
void sim_worker_after(sim_worker_t *worker); /* every event at a worker ends with it */
int sim_worker_is_done(const sim_worker_t *worker);

/* ---- set.c */
void sim_params(const sim_table_t *table, const sim_slice_t *slice, uint64_t step,
                double params[2]);
void sim_set_sent(sim_t *sim, const Psrt__Control *msg); /* by the coordinator */
void sim_set_end(sim_server_t *server, uint64_t number, int commit, uint64_t from_step);
void sim_set_done(sim_t *sim, psrt_status_t status, const char *text);
void sim_set_some(sim_worker_t *worker, sim_table_t *table); /* something, perhaps nonsense */

/* ---- cluster.c */
void sim_control_open(sim_t *sim);
void sim_control_close(sim_t *sim);
void sim_control_kill(sim_t *sim); /* the coordinator; it is started again with its state file */
void sim_control_cut(sim_t *sim);  /* some of its connections */
int sim_control_is_quiet(const sim_t *sim);
int sim_control_is_formed(const sim_t *sim);
int sim_control_is_finished(const sim_t *sim);

/* ---- member.c */
void sim_control_started(sim_t *sim, int node); /* a new process wants in */
void sim_control_died(sim_t *sim, int node);
/* The worker asks to leave; is it out? */
void sim_control_leave(sim_t *sim, int node);
int sim_control_has_left(const sim_t *sim, int node);
void sim_control_set(sim_worker_t *worker, uint32_t table, const char *key, double value,
                     uint64_t from_step);

/* ---- tables.c */
const char *sim_table_name(const sim_t *sim, uint32_t id); /* "-": not of a table */
sim_table_t *sim_table_new(sim_t *sim, const psrti_view_t *view);
void sim_tables_free(sim_t *sim);
int sim_same_group(const sim_table_t *a, const sim_table_t *b);
/* May a part of it be lost? */
int sim_is_damaged(const sim_t *sim, const sim_table_t *table);
void sim_lose(sim_t *sim, int server); /* the process is gone, and with it what it held */
sim_version_t *sim_version(sim_slice_t *slice, uint64_t version); /* makes room for it */
double *sim_values(sim_slice_t *slice, uint64_t version);         /* its values        */
void sim_fill_grad(sim_t *sim, sim_table_t *table, void *grad, uint64_t first, uint64_t count);
double sim_init_value(uint32_t life, uint64_t element); /* by a life of worker 0 */
void sim_init_values(const sim_table_t *table, uint32_t life, void *values);
double sim_get(psrt_dtype_t dtype, const void *data, uint64_t i);
/* The very same, be it NaN or a zero with a sign. */
static inline int sim_same_bits(double a, double b)
{
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}
/* As the user has it, the server publishes it, and a push carries it. */
double sim_stored(const sim_table_t *table, double v);
double sim_published(const sim_table_t *table, double v);
double sim_pushed(const sim_table_t *table, double v);

/* ---- ends.c */
/* Checks what the op returned when it ended. */
void sim_model_ended(sim_t *sim, sim_op_t *op);
void sim_model_killed(sim_t *sim, const sim_op_t *op);
void sim_model_link_up(const sim_worker_t *worker, int server);

/* ---- explain.c */
int sim_is_fenced(const sim_worker_t *worker);
int sim_is_certain(const sim_unit_t *unit); /* it was accepted */
/* Do pushes lead from the version that is known to `seen` at `version`? Marks them, and keeps the
 * values on the way. */
int sim_is_explained(sim_t *sim, sim_table_t *table, sim_slice_t *slice, uint64_t version,
                     const double *seen);
/* The averages of the versions after v: where an update changed a value, half of it is new. */
void sim_average(const sim_table_t *table, sim_slice_t *slice, uint64_t v, uint64_t last);

/* ---- model.c */
void sim_model_submit(sim_t *sim, sim_op_t *op); /* fills in its steps */
void sim_model_observe(sim_t *sim, const sim_server_t *server);
int sim_model_is_settled(const sim_t *sim);
void sim_model_finish(sim_t *sim);

/* ---- check.c */
/* What a process was told of the job. */
void sim_check_view(sim_t *sim, int node, const psrti_view_t *old, const psrti_view_t *view);
void sim_check_server(const sim_server_t *server);
void sim_check_worker(const sim_worker_t *worker);
/* A server answers a worker. */
void sim_check_answer(const sim_server_t *server, const psrt_hdr_t *hdr, const void *data,
                      uint64_t len);
/* Counts what is rare about a request that comes in. */
void sim_note_request(const sim_server_t *server, const psrti_peer_t *peer, const psrt_hdr_t *hdr);
/* Hands it to the worker. */
psrt_rx_t sim_check_reply(sim_worker_t *worker, int server, psrt_msg_t *msg);
/* When all is over. */
void sim_check_end(sim_t *sim);

/* ---- faults.c */
void sim_plan_faults(sim_t *sim);
void sim_exit_fenced(sim_t *sim, int node); /* the process found out that it was declared dead */

/* ---- run.c */
/* Runs a seed, adds to counts, writes what happens to `trace` (NULL: not). 0: an invariant
 * broke, the text says which. */
int sim_run(const sim_case_t *what, FILE *trace, sim_counts_t *counts, char *text, size_t size);

void sim_add_counts(sim_counts_t *to, const sim_counts_t *from);

/* ---- shrink.c */
extern const char *const sim_kind_names[SIM_KIND_COUNT];
/* Leaves out of a case that fails what it does not need to fail. */
void sim_shrink(sim_case_t *what);
/* What matters of a case that fails: the events around the table that is blamed, and the
 * accidents. */
void sim_explain(const sim_case_t *what, FILE *out);

static inline int sim_worker_node(const sim_t *sim, int rank) { return sim->nservers + rank; }

#endif
