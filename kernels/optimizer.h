/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name. Adding one: a file in kernels/optim/ and a row in kernels/registry.c. */
#ifndef PSRTI_OPTIMIZER_H
#define PSRTI_OPTIMIZER_H

#include <psrt/ext/optimizer_v1.h>

#include "kernels/schedule.h"

/* Room for a canonical text and its end. */
#define PSRTI_OPTIMIZER_TEXT 512

typedef struct psrti_optimizer {
    const psrt_optimizer_ops_t *ops; /* NULL: "none", pushes are added to the values */
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    int num_states; /* of ops; 0 for none */
    /* Keys that every optimizer understands. */
    int lr;                /* index of the hyper-parameter `lr`; -1: it has none */
    double clip_norm;      /* most that the norm of the gradient may be; 0: off */
    double skip_nonfinite; /* 1: a step whose gradient has NaN or infinities changes nothing */
    double ema;            /* decay of the averages of the weights; 0: off */
    psrti_schedule_t schedule;
} psrti_optimizer_t;

/* "adam:lr=1e-3"; NULL or "none": none. ERR_INVALID with last error (nearest name). */
psrt_status_t psrti_optimizer_parse(const char *text, psrti_optimizer_t *out);
/* For a task that may not have the optimizer's plug-in: as "none" with the common keys of the text but the
 * schedule, which needs an lr. The optimizer's name and its own hyper-parameters can be any. */
psrt_status_t psrti_optimizer_parse_common(const char *text, psrti_optimizer_t *out);
/* Canonical text with every hyper-parameter, and those of the common keys that are not at their
 * default, to compare and to show specifications. */
psrt_status_t psrti_optimizer_format(const psrti_optimizer_t *opt, char *buf, size_t size);
/* Gives hyper-parameter `key` another value. ERR_INVALID with last error (nearest name, or what is
 * wrong with the value beside the others): nothing changed. */
psrt_status_t psrti_optimizer_set(psrti_optimizer_t *opt, const char *key, double value,
                                  int *index_p);
/* Gives the n elements of state `index`, which are zeros, their value before the first update. */
void psrti_optimizer_state_fill(const psrti_optimizer_t *opt, int index, psrt_dtype_t dtype,
                                void *state, uint64_t n);
/* Norms of the whole table that an update needs: PSRT_NEEDS_*. */
unsigned psrti_optimizer_needs(const psrti_optimizer_t *opt);
/* Does an update need a fact about the whole table, a norm or whether all of it is finite? */
int psrti_optimizer_two_phase(const psrti_optimizer_t *opt);
/* The factor of a gradient of this norm: min(1, clip_norm / (norm + 1e-6)), as PyTorch's
 * clip_grad_norm_; NaN for NaN. 1 without clip_norm. */
double psrti_optimizer_clip_scale(const psrti_optimizer_t *opt, double norm);
/* Hyper-parameters of update `step`, 0 for the first: those of opt, lr after the schedule. */
void psrti_optimizer_params_at(const psrti_optimizer_t *opt, uint64_t step,
                               double params[PSRT_OPTIMIZER_MAX_PARAMS]);
/* One step of the averages of the weights: average = decay * average + (1 - decay) * value. */
void psrti_optimizer_average(double decay, psrt_dtype_t dtype, void *average, const void *value,
                             uint64_t n);
/* Is it one of the keys that every optimizer understands? */
int psrti_optimizer_is_common_key(const char *name);
/* Those of kernels/optim/, NULL at the end, for tests. */
const psrt_optimizer_ops_t *const *psrti_optimizer_all(void);

#endif
