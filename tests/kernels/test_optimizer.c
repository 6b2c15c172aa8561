/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/optimizer.h"

#include <locale.h>

#include "kernels/awkward.h"
#include "kernels/cpu/cpu.h"
#include "kernels/golden/golden.h"
#include "kernels/optimizer_rig.h"
#include "support/test.h"

#ifndef MAX_N /* less under emulation */
#define MAX_N 257
#endif
#define MAX_SHIFT 8
#define ROOM (MAX_N + MAX_SHIFT)

/* Linked in place of kernels/cpu/features.c: the tests run both variants. */
static int hide_avx2;
int psrti_cpu_has_avx2(void)
{
#if defined(__x86_64__)
    return !hide_avx2 && __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

static const psrt_dtype_t dtypes[] = { PSRT_F32, PSRT_F64 };

static void *at(psrt_dtype_t dtype, const void *array, uint64_t i)
{
    return (char *)array + i * (dtype == PSRT_F32 ? sizeof(float) : sizeof(double));
}

/* In f64, of element after element. */
static double norm(psrt_dtype_t dtype, const void *array, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += get(dtype, array, i) * get(dtype, array, i);
    return sqrt(sum);
}

/* `update` may be the gradient's memory; it is not const then. */
static void prepare(const psrti_optimizer_t *opt, psrt_dtype_t dtype, psrt_apply_t *block,
                    void *update)
{
    block->update = update;
    if (dtype == PSRT_F32)
        opt->ops->prepare_f32(block);
    else
        opt->ops->prepare_f64(block);
}

static void apply(const psrti_optimizer_t *opt, psrt_dtype_t dtype, const psrt_apply_t *block)
{
    if (dtype == PSRT_F32)
        opt->ops->apply_f32(block);
    else
        opt->ops->apply_f64(block);
}

/* The update of a table that is one block; `spare` has room for it. */
static void apply_table(const psrti_optimizer_t *opt, psrt_dtype_t dtype, psrt_apply_t *block,
                        void *spare)
{
    block->grad_norm = norm(dtype, block->grad, block->n);
    block->value_norm = norm(dtype, block->value_in, block->n);
    if (opt->ops->needs & PSRT_NEEDS_UPDATE_NORM) {
        prepare(opt, dtype, block, spare);
        block->update_norm = norm(dtype, spare, block->n);
    }
    apply(opt, dtype, block);
}

/* ---- golden vectors -------------------------------------------------------------------------- */

static void near(const char *what, const char *optimizer, double got, double expected, double scale,
                 double tolerance)
{
    cr_assert(fabs(got - expected) <= tolerance * fmax(fabs(expected), scale),
              "%s of %s is %.17g, expected %.17g", what, optimizer, got, expected);
}

/* Values alternate between two buffers, as on a server. */
static void check_golden(const struct golden *g, psrt_dtype_t dtype, double tolerance)
{
    psrti_optimizer_t opt = parsed(g->optimizer);
    double grad[GOLDEN_ELEMENTS], value[2][GOLDEN_ELEMENTS];
    double spare[GOLDEN_ELEMENTS] = { 0 };
    double state[PSRT_OPTIMIZER_MAX_STATES][GOLDEN_ELEMENTS] = { 0 };
    cr_assert_eq(opt.num_states, g->num_states);
    for (int i = 0; i < GOLDEN_ELEMENTS; i++)
        put(dtype, value[0], (uint64_t)i, golden_initial[i]);
    for (int s = 0; s < g->num_states; s++)
        psrti_optimizer_state_fill(&opt, s, dtype, state[s], GOLDEN_ELEMENTS);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        const double *in = value[step % 2];
        double *out = value[(step + 1) % 2];
        psrt_apply_t block = {
            .n = GOLDEN_ELEMENTS,
            .grad = grad,
            .value_in = in,
            .value_out = out,
            .params = opt.params,
            .t = (uint64_t)step + 1,
        };
        for (int s = 0; s < g->num_states; s++)
            block.state[s] = state[s];
        for (int i = 0; i < GOLDEN_ELEMENTS; i++)
            put(dtype, grad, (uint64_t)i, golden_grads[step][i]);
        apply_table(&opt, dtype, &block, step % 2 ? grad : spare);
        for (int i = 0; i < GOLDEN_ELEMENTS; i++)
            near("value", g->optimizer, get(dtype, out, (uint64_t)i), g->values[step][i], 0.5,
                 tolerance);
    }
    for (int s = 0; s < g->num_states; s++)
        for (int i = 0; i < GOLDEN_ELEMENTS; i++)
            near("state", g->optimizer, get(dtype, state[s], (uint64_t)i), g->state[s][i], 0,
                 10 * tolerance);
}

