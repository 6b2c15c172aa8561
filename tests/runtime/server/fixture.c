/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define VSHARDS 8

static psrt_status_t env_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    fx_t *fx = arg;
    if (fx->full) return PSRT_ERR_AGAIN;
    cr_assert(fx->replies < FX_REPLIES);
    fx_reply_t *r = &fx->reply[fx->replies++];
    *r = (fx_reply_t){ .hdr = *hdr, .rank = *(uint32_t *)link, .data = data, .len = len };
    if (len) {
        r->copy = malloc(len);
        memcpy(r->copy, data, len);
    }
    if (!fx->keep || !tx) return PSRT_OK;
    r->tx = tx;
    return PSRT_IN_PROGRESS;
}

static psrt_status_t env_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    (void)arg;
    *data_p = msg->data;
    return PSRT_OK;
}

static void *env_alloc(void *arg, uint64_t bytes)
{
    ((fx_t *)arg)->allocs++;
    return malloc(bytes);
}

static void env_free(void *arg, void *ptr)
{
    ((fx_t *)arg)->allocs--;
    free(ptr);
}

static void env_dial(void *arg, uint32_t owner, const psrti_view_owner_t *address)
{
    (void)arg, (void)address;
    cr_assert_fail("dials owner %u, and there is one alone", owner);
}

fx_t *fx_open(uint32_t workers) { return fx_open_batching(workers, 0); }

fx_t *fx_open_batching(uint32_t workers, uint64_t batch_bytes)
{
    fx_t *fx = calloc(1, sizeof *fx);
    const psrti_kernels_t *kernels;
    cr_assert_eq(psrti_kernels_select("scalar", &kernels), PSRT_OK);
    psrti_shard_env_t env = { fx,       env_send, env_map,     env_alloc,
                              env_free, env_dial, batch_bytes, NULL };
    cr_assert_eq(psrti_shard_create(0, kernels, &env, &fx->shard), PSRT_OK);
    fx->view = psrti_view_new(workers, 1, VSHARDS);
    fx->view->number = 1;
    fx->view->owners[0] = (psrti_view_owner_t){ .incarnation = 100, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++)
        fx->view->vshards[v].term = FX_TERM;
    for (uint32_t r = 0; r < workers; r++) {
        fx->view->workers[r] = (psrti_view_worker_t){ .incarnation = r + 1, .alive = 1 };
        fx->link[r] = r;
        fx->peer[r] =
            psrti_shard_link_up(fx->shard, &fx->link[r], PSRTI_TASK(PSRTI_WORKER, r), r + 1);
    }
    psrti_shard_view(fx->shard, fx->view, 0, 0, NULL, NULL);
    return fx;
}

void fx_close(fx_t *fx)
{
    fx->full = 0;
    for (size_t i = 0; i < fx->replies; i++)
        fx_done(fx, i);
    psrti_shard_destroy(fx->shard);
    cr_assert_eq(fx->allocs, 0u, "%zu value blocks were not freed", fx->allocs);
    fx_forget(fx);
    psrti_view_unref(fx->view);
    free(fx);
}

void fx_table(fx_t *fx, uint32_t id, uint64_t elements, const char *optimizer,
              const char *consistency, const char *reduce, const char *init, int deterministic)
{
    char name[16];
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    snprintf(name, sizeof name, "t%u", id);
    p.ndim = 1, p.shape[0] = elements;
    p.optimizer = optimizer, p.consistency = consistency, p.reduce = reduce, p.init = init;
    p.deterministic = deterministic;
    cr_assert_eq(psrti_table_spec_make(name, &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_shard_hold(fx->shard, id, &spec), PSRT_OK, "%s", psrt_last_error());
}

psrt_hdr_t fx_hdr(fx_t *fx, uint32_t rank, int type, uint32_t table, uint64_t step, uint64_t offset,
                  uint64_t count, unsigned flags)
{
    char name[16];
    snprintf(name, sizeof name, "t%u", table);
    psrt_hdr_t h = { .type = (uint8_t)type,
                     .flags = (uint16_t)flags,
                     .table = table,
                     .step = step,
                     .offset = offset,
                     .length = count };
    h.vshard = psrti_slice_vshard(psrti_hash_bytes(name, strlen(name)), offset >> PSRTI_SLICE_SHIFT,
                                  VSHARDS);
    h.term = fx->view->vshards[h.vshard].term;
    h.seq = ++fx->seq[rank];
    if (type == PSRTI_T_PUSH || type == PSRTI_T_INIT)
        h.dtype = PSRT_F32;
    else
        h.seq |= 1ull << 63;
    return h;
}

psrt_rx_t fx_send(fx_t *fx, uint32_t rank, const psrt_hdr_t *hdr, const void *data)
{
    psrt_msg_t msg = { .hdr = *hdr, .data = data };
    msg.len = data ? hdr->length * sizeof(float) : 0;
    return psrti_shard_msg(fx->shard, fx->peer[rank], &msg);
}

fx_reply_t *fx_range(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step, uint64_t offset,
                     const float *g, uint64_t count)
{
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PUSH, table, step, offset, count, 0);
    cr_assert_eq(fx_send(fx, rank, &h, g), PSRT_RX_DONE);
    return fx_last(fx, rank);
}

