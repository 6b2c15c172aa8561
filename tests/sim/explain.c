/* SPDX-License-Identifier: Apache-2.0 */
/* Which pushes make the values that a slice has: a search in plain arithmetic. A sync slice whose
 * version grew from v to v + 1 must hold what the optimizer makes of the contributions to step v:
 * each of a worker that lives (its step only ends when all were accepted), and of those that died
 * or whose op failed any subset, but each whole and once. With backup workers any subset of the
 * workers, each with all it pushed to the slice in that step; but a push of the whole table that
 * was not said to be late must be in, and one that was must be missing somewhere. An async or ssp
 * slice must differ by exactly one push that was not applied before. So a doubled, lost, torn or
 * misplaced contribution, or one that counts for the wrong step, has no explanation and fails.
 * Two-phase tables are scaled, or not changed at all, by what the model makes of all pushes to the
 * step of the whole group, unless it cannot know who is in; then neither happens in the simulation.
 * The model adds in rank order, as servers do where the order shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MAX_BATCHED 64 /* pushes to a slice in one batch */
#define MAX_OPTIONAL 12
#define MAX_GUESSES                                                                                \
    200000 /* at one version; many steps that close at once, with much that is optional */

/* ---- arithmetic ------------------------------------------------------------------------------ */

static double rounded(const sim_table_t *t, double v)
{
    return t->spec.acc_dtype == PSRT_F32 ? (double)(float)v : v; /* of 16 bits too */
}

static void optimize(const sim_table_t *t, const double params[2], double *value, double *state,
                     double g)
{
    if (t->optimizer == SIM_NONE) {
        *value = rounded(t, *value + g);
    } else if (t->optimizer == SIM_SGD) {
        *value = rounded(t, *value - rounded(t, params[0] * g));
    } else {
        *state = rounded(t, rounded(t, params[1] * *state) + g);
        *value = rounded(t, *value - rounded(t, params[0] * *state));
    }
}

/* What LAMB puts in place of a gradient. */
static double lamb_update(const sim_table_t *t, double value, double g)
{
    double root = rounded(t, sqrt(rounded(t, g * g)));
    double direction = rounded(t, g / rounded(t, root + rounded(t, 1e-6)));
    return rounded(t, direction + rounded(t, 0.5 * value));
}

/* Sums a rank's own contributions in their order, then the ranks in theirs; averages. 0: there
 * are none. */
static int add_up(const sim_table_t *t, const sim_slice_t *s, sim_unit_t *const *unit, size_t n,
                  double *gradient)
{
    unsigned ranks = 0, seen = 0;
    for (size_t i = 0; i < n; i++) {
        ranks += !(seen >> unit[i]->rank & 1);
        seen |= 1u << unit[i]->rank;
    }
    for (uint64_t e = 0; ranks && e < s->len; e++) {
        double sum = 0;
        for (int r = 0; r < SIM_MAX_NODES; r++) {
            double own = 0;
            for (size_t i = 0; i < n; i++)
                if (unit[i]->rank == r && e - unit[i]->first < unit[i]->count)
                    own = rounded(t, own + unit[i]->grad[e - unit[i]->first]);
            sum = rounded(t, sum + own);
        }
        gradient[e] = t->spec.average && ranks > 1 ? rounded(t, sum / ranks) : sum;
    }
    return ranks != 0;
}

/* What the group makes of a step; norms of the one table. */
typedef struct verdict {
    double scale, value_norm, update_norm;
    int skip;
} verdict_t;

static void close_step(const sim_table_t *t, const sim_slice_t *s, uint64_t step,
                       sim_unit_t *const *unit, size_t n, const verdict_t *v, double *value,
                       double *state)
{
    double params[2], g[SLICE], scale = rounded(t, v->scale);
    if (v->skip || !add_up(t, s, unit, n, g)) return;
    sim_params(t, s, step, params);
    double ratio = v->value_norm > 0 && v->update_norm > 0 ? v->value_norm / v->update_norm : 1;
    double rate = rounded(t, params[0] * ratio);
    for (uint64_t e = 0; e < s->len; e++) {
        double scaled = v->scale != 1 ? rounded(t, g[e] * scale) : g[e];
        if (t->optimizer == SIM_LAMB)
            value[e] = rounded(t, value[e] - rounded(t, rate * lamb_update(t, value[e], scaled)));
        else
            optimize(t, params, &value[e], &state[e], scaled);
    }
}

/* ---- explaining a sync version --------------------------------------------------------------- */

static int is_scheduled(const sim_table_t *t)
{
    return t->schedule.kind != SIM_CONSTANT || t->schedule.warmup > 0;
}

