/* SPDX-License-Identifier: Apache-2.0 */
/* Running averages of the weights: e = decay * e + (1 - decay) * v. Keras' use_ema is the same; PyTorch's
 * AveragedModel with get_ema_multi_avg_fn(decay) is e + (1 - decay) * (v - e), equal but for rounding.
 *
 * No optimizer, but the same loop: the block's value_in is what is averaged, its state the average. */
#include "kernels/optim/optim.h"

#define STEP(T, SQRT)                                                                              \
    const T *const in = block->value_in;                                                           \
    T *const average = block->state[0];                                                            \
    const T keep = (T)block->params[0], rest = (T)(1 - block->params[0]);                          \
    PSRTI_ELEMENTWISE                                                                              \
    for (uint64_t i = 0; i < block->n; i++)                                                        \
    average[i] = keep * average[i] + rest * in[i]

PSRTI_DEFINE_APPLY(STEP)

void psrti_optimizer_average(double decay, psrt_dtype_t dtype, void *average, const void *value,
                             uint64_t n)
{
    const psrt_apply_t block = {
        .n = n, .value_in = value, .state = { average }, .params = &decay
    };
    if (dtype == PSRT_F64)
        apply_f64(&block);
    else
        apply_f32(&block);
}
