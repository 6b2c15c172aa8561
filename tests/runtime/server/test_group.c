/* SPDX-License-Identifier: Apache-2.0 */
/* Two-phase apply over several owners, whose messages to each other the tests carry, lose, repeat and
 * reorder by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "runtime/server/shard.h"
#include "support/test.h"
#include "transport/frame.h"

#define OWNERS 3
#define WORKERS 2
#define VSHARDS 97
#define TERM 5
#define MAX_FRAMES 64
#define SEND_AGAIN 300 /* ms: longer than the first pause before a report is repeated */

struct node;

/* A link between two owners, or the one between a worker and an owner. */
typedef struct link {
    struct node *from, *to; /* who dialled, who accepted; of a worker: NULL, the owner */
    psrti_peer_t *peer[2];  /* at who dialled, at who accepted */
    uint32_t worker;
    int up;
} link_t;

typedef struct frame {
    psrt_hdr_t hdr;
    link_t *link;
    int to_dialler;
    void *data;
    uint64_t len;
} frame_t;

typedef struct node {
    struct net *net;
    uint32_t owner;
    psrti_shard_t *shard;
    link_t worker[WORKERS];
} node_t;

typedef struct net {
    node_t node[OWNERS];
    link_t link[16];
    size_t links;
    frame_t frame[MAX_FRAMES]; /* between owners, under way */
    size_t frames;
    int full; /* links between owners take nothing */
    psrti_view_t *view;
    uint64_t now, seq, last_skipped;
    psrt_hdr_t reply[WORKERS]; /* the last ACK or VALUE to a worker */
    float value[WORKERS][64];  /* that came with it                 */
} net_t;

/* ---- surroundings of the shards ---------------------------------------------------------------- */

static psrt_status_t env_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    node_t *n = arg;
    net_t *net = n->net;
    link_t *l = link;
    (void)tx;
    if (!l->from) {
        if (hdr->seq == 0) net->last_skipped = hdr->length; /* told of an apply */
        net->reply[l->worker] = *hdr;
        cr_assert(len <= sizeof net->value[0]);
        if (len) memcpy(net->value[l->worker], data, len);
        return PSRT_OK;
    }
    if (net->full) return PSRT_ERR_AGAIN;
    cr_assert(l->up && net->frames < MAX_FRAMES);
    frame_t *f = &net->frame[net->frames++];
    *f = (frame_t){ *hdr, l, n == l->to, malloc(len), len };
    memcpy(f->data, data, len);
    return PSRT_OK;
}

static psrt_status_t env_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    (void)arg;
    *data_p = msg->data;
    return PSRT_OK;
}

static void *env_alloc(void *arg, uint64_t bytes)
{
    (void)arg;
    return malloc(bytes);
}

static void env_free(void *arg, void *ptr)
{
    (void)arg;
    free(ptr);
}

static void link_up(net_t *net, node_t *from, node_t *to)
{
    link_t *l = &net->link[net->links++];
    *l = (link_t){ .from = from, .to = to, .up = 1 };
    l->peer[1] = psrti_shard_owner_up(to->shard, l, from->owner, 100 + from->owner, 0);
    l->peer[0] = psrti_shard_owner_up(from->shard, l, to->owner, 0, 1);
}

static void env_dial(void *arg, uint32_t owner, const psrti_view_owner_t *address)
{
    node_t *n = arg;
    cr_assert(address == &n->net->view->owners[owner]);
    cr_assert_neq(owner, n->owner);
}

/* ---- the job ----------------------------------------------------------------------------------- */

static uint16_t vshard_of(uint32_t id)
{
    char name[16];
    snprintf(name, sizeof name, "t%u", id);
    return psrti_slice_vshard(psrti_hash_bytes(name, strlen(name)), 0, VSHARDS);
}

static net_t *open_net(void)
{
    net_t *net = calloc(1, sizeof *net);
    const psrti_kernels_t *kernels;
    cr_assert_eq(psrti_kernels_select("scalar", &kernels), PSRT_OK);
    net->view = psrti_view_new(WORKERS, OWNERS, VSHARDS);
    net->view->number = 1;
    for (uint32_t i = 0; i < OWNERS; i++)
        net->view->owners[i] =
            (psrti_view_owner_t){ .server = i, .incarnation = 100 + i, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++)
        net->view->vshards[v] = (psrti_view_vshard_t){ .owner = v % OWNERS, .term = TERM };
    for (uint32_t id = 1; id <= OWNERS; id++) /* a table for each */
        net->view->vshards[vshard_of(id)].owner = (uint16_t)(id - 1);
    for (uint32_t r = 0; r < WORKERS; r++)
        net->view->workers[r] = (psrti_view_worker_t){ .incarnation = r + 1, .alive = 1 };
    for (uint32_t i = 0; i < OWNERS; i++) {
        node_t *n = &net->node[i];
        psrti_shard_env_t env = { n, env_send, env_map, env_alloc, env_free, env_dial, 0 };
        n->net = net;
        n->owner = i;
        cr_assert_eq(psrti_shard_create(i, kernels, &env, &n->shard), PSRT_OK);
        psrti_shard_view(n->shard, net->view, 0, 0, NULL, NULL);
        for (uint32_t r = 0; r < WORKERS; r++) {
            n->worker[r] = (link_t){ .to = n, .worker = r };
            n->worker[r].peer[1] =
                psrti_shard_link_up(n->shard, &n->worker[r], PSRTI_TASK(PSRTI_WORKER, r), r + 1);
        }
    }
    return net;
}

