/* SPDX-License-Identifier: Apache-2.0 */
/* Follow the regularized leader (FTRL-Proximal, McMahan et al., 2013, algorithm 1), with the
 * definition of TensorFlow's FtrlV2 and Keras' Ftrl; PyTorch has none:
 *
 *     n = sum + g * g                               sum starts at initial_accumulator_value
 *     z += g - (n^-learning_rate_power - sum^-learning_rate_power) / lr * v
 *     sum = n
 *     v = (clamp(z, -l1, l1) - z) / (n^-learning_rate_power / lr + 2 * l2 + beta / lr)
 *
 * v follows from the states alone: an element that has had no gradient becomes 0 in the first
 * update, whatever its initial value, with TensorFlow too.
 *
 * learning_rate_power is one of 0 (a constant rate), -0.5 and -1: those powers are exact or rounded
 * correctly, so that all servers agree to the bit. TensorFlow takes any number up to 0. Where n,
 * l2 and beta are all 0, Keras' v is 0 / 0; here and in TensorFlow's kernel it is 0. Keras'
 * l2_shrinkage and decoupled weight_decay are not offered. */
#include "kernels/optim/optim.h"

enum { LR, POWER, INITIAL, L1, L2, BETA, CLIP_VALUE };

/* The growth of sum's power is computed from g * g: the difference of two roots would lose most
 * digits of f32 where gradients are small. */
#define LOOP(T, POWER_OF, GROWTH)                                                                  \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_CLIPPED(i);                                                             \
        const T n = sum[i] + gi * gi, after = POWER_OF(n);                                         \
        const T zi = z[i] + (gi - GROWTH(gi * gi, POWER_OF(sum[i]) + after) * per_lr * in[i]);     \
        const T beyond = PSRTI_CLAMP(zi, l1) - zi;                                                 \
        sum[i] = n;                                                                                \
        z[i] = zi;                                                                                 \
        out[i] = beyond / NOT_ZERO(after * per_lr + ridge);                                        \
    }

/* A divisor is 0 where there has been no gradient; the dividend is 0 then, too. */
#define NOT_ZERO(y) ((y) < FLT_MIN ? FLT_MIN : (y))

#define ONE(x) 1
#define SAME(x) (x)
#define GROWTH_OF_ONE(square, both) 0
#define GROWTH_OF_SAME(square, both) (square)
#define GROWTH_OF_ROOT(square, both) ((square) / NOT_ZERO(both))

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const sum = block->state[0], *const z = block->state[1];                                    \
    const T per_lr = (T)(1 / p[LR]), l1 = (T)p[L1], ridge = (T)(2 * p[L2] + p[BETA] / p[LR]);      \
    if (p[POWER] == 0) {                                                                           \
        LOOP(T, ONE, GROWTH_OF_ONE)                                                                \
    } else if (p[POWER] == -1) {                                                                   \
        LOOP(T, SAME, GROWTH_OF_SAME)                                                              \
    } else {                                                                                       \
        LOOP(T, SQRT, GROWTH_OF_ROOT)                                                              \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    const double power = params[POWER];
    PSRTI_REQUIRE_POSITIVE(LR, "lr");
    if (power != 0 && power != -0.5 && power != -1)
        return "learning_rate_power must be 0, -0.5 or -1";
    PSRTI_REQUIRE_RATE(INITIAL, "initial_accumulator_value");
    PSRTI_REQUIRE_RATE(L1, "l1");
    PSRTI_REQUIRE_RATE(L2, "l2");
    PSRTI_REQUIRE_RATE(BETA, "beta");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

enum { SUM, Z };

static double state_start(int index, const double *params)
{
    return index == SUM ? params[INITIAL] : 0;
}

const psrt_optimizer_ops_t psrti_optimizer_ftrl = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "ftrl",
    .doc = "FTRL-Proximal with l1 and l2, for sparse models; as TensorFlow FtrlV2, Keras Ftrl",
    .num_params = 7,
    .param_names = { "lr", "learning_rate_power", "initial_accumulator_value", "l1", "l2", "beta",
                     "clip_value" },
    .param_defaults = { 1e-3, -0.5, 0.1, 0, 0, 0, 0 },
    .num_states = 2,
    .state_names = { "sum", "z" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
    .state_start = state_start,
};
