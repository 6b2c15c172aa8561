/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: an interface owns one of the inner transport, an endpoint one inner endpoint.
 *
 * What is kept back is copied, header and payload, so that no memory of the user is touched after
 * its tx was done; copies of an endpoint that ended are dropped. The random numbers belong to an
 * interface and depend on the seed, the task and the number of interfaces opened before, so that a
 * run whose interfaces are opened and used in the same order meets the same faults.
 */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/util.h"
#include "transport/fault/fault.h"
#include "transport/frame.h"

#define KEPT_MAX 64u   /* copies an interface keeps back; above, frames pass untouched */
#define DELAY_MAX 16u  /* a delayed frame waits 1 .. DELAY_MAX progress calls */
#define REORDER_MAX 8u /* a reordered frame waits for the next of its endpoint, at most so many */

typedef psrti_fault_t fault_t;
typedef psrti_fault_kind_t fault_kind_t;

typedef struct fault_iface {
    psrt_iface_t base;
    fault_t *fault;
    psrt_iface_t *inner;
    psrt_iface_params_t params; /* the user's callbacks */
    uint64_t random, calls;     /* state of the generator; progress calls so far */
    psrti_list_t eps;
    psrti_list_t kept; /* frames kept back, both directions, oldest first */
    unsigned kept_count;
    psrti_map_t received; /* id -> record of a message being delivered or held */
    uint64_t next_id;
    int work; /* an endpoint ended: progress has to tell, or to close the inner one */
} fault_iface_t;

typedef struct fault_ep {
    psrt_ep_t base;
    psrt_ep_t *inner; /* NULL once closed */
    psrti_list_t link;
    psrti_list_t records;
    unsigned held;     /* messages of the inner endpoint that the user holds */
    psrt_status_t end; /* not OK: ended, or cut; nothing passes any more */
    int up, lost_told;
} fault_ep_t;

/* A copy of a frame that is delivered (or sent) later. */
typedef struct frame {
    psrti_list_t link;
    fault_ep_t *ep;
    psrt_hdr_t hdr;
    int outgoing;
    int after_next;    /* due as soon as another frame of the endpoint passed */
    uint64_t due;      /* progress call */
    psrt_tx_t tx;      /* of the copy, outgoing */
    fault_iface_t *in; /* where to uncount it */
    uint64_t len;
    uint8_t data[];
} frame_t;

/* What a message given to the user came from. */
typedef struct record {
    psrti_list_t link; /* of the endpoint's records */
    psrt_msg_t inner;  /* as the inner transport gave it */
    frame_t *copy;     /* not NULL: private, delivered by us */
    fault_ep_t *ep;
    uint64_t id;
} record_t;

static fault_iface_t *iface_of(psrt_iface_t *iface)
{
    return PSRTI_CONTAINER_OF(iface, fault_iface_t, base);
}

static fault_ep_t *ep_of(psrt_ep_t *ep) { return PSRTI_CONTAINER_OF(ep, fault_ep_t, base); }

/* ---- dice -------------------------------------------------------------------------------------- */

static uint64_t next_random(fault_iface_t *iface) { return psrti_mix64(iface->random++); }

static double next_unit(fault_iface_t *iface)
{
    return (double)(next_random(iface) >> 11) * 0x1p-53;
}

/* What happens to this frame. Counting is left to whoever does it. */
static fault_kind_t roll(fault_iface_t *iface, const psrt_hdr_t *hdr)
{
    const fault_t *fault = iface->fault;
    if (hdr->type == PSRTI_T_HELLO || hdr->type == PSRTI_T_WELCOME) return PSRTI_FAULT_NONE;
    if (hdr->type == PSRTI_T_CTRL && !fault->ctrl) return PSRTI_FAULT_NONE;
    double u = next_unit(iface);
    if (u < fault->cut) return u < fault->cut / 2 ? PSRTI_FAULT_CUT_BEFORE : PSRTI_FAULT_CUT_AFTER;
    u -= fault->cut;
    if (u < fault->drop) return PSRTI_FAULT_DROP;
    if (iface->kept_count >= KEPT_MAX) return PSRTI_FAULT_NONE;
    u -= fault->drop;
    if (u < fault->dup) return PSRTI_FAULT_DUP;
    u -= fault->dup;
    if (u < fault->reorder) return PSRTI_FAULT_REORDER;
    u -= fault->reorder;
    return u < fault->delay ? PSRTI_FAULT_DELAY : PSRTI_FAULT_NONE;
}