Test(optimizer, golden_vectors)
{
    for (hide_avx2 = 0; hide_avx2 < 2; hide_avx2++) {
        for (size_t i = 0; i < PSRTI_COUNT(golden); i++) {
            check_golden(&golden[i], PSRT_F64, 1e-12);
            check_golden(&golden[i], PSRT_F32, 1e-6);
        }
    }
}

Test(optimizer, every_one_has_golden_vectors)
{
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++) {
        int found = 0;
        for (size_t i = 0; i < PSRTI_COUNT(golden); i++)
            found |= parsed(golden[i].optimizer).ops == *ops;
        cr_assert(found, "%s is not in make_golden.py", (*ops)->name);
    }
}

/* Bias correction at large t: 1 - beta^t by expm1 and log. */
Test(optimizer, adam_after_many_steps)
{
    static const uint64_t steps[] = { 1, 2, 3, 10, 999, 1000, 65537, 10000000, UINT64_C(1) << 40 };
    psrti_optimizer_t opt = parsed("adam:lr=0.5,beta1=0.9,beta2=0.999,eps=1e-8");
    for (size_t i = 0; i < PSRTI_COUNT(steps); i++) {
        double grad = 0.3, value = 0, m1 = 0.2, m2 = 0.07, t = (double)steps[i];
        psrt_apply_t block = { .n = 1,
                               .grad = &grad,
                               .value_in = &value,
                               .value_out = &value,
                               .state = { &m1, &m2 },
                               .params = opt.params,
                               .t = steps[i] };
        double m1_hat = (0.9 * m1 + 0.1 * grad) / -expm1(t * log(0.9));
        double m2_hat = (0.999 * m2 + 0.001 * grad * grad) / -expm1(t * log(0.999));
        apply(&opt, PSRT_F64, &block);
        near("value", "adam", value, -0.5 * m1_hat / (sqrt(m2_hat) + 1e-8), 0, 1e-11);
    }
}

/* Products of mu, and powers of 0.96, by exp and log. */
static void check_nadam(uint64_t t, double momentum_decay)
{
    char text[128];
    snprintf(text, sizeof text, "nadam:lr=0.5,beta1=0.9,beta2=0.999,momentum_decay=%g",
             momentum_decay);
    psrti_optimizer_t opt = parsed(text);
    double grad = 0.3, value = 0, m1 = 0.2, m2 = 0.07;
    psrt_apply_t block = { .n = 1,
                           .grad = &grad,
                           .value_in = &value,
                           .value_out = &value,
                           .state = { &m1, &m2 },
                           .params = opt.params,
                           .t = t };
    double mu = 0, log_product = 0, decay = momentum_decay * log(0.96);
    for (uint64_t i = 1; i <= t; i++) {
        mu = 0.9 * (1 - exp((double)i * decay) / 2);
        log_product += log(mu);
    }
    double mu_next = 0.9 * (1 - exp((double)(t + 1) * decay) / 2);
    double ahead = (1 - mu) * grad / -expm1(log_product) +
                   mu_next * (0.9 * m1 + 0.1 * grad) / -expm1(log_product + log(mu_next));
    double m2_hat = (0.999 * m2 + 0.001 * grad * grad) / -expm1((double)t * log(0.999));
    apply(&opt, PSRT_F64, &block);
    near("value", text, value, -0.5 * ahead / (sqrt(m2_hat) + 1e-8), 0, 1e-11);
}

