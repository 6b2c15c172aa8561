/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collectives among workers: allreduce, broadcast and their kin, without a server.
 *
 * Conventions beyond those of psrt.h:
 *  - All members of a communicator make the same calls on it, in the same order, with the same arguments
 *    where these docs do not say "own". Calls of one communicator are made by one thread at a time.
 *  - Counts are elements and may be 0. Buffers may be any memory; that of psrt_alloc is read by peers in place.
 *    They are used until the operation ended; then `in` is unchanged and `out` has the result.
 *  - In place: where `in` has as many elements as `out`, pass the same pointer; where one of them is a rank's
 *    part of the other (allgather, gather, reduce_scatter, scatter), a pointer to that part. Other overlaps are
 *    errors that are not detected.
 *  - All ranks get the same bits, from run to run for the same ranks, counts and settings.
 *  - With `op_p` NULL the call waits for its end and returns its status; else it returns OK once started and
 *    the operation is tested, waited for and released as any other. `op_p` may get NULL: done already.
 *  - Every call returns besides what is said at it: OK; ERR_INVALID (the text names the argument);
 *    ERR_NO_MEMORY; ERR_BUSY the communicator is not ready (wait for the operation of its creation);
 *    ERR_MISMATCH the members disagree (the text has both calls); ERR_PEER_LOST a member died or the connection
 *    to it broke (psrt_comm_shrink goes on without the dead); ERR_TIMEOUT no progress for PSRT_COLL_TIMEOUT
 *    (the text names who has not called); ERR_CANCELED; errors of a lost context. After one of those five the
 *    communicator has failed on all members: its other operations end with the same error, `out` is undefined.
 */
#ifndef PSRT_COMM_H
#define PSRT_COMM_H

#include <psrt/psrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

typedef struct psrt_comm psrt_comm_t;

/* ---- communicators ----------------------------------------------------------------------------- */

typedef struct psrt_comm_params {
    size_t size;
    /** Ranks of workers in the job, in the order that they have in the communicator, each once, the caller
     *  among them; NULL: all workers of the current view. */
    const uint32_t *ranks;
    uint32_t count; /**< of ranks */
    const char
        *name; /**< tells communicators of the same members apart that are created in different
                           orders; at most 255 bytes, NULL: none */
    /** Rules for algorithms of this communicator and those made of it, instead of PSRT_COLL_TUNE and as there
     *  (docs/collectives.md), without @FILE; the same on all members. NULL or "": PSRT_COLL_TUNE. */
    const char *tune;
} psrt_comm_params_t;
#define PSRT_COMM_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(psrt_comm_params_t), NULL, 0, NULL, NULL                                            \
    }

/**
 * Creates a communicator; called by its members only, all with the same list.
 * @param params NULL for all workers
 * @param comm_p released by psrt_comm_free; may be used once the operation ended with OK
 * @param op_p   as above; NULL waits until all members called
 * @threads any  @blocks only with op_p NULL  @since 0.1
 */
psrt_status_t psrt_comm_create(psrt_context_t *ctx, const psrt_comm_params_t *params,
                               psrt_comm_t **comm_p, psrt_op_t **op_p);

/**
 * Communicators of the members that give the same colour, ordered by key and, where keys are equal, by rank in
 * the parent. A collective call of all members of `parent`.
 * @param colour own; negative: this rank is in none, its handle is good for psrt_comm_free alone
 * @param key    own
 * @threads as collectives of parent  @blocks only with op_p NULL  @since 0.1
 */
psrt_status_t psrt_comm_split(psrt_comm_t *parent, int32_t colour, int32_t key,
                              psrt_comm_t **comm_p, psrt_op_t **op_p);

/** Another communicator of the same members. As psrt_comm_split. @since 0.1 */
psrt_status_t psrt_comm_dup(psrt_comm_t *parent, psrt_comm_t **comm_p, psrt_op_t **op_p);

/**
 * A communicator of the members of `failed` that live, in the same order. Called by all of those; for members
 * that die meanwhile it does not wait. `failed` need not have failed on all of them.
 * @threads any  @blocks only with op_p NULL: until leases of dead members ran out  @since 0.1
 */
psrt_status_t psrt_comm_shrink(psrt_comm_t *failed, psrt_comm_t **comm_p, psrt_op_t **op_p);

/**
 * Releases a communicator. Operations that have not ended end with ERR_CANCELED, there and on the other
 * members if they need this one.
 * @param comm NULL is allowed
 * @threads no other call on it may run  @blocks no  @since 0.1
 */
void psrt_comm_free(psrt_comm_t *comm);

