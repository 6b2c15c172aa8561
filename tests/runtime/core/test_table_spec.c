/* SPDX-License-Identifier: Apache-2.0 */
/* What a table's parameters become, what is refused, and what two declarers are told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "runtime/core/table_spec.h"
#include "support/test.h"

static psrt_dense_params_t params(void)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 2, p.shape[0] = 3, p.shape[1] = 5;
    return p;
}

static psrti_table_spec_t make(const psrt_dense_params_t *p)
{
    psrti_table_spec_t s;
    cr_assert_eq(psrti_table_spec_make("w", p, &s), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_table_spec_check(&s), PSRT_OK, "%s", psrt_last_error());
    return s;
}

/* Refused, and the text has both words. */
static void refuses(const psrt_dense_params_t *p, psrt_status_t status, const char *field,
                    const char *word)
{
    psrti_table_spec_t s;
    memset(&s, 7, sizeof s);
    psrti_table_spec_t before = s;
    cr_assert_eq(psrti_table_spec_make("w", p, &s), status, "%s %s: %s", field, word,
                 psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), field), "%s: %s", field, psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), word), "%s: %s", word, psrt_last_error());
    cr_assert_eq(memcmp(&s, &before, sizeof s), 0, "%s: the output was written", field);
}

Test(spec, defaults)
{
    psrt_dense_params_t p = params();
    psrti_table_spec_t s = make(&p);
    cr_assert_str_eq(s.name, "w");
    cr_assert_eq(s.value_dtype, PSRT_F32);
    cr_assert_eq(s.grad_dtype, PSRT_F32);
    cr_assert_eq(s.acc_dtype, PSRT_F32);
    cr_assert_eq(s.ndim, 2);
    cr_assert_eq(s.elements, 15);
    cr_assert_str_eq(s.init, "zeros");
    cr_assert_eq(s.consistency, PSRTI_SYNC);
    cr_assert_eq(s.average, 1);
    cr_assert_eq(s.deterministic, 0);
}

Test(spec, everything_given)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = PSRT_F64;
    p.ndim = 8;
    for (int i = 0; i < 8; i++)
        p.shape[i] = (uint64_t)i + 1;
    p.init = "normal:mean=0,std=0.1,seed=3";
    p.optimizer = "adam:lr=1e-3";
    p.consistency = "ssp:1000000";
    p.reduce = "sum";
    psrti_table_spec_t s = make(&p);
    cr_assert_eq(s.elements, 40320);
    cr_assert_eq(s.acc_dtype, PSRT_F64);
    cr_assert_eq(s.consistency, PSRTI_SSP);
    cr_assert_eq(s.staleness, 1000000);
    cr_assert_eq(s.average, 0);
    p.consistency = "ssp:0";
    cr_assert_eq(make(&p).staleness, 0);
    p.consistency = "async";
    cr_assert_eq(make(&p).consistency, PSRTI_ASYNC);
    p.consistency = "sync", p.deterministic = 5;
    cr_assert_eq(make(&p).deterministic, 1);
}

Test(spec, names)
{
    psrt_dense_params_t p = params();
    psrti_table_spec_t s;
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    cr_assert_eq(psrti_table_spec_make(name, &p, &s), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "name"));
    name[255] = '\0';
    cr_assert_eq(psrti_table_spec_make(name, &p, &s), PSRT_OK);
    cr_assert_str_eq(s.name, name);
    cr_assert_eq(psrti_table_spec_make("", &p, &s), PSRT_ERR_INVALID);
    cr_assert_eq(psrti_table_spec_make(NULL, &p, &s), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "name"));
}

Test(spec, size_of_the_struct)
{
    psrt_dense_params_t p = params();
    p.size = 0;
    refuses(&p, PSRT_ERR_INVALID, "table w", "PSRT_DENSE_PARAMS_INIT");
    refuses(NULL, PSRT_ERR_INVALID, "table w", "PSRT_DENSE_PARAMS_INIT");
}