static void count(fault_iface_t *iface, fault_kind_t kind)
{
    atomic_fetch_add_explicit(&iface->fault->counts[kind], 1, memory_order_relaxed);
}

/* ---- frames kept back -------------------------------------------------------------------------- */

static void frame_free(frame_t *frame)
{
    psrti_list_remove(&frame->link);
    frame->in->kept_count--;
    free(frame);
}

static void frame_sent(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* the user's tx is long done */
    free(PSRTI_CONTAINER_OF(tx, frame_t, tx));
}

/* Keeps a copy; 0 without memory, and then the frame passes untouched. */
static int keep(fault_iface_t *iface, fault_ep_t *ep, const psrt_hdr_t *hdr, const void *data,
                uint64_t len, fault_kind_t kind, int outgoing)
{
    frame_t *frame = malloc(sizeof *frame + len);
    if (!frame) return 0;
    *frame = (frame_t){ .ep = ep, .hdr = *hdr, .outgoing = outgoing, .in = iface, .len = len };
    if (len) memcpy(frame->data, data, len);
    frame->tx.done = frame_sent;
    frame->after_next = kind == PSRTI_FAULT_REORDER;
    frame->due = iface->calls + 1;
    if (kind == PSRTI_FAULT_DELAY) frame->due += next_random(iface) % DELAY_MAX;
    if (kind == PSRTI_FAULT_REORDER) frame->due += REORDER_MAX;
    psrti_list_push(&iface->kept, &frame->link);
    iface->kept_count++;
    return 1;
}

/* Another frame of the endpoint passed: what it was swapped with is due. */
static void passed(fault_iface_t *iface, const fault_ep_t *ep, int outgoing)
{
    if (iface->kept_count == 0) return;
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->kept)
    {
        frame_t *frame = PSRTI_LIST_ENTRY(it, frame_t, link);
        if (frame->ep == ep && frame->outgoing == outgoing && frame->after_next)
            frame->due = iface->calls;
    }
}

static void drop_kept(fault_iface_t *iface, const fault_ep_t *ep)
{
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->kept)
    {
        frame_t *frame = PSRTI_LIST_ENTRY(it, frame_t, link);
        if (frame->ep == ep) frame_free(frame);
    }
}

/* ---- receiving --------------------------------------------------------------------------------- */

static void record_free(fault_iface_t *iface, record_t *record)
{
    psrti_map_remove(&iface->received, record->id);
    psrti_list_remove(&record->link);
    free(record->copy);
    free(record);
}

/* Gives a message to the user. `copy` is NULL, or a private frame that the record owns from here. */
static psrt_rx_t give(fault_iface_t *iface, fault_ep_t *ep, const psrt_msg_t *inner, frame_t *copy)
{
    record_t *record = malloc(sizeof *record);
    uint64_t id = ++iface->next_id;
    if (!record || psrti_map_put(&iface->received, id, record) != PSRT_OK) {
        psrti_error("%s: out of memory for a message", iface->fault->name);
        free(record);
        free(copy);
        return PSRT_RX_BAD;
    }
    *record = (record_t){ .inner = *inner, .copy = copy, .ep = ep, .id = id };
    psrti_list_push(&ep->records, &record->link);
    psrt_msg_t msg = *inner;
    msg.ep = &ep->base;
    msg.impl = (void *)(uintptr_t)id;
    if (!copy) ep->held++; /* release may come before on_msg returns */
    psrt_rx_t verdict = iface->params.on_msg(iface->params.arg, &msg);
    record = psrti_map_get(&iface->received, id);
    /* The user released it, or closed the endpoint, which then is gone. */
    if (!record) return verdict == PSRT_RX_HOLD ? PSRT_RX_HOLD : PSRT_RX_DONE;
    if (verdict == PSRT_RX_HOLD) return verdict;
    if (!copy) ep->held--;
    record_free(iface, record);
    return verdict;
}

