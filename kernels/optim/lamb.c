/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB (You et al., 2019), as the paper has it with bias correction, TensorFlow Addons' LAMB and timm's
 * Lamb(always_adapt=True):
 *
 *     m1 = beta1 * m1 + (1 - beta1) * g
 *     m2 = beta2 * m2 + (1 - beta2) * g * g
 *     u = m1 / (1 - beta1^t) / (sqrt(m2 / (1 - beta2^t)) + eps) + weight_decay * v
 *     v -= lr * |v| / |u| * u                                       lr * u where |v| or |u| is 0
 *
 * NVIDIA Apex' FusedLAMB is the same with its max_grad_norm as clip_norm over this table alone (theirs
 * is 1 and over all), but takes the ratio for 1 when weight_decay is 0 unless use_nvlamb is set, as timm
 * does by default. Keras' Lamb has a decoupled weight_decay, v *= 1 - lr * weight_decay before the
 * rest; without weight decay it is the same but for its default eps, 1e-7, ours 1e-6. */
#include "kernels/optim/optim.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP_VALUE };

#define PREPARE(T, SQRT)                                                                           \
    PSRTI_GRADIENT(T);                                                                             \
    const T *const in = block->value_in;                                                           \
    T *const update = block->update, *const m1 = block->state[0], *const m2 = block->state[1];     \
    const T unbias1 = (T)(1 / (1 - psrti_power(p[BETA1], block->t)));                              \
    const T unbias2 = (T)(1 / sqrt(1 - psrti_power(p[BETA2], block->t)));                          \
    const T b1 = (T)p[BETA1], c1 = (T)(1 - p[BETA1]), b2 = (T)p[BETA2];                            \
    const T c2 = (T)(1 - p[BETA2]), eps = (T)p[EPS], wd = (T)p[WEIGHT_DECAY];                      \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_CLIPPED(i);                                                             \
        const T m1i = b1 * m1[i] + c1 * gi;                                                        \
        const T m2i = b2 * m2[i] + c2 * gi * gi;                                                   \
        m1[i] = m1i;                                                                               \
        m2[i] = m2i;                                                                               \
        const T direction = m1i * unbias1 / (SQRT(m2i) * unbias2 + eps);                           \
        update[i] = PSRTI_PENALISED(direction, in[i], wd);                                         \
    }

PSRTI_DEFINE_PREPARE(PREPARE)

static double rate_of(const psrt_apply_t *block)
{
    const double v = block->value_norm, u = block->update_norm;
    return block->params[LR] * (v > 0 && u > 0 ? v / u : 1);
}

#define STEP(T, SQRT)                                                                              \
    const T *const u = block->update, *const in = block->value_in;                                 \
    T *const out = block->value_out;                                                               \
    const T rate = (T)rate_of(block);                                                              \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++)                                                        \
    out[i] = in[i] - rate * u[i]

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

const psrt_optimizer_ops_t psrti_optimizer_lamb = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "lamb",
    .doc =
        "u = adam's step + weight_decay*v; v -= lr*|v|/|u|*u; as You et al., TensorFlow Addons LAMB",
    .num_params = 6,
    .param_names = { "lr", "beta1", "beta2", "eps", "weight_decay", "clip_value" },
    .param_defaults = { 1e-3, 0.9, 0.999, 1e-6, 0.01, 0 },
    .num_states = 2,
    .state_names = { "m1", "m2" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
    .needs = PSRT_NEEDS_VALUE_NORM | PSRT_NEEDS_UPDATE_NORM,
    .prepare_f32 = prepare_f32,
    .prepare_f64 = prepare_f64,
};
