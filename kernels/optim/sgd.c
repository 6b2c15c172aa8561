/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic gradient descent: v -= lr * (g + weight_decay * v).
 *
 * PyTorch's SGD and, without weight decay, Keras' SGD. Keras' own weight_decay is decoupled
 * (v -= lr * weight_decay * v before the update): equal for sgd but for rounding. */
#include "kernels/optim/optim.h"

enum { LR, WEIGHT_DECAY };

#define STEP(T, SQRT)                                                                              \
    const T *g = block->grad, *in = block->value_in;                                               \
    T *out = block->value_out;                                                                     \
    const T lr = (T)block->params[LR], wd = (T)block->params[WEIGHT_DECAY];                        \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++)                                                        \
    out[i] = in[i] - lr * PSRTI_DECAYED(g[i], in[i], wd)

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    if (!psrti_is_rate(params[LR])) return "lr must be a finite number, at least 0";
    if (!psrti_is_rate(params[WEIGHT_DECAY]))
        return "weight_decay must be a finite number, at least 0";
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_sgd = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "sgd",
    .doc = "v -= lr*(g + weight_decay*v); as PyTorch SGD",
    .num_params = 2,
    .param_names = { "lr", "weight_decay" },
    .param_defaults = { 0.01, 0 },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
