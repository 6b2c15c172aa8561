/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/topology.h"
#include "runtime/core/net_internal.h"
#include "transport/transport.h"

/* Which path a buffer came from; psrti_net_free must hand it back there. */
typedef struct alloc_record {
    void *ptr;
    int path; /* -1: of net->pages */
} alloc_record_t;

/* ---- choice of transports -------------------------------------------------------------------- */

static psrt_status_t unknown_transport(const char *name)
{
    const char *names[NET_MAX_PATHS];
    size_t n = 0;

    for (const psrt_transport_ops_t *const *t = psrti_transport_all(); *t && n < NET_MAX_PATHS; t++)
        names[n++] = (*t)->name;
    const char *nearest = psrti_nearest(name, names, n);
    if (nearest)
        return psrti_fail(PSRT_ERR_INVALID,
                          "unknown transport \"%s\" in PSRT_TRANSPORT, did you "
                          "mean \"%s\"?",
                          name, nearest);
    char list[128] = "";
    size_t pos = 0;
    for (size_t i = 0; i < n; i++)
        (void)psrti_append(list, sizeof list, &pos, "%s%s", i ? ", " : "", names[i]);
    return psrti_fail(PSRT_ERR_INVALID, "unknown transport \"%s\" in PSRT_TRANSPORT, there are %s",
                      name, list);
}

/* Fills ops[] from a comma list, or with all by score if the list is empty. */
static psrt_status_t choose(const char *list, const psrt_transport_ops_t **ops, uint32_t *count_p)
{
    uint32_t n = 0;
    char copy[256];

    if (!list || !*list) {
        for (const psrt_transport_ops_t *const *t = psrti_transport_all(); *t; t++)
            if (n < NET_MAX_PATHS) ops[n++] = *t;
        *count_p = n;
        return PSRT_OK;
    }
    if (strlen(list) >= sizeof copy)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_TRANSPORT is longer than %zu bytes",
                          sizeof copy - 1);
    strcpy(copy, list);
    char *save = NULL;
    for (char *name = strtok_r(copy, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        const psrt_transport_ops_t *found = psrti_transport_find(name);
        int twice = 0;

        if (!found) return unknown_transport(name);
        for (uint32_t i = 0; i < n; i++)
            twice |= ops[i] == found;
        if (!twice && n < NET_MAX_PATHS) ops[n++] = found;
    }
    *count_p = n;
    return n ? PSRT_OK : psrti_fail(PSRT_ERR_INVALID, "PSRT_TRANSPORT names no transport");
}

/* What the transport has to do; the handshake proves both ends at every level. */
static psrt_security_t protection(const psrti_net_t *net)
{
    int encrypted = net->level == PSRTI_LEVEL_ENCRYPTED ||
                    (net->level == PSRTI_LEVEL_AUTHENTICATED && net->p.control);

    return encrypted ? PSRT_SECURITY_ENCRYPTED : PSRT_SECURITY_OFF;
}

static const char *text_or_null(const char *text) { return text && *text ? text : NULL; }

/* Two threads that move bytes to one another get half the rate when they meet on a core. The scheduler puts
 * the receiving one beside the sender whenever the other cores run someone for a moment, and leaves it there:
 * with few cores, often. So a transport's threads stay on the core on which they are started. The worker and the
 * server of one rank, and neighbours in a ring, get different ones. */
static int pin_io(const psrti_net_t *net, const psrt_transport_ops_t *ops, cpu_set_t *own)
{
    const psrti_net_params_t *p = &net->p;
    if (!psrti_config_int(p->config, PSRTI_CONF_PIN_IO)) return 0;
    if (p->control || !(ops->caps & PSRT_TRANSPORT_CAP_THREADS) || net->cores < 2 ||
        net->cores >= NET_POLL_CORES)
        return 0;
    unsigned place = PSRTI_TASK_ROLE(p->task) + PSRTI_TASK_RANK(p->task) + p->channel;
    return psrti_topology_pin(place, net->cores, own);
}

