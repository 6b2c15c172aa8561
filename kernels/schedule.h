/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates as a function of the step, evaluated where the update is made. */
#ifndef PSRTI_SCHEDULE_H
#define PSRTI_SCHEDULE_H

#include <stdint.h>

typedef enum psrti_schedule_kind {
    PSRTI_SCHEDULE_CONSTANT,
    PSRTI_SCHEDULE_STEP,
    PSRTI_SCHEDULE_COSINE,
    PSRTI_SCHEDULE_LINEAR,
    PSRTI_SCHEDULES
} psrti_schedule_kind_t;

#define PSRTI_SCHEDULE_GAMMA 0.1 /* where none is named, as PyTorch's StepLR has it */

/* Names of the kinds in their order. */
extern const char *const psrti_schedule_names[PSRTI_SCHEDULES];

/* Whole numbers of steps are doubles as all hyper-parameters are. */
typedef struct psrti_schedule {
    psrti_schedule_kind_t kind;
    double warmup; /* steps below the full rate, before the schedule proper; 0: none  */
    double period; /* step: steps between two changes                                 */
    double gamma;  /* step: the factor of a change                                    */
    double total;  /* cosine, linear: steps, after the warm-up, until `final` is reached */
    double final;  /* cosine, linear: the learning rate from there on                 */
} psrti_schedule_t;

/* The learning rate of update `step`, 0 for the first, where the one that is named is `lr`. Equal to
 * the bit on every processor. With s for step, w for warmup, as PyTorch's SequentialLR with milestone w:
 *
 *   s < w     lr * (s + 1) / (w + 1)             LinearLR(start_factor=1/(w+1), total_iters=w)
 *   then, with p = s - w:
 *   constant  lr
 *   step      lr * gamma ^ floor(p / period)     StepLR(period, gamma)
 *   cosine    final + (lr - final) * (1 + cos(pi * p / total)) / 2     CosineAnnealingLR(total, final)
 *   linear    lr + (final - lr) * p / total      LinearLR(1, final / lr, total)
 *
 * cosine and linear stay at `final` after p = total, where PyTorch's cosine rises again. */
double psrti_schedule_rate(const psrti_schedule_t *schedule, double lr, uint64_t step);
/* What is wrong with the numbers; NULL: nothing. */
const char *psrti_schedule_check(const psrti_schedule_t *schedule);

#endif
