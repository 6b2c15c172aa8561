/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a server: a shard with the simulated network around it. */
#include <stdlib.h>
#include <string.h>

#include "runtime/server/shard_int.h"
#include "sim.h"

static psrt_status_t env_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    const sim_server_t *s = arg;
    return sim_send(link, sim_link_server(link) == s->index, hdr, data, len, tx);
}

static psrt_status_t env_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    return sim_map(((sim_server_t *)arg)->sim, msg, data_p);
}

static void *env_alloc(void *arg, uint64_t bytes)
{
    (void)arg;
    return calloc(1, bytes); /* so that a slice without first values can be told */
}

static void env_free(void *arg, void *ptr)
{
    (void)arg;
    free(ptr);
}

static void env_dial(void *arg, uint32_t owner, const psrti_view_owner_t *address)
{
    sim_server_t *s = arg;
    if (s->out[owner] || !address->alive) return;
    s->out[owner] = sim_dial(s->sim, s->index, (int)owner);
}

void sim_server_link_lost(sim_server_t *s, sim_link_t *link)
{
    for (int i = 0; i < SIM_MAX_NODES; i++)
        if (s->out[i] == link) s->out[i] = NULL;
}

void sim_server_start(sim_t *sim, int index)
{
    sim_node_t *n = &sim->node[index];
    memset(sim->server[index].out, 0, sizeof sim->server[index].out);
    sim->server[index].timer = UINT64_MAX;
    n->life++;
    n->alive = 1;
    n->fenced = n->doubted = n->frozen = 0;
    n->sending = 0;
    n->stopped_until = n->incarnation = 0;
    sim_control_started(sim, index);
}

/* With no link left nothing is pinned: one block a slice. */
static void check_blocks(const sim_server_t *s, const psrti_shard_counts_t *counts)
{
    sim_t *sim = s->sim;
    uint64_t slices = 0;
    for (int t = 0; t < sim->ntables; t++)
        for (uint64_t i = 0; i < sim->table[t].nslices; i++) {
            const sim_slice_t *slice = &sim->table[t].slice[i];
            slices += slice->server == s->index && slice->life == sim->node[s->index].life;
        }
    if (counts->blocks != slices && !(sim->renumbered && counts->blocks > slices))
        sim_fail(sim, "server:%d has %llu blocks for %llu slices", s->index,
                 (unsigned long long)counts->blocks, (unsigned long long)slices);
}

void sim_server_kill(sim_t *sim, int index)
{
    sim_server_t *s = &sim->server[index];
    sim_cut_node(sim, index);
    if (s->shard) {
        psrti_shard_counts_t c;
        psrti_shard_counts(s->shard, &c);
        sim->counts.moved += c.moved;
        sim->counts.late += c.late;
        sim->counts.window_duplicates += c.duplicates;
        sim->counts.parked += c.parked;
        sim->counts.taken_back += c.canceled;
        sim->counts.sync_steps += c.steps;
        sim->counts.applied += c.applied;
        sim->counts.answer_batches += c.batches;
        sim->counts.batched_answers += c.batched;
        sim->counts.joined_answers += c.joined;
        sim->counts.reports += c.reports;
        sim->counts.reports_repeated += c.reports_repeated;
        sim->counts.verdicts_repeated += c.verdicts_repeated;
        sim->counts.skipped += c.skipped;
        check_blocks(s, &c);
        psrti_shard_destroy(s->shard);
        s->shard = NULL;
    }
    sim_lose(sim, index);
    sim->node[index].alive = 0;
    sim->node[index].life++;
    sim_control_died(sim, index);
}

void sim_server_view(sim_server_t *s, psrti_view_t *view, int joiner, size_t count,
                     const uint32_t *table, const uint64_t *from)
{
    if (!s->shard) {
        const psrti_kernels_t *kernels;
        psrti_shard_env_t env = {
            s, env_send, env_map, env_alloc, env_free, env_dial, s->sim->faults.batch, NULL
        };
        psrti_kernels_select(NULL, &kernels);
        psrti_shard_create((uint32_t)s->index, kernels, &env, &s->shard);
    }
    for (uint32_t i = 0; i < view->nowners; i++) {
        sim_link_t *l = s->out[i];
        int same = s->incarnation[i] == view->owners[i].incarnation;
        s->incarnation[i] = view->owners[i].incarnation;
        if (!l || (same && view->owners[i].alive)) continue;
        s->out[i] = NULL;
        sim_link_drop(l);
    }
    sim_check_view(s->sim, s->index, s->shard->view, view);
    psrti_shard_view(s->shard, view, joiner < 0 ? 0 : (uint32_t)joiner, count, table,
                     joiner < 0 ? NULL : from);
}

void sim_server_hold(sim_server_t *s, sim_table_t *t)
{
    psrt_status_t rc = psrti_shard_hold(s->shard, t->id, &t->spec);
    if (rc)
        sim_fail(s->sim, "server:%d cannot hold %s: %s", s->index, t->spec.name, psrt_last_error());
    for (uint64_t i = 0; i < t->nslices; i++)
        if (t->slice[i].server == s->index) t->slice[i].life = s->sim->node[s->index].life;
}

psrti_peer_t *sim_server_link_up(sim_server_t *s, sim_link_t *link, int node, uint64_t incarnation)
{
    int rank = node - s->sim->nservers;
    if (rank < 0) return psrti_shard_owner_up(s->shard, link, (uint32_t)node, incarnation, 0);
    return psrti_shard_link_up(s->shard, link, PSRTI_TASK(PSRTI_WORKER, rank), incarnation);
}

static void on_timer(sim_t *sim, void *obj, uint64_t at)
{
    sim_server_t *s = obj;
    if (s->timer != at) return;
    s->timer = UINT64_MAX;
    if (!sim->node[s->index].frozen) sim_server_after(s);
}

/* A process that is busy with others lets ACKs wait for the next ones. When it looks again. */
static uint64_t progress(sim_server_t *s)
{
    sim_t *sim = s->sim;
    if (!psrti_list_empty(&s->shard->owing) && sim_chance(sim, 50)) {
        sim->counts.kept_answers++;
        return sim->now + sim_random(sim, PSRTI_NS_PER_MS);
    }
    return psrti_shard_progress(s->shard, sim->now);
}

void sim_server_after(sim_server_t *s)
{
    sim_t *sim = s->sim;
    if (!s->shard) return;
    uint64_t next = PSRTI_MAX(progress(s), sim->now + 1);
    sim_model_observe(sim, s);
    sim_check_server(s);
    if (next >= s->timer || next == UINT64_MAX) return;
    s->timer = next;
    sim_schedule(sim, next, s->index, on_timer, s, next);
}
