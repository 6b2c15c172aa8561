/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives, measured by one rule whatever implements them: this library, MPI, Gloo, plain loops.
 *
 * An implementation is a coll_backend_t. Everything else is shared and does not use it: the ranks, processes of one
 * host, share an area (coll_area.h) in which they meet, agree on numbers of iterations and leave their
 * times. One iteration: every rank writes its input anew; all meet and leave at the same moment; each times its
 * own call; the slowest rank's time counts.
 */
#ifndef BENCH_COLL_H
#define BENCH_COLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct coll_area;

#define COLL_RANKS_MAX 64
#define COLL_LATENCY_BYTES 64u

typedef enum coll_kind {
    COLL_ALLREDUCE,
    COLL_REDUCE,
    COLL_BROADCAST,
    COLL_ALLGATHER,
    COLL_REDUCE_SCATTER,
    COLL_ALLTOALL,
    COLL_GATHER,
    COLL_SCATTER,
    COLL_BARRIER,
    COLL_ALLGATHERV,
    COLL_ALLTOALLV,
    COLL_SENDRECV, /* every rank sends to the next one and receives from the one before it */
    COLL_LATENCY,  /* allreduce of 64 B, one call after the other */
    COLL_KINDS
} coll_kind_t;

typedef enum coll_dtype {
    COLL_F32,
    COLL_F64,
    COLL_F16,
    COLL_BF16,
    COLL_I8,
    COLL_I16,
    COLL_I32,
    COLL_I64,
    COLL_U8,
    COLL_DTYPES
} coll_dtype_t;

typedef enum coll_redop {
    COLL_SUM,
    COLL_PROD,
    COLL_MIN,
    COLL_MAX,
    COLL_AVG,
    COLL_REDOPS
} coll_redop_t;

typedef enum coll_buffers { COLL_PSRT, COLL_USER, COLL_BUFFERS } coll_buffers_t;
typedef enum coll_transport { COLL_SHM, COLL_ZMQ, COLL_TRANSPORTS } coll_transport_t;

extern const char *const coll_kind_names[COLL_KINDS];
extern const char *const coll_dtype_names[COLL_DTYPES];
extern const char *const coll_redop_names[COLL_REDOPS];
extern const char *const coll_buffers_names[COLL_BUFFERS];
extern const char *const coll_transport_names[COLL_TRANSPORTS];

typedef struct coll_options {
    uint64_t min, max, factor;           /* bytes; sizes are min, min * factor, ... up to max */
    unsigned kinds, buffers, transports; /* bit masks */
    coll_dtype_t dtype;
    coll_redop_t redop;
    uint32_t ranks;
    double seconds; /* of a cell */
    const char *json;
    const char *area; /* this process is a rank: the path of the area */
} coll_options_t;

/* BENCH_RUN, or the exit code after --help or a wrong flag. `usage` heads the help. */
int coll_options_parse(int argc, char **argv, const char *usage, coll_options_t *out);

/* One call. Elements of `count` as MPI counts them: of the whole vector for allreduce, reduce, broadcast and
 * sendrecv, of one block for the others, of which `in` or `out` has as many as there are ranks. A broadcast sends
 * `in` of the root into `out` of the others. The root is rank 0.
 * Of allgatherv and alltoallv, `count` is the sum of all parts (coll_parts.h); `lengths` and `offsets` are those of
 * the parts in `out`, and in `in` of alltoallv. */
typedef struct coll_call {
    coll_kind_t kind;
    coll_dtype_t dtype;
    coll_redop_t redop;
    const void *in;
    void *out;
    uint64_t count;
    const uint64_t *lengths, *offsets; /* a rank each; of the v forms */
} coll_call_t;

typedef struct coll_backend {
    const char *impl, *transport;
    void *state;
    uint32_t rank, size;
    unsigned kinds; /* it has; bit mask */
    /* Returns when the call is complete on this rank. 0, or -1 after it printed what failed. */
    int (*run)(void *state, const coll_call_t *call);
    void *(*allocate)(void *state, coll_buffers_t buffers, uint64_t bytes); /* NULL: malloc */
    void (*release)(void *state, coll_buffers_t buffers, void *memory);
} coll_backend_t;

/* All cells of one implementation, by every rank; rank 0 prints the rows. The faster one of `limits` is printed
 * beside them. 0, or -1 after it printed what failed or was wrong. */
int coll_cells_run(const coll_options_t *options, struct coll_area *area,
                   const coll_backend_t *backend, const coll_backend_t *limits, size_t limit_count);

typedef struct coll_row {
    coll_kind_t kind;
    coll_dtype_t dtype;
    coll_redop_t redop;
    coll_buffers_t buffers;
    const char *impl, *transport;
    uint32_t ranks;
    uint64_t bytes, count; /* as nccl-tests counts: of the larger one of the two buffers */
    double p50_us, p99_us;
    double limit_us; /* 0: not measured */
    uint64_t wrong;  /* elements, of all ranks */
} coll_row_t;

void coll_row_header(void);
/* One line: the columns, a tab, the JSON object. */
void coll_row_print(const coll_row_t *row);

int bench_coll(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
