/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc: between tasks (threads) of one process.
 *
 * Payloads up to 2 KiB travel inside the queue's node: the send is complete at once. Larger ones are
 * never copied: msg.data points into the sender's memory, and tx->done comes from the sender's
 * progress after the receiver returned DONE or called release.
 *
 * What ep_close guarantees to the owner of the payloads, as sender:
 *  - A payload that was not delivered yet never will be; the receiver gets the eager messages before
 *    it, then LOST, so that no message is left out of the order.
 *  - A receiver in another thread that is inside on_msg with a payload, or holds one, learns of the
 *    close (LOST), and close waits until it returned, released, or closed its side: about one turn
 *    of its progress. After CLOSE_WAIT_NS an error is logged, the message is marked stale, and close
 *    returns: nobody may sit in a callback or ignore LOST that long.
 *  - A holder in the same thread cannot act while close runs and is not waited for: the held message
 *    is marked stale, `verify` answers ERR_STALE, and its data must not be read any more.
 * As receiver, close gives everything back at once: the caller promises not to read on, and a later
 * release of a held message does nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/inproc/link.h"
#include "transport/transport.h"

#define DEFAULT_WINDOW (8u << 20)
#define PROGRESS_BUDGET 64u

typedef psrti_inproc_iface_t iface_t;
typedef psrti_inproc_side_t side_t;
typedef psrti_inproc_link_t link_t;

/* The one process-wide state: threads of one process find one another through it, and nothing else
 * is common to two contexts. The nonce keeps addresses of an earlier process with our pid away. */
static struct {
    pthread_mutex_t lock;
    psrti_list_t ifaces;
    uint64_t nonce, next_id;
} registry = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .ifaces = { &registry.ifaces, &registry.ifaces },
};

static iface_t *iface_of(psrt_iface_t *iface) { return PSRTI_CONTAINER_OF(iface, iface_t, base); }

/* iface.lock is held, as by every writer: the read cannot miss a write that set `signaled`. */
static void drain_event_fd(iface_t *iface)
{
    uint64_t count;
    if (!iface->signaled) return;
    iface->signaled = 0;
    if (read(iface->event_fd, &count, sizeof count) < 0)
        psrti_error("inproc task %u: event descriptor: %s", iface->params.task, strerror(errno));
}

static side_t *next_ready(iface_t *iface)
{
    pthread_mutex_lock(&iface->lock);
    iface->armed = 0;
    drain_event_fd(iface);
    psrti_list_t *entry = psrti_list_pop(&iface->inbox);
    pthread_mutex_unlock(&iface->lock);
    return entry ? PSRTI_LIST_ENTRY(entry, side_t, inbox_link) : NULL;
}

static unsigned inproc_progress(psrt_iface_t *base)
{
    iface_t *iface = iface_of(base);
    unsigned events = 0;
    side_t *side;
    while (events < PROGRESS_BUDGET && (side = next_ready(iface)))
        events += psrti_inproc_run(side, PSRTI_MIN(PROGRESS_BUDGET - events, PROGRESS_BUDGET / 4));
    return events;
}

/* ---- interfaces -------------------------------------------------------------------------------- */

static psrt_status_t inproc_probe(char *why, size_t why_size)
{
    if (why_size) why[0] = '\0';
    return PSRT_OK;
}

