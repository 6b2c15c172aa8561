/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cluster/ctrl_link.h"

#include <stdlib.h>

#include "base/log.h"
#include "transport/frame.h"

typedef struct frame {
    psrt_tx_t tx; /* first */
    psrti_list_t node;
    size_t len;
    uint8_t payload[];
} frame_t;

void psrti_ctrl_init(psrti_ctrl_link_t *ctrl, psrti_net_t *net, uint64_t max_message)
{
    ctrl->net = net;
    ctrl->link = NULL;
    psrti_list_init(&ctrl->queue);
    ctrl->queued = 0;
    ctrl->max_message = max_message;
}

static void frame_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* a frame that was not sent means a link that is lost */
    free(tx);
}

/* AGAIN: still the caller's; else it is gone. */
static psrt_status_t send_frame(psrti_ctrl_link_t *ctrl, frame_t *frame)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_CTRL, .length = frame->len };
    psrt_status_t st =
        psrti_net_send(ctrl->net, ctrl->link, &hdr, frame->payload, frame->len, &frame->tx);

    if (st == PSRT_ERR_AGAIN) return st;
    if (st != PSRT_IN_PROGRESS) free(frame);
    return PSRT_OK;
}

psrt_status_t psrti_ctrl_send(psrti_ctrl_link_t *ctrl, const Psrt__Control *msg)
{
    size_t len = psrti_wire_size(msg);
    frame_t *frame;

    if (!ctrl->link) return PSRT_OK;
    if (len > ctrl->max_message || ctrl->queued + len > ctrl->max_message) {
        psrti_error("control message %s of %zu bytes: %llu wait already, the limit is %llu",
                    psrti_wire_name(msg), len, (unsigned long long)ctrl->queued,
                    (unsigned long long)ctrl->max_message);
        return PSRT_ERR_LIMIT;
    }
    frame = malloc(sizeof *frame + len);
    if (!frame) return PSRT_ERR_NO_MEMORY;
    frame->tx.done = frame_done;
    frame->len = len;
    psrti_wire_pack(msg, frame->payload);
    if (psrti_list_empty(&ctrl->queue) && send_frame(ctrl, frame) == PSRT_OK) return PSRT_OK;
    psrti_list_push(&ctrl->queue, &frame->node);
    ctrl->queued += len;
    return PSRT_OK;
}

psrt_status_t psrti_ctrl_flush(psrti_ctrl_link_t *ctrl)
{
    while (ctrl->link && !psrti_list_empty(&ctrl->queue)) {
        frame_t *frame = PSRTI_LIST_ENTRY(ctrl->queue.next, frame_t, node);
        size_t len = frame->len;

        psrti_list_remove(&frame->node);
        if (send_frame(ctrl, frame) == PSRT_ERR_AGAIN) {
            psrti_list_insert_before(ctrl->queue.next, &frame->node);
            return PSRT_ERR_AGAIN;
        }
        ctrl->queued -= len;
    }
    return PSRT_OK;
}

void psrti_ctrl_reset(psrti_ctrl_link_t *ctrl)
{
    for (psrti_list_t *node; (node = psrti_list_pop(&ctrl->queue)) != NULL;)
        free(PSRTI_LIST_ENTRY(node, frame_t, node));
    ctrl->queued = 0;
    ctrl->link = NULL;
}

psrt_status_t psrti_ctrl_receive(psrti_ctrl_link_t *ctrl, psrt_msg_t *msg, Psrt__Control **out_p)
{
    const void *data;
    Psrt__Control *out;
    psrt_status_t st;

    if (msg->hdr.type != PSRTI_T_CTRL) return PSRT_ERR_PROTOCOL;
    st = psrti_net_map(ctrl->net, msg, &data);
    if (st == PSRT_OK) st = psrti_wire_unpack(data, msg->len, ctrl->max_message, &out);
    if (st != PSRT_OK) return st;
    st = psrti_net_verify(ctrl->net, msg);
    if (st == PSRT_OK)
        *out_p = out;
    else
        psrti_wire_free(out);
    return st;
}
