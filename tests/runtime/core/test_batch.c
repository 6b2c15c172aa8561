/* SPDX-License-Identifier: Apache-2.0 */
/* BATCH frames: the bytes of docs/wire-format.md, what fits, and what a peer must not send. */
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "runtime/core/batch.h"
#include "support/page.h"
#include "support/test.h"

#define REQUESTS (1u << PSRTI_T_PUSH | 1u << PSRTI_T_PULL)
#define EXAMPLE 144

static const psrt_hdr_t push = { .type = PSRTI_T_PUSH,
                                 .flags = PSRTI_F_END | PSRTI_F_WHOLE,
                                 .dtype = PSRT_F32,
                                 .term = 7,
                                 .seq = 9,
                                 .step = 42,
                                 .table = 3,
                                 .vshard = 517,
                                 .seq_floor = 4,
                                 .length = 3,
                                 .priority = 128 };
static const psrt_hdr_t pull = { .type = PSRTI_T_PULL,
                                 .term = 7,
                                 .seq = 1ull << 63 | 2,
                                 .step = 41,
                                 .table = 4,
                                 .vshard = 518,
                                 .length = 3,
                                 .priority = 128 };
static const float values[3] = { 1.0f, 2.0f, -0.5f };

/* ---- making ------------------------------------------------------------------------------------ */

Test(batch, page)
{
    uint8_t page[EXAMPLE + 1];
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *b = psrti_batch_take(&pool);
    cr_assert(psrti_batch_add(b, &push, values, sizeof values));
    cr_assert(psrti_batch_add(b, &pull, NULL, 0));
    cr_assert_eq(page_block("batch", page, sizeof page), EXAMPLE);
    cr_assert_eq(b->bytes, EXAMPLE);
    cr_assert_eq(memcmp(b->data, page, EXAMPLE), 0);
    psrt_hdr_t hdr = psrti_batch_header(b);
    cr_assert(hdr.type == PSRTI_T_BATCH && hdr.length == EXAMPLE && hdr.priority == 128);

    psrt_msg_t msg = { .flags = 5, .impl = &pool };
    uint64_t pos = 0;
    cr_assert_eq(psrti_batch_check(page, EXAMPLE, REQUESTS), PSRT_OK);
    cr_assert_eq(psrti_batch_next(page, EXAMPLE, REQUESTS, &pos, &msg), PSRT_OK);
    cr_assert(msg.hdr.type == PSRTI_T_PUSH && msg.hdr.seq == 9 && msg.len == sizeof values);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        cr_assert_eq(((const float *)msg.data)[i], values[i]);
    cr_assert_eq(psrti_batch_next(page, EXAMPLE, REQUESTS, &pos, &msg), PSRT_OK);
    cr_assert(msg.hdr.type == PSRTI_T_PULL && msg.hdr.seq == (1ull << 63 | 2));
    cr_assert(msg.len == 0 && msg.data == NULL);
    cr_assert(msg.flags == 5 && msg.impl == &pool, "what maps and verifies it");
    cr_assert_eq(psrti_batch_next(page, EXAMPLE, REQUESTS, &pos, &msg), PSRT_ERR_NOT_FOUND);
    psrti_batch_give(b);
    psrti_batches_free(&pool);
}

/* The limit counts headers and padding; a message that does not fit leaves the batch as it was. */
Test(batch, limits)
{
    psrti_batches_t pool = { .limit = 3 * PSRTI_FRAME_BYTES + 16 };
    uint8_t *large = calloc(1, PSRTI_BATCH_PAYLOAD + 4);
    psrti_batch_t *b = psrti_batch_take(&pool);
    cr_assert(psrti_batch_add(b, &push, values, 4));
    cr_assert(psrti_batch_add(b, &pull, NULL, 0));
    cr_assert_not(psrti_batch_add(b, &push, values, 12), "12 bytes need 16");
    cr_assert(b->count == 2 && b->bytes == 2 * PSRTI_FRAME_BYTES + 8);
    cr_assert(psrti_batch_add(b, &push, values, 8));
    cr_assert_not(psrti_batch_add(b, &pull, NULL, 0));
    psrti_batch_give(b);

    pool.limit = UINT64_MAX;
    b = psrti_batch_take(&pool);
    cr_assert_not(psrti_batch_add(b, &push, large, PSRTI_BATCH_PAYLOAD + 4));
    while (psrti_batch_add(b, &push, large, PSRTI_BATCH_PAYLOAD)) {}
    cr_assert_eq(b->count, PSRTI_BATCH_BYTES / (PSRTI_BATCH_PAYLOAD + PSRTI_FRAME_BYTES));
    psrti_batch_give(b);
    free(large);
    psrti_batches_free(&pool);
}

/* A link without room gave it back with its session filled in. */
Test(batch, a_message_that_could_not_go_alone)
{
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *b = psrti_batch_take(&pool);
    psrt_hdr_t tried = pull;
    tried.session = 0x1234;
    cr_assert(psrti_batch_add(b, &tried, NULL, 0));
    cr_assert_eq(psrti_batch_check(b->data, b->bytes, REQUESTS), PSRT_OK);
    psrti_batch_give(b);
    psrti_batches_free(&pool);
}

