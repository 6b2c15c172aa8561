/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of the fault tests: pushes to and pulls from two tables until it is told to stop, and keeps
 * a journal (journal.h) of what it asked for and what it got, by which a checker judges every value.
 *
 * Tables are int64, so that sums are exact whatever their order. Even elements of push k of worker r are
 * 1 << 20 r: they count the pushes of each worker. Odd elements i are hash(push) * (2 i + 1), modulo 2^64.
 * So each slice names how many pushes it is made of and, by the sum of hashes, which; and a value that is
 * torn, misplaced, or made of a buffer that was being refilled does not fit the pattern.
 *
 * In the environment, beside what libpsrt reads:
 *   FAULTS_DIR    where control is and the journal goes
 *   FAULTS_LIFE   which start of this place of the job it is: 0, 1, ...
 *   FAULTS_SEED   of its choices
 *   FAULTS_CONS   consistency of the tables; FAULTS_DETERMINISTIC=1
 *   FAULTS_ELEMS  elements of the large table; FAULTS_SMALL those of the small one
 *   FAULTS_REFILL kill itself in the middle of filling a buffer for the n-th time, in life 0
 * Exit code 0: it has read the final values and left; 3: its context is lost, start it again; else a bug.
 */
#include "journal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <psrt/psrt.h>

#define SLICE_ELEMS (1u << 18)
#define MAX_DEPTH 3
#define MS 1000000u
#define NEW_LIFE 3
#define BUG 4

/* An operation under way and the memory it uses. */
typedef struct slot {
    struct table *table;
    psrt_op_t *op;
    psrt_result_t result;
    record_t *record;
    int64_t *grad, *value;
} slot_t;

typedef struct table {
    psrt_table_t *handle;
    uint64_t elems, issued;
    uint32_t index, slices, depth,
        rest; /* rest: slices of this step that a range push left for later */
    slot_t slot[MAX_DEPTH];
} table_t;

static psrt_context_t *ctx;
static journal_t *journal;
static control_t *control;
static table_t tables[2];
static uint64_t numbers, random_state, refills, refill_kill;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static uint64_t env_number(const char *name, uint64_t def)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : def;
}

/* The journal keeps the reason; the process ends without leaving the job, as a crashed one does. */
static void end_with(int code, const char *what, psrt_status_t status)
{
    snprintf(journal->text, sizeof journal->text, "%s: %s: %s", what, psrt_status_name(status),
             psrt_last_error());
    fprintf(stderr, "faults_worker: %s\n", journal->text);
    journal->phase = ENDED;
    exit(code);
}

/* A context that is lost ends this life; any other status that faults do not explain is a bug. */
static void check(const char *what, psrt_status_t status)
{
    switch (status) {
    case PSRT_OK: return;
    case PSRT_ERR_FENCED:
    case PSRT_ERR_COORDINATOR_LOST:
    case PSRT_ERR_START_TIMEOUT:
    case PSRT_ERR_CLOSED:
    case PSRT_ERR_LIMIT:
    case PSRT_ERR_NO_MEMORY:
    case PSRT_ERR_UNREACHABLE: end_with(NEW_LIFE, what, status); break;
    default: end_with(BUG, what, status);
    }
}

static void pause_ns(uint64_t ns)
{
    struct timespec ts = { 0, (long)ns };
    nanosleep(&ts, NULL);
}

/* ---- values -------------------------------------------------------------------------------------- */

static void fill(int64_t *grad, uint64_t first, uint64_t end, uint64_t hash)
{
    uint64_t one = 1ull << 20 * journal->rank, half = first + (end - first) / 2;
    int kill_here = refill_kill && ++refills == refill_kill;
    for (uint64_t i = first; i < end; i++) {
        grad[i] = (int64_t)(i % 2 ? hash * (2 * i + 1) : one);
        if (kill_here && i == half) raise(SIGKILL);
    }
}

