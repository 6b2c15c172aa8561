/* SPDX-License-Identifier: Apache-2.0 */
/* The transports of this build. */
#ifndef PSRTI_TRANSPORT_H
#define PSRTI_TRANSPORT_H

#include <psrt/ext/transport_v1.h>

extern const psrt_transport_ops_t psrti_transport_inproc;
extern const psrt_transport_ops_t psrti_transport_shm;
extern const psrt_transport_ops_t psrti_transport_zmq;

/* All transports, highest score first, NULL at the end. Each was checked for its required slots. */
const psrt_transport_ops_t *const *psrti_transport_all(void);
const psrt_transport_ops_t *psrti_transport_find(const char *name);

/* Wraps `inner` with seeded faults. `spec` as PSRT_FAULT: "seed=1,drop=0.01,dup=0.01,reorder=0.01,
 * delay=0.01,cut=0.001". drop, dup, reorder, delay: share of frames, both directions; cut: chance per
 * frame that the endpoint is LOST, half the time after the frame was delivered and half before. It never touches HELLO and
 * WELCOME, and CTRL only if ctrl=1 is given. Free with psrti_transport_fault_destroy after all
 * interfaces are closed. */
psrt_status_t psrti_transport_fault_create(const psrt_transport_ops_t *inner, const char *spec,
                                           const psrt_transport_ops_t **ops_p);
void psrti_transport_fault_destroy(const psrt_transport_ops_t *ops);
typedef struct psrti_fault_counts {
    uint64_t drop, dup, reorder, delay, cut;
} psrti_fault_counts_t;
void psrti_transport_fault_counts(const psrt_transport_ops_t *ops, psrti_fault_counts_t *out);

#endif
