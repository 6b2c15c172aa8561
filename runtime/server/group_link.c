/* SPDX-License-Identifier: Apache-2.0 */
/* Partials and verdicts between owners; docs/wire-format.md has the bytes. A holder dials the group's
 * owner and reports; the verdict comes back on that link, or is asked for by reporting again. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "runtime/server/group.h"

#define ENTRY_BYTES 32u
#define HEAD_BYTES 16u /* of a verdict */

enum { SKIP = 1, PREPARE = 2 }; /* flags of a verdict */

/* ---- sending ----------------------------------------------------------------------------------- */

typedef struct frame {
    psrt_tx_t tx;
    uint8_t payload[];
} frame_t;

static void frame_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* what was lost is told again */
    free(PSRTI_CONTAINER_OF(tx, frame_t, tx));
}

static frame_t *frame_new(size_t bytes)
{
    frame_t *f = malloc(sizeof *f + bytes);
    if (f) f->tx.done = frame_done;
    return f;
}

/* `table` is one that both have. 0: it found no room, WRITABLE follows. */
static int send_frame(psrti_shard_t *s, const psrti_peer_t *peer, const psrti_group_t *g, int type,
                      uint32_t table, uint64_t step, int round, frame_t *f, size_t bytes)
{
    psrt_hdr_t hdr = { .type = (uint8_t)type,
                       .term = g->term,
                       .seq = (uint64_t)round,
                       .step = step,
                       .table = table,
                       .vshard = g->vshard,
                       .length = bytes };
    psrt_status_t rc = s->env.send(s->env.arg, peer->link, &hdr, f->payload, bytes, &f->tx);
    if (rc != PSRT_IN_PROGRESS) free(f);
    return rc != PSRT_ERR_AGAIN;
}

static void dial(psrti_shard_t *s, psrti_owner_link_t *l, uint32_t owner)
{
    if (s->now < l->dial_due) return;
    l->dial_due = s->now + PSRTI_GROUP_RETRY_NS;
    s->env.dial(s->env.arg, owner, &s->view->owners[owner]);
}

static size_t put_partials(const psrti_group_t *g, psrti_group_pos_t *pos, uint8_t *p)
{
    size_t n = 0;
    psrti_slice_t *slice;
    for (; n < PSRTI_GROUP_CHUNK && (slice = psrti_group_next(g, pos)); n++, p += ENTRY_BYTES) {
        psrti_put32(p, slice->table->id);
        psrti_put32(p + 4, slice->partial.nonfinite);
        psrti_put64(p + 8, slice->index);
        psrti_put_double(p + 16, slice->partial.square);
        psrti_put_double(p + 24, slice->partial.value_square);
    }
    return n;
}

void psrti_group_send_report(psrti_shard_t *s, psrti_group_t *g)
{
    psrti_owner_link_t *l = &s->owners[g->owner];
    if (!psrti_group_is_whole(s, g)) return;
    if (!l->out) {
        dial(s, l, g->owner);
        return;
    }
    for (psrti_group_pos_t next = g->at;; g->at = next) {
        frame_t *f = frame_new((size_t)PSRTI_MIN(g->local, PSRTI_GROUP_CHUNK) * ENTRY_BYTES);
        if (!f) return; /* it is reported again */
        size_t n = put_partials(g, &next, f->payload);
        if (n == 0) {
            free(f);
            return;
        }
        s->counts.reports++;
        if (!send_frame(s, l->out, g, PSRTI_T_PARTIALS, g->table[0]->id, g->step, g->round, f,
                        n * ENTRY_BYTES))
            return;
    }
}

static size_t put_verdict(const psrti_group_t *g, const psrti_holder_t *h, uint8_t *p)
{
    const psrti_verdict_t *v = &g->verdict;
    psrti_put_double(p, v->scale);
    psrti_put32(p + 8, (v->skip ? SKIP : 0) | (v->prepare ? PREPARE : 0));
    psrti_put32(p + 12, 0);
    p += HEAD_BYTES;
    size_t first = h->count - h->unsent, n = PSRTI_MIN(h->unsent, PSRTI_GROUP_CHUNK);
    for (size_t i = first; i < first + n; i++, p += ENTRY_BYTES) {
        const psrti_stable_t *t = h->table[i];
        psrti_put32(p, t->id);
        psrti_put32(p + 4, 0);
        psrti_put_double(p + 8, t->norms.grad);
        psrti_put_double(p + 16, t->norms.value);
        psrti_put_double(p + 24, t->norms.update);
    }
    return n;
}

