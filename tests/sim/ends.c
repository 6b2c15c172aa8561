/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation returned when it ended, against the record of the model. */
#include "sim.h"

/* Version in [low, high] whose values these are, the highest below or equal to `below`; -1:
 * none. */
static int64_t version_of(const sim_table_t *t, const sim_slice_t *s, const void *value,
                          uint64_t first, uint64_t count, uint64_t low, int average)
{
    for (uint64_t v = s->version + 1; v-- > low;) {
        const double *is = average ? s->versions[v]->average : s->versions[v]->value;
        uint64_t e = 0;
        while (e < count && sim_same_bits(sim_get(t->spec.value_dtype, value, e),
                                          sim_published(t, is[first + e])))
            e++;
        if (e == count) return (int64_t)v;
    }
    return -1;
}

/* All pushes of steps below `want` by workers that live are in `version`; how far is the
 * slowest? */
static void check_staleness(sim_t *sim, const sim_table_t *t, const sim_slice_t *s,
                            uint64_t version, uint64_t want)
{
    for (const sim_unit_t *u = s->units; u; u = u->next) {
        if (!u->op && !u->ok) continue;
        if (u->step < want && sim_is_certain(u) && (!u->applied || u->version > version))
            sim_fail(sim, "%s: a pull misses step %llu of worker:%d, wanted all below %llu",
                     t->spec.name, (unsigned long long)u->step, u->rank, (unsigned long long)want);
    }
}

/* Did the slowest worker lag by exactly the staleness when this reader went on? */
static void note_bound(sim_t *sim, const sim_table_t *t, uint64_t want)
{
    uint64_t slowest = UINT64_MAX;
    for (int r = 0; r < sim->nworkers; r++)
        if (sim->node[sim_worker_node(sim, r)].alive && sim->worker[r].table[t->index])
            slowest = PSRTI_MIN(slowest, psrti_ctable_next_step(sim->worker[r].table[t->index]));
    if (want && t->spec.staleness && slowest == want) sim->counts.ssp_at_bound++;
}

static void check_value(sim_t *sim, const sim_op_t *op, size_t i, uint64_t *lowest,
                        uint64_t *highest)
{
    const psrti_transfer_t *x = &op->x[i];
    const sim_table_t *t = op->table[i];
    for (uint64_t at = x->offset, end = at + x->count; at < end;) {
        uint64_t k = at / SLICE, stop = PSRTI_MIN(end, (k + 1) * SLICE);
        const sim_slice_t *s = &t->slice[k];
        uint64_t low = op->from_version[i][k];
        if (t->spec.consistency == PSRTI_SYNC) low = PSRTI_MAX(low, op->want[i]);
        const char *got =
            (const char *)x->value + (at - x->offset) * psrt_dtype_size(t->spec.value_dtype);
        int64_t v = s->ready ? version_of(t, s, got, at % SLICE, stop - at, low, x->average) : -1;
        if (v < 0) {
            sim_fail(sim,
                     "worker:%d: %s slice %llu: the value pulled (%g..) is none of versions %llu "
                     "to %llu",
                     op->worker->rank, t->spec.name, (unsigned long long)k,
                     sim_get(t->spec.value_dtype, got, 0), (unsigned long long)low,
                     (unsigned long long)s->version);
            return;
        }
        sim->counts.averages_pulled += (uint64_t)x->average;
        sim->counts.halves_pulled += (uint64_t)t->half;
        if (t->spec.consistency == PSRTI_SSP) check_staleness(sim, t, s, (uint64_t)v, op->want[i]);
        *lowest = PSRTI_MIN(*lowest, (uint64_t)v);
        *highest = PSRTI_MAX(*highest, (uint64_t)v);
        at = stop;
    }
    if (t->spec.consistency == PSRTI_SSP) note_bound(sim, t, op->want[i]);
}

/* A push that was canceled may have been applied before, and later only by a server that did not
 * answer, until the next session with it is up. Of sync tables the values do not tell when it
 * was added. */
static void note_canceled(sim_unit_t *u, const sim_op_t *op, psrt_status_t status, int server)
{
    u->canceled = status == PSRT_ERR_CANCELED || status == PSRT_ERR_DEADLINE;
    u->never = u->canceled && !(op->unheard >> server & 1);
}

