/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/remote.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/controller.h"
#include "launcher/env.h"
#include "launcher/jobdir.h"

/* Connections that have not shown that they are an agent's. */
#define STRANGERS_MAX 256
#define OPEN_MS 10000
#define QUICK_PINGS 5
/* The best measurement of a clock is kept for so long: clocks drift. */
#define CLOCK_NS (60 * PSRTI_NS_PER_S)

void psrti_controller_send(psrti_node_t *node, psrti_wire_out_t *w)
{
    if (node->channel) psrti_channel_send(node->channel, w->data, w->len);
    psrti_wire_clear(w);
}

/* ---- loss of a host -------------------------------------------------------------------------- */

static void check_over(psrti_remote_task_t *t) { t->open = !t->gone || t->open_streams; }

static void end_task(psrti_backend_t *b, size_t id, uint64_t time_ns)
{
    psrti_remote_task_t *t = &b->tasks[id], old = *t;
    const psrti_task_t *task = &b->job->tasks[id];
    const psrti_end_t end = { .kind = PSRTI_END_HOST_LOST, .time_ns = time_ns };
    *t = (psrti_remote_task_t){ .ended = 1, .gone = 1, .host = old.host };
    if (!old.ended) b->events.ended(b->events.arg, task, &end);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (old.open_streams >> fd & 1) b->events.output(b->events.arg, task, fd, NULL, 0);
    if (!old.gone) b->events.gone(b->events.arg, task);
}

/* It is not back yet. The same reason is told once, however often it is tried. */
static void not_reached(psrti_backend_t *b, unsigned host, const char *text)
{
    psrti_node_t *node = &b->nodes[host];
    node->returning = 0;
    node->state = PSRTI_NODE_LOST;
    if (!strcmp(node->why, text)) return;
    snprintf(node->why, sizeof node->why, "%s", text);
    b->events.host_not_reached(b->events.arg, host, node->why);
}

/* One that fell silent was lost when it was last heard: before what others suffered from it. */
void psrti_controller_lose(psrti_backend_t *b, unsigned host, const char *text)
{
    psrti_node_t *node = &b->nodes[host];
    psrti_channel_t *channel = node->channel;
    if (b->closing || node->state == PSRTI_NODE_LOST) return;
    node->channel = NULL;
    if (channel) psrti_channel_abort(channel);
    if (node->returning) {
        not_reached(b, host, text);
        return;
    }
    if (b->phase != PSRTI_HOSTS_READY) {
        psrti_assemble_lost(b, host, text);
        return;
    }
    uint64_t now = psrti_now_ns();
    uint64_t when = now - node->heard_ns > 3 * PSRTI_NS_PER_S ? node->heard_ns : now;
    node->state = PSRTI_NODE_LOST;
    snprintf(node->why, sizeof node->why, "%s", text);
    b->events.host_lost(b->events.arg, host, text);
    for (size_t i = 0; i < b->job->task_count && !b->closing; i++)
        if (b->tasks[i].open && b->tasks[i].host == host) end_task(b, i, when);
}

/* ---- what agents say of their tasks ---------------------------------------------------------- */

static psrti_remote_task_t *read_task(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r,
                                      const psrti_task_t **task_p)
{
    uint32_t id = psrti_wire_get_u32(r);
    if (r->bad || id >= b->job->task_count || !b->tasks[id].open || b->tasks[id].host != host) {
        r->bad = 1;
        return NULL;
    }
    *task_p = &b->job->tasks[id];
    return &b->tasks[id];
}

static void on_started(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const psrti_task_t *task;
    if (!read_task(b, host, r, &task)) return;
    psrti_wire_get_text(r); /* what it calls itself; the user knows it by the name in the job */
    int pid = (int)psrti_wire_get_u32(r);
    const char *bound = psrti_wire_get_text(r);
    r->bad |= !bound;
    if (!r->bad) b->events.started(b->events.arg, task, b->job->hosts[host].name, pid, bound);
}

static void on_output(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const psrti_task_t *task = NULL;
    psrti_remote_task_t *t = read_task(b, host, r, &task);
    int fd = psrti_wire_get_u8(r);
    r->bad |= fd != STDOUT_FILENO && fd != STDERR_FILENO;
    if (r->bad || !(t->open_streams >> fd & 1)) return;
    size_t len = (size_t)(r->end - r->at);
    if (!len) t->open_streams &= ~(1 << fd);
    check_over(t);
    b->events.output(b->events.arg, task, fd, (const char *)r->at, len);
}