static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd; /* right in 3 bits; each round doubles them */
    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

static void read_slice(record_t *r, const int64_t *value, uint64_t first, uint64_t end, uint32_t at)
{
    uint64_t count = (uint64_t)value[first];
    uint64_t sum = (uint64_t)value[first + 1] * inverse(2 * (first + 1) + 1);
    for (uint64_t i = first; i < end; i++)
        if ((uint64_t)value[i] != (i % 2 ? sum * (2 * i + 1) : count))
            r->torn |= (uint8_t)(1u << at);
    r->applied[at] = count;
    r->sum[at] = sum;
}

static uint64_t slice_end(const table_t *t, uint32_t slice)
{
    uint64_t end = (uint64_t)(slice + 1) * SLICE_ELEMS;
    return end < t->elems ? end : t->elems;
}

static void read_values(const table_t *t, const slot_t *slot)
{
    for (uint32_t s = 0; s < t->slices; s++)
        read_slice(slot->record, slot->value, (uint64_t)s * SLICE_ELEMS, slice_end(t, s), s);
}

/* ---- operations ---------------------------------------------------------------------------------- */

static void on_done(void *arg, const psrt_result_t *result) { ((slot_t *)arg)->result = *result; }

static void settle(slot_t *slot, psrt_status_t status)
{
    record_t *r = slot->record;
    slot->op = NULL;
    r->late = (uint8_t)slot->result.late;
    r->step = slot->result.step;
    r->version = slot->result.version;
    if (status == PSRT_OK && r->kind != PUSH) read_values(slot->table, slot);
    r->end = now_ns();
    atomic_thread_fence(memory_order_release);
    r->status = status;
}

/* Waits for the slot's operation and for that long at most; 0: it has not ended. */
static int wait_for(slot_t *slot, uint64_t ns)
{
    if (!slot->op) return 1;
    psrt_status_t status = psrt_op_wait(slot->op, ns);
    if (status == PSRT_ERR_TIMEOUT) return 0;
    settle(slot, status);
    if (status != PSRT_ERR_SHARD_LOST && status != PSRT_ERR_CANCELED && status != PSRT_ERR_DEADLINE)
        check("operation", status);
    return 1;
}

static void drain(int cancel)
{
    for (table_t *t = tables; t < tables + 2; t++)
        for (slot_t *s = t->slot; cancel && s < t->slot + t->depth; s++)
            psrt_op_cancel(s->op);
    for (table_t *t = tables; t < tables + 2; t++)
        for (slot_t *s = t->slot; s < t->slot + t->depth; s++)
            wait_for(s, PSRT_FOREVER);
}

static int is_lost(const slot_t *slot)
{
    return slot->record && slot->record->status == PSRT_ERR_SHARD_LOST;
}

static record_t *record_new(int kind, const table_t *t, uint32_t slices)
{
    if (journal->nrecords == MAX_RECORDS) end_with(BUG, "the journal is full", PSRT_ERR_LIMIT);
    record_t *r = &journal->record[journal->nrecords++];
    *r = (record_t){ .begin = now_ns(),
                     .status = UNKNOWN,
                     .table = (uint8_t)t->index,
                     .generation = (uint16_t)journal->generation,
                     .slices = slices };
    if (kind != PULL) r->number = ++numbers;
    atomic_thread_fence(memory_order_release);
    r->kind = (uint8_t)kind;
    return r;
}

