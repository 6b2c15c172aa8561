/* SPDX-License-Identifier: Apache-2.0 */
/* What workers and another server send to a server's core, with slices of 16 elements. Input: events, each a
 * byte that says what, a byte that says who, and operands. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "runtime/core/placement.h"
#include "runtime/server/shard.h"
#include "transport/frame.h"

#define WORKERS 3u
#define OWNERS 2u /* the first one is the core */
#define VSHARDS 8u
#define PEERS (WORKERS + 2) /* the other owner: the link that it dialled, the one that we dialled */
#define TABLES 9u
#define TERM 5
#define PENDING 64
#define PAYLOAD_MAX 4096u

enum { FRAME, RAW, BATCH, OWNER, LINK, FULL, DONE, VIEW, PREPARE, SET, SET_END, TIME, EVENTS };
enum { ODD_STEP = 1, ODD_SEQ = 2, ODD_TERM = 4, ODD_TYPE = 8, ODD_VSHARD = 16 };

typedef struct fx {
    psrti_shard_t *shard;
    psrti_view_t *view;
    psrti_peer_t *peer[PEERS]; /* NULL: lost */
    int full[PEERS];           /* its link takes nothing */
    psrt_tx_t *pending[PENDING];
    unsigned npending, allocs;
    psrti_table_spec_t spec[TABLES];
    uint64_t now;
} fx_t;

/* ---- environment ------------------------------------------------------------------------------- */

/* A link is named by its index, plus 1. */
static psrt_status_t on_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data, uint64_t len,
                             psrt_tx_t *tx)
{
    fx_t *fx = arg;
    unsigned who = (unsigned)(uintptr_t)link - 1;
    uint64_t announced;
    FUZZ_ASSERT(who < PEERS);
    fuzz_check_header(hdr);
    FUZZ_ASSERT(psrti_frame_payload(hdr, &announced) == PSRT_OK && announced == len);
    if (fx->full[who]) return PSRT_ERR_AGAIN;
    volatile uint8_t sum = 0;
    for (uint64_t i = 0; i < len; i++)
        sum ^= ((const uint8_t *)data)[i];
    (void)sum;
    if (!tx || fx->npending == PENDING) return PSRT_OK;
    fx->pending[fx->npending++] = tx;
    return PSRT_IN_PROGRESS;
}

static psrt_status_t on_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    (void)arg;
    *data_p = msg->data;
    return PSRT_OK;
}

static void *on_alloc(void *arg, uint64_t bytes)
{
    ((fx_t *)arg)->allocs++;
    return malloc(bytes);
}

static void on_free(void *arg, void *ptr)
{
    ((fx_t *)arg)->allocs--;
    free(ptr);
}

static void on_dial(void *arg, uint32_t owner, const psrti_view_owner_t *address)
{
    const fx_t *fx = arg;
    FUZZ_ASSERT(owner == 1 && address == &fx->view->owners[1]);
}

/* ---- the core ---------------------------------------------------------------------------------- */

static const struct {
    uint64_t elements;
    const char *optimizer, *consistency, *init, *codec, *group;
    psrt_dtype_t dtype;
} tables[TABLES] = {
    { 40, "sgd:lr=0.1", "sync", "zeros", NULL, NULL, PSRT_F32 },
    { 20, "adam", "async", "uniform:low=-1,high=1", NULL, NULL, PSRT_F32 },
    { 20, "momentum", "ssp:1", "zeros", NULL, NULL, PSRT_F64 },
    { 40, "sgd:ema=0.9", "sync:backup=1", "rank0", NULL, NULL, PSRT_F32 },
    { 20, "adagrad", "sync", "constant:value=1", "bf16", NULL, PSRT_F32 },
    { 20, NULL, "sync", "rank0", NULL, NULL, PSRT_I32 },
    { 40, "lamb:clip_norm=1", "sync", "constant:value=1", NULL, "ours", PSRT_F32 },
    { 40, "sgd:clip_norm=1", "sync", "zeros", NULL, "ours", PSRT_F32 },
    { 40, "sgd:clip_norm=1", "sync", "zeros", NULL, "theirs", PSRT_F32 },
};

