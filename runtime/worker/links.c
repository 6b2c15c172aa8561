/* SPDX-License-Identifier: Apache-2.0 */
/* Links of a worker to the owners: dialled from the view, redialled when lost, dropped when the view
 * says that the owner is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/core/bind.h"
#include "runtime/worker/worker_int.h"

#define BACKOFF_MIN (10 * PSRTI_NS_PER_MS)
#define BACKOFF_MAX PSRTI_NS_PER_S

static uint32_t owner_of(const psrti_link_t *link) { return (uint32_t)(uintptr_t)link->user; }

/* Why an owner has no link now, and when to try again. */
static void redial_later(psrti_worker_t *w, psrti_wlink_t *l, const char *why)
{
    snprintf(l->why, sizeof l->why, "%s", why);
    if (!l->down_since) l->down_since = psrti_now_ns();
    l->backoff = l->backoff ? PSRTI_MIN(2 * l->backoff, BACKOFF_MAX) : BACKOFF_MIN;
    l->redial = psrti_now_ns() + l->backoff;
    w->next_redial = PSRTI_MIN(w->next_redial, l->redial);
}

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    psrti_worker_t *w = arg;
    if (PSRTI_TASK_ROLE(link->task) == PSRTI_WORKER) {
        psrti_peers_on_link(w, link, event, status, text);
        return;
    }
    uint32_t owner = owner_of(link);
    psrti_wlink_t *l = &w->links[owner];
    switch (event) {
    case PSRTI_LINK_UP:
        l->backoff = l->down_since = 0;
        psrti_client_link_up(w->client, owner);
        break;
    case PSRTI_LINK_WRITABLE: psrti_client_link_writable(w->client, owner); break;
    case PSRTI_LINK_LOST:
        psrti_info("worker:%u: link to server:%u lost: %s %s", w->p.rank,
                   w->view->owners[owner].server, psrt_status_text(status), text ? text : "");
        l->link = NULL;
        psrti_client_link_lost(w->client, owner);
        if (w->view->owners[owner].alive)
            redial_later(w, l, text ? text : psrt_status_text(status));
        break;
    }
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    psrti_worker_t *w = arg;
    if (PSRTI_TASK_ROLE(link->task) == PSRTI_WORKER) return psrti_peers_on_msg(w, link, msg);
    return psrti_client_msg(w->client, owner_of(link), msg);
}

static psrt_status_t env_send(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    psrti_worker_t *w = arg;
    psrti_link_t *link = w->links[owner].link;
    return link ? psrti_net_send(w->net, link, hdr, data, len, tx) : PSRT_ERR_AGAIN;
}

static psrt_status_t env_map(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p)
{
    (void)owner;
    return psrti_net_map(((psrti_worker_t *)arg)->net, msg, data_p);
}

static psrt_status_t env_verify(void *arg, uint32_t owner, const psrt_msg_t *msg)
{
    (void)owner;
    return psrti_net_verify(((psrti_worker_t *)arg)->net, msg);
}

static void env_used(void *arg, uint32_t table)
{
    psrti_member_used(((psrti_worker_t *)arg)->member, table);
}

static void dial(psrti_worker_t *w, uint32_t owner)
{
    const psrti_view_owner_t *o = &w->view->owners[owner];
    psrti_wlink_t *l = &w->links[owner];
    l->redial = 0;
    l->incarnation = o->incarnation;
    psrt_status_t rc = psrti_net_connect(w->net, o->addr, o->naddrs,
                                         PSRTI_TASK(PSRTI_SERVER, o->server), o->thread, &l->link);
    if (rc == PSRT_OK) {
        l->link->user = (void *)(uintptr_t)owner;
        return;
    }
    if (!l->backoff)
        psrti_warn("worker:%u: cannot dial server:%u: %s", w->p.rank, o->server, psrt_last_error());
    redial_later(w, l, psrt_last_error());
}

/* The coordinator reaches this owner, we do not: more than a moment of that is a network or a
 * configuration to be mended, and nothing for operations to hang on. `now` was read before the links
 * moved, so one that was lost meanwhile went down after it. */
static int is_hopeless(const psrti_worker_t *w, const psrti_wlink_t *l, uint64_t now)
{
    return l->down_since &&
           now > l->down_since + psrti_config_u64(w->p.config, PSRTI_CONF_COORDINATOR_TIMEOUT);
}

static void give_up(psrti_worker_t *w, uint32_t owner)
{
    char text[PSRTI_ERROR_MAX];
    snprintf(text, sizeof text, "server:%u lives, but could not be reached for %.3g s: %s",
             w->view->owners[owner].server,
             (double)psrti_config_u64(w->p.config, PSRTI_CONF_COORDINATOR_TIMEOUT) / 1e9,
             w->links[owner].why);
    psrti_worker_lose(w, PSRT_ERR_UNREACHABLE, text);
    psrti_client_fail(w->client, PSRT_ERR_UNREACHABLE, text);
    psrti_coll_fail(w->coll, PSRT_ERR_UNREACHABLE, text);
    w->next_redial = UINT64_MAX;
    psrti_links_drop(w);
    psrti_worker_event(w, PSRT_EVENT_LOST, text);
}

