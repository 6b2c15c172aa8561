/* SPDX-License-Identifier: Apache-2.0 */
#include "fusion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/fusion.h>

#include "flag_values.h"
#include "flags.h"
#include "model.h"
#include "stats.h"

#define WARM_UP 3
#define STEPS_LIMIT 10000

typedef struct options {
    const char *tensors;
    uint64_t bucket, alone;
    uint32_t steps, divide;
} options_t;

typedef struct bench {
    const options_t *options;
    model_t model;
    psrt_context_t *ctx;
    psrt_comm_t *comm;
    psrt_fusion_t *fusion;
    psrt_comm_attr_t attr;
    float *grad, *sum; /* what is given and what comes out, each tensor at its offset */
    psrt_op_t **op;
    double *us;
} bench_t;

/* Whole numbers, so that sums are exact in any order; rank and element can be told from them. */
static float given(uint64_t element, uint32_t rank)
{
    return (float)((element * 7 + rank * 5) % 31);
}

/* ---- a step: everything is submitted as the backward pass yields it, then waited for --------------- */

static psrt_status_t submit_each(bench_t *b, size_t i)
{
    const model_tensor_t *t = &b->model.tensor[i];
    return psrt_allreduce(b->comm, b->grad + t->offset, b->sum + t->offset, t->elements, PSRT_F32,
                          PSRT_SUM, &b->op[i]);
}

static psrt_status_t submit_fused(bench_t *b, size_t i)
{
    const model_tensor_t *t = &b->model.tensor[i];
    return psrt_fusion_allreduce(b->fusion, t->name, b->grad + t->offset, b->sum + t->offset,
                                 t->elements, PSRT_F32, PSRT_SUM, &b->op[i]);
}

static psrt_status_t submit_once(bench_t *b, size_t i)
{
    b->op[i] = NULL;
    if (i > 0) return PSRT_OK;
    return psrt_allreduce(b->comm, b->grad, b->sum, b->model.elements, PSRT_F32, PSRT_SUM,
                          &b->op[i]);
}

static int run_step(bench_t *b, psrt_status_t (*submit)(bench_t *b, size_t i))
{
    for (size_t i = b->model.tensors; i-- > 0;)
        if (submit(b, i) != PSRT_OK) return bench_fail("%s", psrt_last_error());
    for (size_t i = 0; i < b->model.tensors; i++)
        if (psrt_op_wait(b->op[i], PSRT_FOREVER) != PSRT_OK)
            return bench_fail("%s: %s", b->model.tensor[i].name, psrt_last_error());
    return 0;
}

static int check(const bench_t *b, const char *what)
{
    for (size_t i = 0; i < b->model.tensors; i++) {
        const model_tensor_t *t = &b->model.tensor[i];
        for (uint64_t e = t->offset; e < t->offset + t->elements; e++) {
            float want = 0;
            for (uint32_t rank = 0; rank < b->attr.ranks; rank++)
                want += given(e, rank);
            if (b->sum[e] != want)
                return bench_fail("%s: %s, element %llu is %g, not %g", what, t->name,
                                  (unsigned long long)(e - t->offset), (double)b->sum[e],
                                  (double)want);
        }
    }
    return 0;
}

/* Median time of a step in microseconds, and whether the sums are right; negative: failed. */
static double measure(bench_t *b, const char *what, psrt_status_t (*submit)(bench_t *b, size_t i))
{
    memset(b->sum, 0, b->model.elements * sizeof *b->sum);
    for (uint32_t i = 0; i < b->options->steps + WARM_UP; i++) {
        if (psrt_comm_barrier(b->comm, NULL) != PSRT_OK) return bench_fail("%s", psrt_last_error());
        uint64_t start = bench_now();
        if (run_step(b, submit)) return -1;
        if (i >= WARM_UP) b->us[i - WARM_UP] = (double)(bench_now() - start) / 1e3;
    }
    return check(b, what) ? -1 : bench_median(b->us, b->options->steps);
}

/* ---- before and after ------------------------------------------------------------------------------ */

static int prepare(bench_t *b)
{
    psrt_fusion_params_t params = PSRT_FUSION_PARAMS_INIT;
    params.bucket_bytes = b->options->bucket;
    params.alone_bytes = b->options->alone;
    b->attr = (psrt_comm_attr_t)PSRT_COMM_ATTR_INIT;
    if (psrt_context_create(NULL, &b->ctx) != PSRT_OK ||
        psrt_comm_create(b->ctx, NULL, &b->comm, NULL) != PSRT_OK ||
        psrt_comm_query(b->comm, &b->attr) != PSRT_OK ||
        psrt_fusion_create(b->comm, &params, &b->fusion, NULL) != PSRT_OK)
        return bench_fail("%s", psrt_last_error());
    b->grad = psrt_alloc(b->ctx, b->model.elements * sizeof *b->grad);
    b->sum = psrt_alloc(b->ctx, b->model.elements * sizeof *b->sum);
    b->op = calloc(b->model.tensors, sizeof(void *));
    b->us = calloc(b->options->steps, sizeof *b->us);
    if (!b->grad || !b->sum || !b->op || !b->us)
        return bench_fail("%llu elements: out of memory", (unsigned long long)b->model.elements);
    for (uint64_t e = 0; e < b->model.elements; e++)
        b->grad[e] = given(e, b->attr.rank);
    return 0;
}

