/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/worker/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "runtime/core/where.h"
#include "runtime/worker/small.h"
#include "runtime/worker/worker_int.h"

/* A peer that is asked to let go of memory does so within this, or its link is closed. */
#define GRACE_NS PSRTI_NS_PER_S

static psrt_status_t check_chunk(const psrti_worker_t *w)
{
    const psrti_config_t *config = w->p.config;
    uint64_t chunk = psrti_config_u64(config, PSRTI_CONF_COLL_CHUNK);
    uint64_t most = psrti_config_u64(config, PSRTI_CONF_MAX_MESSAGE);
    if (w->p.workers == 1 || !psrti_config_int(config, PSRTI_CONF_COLLECTIVES) || chunk <= most)
        return PSRT_OK;
    return psrti_fail(
        PSRT_ERR_INVALID,
        "PSRT_COLL_CHUNK is %s, more than PSRT_MAX_MESSAGE, which is %s: a chunk is a "
        "message",
        psrti_config_value(config, PSRTI_CONF_COLL_CHUNK),
        psrti_config_value(config, PSRTI_CONF_MAX_MESSAGE));
}

psrt_status_t psrti_comms_open(psrti_worker_t *w)
{
    psrti_coll_tune_t tune;
    const char *job_dir = psrti_config_text(w->p.config, PSRTI_CONF_JOB_DIR);
    psrti_coll_params_t params = {
        .rank = w->p.rank,
        .workers = w->p.workers,
        .host = psrti_where_host(*job_dir ? job_dir : NULL),
        .place = psrti_topology_place(NULL),
        .kernels = w->kernels,
        .eager = psrti_config_u64(w->p.config, PSRTI_CONF_COLL_EAGER),
        .chunk = psrti_config_u64(w->p.config, PSRTI_CONF_COLL_CHUNK),
        .message = psrti_config_u64(w->p.config, PSRTI_CONF_MAX_MESSAGE),
        .timeout = psrti_config_u64(w->p.config, PSRTI_CONF_COLL_TIMEOUT),
        .tune = &tune,
        .grace = GRACE_NS,
    };
    psrti_coll_env_t env = psrti_peers_env;
    env.arg = w;
    psrt_status_t rc = check_chunk(w);
    if (!rc) rc = psrti_coll_tune_load(psrti_config_text(w->p.config, PSRTI_CONF_COLL_TUNE), &tune);
    if (!rc) rc = psrti_peers_open(w);
    return rc ? rc : psrti_coll_create(&params, &env, &w->coll);
}

void psrti_comms_close(psrti_worker_t *w)
{
    psrti_fusions_close(w);
    psrti_coll_destroy(w->coll);
    psrti_list_t *n;
    while ((n = psrti_list_pop(&w->comms))) {
        psrt_comm_t *comm = PSRTI_LIST_ENTRY(n, psrt_comm_t, node);
        psrti_small_free(comm->small);
        free(comm);
    }
    free(w->peers);
}

uint64_t psrti_comms_in_use(psrti_worker_t *w)
{
    uint64_t n = !psrti_list_empty(&w->active_smalls);
    for (psrti_list_t *i = w->comms.next; i != &w->comms; i = i->next) {
        const psrt_comm_t *comm = PSRTI_LIST_ENTRY(i, psrt_comm_t, node);
        n += comm->core && psrti_comm_is_in_use(comm->core);
    }
    return n;
}

void psrti_comms_leave(psrti_worker_t *w)
{
    for (psrti_list_t *i = w->comms.next; i != &w->comms; i = i->next) {
        psrt_comm_t *comm = PSRTI_LIST_ENTRY(i, psrt_comm_t, node);
        if (!comm->core || comm->making) continue;
        psrti_small_close(comm);
        psrti_comm_leave(comm->core);
    }
}

/* ---- operations -------------------------------------------------------------------------------- */

static psrti_wcollop_t *op_new(psrti_worker_t *w)
{
    psrti_wcollop_t *op = calloc(1, sizeof *op);
    if (!op) {
        psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for an operation");
        return NULL;
    }
    psrti_op_init(w, &op->op);
    op->op.coll = op;
    psrti_list_init(&op->small_node);
    op->op.transfers = &op->op.one;
    return op;
}

void psrti_comm_op_start(psrti_wcollop_t *op)
{
    op->op.worker->meetings++;
    psrti_small_start(op);
}

/* Copies the counts; without offsets one part follows the other. */
static void copy_list(uint64_t *to, const uint64_t **counts, const uint64_t **offsets, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = (*counts)[i];
        to[n + i] = *offsets ? (*offsets)[i] : sum;
        sum += to[i];
    }
    *counts = to;
    *offsets = to + n;
}

