/* SPDX-License-Identifier: Apache-2.0 */
/* What must agree between processes, and what must stay within bounds, after every event: views,
 * terms, the clocks of workers, memory that waits for somebody. The cores' own state is looked
 * at. */
#include <string.h>

#include "runtime/server/shard_int.h"
#include "runtime/worker/client_int.h"
#include "sim.h"

/* Entries that a server keeps for one session: pulls that wait, and answers that found no room.
 * Above all that workers of the simulation ask for in the time of a repetition or two. */
#define MOST_WAITS 512
#define MOST_OWED 1024

/* ---- views ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value) { return psrti_mix64(hash ^ value); }

static uint64_t hash_of(const psrti_view_t *v)
{
    uint64_t hash = 1;
    for (uint32_t i = 0; i < v->nworkers; i++)
        hash = mix(hash, v->workers[i].incarnation << 1 | (v->workers[i].alive != 0));
    for (uint32_t i = 0; i < v->nowners; i++)
        hash = mix(hash, v->owners[i].incarnation << 1 | (v->owners[i].alive != 0));
    for (uint32_t i = 0; i < v->nvshards; i++)
        hash = mix(hash, (uint64_t)v->vshards[i].term << 16 | v->vshards[i].owner);
    return hash;
}

static int goes_back(const psrti_view_t *old, const psrti_view_t *view)
{
    int back = view->number < old->number;
    for (uint32_t i = 0; i < view->nworkers; i++) /* a place that waits for somebody has none */
        back |=
            view->workers[i].alive && view->workers[i].incarnation < old->workers[i].incarnation;
    for (uint32_t i = 0; i < view->nowners; i++)
        back |= view->owners[i].incarnation < old->owners[i].incarnation;
    for (uint32_t i = 0; i < view->nvshards; i++)
        back |= view->vshards[i].term < old->vshards[i].term;
    return back;
}

