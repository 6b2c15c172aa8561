/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of all ranks of a communicator with values that differ in every place, and what must come out, computed
 * without the kernels. Buffers are as long as the call says, so that a sanitizer sees one step too far; what an
 * operation that ended may no longer touch is overwritten at once. */
#ifndef PSRT_TESTS_COLL_CALLS_H
#define PSRT_TESTS_COLL_CALLS_H

#include "runtime/coll/fabric.h"

typedef struct side {
    psrti_collop_t op; /* first: the hook finds the rest by it */
    psrti_coll_call_t call;
    void *in, *out, *result; /* result: `out` when the operation ended */
    size_t in_bytes, out_bytes;
    int in_place;
    uint64_t in_counts[FB_RANKS], in_offsets[FB_RANKS];
    uint64_t out_counts[FB_RANKS], out_offsets[FB_RANKS];
} side_t;

typedef struct call {
    uint32_t n, salt;
    psrti_coll_call_t like; /* what, dtype, redop, root, count */
    int in_place;
    side_t side[FB_RANKS];
} call_t;

/* Of a send: to root from every other rank is not possible; root is then the receiver and `from` the sender. */
void call_make(call_t *c, uint32_t n, psrti_coll_call_t like, int in_place, uint32_t salt);
void call_start(call_t *c, uint32_t rank, psrti_comm_t *comm);
void call_free(call_t *c);
/* All ended well and have what they should; on failure says which case. */
void call_check(call_t *c, const char *about);
/* Without buffers. */
psrti_coll_call_t make_call(uint8_t what, uint8_t dtype, uint8_t redop, uint64_t count,
                            uint32_t root);
/* All operations of the communicators and later ones have this status and texts. */
void all_failed(fabric_t *fb, psrti_comm_t **comms, psrt_status_t status, const char *text);
/* on_ended of a fabric */
void call_ended(psrti_collop_t *op);
int call_reduces(uint8_t what);

#endif