static psrt_status_t iface_open(psrti_net_t *net, const psrt_transport_ops_t *ops,
                                psrt_iface_t **iface_p)
{
    const psrti_net_params_t *p = &net->p;
    psrt_security_t security = protection(net);
    uint64_t life = p->incarnation;

    /* Identities must differ between two lives of a task, also before it has its incarnation. */
    if (!life && getrandom(&life, sizeof life, 0) != sizeof life) return PSRT_ERR_IO;
    psrt_iface_params_t ip = {
        .size = sizeof ip,
        .on_msg = psrti_net_on_msg,
        .on_ep = psrti_net_on_ep,
        .arg = net,
        .listen = p->listen,
        .listen_fd = p->listen ? p->listen_fd : -1,
        .bind_address = p->bind_address
                            ? p->bind_address
                            : text_or_null(psrti_config_text(p->config, PSRTI_CONF_BIND_ADDRESS)),
        .job_dir = text_or_null(psrti_config_text(p->config, PSRTI_CONF_JOB_DIR)),
        .job_nonce = p->key->nonce,
        .secret = security == PSRT_SECURITY_OFF ? NULL : p->key->secret,
        .security = security,
        .task = p->task,
        .incarnation = life,
        .max_message = psrti_config_u64(p->config, PSRTI_CONF_MAX_MESSAGE),
        .arena = psrti_config_u64(p->config, PSRTI_CONF_EAGER_ARENA),
        .window = psrti_config_u64(p->config, PSRTI_CONF_WINDOW),
    };
    cpu_set_t own;
    int pinned = pin_io(net, ops, &own);
    psrt_status_t st = ops->iface_open(&ip, iface_p);
    if (pinned) psrti_topology_unpin(&own);
    return st;
}

static psrt_status_t path_open(psrti_net_t *net, const psrt_transport_ops_t *ops)
{
    const char *fault = psrti_config_text(net->p.config, PSRTI_CONF_FAULT);
    net_path_t *path = &net->paths[net->npaths];
    char why[256] = "";
    psrt_status_t st;

    if (ops->probe(why, sizeof why) != PSRT_OK)
        return psrti_fail(PSRT_ERR_UNSUPPORTED, "transport %s cannot be used: %s", ops->name, why);
    path->ops = ops;
    path->fault = NULL;
    if (*fault && !net->p.control) {
        st = psrti_transport_fault_create(ops, fault, &path->fault);
        if (st != PSRT_OK) return st;
        path->ops = path->fault;
    }
    /* The interface may call back from its first progress on, so the path is complete before. */
    st = iface_open(net, path->ops, &path->iface);
    if (st != PSRT_OK) {
        if (path->fault) psrti_transport_fault_destroy(path->fault);
        return st;
    }
    net->npaths++;
    return PSRT_OK;
}

