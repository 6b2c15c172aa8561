/* SPDX-License-Identifier: Apache-2.0 */
/* Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch's AdamW:
 *
 *     v *= 1 - lr * weight_decay
 *     m1 = beta1 * m1 + (1 - beta1) * g
 *     m2 = beta2 * m2 + (1 - beta2) * g * g
 *     v -= lr / (1 - beta1^t) * m1 / (sqrt(m2) / sqrt(1 - beta2^t) + eps)
 *
 * The paper multiplies weight_decay with the schedule's factor alone, PyTorch and Keras with lr.
 * Keras' AdamW decays in the same way; its eps stands beside the uncorrected root, as told in
 * adam.c. Its default eps is 1e-7, ours 1e-8, its weight_decay 0.004, ours 0.01. */
#include "kernels/optim/optim.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m1 = block->state[0], *const m2 = block->state[1];                                    \
    const T step = (T)(p[LR] / (1 - psrti_power(p[BETA1], block->t)));                             \
    const T unbias2 = (T)(1 / sqrt(1 - psrti_power(p[BETA2], block->t)));                          \
    const T b1 = (T)p[BETA1], c1 = (T)(1 - p[BETA1]), b2 = (T)p[BETA2];                            \
    const T c2 = (T)(1 - p[BETA2]), eps = (T)p[EPS];                                               \
    const T keep = (T)(1 - p[LR] * p[WEIGHT_DECAY]);                                               \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_CLIPPED(i);                                                             \
        const T m1i = b1 * m1[i] + c1 * gi;                                                        \
        const T m2i = b2 * m2[i] + c2 * gi * gi;                                                   \
        m1[i] = m1i;                                                                               \
        m2[i] = m2i;                                                                               \
        out[i] = in[i] * keep - step * (m1i / (SQRT(m2i) * unbias2 + eps));                        \
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

const psrt_optimizer_ops_t psrti_optimizer_adamw = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "adamw",
    .doc = "adam with v *= 1 - lr*weight_decay instead of the L2 penalty; as PyTorch AdamW",
    .num_params = 6,
    .param_names = { "lr", "beta1", "beta2", "eps", "weight_decay", "clip_value" },
    .param_defaults = { 1e-3, 0.9, 0.999, 1e-8, 0.01, 0 },
    .num_states = 2,
    .state_names = { "m1", "m2" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
