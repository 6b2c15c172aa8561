/* SPDX-License-Identifier: Apache-2.0 */
/* What the values of every slice must be: a record of all pushes, and a look at the slices of a
 * server after every event there. A slice whose version has not grown must not have changed; if it
 * has grown, explain.c finds the pushes that did it. Every version is kept, and what a pull returns
 * must be one of them. */
#include <stdlib.h>
#include <string.h>

#include "runtime/server/shard_int.h"
#include "sim.h"

/* ---- pushes ---------------------------------------------------------------------------------- */

static void add_units(sim_t *sim, const sim_op_t *op, size_t i)
{
    const psrti_transfer_t *x = &op->x[i];
    sim_table_t *t = op->table[i];
    for (uint64_t at = x->offset, end = at + x->count; at < end;) {
        uint64_t k = at / SLICE, stop = PSRTI_MIN(end, (k + 1) * SLICE);
        sim_slice_t *s = &t->slice[k];
        sim_unit_t *u = calloc(1, sizeof *u);
        u->op = op;
        u->rank = op->worker->rank;
        u->life = sim->node[sim_worker_node(sim, u->rank)].life;
        u->late = op->late;
        u->step = op->step[i];
        u->first = at % SLICE;
        u->count = stop - at;
        u->grad = malloc(u->count * sizeof *u->grad);
        for (uint64_t e = 0; e < u->count; e++)
            u->grad[e] = sim_pushed(t, sim_get(t->spec.grad_dtype, x->grad, at - x->offset + e));
        if (s->last_unit)
            s->last_unit->next = u;
        else
            s->units = u;
        s->last_unit = u;
        at = stop;
    }
}

static uint64_t want_of(const sim_table_t *t, const psrti_transfer_t *x, uint64_t next)
{
    if (t->spec.consistency == PSRTI_SYNC) return x->step == PSRT_STEP_NEXT ? next : x->step;
    if (t->spec.consistency == PSRTI_ASYNC) return 0;
    return next - PSRTI_MIN(next, t->spec.staleness);
}

void sim_model_submit(sim_t *sim, sim_op_t *op)
{
    for (size_t i = 0; i < op->count; i++) {
        const psrti_transfer_t *x = &op->x[i];
        sim_table_t *t = op->table[i];
        uint64_t next = psrti_ctable_next_step(x->table);
        for (uint64_t k = 0; k < t->nslices; k++)
            op->from_version[i][k] = t->slice[k].version;
        if (x->grad && !x->init) {
            op->step[i] = x->step == PSRT_STEP_NEXT ? next : x->step;
            op->want[i] = op->late ? 0 : op->step[i] + 1;
            if (t->spec.consistency == PSRTI_ASYNC) op->want[i] = 0;
            if (t->spec.consistency == PSRTI_SSP)
                op->want[i] -= PSRTI_MIN(op->want[i], t->spec.staleness);
            add_units(sim, op, i);
        } else if (!x->grad) {
            op->want[i] = want_of(t, x, next);
        }
    }
}

/* ---- looking at slices ----------------------------------------------------------------------- */

static const char *line(const double *v, uint64_t n, char *buf, size_t size)
{
    size_t pos = 0;
    buf[0] = '\0';
    for (uint64_t i = 0; i < n; i++)
        psrti_append(buf, size, &pos, "%g ", v[i]);
    return buf;
}

static void blame(sim_t *sim, const sim_table_t *t, uint64_t k, const double *seen,
                  uint64_t version)
{
    const sim_slice_t *s = &t->slice[k];
    char was[200], is[200];
    sim_fail(sim, "%s slice %llu: nothing explains version %llu: %s, version %llu was %s",
             t->spec.name, (unsigned long long)k, (unsigned long long)version,
             line(seen, s->len, is, sizeof is), (unsigned long long)s->version,
             line(s->versions[s->version]->value, s->len, was, sizeof was));
    for (const sim_unit_t *u = s->units; u; u = u->next)
        sim_trace(sim, "  worker:%d life %u step %llu [%llu +%llu) %g.. %s%s", u->rank, u->life,
                  (unsigned long long)u->step, (unsigned long long)u->first,
                  (unsigned long long)u->count, u->grad[0], sim_is_certain(u) ? "" : "optional ",
                  u->applied ? "applied"
                  : u->late  ? "late"
                             : "");
}

static void guess_first(sim_table_t *t, uint64_t k, uint32_t life)
{
    sim_version_t *first = sim_version(&t->slice[k], 0);
    for (uint64_t e = 0; e < t->slice[k].len; e++)
        first->value[e] = first->average[e] = sim_stored(t, sim_init_value(life, k * SLICE + e));
}

/* The first values of a rank0 slice are those of one life of worker 0; pushes of the same batch may
 * have changed them already, by a norm of all slices, of which those behind this one were not looked at
 * yet. */