Test(optimizer, nadam_after_many_steps)
{
    static const uint64_t steps[] = { 1, 2, 3, 10, 60, 200, 999, 65537, 1000000 };
    static const double decays[] = { 0, 0.004, 0.3, 1, 50, 1e5 };
    for (size_t i = 0; i < PSRTI_COUNT(steps); i++)
        for (size_t j = 0; j < PSRTI_COUNT(decays); j++)
            check_nadam(steps[i], decays[j]);
}

/* ---- numbers at the edge --------------------------------------------------------------------- */

/* One element from zero states (or their start), f32; the new value. */
static float step_once(const char *text, float grad, float value)
{
    psrti_optimizer_t opt = parsed(text);
    float state[PSRT_OPTIMIZER_MAX_STATES] = { 0 }, spare;
    psrt_apply_t block = { .n = 1,
                           .grad = &grad,
                           .value_in = &value,
                           .value_out = &value,
                           .state = { NULL },
                           .params = opt.params,
                           .t = 1 };
    for (int s = 0; s < opt.num_states; s++) {
        psrti_optimizer_state_fill(&opt, s, PSRT_F32, &state[s], 1);
        block.state[s] = &state[s];
    }
    apply_table(&opt, PSRT_F32, &block, &spare);
    return value;
}

/* A broken gradient must be seen in the values, whatever is clipped, compared or signed. */
Test(optimizer, not_a_number_stays)
{
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++) {
        char text[64];
        snprintf(text, sizeof text, "%s:clip_value=1", (*ops)->name);
        cr_assert(isnan(step_once((*ops)->name, NAN, 1)), "%s", (*ops)->name);
        cr_assert(isnan(step_once(text, NAN, 1)), "%s", text);
    }
    cr_assert(isnan(step_once("rmsprop:centered=1", NAN, 1)));
}

/* Documented: without weight decay the value does not enter the gradient, as in PyTorch. The norm of the
 * values does with some. */
Test(optimizer, infinite_value)
{
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++)
        if (!((*ops)->needs & PSRT_NEEDS_VALUE_NORM))
            cr_assert_eq(step_once((*ops)->name, 1, INFINITY), INFINITY, "%s", (*ops)->name);
}

Test(optimizer, clipping_has_both_ends_and_an_off)
{
    static const float huge[] = { 1e30f, -1e30f, INFINITY, -INFINITY };
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++) {
        char text[64];
        snprintf(text, sizeof text, "%s:clip_value=0.25", (*ops)->name);
        for (size_t i = 0; i < PSRTI_COUNT(huge); i++)
            cr_assert_eq(step_once(text, huge[i], 1),
                         step_once((*ops)->name, huge[i] > 0 ? 0.25f : -0.25f, 1), "%s", text);
        cr_assert_eq(step_once(text, 0.125f, 1), step_once((*ops)->name, 0.125f, 1), "%s", text);
    }
    cr_assert_eq(step_once("sgd:lr=1", 1e30f, 1), -1e30f);
    cr_assert_eq(step_once("sgd:lr=1", INFINITY, 1), -INFINITY);
}

/* Rounding carries square - mean * mean below 0 on the way; the mean is 1, the square 1 - 2^-24. */
Test(optimizer, centered_rmsprop_of_a_constant_gradient)
{
    psrti_optimizer_t opt = parsed("rmsprop:lr=0.5,alpha=0.5,eps=0.25,centered=1");
    float grad = 1, value = 8, square = 1 - 0x1p-23f, momentum = 0, mean = 1;
    psrt_apply_t block = { .n = 1,
                           .grad = &grad,
                           .value_in = &value,
                           .value_out = &value,
                           .state = { &square, &momentum, &mean },
                           .params = opt.params,
                           .t = 9 };
    apply(&opt, PSRT_F32, &block);
    cr_assert_eq(square, 1 - 0x1p-24f);
    cr_assert_eq(mean, 1);
    cr_assert_eq(value, 6, "8 - 0.5 / (sqrt(0) + 0.25)");
}

