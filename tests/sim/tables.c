/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a simulation: what they are, their first values and gradients, what of them is
 * lost.  Contributions are distinct integers times 12: sums, halves and averages over up to 4
 * are exact in any order. Deterministic tables use fractions, unless workers may be killed: a
 * change of the membership ends the promise of their order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* Sums of integers, so that their norms are exact too. A group is what is declared at the start:
 * all of it must be there before the first push. */
static void choose_phases(sim_t *sim, sim_table_t *t, psrt_dense_params_t *p)
{
    int skip = sim->skip && sim->certain;
    t->exact = 1;
    if (sim->certain && sim_chance(sim, 40)) { /* without memory: m1 is g, m2 is its square */
        t->optimizer = SIM_LAMB;
        t->schedule = (sim_schedule_t){ 0 };
        snprintf(t->text, sizeof t->text, "lamb:lr=0.5,beta1=0,beta2=0,eps=1e-6,weight_decay=0.5%s",
                 t->averages ? ",ema=0.5" : "");
    }
    t->group = !sim->running && sim_chance(sim, 70);
    size_t pos = strlen(t->text);
    psrti_append(t->text, sizeof t->text, &pos, "%cclip_norm=%.17g,skip_nonfinite=%d",
                 strchr(t->text, ':') ? ',' : ':', sim->clip, skip);
    p->group = t->group ? "g" : NULL;
}

/* Their numbers are such that rates are powers of two, and averages are rounded once. */
static void choose_schedule(sim_t *sim, sim_table_t *t)
{
    t->averages = sim_chance(sim, 20);
    if (t->optimizer == SIM_NONE || !sim_chance(sim, 30)) return;
    t->schedule.kind = sim_random(sim, 3);
    t->schedule.warmup = sim_chance(sim, 50) ? 3 : 0;
    if (t->schedule.kind == SIM_BY_STEPS) t->schedule.period = 2;
    if (t->schedule.kind == SIM_LINEAR) t->schedule.total = 4, t->schedule.final = 0.25;
}

static void add_keys(sim_table_t *t)
{
    const sim_schedule_t *s = &t->schedule;
    size_t pos = strlen(t->text), size = sizeof t->text;
    const char *comma = strchr(t->text, ':') ? "," : ":";
    if (t->averages) psrti_append(t->text, size, &pos, "%sema=0.5", comma), comma = ",";
    if (s->kind == SIM_BY_STEPS)
        psrti_append(t->text, size, &pos, "%sschedule=step,period=2,gamma=0.5", comma), comma = ",";
    if (s->kind == SIM_LINEAR)
        psrti_append(t->text, size, &pos, "%sschedule=linear,total=4,final=0.25", comma),
            comma = ",";
    if (s->warmup > 0) psrti_append(t->text, size, &pos, "%swarmup=3", comma);
}

/* 16 bits a number: in the table, or only on the wire. */
static void choose_half(sim_t *sim, sim_table_t *t, psrt_dense_params_t *p)
{
    uint64_t kind = sim_random(sim, 100);
    t->half = kind < 40;
    if (kind < 10)
        p->dtype = PSRT_F16;
    else if (kind < 20)
        p->dtype = PSRT_BF16;
    else if (kind < 40)
        p->codec = kind < 30 ? "f16" : "bf16";
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
    choose_schedule(sim, t);
    p->optimizer = t->text;
    snprintf(t->text, sizeof t->text, "%s", optimizers[t->optimizer]);
    add_keys(t);
    p->dtype = t->optimizer == SIM_MOMENTUM || sim_chance(sim, 40) ? PSRT_F64 : PSRT_F32;
    p->reduce = sim_chance(sim, 50) ? "average" : "sum";
    int integers = t->optimizer == SIM_NONE && !t->averages && sim_chance(sim, 25);
    if (integers) p->dtype = PSRT_I64, p->reduce = "sum";
    if (p->dtype == PSRT_F32) choose_half(sim, t, p);
    p->deterministic = kind >= 15 && kind < 55 && sim_chance(sim, 40);
    t->exact = t->half || !p->deterministic || integers || sim->worker_kills || sim_chance(sim, 30);
    t->rank0 = sim_chance(sim, 25);
    p->init = t->rank0 ? "rank0" : "constant:value=8";
    t->two_phase = kind >= 15 && kind < 55 && !integers && sim_chance(sim, 60);
    if (t->two_phase && t->half) p->reduce = "sum"; /* thirds would not add up exactly in a norm */
    if (t->two_phase) choose_phases(sim, t, p);
    p->ndim = 1;
    p->shape[0] = sim_chance(sim, 25) ? 1 + sim_random(sim, SLICE)
                                      : 1 + sim_random(sim, SIM_MAX_SLICES * SLICE);
    /* Of two steps that close at once with any subset of the workers, some elements must tell
     * which. */
    uint64_t last = (p->shape[0] - 1) % SLICE + 1;
    if (kind < 15 && last < 4) p->shape[0] += 4 - last;
}

