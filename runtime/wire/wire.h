/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: pack and unpack. control.proto is the schema, compiled by protobuf-c at build
 * time. What the fields mean to the runtime is checked where they are used (cluster/convert.h). */
#ifndef PSRTI_WIRE_H
#define PSRTI_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#include "runtime/wire/control.pb-c.h"

size_t psrti_wire_size(const Psrt__Control *msg);
/* `out` has psrti_wire_size bytes. */
void psrti_wire_pack(const Psrt__Control *msg, uint8_t *out);
/* ERR_LIMIT: longer than max; ERR_PROTOCOL: malformed, or it has no known body. */
psrt_status_t psrti_wire_unpack(const void *data, uint64_t len, uint64_t max,
                                Psrt__Control **msg_p);
void psrti_wire_free(Psrt__Control *msg); /* NULL allowed */
/* "join", for log lines */
const char *psrti_wire_name(const Psrt__Control *msg);

/* Declares `name`, a Control message whose body `field` of kind `KIND` points to `body`. */
#define PSRTI_CONTROL(name, KIND, field_, body)                                                    \
    Psrt__Control name = PSRT__CONTROL__INIT;                                                      \
    name.body_case = PSRT__CONTROL__BODY_##KIND;                                                   \
    name.field_ = (body)

#endif