typedef struct guess {
    sim_unit_t *unit[64];
    /* Bits of the mask; a unit is in when all that it needs are set. */
    unsigned group[64], need[64];
    size_t n;
    unsigned nbits, optional;
} guess_t;

int sim_is_fenced(const sim_worker_t *w)
{
    return w->sim->node[sim_worker_node(w->sim, w->rank)].fenced;
}

int sim_is_certain(const sim_unit_t *u)
{
    return u->ok || (u->op && u->op->cop.result.status == PSRT_OK && !sim_is_fenced(u->op->worker));
}

/* A worker's earlier life cannot contribute to steps from which a later one counts. */
static int is_possible(const sim_table_t *t, const sim_unit_t *u)
{
    return !u->late && (u->life >= t->from_life[u->rank] || u->step < t->from[u->rank]);
}

static unsigned new_bit(guess_t *g) { return g->nbits < MAX_OPTIONAL ? 1u << g->nbits++ : 0; }

/* What one life of a worker pushed is in together. */
static unsigned group_of(guess_t *g, const sim_unit_t *u)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->unit[i]->rank == u->rank && g->unit[i]->life == u->life) return g->group[i];
    return new_bit(g);
}

static void gather(const sim_table_t *t, const sim_slice_t *s, uint64_t step, guess_t *g)
{
    memset(g, 0, sizeof *g);
    for (sim_unit_t *u = s->units; u; u = u->next) {
        if (u->step != step || !is_possible(t, u)) continue;
        if (g->n == PSRTI_COUNT(g->unit)) return;
        unsigned group = t->spec.backup ? group_of(g, u) : 0, own = 0;
        if (!sim_is_certain(u)) own = new_bit(g);
        g->optional += own != 0;
        g->group[g->n] = group;
        g->need[g->n] = group | own;
        g->unit[g->n++] = u;
    }
}

static verdict_t verdict_of(sim_t *sim, sim_table_t *t, uint64_t step);

/* A server may close two steps at once: values of version `step` of slices that were not looked
 * at yet. */
static void predict(sim_t *sim, sim_table_t *t, uint64_t step)
{
    guess_t all;
    double none[SLICE];
    for (uint64_t k = 0; k < t->nslices; k++) {
        sim_slice_t *s = &t->slice[k];
        if (s->version >= step) continue;
        predict(sim, t, step - 1);
        verdict_t v = verdict_of(sim, t, step - 1);
        double *next = sim_values(s, step);
        memcpy(next, sim_values(s, step - 1), sizeof none);
        gather(t, s, step - 1, &all);
        close_step(t, s, step - 1, all.unit, all.n, &v, next, none);
    }
}

/* Both are sums of slices of 16 elements at most, so that 16 lanes add as a loop does. */
static void set_norms(sim_t *sim, sim_table_t *t, uint64_t step, verdict_t *v)
{
    predict(sim, t, step);
    double values = 0, updates = 0, scale = rounded(t, v->scale), g[SLICE] = { 0 };
    guess_t all;
    for (uint64_t k = 0; k < t->nslices; k++) {
        const sim_slice_t *s = &t->slice[k];
        const double *value = s->versions[step]->value;
        double value_square = 0, update_square = 0;
        gather(t, s, step, &all);
        int any = add_up(t, s, all.unit, all.n, g);
        for (uint64_t e = 0; e < s->len; e++) {
            double scaled = any && v->scale != 1 ? rounded(t, g[e] * scale) : g[e];
            double u = any ? lamb_update(t, value[e], scaled) : 0;
            value_square += value[e] * value[e];
            update_square += u * u;
        }
        values += value_square;
        updates += update_square;
    }
    v->value_norm = sqrt(values);
    v->update_norm = sqrt(updates);
}

/* From everything that was pushed to this step of the group: all of it is in, and comes to the
 * verdict before any slice is applied. */
static verdict_t verdict_of(sim_t *sim, sim_table_t *t, uint64_t step)
{
    verdict_t v = { 1, 0, 0, 0 };
    double square = 0, g[SLICE];
    guess_t all;
    if (!t->two_phase || !sim->certain) return v;
    for (int i = 0; i < sim->ntables; i++) {
        const sim_table_t *o = &sim->table[i];
        for (uint64_t k = 0; sim_same_group(t, o) && k < o->nslices; k++) {
            gather(o, &o->slice[k], step, &all);
            if (!add_up(o, &o->slice[k], all.unit, all.n, g)) continue;
            for (uint64_t e = 0; e < o->slice[k].len; e++) {
                square += g[e] * g[e];
                v.skip |= sim->skip && !isfinite(g[e]);
            }
        }
    }
    double scale = sim->clip / (sqrt(square) + 1e-6);
    if (scale < 1) v.scale = scale;
    if (t->optimizer == SIM_LAMB && !v.skip) set_norms(sim, t, step, &v);
    return v;
}

