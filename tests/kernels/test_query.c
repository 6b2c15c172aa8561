/* SPDX-License-Identifier: Apache-2.0 */
#include <psrt/ext/kernels_v1.h>

#include <string.h>

#include "kernels/kernels.h"
#include "support/test.h"

static psrt_kernel_info_t info_of(size_t index)
{
    psrt_kernel_info_t info = { .size = sizeof info };
    cr_assert_eq(psrt_kernel_query(index, &info), PSRT_OK);
    cr_assert(info.name && info.variant);
    return info;
}

static size_t entries(void)
{
    psrt_kernel_info_t info = { .size = sizeof info };
    size_t count = 0;
    while (psrt_kernel_query(count, &info) == PSRT_OK)
        count++;
    return count;
}

Test(query, every_kernel_of_every_variant_once)
{
    const psrti_kernels_t *const *all = psrti_kernels_all();
    size_t variants = 1, count = entries();
    while (all[variants])
        variants++;
    cr_assert_eq(count, 29 * variants);
    for (size_t i = 0; i < count; i++) {
        psrt_kernel_info_t a = info_of(i);
        cr_assert_eq(a.size, sizeof a);
        cr_assert_eq(a.available, all[i % variants]->supported());
        for (size_t other = 0; other < i; other++) {
            psrt_kernel_info_t b = info_of(other);
            cr_assert(strcmp(a.name, b.name) != 0 || strcmp(a.variant, b.variant) != 0);
        }
    }
    cr_assert_eq(psrt_kernel_run(count, NULL, NULL, NULL, 0), PSRT_ERR_NOT_FOUND);
    psrt_kernel_info_t unset = { 0 };
    cr_assert_eq(psrt_kernel_query(0, &unset), PSRT_ERR_INVALID);
}

/* Each row runs what its name and its sizes say: on small integers, which every format holds. */
static void put_number(const char *type, void *array, size_t i, int value)
{
    static const uint16_t f16[] = { 0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600 };
    if (strcmp(type, "f64") == 0)
        ((double *)array)[i] = value;
    else if (strcmp(type, "f32") == 0)
        ((float *)array)[i] = (float)value;
    else if (strcmp(type, "i32") == 0)
        ((int32_t *)array)[i] = value;
    else if (strcmp(type, "i64") == 0)
        ((int64_t *)array)[i] = value;
    else if (strcmp(type, "f16") == 0)
        ((uint16_t *)array)[i] = f16[value];
    else if (strcmp(type, "bf16") == 0) {
        float wide = (float)value;
        uint32_t bits;
        memcpy(&bits, &wide, sizeof bits);
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    } else
        ((uint8_t *)array)[i] = (uint8_t)value;
}

static const struct call {
    const char *name, *dst, *a, *b;
    int av, bv, result;
} calls[] = {
    { "copy", "u8", "u8", "u8", 5, 0, 5 },
    { "stream", "u8", "u8", "u8", 5, 0, 5 },
    { "add_f32", "f32", "f32", "f32", 2, 4, 6 },
    { "add_f64", "f64", "f64", "f64", 2, 4, 6 },
    { "add_i32", "i32", "i32", "i32", 2, 4, 6 },
    { "add_i64", "i64", "i64", "i64", 2, 4, 6 },
    { "add_f16_to_f32", "f32", "f32", "f16", 2, 4, 6 },
    { "add_bf16_to_f32", "f32", "f32", "bf16", 2, 4, 6 },
    { "divide_f32", "f32", "f32", "u8", 6, 0, 2 },
    { "divide_f64", "f64", "f64", "u8", 6, 0, 2 },
    { "scale_f32", "f32", "f32", "u8", 2, 0, 6 },
    { "scale_f64", "f64", "f64", "u8", 2, 0, 6 },
    { "squares_f32", "u8", "f32", "u8", 2, 0, 0 },
    { "squares_f64", "u8", "f64", "u8", 2, 0, 0 },
    { "f32_from_f16", "f32", "f16", "u8", 5, 0, 5 },
    { "f16_from_f32", "f16", "f32", "u8", 5, 0, 5 },
    { "f32_from_bf16", "f32", "bf16", "u8", 5, 0, 5 },
    { "bf16_from_f32", "bf16", "f32", "u8", 5, 0, 5 },
    { "reduce_sum_f32", "f32", "f32", "f32", 2, 4, 6 },
    { "reduce_sum_f64", "f64", "f64", "f64", 2, 4, 6 },
    { "reduce_sum_f16", "f16", "f16", "f16", 2, 4, 6 },
    { "reduce_sum_bf16", "bf16", "bf16", "bf16", 2, 4, 6 },
    { "reduce_sum_i8", "u8", "u8", "u8", 2, 4, 6 },
    { "reduce_prod_i64", "i64", "i64", "i64", 2, 4, 8 },
    { "reduce_max_f32", "f32", "f32", "f32", 2, 4, 4 },
    { "reduce_max_bf16", "bf16", "bf16", "bf16", 2, 4, 4 },
    { "reduce_avg_f32", "f32", "f32", "f32", 2, 4, 3 },
    { "reduce_avg_i8", "u8", "u8", "u8", 2, 4, 3 },
    { "reduce_stream_f32", "f32", "f32", "f32", 2, 4, 6 },
};

static const struct call *call_of(const char *name)
{
    const struct call *found = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0) found = &calls[i];
    cr_assert(found, "%s has no row here", name);
    return found;
}

Test(query, runs_what_it_names)
{
    enum { N = 100 };
    for (size_t index = 0, count = entries(); index < count; index++) {
        psrt_kernel_info_t info = info_of(index);
        uint64_t a[N] = { 0 }, b[N] = { 0 }, dst[N] = { 0 }, expected[N] = { 0 };
        const struct call *call = call_of(info.name);
        for (size_t i = 0; i < N; i++) {
            put_number(call->a, a, i, call->av);
            put_number(call->b, b, i, call->bv);
            put_number(call->dst, expected, i, call->result);
        }
        psrt_status_t status = psrt_kernel_run(index, dst, a, b, N);
        cr_assert_eq(status, info.available ? PSRT_OK : PSRT_ERR_INVALID);
        if (!info.available) continue;
        cr_assert_arr_eq(dst, expected, sizeof dst, "%s %s", info.name, info.variant);
        int value_bytes = 0;
        for (size_t byte = 0; byte < sizeof dst; byte++)
            if (((unsigned char *)dst)[byte]) value_bytes = (int)byte + 1;
        cr_assert_leq(value_bytes, (int)(N * info.dst_bytes), "%s %s", info.name, info.variant);
        if (!info.dst_bytes) continue;
        cr_assert_gt(value_bytes, (int)((N - 1) * info.dst_bytes), "%s %s", info.name,
                     info.variant);
    }
}

Test(query, optimizers)
{
    const psrt_optimizer_ops_t *ops = NULL;
    size_t count = 0, adam = 0;
    for (; psrt_optimizer_query(count, &ops) == PSRT_OK; count++)
        adam += strcmp(ops->name, "adam") == 0;
    cr_assert_eq(adam, 1u);
    cr_assert_gt(count, 2u);
}
