/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a simulation: what they are, their first values and gradients, what of them is lost.
 *
 * Contributions are distinct integers times 12: sums, halves and averages over up to 4 are exact in any
 * order. Deterministic tables use fractions, unless workers may be killed: a change of the membership ends
 * the promise of their order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* Sums of integers, so that their norms are exact too. A group is what is declared at the start: all of
 * it must be there before the first push. */
static void choose_phases(sim_t *sim, sim_table_t *t, psrt_dense_params_t *p)
{
    int skip = sim->skip && sim->certain;
    t->exact = 1;
    if (sim->certain && sim_chance(sim, 40)) { /* without memory: m1 is g, m2 is its square */
        t->optimizer = SIM_LAMB;
        p->optimizer = "lamb:lr=0.5,beta1=0,beta2=0,eps=1e-6,weight_decay=0.5";
    }
    t->group = !sim->running && sim_chance(sim, 70);
    snprintf(t->phases, sizeof t->phases, "%s%cclip_norm=%.17g,skip_nonfinite=%d", p->optimizer,
             strchr(p->optimizer, ':') ? ',' : ':', sim->clip, skip);
    p->optimizer = t->phases;
    p->group = t->group ? "g" : NULL;
}

static void choose(sim_t *sim, sim_table_t *t, psrt_dense_params_t *p)
{
    static const char *const ssp[] = { "ssp:0", "ssp:1", "ssp:2", "ssp:3" };
    static const char *const backup[] = { "sync:backup=1", "sync:backup=2" };
    static const char *const optimizers[] = { "none", "sgd:lr=0.5",
                                              "momentum:lr=0.5,momentum=0.5" };
    uint64_t kind = sim_random(sim, 100);
    p->consistency = kind < 15   ? backup[sim_random(sim, 2)]
                     : kind < 55 ? "sync"
                     : kind < 75 ? "async"
                                 : ssp[sim_random(sim, 4)];
    t->optimizer = sim_chance(sim, 50) ? SIM_NONE : sim_chance(sim, 60) ? SIM_SGD : SIM_MOMENTUM;
    p->optimizer = optimizers[t->optimizer];
    p->dtype = t->optimizer == SIM_MOMENTUM || sim_chance(sim, 40) ? PSRT_F64 : PSRT_F32;
    p->reduce = sim_chance(sim, 50) ? "average" : "sum";
    int integers = t->optimizer == SIM_NONE && sim_chance(sim, 25);
    if (integers) p->dtype = PSRT_I64, p->reduce = "sum";
    p->deterministic = kind >= 15 && kind < 55 && sim_chance(sim, 40);
    t->exact = !p->deterministic || integers || sim->worker_kills || sim_chance(sim, 30);
    t->rank0 = sim_chance(sim, 25);
    p->init = t->rank0 ? "rank0" : "constant:value=8";
    t->two_phase = kind >= 15 && kind < 55 && !integers && sim_chance(sim, 60);
    if (t->two_phase) choose_phases(sim, t, p);
    p->ndim = 1;
    p->shape[0] = sim_chance(sim, 25) ? 1 + sim_random(sim, SLICE)
                                      : 1 + sim_random(sim, SIM_MAX_SLICES * SLICE);
    /* Of two steps that close at once with any subset of the workers, some elements must tell which. */
    uint64_t last = (p->shape[0] - 1) % SLICE + 1;
    if (kind < 15 && last < 4) p->shape[0] += 4 - last;
}

double *sim_values(sim_slice_t *s, uint64_t version)
{
    while (version >= s->capacity) {
        uint64_t more = s->capacity ? 2 * s->capacity : 16;
        s->values = realloc(s->values, more * sizeof *s->values);
        for (uint64_t i = s->capacity; i < more; i++)
            s->values[i] = calloc(SLICE, sizeof(double));
        s->capacity = more;
    }
    return s->values[version];
}

const char *sim_table_name(const sim_t *sim, uint32_t id)
{
    for (int i = 0; i < sim->ntables; i++)
        if (id && sim->table[i].id == id) return sim->table[i].spec.name;
    return "-";
}