static void on_ended(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const psrti_task_t *task = NULL;
    psrti_remote_task_t *t = read_task(b, host, r, &task);
    uint32_t kind = psrti_wire_get_u32(r);
    int value = (int)psrti_wire_get_u32(r);
    uint64_t time = psrti_wire_get_u64(r) - (uint64_t)b->nodes[host].clock_ns;
    r->bad |= kind > PSRTI_END_HOST_LOST;
    if (r->bad || t->ended) return;
    const psrti_end_t end = { .kind = (psrti_end_kind_t)kind,
                              .value = value,
                              .time_ns = PSRTI_MIN(time, psrti_now_ns()) };
    t->ended = 1;
    b->events.ended(b->events.arg, task, &end);
}

static void on_gone(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const psrti_task_t *task = NULL;
    psrti_remote_task_t *t = read_task(b, host, r, &task);
    if (!t || t->gone) return;
    t->gone = 1;
    check_over(t);
    b->events.gone(b->events.arg, task);
}

static void send_ping(psrti_node_t *node)
{
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_PING);
    psrti_wire_put_u64(&w, psrti_now_ns());
    psrti_controller_send(node, &w);
}

/* Of all measurements the one with the shortest way is the best: half of it at most is the error. */
static void on_pong(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    psrti_node_t *node = &b->nodes[host];
    uint64_t sent = psrti_wire_get_u64(r), there = psrti_wire_get_u64(r), now = psrti_now_ns();
    if (r->bad || sent > now) return;
    node->heard_ns = now;
    if (!node->pongs || now - sent <= node->rtt_ns || now - node->rtt_at_ns > CLOCK_NS) {
        node->rtt_ns = now - sent;
        node->rtt_at_ns = now;
        node->clock_ns = (int64_t)(there - (sent + (now - sent) / 2));
    }
    if (++node->pongs < QUICK_PINGS) send_ping(node);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* A stranger becomes the connection of the host that it names; there is one for each. */
static int adopt(psrti_conn_t *c, psrti_wire_in_t *r)
{
    psrti_backend_t *b = c->backend;
    uint8_t type = psrti_wire_get_u8(r);
    uint32_t protocol = psrti_wire_get_u32(r), host = psrti_wire_get_u32(r);
    if (r->bad || type != PSRTI_AGENT_HELLO || protocol != PSRTI_AGENT_PROTOCOL ||
        host >= b->job->host_count || b->nodes[host].state != PSRTI_NODE_ABSENT ||
        b->nodes[host].channel || (b->phase != PSRTI_HOSTS_REACHING && !b->nodes[host].returning))
        return 0;
    psrti_node_t *node = &b->nodes[host];
    c->host = host;
    node->channel = c->channel;
    node->heard_ns = psrti_now_ns();
    send_ping(node);
    psrti_assemble_hello(b, host, r);
    return !r->bad;
}

static void on_agent_failed(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const char *text = psrti_wire_get_text(r);
    if (text) psrti_controller_lose(b, host, text);
}

static void dispatch(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    switch (psrti_wire_get_u8(r)) {
    case PSRTI_AGENT_PROBED: psrti_assemble_probed(b, host, r); break;
    case PSRTI_AGENT_OPENED: psrti_assemble_opened(b, host, r); break;
    case PSRTI_AGENT_FAILED: on_agent_failed(b, host, r); break;
    case PSRTI_AGENT_STARTED: on_started(b, host, r); break;
    case PSRTI_AGENT_OUTPUT: on_output(b, host, r); break;
    case PSRTI_AGENT_ENDED: on_ended(b, host, r); break;
    case PSRTI_AGENT_GONE: on_gone(b, host, r); break;
    case PSRTI_AGENT_PONG: on_pong(b, host, r); break;
    default: r->bad = 1; break;
    }
}

/* The agent speaks first. */
static void on_open(void *arg)
{
    psrti_conn_t *c = arg;
    c->is_proved = 1;
}

static void on_message(void *arg, const void *data, size_t len)
{
    psrti_conn_t *c = arg;
    psrti_backend_t *b = c->backend;
    psrti_wire_in_t r = { .at = data, .end = (const uint8_t *)data + len };
    if (b->closing) return;
    if (c->host == UINT_MAX) {
        if (!adopt(c, &r)) psrti_channel_abort(c->channel);
        return;
    }
    if (b->nodes[c->host].channel != c->channel) return; /* given up */
    dispatch(b, c->host, &r);
    if (r.bad)
        psrti_controller_lose(b, c->host,
                              "its psrt-agent said what psrt-launch does not understand");
}

static void on_closed(void *arg, const char *why)
{
    psrti_conn_t *c = arg;
    psrti_backend_t *b = c->backend;
    psrti_list_remove(&c->node);
    b->conn_count--;
    if (c->host != UINT_MAX && b->nodes[c->host].channel == c->channel) {
        b->nodes[c->host].channel = NULL;
        psrti_controller_lose(b, c->host, why ? why : "its psrt-agent ended");
    }
    free(c);
}

/* The longest here of those that have not proved the key: an agent does so at once, so that strangers who
 * are silent keep none out. Its end is told later. 0: there is none. */
static int evict(psrti_backend_t *b)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->conns)
    {
        psrti_conn_t *c = PSRTI_LIST_ENTRY(it, psrti_conn_t, node);
        if (c->is_proved) continue;
        psrti_list_remove(&c->node);
        psrti_channel_abort(c->channel);
        return 1;
    }
    return 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
    psrti_backend_t *b = listener->data;
    if (status < 0) return;
    if (b->conn_count >= STRANGERS_MAX + b->job->host_count && !evict(b)) {
        psrti_netif_refuse(listener);
        return;
    }
    psrti_conn_t *c = psrti_xcalloc(1, sizeof *c);
    *c = (psrti_conn_t){ .backend = b, .host = UINT_MAX };
    const psrti_channel_params_t params = {
        .loop = b->loop,
        .key = &b->key,
        .open_ms = OPEN_MS,
        .beat_ms = PSRTI_AGENT_BEAT_MS,
        .silent_ms = PSRTI_AGENT_SILENT_MS,
        .events = { .open = on_open, .message = on_message, .closed = on_closed, .arg = c },
    };
    if (psrti_channel_accept(&params, listener, &c->channel)) {
        free(c);
        return;
    }
    psrti_list_push(&b->conns, &c->node);
    b->conn_count++;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void begin(psrti_wire_out_t *w, uint8_t type, const psrti_task_t *task)
{
    psrti_wire_put_u8(w, type);
    psrti_wire_put_u32(w, (uint32_t)task->id);
}

