/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/fabric.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Fails its test rather than hang. */
#define STEPS_MAX 20000000ull

typedef struct end {
    fabric_t *fb;
    uint32_t rank;
} end_t;

static end_t ends[FB_RANKS]; /* arguments of the env tables: one fabric at a time */

uint32_t fb_random(fabric_t *fb, uint32_t below)
{
    fb->random = psrti_mix64(fb->random);
    return below ? (uint32_t)(fb->random >> 33) % below : 0;
}

/* ---- messages ----------------------------------------------------------------------------------- */

/* The payload is free: the sender hears of it later. */
static void msg_over(fabric_t *fb, fb_msg_t *m)
{
    psrti_list_remove(&m->node);
    if (m->tx) {
        psrti_list_push(&fb->rank[m->from].done, &m->node);
        return;
    }
    free(m->copy);
    free(m);
}

static void finish_tx(fb_msg_t *m, psrt_status_t status)
{
    psrt_tx_t *tx = m->tx;
    psrti_list_remove(&m->node);
    free(m->copy);
    free(m);
    if (tx) tx->done(tx, status);
}

static psrt_status_t env_send(void *arg, uint32_t to, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    end_t *e = arg;
    fabric_t *fb = e->fb;
    fb_lane_t *lane = &fb->lane[e->rank][to];
    uint64_t announced;
    cr_assert(psrti_frame_payload(hdr, &announced) == PSRT_OK && announced == len);
    cr_assert_eq(hdr->type, PSRTI_T_COLL);
    cr_assert(tx || len <= 2048, "%llu bytes without a tx", (unsigned long long)len);
    if (!lane->is_up) return PSRT_ERR_PEER_LOST;
    if (fb->most && len > fb->most)
        return psrti_fail(PSRT_ERR_LIMIT, "payload of %llu bytes", (unsigned long long)len);
    if (lane->count >= fb->window && fb_random(fb, 2)) {
        lane->said_again = 1;
        return PSRT_ERR_AGAIN;
    }
    fb_msg_t *m = calloc(1, sizeof *m);
    *m = (fb_msg_t){ .from = e->rank, .to = to, .hdr = *hdr, .data = data, .len = len };
    if (len > fb->by_ref && tx) {
        m->tx = tx;
    } else if (len) {
        m->copy = malloc(len);
        memcpy(m->copy, data, len);
        m->data = m->copy;
    }
    psrti_list_push(&lane->queue, &m->node);
    lane->count++;
    fb->sent++;
    return m->tx ? PSRT_IN_PROGRESS : PSRT_OK;
}

static psrt_status_t env_map(void *arg, uint32_t rank, psrt_msg_t *msg, const void **data_p)
{
    (void)arg, (void)rank;
    fb_msg_t *m = msg->impl;
    *data_p = m->data;
    return m->is_stale ? PSRT_ERR_STALE : PSRT_OK;
}

static psrt_status_t env_verify(void *arg, uint32_t rank, const psrt_msg_t *msg)
{
    (void)arg, (void)rank;
    return ((fb_msg_t *)msg->impl)->is_stale ? PSRT_ERR_STALE : PSRT_OK;
}

static void env_release(void *arg, uint32_t rank, psrt_msg_t *msg)
{
    (void)rank;
    msg_over(((end_t *)arg)->fb, msg->impl);
}

static void env_connect(void *arg, uint32_t rank) { (void)arg, (void)rank; }

static void *env_alloc(void *arg, uint64_t bytes)
{
    ((end_t *)arg)->fb->scratch++;
    return malloc(bytes);
}

static void env_free(void *arg, void *ptr)
{
    ((end_t *)arg)->fb->scratch--;
    free(ptr);
}

static void env_note(void *arg, psrti_comm_t *comm, uint32_t member, const void *data, uint64_t len)
{
    (void)comm, (void)member, (void)data;
    ((end_t *)arg)->fb->notes++;
    ((end_t *)arg)->fb->note_bytes += len;
}

/* ---- links -------------------------------------------------------------------------------------- */

/* One direction: what is on its way is lost, pending sends are given up. */
static void close_lane(fabric_t *fb, uint32_t from, uint32_t to)
{
    fb_lane_t *lane = &fb->lane[from][to];
    psrti_list_t *lists[] = { &lane->queue, &fb->rank[from].done, &fb->held[to] };
    lane->is_up = lane->said_again = 0;
    lane->count = 0;
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++) {
        PSRTI_LIST_FOREACH_SAFE(it, tmp, lists[i])
        {
            fb_msg_t *m = PSRTI_LIST_ENTRY(it, fb_msg_t, node);
            if (m->from != from || m->to != to) continue;
            psrt_tx_t *tx = m->tx;
            m->tx = NULL;
            if (i == 2) { /* the receiver releases it */
                m->is_stale = 1;
                if (tx) tx->done(tx, PSRT_ERR_CANCELED);
                continue;
            }
            m->tx = tx;
            finish_tx(m, PSRT_ERR_CANCELED);
        }
    }
}

