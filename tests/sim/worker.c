/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a worker: a client with the simulated network around it, and its program, which
 * pushes `steps` steps of every table in some way, pulls, and now and then repeats a step that
 * is closed. */
#include <stdlib.h>
#include <string.h>

#include "runtime/worker/client_int.h" /* which table of an op was lost */
#include "sim.h"

/* ---- the client's surroundings --------------------------------------------------------------- */

static psrt_status_t env_send(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    sim_worker_t *w = arg;
    return w->link[owner] ? sim_send(w->link[owner], 0, hdr, data, len, tx) : PSRT_ERR_AGAIN;
}

static psrt_status_t env_map(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p)
{
    (void)owner;
    return sim_map(((sim_worker_t *)arg)->sim, msg, data_p);
}

static psrt_status_t env_verify(void *arg, uint32_t owner, const psrt_msg_t *msg)
{
    (void)owner;
    return sim_verify(((sim_worker_t *)arg)->sim, msg);
}

static void env_used(void *arg, uint32_t table) { (void)arg, (void)table; }

static void dial(sim_worker_t *w, int server)
{
    w->link[server] = sim_dial(w->sim, sim_worker_node(w->sim, w->rank), server);
}

static void redial(sim_t *sim, void *obj, uint64_t owner)
{
    sim_worker_t *w = obj;
    (void)sim;
    if (w->view->owners[owner].alive && !w->link[owner]) dial(w, (int)owner);
}

static void redial_later(sim_worker_t *w, int owner)
{
    sim_t *sim = w->sim;
    sim_schedule(sim, sim->now + 2 * MS + sim_random(sim, 30 * MS), sim_worker_node(sim, w->rank),
                 redial, w, (uint64_t)owner);
}

/* What its ops in flight had sent may still arrive, until another session is up. */
static void note_lost(const sim_worker_t *w, int server)
{
    for (sim_op_t *op = w->sim->ops; op; op = op->next)
        if (op->worker == w) op->unheard |= 1u << server;
}

void sim_worker_link_up(sim_worker_t *w, int server)
{
    sim_model_link_up(w, server);
    psrti_client_link_up(w->client, (uint32_t)server);
}

void sim_worker_link_lost(sim_worker_t *w, sim_link_t *link)
{
    int server = sim_link_server(link);
    if (w->link[server] != link) return;
    w->link[server] = NULL;
    note_lost(w, server);
    psrti_client_link_lost(w->client, (uint32_t)server);
    redial_later(w, server);
}

static void let_go(sim_worker_t *w, uint32_t server)
{
    sim_link_t *l = w->link[server];
    w->link[server] = NULL;
    if (l) sim_link_drop(l);
    note_lost(w, (int)server);
    psrti_client_link_lost(w->client, server);
}

static void env_fence(void *arg, uint32_t owner)
{
    sim_worker_t *w = arg;
    sim_trace(w->sim, "worker:%d fences server:%u", w->rank, owner);
    let_go(w, owner);
    redial_later(w, (int)owner);
}

void sim_worker_view(sim_worker_t *w, psrti_view_t *view)
{
    psrti_view_t *old = w->view;
    if (old && view->number <= old->number) return;
    sim_check_view(w->sim, sim_worker_node(w->sim, w->rank), old, view);
    w->view = psrti_view_ref(view);
    psrti_client_view(w->client, view);
    for (uint32_t i = 0; i < view->nowners; i++) {
        int other = old && old->owners[i].incarnation != view->owners[i].incarnation;
        if (w->link[i] && (!view->owners[i].alive || other)) let_go(w, i);
        if (view->owners[i].alive && !w->link[i]) dial(w, (int)i);
    }
    psrti_view_unref(old);
}

/* ---- operations ------------------------------------------------------------------------------ */

static sim_op_t *op_new(sim_worker_t *w)
{
    sim_op_t *op = calloc(1, sizeof *op);
    op->worker = w;
    op->number = ++w->sim->nops;
    return op;
}

enum { PUSH = 1, PULL = 2, MORE = 4, INIT = 8 };

