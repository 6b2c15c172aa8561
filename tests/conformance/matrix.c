/* SPDX-License-Identifier: Apache-2.0 */
/* A job in one process, for test_matrix.py: coordinator, servers and workers are threads, so that every
 * transport carries it. The environment describes the job but for role and rank.
 *
 *   conformance_matrix LISTEN_FD STEPS NOISE < TABLES
 *
 * A line of TABLES is NAME ELEMENTS DTYPE OPTIMIZER CONSISTENCY DETERMINISTIC. The tables start with
 * rank0 values; in each step each worker contributes to each table, at once to sync tables, one worker
 * after the other to the others, so that the order of arrival is known. What is contributed repeats with
 * PERIOD, which is no divisor of a slice; a model in test_matrix.py has the same formulas.
 * With NOISE gradients of f32 and f64 are no round numbers: their sum depends on the order.
 *
 * Prints for each table "NAME ok HEX", the bytes of the first PERIOD values when all others repeat
 * them, or "NAME refused STATUS TEXT". */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#define PERIOD 511u
#define MAX_TABLES 512
#define MAX_TASKS 32

typedef struct spec {
    char name[64], dtype[8], optimizer[200], consistency[32];
    uint64_t elements;
    int deterministic;
    psrt_status_t refused;
    char text[512];
} spec_t;

typedef struct task {
    pthread_t thread;
    const char *role;
    unsigned rank;
    psrt_status_t status;
    char text[512];
} task_t;

/* A worker's side of a table. */
typedef struct table {
    const spec_t *spec;
    psrt_table_t *handle;
    psrt_dtype_t dtype;
    char *grad, *value;
} table_t;

static spec_t specs[MAX_TABLES];
static size_t nspecs;
static unsigned workers, servers, steps, noise;
static const char *listen_fd;

/* ---- numbers ----------------------------------------------------------------------------------- */

static int32_t pattern(uint64_t i, unsigned a, unsigned b, unsigned c)
{
    return (int32_t)((i * a + b + c) % PERIOD) - 255;
}

/* Exact in every type: eight significant bits, and no exponent that f16 has not. */
static double initial(uint64_t i) { return pattern(i, 29, 0, 0) / 64.0; }

static double gradient(const table_t *t, uint64_t i, unsigned rank, unsigned step)
{
    double g = pattern(i, 37, rank * 101, step * 173) / 128.0;
    int wide = t->dtype == PSRT_F32 || t->dtype == PSRT_F64;
    return noise && wide ? g * (0.1 + 0.37 * rank + 0.01 * step) : g;
}