static void settle_units(sim_t *sim, const sim_op_t *op)
{
    psrt_status_t status = op->cop.result.status;
    int late = op->cop.result.late, missing = 0;
    for (size_t i = 0; i < op->count; i++)
        for (uint64_t k = 0; k < op->table[i]->nslices; k++)
            for (sim_unit_t *u = op->table[i]->slice[k].units; u; u = u->next) {
                if (u->op != op) continue;
                u->op = NULL;
                u->ok = status == PSRT_OK;
                if (!u->applied && op->table[i]->spec.consistency != PSRTI_SYNC)
                    note_canceled(u, op, status, op->table[i]->slice[k].server);
                u->maybe = op->table[i]->spec.backup && (late || op->ranges || u->unsure);
                missing |= !u->applied || u->unsure;
                if (u->ok && op->table[i]->spec.consistency != PSRTI_SYNC && !u->applied &&
                    !op->table[i]->abandoned)
                    sim_fail(sim, "worker:%d: %s: an op ended, its push was not applied", u->rank,
                             op->table[i]->spec.name);
            }
    if (status == PSRT_OK && late && !missing)
        sim_fail(sim, "worker:%d: %s: a push was late and is in", op->worker->rank,
                 op->table[0]->spec.name);
    sim->counts.backup_late += status == PSRT_OK && late && !op->late;
}

static int ended_as_asked(const sim_t *sim, const sim_op_t *op)
{
    psrt_status_t status = op->cop.result.status;
    if (status == PSRT_ERR_DEADLINE && !(op->cop.deadline && op->cop.deadline <= sim->now))
        return 0;
    return status && status == op->cop.asked && op->cop.text;
}

/* Worker 0 died once, or was taken for dead, and may not have given the first values by then. */
static int may_be_orphaned(const sim_t *sim, const sim_op_t *op)
{
    const sim_node_t *giver = &sim->node[sim_worker_node(sim, 0)];
    int rank0 = 0;
    for (size_t i = 0; i < op->count; i++)
        rank0 |= op->table[i]->rank0;
    return rank0 && (giver->life > 1 || !giver->alive || giver->fenced || giver->doubted);
}

void sim_model_ended(sim_t *sim, sim_op_t *op)
{
    const psrt_result_t *r = &op->cop.result;
    uint64_t lowest = UINT64_MAX, highest = 0;
    int lost = 0, backup = 0;
    for (size_t i = 0; i < op->count; i++) {
        lost |= sim_is_damaged(sim, op->table[i]);
        backup |= op->table[i]->spec.backup != 0;
        if (r->status == PSRT_OK && op->x[i].value && !op->table[i]->abandoned)
            check_value(sim, op, i, &lowest, &highest);
    }
    if (r->status == PSRT_ERR_SHARD_LOST) sim->counts.shard_lost++;
    if (r->status == PSRT_ERR_FENCED) sim->counts.fenced++;
    if (r->status == PSRT_ERR_PEER_LOST) sim->counts.orphaned++;
    if (r->status != PSRT_OK && !(r->status == PSRT_ERR_SHARD_LOST && lost) &&
        !(r->status == PSRT_ERR_FENCED && sim_is_fenced(op->worker)) &&
        !(r->status == PSRT_ERR_PEER_LOST && may_be_orphaned(sim, op)) && !ended_as_asked(sim, op))
        sim_fail(sim, "worker:%d: an op ended with %s: %s", op->worker->rank,
                 psrt_status_name(r->status), op->cop.text);
    if (r->status == PSRT_OK && r->late != op->late && !(r->late && backup))
        sim_fail(sim, "worker:%d: %s step %llu is %slate", op->worker->rank,
                 op->table[0]->spec.name, (unsigned long long)op->step[0], r->late ? "" : "not ");
    if (r->status == PSRT_OK && lowest != UINT64_MAX && r->version > lowest && highest == lowest)
        sim_fail(sim, "worker:%d: %s: version %llu was said, %llu was returned", op->worker->rank,
                 op->table[0]->spec.name, (unsigned long long)r->version,
                 (unsigned long long)lowest);
    settle_units(sim, op);
}

void sim_model_link_up(const sim_worker_t *w, int server)
{
    sim_t *sim = w->sim;
    uint32_t life = sim->node[sim_worker_node(sim, w->rank)].life;
    for (int i = 0; i < sim->ntables; i++)
        for (uint64_t k = 0; k < sim->table[i].nslices; k++) {
            const sim_slice_t *s = &sim->table[i].slice[k];
            for (sim_unit_t *u = s->server == server ? s->units : NULL; u; u = u->next)
                if (u->rank == w->rank && u->life == life) u->never |= u->canceled && !u->applied;
        }
}

void sim_model_killed(sim_t *sim, const sim_op_t *op)
{
    (void)sim;
    for (size_t i = 0; i < op->count; i++)
        for (uint64_t k = 0; k < op->table[i]->nslices; k++)
            for (sim_unit_t *u = op->table[i]->slice[k].units; u; u = u->next)
                if (u->op == op) u->op = NULL;
}
