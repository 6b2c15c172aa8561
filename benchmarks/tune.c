/* SPDX-License-Identifier: Apache-2.0 */
#include "tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "stats.h"

#define ITERATIONS_MIN 5u
#define ITERATIONS_MAX 1000u

typedef struct tuner {
    const tune_options_t *options;
    psrt_context_t *ctx;
    psrt_comm_t *world; /* in which all meet and agree */
    uint32_t rank, ranks, hosts;
    char *algorithms; /* text of psrt_collectives_describe */
    float *in, *out;
    double us[ITERATIONS_MAX];
} tuner_t;

/* Has a part for each rank in its larger buffer. */
static int has_parts(unsigned kind)
{
    return kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BROADCAST &&
           kind != COLL_BARRIER;
}

static psrt_status_t call(const tuner_t *t, psrt_comm_t *comm, unsigned kind, uint64_t count)
{
    const float *in = t->in;
    float *out = t->out;
    switch (kind) {
    case COLL_ALLREDUCE: return psrt_allreduce(comm, in, out, count, PSRT_F32, PSRT_SUM, NULL);
    case COLL_REDUCE: return psrt_reduce(comm, in, out, count, PSRT_F32, PSRT_SUM, 0, NULL);
    case COLL_BROADCAST: return psrt_broadcast(comm, out, count, PSRT_F32, 0, NULL);
    case COLL_ALLGATHER: return psrt_allgather(comm, in, out, count, PSRT_F32, NULL);
    case COLL_REDUCE_SCATTER:
        return psrt_reduce_scatter(comm, in, out, count, PSRT_F32, PSRT_SUM, NULL);
    case COLL_ALLTOALL: return psrt_alltoall(comm, in, out, count, PSRT_F32, NULL);
    case COLL_GATHER: return psrt_gather(comm, in, out, count, PSRT_F32, 0, NULL);
    case COLL_SCATTER: return psrt_scatter(comm, in, out, count, PSRT_F32, 0, NULL);
    default: return psrt_comm_barrier(comm, NULL);
    }
}

/* ---- one algorithm, one size -------------------------------------------------------------------- */

static psrt_status_t iterate(tuner_t *t, psrt_comm_t *comm, unsigned kind, uint64_t count,
                             uint32_t iterations)
{
    psrt_status_t rc = PSRT_OK;
    for (uint32_t i = 0; !rc && i < iterations; i++) {
        rc = psrt_comm_barrier(t->world, NULL);
        uint64_t start = bench_now();
        if (!rc) rc = call(t, comm, kind, count);
        t->us[i] = (double)(bench_now() - start) / 1000;
    }
    return rc;
}

/* The median of the slowest rank's times; the same on all ranks. */
static psrt_status_t measure(tuner_t *t, psrt_comm_t *comm, unsigned kind, uint64_t count,
                             double *us_p)
{
    psrt_status_t rc = iterate(t, comm, kind, count, 2);
    double once = t->us[1];
    if (!rc) rc = psrt_allreduce(t->world, &once, &once, 1, PSRT_F64, PSRT_MAX, NULL);
    double wanted = t->options->seconds * 1e6 / (once + 1);
    uint32_t n = wanted < ITERATIONS_MIN   ? ITERATIONS_MIN
                 : wanted > ITERATIONS_MAX ? ITERATIONS_MAX
                                           : (uint32_t)wanted;
    if (!rc) rc = iterate(t, comm, kind, count, n);
    if (!rc) rc = psrt_allreduce(t->world, t->us, t->us, n, PSRT_F64, PSRT_MAX, NULL);
    *us_p = bench_median(t->us, n);
    return rc;
}

/* ---- one collective ----------------------------------------------------------------------------- */

static size_t list_sizes(const tuner_t *t, unsigned kind, tune_best_t best[TUNE_SIZES])
{
    const tune_options_t *o = t->options;
    size_t n = 0;
    if (kind == COLL_BARRIER) {
        best[0] = (tune_best_t){ .bytes = 0 };
        return 1;
    }
    for (uint64_t bytes = o->min; bytes <= o->max && n < TUNE_SIZES; bytes *= o->factor) {
        uint64_t part = bytes / (has_parts(kind) ? t->ranks : 1) / sizeof(float) * sizeof(float);
        if (part) best[n++] = (tune_best_t){ .bytes = part };
    }
    return n;
}

