/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name. Adding one: a file in kernels/optim/ and a row in kernels/optimizer.c. */
#ifndef PSRTI_OPTIMIZER_H
#define PSRTI_OPTIMIZER_H

#include <psrt/ext/optimizer_v1.h>

typedef struct psrti_optimizer {
    const psrt_optimizer_ops_t *ops; /* NULL: "none", pushes are added to the values */
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    int num_states; /* of ops; 0 for none */
} psrti_optimizer_t;

/* "adam:lr=1e-3"; NULL or "none": none. ERR_INVALID with last error (nearest name). */
psrt_status_t psrti_optimizer_parse(const char *text, psrti_optimizer_t *out);
/* Canonical text with every hyper-parameter, to compare and to show specifications. */
psrt_status_t psrti_optimizer_format(const psrti_optimizer_t *opt, char *buf, size_t size);
/* Gives the n elements of state `index`, which are zeros, their value before the first update. */
void psrti_optimizer_state_fill(const psrti_optimizer_t *opt, int index, psrt_dtype_t dtype,
                                void *state, uint64_t n);
/* The table, NULL at the end, for listings and tests. */
const psrt_optimizer_ops_t *const *psrti_optimizer_all(void);

#endif