static psrt_status_t copy_lists(psrti_wcollop_t *op)
{
    uint32_t n = psrti_comm_size(op->comm);
    psrti_coll_call_t *c = &op->call;
    if (!c->out_counts) return PSRT_OK;
    op->lists = calloc(n, 4 * sizeof *op->lists);
    if (!op->lists) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for an operation");
    copy_list(op->lists, &c->out_counts, &c->out_offsets, n);
    if (c->in_counts) copy_list(op->lists + 2 * n, &c->in_counts, &c->in_offsets, n);
    return PSRT_OK;
}

static psrt_status_t submit(psrt_comm_t *comm, const psrti_coll_call_t *call, int begun,
                            psrt_op_t **op_p)
{
    psrti_wcollop_t *op = op_new(comm->worker);
    if (!op) return PSRT_ERR_NO_MEMORY;
    op->handle = comm;
    op->stage = begun ? PSRTI_CALL_BEGUN : PSRTI_CALL_NEW;
    op->comm = comm->core;
    op->call = *call;
    psrt_status_t rc = copy_lists(op);
    if (rc) {
        free(op);
        return rc;
    }
    atomic_fetch_add_explicit(&comm->slow, 1, memory_order_relaxed);
    psrti_op_submit(comm->worker, &op->op);
    *op_p = &op->op;
    return PSRT_OK;
}

psrt_status_t psrti_worker_collective(psrt_comm_t *comm, const psrti_coll_call_t *call,
                                      psrt_op_t **op_p)
{
    return submit(comm, call, 0, op_p);
}

psrt_status_t psrti_worker_collective_now(psrt_comm_t *comm, const psrti_coll_call_t *call)
{
    psrt_op_t *op;
    int begun = 0;
    psrt_status_t rc = psrti_worker_may_wait(comm->worker, "a collective without an operation");
    if (rc) return rc;
    if (psrti_small_takes(comm, call) && psrti_small_run(comm, call, &begun) == PSRT_OK)
        return PSRT_OK;
    rc = submit(comm, call, begun, &op);
    if (rc && begun) psrti_small_give_up(comm, rc, "out of memory for an operation");
    return rc ? rc : psrti_worker_wait(op, PSRT_FOREVER);
}

/* ---- split ------------------------------------------------------------------------------------- */

/* A member of the parent and what it gave. */
typedef struct entry {
    int32_t key;
    uint32_t member;
} entry_t;

static int by_key(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->member < y->member ? -1 : x->member > y->member;
}

/* Ranks in the job of those with our colour, in order; NULL: no memory. */
static uint32_t *choose(const psrti_wcollop_t *op, uint32_t *count_p)
{
    uint32_t n = psrti_comm_size(op->comm), found = 0;
    const uint32_t *ranks = psrti_comm_ranks(op->comm);
    entry_t *list = malloc(n * sizeof *list);
    uint32_t *out = malloc(n * sizeof *out);

    for (uint32_t i = 0; list && out && i < n; i++)
        if (op->all[i].colour == op->own.colour)
            list[found++] = (entry_t){ .key = op->all[i].key, .member = i };
    if (list && out) {
        qsort(list, found, sizeof *list, by_key);
        for (uint32_t i = 0; i < found; i++)
            out[i] = ranks[list[i].member];
    } else {
        free(out);
        out = NULL;
    }
    free(list);
    *count_p = found;
    return out;
}

/* Everybody's colour and key are here: goes on with the creation. 0: the operation ends now. */
static int create_chosen(psrti_wcollop_t *op)
{
    if (op->own.colour < 0) return 0;
    uint32_t count;
    uint32_t *ranks = choose(op, &count);
    psrti_collop_t core = { .status = PSRT_OK };
    psrt_status_t rc = PSRT_ERR_NO_MEMORY;

    if (ranks) {
        op->core = core;
        rc = psrti_comm_derive(op->comm, ranks, count, &op->core, &op->makes->core);
    }
    free(ranks);
    free(op->all);
    op->all = NULL;
    if (rc) op->core.status = rc;
    return rc == PSRT_OK;
}

/* ---- the end of operations --------------------------------------------------------------------- */

static void handle_free(psrt_comm_t *comm)
{
    psrti_worker_t *w = comm->worker;
    if (comm->core) {
        psrti_small_close(comm);
        psrti_comm_free(comm->core);
    }
    psrti_small_free(comm->small);
    psrti_list_remove(&comm->node);
    w->meetings--;
    free(comm);
}