void psrti_links_redial(psrti_worker_t *w, uint64_t now)
{
    if (now < w->next_redial) return;
    w->next_redial = UINT64_MAX;
    for (uint32_t i = 0; w->view && i < w->view->nowners; i++) {
        psrti_wlink_t *l = &w->links[i];
        if (l->link || !l->redial) continue;
        if (is_hopeless(w, l, now)) {
            give_up(w, i);
            return;
        }
        if (l->redial <= now)
            dial(w, i);
        else
            w->next_redial = PSRTI_MIN(w->next_redial, l->redial);
    }
}

static void drop(psrti_worker_t *w, uint32_t owner)
{
    psrti_wlink_t *l = &w->links[owner];
    if (l->link) psrti_net_drop(w->net, l->link);
    l->link = NULL;
    l->redial = l->down_since = 0;
    psrti_client_link_lost(w->client, owner);
}

/* A server that is stopped, or lost somewhere: its lease says which. */
static void env_fence(void *arg, uint32_t owner)
{
    psrti_worker_t *w = arg;
    char text[96];
    snprintf(text, sizeof text, "server:%u did not answer CANCEL within %.1f s",
             w->view->owners[owner].server,
             (double)psrti_config_u64(w->p.config, PSRTI_CONF_CANCEL_TIMEOUT) / 1e9);
    psrti_warn("worker:%u: %s, closing the link and dialling anew", w->p.rank, text);
    drop(w, owner);
    if (w->view->owners[owner].alive) redial_later(w, &w->links[owner], text);
}

const psrti_client_env_t psrti_links_env = { NULL,     env_send,  env_map, env_verify,
                                             env_used, env_fence, 0 };

/* Other workers dial, who are the only ones that may: a server has nothing to ask here. */
static psrt_status_t admit(void *arg, uint32_t task, uint64_t incarnation, char *text, size_t size)
{
    const psrti_worker_t *w = arg;
    (void)incarnation;
    if (PSRTI_TASK_ROLE(task) == PSRTI_WORKER && PSRTI_TASK_RANK(task) < w->p.workers)
        return PSRT_OK;
    snprintf(text, size, "worker:%u takes connections of workers alone", w->p.rank);
    return PSRT_ERR_REFUSED;
}

psrt_status_t psrti_links_open(psrti_worker_t *w)
{
    char bind[PSRT_ADDR_MAX] = "";
    int fd = -1, listen = w->p.workers > 1 && psrti_config_int(w->p.config, PSRTI_CONF_COLLECTIVES);
    if (listen) {
        psrt_status_t rc = psrti_bind_thread(w->p.config, w->p.coordinator, 0, bind, &fd);
        if (rc) return rc;
    }
    psrti_net_params_t np = { .config = w->p.config,
                              .key = w->p.key,
                              .task = PSRTI_TASK(PSRTI_WORKER, w->p.rank),
                              .transports = w->p.transports,
                              .listen = listen,
                              .listen_fd = fd,
                              .bind_address = bind,
                              .admit = admit,
                              .arg = w,
                              .on_link = on_link,
                              .on_msg = on_msg };
    return psrti_net_open(&np, &w->net);
}

void psrti_links_drop(psrti_worker_t *w)
{
    for (uint32_t i = 0; w->view && i < w->view->nowners; i++)
        drop(w, i);
}

/* The client first, so that it knows which shards are lost before their sends are given up. */
void psrti_links_view(psrti_worker_t *w, psrti_view_t *view)
{
    if (w->view && view->number <= w->view->number) return;
    if (!w->view) w->links = calloc(view->nowners, sizeof *w->links);
    if (!w->links) {
        psrti_client_fail(w->client, PSRT_ERR_NO_MEMORY, "out of memory for the view of the job");
        return;
    }
    psrti_view_unref(w->view);
    w->view = psrti_view_ref(view);
    psrti_client_view(w->client, view);
    psrti_spin_crowd(&w->spin, psrti_view_pollers(view, view->workers[w->p.rank].host));
    pthread_mutex_lock(&w->lock);
    int lost = w->status != PSRT_OK;
    w->crowded = w->spin.crowded;
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < view->nowners; i++) {
        const psrti_view_owner_t *o = &view->owners[i];
        psrti_wlink_t *l = &w->links[i];
        if (!o->alive || (l->incarnation && l->incarnation != o->incarnation)) drop(w, i);
        if (o->alive && !l->link && !l->redial && !lost) dial(w, i);
    }
    if (!lost) psrti_peers_view(w);
}
