/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the shared-memory transport: interfaces, progress, sleeping. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfd.h"
#include "base/topology.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

#define EVENTS_PER_CALL 32
#define SWEEPS 4       /* over the lanes in one turn, at most */
#define QUIET_CALLS 64 /* the sockets are looked at after so many calls that found nothing */

/* ---- probe ------------------------------------------------------------------------------------ */

static psrt_status_t shm_probe(char *why, size_t why_size)
{
    if (access("/proc/self/fd", X_OK) != 0) {
        snprintf(why, why_size, "/proc is not mounted");
        return PSRT_ERR_UNSUPPORTED;
    }
    int fd;
    void *base = NULL;
    psrt_status_t status = psrti_memfd_create(4096, false, &fd, &base);
    if (status != PSRT_OK) {
        snprintf(why, why_size, "%s", psrt_last_error());
        return status;
    }
    munmap(base, 4096);
    close(fd);
    return PSRT_OK;
}

/* ---- interface -------------------------------------------------------------------------------- */

static void shm_iface_close(psrt_iface_t *iface_)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    iface->in_progress = true; /* endpoints are freed below, not while they are counted */
    for (uint32_t i = 0; i < iface->ep_count; i++)
        psrti_shm_ep_close(&iface->eps[i]->super);
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        psrti_shm_ep_linger_end(iface->eps[i]);
        psrti_shm_ep_free(iface->eps[i]);
    }
    iface->ep_count = 0;
    psrti_shm_segs_destroy(iface);
    psrti_shm_listen_close(iface);
    if (iface->epoll_fd >= 0) close(iface->epoll_fd);
    for (uint32_t i = 0; i < iface->hold_count; i++)
        free(iface->holds[i]);
    free(iface->holds);
    free(iface->eps);
    free(iface);
}

static psrt_status_t shm_iface_open(const psrt_iface_params_t *params, psrt_iface_t **iface_p)
{
    shm_iface_t *iface = calloc(1, sizeof *iface);
    if (!iface) return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
    iface->super.ops = &psrti_transport_shm;
    iface->super.arg = params->arg;
    memcpy(&iface->params, params, PSRTI_MIN(params->size, sizeof iface->params));
    if (params->job_nonce) memcpy(iface->nonce, params->job_nonce, sizeof iface->nonce);
    if (iface->params.max_message == 0) iface->params.max_message = 64ull << 20;
    if (iface->params.arena == 0) iface->params.arena = 16ull << 20;
    if (iface->params.window == 0) iface->params.window = 4ull << 20;
    iface->dir_fd = iface->listen_fd = iface->spare_fd = -1;
    iface->host = psrti_shm_host_id();
    iface->cores = psrti_topology_cores(NULL);
    psrti_list_init(&iface->free_holds);

    psrt_status_t status = PSRT_OK;
    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (iface->epoll_fd < 0)
        status = psrti_fail(errno == EMFILE ? PSRT_ERR_LIMIT : PSRT_ERR_IO,
                            "shm: epoll: %s (RLIMIT_NOFILE, ulimit -n)", strerror(errno));
    if (status == PSRT_OK) status = psrti_shm_dir_open(iface);
    if (status == PSRT_OK && params->listen) status = psrti_shm_listen(iface);
    if (status != PSRT_OK) {
        shm_iface_close(&iface->super);
        return status;
    }
    *iface_p = &iface->super;
    return PSRT_OK;
}

static psrt_status_t shm_iface_addr(psrt_iface_t *iface_, char *addr, size_t size)
{
    const shm_iface_t *iface = (const shm_iface_t *)iface_;
    if (!iface->name[0]) return psrti_fail(PSRT_ERR_INVALID, "shm: the interface does not listen");
    int n = snprintf(addr, size, "shm:%016llx:%s", (unsigned long long)iface->host, iface->name);
    return n > 0 && (size_t)n < size ? PSRT_OK : psrti_fail(PSRT_ERR_INVALID, "shm: short buffer");
}

