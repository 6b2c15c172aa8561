/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane of one job: a shard for every server, a client for every worker, all linked. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/batch.h"
#include "runtime/server/shard.h"
#include "runtime/worker/client.h"
#include "scale.h"
#include "support/test.h"

#define VSHARDS 1024
#define BATCH_BYTES (64u << 20)
#define RETRY (100 * PSRTI_NS_PER_S)

typedef struct link {
    struct data *data;
    uint32_t worker, owner;
    psrti_peer_t *peer;
} link_t;

typedef struct frame {
    struct frame *next;
    link_t *link;
    int to_worker;
    psrt_hdr_t hdr;
    uint64_t len;
    _Alignas(64) uint8_t data[];
} frame_t;

typedef struct worker {
    struct data *data;
    uint32_t rank;
    psrti_client_t *client;
    psrti_transfer_t *transfers;
    psrti_cop_t op;
} worker_t;

typedef struct data {
    scale_data_params_t p;
    const psrti_kernels_t *kernels;
    psrti_view_t *view;
    psrti_shard_t **shards;
    worker_t *workers;
    link_t *links; /* by worker and owner */
    frame_t *first, **last;
    float *grad, *value; /* of all tables; every worker's */
    scale_steps_t cost;
    uint64_t now;
} data_t;

static link_t *link_of(data_t *d, uint32_t worker, uint32_t owner)
{
    return &d->links[(size_t)worker * d->p.size.servers + owner];
}

/* ---- the network ------------------------------------------------------------------------------- */

static void count_one(data_t *d, int to_worker, uint64_t len)
{
    *(to_worker ? &d->cost.answers : &d->cost.requests) += 1;
    *(to_worker ? &d->cost.answer_bytes : &d->cost.request_bytes) += PSRTI_FRAME_BYTES + len;
}

static void count(data_t *d, const frame_t *f)
{
    psrt_msg_t one = { .hdr = f->hdr, .data = f->data, .len = f->len };
    uint64_t pos = 0;
    d->cost.frames++;
    if (f->hdr.type != PSRTI_T_BATCH) {
        count_one(d, f->to_worker, f->len);
        return;
    }
    while (psrti_batch_next(f->data, f->len, UINT32_MAX, &pos, &one) == PSRT_OK)
        count_one(d, f->to_worker, one.len);
}

static psrt_status_t carry(link_t *link, int to_worker, const psrt_hdr_t *hdr, const void *data,
                           uint64_t len)
{
    data_t *d = link->data;
    scale_role_t before = scale_account(SCALE_DRIVER);
    frame_t *f = aligned_alloc(64, (sizeof *f + len + 63) & ~63ull);
    *f = (frame_t){ .link = link, .to_worker = to_worker, .hdr = *hdr, .len = len };
    if (len) memcpy(f->data, data, len);
    count(d, f);
    *d->last = f;
    d->last = &f->next;
    scale_account(before);
    return PSRT_OK;
}

static psrt_status_t client_send(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                                 uint64_t len, psrt_tx_t *tx)
{
    worker_t *w = arg;
    (void)tx;
    return carry(link_of(w->data, w->rank, owner), 0, hdr, data, len);
}

static psrt_status_t shard_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                                uint64_t len, psrt_tx_t *tx)
{
    (void)arg, (void)tx;
    return carry(link, 1, hdr, data, len);
}

static psrt_status_t shard_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    (void)arg;
    *data_p = msg->data;
    return PSRT_OK;
}

static psrt_status_t client_map(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p)
{
    (void)owner;
    return shard_map(arg, msg, data_p);
}

static psrt_status_t client_verify(void *arg, uint32_t owner, const psrt_msg_t *msg)
{
    (void)arg, (void)owner, (void)msg;
    return PSRT_OK;
}

static void client_used(void *arg, uint32_t table) { (void)arg, (void)table; }

static void client_fence(void *arg, uint32_t owner)
{
    (void)arg;
    cr_assert_fail("server:%u did not answer", owner);
}

