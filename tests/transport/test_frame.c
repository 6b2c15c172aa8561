/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include <psrt/psrt.h>

#include "transport/frame.h"

/* The push and the ack of docs/wire-format.md, written by hand; their checksums were computed by a
 * bitwise CRC32C elsewhere. */
static const uint8_t push_bytes[PSRTI_FRAME_BYTES] = {
    0x50, 0x53, 0x01, 0x04, 0x13, 0x00, 0x01, 0x00, 0x0d, 0x0c, 0x0b, 0x0a, 0x07, 0x00, 0x00, 0x00,
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x2a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x03, 0x00, 0x00, 0x00, 0x05, 0x02, 0x09, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xaa, 0x1e, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc8, 0x00, 0x00, 0x00, 0xc4, 0xaa, 0x0e, 0x3a,
};

static const psrt_hdr_t push_hdr = {
    .type = PSRTI_T_PUSH,
    .flags = PSRTI_F_PULL | PSRTI_F_END | PSRTI_F_WHOLE,
    .dtype = PSRT_F32,
    .session = 0x0a0b0c0d,
    .term = 7,
    .seq = 0x1122334455667788,
    .step = 42,
    .table = 3,
    .vshard = 517,
    .seq_floor = 9,
    .offset = 786432,
    .length = 7850,
    .priority = 200,
};

static const psrt_hdr_t ack_hdr = {
    .type = PSRTI_T_ACK,
    .flags = PSRTI_F_APPLIED,
    .session = 0x01020304,
    .term = 7,
    .seq = 258,
    .step = 42,
    .table = 3,
    .vshard = 517,
    .status = 6,
};

/* Bitwise CRC32C, to give altered headers a right checksum. */
static uint32_t slow_crc32c(const uint8_t *data, size_t len)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return crc ^ 0xffffffffu;
}

static void reseal(uint8_t frame[PSRTI_FRAME_BYTES])
{
    uint32_t crc = slow_crc32c(frame, 60);
    for (int i = 0; i < 4; i++)
        frame[60 + i] = (uint8_t)(crc >> 8 * i);
}

static void check_same(const psrt_hdr_t *got, const psrt_hdr_t *want)
{
    cr_assert_eq(got->magic, 0x5350);
    cr_assert_eq(got->version, 1);
    cr_assert_eq(got->reserved, 0);
    cr_assert_eq(got->type, want->type);
    cr_assert_eq(got->flags, want->flags);
    cr_assert_eq(got->dtype, want->dtype);
    cr_assert_eq(got->codec, want->codec);
    cr_assert_eq(got->session, want->session);
    cr_assert_eq(got->term, want->term);
    cr_assert_eq(got->seq, want->seq);
    cr_assert_eq(got->step, want->step);
    cr_assert_eq(got->table, want->table);
    cr_assert_eq(got->vshard, want->vshard);
    cr_assert_eq(got->seq_floor, want->seq_floor);
    cr_assert_eq(got->offset, want->offset);
    cr_assert_eq(got->length, want->length);
    cr_assert_eq(got->priority, want->priority);
    cr_assert_eq(got->status, want->status);
}

/* Reads the block ```hex NAME of docs/wire-format.md; returns its bytes. */
static size_t read_block(const char *name, uint8_t *out, size_t size)
{
    char line[512], fence[64];
    size_t count = 0;
    int inside = 0;
    FILE *page = fopen(PSRT_SOURCE_DIR "/docs/wire-format.md", "r");
    cr_assert(page != NULL, "docs/wire-format.md cannot be read");
    snprintf(fence, sizeof fence, "```hex %s\n", name);
    while (fgets(line, sizeof line, page)) {
        if (inside && strncmp(line, "```", 3) == 0) break;
        for (char *p = line; inside && *p != '\n' && *p; p += strspn(p, " ")) {
            unsigned byte;
            int used = 0;
            cr_assert_eq(sscanf(p, "%2x%n", &byte, &used), 1, "block %s: %s", name, line);
            cr_assert(count < size, "block %s is too long", name);
            out[count++] = (uint8_t)byte;
            p += used;
        }
        if (strcmp(line, fence) == 0) inside = 1;
    }
    fclose(page);
    return count;
}