static int shm_reachable(psrt_iface_t *iface_, const char *addr)
{
    const shm_iface_t *iface = (const shm_iface_t *)iface_;
    uint64_t host;
    char name[40];
    if (!psrti_shm_addr_parse(addr, &host, name)) return 0;
    return host == iface->host && faccessat(iface->dir_fd, name, F_OK, 0) == 0;
}

static psrt_status_t shm_ep_open(psrt_iface_t *iface_, const char *addr, psrt_ep_t **ep_p)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    uint64_t host;
    char name[40];
    if (!psrti_shm_addr_parse(addr, &host, name))
        return psrti_fail(PSRT_ERR_INVALID, "shm: address '%.100s' is not shm:HOST:NAME", addr);
    if (host != iface->host)
        return psrti_fail(PSRT_ERR_UNREACHABLE,
                          "shm: %s is on another host or in another container", addr);
    shm_ep_t *ep = psrti_shm_ep_new(iface, SHM_DIAL);
    if (!ep) return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
    memcpy(ep->name, name, sizeof ep->name);
    *ep_p = &ep->super;
    return PSRT_OK;
}

/* ---- progress --------------------------------------------------------------------------------- */

static void on_event(shm_iface_t *iface, const struct epoll_event *event)
{
    shm_ep_t *ep = (shm_ep_t *)(uintptr_t)(event->data.u64 & ~1ull);
    if (!ep) {
        psrti_shm_accept(iface);
    } else if (ep->state == SHM_DEAD || ep->state == SHM_LOST) {
        return; /* an earlier event of this batch ended it */
    } else if (event->data.u64 & 1) {
        ep->gone = true; /* the process is dead */
        if (ep->state < SHM_UP) psrti_shm_ep_lose(ep, PSRT_ERR_REFUSED, "died in the handshake");
        if (ep->state == SHM_LINGER) psrti_shm_ep_linger_end(ep);
    } else {
        if (event->events & EPOLLOUT) {
            struct epoll_event in = { .events = EPOLLIN, .data.u64 = (uintptr_t)ep };
            epoll_ctl(iface->epoll_fd, EPOLL_CTL_MOD, ep->sock, &in);
            ep->sock_full = false;
        }
        if (event->events & ~(uint32_t)EPOLLOUT) psrti_shm_sock_read(ep);
    }
}

static unsigned poll_sockets(shm_iface_t *iface)
{
    struct epoll_event events[EVENTS_PER_CALL];
    iface->quiet = 0;
    int n = epoll_wait(iface->epoll_fd, events, EVENTS_PER_CALL, 0);
    for (int i = 0; i < n; i++)
        on_event(iface, &events[i]);
    return n > 0 ? (unsigned)n : 0;
}

/* A connection that says nothing does not keep its descriptor for ever. */
static void drop_silent(shm_iface_t *iface)
{
    uint64_t now = psrti_now_ns();
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        shm_ep_t *ep = iface->eps[i];
        if ((ep->state == SHM_HELLO || ep->state == SHM_READY) && now > ep->deadline_ns)
            psrti_shm_ep_lose(ep, PSRT_ERR_TIMEOUT, "no handshake in time");
    }
}

/* A system call in each idle poll would cost more than the poll, so the sockets are looked at after
 * sleeping, while connecting, after QUIET_CALLS, or when the coarse clock ticked (1 to 10 ms). */
static bool sockets_due(shm_iface_t *iface, bool slept)
{
    if (slept || iface->connecting > 0 || ++iface->quiet >= QUIET_CALLS) return true;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t tick = (uint64_t)now.tv_sec * PSRTI_NS_PER_S + (uint64_t)now.tv_nsec;
    if (tick == iface->tick) return false;
    iface->tick = tick;
    return true;
}

void psrti_shm_reap(shm_iface_t *iface)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        shm_ep_t *ep = iface->eps[i];
        if (ep->state == SHM_DEAD)
            psrti_shm_ep_free(ep);
        else
            iface->eps[kept++] = ep;
    }
    iface->ep_count = kept;
    iface->dead = 0;
}

