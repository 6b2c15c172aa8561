/* SPDX-License-Identifier: Apache-2.0 */
/* A psrtd whose optimizers change no value: linked with --wrap=psrti_optimizer_parse. It stands for
 * any defect by which a server takes gradients and does not train. */
#include <string.h>

#include "kernels/optimizer.h"

psrt_status_t __real_psrti_optimizer_parse(const char *text, psrti_optimizer_t *out);
psrt_status_t __wrap_psrti_optimizer_parse(const char *text, psrti_optimizer_t *out);

static void keep_f32(const psrt_apply_t *block)
{
    memmove(block->value_out, block->value_in, block->n * sizeof(float));
}

psrt_status_t __wrap_psrti_optimizer_parse(const char *text, psrti_optimizer_t *out)
{
    static psrt_optimizer_ops_t ops; /* psrtd has one server, all tables of a job one optimizer */
    psrt_status_t status = __real_psrti_optimizer_parse(text, out);
    if (status == PSRT_OK && out->ops) {
        ops = *out->ops;
        ops.apply_f32 = keep_f32;
        out->ops = &ops;
    }
    return status;
}