void psrti_group_send_verdict(psrti_shard_t *s, psrti_group_t *g, uint32_t owner)
{
    const psrti_peer_t *peer = s->owners[owner].in;
    psrti_holder_t *h = &g->holders[owner];
    while (peer && h->unsent) {
        size_t most = PSRTI_MIN(h->unsent, PSRTI_GROUP_CHUNK);
        frame_t *f = frame_new(HEAD_BYTES + most * ENTRY_BYTES);
        if (!f) return; /* it is asked for again */
        size_t n = put_verdict(g, h, f->payload);
        if (!send_frame(s, peer, g, PSRTI_T_VERDICT, h->table[0]->id, g->verdict.step,
                        g->verdict.round, f, HEAD_BYTES + n * ENTRY_BYTES))
            return;
        h->unsent -= n;
    }
}

/* ---- receiving --------------------------------------------------------------------------------- */

/* The table of an entry, if it is one of this group here. */
static psrti_stable_t *member_of(const psrti_shard_t *s, const psrti_group_t *g, uint32_t id)
{
    psrti_stable_t *t = psrti_map_get(&s->tables, id);
    return t && t->group == g ? t : NULL;
}

/* Of the step before: its verdict has not arrived, it is told again. */
static psrt_rx_t on_partials(psrti_shard_t *s, const psrti_peer_t *peer, psrti_group_t *g,
                             const psrt_hdr_t *hdr, const uint8_t *p, uint64_t len)
{
    const psrti_verdict_t *v = &g->verdict;
    if (!g->holders || len == 0 || len % ENTRY_BYTES) return PSRT_RX_BAD;
    if (hdr->step == v->step && hdr->seq == (uint64_t)v->round) {
        g->holders[peer->owner].unsent = g->holders[peer->owner].count;
        s->counts.verdicts_repeated++;
        psrti_group_send_verdict(s, g, peer->owner);
        return PSRT_RX_DONE;
    }
    if (hdr->step != g->open_step || hdr->seq != (uint64_t)g->open_round) return PSRT_RX_DONE;
    for (const uint8_t *end = p + len; p < end; p += ENTRY_BYTES) {
        psrti_stable_t *t = member_of(s, g, psrti_get32(p));
        uint64_t slice = psrti_get64(p + 8);
        if (!t || slice >= t->nslices) return PSRT_RX_BAD;
        psrti_partial_t partial = { .nonfinite = psrti_get32(p + 4) & 1,
                                    .square = psrti_get_double(p + 16),
                                    .value_square = psrti_get_double(p + 24) };
        psrti_group_collect(g, t, slice, &partial);
    }
    psrti_group_touch(s, g);
    return PSRT_RX_DONE;
}

static psrt_rx_t on_verdict(psrti_shard_t *s, psrti_group_t *g, const psrt_hdr_t *hdr,
                            const uint8_t *p, uint64_t len)
{
    if (len < HEAD_BYTES || len % ENTRY_BYTES != HEAD_BYTES || g->holders) return PSRT_RX_BAD;
    if (!g->round || g->judged || hdr->step != g->step || hdr->seq != (uint64_t)g->round)
        return PSRT_RX_DONE; /* it was told before */
    uint32_t flags = psrti_get32(p + 8);
    g->verdict = (psrti_verdict_t){ .step = g->step,
                                    .round = g->round,
                                    .scale = psrti_get_double(p),
                                    .skip = (flags & SKIP) != 0,
                                    .prepare = (flags & PREPARE) != 0 };
    const uint8_t *end = p + len;
    for (p += HEAD_BYTES; p < end; p += ENTRY_BYTES) {
        psrti_stable_t *t = member_of(s, g, psrti_get32(p));
        uint64_t heard = 2 * g->step + (uint64_t)g->round; /* rounds are 1 and 2: grows */
        if (!t || !t->is_local || t->norms_heard == heard) continue;
        t->norms = (psrti_norms_t){ psrti_get_double(p + 8), psrti_get_double(p + 16),
                                    psrti_get_double(p + 24) };
        t->norms_heard = heard;
        g->unheard--;
    }
    g->judged = g->unheard == 0;
    if (g->judged) psrti_group_touch(s, g);
    return PSRT_RX_DONE;
}