static void connect_all(net_t *net)
{
    for (int i = 0; i < OWNERS; i++)
        for (int j = 0; j < OWNERS; j++)
            if (i != j) link_up(net, &net->node[i], &net->node[j]);
}

static void drop(net_t *net, size_t i)
{
    free(net->frame[i].data);
    memmove(&net->frame[i], &net->frame[i + 1], (--net->frames - i) * sizeof net->frame[0]);
}

static void close_net(net_t *net)
{
    while (net->frames)
        drop(net, 0);
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_destroy(net->node[i].shard);
    psrti_view_unref(net->view);
    free(net);
}

/* Delivers frame i and keeps it. */
static void deliver(net_t *net, size_t i)
{
    frame_t f = net->frame[i];
    psrt_msg_t msg = { .hdr = f.hdr, .data = f.data, .len = f.len };
    node_t *to = f.to_dialler ? f.link->from : f.link->to;
    if (!f.link->up) return;
    cr_assert_eq(f.hdr.length, f.len);
    cr_assert_eq(psrti_shard_msg(to->shard, f.link->peer[!f.to_dialler], &msg), PSRT_RX_DONE);
}

static void carry(net_t *net)
{
    while (net->frames) {
        deliver(net, 0);
        drop(net, 0);
    }
}

static void lose(net_t *net)
{
    while (net->frames)
        drop(net, 0);
}

static void pass_time(net_t *net, uint64_t ms)
{
    net->now += ms * PSRTI_NS_PER_MS;
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_progress(net->node[i].shard, net->now);
}

static psrt_status_t hold(net_t *net, uint32_t id, const psrt_dense_params_t *params)
{
    char name[16];
    psrti_table_spec_t spec;
    psrt_status_t rc = PSRT_OK;
    snprintf(name, sizeof name, "t%u", id);
    cr_assert_eq(psrti_table_spec_make(name, params, &spec), PSRT_OK, "%s", psrt_last_error());
    for (int i = 0; i < OWNERS && !rc; i++)
        rc = psrti_shard_hold(net->node[i].shard, id, &spec);
    return rc;
}

static void table_of(net_t *net, uint32_t id, psrt_dense_params_t p)
{
    p.ndim = 1, p.shape[0] = 4, p.init = "constant:value=1";
    cr_assert_eq(hold(net, id, &p), PSRT_OK, "%s", psrt_last_error());
}

/* "t<id>" of 4 elements that start as 1. */
static void table(net_t *net, uint32_t id, const char *optimizer, const char *group)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.optimizer = optimizer, p.group = group;
    table_of(net, id, p);
}

static node_t *home_of(net_t *net, uint32_t id)
{
    return &net->node[net->view->vshards[vshard_of(id)].owner];
}

static psrt_hdr_t header(net_t *net, uint32_t id, uint64_t step, unsigned flags)
{
    return (psrt_hdr_t){ .type = PSRTI_T_PUSH,
                         .flags = (uint16_t)(PSRTI_F_END | PSRTI_F_WHOLE | flags),
                         .dtype = PSRT_F32,
                         .table = id,
                         .step = step,
                         .vshard = vshard_of(id),
                         .term = TERM,
                         .seq = ++net->seq,
                         .length = 4 };
}

static psrt_hdr_t push(net_t *net, uint32_t rank, uint32_t id, uint64_t step, float g,
                       unsigned flags)
{
    float all[4] = { g, g, g, g };
    node_t *n = home_of(net, id);
    psrt_msg_t msg = { .hdr = header(net, id, step, flags), .data = all, .len = sizeof all };
    cr_assert_eq(psrti_shard_msg(n->shard, n->worker[rank].peer[1], &msg), PSRT_RX_DONE);
    return net->reply[rank];
}

static void push_all(net_t *net, uint32_t id, uint64_t step, float g)
{
    for (uint32_t r = 0; r < WORKERS; r++)
        push(net, r, id, step, g, 0);
}

static void expect(net_t *net, uint32_t id, uint64_t version, double value)
{
    const void *values;
    uint64_t is;
    cr_assert_eq(psrti_shard_peek(home_of(net, id)->shard, id, 0, &values, &is), PSRT_OK);
    cr_assert_eq(is, version, "t%u has version %llu, not %llu", id, (unsigned long long)is,
                 (unsigned long long)version);
    cr_assert_float_eq(((const float *)values)[3], value, 1e-6, "t%u is %.9g, not %.9g", id,
                       (double)((const float *)values)[3], value);
}

static psrti_shard_counts_t counts(net_t *net)
{
    psrti_shard_counts_t sum = { 0 }, c;
    for (int i = 0; i < OWNERS; i++) {
        psrti_shard_counts(net->node[i].shard, &c);
        sum.reports += c.reports;
        sum.reports_repeated += c.reports_repeated;
        sum.verdicts_repeated += c.verdicts_repeated;
        sum.skipped += c.skipped;
        sum.late += c.late;
    }
    return sum;
}

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
    net->full = 1;
    push_three(net, 0);
    cr_assert_eq(net->frames, 0u);
    net->full = 0;
    for (size_t i = 0; i < net->links; i++)
        psrti_shard_link_writable(net->link[i].from->shard, net->link[i].peer[0]);
    cr_assert_eq(net->frames, 2u);
    net->full = 1;
    deliver(net, 0);
    deliver(net, 1);
    cr_assert_eq(net->frames, 2u, "no room for verdicts");
    lose(net);
    net->full = 0;
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
        l->peer[1] = psrti_shard_owner_up(l->to->shard, l, l->from->owner, life + l->from->owner, 0);
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
