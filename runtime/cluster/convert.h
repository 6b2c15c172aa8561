/* SPDX-License-Identifier: Apache-2.0 */
/* Between the messages of the control plane and the structs of the runtime. What comes from the
 * wire is checked completely: counts, ranges, lengths, names. */
#ifndef PSRTI_CONVERT_H
#define PSRTI_CONVERT_H

#include "runtime/core/table_spec.h"
#include "runtime/core/view.h"
#include "runtime/wire/wire.h"

#define PSRTI_MAX_RANKS 65536u

/* `out` points into `spec`. */
void psrti_spec_to_wire(const psrti_table_spec_t *spec, Psrt__TableSpec *out);
/* ERR_PROTOCOL or what psrti_table_spec_check says. */
psrt_status_t psrti_spec_from_wire(const Psrt__TableSpec *in, psrti_table_spec_t *spec);

/* ERR_PROTOCOL: too many or too long addresses. */
psrt_status_t psrti_owner_from_wire(const Psrt__Owner *in, psrti_view_owner_t *owner);

/* One block that points into the view or the owners; release with free. NULL: no memory. */
Psrt__View *psrti_view_to_wire(const psrti_view_t *view);
Psrt__Owner **psrti_owners_to_wire(const psrti_view_owner_t *owners, uint32_t count);
/* A whole view. */
psrt_status_t psrti_view_from_wire(const Psrt__View *in, psrti_view_t **view_p);
/* What `view` has other than `base`, a view of the same job; as psrti_view_to_wire. */
Psrt__View *psrti_view_changes_to_wire(const psrti_view_t *base, const psrti_view_t *view);
/* The view that those changes make of `base`. ERR_PROTOCOL also when it is NULL or not the one that they
 * are of. */
psrt_status_t psrti_view_changed(const psrti_view_t *base, const Psrt__View *in,
                                 psrti_view_t **view_p);
/* For both. */
void psrti_owner_to_wire(const psrti_view_owner_t *owner, Psrt__Owner *out, char **addrs);
void psrti_worker_to_wire(const psrti_view_worker_t *worker, Psrt__Worker *out);
psrt_status_t psrti_worker_from_wire(const Psrt__Worker *in, psrti_view_worker_t *worker);

/* ERR_INVALID unless a lease outlives a lost heartbeat. */
psrt_status_t psrti_lease_check(uint64_t heartbeat_ns, uint64_t lease_ns);

/* A status that came over the wire; ERR_PROTOCOL for a number that is none. */
psrt_status_t psrti_status_from_wire(int32_t status);

/* Table entries of Declare, Declared, Hold, Held and Join, built for sending. */
typedef struct psrti_wire_tables {
    size_t count, capacity;
    Psrt__Table **list; /* `count` entries: what the messages want */
    Psrt__Table *tables;
    Psrt__TableSpec *specs;
} psrti_wire_tables_t;

psrt_status_t psrti_wire_tables_init(psrti_wire_tables_t *tables, size_t capacity);
/* text and spec (NULL: none) stay the caller's until the message was sent. */
void psrti_wire_tables_add(psrti_wire_tables_t *tables, uint32_t id, psrt_status_t status,
                           const char *text, const psrti_table_spec_t *spec, uint64_t first_step);
void psrti_wire_tables_free(psrti_wire_tables_t *tables);

#endif