/* Documented: what has had no gradient becomes 0, also where TensorFlow's formula is 0 / 0. */
Test(optimizer, ftrl_without_a_gradient)
{
    cr_assert_eq(step_once("ftrl", 0, 5), 0);
    cr_assert_eq(step_once("ftrl:initial_accumulator_value=0", 0, 5), 0);
    cr_assert_eq(step_once("ftrl:l1=2", 0.5f, 0), 0);
}

/* The ratio is 1 where a norm is 0: plain steps until there is something to be in proportion to. */
Test(optimizer, norms_of_zero)
{
    cr_assert_eq(step_once("lars:lr=0.5,momentum=0,trust=0.25,eps=0", 2, 0), -1);
    cr_assert_eq(step_once("lars:lr=0.5,momentum=0,trust=0.25,eps=0", 0, 2), 2);
    cr_assert_eq(step_once("lars:lr=0.5,momentum=0,trust=0.25,eps=0,weight_decay=0.5", 0, 2), 1.5f);
    cr_assert_eq(step_once("lamb:lr=0.5,weight_decay=0", 0, 2), 2);
    cr_assert_float_eq(step_once("lamb:lr=0.5,weight_decay=0.5", 2, 0), -0.5f, 1e-6);
    cr_assert_float_eq(step_once("lamb:lr=0.5,weight_decay=0.5", 2, 8), 4.0f, 1e-5);
    cr_assert_eq(step_once("lars:lr=0.5,momentum=0,trust=0.25,eps=0", 3, -8), -9);
}

Test(optimizer, lion_of_a_zero)
{
    cr_assert_eq(step_once("lion:lr=0.5", 0, 1), 1);
    cr_assert_eq(step_once("lion:lr=0.5", -1e-30f, 1), 1.5f);
    cr_assert_eq(step_once("lion:lr=0.5,weight_decay=0.5", 1e-30f, 1), 0.25f);
}

/* ---- variants, lengths, alignment ------------------------------------------------------------ */

typedef struct arrays {
    double grad[ROOM], value[ROOM], update[ROOM], state[PSRT_OPTIMIZER_MAX_STATES][ROOM];
} arrays_t;

/* What every run starts from. */
static const arrays_t *start_of(psrt_dtype_t dtype)
{
    static arrays_t starts[2];
    arrays_t *a = &starts[dtype == PSRT_F64];
    put_awkward(dtype, a->grad, ROOM, 1);
    put_awkward(dtype, a->value, ROOM, 2);
    put_awkward(dtype, a->update, ROOM, 9);
    for (int s = 0; s < PSRT_OPTIMIZER_MAX_STATES; s++)
        put_awkward(dtype, a->state[s], ROOM, 3 + (uint64_t)s);
    return a;
}

static psrt_apply_t block_at(const psrti_optimizer_t *opt, psrt_dtype_t dtype, arrays_t *a,
                             void *out, uint64_t first, uint64_t n)
{
    psrt_apply_t block = { .n = n, .value_out = out, .params = opt->params, .t = 5 };
    block.grad_norm = 7.3, block.value_norm = 3.7, block.update_norm = 0.3;
    block.grad = at(dtype, a->grad, first);
    block.value_in = at(dtype, a->value, first);
    for (int s = 0; s < opt->num_states; s++)
        block.state[s] = at(dtype, a->state[s], first);
    return block;
}

static void same(psrt_dtype_t dtype, const void *got, const void *expected, const char *what,
                 const char *optimizer, uint64_t n, uint64_t first)
{
    uint64_t i = first_difference(dtype, got, expected, ROOM);
    cr_assert_eq(i, ROOM, "%s: %s of n=%d start=%d differs at %d", optimizer, what, (int)n,
                 (int)first, (int)i);
}

