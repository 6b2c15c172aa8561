/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker sends and takes for each type and codec, and offsets beyond 2^32. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"
#include "support/half_ref.h"

static void declare(fx_t *fx, psrt_dtype_t dtype, const char *codec, uint64_t elements)
{
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = dtype, p.codec = codec, p.ndim = 1, p.shape[0] = elements, p.consistency = "async";
    cr_assert_eq(psrti_table_spec_make("t", &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_client_table(fx->client, 1, &spec, 0, &fx->table[1]), PSRT_OK);
}

static psrt_rx_t answer(fx_t *fx, size_t i, psrt_dtype_t dtype, int codec, const void *data,
                        uint64_t len)
{
    const psrt_hdr_t *h = &fx->sent[i].hdr;
    psrt_msg_t m = { .hdr = { .type = PSRTI_T_VALUE,
                              .term = h->term,
                              .seq = h->seq,
                              .step = 1,
                              .table = h->table,
                              .vshard = h->vshard,
                              .offset = h->offset,
                              .length = h->length,
                              .dtype = (uint8_t)dtype,
                              .codec = (uint8_t)codec },
                     .data = data,
                     .len = len };
    return psrti_client_msg(fx->client, fx->sent[i].owner, &m);
}

static const struct {
    const half_format_t *half;
    psrti_codec_t codec;
} codecs[] = { { &half_f16, PSRTI_CODEC_F16 }, { &half_bf16, PSRTI_CODEC_BF16 } };

Test(types, a_codec_rounds_what_is_sent)
{
    for (size_t c = 0; c < PSRTI_COUNT(codecs); c++) {
        const half_format_t *half = codecs[c].half;
        enum { COUNT = 301 };
        fx_t *fx = fx_open();
        psrti_cop_t op;
        declare(fx, PSRT_F32, half->name, COUNT);
        for (int i = 0; i < COUNT; i++)
            fx->memory[i] = 0.001f * (float)(i * i - 20000) + 1e-3f;
        fx_submit(fx, &op, 1, PUSH | PULL, 0, 0);
        const fx_send_t *s = &fx->sent[0];
        cr_assert(s->hdr.dtype == PSRT_F32 && s->hdr.codec == codecs[c].codec &&
                  s->hdr.length == COUNT && s->len == 2 * COUNT);
        uint16_t reply[COUNT];
        for (int i = 0; i < COUNT; i++) {
            uint16_t sent = ((const uint16_t *)s->data)[i];
            cr_assert_eq(sent, half_encode(half, half_round(half, fx->memory[i])));
            reply[i] = half_encode(half, half_round(half, i * 0.37 - 50));
        }
        cr_assert_eq(answer(fx, 0, PSRT_F32, PSRTI_CODEC_NONE, reply, 4 * COUNT), PSRT_RX_BAD);
        cr_assert_eq(answer(fx, 0, PSRT_F32, codecs[!c].codec, reply, 2 * COUNT), PSRT_RX_BAD);
        cr_assert_eq(answer(fx, 0, PSRT_F32, codecs[c].codec, reply, 4 * COUNT), PSRT_RX_BAD);
        cr_assert_eq(answer(fx, 0, PSRT_F32, codecs[c].codec, reply, 2 * COUNT), PSRT_RX_DONE);
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(fx->memory[i], half_round(half, i * 0.37 - 50));
        fx_ended(fx, &op, PSRT_OK);
        psrti_client_counts_t n;
        psrti_client_counts(fx->client, &n);
        cr_assert(n.pushed_bytes == 2 * COUNT && n.pulled_bytes == 2 * COUNT);
        fx_close(fx);
    }
}

/* A repeat carries the same bytes, from memory that lives until no send reads it any more. */
Test(types, an_encoded_push_is_repeated)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    declare(fx, PSRT_F32, "f16", 100);
    for (int i = 0; i < 100; i++)
        fx->memory[i] = (float)i;
    fx->keep = 1;
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    fx_done(fx, 0);
    fx->now += 2 * FX_RETRY;
    fx_progress(fx);
    cr_assert_eq(fx->sends, 2u);
    const fx_send_t *again = &fx->sent[1];
    cr_assert(again->hdr.flags & PSRTI_F_RETRY);
    cr_assert_eq(again->len, 200u);
    fx_ack(fx, 1, PSRT_OK, 0, 1);
    cr_assert_null(psrti_client_completed(fx->client), "the repeat is still read");
    for (int i = 0; i < 100; i++)
        cr_assert_eq(((const uint16_t *)again->data)[i], half_encode(&half_f16, i));
    fx_done(fx, 1);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

Test(types, first_values_are_sent_as_they_are)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    declare(fx, PSRT_F32, "f16", 100);
    fx_submit(fx, &op, 1, INIT, 0, 0);
    const fx_send_t *s = &fx->sent[0];
    cr_assert(s->hdr.type == PSRTI_T_INIT && s->hdr.codec == PSRTI_CODEC_NONE &&
              s->hdr.dtype == PSRT_F32 && s->len == 400 && s->data == (const void *)fx->memory);
    fx_ack(fx, 0, PSRT_OK, 0, 0);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

/* Given up while it waits: what was encoded is freed with the client. */
Test(types, an_encoded_push_is_given_up)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    declare(fx, PSRT_F32, "bf16", 3 * FX_SLICE);
    fx_submit(fx, &op, 1, PUSH, 0, 0);
    cr_assert_eq(fx->sends, 3u);
    fx_close(fx);
}