Test(batch, comes_back_when_its_send_is_done)
{
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *b = psrti_batch_take(&pool);
    psrti_batch_add(b, &pull, NULL, 0);
    b->tx.done(&b->tx, PSRT_ERR_CANCELED);
    cr_assert_eq(psrti_batch_take(&pool), b);
    cr_assert(b->count == 0 && b->bytes == 0);
    psrti_batch_give(b);
    psrti_batches_free(&pool);
}

/* ---- hostile ----------------------------------------------------------------------------------- */

/* One message with a payload that may have another length than it announces. */
static size_t put(uint8_t *at, psrt_hdr_t hdr, size_t payload)
{
    psrti_frame_encode(&hdr, at);
    memset(at + PSRTI_FRAME_BYTES, 0, payload);
    return PSRTI_FRAME_BYTES + payload;
}

static psrt_status_t check(const psrt_hdr_t *hdr, size_t payload)
{
    uint8_t *exact = malloc(PSRTI_FRAME_BYTES + payload); /* a sanitizer sees the byte behind it */
    size_t len = put(exact, *hdr, payload);
    psrt_status_t st = psrti_batch_check(exact, len, REQUESTS);
    free(exact);
    return st;
}

Test(batch, every_cut_is_refused)
{
    uint8_t page[EXAMPLE];
    page_block("batch", page, sizeof page);
    for (size_t len = 0; len < EXAMPLE; len++) {
        uint8_t *exact = malloc(len ? len : 1);
        memcpy(exact, page, len);
        int whole = len == PSRTI_FRAME_BYTES + 16;
        cr_assert_eq(psrti_batch_check(exact, len, REQUESTS), whole ? PSRT_OK : PSRT_ERR_PROTOCOL,
                     "%zu bytes", len);
        free(exact);
    }
}

Test(batch, every_flipped_bit_of_a_header_is_refused)
{
    uint8_t page[EXAMPLE] = { 0 };
    page_block("batch", page, sizeof page);
    for (unsigned bit = 0; bit < EXAMPLE * 8; bit++) {
        unsigned in_payload = bit / 8 >= PSRTI_FRAME_BYTES && bit / 8 < PSRTI_FRAME_BYTES + 16;
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(psrti_batch_check(page, EXAMPLE, REQUESTS) == PSRT_OK, in_payload, "bit %u",
                     bit);
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

Test(batch, wrong_messages_are_refused)
{
    psrt_hdr_t h = push;
    h.length = 4;
    cr_assert_eq(check(&h, 16), PSRT_OK);
    cr_assert_eq(check(&h, 8), PSRT_ERR_PROTOCOL, "less than announced");
    cr_assert_eq(check(&h, 24), PSRT_ERR_PROTOCOL, "eight bytes are no header");
    h.session = 1;
    cr_assert_eq(check(&h, 16), PSRT_ERR_PROTOCOL);
    h = push, h.flags |= PSRTI_F_EXT;
    cr_assert_eq(check(&h, 16), PSRT_ERR_PROTOCOL);
    h = push, h.length = PSRTI_BATCH_PAYLOAD / 4 + 1;
    cr_assert_eq(check(&h, PSRTI_BATCH_PAYLOAD + 8), PSRT_ERR_PROTOCOL, "not small");
    static const uint64_t lengths[] = { 1ull << 62, UINT64_MAX, UINT64_MAX / 4, UINT64_MAX - 7 };
    for (size_t i = 0; i < PSRTI_COUNT(lengths); i++) {
        h = push, h.length = lengths[i];
        cr_assert_eq(check(&h, 16), PSRT_ERR_PROTOCOL, "length %zu", i);
    }
    h = (psrt_hdr_t){ .type = PSRTI_T_BATCH, .length = 64 };
    cr_assert_eq(check(&h, 64), PSRT_ERR_PROTOCOL, "a batch in a batch");
    h = (psrt_hdr_t){ .type = PSRTI_T_CTRL, .length = 8 };
    cr_assert_eq(check(&h, 8), PSRT_ERR_PROTOCOL);
    h = (psrt_hdr_t){ .type = PSRTI_T_ACK };
    cr_assert_eq(check(&h, 0), PSRT_ERR_PROTOCOL, "an answer among requests");
}

/* Shared memory stays the peer's: what it changes between the check and the reading is refused. */
Test(batch, a_header_that_grew_after_the_check_is_refused)
{
    uint8_t page[EXAMPLE] = { 0 }, header[PSRTI_FRAME_BYTES];
    page_block("batch", page, sizeof page);
    psrt_msg_t msg = { .flags = 0 };
    uint64_t pos = 0;
    cr_assert_eq(psrti_batch_check(page, EXAMPLE, REQUESTS), PSRT_OK);
    cr_assert_eq(psrti_frame_decode(page, &msg.hdr, NULL), PSRT_OK);
    msg.hdr.length = PSRTI_BATCH_PAYLOAD / 4;
    psrti_frame_encode(&msg.hdr, header);
    memcpy(page, header, sizeof header);
    cr_assert_eq(psrti_batch_next(page, EXAMPLE, REQUESTS, &pos, &msg), PSRT_ERR_PROTOCOL);
    cr_assert_eq(pos, 0u);
}