/* Transports that were asked for by name must work; of the others those that do are taken. */
static psrt_status_t open_paths(psrti_net_t *net)
{
    const char *list = net->p.transports ? net->p.transports
                                         : psrti_config_text(net->p.config, PSRTI_CONF_TRANSPORT);
    const psrt_transport_ops_t *ops[NET_MAX_PATHS];
    uint32_t n = 0;
    psrt_status_t st = choose(list, ops, &n);

    for (uint32_t i = 0; i < n && st == PSRT_OK; i++) {
        psrt_status_t opened = path_open(net, ops[i]);
        if (opened == PSRT_OK) continue;
        if (text_or_null(list) || opened == PSRT_ERR_INVALID)
            st = opened;
        else
            psrti_warn("going on without transport %s: %s", ops[i]->name, psrt_last_error());
    }
    if (st == PSRT_OK && net->npaths == 0)
        st = psrti_fail(PSRT_ERR_UNSUPPORTED, "no transport can be used");
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

psrt_status_t psrti_net_open(const psrti_net_params_t *params, psrti_net_t **net_p)
{
    psrti_net_t *net = calloc(1, sizeof *net);
    psrt_status_t st;

    if (!net) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a net");
    net->p = *params;
    net->cores = psrti_topology_cores(NULL);
    net->level = (psrti_level_t)psrti_config_int(params->config, PSRTI_CONF_SECURITY);
    psrti_list_init(&net->dialing);
    psrti_list_init(&net->pending);
    psrti_list_init(&net->up);
    psrti_list_init(&net->graveyard);
    if (getrandom(&net->next_session, sizeof net->next_session, 0) < 0) net->next_session = 1;
    net->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (net->wake_fd < 0) {
        st = psrti_fail(PSRT_ERR_LIMIT, "eventfd: %s", strerror(errno));
        free(net);
        return st;
    }
    st = open_paths(net);
    if (st != PSRT_OK) {
        psrti_net_close(net);
        return st;
    }
    *net_p = net;
    return PSRT_OK;
}

static void free_record(psrti_net_t *net, alloc_record_t *record)
{
    if (record->path < 0)
        psrti_pages_free(&net->pages, record->ptr);
    else
        net->paths[record->path].ops->mem_free(net->paths[record->path].iface, record->ptr);
    free(record);
}

void psrti_net_close(psrti_net_t *net)
{
    size_t pos = 0;

    if (!net) return;
    psrti_net_close_links(net);
    for (alloc_record_t *record; (record = psrti_map_next(&net->allocs, &pos, NULL)) != NULL;)
        free_record(net, record);
    psrti_map_clear(&net->allocs);
    for (uint32_t i = 0; i < net->npaths; i++) {
        net->paths[i].ops->iface_close(net->paths[i].iface);
        if (net->paths[i].fault) psrti_transport_fault_destroy(net->paths[i].fault);
    }
    psrti_net_bury(net);
    close(net->wake_fd);
    free(net);
}

void psrti_net_set_incarnation(psrti_net_t *net, uint64_t incarnation)
{
    __atomic_store_n(&net->p.incarnation, incarnation, __ATOMIC_RELAXED);
}

uint32_t psrti_net_addrs(const psrti_net_t *net, char addr[][PSRT_ADDR_MAX], uint32_t max)
{
    uint32_t n = 0;

    if (!net->p.listen) return 0;
    for (uint32_t i = 0; i < net->npaths && n < max; i++)
        if (net->paths[i].ops->iface_addr(net->paths[i].iface, addr[n], PSRT_ADDR_MAX) == PSRT_OK)
            n++;
    return n;
}

/* ---- progress and sleep ---------------------------------------------------------------------- */

/* A path without endpoints costs a system call and brings nothing but new connections. */
unsigned psrti_net_progress(psrti_net_t *net)
{
    unsigned events = 0;
    int everyone = net->turns++ % NET_QUIET_TURNS == 0;

    net->busy++;
    for (uint32_t i = 0; i < net->npaths; i++)
        if (everyone || net->paths[i].open)
            events += net->paths[i].ops->progress(net->paths[i].iface);
    if (!psrti_list_empty(&net->dialing) || !psrti_list_empty(&net->pending))
        events += psrti_net_timers(net, psrti_now_ns());
    if (--net->busy == 0) psrti_net_bury(net);
    return events;
}

/* Over a path that has no threads only polling finds at once what arrives. Where threads move the bytes
 * and cores are scarce, a poller would take theirs while they move many; of a small message they
 * move none, and its way is as long as the wakes on it. */
int psrti_net_may_poll(const psrti_net_t *net)
{
    int threads = 0;

    if (net->cores >= NET_POLL_CORES) return 1;
    for (uint32_t i = 0; i < net->npaths; i++) {
        if (!net->paths[i].open) continue;
        if (!(net->paths[i].ops->caps & PSRT_TRANSPORT_CAP_THREADS)) return 1;
        threads = 1;
    }
    return !threads || !net->bulk;
}

uint64_t psrti_net_untaken(const psrti_net_t *net)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < net->npaths; i++) {
        const psrt_transport_ops_t *ops = net->paths[i].ops;
        if (ops->untaken) bytes += ops->untaken(net->paths[i].iface);
    }
    return bytes;
}