static psrti_transfer_t *op_add(sim_op_t *op, sim_table_t *t, int kind, uint64_t offset,
                                uint64_t count)
{
    sim_t *sim = op->worker->sim;
    psrti_transfer_t *x = &op->x[op->count];
    size_t elem = psrt_dtype_size(t->spec.value_dtype);
    op->table[op->count++] = t;
    x->table = op->worker->table[t->index];
    x->offset = offset;
    x->count = count;
    x->step = PSRT_STEP_NEXT;
    x->priority = (int)sim_random(sim, 256) - 128;
    x->more = (kind & MORE) != 0;
    x->init = (kind & INIT) != 0;
    if (kind & (PUSH | INIT)) x->grad = malloc(count * elem);
    if (kind & PULL) memset(x->value = malloc(count * elem), 0x77, count * elem);
    if (kind & PUSH) sim_fill_grad(sim, t, (void *)x->grad, offset, count);
    return x;
}

/* What a user does with the memory of an op that ended. */
static void op_free(sim_op_t *op)
{
    for (size_t i = 0; i < op->count; i++) {
        size_t bytes = op->x[i].count * psrt_dtype_size(op->table[i]->spec.value_dtype);
        if (op->x[i].grad) memset((void *)op->x[i].grad, 0xee, bytes);
        free((void *)op->x[i].grad);
        free(op->x[i].value);
    }
    free(op->cop.text);
    free(op);
}

static void op_submit(sim_op_t *op)
{
    sim_worker_t *w = op->worker;
    sim_t *sim = w->sim;
    op->next = sim->ops;
    sim->ops = op;
    w->running++;
    sim->counts.ops++;
    sim_model_submit(sim, op);
    for (size_t i = 0; i < op->count; i++)
        sim_trace(sim, "worker:%d op %u: %s%s%s %s [%llu +%llu) step %llu", w->rank, op->number,
                  op->x[i].init   ? "init"
                  : op->x[i].grad ? "push"
                                  : "",
                  op->x[i].value ? "pull" : "", op->x[i].more ? " more" : "",
                  op->table[i]->spec.name, (unsigned long long)op->x[i].offset,
                  (unsigned long long)op->x[i].count, (unsigned long long)op->step[i]);
    if (sim_chance(sim, sim->hurry) && !op->x[0].init)
        op->cop.deadline = sim->now + 1 + sim_random(sim, 40 * MS);
    psrti_client_submit(w->client, &op->cop, op->x, op->count);
}

static void unlist(sim_op_t *op)
{
    sim_op_t **at = &op->worker->sim->ops;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
}

static void learn(sim_worker_t *w, const sim_op_t *op)
{
    for (size_t i = 0; i < op->count; i++) {
        sim_table_t *t = op->table[i];
        if (op->x[i].table->status == PSRT_ERR_SHARD_LOST) w->gone[t->index] = t->lost = 1;
        if (op->cop.result.status == PSRT_OK && op->count == 1 && op->x[i].value &&
            op->x[i].count == t->spec.elements && t->spec.consistency == PSRTI_SYNC)
            w->known[t->index] = PSRTI_MAX(w->known[t->index], op->cop.result.version);
    }
}

/* Has every other worker left? */
static int is_alone(const sim_worker_t *w)
{
    const sim_t *sim = w->sim;
    int left = 0;
    for (int r = 0; r < sim->nworkers; r++) {
        const sim_node_t *n = &sim->node[sim_worker_node(sim, r)];
        left += r != w->rank && n->left && !n->alive;
    }
    return left > 0 && left == sim->nworkers - 1;
}

/* What a worker does that came when the others had ended their last step, or left after it. */
static void count_late_comer(const sim_worker_t *w, const sim_op_t *op)
{
    sim_counts_t *counts = &w->sim->counts;
    uint64_t first = w->first[op->table[0]->index];
    if (op->cop.result.status != PSRT_OK || first == 0) return;
    counts->pulls_at_the_end += !op->x[0].grad && first == w->sim->steps;
    counts->trains_on_alone += op->x[0].grad && is_alone(w);
}