void fb_cut(fabric_t *fb, uint32_t a, uint32_t b)
{
    if (!fb->lane[a][b].is_up) return;
    close_lane(fb, a, b);
    close_lane(fb, b, a);
    if (!fb->rank[a].is_dead)
        psrti_coll_link_lost(fb->rank[a].coll, b, PSRT_ERR_PEER_LOST, "connection reset");
    if (!fb->rank[b].is_dead)
        psrti_coll_link_lost(fb->rank[b].coll, a, PSRT_ERR_PEER_LOST, "connection reset");
}

static void env_drop(void *arg, uint32_t rank)
{
    end_t *e = arg;
    fabric_t *fb = e->fb;
    if (!fb->lane[e->rank][rank].is_up) return;
    fb->drops++;
    close_lane(fb, e->rank, rank);
    close_lane(fb, rank, e->rank);
    if (!fb->rank[rank].is_dead)
        psrti_coll_link_lost(fb->rank[rank].coll, e->rank, PSRT_ERR_PEER_LOST,
                             "closed by the peer");
}

void fb_link(fabric_t *fb, uint32_t a, uint32_t b)
{
    fb->lane[a][b].is_up = fb->lane[b][a].is_up = 1;
    psrti_coll_link_up(fb->rank[a].coll, b, fb->view->workers[b].incarnation);
    psrti_coll_link_up(fb->rank[b].coll, a, fb->view->workers[a].incarnation);
}

static void tell_view(fabric_t *fb)
{
    psrti_view_t *view = psrti_view_clone(fb->view);
    view->number++;
    psrti_view_unref(fb->view);
    fb->view = view;
}

static void spread_view(fabric_t *fb)
{
    for (uint32_t r = 0; r < fb->n; r++)
        if (!fb->rank[r].is_dead) psrti_coll_view(fb->rank[r].coll, fb->view);
}

void fb_kill(fabric_t *fb, uint32_t rank)
{
    fb->rank[rank].is_dead = 1;
    for (uint32_t r = 0; r < fb->n; r++)
        if (r != rank) fb_cut(fb, rank, r);
    tell_view(fb);
    fb->view->workers[rank].alive = 0;
    spread_view(fb);
}

static void make_engine(fabric_t *fb, uint32_t rank)
{
    psrti_coll_env_t env = { .arg = &ends[rank],
                             .connect = env_connect,
                             .send = env_send,
                             .map = env_map,
                             .verify = env_verify,
                             .release = env_release,
                             .drop = env_drop,
                             .alloc = env_alloc,
                             .free = env_free,
                             .note = env_note };
    ends[rank] = (end_t){ fb, rank };
    fb->params.rank = rank;
    fb->params.host =
        (uint64_t)(rank % 4) / 3 + 1; /* of four ranks the last one is on another host */
    fb->params.place = rank % 3;
    cr_assert_eq(psrti_coll_create(&fb->params, &env, &fb->rank[rank].coll), PSRT_OK);
}

void fb_restart(fabric_t *fb, uint32_t rank)
{
    psrti_coll_destroy(fb->rank[rank].coll);
    make_engine(fb, rank);
    fb->rank[rank].is_dead = 0;
    tell_view(fb);
    fb->view->workers[rank].alive = 1;
    fb->view->workers[rank].incarnation += 100;
    spread_view(fb);
    for (uint32_t r = 0; r < fb->n; r++)
        if (r != rank && !fb->rank[r].is_dead) fb_link(fb, r, rank);
}

