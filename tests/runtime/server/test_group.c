/* SPDX-License-Identifier: Apache-2.0 */
/* Two-phase apply over several owners. */
#include <math.h>
#include <string.h>

#include "group_net.h"
#include "support/page.h"

/* ---- tests ------------------------------------------------------------------------------------- */

#define CLIP "sgd:lr=1,clip_norm=2"
#define CLIP_TEN "sgd:lr=1,clip_norm=10"

/* The three tables lie with three owners: 4 * (9 + 16 + 144) = 26^2 is the square of their norm. */
static net_t *three_tables(const char *optimizer)
{
    net_t *net = open_net();
    table(net, 1, optimizer, "g");
    table(net, 2, optimizer, "g");
    table(net, 3, optimizer, "g");
    cr_assert(home_of(net, 1) != home_of(net, 2) && home_of(net, 2) != home_of(net, 3) &&
              home_of(net, 1) != home_of(net, 3));
    return net;
}

static void push_three(net_t *net, uint64_t step)
{
    push_all(net, 1, step, 3);
    push_all(net, 2, step, 4);
    push_all(net, 3, step, 12);
}

static void expect_three(net_t *net, uint64_t version)
{
    double scale = 2 / (26 + 1e-6) * (double)version;
    expect(net, 1, version, 1 - 3 * scale);
    expect(net, 2, version, 1 - 4 * scale);
    expect(net, 3, version, 1 - 12 * scale);
}

Test(group, tables_of_three_owners_are_clipped_to_one_norm)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    expect(net, 1, 0, 1); /* nothing before the verdict */
    cr_assert_eq(net->frames, 2u, "two owners report, one message each");
    carry(net);
    expect_three(net, 1);
    push_three(net, 1);
    carry(net);
    expect_three(net, 2);
    close_net(net);
}

Test(group, a_step_waits_for_the_other_tables)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_all(net, 1, 0, 3);
    push_all(net, 2, 0, 4);
    push_all(net, 1, 1, 3); /* the next step may begin */
    cr_assert_eq(push(net, 0, 1, 2, 3, 0).status, (uint8_t)-PSRT_ERR_AGAIN, "not a third one");
    carry(net);
    expect(net, 1, 0, 1);
    push_all(net, 3, 0, 12);
    carry(net);
    expect_three(net, 1);
    push_all(net, 2, 1, 4);
    push_all(net, 3, 1, 12);
    carry(net);
    expect_three(net, 2);
    close_net(net);
}

Test(group, norms_below_the_limit_change_nothing)
{
    net_t *net = three_tables("sgd:lr=1,clip_norm=27");
    connect_all(net);
    push_three(net, 0);
    carry(net);
    expect(net, 1, 1, -2);
    expect(net, 3, 1, -11);
    close_net(net);
}

/* Reports are lost, then verdicts; both come again in time. */
Test(group, what_is_lost_is_told_again)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    lose(net);
    pass_time(net, SEND_AGAIN);
    cr_assert_eq(net->frames, 2u);
    deliver(net, 0);
    deliver(net, 1);
    cr_assert_eq(net->frames, 4u, "two verdicts");
    lose(net);
    expect(net, 1, 0, 1);
    pass_time(net, 3 * SEND_AGAIN);
    carry(net);
    expect_three(net, 1);
    psrti_shard_counts_t c = counts(net);
    cr_assert(c.reports_repeated == 4 && c.verdicts_repeated == 2 && c.reports == 6);
    close_net(net);
}

Test(group, repeats_and_old_messages_change_nothing)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    deliver(net, 0);
    deliver(net, 0); /* the same report twice is not two reports */
    cr_assert_eq(net->frames, 2u);
    deliver(net, 1);
    size_t verdicts = net->frames;
    deliver(net, 1); /* after the verdict: told again */
    cr_assert_eq(net->frames, verdicts + 1);
    for (size_t i = 2; i < net->frames; i++) {
        deliver(net, i);
        deliver(net, i);
    }
    expect_three(net, 1);
    push_three(net, 1);
    for (size_t i = 0; i < net->frames; i++)
        deliver(net, i); /* those of step 0 once more, then those of step 1 */
    lose(net);
    expect_three(net, 2);
    close_net(net);
}