/* Readable payload of an inner message, NULL if it was withdrawn. */
static const void *payload(fault_iface_t *iface, psrt_msg_t *msg)
{
    const psrt_transport_ops_t *inner = iface->fault->inner;
    const void *data = msg->data;
    if (msg->len == 0) return "";
    if (!data && (!inner->map || inner->map(iface->inner, msg, &data) != PSRT_OK)) return NULL;
    return data;
}

/* Copies an incoming frame; 0 if that is not possible. */
static int keep_incoming(fault_iface_t *iface, fault_ep_t *ep, psrt_msg_t *msg, fault_kind_t kind)
{
    const psrt_transport_ops_t *inner = iface->fault->inner;
    const void *data = payload(iface, msg);
    if (!data || !keep(iface, ep, &msg->hdr, data, msg->len, kind, 0)) return 0;
    if (!inner->verify || inner->verify(iface->inner, msg) == PSRT_OK) {
        count(iface, kind);
        return 1;
    }
    frame_free(PSRTI_LIST_ENTRY(iface->kept.prev, frame_t, link)); /* torn: the user shall see it */
    return 0;
}

static void end(fault_iface_t *iface, fault_ep_t *ep, psrt_status_t status)
{
    if (ep->end == PSRT_OK) ep->end = status;
    iface->work = 1;
}

static psrt_rx_t on_msg(void *arg, psrt_msg_t *msg)
{
    fault_iface_t *iface = arg;
    fault_ep_t *ep = msg->ep->user;
    if (ep->end != PSRT_OK) return PSRT_RX_DONE;
    fault_kind_t kind = roll(iface, &msg->hdr);
    switch (kind) {
    case PSRTI_FAULT_DROP: count(iface, kind); return PSRT_RX_DONE;
    case PSRTI_FAULT_CUT_BEFORE:
    case PSRTI_FAULT_CUT_AFTER:
        count(iface, kind);
        end(iface, ep, PSRT_ERR_PEER_LOST);
        if (kind == PSRTI_FAULT_CUT_BEFORE) return PSRT_RX_DONE;
        break;
    case PSRTI_FAULT_DELAY:
    case PSRTI_FAULT_REORDER:
        if (keep_incoming(iface, ep, msg, kind)) return PSRT_RX_DONE;
        break;
    case PSRTI_FAULT_DUP: keep_incoming(iface, ep, msg, kind); break;
    case PSRTI_FAULT_NONE: break;
    }
    passed(iface, ep, 0);
    return give(iface, ep, msg, NULL);
}

/* ---- endpoints --------------------------------------------------------------------------------- */

static fault_ep_t *ep_new(fault_iface_t *iface, psrt_ep_t *inner)
{
    fault_ep_t *ep = calloc(1, sizeof *ep);
    if (!ep) return NULL;
    ep->base.iface = &iface->base;
    ep->inner = inner;
    inner->user = ep;
    psrti_list_init(&ep->records);
    psrti_list_push(&iface->eps, &ep->link);
    return ep;
}