static void hold(fx_t *fx, unsigned id)
{
    char name[16];
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    snprintf(name, sizeof name, "t%u", id);
    p.ndim = 1, p.shape[0] = tables[id].elements, p.dtype = tables[id].dtype;
    p.optimizer = tables[id].optimizer, p.consistency = tables[id].consistency;
    p.init = tables[id].init, p.codec = tables[id].codec, p.group = tables[id].group;
    FUZZ_ASSERT(psrti_table_spec_make(name, &p, &fx->spec[id]) == PSRT_OK);
    FUZZ_ASSERT(psrti_shard_hold(fx->shard, id + 1, &fx->spec[id]) == PSRT_OK);
}

static psrti_peer_t *new_peer(const fx_t *fx, unsigned who)
{
    void *link = (void *)(uintptr_t)(who + 1);
    if (who >= WORKERS)
        return psrti_shard_owner_up(fx->shard, link, 1, fx->view->owners[1].incarnation,
                                    who > WORKERS);
    return psrti_shard_link_up(fx->shard, link, PSRTI_TASK(PSRTI_WORKER, who),
                               fx->view->workers[who].incarnation);
}

static void connect_peer(fx_t *fx, unsigned who)
{
    if (fx->peer[who]) return;
    fx->full[who] = 0;
    fx->peer[who] = new_peer(fx, who);
    FUZZ_ASSERT(fx->peer[who]);
}

static void open_core(fx_t *fx)
{
    const psrti_kernels_t *kernels;
    psrti_shard_env_t env = { fx, on_send, on_map, on_alloc, on_free, on_dial, 1024, NULL };
    FUZZ_ASSERT(psrti_kernels_select("scalar", &kernels) == PSRT_OK);
    FUZZ_ASSERT(psrti_shard_create(0, kernels, &env, &fx->shard) == PSRT_OK);
    fx->view = psrti_view_new(WORKERS, OWNERS, VSHARDS);
    FUZZ_ASSERT(fx->view);
    fx->view->number = 1;
    for (uint32_t i = 0; i < OWNERS; i++)
        fx->view->owners[i] = (psrti_view_owner_t){ .server = i, .incarnation = 100, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++) /* one in four is the other owner's */
        fx->view->vshards[v] = (psrti_view_vshard_t){ .owner = v % 4 == 3, .term = TERM };
    for (uint32_t r = 0; r < WORKERS; r++)
        fx->view->workers[r] = (psrti_view_worker_t){ .incarnation = r + 1, .alive = 1 };
    psrti_shard_view(fx->shard, fx->view, 0, 0, NULL, NULL);
    for (unsigned id = 0; id < TABLES; id++)
        hold(fx, id);
    for (unsigned who = 0; who < PEERS; who++)
        connect_peer(fx, who);
}

static void lose(fx_t *fx, unsigned who)
{
    psrti_peer_t *peer = fx->peer[who];
    fx->peer[who] = NULL;
    if (peer) psrti_shard_link_lost(fx->shard, peer);
}

static void done(fx_t *fx)
{
    psrt_tx_t *tx = fx->pending[--fx->npending];
    tx->done(tx, PSRT_OK);
}

static void close_core(fx_t *fx)
{
    for (unsigned who = 0; who < PEERS; who++)
        lose(fx, who);
    while (fx->npending)
        done(fx);
    psrti_shard_destroy(fx->shard);
    psrti_view_unref(fx->view);
    FUZZ_ASSERT(fx->allocs == 0);
}

/* ---- messages ---------------------------------------------------------------------------------- */

/* Of all values and versions. */
static uint64_t fingerprint(const fx_t *fx)
{
    uint64_t hash = 0;
    for (unsigned id = 0; id < TABLES; id++) {
        uint64_t bytes =
            psrt_dtype_size(psrti_table_spec_wire(&fx->spec[id], fx->spec[id].value_dtype));
        for (uint64_t i = 0; i < psrti_slice_count(tables[id].elements); i++) {
            const void *values;
            uint64_t version;
            if (psrti_shard_peek(fx->shard, id + 1, i, &values, &version) != PSRT_OK) continue;
            bytes *= psrti_slice_len(tables[id].elements, i);
            hash = psrti_mix64(hash ^ version ^ psrti_hash_bytes(values, bytes));
            bytes /= psrti_slice_len(tables[id].elements, i);
        }
    }
    return hash;
}