static size_t pick(const guess_t *g, unsigned mask, sim_unit_t **out)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        if ((mask & g->need[i]) == g->need[i]) out[n++] = g->unit[i];
    return n;
}

/* Another set of contributions makes the same values. */
static void set_unsure(guess_t *g)
{
    for (size_t i = 0; i < g->n; i++)
        g->unit[i]->unsure = 1;
}

/* Finds contributions that lead from version v to `seen` at version `last`; keeps what they
 * make. */
static int explain(sim_t *sim, sim_table_t *t, sim_slice_t *s, uint64_t v, uint64_t last,
                   const double *state, const double *seen)
{
    guess_t g;
    sim_unit_t *chosen[64];
    double next_state[SLICE];
    int found = 0;
    verdict_t verdict = verdict_of(sim, t, v);
    gather(t, s, v, &g);
    for (unsigned mask = 0; mask < 1u << g.nbits; mask++) {
        unsigned full = (1u << g.nbits) - 1 - mask; /* most likely: all of them */
        if (sim->guesses++ == MAX_GUESSES) sim->given_up = 1;
        if (sim->given_up) return 1;
        size_t n = pick(&g, full, chosen);
        double *next = sim_values(s, v + 1);
        memcpy(next, sim_values(s, v), sizeof next_state);
        memcpy(next_state, state, sizeof next_state);
        close_step(t, s, v, chosen, n, &verdict, next, next_state);
        if (found) {
            if (memcmp(next, seen, s->len * sizeof *seen) == 0) set_unsure(&g);
            continue;
        }
        if (v + 1 == last ? memcmp(next, seen, s->len * sizeof *seen) == 0
                          : explain(sim, t, s, v + 1, last, next_state, seen)) {
            sim->counts.scaled_twice += verdict.update_norm != 0;
            sim->counts.clipped += verdict.scale != 1 && !verdict.skip;
            if (v + 1 == last) memcpy(s->state, next_state, sizeof next_state);
            sim->counts.optional_contributions += g.optional;
            int changed = n && !verdict.skip;
            s->versions[v + 1]->first = 0;
            s->versions[v + 1]->count = changed ? s->len : 0;
            sim->counts.scheduled_updates += (uint64_t)(changed && is_scheduled(t));
            for (size_t i = 0; i < n; i++)
                chosen[i]->applied = 1, chosen[i]->version = v + 1;
            found = 1;
            if (v + 1 != last || !t->spec.backup) return 1;
        }
    }
    if (found) memcpy(sim_values(s, v + 1), seen, s->len * sizeof *seen);
    return found;
}

static void apply_push(const sim_table_t *t, const sim_slice_t *s, uint64_t v, const sim_unit_t *u,
                       double *value, double *state)
{
    double params[2];
    sim_params(t, s, v, params);
    for (uint64_t e = 0; e < u->count; e++)
        optimize(t, params, &value[u->first + e], &state[u->first + e], u->grad[e]);
}

/* Pushes that lead from version v to `seen` at version `last`: one push, or those of one batch,
 * which are of one worker, in their order. */
static int explain_pushes(sim_t *sim, sim_table_t *t, sim_slice_t *s, const sim_unit_t *before,
                          uint64_t v, uint64_t last, const double *state, const double *seen)
{
    for (sim_unit_t *u = before ? before->next : s->units; u; u = u->next) {
        if (u->applied || u->never || (before && before->rank != u->rank)) continue;
        if (sim->guesses++ == MAX_GUESSES) sim->given_up = 1;
        if (sim->given_up) return 1;
        double *next = sim_values(s, v + 1), next_state[SLICE];
        memcpy(next, sim_values(s, v), sizeof next_state);
        memcpy(next_state, state, sizeof next_state);
        apply_push(t, s, v, u, next, next_state);
        u->applied = 1;
        u->version = v + 1;
        if (v + 1 == last ? memcmp(next, seen, s->len * sizeof *seen) == 0
                          : explain_pushes(sim, t, s, u, v + 1, last, next_state, seen)) {
            if (v + 1 == last) memcpy(s->state, next_state, sizeof next_state);
            s->versions[v + 1]->first = u->first;
            s->versions[v + 1]->count = u->count;
            sim->counts.scheduled_updates += (uint64_t)is_scheduled(t);
            return 1;
        }
        u->applied = 0;
        u->version = 0;
    }
    return 0;
}