static void look_for_init(sim_t *sim, sim_table_t *t, uint64_t k, const double *seen,
                          uint64_t version)
{
    sim_slice_t *s = &t->slice[k];
    for (uint32_t life = 1; life <= sim->node[sim_worker_node(sim, 0)].life; life++) {
        for (uint64_t o = 0; o < t->nslices; o++)
            if (!t->slice[o].ready) guess_first(t, o, life);
        if (!sim_is_explained(sim, t, s, version, seen)) continue;
        s->ready = 1;
        sim_average(t, s, 0, version);
        s->version = version;
        return;
    }
    blame(sim, t, k, seen, version);
}

/* What is published is the master, rounded. */
static void check_published(sim_t *sim, const sim_table_t *t, uint64_t k, const void *published,
                            const double *master)
{
    psrt_dtype_t dtype = psrti_table_spec_wire(&t->spec, t->spec.value_dtype);
    for (uint64_t e = 0; e < t->slice[k].len; e++) {
        double is = sim_get(dtype, published, e), must = sim_published(t, master[e]);
        if (!sim_same_bits(is, must))
            sim_fail(sim, "%s slice %llu: %g is published for %g", t->spec.name,
                     (unsigned long long)k, is, master[e]);
    }
}

static void look_at(sim_t *sim, sim_table_t *t, uint64_t k, const psrti_shard_t *shard)
{
    sim_slice_t *s = &t->slice[k];
    const psrti_stable_t *table = psrti_map_get(&shard->tables, t->id);
    const psrti_slice_t *slice = table ? table->slice[k] : NULL;
    double seen[SLICE] = { 0 };
    if (!slice) {
        sim_fail(sim, "%s: slice %llu is not at its server", t->spec.name, (unsigned long long)k);
        return;
    }
    if (!s->ready && !slice->ready) return;
    uint64_t version = slice->version;
    for (uint64_t e = 0; e < s->len; e++)
        seen[e] = sim_get(t->half ? t->spec.acc_dtype : t->spec.value_dtype,
                          slice->master ? slice->master : slice->cur->data, e);
    if (slice->master) check_published(sim, t, k, slice->cur->data, seen);
    if (!s->ready) {
        look_for_init(sim, t, k, seen, version);
    } else if (!sim_is_explained(sim, t, s, version, seen)) {
        blame(sim, t, k, seen, version);
    } else if (version > s->version) {
        sim_trace(sim, "  %s slice %llu: version %llu", t->spec.name, (unsigned long long)k,
                  (unsigned long long)version);
        sim_average(t, s, s->version, version);
        s->version = version;
    }
}

void sim_model_observe(sim_t *sim, const sim_server_t *server)
{
    for (int i = 0; i < sim->ntables && !sim->failed; i++)
        for (uint64_t k = 0; k < sim->table[i].nslices && !sim->table[i].abandoned; k++) {
            const sim_slice_t *s = &sim->table[i].slice[k];
            if (s->server == server->index && s->life == sim->node[server->index].life)
                look_at(sim, &sim->table[i], k, server->shard);
        }
}

/* ---- the end --------------------------------------------------------------------------------- */

static void finish_slice(sim_t *sim, const sim_table_t *t, uint64_t k, int living)
{
    const sim_slice_t *s = &t->slice[k];
    int sync = t->spec.consistency == PSRTI_SYNC;
    if (s->life != sim->node[s->server].life) return;
    if (sync && living && !t->lost && s->version < sim->steps)
        sim_fail(sim, "%s slice %llu ends at version %llu of %llu", t->spec.name,
                 (unsigned long long)k, (unsigned long long)s->version,
                 (unsigned long long)sim->steps);
    for (const sim_unit_t *u = s->units; u; u = u->next)
        if (u->ok && !u->late && !u->maybe && !u->unsure && !u->applied &&
            (!sync || u->step < s->version))
            sim_fail(sim, "%s slice %llu: step %llu of worker:%d was accepted and is not in",
                     t->spec.name, (unsigned long long)k, (unsigned long long)u->step, u->rank);
}

/* Not those that live, but were declared dead and do not know it yet. */
static int workers_live(const sim_t *sim)
{
    int living = 0;
    for (int r = 0; r < sim->nworkers; r++) {
        const sim_node_t *n = &sim->node[sim_worker_node(sim, r)];
        living |= n->alive && !n->fenced;
    }
    return living;
}

/* Is every step applied that is complete? In two phases, and while a hyper-parameter is being
 * set, that takes a while after the last push. */
int sim_model_is_settled(const sim_t *sim)
{
    for (int i = 0; i < sim->ntables && workers_live(sim); i++) {
        const sim_table_t *t = &sim->table[i];
        if (t->spec.consistency != PSRTI_SYNC || !t->declared || t->lost || t->abandoned) continue;
        for (uint64_t k = 0; k < t->nslices; k++) {
            const sim_slice_t *slice = &t->slice[k]; /* as finish_slice asks for */
            if (slice->life == sim->node[slice->server].life && slice->version < sim->steps)
                return 0;
        }
    }
    return 1;
}

void sim_model_finish(sim_t *sim)
{
    int living = workers_live(sim) && !sim_control_is_finished(sim);
    for (int i = 0; i < sim->ntables; i++)
        for (uint64_t k = 0; k < sim->table[i].nslices && sim->table[i].declared; k++)
            finish_slice(sim, &sim->table[i], k, living);
}
