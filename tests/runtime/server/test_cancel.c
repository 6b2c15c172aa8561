/* SPDX-License-Identifier: Apache-2.0 */
/* CANCEL at a server: what it takes back, what is too late, whom it names. */
#include <string.h>

#include "base/util.h"
#include "fixture.h"

static fx_reply_t *cancel(fx_t *fx, uint32_t rank, const psrt_hdr_t *request)
{
    psrt_hdr_t h = *request;
    h.type = PSRTI_T_CANCEL;
    h.flags &= PSRTI_F_PULL;
    h.dtype = h.codec = 0;
    fx_forget(fx);
    cr_assert_eq(fx_send(fx, rank, &h, NULL), PSRT_RX_DONE);
    fx_reply_t *r = fx_last(fx, rank);
    cr_assert(r && r->hdr.type == PSRTI_T_ACK && r->hdr.seq == request->seq);
    return r;
}

static int is_canceled(const fx_reply_t *r) { return r->hdr.status == -PSRT_ERR_CANCELED; }

/* CANCEL passed its push: the push must not be applied when it comes, nor said to be. */
static void overtaken(const char *consistency)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, consistency, "sum", NULL, 0);
    float g[4] = { 5, 5, 5, 5 };
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    cr_assert(is_canceled(cancel(fx, 0, &h)));
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE);
        cr_assert(is_canceled(fx_last(fx, 0)));
        cr_assert(is_canceled(cancel(fx, 0, &h)), "asked again");
    }
    cr_assert_eq(fx_counts(fx).applied, 0u);
    cr_assert_eq(fx_value(fx, 1, 0), 0.0f);
    cr_assert_eq(fx_push(fx, 0, 1, 0, 3, 0)->hdr.status, 0);
    cr_assert_eq(fx_value(fx, 1, 0), 3.0f, "the next number counts");
    fx_close(fx);
}

Test(cancel, a_push_that_comes_after_its_cancel_sync) { overtaken("sync"); }
Test(cancel, a_push_that_comes_after_its_cancel_async) { overtaken("async"); }

Test(cancel, an_applied_push_is_too_late)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, "async", "sum", NULL, 0);
    float g[4] = { 5, 5, 5, 5 };
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE);
    cr_assert_eq(cancel(fx, 0, &h)->hdr.status, 0);
    cr_assert_eq(fx_value(fx, 1, 0), 5.0f);
    cr_assert_eq(fx_counts(fx).canceled, 0u);
    fx_close(fx);
}

/* The contribution of a push_pull that waits stays in the step; its values are not sent any more. */
Test(cancel, the_pull_half_of_a_push_pull)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, "sync", "sum", NULL, 0);
    float g[4] = { 5, 5, 5, 5 };
    psrt_hdr_t h = fx_hdr(fx, 1, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END | PSRTI_F_PULL);
    cr_assert_eq(fx_send(fx, 1, &h, g), PSRT_RX_DONE);
    fx_reply_t *r = cancel(fx, 1, &h);
    cr_assert(is_canceled(r));
    cr_assert(r->hdr.seq_floor == 0 && r->hdr.length == 5, "workers 0 and 2 are missing");
    fx_forget(fx);
    fx_push(fx, 0, 1, 0, 10, 0);
    fx_push(fx, 2, 1, 0, 20, 0);
    cr_assert_eq(fx_value(fx, 1, 0), 35.0f);
    cr_assert_eq(fx_last(fx, 1)->hdr.type, PSRTI_T_ACK, "told of the version, no values");
    fx_close(fx);
}

Test(cancel, a_parked_pull_names_whom_it_waited_for)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, "sync", "sum", NULL, 0);
    fx_table(fx, 2, 4, NULL, "ssp:0", "sum", NULL, 0);
    fx_table(fx, 3, 4, NULL, "async", "sum", NULL, 0);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_clock(fx, 1, 2, 0);
    static const struct {
        uint32_t table, first;
        uint64_t ranks;
    } expect[] = { { 1, 1, 3 }, { 2, 0, 5 }, { 3, 0, 0 } };
    for (size_t i = 0; i < PSRTI_COUNT(expect); i++) {
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, expect[i].table, 1, 0, 4, 0);
        fx_send(fx, 0, &h, NULL);
        fx_reply_t *r = cancel(fx, 0, &h);
        cr_assert(is_canceled(r));
        cr_assert_eq(r->hdr.seq_floor, expect[i].first, "table %u", expect[i].table);
        cr_assert_eq(r->hdr.length, expect[i].ranks, "table %u", expect[i].table);
    }
    cr_assert_eq(fx_counts(fx).canceled, 2u);
    fx_close(fx);
}

/* A value that found no room on the link is not sent after its pull was taken back. */
Test(cancel, a_value_that_is_owed)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, "async", "sum", NULL, 0);
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PULL, 1, 0, 0, 4, 0), c = h;
    c.type = PSRTI_T_CANCEL;
    fx->full = 1;
    fx_send(fx, 0, &h, NULL);
    fx_send(fx, 0, &c, NULL);
    fx->full = 0;
    fx_forget(fx);
    psrti_shard_link_writable(fx->shard, fx->peer[0]);
    cr_assert_eq(fx->replies, 1u);
    cr_assert(is_canceled(fx_last(fx, 0)));
    fx_close(fx);
}

Test(cancel, malformed_ones_end_the_session)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, "async", "sum", NULL, 0);
    psrt_hdr_t good = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, 0), h;
    good.type = PSRTI_T_CANCEL;
    h = good, h.seq_floor = (uint16_t)(h.seq + 1);
    cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_BAD);
    h = good, h.seq = 1000, h.seq_floor = 300;
    cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_BAD);
    h = good, h.offset = 4;
    cr_assert_eq(fx_send(fx, 0, &h, NULL), PSRT_RX_BAD);
    fx_close(fx);
}
