/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/frame.h"

#include "base/bytes.h"
#include "base/util.h"
#include <psrt/psrt.h>

/* Offsets on the wire; docs/wire-format.md lists them. */
enum { AT_MAGIC = 0, AT_BODY = 2, AT_RESERVED = 58, AT_CRC = 60 };
enum { /* in the body */
       AT_VERSION = 0,
       AT_TYPE = 1,
       AT_FLAGS = 2,
       AT_DTYPE = 4,
       AT_CODEC = 5,
       AT_SESSION = 6,
       AT_TERM = 10,
       AT_SEQ = 14,
       AT_STEP = 22,
       AT_TABLE = 30,
       AT_VSHARD = 34,
       AT_SEQ_FLOOR = 36,
       AT_OFFSET = 38,
       AT_LENGTH = 46,
       AT_PRIORITY = 54,
       AT_STATUS = 55,
};

/* Element sizes as the wire fixes them, by psrt_dtype_t; 0: none. */
static const uint8_t element_bytes[] = {
    [PSRT_DTYPE_NONE] = 0, [PSRT_F32] = 4, [PSRT_F64] = 8, [PSRT_F16] = 2, [PSRT_BF16] = 2,
    [PSRT_I32] = 4,        [PSRT_I64] = 8, [PSRT_I8] = 1,  [PSRT_I16] = 2, [PSRT_U8] = 1,
};

void psrti_frame_encode(const psrt_hdr_t *hdr, uint8_t out[PSRTI_FRAME_BYTES])
{
    psrti_put16(out + AT_MAGIC, PSRTI_MAGIC);
    psrti_frame_body_encode(hdr, out + AT_BODY);
    psrti_put16(out + AT_RESERVED, 0);
    psrti_put32(out + AT_CRC, psrti_crc32c(0, out, AT_CRC));
}

void psrti_frame_body_encode(const psrt_hdr_t *hdr, uint8_t out[PSRTI_FRAME_BODY_BYTES])
{
    out[AT_VERSION] = PSRTI_WIRE_VERSION;
    out[AT_TYPE] = hdr->type;
    psrti_put16(out + AT_FLAGS, hdr->flags);
    out[AT_DTYPE] = hdr->dtype;
    out[AT_CODEC] = hdr->codec;
    psrti_put32(out + AT_SESSION, hdr->session);
    psrti_put32(out + AT_TERM, hdr->term);
    psrti_put64(out + AT_SEQ, hdr->seq);
    psrti_put64(out + AT_STEP, hdr->step);
    psrti_put32(out + AT_TABLE, hdr->table);
    psrti_put16(out + AT_VSHARD, hdr->vshard);
    psrti_put16(out + AT_SEQ_FLOOR, hdr->seq_floor);
    psrti_put64(out + AT_OFFSET, hdr->offset);
    psrti_put64(out + AT_LENGTH, hdr->length);
    out[AT_PRIORITY] = hdr->priority;
    out[AT_STATUS] = hdr->status;
}

/* NULL if it is well formed. */
static const char *body_fault(const uint8_t in[PSRTI_FRAME_BODY_BYTES])
{
    if (in[AT_VERSION] != PSRTI_WIRE_VERSION) return "another wire version";
    if (in[AT_TYPE] == 0 || in[AT_TYPE] > PSRTI_T_MAX) return "unknown frame type";
    if (psrti_get16(in + AT_FLAGS) & ~PSRTI_F_KNOWN) return "unknown flag";
    if (in[AT_DTYPE] >= PSRTI_COUNT(element_bytes)) return "unknown dtype";
    if (in[AT_CODEC] >= PSRTI_CODECS) return "unknown codec";
    if (in[AT_CODEC] && in[AT_DTYPE] != PSRT_F32) return "codec of a type that is not f32";
    return NULL;
}

/* Magic comes first, so that foreign traffic is named as such; then the version, which the rest depends on. */
static const char *frame_fault(const uint8_t in[PSRTI_FRAME_BYTES])
{
    if (psrti_get16(in + AT_MAGIC) != PSRTI_MAGIC) return "not a psrt frame (magic)";
    if (in[AT_BODY + AT_VERSION] != PSRTI_WIRE_VERSION) return "another wire version";
    if (psrti_get32(in + AT_CRC) != psrti_crc32c(0, in, AT_CRC)) return "header checksum differs";
    if (psrti_get16(in + AT_RESERVED) != 0) return "reserved bytes are not zero";
    return NULL;
}

