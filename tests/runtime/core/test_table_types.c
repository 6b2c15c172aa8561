/* SPDX-License-Identifier: Apache-2.0 */
/* What a table may be: types, codecs, integers, sizes. */
#include "runtime/core/table_spec.h"

#include <string.h>

#include "support/test.h"

static psrt_dense_params_t params_of(psrt_dtype_t dtype)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = dtype;
    p.ndim = 1;
    p.shape[0] = 10;
    return p;
}

static void refused(const psrt_dense_params_t *p, const char *text)
{
    psrti_table_spec_t spec;
    cr_assert_eq(psrti_table_spec_make("w", p, &spec), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "table w") && strstr(psrt_last_error(), text),
              "\"%s\" does not say \"%s\"", psrt_last_error(), text);
}

Test(table_spec, types)
{
    static const struct {
        psrt_dtype_t dtype, values, acc;
        int average;
    } cases[] = {
        { PSRT_DTYPE_NONE, PSRT_F32, PSRT_F32, 1 }, { PSRT_F32, PSRT_F32, PSRT_F32, 1 },
        { PSRT_F64, PSRT_F64, PSRT_F64, 1 },        { PSRT_F16, PSRT_F16, PSRT_F32, 1 },
        { PSRT_BF16, PSRT_BF16, PSRT_F32, 1 },      { PSRT_I32, PSRT_I32, PSRT_I32, 0 },
        { PSRT_I64, PSRT_I64, PSRT_I64, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        psrt_dense_params_t p = params_of(cases[i].dtype);
        psrti_table_spec_t s;
        cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
        cr_assert(s.value_dtype == cases[i].values && s.grad_dtype == cases[i].values);
        cr_assert_eq(s.acc_dtype, cases[i].acc);
        cr_assert_eq(s.average, cases[i].average);
        cr_assert_eq(psrti_table_spec_wire(&s, s.value_dtype), cases[i].values);
        cr_assert_eq(psrti_table_spec_check(&s), PSRT_OK, "%s", psrt_last_error());
        s.acc_dtype = s.acc_dtype == PSRT_F64 ? PSRT_F32 : PSRT_F64;
        cr_assert_eq(psrti_table_spec_check(&s), PSRT_ERR_PROTOCOL);
    }
    static const psrt_dtype_t of_collectives[] = { PSRT_I8, PSRT_I16, PSRT_U8 };
    for (size_t i = 0; i < sizeof of_collectives / sizeof of_collectives[0]; i++) {
        psrt_dense_params_t small = params_of(of_collectives[i]);
        refused(&small, psrt_dtype_name(of_collectives[i]));
        refused(&small, "is for collectives");
    }
    psrt_dense_params_t p = params_of((psrt_dtype_t)(PSRT_U8 + 1));
    refused(&p, "dtype 10");
}

Test(table_spec, codecs)
{
    psrti_table_spec_t s, other;
    char why[512];
    psrt_dense_params_t p = params_of(PSRT_F32);
    cr_assert_eq(psrti_table_spec_make("w", &p, &other), PSRT_OK);
    cr_assert_eq(other.codec, PSRTI_CODEC_NONE);
    p.codec = "bf16";
    cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
    cr_assert(s.codec == PSRTI_CODEC_BF16 && s.value_dtype == PSRT_F32 && s.grad_dtype == PSRT_F32);
    cr_assert_eq(psrti_table_spec_wire(&s, s.grad_dtype), PSRT_BF16);
    cr_assert_eq(psrti_table_spec_check(&s), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_table_spec_compare(&s, "worker:0", &other, "worker:1", why, sizeof why),
                 PSRT_ERR_MISMATCH);
    cr_assert_str_eq(why, "table w: codec is bf16 on worker:0, but none on worker:1");
    s.codec = PSRTI_CODECS;
    cr_assert_eq(psrti_table_spec_check(&s), PSRT_ERR_PROTOCOL);
    p.codec = "f8";
    refused(&p, "codec \"f8\" is not none, f16 or bf16");
    p.codec = "f16";
    p.dtype = PSRT_F64;
    refused(&p, "codec f16 is for f32 tables, this one is f64");
    p.dtype = PSRT_BF16;
    refused(&p, "this one is bf16");
}

Test(table_spec, integers)
{
    static const char *const bad[] = { "uniform", "he", "constant:value=1.5", "constant:value=3e9",
                                       "constant:value=nan" };
    psrti_table_spec_t s;
    psrt_dense_params_t p = params_of(PSRT_I32);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        p.init = bad[i];
        refused(&p, "init");
    }
    static const char *const good[] = { "zeros", "rank0", "constant:value=-2147483648",
                                        "constant:value=2147483647", NULL };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        p.init = good[i];
        cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
    }
    p.reduce = "sum";
    cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
    p.reduce = "average";
    refused(&p, "average of i32");
    p.reduce = NULL;
    p.optimizer = "sgd:lr=1";
    refused(&p, "optimizer sgd");
    p.optimizer = "none:ema=0.5";
    refused(&p, "optimizer none:ema=0.5");
    p.optimizer = "none";
    p.dtype = PSRT_I64;
    p.init = "constant:value=9007199254740992"; /* 2^53 */
    cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
    p.init = "constant:value=9007199254740994";
    refused(&p, "init");
}

Test(table_spec, sizes)
{
    static const uint64_t sizes[] = { 1, (1ull << 31) - 1, (1ull << 31) + 1, (1ull << 32) + 3 };
    psrti_table_spec_t s;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        psrt_dense_params_t p = params_of(PSRT_F64);
        p.ndim = 3;
        p.shape[0] = 1, p.shape[1] = sizes[i], p.shape[2] = 1;
        cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK, "%s", psrt_last_error());
        cr_assert_eq(s.elements, sizes[i]);
        cr_assert_eq(psrti_table_spec_check(&s), PSRT_OK);
    }
    psrt_dense_params_t p = params_of(PSRT_BF16);
    p.ndim = 2;
    p.shape[0] = 1ull << 31, p.shape[1] = 1ull << 30; /* 2^62 bytes */
    cr_assert_eq(psrti_table_spec_make("w", &p, &s), PSRT_OK);
    cr_assert_eq(s.elements, 1ull << 61);
    p.shape[1]++;
    refused(&p, "2^62");
}