static void on_ep(void *arg, psrt_ep_t *inner, psrt_ep_event_t event, psrt_status_t status)
{
    fault_iface_t *iface = arg;
    fault_ep_t *ep = inner->user;
    if (!ep && !(ep = ep_new(iface, inner))) {
        psrti_error("%s: out of memory for an endpoint", iface->fault->name);
        iface->fault->inner->ep_close(inner);
        return;
    }
    if (event == PSRT_EP_UP) ep->up = 1;
    if (event == PSRT_EP_LOST)
        end(iface, ep, status);
    else if (ep->end == PSRT_OK)
        iface->params.on_ep(iface->params.arg, &ep->base, event, status);
}

static psrt_status_t fault_ep_open(psrt_iface_t *base, const char *addr, psrt_ep_t **ep_p)
{
    fault_iface_t *iface = iface_of(base);
    psrt_ep_t *inner;
    psrt_status_t status = iface->fault->inner->ep_open(iface->inner, addr, &inner);
    if (status != PSRT_OK) return status;
    fault_ep_t *ep = ep_new(iface, inner);
    if (!ep) {
        iface->fault->inner->ep_close(inner);
        return psrti_fail(PSRT_ERR_NO_MEMORY, "fault: no memory for an endpoint");
    }
    *ep_p = &ep->base;
    return PSRT_OK;
}

/* What is common to the end of one endpoint and of the interface. */
static void ep_free(fault_iface_t *iface, fault_ep_t *ep)
{
    drop_kept(iface, ep);
    while (!psrti_list_empty(&ep->records))
        record_free(iface, PSRTI_LIST_ENTRY(ep->records.next, record_t, link));
    psrti_list_remove(&ep->link);
    free(ep);
}

static void fault_ep_close(psrt_ep_t *base)
{
    fault_ep_t *ep = ep_of(base);
    fault_iface_t *iface = iface_of(base->iface);
    if (ep->inner) iface->fault->inner->ep_close(ep->inner);
    ep_free(iface, ep);
}

static fault_ep_t *find_ended(fault_iface_t *iface)
{
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->eps)
    {
        fault_ep_t *ep = PSRTI_LIST_ENTRY(it, fault_ep_t, link);
        if (ep->end == PSRT_OK) continue;
        if (!ep->lost_told || (ep->inner && ep->held == 0)) return ep;
    }
    return NULL;
}

/* Tells LOST, then closes the inner endpoint so that the peer notices: as soon as the user holds
 * nothing of it, for held memory must stay readable. Callbacks may change the list. */
static unsigned finish_ended(fault_iface_t *iface)
{
    unsigned events = 0;
    fault_ep_t *ep;
    if (!iface->work) return 0;
    iface->work = 0;
    while ((ep = find_ended(iface))) {
        events++;
        if (!ep->lost_told) {
            ep->lost_told = 1;
            drop_kept(iface, ep);
            iface->params.on_ep(iface->params.arg, &ep->base, PSRT_EP_LOST, ep->end);
        } else {
            psrt_ep_t *inner = ep->inner;
            ep->inner = NULL;
            iface->fault->inner->ep_close(inner);
        }
    }
    return events;
}

/* ---- sending ----------------------------------------------------------------------------------- */

static psrt_status_t fault_send(psrt_ep_t *base, const psrt_hdr_t *hdr, const void *data,
                                uint64_t len, uint32_t flags, psrt_tx_t *tx)
{
    fault_ep_t *ep = ep_of(base);
    fault_iface_t *iface = iface_of(base->iface);
    if (ep->end != PSRT_OK) return ep->end;
    fault_kind_t kind = ep->up ? roll(iface, hdr) : PSRTI_FAULT_NONE;
    switch (kind) {
    case PSRTI_FAULT_DROP: count(iface, kind); return PSRT_OK;
    case PSRTI_FAULT_CUT_BEFORE:
        count(iface, kind);
        end(iface, ep, PSRT_ERR_PEER_LOST);
        return PSRT_ERR_PEER_LOST;
    case PSRTI_FAULT_DELAY:
    case PSRTI_FAULT_REORDER:
        if (!keep(iface, ep, hdr, data, len, kind, 1)) break;
        count(iface, kind);
        return PSRT_OK;
    default: break;
    }
    psrt_status_t status = iface->fault->inner->send(ep->inner, hdr, data, len, flags, tx);
    if (status < 0) return status;
    passed(iface, ep, 1);
    if (kind == PSRTI_FAULT_DUP && keep(iface, ep, hdr, data, len, kind, 1)) count(iface, kind);
    if (kind == PSRTI_FAULT_CUT_AFTER) {
        count(iface, kind);
        end(iface, ep, PSRT_ERR_PEER_LOST);
    }
    return status;
}