Test(frame, golden)
{
    uint8_t bytes[PSRTI_FRAME_BYTES];
    psrt_hdr_t hdr;
    const char *why = "not written";
    psrti_frame_encode(&push_hdr, bytes);
    cr_assert(memcmp(bytes, push_bytes, sizeof bytes) == 0);
    cr_assert_eq(psrti_frame_decode(push_bytes, &hdr, &why), PSRT_OK);
    cr_assert(why == NULL);
    check_same(&hdr, &push_hdr);
}

/* A push is taken back: its header but for type, flags and dtype, and no payload; the answer names ranks 2
 * and 5. */
Test(frame, page_cancel)
{
    uint8_t bytes[PSRTI_FRAME_BYTES], mine[PSRTI_FRAME_BYTES];
    psrt_hdr_t hdr, want = push_hdr;
    uint64_t payload;
    want.type = PSRTI_T_CANCEL;
    want.flags = PSRTI_F_PULL;
    want.dtype = 0;
    cr_assert_eq(read_block("frame-cancel", bytes, sizeof bytes), PSRTI_FRAME_BYTES);
    psrti_frame_encode(&want, mine);
    cr_assert(memcmp(bytes, mine, sizeof mine) == 0);
    cr_assert(psrti_frame_payload(&want, &payload) == PSRT_OK && payload == 0);
    cr_assert_eq(read_block("frame-canceled", bytes, sizeof bytes), PSRTI_FRAME_BYTES);
    cr_assert_eq(psrti_frame_decode(bytes, &hdr, NULL), PSRT_OK);
    cr_assert(hdr.type == PSRTI_T_ACK && hdr.seq == push_hdr.seq && hdr.seq_floor == 2);
    cr_assert(hdr.length == (1u << 0 | 1u << 3) && hdr.status == -PSRT_ERR_CANCELED);
    cr_assert(psrti_frame_payload(&hdr, &payload) == PSRT_OK && payload == 0);
}

Test(frame, page)
{
    uint8_t bytes[128], mine[PSRTI_FRAME_BYTES];
    psrt_hdr_t hdr;
    cr_assert_eq(read_block("frame-push", bytes, sizeof bytes), PSRTI_FRAME_BYTES);
    cr_assert(memcmp(bytes, push_bytes, PSRTI_FRAME_BYTES) == 0);

    cr_assert_eq(read_block("frame-ack", bytes, sizeof bytes), PSRTI_FRAME_BYTES);
    cr_assert_eq(psrti_frame_decode(bytes, &hdr, NULL), PSRT_OK);
    check_same(&hdr, &ack_hdr);
    psrti_frame_encode(&ack_hdr, mine);
    cr_assert(memcmp(bytes, mine, PSRTI_FRAME_BYTES) == 0);

    psrt_rdesc_t rd, want = { 1, 2, 0x03040506, 7, 8, 0x1000, 31400 };
    uint8_t ext[PSRTI_EXT_BYTES];
    cr_assert_eq(read_block("frame-ext", bytes, sizeof bytes), PSRTI_EXT_BYTES);
    psrti_rdesc_encode(&want, ext);
    cr_assert(memcmp(bytes, ext, sizeof ext) == 0);
    psrti_rdesc_decode(bytes, &rd);
    cr_assert(rd.kind == 1 && rd.rail == 2 && rd.seg == 0x03040506 && rd.gen == 7 && rd.rkey == 8 &&
              rd.off == 0x1000 && rd.len == 31400);
}