static void cut(net_t *net, link_t *l)
{
    (void)net;
    l->up = 0;
    psrti_shard_link_lost(l->from->shard, l->peer[0]);
    psrti_shard_link_lost(l->to->shard, l->peer[1]);
}

Test(group, a_link_comes_late_and_is_cut)
{
    net_t *net = three_tables(CLIP);
    push_three(net, 0);
    cr_assert_eq(net->frames, 0u);
    connect_all(net); /* a new link is a reason to report */
    cr_assert_eq(net->frames, 2u);
    for (size_t i = 0; i < 2; i++)
        deliver(net, i);
    lose(net); /* the verdicts, with their links */
    for (size_t i = 0; i < 6; i++)
        cut(net, &net->link[i]);
    expect(net, 1, 0, 1);
    connect_all(net);
    carry(net);
    expect_three(net, 1);
    close_net(net);
}

Test(group, a_full_link_is_written_when_it_has_room)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    net->room = 0;
    push_three(net, 0);
    cr_assert_eq(net->frames, 0u);
    net->room = -1;
    for (size_t i = 0; i < net->links; i++)
        psrti_shard_link_writable(net->link[i].from->shard, net->link[i].peer[0]);
    cr_assert_eq(net->frames, 2u);
    net->room = 0;
    deliver(net, 0);
    deliver(net, 1);
    cr_assert_eq(net->frames, 2u, "no room for verdicts");
    lose(net);
    net->room = -1;
    for (size_t i = 0; i < net->links; i++)
        psrti_shard_link_writable(net->link[i].to->shard, net->link[i].peer[1]);
    carry(net);
    expect_three(net, 1);
    close_net(net);
}

Test(group, what_is_not_finite_is_skipped_by_all_and_counted)
{
    net_t *net = three_tables("momentum:lr=1,momentum=0.5,skip_nonfinite=1");
    connect_all(net);
    push_all(net, 1, 0, 3);
    push(net, 0, 2, 0, 4, 0);
    push(net, 1, 2, 0, NAN, 0);
    push_all(net, 3, 0, INFINITY);
    carry(net);
    for (uint32_t id = 1; id <= 3; id++)
        expect(net, id, 1, 1);
    cr_assert_eq(net->last_skipped, 1u, "workers are told");
    push_three(net, 1);
    carry(net);
    expect(net, 1, 2, -2); /* the momentum has not seen the other step */
    expect(net, 3, 2, -11);
    cr_assert_eq(net->last_skipped, 1u);
    cr_assert_eq(counts(net).skipped, 3u, "once at every owner");
    close_net(net);
}

Test(group, without_skipping_nan_is_data)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_all(net, 1, 0, 3);
    push_all(net, 2, 0, NAN);
    push_all(net, 3, 0, 12);
    carry(net);
    const void *values;
    uint64_t version;
    cr_assert_eq(psrti_shard_peek(home_of(net, 1)->shard, 1, 0, &values, &version), PSRT_OK);
    cr_assert(version == 1 && isnan(*(const float *)values), "the norm is NaN, and so is all");
    close_net(net);
}

Test(group, the_death_of_a_worker_completes_the_step)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    for (uint32_t id = 1; id <= 3; id++)
        push(net, 0, id, 0, id == 1 ? 3 : id == 2 ? 4 : 12, 0);
    push(net, 1, 1, 0, 3, 0);
    carry(net);
    expect(net, 1, 0, 1);
    psrti_view_t *next = psrti_view_clone(net->view);
    next->number++;
    next->workers[1].alive = 0;
    psrti_view_t *old = net->view;
    net->view = next;
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_view(net->node[i].shard, next, 0, 0, NULL, NULL);
    psrti_view_unref(old);
    carry(net);
    expect_three(net, 1); /* both in one average, one in the others */
    close_net(net);
}

