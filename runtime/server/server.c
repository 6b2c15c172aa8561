/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "runtime/core/bind.h"
#include "runtime/core/session.h"
#include "runtime/server/server_int.h"

/* ---- the shard of a thread ---------------------------------------------------------------------- */

static psrt_status_t shard_send(void *arg, void *link, psrt_hdr_t *hdr, const void *data,
                                uint64_t len, psrt_tx_t *tx)
{
    return psrti_net_send(((sthread_t *)arg)->net, link, hdr, data, len, tx);
}

static psrt_status_t shard_map(void *arg, psrt_msg_t *msg, const void **data_p)
{
    return psrti_net_map(((sthread_t *)arg)->net, msg, data_p);
}

static void *shard_alloc(void *arg, uint64_t bytes)
{
    void *p;
    return psrti_net_alloc(((sthread_t *)arg)->net, bytes, &p) == PSRT_OK ? p : NULL;
}

static void shard_free(void *arg, void *ptr) { psrti_net_free(((sthread_t *)arg)->net, ptr); }

static void shard_write(void *arg, void *dst, const void *src, uint64_t bytes)
{
    sthread_t *t = arg;
    psrti_writer_write(&t->writer, t->server->kernels, dst, src, bytes);
}

/* UP and LOST follow through on_link; a link that is there already is on its way. */
static void shard_dial(void *arg, uint32_t owner, const psrti_view_owner_t *to)
{
    sthread_t *t = arg;
    if (owner >= t->nowners || t->out[owner] || !to->alive) return;
    psrt_status_t rc =
        psrti_net_connect(t->net, to->addr, to->naddrs, PSRTI_TASK(PSRTI_SERVER, to->server),
                          PSRTI_CHANNEL_FROM(to->thread, t->index), &t->out[owner]);
    if (rc)
        psrti_warn("server:%u: %s", t->server->p.rank, psrt_last_error());
    else
        t->out[owner]->incarnation = to->incarnation;
}

static void create_shard(sthread_t *t, uint32_t owner, uint32_t nowners)
{
    psrti_shard_env_t env = { t,
                              shard_send,
                              shard_map,
                              shard_alloc,
                              shard_free,
                              shard_dial,
                              psrti_config_u64(t->server->p.config, PSRTI_CONF_MAX_MESSAGE),
                              shard_write };
    t->out = calloc(nowners, sizeof(void *));
    t->nowners = t->out ? nowners : 0;
    if (psrti_shard_create(owner, t->server->kernels, &env, &t->shard) != PSRT_OK)
        psrti_error("server:%u: %s", t->server->p.rank, psrt_last_error());
}

/* Of an owner that is dead, or not the one that was dialled. */
static void drop_stale_links(sthread_t *t, const psrti_view_t *v)
{
    for (uint32_t i = 0; i < t->nowners && i < v->nowners; i++) {
        psrti_link_t *link = t->out[i];
        if (!link || (v->owners[i].alive && link->incarnation == v->owners[i].incarnation))
            continue;
        t->out[i] = NULL;
        psrti_peer_t *peer = link->user;
        psrti_net_drop(t->net, link);
        if (peer) psrti_shard_link_lost(t->shard, peer);
    }
}

void psrti_server_view(sthread_t *t, const psrti_view_t *v)
{
    for (uint32_t i = 0; i < v->nowners; i++) {
        const psrti_view_owner_t *o = &v->owners[i];
        if (o->server != t->server->p.rank || o->thread != t->index) continue;
        psrti_spin_crowd(&t->spin, psrti_view_pollers(v, o->host));
        if (!t->shard) create_shard(t, i, v->nowners);
    }
    drop_stale_links(t, v);
}

/* ---- links ------------------------------------------------------------------------------------- */

static psrt_status_t admit(void *arg, uint32_t task, uint64_t incarnation, char *text, size_t size)
{
    const sthread_t *t = arg;
    (void)incarnation; /* the shard knows from the view which life of a task counts */
    uint32_t places = PSRTI_TASK_ROLE(task) == PSRTI_WORKER   ? t->server->p.workers
                      : PSRTI_TASK_ROLE(task) == PSRTI_SERVER ? t->server->p.servers
                                                              : 0;
    if (PSRTI_TASK_RANK(task) >= places) {
        snprintf(text, size, "not a worker or server of this job");
        return PSRT_ERR_REFUSED;
    }
    if (!t->shard) {
        snprintf(text, size, "the server has not joined yet");
        return PSRT_ERR_NOT_READY;
    }
    return PSRT_OK;
}

