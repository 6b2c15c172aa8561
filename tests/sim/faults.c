/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong, other than with single messages: links, partitions, processes that stop, die
 * and come again, the coordinator, and workers that leave. */
#include "control.h"
#include "sim.h"

static int is_server(const sim_t *sim, int node) { return node < sim->nservers; }

/* A living process out of some, by the random numbers of a kind of faults. */
static int living(sim_t *sim, sim_kind_t kind, int first, int count)
{
    int n = 0, node[2 * SIM_MAX_NODES];
    for (int i = first; i < first + count; i++)
        if (sim->node[i].alive) node[n++] = i;
    return n ? node[sim_random_of(sim, kind, (uint64_t)n)] : SIM_NOBODY;
}

static int some_server(sim_t *sim, sim_kind_t kind) { return living(sim, kind, 0, sim->nservers); }

static int some_worker(sim_t *sim, sim_kind_t kind)
{
    return living(sim, kind, sim->nservers, sim->nworkers);
}

/* One whose death the model allows for. */
static int some_mortal(sim_t *sim, sim_kind_t kind)
{
    return sim->worker_kills && sim_random_of(sim, kind, 2) ? some_worker(sim, kind)
                                                            : some_server(sim, kind);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void cut_link(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_cut_some_link(sim);
}

/* Nothing passes from one to the other for a while, then all of it. The other direction is as it
 * was. Where a lease can end by it, it may be long. */
static void partition(sim_t *sim, void *obj, uint64_t arg)
{
    char a[32], b[32];
    int mortal = (int)sim_random_of(sim, SIM_partition, 2);
    int node = mortal ? some_mortal(sim, SIM_partition)
                      : living(sim, SIM_partition, 0, sim->nservers + sim->nworkers);
    int other =
        sim_random_of(sim, SIM_partition, 3) ? some_server(sim, SIM_partition) : SIM_COORDINATOR;
    (void)obj, (void)arg;
    if (node == SIM_NOBODY || other == SIM_NOBODY || other == node) return;
    int may_die = mortal && other == SIM_COORDINATOR;
    uint64_t time = sim_random_of(sim, SIM_partition,
                                  may_die || other != SIM_COORDINATOR ? 900 * MS : 150 * MS);
    int from = sim_random_of(sim, SIM_partition, 2) ? node : other;
    int to = from == node ? other : node;
    sim->silent_until[from][to] = sim->now + time;
    if (may_die) sim->node[node].doubted = 1;
    sim->counts.partitions++;
    sim_trace(sim, "nothing passes from %s to %s for %.1f ms", sim_node_name(sim, from, a),
              sim_node_name(sim, to, b), (double)time / 1e6);
}

/* ---- processes ------------------------------------------------------------------------------- */

static int stop(sim_t *sim, int node, uint64_t time)
{
    char name[32];
    if (node == SIM_NOBODY) return 0;
    uint64_t before = sim->node[node].stopped_until;
    if (before && before + 200 * MS > sim->now) return 0; /* two would be a long one */
    sim->node[node].stopped_until = sim->now + time;
    sim_trace(sim, "%s is stopped for %.1f ms", sim_node_name(sim, node, name), (double)time / 1e6);
    return 1;
}

static void stop_shortly(sim_t *sim, void *obj, uint64_t arg)
{
    int node = living(sim, SIM_stop, 0, sim->nservers + sim->nworkers);
    (void)obj, (void)arg;
    sim->counts.stops += (uint64_t)stop(sim, node, sim_random_of(sim, SIM_stop, 200 * MS));
}

/* Longer than the lease: when it goes on it may be dead to the others. */
static void stop_long(sim_t *sim, void *obj, uint64_t arg)
{
    int node = some_mortal(sim, SIM_long_stop);
    (void)obj, (void)arg;
    if (!stop(sim, node, LEASE + 50 * MS + sim_random_of(sim, SIM_long_stop, 800 * MS))) return;
    sim->node[node].doubted = sim->node[node].frozen = 1;
    sim->counts.long_stops++;
}

static void restart(sim_t *sim, void *obj, uint64_t node)
{
    char name[32];
    (void)obj;
    if (sim->node[node].alive || sim->node[node].left) return;
    sim_trace(sim, "%s is started again", sim_node_name(sim, (int)node, name));
    if (is_server(sim, (int)node)) {
        sim->counts.server_restarts++;
        sim_server_start(sim, (int)node);
    } else {
        sim->counts.worker_restarts++;
        sim_worker_start(sim, (int)node - sim->nservers);
    }
}

static void end_process(sim_t *sim, int node)
{
    if (is_server(sim, node))
        sim_server_kill(sim, node);
    else
        sim_worker_kill(sim, node - sim->nservers);
}

static void end_and_restart(sim_t *sim, sim_kind_t kind, int node, unsigned often)
{
    char name[32];
    if (node == SIM_NOBODY) return;
    sim_trace(sim, "%s is killed", sim_node_name(sim, node, name));
    end_process(sim, node);
    /* Only worker 0 gives the values of rank0 tables. */
    if (node == sim_worker_node(sim, 0) || sim_random_of(sim, kind, 100) < often)
        sim_schedule(sim, sim->now + sim_random_of(sim, kind, 150 * MS), SIM_NOBODY, restart, NULL,
                     (uint64_t)node);
}

static void kill_server(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    end_and_restart(sim, SIM_kill_of_servers, some_server(sim, SIM_kill_of_servers), 80);
}

static void kill_worker(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    end_and_restart(sim, SIM_kill_of_workers, some_worker(sim, SIM_kill_of_workers), 80);
}

void sim_exit_fenced(sim_t *sim, int node)
{
    end_process(sim, node);
    sim_schedule(sim, sim->now + sim_random(sim, 50 * MS), SIM_NOBODY, restart, NULL,
                 (uint64_t)node);
}

/* Cut off from the coordinator for longer than its lease it is declared dead, but lives and goes
 * on, until it finds out. */
static void isolate(sim_t *sim, void *obj, uint64_t servers)
{
    char name[32];
    int node = servers ? some_server(sim, SIM_isolation) : some_worker(sim, SIM_isolation);
    (void)obj;
    if (node == SIM_NOBODY) return;
    sim->node[node].doubted = 1;
    sim->node[node].cut_off_until =
        sim->now + 100 * MS + sim_random_of(sim, SIM_isolation, 800 * MS);
    sim_trace(sim, "%s is cut off from the coordinator", sim_node_name(sim, node, name));
}

/* Not worker 0, who gives the first values of tables that may come later. */
static void leave(sim_t *sim, void *obj, uint64_t arg)
{
    char name[32];
    int node = living(sim, SIM_leave, sim->nservers + 1, sim->nworkers - 1);
    (void)obj, (void)arg;
    if (node == SIM_NOBODY) return;
    sim_trace(sim, "%s shall leave", sim_node_name(sim, node, name));
    sim->worker[node - sim->nservers].leaving = sim->now;
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static void kill_coordinator(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_control_kill(sim);
}

static void cut_control(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    sim_control_cut(sim);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* With a chance of `percent`, up to `most` of them, while faults happen. */
static void plan(sim_t *sim, sim_kind_t kind, unsigned percent, uint64_t most, sim_event_fn fn,
                 uint64_t arg)
{
    if (sim_random_of(sim, kind, 100) >= percent) return;
    for (uint64_t n = sim_random_of(sim, kind, most + 1); n; n--) {
        uint64_t at = sim_random_of(sim, kind, sim->faults.span);
        if (at < sim->faults.until && !(sim->what.without >> kind & 1))
            sim_schedule(sim, at, SIM_NOBODY, fn, NULL, arg);
    }
}

void sim_plan_faults(sim_t *sim)
{
    unsigned mortal = sim->worker_kills ? 100 : 0;
    if (sim_chance(sim, 20)) return;
    plan(sim, SIM_loss_of_links, 50, 4, cut_link, 0);
    plan(sim, SIM_partition, 25, 3, partition, 0);
    plan(sim, SIM_stop, 40, 3, stop_shortly, 0);
    plan(sim, SIM_long_stop, mortal ? 30 : 8, 2, stop_long, 0);
    plan(sim, SIM_kill_of_servers, 30, 2, kill_server, 0);
    plan(sim, SIM_kill_of_workers, mortal, 2, kill_worker, 0);
    plan(sim, SIM_isolation, mortal, 1, isolate, 0);
    plan(sim, SIM_isolation, 15, 1, isolate, 1);
    plan(sim, SIM_kill_of_coordinator, 15, 1, kill_coordinator, 0);
    plan(sim, SIM_loss_of_control, 30, 3, cut_control, 0);
    plan(sim, SIM_leave, mortal / 2, 2, leave, 0);
}
