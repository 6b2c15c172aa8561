/* SPDX-License-Identifier: Apache-2.0 */
/* One seed: a job of random size with random faults, run until the network has healed and everything
 * has ended, or until it is clear that something never will. */
#include <stdlib.h>

#include "sim.h"

#define HANG (300 * PSRTI_NS_PER_S) /* of virtual time after the last fault */

static void draw(sim_t *sim)
{
    sim_faults_t *f = &sim->faults;
    sim->nservers = 1 + (int)sim_random(sim, SIM_MAX_NODES);
    sim->nworkers = 1 + (int)sim_random(sim, SIM_MAX_NODES);
    sim->steps = 3 + sim_random(sim, 6);
    sim->worker_kills = sim_chance(sim, 30);
    if (sim_chance(sim, 30)) sim->hurry = 1 + (unsigned)sim_random(sim, 40);
    sim->certain = !sim->worker_kills && !sim->hurry;
    sim->clip = sim->certain ? 1000.0 * (double)(1 + sim_random(sim, 400)) : 1e30;
    sim->skip = sim_chance(sim, 50);
    f->latency = 20 * US + sim_random(sim, 300 * US);
    f->pend = (unsigned)sim_random(sim, 101);
    f->window = sim_chance(sim, 50) ? 64 : 1 + (unsigned)sim_random(sim, 6);
    f->batch = (const uint64_t[]){ 0, 200, 700, PSRTI_BATCH_BYTES }[sim_random(sim, 4)];
    f->until = 200 * MS + sim_random(sim, 600 * MS);
    if (sim_chance(sim, 15)) return; /* a calm day */
    unsigned *rate[] = { &f->drop, &f->duplicate, &f->reorder, &f->cut, &f->withdraw, &f->again };
    static const unsigned most[] = { 8, 15, 20, 4, 4, 10 };
    for (size_t i = 0; i < PSRTI_COUNT(rate); i++)
        if (sim_chance(sim, 60)) *rate[i] = (unsigned)sim_random(sim, most[i] + 1);
}

/* ---- accidents --------------------------------------------------------------------------------- */

static int living(sim_t *sim, int first, int count)
{
    int n = 0, node[2 * SIM_MAX_NODES];
    for (int i = first; i < first + count; i++)
        if (sim->node[i].alive) node[n++] = i;
    return n ? node[sim_random(sim, (uint64_t)n)] : SIM_NOBODY;
}

static void accident_cut(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_cut_some_link(sim);
}

/* Shorter than the lease, so not while it is stopped already. */
static void accident_stop(sim_t *sim, void *obj, uint64_t arg)
{
    char name[32];
    int node = living(sim, 0, sim->nservers + sim->nworkers);
    (void)obj, (void)arg;
    if (node == SIM_NOBODY) return;
    uint64_t before = sim->node[node].stopped_until;
    if (before && before + 200 * MS > sim->now) return;
    sim->node[node].stopped_until = sim->now + sim_random(sim, 200 * MS);
    sim->counts.stops++;
    sim_trace(sim, "%s is stopped", sim_node_name(sim, node, name));
}

static void restart(sim_t *sim, void *obj, uint64_t node)
{
    char name[32];
    (void)obj;
    if (sim->node[node].alive) return;
    sim_trace(sim, "%s is started again", sim_node_name(sim, (int)node, name));
    if ((int)node < sim->nservers) {
        sim->counts.server_restarts++;
        sim_server_start(sim, (int)node);
    } else {
        sim->counts.worker_restarts++;
        sim_worker_start(sim, (int)node - sim->nservers);
    }
}

static void accident_kill(sim_t *sim, void *obj, uint64_t servers)
{
    char name[32];
    int node = servers ? living(sim, 0, sim->nservers) : living(sim, sim->nservers, sim->nworkers);
    (void)obj;
    if (node == SIM_NOBODY) return;
    sim_trace(sim, "%s is killed", sim_node_name(sim, node, name));
    if (servers)
        sim_server_kill(sim, node);
    else
        sim_worker_kill(sim, node - sim->nservers);
    /* Only worker 0 gives the values of rank0 tables. */
    if (node == sim_worker_node(sim, 0) || sim_chance(sim, 80))
        sim_schedule(sim, sim->now + sim_random(sim, 150 * MS), SIM_NOBODY, restart, NULL,
                     (uint64_t)node);
}

/* Cut off from the coordinator for longer than its lease it is declared dead, but lives and goes on,
 * until it finds out. */
static void accident_cut_off(sim_t *sim, void *obj, uint64_t servers)
{
    char name[32];
    int node = servers ? living(sim, 0, sim->nservers) : living(sim, sim->nservers, sim->nworkers);
    (void)obj;
    if (node == SIM_NOBODY) return;
    sim->node[node].cut_off_until = sim->now + 100 * MS + sim_random(sim, 800 * MS);
    sim_trace(sim, "%s is cut off from the coordinator", sim_node_name(sim, node, name));
}

