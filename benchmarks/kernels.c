/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <psrt/ext/kernels_v1.h>

#include "flags.h"
#include "stats.h"

#define ROUNDS 5
#define VARIANTS_MAX 8
#define HUGE_PAGE ((uint64_t)2 << 20)
#define PARTS (2 + PSRT_OPTIMIZER_MAX_STATES) /* dst or value, src or gradient, states */

/* A byte that makes a normal number of every floating type: 0x3f3f is 1.8 in f16, 0.75 in bf16. */
#define FILL 0x3f

typedef struct bench {
    const kernels_options_t *options;
    FILE *json;
    int rows;
    uint64_t bytes;    /* of a part */
    void *part[PARTS]; /* room for the largest size each */
} bench_t;

/* Something to time: one call does all n elements. */
typedef struct work {
    void (*call)(const struct work *work);
    const bench_t *bench;
    size_t index; /* of the kernel */
    psrt_kernel_info_t info;
    const psrt_optimizer_ops_t *ops;
    int wide; /* optimizer: f64 */
    uint64_t n;
} work_t;

static void call_memcpy(const work_t *w)
{
    memcpy(w->bench->part[0], w->bench->part[1], w->bench->bytes);
}

static void call_kernel(const work_t *w)
{
    void *const *part = w->bench->part;
    if (w->info.b_bytes)
        psrt_kernel_run(w->index, part[0], part[0], part[1], w->n);
    else
        psrt_kernel_run(w->index, part[0], part[1], NULL, w->n);
}

static void call_plain_kernel(const work_t *w)
{
    const uint32_t src_bytes = w->info.b_bytes ? w->info.b_bytes : w->info.a_bytes;
    kernels_plain_fn *plain = kernels_plain(w->info.dst_bytes, src_bytes, w->info.b_bytes != 0);
    plain(w->bench->part[0], w->bench->part[1], w->n);
}

static void call_optimizer(const work_t *w)
{
    void *const *part = w->bench->part;
    psrt_apply_t block = { .n = w->n,
                           .grad = part[1],
                           .value_in = part[0],
                           .value_out = part[0],
                           .params = w->ops->param_defaults,
                           .t = 5,
                           .update = part[1],
                           .grad_norm = 1,
                           .value_norm = 1,
                           .update_norm = 1 };
    memcpy(block.state, part + 2, sizeof block.state);
    if (w->ops->prepare_f32) (w->wide ? w->ops->prepare_f64 : w->ops->prepare_f32)(&block);
    (w->wide ? w->ops->apply_f64 : w->ops->apply_f32)(&block);
}

/* Elements that one call reads and writes, of each. With two phases the second one reads the update and
 * the value again and writes one of them. */
static int optimizer_touches(const psrt_optimizer_ops_t *ops)
{
    return 3 + 2 * ops->num_states + (ops->prepare_f32 ? 3 : 0);
}

static void call_plain_optimizer(const work_t *w)
{
    void *const *part = w->bench->part;
    void (*plain)(const void *, void *, void *const *, int, uint64_t) =
        w->wide ? kernels_plain_f64 : kernels_plain_f32;
    plain(part[1], part[0], part + 2, w->ops->num_states, w->n);
    if (w->ops->prepare_f32) plain(part[1], part[0], NULL, 0, w->n);
}

/* Seconds of one call, over as many as fill `least`; the first one does not count. */
static double seconds_of(const work_t *work, double least)
{
    uint64_t calls = 0, batch = 1, elapsed;
    work->call(work);
    uint64_t start = bench_now();
    do {
        for (uint64_t i = 0; i < batch; i++)
            work->call(work);
        calls += batch;
        batch *= 2;
        elapsed = bench_now() - start;
    } while ((double)elapsed < least * 1e9);
    return (double)elapsed / 1e9 / (double)calls;
}

static void print_row(bench_t *b, const char *kernel, const char *variant, double gbps,
                      double memcpy_gbps, double plain_gbps)
{
    const double ratio = gbps / plain_gbps;
    unsigned long long bytes = b->bytes;
    printf("%-20s %-8s %10llu %9.2f %9.2f %9.2f %7.3f\n", kernel, variant, bytes, gbps, memcpy_gbps,
           plain_gbps, ratio);
    fflush(stdout);
    if (b->json)
        fprintf(b->json,
                "%s{\"kernel\": \"%s\", \"variant\": \"%s\", \"bytes\": %llu, \"gbps\": %.6g, "
                "\"memcpy_gbps\": %.6g, \"plain_gbps\": %.6g, \"ratio\": %.6g}",
                b->rows ? ",\n " : "[", kernel, variant, bytes, gbps, memcpy_gbps, plain_gbps,
                ratio);
    b->rows++;
}

/* Measures `count` ways to do the same (their names in `variants`), memcpy and the plain loop in turns,
 * and prints a row for each way. `moved` is what one call reads and writes. */
