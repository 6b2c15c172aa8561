/* SPDX-License-Identifier: Apache-2.0 */
/* What servers answer to a worker's core, with slices of 16 elements, while its user submits and cancels.
 * Input: events, each a byte that says what, a byte that says which, and operands. An operation's memory is
 * freed when it ends, so that whoever touches it later is seen. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "runtime/core/batch.h"
#include "runtime/core/placement.h"
#include "runtime/worker/client.h"

#define OWNERS 2u
#define VSHARDS 8u
#define TABLES 7u
#define OPS 32
#define SENT 256
#define PAYLOAD_MAX 4096u
#define RETRY_NS PSRTI_NS_PER_S
#define CANCEL_NS (3 * PSRTI_NS_PER_S)

enum { SUBMIT, ANSWER, RAW, BATCH, LINK, FULL, DONE, VIEW, CANCEL, TIME, FAIL, EVENTS };
enum { PUSH = 1, PULL = 2, MORE = 4, INIT = 8, DEADLINE = 16 };
enum { ODD_VERSION = 1, ODD_SEQ = 2, ODD_TERM = 4, ODD_TYPE = 8, ODD_PLACE = 16 };

typedef struct op {
    psrti_cop_t cop; /* first */
    int used;
    void *grad, *value;
} op_t;

typedef struct sent {
    uint32_t owner;
    psrt_hdr_t hdr;
    const uint8_t *data;
    uint64_t len;
    psrt_tx_t *tx; /* NULL: done */
} sent_t;

typedef struct fx {
    psrti_client_t *client;
    psrti_view_t *view;
    psrti_ctable_t *table[TABLES];
    int up[OWNERS], full[OWNERS];
    sent_t sent[SENT]; /* the last ones, without what is in batches */
    unsigned sends;
    op_t op[OPS];
    uint64_t now;
} fx_t;

/* ---- environment ------------------------------------------------------------------------------- */

static void read_all(const uint8_t *data, uint64_t len)
{
    volatile uint8_t sum = 0;
    for (uint64_t i = 0; i < len; i++)
        sum ^= data[i];
    (void)sum;
}

/* The payload is still the client's when the transport reads it for the last time. */
static void done(sent_t *s, psrt_status_t status)
{
    psrt_tx_t *tx = s->tx;
    if (!tx) return;
    s->tx = NULL;
    read_all(s->data, s->len);
    tx->done(tx, status);
}

static psrt_status_t on_send(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                             uint64_t len, psrt_tx_t *tx)
{
    fx_t *fx = arg;
    uint64_t announced;
    FUZZ_ASSERT(owner < OWNERS);
    fuzz_check_header(hdr);
    FUZZ_ASSERT(psrti_frame_payload(hdr, &announced) == PSRT_OK && announced == len);
    if (!fx->up[owner] || fx->full[owner]) return PSRT_ERR_AGAIN;
    sent_t *s = &fx->sent[fx->sends++ % SENT];
    done(s, PSRT_OK);
    read_all(data, len);
    *s = (sent_t){ .owner = owner, .hdr = *hdr, .data = data, .len = len, .tx = tx };
    return tx ? PSRT_IN_PROGRESS : PSRT_OK;
}

static psrt_status_t on_map(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p)
{
    (void)arg, (void)owner;
    *data_p = msg->data;
    return PSRT_OK;
}

static psrt_status_t on_verify(void *arg, uint32_t owner, const psrt_msg_t *msg)
{
    (void)arg, (void)owner;
    return msg->flags ? PSRT_ERR_STALE : PSRT_OK;
}

static void on_used(void *arg, uint32_t table)
{
    (void)arg;
    FUZZ_ASSERT(table >= 1 && table <= TABLES);
}

/* As a net loses a link: nothing is in flight afterwards. */
static void lose(fx_t *fx, uint32_t owner)
{
    if (!fx->up[owner]) return;
    fx->up[owner] = 0;
    for (unsigned i = 0; i < SENT; i++)
        if (fx->sent[i].owner == owner) done(&fx->sent[i], PSRT_ERR_PEER_LOST);
    psrti_client_link_lost(fx->client, owner);
}

static void on_fence(void *arg, uint32_t owner) { lose(arg, owner); }

/* ---- the core ---------------------------------------------------------------------------------- */

