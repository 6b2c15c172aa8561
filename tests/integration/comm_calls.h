/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a collective, as the agent makes it: what a rank gives and what must come out are small integers,
 * which all types and orders of summation have exactly; rank and element can be told from them. */
#ifndef PSRT_TESTS_COMM_CALLS_H
#define PSRT_TESTS_COMM_CALLS_H

#include <psrt/comm.h>

enum {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    SCATTER,
    BARRIER,
    RING,
    WHATS
};
extern const char *const whats[WHATS], *const redops[5];
#define DTYPES 9
extern const psrt_dtype_t dtypes[DTYPES];

typedef struct call {
    psrt_context_t *ctx;
    uint64_t count;
    uint64_t nin, nout; /* elements of its buffers here */
    void *in, *out;
    uint64_t *counts[2];
    psrt_op_t *op[2];
    int what, redop, in_place, shared, now;
    psrt_dtype_t dtype;
    uint32_t root, rank, ranks;
} call_t;

/* Of a call whose what, redop, dtype, count and root are set: the rest, and its buffers. */
psrt_status_t call_prepare(call_t *c, psrt_context_t *ctx, psrt_comm_t *comm);
psrt_status_t call_begin(call_t *c, psrt_comm_t *comm);
/* Waits, checks, and frees the call; `rc` is what its begin gave. */
psrt_status_t call_finish(call_t *c, psrt_status_t rc, char *text, size_t size);

#endif