sim_table_t *sim_table_new(sim_t *sim, const psrti_view_t *view)
{
    sim_table_t *t = &sim->table[sim->ntables++];
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    char name[32];
    t->index = sim->ntables - 1;
    snprintf(name, sizeof name, "t%d.%llu", t->index, (unsigned long long)sim_random(sim, 1000));
    choose(sim, t, &p);
    if (psrti_table_spec_make(name, &p, &t->spec) != PSRT_OK)
        sim_fail(sim, "%s", psrt_last_error());
    for (int i = 0; i < sim->nservers; i++) /* of one that is not admitted yet none */
        t->made_in[i] = sim->node[i].incarnation ? sim->node[i].life : 0;
    t->nslices = psrti_slice_count(t->spec.elements);
    if (t->group)
        sim->group_owner =
            view->vshards[psrti_table_spec_group_vshard(&t->spec, SIM_VSHARDS)].owner;
    uint64_t hash = psrti_hash_bytes(name, strlen(name));
    for (uint64_t i = 0; i < t->nslices; i++) {
        sim_slice_t *s = &t->slice[i];
        s->server = view->vshards[psrti_slice_vshard(hash, i, SIM_VSHARDS)].owner;
        s->len = psrti_slice_len(t->spec.elements, i);
        s->ready = !t->rank0;
        s->params[0] = s->params[1] = 0.5;
        s->state = calloc(SLICE, sizeof(double));
        double *first = sim_values(s, 0);
        for (uint64_t e = 0; e < s->len; e++)
            first[e] = 8;
    }
    sim_trace(sim, "table %s: %llu elements, %s, %s, %s%s%s", name,
              (unsigned long long)t->spec.elements, p.consistency, p.optimizer, p.reduce,
              p.deterministic ? ", deterministic" : "", t->rank0 ? ", rank0" : "");
    return t;
}

void sim_tables_free(sim_t *sim)
{
    for (int i = 0; i < sim->ntables; i++)
        for (uint64_t k = 0; k < sim->table[i].nslices; k++) {
            sim_slice_t *s = &sim->table[i].slice[k];
            for (sim_unit_t *u = s->units, *next; u; u = next) {
                next = u->next;
                free(u->grad);
                free(u);
            }
            for (uint64_t v = 0; v < s->capacity; v++)
                free(s->values[v]);
            free(s->values);
            free(s->state);
        }
}

int sim_same_group(const sim_table_t *a, const sim_table_t *b)
{
    return a == b || (a->group && b->group);
}

static int is_damaged(const sim_t *sim, const sim_table_t *t)
{
    for (uint64_t k = 0; k < t->nslices; k++) {
        const sim_slice_t *s = &t->slice[k];
        const sim_node_t *n = &sim->node[s->server];
        if (!n->alive || n->fenced || n->life != t->made_in[s->server]) return 1;
    }
    return 0;
}

/* A server that lost its part, or that decided for the group. */
int sim_is_damaged(const sim_t *sim, const sim_table_t *t)
{
    for (int i = 0; i < sim->ntables; i++)
        if (sim_same_group(t, &sim->table[i]) && is_damaged(sim, &sim->table[i])) return 1;
    if (!t->group) return 0;
    const sim_node_t *n = &sim->node[sim->group_owner];
    return !n->alive || n->fenced || n->life != t->made_in[sim->group_owner];
}

void sim_lose(sim_t *sim, int server)
{
    int group = 0;
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        for (uint64_t k = 0; k < t->nslices && t->declared; k++)
            t->lost |= t->slice[k].server == server;
        t->lost |= t->group && t->declared && sim->group_owner == server;
        group |= t->group && t->lost;
    }
    for (int i = 0; i < sim->ntables && group; i++)
        sim->table[i].lost |= sim->table[i].group && sim->table[i].declared;
}

double sim_get(const sim_table_t *t, const void *data, uint64_t i)
{
    if (t->spec.value_dtype == PSRT_I64) return (double)((const int64_t *)data)[i];
    return t->spec.value_dtype == PSRT_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void put(const sim_table_t *t, void *data, uint64_t i, double v)
{
    if (t->spec.value_dtype == PSRT_I64)
        ((int64_t *)data)[i] = (int64_t)v;
    else if (t->spec.value_dtype == PSRT_F64)
        ((double *)data)[i] = v;
    else
        ((float *)data)[i] = (float)v;
}

/* No two pushes of a table are alike on any element (cubes modulo this prime are a permutation), and hardly
 * two sums or averages of some of them. */
void sim_fill_grad(sim_t *sim, sim_table_t *t, void *grad, uint64_t first, uint64_t count)
{
    uint64_t push = ++t->pushes;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n = (push + psrti_mix64(first + i) % 4091) % 4091;
        double g = 12.0 * (double)(1 + n * n * n % 4091);
        put(t, grad, i, t->exact ? g : g / 7);
    }
    if (t->two_phase && sim->certain && sim->skip && sim_chance(sim, 6))
        put(t, grad, sim_random(sim, count), sim_chance(sim, 50) ? NAN : -INFINITY);
}

double sim_init_value(uint32_t life, uint64_t element)
{
    return 24.0 * (double)(element % 50 + 100 * life);
}

void sim_init_values(const sim_table_t *t, uint32_t life, void *values)
{
    for (uint64_t i = 0; i < t->spec.elements; i++)
        put(t, values, i, sim_init_value(life, i));
}
