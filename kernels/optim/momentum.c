/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum: g += weight_decay * v, m = momentum * m + g, v -= lr * m.
 *
 * PyTorch's SGD(momentum, dampening=0, nesterov=False). Keras' SGD(momentum) keeps the learning
 * rate inside the velocity, u = momentum * u - lr * g, v += u: with a constant lr u = -lr * m and
 * both give the same values; when lr changes, Keras lets earlier gradients keep the lr of their
 * time, while here the new lr applies to all of m at once. Keras' weight_decay is decoupled and
 * never enters u. */
#include "kernels/optim/optim.h"

enum { LR, MOMENTUM, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m = block->state[0];                                                                  \
    const T lr = (T)p[LR], mu = (T)p[MOMENTUM], wd = (T)p[WEIGHT_DECAY];                           \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T mi = mu * m[i] + PSRTI_DECAYED(i, wd);                                             \
        m[i] = mi;                                                                                 \
        out[i] = in[i] - lr * mi;                                                                  \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(MOMENTUM, "momentum");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_momentum = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "momentum",
    .doc = "g += weight_decay*v; m = momentum*m + g; v -= lr*m; as PyTorch SGD with momentum",
    .num_params = 4,
    .param_names = { "lr", "momentum", "weight_decay", "clip_value" },
    .param_defaults = { 0.01, 0.9, 0, 0 },
    .num_states = 1,
    .state_names = { "momentum" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
