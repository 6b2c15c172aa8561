/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled images, and the order in which the workers see them. */
#ifndef MNIST_DATA_H
#define MNIST_DATA_H

#include <stddef.h>
#include <stdint.h>

#define IMAGE_SIDE 28
#define IMAGE_PIXELS (IMAGE_SIDE * IMAGE_SIDE)
#define IMAGE_CLASSES 10

typedef struct data {
    uint32_t count;
    uint8_t *pixels; /* count x IMAGE_PIXELS */
    uint8_t *labels; /* count                */
} data_t;

/* Reads DIR/PREFIX-images-idx3-ubyte and DIR/PREFIX-labels-idx1-ubyte, plain or with .gz; keeps the
 * first `limit` images, 0: all. 0, or -1 with a text in `error`; release with data_free. */
int data_load(const char *dir, const char *prefix, uint32_t limit, data_t *out, char *error,
              size_t error_size);
void data_free(data_t *data);

/* A permutation of 0..count-1 that depends on seed and epoch only, so that all workers agree. */
void data_shuffle(uint32_t *order, uint32_t count, uint64_t seed, uint64_t epoch);

/* `rows` images as normalized floats, and their labels. */
void data_gather(const data_t *data, const uint32_t *order, size_t rows, float *images,
                 uint8_t *labels);

#endif
