/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages over a link: packs, queues what the link cannot take now, unpacks. */
#ifndef PSRTI_CTRL_LINK_H
#define PSRTI_CTRL_LINK_H

#include "base/list.h"
#include "runtime/core/net.h"
#include "runtime/wire/wire.h"

typedef struct psrti_ctrl_link {
    psrti_net_t *net;
    psrti_link_t *link; /* NULL: none */
    psrti_list_t queue; /* frames that wait for WRITABLE */
    uint64_t queued;    /* their bytes */
    uint64_t max_message;
} psrti_ctrl_link_t;

void psrti_ctrl_init(psrti_ctrl_link_t *ctrl, psrti_net_t *net, uint64_t max_message);
/* ERR_LIMIT: the message, or what a peer that does not read has waiting, is too large; the link
 * is of no more use. Of a link that is being lost nothing is said here. */
psrt_status_t psrti_ctrl_send(psrti_ctrl_link_t *ctrl, const Psrt__Control *msg);
psrt_status_t psrti_ctrl_flush(psrti_ctrl_link_t *ctrl); /* on WRITABLE */
/* Forgets the queue; for after the link was lost or dropped. */
void psrti_ctrl_reset(psrti_ctrl_link_t *ctrl);
/* The control message of a frame; release with psrti_wire_free. */
psrt_status_t psrti_ctrl_receive(psrti_ctrl_link_t *ctrl, psrt_msg_t *msg, Psrt__Control **out_p);

#endif
