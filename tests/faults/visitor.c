/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of the test for leaks (flat.py), which come and go for as long as they may:
 *   rank 0  stays: one context, operations that are waited for, canceled, or end by a deadline
 *   rank 1  stays too, and beside that makes a context of its own (with an embedded server), declares
 *           tables, trains a little, and destroys it, again and again
 *   others  are killed at any moment of their start or training: again.sh starts the next one
 * SIGTERM asks to leave. In the environment: FAULTS_DIR, where the file `cycles` counts what each has done;
 * FAULTS_LIFE. Exit code 0: left; 3: its context was lost, start it again; 4: a bug. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <psrt/psrt.h>

#define MS 1000000ull
#define OPS 24 /* of a visit */
#define LARGE (262144 + 301)
#define SMALL 300
#define NEW_LIFE 3
#define BUG 4

typedef struct table {
    psrt_table_t *handle;
    uint64_t elems;
    float *grad, *value;
} table_t;

/* A context and its tables. */
typedef struct visit {
    psrt_context_t *ctx;
    table_t table[3];
} visit_t;

static _Atomic uint64_t *cycles;
static volatile sig_atomic_t stop;
static uint64_t random_state;
static uint32_t rank;

static void on_term(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static void check(const char *what, psrt_status_t status)
{
    if (status == PSRT_OK || status == PSRT_ERR_CANCELED || status == PSRT_ERR_DEADLINE) return;
    fprintf(stderr, "faults_visitor: %s: %s: %s\n", what, psrt_status_name(status),
            psrt_last_error());
    exit(status == PSRT_ERR_FENCED || status == PSRT_ERR_COORDINATOR_LOST ? NEW_LIFE : BUG);
}

static void declare(psrt_context_t *ctx, table_t *t, const char *name, const char *consistency,
                    uint64_t elems)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = elems;
    p.optimizer = "adam:lr=1e-3", p.consistency = consistency;
    check("declare", psrt_dense_create(ctx, name, &p, &t->handle));
    t->elems = elems;
    t->grad = psrt_alloc(ctx, elems * sizeof *t->grad);
    t->value = psrt_alloc(ctx, elems * sizeof *t->value);
    if (!t->grad || !t->value) check("buffers", PSRT_ERR_NO_MEMORY);
    for (uint64_t i = 0; i < elems; i++)
        t->grad[i] = (float)(i % 7) - 3;
}

static void open_visit(visit_t *v)
{
    check("create", psrt_context_create(NULL, &v->ctx));
    declare(v->ctx, &v->table[0], "large", "async", LARGE);
    declare(v->ctx, &v->table[1], "small", "async", SMALL);
    declare(v->ctx, &v->table[2], "together", "sync", SMALL);
}

static void close_visit(visit_t *v)
{
    for (table_t *t = v->table; t < v->table + 3; t++) {
        psrt_free(v->ctx, t->grad);
        psrt_free(v->ctx, t->value);
    }
    psrt_context_destroy(v->ctx);
}

static void operation(const visit_t *v, int table)
{
    const table_t *t = &v->table[table];
    psrt_request_t q = PSRT_REQUEST_INIT;
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    psrt_op_t *op = NULL;
    int kind = (int)draw(3);
    q.table = t->handle;
    if (kind != 2) q.grad = t->grad;
    if (kind != 0) q.value = t->value;
    if (draw(10) == 0) p.deadline_ns = 1 + draw(MS);
    check("submit", psrt_submit(v->ctx, &q, 1, &p, &op));
    if (draw(5) == 0) psrt_op_cancel(op);
    check("wait", psrt_op_wait(op, PSRT_FOREVER));
}

/* Seldom what is made in steps: it may have to wait for the lease of one that died. */
static void train(const visit_t *v, unsigned operations)
{
    for (unsigned i = 0; i < operations && !stop; i++)
        operation(v, draw(12) == 0 ? 2 : (int)draw(2));
}

/* Nobody else is in it: an embedded server and coordinator. */
static void visit_alone(void)
{
    visit_t v;
    open_visit(&v);
    train(&v, OPS);
    close_visit(&v);
}

/* Contexts that are made from now on know of no job. */
static void forget_job(void)
{
    static const char *const names[] = { "PSRT_ROLE",    "PSRT_RANK",        "PSRT_WORKERS",
                                         "PSRT_SERVERS", "PSRT_COORDINATOR", "PSRT_JOB_DIR" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* At any moment: most while they wait to be admitted, for the life before lasts until its lease ends. */
static void die_soon(void)
{
    uint64_t ns = draw(4) ? (1 + draw(150)) * MS : (1 + draw(6000)) * MS;
    struct itimerspec when = { .it_value = { (time_t)(ns / (1000 * MS)),
                                             (long)(ns % (1000 * MS)) } };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &when, NULL);
}

static _Atomic uint64_t *open_counter(void)
{
    char path[4096];
    const char *dir = getenv("FAULTS_DIR");
    snprintf(path, sizeof path, "%s/cycles", dir ? dir : ".");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    close(fd);
    return (_Atomic uint64_t *)p + rank;
}

int main(void)
{
    const char *life = getenv("FAULTS_LIFE"), *own = getenv("PSRT_RANK");
    rank = own ? (uint32_t)strtoul(own, NULL, 10) : 0;
    random_state = rank * 1000003u + (life ? strtoull(life, NULL, 10) : 0);
    cycles = open_counter();
    struct sigaction action = { .sa_handler = on_term };
    sigaction(SIGTERM, &action, NULL);
    visit_t job;
    if (rank > 1) die_soon();
    ++*cycles;
    open_visit(&job);
    forget_job();
    while (!stop) {
        train(&job, OPS);
        if (rank == 1) visit_alone();
        if (rank < 2) ++*cycles;
    }
    close_visit(&job);
    return 0;
}