/* A creation goes on. 0: it is over. */
static int make_more(psrti_wcollop_t *op)
{
    if (!op->makes || op->makes->freed || op->core.status != PSRT_OK) return 0;
    if (op->all) return create_chosen(op);
    return psrti_small_make(op);
}

static void deliver(psrti_worker_t *w, psrti_collop_t *core)
{
    psrti_wcollop_t *op = PSRTI_CONTAINER_OF(core, psrti_wcollop_t, core);
    if (op->bucket) {
        w->meetings--;
        psrti_fusion_bucket_ended(op->bucket);
        return;
    }
    if (make_more(op)) return;
    psrt_comm_t *made = op->makes;
    psrt_status_t status = op->core.status;
    w->meetings--;
    op->op.cop.result.status = status;
    op->op.cop.text = op->core.text;
    op->core.text = NULL;
    if (made) {
        made->making = 0;
        if (status == PSRT_OK && made->core) {
            made->rank = psrti_comm_rank(made->core), made->ranks = psrti_comm_size(made->core);
            atomic_store_explicit(&made->ready, 1, memory_order_release);
        }
        if (made->freed) handle_free(made);
    }
    psrti_op_deliver(w, &op->op);
}

static unsigned deliver_all(psrti_worker_t *w)
{
    unsigned events = 0;
    for (psrti_collop_t *op; (op = psrti_coll_completed(w->coll)); events++)
        deliver(w, op);
    return events;
}

unsigned psrti_comms_move(psrti_worker_t *w, uint64_t now)
{
    psrti_peers_redial(w, now);
    uint64_t timer = PSRTI_MIN(psrti_coll_progress(w->coll, now), w->next_peer_dial);
    w->timer = PSRTI_MIN(w->timer, timer);
    unsigned events = psrti_smalls_move(w, now) + deliver_all(w);
    if (psrti_list_empty(&w->fusions)) return events;
    return events + psrti_fusions_move(w, now) + deliver_all(w);
}

/* ---- communicators ----------------------------------------------------------------------------- */

/* A handle and the operation that makes it; registered. */
static psrt_status_t begin(psrti_worker_t *w, psrt_comm_t **comm_p, psrti_wcollop_t **op_p)
{
    psrt_comm_t *comm = calloc(1, sizeof *comm);
    psrti_wcollop_t *op = comm ? op_new(w) : NULL;
    if (!op) {
        free(comm);
        return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a communicator");
    }
    comm->worker = w;
    comm->making = 1;
    op->makes = comm;
    psrti_list_push(&w->comms, &comm->node);
    w->meetings += 2; /* of the handle and of the operation */
    pthread_mutex_lock(&w->lock);
    w->live_ops++;
    psrti_list_push(&w->ops, &op->op.node);
    pthread_mutex_unlock(&w->lock);
    *comm_p = comm;
    *op_p = op;
    return PSRT_OK;
}

/* As `begin`, when nothing came of it. */
static void undo(psrti_worker_t *w, psrt_comm_t *comm, psrti_wcollop_t *op)
{
    pthread_mutex_lock(&w->lock);
    w->live_ops--;
    psrti_list_remove(&op->op.node);
    pthread_mutex_unlock(&w->lock);
    w->meetings--;
    free(op);
    handle_free(comm);
}

/* Calls `start` with the baton. */
static psrt_status_t make(psrti_worker_t *w, psrt_comm_t **comm_p, psrt_op_t **op_p,
                          psrt_status_t (*start)(psrti_worker_t *w, const void *arg,
                                                 psrti_wcollop_t *op),
                          const void *arg)
{
    psrt_comm_t *comm = NULL;
    psrti_wcollop_t *op = NULL;
    psrti_baton_take(w);
    psrt_status_t rc = begin(w, &comm, &op);
    if (!rc && (rc = start(w, arg, op))) undo(w, comm, op);
    psrti_baton_give(w);
    if (rc) return rc;
    *comm_p = comm;
    *op_p = &op->op;
    return PSRT_OK;
}

typedef struct list {
    const psrti_coll_tune_t *tune;
    const char *name;
    const uint32_t *ranks;
    uint32_t count;
} list_t;

static psrt_status_t start_create(psrti_worker_t *w, const void *arg, psrti_wcollop_t *op)
{
    const list_t *l = arg;
    return psrti_comm_create_tuned(w->coll, l->tune, l->name, l->ranks, l->count, &op->core,
                                   &op->makes->core);
}