typedef struct psrt_comm_attr {
    size_t size;
    uint32_t rank;        /**< of the caller in it                                          */
    uint32_t ranks;       /**< members                                                      */
    uint32_t hosts;       /**< hosts they are on: ranks of one share memory; 0: not ready */
    psrt_status_t status; /**< OK; ERR_BUSY: not ready yet; else what it failed with      */
} psrt_comm_attr_t;
#define PSRT_COMM_ATTR_INIT                                                                        \
    {                                                                                              \
        sizeof(psrt_comm_attr_t), 0, 0, 0, PSRT_OK                                                 \
    }

/** Facts about a communicator. @return OK; ERR_INVALID  @threads any  @blocks no  @since 0.1 */
psrt_status_t psrt_comm_query(psrt_comm_t *comm, psrt_comm_attr_t *attr_p);

/* ---- collectives ------------------------------------------------------------------------------- */

/** out = in of rank 0 `redop` ... `redop` in of the last rank, on all ranks. `count` elements. @since 0.1 */
psrt_status_t psrt_allreduce(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                             psrt_dtype_t dtype, psrt_redop_t redop, psrt_op_t **op_p);
/** As psrt_allreduce, the result on `root` alone; `out` may be NULL elsewhere. @since 0.1 */
psrt_status_t psrt_reduce(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                          psrt_dtype_t dtype, psrt_redop_t redop, uint32_t root, psrt_op_t **op_p);
/** `buf` of root to `buf` of all ranks. @since 0.1 */
psrt_status_t psrt_broadcast(psrt_comm_t *comm, void *buf, uint64_t count, psrt_dtype_t dtype,
                             uint32_t root, psrt_op_t **op_p);
/** `count` elements of each rank, one after the other, on all ranks. @since 0.1 */
psrt_status_t psrt_allgather(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                             psrt_dtype_t dtype, psrt_op_t **op_p);
/** As psrt_allgather with counts[i] elements of rank i, at offsets[i] of `out` (NULL: dense). @since 0.1 */
psrt_status_t psrt_allgatherv(psrt_comm_t *comm, const void *in, void *out, const uint64_t *counts,
                              const uint64_t *offsets, psrt_dtype_t dtype, psrt_op_t **op_p);
/** `in` has `count` elements for each rank; `out` the `count` ones for the caller, reduced. @since 0.1 */
psrt_status_t psrt_reduce_scatter(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                                  psrt_dtype_t dtype, psrt_redop_t redop, psrt_op_t **op_p);
/** `in` has `count` elements for each rank, `out` gets as many of each; not in place. @since 0.1 */
psrt_status_t psrt_alltoall(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                            psrt_dtype_t dtype, psrt_op_t **op_p);
/** As psrt_alltoall with own counts and offsets (NULL: dense) for each rank; what one sends another is what
 *  that one expects, the caller itself included (ERR_INVALID). @since 0.1 */
psrt_status_t psrt_alltoallv(psrt_comm_t *comm, const void *in, const uint64_t *in_counts,
                             const uint64_t *in_offsets, void *out, const uint64_t *out_counts,
                             const uint64_t *out_offsets, psrt_dtype_t dtype, psrt_op_t **op_p);
/** As psrt_allgather, the result on `root` alone; `out` may be NULL elsewhere. @since 0.1 */
psrt_status_t psrt_gather(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                          psrt_dtype_t dtype, uint32_t root, psrt_op_t **op_p);
/** `in` of root has `count` elements for each rank; `in` may be NULL elsewhere. @since 0.1 */
psrt_status_t psrt_scatter(psrt_comm_t *comm, const void *in, void *out, uint64_t count,
                           psrt_dtype_t dtype, uint32_t root, psrt_op_t **op_p);
/** Ends on no rank before all ranks called. @since 0.1 */
psrt_status_t psrt_comm_barrier(psrt_comm_t *comm, psrt_op_t **op_p);

/** To another rank, `to`, which calls psrt_recv; the n-th send of a pair meets the n-th receive. The numbers of
 *  elements are the same on both sides. Up to PSRT_COLL_EAGER bytes end without the receiver, more wait for it: ranks
 *  that all send first and then receive need `op_p`. @since 0.1 */
psrt_status_t psrt_send(psrt_comm_t *comm, const void *in, uint64_t count, psrt_dtype_t dtype,
                        uint32_t to, psrt_op_t **op_p);
/** From rank `from`. As psrt_send. @since 0.1 */
psrt_status_t psrt_recv(psrt_comm_t *comm, void *out, uint64_t count, psrt_dtype_t dtype,
                        uint32_t from, psrt_op_t **op_p);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
