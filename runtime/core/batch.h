/* SPDX-License-Identifier: Apache-2.0 */
/* BATCH frames: many small messages from one task to another in one. Each keeps its own header, and with
 * it its number, term and status: exactly once is a matter of the messages inside, not of the batch.
 * docs/wire-format.md has the bytes.
 *
 * A batch copies what is added to it, so that the payloads are free again at once; the batch itself
 * belongs to the link until its tx is done. */
#ifndef PSRTI_BATCH_H
#define PSRTI_BATCH_H

#include <psrt/ext/transport_v1.h>

#include "base/util.h"
#include "transport/frame.h"

#define PSRTI_BATCH_BYTES 65536u  /* payload of a BATCH at most                                */
#define PSRTI_BATCH_PAYLOAD 4096u /* of a message in it; for larger ones a copy is no bargain  */
#define PSRTI_BATCH_ALIGN 8u      /* of the headers, and so of the payloads                    */

typedef struct psrti_batch {
    psrt_tx_t tx; /* psrti_batch_send's */
    struct psrti_batches *pool;
    struct psrti_batch *next; /* in the pool */
    uint32_t count, bytes;
    uint8_t priority; /* of the first message */
    _Alignas(64) uint8_t data[PSRTI_BATCH_BYTES];
} psrti_batch_t;

/* The batches of one thread. Zeroed with a limit it is valid. */
typedef struct psrti_batches {
    psrti_batch_t *free;
    uint64_t limit; /* bytes of a batch's payload at most; 0: none are made */
} psrti_batches_t;

psrti_batch_t *psrti_batch_take(psrti_batches_t *pool); /* empty; NULL: no memory */
void psrti_batch_give(psrti_batch_t *batch);            /* not sent, or done      */
/* None may be in flight. */
void psrti_batches_free(psrti_batches_t *pool);

/* 0: it does not fit. */
int psrti_batch_add(psrti_batch_t *batch, const psrt_hdr_t *hdr, const void *data, uint64_t len);
/* Its header; send it with batch->data, batch->bytes and batch->tx, whose end gives the batch back. */
psrt_hdr_t psrti_batch_header(const psrti_batch_t *batch);

/* Reading what a peer sent. OK: well formed from end to end, and every message in it is of a type in
 * `types`, a mask of 1 << psrti_frame_type_t; else ERR_PROTOCOL. */
psrt_status_t psrti_batch_check(const void *data, uint64_t len, uint32_t types);
/* The message at *pos of a batch that was checked, into hdr, data and len of *msg. ERR_NOT_FOUND: that was
 * the last one. ERR_PROTOCOL: the peer changed it since, which shared memory lets it do. *msg begins as a
 * copy of the batch's own message, so that it can be mapped and verified. */
psrt_status_t psrti_batch_next(const void *data, uint64_t len, uint32_t types, uint64_t *pos,
                               psrt_msg_t *msg);

#endif
