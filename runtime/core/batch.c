/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/batch.h"

#include <stdlib.h>
#include <string.h>

/* ---- making ------------------------------------------------------------------------------------ */

static void tx_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* a lost batch is a lost link: what was in it is sent again */
    psrti_batch_give(PSRTI_CONTAINER_OF(tx, psrti_batch_t, tx));
}

psrti_batch_t *psrti_batch_take(psrti_batches_t *pool)
{
    psrti_batch_t *b = pool->free;
    if (b)
        pool->free = b->next;
    else
        b = aligned_alloc(_Alignof(psrti_batch_t), sizeof *b);
    if (!b) return NULL;
    b->tx = (psrt_tx_t){ .done = tx_done };
    b->pool = pool;
    b->count = b->bytes = 0;
    b->priority = 0;
    return b;
}

void psrti_batch_give(psrti_batch_t *b)
{
    b->next = b->pool->free;
    b->pool->free = b;
}

void psrti_batches_free(psrti_batches_t *pool)
{
    while (pool->free) {
        psrti_batch_t *b = pool->free;
        pool->free = b->next;
        free(b);
    }
}

static uint64_t padded(uint64_t len)
{
    return (len + PSRTI_BATCH_ALIGN - 1) / PSRTI_BATCH_ALIGN * PSRTI_BATCH_ALIGN;
}

int psrti_batch_add(psrti_batch_t *b, const psrt_hdr_t *hdr, const void *data, uint64_t len)
{
    uint64_t room = PSRTI_MIN(b->pool->limit, sizeof b->data);
    if (len > PSRTI_BATCH_PAYLOAD || b->bytes + PSRTI_FRAME_BYTES + padded(len) > room) return 0;
    uint8_t *at = b->data + b->bytes;
    psrt_hdr_t inner = *hdr;
    inner.session = 0; /* that of an earlier try to send it alone; the batch has its own */
    psrti_frame_encode(&inner, at);
    if (len) memcpy(at + PSRTI_FRAME_BYTES, data, len);
    memset(at + PSRTI_FRAME_BYTES + len, 0, padded(len) - len);
    if (!b->count++) b->priority = hdr->priority;
    b->bytes += PSRTI_FRAME_BYTES + (uint32_t)padded(len);
    return 1;
}

psrt_hdr_t psrti_batch_header(const psrti_batch_t *b)
{
    return (psrt_hdr_t){ .type = PSRTI_T_BATCH, .length = b->bytes, .priority = b->priority };
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* The message at `at`, of which `left` bytes are there: its header, copied before it is looked at, and the
 * bytes of payload and padding that follow it. */
static psrt_status_t read_one(const uint8_t *at, uint64_t left, uint32_t types, psrt_hdr_t *hdr,
                              uint64_t *payload)
{
    uint8_t own[PSRTI_FRAME_BYTES];
    if (left < sizeof own) return PSRT_ERR_PROTOCOL;
    memcpy(own, at, sizeof own);
    if (psrti_frame_decode(own, hdr, NULL) != PSRT_OK ||
        psrti_frame_payload(hdr, payload) != PSRT_OK)
        return PSRT_ERR_PROTOCOL;
    if (!(types >> hdr->type & 1) || hdr->session || (hdr->flags & PSRTI_F_EXT) ||
        *payload > PSRTI_BATCH_PAYLOAD || padded(*payload) > left - sizeof own)
        return PSRT_ERR_PROTOCOL;
    return PSRT_OK;
}

psrt_status_t psrti_batch_check(const void *data, uint64_t len, uint32_t types)
{
    uint64_t pos = 0;
    psrt_msg_t msg;
    psrt_status_t rc = len ? PSRT_OK : PSRT_ERR_PROTOCOL;
    while (rc == PSRT_OK)
        rc = psrti_batch_next(data, len, types, &pos, &msg);
    return rc == PSRT_ERR_NOT_FOUND ? PSRT_OK : rc;
}

psrt_status_t psrti_batch_next(const void *data, uint64_t len, uint32_t types, uint64_t *pos,
                               psrt_msg_t *msg)
{
    const uint8_t *at = (const uint8_t *)data + *pos;
    if (*pos == len) return PSRT_ERR_NOT_FOUND;
    psrt_status_t rc = read_one(at, len - *pos, types, &msg->hdr, &msg->len);
    if (rc != PSRT_OK) return rc;
    msg->data = msg->len ? at + PSRTI_FRAME_BYTES : NULL;
    *pos += PSRTI_FRAME_BYTES + padded(msg->len);
    return PSRT_OK;
}
