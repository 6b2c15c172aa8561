/* SPDX-License-Identifier: Apache-2.0 */
/* Input: mode | number of changes | changes (offset 2, byte 1) | a batch's payload. After the check
 * the changes are made while it is read, as a peer with shared memory can. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/core/batch.h"

#define REQUESTS                                                                                   \
    (1u << PSRTI_T_PUSH | 1u << PSRTI_T_PULL | 1u << PSRTI_T_INIT | 1u << PSRTI_T_CLOCK |          \
     1u << PSRTI_T_CANCEL)
#define ANSWERS (1u << PSRTI_T_ACK | 1u << PSRTI_T_VALUE | 1u << PSRTI_T_MOVED)

enum { MODE_ANSWERS = 1, MODE_MEND = 2 };

static void check_message(const psrt_msg_t *msg, uint32_t types, const uint8_t *data, size_t size)
{
    uint64_t bytes;
    FUZZ_ASSERT(types >> msg->hdr.type & 1 && msg->hdr.session == 0);
    FUZZ_ASSERT(psrti_frame_payload(&msg->hdr, &bytes) == PSRT_OK && bytes == msg->len);
    FUZZ_ASSERT(msg->len <= PSRTI_BATCH_PAYLOAD && (msg->len == 0) == (msg->data == NULL));
    const uint8_t *payload = msg->data;
    if (payload)
        FUZZ_ASSERT(payload >= data + PSRTI_FRAME_BYTES && payload + msg->len <= data + size &&
                    (size_t)(payload - data) % PSRTI_BATCH_ALIGN == 0);
    fuzz_check_header(&msg->hdr);
}

/* What was read, batched again, is what was sent; the padding may differ. */
static void check_again(const uint8_t *data, size_t size, uint32_t types)
{
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *batch = psrti_batch_take(&pool);
    uint64_t pos = 0, before = 0;
    psrt_msg_t msg = { 0 };
    FUZZ_ASSERT(batch);
    for (; psrti_batch_next(data, size, types, &pos, &msg) == PSRT_OK; before = pos) {
        check_message(&msg, types, data, size);
        if (!psrti_batch_add(batch, &msg.hdr, msg.data, msg.len)) break; /* longer than we send */
        FUZZ_ASSERT(batch->bytes == pos);
        FUZZ_ASSERT(memcmp(batch->data + before, data + before, PSRTI_FRAME_BYTES + msg.len) == 0);
    }
    psrti_batch_give(batch);
    psrti_batches_free(&pool);
}

static void read_changing(uint8_t *data, size_t size, uint32_t types, fuzz_in_t changes)
{
    uint64_t pos = 0, before = 0;
    psrt_msg_t msg = { 0 };
    while (psrti_batch_next(data, size, types, &pos, &msg) == PSRT_OK) {
        FUZZ_ASSERT(pos > before && pos <= size);
        before = pos;
        check_message(&msg, types, data, size);
        if (!changes.left) continue;
        size_t at = fuzz_u16(&changes);
        data[at % size] = fuzz_u8(&changes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size)
{
    fuzz_in_t in = { input, input_size };
    unsigned mode = fuzz_u8(&in);
    size_t changes_size = 3u * fuzz_u8(&in);
    changes_size = PSRTI_MIN(changes_size, in.left);
    fuzz_in_t changes = { in.at, changes_size };
    in.at += changes_size;
    in.left -= changes_size;
    size_t size = in.left;
    uint8_t *data = fuzz_bytes(&in, size);
    uint32_t types = mode & MODE_ANSWERS ? ANSWERS : REQUESTS;
    if (mode & MODE_MEND) fuzz_mend_batch(data, size);
    if (psrti_batch_check(data, size, types) == PSRT_OK) {
        FUZZ_ASSERT(size >= PSRTI_FRAME_BYTES);
        fuzz_accept();
        check_again(data, size, types);
        read_changing(data, size, types, changes);
    }
    free(data);
    return 0;
}

static void seed(const char *name, unsigned mode, unsigned messages)
{
    static const uint8_t types[2][5] = {
        { PSRTI_T_PUSH, PSRTI_T_PULL, PSRTI_T_INIT, PSRTI_T_CLOCK, PSRTI_T_CANCEL },
        { PSRTI_T_ACK, PSRTI_T_VALUE, PSRTI_T_MOVED, PSRTI_T_VALUE, PSRTI_T_ACK }
    };
    psrti_batches_t pool = { .limit = PSRTI_BATCH_BYTES };
    psrti_batch_t *batch = psrti_batch_take(&pool);
    FUZZ_ASSERT(batch);
    for (unsigned i = 0; i < messages; i++) {
        float values[3] = { 1.0f + (float)i, 2, -0.5f };
        uint8_t type = types[mode & MODE_ANSWERS][i % 5];
        int full = type == PSRTI_T_PUSH || type == PSRTI_T_INIT || type == PSRTI_T_VALUE;
        psrt_hdr_t hdr = { .type = type,
                           .dtype = full ? PSRT_F32 : 0,
                           .table = 3 + i,
                           .step = 42,
                           .seq = 9 + i,
                           .vshard = 517,
                           .term = 7,
                           .length = 3,
                           .priority = 128 };
        FUZZ_ASSERT(psrti_batch_add(batch, &hdr, full ? values : NULL, full ? sizeof values : 0));
    }
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, mode);
    fuzz_put8(&out, 1); /* one change: the length of the second message */
    fuzz_put16(&out, 80 + 48);
    fuzz_put8(&out, 0x55);
    fuzz_put(&out, batch->data, batch->bytes);
    fuzz_seed(name, out.data, out.size);
    psrti_batch_give(batch);
    psrti_batches_free(&pool);
}

void fuzz_seeds(void)
{
    seed("request", MODE_MEND, 1);
    seed("requests", MODE_MEND, 5);
    seed("answer", MODE_MEND | MODE_ANSWERS, 1);
    seed("answers", MODE_MEND | MODE_ANSWERS, 5);
}