static void wait_for_events(psrti_net_t *net, uint64_t timeout_ns)
{
    struct pollfd fds[NET_MAX_PATHS + 1];
    struct timespec ts = { (time_t)(timeout_ns / PSRTI_NS_PER_S),
                           (long)(timeout_ns % PSRTI_NS_PER_S) };
    uint32_t n = net->npaths;

    for (uint32_t i = 0; i < n; i++) {
        fds[i].fd = net->paths[i].ops->wait_fd(net->paths[i].iface);
        fds[i].events = POLLIN;
    }
    fds[n].fd = net->wake_fd;
    fds[n].events = POLLIN;
    fds[n].revents = 0;
    /* More than a day is for ever: a larger time_t is refused by the kernel. */
    int ready = ppoll(fds, n + 1, timeout_ns > 86400 * PSRTI_NS_PER_S ? NULL : &ts, NULL);
    if (ready > 0 && fds[n].revents) {
        uint64_t ignored;
        if (read(net->wake_fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
            psrti_error("eventfd read: %s", strerror(errno));
    }
}

/* Either the waker sees `sleeping` and writes, or the sleeper sees `woken` and does not sleep: both
 * store first and load then, sequentially consistent. */
void psrti_net_sleep(psrti_net_t *net, uint64_t timeout_ns)
{
    uint64_t deadline = psrti_net_next_deadline(net);
    int armed = 1;

    if (deadline != UINT64_MAX) {
        uint64_t now = psrti_now_ns();
        timeout_ns = PSRTI_MIN(timeout_ns, deadline > now ? deadline - now : 0);
    }
    atomic_store(&net->sleeping, 1);
    if (!atomic_exchange(&net->woken, 0)) {
        for (uint32_t i = 0; i < net->npaths && armed; i++)
            armed = net->paths[i].ops->arm(net->paths[i].iface) == PSRT_OK;
        if (armed) {
            wait_for_events(net, timeout_ns);
            atomic_store(&net->woken, 0);
        }
    }
    atomic_store(&net->sleeping, 0);
    net->turns = 0; /* whoever woke us has its turn now */
}

void psrti_net_wake(psrti_net_t *net)
{
    uint64_t one = 1;

    atomic_store(&net->woken, 1);
    if (atomic_load(&net->sleeping) && write(net->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        psrti_error("eventfd write: %s", strerror(errno));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The path that carries such memory furthest: one that reaches other processes, else any. */
static int alloc_path(const psrti_net_t *net)
{
    int any = -1;

    for (uint32_t i = 0; i < net->npaths; i++) {
        if (!net->paths[i].ops->mem_alloc) continue;
        if (!(net->paths[i].ops->caps & PSRT_TRANSPORT_CAP_SAME_PROCESS)) return (int)i;
        any = (int)i;
    }
    return any;
}

psrt_status_t psrti_net_alloc(psrti_net_t *net, uint64_t bytes, void **ptr_p)
{
    alloc_record_t *record = calloc(1, sizeof *record);
    psrt_status_t st = PSRT_OK;

    if (!record || bytes == 0) {
        free(record);
        return psrti_fail(bytes ? PSRT_ERR_NO_MEMORY : PSRT_ERR_INVALID,
                          "cannot allocate %llu bytes", (unsigned long long)bytes);
    }
    record->path = alloc_path(net);
    if (record->path >= 0) {
        const net_path_t *path = &net->paths[record->path];
        st = path->ops->mem_alloc(path->iface, bytes, &record->ptr);
    } else {
        record->ptr = psrti_pages_alloc(&net->pages, bytes);
        if (!record->ptr)
            st = psrti_fail(PSRT_ERR_NO_MEMORY, "cannot allocate %llu bytes",
                            (unsigned long long)bytes);
    }
    if (st != PSRT_OK) {
        free(record);
        return st;
    }
    st = psrti_map_put(&net->allocs, (uintptr_t)record->ptr, record);
    if (st != PSRT_OK) {
        free_record(net, record);
        return psrti_fail(st, "no memory to keep track of %llu bytes", (unsigned long long)bytes);
    }
    *ptr_p = record->ptr;
    return PSRT_OK;
}

void psrti_net_free(psrti_net_t *net, void *ptr)
{
    alloc_record_t *record = ptr ? psrti_map_remove(&net->allocs, (uintptr_t)ptr) : NULL;

    if (record) free_record(net, record);
}
