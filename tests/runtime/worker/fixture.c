/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define VSHARDS 8

static psrt_status_t env_send(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    fx_t *fx = arg;
    if (fx->full[owner]) return PSRT_ERR_AGAIN;
    cr_assert(fx->sends < FX_SENDS);
    fx_send_t *s = &fx->sent[fx->sends++];
    *s = (fx_send_t){ .owner = owner, .hdr = *hdr, .data = data, .len = len };
    if (!fx->keep || !tx) return PSRT_OK;
    s->tx = tx;
    return PSRT_IN_PROGRESS;
}

static psrt_status_t env_map(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p)
{
    (void)arg, (void)owner;
    *data_p = msg->data;
    return PSRT_OK;
}

static psrt_status_t env_verify(void *arg, uint32_t owner, const psrt_msg_t *msg)
{
    (void)owner, (void)msg;
    return ((fx_t *)arg)->stale ? PSRT_ERR_STALE : PSRT_OK;
}

static void env_used(void *arg, uint32_t table)
{
    fx_t *fx = arg;
    fx->used++;
    cr_assert(table < PSRTI_COUNT(fx->table));
}

/* As a driver does, but for the dialling. */
static void env_fence(void *arg, uint32_t owner)
{
    fx_t *fx = arg;
    fx->fences++;
    for (size_t i = 0; i < fx->sends; i++)
        if (fx->sent[i].owner == owner) fx_done(fx, i);
    psrti_client_link_lost(fx->client, owner);
}

fx_t *fx_open(void) { return fx_open_batching(0); }

fx_t *fx_open_batching(uint64_t batch_bytes)
{
    fx_t *fx = calloc(1, sizeof *fx);
    const psrti_kernels_t *kernels;
    cr_assert_eq(psrti_kernels_select("scalar", &kernels), PSRT_OK);
    psrti_client_env_t env = {
        fx, env_send, env_map, env_verify, env_used, env_fence, batch_bytes
    };
    cr_assert_eq(psrti_client_create(0, FX_RETRY, FX_CANCEL, kernels, &env, &fx->client), PSRT_OK);
    fx->view = psrti_view_new(2, FX_OWNERS, VSHARDS);
    fx->view->number = 1;
    for (uint32_t i = 0; i < FX_OWNERS; i++)
        fx->view->owners[i] = (psrti_view_owner_t){ .server = i, .incarnation = 1, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++)
        fx->view->vshards[v] = (psrti_view_vshard_t){ .owner = v % FX_OWNERS, .term = 1 };
    psrti_client_view(fx->client, fx->view);
    for (uint32_t i = 0; i < FX_OWNERS; i++)
        psrti_client_link_up(fx->client, i);
    fx->memory = calloc(4 * FX_SLICE, sizeof *fx->memory);
    return fx;
}

void fx_close(fx_t *fx)
{
    for (size_t i = 0; i < fx->sends; i++)
        fx_done(fx, i);
    psrti_client_destroy(fx->client);
    psrti_view_unref(fx->view);
    free(fx->memory);
    free(fx);
}

static void declare(fx_t *fx, uint32_t id, psrt_dense_params_t p, uint64_t first)
{
    char name[32];
    int n = 0;
    do
        snprintf(name, sizeof name, "t%u.%d", id, n++);
    while (psrti_slice_vshard(psrti_hash_bytes(name, strlen(name)), 0, VSHARDS) != 0);
    psrti_table_spec_t spec;
    cr_assert_eq(psrti_table_spec_make(name, &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_client_table(fx->client, id, &spec, first, &fx->table[id]), PSRT_OK);
}

void fx_table(fx_t *fx, uint32_t id, uint64_t elements, const char *consistency, uint64_t first)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = elements, p.consistency = consistency;
    declare(fx, id, p, first);
}

void fx_group_table(fx_t *fx, uint32_t id, uint64_t elements, const char *group)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = elements;
    p.optimizer = "sgd:clip_norm=1", p.group = group;
    declare(fx, id, p, 0);
}

