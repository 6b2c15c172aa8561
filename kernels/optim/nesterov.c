/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with Nesterov's momentum, in the form that looks ahead from the gradient:
 *
 *     g += weight_decay * v
 *     m = momentum * m + g
 *     v -= lr * (g + momentum * m)
 *
 * PyTorch's SGD(momentum, nesterov=True), which refuses a momentum of 0; here it is plain sgd.
 * Keras' SGD(nesterov=True) keeps the learning rate inside the velocity, as told in momentum.c: the
 * same values with a constant lr. Keras' weight_decay is decoupled. */
#include "kernels/optim/optim.h"

enum { LR, MOMENTUM, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m = block->state[0];                                                                  \
    const T lr = (T)p[LR], mu = (T)p[MOMENTUM], wd = (T)p[WEIGHT_DECAY];                           \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T mi = mu * m[i] + gi;                                                               \
        m[i] = mi;                                                                                 \
        out[i] = in[i] - lr * (gi + mu * mi);                                                      \
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

const psrt_optimizer_ops_t psrti_optimizer_nesterov = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "nesterov",
    .doc = "m = momentum*m + g; v -= lr*(g + momentum*m); as PyTorch SGD with nesterov",
    .num_params = 4,
    .param_names = { "lr", "momentum", "weight_decay", "clip_value" },
    .param_defaults = { 0.01, 0.9, 0, 0 },
    .num_states = 1,
    .state_names = { "momentum" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
