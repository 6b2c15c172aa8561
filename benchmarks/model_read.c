/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "model.h"

#define ALIGN_ELEMENTS 16u                   /* tensors begin on a line of the cache */
#define ELEMENTS_LIMIT ((uint64_t)1 << 34)   /* of a tensor */
#define OPERATIONS_LIMIT ((uint64_t)1 << 50) /* of a layer; their sum must stay exact */

typedef struct reader {
    model_t model;
    double divide;
    double operations; /* of all layers */
    size_t tensor_room, layer_room;
} reader_t;

/* Room for one more in an array that doubles. */
static int grow(void **array, size_t *room, size_t count, size_t size)
{
    if (count < *room) return 0;
    size_t more = *room ? 2 * *room : 64;
    void *larger = realloc(*array, more * size);
    if (!larger) return bench_fail("out of memory");
    *array = larger;
    *room = more;
    return 0;
}

/* "64x3x11x11": the product; 0: not a shape. */
static uint64_t parse_shape(const char *text)
{
    uint64_t elements = 1;
    for (;;) {
        char *end;
        if (!isdigit((unsigned char)*text)) return 0;
        errno = 0;
        unsigned long long extent = strtoull(text, &end, 10);
        if (errno || extent == 0 || extent > ELEMENTS_LIMIT / elements) return 0;
        elements *= extent;
        if (!*end) return elements;
        if (*end != 'x') return 0;
        text = end + 1;
    }
}

/* -1: not a number of operations. */
static double parse_operations(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value > OPERATIONS_LIMIT) return -1;
    return (double)value;
}

static int add_layer(reader_t *r, double operations)
{
    model_t *m = &r->model;
    void *layers = m->layer;
    if (grow(&layers, &r->layer_room, m->layers, sizeof *m->layer)) return -1;
    m->layer = layers;
    m->layer[m->layers++] = (model_layer_t){ .first = m->tensors, .share = operations };
    r->operations += operations;
    return 0;
}

static int add_tensor(reader_t *r, const char *name, uint64_t elements, double operations)
{
    model_t *m = &r->model;
    void *tensors = m->tensor;
    if (grow(&tensors, &r->tensor_room, m->tensors, sizeof *m->tensor)) return -1;
    m->tensor = tensors;
    if ((operations > 0 || m->layers == 0) && add_layer(r, operations)) return -1;
    model_tensor_t *tensor = &m->tensor[m->tensors++];
    m->layer[m->layers - 1].count++;
    memcpy(tensor->name, name, strlen(name) + 1);
    tensor->elements = (uint64_t)ceil((double)elements / r->divide);
    tensor->offset = m->elements;
    m->elements += (tensor->elements + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
    m->parameters += tensor->elements;
    return 0;
}

/* The text says what is wrong with the line; NULL: nothing. *failed_p: the rest cannot be read. */
static const char *take_line(reader_t *r, char *line, int *failed_p)
{
    line[strcspn(line, "\n")] = '\0';
    if (!*line || *line == '#') return NULL;
    char *shape = strchr(line, '\t'), *operations = shape ? strchr(shape + 1, '\t') : NULL;
    if (!operations) return "not name, shape and operations, separated by tabs";
    *shape++ = *operations++ = '\0';
    if (!*line || strlen(line) >= MODEL_NAME_MAX) return "the name is empty or too long";
    uint64_t elements = parse_shape(shape);
    if (!elements) return "the shape is not extents such as 64x3x11x11";
    double count = parse_operations(operations);
    if (count < 0) return "the operations are not a whole number";
    *failed_p = add_tensor(r, line, elements, count);
    return NULL;
}

static int read_lines(reader_t *r, FILE *file, const char *path)
{
    char *line = NULL;
    size_t size = 0, number = 0;
    int failed = 0;
    while (!failed && getline(&line, &size, file) > 0) {
        number++;
        const char *wrong = take_line(r, line, &failed);
        if (wrong) failed = bench_fail("%s, line %zu: %s", path, number, wrong);
    }
    free(line);
    if (!failed && ferror(file)) failed = bench_fail("%s: %s", path, strerror(errno));
    if (!failed && !(r->operations > 0)) failed = bench_fail("%s: no layer has operations", path);
    return failed;
}

int model_read(const char *path, double divide, model_t *out)
{
    reader_t reader = { .divide = divide };
    FILE *file = fopen(path, "re");
    if (!file) return bench_fail("%s: %s", path, strerror(errno));
    int failed = read_lines(&reader, file, path);
    fclose(file);
    if (failed) {
        model_free(&reader.model);
        return -1;
    }
    for (size_t i = 0; i < reader.model.layers; i++)
        reader.model.layer[i].share /= reader.operations;
    *out = reader.model;
    return 0;
}

void model_free(model_t *model)
{
    free(model->tensor);
    free(model->layer);
}