static const struct {
    uint64_t elements;
    const char *optimizer, *consistency, *init, *codec;
    psrt_dtype_t dtype;
} tables[TABLES] = {
    { 40, "sgd", "sync", "zeros", NULL, PSRT_F32 },
    { 20, "adam", "async", "zeros", NULL, PSRT_F32 },
    { 20, "sgd", "ssp:1", "zeros", NULL, PSRT_F64 },
    { 40, "sgd:ema=0.9", "sync:backup=1", "rank0", NULL, PSRT_F32 },
    { 40, "sgd", "sync", "zeros", "f16", PSRT_F32 },
    { 20, NULL, "sync", "rank0", NULL, PSRT_I32 },
    { 40, "sgd:clip_norm=1", "sync", "zeros", NULL, PSRT_BF16 },
};

static void declare(fx_t *fx, unsigned id)
{
    char name[16];
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    snprintf(name, sizeof name, "t%u", id);
    p.ndim = 1, p.shape[0] = tables[id].elements, p.dtype = tables[id].dtype;
    p.optimizer = tables[id].optimizer, p.consistency = tables[id].consistency;
    p.init = tables[id].init, p.codec = tables[id].codec;
    FUZZ_ASSERT(psrti_table_spec_make(name, &p, &spec) == PSRT_OK);
    FUZZ_ASSERT(psrti_client_table(fx->client, id + 1, &spec, 0, &fx->table[id]) == PSRT_OK);
}

static void link_up(fx_t *fx, uint32_t owner)
{
    if (fx->up[owner] || !fx->view->owners[owner].alive) return;
    fx->up[owner] = 1;
    fx->full[owner] = 0;
    psrti_client_link_up(fx->client, owner);
}

static void open_core(fx_t *fx)
{
    const psrti_kernels_t *kernels;
    psrti_client_env_t env = { fx, on_send, on_map, on_verify, on_used, on_fence, 1024 };
    FUZZ_ASSERT(psrti_kernels_select("scalar", &kernels) == PSRT_OK);
    FUZZ_ASSERT(psrti_client_create(0, RETRY_NS, CANCEL_NS, kernels, &env, &fx->client) == PSRT_OK);
    fx->view = psrti_view_new(2, OWNERS, VSHARDS);
    FUZZ_ASSERT(fx->view);
    fx->view->number = 1;
    for (uint32_t i = 0; i < 2; i++)
        fx->view->workers[i] = (psrti_view_worker_t){ .incarnation = 1 + i, .alive = 1 };
    for (uint32_t i = 0; i < OWNERS; i++)
        fx->view->owners[i] = (psrti_view_owner_t){ .server = i, .incarnation = 7, .alive = 1 };
    for (uint32_t v = 0; v < VSHARDS; v++)
        fx->view->vshards[v] = (psrti_view_vshard_t){ .owner = v % OWNERS, .term = 1 };
    psrti_client_view(fx->client, fx->view);
    for (uint32_t i = 0; i < OWNERS; i++)
        link_up(fx, i);
    for (unsigned id = 0; id < TABLES; id++)
        declare(fx, id);
}

/* Takes what ended, each operation once. */
static void collect(fx_t *fx)
{
    (void)psrti_client_progress(fx->client, fx->now);
    for (psrti_cop_t *cop; (cop = psrti_client_completed(fx->client));) {
        op_t *op = (op_t *)cop;
        FUZZ_ASSERT(op >= fx->op && op < fx->op + OPS && op->used && cop->ended);
        free(cop->text);
        free(op->grad);
        free(op->value);
        memset(op, 0, sizeof *op);
    }
}

/* No operation outlives its links and its client's end. */
static void close_core(fx_t *fx)
{
    for (uint32_t i = 0; i < OWNERS; i++)
        lose(fx, i);
    psrti_client_fail(fx->client, PSRT_ERR_CLOSED, "closed");
    collect(fx);
    for (unsigned i = 0; i < OPS; i++)
        FUZZ_ASSERT(!fx->op[i].used);
    psrti_client_destroy(fx->client);
    psrti_view_unref(fx->view);
}

/* ---- the user ---------------------------------------------------------------------------------- */

