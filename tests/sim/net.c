/* SPDX-License-Identifier: Apache-2.0 */
/* Links that workers dial to servers, and servers to each other. A link is one session; it
 * carries real frames, in order and at most once unless the seed says otherwise. A payload that
 * is pending stays in its sender's memory and is read when it arrives, as a descriptor would be. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define TYPE_AT 3 /* in a frame */

typedef struct msg {
    struct msg *next; /* all of the simulation */
    struct msg *next_of_link;
    sim_link_t *link;
    int from_server;
    uint64_t number; /* in its direction */
    uint8_t frame[PSRTI_FRAME_BYTES];
    const void *data;
    void *copy;
    uint64_t len, sum;
    psrt_tx_t *tx;       /* pending */
    uint32_t generation; /* of the sender's memory, as the receiver was told */
    int deliveries, gone;
} msg_t;

enum { DIALING, UP, GONE };

struct sim_link {
    sim_link_t *next;
    sim_t *sim;
    int node, server; /* who dialled: a worker or a server; who accepted */
    uint64_t incarnation;
    psrti_peer_t *peer, *dialler; /* of the one who accepted, of a server that dialled */
    int worker_side, server_side; /* DIALING, UP, GONE; worker: who dialled */
    int broken;                   /* nothing new is taken */
    uint64_t cut_at[2];           /* arrivals after it vanish, by receiver (1: the worker) */
    uint32_t generation[2];       /* of the memory that a side sends from; by from_server */
    struct direction {
        uint64_t last_arrival, sent, highest;
        unsigned in_flight;
        int wanted; /* the sender waits for room */
    } dir[2];       /* by from_server */
    msg_t *messages;
};

struct sim_net {
    sim_link_t *links;
    msg_t *messages;
    /* of the message that is being delivered */
    int withdraw_map, withdraw_verify;
    void *scrambled;
};

void sim_net_open(sim_t *sim) { sim->net = calloc(1, sizeof *sim->net); }

