/* SPDX-License-Identifier: Apache-2.0 */
/* One seed: a job of random size with random faults, run until the network has healed and
 * everything has ended, or until it is clear that something never will. */
#include <stdlib.h>

#include "sim.h"

/* Of virtual time after the last fault: by then everything has ended. A job that has not
 * assembled is waited for as long as the coordinator does. */
#define HANG (30 * PSRTI_NS_PER_S)
#define NOT_ASSEMBLED (90 * PSRTI_NS_PER_S)
#define LATE_SALT 0x1a7e57a27UL

/* In some jobs the workers of the highest ranks have no host at first: the job begins without them. Their
 * number comes from the seed alone, so that the histories of all other jobs stay what they were. */
static void draw_start_workers(sim_t *sim)
{
    uint64_t drawn = psrti_mix64(sim->what.seed ^ LATE_SALT);
    sim->start_workers = sim->nworkers;
    if (sim->nworkers > 1 && drawn % 8 == 0)
        sim->start_workers = 1 + (int)((drawn >> 8) % (unsigned)(sim->nworkers - 1));
    if (sim->start_workers < sim->nworkers) sim->worker_kills = 1; /* the membership changes */
}

static void draw(sim_t *sim)
{
    sim_faults_t *f = &sim->faults;
    sim->nservers = 1 + (int)sim_random(sim, SIM_MAX_NODES);
    sim->nworkers = 1 + (int)sim_random(sim, SIM_MAX_NODES);
    sim->vshards = (const uint32_t[]){ 8, 8, 3, 1 }[sim_random(sim, 4)];
    sim->steps = 3 + sim_random(sim, 6);
    sim->worker_kills = sim_chance(sim, 30);
    draw_start_workers(sim);
    if (sim_chance(sim, 30)) sim->hurry = 1 + (unsigned)sim_random(sim, 40);
    if (sim->what.without >> SIM_hurry & 1) sim->hurry = 0;
    sim->certain = !sim->worker_kills && !sim->hurry;
    sim->clip = sim->certain ? 1000.0 * (double)(1 + sim_random(sim, 400)) : 1e30;
    sim->skip = sim_chance(sim, 50);
    f->latency = 20 * US + sim_random(sim, 300 * US);
    f->pend = (unsigned)sim_random(sim, 101);
    f->window = sim_chance(sim, 50) ? 64 : 1 + (unsigned)sim_random(sim, 6);
    f->batch = (const uint64_t[]){ 0, 200, 700, PSRTI_BATCH_BYTES }[sim_random(sim, 4)];
    f->until = f->span = 200 * MS + sim_random(sim, 600 * MS);
    if (sim->what.until) f->until = PSRTI_MIN(f->until, sim->what.until);
    if (sim_chance(sim, 15)) return; /* a calm day */
    static const unsigned most[] = { 8, 15, 20, 4, 4, 10 };
    for (size_t i = 0; i < PSRTI_COUNT(f->rate); i++)
        if (sim_chance(sim, 60)) f->rate[i] = (unsigned)sim_random(sim, most[i] + 1);
}

/* ---- from start to end ----------------------------------------------------------------------- */

static int is_over(const sim_t *sim)
{
    if (sim_control_is_finished(sim)) return 1;
    if (sim->now < sim->faults.until + 200 * MS || !sim_control_is_quiet(sim)) return 0;
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
        sim_trace(sim, "worker:%d op %u: %s", op->worker->rank, op->number, text);
    }
}

static void run(sim_t *sim)
{
    int more = 1;
    for (unsigned n = 0; more && !sim->failed && !sim->given_up; n++) {
        more = sim_next(sim);
        if (n % 64 == 0 && is_over(sim)) break;
        uint64_t most = sim_control_is_formed(sim) ? HANG : NOT_ASSEMBLED;
        if (sim->now > sim->faults.until + most) describe_hang(sim);
    }
    sim->counts.given_up += (uint64_t)sim->given_up;
    if (sim->given_up) return;
    if (!sim->failed && !is_over(sim)) describe_hang(sim);
    if (sim_control_is_formed(sim))
        sim->counts.slowest_end = (sim->now - PSRTI_MIN(sim->now, sim->faults.until)) / US;
    if (!sim->failed) sim_model_finish(sim);
    if (!sim->failed) sim_check_end(sim);
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

void sim_add_counts(sim_counts_t *to, const sim_counts_t *from)
{
#define SIM_COUNT_ADD(name) to->name += from->name;
#define SIM_COUNT_MAX(name) to->name = PSRTI_MAX(to->name, from->name);
    SIM_COUNTS(SIM_COUNT_ADD)
    SIM_PEAKS(SIM_COUNT_MAX)
#undef SIM_COUNT_ADD
#undef SIM_COUNT_MAX
}

static void on_late_start(sim_t *sim, void *obj, uint64_t rank)
{
    (void)obj;
    if (sim->node[sim_worker_node(sim, (int)rank)].alive) return;
    sim_trace(sim, "worker:%d gets a host", (int)rank);
    sim->counts.late_starts += sim_control_is_formed(sim);
    sim_worker_start(sim, (int)rank);
}

static void start_workers(sim_t *sim)
{
    for (int i = 0; i < sim->start_workers; i++)
        sim_worker_start(sim, i);
    for (int i = sim->start_workers; i < sim->nworkers; i++) {
        sim->worker[i].sim = sim;
        sim->worker[i].rank = i;
        sim_schedule(sim, sim->now + sim_random(sim, 400 * MS), SIM_NOBODY, on_late_start, NULL,
                     (uint64_t)i);
    }
}

int sim_run(const sim_case_t *what, FILE *trace, sim_counts_t *counts, char *text, size_t size)
{
    sim_t *sim = calloc(1, sizeof *sim);
    sim->what = *what;
    sim->random = psrti_mix64(what->seed);
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
    start_workers(sim);
    sim_plan_faults(sim);
    run(sim);
    stop(sim);
    snprintf(text, size, "%s", sim->text);
    int fine = !sim->failed;
    sim_add_counts(counts, &sim->counts);
    free(sim);
    return fine;
}
