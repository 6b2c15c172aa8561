/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 65536u

Psrt__Control *fuzz_control(fuzz_in_t *in)
{
    size_t size = fuzz_u16(in);
    size = PSRTI_MIN(size, in->left);
    uint8_t *data = fuzz_bytes(in, size);
    Psrt__Control *msg = NULL;
    psrt_status_t rc = psrti_wire_unpack(data, size, MESSAGE_MAX, &msg);
    FUZZ_ASSERT((rc == PSRT_OK) == (msg != NULL));
    if (msg) {
        FUZZ_ASSERT(*psrti_wire_name(msg));
        fuzz_accept();
    } else {
        fuzz_refuse();
    }
    free(data); /* nothing in the message points to it */
    return msg;
}

void fuzz_put_control(fuzz_out_t *out, const Psrt__Control *msg)
{
    size_t size = psrti_wire_size(msg);
    FUZZ_ASSERT(size < sizeof out->data - out->size - 2);
    fuzz_put16(out, (unsigned)size);
    psrti_wire_pack(msg, out->data + out->size);
    out->size += size;
}

void fuzz_check_control(const Psrt__Control *msg)
{
    size_t size = psrti_wire_size(msg);
    uint8_t *first = malloc(size + 1), *second = malloc(size + 1);
    Psrt__Control *decoded = NULL;
    FUZZ_ASSERT(first && second);
    psrti_wire_pack(msg, first);
    FUZZ_ASSERT(psrti_wire_unpack(first, size, MESSAGE_MAX, &decoded) == PSRT_OK);
    FUZZ_ASSERT(psrti_wire_size(decoded) == size);
    psrti_wire_pack(decoded, second);
    FUZZ_ASSERT(memcmp(first, second, size) == 0);
    psrti_wire_free(decoded);
    free(first);
    free(second);
}

psrti_table_spec_t fuzz_table_spec(unsigned id, const char *optimizer, const char *group)
{
    char name[16];
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    snprintf(name, sizeof name, "t%u", id);
    p.ndim = 1, p.shape[0] = 100;
    p.optimizer = optimizer, p.group = group;
    FUZZ_ASSERT(psrti_table_spec_make(name, &p, &spec) == PSRT_OK);
    return spec;
}