static void *shard_alloc(void *arg, uint64_t bytes)
{
    (void)arg;
    return calloc(1, bytes);
}

static void shard_free(void *arg, void *ptr)
{
    (void)arg;
    free(ptr);
}

static void shard_dial(void *arg, uint32_t owner, const psrti_view_owner_t *address)
{
    (void)arg, (void)address;
    cr_assert_fail("nobody dials server:%u", owner);
}

static void deliver(data_t *d, const frame_t *f)
{
    link_t *l = f->link;
    psrt_msg_t msg = { .hdr = f->hdr, .data = f->data, .len = f->len };
    scale_account(f->to_worker ? SCALE_WORKER : SCALE_SERVER);
    psrt_rx_t rx = f->to_worker ? psrti_client_msg(d->workers[l->worker].client, l->owner, &msg)
                                : psrti_shard_msg(d->shards[l->owner], l->peer, &msg);
    scale_account(SCALE_DRIVER);
    cr_assert_eq(rx, PSRT_RX_DONE);
}

/* Until nothing moves any more. */
static void run(data_t *d)
{
    do {
        while (d->first) {
            frame_t *f = d->first;
            deliver(d, f);
            d->first = f->next;
            if (!d->first) d->last = &d->first;
            free(f);
        }
        scale_account(SCALE_WORKER);
        for (uint32_t i = 0; i < d->p.size.workers; i++)
            psrti_client_progress(d->workers[i].client, d->now);
        scale_account(SCALE_DRIVER);
    } while (d->first);
}

/* ---- the job ----------------------------------------------------------------------------------- */

static void view_open(data_t *d)
{
    const scale_size_t *s = &d->p.size;
    uint16_t owner[VSHARDS];
    d->view = psrti_view_new(s->workers, s->servers, VSHARDS);
    d->view->number = 1;
    psrti_place_vshards(VSHARDS, s->servers, owner);
    for (uint32_t i = 0; i < s->workers; i++)
        d->view->workers[i] = (psrti_view_worker_t){ .incarnation = 1 + i, .alive = 1 };
    for (uint32_t i = 0; i < s->servers; i++)
        d->view->owners[i] =
            (psrti_view_owner_t){ .server = i, .incarnation = 1 + s->workers + i, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++)
        d->view->vshards[v] = (psrti_view_vshard_t){ .owner = owner[v], .term = 1 };
}

static void shard_open(data_t *d, uint32_t owner)
{
    psrti_shard_env_t env = { NULL,       shard_send, shard_map,   shard_alloc,
                              shard_free, shard_dial, BATCH_BYTES, NULL };
    scale_account(SCALE_SERVER);
    cr_assert_eq(psrti_shard_create(owner, d->kernels, &env, &d->shards[owner]), PSRT_OK);
    psrti_shard_view(d->shards[owner], d->view, 0, 0, NULL, NULL);
    scale_account(SCALE_DRIVER);
}

static void worker_open(data_t *d, uint32_t rank)
{
    worker_t *w = &d->workers[rank];
    psrti_client_env_t env = { w,           client_send,  client_map, client_verify,
                               client_used, client_fence, BATCH_BYTES };
    w->data = d;
    w->rank = rank;
    w->transfers = calloc(d->p.size.tables, sizeof *w->transfers);
    scale_account(SCALE_WORKER);
    cr_assert_eq(psrti_client_create(rank, RETRY, RETRY, d->kernels, &env, &w->client), PSRT_OK);
    psrti_client_view(w->client, d->view);
    for (uint32_t o = 0; o < d->p.size.servers; o++) {
        link_t *l = link_of(d, rank, o);
        *l = (link_t){ .data = d, .worker = rank, .owner = o };
        scale_account(SCALE_SERVER);
        l->peer = psrti_shard_link_up(d->shards[o], l, PSRTI_TASK(PSRTI_WORKER, rank), 1 + rank);
        scale_account(SCALE_WORKER);
        psrti_client_link_up(w->client, o);
    }
    scale_account(SCALE_DRIVER);
}