void sim_exit_fenced(sim_t *sim, int node)
{
    if (node < sim->nservers)
        sim_server_kill(sim, node);
    else
        sim_worker_kill(sim, node - sim->nservers);
    sim_schedule(sim, sim->now + sim_random(sim, 50 * MS), SIM_NOBODY, restart, NULL,
                 (uint64_t)node);
}

static void accident_coordinator(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_control_kill(sim);
}

static void accident_control_cut(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_control_cut(sim);
}

static void some(sim_t *sim, uint64_t most, sim_event_fn fn, uint64_t arg)
{
    for (uint64_t n = sim_random(sim, most + 1); n; n--)
        sim_schedule(sim, sim_random(sim, sim->faults.until), SIM_NOBODY, fn, NULL, arg);
}

static void plan_accidents(sim_t *sim)
{
    if (sim_chance(sim, 20)) return;
    if (sim_chance(sim, 50)) some(sim, 4, accident_cut, 0);
    if (sim_chance(sim, 40)) some(sim, 3, accident_stop, 0);
    if (sim_chance(sim, 35)) some(sim, 2, accident_kill, 1);
    if (sim->worker_kills) some(sim, 2, accident_kill, 0);
    if (sim->worker_kills) some(sim, 1, accident_cut_off, 0);
    if (sim_chance(sim, 15)) some(sim, 1, accident_cut_off, 1);
    if (sim_chance(sim, 15)) some(sim, 1, accident_coordinator, 0);
    if (sim_chance(sim, 30)) some(sim, 3, accident_control_cut, 0);
}

/* ---- from start to end ------------------------------------------------------------------------- */

static int is_over(const sim_t *sim)
{
    int over = sim_control_is_quiet(sim) || sim_control_is_finished(sim);
    if (sim->now < sim->faults.until + 200 * MS || !over) return 0;
    for (int r = 0; r < sim->nworkers; r++)
        if (!sim_worker_is_done(&sim->worker[r])) return 0;
    return sim_model_is_settled(sim);
}

static void describe_hang(sim_t *sim)
{
    char text[512] = "nothing";
    int ops = 0;
    for (const sim_op_t *op = sim->ops; op; op = op->next, ops++)
        psrti_client_describe(op->worker->client, &op->cop, text, sizeof text);
    sim_fail(sim, "hangs: %d ops have not ended; worker:%d waits for: %s", ops,
             sim->ops ? sim->ops->worker->rank : 0, text);
    for (const sim_op_t *op = sim->ops; op; op = op->next) {
        psrti_client_describe(op->worker->client, &op->cop, text, sizeof text);
        sim_trace(sim, "worker:%d op %p: %s", op->worker->rank, (const void *)op, text);
    }
}

static void run(sim_t *sim)
{
    int more = 1;
    for (unsigned n = 0; more && !sim->failed && !sim->given_up; n++) {
        more = sim_next(sim);
        if (n % 64 == 0 && is_over(sim)) break;
        if (sim->now > sim->faults.until + HANG) describe_hang(sim);
    }
    if (sim->given_up) return;
    if (!sim->failed && !is_over(sim)) describe_hang(sim);
    if (!sim->failed) sim_model_finish(sim);
}

static void stop(sim_t *sim)
{
    for (int r = 0; r < sim->nworkers; r++)
        if (sim->node[sim_worker_node(sim, r)].alive) sim_worker_kill(sim, r);
    for (int i = 0; i < sim->nservers; i++)
        if (sim->node[i].alive) sim_server_kill(sim, i);
    sim_net_close(sim);
    sim_control_close(sim);
    sim_tables_free(sim);
    sim_queue_free(sim);
}

static void add_counts(sim_counts_t *to, const sim_counts_t *from)
{
#define SIM_COUNT_ADD(name) to->name += from->name;
    SIM_COUNTS(SIM_COUNT_ADD)
#undef SIM_COUNT_ADD
}

int sim_run(uint64_t seed, int trace, sim_counts_t *counts, char *text, size_t size)
{
    sim_t *sim = calloc(1, sizeof *sim);
    sim->seed = seed;
    sim->random = psrti_mix64(seed);
    sim->trace = trace;
    draw(sim);
    sim_net_open(sim);
    sim_control_open(sim);
    for (int i = 0; i < sim->nservers; i++) {
        sim->server[i].sim = sim;
        sim->server[i].index = i;
    }
    for (int i = 0; i < sim->nservers; i++)
        sim_server_start(sim, i);
    for (int i = 0; i < sim->nworkers; i++)
        sim_worker_start(sim, i);
    plan_accidents(sim);
    run(sim);
    stop(sim);
    snprintf(text, size, "%s", sim->text);
    int fine = !sim->failed;
    add_counts(counts, &sim->counts);
    free(sim);
    return fine;
}
