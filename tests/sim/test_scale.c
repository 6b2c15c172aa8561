/* SPDX-License-Identifier: Apache-2.0 */
/* How costs grow, and the numbers in docs/scaling.md.
 *
 * Every cost is a count, so it is compared exactly: with a formula where there is one, else by doubling
 * the job: what is linear grows at most twofold. PSRT_SCALE=W,S,T prints a job of that size alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scale.h"
#include "support/test.h"

#define ULL(x) ((unsigned long long)(x))
#define ELEMENTS 100 /* of a table of the steps below: 400 bytes of values */
#define FRAME 64
#define DECLARERS 2

/* ---- a whole job on the control plane ---------------------------------------------------------- */

typedef struct job {
    scale_cost_t join, beat, declare, repeat, barrier, rejoin, restart, lose, leave, end;
    uint64_t joined[4], declared[4]; /* allocated after those, by role */
} job_t;

static void note_memory(uint64_t *memory)
{
    for (int i = 0; i < 4; i++)
        memory[i] = scale_allocated((scale_role_t)i);
}

/* Worker 0 declares all tables, worker 1 the same. */
static job_t run_job(scale_size_t size)
{
    scale_control_t *j = scale_control_open(&size);
    job_t r;
    r.join = scale_join(j);
    note_memory(r.joined);
    r.beat = scale_beat(j);
    r.declare = scale_declare(j, 0, 1);
    r.repeat = scale_declare(j, 1, 1);
    note_memory(r.declared);
    r.barrier = scale_barrier(j);
    r.rejoin = scale_rejoin(j, 2);
    r.restart = scale_restart(j);
    r.lose = scale_lose_server(j, 0);
    r.leave = scale_leave(j, 3, 1);
    r.end = scale_leave(j, 4, size.workers - 5);
    scale_control_close(j);
    return r;
}

static char *page_text(void)
{
    FILE *f = fopen(PSRT_SOURCE_DIR "/docs/scaling.md", "r");
    char *text = calloc(1, 1 << 20);
    cr_assert(f && text && fread(text, 1, (1 << 20) - 1, f) > 0, "docs/scaling.md");
    fclose(f);
    return text;
}

/* Prints a row of a table; with a page it must be there. */
static void row(const char *page, const char *name, const scale_cost_t *c)
{
    char line[256];
    snprintf(line, sizeof line, "| %s | %llu | %llu | %llu | %llu | %llu | %llu |", name,
             ULL(c->up.messages), ULL(c->up.bytes), ULL(c->down.messages), ULL(c->down.bytes),
             ULL(c->most), ULL(c->state));
    puts(line);
    cr_assert(!page || strstr(page, line), "docs/scaling.md lacks: %s", line);
}

static void print_job(const char *page, scale_size_t size, const job_t *r)
{
    printf("%u workers, %u servers, %u tables\n", size.workers, size.servers, size.tables);
    row(page, "join", &r->join);
    row(page, "declare, the first", &r->declare);
    row(page, "declare, another", &r->repeat);
    row(page, "barrier", &r->barrier);
    row(page, "late join", &r->rejoin);
    row(page, "coordinator restarted", &r->restart);
    row(page, "server lost and back", &r->lose);
    row(page, "a worker leaves", &r->leave);
    row(page, "the others leave", &r->end);
    printf("allocated when joined: coordinator %llu, a server %llu, a worker %llu\n",
           ULL(r->joined[SCALE_COORDINATOR]), ULL(r->joined[SCALE_SERVER] / size.servers),
           ULL(r->joined[SCALE_WORKER] / size.workers));
    printf("when declared: coordinator %llu, a server %llu, a worker that declared %llu\n",
           ULL(r->declared[SCALE_COORDINATOR]), ULL(r->declared[SCALE_SERVER] / size.servers),
           ULL((r->declared[SCALE_WORKER] - r->joined[SCALE_WORKER]) / DECLARERS));
}

