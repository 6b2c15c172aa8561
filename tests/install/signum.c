/* SPDX-License-Identifier: Apache-2.0 */
/* Signum (Bernstein et al., 2018): m = momentum * m + (1 - momentum) * g; v -= lr * sign(m). */
#include <psrt/ext/optimizer_v1.h>

enum { LR, MOMENTUM };

#define DEFINE_APPLY(NAME, T)                                                                      \
    static void NAME(const psrt_apply_t *block)                                                    \
    {                                                                                              \
        const T lr = (T)block->params[LR], mu = (T)block->params[MOMENTUM];                        \
        const T *g = block->grad, *in = block->value_in;                                           \
        T *out = block->value_out, *m = block->state[0];                                           \
        for (uint64_t i = 0; i < block->n; i++) {                                                  \
            m[i] = mu * m[i] + (1 - mu) * g[i];                                                    \
            out[i] = in[i] - lr * (T)((m[i] > 0) - (m[i] < 0));                                    \
        }                                                                                          \
    }

DEFINE_APPLY(apply_f32, float)
DEFINE_APPLY(apply_f64, double)

static const char *check(const double *params)
{
    if (!(params[LR] >= 0)) return "lr must be at least 0";
    if (!(params[MOMENTUM] >= 0 && params[MOMENTUM] < 1)) return "momentum must be 0 to below 1";
    return NULL;
}

static const psrt_optimizer_ops_t signum = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "signum",
    .doc = "m = momentum*m + (1 - momentum)*g; v -= lr*sign(m); as Bernstein et al.",
    .num_params = 2,
    .param_names = { "lr", "momentum" },
    .param_defaults = { 1e-4, 0.9 },
    .num_states = 1,
    .state_names = { "m" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};

const psrt_optimizer_ops_t *const *psrt_optimizer_plugin_v1(void)
{
    static const psrt_optimizer_ops_t *const list[] = { &signum, NULL };
    return list;
}
