/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum: g += weight_decay * v, m = momentum * m + g, v -= lr * m.
 *
 * PyTorch's SGD(momentum, dampening=0, nesterov=False). Keras' SGD(momentum) keeps the learning
 * rate inside the velocity, u = momentum * u - lr * g, v += u: with a constant lr u = -lr * m and
 * both give the same values; when lr changes, Keras lets earlier gradients keep the lr of their
 * time, while here the new lr applies to all of m at once. Keras' weight_decay is decoupled and
 * never enters u. */
#include "kernels/optim/optim.h"

enum { LR, MOMENTUM, WEIGHT_DECAY };

#define STEP(T, SQRT)                                                                              \
    const T *g = block->grad, *in = block->value_in;                                               \
    T *out = block->value_out, *m = block->state[0];                                               \
    const T lr = (T)block->params[LR], mu = (T)block->params[MOMENTUM];                            \
    const T wd = (T)block->params[WEIGHT_DECAY];                                                   \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T mi = mu * m[i] + PSRTI_DECAYED(g[i], in[i], wd);                                   \
        m[i] = mi;                                                                                 \
        out[i] = in[i] - lr * mi;                                                                  \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    if (!psrti_is_rate(params[LR])) return "lr must be a finite number, at least 0";
    if (!psrti_is_fraction(params[MOMENTUM])) return "momentum must be at least 0 and below 1";
    if (!psrti_is_rate(params[WEIGHT_DECAY]))
        return "weight_decay must be a finite number, at least 0";
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_momentum = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "momentum",
    .doc = "g += weight_decay*v; m = momentum*m + g; v -= lr*m; as PyTorch SGD with momentum",
    .num_params = 3,
    .param_names = { "lr", "momentum", "weight_decay" },
    .param_defaults = { 0.01, 0.9, 0 },
    .num_states = 1,
    .state_names = { "momentum" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
