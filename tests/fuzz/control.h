/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages in inputs of the targets coordinator and member: length 2 | protobuf. */
#ifndef PSRT_TESTS_FUZZ_CONTROL_H
#define PSRT_TESTS_FUZZ_CONTROL_H

#include "fuzz.h"
#include "runtime/cluster/convert.h"

/* The next message, decoded from exactly its bytes; NULL: malformed. */
Psrt__Control *fuzz_control(fuzz_in_t *in);
void fuzz_put_control(fuzz_out_t *out, const Psrt__Control *msg);
/* What a core sends can be encoded, and decodes to the same bytes. */
void fuzz_check_control(const Psrt__Control *msg);
/* "t<id>", f32, 100 elements. */
psrti_table_spec_t fuzz_table_spec(unsigned id, const char *optimizer, const char *group);

#endif