static void put(psrt_dtype_t dtype, char *at, double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t bf16 = (uint16_t)(bits >> 16), f16 = (uint16_t)(bits >> 16 & 0x8000);
    if (f != 0) f16 |= (uint16_t)(((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff));
    switch (dtype) {
    case PSRT_F64: memcpy(at, &x, sizeof x); break;
    case PSRT_F32: memcpy(at, &f, sizeof f); break;
    case PSRT_BF16: memcpy(at, &bf16, sizeof bf16); break;
    default: memcpy(at, &f16, sizeof f16);
    }
}

/* Repeats the first PERIOD elements over the rest. */
static void spread(const table_t *t, char *data)
{
    size_t bytes = psrt_dtype_size(t->dtype), period = PERIOD * bytes;
    size_t all = (size_t)t->spec->elements * bytes;
    for (size_t at = period; at < all; at += period)
        memcpy(data + at, data, all - at < period ? all - at : period);
}

static void fill_gradient(table_t *t, unsigned rank, unsigned step)
{
    for (uint64_t i = 0; i < PERIOD; i++)
        put(t->dtype, t->grad + i * psrt_dtype_size(t->dtype), gradient(t, i, rank, step));
    spread(t, t->grad);
}

static void fill_initial(table_t *t)
{
    for (uint64_t i = 0; i < PERIOD; i++)
        put(t->dtype, t->value + i * psrt_dtype_size(t->dtype), initial(i));
    spread(t, t->value);
}

/* ---- a worker ---------------------------------------------------------------------------------- */

static psrt_dtype_t dtype_of(const char *name)
{
    static const psrt_dtype_t all[] = { PSRT_F32, PSRT_F64, PSRT_F16, PSRT_BF16 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(psrt_dtype_name(all[i]), name) == 0) return all[i];
    return PSRT_DTYPE_NONE;
}

/* A refusal is a result, and the same at every worker; worker 0 keeps its text. */
static psrt_status_t declare(psrt_context_t *ctx, unsigned rank, spec_t *spec, table_t *t)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    t->spec = spec;
    t->dtype = dtype_of(spec->dtype);
    size_t bytes = (size_t)spec->elements * psrt_dtype_size(t->dtype);
    t->grad = psrt_alloc(ctx, bytes);
    t->value = psrt_alloc(ctx, bytes);
    if (!t->grad || !t->value) return PSRT_ERR_NO_MEMORY;
    fill_initial(t);
    p.dtype = t->dtype, p.ndim = 1, p.shape[0] = spec->elements;
    p.init = "rank0", p.init_data = rank == 0 ? t->value : NULL;
    p.optimizer = spec->optimizer, p.consistency = spec->consistency;
    p.deterministic = spec->deterministic;
    psrt_status_t rc = psrt_dense_create(ctx, spec->name, &p, &t->handle);
    if (rc && rank == 0) {
        spec->refused = rc;
        snprintf(spec->text, sizeof spec->text, "%s", psrt_last_error());
    }
    return rc == PSRT_ERR_INVALID || rc == PSRT_ERR_UNSUPPORTED ? PSRT_OK : rc;
}

static int is_sync(const table_t *t) { return strncmp(t->spec->consistency, "sync", 4) == 0; }

/* One operation over all tables of the kind; it waits. */
static psrt_status_t contribute(psrt_context_t *ctx, table_t *tables, unsigned rank, unsigned step,
                                int sync)
{
    static _Thread_local psrt_request_t requests[MAX_TABLES];
    size_t n = 0;
    for (size_t i = 0; i < nspecs; i++) {
        table_t *t = &tables[i];
        if (!t->handle || is_sync(t) != sync) continue;
        fill_gradient(t, rank, step);
        requests[n] = (psrt_request_t)PSRT_REQUEST_INIT;
        requests[n].table = t->handle;
        requests[n].grad = t->grad, requests[n].value = t->value;
        n++;
    }
    return n ? psrt_submit(ctx, requests, n, NULL, NULL) : PSRT_OK;
}

static psrt_status_t train(psrt_context_t *ctx, table_t *tables, unsigned rank)
{
    char turn[64];
    psrt_status_t rc = PSRT_OK;
    for (unsigned step = 0; !rc && step < steps; step++) {
        rc = contribute(ctx, tables, rank, step, 1);
        for (unsigned r = 0; !rc && r < workers; r++) {
            if (r == rank) rc = contribute(ctx, tables, rank, step, 0);
            snprintf(turn, sizeof turn, "step %u, turn of worker %u", step, r);
            if (!rc) rc = psrt_barrier(ctx, turn, 0, PSRT_FOREVER);
        }
    }
    for (size_t i = 0; !rc && i < nspecs; i++)
        if (tables[i].handle) rc = psrt_pull(tables[i].handle, tables[i].value, NULL);
    return rc;
}

static void print_table(const table_t *t)
{
    size_t bytes = psrt_dtype_size(t->dtype), period = PERIOD * bytes;
    size_t all = (size_t)t->spec->elements * bytes;
    if (!t->handle) {
        printf("%s refused %s %s\n", t->spec->name, psrt_status_name(t->spec->refused),
               t->spec->text);
        return;
    }
    for (size_t at = bytes; at + period <= all; at += bytes)
        if (memcmp(t->value + at, t->value + at % period, bytes) != 0) {
            printf("%s differs at element %zu\n", t->spec->name, at / bytes);
            return;
        }
    printf("%s ok ", t->spec->name);
    for (size_t i = 0; i < period; i++)
        printf("%02x", (unsigned char)t->value[i]);
    printf("\n");
}