static void submit(slot_t *slot, int kind, uint32_t mask, uint64_t first, uint64_t end, int more)
{
    table_t *t = slot->table;
    psrt_request_t q = PSRT_REQUEST_INIT;
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    q.table = t->handle;
    q.offset = first, q.count = end - first, q.more = more;
    slot->result = (psrt_result_t){ .status = PSRT_OK };
    if (kind != PULL) {
        fill(slot->grad, first, end,
             push_hash(journal->rank, journal->life, journal->generation, t->index, numbers + 1));
        q.grad = slot->grad + first;
    }
    if (kind != PUSH) q.value = slot->value;
    p.callback = on_done, p.arg = slot;
    if (draw(400) == 0) p.deadline_ns = 1 + draw(3 * MS);
    slot->record = record_new(kind, t, mask);
    psrt_status_t status = psrt_submit(ctx, &q, 1, &p, &slot->op);
    if (status) {
        settle(slot, status);
        if (status != PSRT_ERR_SHARD_LOST) check("submit", status);
    } else if (draw(400) == 0) {
        psrt_op_cancel(slot->op);
    }
}

/* The whole table, or a step in two range pushes, or a pull between. Values are pulled whole. */
static void next_operation(table_t *t, slot_t *slot)
{
    uint32_t all = (1u << t->slices) - 1;
    if (t->rest) {
        uint32_t rest = t->rest;
        t->rest = 0;
        submit(slot, PUSH, rest, SLICE_ELEMS, t->elems, 0);
    } else if (draw(6) == 0) {
        submit(slot, PULL, all, 0, t->elems, 0);
    } else if (t->slices > 1 && draw(8) == 0) {
        t->rest = all & ~1u;
        submit(slot, PUSH, 1, 0, SLICE_ELEMS, 1);
    } else {
        submit(slot, draw(2) ? PUSH : PUSH_PULL, all, 0, t->elems, 0);
    }
}

static uint64_t step_of(table_t *t)
{
    psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
    check("query", psrt_table_query(t->handle, &a));
    journal->step[t->index] = a.step;
    return a.step;
}

/* ---- generations of the tables ------------------------------------------------------------------- */

static int is_over(void) { return control->generation != journal->generation; }

static void declare(table_t *t)
{
    char name[32];
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = PSRT_I64, p.ndim = 1, p.shape[0] = t->elems;
    p.optimizer = "none", p.reduce = "sum", p.consistency = getenv("FAULTS_CONS");
    p.deterministic = (int)env_number("FAULTS_DETERMINISTIC", 0);
    snprintf(name, sizeof name, "%c.%u", 'a' + (char)t->index, journal->generation);
    psrt_status_t status = psrt_dense_create(ctx, name, &p, &t->handle);
    if (status == PSRT_ERR_SHARD_LOST)
        t->handle = NULL;
    else
        check("declare", status);
    t->rest = 0;
    for (slot_t *s = t->slot; s < t->slot + t->depth; s++)
        s->record = NULL;
}

/* The tables of this generation are lost. Once all servers live somebody begins the next one. */
static void raise_generation(void)
{
    uint64_t mine = journal->generation, until = now_ns() + 60000ull * MS;
    while (!is_over()) {
        psrt_context_attr_t a = PSRT_CONTEXT_ATTR_INIT;
        check("query", psrt_context_query(ctx, &a));
        if (a.live_servers == a.servers)
            atomic_compare_exchange_strong(&control->generation, &mine, mine + 1);
        else if (now_ns() > until)
            end_with(NEW_LIFE, "servers stay away", PSRT_ERR_TIMEOUT);
        else
            pause_ns(5 * MS);
    }
}

static void make_tables(void)
{
    journal->generation = (uint32_t)control->generation;
    if (journal->generation >= MAX_GENERATIONS)
        end_with(BUG, "tables were lost too often", PSRT_ERR_LIMIT);
    for (table_t *t = tables; t < tables + 2; t++)
        declare(t);
}

/* ---- phases -------------------------------------------------------------------------------------- */

/* The table whose next step is lowest: so nobody waits for a step before it has pushed all earlier ones, and
 * workers cannot wait for each other in a circle. NULL: both are at the goal. */
static table_t *next_table(void)
{
    uint64_t a = step_of(&tables[0]), b = step_of(&tables[1]);
    table_t *t = tables[0].rest || a < b || (a == b && draw(2)) ? &tables[0] : &tables[1];
    return t->rest || (a < b ? a : b) < control->goal[journal->generation] ? t : NULL;
}

