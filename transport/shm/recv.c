/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: checks what the peer wrote, delivers it, retires it. */
#include <stdlib.h>
#include <string.h>

#include "base/fence.h"
#include "base/log.h"
#include "transport/shm/shm.h"

#define MESSAGES_PER_POLL 64
#define BYTES_PER_POLL (256u << 10)

/* ---- holds ------------------------------------------------------------------------------------ */

static shm_hold_t *hold_get(shm_iface_t *iface)
{
    psrti_list_t *node = iface->free_holds.next;
    if (node != &iface->free_holds) return PSRTI_LIST_ENTRY(node, shm_hold_t, node);
    if (iface->hold_count == iface->hold_cap) {
        uint32_t cap = PSRTI_MAX(64u, 2 * iface->hold_cap);
        shm_hold_t **holds = realloc(iface->holds, cap * sizeof(*holds));
        if (!holds) return NULL;
        iface->holds = holds;
        iface->hold_cap = cap;
    }
    shm_hold_t *hold = aligned_alloc(64, sizeof *hold);
    if (!hold) return NULL;
    memset(hold, 0, offsetof(shm_hold_t, eager));
    hold->index = iface->hold_count;
    iface->holds[iface->hold_count++] = hold;
    psrti_list_init(&hold->node);
    psrti_list_insert_before(iface->free_holds.next, &hold->node);
    return hold;
}

/* The one way out of a message: its handle becomes invalid and the sender is told. */
void psrti_shm_hold_put(shm_iface_t *iface, shm_hold_t *hold)
{
    shm_ep_t *ep = hold->ep;
    if (hold->seg) {
        ep->busy[hold->slot / 64] &= ~(1ull << (hold->slot % 64));
        psrti_shm_read_end(ep, hold->slot);
        if (ep->state == SHM_UP) psrti_shm_lane_retire(ep, hold->slot);
        psrti_shm_rseg_unref(hold->seg);
    }
    free(hold->copy);
    hold->copy = NULL;
    hold->seg = NULL;
    hold->ep = NULL;
    hold->gen++;
    psrti_list_remove(&hold->node);
    psrti_list_insert_before(iface->free_holds.next, &hold->node); /* reuse warm memory */
}

static shm_hold_t *hold_of(shm_iface_t *iface, const psrt_msg_t *msg)
{
    uint64_t handle = (uintptr_t)msg->impl;
    uint32_t index = (uint32_t)handle;
    if (index >= iface->hold_count) return NULL;
    shm_hold_t *hold = iface->holds[index];
    return hold->ep && hold->gen == (uint32_t)(handle >> 32) ? hold : NULL;
}

void psrti_shm_release(psrt_iface_t *iface_, psrt_msg_t *msg)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    shm_hold_t *hold = hold_of(iface, msg);
    if (hold) psrti_shm_hold_put(iface, hold);
}

psrt_status_t psrti_shm_verify(psrt_iface_t *iface_, const psrt_msg_t *msg)
{
    shm_hold_t *hold = hold_of((shm_iface_t *)iface_, msg);
    if (!hold) return PSRT_ERR_STALE;
    if (!hold->seg) return PSRT_OK;
    psrti_full_fence(); /* the payload was read before */
    return atomic_load_explicit(&hold->ep->peer->closed, memory_order_relaxed) ? PSRT_ERR_STALE
                                                                               : PSRT_OK;
}

/* ---- receiving -------------------------------------------------------------------------------- */

/* Hands the message up. Only from here on the endpoint may be closed or lost under our feet. */
static void deliver(shm_ep_t *ep, shm_hold_t *hold, psrt_msg_t *msg)
{
    shm_iface_t *iface = shm_iface_of(ep);
    uint32_t gen = hold->gen;
    hold->ep = ep;
    psrti_list_remove(&hold->node);
    psrti_list_push(&ep->holds, &hold->node);
    msg->ep = &ep->super;
    msg->impl = (void *)(uintptr_t)((uint64_t)gen << 32 | hold->index);
    psrt_rx_t rx = iface->params.on_msg(iface->super.arg, msg);
    if (rx == PSRT_RX_HOLD || hold->gen != gen) return;
    psrti_shm_hold_put(iface, hold);
    if (rx == PSRT_RX_BAD)
        psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "sent a message that makes no sense");
}

