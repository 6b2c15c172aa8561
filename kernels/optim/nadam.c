/* SPDX-License-Identifier: Apache-2.0 */
/* Adam with Nesterov's momentum (Dozat, 2016), with the definition of PyTorch's NAdam:
 *
 *     g += weight_decay * v
 *     mu(t) = beta1 * (1 - 0.96^(t * momentum_decay) / 2),  product(t) = mu(1) * ... * mu(t)
 *     m1 = beta1 * m1 + (1 - beta1) * g
 *     m2 = beta2 * m2 + (1 - beta2) * g * g
 *     m = (1 - mu(t)) / (1 - product(t)) * g + mu(t + 1) / (1 - product(t + 1)) * m1
 *     v -= lr * m / (sqrt(m2 / (1 - beta2^t)) + eps)
 *
 * PyTorch 1.13 and older, without foreach, multiply product(t + 1) by mu(t) once more: a bug that
 * was fixed. Keras' Nadam is this with a momentum_decay of 1, ours is 0.004 by default, and has a
 * decoupled weight_decay. Its default lr is 0.001, ours 0.002, its eps 1e-7, ours 1e-8. */
#include "kernels/optim/optim.h"

enum { LR, BETA1, BETA2, EPS, MOMENTUM_DECAY, WEIGHT_DECAY, CLIP_VALUE };

typedef struct nadam_rates {
    double grad, m1;
} nadam_rates_t;

/* 0.96^exponent by halving the argument of the Taylor series: no libm, as in psrti_power. */
static double power_of_096(double exponent)
{
    double x = exponent * -0.040821994520255166, result = 1; /* log(0.96) */
    int halvings = 0;
    if (x < -700) return 0;
    while (x < -0.25) {
        x /= 2;
        halvings++;
    }
    for (int k = 14; k > 0; k--)
        result = 1 + x / k * result;
    while (halvings--)
        result *= result;
    return result;
}

/* The product follows from t, so it is no state. It shrinks by about beta1 / 2 with each factor as
 * long as the decay is near 1, and the factors that count are few: below 2^-54 it no longer
 * changes 1 - product. */
static nadam_rates_t rates_at(const double *p, uint64_t t)
{
    const double decay = power_of_096(p[MOMENTUM_DECAY]), decay_t = psrti_power(decay, t);
    const double mu = p[BETA1] * (1 - decay_t / 2), mu_next = p[BETA1] * (1 - decay_t * decay / 2);
    double product = 1, decay_i = decay;
    for (uint64_t i = 1; i <= t && product > 0x1p-60; i++, decay_i *= decay)
        product *= p[BETA1] * (1 - decay_i / 2);
    return (nadam_rates_t){ p[LR] * (1 - mu) / (1 - product),
                            p[LR] * mu_next / (1 - product * mu_next) };
}

#define STEP(T, SQRT)                                                                              \
    PSRTI_BLOCK(T);                                                                                \
    T *const m1 = block->state[0], *const m2 = block->state[1];                                    \
    const nadam_rates_t rates = rates_at(p, block->t);                                             \
    const T rate_g = (T)rates.grad, rate_m1 = (T)rates.m1;                                         \
    const T unbias2 = (T)(1 / sqrt(1 - psrti_power(p[BETA2], block->t)));                          \
    const T b1 = (T)p[BETA1], c1 = (T)(1 - p[BETA1]), b2 = (T)p[BETA2];                            \
    const T c2 = (T)(1 - p[BETA2]), eps = (T)p[EPS], wd = (T)p[WEIGHT_DECAY];                      \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++) {                                                      \
        const T gi = PSRTI_DECAYED(i, wd);                                                         \
        const T m1i = b1 * m1[i] + c1 * gi;                                                        \
        const T m2i = b2 * m2[i] + c2 * gi * gi;                                                   \
        m1[i] = m1i;                                                                               \
        m2[i] = m2i;                                                                               \
        out[i] = in[i] - (rate_g * gi + rate_m1 * m1i) / (SQRT(m2i) * unbias2 + eps);              \
    }

PSRTI_DEFINE_APPLY(STEP)

static const char *check(const double *params)
{
    PSRTI_REQUIRE_RATE(LR, "lr");
    PSRTI_REQUIRE_FRACTION(BETA1, "beta1");
    PSRTI_REQUIRE_FRACTION(BETA2, "beta2");
    PSRTI_REQUIRE_POSITIVE(EPS, "eps");
    PSRTI_REQUIRE_RATE(MOMENTUM_DECAY, "momentum_decay");
    PSRTI_REQUIRE_RATE(WEIGHT_DECAY, "weight_decay");
    PSRTI_REQUIRE_RATE(CLIP_VALUE, "clip_value");
    return NULL;
}

const psrt_optimizer_ops_t psrti_optimizer_nadam = {
    .size = sizeof(psrt_optimizer_ops_t),
    .name = "nadam",
    .doc = "adam that looks ahead, with a momentum that grows to beta1; as PyTorch NAdam",
    .num_params = 7,
    .param_names = { "lr", "beta1", "beta2", "eps", "momentum_decay", "weight_decay",
                     "clip_value" },
    .param_defaults = { 2e-3, 0.9, 0.999, 1e-8, 4e-3, 0, 0 },
    .num_states = 2,
    .state_names = { "m1", "m2" },
    .check = check,
    .apply_f32 = apply_f32,
    .apply_f64 = apply_f64,
};