void fb_open(fabric_t *fb, uint32_t n, uint64_t seed, const psrti_coll_params_t *params)
{
    memset(fb, 0, sizeof *fb);
    fb->n = n;
    fb->random = seed;
    fb->now = FB_SECOND;
    fb->by_ref = 64;
    fb->window = 1 + fb_random(fb, 12);
    if (params) fb->params = *params;
    fb->params.workers = n;
    if (!fb->params.chunk) fb->params.chunk = 256;
    if (!fb->params.eager) fb->params.eager = 1024;
    if (!fb->params.timeout) fb->params.timeout = 10 * FB_SECOND;
    if (!fb->params.grace) fb->params.grace = FB_SECOND;
    if (!fb->params.kernels) cr_assert_eq(psrti_kernels_select("", &fb->params.kernels), PSRT_OK);
    fb->view = psrti_view_new(n, 1, 1);
    fb->view->number = 1;
    for (uint32_t r = 0; r < n; r++) {
        fb->view->workers[r].alive = 1;
        fb->view->workers[r].incarnation = 1 + r;
        snprintf(fb->view->workers[r].host, PSRTI_VIEW_HOST, "node%u", r / 2);
        psrti_list_init(&fb->rank[r].done);
        psrti_list_init(&fb->held[r]);
        for (uint32_t q = 0; q < n; q++)
            psrti_list_init(&fb->lane[r][q].queue);
        make_engine(fb, r);
        psrti_coll_view(fb->rank[r].coll, fb->view);
    }
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            fb_link(fb, a, b);
}

void fb_close(fabric_t *fb)
{
    for (uint32_t a = 0; a < fb->n; a++)
        for (uint32_t b = 0; b < fb->n; b++)
            if (a != b) close_lane(fb, a, b);
    for (uint32_t r = 0; r < fb->n; r++)
        psrti_coll_destroy(fb->rank[r].coll);
    psrti_view_unref(fb->view);
    for (uint32_t r = 0; r < fb->n; r++)
        cr_assert(psrti_list_empty(&fb->held[r]), "rank %u holds a message", r);
    cr_assert_eq(fb->scratch, 0, "%llu pieces of scratch are left",
                 (unsigned long long)fb->scratch);
}

/* ---- moving ------------------------------------------------------------------------------------- */

static psrt_rx_t deliver(fabric_t *fb, fb_msg_t *m)
{
    psrt_msg_t msg = { .hdr = m->hdr, .data = m->tx ? NULL : m->data, .len = m->len, .impl = m };
    psrti_list_push(&fb->held[m->to], &m->node); /* may be released while it is delivered */
    uint32_t from = m->from, to = m->to;
    psrt_rx_t rx = psrti_coll_msg(fb->rank[to].coll, from, &msg);
    fb->delivered++;
    if (rx != PSRT_RX_HOLD) msg_over(fb, m);
    if (rx == PSRT_RX_BAD) {
        fb->refused++;
        fb_cut(fb, from, to);
    }
    return rx;
}

static int deliver_one(fabric_t *fb, uint32_t from, uint32_t to)
{
    fb_lane_t *lane = &fb->lane[from][to];
    if (psrti_list_empty(&lane->queue) || fb->rank[to].is_stopped) return 0;
    fb_msg_t *m = PSRTI_LIST_ENTRY(lane->queue.next, fb_msg_t, node);
    psrti_list_remove(&m->node);
    lane->count--;
    deliver(fb, m);
    if (fb->kill_at && fb->delivered >= fb->kill_at) {
        fb->kill_at = 0;
        fb_kill(fb, fb->victim);
    }
    return 1;
}

void fb_deliver_from(fabric_t *fb, uint32_t rank)
{
    for (uint32_t to = 0; to < fb->n; to++)
        while (deliver_one(fb, rank, to)) {}
}

static int writable_one(fabric_t *fb, uint32_t from, uint32_t to)
{
    fb_lane_t *lane = &fb->lane[from][to];
    if (!lane->said_again || fb->rank[from].is_stopped || lane->count >= fb->window) return 0;
    lane->said_again = 0;
    psrti_coll_link_writable(fb->rank[from].coll, to);
    return 1;
}

static int done_one(fabric_t *fb, uint32_t rank)
{
    if (psrti_list_empty(&fb->rank[rank].done) || fb->rank[rank].is_stopped) return 0;
    finish_tx(PSRTI_LIST_ENTRY(fb->rank[rank].done.next, fb_msg_t, node), PSRT_OK);
    return 1;
}

static void progress_all(fabric_t *fb)
{
    for (uint32_t r = 0; r < fb->n; r++)
        if (!fb->rank[r].is_dead && !fb->rank[r].is_stopped)
            psrti_coll_progress(fb->rank[r].coll, fb->now);
    fb_collect(fb);
}

void fb_collect(fabric_t *fb)
{
    for (uint32_t r = 0; r < fb->n; r++)
        for (psrti_collop_t *op; (op = psrti_coll_completed(fb->rank[r].coll)) != NULL;)
            if (fb->on_ended) fb->on_ended(op);
}