/* Is the sender the life of that owner which the view knows? */
static int is_current(const psrti_shard_t *s, const psrti_peer_t *peer)
{
    const psrti_view_owner_t *o = &s->view->owners[peer->owner];
    return o->alive && (peer->dialled || o->incarnation == peer->incarnation);
}

psrt_rx_t psrti_group_msg(psrti_shard_t *s, psrti_peer_t *peer, psrt_msg_t *msg)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    const void *data;
    if (hdr->type == PSRTI_T_BYE) return PSRT_RX_DONE;
    if (hdr->type != (peer->dialled ? PSRTI_T_VERDICT : PSRTI_T_PARTIALS)) return PSRT_RX_BAD;
    if (hdr->vshard >= s->view->nvshards || hdr->seq < 1 || hdr->seq > 2) return PSRT_RX_BAD;
    psrti_stable_t *t = psrti_map_get(&s->tables, hdr->table);
    psrti_group_t *g = t ? t->group : NULL;
    /* Not held yet, or before the last restart of one of us: whoever lives tells it again. */
    if (!is_current(s, peer) || !g || hdr->vshard != g->vshard || hdr->term != g->term)
        return PSRT_RX_DONE;
    if (s->env.map(s->env.arg, msg, &data) != PSRT_OK) return PSRT_RX_DONE;
    psrt_rx_t rx = hdr->type == PSRTI_T_PARTIALS ? on_partials(s, peer, g, hdr, data, msg->len)
                                                 : on_verdict(s, g, hdr, data, msg->len);
    psrti_gather_begin(s);
    psrti_groups_run(s);
    psrti_gather_end(s);
    return rx;
}

/* ---- links ------------------------------------------------------------------------------------- */

static void send_all(psrti_shard_t *s, const psrti_peer_t *peer, int anew)
{
    if (!peer->dialled) {
        for (psrti_list_t *n = s->groups.next; n != &s->groups; n = n->next) {
            psrti_group_t *g = PSRTI_LIST_ENTRY(n, psrti_group_t, node);
            if (g->holders) psrti_group_send_verdict(s, g, peer->owner);
        }
        return;
    }
    for (psrti_list_t *n = s->waiting_groups.next; n != &s->waiting_groups; n = n->next) {
        psrti_group_t *g = PSRTI_LIST_ENTRY(n, psrti_group_t, waiting);
        if (g->owner != peer->owner || g->judged) continue;
        if (anew) g->at = (psrti_group_pos_t){ 0 };
        psrti_group_send_report(s, g);
    }
}

psrti_peer_t *psrti_shard_owner_up(psrti_shard_t *s, void *link, uint32_t owner,
                                   uint64_t incarnation, int dialled)
{
    psrti_peer_t *peer = s->owners ? calloc(1, sizeof *peer) : NULL;
    if (!peer) return NULL;
    peer->link = link;
    peer->incarnation = incarnation;
    peer->is_owner = 1;
    peer->owner = owner;
    peer->dialled = dialled;
    psrti_list_init(&peer->node);
    psrti_list_init(&peer->owed);
    psrti_list_init(&peer->waits);
    psrti_list_init(&peer->owing);
    *(dialled ? &s->owners[owner].out : &s->owners[owner].in) = peer;
    send_all(s, peer, 1);
    return peer;
}

uint32_t psrti_shard_owner_of(const psrti_shard_t *s, uint32_t server, uint32_t thread)
{
    for (uint32_t i = 0; s->view && i < s->view->nowners; i++)
        if (s->view->owners[i].server == server && s->view->owners[i].thread == thread) return i;
    return UINT32_MAX;
}

void psrti_owner_writable(psrti_shard_t *s, const psrti_peer_t *peer) { send_all(s, peer, 0); }

/* The new link of an owner may be up before the old one is lost. */
void psrti_owner_lost(psrti_shard_t *s, const psrti_peer_t *peer)
{
    psrti_owner_link_t *l = &s->owners[peer->owner];
    if (l->out == peer) l->out = NULL;
    if (l->in == peer) l->in = NULL;
}