static void clock_step(net_t *net, uint32_t rank, uint32_t id, uint64_t step)
{
    node_t *n = home_of(net, id);
    psrt_msg_t msg = { .hdr = { .type = PSRTI_T_CLOCK,
                                .table = id,
                                .step = step,
                                .vshard = vshard_of(id),
                                .term = TERM,
                                .seq = ++net->seq | 1ull << 63 } };
    cr_assert_eq(psrti_shard_msg(n->shard, n->worker[rank].peer[1], &msg), PSRT_RX_DONE);
}

Test(group, a_step_without_gradients_counts_as_zeros)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_all(net, 1, 0, 3);
    for (uint32_t r = 0; r < WORKERS; r++) {
        clock_step(net, r, 2, 0);
        clock_step(net, r, 3, 0);
    }
    carry(net);
    expect(net, 1, 1, 1 - 3 * 2 / (6 + 1e-6));
    expect(net, 2, 1, 1);
    close_net(net);
}

/* A complete step has been measured: what comes after is late, here from a joiner that counts later. */
Test(group, a_measured_step_takes_nothing_more)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    uint32_t tables[] = { 1, 2, 3 };
    uint64_t from[] = { 1, 1, 1 };
    psrti_view_t *next = psrti_view_clone(net->view), *old = net->view;
    next->number++;
    net->view = next;
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_view(net->node[i].shard, next, 1, 3, tables, from);
    psrti_view_unref(old);
    push(net, 0, 1, 0, 3, 0);
    psrt_hdr_t r = push(net, 1, 1, 0, 100, PSRTI_F_PULL);
    cr_assert(r.type == PSRTI_T_VALUE && (r.flags & PSRTI_F_LATE));
    push(net, 0, 2, 0, 4, 0);
    push(net, 0, 3, 0, 12, 0);
    carry(net);
    expect_three(net, 1);
    cr_assert_eq(counts(net).late, 1u);
    close_net(net);
}

Test(group, a_push_pull_is_answered_with_the_verdict)
{
    net_t *net = open_net();
    table(net, 1, CLIP, NULL);
    push(net, 0, 1, 0, 3, 0);
    psrt_hdr_t r = push(net, 1, 1, 0, 3, PSRTI_F_PULL);
    cr_assert_eq(r.type, PSRTI_T_VALUE, "one owner decides at once");
    cr_assert_eq(r.step, 1u);
    cr_assert_float_eq(net->value[1][0], 1 - 3 * 2 / (6 + 1e-6), 1e-6);
    close_net(net);
}

/* Equal elements: |v| / |u| * u is v, whatever u is. Both rounds of two holders are lost once. */
Test(group, the_norm_of_the_update_takes_a_second_round)
{
    net_t *net = three_tables("lamb:lr=0.25,clip_norm=2");
    connect_all(net);
    double v = 1;
    for (uint64_t step = 0; step < 3; step++) {
        push_three(net, step);
        lose(net);
        pass_time(net, 20 * SEND_AGAIN);
        deliver(net, 0);
        deliver(net, 1);
        cr_assert_eq(net->frames, 4u, "two verdicts of round 1");
        deliver(net, 2);
        deliver(net, 2);
        expect(net, 1, step, v);
        cr_assert_eq(net->frames, 5u, "one report of round 2");
        lose(net);
        pass_time(net, 20 * SEND_AGAIN);
        carry(net);
        v -= 0.25 * v;
        for (uint32_t id = 1; id <= 3; id++)
            expect(net, id, step + 1, v);
    }
    cr_assert(counts(net).verdicts_repeated >= 3, "one lost verdict of round 1 a step");
    close_net(net);
}

static void is_on_the_page(const frame_t *f, const char *name)
{
    uint8_t page[256];
    size_t n = page_block(name, page, sizeof page);
    cr_assert(n == f->len && memcmp(f->data, page, n) == 0, "%s", name);
}

