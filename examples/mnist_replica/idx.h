/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of IDX files (the format of MNIST): big-endian magic 0 0 type ndim, ndim 32-bit extents,
 * then the elements. Only unsigned bytes are read; a file may be compressed with gzip. */
#ifndef MNIST_IDX_H
#define MNIST_IDX_H

#include <stddef.h>
#include <stdint.h>

#define IDX_MAX_DIMS 4

typedef struct idx {
    int ndim;
    uint32_t dim[IDX_MAX_DIMS];
    size_t bytes; /* product of the extents */
    uint8_t *data;
} idx_t;

/* 0, or -1 with a text that names the file in `error`. The data are released with free(). */
int idx_read(const char *path, idx_t *out, char *error, size_t error_size);

#endif
