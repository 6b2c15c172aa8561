/* SPDX-License-Identifier: Apache-2.0 */
/* Input: dtype | dimensions | one size a dimension 8 | flags | texts, each up to a line's end: name, init,
 * optimizer, consistency, reduce, codec, group, key of a hyper-parameter; those that are "-" are not
 * given. What a worker may declare, the coordinator and servers understand in the same way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"

enum { NAME, INIT, OPTIMIZER, CONSISTENCY, REDUCE, CODEC, GROUP, KEY, TEXTS };

/* ---- what must hold for a specification that was made ------------------------------------------ */

static void check_wire(const psrti_table_spec_t *spec)
{
    Psrt__TableSpec wire, *list[] = { &wire };
    Psrt__Declare body = PSRT__DECLARE__INIT;
    psrti_table_spec_t back;
    char why[512] = "";
    FUZZ_ASSERT(psrti_table_spec_check(spec) == PSRT_OK);
    psrti_spec_to_wire(spec, &wire);
    FUZZ_ASSERT(psrti_spec_from_wire(&wire, &back) == PSRT_OK);
    FUZZ_ASSERT(psrti_table_spec_compare(spec, "a", &back, "b", why, sizeof why) == PSRT_OK);
    FUZZ_ASSERT(back.elements == spec->elements && back.grad_dtype == spec->grad_dtype &&
                back.acc_dtype == spec->acc_dtype && strcmp(back.name, spec->name) == 0);
    body.n_specs = 1;
    body.specs = list;
    PSRTI_CONTROL(msg, DECLARE, declare, &body);
    fuzz_check_control(&msg);
}

static void check_init(const psrti_table_spec_t *spec)
{
    double first[8];
    uint64_t n = PSRTI_MIN(spec->elements, PSRTI_COUNT(first));
    psrti_init_t *init;
    FUZZ_ASSERT(psrti_init_parse(spec->init, spec->name, spec->ndim, spec->shape, &init) ==
                PSRT_OK);
    psrti_init_fill(init, PSRT_F64, first, 0, n);
    psrti_init_fill(init, spec->acc_dtype, first, spec->elements - n, n);
    psrti_init_destroy(init);
}

/* The canonical text is a text of the same optimizer, and its own canonical text. */
static void check_optimizer(const psrti_table_spec_t *spec, const char *key)
{
    psrti_optimizer_t opt, before;
    char text[PSRTI_OPTIMIZER_TEXT];
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    int index;
    FUZZ_ASSERT(psrti_table_spec_optimizer(spec, &opt) == PSRT_OK);
    FUZZ_ASSERT(psrti_optimizer_format(&opt, text, sizeof text) == PSRT_OK);
    FUZZ_ASSERT(strcmp(text, spec->optimizer) == 0);
    for (uint64_t step = 0; step < 1u << 30; step = 8 * step + 1)
        psrti_optimizer_params_at(&opt, step, params);
    FUZZ_ASSERT(isnan(psrti_optimizer_clip_scale(&opt, NAN)) || opt.clip_norm == 0);
    before = opt;
    if (psrti_optimizer_set(&opt, key, 0.25, &index) == PSRT_OK) {
        FUZZ_ASSERT(opt.params[index] == 0.25);
        FUZZ_ASSERT(psrti_optimizer_format(&opt, text, sizeof text) == PSRT_OK);
        FUZZ_ASSERT(psrti_optimizer_parse(text, &before) == PSRT_OK);
    }
    for (int i = 0; opt.ops && i < opt.ops->num_params; i++)
        FUZZ_ASSERT(opt.params[i] == before.params[i]);
}

/* ---- the target -------------------------------------------------------------------------------- */

static void read_params(fuzz_in_t *in, psrt_dense_params_t *p, char *text[TEXTS])
{
    p->dtype = (psrt_dtype_t)(fuzz_u8(in) % 11);
    p->ndim = fuzz_u8(in) % (PSRT_MAX_DIMS + 2);
    for (int i = 0; i < p->ndim; i++) {
        uint64_t size = fuzz_u64(in);
        if (i < PSRT_MAX_DIMS) p->shape[i] = size;
    }
    p->deterministic = fuzz_u8(in) & 1;
    for (unsigned i = 0; i < TEXTS; i++) {
        text[i] = fuzz_text(in, '\n');
        if (i != NAME && i != KEY && strcmp(text[i], "-") == 0) {
            free(text[i]);
            text[i] = NULL;
        }
    }
    p->init = text[INIT];
    p->optimizer = text[OPTIMIZER];
    p->consistency = text[CONSISTENCY];
    p->reduce = text[REDUCE];
    p->codec = text[CODEC];
    p->group = text[GROUP];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec, untouched;
    char *text[TEXTS];
    read_params(&in, &p, text);
    memset(&spec, 0xa5, sizeof spec);
    untouched = spec;
    if (psrti_table_spec_make(text[NAME], &p, &spec) == PSRT_OK) {
        fuzz_accept();
        check_wire(&spec);
        check_init(&spec);
        check_optimizer(&spec, text[KEY]);
    } else {
        FUZZ_ASSERT(memcmp(&spec, &untouched, sizeof spec) == 0);
    }
    for (unsigned i = 0; i < TEXTS; i++)
        free(text[i]);
    return 0;
}

static void seed(const char *name, psrt_dtype_t dtype, int deterministic, const char *texts)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, dtype);
    fuzz_put8(&out, 2);
    fuzz_put64(&out, 784);
    fuzz_put64(&out, 10);
    fuzz_put8(&out, (unsigned)deterministic);
    fuzz_put(&out, texts, strlen(texts));
    fuzz_seed(name, out.data, out.size);
}

void fuzz_seeds(void)
{
    seed("plain", PSRT_F32, 0, "w\n-\n-\n-\n-\n-\n-\nlr");
    seed("adam", PSRT_F32, 1,
         "w\nglorot\nadam:lr=1e-3,beta1=0.9,eps=1e-8,weight_decay=0.01\nsync\naverage\nf16\n-\nlr");
    seed(
        "group", PSRT_F32, 0,
        "w\nnormal:std=0.02,seed=7\nsgd:lr=0.1,clip_norm=1,skip_nonfinite=1\nsync\nsum\n-\nall\nlr");
    seed(
        "schedule", PSRT_F64, 0,
        "w\nuniform:low=-1,high=1\nnesterov:lr=0.1,schedule=cosine,warmup=10,total=100,final=0.01\n"
        "ssp:3\n-\nnone\n-\nmomentum");
    seed("backup", PSRT_BF16, 0, "w\nconstant:value=0.5\nadagrad\nsync:backup=1\n-\n-\n-\neps");
    seed("integers", PSRT_I64, 0, "w\nrank0\nnone\nasync\nsum\n-\n-\nlr");
    seed("averages", PSRT_F16, 0, "w\nhe\nlamb:ema=0.999\nsync\n-\n-\n-\nbeta2");
}
