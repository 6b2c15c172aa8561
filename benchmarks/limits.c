/* SPDX-License-Identifier: Apache-2.0 */
#include "limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <psrt/psrt.h>

#include "stats.h"

#define HUGE_PAGE ((uint64_t)2 << 20)
#define ROUND_NS 200000u /* a round lasts at least so long, or one call */

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

limits_pass_fn *const limits_copies[LIMIT_KERNELS] = { copy_libc, copy_library };
limits_pass_fn *const limits_adds[LIMIT_KERNELS] = { add_compiler, psrt_kernel_add_f32 };

/* The time of one call, over as many calls as fill the round. The call goes through a pointer that
 * the compiler cannot see through, so that no call is merged with the next. */
static double time_pass(limits_pass_fn *pass, float *dst, const float *src, uint64_t elements)
{
    limits_pass_fn *volatile opaque = pass;
    uint64_t calls = 0, start = bench_now(), elapsed;
    uint64_t batch = 1;
    do {
        for (uint64_t i = 0; i < batch; i++)
            opaque(dst, src, elements);
        calls += batch;
        elapsed = bench_now() - start;
        batch *= 2;
    } while (elapsed < ROUND_NS);
    return (double)elapsed / (double)calls / 1000;
}

static double fastest(limits_pass_fn *const *passes, float *dst, const float *src,
                      uint64_t elements, unsigned *which_p)
{
    double us[LIMIT_KERNELS];
    *which_p = 0;
    for (unsigned i = 0; i < LIMIT_KERNELS; i++) {
        us[i] = time_pass(passes[i], dst, src, elements);
        if (us[i] < us[*which_p]) *which_p = i;
    }
    return us[*which_p];
}

/* Huge pages where there are any: the limit is what the machine can do, not what malloc gives. */
static float *allocate(uint64_t bytes, int ordinary)
{
    if (ordinary) return malloc(bytes);
    uint64_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
    if (memory) madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}

int limits_init(limits_t *limits, uint64_t elements, int ordinary)
{
    uint64_t bytes = elements * sizeof(float);
    *limits = (limits_t){ .elements = elements,
                          .table = allocate(bytes, 0),
                          .grad = allocate(bytes, ordinary),
                          .value = allocate(bytes, ordinary) };
    if (!limits->table || !limits->grad || !limits->value) {
        limits_free(limits);
        return -1;
    }
    memset(limits->table, 0, bytes); /* touches the pages; zeros stay normal numbers */
    memset(limits->grad, 0, bytes);
    memset(limits->value, 0, bytes);
    return 0;
}

void limits_free(limits_t *limits)
{
    free(limits->table);
    free(limits->grad);
    free(limits->value);
    *limits = (limits_t){ 0 };
}

void limits_measure(limits_t *l)
{
    if (l->rounds == LIMIT_ROUNDS) return;
    l->copy_us[l->rounds] = fastest(limits_copies, l->value, l->table, l->elements, &l->copy);
    l->add_us[l->rounds] = fastest(limits_adds, l->table, l->grad, l->elements, &l->add);
    l->rounds++;
}

double limits_copy_us(limits_t *limits) { return bench_median(limits->copy_us, limits->rounds); }

double limits_add_us(limits_t *limits) { return bench_median(limits->add_us, limits->rounds); }
