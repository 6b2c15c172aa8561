/* SPDX-License-Identifier: Apache-2.0 */
/* Adamax (Kingma and Ba, 2015, algorithm 2), with the definition of PyTorch's Adamax:
 *
 *     g += weight_decay * v
 *     m = beta1 * m + (1 - beta1) * g
 *     norm = max(beta2 * norm, |g| + eps)
 *     v -= lr / (1 - beta1^t) * m / norm
 *
 * The paper has no eps. Keras' Adamax has it in the division, m / (norm + eps), and a decoupled
 * weight_decay. Its default lr is 0.001, ours 0.002, its eps 1e-7, ours 1e-8. */
#include "kernels/optim/optim.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP_VALUE };

/* The maximum is the new part where that is NaN, so that a NaN is not forgotten. */
#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m = block->state[0], *const norm = block->state[1];                                   \
    const T step = (T)(p[LR] / (1 - psrti_power(p[BETA1], block->t)));                             \
    const T b1 = (T)p[BETA1], c1 = (T)(1 - p[BETA1]), b2 = (T)p[BETA2];                            \
    const T eps = (T)p[EPS], wd = (T)p[WEIGHT_DECAY];                                              \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T mi = b1 * m[i] + c1 * gi;                                                          \
        const T before = b2 * norm[i], now = PSRTI_ABS(gi) + eps;                                  \
        const T norm_i = before > now ? before : now;                                              \
        m[i] = mi;                                                                                 \
        norm[i] = norm_i;                                                                          \
        out[i] = in[i] - step * (mi / norm_i);                                                     \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(BETA1, "beta1");
    PSRTI_REQUIRE_FRACTION(BETA2, "beta2");
    PSRTI_REQUIRE_POSITIVE(EPS, "eps");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_adamax = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "adamax",
    .doc = "v -= lr/(1 - beta1^t)*m/norm; norm = max(beta2*norm, |g| + eps); as PyTorch Adamax",
    .num_params = 6,
    .param_names = { "lr", "beta1", "beta2", "eps", "weight_decay", "clip_value" },
    .param_defaults = { 2e-3, 0.9, 0.999, 1e-8, 0, 0 },
    .num_states = 2,
    .state_names = { "m", "norm" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