static void set_sleeping(shm_iface_t *iface, bool sleeping)
{
    iface->armed = sleeping;
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        shm_ep_t *ep = iface->eps[i];
        if (ep->state != SHM_UP) continue;
        uint32_t now = atomic_load_explicit(&ep->own->sleeping, memory_order_relaxed);
        if ((now & 1) != sleeping)
            atomic_store_explicit(&ep->own->sleeping, now + 1, memory_order_seq_cst);
    }
}

static unsigned sweep(shm_iface_t *iface)
{
    unsigned events = 0;
    for (uint32_t i = 0; i < iface->ep_count; i++)
        events += psrti_shm_ep_poll(iface->eps[i]);
    return events;
}

static bool sleeper_told(const shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        const shm_ep_t *ep = iface->eps[i];
        if (ep->told && ep->state == SHM_UP && shm_asleep(ep)) return true;
    }
    return false;
}

/* A wake costs as much as several messages, and its taker may need the core of this thread. So a turn that has told
 * something to a sleeper goes on while it finds more: what is there for others, and more for the same one. */
static unsigned sweeps(shm_iface_t *iface)
{
    unsigned events = sweep(iface), more = events;
    for (unsigned i = 1; i < SWEEPS && more && iface->told && sleeper_told(iface); i++)
        events += more = sweep(iface);
    return events;
}

static void wake_told(shm_iface_t *iface)
{
    iface->told = false;
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        shm_ep_t *ep = iface->eps[i];
        if (ep->told && ep->state == SHM_UP) shm_wake_if_asleep(ep);
        ep->told = false;
    }
}

static unsigned shm_progress(psrt_iface_t *iface_)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    if (iface->in_progress) return 0;
    iface->in_progress = true;
    bool slept = iface->armed;
    if (slept) set_sleeping(iface, false);

    unsigned events = sweeps(iface);
    if (sockets_due(iface, slept)) {
        events += poll_sockets(iface);
        if (iface->connecting > 0) drop_silent(iface);
    }
    if (iface->dead > 0) psrti_shm_reap(iface);
    if (iface->freed_segs > 0) psrti_shm_segs_flush(iface);
    if (iface->told) wake_told(iface);
    iface->in_progress = false;
    return events;
}

static bool anything_pending(shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->ep_count; i++) {
        shm_ep_t *ep = iface->eps[i];
        if (ep->state == SHM_DIAL) return true;
        if (ep->state == SHM_UP &&
            (ep->gone || ep->failed || psrti_shm_lane_pending(ep) || psrti_shm_ep_writable(ep)))
            return true;
    }
    return false;
}

static psrt_status_t shm_arm(psrt_iface_t *iface_)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    set_sleeping(iface, true);
    if (!anything_pending(iface)) return PSRT_OK;
    set_sleeping(iface, false);
    return PSRT_ERR_BUSY;
}

static int shm_wait_fd(psrt_iface_t *iface_) { return ((shm_iface_t *)iface_)->epoll_fd; }

static uint64_t shm_untaken(psrt_iface_t *iface_)
{
    const shm_iface_t *iface = (const shm_iface_t *)iface_;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < iface->ep_count; i++)
        if (iface->eps[i]->state == SHM_UP) bytes += iface->eps[i]->in_flight;
    return bytes;
}

const psrt_transport_ops_t psrti_transport_shm = {
    .size = sizeof(psrt_transport_ops_t),
    .name = "shm",
    .caps = PSRT_TRANSPORT_CAP_SAME_HOST | PSRT_TRANSPORT_CAP_ZERO_COPY,
    .score = 200,
    .probe = shm_probe,
    .iface_open = shm_iface_open,
    .iface_close = shm_iface_close,
    .iface_addr = shm_iface_addr,
    .reachable = shm_reachable,
    .ep_open = shm_ep_open,
    .ep_close = psrti_shm_ep_close,
    .send = psrti_shm_send,
    .release = psrti_shm_release,
    .progress = shm_progress,
    .arm = shm_arm,
    .wait_fd = shm_wait_fd,
    .mem_alloc = psrti_shm_mem_alloc,
    .mem_free = psrti_shm_mem_free,
    .verify = psrti_shm_verify,
    .untaken = shm_untaken,
};
