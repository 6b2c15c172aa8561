/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest trainer: learns the weights of a linear function. Alone it runs an embedded server;
 * `psrt-launch -s 2 -w 4 -- hello` runs it distributed, unchanged. */
#include <psrt/psrt.h>
#include <stdio.h>

#define N 1000

int main(void)
{
    psrt_context_t *ctx;
    if (psrt_context_create(NULL, &ctx) != PSRT_OK) /* launched: joins; alone: embedded server */
        return fprintf(stderr, "%s\n", psrt_last_error()), 1;

    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = N;
    p.init = "glorot", p.optimizer = "sgd:lr=0.1", p.consistency = "sync";
    psrt_table_t *w;
    if (psrt_dense_create(ctx, "fc/weight", &p, &w) != PSRT_OK)
        return fprintf(stderr, "%s\n", psrt_last_error()), 1;

    float *weight = psrt_alloc(ctx, N * sizeof *weight); /* memory the runtime shares */
    float *grad = psrt_alloc(ctx, N * sizeof *grad);
    if (!weight || !grad || psrt_pull(w, weight, NULL) != PSRT_OK) /* NULL op: wait here */
        return fprintf(stderr, "%s\n", psrt_last_error()), 1;
    for (int step = 0; step < 100; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = weight[i] - (float)i; /* of the loss (weight[i] - i)^2 / 2 */
        psrt_op_t *op;
        if (psrt_push_pull(w, grad, weight, &op) != PSRT_OK || /* other work could overlap here */
            psrt_op_wait(op, PSRT_FOREVER) != PSRT_OK)
            return fprintf(stderr, "%s\n", psrt_last_error()), 1;
    }
    printf("weight[42] = %.2f\n", weight[42]);
    psrt_context_destroy(ctx);
    return 0;
}
