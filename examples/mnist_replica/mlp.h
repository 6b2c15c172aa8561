/* SPDX-License-Identifier: Apache-2.0 */
/* The mathematics of a perceptron with one hidden layer: inputs -> ReLU(hidden) ->
 * softmax(classes). It knows nothing of parameter servers: weights and gradients are the caller's
 * memory. All matrices are row major, one row an image. */
#ifndef MNIST_MLP_H
#define MNIST_MLP_H

#include <stddef.h>
#include <stdint.h>

#include "data.h"

#define MLP_INPUTS IMAGE_PIXELS
#define MLP_HIDDEN 1024
#define MLP_CLASSES IMAGE_CLASSES

/* What a batch needs besides the weights. */
typedef struct mlp {
    size_t rows;   /* images the buffers have room for         */
    float *hidden; /* rows x MLP_HIDDEN, after the ReLU        */
    float *output; /* rows x MLP_CLASSES                       */
    float *delta;  /* rows x MLP_HIDDEN, gradient of `hidden`  */
} mlp_t;

int mlp_init(mlp_t *net, size_t rows); /* 0, or -1: no memory */
void mlp_free(mlp_t *net);

/* hidden = ReLU(images weight + bias), weight [MLP_INPUTS, MLP_HIDDEN] */
void mlp_forward_hidden(mlp_t *net, size_t rows, const float *images, const float *weight,
                        const float *bias);
/* output = hidden weight + bias, weight [MLP_HIDDEN, MLP_CLASSES] */
void mlp_forward_output(mlp_t *net, size_t rows, const float *weight, const float *bias);
/* Mean cross-entropy; replaces `output` by its gradient, that of the mean over the rows. */
double mlp_loss(mlp_t *net, size_t rows, const uint8_t *labels);
/* Rows whose largest output is that of their label. */
size_t mlp_correct(const mlp_t *net, size_t rows, const uint8_t *labels);
/* Gradients of the output layer, and `delta` from its weights, which are not needed afterwards. */
void mlp_backward_output(mlp_t *net, size_t rows, const float *weight, float *weight_grad,
                         float *bias_grad);
void mlp_backward_hidden(mlp_t *net, size_t rows, const float *images, float *weight_grad,
                         float *bias_grad);

#endif