psrt_status_t psrti_frame_decode(const uint8_t in[PSRTI_FRAME_BYTES], psrt_hdr_t *hdr,
                                 const char **why)
{
    const char *fault = frame_fault(in);
    if (!fault && psrti_frame_body_decode(in + AT_BODY, hdr, &fault) == PSRT_OK)
        hdr->crc = psrti_get32(in + AT_CRC);
    if (why) *why = fault;
    return fault ? PSRT_ERR_PROTOCOL : PSRT_OK;
}

psrt_status_t psrti_frame_body_decode(const uint8_t in[PSRTI_FRAME_BODY_BYTES], psrt_hdr_t *hdr,
                                      const char **why)
{
    *why = body_fault(in);
    if (*why) return PSRT_ERR_PROTOCOL;
    *hdr = (psrt_hdr_t){
        .magic = PSRTI_MAGIC,
        .version = PSRTI_WIRE_VERSION,
        .type = in[AT_TYPE],
        .flags = psrti_get16(in + AT_FLAGS),
        .dtype = in[AT_DTYPE],
        .codec = in[AT_CODEC],
        .session = psrti_get32(in + AT_SESSION),
        .term = psrti_get32(in + AT_TERM),
        .seq = psrti_get64(in + AT_SEQ),
        .step = psrti_get64(in + AT_STEP),
        .table = psrti_get32(in + AT_TABLE),
        .vshard = psrti_get16(in + AT_VSHARD),
        .seq_floor = psrti_get16(in + AT_SEQ_FLOOR),
        .offset = psrti_get64(in + AT_OFFSET),
        .length = psrti_get64(in + AT_LENGTH),
        .priority = in[AT_PRIORITY],
        .status = in[AT_STATUS],
    };
    return PSRT_OK;
}

psrt_status_t psrti_frame_payload(const psrt_hdr_t *hdr, uint64_t *bytes_p)
{
    uint64_t size = 0;
    switch (hdr->type) {
    case PSRTI_T_PUSH:
    case PSRTI_T_INIT:
    case PSRTI_T_VALUE:
        if (hdr->codec)
            size = 2;
        else if (hdr->dtype < PSRTI_COUNT(element_bytes))
            size = element_bytes[hdr->dtype];
        if (size == 0 && hdr->length != 0) return PSRT_ERR_PROTOCOL;
        break;
    case PSRTI_T_HELLO:
    case PSRTI_T_WELCOME:
    case PSRTI_T_CTRL:
    case PSRTI_T_BATCH:
    case PSRTI_T_PARTIALS:
    case PSRTI_T_VERDICT:
    case PSRTI_T_COLL: size = 1; break;
    default: /* header only: length, where it has a meaning, counts elements elsewhere */ break;
    }
    uint64_t bytes;
    if (!psrti_mul_u64(hdr->length, size, &bytes)) return PSRT_ERR_PROTOCOL;
    *bytes_p = bytes;
    return PSRT_OK;
}

void psrti_rdesc_encode(const psrt_rdesc_t *rd, uint8_t out[PSRTI_EXT_BYTES])
{
    psrti_put16(out, rd->kind);
    psrti_put16(out + 2, rd->rail);
    psrti_put32(out + 4, rd->seg);
    psrti_put32(out + 8, rd->gen);
    psrti_put32(out + 12, rd->rkey);
    psrti_put64(out + 16, rd->off);
    psrti_put64(out + 24, rd->len);
}

void psrti_rdesc_decode(const uint8_t in[PSRTI_EXT_BYTES], psrt_rdesc_t *rd)
{
    *rd = (psrt_rdesc_t){
        .kind = psrti_get16(in),
        .rail = psrti_get16(in + 2),
        .seg = psrti_get32(in + 4),
        .gen = psrti_get32(in + 8),
        .rkey = psrti_get32(in + 12),
        .off = psrti_get64(in + 16),
        .len = psrti_get64(in + 24),
    };
}