psrt_status_t psrti_remote_start(psrti_backend_t *b, const psrti_task_t *task,
                                 const psrti_launch_t *launch)
{
    psrti_node_t *node = &b->nodes[task->host];
    psrti_wire_out_t w = { 0 };
    if (!node->channel)
        return psrti_fail(PSRT_ERR_IO, "%s: host %s was lost: %s", task->name,
                          b->job->hosts[task->host].name, node->why);
    begin(&w, PSRTI_AGENT_START, task);
    psrti_wire_put_u32(&w, task->attempt);
    for (unsigned i = 0; i < task->role->ports; i++)
        psrti_wire_put_u32(&w, task->ports[i]);
    psrti_wire_put_texts(&w, launch->argv);
    psrti_wire_put_texts(&w, launch->env.entries);
    psrti_wire_put_text(&w, launch->directory);
    psrti_wire_put_u64(&w, launch->grace_ns);
    psrti_wire_put_u8(&w, (uint8_t)launch->virtualenv);
    psrti_wire_put_u8(&w, (uint8_t)launch->listen);
    psrti_wire_put_u8(&w, (uint8_t)launch->bind);
    psrti_wire_put_u32(&w, launch->bind_part);
    psrti_wire_put_u32(&w, launch->bind_parts);
    psrti_controller_send(node, &w);
    b->tasks[task->id] = (psrti_remote_task_t){
        .open = 1, .open_streams = 1 << STDOUT_FILENO | 1 << STDERR_FILENO, .host = task->host
    };
    return PSRT_OK;
}

static psrti_node_t *node_of(psrti_backend_t *b, const psrti_task_t *task)
{
    return &b->nodes[b->tasks[task->id].host];
}