/* Decodes from a private copy: the peer can still write the ring. */
static bool header(shm_ep_t *ep, const uint8_t *body, uint64_t len, psrt_hdr_t *hdr)
{
    uint8_t copy[PSRTI_FRAME_BODY_BYTES];
    const char *why;
    uint64_t bytes;
    memcpy(copy, body, sizeof copy);
    if (psrti_frame_body_decode(copy, hdr, &why) == PSRT_OK) {
        why = "payload of another length than its header says";
        if (psrti_frame_payload(hdr, &bytes) == PSRT_OK && bytes == len) return true;
    }
    psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, why);
    return false;
}

static void recv_inline(shm_ep_t *ep, const shm_entry_t *entry)
{
    psrt_msg_t msg = { .len = entry->len };
    if (!header(ep, entry->at + 8, entry->len, &msg.hdr)) return;
    shm_hold_t *hold = hold_get(shm_iface_of(ep));
    if (!hold) {
        psrti_shm_ep_lose(ep, PSRT_ERR_NO_MEMORY, "out of memory for a message");
        return;
    }
    if (entry->len > 0) {
        memcpy(hold->eager, entry->at + SHM_ENTRY_HEAD, entry->len);
        msg.data = hold->eager;
    }
    psrti_shm_lane_skip(ep, entry);
    deliver(ep, hold, &msg);
}

/* Values are only added and copied, and may change under the reader without harm to it; everything
 * else is parsed, which is safe only in private memory. */
static bool is_values(const psrt_hdr_t *hdr)
{
    return hdr->type == PSRTI_T_PUSH || hdr->type == PSRTI_T_INIT || hdr->type == PSRTI_T_VALUE ||
           hdr->type == PSRTI_T_COLL; /* its other kinds are too small for a descriptor */
}

static shm_rseg_t *rseg_find(shm_ep_t *ep, uint32_t id)
{
    if (ep->last && ep->last_id == id) return ep->last;
    shm_rseg_t *rseg = psrti_map_get(&ep->rsegs, id);
    if (!rseg) {
        psrti_shm_sock_read(ep); /* the segment was passed before its first descriptor */
        if (ep->state != SHM_UP) return NULL;
        rseg = psrti_map_get(&ep->rsegs, id);
    }
    ep->last = rseg;
    ep->last_id = id;
    return rseg;
}

/* The mapped segment of a descriptor that is right in every respect, or NULL and the endpoint lost. */
static shm_rseg_t *desc_check(shm_ep_t *ep, const shm_desc_t *desc, uint8_t slot)
{
    shm_rseg_t *rseg = rseg_find(ep, desc->seg);
    const char *why = NULL;
    if (!rseg)
        why = "descriptor of an unknown segment";
    else if (desc->off > rseg->size || desc->len > rseg->size - desc->off)
        why = "descriptor outside of its segment";
    else if (desc->len <= SHM_EAGER || desc->len > shm_iface_of(ep)->params.max_message)
        why = "payload larger than PSRT_MAX_MESSAGE, or too small for a descriptor";
    else if (ep->busy[slot / 64] >> (slot % 64) & 1)
        why = "descriptor slot used twice";
    if (!why) return rseg;
    psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, why);
    return NULL;
}

static void closed_by_peer(shm_ep_t *ep)
{
    bool closed = atomic_load(&ep->peer->closed);
    ep->gone = true;
    psrti_shm_ep_lose(ep, PSRT_ERR_PEER_LOST, closed ? "closed the connection" : "died");
}

