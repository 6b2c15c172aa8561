/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic gradient descent: v -= lr * (g + weight_decay * v).
 *
 * PyTorch's SGD and, without weight decay, Keras' SGD. Keras' own weight_decay is decoupled
 * (v -= lr * weight_decay * v before the update): equal for sgd but for rounding. */
#include "kernels/optim/optim.h"

enum { LR, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    const T lr = (T)p[LR], wd = (T)p[WEIGHT_DECAY];                                                \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++)                                                        \
    out[i] = in[i] - lr * PSRTI_DECAYED(i, wd)

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_sgd = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "sgd",
    .doc = "v -= lr*(g + weight_decay*v); as PyTorch SGD",
    .num_params = 3,
    .param_names = { "lr", "weight_decay", "clip_value" },
    .param_defaults = { 0.01, 0, 0 },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
