/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MNIST_OPTIONS_H
#define MNIST_OPTIONS_H

#include <stdint.h>

#include <psrt/psrt.h>

typedef struct options {
    uint64_t epochs;
    uint64_t steps;       /* 0: as many as the epochs have */
    uint32_t batch;       /* images of one worker in a step */
    uint32_t train_limit; /* 0: all images */
    uint64_t seed;
    const char *optimizer, *consistency, *data, *save;
    psrt_dtype_t dtype; /* of gradients and weights on the way to the servers and back */
    int deterministic, quiet;
} options_t;

enum { OPTIONS_RUN = -1 };

/* OPTIONS_RUN, or the exit code with which the program ends now. */
int options_parse(int argc, char **argv, options_t *out);

#endif