void sim_check_view(sim_t *sim, int node, const psrti_view_t *old, const psrti_view_t *view)
{
    char name[32];
    uint64_t hash = hash_of(view);
    size_t at = view->number % SIM_MAX_VIEWS;
    if (sim->view[at].number == view->number && sim->view[at].hash != hash)
        sim_fail(sim, "%s has another view %llu than others had", sim_node_name(sim, node, name),
                 (unsigned long long)view->number);
    if (old && goes_back(old, view))
        sim_fail(sim, "%s: view %llu takes back what view %llu said",
                 sim_node_name(sim, node, name), (unsigned long long)view->number,
                 (unsigned long long)old->number);
    sim->view[at].number = view->number;
    sim->view[at].hash = hash;
    sim->newest_view = PSRTI_MAX(sim->newest_view, view->number);
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* A request of another term may be refused or turned away, but not served. */
static void check_term(const sim_server_t *s, const psrt_hdr_t *hdr)
{
    const psrti_view_t *v = s->shard->view;
    psrt_status_t status = (psrt_status_t) - (int)hdr->status;
    int served =
        hdr->type == PSRTI_T_VALUE ||
        (hdr->type == PSRTI_T_ACK && status != PSRT_ERR_FENCED && status != PSRT_ERR_AGAIN);
    s->sim->counts.old_terms += hdr->type == PSRTI_T_MOVED;
    s->sim->counts.asked_to_wait += hdr->type == PSRTI_T_ACK && status == PSRT_ERR_AGAIN;
    if (served && hdr->term != v->vshards[hdr->vshard].term)
        sim_fail(s->sim, "server:%d served a request of %s of term %u, the term is %u", s->index,
                 sim_table_name(s->sim, hdr->table), hdr->term, v->vshards[hdr->vshard].term);
}

void sim_check_answer(const sim_server_t *s, const psrt_hdr_t *hdr, const void *data, uint64_t len)
{
    psrt_msg_t one = { .hdr = *hdr };
    uint64_t pos = 0;
    if (hdr->type != PSRTI_T_BATCH) check_term(s, hdr);
    while (hdr->type == PSRTI_T_BATCH && psrti_batch_next(data, len, ~0u, &pos, &one) == PSRT_OK)
        check_term(s, &one.hdr);
}

/* An answer of a term that is over ends nothing. */
psrt_rx_t sim_check_reply(sim_worker_t *w, int server, psrt_msg_t *msg)
{
    uint64_t before = psrti_client_outstanding(w->client);
    int old = msg->hdr.type != PSRTI_T_BATCH && msg->hdr.vshard < w->view->nvshards &&
              msg->hdr.term < w->view->vshards[msg->hdr.vshard].term;
    psrt_rx_t rx = psrti_client_msg(w->client, (uint32_t)server, msg);
    if (old && psrti_client_outstanding(w->client) != before)
        sim_fail(w->sim, "worker:%d: %s: an answer of term %u, which is over, counted", w->rank,
                 sim_table_name(w->sim, msg->hdr.table), msg->hdr.term);
    return rx;
}

/* ---- requests -------------------------------------------------------------------------------- */

static int has_contributed(const sim_server_t *s, const psrti_stable_t *t, uint32_t rank,
                           uint64_t step)
{
    for (uint64_t k = 0; k < t->nslices; k++) {
        psrti_slice_t *slice = t->slice[k];
        if (slice && slice->bits && psrti_bit_get(psrti_contributed(s->shard, slice, step), rank))
            return 1;
    }
    return 0;
}

void sim_note_request(const sim_server_t *s, const psrti_peer_t *peer, const psrt_hdr_t *hdr)
{
    sim_counts_t *counts = &s->sim->counts;
    const psrti_stable_t *t = psrti_map_get(&s->shard->tables, hdr->table);
    const psrti_window_t *w =
        psrti_map_get(&s->shard->windows, (uint64_t)peer->task << 16 | hdr->vshard);
    if (!t || !s->shard->view) return;
    if (hdr->type == PSRTI_T_CLOCK && hdr->flags & PSRTI_F_LATE)
        counts->skips++;
    else if (hdr->type == PSRTI_T_CLOCK && t->spec.consistency == PSRTI_SYNC)
        counts->clocks_to_empty += !has_contributed(s, t, peer->rank, hdr->step);
    if (hdr->type == PSRTI_T_PUSH && hdr->flags & PSRTI_F_PULL && w && hdr->seq >= w->floor &&
        hdr->seq < w->floor + PSRTI_WINDOW && w->incarnation == peer->incarnation)
        counts->twice_a_push_pull += psrti_numbers_has(&w->applied, hdr->seq);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* The worker whom the server's view means, if it is the one that lives. */
static const sim_worker_t *meant(const sim_server_t *s, int rank)
{
    const sim_t *sim = s->sim;
    const sim_node_t *n = &sim->node[sim_worker_node(sim, rank)];
    const psrti_view_worker_t *w = &s->shard->view->workers[rank];
    return w->alive && n->alive && n->incarnation == w->incarnation ? &sim->worker[rank] : NULL;
}

static void check_clock(const sim_server_t *s, const psrti_stable_t *t, const sim_table_t *table,
                        const sim_worker_t *w)
{
    uint64_t next = psrti_ctable_next_step(w->table[table->index]);
    if (t->clock[w->rank] > next)
        sim_fail(s->sim, "%s: server:%d has heard of step %llu of worker:%d, which is at %llu",
                 t->spec.name, s->index, (unsigned long long)t->clock[w->rank], w->rank,
                 (unsigned long long)next);
    for (uint64_t k = 0; k < t->nslices; k++) {
        const psrti_slice_t *slice = t->slice[k];
        if (!slice || t->spec.consistency != PSRTI_SYNC) continue;
        uint64_t heard = w->table[table->index]->slice[k].version;
        if (heard > PSRTI_MAX(slice->version, w->first[table->index]))
            sim_fail(s->sim, "%s slice %llu: worker:%d has heard of version %llu, it is %llu",
                     t->spec.name, (unsigned long long)k, w->rank, (unsigned long long)heard,
                     (unsigned long long)slice->version);
        if (slice->version > next && !t->spec.backup && t->from_step[w->rank] < slice->version)
            sim_fail(s->sim, "%s slice %llu is at version %llu without worker:%d, which is at %llu",
                     t->spec.name, (unsigned long long)k, (unsigned long long)slice->version,
                     w->rank, (unsigned long long)next);
    }
}

/* Steps that somebody has ended, and that may not be closed now. */
static void note_holds(sim_t *sim, const psrti_stable_t *t)
{
    if (t->set_hold == UINT64_MAX && t->hold_from == UINT64_MAX) return;
    for (uint64_t k = 0; k < t->nslices; k++) {
        const psrti_slice_t *slice = t->slice[k];
        if (!slice || !slice->step[slice->version % 2].ended) continue;
        sim->counts.steps_held_for_sets += slice->version >= t->set_hold;
        sim->counts.steps_held_for_joins += slice->version >= t->hold_from;
    }
}

static void check_clocks(const sim_server_t *s)
{
    sim_t *sim = s->sim;
    for (int i = 0; i < sim->ntables; i++) {
        const sim_table_t *table = &sim->table[i];
        const psrti_stable_t *t = table->id ? psrti_map_get(&s->shard->tables, table->id) : NULL;
        if (t) note_holds(sim, t);
        for (int r = 0; t && !table->abandoned && r < sim->nworkers; r++) {
            const sim_worker_t *w = meant(s, r);
            if (w && w->table[i] && !w->gone[i]) check_clock(s, t, table, w);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t length_of(const psrti_list_t *list)
{
    size_t n = 0;
    for (const psrti_list_t *at = list->next; at != list; at = at->next)
        n++;
    return n;
}

/* Is the newest request that waits for the slice another than all before? */
static int is_new(const psrti_list_t *waiters)
{
    if (psrti_list_empty(waiters)) return 1;
    const psrti_wait_t *last = PSRTI_LIST_ENTRY(waiters->prev, const psrti_wait_t, node);
    for (const psrti_list_t *n = waiters->next; n != waiters->prev; n = n->next) {
        const psrti_wait_t *w = PSRTI_LIST_ENTRY(n, const psrti_wait_t, node);
        if (w->peer == last->peer && w->tag == last->tag) return 0;
    }
    return 1;
}

static void check_peers(const sim_server_t *s)
{
    const psrti_list_t *peers = &s->shard->peers;
    unsigned tasks = 0;
    for (const psrti_list_t *n = peers->next; n != peers; n = n->next) {
        const psrti_peer_t *peer = PSRTI_LIST_ENTRY(n, const psrti_peer_t, node);
        if (tasks >> peer->rank & 1)
            sim_fail(s->sim, "server:%d has two sessions of worker:%u", s->index, peer->rank);
        tasks |= 1u << peer->rank;
        size_t waits = length_of(&peer->waits), owed = length_of(&peer->owed);
        s->sim->counts.most_waits = PSRTI_MAX(s->sim->counts.most_waits, waits);
        s->sim->counts.most_owed = PSRTI_MAX(s->sim->counts.most_owed, owed);
        if (waits > MOST_WAITS || owed > MOST_OWED)
            sim_fail(s->sim, "server:%d keeps %zu pulls and %zu answers for worker:%u", s->index,
                     waits, owed, peer->rank);
    }
}

/* One block a slice, and one more for each version that somebody still reads. */
static void check_blocks(const sim_server_t *s)
{
    sim_t *sim = s->sim;
    uint64_t slices = 0, sends = sim->node[s->index].sending, blocks = s->shard->counts.blocks;
    size_t pos = 0;
    const psrti_stable_t *t;
    while ((t = psrti_map_next(&s->shard->tables, &pos, NULL)))
        for (uint64_t k = 0; k < t->nslices; k++) {
            slices += t->slice[k] != NULL;
            if (t->slice[k] && !is_new(&t->slice[k]->waiters))
                sim_fail(sim, "%s slice %llu: a request waits twice", t->spec.name,
                         (unsigned long long)k);
        }
    if (blocks < slices || blocks > slices + sends)
        sim_fail(sim, "server:%d has %llu blocks for %llu slices and %llu sends", s->index,
                 (unsigned long long)blocks, (unsigned long long)slices, (unsigned long long)sends);
    if (s->shard->windows.count > (size_t)sim->nworkers * sim->vshards)
        sim_fail(sim, "server:%d has %zu windows", s->index, s->shard->windows.count);
}

void sim_check_server(const sim_server_t *s)
{
    if (!s->shard->view) return;
    check_clocks(s);
    check_peers(s);
    check_blocks(s);
}

void sim_check_worker(const sim_worker_t *w)
{
    const psrti_client_t *c = w->client;
    size_t queued = 0;
    for (uint32_t v = 0; w->view && v < w->view->nvshards; v++) {
        uint64_t numbers = c->vshards[v].next_seq - c->vshards[v].floor;
        w->sim->counts.most_numbers = PSRTI_MAX(w->sim->counts.most_numbers, numbers);
        w->sim->counts.windows_full += numbers == PSRTI_NUMBERS;
        if (numbers > PSRTI_NUMBERS)
            sim_fail(w->sim, "worker:%d has %llu numbers out", w->rank,
                     (unsigned long long)numbers);
    }
    for (uint32_t i = 0; w->view && i < w->view->nowners; i++)
        queued += c->owners[i].count;
    if (queued > c->outstanding)
        sim_fail(w->sim, "worker:%d has %zu parts queued, %llu are not done", w->rank, queued,
                 (unsigned long long)c->outstanding);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Every step of every worker has been told to every server that holds a part, also to one to
 * which nothing was pushed in it. */
static void check_last_clocks(const sim_server_t *s)
{
    const sim_t *sim = s->sim;
    for (int i = 0; i < sim->ntables; i++) {
        const sim_table_t *table = &sim->table[i];
        const psrti_stable_t *t = table->id ? psrti_map_get(&s->shard->tables, table->id) : NULL;
        int here = 0;
        for (uint64_t k = 0; t && k < t->nslices; k++)
            here |= t->slice[k] != NULL;
        if (!here || table->abandoned || table->lost || t->spec.consistency != PSRTI_SSP) continue;
        for (int r = 0; r < sim->nworkers; r++) {
            const sim_worker_t *w = meant(s, r);
            if (!w || !w->table[i] || w->gone[i]) continue;
            uint64_t next = psrti_ctable_next_step(w->table[i]);
            if (t->clock[r] < next)
                sim_fail(s->sim, "%s: server:%d knows worker:%d at step %llu, it is at %llu",
                         t->spec.name, s->index, r, (unsigned long long)t->clock[r],
                         (unsigned long long)next);
        }
    }
}

void sim_check_end(sim_t *sim)
{
    for (int i = 0; i < sim->nservers && !sim_control_is_finished(sim); i++)
        if (sim->node[i].alive && !sim->node[i].fenced && sim->server[i].shard)
            check_last_clocks(&sim->server[i]);
}