/* NULL: no memory, or no owner of this job; what it sends is refused then. */
static psrti_peer_t *link_up(sthread_t *t, psrti_link_t *link)
{
    if (PSRTI_TASK_ROLE(link->task) == PSRTI_WORKER)
        return psrti_shard_link_up(t->shard, link, link->task, link->incarnation);
    for (uint32_t i = 0; i < t->nowners; i++)
        if (t->out[i] == link) return psrti_shard_owner_up(t->shard, link, i, 0, 1);
    uint32_t owner = psrti_shard_owner_of(t->shard, PSRTI_TASK_RANK(link->task),
                                          PSRTI_CHANNEL_THREAD(link->channel));
    return owner == UINT32_MAX ? NULL
                               : psrti_shard_owner_up(t->shard, link, owner, link->incarnation, 0);
}

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    sthread_t *t = arg;
    char name[32];
    switch (event) {
    case PSRTI_LINK_UP: link->user = link_up(t, link); break;
    case PSRTI_LINK_WRITABLE:
        if (link->user) psrti_shard_link_writable(t->shard, link->user);
        break;
    case PSRTI_LINK_LOST:
        psrti_debug("link to %s lost: %s %s", psrti_task_name(link->task, name),
                    psrt_status_text(status), text ? text : "");
        for (uint32_t i = 0; i < t->nowners; i++)
            if (t->out[i] == link) t->out[i] = NULL;
        if (link->user) psrti_shard_link_lost(t->shard, link->user);
        link->user = NULL;
        break;
    }
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    sthread_t *t = arg;
    return link->user ? psrti_shard_msg(t->shard, link->user, msg) : PSRT_RX_BAD;
}

/* ---- threads ----------------------------------------------------------------------------------- */

#define TURNS                                                                                      \
    64 /* of polling, a few microseconds, that answers wait for others; messages, of a long one */

/* A server that was stopped for longer than the lease may be dead to the others: it serves nobody
 * until the coordinator has spoken to it again. */
static int is_frozen(sthread_t *t, uint64_t now)
{
    psrti_server_t *s = t->server;
    if (now - t->last_loop > psrti_config_u64(s->p.config, PSRTI_CONF_LEASE)) {
        psrti_warn("server:%u: stopped for %.1f s, waits for the coordinator", s->p.rank,
                   (double)(now - t->last_loop) / 1e9);
        t->frozen = now;
    }
    t->last_loop = now;
    psrti_member_t *m = atomic_load(&s->member);
    if (t->frozen && m && psrti_member_lease_seen(m) > t->frozen) t->frozen = 0;
    return t->frozen != 0;
}

static void shard_progress(sthread_t *t)
{
    t->turns = 0;
    if (t->shard) psrti_shard_progress(t->shard, t->last_loop);
}

static void *thread_main(void *arg)
{
    sthread_t *t = arg;
    t->last_loop = psrti_now_ns();
    while (!atomic_load(&t->server->stop)) {
        psrti_server_work(t);
        if (is_frozen(t, psrti_now_ns())) {
            psrti_net_sleep(t->net, 10 * PSRTI_NS_PER_MS);
            continue;
        }
        unsigned events = psrti_net_progress(t->net);
        if (++t->turns >= TURNS || events >= TURNS) shard_progress(t);
        if (events) {
            psrti_spin_begin(&t->spin);
        } else if (!psrti_net_may_poll(t->net) || !psrti_spin_again(&t->spin)) {
            shard_progress(t);
            psrti_net_sleep(t->net, 100 * PSRTI_NS_PER_MS);
        }
    }
    return NULL;
}

static psrt_status_t thread_open(psrti_server_t *s, sthread_t *t, uint32_t index)
{
    char bind[PSRT_ADDR_MAX];
    int fd;
    t->server = s;
    t->index = index;
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
    psrti_spin_init(&t->spin, psrti_config_u64(s->p.config, PSRTI_CONF_SPIN),
                    psrti_topology_cores(NULL));
    psrt_status_t rc = psrti_bind_thread(s->p.config, s->p.coordinator, index, bind, &fd);
    if (rc) return rc;
    psrti_net_params_t np = { .config = s->p.config,
                              .key = s->p.key,
                              .task = PSRTI_TASK(PSRTI_SERVER, s->p.rank),
                              .incarnation = 1,
                              .transports = s->p.transports,
                              .listen = 1,
                              .listen_fd = fd,
                              .bind_address = bind,
                              .channel = index,
                              .arg = t,
                              .on_link = on_link,
                              .on_msg = on_msg,
                              .admit = admit };
    return psrti_net_open(&np, &t->net);
}

static psrt_status_t thread_start(sthread_t *t)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&t->thread, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) return psrti_fail(PSRT_ERR_LIMIT, "cannot start a server thread: %s", strerror(rc));
    t->started = 1;
    return PSRT_OK;
}

