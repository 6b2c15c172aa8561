/* SPDX-License-Identifier: Apache-2.0 */
/* Events in the order of their time, then of their making. */
#include <stdarg.h>
#include <stdlib.h>

#include "sim.h"

typedef struct event {
    uint64_t at, order;
    sim_event_fn fn;
    void *obj;
    uint64_t arg;
    int node;
    uint32_t life;
} event_t;

struct sim_queue {
    event_t *heap;
    size_t count, capacity;
    uint64_t order;
};

uint64_t sim_random(sim_t *sim, uint64_t below)
{
    sim->random = psrti_mix64(sim->random);
    return below ? sim->random % below : 0;
}

int sim_chance(sim_t *sim, unsigned percent) { return sim_random(sim, 100) < percent; }

uint64_t sim_random_of(sim_t *sim, sim_kind_t kind, uint64_t below)
{
    uint64_t *random = &sim->randoms[kind];
    if (!*random) *random = sim->what.seed * SIM_KIND_COUNT + kind;
    *random = psrti_mix64(*random);
    return below ? *random % below : 0;
}

int sim_fault(sim_t *sim, sim_kind_t kind, unsigned percent)
{
    return sim->now < sim->faults.until && percent && !(sim->what.without >> kind & 1) &&
           sim_random_of(sim, kind, 100) < percent;
}

static int before(const event_t *a, const event_t *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct sim_queue *q, event_t e)
{
    if (q->count == q->capacity) {
        q->capacity = q->capacity ? 2 * q->capacity : 256;
        q->heap = realloc(q->heap, q->capacity * sizeof e);
    }
    size_t i = q->count++;
    for (; i && before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

static event_t pop(struct sim_queue *q)
{
    event_t top = q->heap[0], last = q->heap[--q->count];
    size_t i = 0;
    for (;;) {
        size_t kid = 2 * i + 1;
        if (kid >= q->count) break;
        if (kid + 1 < q->count && before(&q->heap[kid + 1], &q->heap[kid])) kid++;
        if (!before(&q->heap[kid], &last)) break;
        q->heap[i] = q->heap[kid];
        i = kid;
    }
    if (q->count) q->heap[i] = last;
    return top;
}

void sim_schedule(sim_t *sim, uint64_t at, int node, sim_event_fn fn, void *obj, uint64_t arg)
{
    if (!sim->queue) sim->queue = calloc(1, sizeof *sim->queue);
    event_t e = { at, ++sim->queue->order, fn, obj, arg, node, 0 };
    if (node >= 0) e.life = sim->node[node].life;
    push(sim->queue, e);
}

/* An event that is put off keeps its place among those of its time, so that order is kept. */
int sim_next(sim_t *sim)
{
    struct sim_queue *q = sim->queue;
    if (q->count == 0) return 0;
    event_t e = pop(q);
    sim->now = e.at;
    sim->counts.events++;
    if (e.node >= 0) {
        const sim_node_t *n = &sim->node[e.node];
        if (n->life != e.life) return 1;
        if (n->stopped_until > sim->now) {
            e.at = n->stopped_until;
            push(q, e);
            return 1;
        }
    }
    e.fn(sim, e.obj, e.arg);
    return 1;
}

void sim_queue_free(sim_t *sim)
{
    if (sim->queue) free(sim->queue->heap);
    free(sim->queue);
}

/* The first failure counts; the rest follows from it. */
void sim_fail(sim_t *sim, const char *fmt, ...)
{
    if (sim->failed) return;
    sim->failed = 1;
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(sim->text, sizeof sim->text, "at %.3f ms: ", (double)sim->now / 1e6);
    vsnprintf(sim->text + n, sizeof sim->text - (size_t)n, fmt, ap);
    va_end(ap);
    sim_trace(sim, "FAILED %s", sim->text);
}

void sim_trace(sim_t *sim, const char *fmt, ...)
{
    if (!sim->trace) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(sim->trace, "%12.3f  ", (double)sim->now / 1e6);
    vfprintf(sim->trace, fmt, ap);
    putc('\n', sim->trace);
    va_end(ap);
}

const char *sim_node_name(const sim_t *sim, int node, char buf[32])
{
    if (node == SIM_COORDINATOR)
        snprintf(buf, 32, "the coordinator");
    else if (node < sim->nservers)
        snprintf(buf, 32, "server:%d", node);
    else
        snprintf(buf, 32, "worker:%d", node - sim->nservers);
    return buf;
}