Test(spec, shapes)
{
    psrt_dense_params_t p = params();
    p.ndim = 0;
    refuses(&p, PSRT_ERR_INVALID, "table w", "ndim is 0");
    p.ndim = -1;
    refuses(&p, PSRT_ERR_INVALID, "table w", "ndim is -1");
    p.ndim = 9;
    refuses(&p, PSRT_ERR_INVALID, "table w", "ndim is 9");
    p = params(), p.shape[1] = 0;
    refuses(&p, PSRT_ERR_INVALID, "table w", "shape[1] is 0");
    /* f32: 2^60 elements are 2^62 bytes, the most there may be. */
    p = params(), p.shape[0] = 1ull << 30, p.shape[1] = 1ull << 30;
    cr_assert_eq(make(&p).elements, 1ull << 60);
    p.dtype = PSRT_F64;
    refuses(&p, PSRT_ERR_INVALID, "table w", "shape");
    p = params(), p.shape[0] = 1ull << 32, p.shape[1] = 1ull << 32; /* product wraps to 0 */
    refuses(&p, PSRT_ERR_INVALID, "table w", "shape");
    p.ndim = 1, p.shape[0] = UINT64_MAX;
    refuses(&p, PSRT_ERR_INVALID, "table w", "shape");
}

Test(spec, dtypes)
{
    psrt_dense_params_t p = params(); /* the types there are: test_table_types.c */
    p.dtype = (psrt_dtype_t)99;
    refuses(&p, PSRT_ERR_INVALID, "dtype", "99");
}

Test(spec, texts)
{
    psrt_dense_params_t p = params();
    p.init = "zeroes";
    refuses(&p, PSRT_ERR_INVALID, "table w", "zeros");
    p.init = "";
    refuses(&p, PSRT_ERR_INVALID, "table w", "init");
    p = params(), p.optimizer = "adan:lr=1";
    refuses(&p, PSRT_ERR_INVALID, "table w", "adam");
    p.optimizer = "sgd:lr=fast";
    refuses(&p, PSRT_ERR_INVALID, "table w", "lr");
    p = params(), p.consistency = "asynch";
    refuses(&p, PSRT_ERR_INVALID, "consistency", "did you mean async?");
    static const char *const bad[] = { "ssp",     "ssp:",   "ssp:-1",  "ssp:1000001", "ssp:x",
                                       "ssp:1,2", "sync:1", "async:2", "ssp:s=1",     "" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        p.consistency = bad[i];
        refuses(&p, PSRT_ERR_INVALID, "table w", "consistency");
    }
    p = params(), p.consistency = "async", p.optimizer = "sgd:clip_norm=1";
    refuses(&p, PSRT_ERR_INVALID, "table w: optimizer sgd:", "needs consistency sync");
    p.consistency = "ssp:2", p.optimizer = "none:skip_nonfinite=1";
    refuses(&p, PSRT_ERR_INVALID, "table w: optimizer none:", "needs consistency sync");
    p = params(), p.reduce = "mean";
    refuses(&p, PSRT_ERR_INVALID, "reduce", "mean");
    p = params(), p.deterministic = 1, p.consistency = "async";
    refuses(&p, PSRT_ERR_INVALID, "deterministic", "sync");
}

/* ---- comparing --------------------------------------------------------------------------------- */

static void differs(const psrt_dense_params_t *pa, const psrt_dense_params_t *pb,
                    const char *expect)
{
    psrti_table_spec_t a = make(pa), b = make(pb);
    char why[512] = "";
    cr_assert_eq(psrti_table_spec_compare(&a, "worker:0", &b, "worker:1", why, sizeof why),
                 PSRT_ERR_MISMATCH);
    cr_assert_str_eq(why, expect, "%s", why);
}

Test(spec, what_updates_in_two_phases_needs_steps_of_the_whole_table)
{
    static const char *const optimizers[] = { "lars", "lamb", "sgd:clip_norm=1",
                                              "none:skip_nonfinite=1" };
    for (size_t i = 0; i < PSRTI_COUNT(optimizers); i++) {
        psrt_dense_params_t p = params();
        p.optimizer = optimizers[i];
        make(&p);
        p.consistency = "async";
        refuses(&p, PSRT_ERR_INVALID, "table w", "needs consistency sync");
        p.consistency = "ssp:1";
        refuses(&p, PSRT_ERR_INVALID, "table w", "needs consistency sync");
        p.consistency = "sync:backup=1";
        refuses(&p, PSRT_ERR_INVALID, "table w", "backup workers");
    }
}