static void *memory(uint64_t bytes)
{
    uint8_t *at = malloc(bytes);
    FUZZ_ASSERT(at);
    for (uint64_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(i * 7 % 63);
    return at;
}

static void submit(fx_t *fx, unsigned which, fuzz_in_t *in)
{
    op_t *op = &fx->op[which % OPS];
    unsigned id = fuzz_u8(in) % TABLES, kind = fuzz_u8(in), first = fuzz_u8(in),
             count = fuzz_u8(in);
    const psrti_table_spec_t *spec = psrti_ctable_spec(fx->table[id]);
    uint64_t bytes = psrt_dtype_size(spec->value_dtype);
    psrti_transfer_t x = { .table = fx->table[id], .step = PSRT_STEP_NEXT, .priority = which };
    if (op->used) return;
    x.offset = first % spec->elements;
    x.count = count ? 1 + (count - 1) % (spec->elements - x.offset) : spec->elements - x.offset;
    x.init = kind & INIT && tables[id].init[0] == 'r';
    if (kind & PUSH || x.init) x.grad = op->grad = memory(x.count * bytes);
    if (!x.init && (kind & PULL || !x.grad)) x.value = op->value = memory(x.count * bytes);
    x.more = (kind & MORE) != 0;
    op->used = 1;
    if (kind & DEADLINE) op->cop.deadline = fx->now + RETRY_NS;
    psrti_client_submit(fx->client, &op->cop, &x, 1);
}

static void cancel(fx_t *fx, unsigned which)
{
    char text[256];
    op_t *op = &fx->op[which % OPS];
    if (!op->used || op->cop.ended) return;
    psrti_client_describe(fx->client, &op->cop, text, sizeof text);
    psrti_client_cancel(fx->client, &op->cop, PSRT_ERR_CANCELED);
}

/* ---- servers ----------------------------------------------------------------------------------- */

static void give(fx_t *fx, uint32_t owner, psrt_msg_t *msg)
{
    if (!fx->up[owner]) return;
    psrt_rx_t rx = psrti_client_msg(fx->client, owner, msg);
    FUZZ_ASSERT(rx == PSRT_RX_DONE || rx == PSRT_RX_BAD);
    if (rx == PSRT_RX_DONE) {
        fuzz_accept();
        return;
    }
    fuzz_refuse();
    lose(fx, owner);
}

static void give_frame(fx_t *fx, uint32_t owner, const psrt_hdr_t *hdr, int stale, fuzz_in_t *in)
{
    psrt_msg_t msg = { .hdr = *hdr, .flags = (uint32_t)stale };
    if (psrti_frame_payload(hdr, &msg.len) != PSRT_OK || msg.len > PAYLOAD_MAX) return;
    fuzz_check_header(hdr);
    uint8_t *data = fuzz_bytes(in, msg.len);
    if (msg.len) msg.data = data;
    give(fx, owner, &msg);
    free(data);
}

/* The request that was sent `back` sends ago; of a batch, the message in it with that number. */
static int request(const fx_t *fx, unsigned back, unsigned inner, psrt_hdr_t *hdr, uint32_t *owner)
{
    const uint32_t types = 1u << PSRTI_T_PUSH | 1u << PSRTI_T_PULL | 1u << PSRTI_T_INIT |
                           1u << PSRTI_T_CLOCK | 1u << PSRTI_T_CANCEL;
    unsigned have = PSRTI_MIN(fx->sends, SENT);
    if (!have) return 0;
    const sent_t *s = &fx->sent[(fx->sends - 1 - back % have) % SENT];
    *hdr = s->hdr;
    *owner = s->owner;
    if (hdr->type != PSRTI_T_BATCH) return 1;
    if (!s->tx) return 0; /* its bytes are the client's again */
    uint64_t pos = 0;
    psrt_msg_t msg = { .len = 0 };
    for (unsigned i = 0; i <= inner % 8; i++)
        if (psrti_batch_next(s->data, s->len, types, &pos, &msg) != PSRT_OK)
            return i > 0;
        else
            *hdr = msg.hdr;
    return 1;
}

/* An answer that is right but for what is odd. */
static void answer(fx_t *fx, unsigned back, fuzz_in_t *in)
{
    static const uint8_t types[] = { PSRTI_T_ACK, PSRTI_T_VALUE, PSRTI_T_MOVED };
    psrt_hdr_t req, hdr = { .type = types[fuzz_u8(in) % PSRTI_COUNT(types)] };
    uint32_t owner;
    unsigned inner = fuzz_u8(in), stale = fuzz_u8(in) == 1;
    hdr.flags = fuzz_u16(in) & PSRTI_F_KNOWN & ~PSRTI_F_EXT;
    hdr.status = fuzz_u8(in);
    hdr.step = fuzz_u8(in);
    unsigned odd = fuzz_u8(in);
    if (!request(fx, back, inner, &req, &owner)) return;
    hdr.term = req.term, hdr.seq = req.seq, hdr.table = req.table;
    hdr.vshard = req.vshard, hdr.offset = req.offset;
    if (hdr.type == PSRTI_T_VALUE && req.table >= 1 && req.table <= TABLES) {
        const psrti_table_spec_t *spec = psrti_ctable_spec(fx->table[req.table - 1]);
        hdr.length = req.length;
        hdr.dtype = (uint8_t)spec->value_dtype;
        hdr.codec = (uint8_t)spec->codec;
    }
    if (odd & ODD_VERSION) hdr.step = fuzz_u64(in);
    if (odd & ODD_SEQ) hdr.seq = fuzz_u8(in) % 2 ? fuzz_u64(in) : 0;
    if (odd & ODD_TERM) hdr.term = fuzz_u32(in);
    if (odd & ODD_TYPE) hdr.dtype = fuzz_u8(in) % 7, hdr.codec = 0;
    if (odd & ODD_PLACE) hdr.offset = fuzz_u64(in), hdr.length = fuzz_u8(in);
    give_frame(fx, owner, &hdr, (int)stale, in);
}

static void raw(fx_t *fx, unsigned owner, fuzz_in_t *in)
{
    uint8_t *bytes = fuzz_bytes(in, PSRTI_FRAME_BYTES);
    psrt_hdr_t hdr;
    fuzz_mend_header(bytes);
    psrt_status_t rc = psrti_frame_decode(bytes, &hdr, NULL);
    free(bytes);
    if (rc == PSRT_OK) give_frame(fx, owner % OWNERS, &hdr, 0, in);
}

static void batch(fx_t *fx, unsigned owner, fuzz_in_t *in)
{
    psrt_msg_t msg = { .hdr = { .type = PSRTI_T_BATCH } };
    msg.len = msg.hdr.length = fuzz_u16(in) % (PAYLOAD_MAX + 1);
    uint8_t *data = fuzz_bytes(in, msg.len);
    fuzz_mend_batch(data, msg.len);
    if (msg.len) msg.data = data;
    give(fx, owner % OWNERS, &msg);
    free(data);
}

/* An owner dies, or its next life begins. */
static void view(fx_t *fx, uint32_t owner)
{
    psrti_view_t *next = psrti_view_clone(fx->view);
    FUZZ_ASSERT(next);
    next->number++;
    next->owners[owner].alive = !next->owners[owner].alive;
    next->owners[owner].incarnation += (uint64_t)next->owners[owner].alive;
    for (uint32_t v = owner; v < VSHARDS && next->owners[owner].alive; v += OWNERS)
        next->vshards[v].term++;
    psrti_view_unref(fx->view);
    fx->view = next;
    psrti_client_view(fx->client, next);
    if (!next->owners[owner].alive) lose(fx, owner);
}

/* ---- the target -------------------------------------------------------------------------------- */

static void event(fx_t *fx, fuzz_in_t *in)
{
    unsigned what = fuzz_u8(in) % EVENTS, which = fuzz_u8(in), owner = which % OWNERS;
    switch (what) {
    case SUBMIT: submit(fx, which, in); break;
    case ANSWER: answer(fx, which, in); break;
    case RAW: raw(fx, which, in); break;
    case BATCH: batch(fx, which, in); break;
    case LINK: fx->up[owner] ? lose(fx, owner) : link_up(fx, owner); break;
    case FULL:
        fx->full[owner] ^= 1;
        if (fx->up[owner] && !fx->full[owner]) psrti_client_link_writable(fx->client, owner);
        break;
    case DONE: done(&fx->sent[which % SENT], PSRT_OK); break;
    case VIEW: view(fx, owner); break;
    case CANCEL: cancel(fx, which); break;
    case FAIL:
        psrti_client_table_fail(fx->client, which % (TABLES + 2), PSRT_ERR_SHARD_LOST, "lost");
        break;
    default: fx->now += which * PSRTI_NS_PER_S / 16; break;
    }
    collect(fx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    fx_t *fx = calloc(1, sizeof *fx);
    FUZZ_ASSERT(fx);
    open_core(fx);
    while (in.left)
        event(fx, &in);
    close_core(fx);
    free(fx);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void put_event(fuzz_out_t *out, unsigned what, unsigned which)
{
    fuzz_put8(out, what);
    fuzz_put8(out, which);
}

/* Of the whole table. */
static void put_submit(fuzz_out_t *out, unsigned which, unsigned id, unsigned kind)
{
    put_event(out, SUBMIT, which);
    fuzz_put8(out, id);
    fuzz_put8(out, kind);
    fuzz_put16(out, 0);
}

/* To the message `inner` of the batch `back` sends ago, or to that send itself. */
static void put_answer(fuzz_out_t *out, unsigned back, unsigned inner, unsigned type,
                       unsigned flags, psrt_status_t status, unsigned version)
{
    put_event(out, ANSWER, back);
    fuzz_put8(out, type);
    fuzz_put8(out, inner);
    fuzz_put8(out, 0);
    fuzz_put16(out, flags);
    fuzz_put8(out, (unsigned)-status);
    fuzz_put8(out, version);
    fuzz_put8(out, 0);
}

static void seed_pushes(void)
{
    fuzz_out_t out = { .size = 0 };
    put_submit(&out, 0, 0, PUSH | PULL);
    put_submit(&out, 1, 1, PUSH);
    for (unsigned back = 0; back < 3; back++)
        for (unsigned inner = 0; inner < 2; inner++)
            put_answer(&out, back, inner, 0, PSRTI_F_APPLIED, PSRT_OK, 1);
    put_event(&out, DONE, 0);
    put_event(&out, TIME, 32);
    put_submit(&out, 2, 2, PUSH);
    put_answer(&out, 0, 0, 0, 0, PSRT_ERR_AGAIN, 0);
    put_answer(&out, 0, 0, 0, PSRTI_F_LATE, PSRT_OK, 3);
    fuzz_seed("pushes", out.data, out.size);
}

/* Four elements of every table. */
static void seed_pulls(void)
{
    static const uint8_t values[32];
    fuzz_out_t out = { .size = 0 };
    for (unsigned id = 0; id < TABLES; id++) {
        put_event(&out, SUBMIT, id);
        fuzz_put8(&out, id);
        fuzz_put8(&out, PULL);
        fuzz_put8(&out, 0);
        fuzz_put8(&out, 4);
        put_answer(&out, 0, 0, 1, 0, PSRT_OK, 1);
        fuzz_put(&out, values, 4 * (tables[id].codec ? 2 : psrt_dtype_size(tables[id].dtype)));
    }
    fuzz_seed("pulls", out.data, out.size);
}

static void seed_ends(void)
{
    fuzz_out_t out = { .size = 0 };
    put_submit(&out, 0, 0, PUSH | PULL);
    put_event(&out, CANCEL, 0);
    put_answer(&out, 0, 0, 0, 0, PSRT_ERR_CANCELED, 0);
    put_submit(&out, 1, 1, PUSH | DEADLINE);
    put_event(&out, TIME, 40);
    put_event(&out, TIME, 80); /* fenced */
    put_event(&out, LINK, 0);
    put_submit(&out, 2, 3, INIT);
    put_answer(&out, 0, 0, 0, PSRTI_F_APPLIED, PSRT_OK, 1);
    put_submit(&out, 3, 4, PUSH | MORE);
    put_event(&out, VIEW, 1);
    put_event(&out, VIEW, 1);
    put_event(&out, FAIL, 4);
    fuzz_seed("ends", out.data, out.size);
}

static void seed_links(void)
{
    fuzz_out_t out = { .size = 0 };
    put_event(&out, FULL, 0);
    put_submit(&out, 0, 0, PUSH | PULL);
    put_submit(&out, 1, 6, PUSH);
    put_event(&out, FULL, 0);
    put_event(&out, LINK, 1);
    put_event(&out, LINK, 1);
    put_answer(&out, 0, 0, 2, 0, PSRT_OK, 1);
    put_event(&out, TIME, 64);
    put_answer(&out, 0, 0, 0, PSRTI_F_APPLIED, PSRT_OK, 1);
    fuzz_seed("links", out.data, out.size);
}

static void seed_batch(void)
{
    fuzz_out_t out = { .size = 0 };
    put_submit(&out, 0, 1, PUSH);
    put_event(&out, BATCH, 0);
    fuzz_put16(&out, 2 * PSRTI_FRAME_BYTES);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t bytes[PSRTI_FRAME_BYTES];
        psrt_hdr_t hdr = { .type = PSRTI_T_ACK,
                           .flags = PSRTI_F_APPLIED,
                           .term = 1,
                           .seq = 1 + i,
                           .step = 1,
                           .table = 2,
                           .vshard = 6 };
        psrti_frame_encode(&hdr, bytes);
        fuzz_put(&out, bytes, sizeof bytes);
    }
    fuzz_seed("batch", out.data, out.size);
}

void fuzz_seeds(void)
{
    seed_pushes();
    seed_pulls();
    seed_ends();
    seed_links();
    seed_batch();
}