/* What has a formula in the table of the page. */
static void check_messages(scale_size_t size, const job_t *r)
{
    uint64_t w = size.workers, s = size.servers, n = w + s;
    cr_assert_eq(r->join.up.messages, n);
    cr_assert_eq(r->join.down.messages, 2 * n);
    cr_assert_eq(r->beat.heartbeats, 2 * n);
    cr_assert_eq(r->beat.up.messages + r->beat.down.messages, 0u);
    cr_assert_eq(r->declare.up.messages, 1 + s);
    cr_assert_eq(r->declare.down.messages, 1 + s);
    cr_assert_eq(r->repeat.up.messages, 1u);
    cr_assert_eq(r->repeat.down.messages, 1u);
    cr_assert_eq(r->barrier.up.messages, w);
    cr_assert_eq(r->barrier.down.messages, w);
    cr_assert_eq(r->rejoin.up.messages, 1 + s);       /* Join, Prepared */
    cr_assert_eq(r->rejoin.down.messages, 1 + s + n); /* Welcome, Prepare, Commit or View */
    cr_assert_eq(r->restart.up.messages, n);
    cr_assert_eq(r->restart.down.messages, 2 * n + 2 * s); /* Welcome, View; Commit, SetEnd */
    cr_assert_eq(r->lose.up.messages, 1u);
    cr_assert_eq(r->lose.down.messages, (n - 1) + 1 + n + w); /* View, Welcome, View, Declared */
    cr_assert_eq(r->leave.up.messages, 2u);
    cr_assert_eq(r->leave.down.messages, 2 + n - 1); /* Finish twice, View */
    cr_assert_eq(r->end.up.messages, 2 * (w - 5));
    /* The first at once, the others together; those who left before the second hear of neither. */
    cr_assert_leq(r->end.down.messages, 2 * (w - 5) + 2 * n);
}

/* Does what is counted grow at most as the job? */
static void at_most(const char *what, uint64_t small, uint64_t large, double factor)
{
    cr_assert_leq((double)large, factor * (double)small, "%s: %llu, then %llu", what, ULL(small),
                  ULL(large));
}

static void check_state(const job_t *a, const job_t *b)
{
    /* The file is replaced when it has doubled, which falls on one size or another. */
    at_most("state, join", a->join.state, b->join.state, 2 * 1.6);
    at_most("state, leave", a->leave.state, b->leave.state, 1.1);
    at_most("state, all leave", a->end.state, b->end.state, 2 * 1.6);
}

/* Twice the workers, servers and tables. What one task hears of the whole job is linear, and what it hears
 * of a change does not grow. */
static void check_doubled(const job_t *a, const job_t *b)
{
    at_most("join, one task", a->join.most, b->join.most, 2);
    at_most("declare", a->declare.up.bytes, b->declare.up.bytes, 2.05);
    at_most("holds", a->declare.server_down.bytes, b->declare.server_down.bytes, 2.05);
    at_most("declare again", a->repeat.up.bytes, b->repeat.up.bytes, 2.05);
    at_most("answer", a->repeat.down.bytes, b->repeat.down.bytes, 2.2); /* ids have more digits */
    at_most("barrier", a->barrier.up.bytes + a->barrier.down.bytes,
            b->barrier.up.bytes + b->barrier.down.bytes, 2.05);
    at_most("late join, servers", a->rejoin.server_down.bytes, b->rejoin.server_down.bytes, 2.2);
    at_most("late join, up", a->rejoin.up.bytes, b->rejoin.up.bytes, 2.2);
    at_most("restart, up", a->restart.up.bytes, b->restart.up.bytes, 2.05);
    at_most("a worker leaves", a->leave.down.bytes, b->leave.down.bytes, 2.05);
    check_state(a, b);
    at_most("memory, coordinator", a->declared[SCALE_COORDINATOR], b->declared[SCALE_COORDINATOR],
            2.1);
}

Test(scale, the_control_plane_grows_with_the_job)
{
    scale_size_t size = { 16, 8, 400 };
    job_t before = run_job(size);
    check_messages(size, &before);
    for (int i = 0; i < 2; i++) {
        size = (scale_size_t){ 2 * size.workers, 2 * size.servers, 2 * size.tables };
        job_t now = run_job(size);
        check_messages(size, &now);
        check_doubled(&before, &now);
        before = now;
    }
}

/* More tables only: nothing but their declaration and what brings them along again grows. */
Test(scale, tables_cost_nothing_but_their_declaration)
{
    job_t a = run_job((scale_size_t){ 16, 8, 400 }), b = run_job((scale_size_t){ 16, 8, 1600 });
    cr_assert_eq(a.join.down.bytes, b.join.down.bytes);
    cr_assert_eq(a.leave.down.bytes, b.leave.down.bytes);
    cr_assert_eq(a.barrier.down.bytes, b.barrier.down.bytes);
    uint64_t server = a.declared[SCALE_SERVER] - a.joined[SCALE_SERVER];
    at_most("memory of servers", server, b.declared[SCALE_SERVER] - b.joined[SCALE_SERVER], 4.1);
}