void psrti_remote_stop(psrti_backend_t *b, const psrti_task_t *task, psrti_stop_t how)
{
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_STOP, task);
    psrti_wire_put_u8(&w, (uint8_t)how);
    psrti_controller_send(node_of(b, task), &w);
}

void psrti_remote_signal(psrti_backend_t *b, const psrti_task_t *task, int sig)
{
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_SIGNAL, task);
    psrti_wire_put_u32(&w, (uint32_t)sig);
    psrti_controller_send(node_of(b, task), &w);
}

/* The channels are read on: ends of tasks are to be seen whatever happens to their output. */
void psrti_remote_pause(psrti_backend_t *b, int paused)
{
    for (size_t h = 0; h < b->job->host_count; h++) {
        psrti_wire_out_t w = { 0 };
        psrti_wire_put_u8(&w, PSRTI_AGENT_PAUSE);
        psrti_wire_put_u8(&w, (uint8_t)paused);
        psrti_controller_send(&b->nodes[h], &w);
    }
}

int psrti_remote_verdict(const psrti_backend_t *b, unsigned host, char *buf, size_t size)
{
    const psrti_node_t *n = &b->nodes[host];
    char memlock[32] = "unlimited";
    if (n->state == PSRTI_NODE_LOST || n->state == PSRTI_NODE_ABSENT) {
        snprintf(buf, size, "%s", n->why[0] ? n->why : "did not answer");
        return 0;
    }
    if (n->facts.memlock != UINT64_MAX)
        snprintf(memlock, sizeof memlock, "%llu KiB", (unsigned long long)n->facts.memlock / 1024);
    const char *address = b->job->hosts[host].address;
    snprintf(buf, size, "%s, psrt-agent %s, %u cores, %u GPUs, locked memory %s, clock %+.3f s",
             address ? address : "no address", n->facts.version, n->facts.cores, n->facts.gpus,
             memlock, (double)n->skew_ns / PSRTI_NS_PER_S);
    return 1;
}

/* ---- open, close ----------------------------------------------------------------------------- */

static void on_psrtd(void *arg, unsigned host, const char *path)
{
    psrti_backend_t *b = arg;
    psrti_job_set(&b->job->hosts[host].psrtd, path);
}

static void on_starter_failed(void *arg, unsigned host, const char *text)
{
    psrti_controller_lose(arg, host, text);
}

static void on_deadline(uv_timer_t *timer) { psrti_assemble_deadline(timer->data); }

static void on_ping(uv_timer_t *timer)
{
    psrti_backend_t *b = timer->data;
    for (size_t h = 0; h < b->job->host_count; h++)
        send_ping(&b->nodes[h]);
}

/* Where agents may find the controller. What --iface and --subnet say of the hosts may not hold for
 * this one. */
static char **own_addresses(const psrti_job_t *job)
{
    psrti_netif_t netifs[PSRTI_NETIF_MAX];
    size_t total = psrti_netif_list(netifs), count = 0;
    char **addresses = psrti_xcalloc(total + 1, sizeof *addresses);
    for (int pass = 0; pass < 2 && !count; pass++)
        for (size_t i = 0; i < total; i++)
            if (pass || psrti_assemble_may_use(job, &netifs[i]))
                addresses[count++] = psrti_xstrdup(netifs[i].address);
    return addresses;
}

static void start_agent(psrti_backend_t *b, unsigned host)
{
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) snprintf(here, sizeof here, "/");
    psrti_bootstrap_t bootstrap = { .key = b->key,
                                    .host = host,
                                    .open_ms = b->job->connect_ns / PSRTI_NS_PER_MS,
                                    .directory = here,
                                    .addresses = own_addresses(b->job),
                                    .port = b->port };
    psrti_wire_out_t w = { 0 };
    psrti_bootstrap_write(&bootstrap, &w);
    b->ops->start(b->starter, host, w.data, w.len);
    explicit_bzero(w.data, w.len);
    psrti_wire_clear(&w);
    psrti_argv_free(bootstrap.addresses);
    psrti_jobkey_wipe(&bootstrap.key);
}

/* A new agent, which binds new ports; tasks that come to the host get those. The try before has the time that all
 * hosts had at first, however often this is asked for. */
