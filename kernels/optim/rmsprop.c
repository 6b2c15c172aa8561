/* SPDX-License-Identifier: Apache-2.0 */
/* RMSprop (Hinton, 2012; centered: Graves, 2013), with the definition of PyTorch's RMSprop:
 *
 *     g += weight_decay * v
 *     square = alpha * square + (1 - alpha) * g * g
 *     mean = alpha * mean + (1 - alpha) * g              only if centered
 *     r = sqrt(square), or sqrt(square - mean * mean) if centered
 *     m = momentum * m + g / (r + eps)                   only with momentum
 *     v -= lr * m, or lr * g / (r + eps) without momentum
 *
 * With centered, a gradient that stays the same makes square - mean * mean vanish, and rounding may
 * carry it below 0: PyTorch's root is NaN then, ours is 0.
 *
 * Keras' RMSprop has eps inside the root, sqrt(square + eps), the learning rate inside m, and a
 * decoupled weight_decay. Its alpha is called rho, 0.9 by default, ours 0.99; its default lr is
 * 0.001, ours 0.01, its eps 1e-7, ours 1e-8. */
#include "kernels/optim/optim.h"

enum { LR, ALPHA, EPS, MOMENTUM, CENTERED, WEIGHT_DECAY, CLIP_VALUE };

/* States that a setting does not need are neither read nor written. */
#define LOOP(T, SQRT, WITH_MEAN, WITH_MOMENTUM)                                                    \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T si = alpha * square[i] + rest * gi * gi;                                           \
        T spread = si;                                                                             \
        square[i] = si;                                                                            \
        if (WITH_MEAN) {                                                                           \
            const T mean_i = alpha * mean[i] + rest * gi;                                          \
            mean[i] = mean_i;                                                                      \
            spread = si - mean_i * mean_i;                                                         \
            spread = spread < 0 ? 0 : spread;                                                      \
        }                                                                                          \
        T step = gi / (SQRT(spread) + eps);                                                        \
        if (WITH_MOMENTUM) m[i] = step = mu * m[i] + step;                                         \
        out[i] = in[i] - lr * step;                                                                \
    }

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const square = block->state[0], *const m = block->state[1], *const mean = block->state[2];  \
    const T lr = (T)p[LR], alpha = (T)p[ALPHA], rest = (T)(1 - p[ALPHA]), eps = (T)p[EPS];         \
    const T mu = (T)p[MOMENTUM], wd = (T)p[WEIGHT_DECAY];                                          \
    if (p[CENTERED] != 0 && mu > 0) {                                                              \
        LOOP(T, SQRT, 1, 1)                                                                        \
    } else if (p[CENTERED] != 0) {                                                                 \
        LOOP(T, SQRT, 1, 0)                                                                        \
    } else if (mu > 0) {                                                                           \
        LOOP(T, SQRT, 0, 1)                                                                        \
    } else {                                                                                       \
        LOOP(T, SQRT, 0, 0)                                                                        \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(ALPHA, "alpha");
    PSRTI_REQUIRE_POSITIVE(EPS, "eps");
    PSRTI_REQUIRE_FRACTION(MOMENTUM, "momentum");
    if (params[CENTERED] != 0 && params[CENTERED] != 1) return "centered must be 0 or 1";
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_rmsprop = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "rmsprop",
    .doc = "v -= lr*g/(sqrt(square) + eps), momentum and centered by choice; as PyTorch RMSprop",
    .num_params = 7,
    .param_names = { "lr", "alpha", "eps", "momentum", "centered", "weight_decay", "clip_value" },
    .param_defaults = { 0.01, 0.99, 1e-8, 0, 0, 0, 0 },
    .num_states = 3,
    .state_names = { "square", "momentum", "mean" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