static psrt_status_t work(psrt_context_t *ctx, unsigned rank)
{
    table_t *tables = calloc(nspecs, sizeof *tables);
    psrt_status_t rc = tables ? PSRT_OK : PSRT_ERR_NO_MEMORY;
    for (size_t i = 0; !rc && i < nspecs; i++)
        rc = declare(ctx, rank, &specs[i], &tables[i]);
    if (!rc) rc = train(ctx, tables, rank);
    for (size_t i = 0; !rc && rank == 0 && i < nspecs; i++)
        print_table(&tables[i]);
    free(tables);
    return rc;
}

/* ---- the job ----------------------------------------------------------------------------------- */

static void *run_task(void *arg)
{
    task_t *task = arg;
    char role[32], rank[32], fd[32];
    const char *settings[] = { role, rank, fd, NULL };
    int coordinator = strcmp(task->role, "coordinator") == 0;
    snprintf(role, sizeof role, "PSRT_ROLE=%s", task->role);
    snprintf(rank, sizeof rank, "PSRT_RANK=%u", task->rank);
    snprintf(fd, sizeof fd, "PSRT_LISTEN_FD=%s", listen_fd);
    if (!coordinator) settings[2] = NULL;
    if (strcmp(task->role, "worker") == 0) {
        psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
        psrt_context_t *ctx = NULL;
        p.settings = settings;
        task->status = psrt_context_create(&p, &ctx);
        if (!task->status) task->status = work(ctx, task->rank);
        if (task->status) snprintf(task->text, sizeof task->text, "%s", psrt_last_error());
        psrt_context_destroy(ctx);
        return NULL;
    }
    psrt_server_params_t p = PSRT_SERVER_PARAMS_INIT;
    p.settings = settings;
    task->status = coordinator ? psrt_coordinator_run(&p) : psrt_server_run(&p);
    if (task->status) snprintf(task->text, sizeof task->text, "%s", psrt_last_error());
    return NULL;
}

static void start(task_t *task, const char *role, unsigned rank)
{
    task->role = role;
    task->rank = rank;
    if (pthread_create(&task->thread, NULL, run_task, task) == 0) return;
    perror("pthread_create");
    exit(1);
}

static int read_specs(void)
{
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        spec_t *s = &specs[nspecs];
        if (nspecs == MAX_TABLES ||
            sscanf(line, "%63s %lu %7s %199s %31s %d", s->name, &s->elements, s->dtype,
                   s->optimizer, s->consistency, &s->deterministic) != 6 ||
            s->elements < PERIOD || !dtype_of(s->dtype)) {
            fprintf(stderr, "bad line %zu: %s", nspecs + 1, line);
            return 0;
        }
        nspecs++;
    }
    return 1;
}

static unsigned number_of(const char *text) { return text ? (unsigned)strtoul(text, NULL, 10) : 0; }

int main(int argc, char **argv)
{
    static task_t tasks[MAX_TASKS];
    unsigned n = 0, failed = 0;
    if (argc != 4 || !read_specs()) return 2;
    listen_fd = argv[1], steps = number_of(argv[2]), noise = number_of(argv[3]);
    workers = number_of(getenv("PSRT_WORKERS")), servers = number_of(getenv("PSRT_SERVERS"));
    if (1 + workers + servers > MAX_TASKS) return 2;
    start(&tasks[n++], "coordinator", 0);
    for (unsigned r = 0; r < servers; r++)
        start(&tasks[n++], "server", r);
    for (unsigned r = 0; r < workers; r++)
        start(&tasks[n++], "worker", r);
    for (unsigned i = n; i-- > 0;)
        pthread_join(tasks[i].thread, NULL);
    for (unsigned i = 0; i < n; i++) {
        if (!tasks[i].status) continue;
        failed = 1;
        fprintf(stderr, "%s:%u: %s: %s\n", tasks[i].role, tasks[i].rank,
                psrt_status_name(tasks[i].status), tasks[i].text);
    }
    return failed != 0;
}
