/* SPDX-License-Identifier: Apache-2.0 */
/* The line that tells how training goes, about once a second. */
#ifndef MNIST_PROGRESS_H
#define MNIST_PROGRESS_H

#include <stdint.h>

#include <psrt/psrt.h>

typedef struct progress {
    psrt_context_t *ctx;
    int enabled;
    int terminal; /* one line that is written over, instead of many */
    uint64_t total_steps, steps_per_epoch;
    uint64_t images_per_step; /* of all workers */
    double start, last;       /* seconds */
    uint64_t last_step, last_pushed, last_pulled;
    double loss_sum; /* since the last line */
} progress_t;

void progress_start(progress_t *p, psrt_context_t *ctx, uint64_t total_steps,
                    uint64_t steps_per_epoch, uint64_t images_per_step, int enabled);
/* After step number `step`, which counts from 1. */
void progress_step(progress_t *p, uint64_t step, double loss);
/* A summary of the whole. */
void progress_end(progress_t *p);

#endif
