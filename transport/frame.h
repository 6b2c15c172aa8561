/* SPDX-License-Identifier: Apache-2.0 */
/* The 64-byte frame header: constants, encode, validate and decode. docs/wire-format.md has bytes. */
#ifndef PSRTI_FRAME_H
#define PSRTI_FRAME_H

#include <psrt/ext/transport_v1.h>

#define PSRTI_FRAME_BYTES 64
#define PSRTI_MAGIC 0x5350 /* bytes 'P' 'S' */
#define PSRTI_WIRE_VERSION 1

typedef enum psrti_frame_type {
    PSRTI_T_HELLO = 1,     /* dialler: payload psrti_hello_t (runtime/core/session.h)       */
    PSRTI_T_WELCOME = 2,   /* acceptor: session, or status and a text as payload            */
    PSRTI_T_CTRL = 3,      /* payload: one protobuf control message                         */
    PSRTI_T_PUSH = 4,      /* gradient; F_PULL: push_pull                                   */
    PSRTI_T_PULL = 5,      /* header only                                                   */
    PSRTI_T_INIT = 6,      /* values of a rank0 table                                       */
    PSRTI_T_CLOCK = 7,     /* header only: worker's step ended on this table                */
    PSRTI_T_ACK = 8,       /* header only: status; F_APPLIED, F_LATE; of one number or more */
    PSRTI_T_VALUE = 9,     /* reply to a pull or push_pull: payload, step = version         */
    PSRTI_T_MOVED = 10,    /* header only: step = owner, term = its term                    */
    PSRTI_T_BYE = 11,      /* orderly end of a session                                      */
    PSRTI_T_CANCEL = 12,   /* header only: the request with this seq is taken back          */
    PSRTI_T_BATCH = 13,    /* payload: headers of small data frames, each with its payload      */
    PSRTI_T_PARTIALS = 14, /* between owners: measures of slices whose step is complete    */
    PSRTI_T_VERDICT = 15,  /* the answer: what the group does with the step                */
    PSRTI_T_COLL = 16,     /* between workers: collectives, docs/wire-format.md            */
    PSRTI_T_MAX = 16
} psrti_frame_type_t;

/* How the payload of a PUSH or VALUE of an f32 table stands on the wire; `dtype` stays that of the
 * table. */
typedef enum psrti_codec {
    PSRTI_CODEC_NONE = 0, /* as it is                          */
    PSRTI_CODEC_F16 = 1,  /* each element rounded to f16        */
    PSRTI_CODEC_BF16 = 2, /* each element rounded to bf16       */
    PSRTI_CODECS = 3
} psrti_codec_t;

#define PSRTI_F_PULL 0x0001u    /* push: return the value after the apply                 */
#define PSRTI_F_END 0x0002u     /* push: ends the worker's step on this slice             */
#define PSRTI_F_APPLIED 0x0004u /* ack: applied, not only captured                        */
/* reply: the step was closed, contribution discarded; clock: the worker came late, goes on at `step` */
#define PSRTI_F_LATE 0x0008u
#define PSRTI_F_WHOLE 0x0010u   /* push: covers the whole slice                           */
#define PSRTI_F_CRC 0x0020u     /* a CRC32C of the payload trails it (reserved)           */
#define PSRTI_F_EXT 0x0040u     /* body starts with a 32-byte extension: psrt_rdesc_t     */
#define PSRTI_F_RETRY 0x0080u   /* request was sent before                                */
#define PSRTI_F_AVERAGE 0x0100u /* pull and its value: averages of the weights, not the values */
#define PSRTI_F_KNOWN 0x01ffu

#define PSRTI_PULL_TAG (1ull << 63) /* `seq` of pulls and clocks has this bit */

/* Sets magic, version, reserved and crc; the other fields are the caller's. */
void psrti_frame_encode(const psrt_hdr_t *hdr, uint8_t out[PSRTI_FRAME_BYTES]);
/* ERR_PROTOCOL if magic, version, type, flags, reserved or crc are not right; `why` (may be NULL)
 * then points to a static text. Also rejects a dtype or codec that is not known, and a codec on
 * anything but f32. */
psrt_status_t psrti_frame_decode(const uint8_t in[PSRTI_FRAME_BYTES], psrt_hdr_t *hdr,
                                 const char **why);
/* The header without magic, reserved bytes and crc, for a path that loses nothing and knows its peer. */
#define PSRTI_FRAME_BODY_BYTES 56
void psrti_frame_body_encode(const psrt_hdr_t *hdr, uint8_t out[PSRTI_FRAME_BODY_BYTES]);
psrt_status_t psrti_frame_body_decode(const uint8_t in[PSRTI_FRAME_BODY_BYTES], psrt_hdr_t *hdr,
                                      const char **why);
/* Payload bytes that this header announces: length x size of dtype (with a codec: of its format) for
 * PUSH, INIT, VALUE; length for HELLO, WELCOME, CTRL, BATCH, PARTIALS, VERDICT, COLL; 0 for others.
 * ERR_PROTOCOL on overflow. */
psrt_status_t psrti_frame_payload(const psrt_hdr_t *hdr, uint64_t *bytes_p);

/* 32-byte extension, little endian. */
#define PSRTI_EXT_BYTES 32
void psrti_rdesc_encode(const psrt_rdesc_t *rd, uint8_t out[PSRTI_EXT_BYTES]);
void psrti_rdesc_decode(const uint8_t in[PSRTI_EXT_BYTES], psrt_rdesc_t *rd);

#endif