/* The first callback: it waits until join_job has noted the member, whom later commands answer. */
static void on_joined(void *arg, uint64_t incarnation)
{
    psrti_server_t *s = arg;
    for (uint32_t i = 0; i < s->nthreads; i++)
        psrti_net_set_incarnation(s->threads[i].net, incarnation);
    pthread_mutex_lock(&s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void on_end(void *arg, psrt_status_t status, const char *text)
{
    psrti_server_t *s = arg;
    pthread_mutex_lock(&s->lock);
    if (!s->ended) {
        s->ended = 1;
        s->end_status = status;
        snprintf(s->end_text, sizeof s->end_text, "%s", text ? text : "");
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static psrt_status_t join_job(psrti_server_t *s)
{
    psrti_view_owner_t *own = s->nthreads ? calloc(s->nthreads, sizeof *own) : NULL;
    if (!own) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a server");
    for (uint32_t i = 0; i < s->nthreads; i++) {
        own[i].server = s->p.rank;
        own[i].thread = i;
        own[i].naddrs = psrti_net_addrs(s->threads[i].net, own[i].addr, PSRTI_ADDRS_PER_OWNER);
    }
    psrti_member_params_t mp = { .config = s->p.config,
                                 .key = s->p.key,
                                 .task = PSRTI_TASK(PSRTI_SERVER, s->p.rank),
                                 .workers = s->p.workers,
                                 .servers = s->p.servers,
                                 .coordinator = s->p.coordinator,
                                 .nthreads = s->nthreads,
                                 .threads = own,
                                 .arg = s,
                                 .on_joined = on_joined,
                                 .on_view = psrti_server_on_view,
                                 .on_hold = psrti_server_on_hold,
                                 .on_prepare = psrti_server_on_prepare,
                                 .on_set_prepare = psrti_server_on_set_prepare,
                                 .on_set_end = psrti_server_on_set_end,
                                 .on_end = on_end };
    psrti_member_t *m;
    pthread_mutex_lock(&s->lock);
    psrt_status_t rc = psrti_member_start(&mp, &m);
    if (!rc) atomic_store(&s->member, m);
    pthread_mutex_unlock(&s->lock);
    free(own);
    return rc;
}

psrt_status_t psrti_server_start(const psrti_server_start_t *params, psrti_server_t **server_p)
{
    psrti_server_t *s = calloc(1, sizeof *s);
    if (!s) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a server");
    s->p = *params;
    s->nthreads = (uint32_t)psrti_config_int(params->config, PSRTI_CONF_SERVER_THREADS);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    psrt_status_t rc =
        psrti_kernels_select(psrti_config_text(params->config, PSRTI_CONF_CPU), &s->kernels);
    if (!rc && !(s->threads = calloc(s->nthreads, sizeof *s->threads)))
        rc = psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a server");
    for (uint32_t i = 0; !rc && i < s->nthreads; i++)
        rc = thread_open(s, &s->threads[i], i);
    for (uint32_t i = 0; !rc && i < s->nthreads; i++)
        rc = thread_start(&s->threads[i]);
    if (!rc) rc = join_job(s);
    if (rc) {
        psrti_server_stop(s);
        return rc;
    }
    *server_p = s;
    return PSRT_OK;
}

psrt_status_t psrti_server_wait(psrti_server_t *s, const volatile int *stop)
{
    pthread_mutex_lock(&s->lock);
    while (!s->ended && !(stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))) {
        struct timespec ts;
        uint64_t until = psrti_now_ns() + 100 * PSRTI_NS_PER_MS;
        ts.tv_sec = (time_t)(until / PSRTI_NS_PER_S);
        ts.tv_nsec = (long)(until % PSRTI_NS_PER_S);
        pthread_cond_timedwait(&s->changed, &s->lock, &ts);
    }
    psrt_status_t rc = s->ended ? s->end_status : PSRT_OK;
    if (rc) psrti_fail(rc, "%s", s->end_text);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void thread_close(sthread_t *t)
{
    psrti_server_forget(t);
    /* Links go first: their pending sends hold blocks of the shard, whose memory is the net's. */
    if (t->net) psrti_net_close_links(t->net);
    psrti_shard_destroy(t->shard);
    psrti_net_close(t->net);
    free(t->out);
    if (t->server) pthread_mutex_destroy(&t->lock);
}

/* Threads call the member, the member posts to threads: first the threads end, then the member, then
 * what both used is freed. */
void psrti_server_stop(psrti_server_t *s)
{
    if (!s) return;
    psrti_member_t *m = atomic_load(&s->member);
    pthread_mutex_lock(&s->lock);
    int ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    if (m && !ended) psrti_member_leave(m, 0);
    atomic_store(&s->stop, 1);
    for (uint32_t i = 0; s->threads && i < s->nthreads; i++) {
        sthread_t *t = &s->threads[i];
        if (t->net) psrti_net_wake(t->net);
        if (t->started) pthread_join(t->thread, NULL);
    }
    psrti_member_stop(m);
    for (uint32_t i = 0; s->threads && i < s->nthreads; i++)
        thread_close(&s->threads[i]);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->threads);
    free(s);
}