void psrti_remote_reach(psrti_backend_t *b, unsigned host)
{
    psrti_node_t *node = &b->nodes[host];
    if (b->closing || b->phase != PSRTI_HOSTS_READY) return;
    uint64_t now = psrti_now_ns();
    if (node->returning && now - node->since_ns < b->job->connect_ns) return;
    if (node->returning) psrti_controller_lose(b, host, "no answer in all the time");
    if (node->state != PSRTI_NODE_LOST) return;
    psrti_node_t fresh = {
        .state = PSRTI_NODE_ABSENT, .returning = 1, .known = node->known, .since_ns = now
    };
    memcpy(fresh.why, node->why, sizeof fresh.why);
    *node = fresh;
    start_agent(b, host);
}

static psrt_status_t make_key(psrti_backend_t *b)
{
    if (!b->job->key) return psrti_jobkey_generate(&b->key);
    b->key = *b->job->key;
    return PSRT_OK;
}

static void make_nodes(psrti_backend_t *b)
{
    size_t capacity = b->job->host_capacity;
    b->nodes = psrti_xcalloc(capacity, sizeof *b->nodes);
    for (size_t h = b->job->host_count; h < capacity; h++)
        b->nodes[h].state = PSRTI_NODE_LOST;
}

static void init_timers(psrti_backend_t *b)
{
    uv_timer_init(b->loop, &b->deadline);
    uv_timer_init(b->loop, &b->ping);
    b->deadline.data = b->ping.data = b->listener.data = b;
    uv_timer_start(&b->deadline, on_deadline, b->job->connect_ns / PSRTI_NS_PER_MS, 0);
    uv_timer_start(&b->ping, on_ping, PSRTI_AGENT_BEAT_MS, PSRTI_AGENT_BEAT_MS);
}

psrt_status_t psrti_remote_open(uv_loop_t *loop, psrti_job_t *job,
                                const psrti_backend_events_t *events,
                                const psrti_starter_ops_t *starter, psrti_backend_t **backend_p)
{
    psrti_backend_t *b = psrti_xcalloc(1, sizeof *b);
    *b = (psrti_backend_t){ .loop = loop, .job = job, .events = *events, .ops = starter };
    psrti_list_init(&b->conns);
    const psrti_starter_events_t starter_events = { on_psrtd, on_starter_failed, b };
    psrt_status_t st = job->subnet ? psrti_netif_check_subnet(job->subnet) : PSRT_OK;
    if (!st) st = make_key(b);
    if (!st) st = psrti_jobdir_create(job->dir, &b->lock); /* its hosts have the key */
    if (st) goto err_free;
    st = starter->open(loop, job, &starter_events, &b->starter);
    if (st) goto err_dir;
    st = psrti_netif_listen(loop, &b->listener, on_connection, &b->port);
    if (st) goto err_starter;
    make_nodes(b);
    b->tasks = psrti_xcalloc(job->task_count, sizeof *b->tasks);
    init_timers(b);
    for (unsigned h = 0; h < job->host_count; h++)
        start_agent(b, h);
    *backend_p = b;
    return PSRT_OK;
err_starter:
    starter->close(b->starter);
    uv_run(loop, UV_RUN_DEFAULT);
    starter->release(b->starter);
err_dir:
    psrti_jobdir_remove(job->dir);
    close(b->lock);
err_free:
    free(b);
    return st;
}

/* An agent whose last messages were taken ends by itself; the others by the end of their input. */
void psrti_remote_close(psrti_backend_t *b)
{
    b->closing = 1;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->conns)
    {
        psrti_conn_t *c = PSRTI_LIST_ENTRY(it, psrti_conn_t, node);
        if (c->host == UINT_MAX)
            psrti_channel_abort(c->channel);
        else
            psrti_channel_close(c->channel);
    }
    uv_close((uv_handle_t *)&b->listener, NULL);
    uv_close((uv_handle_t *)&b->deadline, NULL);
    uv_close((uv_handle_t *)&b->ping, NULL);
    b->ops->close(b->starter);
    psrti_jobdir_remove(b->job->dir);
    close(b->lock);
}

void psrti_remote_release(psrti_backend_t *b)
{
    b->ops->release(b->starter);
    psrti_jobkey_wipe(&b->key);
    free(b->nodes);
    free(b->tasks);
    free(b);
}
