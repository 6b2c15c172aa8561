/* SPDX-License-Identifier: Apache-2.0 */
#include "group_net.h"

#include <stdlib.h>
#include <string.h>

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
    if (net->room == 0) return PSRT_ERR_AGAIN;
    net->room -= net->room > 0;
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

uint16_t vshard_of(uint32_t id)
{
    char name[16];
    snprintf(name, sizeof name, "t%u", id);
    return psrti_slice_vshard(psrti_hash_bytes(name, strlen(name)), 0, VSHARDS);
}

net_t *open_net(void)
{
    net_t *net = calloc(1, sizeof *net);
    net->room = -1;
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
        psrti_shard_env_t env = { n, env_send, env_map, env_alloc, env_free, env_dial, 0, NULL };
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

void connect_all(net_t *net)
{
    for (int i = 0; i < OWNERS; i++)
        for (int j = 0; j < OWNERS; j++)
            if (i != j) link_up(net, &net->node[i], &net->node[j]);
}

void drop(net_t *net, size_t i)
{
    free(net->frame[i].data);
    memmove(&net->frame[i], &net->frame[i + 1], (--net->frames - i) * sizeof net->frame[0]);
}

void close_net(net_t *net)
{
    while (net->frames)
        drop(net, 0);
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_destroy(net->node[i].shard);
    psrti_view_unref(net->view);
    free(net);
}

void deliver(net_t *net, size_t i)
{
    frame_t f = net->frame[i];
    psrt_msg_t msg = { .hdr = f.hdr, .data = f.data, .len = f.len };
    node_t *to = f.to_dialler ? f.link->from : f.link->to;
    if (!f.link->up) return;
    cr_assert_eq(f.hdr.length, f.len);
    cr_assert_eq(psrti_shard_msg(to->shard, f.link->peer[!f.to_dialler], &msg), PSRT_RX_DONE);
}

void carry(net_t *net)
{
    while (net->frames) {
        deliver(net, 0);
        drop(net, 0);
    }
}

void lose(net_t *net)
{
    while (net->frames)
        drop(net, 0);
}

void pass_time(net_t *net, uint64_t ms)
{
    net->now += ms * PSRTI_NS_PER_MS;
    for (int i = 0; i < OWNERS; i++)
        psrti_shard_progress(net->node[i].shard, net->now);
}

psrt_status_t hold(net_t *net, uint32_t id, const psrt_dense_params_t *params)
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

void table_of(net_t *net, uint32_t id, psrt_dense_params_t p)
{
    p.ndim = 1, p.shape[0] = 4, p.init = "constant:value=1";
    cr_assert_eq(hold(net, id, &p), PSRT_OK, "%s", psrt_last_error());
}

void table(net_t *net, uint32_t id, const char *optimizer, const char *group)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.optimizer = optimizer, p.group = group;
    table_of(net, id, p);
}

node_t *home_of(net_t *net, uint32_t id)
{
    return &net->node[net->view->vshards[vshard_of(id)].owner];
}

psrt_hdr_t header(net_t *net, uint32_t id, uint64_t step, unsigned flags)
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

psrt_hdr_t push(net_t *net, uint32_t rank, uint32_t id, uint64_t step, float g, unsigned flags)
{
    float all[4] = { g, g, g, g };
    node_t *n = home_of(net, id);
    psrt_msg_t msg = { .hdr = header(net, id, step, flags), .data = all, .len = sizeof all };
    cr_assert_eq(psrti_shard_msg(n->shard, n->worker[rank].peer[1], &msg), PSRT_RX_DONE);
    return net->reply[rank];
}

void push_all(net_t *net, uint32_t id, uint64_t step, float g)
{
    for (uint32_t r = 0; r < WORKERS; r++)
        push(net, r, id, step, g, 0);
}

void expect(net_t *net, uint32_t id, uint64_t version, double value)
{
    const void *values;
    uint64_t is;
    cr_assert_eq(psrti_shard_peek(home_of(net, id)->shard, id, 0, &values, &is), PSRT_OK);
    cr_assert_eq(is, version, "t%u has version %llu, not %llu", id, (unsigned long long)is,
                 (unsigned long long)version);
    cr_assert_float_eq(((const float *)values)[3], value, 1e-6, "t%u is %.9g, not %.9g", id,
                       (double)((const float *)values)[3], value);
}

psrti_shard_counts_t counts(net_t *net)
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
