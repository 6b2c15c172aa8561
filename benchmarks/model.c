/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include <psrt/psrt.h>

#include "flags.h"
#include "job.h"
#include "ps_cell.h"
#include "stats.h"

#define WARM_UP 2
#define FORWARD                                                                                    \
    (1.0 / 3) /* of a step; the backward pass has two products where the forward has one */
#define PRIORITY_FIRST 127
#define PRIORITIES 255

typedef struct trainer {
    const model_options_t *options;
    model_t model;
    psrt_context_t *ctx;
    psrt_context_attr_t job;
    psrt_table_t **table; /* one a tensor */
    psrt_op_t **op;       /* one a layer: its values for the next forward pass */
    psrt_request_t *requests;
    float *grad, *value;
    double *step_ms;
    uint64_t clock; /* when the computation so far ended */
} trainer_t;

/* ---- the timer in the place of a computation ------------------------------------------------------ */

/* Lateness of one sleep does not add to the next: a computation begins when the one before ended. */
static void compute(trainer_t *t, double milliseconds)
{
    t->clock += (uint64_t)(milliseconds * 1e6);
    struct timespec end = { .tv_sec = (time_t)(t->clock / 1000000000u),
                            .tv_nsec = (long)(t->clock % 1000000000u) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL)) {}
}

/* The computation goes on with the layer at once if its values are there, else when they come. */
static int wait_for(trainer_t *t, size_t layer)
{
    psrt_op_t *op = t->op[layer];
    t->op[layer] = NULL;
    int blocked = psrt_op_test(op, NULL) == PSRT_IN_PROGRESS;
    if (psrt_op_wait(op, PSRT_FOREVER) != PSRT_OK)
        return bench_fail("layer %zu: %s", layer, psrt_last_error());
    uint64_t now = bench_now();
    if (blocked && now > t->clock) t->clock = now;
    return 0;
}

/* ---- a step --------------------------------------------------------------------------------------- */

static int priority_of(const trainer_t *t, size_t layer)
{
    return PRIORITY_FIRST - (int)(layer * PRIORITIES / t->model.layers);
}

static int push_pull(trainer_t *t, size_t layer)
{
    const model_layer_t *l = &t->model.layer[layer];
    for (size_t i = 0; i < l->count; i++) {
        uint64_t offset = t->model.tensor[l->first + i].offset;
        psrt_request_t *r = &t->requests[i];
        *r = (psrt_request_t)PSRT_REQUEST_INIT;
        r->table = t->table[l->first + i];
        r->grad = t->grad + offset;
        r->value = t->value + offset;
        r->priority = priority_of(t, layer);
    }
    if (psrt_submit(t->ctx, t->requests, l->count, NULL, &t->op[layer]) == PSRT_OK) return 0;
    return bench_fail("layer %zu: %s", layer, psrt_last_error());
}

static int run_step(trainer_t *t)
{
    const model_t *m = &t->model;
    double total = t->options->step_ms;
    for (size_t i = 0; i < m->layers; i++) {
        if (t->op[i] && wait_for(t, i)) return -1;
        compute(t, total * FORWARD * m->layer[i].share);
    }
    for (size_t i = m->layers; i-- > 0;) {
        compute(t, total * (1 - FORWARD) * m->layer[i].share);
        if (push_pull(t, i)) return -1;
    }
    return 0;
}

/* A step lasts to the moment at which the next one has what it needs to begin. */
static int train(trainer_t *t)
{
    uint32_t steps = t->options->steps + WARM_UP;
    t->clock = bench_now();
    for (uint32_t i = 0; i < steps; i++) {
        uint64_t start = t->clock;
        if (run_step(t) || wait_for(t, 0)) return -1;
        if (i >= WARM_UP) t->step_ms[i - WARM_UP] = (double)(t->clock - start) / 1e6;
    }
    for (size_t i = 1; i < t->model.layers; i++)
        if (wait_for(t, i)) return -1;
    return 0;
}

/* ---- before and after ----------------------------------------------------------------------------- */

static void describe(const trainer_t *t, const char **names, psrt_dense_params_t *params)
{
    for (size_t i = 0; i < t->model.tensors; i++) {
        names[i] = t->model.tensor[i].name;
        params[i] = (psrt_dense_params_t)PSRT_DENSE_PARAMS_INIT;
        params[i].ndim = 1;
        params[i].shape[0] = t->model.tensor[i].elements;
        params[i].reduce = "sum";
    }
}

static int create_tables(trainer_t *t)
{
    size_t count = t->model.tensors;
    const char **names = calloc(count, sizeof *names);
    psrt_dense_params_t *params = calloc(count, sizeof *params);
    int failed = -1;
    if (!names || !params) {
        bench_fail("out of memory");
    } else {
        describe(t, names, params);
        failed = psrt_dense_create_many(t->ctx, count, names, params, t->table) == PSRT_OK
                     ? 0
                     : bench_fail("%s", psrt_last_error());
    }
    free(names);
    free(params);
    return failed;
}

