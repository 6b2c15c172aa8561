/* SPDX-License-Identifier: Apache-2.0 */
/* LARS (You, Gitman and Ginsburg, 2017): SGD with momentum whose step is in proportion to the norm of
 * the table, with the definition that PyTorch's users have from NVIDIA Apex' LARC(clip=False) around
 * SGD, and from timm's Lars:
 *
 *     ratio = trust * |v| / (|g| + weight_decay * |v| + eps)        1 where |v| or |g| is 0
 *     m = momentum * m + ratio * (g + weight_decay * v)
 *     v -= lr * m
 *
 * |g| is the norm of the gradient after clip_value, which is why `prepare` clips it. Where a norm is 0,
 * Apex leaves out the penalty too. TensorFlow's LARSOptimizer has the ratio outside the momentum,
 * v -= lr * ratio * m, and momentum 0.9, weight_decay 1e-4, eps 0. Apex' trust is 0.02, ours is 0.001 as
 * in the paper, timm and TensorFlow. */
#include "kernels/optim/optim.h"

enum { LR, MOMENTUM, WEIGHT_DECAY, TRUST, EPS, CLIP_VALUE };

#define PREPARE(T, SQRT)                                                                           \
    PSRTI_GRADIENT(T);                                                                             \
    T *const update = block->update;                                                               \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++)                                                        \
    update[i] = PSRTI_CLIPPED(i)

PSRTI_DEFINE_PREPARE(PREPARE)

static double ratio_of(const psrt_apply_t *block)
{
    const double *const p = block->params;
    const double v = block->value_norm, g = block->update_norm;
    return v > 0 && g > 0 ? p[TRUST] * v / (g + p[WEIGHT_DECAY] * v + p[EPS]) : 1;
}

#define STEP(T, SQRT)                                                                              \
    const double *const p = block->params;                                                         \
    const T *const g = block->update, *const in = block->value_in;                                 \
    T *const out = block->value_out, *const m = block->state[0];                                   \
    const T ratio = (T)ratio_of(block);                                                            \
    const T lr = (T)p[LR], mu = (T)p[MOMENTUM], wd = (T)p[WEIGHT_DECAY];                           \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T mi = mu * m[i] + ratio * PSRTI_PENALISED(g[i], in[i], wd);                         \
        m[i] = mi;                                                                                 \
        out[i] = in[i] - lr * mi;                                                                  \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(MOMENTUM, "momentum");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_POSITIVE(TRUST, "trust");
    PSRTI_REQUIRE_RATE(EPS, "eps");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_lars = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "lars",
    .doc =
        "momentum of g*trust*|v|/(|g| + weight_decay*|v| + eps); as Apex LARC(clip=False), timm Lars",
    .num_params = 6,
    .param_names = { "lr", "momentum", "weight_decay", "trust", "eps", "clip_value" },
    .param_defaults = { 0.1, 0.9, 0, 1e-3, 1e-8, 0 },
    .num_states = 1,
    .state_names = { "momentum" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
    .needs = PSRT_NEEDS_VALUE_NORM | PSRT_NEEDS_UPDATE_NORM,
    .prepare_f32 = prepare_f32,
    .prepare_f64 = prepare_f64,
};