static void count_end(sim_t *sim, const psrti_cop_t *cop)
{
    sim->counts.canceled += cop->result.status == PSRT_ERR_CANCELED;
    sim->counts.deadlines += cop->result.status == PSRT_ERR_DEADLINE;
    sim->counts.done_though_asked += cop->asked && cop->result.status == PSRT_OK;
}

static int reap(sim_worker_t *w)
{
    int n = 0;
    psrti_cop_t *cop;
    while ((cop = psrti_client_completed(w->client))) {
        sim_op_t *op = PSRTI_CONTAINER_OF(cop, sim_op_t, cop);
        sim_trace(w->sim, "worker:%d op %u of %s ended: %s version %lld%s %s", w->rank, op->number,
                  op->table[0]->spec.name, psrt_status_name(cop->result.status),
                  (long long)cop->result.version, cop->result.late ? " late" : "",
                  cop->text ? cop->text : "");
        unlist(op);
        w->running--;
        count_end(w->sim, cop);
        count_late_comer(w, op);
        sim_model_ended(w->sim, op);
        learn(w, op);
        op_free(op);
        n++;
    }
    return n;
}

static void on_timer(sim_t *sim, void *obj, uint64_t at)
{
    sim_worker_t *w = obj;
    (void)sim;
    if (w->timer != at) return;
    w->timer = UINT64_MAX;
    sim_worker_after(w);
}

