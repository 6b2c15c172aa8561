/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the CPU variant. */
#include "kernels/kernels.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/names.h"

static const psrti_kernels_t *const variants[] = {
#if defined(__x86_64__)
    &psrti_kernels_avx512,
    &psrti_kernels_avx2,
#elif defined(__aarch64__)
    &psrti_kernels_neon,
#endif
    &psrti_kernels_scalar,
    NULL,
};

const psrti_kernels_t *const *psrti_kernels_all(void) { return variants; }

static const psrti_kernels_t *best(void)
{
    size_t i = 0;
    while (i < PSRTI_COUNT(variants) - 2 && !variants[i]->supported())
        i++;
    return variants[i]; /* at last the scalar one */
}

psrt_status_t psrti_kernels_select(const char *name, const psrti_kernels_t **kernels_p)
{
    const char *names[PSRTI_COUNT(variants)] = { NULL };
    size_t count = 0;
    if (!name || !*name) {
        *kernels_p = best();
        return PSRT_OK;
    }
    for (; variants[count]; count++) {
        const psrti_kernels_t *k = variants[count];
        names[count] = k->name;
        if (strcmp(k->name, name) != 0) continue;
        if (!k->supported())
            return psrti_fail(PSRT_ERR_INVALID, "kernels variant %s: this processor lacks it",
                              name);
        *kernels_p = k;
        return PSRT_OK;
    }
    return psrti_fail_unknown("kernels variant", name, names, count);
}

double psrti_squares_total(const psrti_squares_t *sum)
{
    double total = 0;
    for (int j = 0; j < PSRTI_LANES; j++)
        total += sum->lane[j];
    return total;
}

void psrt_kernel_copy(void *dst, const void *src, uint64_t bytes) { best()->copy(dst, src, bytes); }

void psrt_kernel_add_f32(float *dst, const float *src, uint64_t elements)
{
    best()->f32.add(dst, dst, src, elements);
}