/* More servers only: their tables are shared out. */
Test(scale, servers_share_the_tables)
{
    job_t a = run_job((scale_size_t){ 16, 8, 1600 }), b = run_job((scale_size_t){ 16, 32, 1600 });
    at_most("holds", a.declare.server_down.bytes, b.declare.server_down.bytes, 1.1);
    uint64_t server = a.declared[SCALE_SERVER] - a.joined[SCALE_SERVER];
    at_most("memory of servers", server, b.declared[SCALE_SERVER] - b.joined[SCALE_SERVER], 1.1);
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Answers to one worker's push of a table with one slice in a step of W workers. */
typedef struct kind {
    const char *consistency;
    int pull;
    uint64_t acks, values; /* to the worker; to the last one of a sync step... */
    uint64_t last_acks;    /* ...which closes it, so many */
    uint64_t clocks;       /* messages with the end of a step */
} kind_t;

static const kind_t kinds[] = { { "sync", 0, 2, 0, 1, 0 },  { "sync", 1, 2, 1, 0, 0 },
                                { "async", 0, 1, 0, 1, 0 }, { "async", 1, 0, 1, 0, 0 },
                                { "ssp:2", 0, 1, 0, 1, 1 }, { "ssp:2", 1, 0, 1, 0, 1 } };

static void check_step(const kind_t *k, scale_size_t size)
{
    scale_data_params_t p = { size, ELEMENTS, k->consistency, k->pull, 3 };
    scale_steps_t c = scale_data(&p);
    uint64_t w = size.workers, t = size.tables, data = 4 * ELEMENTS;
    uint64_t acks = t * ((w - 1) * k->acks + k->last_acks) + t * w * k->clocks;
    uint64_t values = t * w * k->values;
    cr_assert_eq(c.requests, t * w * (1 + k->clocks), "%s", k->consistency);
    cr_assert_eq(c.request_bytes, t * w * (FRAME * (1 + k->clocks) + data));
    cr_assert_eq(c.answers, acks + values, "%s", k->consistency);
    cr_assert_eq(c.answer_bytes, FRAME * acks + (FRAME + data) * values);
    /* What goes to one task at a moment goes in one message while it is below 64 KiB. */
    at_most("frames", w * size.servers, c.frames, 4);
}

Test(scale, steps_cost_what_the_page_says)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t n = 1; n <= 4; n *= 2)
            check_step(&kinds[i], (scale_size_t){ 4 * n, 2 * n, 30 * n });
}

static scale_steps_t memory_of(scale_size_t size)
{
    scale_data_params_t p = { size, ELEMENTS, "sync", 1, 2 };
    return scale_data(&p);
}

/* 24 bytes for each worker and table at the server that has the table, not at each. */
Test(scale, memory_of_servers_is_shared_out)
{
    scale_steps_t a = memory_of((scale_size_t){ 8, 2, 256 }),
                  b = memory_of((scale_size_t){ 8, 8, 256 });
    at_most("four times the servers", a.server_memory, b.server_memory, 2);
    b = memory_of((scale_size_t){ 32, 2, 256 });
    at_most("four times the workers", a.server_memory, b.server_memory, 4);
    at_most("four times the workers, each", 4 * a.worker_memory, b.worker_memory, 1.1);
}

/* ---- the page ---------------------------------------------------------------------------------- */

/* Its table of steps is this one. */
Test(scale, the_table_of_steps_is_on_the_page)
{
    char line[256], *page = page_text();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind_t *k = &kinds[i];
        snprintf(line, sizeof line, "| %s %s | %llu | %llu | %llu | %llu |", k->consistency,
                 k->pull ? "push_pull" : "push", ULL(1 + k->clocks), ULL(k->acks + k->clocks),
                 ULL(k->values), ULL(k->last_acks + k->clocks));
        cr_assert(strstr(page, line), "docs/scaling.md lacks: %s", line);
    }
    free(page);
}

/* Its tables of jobs; the largest is a test of its own, which gives PSRT_SCALE. */
Test(scale, the_jobs_are_on_the_page)
{
    scale_size_t sizes[] = { { 10, 4, 1000 }, { 100, 20, 10000 } };
    char *page = page_text();
    const char *text = getenv("PSRT_SCALE");
    if (text)
        cr_assert_eq(
            sscanf(text, "%u,%u,%u", &sizes[0].workers, &sizes[0].servers, &sizes[0].tables), 3);
    for (int i = 0; i < (text ? 1 : 2); i++) {
        job_t r = run_job(sizes[i]);
        check_messages(sizes[i], &r);
        print_job(text && !getenv("PSRT_SCALE_PAGE") ? NULL : page, sizes[i], &r);
    }
    free(page);
}