/* The frame stays in its list if there is no room. */
static void send_kept(fault_iface_t *iface, frame_t *frame)
{
    psrt_status_t status = iface->fault->inner->send(frame->ep->inner, &frame->hdr, frame->data,
                                                     frame->len, 0, &frame->tx);
    if (status == PSRT_ERR_AGAIN) {
        frame->due = iface->calls + 1;
        return;
    }
    psrti_list_remove(&frame->link);
    iface->kept_count--;
    if (status != PSRT_IN_PROGRESS) free(frame); /* else frame_sent does */
}

static void give_kept(fault_iface_t *iface, frame_t *frame)
{
    fault_ep_t *ep = frame->ep;
    psrt_msg_t msg = { .hdr = frame->hdr, .len = frame->len, .ep = &ep->base };
    msg.data = frame->len ? frame->data : NULL;
    psrti_list_remove(&frame->link);
    iface->kept_count--;
    if (give(iface, ep, &msg, frame) == PSRT_RX_BAD) end(iface, ep, PSRT_ERR_PROTOCOL);
}

static frame_t *find_due(fault_iface_t *iface)
{
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->kept)
    {
        frame_t *frame = PSRTI_LIST_ENTRY(it, frame_t, link);
        if (frame->due <= iface->calls && frame->ep->end == PSRT_OK) return frame;
    }
    return NULL;
}

static unsigned fault_progress(psrt_iface_t *base)
{
    fault_iface_t *iface = iface_of(base);
    unsigned events = iface->fault->inner->progress(iface->inner);
    frame_t *frame;
    iface->calls++;
    while ((frame = find_due(iface))) { /* callbacks may change the list */
        events++;
        if (frame->outgoing)
            send_kept(iface, frame);
        else
            give_kept(iface, frame);
    }
    return events + finish_ended(iface);
}

/* ---- held messages ----------------------------------------------------------------------------- */

static void fault_release(psrt_iface_t *base, psrt_msg_t *msg)
{
    fault_iface_t *iface = iface_of(base);
    record_t *record = psrti_map_get(&iface->received, (uintptr_t)msg->impl);
    if (!record) return; /* its endpoint was closed */
    if (!record->copy) {
        iface->fault->inner->release(iface->inner, &record->inner);
        if (--record->ep->held == 0 && record->ep->end != PSRT_OK) iface->work = 1;
    }
    record_free(iface, record);
}

static psrt_status_t fault_map(psrt_iface_t *base, psrt_msg_t *msg, const void **ptr_p)
{
    fault_iface_t *iface = iface_of(base);
    record_t *record = psrti_map_get(&iface->received, (uintptr_t)msg->impl);
    if (!record) return PSRT_ERR_STALE;
    return iface->fault->inner->map(iface->inner, &record->inner, ptr_p);
}

static psrt_status_t fault_verify(psrt_iface_t *base, const psrt_msg_t *msg)
{
    fault_iface_t *iface = iface_of(base);
    record_t *record = psrti_map_get(&iface->received, (uintptr_t)msg->impl);
    if (!record) return PSRT_ERR_STALE;
    return record->copy ? PSRT_OK : iface->fault->inner->verify(iface->inner, &record->inner);
}

/* ---- interfaces -------------------------------------------------------------------------------- */

