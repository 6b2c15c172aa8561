/* SPDX-License-Identifier: Apache-2.0 */
/* Lion (Chen et al., 2023, algorithm 2):
 *
 *     c = beta1 * m + (1 - beta1) * g
 *     v -= lr * (sign(c) + weight_decay * v)
 *     m = beta2 * m + (1 - beta2) * g
 *
 * The sign of 0 is 0, that of NaN is NaN. Keras' Lion is the same with a default lr of 0.001; ours
 * is the 1e-4 of the authors' program. PyTorch has none. */
#include "kernels/optim/optim.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY, CLIP_VALUE };

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m = block->state[0];                                                                  \
    const T lr = (T)p[LR], b1 = (T)p[BETA1], c1 = (T)(1 - p[BETA1]), b2 = (T)p[BETA2];             \
    const T c2 = (T)(1 - p[BETA2]), keep = (T)(1 - p[LR] * p[WEIGHT_DECAY]);                       \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_CLIPPED(i);                                                             \
        const T ci = b1 * m[i] + c1 * gi;                                                          \
        m[i] = b2 * m[i] + c2 * gi;                                                                \
        out[i] = in[i] * keep - lr * PSRTI_SIGN(ci);                                               \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(BETA1, "beta1");
    PSRTI_REQUIRE_FRACTION(BETA2, "beta2");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_lion = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "lion",
    .doc = "v -= lr*(sign(beta1*m + (1 - beta1)*g) + weight_decay*v); as Chen et al., 2023",
    .num_params = 5,
    .param_names = { "lr", "beta1", "beta2", "weight_decay", "clip_value" },
    .param_defaults = { 1e-4, 0.9, 0.99, 0, 0 },
    .num_states = 1,
    .state_names = { "m" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