static int prepare(trainer_t *t)
{
    const model_t *m = &t->model;
    t->job = (psrt_context_attr_t)PSRT_CONTEXT_ATTR_INIT;
    if (psrt_context_create(NULL, &t->ctx) != PSRT_OK ||
        psrt_context_query(t->ctx, &t->job) != PSRT_OK)
        return bench_fail("%s", psrt_last_error());
    t->table = calloc(m->tensors, sizeof(void *));
    t->op = calloc(m->layers, sizeof(void *));
    t->requests = calloc(m->tensors, sizeof *t->requests);
    t->step_ms = calloc(t->options->steps, sizeof *t->step_ms);
    t->grad = psrt_alloc(t->ctx, m->elements * sizeof(float));
    t->value = psrt_alloc(t->ctx, m->elements * sizeof(float));
    if (!t->table || !t->op || !t->requests || !t->step_ms || !t->grad || !t->value)
        return bench_fail("%llu elements: out of memory", (unsigned long long)m->elements);
    ps_gradient_fill(t->grad, m->elements, t->job.rank);
    if (create_tables(t)) return -1;
    if (psrt_barrier(t->ctx, "model", 0, PSRT_FOREVER) == PSRT_OK) return 0;
    return bench_fail("barrier: %s", psrt_last_error());
}

/* Every worker's gradient was added once a step. */
static int verify(const trainer_t *t)
{
    float steps = (float)(t->options->steps + WARM_UP);
    for (size_t i = 0; i < t->model.tensors; i++) {
        const model_tensor_t *tensor = &t->model.tensor[i];
        for (uint64_t e = tensor->offset; e < tensor->offset + tensor->elements; e++) {
            float sum = 0;
            for (uint32_t rank = 0; rank < t->job.workers; rank++)
                sum += ps_gradient(e, rank);
            if (t->value[e] != steps * sum)
                return bench_fail("%s, element %llu is %g, not %g", tensor->name,
                                  (unsigned long long)(e - tensor->offset), (double)t->value[e],
                                  (double)(steps * sum));
        }
    }
    return 0;
}

/* "a/resnet50.tsv" gives resnet50. */
static void model_name(const char *path, char name[MODEL_NAME_MAX])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    snprintf(name, MODEL_NAME_MAX, "%.*s", (int)strcspn(base, "."), base);
}

static int report(const trainer_t *t)
{
    const model_options_t *o = t->options;
    double step = bench_median(t->step_ms, o->steps), compute_ms = o->step_ms;
    double samples = 1e3 * t->job.workers * o->batch / step, efficiency = compute_ms / step;
    unsigned long long parameters = t->model.parameters, bytes = parameters * sizeof(float);
    char name[MODEL_NAME_MAX];
    model_name(o->tensors, name);
    printf("%-14s %11s %11s %3s %3s %11s %10s %11s %11s\n", "model", "parameters", "bytes", "W",
           "S", "compute ms", "step ms", "samples/s", "efficiency");
    printf("%-14s %11llu %11llu %3u %3u %11.2f %10.2f %11.1f %11.3f\n", name, parameters, bytes,
           t->job.workers, t->job.servers, compute_ms, step, samples, efficiency);
    job_sink_t sink;
    if (!o->json) return 0;
    if (job_collect(o->json, &sink)) return -1;
    fprintf(sink.json,
            "\n {\"model\": \"%s\", \"parameters\": %llu, \"bytes\": %llu, \"workers\": %u, "
            "\"servers\": %u, \"batch\": %u, \"divide\": %.6g, \"compute_ms\": %.6g, "
            "\"step_ms\": %.6g, \"samples_per_s\": %.6g, \"efficiency\": %.6g}",
            name, parameters, bytes, t->job.workers, t->job.servers, o->batch, o->divide,
            compute_ms, step, samples, efficiency);
    return job_collected(&sink, o->json);
}

/* After a failure operations may still use the memory: it goes with the process. */
static int run(trainer_t *t)
{
    if (model_read(t->options->tensors, t->options->divide, &t->model)) return -1;
    if (prepare(t) || train(t) || verify(t) || (t->job.rank == 0 && report(t))) return -1;
    psrt_free(t->ctx, t->grad);
    psrt_free(t->ctx, t->value);
    psrt_context_destroy(t->ctx);
    free(t->table);
    free(t->op);
    free(t->requests);
    free(t->step_ms);
    model_free(&t->model);
    return 0;
}

int bench_model(int argc, char **argv)
{
    model_options_t options;
    int result = model_options_parse(argc, argv, &options);
    if (result != BENCH_RUN) return result;
    prctl(PR_SET_TIMERSLACK, 1000ul); /* a layer may take less than the default slack of 50 us */
    trainer_t trainer = { .options = &options };
    return run(&trainer) ? BENCH_FAILED : BENCH_OK;
}