static int move_one(fabric_t *fb)
{
    uint32_t pairs = fb->n * fb->n, start = fb_random(fb, pairs);
    uint32_t kind = fb_random(fb, 3);
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < pairs; i++) {
            uint32_t at = (start + i) % pairs, from = at / fb->n, to = at % fb->n;
            switch ((kind + k) % 3) {
            case 0:
                if (deliver_one(fb, from, to)) return 1;
                break;
            case 1:
                if (writable_one(fb, from, to)) return 1;
                break;
            default:
                if (from == to && done_one(fb, from))
                    return psrti_coll_progress(fb->rank[from].coll, fb->now), 1;
            }
        }
    return 0;
}

int fb_step(fabric_t *fb)
{
    int moved = move_one(fb);
    fb_collect(fb);
    return moved;
}

static unsigned idle_all(fabric_t *fb)
{
    unsigned n = 0;
    progress_all(fb);
    for (uint32_t r = 0; r < fb->n; r++)
        if (!fb->rank[r].is_dead && !fb->rank[r].is_stopped) n += psrti_coll_idle(fb->rank[r].coll);
    return n;
}

void fb_settle(fabric_t *fb)
{
    uint64_t steps = 0;
    do
        while (fb_step(fb)) {
            if (fb_random(fb, 16) == 0 && !fb->rank[fb_random(fb, fb->n)].is_dead) progress_all(fb);
            cr_assert(++steps < STEPS_MAX, "the fabric does not come to rest");
        }
    while (idle_all(fb) || fb_step(fb));
}

static int all_ended(psrti_collop_t *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!ops[i]->ended) return 0;
    return 1;
}

void fb_wait(fabric_t *fb, uint64_t ns, psrti_collop_t *const *ops, size_t count)
{
    uint64_t end = fb->now + ns;
    fb_settle(fb);
    while (fb->now < end && !(count && all_ended(ops, count))) {
        fb->now += FB_SECOND / 20;
        progress_all(fb);
        fb_settle(fb);
    }
    fb_collect(fb);
}

void fb_until_ended(fabric_t *fb, psrti_collop_t *const *ops, size_t count)
{
    char text[512];
    fb_settle(fb);
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->ended) continue;
        psrti_coll_describe(ops[i], text, sizeof text);
        cr_assert(0, "nothing moves, and it has not ended: %s", text);
    }
    fb_wait(fb, 0, NULL, 0);
}

psrt_rx_t fb_inject(fabric_t *fb, uint32_t from, uint32_t to, psrt_hdr_t hdr, const void *data)
{
    fb_msg_t *m = calloc(1, sizeof *m);
    hdr.type = PSRTI_T_COLL;
    *m = (fb_msg_t){ .from = from, .to = to, .hdr = hdr, .len = hdr.length };
    psrti_list_init(&m->node);
    if (m->len) {
        m->data = m->copy = malloc(m->len);
        memcpy(m->copy, data, m->len);
    }
    return deliver(fb, m);
}

/* ---- communicators ------------------------------------------------------------------------------ */

void fb_world(fabric_t *fb, const char *name, psrti_comm_t *comms[FB_RANKS])
{
    psrti_collop_t ops[FB_RANKS] = { 0 }, *list[FB_RANKS];
    uint32_t ranks[FB_RANKS];
    for (uint32_t r = 0; r < fb->n; r++)
        ranks[r] = r;
    for (uint32_t r = 0; r < fb->n; r++) {
        list[r] = &ops[r];
        cr_assert_eq(psrti_comm_create(fb->rank[r].coll, name, ranks, fb->n, &ops[r], &comms[r]),
                     PSRT_OK);
        if (fb_random(fb, 2)) (void)fb_step(fb);
    }
    fb_until_ended(fb, list, fb->n);
    for (uint32_t r = 0; r < fb->n; r++)
        cr_assert_eq(ops[r].status, PSRT_OK, "%s", ops[r].text ? ops[r].text : "");
}

void fb_expect(psrti_collop_t *op, psrt_status_t status, ...)
{
    va_list texts;
    va_start(texts, status);
    cr_assert(op->ended);
    cr_assert_eq(op->status, status, "%s instead of %s: %s", psrt_status_name(op->status),
                 psrt_status_name(status), op->text ? op->text : "");
    for (const char *text; (text = va_arg(texts, const char *)) != NULL;)
        cr_assert(op->text && strstr(op->text, text), "\"%s\" is not in \"%s\"", text,
                  op->text ? op->text : "");
    va_end(texts);
    free(op->text);
    op->text = NULL;
}
