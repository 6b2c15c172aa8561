/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences of a loss that is computed here, in double. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

#include "examples/mnist_replica/mlp.h"

enum { ROWS = 3, W1, B1, W2, B2, PARTS };

static const size_t counts[] = { [W1] = MLP_INPUTS * MLP_HIDDEN,
                                 [B1] = MLP_HIDDEN,
                                 [W2] = MLP_HIDDEN * MLP_CLASSES,
                                 [B2] = MLP_CLASSES };
static float *value[PARTS], *grad[PARTS];
static float images[ROWS * MLP_INPUTS];
static const uint8_t labels[ROWS] = { 3, 0, 9 };
static mlp_t net;

static float uniform(void)
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (1 << 24) - 0.5f;
}

static void setup(void)
{
    for (int part = W1; part < PARTS; part++) {
        value[part] = malloc(counts[part] * sizeof(float));
        grad[part] = malloc(counts[part] * sizeof(float));
        for (size_t i = 0; i < counts[part]; i++)
            value[part][i] = 0.1f * uniform();
    }
    for (size_t i = 0; i < ROWS * MLP_INPUTS; i++)
        images[i] = uniform();
    cr_assert_eq(mlp_init(&net, ROWS), 0);
}

static void teardown(void)
{
    for (int part = W1; part < PARTS; part++)
        free(value[part]), free(grad[part]);
    mlp_free(&net);
}

/* Outputs of one row by the definition. */
static void outputs(int row, double y[MLP_CLASSES])
{
    double *hidden = malloc(MLP_HIDDEN * sizeof *hidden);
    for (int h = 0; h < MLP_HIDDEN; h++) {
        double sum = value[B1][h];
        for (int i = 0; i < MLP_INPUTS; i++)
            sum += (double)images[row * MLP_INPUTS + i] * value[W1][i * MLP_HIDDEN + h];
        hidden[h] = sum > 0 ? sum : 0;
    }
    for (int c = 0; c < MLP_CLASSES; c++) {
        y[c] = value[B2][c];
        for (int h = 0; h < MLP_HIDDEN; h++)
            y[c] += hidden[h] * value[W2][h * MLP_CLASSES + c];
    }
    free(hidden);
}

static double reference_loss(void)
{
    double loss = 0;
    for (int row = 0; row < ROWS; row++) {
        double y[MLP_CLASSES], sum = 0;
        outputs(row, y);
        for (int c = 0; c < MLP_CLASSES; c++)
            sum += exp(y[c]);
        loss -= log(exp(y[labels[row]]) / sum);
    }
    return loss / ROWS;
}

static double forward(void)
{
    mlp_forward_hidden(&net, ROWS, images, value[W1], value[B1]);
    mlp_forward_output(&net, ROWS, value[W2], value[B2]);
    return mlp_loss(&net, ROWS, labels);
}

Test(mlp, loss, .init = setup, .fini = teardown)
{
    cr_assert_float_eq(forward(), reference_loss(), 1e-5);
}

Test(mlp, loss_of_large_outputs_is_finite, .init = setup, .fini = teardown)
{
    value[B2][3] = 1e4f; /* right for row 0, wrong by 1e4 for the others */
    double loss = forward();
    cr_assert(isfinite(loss));
    cr_assert_float_eq(loss, 2e4 / 3, 10);
    for (int i = 0; i < ROWS * MLP_CLASSES; i++)
        cr_assert(isfinite(net.output[i]));
}

static double numeric_gradient(int part, size_t i)
{
    const float h = 1e-4f; /* small: the ReLU has a kink */
    float kept = value[part][i];
    value[part][i] = kept + h;
    double up = reference_loss(), high = value[part][i];
    value[part][i] = kept - h;
    double down = reference_loss(), low = value[part][i];
    value[part][i] = kept;
    return (up - down) / (high - low);
}

Test(mlp, gradients, .init = setup, .fini = teardown, .timeout = 120)
{
    forward();
    mlp_backward_output(&net, ROWS, value[W2], grad[W2], grad[B2]);
    mlp_backward_hidden(&net, ROWS, images, grad[W1], grad[B1]);
    for (int part = W1; part < PARTS; part++)
        for (int k = 0; k < 10; k++) {
            size_t i = (size_t)k * 7919 * 13 % counts[part];
            double wanted = numeric_gradient(part, i);
            cr_assert_float_eq(grad[part][i], wanted, 1e-4 + 0.01 * fabs(wanted),
                               "part %d, element %zu: %g, not %g", part, i, (double)grad[part][i],
                               wanted);
        }
}

Test(mlp, correct, .init = setup, .fini = teardown)
{
    size_t wanted = 0;
    mlp_forward_hidden(&net, ROWS, images, value[W1], value[B1]);
    mlp_forward_output(&net, ROWS, value[W2], value[B2]);
    uint8_t guesses[ROWS];
    for (int row = 0; row < ROWS; row++) {
        double y[MLP_CLASSES];
        outputs(row, y);
        guesses[row] = 0;
        for (uint8_t c = 1; c < MLP_CLASSES; c++)
            if (y[c] > y[guesses[row]]) guesses[row] = c;
        wanted += guesses[row] == labels[row];
    }
    cr_assert_eq(mlp_correct(&net, ROWS, labels), wanted);
    cr_assert_eq(mlp_correct(&net, ROWS, guesses), ROWS);
}