void sim_worker_after(sim_worker_t *w)
{
    sim_t *sim = w->sim;
    uint64_t next = psrti_client_progress(w->client, sim->now);
    if (reap(w)) next = psrti_client_progress(w->client, sim->now);
    sim_check_worker(w);
    next = PSRTI_MAX(next, sim->now + 1);
    if (next >= w->timer) return;
    w->timer = next;
    sim_schedule(sim, next, sim_worker_node(sim, w->rank), on_timer, w, next);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int is_usable(const sim_worker_t *w, int t)
{
    return w->table[t] && !w->gone[t] && !w->leaving;
}

static int is_idle(const sim_worker_t *w)
{
    return !w->running && w->client && psrti_client_outstanding(w->client) == 0;
}

static int wants_steps(const sim_worker_t *w, int t)
{
    return is_usable(w, t) && psrti_ctable_next_step(w->table[t]) < w->sim->steps;
}

int sim_worker_is_done(const sim_worker_t *w)
{
    const sim_t *sim = w->sim;
    if (!sim->node[sim_worker_node(sim, w->rank)].alive) return 1;
    if (w->leaving) return 0; /* soon it is gone */
    for (int t = 0; t < sim->ntables; t++) {
        if (sim->table[t].declared && !sim->table[t].lost && !w->table[t]) return 0;
        if (!sim->table[t].lost && wants_steps(w, t)) return 0;
    }
    return is_idle(w);
}

static sim_table_t *some_table(sim_worker_t *w, int (*fits)(const sim_worker_t *w, int t))
{
    int n = 0, fit[SIM_MAX_TABLES];
    for (int t = 0; t < w->sim->ntables; t++)
        if (fits(w, t)) fit[n++] = t;
    return n ? &w->sim->table[fit[sim_random(w->sim, (uint64_t)n)]] : NULL;
}

static int knows_closed_steps(const sim_worker_t *w, int t)
{
    return is_usable(w, t) && w->known[t] > 0;
}

static void do_whole(sim_worker_t *w)
{
    sim_table_t *t = some_table(w, wants_steps);
    if (!t) return;
    sim_op_t *op = op_new(w);
    op_add(op, t, PUSH | (sim_chance(w->sim, 50) ? PULL : 0), 0, t->spec.elements);
    op_submit(op);
}

/* An op that ends with SHARD_LOST for one of its tables may be in the others or not. The model
 * could not tell then what the norm of their groups was, so where norms are of use a group has
 * its ops for itself. */
static int goes_along(const sim_op_t *op, const sim_table_t *t)
{
    const sim_table_t *with = op->table[0];
    if (!op->worker->sim->certain || !op->count || with == t) return 1;
    return with->two_phase || t->two_phase ? with->group && t->group : 1;
}

static void do_many(sim_worker_t *w)
{
    sim_op_t *op = op_new(w);
    for (int t = 0; t < w->sim->ntables && op->count < SIM_MAX_TRANSFERS; t++)
        if (wants_steps(w, t) && goes_along(op, &w->sim->table[t]) && sim_chance(w->sim, 80))
            op_add(op, &w->sim->table[t], PUSH | (sim_chance(w->sim, 50) ? PULL : 0), 0,
                   w->sim->table[t].spec.elements);
    if (op->count)
        op_submit(op);
    else
        op_free(op);
}

/* Up to three ranges, which do not overlap where the order of adding would show, with one op or
 * several. */
static void do_ranges(sim_worker_t *w)
{
    sim_t *sim = w->sim;
    sim_table_t *t = some_table(w, wants_steps);
    if (!t) return;
    sim_op_t *op = op_new(w);
    uint64_t n = 1 + sim_random(sim, 3), at = 0;
    for (uint64_t i = 0; i < n && at < t->spec.elements; i++) {
        uint64_t first = at + sim_random(sim, t->spec.elements - at);
        uint64_t count = 1 + sim_random(sim, t->spec.elements - first);
        int last = i == n - 1 || first + count == t->spec.elements;
        op->ranges = 1;
        op_add(op, t, PUSH | (last ? 0 : MORE) | (sim_chance(sim, 20) ? PULL : 0), first, count);
        if (last) break;
        if (t->exact && sim_chance(sim, 40))
            at = 0;
        else
            at = first + count;
        if (!sim_chance(sim, 50)) continue;
        op_submit(op);
        op = op_new(w);
    }
    op_submit(op);
}

static void do_pull(sim_worker_t *w)
{
    sim_t *sim = w->sim;
    sim_table_t *t = some_table(w, is_usable);
    if (!t) return;
    sim_op_t *op = op_new(w);
    uint64_t first = 0, count = t->spec.elements;
    if (sim_chance(sim, 40)) {
        first = sim_random(sim, count);
        count = 1 + sim_random(sim, count - first);
    }
    psrti_transfer_t *x = op_add(op, t, PULL, first, count);
    x->average = t->averages && sim_chance(sim, 50);
    if (w->known[t->index] && sim_chance(sim, 30)) x->step = sim_random(sim, w->known[t->index]);
    op_submit(op);
}

static void do_set(sim_worker_t *w)
{
    sim_table_t *t = some_table(w, is_usable);
    /* No end of them while something hangs. */
    if (t && !(w->sim->what.without >> SIM_set & 1) &&
        w->sim->now < w->sim->faults.span + 2000 * MS &&
        (t->optimizer != SIM_NONE || sim_chance(w->sim, 5)))
        sim_set_some(w, t);
}

static void do_late(sim_worker_t *w)
{
    sim_t *sim = w->sim;
    sim_table_t *t = some_table(w, knows_closed_steps);
    if (!t) return;
    sim_op_t *op = op_new(w);
    psrti_transfer_t *x =
        op_add(op, t, PUSH | (sim_chance(sim, 50) ? PULL : 0), 0, t->spec.elements);
    x->step = sim_random(sim, w->known[t->index]);
    op->late = 1;
    op_submit(op);
}

/* Any operation of the worker's, whatever it has come to. */
static void do_cancel(sim_worker_t *w)
{
    sim_op_t *some = NULL;
    uint64_t n = 0;
    for (sim_op_t *op = w->sim->ops; op; op = op->next)
        if (op->worker == w && !op->x[0].init && sim_random(w->sim, ++n) == 0) some = op;
    if (!some) return;
    sim_trace(w->sim, "worker:%d op %u is canceled", w->rank, some->number);
    psrti_client_cancel(w->client, &some->cop, PSRT_ERR_CANCELED);
}

static void on_exit_left(sim_t *sim, void *obj, uint64_t arg)
{
    (void)arg;
    sim_worker_kill(sim, ((sim_worker_t *)obj)->rank);
}

/* Asks to leave, which it does with operations under way if they take long: they may wait for
 * workers that wait for it. The process ends a moment after it was granted. */
static int is_out(sim_worker_t *w)
{
    sim_t *sim = w->sim;
    int node = sim_worker_node(sim, w->rank);
    if (!sim->node[node].left) {
        sim->node[node].left = 1;
        sim_control_leave(sim, node);
    }
    if (!sim_control_has_left(sim, node)) return 0;
    sim->counts.leaves++;
    sim_schedule(sim, sim->now + sim_random(sim, 200 * MS), node, on_exit_left, w, 0);
    return 1;
}

/* A worker that waits goes on pushing now and then, else two that wait for each other's steps on
 * two tables would wait for ever, and rightly so. */
static void think(sim_t *sim, void *obj, uint64_t arg)
{
    sim_worker_t *w = obj;
    uint64_t what = sim_random(sim, 100);
    if (w->leaving && (is_idle(w) || sim->now > w->leaving + 50 * MS) && is_out(w)) return;
    if (sim_chance(sim, sim->hurry)) do_cancel(w);
    if (w->running < w->appetite || what < 5) {
        if (what < 40)
            do_whole(w);
        else if (what < 53)
            do_many(w);
        else if (what < 70)
            do_ranges(w);
        else if (what < 76)
            do_late(w);
        else if (what < 80)
            do_set(w);
        else
            do_pull(w);
        sim_worker_after(w);
    }
    uint64_t pause = sim_worker_is_done(w) ? 50 * MS : 4 * MS; /* another table may come */
    sim_schedule(sim, sim->now + sim_random(sim, pause), sim_worker_node(sim, w->rank), think, w,
                 arg);
}

void sim_worker_table(sim_worker_t *w, sim_table_t *t, uint64_t first_step)
{
    sim_t *sim = w->sim;
    if (w->table[t->index]) return;
    psrti_client_table(w->client, t->id, &t->spec, first_step, &w->table[t->index]);
    w->first[t->index] = first_step;
    if (!t->rank0 || w->rank != 0) return;
    sim_op_t *op = op_new(w);
    psrti_transfer_t *x = op_add(op, t, INIT, 0, t->spec.elements);
    sim_init_values(t, sim->node[sim_worker_node(sim, 0)].life, (void *)x->grad);
    op_submit(op);
}

/* ---- life ------------------------------------------------------------------------------------ */

void sim_worker_start(sim_t *sim, int rank)
{
    int node = sim_worker_node(sim, rank);
    sim_worker_t *w = &sim->worker[rank];
    sim_node_t *n = &sim->node[node];
    memset(w, 0, sizeof *w);
    w->sim = sim;
    w->rank = rank;
    w->timer = UINT64_MAX;
    w->appetite = 1 + (unsigned)sim_random(sim, 5);
    n->life++;
    n->alive = 1;
    n->fenced = n->doubted = n->frozen = 0;
    n->sending = 0;
    n->stopped_until = n->incarnation = 0;
    const psrti_kernels_t *kernels;
    psrti_client_env_t env = { w,        env_send,  env_map,          env_verify,
                               env_used, env_fence, sim->faults.batch };
    psrti_kernels_select(NULL, &kernels);
    psrti_client_create((uint32_t)rank, 20 * MS, 30 * MS, kernels, &env, &w->client);
    sim_schedule(sim, sim->now + sim_random(sim, 10 * MS), node, think, w, 0);
    sim_control_started(sim, node);
}

void sim_worker_kill(sim_t *sim, int rank)
{
    sim_worker_t *w = &sim->worker[rank];
    sim_node_t *n = &sim->node[sim_worker_node(sim, rank)];
    psrti_client_counts_t c;
    sim_cut_node(sim, sim_worker_node(sim, rank));
    psrti_client_counts(w->client, &c);
    sim->counts.retries += c.retries;
    sim->counts.fences += c.fences;
    sim->counts.request_batches += c.batches;
    sim->counts.batched_requests += c.batched;
    psrti_client_destroy(w->client);
    w->client = NULL;
    psrti_view_unref(w->view);
    w->view = NULL;
    for (sim_op_t *op = sim->ops, *next; op; op = next) {
        next = op->next;
        if (op->worker != w) continue;
        sim_model_killed(sim, op);
        unlist(op);
        op_free(op);
    }
    n->alive = 0;
    n->life++;
    sim_control_died(sim, sim_worker_node(sim, rank));
}
