/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-bench model`: trains a model that has the tensors of a real one, but computes nothing: the time of
 * each layer passes instead. Runs as any trainer does, alone or as the workers of a job. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stddef.h>
#include <stdint.h>

#define MODEL_NAME_MAX 64

typedef struct model_tensor {
    char name[MODEL_NAME_MAX];
    uint64_t elements;
    uint64_t offset; /* of its first element in the memory of the whole model */
} model_tensor_t;

/* Tensors first..first+count-1. They have their gradients, and are needed, at the same time. */
typedef struct model_layer {
    size_t first, count;
    double share; /* of the compute time of a step */
} model_layer_t;

typedef struct model {
    model_tensor_t *tensor; /* in the order of the forward pass */
    model_layer_t *layer;
    size_t tensors, layers;
    uint64_t elements; /* of all, with the space between them */
    uint64_t parameters;
} model_t;

typedef struct model_options {
    const char *tensors; /* file */
    const char *json;
    uint32_t batch, steps;
    double step_ms; /* compute time of a step */
    double divide;  /* the elements of each tensor, by this */
} model_options_t;

int bench_model(int argc, char **argv);

/* BENCH_RUN, or the exit code after --help or a wrong flag. */
int model_options_parse(int argc, char **argv, model_options_t *out);

/* Lines of name, shape (64x3x11x11) and operations, separated by tabs; # begins a comment. A tensor with
 * operations begins a layer. 0, or -1 after it printed what is wrong. */
int model_read(const char *path, double divide, model_t *out);
void model_free(model_t *model);

#endif