static psrt_status_t registry_add(iface_t *iface)
{
    psrt_status_t status = PSRT_OK;
    pthread_mutex_lock(&registry.lock);
    if (registry.nonce == 0 && getrandom(&registry.nonce, sizeof registry.nonce, 0) < 0)
        status = psrti_fail(PSRT_ERR_IO, "inproc: no random numbers: %s", strerror(errno));
    if (status == PSRT_OK) {
        iface->id = ++registry.next_id;
        psrti_list_push(&registry.ifaces, &iface->registry_link);
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

static psrt_status_t inproc_iface_open(const psrt_iface_params_t *params, psrt_iface_t **iface_p)
{
    iface_t *iface = calloc(1, sizeof *iface);
    if (!iface) return psrti_fail(PSRT_ERR_NO_MEMORY, "inproc: no memory for an interface");
    iface->params = *params;
    if (iface->params.window == 0) iface->params.window = DEFAULT_WINDOW;
    if (iface->params.max_message == 0) iface->params.max_message = UINT64_MAX;
    iface->base.ops = &psrti_transport_inproc;
    iface->base.arg = params->arg;
    psrti_list_init(&iface->eps);
    psrti_list_init(&iface->inbox);
    iface->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (iface->event_fd < 0) {
        int err = errno;
        free(iface);
        return psrti_fail(err == EMFILE || err == ENFILE ? PSRT_ERR_LIMIT : PSRT_ERR_IO,
                          "inproc: no event descriptor: %s", strerror(err));
    }
    pthread_mutex_init(&iface->lock, NULL);
    psrt_status_t status = registry_add(iface); /* others may dial from here on */
    if (status != PSRT_OK) {
        pthread_mutex_destroy(&iface->lock);
        close(iface->event_fd);
        free(iface);
        return status;
    }
    *iface_p = &iface->base;
    return PSRT_OK;
}

static void inproc_iface_close(psrt_iface_t *base)
{
    iface_t *iface = iface_of(base);
    pthread_mutex_lock(&registry.lock); /* nobody dials from here on */
    psrti_list_remove(&iface->registry_link);
    pthread_mutex_unlock(&registry.lock);
    iface->close_until = psrti_now_ns() + PSRTI_INPROC_CLOSE_WAIT_NS;
    /* First give back everything, then wait for others: two interfaces may close at one time. */
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->eps)
    {
        psrti_inproc_give_back(PSRTI_LIST_ENTRY(it, side_t, ep_link));
    }
    while (!psrti_list_empty(&iface->eps))
        psrti_inproc_ep_close(&PSRTI_LIST_ENTRY(iface->eps.next, side_t, ep_link)->base);
    side_t *side; /* what is left in the inbox was never accepted */
    while ((side = next_ready(iface)))
        psrti_inproc_drop_incoming(side, PSRT_ERR_REFUSED);
    psrti_map_clear(&iface->received);
    pthread_mutex_destroy(&iface->lock);
    close(iface->event_fd);
    free(iface);
}

static psrt_status_t inproc_iface_addr(psrt_iface_t *base, char *addr, size_t size)
{
    size_t pos = 0;
    return psrti_append(addr, size, &pos, "inproc:%d:%016" PRIx64 ":%" PRIu64, (int)getpid(),
                        registry.nonce, iface_of(base)->id);
}

/* Is this an address of this process? Gives the interface's number. */
static int parse_addr(const char *addr, uint64_t *id_p)
{
    int pid, end = 0;
    uint64_t nonce;
    if (sscanf(addr, "inproc:%d:%16" SCNx64 ":%20" SCNu64 "%n", &pid, &nonce, id_p, &end) != 3)
        return 0;
    return addr[end] == '\0' && pid == (int)getpid() && nonce == registry.nonce;
}

static int inproc_reachable(psrt_iface_t *base, const char *addr)
{
    uint64_t id;
    (void)base;
    return parse_addr(addr, &id);
}

/* registry.lock is held. */
static iface_t *find_listener(uint64_t id)
{
    PSRTI_LIST_FOREACH_SAFE(it, next, &registry.ifaces)
    {
        iface_t *iface = PSRTI_LIST_ENTRY(it, iface_t, registry_link);
        if (iface->id == id) return iface->params.listen ? iface : NULL;
    }
    return NULL;
}

static psrt_status_t inproc_ep_open(psrt_iface_t *base, const char *addr, psrt_ep_t **ep_p)
{
    iface_t *iface = iface_of(base);
    uint64_t id;
    if (!parse_addr(addr, &id))
        return psrti_fail(PSRT_ERR_UNREACHABLE, "inproc: %s is no address of this process", addr);

    pthread_mutex_lock(&registry.lock); /* keeps the acceptor open until it has been posted to */
    iface_t *acceptor = find_listener(id);
    link_t *link = psrti_inproc_link_new(iface, acceptor ? acceptor : iface);
    if (link) {
        pthread_mutex_lock(&link->lock);
        if (acceptor) {
            psrti_inproc_post(&link->side[1]);
        } else {
            link->side[1].closed = 1;
            atomic_store(&link->refs, 1);
            psrti_inproc_lose(&link->side[0], PSRT_ERR_REFUSED);
        }
        psrti_list_push(&iface->eps, &link->side[0].ep_link);
        *ep_p = &link->side[0].base;
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&registry.lock);
    return link ? PSRT_OK : psrti_fail(PSRT_ERR_NO_MEMORY, "inproc: no memory for an endpoint");
}

static psrt_status_t inproc_arm(psrt_iface_t *base)
{
    iface_t *iface = iface_of(base);
    pthread_mutex_lock(&iface->lock);
    drain_event_fd(iface);
    iface->armed = psrti_list_empty(&iface->inbox);
    psrt_status_t status = iface->armed ? PSRT_OK : PSRT_ERR_BUSY;
    pthread_mutex_unlock(&iface->lock);
    return status;
}

static int inproc_wait_fd(psrt_iface_t *base) { return iface_of(base)->event_fd; }

const psrt_transport_ops_t psrti_transport_inproc = {
    .size = sizeof(psrt_transport_ops_t),
    .name = "inproc",
    .caps = PSRT_TRANSPORT_CAP_SAME_PROCESS | PSRT_TRANSPORT_CAP_ZERO_COPY,
    .score = 300,
    .probe = inproc_probe,
    .iface_open = inproc_iface_open,
    .iface_close = inproc_iface_close,
    .iface_addr = inproc_iface_addr,
    .reachable = inproc_reachable,
    .ep_open = inproc_ep_open,
    .ep_close = psrti_inproc_ep_close,
    .send = psrti_inproc_send,
    .release = psrti_inproc_release,
    .progress = inproc_progress,
    .arm = inproc_arm,
    .wait_fd = inproc_wait_fd,
    .verify = psrti_inproc_verify,
};