sim_version_t *sim_version(sim_slice_t *s, uint64_t version)
{
    while (version >= s->capacity) {
        uint64_t more = s->capacity ? 2 * s->capacity : 16;
        s->versions = realloc(s->versions, more * sizeof *s->versions);
        for (uint64_t i = s->capacity; i < more; i++)
            s->versions[i] = calloc(1, sizeof **s->versions);
        s->capacity = more;
    }
    return s->versions[version];
}

double *sim_values(sim_slice_t *s, uint64_t version) { return sim_version(s, version)->value; }

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
            view->vshards[psrti_table_spec_group_vshard(&t->spec, sim->vshards)].owner;
    uint64_t hash = psrti_hash_bytes(name, strlen(name));
    for (uint64_t i = 0; i < t->nslices; i++) {
        sim_slice_t *s = &t->slice[i];
        s->server = view->vshards[psrti_slice_vshard(hash, i, sim->vshards)].owner;
        s->len = psrti_slice_len(t->spec.elements, i);
        s->ready = !t->rank0;
        s->params[0] = s->params[1] = 0.5;
        s->state = calloc(SLICE, sizeof(double));
        sim_version_t *first = sim_version(s, 0);
        for (uint64_t e = 0; e < s->len; e++)
            first->value[e] = first->average[e] = 8;
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
                free(s->versions[v]);
            free(s->versions);
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

/* ---- elements -------------------------------------------------------------------------------- */

/* To the nearest of 8 bits, ties to even; as the compiler converts, for 11 bits. */
static double to_bf16(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return v;
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To the nearest multiple of the unit that 11 bits have at this size, 2^-24 at least. */
static double to_f16(double v)
{
    int exponent;
    double f = (float)v;
    if (!isfinite(f) || f == 0) return f;
    frexp(f, &exponent);
    double unit = ldexp(1, PSRTI_MAX(exponent - 11, -24));
    double rounded = nearbyint(f / unit) * unit;
    return fabs(rounded) > 65504 ? copysign(INFINITY, f) : rounded;
}

static double f16_of_bits(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                              : ldexp(mantissa, -24);
    return bits >> 15 ? -v : v;
}

static uint16_t bits_of_f16(double v)
{
    int exponent;
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double f = fabs(to_f16(v));
    if (isnan(f)) return sign | 0x7e00;
    if (isinf(f)) return sign | 0x7c00;
    if (f < 0x1p-14) return sign | (uint16_t)ldexp(f, 24);
    double mantissa = frexp(f, &exponent);
    return sign | (uint16_t)(((exponent + 14) << 10) + (int)ldexp(mantissa, 11) - 1024);
}

static double as(psrt_dtype_t dtype, double v)
{
    switch (dtype) {
    case PSRT_F16: return to_f16(v);
    case PSRT_BF16: return to_bf16(v);
    case PSRT_F32: return (float)v;
    default: return v;
    }
}

double sim_stored(const sim_table_t *t, double v) { return as(t->spec.value_dtype, v); }

double sim_published(const sim_table_t *t, double v)
{
    return as(psrti_table_spec_wire(&t->spec, t->spec.value_dtype), v);
}

double sim_pushed(const sim_table_t *t, double v)
{
    return as(psrti_table_spec_wire(&t->spec, t->spec.grad_dtype), v);
}

double sim_get(psrt_dtype_t dtype, const void *data, uint64_t i)
{
    uint32_t bits;
    float f;
    switch (dtype) {
    case PSRT_I64: return (double)((const int64_t *)data)[i];
    case PSRT_F64: return ((const double *)data)[i];
    case PSRT_F32: return ((const float *)data)[i];
    case PSRT_F16: return f16_of_bits(((const uint16_t *)data)[i]);
    default: break;
    }
    bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void put(const sim_table_t *t, void *data, uint64_t i, double v)
{
    float f = (float)to_bf16(v);
    uint32_t bits;
    switch (t->spec.value_dtype) {
    case PSRT_I64: ((int64_t *)data)[i] = (int64_t)v; return;
    case PSRT_F64: ((double *)data)[i] = v; return;
    case PSRT_F32: ((float *)data)[i] = (float)v; return;
    case PSRT_F16: ((uint16_t *)data)[i] = bits_of_f16(v); return;
    default: break;
    }
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
}

/* No two pushes of a table are alike on any element (cubes modulo these primes are a
 * permutation), and hardly two sums or averages of some of them. */
static double gradient(const sim_table_t *t, uint64_t push, uint64_t element)
{
    uint64_t prime = t->half ? 1013 : 4091, n = (push + psrti_mix64(element) % prime) % prime;
    n = n * n * n % prime;
    /* Of 16 bits, so that rounding changes none: 8 of them count in bf16. */
    if (t->half) return (double)(sim_pushed(t, 257) != 257 ? (128 + n % 128) << n / 128 : 1 + n);
    double g = 12.0 * (double)(1 + n);
    return t->exact ? g : g / 7;
}

void sim_fill_grad(sim_t *sim, sim_table_t *t, void *grad, uint64_t first, uint64_t count)
{
    uint64_t push = ++t->pushes;
    for (uint64_t i = 0; i < count; i++)
        put(t, grad, i, gradient(t, push, first + i));
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