Test(spec, groups)
{
    char name[PSRTI_NAME_MAX + 2];
    psrt_dense_params_t p = params();
    p.optimizer = "adam:clip_norm=1", p.group = "model";
    psrti_table_spec_t s = make(&p);
    cr_assert_str_eq(s.group, "model");
    p.optimizer = "lamb"; /* nothing that the group could share */
    refuses(&p, PSRT_ERR_INVALID, "group model", "neither: give it one");
    memset(name, 'g', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    p.optimizer = "adam:skip_nonfinite=1", p.group = name;
    refuses(&p, PSRT_ERR_INVALID, "name of a group", "255");
    p.group = "";
    cr_assert_str_eq(make(&p).group, "");
}

Test(compare, equal)
{
    psrt_dense_params_t p = params();
    psrti_table_spec_t a = make(&p), b = make(&p);
    char why[64] = "as before";
    cr_assert_eq(psrti_table_spec_compare(&a, "x", &b, "y", why, sizeof why), PSRT_OK);
    /* Defaults written out are the same. */
    p.init = "zeros", p.consistency = "sync", p.reduce = "average", p.dtype = PSRT_F32;
    p.optimizer = "none";
    b = make(&p);
    cr_assert_eq(psrti_table_spec_compare(&a, "x", &b, "y", why, sizeof why), PSRT_OK, "%s", why);
    p.optimizer = "sgd:lr=0.5";
    a = make(&p);
    p.optimizer = "sgd:lr=5e-1";
    b = make(&p);
    cr_assert_eq(psrti_table_spec_compare(&a, "x", &b, "y", why, sizeof why), PSRT_OK, "%s", why);
}

Test(compare, each_field)
{
    psrt_dense_params_t a = params(), b = params();
    b.dtype = PSRT_F64;
    differs(&a, &b, "table w: dtype is f32 on worker:0, but f64 on worker:1");
    b = params(), b.shape[1] = 4;
    differs(&a, &b, "table w: shape is [3,5] on worker:0, but [3,4] on worker:1");
    b = params(), b.ndim = 1, b.shape[0] = 15, b.shape[1] = 0;
    differs(&a, &b, "table w: shape is [3,5] on worker:0, but [15] on worker:1");
    b = params(), b.init = "constant:value=2";
    differs(&a, &b, "table w: init is zeros on worker:0, but constant:value=2 on worker:1");
    b = params(), b.consistency = "ssp:3";
    differs(&a, &b, "table w: consistency is sync on worker:0, but ssp:3 on worker:1");
    a = b, b.consistency = "ssp:4";
    differs(&a, &b, "table w: consistency is ssp:3 on worker:0, but ssp:4 on worker:1");
    a = params(), b = params(), b.reduce = "sum";
    differs(&a, &b, "table w: reduce is average on worker:0, but sum on worker:1");
    b = params(), b.deterministic = 1;
    differs(&a, &b, "table w: deterministic is 0 on worker:0, but 1 on worker:1");
    a = params(), a.optimizer = "sgd:clip_norm=1", b = a, b.group = "model";
    differs(&a, &b, "table w: group is none on worker:0, but model on worker:1");
}

/* Extents beyond ndim are not part of a shape, whatever the caller left there. */
Test(compare, unused_extents_do_not_count)
{
    psrt_dense_params_t pa = params(), pb = params();
    pb.shape[5] = 99;
    psrti_table_spec_t a = make(&pa), b = make(&pb);
    char why[64];
    cr_assert_eq(psrti_table_spec_compare(&a, "x", &b, "y", why, sizeof why), PSRT_OK);
}

/* ---- over the wire ----------------------------------------------------------------------------- */

Test(check, refuses_what_make_could_not_have_made)
{
    psrt_dense_params_t p = params();
    const psrti_table_spec_t good = make(&p);
    psrti_table_spec_t s = good;
    s.elements++;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.grad_dtype = PSRT_F64;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.acc_dtype = PSRT_F16;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.ndim = 1000000;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.shape[0] = 0;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.consistency = (psrti_consistency_t)9;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.consistency = PSRTI_SSP, s.staleness = 2000000;
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, strcpy(s.optimizer, "adam:lr=");
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, strcpy(s.init, "%n%n");
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, memset(s.name, 'x', sizeof s.name); /* no terminator */
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, memset(s.init, 'x', sizeof s.init);
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, memset(s.optimizer, 'x', sizeof s.optimizer);
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
    s = good, s.name[0] = '\0';
    cr_assert_neq(psrti_table_spec_check(&s), PSRT_OK);
}