/* A message that is refused by itself changes nothing; of a batch what came before it is served. */
static void give(fx_t *fx, unsigned who, psrt_msg_t *msg)
{
    psrti_shard_counts_t before, after;
    connect_peer(fx, who);
    int alone = msg->hdr.type != PSRTI_T_BATCH;
    uint64_t was = alone ? fingerprint(fx) : 0;
    psrti_shard_counts(fx->shard, &before);
    psrt_rx_t rx = psrti_shard_msg(fx->shard, fx->peer[who], msg);
    FUZZ_ASSERT(rx == PSRT_RX_DONE || rx == PSRT_RX_BAD);
    if (rx == PSRT_RX_DONE) {
        fuzz_accept();
        return;
    }
    psrti_shard_counts(fx->shard, &after);
    if (alone) FUZZ_ASSERT(before.applied == after.applied && fingerprint(fx) == was);
    fuzz_refuse();
    lose(fx, who); /* as the driver does */
}

/* The payload that the header announces, cut. */
static void give_frame(fx_t *fx, unsigned who, psrt_hdr_t *hdr, fuzz_in_t *in)
{
    psrt_msg_t msg = { .hdr = *hdr };
    if (psrti_frame_payload(hdr, &msg.len) != PSRT_OK || msg.len > PAYLOAD_MAX) return;
    fuzz_check_header(hdr);
    uint8_t *data = fuzz_bytes(in, msg.len);
    if (msg.len) msg.data = data;
    give(fx, who, &msg);
    free(data);
}

static const uint8_t requests[] = { PSRTI_T_PUSH,  PSRTI_T_PULL,   PSRTI_T_INIT,
                                    PSRTI_T_CLOCK, PSRTI_T_CANCEL, PSRTI_T_BYE };

/* A request that is right but for what is odd. */
static void frame(fx_t *fx, unsigned who, fuzz_in_t *in)
{
    psrt_hdr_t hdr = { .type = requests[fuzz_u8(in) % PSRTI_COUNT(requests)] };
    hdr.flags = fuzz_u16(in) & PSRTI_F_KNOWN & ~PSRTI_F_EXT;
    unsigned id = fuzz_u8(in) % TABLES, slice = fuzz_u8(in);
    const psrti_table_spec_t *spec = &fx->spec[id];
    hdr.table = id + 1;
    hdr.offset = psrti_slice_first(slice) + fuzz_u8(in);
    hdr.length = fuzz_u8(in);
    hdr.step = fuzz_u8(in);
    hdr.seq = fuzz_u8(in);
    hdr.seq_floor = fuzz_u8(in);
    hdr.vshard =
        psrti_slice_vshard(psrti_hash_bytes(spec->name, strlen(spec->name)), slice, VSHARDS);
    hdr.term = fx->view->vshards[hdr.vshard].term;
    if (hdr.type == PSRTI_T_PUSH || hdr.type == PSRTI_T_INIT)
        hdr.dtype = (uint8_t)spec->value_dtype;
    if (hdr.type == PSRTI_T_PUSH) hdr.codec = (uint8_t)spec->codec;
    if (hdr.type == PSRTI_T_PULL || hdr.type == PSRTI_T_CLOCK) hdr.seq |= 1ull << 63;
    unsigned odd = fuzz_u8(in);
    if (odd & ODD_STEP) hdr.step = fuzz_u64(in);
    if (odd & ODD_SEQ) hdr.seq = fuzz_u64(in);
    if (odd & ODD_TERM) hdr.term = fuzz_u32(in);
    if (odd & ODD_TYPE) hdr.dtype = fuzz_u8(in) % 10;
    if (odd & ODD_VSHARD) hdr.vshard = fuzz_u16(in);
    if (hdr.dtype != PSRT_F32) hdr.codec = 0;
    give_frame(fx, who % WORKERS, &hdr, in);
}

