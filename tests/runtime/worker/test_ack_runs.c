/* SPDX-License-Identifier: Apache-2.0 */
/* An ACK of several numbers counts for each of them, and for no other. */
#include <string.h>

#include "fixture.h"
#include "runtime/worker/client_int.h"

#define OPS 6

static fx_t *open_pushes(psrti_cop_t *ops, const char *consistency)
{
    fx_t *fx = fx_open();
    fx_table(fx, 1, 10, consistency, 0);
    for (size_t i = 0; i < OPS; i++)
        fx_submit(fx, &ops[i], 1, PUSH, 0, 10);
    fx_progress(fx);
    return fx;
}

/* Of the `before` numbers below that of send i, and of it. */
static psrt_rx_t ack_run(fx_t *fx, size_t i, uint64_t before, unsigned flags)
{
    const fx_send_t *s = &fx->sent[i];
    psrt_msg_t msg = { .hdr = s->hdr };
    msg.hdr.type = PSRTI_T_ACK;
    msg.hdr.flags = (uint16_t)flags;
    msg.hdr.dtype = 0;
    msg.hdr.seq_floor = 0;
    msg.hdr.length = before;
    psrt_rx_t rx = psrti_client_msg(fx->client, s->owner, &msg);
    fx_progress(fx);
    return rx;
}

static unsigned ended(const psrti_cop_t *ops)
{
    unsigned mask = 0;
    for (size_t i = 0; i < OPS; i++)
        mask |= (unsigned)(ops[i].ended != 0) << i;
    return mask;
}

Test(ack_runs, end_each_of_their_pushes)
{
    psrti_cop_t ops[OPS];
    fx_t *fx = open_pushes(ops, "async");
    cr_assert_eq(fx->sends, (size_t)OPS);
    cr_assert_eq(ack_run(fx, 3, 2, PSRTI_F_APPLIED), PSRT_RX_DONE);
    cr_assert_eq(ended(ops), 0x0eu, "one to three");
    cr_assert_eq(psrti_client_outstanding(fx->client), 3u);
    cr_assert_eq(ack_run(fx, 4, 4, PSRTI_F_APPLIED), PSRT_RX_DONE, "most of it was said before");
    cr_assert_eq(ended(ops), 0x1fu);
    cr_assert_eq(ack_run(fx, 5, 0, PSRTI_F_APPLIED), PSRT_RX_DONE);
    for (size_t i = 0; i < OPS; i++)
        fx_ended(fx, &ops[i < 3 ? i + 1 : i == 3 ? 0 : i], PSRT_OK);
    fx_close(fx);
}

/* Numbers that cannot be: the peer is no server of this protocol. */
Test(ack_runs, that_reach_too_far_are_refused)
{
    psrti_cop_t ops[OPS];
    fx_t *fx = open_pushes(ops, "async");
    cr_assert_eq(fx->sent[2].hdr.seq, 3u);
    cr_assert_eq(ack_run(fx, 2, 3, 0), PSRT_RX_BAD, "number 0");
    cr_assert_eq(ack_run(fx, 2, PSRTI_NUMBERS, 0), PSRT_RX_BAD);
    cr_assert_eq(ack_run(fx, 2, UINT64_MAX, 0), PSRT_RX_BAD);
    psrt_msg_t tagged = { .hdr = fx->sent[2].hdr };
    tagged.hdr.type = PSRTI_T_ACK;
    tagged.hdr.seq = PSRTI_PULL_TAG | 9;
    tagged.hdr.length = 1;
    cr_assert_eq(psrti_client_msg(fx->client, 0, &tagged), PSRT_RX_BAD, "of pulls there are none");
    cr_assert_eq(ended(ops), 0u);
    cr_assert_eq(ack_run(fx, 5, 5, 0), PSRT_RX_DONE);
    for (size_t i = 0; i < OPS; i++)
        fx_ended(fx, &ops[i], PSRT_OK);
    fx_close(fx);
}