Test(group, messages_are_as_documented)
{
    net_t *net = three_tables("lamb:clip_norm=27");
    size_t partials = 0, verdicts = 0;
    connect_all(net);
    push_three(net, 0);
    for (size_t i = 0; i < net->frames; i++) {
        if (((const uint8_t *)net->frame[i].data)[0] != 1) continue; /* not of table 1 */
        is_on_the_page(&net->frame[i], "partials");
        partials++;
    }
    deliver(net, 0);
    deliver(net, 1);
    for (size_t i = 2; i < net->frames; i++, verdicts++) {
        cr_assert_eq(net->frame[i].len, 48u, "a holder hears of its own table alone");
        if (net->frame[i].hdr.table == 1) is_on_the_page(&net->frame[i], "verdict");
    }
    cr_assert(partials == 1 && verdicts == 2);
    close_net(net);
}

Test(group, one_with_and_one_without_a_second_round)
{
    net_t *net = open_net();
    table(net, 1, "lars:lr=1,momentum=0,trust=0.5,clip_norm=10", "g");
    table(net, 2, CLIP_TEN, "g");
    connect_all(net);
    push_all(net, 1, 0, 3);
    push_all(net, 2, 0, 4); /* the norm is 10 */
    carry(net);
    double scale = 10 / (10 + 1e-6);
    expect(net, 1, 1, 1 - 0.5 * 2 / (6 * scale + 1e-8) * 3 * scale);
    expect(net, 2, 1, 1 - 4 * scale);
    close_net(net);
}

/* Sums, norms and masters are f32; only what travels has 16 bits. */
Test(group, tables_of_16_bits)
{
    net_t *net = open_net();
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    const uint16_t three[4] = { 0x4040, 0x4040, 0x4040, 0x4040 }; /* bf16 */
    p.optimizer = "sgd:lr=1,clip_norm=3", p.dtype = PSRT_BF16;
    table_of(net, 1, p);
    for (uint32_t r = 0; r < WORKERS; r++) {
        psrt_hdr_t h = header(net, 1, 0, 0);
        h.dtype = PSRT_BF16;
        psrt_msg_t msg = { .hdr = h, .data = three, .len = sizeof three };
        node_t *n = home_of(net, 1);
        cr_assert_eq(psrti_shard_msg(n->shard, n->worker[r].peer[1], &msg), PSRT_RX_DONE);
    }
    const void *values;
    uint64_t version;
    cr_assert_eq(psrti_shard_peek(home_of(net, 1)->shard, 1, 0, &values, &version), PSRT_OK);
    cr_assert_eq(version, 1u);
    cr_assert_eq(((const uint16_t *)values)[0], 0xbf00, "1 - 3 * 3 / (6 + 1e-6) is about -0.5");
    close_net(net);
}

/* A pull of a table whose step is complete waits for who is missing in another of its group. */
Test(group, a_canceled_pull_names_who_is_missing_in_the_group)
{
    net_t *net = open_net();
    uint32_t other = OWNERS + 1;
    while (home_of(net, other) != home_of(net, 1))
        other++;
    table(net, 1, CLIP, "g");
    table(net, other, CLIP, "g");
    push_all(net, 1, 0, 3);
    push(net, 0, other, 0, 3, 0);
    psrt_msg_t msg = { .hdr = header(net, 1, 1, 0) };
    psrti_peer_t *peer = home_of(net, 1)->worker[0].peer[1];
    msg.hdr.type = PSRTI_T_PULL, msg.hdr.flags = 0, msg.hdr.seq |= 1ull << 63;
    cr_assert_eq(psrti_shard_msg(home_of(net, 1)->shard, peer, &msg), PSRT_RX_DONE);
    msg.hdr.type = PSRTI_T_CANCEL, msg.hdr.dtype = 0;
    cr_assert_eq(psrti_shard_msg(home_of(net, 1)->shard, peer, &msg), PSRT_RX_DONE);
    cr_assert_eq(net->reply[0].status, (uint8_t)-PSRT_ERR_CANCELED);
    cr_assert(net->reply[0].seq_floor == 1 && net->reply[0].length == 1, "worker 1");
    close_net(net);
}