static void raw(fx_t *fx, unsigned who, fuzz_in_t *in)
{
    uint8_t *bytes = fuzz_bytes(in, PSRTI_FRAME_BYTES);
    psrt_hdr_t hdr;
    fuzz_mend_header(bytes);
    psrt_status_t rc = psrti_frame_decode(bytes, &hdr, NULL);
    free(bytes);
    if (rc == PSRT_OK) give_frame(fx, who, &hdr, in);
}

static void batch(fx_t *fx, unsigned who, fuzz_in_t *in)
{
    psrt_msg_t msg = { .hdr = { .type = PSRTI_T_BATCH } };
    msg.len = msg.hdr.length = fuzz_u16(in) % (PAYLOAD_MAX + 1);
    uint8_t *data = fuzz_bytes(in, msg.len);
    fuzz_mend_batch(data, msg.len);
    if (msg.len) msg.data = data;
    give(fx, who % WORKERS, &msg);
    free(data);
}

/* Partials from, or a verdict of, the other owner. */
static void owner(fx_t *fx, unsigned who, fuzz_in_t *in)
{
    int dialled = who & 1;
    psrt_hdr_t hdr = { .type = dialled ? PSRTI_T_VERDICT : PSRTI_T_PARTIALS };
    unsigned id = fuzz_u8(in) % TABLES;
    hdr.table = id + 1;
    hdr.step = fuzz_u8(in);
    hdr.seq = fuzz_u8(in) % 4;
    hdr.length = fuzz_u16(in);
    hdr.vshard = psrti_table_spec_group_vshard(&fx->spec[id], VSHARDS);
    hdr.term = fx->view->vshards[hdr.vshard].term;
    give_frame(fx, WORKERS + (unsigned)dialled, &hdr, in);
}

/* ---- other events ------------------------------------------------------------------------------ */

static void view(fx_t *fx, unsigned who, fuzz_in_t *in)
{
    psrti_view_t *next = psrti_view_clone(fx->view);
    uint32_t table = 1 + fuzz_u8(in) % TABLES;
    uint64_t from = fuzz_u8(in);
    FUZZ_ASSERT(next);
    next->number++;
    psrti_view_worker_t *w = &next->workers[who % WORKERS];
    int joins = who < WORKERS && !w->alive;
    if (who >= WORKERS) { /* the other owner's next life */
        next->owners[1].incarnation++;
        for (uint32_t v = 3; v < VSHARDS; v += 4)
            next->vshards[v].term++;
    } else if (joins) {
        lose(fx, who);
        w->alive = 1, w->incarnation += WORKERS;
    } else {
        w->alive = 0;
    }
    psrti_view_unref(fx->view);
    fx->view = next;
    psrti_shard_view(fx->shard, next, joins ? who : 0, joins ? 1 : 0, joins ? &table : NULL,
                     joins ? &from : NULL);
}

static void on_report(void *arg, uint32_t table, uint64_t open_step)
{
    (void)open_step;
    FUZZ_ASSERT(arg && table >= 1 && table <= TABLES);
}

static void set(fx_t *fx, unsigned number, fuzz_in_t *in)
{
    static const char *const keys[] = { "lr", "momentum", "", "clip_norm" };
    uint32_t table = fuzz_u8(in) % (TABLES + 2);
    const char *key = keys[fuzz_u8(in) % PSRTI_COUNT(keys)];
    uint64_t raw_value = fuzz_u64(in), from = fuzz_u8(in), step;
    double value;
    memcpy(&value, &raw_value, sizeof value);
    (void)psrti_shard_set_prepare(fx->shard, number, table, key, value,
                                  from == 255 ? PSRT_STEP_NEXT : from, &step);
}