Test(types, other_types_are_sent_from_the_users_memory)
{
    static const psrt_dtype_t types[] = { PSRT_F64, PSRT_F16, PSRT_BF16, PSRT_I32, PSRT_I64 };
    for (size_t i = 0; i < PSRTI_COUNT(types); i++) {
        const uint64_t elem = psrt_dtype_size(types[i]);
        fx_t *fx = fx_open();
        psrti_cop_t op;
        declare(fx, types[i], NULL, FX_SLICE + 9);
        fx_submit(fx, &op, 1, PUSH | PULL, FX_SLICE - 2, 6);
        cr_assert_eq(fx->sends, 2u);
        for (size_t k = 0; k < 2; k++) {
            const fx_send_t *s = &fx->sent[k];
            uint64_t done = (s->hdr.offset - (FX_SLICE - 2)) * elem;
            cr_assert(s->hdr.dtype == types[i] && s->hdr.codec == PSRTI_CODEC_NONE);
            cr_assert_eq(s->len, s->hdr.length * elem);
            cr_assert_eq(s->data, (const void *)((const char *)fx->memory + done));
            char value[4 * 8];
            memset(value, (int)(16 * i + k + 1), sizeof value);
            cr_assert_eq(answer(fx, k, types[i], 0, value, s->len), PSRT_RX_DONE);
            cr_assert(memcmp((const char *)fx->memory + done, value, s->len) == 0);
        }
        fx_ended(fx, &op, PSRT_OK);
        fx_close(fx);
    }
}

/* Nothing is read or written here, so the memory of the whole table need not be there. */
static void whole_range(uint64_t elements, uint64_t offset, uint64_t count, psrt_dtype_t dtype)
{
    fx_t *fx = fx_open();
    psrti_cop_t op;
    const uint64_t elem = psrt_dtype_size(dtype);
    declare(fx, dtype, NULL, elements);
    uint64_t hash = psrti_hash_bytes("t", 1);
    psrti_transfer_t x = { .table = fx->table[1],
                           .grad = fx->memory,
                           .offset = offset,
                           .count = count,
                           .step = PSRT_STEP_NEXT };
    memset(&op, 0, sizeof op);
    psrti_client_submit(fx->client, &op, &x, 1);
    fx_progress(fx);
    uint64_t at = offset;
    for (size_t i = 0; at < offset + count; i++) {
        size_t k = 0; /* owners take turns: the message that goes on at `at` */
        while (k < fx->sends && fx->sent[k].hdr.offset != at)
            k++;
        cr_assert(k < fx->sends, "nothing sent for element %llu", (unsigned long long)at);
        const fx_send_t *s = &fx->sent[k];
        cr_assert(s->hdr.length > 0 && s->len == s->hdr.length * elem);
        cr_assert_eq(s->hdr.vshard, (hash + at / 262144) % 8);
        cr_assert_eq(at / 262144, (at + s->hdr.length - 1) / 262144, "crosses slices");
        cr_assert_eq((const char *)s->data - (const char *)fx->memory,
                     (ptrdiff_t)((at - offset) * elem));
        at += s->hdr.length;
        cr_assert_eq(fx_ack(fx, k, PSRT_OK, PSRTI_F_APPLIED, 1), PSRT_RX_DONE);
    }
    cr_assert_eq(at, offset + count);
    fx_ended(fx, &op, PSRT_OK);
    fx_close(fx);
}

Test(types, ranges_around_2_to_the_31_and_beyond_2_to_the_32)
{
    const uint64_t two31 = 1ull << 31, two32 = 1ull << 32;
    whole_range(two31 + 1, two31 - 300000, 300001, PSRT_F32);
    whole_range(two31 - 1, two31 - 300000, 299999, PSRT_I64);
    whole_range(two32 + 3, two32 - 5, 8, PSRT_F64);
    whole_range(two32 + 3, two32 - 700000, 700003, PSRT_F16);
}