/* Returns the bytes of the payload. */
static uint64_t recv_desc(shm_ep_t *ep, const shm_entry_t *entry)
{
    shm_desc_t desc;
    memcpy(&desc, entry->at + SHM_ENTRY_HEAD, sizeof desc);
    psrt_msg_t msg = { .len = desc.len };
    if (!header(ep, entry->at + 8, desc.len, &msg.hdr)) return 0;
    shm_rseg_t *rseg = desc_check(ep, &desc, entry->slot);
    if (!rseg) return 0;
    psrti_shm_lane_skip(ep, entry);
    if (!psrti_shm_read_begin(ep, entry->slot)) { /* what follows would come after a gap */
        closed_by_peer(ep);
        return 0;
    }

    shm_hold_t *hold = hold_get(shm_iface_of(ep));
    void *copy = hold && !is_values(&msg.hdr) ? malloc(desc.len) : NULL;
    if (!hold || (!copy && !is_values(&msg.hdr))) {
        psrti_shm_ep_lose(ep, PSRT_ERR_NO_MEMORY, "out of memory for a message");
        return 0;
    }
    msg.data = rseg->base + desc.off;
    if (copy) {
        memcpy(copy, msg.data, desc.len);
        hold->copy = copy;
        msg.data = copy;
        psrti_shm_read_end(ep, entry->slot);
        psrti_shm_lane_retire(ep, entry->slot);
    } else {
        hold->seg = rseg;
        hold->slot = entry->slot;
        rseg->refs++;
        ep->busy[entry->slot / 64] |= 1ull << (entry->slot % 64);
    }
    deliver(ep, hold, &msg);
    return desc.len;
}

static void recv_free(shm_ep_t *ep, const shm_entry_t *entry)
{
    uint32_t id;
    memcpy(&id, entry->at + 8, sizeof id);
    psrti_shm_lane_skip(ep, entry);
    shm_rseg_t *rseg = rseg_find(ep, id);
    if (ep->state != SHM_UP) return;
    if (!rseg) {
        psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "freed an unknown segment");
        return;
    }
    ep->last = NULL;
    psrti_map_remove(&ep->rsegs, id);
    psrti_shm_rseg_unref(rseg);
}

/* A large payload is the last one of its turn: handling it takes so long that meanwhile the peer gives
 * back what it holds of ours, and waits for what we can send then. A peer that is gone has left a full lane at
 * most; one that says so and goes on writing gets no more. */
static unsigned recv_some(shm_ep_t *ep, bool over)
{
    unsigned budget = over ? SHM_UNITS : MESSAGES_PER_POLL, events = 0;
    uint64_t bytes = 0;
    for (; events < budget && (over || bytes < BYTES_PER_POLL); events++) {
        if (ep->state != SHM_UP) return events;
        shm_entry_t entry = psrti_shm_lane_peek(ep);
        switch (entry.kind) {
        case 0: return events;
        case SHM_INLINE: recv_inline(ep, &entry); break;
        case SHM_DESC: bytes += recv_desc(ep, &entry); break;
        case SHM_FREE: recv_free(ep, &entry); break;
        default: psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "damaged lane"); break;
        }
    }
    return events;
}

static unsigned retired_some(shm_ep_t *ep)
{
    unsigned events = 0;
    for (int slot; (slot = psrti_shm_lane_retired(ep)) != -1; events++) {
        if (slot < 0 || !psrti_shm_tx_retired(ep, (uint8_t)slot))
            psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "retired a message that was not sent");
        if (ep->state != SHM_UP) return events + 1;
    }
    return events;
}

/* The peer writes no more, or has closed. */
static bool is_over(const shm_ep_t *ep)
{
    return ep->gone || ep->failed == PSRT_ERR_PEER_LOST ||
           atomic_load_explicit(&ep->peer->closed, memory_order_acquire);
}

unsigned psrti_shm_ep_poll(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_iface_of(ep);
    if (ep->state == SHM_DIAL) {
        psrti_shm_dial(ep);
        return 1;
    }
    if (ep->state != SHM_UP) return 0;

    /* Read before the lane: what was sent before the end is delivered before the loss. */
    bool over = is_over(ep);
    unsigned events = retired_some(ep);
    events += recv_some(ep, over);
    if (ep->state != SHM_UP) return events;
    if (ep->failed != PSRT_OK && (over || ep->failed != PSRT_ERR_PEER_LOST)) {
        psrti_shm_ep_lose(ep, ep->failed, psrt_status_text(ep->failed));
    } else if (over) {
        closed_by_peer(ep);
    } else if (psrti_shm_ep_writable(ep)) {
        ep->blocked = false;
        iface->params.on_ep(iface->super.arg, &ep->super, PSRT_EP_WRITABLE, PSRT_OK);
    } else {
        return events;
    }
    return events + 1;
}