psrt_status_t psrti_worker_comm_create(psrti_worker_t *w, const psrti_coll_tune_t *tune,
                                       const char *name, const uint32_t *ranks, uint32_t count,
                                       psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    list_t l = { tune, name, ranks, count };
    return make(w, comm_p, op_p, start_create, &l);
}

static psrt_status_t start_dup(psrti_worker_t *w, const void *arg, psrti_wcollop_t *op)
{
    psrti_comm_t *parent = ((const psrt_comm_t *)arg)->core;
    psrt_status_t rc = psrti_comm_status(parent);
    (void)w;
    if (rc) return psrti_fail(rc, "%s", psrti_comm_text(parent));
    return psrti_comm_derive(parent, psrti_comm_ranks(parent), psrti_comm_size(parent), &op->core,
                             &op->makes->core);
}

psrt_status_t psrti_worker_comm_dup(psrt_comm_t *parent, psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    return make(parent->worker, comm_p, op_p, start_dup, parent);
}

static psrt_status_t start_shrink(psrti_worker_t *w, const void *arg, psrti_wcollop_t *op)
{
    (void)w;
    return psrti_comm_shrink(((const psrt_comm_t *)arg)->core, &op->core, &op->makes->core);
}

psrt_status_t psrti_worker_comm_shrink(psrt_comm_t *failed, psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    return make(failed->worker, comm_p, op_p, start_shrink, failed);
}

typedef struct split {
    const psrt_comm_t *parent;
    struct colour_key own;
} split_t;

static psrt_status_t start_split(psrti_worker_t *w, const void *arg, psrti_wcollop_t *op)
{
    const split_t *s = arg;
    (void)w;
    op->comm = s->parent->core;
    op->own = s->own;
    op->all = calloc(psrti_comm_size(op->comm), sizeof *op->all);
    if (!op->all) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a communicator");
    op->call = (psrti_coll_call_t){
        .what = PSRTI_COLL_ALLGATHER, .dtype = PSRT_I32, .count = 2, .in = &op->own, .out = op->all
    };
    psrti_coll_start(op->comm, &op->call, &op->core);
    return PSRT_OK;
}

psrt_status_t psrti_worker_comm_split(psrt_comm_t *parent, int32_t colour, int32_t key,
                                      psrt_comm_t **comm_p, psrt_op_t **op_p)
{
    split_t s = { parent, { colour, key } };
    return make(parent->worker, comm_p, op_p, start_split, &s);
}

void psrti_worker_comm_free(psrt_comm_t *comm)
{
    psrti_worker_t *w = comm->worker;
    psrti_baton_take(w);
    psrti_inbox_read(w); /* operations of this communicator that were not started yet */
    deliver_all(w);      /* and a split of it that has ended goes on */
    comm->freed = 1;
    if (!comm->making)
        handle_free(comm);
    else if (comm->core)
        psrti_comm_free(comm->core), comm->core = NULL;
    psrti_baton_give(w);
}

psrti_worker_t *psrti_comm_worker(const psrt_comm_t *comm) { return comm->worker; }

int psrti_comm_is_ready(const psrt_comm_t *comm, uint32_t *rank_p, uint32_t *ranks_p)
{
    if (!atomic_load_explicit(&comm->ready, memory_order_acquire)) return 0;
    *rank_p = comm->rank;
    *ranks_p = comm->ranks;
    return 1;
}

void psrti_worker_comm_query(psrt_comm_t *comm, psrt_comm_attr_t *attr)
{
    psrti_worker_t *w = comm->worker;
    psrti_baton_take(w);
    attr->rank = attr->ranks = attr->hosts = 0;
    attr->status = comm->making ? PSRT_ERR_BUSY : PSRT_ERR_INVALID;
    if (comm->core) {
        attr->rank = psrti_comm_rank(comm->core);
        attr->ranks = psrti_comm_size(comm->core);
        attr->hosts = psrti_comm_hosts(comm->core);
        attr->status = psrti_comm_status(comm->core);
        if (comm->making && attr->status == PSRT_OK) attr->status = PSRT_ERR_BUSY;
    }
    psrti_baton_give(w);
}

psrt_status_t psrti_worker_live_ranks(psrti_worker_t *w, uint32_t **ranks_p, uint32_t *count_p)
{
    uint32_t *ranks = malloc(w->p.workers * sizeof *ranks), n = 0;
    if (!ranks) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %u ranks", w->p.workers);
    psrti_baton_take(w);
    for (uint32_t i = 0; w->view && i < w->view->nworkers; i++)
        if (w->view->workers[i].alive) ranks[n++] = i;
    psrti_baton_give(w);
    *ranks_p = ranks;
    *count_p = n;
    return PSRT_OK;
}