psrti_transfer_t fx_transfer(fx_t *fx, uint32_t table, int kind, uint64_t offset, uint64_t count)
{
    psrti_transfer_t x = { .table = fx->table[table], .offset = offset, .step = PSRT_STEP_NEXT };
    x.count = count ? count : psrti_ctable_spec(fx->table[table])->elements;
    if (kind & (PUSH | INIT)) x.grad = fx->memory;
    if (kind & PULL) x.value = fx->memory;
    x.more = (kind & MORE) != 0;
    x.init = (kind & INIT) != 0;
    return x;
}

void fx_submit(fx_t *fx, psrti_cop_t *op, uint32_t table, int kind, uint64_t offset, uint64_t count)
{
    psrti_transfer_t x = fx_transfer(fx, table, kind, offset, count);
    memset(op, 0, sizeof *op);
    psrti_client_submit(fx->client, op, &x, 1);
    fx_progress(fx);
}

uint64_t fx_progress(fx_t *fx)
{
    uint64_t next = psrti_client_progress(fx->client, fx->now);
    cr_assert(next == UINT64_MAX || next <= fx->now + FX_RETRY);
    return next;
}

size_t fx_count(const fx_t *fx, int type, size_t from)
{
    size_t n = 0;
    for (size_t i = from; i < fx->sends; i++)
        n += fx->sent[i].hdr.type == type;
    return n;
}

static psrt_msg_t answer(const fx_send_t *s, int type, uint64_t version)
{
    psrt_msg_t m = { .hdr = { .type = (uint8_t)type,
                              .term = s->hdr.term,
                              .seq = s->hdr.seq,
                              .step = version,
                              .table = s->hdr.table,
                              .vshard = s->hdr.vshard,
                              .offset = s->hdr.offset } };
    return m;
}

psrt_rx_t fx_ack(fx_t *fx, size_t i, psrt_status_t status, unsigned flags, uint64_t version)
{
    psrt_msg_t m = answer(&fx->sent[i], PSRTI_T_ACK, version);
    m.hdr.status = (uint8_t)-status;
    m.hdr.flags = (uint16_t)flags;
    psrt_rx_t rx = psrti_client_msg(fx->client, fx->sent[i].owner, &m);
    fx_progress(fx);
    return rx;
}

psrt_rx_t fx_value(fx_t *fx, size_t i, uint64_t version, float value)
{
    psrt_msg_t m = answer(&fx->sent[i], PSRTI_T_VALUE, version);
    uint64_t n = fx->sent[i].hdr.length;
    float *v = malloc(n * sizeof *v);
    for (uint64_t k = 0; k < n; k++)
        v[k] = value;
    m.hdr.length = n;
    m.hdr.dtype = PSRT_F32;
    m.data = v;
    m.len = n * sizeof *v;
    psrt_rx_t rx = psrti_client_msg(fx->client, fx->sent[i].owner, &m);
    fx_progress(fx);
    free(v);
    return rx;
}

void fx_done(fx_t *fx, size_t i)
{
    psrt_tx_t *tx = fx->sent[i].tx;
    fx->sent[i].tx = NULL;
    if (tx) tx->done(tx, PSRT_OK);
}

void fx_ended(fx_t *fx, psrti_cop_t *op, psrt_status_t status)
{
    cr_assert_eq(psrti_client_completed(fx->client), op, "the op has not ended");
    cr_assert_eq(op->result.status, status, "ended with %s: %s",
                 psrt_status_name(op->result.status), op->text ? op->text : "");
    free(op->text);
    op->text = NULL;
}

void fx_owner(fx_t *fx, uint32_t owner, int alive)
{
    psrti_view_t *next = psrti_view_clone(fx->view);
    next->number++;
    next->owners[owner].alive = alive;
    if (alive) {
        next->owners[owner].incarnation++;
        for (uint32_t v = 0; v < VSHARDS; v++)
            if (next->vshards[v].owner == owner) next->vshards[v].term++;
    }
    psrti_view_unref(fx->view);
    fx->view = next;
    psrti_client_view(fx->client, next);
    fx_progress(fx);
}