psrt_status_t psrti_fault_iface_open(fault_t *fault, const psrt_iface_params_t *params,
                                     psrt_iface_t **iface_p)
{
    fault_iface_t *iface = calloc(1, sizeof *iface);
    if (!iface) return psrti_fail(PSRT_ERR_NO_MEMORY, "fault: no memory for an interface");
    psrt_iface_params_t mine = *params;
    mine.on_msg = on_msg;
    mine.on_ep = on_ep;
    mine.arg = iface;
    iface->base.ops = &fault->ops;
    iface->base.arg = params->arg;
    iface->fault = fault;
    iface->params = *params;
    psrti_list_init(&iface->eps);
    psrti_list_init(&iface->kept);
    uint64_t nth = atomic_fetch_add(&fault->opened, 1);
    iface->random = psrti_mix64(fault->seed ^ psrti_mix64((uint64_t)params->task << 32 | nth));
    psrt_status_t status = fault->inner->iface_open(&mine, &iface->inner);
    if (status != PSRT_OK) {
        free(iface);
        return status;
    }
    *iface_p = &iface->base;
    return PSRT_OK;
}

static void fault_iface_close(psrt_iface_t *base)
{
    fault_iface_t *iface = iface_of(base);
    iface->fault->inner->iface_close(iface->inner);
    while (!psrti_list_empty(&iface->eps))
        ep_free(iface, PSRTI_LIST_ENTRY(iface->eps.next, fault_ep_t, link));
    psrti_map_clear(&iface->received);
    free(iface);
}

static psrt_status_t fault_iface_addr(psrt_iface_t *base, char *addr, size_t size)
{
    fault_iface_t *iface = iface_of(base);
    return iface->fault->inner->iface_addr(iface->inner, addr, size);
}

static int fault_reachable(psrt_iface_t *base, const char *addr)
{
    fault_iface_t *iface = iface_of(base);
    return iface->fault->inner->reachable(iface->inner, addr);
}

static psrt_status_t fault_arm(psrt_iface_t *base)
{
    fault_iface_t *iface = iface_of(base);
    if (iface->kept_count || iface->work) return PSRT_ERR_BUSY;
    return iface->fault->inner->arm(iface->inner);
}

static int fault_wait_fd(psrt_iface_t *base)
{
    fault_iface_t *iface = iface_of(base);
    return iface->fault->inner->wait_fd(iface->inner);
}

static psrt_status_t fault_mem_alloc(psrt_iface_t *base, uint64_t bytes, void **ptr_p)
{
    fault_iface_t *iface = iface_of(base);
    return iface->fault->inner->mem_alloc(iface->inner, bytes, ptr_p);
}

static void fault_mem_free(psrt_iface_t *base, void *ptr)
{
    fault_iface_t *iface = iface_of(base);
    iface->fault->inner->mem_free(iface->inner, ptr);
}

static uint64_t fault_untaken(psrt_iface_t *base)
{
    fault_iface_t *iface = iface_of(base);
    return iface->fault->inner->untaken(iface->inner);
}

void psrti_fault_fill_ops(fault_t *fault)
{
    const psrt_transport_ops_t *inner = fault->inner;
    psrt_transport_ops_t *ops = &fault->ops;
    ops->size = sizeof *ops;
    ops->iface_close = fault_iface_close;
    ops->iface_addr = fault_iface_addr;
    ops->reachable = fault_reachable;
    ops->ep_open = fault_ep_open;
    ops->ep_close = fault_ep_close;
    ops->send = fault_send;
    ops->release = fault_release;
    ops->progress = fault_progress;
    ops->arm = fault_arm;
    ops->wait_fd = fault_wait_fd;
    if (inner->mem_alloc) ops->mem_alloc = fault_mem_alloc;
    if (inner->mem_free) ops->mem_free = fault_mem_free;
    if (inner->map) ops->map = fault_map;
    if (inner->verify) ops->verify = fault_verify;
    if (inner->untaken) ops->untaken = fault_untaken;
}