static psrt_status_t try_algorithm(tuner_t *t, unsigned kind, const char *name, tune_best_t *best,
                                   size_t count)
{
    char rule[96];
    psrt_comm_params_t params = PSRT_COMM_PARAMS_INIT;
    psrt_comm_t *comm = NULL;
    snprintf(rule, sizeof rule, "%s::%s", coll_kind_names[kind], name);
    params.tune = rule;
    psrt_status_t rc = psrt_comm_create(t->ctx, &params, &comm, NULL);
    for (size_t i = 0; !rc && i < count; i++) {
        double us = 0;
        rc = measure(t, comm, kind, best[i].bytes / sizeof(float), &us);
        if (rc || (best[i].us > 0 && best[i].us <= us)) continue;
        best[i].us = us;
        snprintf(best[i].algorithm, sizeof best[i].algorithm, "%s", name);
    }
    psrt_comm_free(comm);
    return rc;
}

/* The list of algorithms is the last line of the text that begins with the collective's name. */
static const char *algorithms_of(const tuner_t *t, unsigned kind)
{
    size_t len = strlen(coll_kind_names[kind]);
    const char *found = NULL;
    for (const char *line = t->algorithms; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, coll_kind_names[kind], len) && line[len] == ' ') found = line + len;
    }
    return found;
}

static psrt_status_t tune_kind(tuner_t *t, unsigned kind, FILE *out, const char *where)
{
    tune_best_t best[TUNE_SIZES];
    char name[TUNE_NAME];
    psrt_status_t rc = PSRT_OK;
    size_t count = list_sizes(t, kind, best);
    const char *list = algorithms_of(t, kind);

    while (!rc && list && *(list += strspn(list, " ")) > ' ') {
        size_t len = strcspn(list, " \n");
        snprintf(name, sizeof name, "%.*s", (int)len, list);
        list += len;
        rc = try_algorithm(t, kind, name, best, count);
    }
    if (!rc && out) tune_print(out, coll_kind_names[kind], best, count, where);
    return rc;
}

/* ---- all ---------------------------------------------------------------------------------------- */

static int tuner_open(tuner_t *t, const tune_options_t *o)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    *t = (tuner_t){ .options = o };
    if (psrt_context_create(NULL, &t->ctx) || psrt_comm_create(t->ctx, NULL, &t->world, NULL) ||
        psrt_comm_query(t->world, &attr) || psrt_collectives_describe(&t->algorithms))
        return bench_fail("%s", psrt_last_error());
    t->rank = attr.rank;
    t->ranks = attr.ranks;
    t->hosts = attr.hosts;
    t->in = psrt_alloc(t->ctx, o->max);
    t->out = psrt_alloc(t->ctx, o->max);
    if (!t->in || !t->out) return bench_fail("%s", psrt_last_error());
    memset(t->in, 0, o->max);
    memset(t->out, 0, o->max);
    return 0;
}

static void tuner_close(tuner_t *t)
{
    psrt_comm_free(t->world);
    if (t->ctx) {
        psrt_free(t->ctx, t->in);
        psrt_free(t->ctx, t->out);
    }
    psrt_context_destroy(t->ctx);
    free(t->algorithms);
}

static int tune_all(tuner_t *t, FILE *out)
{
    const char *hosts = t->hosts == 1 ? "one" : t->hosts == t->ranks ? "flat" : "nested";
    char where[64];
    snprintf(where, sizeof where, " ranks=%u hosts=%s", t->ranks, hosts);
    if (out)
        fprintf(out, "# psrt-bench tune: %u ranks on %u %s; medians of the slowest rank\n",
                t->ranks, t->hosts, t->hosts == 1 ? "host" : "hosts");
    for (unsigned kind = 0; kind < TUNE_KINDS; kind++)
        if (t->options->kinds & 1u << kind && tune_kind(t, kind, out, where))
            return bench_fail("%s: %s", coll_kind_names[kind], psrt_last_error());
    return 0;
}

int bench_tune(int argc, char **argv)
{
    tune_options_t options;
    FILE *out = NULL;
    int result = tune_options_parse(argc, argv, &options);
    if (result != BENCH_RUN) return result;
    tuner_t *t = malloc(sizeof *t);
    if (!t) return bench_fail("out of memory"), BENCH_FAILED;
    int failed = tuner_open(t, &options);
    if (!failed && t->rank == 0 && !(out = fopen(options.out, "we")))
        failed = bench_fail("--out %s: %s", options.out, strerror(errno));
    if (!failed) failed = tune_all(t, out);
    if (out && fclose(out) && !failed)
        failed = bench_fail("--out %s: %s", options.out, strerror(errno));
    tuner_close(t);
    free(t);
    return failed ? BENCH_FAILED : BENCH_OK;
}
