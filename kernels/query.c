/* SPDX-License-Identifier: Apache-2.0 */
/* The public lists of include/psrt/ext/kernels_v1.h. */
#include <psrt/ext/kernels_v1.h>

#include "base/log.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "kernels/reduce.h"
#include "kernels/registry.h"

/* Name; bytes of an element of dst, a, b; the call. */
#define KERNELS(X)                                                                                 \
    X(copy, 1, 1, 0, k->copy(dst, a, n))                                                           \
    X(stream, 1, 1, 0, k->stream(dst, a, n))                                                       \
    X(add_f32, 4, 4, 4, k->f32.add(dst, a, b, n))                                                  \
    X(add_f64, 8, 8, 8, k->f64.add(dst, a, b, n))                                                  \
    X(add_i32, 4, 4, 4, k->add_i32(dst, a, b, n))                                                  \
    X(add_i64, 8, 8, 8, k->add_i64(dst, a, b, n))                                                  \
    X(add_f16_to_f32, 4, 4, 2, k->f16.add_to_f32(dst, a, b, n))                                    \
    X(add_bf16_to_f32, 4, 4, 2, k->bf16.add_to_f32(dst, a, b, n))                                  \
    X(divide_f32, 4, 4, 0, k->f32.divide(dst, a, 3, n))                                            \
    X(divide_f64, 8, 8, 0, k->f64.divide(dst, a, 3, n))                                            \
    X(scale_f32, 4, 4, 0, k->f32.scale(dst, a, 3, n))                                              \
    X(scale_f64, 8, 8, 0, k->f64.scale(dst, a, 3, n))                                              \
    X(squares_f32, 0, 4, 0, squares(k->f32.squares, a, n))                                         \
    X(squares_f64, 0, 8, 0, squares(k->f64.squares, a, n))                                         \
    X(f32_from_f16, 4, 2, 0, k->f16.to_f32(dst, a, n))                                             \
    X(f16_from_f32, 2, 4, 0, k->f16.from_f32(dst, a, n))                                           \
    X(f32_from_bf16, 4, 2, 0, k->bf16.to_f32(dst, a, n))                                           \
    X(bf16_from_f32, 2, 4, 0, k->bf16.from_f32(dst, a, n))                                         \
    X(reduce_sum_f32, 4, 4, 4, reduce(k, PSRT_F32, PSRT_SUM, dst, a, b, n))                        \
    X(reduce_sum_f64, 8, 8, 8, reduce(k, PSRT_F64, PSRT_SUM, dst, a, b, n))                        \
    X(reduce_sum_f16, 2, 2, 2, reduce(k, PSRT_F16, PSRT_SUM, dst, a, b, n))                        \
    X(reduce_sum_bf16, 2, 2, 2, reduce(k, PSRT_BF16, PSRT_SUM, dst, a, b, n))                      \
    X(reduce_sum_i8, 1, 1, 1, reduce(k, PSRT_I8, PSRT_SUM, dst, a, b, n))                          \
    X(reduce_prod_i64, 8, 8, 8, reduce(k, PSRT_I64, PSRT_PROD, dst, a, b, n))                      \
    X(reduce_max_f32, 4, 4, 4, reduce(k, PSRT_F32, PSRT_MAX, dst, a, b, n))                        \
    X(reduce_max_bf16, 2, 2, 2, reduce(k, PSRT_BF16, PSRT_MAX, dst, a, b, n))                      \
    X(reduce_avg_f32, 4, 4, 4, reduce(k, PSRT_F32, PSRT_AVG, dst, a, b, n))                        \
    X(reduce_avg_i8, 1, 1, 1, reduce(k, PSRT_I8, PSRT_AVG, dst, a, b, n))                          \
    X(reduce_stream_f32, 4, 4, 4, stream_sum(k, dst, a, b, n))

/* The total is of no use here, but it has to be computed. */
static void squares(psrti_squares_fn add, const void *a, uint64_t n)
{
    psrti_squares_t sum = { .nonfinite = 0 };
    add(&sum, a, n);
}

static void reduce(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                   const void *a, const void *b, uint64_t n)
{
    psrti_reduce(k, dtype, op, dst, (const void *[]){ a, b }, 2, n, 2);
}

static void stream_sum(const psrti_kernels_t *k, void *dst, const void *a, const void *b,
                       uint64_t n)
{
    psrti_reduce_stream(k, PSRT_F32, PSRT_SUM, dst, (const void *[]){ a, b }, 2, n, 0);
}

#define DEFINE_RUN(name, dst_bytes, a_bytes, b_bytes, call)                                        \
    static void run_##name(const psrti_kernels_t *k, void *dst, const void *a, const void *b,      \
                           uint64_t n)                                                             \
    {                                                                                              \
        (void)dst, (void)b;                                                                        \
        call;                                                                                      \
    }
KERNELS(DEFINE_RUN)

#define ROW(name, dst_bytes, a_bytes, b_bytes, call)                                               \
    { #name, dst_bytes, a_bytes, b_bytes, run_##name },
static const struct kernel {
    const char *name;
    uint32_t dst_bytes, a_bytes, b_bytes;
    void (*run)(const psrti_kernels_t *k, void *dst, const void *a, const void *b, uint64_t n);
} kernels[] = { KERNELS(ROW) };

/* The variant of entry `index`, and its kernel; NULL past the end. */
static const psrti_kernels_t *find(size_t index, const struct kernel **kernel_p)
{
    const psrti_kernels_t *const *all = psrti_kernels_all();
    size_t variants = 1; /* the scalar one is always there */
    while (all[variants])
        variants++;
    if (index / variants >= PSRTI_COUNT(kernels)) {
        psrti_fail(PSRT_ERR_NOT_FOUND, "no kernel with this index");
        return NULL;
    }
    *kernel_p = &kernels[index / variants];
    return all[index % variants];
}

psrt_status_t psrt_kernel_query(size_t index, psrt_kernel_info_t *info)
{
    if (!info || info->size != sizeof *info)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_kernel_query: `size` of the struct is not set");
    const struct kernel *kernel;
    const psrti_kernels_t *variant = find(index, &kernel);
    if (!variant) return PSRT_ERR_NOT_FOUND;
    *info = (psrt_kernel_info_t){
        .size = sizeof *info,
        .name = kernel->name,
        .variant = variant->name,
        .available = variant->supported(),
        .dst_bytes = kernel->dst_bytes,
        .a_bytes = kernel->a_bytes,
        .b_bytes = kernel->b_bytes,
    };
    return PSRT_OK;
}

psrt_status_t psrt_kernel_run(size_t index, void *dst, const void *a, const void *b, uint64_t n)
{
    const struct kernel *kernel;
    const psrti_kernels_t *variant = find(index, &kernel);
    if (!variant) return PSRT_ERR_NOT_FOUND;
    if (!variant->supported())
        return psrti_fail(PSRT_ERR_INVALID, "kernels variant %s: this processor lacks it",
                          variant->name);
    kernel->run(variant, dst, a, b, n);
    return PSRT_OK;
}

psrt_status_t psrt_optimizer_query(size_t index, const psrt_optimizer_ops_t **ops_p)
{
    const psrt_optimizer_ops_t *ops = psrti_optimizer_at(index);
    if (!ops) return psrti_fail(PSRT_ERR_NOT_FOUND, "no optimizer with this index");
    *ops_p = ops;
    return PSRT_OK;
}
