/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link messages, docs/zmq-format.md: what the two ends tell each other, little endian:
 *
 *     0 'P' | 1 'Z' | 2 version 1 | 3 kind | 4 task 4 | 8 value 8 | 16 incarnation 8 | 24 nonce 16
 *
 * task, incarnation and nonce are the sender's, 0 in REFUSE. The acceptor refuses another job's nonce:
 * it keeps jobs apart by mistake; strangers are kept out above, in the handshake of sessions.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

#define LINK_VERSION 1

static void encode(const zt_iface_t *iface, zt_link_kind_t kind, uint64_t value,
                   uint8_t out[ZT_LINK_BYTES])
{
    uint32_t task = htole32(iface->params.task);
    uint64_t incarnation = htole64(iface->params.incarnation);
    value = htole64(value);
    out[0] = 'P', out[1] = 'Z', out[2] = LINK_VERSION, out[3] = (uint8_t)kind;
    memcpy(out + 4, &task, sizeof(task));
    memcpy(out + 8, &value, sizeof(value));
    memcpy(out + 16, &incarnation, sizeof(incarnation));
    memcpy(out + 24, iface->nonce, ZT_NONCE_BYTES);
}

int zt_link_parse(zt_in_t *in, zt_link_t *link)
{
    const uint8_t *p = zmq_msg_data(&in->part[0]);
    if (in->parts != 1 || zmq_msg_size(&in->part[0]) != ZT_LINK_BYTES || p[0] != 'P' ||
        p[1] != 'Z' || p[2] != LINK_VERSION || p[3] < ZT_LINK_OPEN || p[3] > ZT_LINK_CLOSE)
        return 0;
    link->kind = (zt_link_kind_t)p[3];
    memcpy(&link->task, p + 4, sizeof(link->task));
    memcpy(&link->value, p + 8, sizeof(link->value));
    memcpy(&link->incarnation, p + 16, sizeof(link->incarnation));
    memcpy(link->nonce, p + 24, ZT_NONCE_BYTES);
    link->task = le32toh(link->task);
    link->value = le64toh(link->value);
    link->incarnation = le64toh(link->incarnation);
    return 1;
}

static int send_bytes(zt_sock_t *sock, const void *data, size_t size, int more)
{
    int rc;
    while ((rc = zmq_send(sock->socket, data, size, ZMQ_DONTWAIT | more)) < 0 && errno == EINTR)
        ;
    zt_sock_mark(sock);
    return rc >= 0;
}

psrt_status_t zt_link_send(zt_ep_t *ep, zt_link_kind_t kind, uint64_t value)
{
    zt_iface_t *iface = zt_iface_of(ep);
    zt_sock_t *sock = ep->accepted ? &iface->router : &ep->sock;
    uint8_t bytes[ZT_LINK_BYTES];
    encode(iface, kind, value, bytes);
    if (ep->accepted && !send_bytes(sock, ep->id, ZT_ID_BYTES, ZMQ_SNDMORE))
        return PSRT_ERR_PEER_LOST;
    return send_bytes(sock, bytes, sizeof(bytes), 0) ? PSRT_OK : PSRT_ERR_PEER_LOST;
}

/* Answers a peer that gets no endpoint, and learns nothing about us but that. */
void zt_link_refuse(zt_iface_t *iface, const uint8_t id[ZT_ID_BYTES], psrt_status_t status)
{
    uint8_t bytes[ZT_LINK_BYTES];
    encode(iface, ZT_LINK_REFUSE, (uint64_t)-status, bytes);
    memset(bytes + 4, 0, 4);
    memset(bytes + 16, 0, 8 + ZT_NONCE_BYTES);
    if (send_bytes(&iface->router, id, ZT_ID_BYTES, ZMQ_SNDMORE))
        send_bytes(&iface->router, bytes, sizeof(bytes), 0);
}