/* One operation of the table. 0: this generation ends. */
static int advance(table_t *t)
{
    slot_t *slot = &t->slot[t->issued++ % t->depth];
    while (!wait_for(slot, 50 * MS))
        if (is_over()) return 0;
    if (is_lost(slot)) return 0;
    next_operation(t, slot);
    return 1;
}

/* Until the goal is reached (1) or the generation is over (0). */
static int train(void)
{
    if (!tables[0].handle || !tables[1].handle) return 0;
    journal->phase = RUNNING;
    for (table_t *t; (t = next_table());) {
        if (is_over() || !advance(t)) return 0;
        pause_ns(draw(2 * MS));
    }
    for (table_t *t = tables; t < tables + 2; t++)
        for (slot_t *s = t->slot; s < t->slot + t->depth; s++) {
            while (!wait_for(s, 50 * MS))
                if (is_over()) return 0;
            if (is_lost(s)) return 0;
        }
    return 1;
}

static int read_final(table_t *t)
{
    slot_t *slot = &t->slot[0];
    psrt_request_t q = PSRT_REQUEST_INIT;
    q.table = t->handle;
    q.value = slot->value;
    slot->result = (psrt_result_t){ .status = PSRT_OK };
    slot->record = record_new(PULL, t, (1u << t->slices) - 1);
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    p.callback = on_done, p.arg = slot;
    psrt_status_t status = psrt_submit(ctx, &q, 1, &p, NULL);
    settle(slot, status);
    if (is_lost(slot)) return 0;
    check("final pull", status);
    slot->record->final = 1;
    return 1;
}

/* Everyone is at the goal before anyone reads; nothing changes the values any more. */
static int finish(void)
{
    journal->phase = AT_GOAL;
    while (!control->finish) {
        if (is_over()) return 0;
        pause_ns(2 * MS);
    }
    return read_final(&tables[0]) && read_final(&tables[1]);
}

static void make_slots(table_t *t, uint32_t index, uint64_t elems)
{
    t->index = index, t->elems = elems;
    t->slices = (uint32_t)((elems + SLICE_ELEMS - 1) / SLICE_ELEMS);
    t->depth = 1 + (uint32_t)draw(MAX_DEPTH);
    int shared = draw(2) == 0;
    for (slot_t *s = t->slot; s < t->slot + t->depth; s++) {
        s->table = t;
        s->grad = shared ? psrt_alloc(ctx, elems * 8) : calloc(elems, 8);
        s->value = shared ? psrt_alloc(ctx, elems * 8) : calloc(elems, 8);
        if (!s->grad || !s->value) end_with(NEW_LIFE, "buffers", PSRT_ERR_NO_MEMORY);
    }
}

int main(void)
{
    uint32_t rank = (uint32_t)env_number("PSRT_RANK", 0),
             life = (uint32_t)env_number("FAULTS_LIFE", 0);
    const char *dir = getenv("FAULTS_DIR");
    if (!dir || rank >= MAX_WORKERS) return 2;
    journal = journal_open(dir, rank, life);
    control = control_open(dir);
    random_state = env_number("FAULTS_SEED", 1) * 1000003u + rank * 1009u + life;
    refill_kill = life == 0 ? env_number("FAULTS_REFILL", 0) : 0;
    check("create", psrt_context_create(NULL, &ctx));
    make_slots(&tables[0], 0, env_number("FAULTS_ELEMS", 2 * SLICE_ELEMS + 5001));
    make_slots(&tables[1], 1, env_number("FAULTS_SMALL", 300));
    for (;;) {
        make_tables();
        if (train() && finish()) break;
        drain(1);
        raise_generation();
    }
    psrt_context_destroy(ctx);
    journal->phase = LEFT;
    return 0;
}