void sim_net_close(sim_t *sim)
{
    for (msg_t *m = sim->net->messages, *next; m; m = next) {
        next = m->next;
        free(m->copy);
        free(m);
    }
    for (sim_link_t *l = sim->net->links, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    free(sim->net->scrambled);
    free(sim->net);
}

static uint64_t latency(sim_t *sim)
{
    return sim->faults.latency / 2 + sim_random(sim, sim->faults.latency);
}

uint64_t sim_arrival(sim_t *sim, int from, int to, uint64_t at)
{
    uint64_t silent = sim->silent_until[from][to];
    if (silent <= sim->now) return at;
    sim->counts.held_by_partitions++;
    return PSRTI_MAX(at, silent + sim_random(sim, MS));
}

static int faulty(sim_t *sim, sim_kind_t kind)
{
    return sim_fault(sim, kind, sim->faults.rate[kind]);
}

static int node_of(const sim_link_t *l, int server_side)
{
    return server_side ? l->server : l->node;
}

/* The worker that dialled; NULL: it was a server. */
static sim_worker_t *worker_of(const sim_link_t *l)
{
    return l->node < l->sim->nservers ? NULL : &l->sim->worker[l->node - l->sim->nservers];
}

int sim_link_server(const sim_link_t *link) { return link->server; }

static void after(sim_t *sim, int node)
{
    if (node < sim->nservers)
        sim_server_after(&sim->server[node]);
    else
        sim_worker_after(&sim->worker[node - sim->nservers]);
}

/* A server that was stopped for longer than the lease serves nobody until the coordinator has
 * spoken to it again. */
static int put_off(sim_t *sim, int node, sim_event_fn fn, void *obj, uint64_t arg)
{
    if (node >= sim->nservers || !sim->node[node].frozen) return 0;
    sim->counts.frozen_events++;
    sim_schedule(sim, sim->now + 10 * MS, node, fn, obj, arg);
    return 1;
}

/* ---- the end of a link ----------------------------------------------------------------------- */

/* One side lets go: its pending sends are given up, what comes is not delivered any more. */
static void detach(sim_link_t *l, int server_side)
{
    int *side = server_side ? &l->server_side : &l->worker_side;
    if (*side == GONE) return;
    *side = GONE;
    l->broken = 1;
    l->generation[server_side]++;
    for (msg_t *m = l->messages; m; m = m->next_of_link) {
        if (m->from_server != server_side || !m->tx) continue;
        psrt_tx_t *tx = m->tx;
        m->tx = NULL;
        l->sim->node[node_of(l, server_side)].sending--;
        memset(m->copy, 0xee, m->len); /* its owner fills it anew: nobody may read it any more */
        tx->done(tx, PSRT_ERR_CANCELED);
    }
    if (server_side && l->peer) {
        psrti_peer_t *peer = l->peer;
        l->peer = NULL;
        psrti_shard_link_lost(l->sim->server[l->server].shard, peer);
    }
    if (!server_side && l->dialler) {
        psrti_peer_t *peer = l->dialler;
        l->dialler = NULL;
        psrti_shard_link_lost(l->sim->server[l->node].shard, peer);
    }
}

static void lost(sim_t *sim, void *obj, uint64_t server_side)
{
    sim_link_t *l = obj;
    int *side = server_side ? &l->server_side : &l->worker_side;
    if (*side == GONE) return;
    sim_trace(sim, "node %d - server:%d: lost at the %s", l->node, l->server,
              server_side ? "server" : "dialler");
    detach(l, (int)server_side);
    if (!worker_of(l)) sim->counts.owner_links_lost++;
    if (!server_side && worker_of(l))
        sim_worker_link_lost(worker_of(l), l);
    else if (!server_side)
        sim_server_link_lost(&sim->server[l->node], l);
    after(sim, node_of(l, (int)server_side));
}

/* How long what is under way may still arrive, though its sender let go. */
static uint64_t lingering(const sim_link_t *l, int from_server)
{
    sim_t *sim = l->sim;
    uint64_t silent = sim->silent_until[node_of(l, from_server)][node_of(l, !from_server)];
    if (l->server_side == DIALING) return sim_random(sim, 600 * MS); /* it may be tried again */
    if (silent > sim->now && sim_chance(sim, 70)) return silent - sim->now + 3 * MS;
    return sim_random(sim, sim_chance(sim, 15) ? 60 * MS : 2 * MS);
}

/* Both sides find out, each in its time; some of what was under way may still arrive. */
static void sever(sim_link_t *l)
{
    sim_t *sim = l->sim;
    l->broken = 1;
    for (int i = 0; i < 2; i++)
        if (l->cut_at[i] == UINT64_MAX) l->cut_at[i] = sim->now + lingering(l, i);
    for (int server = 0; server < 2; server++) {
        uint64_t at = PSRTI_MAX(l->cut_at[!server], sim->now) + sim_random(sim, 20 * MS);
        if ((server ? l->server_side : l->worker_side) != GONE)
            sim_schedule(sim, at, node_of(l, server), lost, l, (uint64_t)server);
    }
}

void sim_link_drop(sim_link_t *l)
{
    detach(l, 0);
    sever(l);
}

void sim_cut_some_link(sim_t *sim)
{
    unsigned n = 0;
    for (sim_link_t *l = sim->net->links; l; l = l->next)
        n += !l->broken;
    if (!n) return;
    n = (unsigned)sim_random(sim, n);
    for (sim_link_t *l = sim->net->links; l; l = l->next)
        if (!l->broken && n-- == 0) {
            sim_trace(sim, "node %d - server:%d: cut", l->node, l->server);
            sever(l);
            return;
        }
}

void sim_cut_node(sim_t *sim, int node)
{
    for (sim_link_t *l = sim->net->links; l; l = l->next)
        for (int server = 0; server < 2; server++)
            if (node_of(l, server) == node && (server ? l->server_side : l->worker_side) != GONE) {
                detach(l, server);
                sever(l);
            }
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void dialler_up(sim_t *sim, void *obj, uint64_t arg)
{
    sim_link_t *l = obj;
    (void)arg;
    if (l->broken || l->worker_side != DIALING) return;
    l->worker_side = UP;
    if (worker_of(l))
        sim_worker_link_up(worker_of(l), l->server);
    else
        l->dialler = psrti_shard_owner_up(sim->server[l->node].shard, l, (uint32_t)l->server, 0, 1);
    after(sim, node_of(l, 0));
}

/* A new session of a task closes the old one before it is admitted; that of an earlier life is
 * refused. Who dialled may be dead by now. */
static void server_up(sim_t *sim, void *obj, uint64_t arg)
{
    sim_link_t *l = obj;
    if (l->server_side != DIALING || sim->now > l->cut_at[0]) return;
    if (put_off(sim, l->server, server_up, l, arg)) return;
    if (!sim->server[l->server].shard) { /* it has not joined yet */
        sever(l);
        return;
    }
    for (sim_link_t *o = sim->net->links; o; o = o->next)
        if (o != l && o->node == l->node && o->server == l->server && o->server_side == UP) {
            if (l->incarnation < o->incarnation) { /* of an earlier life, it comes late */
                sim->counts.stale_sessions++;
                detach(l, 1);
                sever(l);
                return;
            }
            detach(o, 1);
            sever(o);
        }
    l->server_side = UP;
    l->peer = sim_server_link_up(&sim->server[l->server], l, l->node, l->incarnation);
    sim_schedule(sim, sim_arrival(sim, l->server, l->node, sim->now + latency(sim)), l->node,
                 dialler_up, l, 0);
    after(sim, l->server);
}

/* Now and then a connection is made only after some tries. */
static uint64_t dial_time(sim_t *sim)
{
    return latency(sim) + (sim_chance(sim, 5) ? sim_random(sim, 300 * MS) : 0);
}

sim_link_t *sim_dial(sim_t *sim, int node, int server)
{
    sim_link_t *l = calloc(1, sizeof *l);
    l->sim = sim;
    l->node = node;
    l->server = server;
    l->incarnation = sim->node[node].incarnation;
    l->cut_at[0] = l->cut_at[1] = UINT64_MAX;
    l->next = sim->net->links;
    sim->net->links = l;
    if (!sim->node[server].alive)
        sever(l);
    else
        sim_schedule(sim, sim_arrival(sim, node, server, sim->now + dial_time(sim)), server,
                     server_up, l, 0);
    return l;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void writable(sim_t *sim, void *obj, uint64_t from_server)
{
    sim_link_t *l = obj;
    if ((from_server ? l->server_side : l->worker_side) != UP || !l->dir[from_server].wanted)
        return;
    l->dir[from_server].wanted = 0;
    if (from_server)
        psrti_shard_link_writable(sim->server[l->server].shard, l->peer);
    else if (worker_of(l))
        psrti_client_link_writable(worker_of(l)->client, (uint32_t)l->server);
    else
        psrti_shard_link_writable(sim->server[l->node].shard, l->dialler);
    after(sim, node_of(l, (int)from_server));
}

static void make_room(sim_link_t *l, int from_server)
{
    struct direction *d = &l->dir[from_server];
    d->in_flight--;
    if (d->wanted)
        sim_schedule(l->sim, l->sim->now + sim_random(l->sim, 50 * US), node_of(l, from_server),
                     writable, l, (uint64_t)from_server);
}

static void tx_done(sim_t *sim, void *obj, uint64_t arg)
{
    msg_t *m = obj;
    (void)arg;
    if (!m->tx) return;
    psrt_tx_t *tx = m->tx;
    m->tx = NULL;
    sim->node[node_of(m->link, m->from_server)].sending--;
    tx->done(tx, PSRT_OK);
    after(sim, node_of(m->link, m->from_server));
}

static uint64_t sum_of(const void *data, uint64_t len)
{
    return len ? psrti_hash_bytes(data, len) : 0;
}

static msg_t *msg_new(sim_link_t *l, int from_server, const psrt_hdr_t *hdr, const void *data,
                      uint64_t len)
{
    struct sim_net *net = l->sim->net;
    msg_t *m = calloc(1, sizeof *m);
    m->link = l;
    m->from_server = from_server;
    m->number = ++l->dir[from_server].sent;
    psrti_frame_encode(hdr, m->frame);
    m->generation = l->generation[from_server];
    m->data = data;
    m->len = len;
    m->sum = sum_of(data, len);
    m->copy = malloc(len ? len : 1);
    if (len) memcpy(m->copy, data, len);
    m->next = net->messages;
    net->messages = m;
    m->next_of_link = l->messages;
    l->messages = m;
    return m;
}

static void arrive(sim_t *sim, void *obj, uint64_t arg);
static void arrive_short(sim_t *sim, void *obj, uint64_t arg);
enum { FIRST, AGAIN_COPY };

/* When it arrives, if at all. */
static void launch(msg_t *m)
{
    sim_link_t *l = m->link;
    sim_t *sim = l->sim;
    struct direction *d = &l->dir[m->from_server];
    int to = node_of(l, !m->from_server);
    if (faulty(sim, SIM_drop)) {
        sim->counts.dropped++;
        make_room(l, m->from_server);
        sim_trace(sim, "  dropped");
        if (m->tx)
            sim_schedule(sim, sim->now + latency(sim), node_of(l, m->from_server), tx_done, m, 0);
        m->gone = 1;
        return;
    }
    if (m->len && faulty(sim, SIM_cut)) {
        sim->counts.cuts++;
        sim->counts.batches_cut += m->frame[TYPE_AT] == PSRTI_T_BATCH;
        sim_trace(sim, "  cut in mid-message");
        m->gone = 1;
        if (sim_chance(sim, 50)) sim_schedule(sim, sim->now + latency(sim), to, arrive_short, m, 0);
        sever(l);
        return;
    }
    uint64_t at = sim_arrival(sim, node_of(l, m->from_server), to, sim->now + latency(sim));
    if (faulty(sim, SIM_reorder)) {
        at += sim_random(sim, 20 * sim->faults.latency);
    } else {
        at = PSRTI_MAX(at, d->last_arrival + 1);
        d->last_arrival = at;
    }
    sim_schedule(sim, at, to, arrive, m, FIRST);
    if (faulty(sim, SIM_duplicate))
        sim_schedule(sim, at + sim_random(sim, 50 * sim->faults.latency), to, arrive, m,
                     AGAIN_COPY);
}

psrt_status_t sim_send(sim_link_t *l, int from_server, psrt_hdr_t *hdr, const void *data,
                       uint64_t len, psrt_tx_t *tx)
{
    sim_t *sim = l->sim;
    struct direction *d = &l->dir[from_server];
    if (l->broken) return PSRT_ERR_PEER_LOST;
    if (d->in_flight >= sim->faults.window || faulty(sim, SIM_backpressure)) {
        sim->counts.backpressure++;
        d->wanted = 1;
        if (!d->in_flight)
            sim_schedule(sim, sim->now + sim_random(sim, 5 * MS), node_of(l, from_server), writable,
                         l, (uint64_t)from_server);
        return PSRT_ERR_AGAIN;
    }
    if (from_server && worker_of(l)) sim_check_answer(&sim->server[l->server], hdr, data, len);
    sim->counts.messages++;
    d->in_flight++;
    msg_t *m = msg_new(l, from_server, hdr, data, len);
    sim_trace(sim,
              "node %d %s server:%d %s %s seq %llu term %u step %llu [%llu +%llu) "
              "flags %x status %d",
              l->node, from_server ? "<-" : "->", l->server,
              (const char *[]){ "?", "HELLO", "WELCOME", "CTRL", "PUSH", "PULL", "INIT", "CLOCK",
                                "ACK", "VALUE", "MOVED", "BYE", "CANCEL", "BATCH", "PARTIALS",
                                "VERDICT" }[hdr->type],
              sim_table_name(sim, hdr->table), (unsigned long long)(hdr->seq & ~(1ull << 63)),
              hdr->term, (unsigned long long)hdr->step, (unsigned long long)hdr->offset,
              (unsigned long long)hdr->length, hdr->flags, -(int)hdr->status);
    if (tx && len && sim_chance(sim, sim->faults.pend)) m->tx = tx;
    if (m->tx) sim->node[node_of(l, from_server)].sending++;
    launch(m);
    if (m->tx && from_server) sim->counts.pinned_reads++;
    return m->tx ? PSRT_IN_PROGRESS : PSRT_OK;
}

/* ---- receiving ------------------------------------------------------------------------------- */

psrt_status_t sim_map(sim_t *sim, psrt_msg_t *msg, const void **data_p)
{
    struct sim_net *net = sim->net;
    if (net->withdraw_map) return PSRT_ERR_STALE;
    *data_p = msg->data;
    /* A transport hands up a batch in memory that its sender cannot change. */
    if (!net->withdraw_verify || !msg->len || msg->hdr.type == PSRTI_T_BATCH) return PSRT_OK;
    net->scrambled = realloc(net->scrambled, msg->len);
    memset(net->scrambled, 0x5a, msg->len);
    memcpy(net->scrambled, msg->data, msg->len / 2);
    *data_p = net->scrambled;
    return PSRT_OK;
}

psrt_status_t sim_verify(sim_t *sim, const psrt_msg_t *msg)
{
    return sim->net->withdraw_verify && msg->len ? PSRT_ERR_STALE : PSRT_OK;
}

static psrt_rx_t give(const msg_t *m, psrt_msg_t *msg)
{
    const sim_link_t *l = m->link;
    sim_t *sim = l->sim;
    if (!m->from_server && worker_of(l))
        sim_note_request(&sim->server[l->server], l->peer, &msg->hdr);
    if (!m->from_server) return psrti_shard_msg(sim->server[l->server].shard, l->peer, msg);
    if (worker_of(l)) return sim_check_reply(worker_of(l), l->server, msg);
    return psrti_shard_msg(sim->server[l->node].shard, l->dialler, msg);
}

static psrt_rx_t hand_up(msg_t *m, psrt_msg_t *msg)
{
    sim_link_t *l = m->link;
    sim_t *sim = l->sim;
    struct sim_net *net = sim->net;
    /* What owners tell each other is copied before it is handed up. */
    int between_owners = !worker_of(l);
    int withdraw = m->len && !between_owners && faulty(sim, SIM_withdraw);
    int stale = m->len && m->generation != l->generation[m->from_server];
    sim->counts.stale_memory += (uint64_t)stale;
    net->withdraw_map = stale || (withdraw && (!m->from_server || sim_chance(sim, 50)));
    net->withdraw_verify = withdraw && !net->withdraw_map;
    psrt_rx_t rx = give(m, msg);
    net->withdraw_map = net->withdraw_verify = 0;
    if (withdraw) { /* the sender closed the session while its memory was read */
        sim->counts.withdrawn++;
        sim_trace(sim, "  withdrawn while it was read");
        sever(l);
    }
    return rx;
}

/* The beginning of a message that was cut. Whoever gets it says that it is malformed, or does
 * not care, and takes nothing of it. */
static void arrive_short(sim_t *sim, void *obj, uint64_t arg)
{
    msg_t *m = obj;
    sim_link_t *l = m->link;
    int to = node_of(l, !m->from_server);
    psrt_msg_t msg = { .data = m->copy, .len = m->len / 2 };
    (void)arg;
    if ((m->from_server ? l->worker_side : l->server_side) != UP ||
        put_off(sim, to, arrive_short, m, 0))
        return;
    sim->counts.cut_short++;
    psrti_frame_decode(m->frame, &msg.hdr, NULL);
    give(m, &msg);
    after(sim, to);
}

static void count_arrival(msg_t *m)
{
    struct direction *d = &m->link->dir[m->from_server];
    sim_counts_t *counts = &m->link->sim->counts;
    if (m->deliveries++)
        counts->duplicates++, counts->batches_twice += m->frame[TYPE_AT] == PSRTI_T_BATCH;
    else if (m->number < d->highest)
        counts->reorderings++;
    d->highest = PSRTI_MAX(d->highest, m->number);
}

static void arrive(sim_t *sim, void *obj, uint64_t again)
{
    msg_t *m = obj;
    sim_link_t *l = m->link;
    int to = node_of(l, !m->from_server);
    if (put_off(sim, to, arrive, m, again)) return;
    int here = m->from_server ? l->worker_side : l->server_side;
    if (again == FIRST && !l->broken) make_room(l, m->from_server);
    if (here != UP || sim->now > l->cut_at[m->from_server]) return;
    if (again == FIRST ? m->gone : !m->deliveries) return;
    const void *data = again == FIRST && m->tx ? m->data : m->copy;
    psrt_msg_t msg = { .data = data, .len = m->len };
    uint64_t bytes;
    if (psrti_frame_decode(m->frame, &msg.hdr, NULL) != PSRT_OK ||
        psrti_frame_payload(&msg.hdr, &bytes) != PSRT_OK || bytes != m->len) {
        sim_fail(sim, "a frame of type %u is malformed", m->frame[TYPE_AT]);
        return;
    }
    if (m->generation == l->generation[m->from_server] && sum_of(data, m->len) != m->sum)
        sim_fail(sim, "%s: the payload changed while it was under way",
                 sim_table_name(sim, msg.hdr.table));
    count_arrival(m);
    psrt_rx_t rx = hand_up(m, &msg);
    if (rx != PSRT_RX_DONE) sim_fail(sim, "a message of type %u was answered %d", msg.hdr.type, rx);
    if (again == FIRST && m->tx)
        sim_schedule(sim, sim->now + latency(sim) * (1 + 10 * (uint64_t)sim_chance(sim, 10)),
                     node_of(l, m->from_server), tx_done, m, 0);
    after(sim, to);
}
