/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "idx.h"

/* Mean and standard deviation of Fashion-MNIST's training pixels in 0..1. Besides faster training
 * they give pixels that are 0 in most images an influence, so that every weight moves. */
#define PIXEL_MEAN 0.2860f
#define PIXEL_STD 0.3530f

static int read_file(const char *dir, const char *prefix, const char *kind, idx_t *out, char *error,
                     size_t error_size)
{
    char path[4096];
    int len = snprintf(path, sizeof path, "%s/%s-%s-ubyte", dir, prefix, kind);
    if (len < 0 || (size_t)len + sizeof ".gz" > sizeof path) {
        snprintf(error, error_size, "%.64s...: the path is too long", dir);
        return -1;
    }
    if (access(path, F_OK)) snprintf(path + len, sizeof path - (size_t)len, ".gz");
    return idx_read(path, out, error, error_size);
}

static int check(const char *dir, const char *prefix, const idx_t *images, const idx_t *labels,
                 char *error, size_t error_size)
{
    const char *wrong = NULL;
    if (images->ndim != 3 || images->dim[1] != IMAGE_SIDE || images->dim[2] != IMAGE_SIDE)
        wrong = "the images are not of 28 x 28 pixels";
    else if (labels->ndim != 1 || labels->dim[0] != images->dim[0])
        wrong = "there is not one label for each image";
    for (size_t i = 0; !wrong && i < labels->bytes; i++)
        if (labels->data[i] >= IMAGE_CLASSES) wrong = "a label is not in 0..9";
    if (wrong) snprintf(error, error_size, "%s/%s: %s", dir, prefix, wrong);
    return wrong ? -1 : 0;
}

int data_load(const char *dir, const char *prefix, uint32_t limit, data_t *out, char *error,
              size_t error_size)
{
    idx_t images = { 0 }, labels = { 0 };
    if (read_file(dir, prefix, "images-idx3", &images, error, error_size) ||
        read_file(dir, prefix, "labels-idx1", &labels, error, error_size) ||
        check(dir, prefix, &images, &labels, error, error_size)) {
        free(images.data);
        free(labels.data);
        return -1;
    }
    uint32_t count = images.dim[0];
    *out = (data_t){ limit && limit < count ? limit : count, images.data, labels.data };
    return 0;
}

void data_free(data_t *data)
{
    free(data->pixels);
    free(data->labels);
    *data = (data_t){ 0 };
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void data_shuffle(uint32_t *order, uint32_t count, uint64_t seed, uint64_t epoch)
{
    uint64_t state = seed;
    state = next_random(&state) + epoch;
    for (uint32_t i = 0; i < count; i++) {
        /* The upper half of the product is an index in 0..i, nearly without bias. */
        uint32_t j = (uint32_t)((next_random(&state) >> 32) * ((uint64_t)i + 1) >> 32);
        order[i] = order[j];
        order[j] = i;
    }
}

void data_gather(const data_t *data, const uint32_t *order, size_t rows, float *images,
                 uint8_t *labels)
{
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *from = data->pixels + (size_t)order[r] * IMAGE_PIXELS;
        float *to = images + r * IMAGE_PIXELS;
        for (size_t i = 0; i < IMAGE_PIXELS; i++)
            to[i] = ((float)from[i] / 255 - PIXEL_MEAN) / PIXEL_STD;
        labels[r] = data->labels[order[r]];
    }
}
