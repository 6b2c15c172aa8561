/* SPDX-License-Identifier: Apache-2.0 */
/* Adadelta (Zeiler, 2012), with the definition of PyTorch's Adadelta:
 *
 *     g += weight_decay * v
 *     square = rho * square + (1 - rho) * g * g
 *     d = sqrt(delta + eps) / sqrt(square + eps) * g
 *     delta = rho * delta + (1 - rho) * d * d
 *     v -= lr * d
 *
 * Keras' Adadelta is the same but for its decoupled weight_decay and its defaults: lr 0.001, rho
 * 0.95, eps 1e-7, where ours are 1, 0.9, 1e-6. */
#include "kernels/optim/optim.h"

enum { LR, RHO, EPS, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const square = block->state[0], *const delta = block->state[1];                             \
    const T lr = (T)p[LR], rho = (T)p[RHO], rest = (T)(1 - p[RHO]);                                \
    const T eps = (T)p[EPS], wd = (T)p[WEIGHT_DECAY];                                              \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T si = rho * square[i] + rest * gi * gi;                                             \
        const T di = SQRT(delta[i] + eps) / SQRT(si + eps) * gi;                                   \
        square[i] = si;                                                                            \
        delta[i] = rho * delta[i] + rest * di * di;                                                \
        out[i] = in[i] - lr * di;                                                                  \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(RHO, "rho");
    PSRTI_REQUIRE_POSITIVE(EPS, "eps");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_adadelta = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "adadelta",
    .doc = "v -= lr*g*sqrt(delta + eps)/sqrt(square + eps), running means; as PyTorch Adadelta",
    .num_params = 5,
    .param_names = { "lr", "rho", "eps", "weight_decay", "clip_value" },
    .param_defaults = { 1, 0.9, 1e-6, 0, 0 },
    .num_states = 2,
    .state_names = { "square", "delta" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
