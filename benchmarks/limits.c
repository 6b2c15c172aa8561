/* SPDX-License-Identifier: Apache-2.0 */
#include "limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <psrt/psrt.h>

#include "stats.h"

#define HUGE_PAGE ((uint64_t)2 << 20)
#define ROUND_NS 200000u /* a round lasts at least so long, or one call */

typedef void pass_fn(float *dst, const float *src, uint64_t elements);

static void copy_libc(float *dst, const float *src, uint64_t elements)
{
    memcpy(dst, src, elements * sizeof *dst);
}

static void copy_library(float *dst, const float *src, uint64_t elements)
{
    psrt_kernel_copy(dst, src, elements * sizeof *dst);
}

static void add_compiler(float *dst, const float *src, uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++)
        dst[i] += src[i];
}

/* The time of one call, over as many calls as fill the round. The call goes through a pointer that
 * the compiler cannot see through, so that no call is merged with the next. */
static double time_pass(limits_t *limits, pass_fn *pass)
{
    pass_fn *volatile opaque = pass;
    uint64_t calls = 0, start = bench_now(), elapsed;
    uint64_t batch = 1;
    do {
        for (uint64_t i = 0; i < batch; i++)
            opaque(limits->dst, limits->src, limits->elements);
        calls += batch;
        elapsed = bench_now() - start;
        batch *= 2;
    } while (elapsed < ROUND_NS);
    return (double)elapsed / (double)calls / 1000;
}

static double faster(limits_t *limits, pass_fn *a, pass_fn *b)
{
    double x = time_pass(limits, a), y = time_pass(limits, b);
    return x < y ? x : y;
}

/* Huge pages where there are any: the limit is what the machine can do, not what malloc gives. */
static float *allocate(uint64_t bytes)
{
    uint64_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
    if (memory) madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}

int limits_init(limits_t *limits, uint64_t elements)
{
    uint64_t bytes = elements * sizeof(float);
    *limits = (limits_t){ .elements = elements, .dst = allocate(bytes), .src = allocate(bytes) };
    if (!limits->dst || !limits->src) {
        limits_free(limits);
        return -1;
    }
    for (uint64_t i = 0; i < elements; i++) /* touches the pages; zeros stay normal numbers */
        limits->dst[i] = limits->src[i] = 0;
    return 0;
}

void limits_free(limits_t *limits)
{
    free(limits->dst);
    free(limits->src);
    *limits = (limits_t){ 0 };
}

void limits_measure(limits_t *limits)
{
    if (limits->rounds == LIMIT_ROUNDS) return;
    limits->copy_us[limits->rounds] = faster(limits, copy_libc, copy_library);
    limits->add_us[limits->rounds] = faster(limits, add_compiler, psrt_kernel_add_f32);
    limits->rounds++;
}

double limits_copy_us(limits_t *limits) { return bench_median(limits->copy_us, limits->rounds); }

double limits_add_us(limits_t *limits) { return bench_median(limits->add_us, limits->rounds); }
