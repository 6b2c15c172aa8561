/* SPDX-License-Identifier: Apache-2.0 */
/* Adagrad (Duchi, Hazan and Singer, 2011), with the definition of PyTorch's Adagrad:
 *
 *     g += weight_decay * v
 *     sum += g * g                                  starts at initial_accumulator_value
 *     v -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(sum) + eps)
 *
 * Keras' Adagrad has eps inside the root, sqrt(sum + eps), no lr_decay, and a decoupled
 * weight_decay. By default its sum starts at 0.1, ours at 0, its lr is 0.001, ours 0.01, its eps
 * 1e-7, ours 1e-10. */
#include "kernels/optim/optim.h"

enum { LR, LR_DECAY, INITIAL, EPS, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const sum = block->state[0];                                                                \
    const T lr = (T)(p[LR] / (1 + (double)(block->t - 1) * p[LR_DECAY]));                          \
    const T eps = (T)p[EPS], wd = (T)p[WEIGHT_DECAY];                                              \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T si = sum[i] + gi * gi;                                                             \
        sum[i] = si;                                                                               \
        out[i] = in[i] - lr * (gi / (SQRT(si) + eps));                                             \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_RATE(LR_DECAY, "lr_decay");
    PSRTI_REQUIRE_RATE(INITIAL, "initial_accumulator_value");
    PSRTI_REQUIRE_POSITIVE(EPS, "eps");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

static double state_start(int index, const double *params)
{
    (void)index; /* the sum is the only state */
    return params[INITIAL];
}

const psrt_optimizer_ops_t psrti_optimizer_adagrad = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "adagrad",
    .doc = "sum += g*g; v -= lr*g/(sqrt(sum) + eps); as PyTorch Adagrad",
    .num_params = 6,
    .param_names = { "lr", "lr_decay", "initial_accumulator_value", "eps", "weight_decay",
                     "clip_value" },
    .param_defaults = { 0.01, 0, 0, 1e-10, 0, 0 },
    .num_states = 1,
    .state_names = { "sum" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
    .state_start = state_start,
};