/* More slices at an owner, and more tables, than a message tells. */
Test(group, long_reports_and_verdicts_come_in_several_messages)
{
    enum { TABLES = 450 };
    net_t *net = open_net();
    double square = 0;
    for (uint32_t id = 1; id <= TABLES; id++) {
        table(net, id, CLIP, "g");
        square += 4.0 * id * id;
    }
    connect_all(net);
    net->room = 1;
    for (uint32_t id = 1; id <= TABLES; id++)
        push_all(net, id, 0, (float)id);
    cr_assert_eq(net->frames, 1u);
    net->room = -1;
    for (size_t i = 0; i < net->links; i++)
        psrti_shard_link_writable(net->link[i].from->shard, net->link[i].peer[0]);
    cr_assert_eq(net->frames, 4u, "two owners, two messages each");
    carry(net);
    for (uint32_t id = 1; id <= TABLES; id++)
        expect(net, id, 1, 1 - id * 2 / (sqrt(square) + 1e-6));
    close_net(net);
}

Test(group, a_table_alone_is_clipped_alone)
{
    net_t *net = open_net();
    table(net, 1, CLIP, NULL);
    table(net, 2, CLIP, NULL);
    push_all(net, 1, 0, 3);
    push_all(net, 2, 0, 4);
    cr_assert_eq(net->frames, 0u);
    expect(net, 1, 1, 1 - 3 * 2 / (6 + 1e-6));
    expect(net, 2, 1, 1 - 4 * 2 / (8 + 1e-6));
    close_net(net);
}

Test(group, a_group_that_steps_takes_no_more_tables)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    carry(net);
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = 4, p.optimizer = CLIP, p.group = "g";
    cr_assert_eq(hold(net, 4, &p), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "t4") && strstr(psrt_last_error(), "group g"));
    push_three(net, 1);
    carry(net);
    expect_three(net, 2);
    close_net(net);
}

/* What was sent to or by an owner of another term, or a life that is over, is not for this group. */
Test(group, messages_of_another_life_are_ignored)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    net->frame[0].hdr.term--;
    deliver(net, 0);
    net->frame[0].hdr.term++;
    deliver(net, 1);
    cr_assert_eq(net->frames, 2u, "one report is missing");
    link_t *l = net->frame[0].link;
    for (uint32_t life = 99; life <= 100; life++) {
        psrti_shard_link_lost(l->to->shard, l->peer[1]);
        l->peer[1] =
            psrti_shard_owner_up(l->to->shard, l, l->from->owner, life + l->from->owner, 0);
        deliver(net, 0);
        cr_assert_eq(net->frames, life < 100 ? 2u : 4u, "life %u", life);
    }
    close_net(net);
}

Test(group, malformed_messages_are_refused)
{
    net_t *net = three_tables(CLIP);
    connect_all(net);
    push_three(net, 0);
    frame_t good = net->frame[0];
    uint8_t wrong[32] = { 0xff };
    struct {
        uint8_t type;
        uint64_t seq;
        const void *data;
        uint64_t len;
    } bad[] = { { PSRTI_T_PUSH, 1, good.data, good.len },
                { PSRTI_T_VERDICT, 1, good.data, good.len },
                { PSRTI_T_PARTIALS, 3, good.data, good.len },
                { PSRTI_T_PARTIALS, 0, good.data, good.len },
                { PSRTI_T_PARTIALS, 1, good.data, good.len - 1 },
                { PSRTI_T_PARTIALS, 1, wrong, 32 } };
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        psrt_msg_t msg = { .hdr = good.hdr, .data = bad[i].data, .len = bad[i].len };
        msg.hdr.type = bad[i].type, msg.hdr.seq = bad[i].seq;
        cr_assert_eq(psrti_shard_msg(good.link->to->shard, good.link->peer[1], &msg), PSRT_RX_BAD,
                     "%zu", i);
    }
    carry(net);
    expect_three(net, 1);
    close_net(net);
}