/* ---- more than one way ----------------------------------------------------------------------- */

static int is_same(const sim_slice_t *s, const double *a, const double *b)
{
    return memcmp(a, b, s->len * sizeof *a) == 0;
}

/* Steps that close at once, and pushes of one batch, show only the last of their versions, and of
 * few elements more than one choice of contributions makes the same sum. Is there a way from `value`
 * at version v to that version over values that explain() did not choose, or to another state?
 * `differs`: it is another so far. Not where norms are of use: there is no choice then. */
static int leads_elsewhere(sim_t *sim, const sim_table_t *t, const sim_slice_t *s, uint64_t v,
                           uint64_t last, const double *value, const double *state, int differs)
{
    static const verdict_t plain = { 1, 0, 0, 0 };
    guess_t g;
    sim_unit_t *chosen[64];
    double next[SLICE], next_state[SLICE];
    gather(t, s, v, &g);
    for (unsigned mask = 0; mask < 1u << g.nbits; mask++) {
        if (sim->guesses++ == MAX_GUESSES) return 1;
        memcpy(next, value, sizeof next);
        memcpy(next_state, state, sizeof next_state);
        close_step(t, s, v, chosen, pick(&g, mask, chosen), &plain, next, next_state);
        int other = differs || !is_same(s, next, s->versions[v + 1]->value);
        if (v + 1 < last ? leads_elsewhere(sim, t, s, v + 1, last, next, next_state, other)
                         : is_same(s, next, s->versions[last]->value) &&
                               (other || !is_same(s, next_state, s->state)))
            return 1;
    }
    return 0;
}

/* The same of pushes that explain_pushes() chose: others count from now on as applied. */
static int pushes_lead_elsewhere(sim_t *sim, const sim_table_t *t, const sim_slice_t *s,
                                 const sim_unit_t *before, uint64_t v, uint64_t last,
                                 const double *value, const double *state, int differs)
{
    double next[SLICE], next_state[SLICE];
    for (const sim_unit_t *u = before ? before->next : s->units; u; u = u->next) {
        if (u->never || (u->applied && u->version <= s->version)) continue;
        if (before && before->rank != u->rank) continue;
        if (sim->guesses++ == MAX_GUESSES) return 1;
        memcpy(next, value, sizeof next);
        memcpy(next_state, state, sizeof next_state);
        apply_push(t, s, v, u, next, next_state);
        int other = differs || u->version != v + 1;
        if (v + 1 < last ? pushes_lead_elsewhere(sim, t, s, u, v + 1, last, next, next_state, other)
                         : other && is_same(s, next, s->versions[last]->value))
            return 1;
    }
    return 0;
}

/* Where more than one way leads to the values, nothing tells which it was. */
static void find_other_way(sim_t *sim, const sim_table_t *t, const sim_slice_t *s, uint64_t last,
                           const double *state)
{
    const double *value = s->versions[s->version]->value;
    sim->guesses = 0;
    sim->given_up = t->spec.consistency == PSRTI_SYNC
                        ? leads_elsewhere(sim, t, s, s->version, last, value, state, 0)
                        : pushes_lead_elsewhere(sim, t, s, NULL, s->version, last, value, state, 0);
}

int sim_is_explained(sim_t *sim, sim_table_t *t, sim_slice_t *s, uint64_t version,
                     const double *seen)
{
    double state[SLICE];
    int sync = t->spec.consistency == PSRTI_SYNC;
    if (version == s->version) return is_same(s, seen, s->versions[version]->value);
    if (version < s->version || (!sync && version > s->version + MAX_BATCHED)) return 0;
    sim->guesses = 0;
    memcpy(state, s->state, sizeof state);
    if (!(sync ? explain(sim, t, s, s->version, version, state, seen)
               : explain_pushes(sim, t, s, NULL, s->version, version, state, seen)))
        return 0;
    int certain = sync && sim->certain;
    if (!sim->given_up && !certain && version > s->version + 1)
        find_other_way(sim, t, s, version, state);
    return 1;
}

void sim_average(const sim_table_t *t, sim_slice_t *s, uint64_t v, uint64_t last)
{
    for (; t->averages && v < last; v++) {
        const sim_version_t *before = s->versions[v];
        sim_version_t *after = s->versions[v + 1];
        memcpy(after->average, before->average, sizeof after->average);
        for (uint64_t e = after->first; e < after->first + after->count; e++)
            after->average[e] = rounded(t, 0.5 * before->average[e] + 0.5 * after->value[e]);
    }
}
