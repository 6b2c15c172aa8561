/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/wire.h"

size_t psrti_wire_size(const Psrt__Control *msg) { return psrt__control__get_packed_size(msg); }

void psrti_wire_pack(const Psrt__Control *msg, uint8_t *out) { psrt__control__pack(msg, out); }

psrt_status_t psrti_wire_unpack(const void *data, uint64_t len, uint64_t max, Psrt__Control **msg_p)
{
    Psrt__Control *msg;

    if (len > max) return PSRT_ERR_LIMIT;
    if (len == 0 || !data) return PSRT_ERR_PROTOCOL;
    msg = psrt__control__unpack(NULL, (size_t)len, data);
    if (!msg) return PSRT_ERR_PROTOCOL;
    if (msg->body_case == PSRT__CONTROL__BODY__NOT_SET) {
        psrti_wire_free(msg);
        return PSRT_ERR_PROTOCOL;
    }
    *msg_p = msg;
    return PSRT_OK;
}

void psrti_wire_free(Psrt__Control *msg)
{
    if (msg) psrt__control__free_unpacked(msg, NULL);
}

const char *psrti_wire_name(const Psrt__Control *msg)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&psrt__control__descriptor, msg->body_case);

    return field ? field->name : "unknown";
}