static void table_open(data_t *d, uint32_t id)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    char name[64];
    p.ndim = 1;
    p.shape[0] = d->p.elements;
    p.consistency = d->p.consistency;
    snprintf(name, sizeof name, "model/layer%06u/weight", id);
    cr_assert_eq(psrti_table_spec_make(name, &p, &spec), PSRT_OK, "%s", psrt_last_error());
    scale_account(SCALE_SERVER);
    for (uint32_t o = 0; o < d->p.size.servers; o++)
        cr_assert_eq(psrti_shard_hold(d->shards[o], 1 + id, &spec), PSRT_OK);
    scale_account(SCALE_WORKER);
    for (uint32_t r = 0; r < d->p.size.workers; r++) {
        psrti_transfer_t *x = &d->workers[r].transfers[id];
        cr_assert_eq(psrti_client_table(d->workers[r].client, 1 + id, &spec, 0, &x->table),
                     PSRT_OK);
        x->grad = d->grad;
        x->value = d->p.pull ? d->value : NULL;
        x->count = d->p.elements;
        x->step = PSRT_STEP_NEXT;
    }
    scale_account(SCALE_DRIVER);
}

static void step(data_t *d)
{
    d->cost = (scale_steps_t){ 0 };
    d->now += PSRTI_NS_PER_MS;
    scale_account(SCALE_WORKER);
    for (uint32_t r = 0; r < d->p.size.workers; r++) {
        worker_t *w = &d->workers[r];
        memset(&w->op, 0, sizeof w->op);
        psrti_client_submit(w->client, &w->op, w->transfers, d->p.size.tables);
    }
    run(d);
    for (uint32_t r = 0; r < d->p.size.workers; r++) {
        const psrti_cop_t *op = psrti_client_completed(d->workers[r].client);
        cr_assert(op && op->result.status == PSRT_OK);
        cr_assert_eq(psrti_client_outstanding(d->workers[r].client), 0u);
    }
}

static void data_close(data_t *d)
{
    for (uint32_t r = 0; r < d->p.size.workers; r++) {
        scale_account(SCALE_WORKER);
        psrti_client_destroy(d->workers[r].client);
        scale_account(SCALE_DRIVER);
        free(d->workers[r].transfers);
    }
    scale_account(SCALE_SERVER);
    for (uint32_t o = 0; o < d->p.size.servers; o++)
        psrti_shard_destroy(d->shards[o]);
    scale_account(SCALE_DRIVER);
    psrti_view_unref(d->view);
    free(d->shards);
    free(d->workers);
    free(d->links);
    free(d->grad);
    free(d->value);
}

scale_steps_t scale_data(const scale_data_params_t *params)
{
    data_t d = { .p = *params, .now = PSRTI_NS_PER_S };
    const scale_size_t *s = &params->size;
    uint64_t servers = scale_allocated(SCALE_SERVER), workers = scale_allocated(SCALE_WORKER);
    d.last = &d.first;
    cr_assert_eq(psrti_kernels_select(NULL, &d.kernels), PSRT_OK);
    d.shards = calloc(s->servers, sizeof(void *));
    d.workers = calloc(s->workers, sizeof *d.workers);
    d.links = calloc((size_t)s->workers * s->servers, sizeof *d.links);
    d.grad = calloc(params->elements, sizeof *d.grad);
    d.value = calloc(params->elements, sizeof *d.value);
    view_open(&d);
    for (uint32_t o = 0; o < s->servers; o++)
        shard_open(&d, o);
    for (uint32_t r = 0; r < s->workers; r++)
        worker_open(&d, r);
    for (uint32_t t = 0; t < s->tables; t++)
        table_open(&d, t);
    for (int i = 0; i < params->steps; i++)
        step(&d);
    d.cost.server_memory = scale_allocated(SCALE_SERVER) - servers;
    d.cost.worker_memory = scale_allocated(SCALE_WORKER) - workers;
    data_close(&d);
    return d.cost;
}