fx_reply_t *fx_push(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step, float g, unsigned flags)
{
    float all[64];
    for (size_t i = 0; i < PSRTI_COUNT(all); i++)
        all[i] = g;
    psrt_hdr_t h =
        fx_hdr(fx, rank, PSRTI_T_PUSH, table, step, 0, 4, PSRTI_F_END | PSRTI_F_WHOLE | flags);
    cr_assert_eq(fx_send(fx, rank, &h, all), PSRT_RX_DONE);
    return fx_last(fx, rank);
}

fx_reply_t *fx_clock(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step)
{
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_CLOCK, table, step, 0, 0, 0);
    cr_assert_eq(fx_send(fx, rank, &h, NULL), PSRT_RX_DONE);
    return fx_last(fx, rank);
}

fx_reply_t *fx_pull(fx_t *fx, uint32_t rank, uint32_t table, uint64_t want)
{
    size_t before = fx->replies;
    psrt_hdr_t h = fx_hdr(fx, rank, PSRTI_T_PULL, table, want, 0, 4, 0);
    cr_assert_eq(fx_send(fx, rank, &h, NULL), PSRT_RX_DONE);
    return fx->replies > before ? fx_last(fx, rank) : NULL;
}

fx_reply_t *fx_last(fx_t *fx, uint32_t rank)
{
    for (size_t i = fx->replies; i-- > 0;)
        if (fx->reply[i].rank == rank) return &fx->reply[i];
    return NULL;
}

void fx_forget(fx_t *fx)
{
    for (size_t i = 0; i < fx->replies; i++)
        free(fx->reply[i].copy);
    fx->replies = 0;
}

void fx_done(fx_t *fx, size_t i)
{
    psrt_tx_t *tx = fx->reply[i].tx;
    fx->reply[i].tx = NULL;
    if (tx) tx->done(tx, PSRT_OK);
}

uint64_t fx_version(fx_t *fx, uint32_t table)
{
    const void *values;
    uint64_t version;
    cr_assert_eq(psrti_shard_peek(fx->shard, table, 0, &values, &version), PSRT_OK);
    return version;
}

float fx_value(fx_t *fx, uint32_t table, uint64_t element)
{
    const void *values;
    uint64_t version, slice = element >> PSRTI_SLICE_SHIFT;
    cr_assert_eq(psrti_shard_peek(fx->shard, table, slice, &values, &version), PSRT_OK);
    return ((const float *)values)[element - psrti_slice_first(slice)];
}

psrti_shard_counts_t fx_counts(fx_t *fx)
{
    psrti_shard_counts_t c;
    psrti_shard_counts(fx->shard, &c);
    return c;
}

static void next_view(fx_t *fx)
{
    psrti_view_t *next = psrti_view_clone(fx->view);
    next->number++;
    psrti_view_unref(fx->view);
    fx->view = next;
}

void fx_worker_dies(fx_t *fx, uint32_t rank)
{
    next_view(fx);
    fx->view->workers[rank].alive = 0;
    psrti_shard_view(fx->shard, fx->view, 0, 0, NULL, NULL);
}

void fx_worker_joins(fx_t *fx, uint32_t rank, uint64_t from)
{
    uint32_t table = 1;
    psrti_shard_link_lost(fx->shard, fx->peer[rank]);
    next_view(fx);
    fx->view->workers[rank].alive = 1;
    fx->view->workers[rank].incarnation += 10;
    fx->peer[rank] = psrti_shard_link_up(fx->shard, &fx->link[rank], PSRTI_TASK(PSRTI_WORKER, rank),
                                         fx->view->workers[rank].incarnation);
    fx->seq[rank] = 0;
    psrti_shard_view(fx->shard, fx->view, rank, 1, &table, &from);
}
