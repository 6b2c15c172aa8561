/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the fault transport: one wrapper, and the slots that do not depend on it. */
#ifndef PSRTI_FAULT_H
#define PSRTI_FAULT_H

#include <stdatomic.h>

#include "transport/transport.h"

typedef enum psrti_fault_kind {
    PSRTI_FAULT_NONE,
    PSRTI_FAULT_DROP,
    PSRTI_FAULT_DUP,
    PSRTI_FAULT_REORDER,
    PSRTI_FAULT_DELAY,
    PSRTI_FAULT_CUT_BEFORE,
    PSRTI_FAULT_CUT_AFTER,
} psrti_fault_kind_t;

/* One wrapper. */
typedef struct psrti_fault {
    psrt_transport_ops_t ops;
    const psrt_transport_ops_t *inner;
    int used;
    char name[32];
    uint64_t seed;
    double drop, dup, reorder, delay, cut;
    int ctrl;
    atomic_uint opened; /* interfaces so far */
    atomic_ullong counts[PSRTI_FAULT_CUT_AFTER + 1];
} psrti_fault_t;

/* The table of a wrapper, but for name, caps, score, probe and iface_open. */
void psrti_fault_fill_ops(psrti_fault_t *fault);
psrt_status_t psrti_fault_iface_open(psrti_fault_t *fault, const psrt_iface_params_t *params,
                                     psrt_iface_t **iface_p);

#endif