static int report(const bench_t *b, double each, double fused, double once)
{
    psrt_fusion_attr_t attr = PSRT_FUSION_ATTR_INIT;
    if (psrt_fusion_query(b->fusion, &attr) != PSRT_OK) return bench_fail("%s", psrt_last_error());
    printf("%7s %11s %5s %7s %6s %11s %11s %11s %6s\n", "tensors", "bytes", "ranks", "buckets",
           "rounds", "each us", "fused us", "one us", "gain");
    printf("%7zu %11llu %5u %7u %6llu %11.1f %11.1f %11.1f %6.2f\n", b->model.tensors,
           (unsigned long long)b->model.parameters * sizeof(float), b->attr.ranks, attr.buckets,
           (unsigned long long)attr.rounds, each, fused, once, each / fused);
    return 0;
}

/* After a failure operations may still use the memory: it goes with the process. */
static int run(bench_t *b)
{
    double each, fused, once;
    if (model_read(b->options->tensors, b->options->divide, &b->model) || prepare(b)) return -1;
    if ((each = measure(b, "each", submit_each)) < 0) return -1;
    if ((fused = measure(b, "fused", submit_fused)) < 0) return -1;
    if ((once = measure(b, "one", submit_once)) < 0) return -1;
    if (b->attr.rank == 0 && report(b, each, fused, once)) return -1;
    psrt_fusion_free(b->fusion);
    psrt_comm_free(b->comm);
    psrt_context_destroy(b->ctx);
    free(b->op);
    free(b->us);
    model_free(&b->model);
    return 0;
}

/* ---- flags ----------------------------------------------------------------------------------------- */

static int set_tensors(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((options_t *)options)->tensors);
}

static int set_steps(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, STEPS_LIMIT, &((options_t *)options)->steps);
}

static int set_divide(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, 1000000, &((options_t *)options)->divide);
}

static int set_bucket(void *options, const char *name, const char *text)
{
    if (bench_parse_bytes(text, &((options_t *)options)->bucket) == 0) return 0;
    return bench_fail("--%s %s: not a size from 1 to 1GiB", name, text);
}

static int set_alone(void *options, const char *name, const char *text)
{
    if (bench_parse_bytes(text, &((options_t *)options)->alone) == 0) return 0;
    return bench_fail("--%s %s: not a size from 1 to 1GiB", name, text);
}

static const bench_flag_t flags[] = {
    { "tensors", "FILE", "the model: a line for each tensor, as in benchmarks/models",
      set_tensors },
    { "divide", "N", "the elements of each tensor by N, rounded up (default 1)", set_divide },
    { "bucket", "BYTES", "of a bucket at most (default 25MiB)", set_bucket },
    { "alone", "BYTES", "of a tensor that is not fused (default 32KiB)", set_alone },
    { "steps", "N", "steps that are measured, after three that are not (default 20)", set_steps },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(void)
{
    puts(
        "usage: psrt-bench fusion --tensors FILE [flags]\n"
        "       psrt-launch -w N -s 0 -- psrt-bench fusion --tensors FILE [flags]\n"
        "\n"
        "Sums the gradients of a model over all workers, the last tensor first as a backward pass yields\n"
        "them, in three ways: by an allreduce each, by fusion, and as one buffer, which no trainer\n"
        "has, for comparison. Sums are checked.\n");
    bench_flags_print(flags, FLAGS);
    puts("  -h, --help           print this\n"
         "\n"
         "Columns\n"
         "  bytes      of all tensors, f32\n"
         "  buckets    of fusion\n"
         "  rounds     in which the workers agreed on them\n"
         "  each us    a step with an allreduce for each tensor, median of worker 0\n"
         "  fused us   with fusion\n"
         "  one us     one allreduce for all\n"
         "  gain       each / fused\n"
         "\n"
         "Exit status: 0, 1 when something failed or a sum was wrong, 2 wrong usage.");
    return BENCH_OK;
}

int bench_fusion(int argc, char **argv)
{
    options_t o = { .steps = 20, .divide = 1 };
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return print_help();
    int result = bench_flags_parse(flags, FLAGS, &o, argc, argv);
    if (result != BENCH_RUN) return result;
    if (!o.tensors) {
        bench_fail("fusion: --tensors FILE is missing, for example benchmarks/models/resnet50.tsv");
        return BENCH_USAGE;
    }
    bench_t bench = { .options = &o };
    return run(&bench) ? BENCH_FAILED : BENCH_OK;
}
