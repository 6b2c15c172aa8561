/* SPDX-License-Identifier: Apache-2.0 */
/* Trains two steps with the optimizer of signum.c and checks every value. The gradients are 4 and -1 times
 * -1, 0 or 1, so that the sign of the second step is still that of the first one's: it shows the state. */
#include <psrt/psrt.h>
#include <stdio.h>
#include <stdlib.h>

#define N 600000u /* three slices */

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, psrt_last_error());
    return 1;
}

static float factor(size_t i) { return (float)((int)(i % 3) - 1); }

static int train(psrt_table_t *table, float *grad, float *value)
{
    const float scale[2] = { 4, -1 };
    for (int step = 0; step < 2; step++) {
        for (size_t i = 0; i < N; i++)
            grad[i] = scale[step] * factor(i);
        if (psrt_push_pull(table, grad, value, NULL) != PSRT_OK) return failed("push_pull");
    }
    for (size_t i = 0; i < N; i++)
        if (value[i] != 10 - factor(i)) /* twice lr = 0.5 */
            return fprintf(stderr, "element %zu is %g\n", i, (double)value[i]), 1;
    return puts("trained") < 0;
}

int main(void)
{
    psrt_context_t *ctx;
    psrt_table_t *table;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = N;
    p.init = "constant:value=10";
    p.optimizer = "signum:lr=0.5,momentum=0.5";
    if (psrt_context_create(NULL, &ctx) != PSRT_OK) return failed("context");
    if (psrt_dense_create(ctx, "w", &p, &table) != PSRT_OK) return failed("table");
    float *grad = malloc(N * sizeof *grad), *value = malloc(N * sizeof *value);
    int code = grad && value ? train(table, grad, value) : failed("malloc");
    free(grad);
    free(value);
    psrt_context_destroy(ctx);
    return code;
}