static void event(fx_t *fx, fuzz_in_t *in)
{
    unsigned what = fuzz_u8(in) % EVENTS, who = fuzz_u8(in);
    switch (what) {
    case FRAME: frame(fx, who, in); break;
    case RAW: raw(fx, who % PEERS, in); break;
    case BATCH: batch(fx, who, in); break;
    case OWNER: owner(fx, who, in); break;
    case LINK: lose(fx, who % PEERS); break;
    case FULL:
        fx->full[who % PEERS] ^= 1;
        if (fx->peer[who % PEERS] && !fx->full[who % PEERS])
            psrti_shard_link_writable(fx->shard, fx->peer[who % PEERS]);
        break;
    case DONE:
        if (fx->npending) done(fx);
        break;
    case VIEW: view(fx, who % (WORKERS + 1), in); break;
    case PREPARE: psrti_shard_prepare(fx->shard, on_report, fx); break;
    case SET: set(fx, who, in); break;
    case SET_END: psrti_shard_set_end(fx->shard, who, fuzz_u8(in) & 1, fuzz_u8(in)); break;
    default:
        fx->now += who * PSRTI_NS_PER_S / 64;
        (void)psrti_shard_progress(fx->shard, fx->now);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    fx_t fx = { .now = 0 };
    open_core(&fx);
    while (in.left)
        event(&fx, &in);
    close_core(&fx);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void put_event(fuzz_out_t *out, unsigned what, unsigned who)
{
    fuzz_put8(out, what);
    fuzz_put8(out, who);
}

/* The whole slice, or as much as `count` says. */
static void put_frame(fuzz_out_t *out, unsigned who, unsigned type, unsigned id, unsigned slice,
                      unsigned count, unsigned step, unsigned seq)
{
    float values[16];
    unsigned flags = type == 0 ? PSRTI_F_END | (count == 16 ? PSRTI_F_WHOLE : 0) : 0;
    for (unsigned i = 0; i < 16; i++)
        values[i] = 0.5f + (float)(who + i);
    put_event(out, FRAME, who);
    fuzz_put8(out, type);
    fuzz_put16(out, flags);
    fuzz_put8(out, id);
    fuzz_put8(out, slice);
    fuzz_put8(out, 0);
    fuzz_put8(out, count);
    fuzz_put8(out, step);
    fuzz_put8(out, seq);
    fuzz_put8(out, 0);
    fuzz_put8(out, 0);
    if (type == 0 || type == 2)
        fuzz_put(out, values, count * (tables[id].codec ? 2 : psrt_dtype_size(tables[id].dtype)));
}

/* The slice of a table that lies here. */
static unsigned slice_here(unsigned id)
{
    char name[16];
    int n = snprintf(name, sizeof name, "t%u", id);
    unsigned slice = 0;
    while (psrti_slice_vshard(psrti_hash_bytes(name, (size_t)n), slice, VSHARDS) % 4 == 3)
        slice++;
    return slice;
}

static void seed_steps(void)
{
    fuzz_out_t out = { .size = 0 };
    unsigned slice = slice_here(0);
    for (unsigned step = 0; step < 2; step++)
        for (unsigned who = 0; who < WORKERS; who++)
            put_frame(&out, who, 0, 0, slice, 16, step, step + 1);
    put_frame(&out, 0, 1, 0, slice, 16, 3, 9); /* waits */
    put_event(&out, TIME, 64);
    fuzz_seed("steps", out.data, out.size);
}

static void seed_kinds(void)
{
    fuzz_out_t out = { .size = 0 };
    for (unsigned id = 0; id < TABLES; id++) {
        unsigned slice = slice_here(id), count = tables[id].elements > 16 * (slice + 1) ? 16 : 4;
        if (tables[id].init[0] == 'r') put_frame(&out, 0, 2, id, slice, count, 0, 1);
        put_frame(&out, 1, 0, id, slice, count, 0, 1);
        put_frame(&out, 1, 1, id, slice, count, 0, 2);
        put_frame(&out, 2, 3, id, slice, 0, 0, 3);
        put_frame(&out, 1, 4, id, slice, count, 0, 1);
    }
    fuzz_seed("kinds", out.data, out.size);
}

static void seed_views(void)
{
    fuzz_out_t out = { .size = 0 };
    unsigned slice = slice_here(0);
    put_frame(&out, 0, 0, 0, slice, 16, 0, 1);
    put_event(&out, VIEW, 2);
    fuzz_put16(&out, 0);
    put_frame(&out, 1, 0, 0, slice, 16, 0, 1);
    put_event(&out, PREPARE, 0);
    put_frame(&out, 0, 0, 0, slice, 16, 1, 2);
    put_event(&out, VIEW, 2);
    fuzz_put16(&out, 2 << 8);
    put_event(&out, FULL, 0);
    put_frame(&out, 1, 0, 0, slice, 16, 1, 2);
    put_event(&out, FULL, 0);
    put_event(&out, DONE, 0);
    put_event(&out, LINK, 1);
    fuzz_seed("views", out.data, out.size);
}

static void seed_sets(void)
{
    fuzz_out_t out = { .size = 0 };
    put_event(&out, SET, 7);
    fuzz_put8(&out, 1);
    fuzz_put8(&out, 0);
    uint8_t half[8];
    psrti_put_double(half, 0.5);
    fuzz_put(&out, half, sizeof half);
    fuzz_put8(&out, 255);
    put_event(&out, SET_END, 7);
    fuzz_put16(&out, 1 | 1 << 8);
    for (unsigned who = 0; who < WORKERS; who++)
        put_frame(&out, who, 0, 0, slice_here(0), 16, 0, 1);
    fuzz_seed("sets", out.data, out.size);
}

/* Of three slices a table, from `id` on. */
static void put_measures(fuzz_out_t *out, int verdict, unsigned id, unsigned round,
                         unsigned entries)
{
    uint8_t entry[32] = { 0 };
    put_event(out, OWNER, (unsigned)verdict);
    fuzz_put8(out, id);
    fuzz_put8(out, 0);
    fuzz_put8(out, round);
    fuzz_put16(out, 32 * entries + (verdict ? 16 : 0));
    psrti_put_double(entry, 1.0);
    if (verdict) fuzz_put(out, entry, 16);
    for (unsigned i = 0; i < entries; i++) {
        memset(entry, 0, sizeof entry);
        psrti_put32(entry, id + 1 + (verdict ? i : i / 3));
        psrti_put64(entry + 8, i % 3);
        psrti_put_double(entry + 16, 4.0);
        psrti_put_double(entry + 24, 9.0);
        fuzz_put(out, entry, sizeof entry);
    }
}

static void put_group_steps(fuzz_out_t *out, unsigned first, unsigned end)
{
    for (unsigned id = first; id < end; id++)
        for (unsigned slice = 0; slice < 3; slice++)
            for (unsigned who = 0; who < WORKERS; who++)
                put_frame(out, who, 0, id, slice, slice < 2 ? 16 : 8, 0, slice + 1);
}

static void seed_groups(void)
{
    fuzz_out_t out = { .size = 0 };
    put_group_steps(&out, 6, 8);
    for (unsigned round = 1; round <= 2; round++) {
        put_measures(&out, 0, 6, round, 6);
        put_event(&out, TIME, 40);
    }
    fuzz_seed("group-ours", out.data, out.size);
    out.size = 0;
    put_group_steps(&out, 8, 9);
    put_event(&out, TIME, 40);
    put_measures(&out, 1, 8, 1, 1);
    put_event(&out, TIME, 40);
    fuzz_seed("group-theirs", out.data, out.size);
}

static void seed_batch(void)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_out_t inner = { .size = 0 };
    for (unsigned i = 0; i < 3; i++) {
        unsigned slice = slice_here(1);
        uint8_t bytes[PSRTI_FRAME_BYTES];
        psrt_hdr_t hdr = { .type = i < 2 ? PSRTI_T_PUSH : PSRTI_T_PULL,
                           .table = 2,
                           .term = TERM,
                           .length = 2,
                           .offset = 16 * slice,
                           .seq = i + 1,
                           .dtype = i < 2 ? PSRT_F32 : 0 };
        hdr.vshard = psrti_slice_vshard(psrti_hash_bytes("t1", 2), slice, VSHARDS);
        psrti_frame_encode(&hdr, bytes);
        fuzz_put(&inner, bytes, sizeof bytes);
        if (i < 2) fuzz_put64(&inner, 0x3f8000003f800000);
    }
    put_event(&out, BATCH, 0);
    fuzz_put16(&out, (unsigned)inner.size);
    fuzz_put(&out, inner.data, inner.size);
    fuzz_seed("batch", out.data, out.size);
}

void fuzz_seeds(void)
{
    seed_steps();
    seed_kinds();
    seed_views();
    seed_sets();
    seed_groups();
    seed_batch();
}