/* Both phases; the update is at element `first` of `update`. */
static void run_block(const psrti_optimizer_t *opt, psrt_dtype_t dtype, psrt_apply_t *block,
                      void *update, uint64_t first)
{
    if (opt->ops->prepare_f32) prepare(opt, dtype, block, at(dtype, update, first));
    apply(opt, dtype, block);
}

/* A whole range against each of its elements alone with the baseline, in place and not. */
static void check_range(const psrti_optimizer_t *opt, psrt_dtype_t dtype, const arrays_t *start,
                        const char *text, uint64_t n, uint64_t first)
{
    static arrays_t expected, got;
    static double out[ROOM];
    expected = *start;
    hide_avx2 = 1;
    for (uint64_t i = first; i < first + n; i++) {
        psrt_apply_t one = block_at(opt, dtype, &expected, at(dtype, expected.value, i), i, 1);
        run_block(opt, dtype, &one, expected.update, i);
    }
    for (int run = 0; run < 4; run++) {
        int in_place = run / 2;
        hide_avx2 = run % 2;
        got = *start;
        memcpy(out, start->value, sizeof out);
        void *dst = in_place ? (void *)got.value : out;
        psrt_apply_t all = block_at(opt, dtype, &got, at(dtype, dst, first), first, n);
        int over_grad = in_place && opt->ops->prepare_f32;
        run_block(opt, dtype, &all, over_grad ? got.grad : got.update, first);
        same(dtype, dst, expected.value, "value", text, n, first);
        for (int s = 0; s < opt->num_states; s++)
            same(dtype, got.state[s], expected.state[s], opt->ops->state_names[s], text, n, first);
        if (over_grad) {
            memcpy(got.update, start->update, sizeof got.update);
            memcpy(at(dtype, got.update, first), at(dtype, got.grad, first),
                   n * (dtype == PSRT_F32 ? sizeof(float) : sizeof(double)));
        } else {
            same(dtype, got.grad, start->grad, "gradient", text, n, first);
        }
        same(dtype, got.update, expected.update, "update", text, n, first);
    }
}

static void check_ranges(const char *text)
{
    psrti_optimizer_t opt = parsed(text);
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        const arrays_t *start = start_of(dtypes[t]);
        for (uint64_t n = 0; n <= MAX_N; n++)
            for (uint64_t first = 0; first < MAX_SHIFT; first++)
                check_range(&opt, dtypes[t], start, text, n, first);
    }
}

/* The settings of the golden vectors reach every branch of the bodies. */
Test(optimizer, same_bits, .timeout = 600)
{
    for (size_t i = 0; i < PSRTI_COUNT(golden); i++)
        check_ranges(golden[i].optimizer);
}

/* One step of an average, computed here element by element. */
static void check_average(psrt_dtype_t dtype, double decay, uint64_t n, uint64_t first)
{
    static double average[ROOM], expected[ROOM], value[ROOM];
    put_awkward(dtype, value, ROOM, 1);
    put_awkward(dtype, expected, ROOM, 2);
    for (uint64_t i = first; i < first + n; i++) {
        double e = get(dtype, expected, i), v = get(dtype, value, i);
        if (dtype == PSRT_F32) {
            float old = (float)decay * (float)e, new = (float)(1 - decay) * (float)v;
            put(dtype, expected, i, (double)(old + new));
        } else {
            put(dtype, expected, i, decay * e + (1 - decay) * v);
        }
    }
    for (hide_avx2 = 0; hide_avx2 < 2; hide_avx2++) {
        put_awkward(dtype, average, ROOM, 2);
        psrti_optimizer_average(decay, dtype, at(dtype, average, first), at(dtype, value, first),
                                n);
        same(dtype, average, expected, "average", "ema", n, first);
    }
}

Test(optimizer, average)
{
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++)
        for (uint64_t n = 0; n <= MAX_N; n++)
            for (uint64_t first = 0; first < MAX_SHIFT; first++)
                check_average(dtypes[t], 0.999, n, first);
}
