/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Fusion: allreduce of many named tensors in few messages.
 *
 * Ranks submit tensors by name, each in its own order, from any thread. Those of the same type and reduction travel
 * together in buckets, and a bucket is sent as soon as all of its tensors were submitted. Which tensors are in which
 * bucket the ranks agree on when they see a name for the first time; as long as the set stays the same they say
 * nothing more about it. docs/collectives.md has an example and what to expect of it.
 *
 * Conventions are those of comm.h. Besides:
 *  - In each step all ranks submit the same tensors. A rank may submit a name again when its operation ended.
 *  - `in` and `out` may be the same. Large tensors (alone_bytes) are sent out of and into the buffers of the caller,
 *    others are copied, in and out.
 *  - The results are those of psrt_allreduce for a buffer that holds the whole bucket: the same bits on all ranks.
 *  - After ERR_MISMATCH, ERR_PEER_LOST, ERR_TIMEOUT, ERR_CANCELED or ERR_NO_MEMORY of one operation the fusion has
 *    failed on all members: all operations end with this status, later calls return it. The communicator it was
 *    made of goes on, unless a member is dead or its connection was lost.
 */
#ifndef PSRT_FUSION_H
#define PSRT_FUSION_H

#include <psrt/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

typedef struct psrt_fusion psrt_fusion_t;

typedef struct psrt_fusion_params {
    size_t size;
    uint64_t bucket_bytes; /**< of a bucket at most; 0: 25 MiB. The same on all ranks */
    /** A tensor of so many bytes goes alone, out of and into the caller's memory; 0: 32 KiB. The same on all
     *  ranks. */
    uint64_t alone_bytes;
    /** For how long a tensor that is in no bucket yet waits for others before the ranks agree on one for it;
     *  0: 5 ms. After 200 times as long without progress the ranks tell one another what they wait for. */
    uint64_t cycle_ns;
} psrt_fusion_params_t;
#define PSRT_FUSION_PARAMS_INIT                                                                    \
    {                                                                                              \
        sizeof(psrt_fusion_params_t), 0, 0, 0                                                      \
    }

/**
 * Creates a fusion among the members of a communicator. A collective call, as psrt_comm_dup; what the fusion
 * sends never meets calls on `comm`, which may be freed before it.
 * @param params   NULL for all defaults
 * @param fusion_p released by psrt_fusion_free; may be used once the operation ended with OK
 * @param op_p     NULL waits until all members called
 * @return as psrt_comm_dup
 * @threads as collectives of comm  @blocks only with op_p NULL  @since 0.1
 */
psrt_status_t psrt_fusion_create(psrt_comm_t *comm, const psrt_fusion_params_t *params,
                                 psrt_fusion_t **fusion_p, psrt_op_t **op_p);

/**
 * Submits a tensor: out = in of all ranks, reduced, as psrt_allreduce.
 * @param name  1 to 255 bytes, identity of the tensor among the ranks
 * @param in    `count` elements, used until the operation ended
 * @param out   as many
 * @param op_p  the operation; NULL: flushes and waits
 * @return OK; ERR_INVALID (the text names the argument); ERR_NO_MEMORY; ERR_BUSY the fusion is not ready, or a
 *         tensor of this name was submitted and has not ended; what the fusion failed with. The operation ends
 *         with: OK; ERR_MISMATCH ranks gave another count, dtype or redop (the text names the tensor and both
 *         sides), or another bucket_bytes or alone_bytes, or one freed its fusion (ERR_CANCELED if buckets were
 *         under way there); ERR_TIMEOUT no progress for PSRT_COLL_TIMEOUT
 *         (the text names a tensor and a rank that has not submitted it, or a rank that does not answer);
 *         ERR_PEER_LOST; ERR_CANCELED; ERR_NO_MEMORY; errors of a lost context
 * @threads any  @blocks only with op_p NULL  @since 0.1
 * Li et al., PyTorch Distributed, VLDB 2020; Sergeev and Del Balso, Horovod, 2018.
 */
psrt_status_t psrt_fusion_allreduce(psrt_fusion_t *fusion, const char *name, const void *in,
                                    void *out, uint64_t count, psrt_dtype_t dtype,
                                    psrt_redop_t redop, psrt_op_t **op_p);

/**
 * Says that this rank submits nothing more before what it submitted has ended: new tensors do not wait for the
 * cycle to end, and buckets do not wait for tensors that no rank has submitted. At the end of a step; never
 * necessary, and without effect where every tensor of the set was submitted.
 * @return OK; ERR_INVALID; ERR_BUSY it is not ready; what it failed with
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_fusion_flush(psrt_fusion_t *fusion);

typedef struct psrt_fusion_attr {
    size_t size;
    uint32_t tensors;     /**< in the set                                             */
    uint32_t buckets;     /**< that carry them                                        */
    uint64_t sent;        /**< buckets that this rank began                           */
    uint64_t rounds;      /**< agreements so far: stays as long as the set does       */
    psrt_status_t status; /**< OK; ERR_BUSY: not ready yet; else what it failed with  */
} psrt_fusion_attr_t;
#define PSRT_FUSION_ATTR_INIT                                                                      \
    {                                                                                              \
        sizeof(psrt_fusion_attr_t), 0, 0, 0, 0, PSRT_OK                                            \
    }

/** Facts about a fusion. @return OK; ERR_INVALID  @threads any  @blocks no  @since 0.1 */
psrt_status_t psrt_fusion_query(psrt_fusion_t *fusion, psrt_fusion_attr_t *attr_p);

/**
 * Releases a fusion. Operations that have not ended end with ERR_CANCELED there; on the other members with
 * ERR_MISMATCH, or with ERR_CANCELED if this rank had begun buckets.
 * @param fusion NULL is allowed
 * @threads no other call on it may run  @blocks no  @since 0.1
 */
void psrt_fusion_free(psrt_fusion_t *fusion);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
