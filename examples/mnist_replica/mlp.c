/* SPDX-License-Identifier: Apache-2.0 */
#include "mlp.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int mlp_init(mlp_t *net, size_t rows)
{
    *net = (mlp_t){ .rows = rows,
                    .hidden = calloc(rows * MLP_HIDDEN, sizeof(float)),
                    .output = calloc(rows * MLP_CLASSES, sizeof(float)),
                    .delta = calloc(rows * MLP_HIDDEN, sizeof(float)) };
    if (net->hidden && net->output && net->delta) return 0;
    mlp_free(net);
    return -1;
}

void mlp_free(mlp_t *net)
{
    free(net->hidden);
    free(net->output);
    free(net->delta);
    *net = (mlp_t){ 0 };
}

/* y = x weight + bias */
static void affine(const float *x, size_t rows, size_t in, size_t out, const float *weight,
                   const float *bias, float *y)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(y + r * out, bias, out * sizeof(float));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)out, (int)in, 1, x,
                (int)in, weight, (int)out, 1, y, (int)out);
}

/* weight_grad = x^T delta, bias_grad = sum of the rows of delta */
static void affine_gradient(const float *x, size_t rows, size_t in, size_t out, const float *delta,
                            float *weight_grad, float *bias_grad)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)in, (int)out, (int)rows, 1, x,
                (int)in, delta, (int)out, 0, weight_grad, (int)out);
    memset(bias_grad, 0, out * sizeof(float));
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < out; i++)
            bias_grad[i] += delta[r * out + i];
}

void mlp_forward_hidden(mlp_t *net, size_t rows, const float *images, const float *weight,
                        const float *bias)
{
    affine(images, rows, MLP_INPUTS, MLP_HIDDEN, weight, bias, net->hidden);
    for (size_t i = 0; i < rows * MLP_HIDDEN; i++)
        net->hidden[i] = net->hidden[i] > 0 ? net->hidden[i] : 0;
}

void mlp_forward_output(mlp_t *net, size_t rows, const float *weight, const float *bias)
{
    affine(net->hidden, rows, MLP_HIDDEN, MLP_CLASSES, weight, bias, net->output);
}

double mlp_loss(mlp_t *net, size_t rows, const uint8_t *labels)
{
    double loss = 0;
    for (size_t r = 0; r < rows; r++) {
        float *y = net->output + r * MLP_CLASSES;
        double sum = 0, largest = y[0];
        for (int c = 1; c < MLP_CLASSES; c++)
            largest = fmax(largest, y[c]);
        for (int c = 0; c < MLP_CLASSES; c++)
            sum += exp(y[c] - largest);
        loss += log(sum) - (y[labels[r]] - largest);
        for (int c = 0; c < MLP_CLASSES; c++) {
            double probability = exp(y[c] - largest) / sum;
            y[c] = (float)((probability - (c == labels[r])) / (double)rows);
        }
    }
    return loss / (double)rows;
}

size_t mlp_correct(const mlp_t *net, size_t rows, const uint8_t *labels)
{
    size_t correct = 0;
    for (size_t r = 0; r < rows; r++) {
        const float *y = net->output + r * MLP_CLASSES;
        int best = 0;
        for (int c = 1; c < MLP_CLASSES; c++)
            if (y[c] > y[best]) best = c;
        correct += best == labels[r];
    }
    return correct;
}

void mlp_backward_output(mlp_t *net, size_t rows, const float *weight, float *weight_grad,
                         float *bias_grad)
{
    affine_gradient(net->hidden, rows, MLP_HIDDEN, MLP_CLASSES, net->output, weight_grad,
                    bias_grad);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, MLP_HIDDEN, MLP_CLASSES, 1,
                net->output, MLP_CLASSES, weight, MLP_CLASSES, 0, net->delta, MLP_HIDDEN);
    for (size_t i = 0; i < rows * MLP_HIDDEN; i++)
        net->delta[i] = net->hidden[i] > 0 ? net->delta[i] : 0;
}

void mlp_backward_hidden(mlp_t *net, size_t rows, const float *images, float *weight_grad,
                         float *bias_grad)
{
    affine_gradient(images, rows, MLP_INPUTS, MLP_HIDDEN, net->delta, weight_grad, bias_grad);
}