static void measure(bench_t *b, const char *kernel, const work_t *ways, const char *const *variants,
                    size_t count, void (*plain)(const work_t *), double moved)
{
    work_t all[VARIANTS_MAX + 2];
    double time[VARIANTS_MAX + 2][ROUNDS];
    memcpy(all, ways, count * sizeof *ways);
    all[count] = all[count + 1] = ways[0];
    all[count].call = call_memcpy;
    all[count + 1].call = plain;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < count + 2; i++)
            time[i][round] = seconds_of(&all[i], b->options->seconds / ROUNDS);

    double memcpy_gbps = 2 * (double)b->bytes / bench_median(time[count], ROUNDS) / 1e9;
    double plain_gbps = moved / bench_median(time[count + 1], ROUNDS) / 1e9;
    for (size_t i = 0; i < count; i++)
        print_row(b, kernel, variants[i], moved / bench_median(time[i], ROUNDS) / 1e9, memcpy_gbps,
                  plain_gbps);
}

static void refill(bench_t *b, int parts)
{
    for (int i = 0; i < parts; i++)
        memset(b->part[i], FILL, b->bytes);
}

static uint32_t largest(const psrt_kernel_info_t *info)
{
    return info->dst_bytes > info->a_bytes ? info->dst_bytes : info->a_bytes;
}

/* Measures the kernel of entry `first` and returns the entry of the next one. */
static size_t measure_kernel(bench_t *b, size_t first)
{
    work_t ways[VARIANTS_MAX];
    const char *variants[VARIANTS_MAX];
    size_t count = 0, index = first;
    psrt_kernel_info_t info = { .size = sizeof info };
    const char *name = NULL;
    for (; psrt_kernel_query(index, &info) == PSRT_OK; index++) {
        if (name && strcmp(info.name, name) != 0) break;
        name = info.name;
        if (!info.available || count == VARIANTS_MAX) continue;
        variants[count] = info.variant;
        ways[count++] = (work_t){ .call = call_kernel,
                                  .bench = b,
                                  .index = index,
                                  .info = info,
                                  .n = b->bytes / largest(&info) };
    }
    if (!count) return index;
    const psrt_kernel_info_t *k = &ways[0].info;
    refill(b, 2);
    measure(b, name, ways, variants, count, call_plain_kernel,
            (double)ways[0].n * (k->dst_bytes + k->a_bytes + k->b_bytes));
    return index;
}

static void measure_optimizer(bench_t *b, const psrt_optimizer_ops_t *ops, int wide)
{
    static const char *const variant = "auto";
    char name[64];
    const uint64_t elem = wide ? sizeof(double) : sizeof(float);
    work_t work = {
        .call = call_optimizer, .bench = b, .ops = ops, .wide = wide, .n = b->bytes / elem
    };
    snprintf(name, sizeof name, "apply_%s_%s", ops->name, wide ? "f64" : "f32");
    refill(b, PARTS);
    measure(b, name, &work, &variant, 1, call_plain_optimizer,
            (double)b->bytes * optimizer_touches(ops));
}

static void measure_size(bench_t *b, uint64_t bytes)
{
    const psrt_optimizer_ops_t *ops;
    psrt_kernel_info_t info = { .size = sizeof info };
    b->bytes = bytes;
    for (size_t i = 0; psrt_kernel_query(i, &info) == PSRT_OK;)
        i = measure_kernel(b, i);
    for (size_t i = 0; psrt_optimizer_query(i, &ops) == PSRT_OK; i++) {
        measure_optimizer(b, ops, 0);
        measure_optimizer(b, ops, 1);
    }
}

/* Huge pages where there are any, as for the limits of `ps`. */
static int allocate(bench_t *b)
{
    uint64_t most = 0;
    for (size_t i = 0; i < b->options->size_count; i++)
        if (b->options->sizes[i] > most) most = b->options->sizes[i];
    most = (most + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    for (int i = 0; i < PARTS; i++) {
        b->part[i] = aligned_alloc(HUGE_PAGE, most);
        if (!b->part[i])
            return bench_fail("no memory for %d buffers of %llu bytes", PARTS,
                              (unsigned long long)most);
        madvise(b->part[i], most, MADV_HUGEPAGE);
    }
    return 0;
}

static int run(bench_t *b)
{
    const char *path = b->options->json;
    if (allocate(b)) return BENCH_FAILED;
    if (path && !(b->json = fopen(path, "w"))) {
        bench_fail("cannot write %s", path);
        return BENCH_FAILED;
    }
    printf("%-20s %-8s %10s %9s %9s %9s %7s\n", "kernel", "variant", "bytes", "GB/s", "memcpy",
           "plain", "ratio");
    for (size_t i = 0; i < b->options->size_count; i++)
        measure_size(b, b->options->sizes[i]);
    if (!b->json) return BENCH_OK;
    fputs("]\n", b->json);
    int failed = ferror(b->json);
    failed |= fclose(b->json);
    if (failed) bench_fail("cannot write %s", path);
    return failed ? BENCH_FAILED : BENCH_OK;
}

int bench_kernels(int argc, char **argv)
{
    kernels_options_t options;
    int code = kernels_options_parse(argc, argv, &options);
    if (code != BENCH_RUN) return code;
    bench_t b = { .options = &options };
    code = run(&b);
    for (int i = 0; i < PARTS; i++)
        free(b.part[i]);
    return code;
}