Test(frame, every_bit_flip_is_rejected)
{
    for (int bit = 0; bit < PSRTI_FRAME_BYTES * 8; bit++) {
        uint8_t bytes[PSRTI_FRAME_BYTES];
        psrt_hdr_t hdr;
        const char *why = NULL;
        memcpy(bytes, push_bytes, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(psrti_frame_decode(bytes, &hdr, &why), PSRT_ERR_PROTOCOL, "bit %d", bit);
        cr_assert(why && why[0], "bit %d", bit);
    }
}

/* A right checksum does not make a wrong field right. */
Test(frame, unknown_fields_are_rejected)
{
    static const struct {
        int at;
        uint8_t value;
        psrt_status_t status;
    } cases[] = {
        { 0, 0x51, PSRT_ERR_PROTOCOL },
        { 1, 0, PSRT_ERR_PROTOCOL },
        { 2, 0, PSRT_ERR_PROTOCOL },
        { 2, 2, PSRT_ERR_PROTOCOL },
        { 3, 0, PSRT_ERR_PROTOCOL },
        { 3, PSRTI_T_MAX + 1, PSRT_ERR_PROTOCOL },
        { 3, 255, PSRT_ERR_PROTOCOL },
        { 3, PSRTI_T_MAX, PSRT_OK },
        { 4, 0xff, PSRT_OK },
        { 5, 1, PSRT_OK },
        { 5, 2, PSRT_ERR_PROTOCOL },
        { 5, 0x80, PSRT_ERR_PROTOCOL },
        { 6, 9, PSRT_OK },
        { 6, 10, PSRT_ERR_PROTOCOL },
        { 6, 255, PSRT_ERR_PROTOCOL },
        { 7, 1, PSRT_OK },
        { 7, 2, PSRT_OK },
        { 7, 3, PSRT_ERR_PROTOCOL },
        { 7, 255, PSRT_ERR_PROTOCOL },
        { 56, 255, PSRT_OK },
        { 57, 255, PSRT_OK },
        { 58, 1, PSRT_ERR_PROTOCOL },
        { 59, 0x80, PSRT_ERR_PROTOCOL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[PSRTI_FRAME_BYTES];
        psrt_hdr_t hdr;
        memcpy(bytes, push_bytes, sizeof bytes);
        bytes[cases[i].at] = cases[i].value;
        reseal(bytes);
        cr_assert_eq(psrti_frame_decode(bytes, &hdr, NULL), cases[i].status, "byte %d = %d",
                     cases[i].at, cases[i].value);
    }
}

/* Only f32 has a 16-bit form on the wire. */
Test(frame, a_codec_is_for_f32)
{
    for (int dtype = 0; dtype <= PSRT_U8; dtype++) {
        psrt_hdr_t hdr = { .type = PSRTI_T_PUSH,
                           .dtype = (uint8_t)dtype,
                           .codec = PSRTI_CODEC_BF16 };
        uint8_t bytes[PSRTI_FRAME_BYTES];
        psrti_frame_encode(&hdr, bytes);
        cr_assert_eq(psrti_frame_decode(bytes, &hdr, NULL),
                     dtype == PSRT_F32 ? PSRT_OK : PSRT_ERR_PROTOCOL);
    }
}

/* Offsets and lengths around and beyond 2^31 and 2^32 come back whole. */
Test(frame, large_offsets)
{
    static const uint64_t sizes[] = { (1ull << 31) - 1, 1ull << 31, (1ull << 31) + 1,
                                      (1ull << 32) + 3, 1ull << 62 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        psrt_hdr_t hdr = push_hdr, back;
        uint8_t bytes[PSRTI_FRAME_BYTES];
        hdr.offset = sizes[i], hdr.length = sizes[i] - 1;
        psrti_frame_encode(&hdr, bytes);
        cr_assert_eq(psrti_frame_decode(bytes, &back, NULL), PSRT_OK);
        check_same(&back, &hdr);
    }
}

Test(frame, foreign_traffic_is_rejected)
{
    static const char http[PSRTI_FRAME_BYTES + 1] =
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:5000\r\nUser-Agent: curl/7.88.1\r\n\r\n";
    static const uint8_t zeros[PSRTI_FRAME_BYTES];
    psrt_hdr_t hdr;
    const char *why = NULL;
    cr_assert_eq(psrti_frame_decode((const uint8_t *)http, &hdr, &why), PSRT_ERR_PROTOCOL);
    cr_assert(strstr(why, "magic") != NULL);
    cr_assert_eq(psrti_frame_decode(zeros, &hdr, &why), PSRT_ERR_PROTOCOL);

    uint64_t state = 20240229;
    for (int round = 0; round < 100000; round++) {
        uint8_t bytes[PSRTI_FRAME_BYTES];
        for (size_t i = 0; i < sizeof bytes; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t)(state >> 56);
        }
        if (round % 2) memcpy(bytes, push_bytes, 4); /* get past magic, version and type */
        cr_assert_eq(psrti_frame_decode(bytes, &hdr, &why), PSRT_ERR_PROTOCOL, "round %d", round);
    }
}

Test(frame, payload_size)
{
    static const struct {
        uint64_t length, bytes;
        psrt_status_t status;
        uint8_t type, dtype, codec;
    } cases[] = {
        { 7850, 31400, PSRT_OK, PSRTI_T_PUSH, PSRT_F32, 0 },
        { 7850, 62800, PSRT_OK, PSRTI_T_PUSH, PSRT_F64, 0 },
        { 3, 6, PSRT_OK, PSRTI_T_VALUE, PSRT_BF16, 0 },
        { 3, 24, PSRT_OK, PSRTI_T_INIT, PSRT_I64, 0 },
        { 0, 0, PSRT_OK, PSRTI_T_VALUE, PSRT_DTYPE_NONE, 0 },
        { 1, 0, PSRT_ERR_PROTOCOL, PSRTI_T_PUSH, PSRT_DTYPE_NONE, 0 },
        { 1, 0, PSRT_ERR_PROTOCOL, PSRTI_T_PUSH, 77, 0 },
        { 1234567, 1234567, PSRT_OK, PSRTI_T_CTRL, 0, 0 },
        { 64, 64, PSRT_OK, PSRTI_T_HELLO, 0, 0 },
        { 5, 5, PSRT_OK, PSRTI_T_WELCOME, PSRT_F64, 0 },
        { 7850, 0, PSRT_OK, PSRTI_T_PULL, PSRT_F32, 0 },
        { 7850, 0, PSRT_OK, PSRTI_T_ACK, PSRT_F32, 0 },
        { UINT64_MAX, 0, PSRT_OK, PSRTI_T_CLOCK, 0, 0 },
        { UINT64_MAX / 4, UINT64_MAX - 3, PSRT_OK, PSRTI_T_PUSH, PSRT_F32, 0 },
        { UINT64_MAX / 4 + 1, 0, PSRT_ERR_PROTOCOL, PSRTI_T_PUSH, PSRT_F32, 0 },
        { UINT64_MAX, 0, PSRT_ERR_PROTOCOL, PSRTI_T_VALUE, PSRT_F64, 0 },
        { UINT64_MAX, UINT64_MAX, PSRT_OK, PSRTI_T_CTRL, 0, 0 },
        { 7850, 15700, PSRT_OK, PSRTI_T_PUSH, PSRT_F32, PSRTI_CODEC_F16 },
        { 3, 6, PSRT_OK, PSRTI_T_VALUE, PSRT_F32, PSRTI_CODEC_BF16 },
        { 3, 0, PSRT_OK, PSRTI_T_PULL, PSRT_F32, PSRTI_CODEC_BF16 },
        { UINT64_MAX / 2 + 1, 0, PSRT_ERR_PROTOCOL, PSRTI_T_PUSH, PSRT_F32, PSRTI_CODEC_F16 },
        { (1ull << 31) - 1, (1ull << 33) - 4, PSRT_OK, PSRTI_T_PUSH, PSRT_F32, 0 },
        { (1ull << 31) + 1, (1ull << 33) + 4, PSRT_OK, PSRTI_T_VALUE, PSRT_F32, 0 },
        { (1ull << 32) + 3, (1ull << 35) + 24, PSRT_OK, PSRTI_T_PUSH, PSRT_F64, 0 },
        { (1ull << 32) + 3, (1ull << 33) + 6, PSRT_OK, PSRTI_T_PUSH, PSRT_F16, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psrt_hdr_t hdr = { .type = cases[i].type,
                           .dtype = cases[i].dtype,
                           .codec = cases[i].codec };
        uint64_t bytes = 99;
        hdr.length = cases[i].length;
        cr_assert_eq(psrti_frame_payload(&hdr, &bytes), cases[i].status, "case %zu", i);
        cr_assert_eq(bytes, cases[i].status == PSRT_OK ? cases[i].bytes : 99, "case %zu", i);
    }
}
