/* SPDX-License-Identifier: Apache-2.0 */
/* From agents that are started to tasks that may be: all hosts say hello, each looks which of its
 * neighbour's addresses lead there, then binds the ports of its tasks. One that comes later, or comes
 * back, takes the same course alone, and looks for one of those that are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/contract.h"
#include "launcher/controller.h"
#include "launcher/env.h"

static const char *name_of(const psrti_backend_t *b, unsigned host)
{
    return b->job->hosts[host].name;
}

static int all_at(const psrti_backend_t *b, psrti_node_state_t state)
{
    for (size_t h = 0; h < b->job->host_count; h++)
        if (b->nodes[h].state != state) return 0;
    return 1;
}

/* ---- failure --------------------------------------------------------------------------------- */

static void fail(psrti_backend_t *b)
{
    char text[PSRTI_ERROR_MAX];
    size_t pos = 0, bad = 0, first = 0;
    for (size_t h = 0; h < b->job->host_count; h++)
        bad += b->nodes[h].state == PSRTI_NODE_LOST;
    psrti_append(text, sizeof text, &pos, "%zu of %zu host%s cannot be used:", bad,
                 b->job->host_count, b->job->host_count == 1 ? "" : "s");
    for (unsigned h = 0; h < b->job->host_count; h++)
        if (b->nodes[h].state == PSRTI_NODE_LOST)
            psrti_append(text, sizeof text, &pos, "%s %s: %s", first++ ? ";" : "", name_of(b, h),
                         b->nodes[h].why);
    b->phase = PSRTI_HOSTS_FAILED;
    uv_timer_stop(&b->deadline);
    b->events.failed(b->events.arg, text);
}

static void give_up_host(psrti_backend_t *b, unsigned host, const char *text)
{
    psrti_node_t *node = &b->nodes[host];
    if (node->state == PSRTI_NODE_LOST) return; /* the first reason stays */
    node->state = PSRTI_NODE_LOST;
    snprintf(node->why, sizeof node->why, "%s", text);
}

/* The same for one that comes alone, whose connection ends. */
static void refuse(psrti_backend_t *b, unsigned host, const char *text)
{
    if (b->nodes[host].returning)
        psrti_controller_lose(b, host, text);
    else
        give_up_host(b, host, text);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* What --iface and --subnet leave. */
int psrti_assemble_may_use(const psrti_job_t *job, const psrti_netif_t *netif)
{
    return (!job->interface || !strcmp(job->interface, netif->interface)) &&
           (!job->subnet || psrti_netif_in_subnet(netif->address, job->subnet));
}

static uint64_t allowed(const psrti_backend_t *b, unsigned host)
{
    const psrti_facts_t *facts = &b->nodes[host].facts;
    uint64_t bits = 0;
    for (size_t i = 0; i < facts->netif_count; i++)
        if (psrti_assemble_may_use(b->job, &facts->netifs[i])) bits |= 1ull << i;
    return bits;
}

static void list_addresses(const psrti_facts_t *facts, char *buf, size_t size)
{
    size_t pos = 0;
    *buf = '\0';
    for (size_t i = 0; i < facts->netif_count; i++)
        psrti_append(buf, size, &pos, "%s%s %s", i ? ", " : "", facts->netifs[i].interface,
                     facts->netifs[i].address);
}

static void check_addresses(psrti_backend_t *b, unsigned host)
{
    char list[256], text[400];
    const psrti_job_t *job = b->job;
    if (allowed(b, host)) return;
    list_addresses(&b->nodes[host].facts, list, sizeof list);
    snprintf(text, sizeof text, "no address of it is on%s%s%s%s; it has %s",
             job->interface ? " interface " : "", job->interface ? job->interface : "",
             job->subnet ? " subnet " : "", job->subnet ? job->subnet : "", list);
    refuse(b, host, text);
}

static const psrti_netif_t *find_netif(const psrti_backend_t *b, unsigned host, const char *address)
{
    const psrti_facts_t *facts = &b->nodes[host].facts;
    for (size_t i = 0; address && i < facts->netif_count; i++)
        if (!strcmp(facts->netifs[i].address, address)) return &facts->netifs[i];
    return NULL;
}

/* Those of the interface by which it came to psrt-launch: others reach it there most likely, which
 * nobody has looked for. Which of them it came by is chance: it dials in all ways at once. All, when
 * that is none of those that may be used: both are one machine. */
static uint64_t came_from(const psrti_backend_t *b, unsigned host)
{
    const psrti_facts_t *facts = &b->nodes[host].facts;
    char peer[INET6_ADDRSTRLEN];
    uint64_t usable = allowed(b, host), bits = 0;
    psrti_channel_peer(b->nodes[host].channel, peer, sizeof peer);
    const psrti_netif_t *way = find_netif(b, host, peer);
    for (size_t i = 0; way && i < facts->netif_count; i++)
        if (!strcmp(facts->netifs[i].interface, way->interface)) bits |= usable & 1ull << i;
    return bits ? bits : UINT64_MAX;
}

static void send_probe(psrti_backend_t *b, unsigned host)
{
    unsigned neighbour = (unsigned)((host + 1) % b->job->host_count);
    const psrti_facts_t *facts = &b->nodes[neighbour].facts;
    uint64_t bits = allowed(b, neighbour);
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_PROBE);
    psrti_wire_put_u32(&w, neighbour);
    psrti_wire_put_u32(&w, facts->probe_port);
    psrti_wire_put_u32(&w, (uint32_t)facts->netif_count);
    for (size_t i = 0; i < facts->netif_count; i++)
        psrti_wire_put_text(&w, bits >> i & 1 ? facts->netifs[i].address : NULL);
    psrti_controller_send(&b->nodes[host], &w);
}

static void choose_addresses(psrti_backend_t *b)
{
    size_t count = b->job->host_count;
    psrti_netif_choice_t *hosts = psrti_xcalloc(count, sizeof *hosts);
    for (unsigned h = 0; h < count; h++) {
        const psrti_node_t *node = &b->nodes[h];
        hosts[h] = (psrti_netif_choice_t){ .netifs = node->facts.netifs,
                                           .count = node->facts.netif_count,
                                           .usable = node->reached & allowed(b, h) };
    }
    psrti_netif_choose(hosts, count);
    for (size_t h = 0; h < count; h++)
        psrti_job_set(&b->job->hosts[h].address, hosts[h].netifs[hosts[h].chosen].address);
    free(hosts);
}

/* ---- the course ------------------------------------------------------------------------------ */

/* Its ports are bound here. That of one which waits for any host: wherever it may come to run. */
static int has_ports_at(const psrti_task_t *task, unsigned host)
{
    if (task->unplaced) return !psrti_contract_takes_sockets(task);
    return task->host == host;
}

/* All tasks of the job: one may come here later, when its host is lost. */
static void send_open(psrti_backend_t *b, unsigned host)
{
    const psrti_job_t *job = b->job;
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_OPEN);
    psrti_wire_put_text(&w, job->hosts[host].address);
    psrti_wire_put_u32(&w, (uint32_t)job->task_count);
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *task = &job->tasks[i];
        psrti_wire_put_text(&w, task->name);
        psrti_wire_put_u32(&w, task->role->kind);
        psrti_wire_put_u8(&w, !task->role->argv && !task->role->shell);
        psrti_wire_put_u32(&w, task->role->ports);
        psrti_wire_put_u8(&w, (uint8_t)has_ports_at(task, host));
    }
    psrti_controller_send(&b->nodes[host], &w);
}

static void begin_opening(psrti_backend_t *b)
{
    b->phase = PSRTI_HOSTS_OPENING;
    choose_addresses(b);
    for (unsigned h = 0; h < b->job->host_count; h++)
        send_open(b, h);
}

static void begin_probing(psrti_backend_t *b)
{
    b->phase = PSRTI_HOSTS_PROBING;
    if (b->job->host_count == 1) { /* there is nobody else to dial it */
        b->nodes[0].reached = came_from(b, 0);
        b->nodes[0].state = PSRTI_NODE_PROBED;
        begin_opening(b);
        return;
    }
    for (unsigned h = 0; h < b->job->host_count; h++)
        send_probe(b, h);
}

static void become_ready(psrti_backend_t *b)
{
    b->phase = PSRTI_HOSTS_READY;
    for (size_t h = 0; h < b->job->host_count; h++)
        b->nodes[h].known = 1;
    uv_timer_stop(&b->deadline);
    psrti_job_set_coordinator(b->job);
    b->events.ready(b->events.arg);
}

static void advance(psrti_backend_t *b)
{
    int absent = 0, lost = 0;
    for (size_t h = 0; h < b->job->host_count; h++) {
        absent += b->nodes[h].state == PSRTI_NODE_ABSENT;
        lost += b->nodes[h].state == PSRTI_NODE_LOST;
    }
    /* A verdict on every host is better than the first one. */
    if (b->phase == PSRTI_HOSTS_REACHING && absent) return;
    if (lost)
        fail(b);
    else if (b->phase == PSRTI_HOSTS_REACHING)
        begin_probing(b);
    else if (b->phase == PSRTI_HOSTS_PROBING && all_at(b, PSRTI_NODE_PROBED))
        begin_opening(b);
    else if (b->phase == PSRTI_HOSTS_OPENING && all_at(b, PSRTI_NODE_OPENED))
        become_ready(b);
}

void psrti_assemble_lost(psrti_backend_t *b, unsigned host, const char *text)
{
    if (b->phase == PSRTI_HOSTS_FAILED) return;
    give_up_host(b, host, text);
    advance(b);
}

void psrti_assemble_deadline(psrti_backend_t *b)
{
    char text[64];
    snprintf(text, sizeof text, "did not get ready within %.1f s",
             (double)b->job->connect_ns / PSRTI_NS_PER_S);
    for (unsigned h = 0; h < b->job->host_count; h++)
        if (b->nodes[h].state < (b->phase == PSRTI_HOSTS_REACHING  ? PSRTI_NODE_HERE
                                 : b->phase == PSRTI_HOSTS_PROBING ? PSRTI_NODE_PROBED
                                                                   : PSRTI_NODE_OPENED))
            give_up_host(b, h, text);
    if (b->phase < PSRTI_HOSTS_READY) fail(b);
}

/* ---- what agents say ------------------------------------------------------------------------- */

/* Of a host that is there before the tasks are placed anew, any may come. */
static int may_run_at(const psrti_backend_t *b, const psrti_task_t *task, unsigned host)
{
    const psrti_role_t *role = task->role;
    int moves = role->min < role->max || role->restart.when != PSRTI_RESTART_NEVER;
    return task->host == host ||
           (b->nodes[host].returning && moves && role->kind != PSRTI_KIND_COORDINATOR);
}

/* The launcher's directory matters only to roles that have none of their own. */
static void check_directory(psrti_backend_t *b, unsigned host)
{
    const psrti_job_t *job = b->job;
    char text[400], here[256];
    uint32_t error = b->nodes[host].facts.directory_error;
    for (size_t i = 0; error && i < job->task_count; i++) {
        if (job->tasks[i].role->directory || !may_run_at(b, &job->tasks[i], host)) continue;
        snprintf(text, sizeof text, "directory %s, where psrt-launch runs: %s",
                 uv_cwd(here, &(size_t){ sizeof here }) ? "" : here, strerror((int)error));
        refuse(b, host, text);
        return;
    }
}

/* ---- one that comes alone -------------------------------------------------------------------- */

/* One that is ready; host_count: none. */
static unsigned find_ready(const psrti_backend_t *b)
{
    unsigned h = 0;
    while (h < b->job->host_count && b->nodes[h].state != PSRTI_NODE_OPENED)
        h++;
    return h;
}

/* In the network in which it reaches the others; where networks are routed, by which it came here. */
static void take_address(psrti_backend_t *b, unsigned host, const psrti_netif_t *network)
{
    const psrti_facts_t *facts = &b->nodes[host].facts;
    uint64_t bits = allowed(b, host), best = bits & came_from(b, host);
    for (size_t i = 0; network && i < facts->netif_count; i++)
        if (bits >> i & 1 && psrti_netif_same_network(&facts->netifs[i], network)) {
            best = 1ull << i;
            break;
        }
    psrti_job_set(&b->job->hosts[host].address, facts->netifs[__builtin_ctzll(best)].address);
    send_open(b, host);
}

/* Agents look once, so the new one does, for the address by which all know a host that is ready. */
static void look_for_others(psrti_backend_t *b, unsigned host)
{
    unsigned other = find_ready(b);
    psrti_wire_out_t w = { 0 };
    b->nodes[host].neighbour = other;
    if (other == b->job->host_count) {
        take_address(b, host, NULL);
        return;
    }
    psrti_wire_put_u8(&w, PSRTI_AGENT_PROBE);
    psrti_wire_put_u32(&w, other);
    psrti_wire_put_u32(&w, b->nodes[other].facts.probe_port);
    psrti_wire_put_u32(&w, 1);
    psrti_wire_put_text(&w, b->job->hosts[other].address);
    psrti_controller_send(&b->nodes[host], &w);
}

static void looked_for_others(psrti_backend_t *b, unsigned host, uint64_t reached,
                              psrti_wire_in_t *r)
{
    psrti_node_t *node = &b->nodes[host];
    const char *address = b->job->hosts[node->neighbour].address;
    char text[400];
    r->bad |= node->state != PSRTI_NODE_HERE || b->job->hosts[host].address != NULL;
    if (r->bad) return;
    if (reached & 1) {
        take_address(b, host, find_netif(b, node->neighbour, address));
        return;
    }
    snprintf(text, sizeof text, "it does not reach host %s at %s", name_of(b, node->neighbour),
             address);
    psrti_controller_lose(b, host, text);
}

/* One that was lost while the job ran is known by the address that it had; on a host that a script
 * lists anew nothing runs that anybody knows. */
static void welcome(psrti_backend_t *b, unsigned host)
{
    psrti_host_t *h = &b->job->hosts[host];
    char text[400];
    if (find_netif(b, host, h->address)) {
        send_open(b, host);
    } else if (h->address && !b->job->discovers) {
        snprintf(text, sizeof text, "it has no longer the address %s", h->address);
        psrti_controller_lose(b, host, text);
    } else {
        psrti_job_set(&h->address, NULL);
        look_for_others(b, host);
    }
}

void psrti_assemble_hello(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    psrti_node_t *node = &b->nodes[host];
    psrti_facts_read(r, &node->facts);
    r->bad |= !psrti_wire_is_done(r) || !node->facts.netif_count;
    if (r->bad) return;
    node->skew_ns = (int64_t)(node->facts.wall_ns - psrti_wall_ns());
    node->state = PSRTI_NODE_HERE;
    int alone = node->returning;
    check_addresses(b, host);
    check_directory(b, host);
    if (!alone)
        advance(b);
    else if (node->state == PSRTI_NODE_HERE)
        welcome(b, host);
}

void psrti_assemble_probed(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    unsigned neighbour = (unsigned)((host + 1) % b->job->host_count);
    char text[512], list[256];
    uint64_t reached = psrti_wire_get_u64(r);
    if (b->nodes[host].returning) {
        looked_for_others(b, host, reached, r);
        return;
    }
    r->bad |= b->phase != PSRTI_HOSTS_PROBING || b->nodes[host].state != PSRTI_NODE_HERE;
    if (r->bad) return;
    b->nodes[host].state = PSRTI_NODE_PROBED;
    b->nodes[neighbour].reached = reached & allowed(b, neighbour);
    if (!b->nodes[neighbour].reached) {
        list_addresses(&b->nodes[neighbour].facts, list, sizeof list);
        snprintf(text, sizeof text, "none of its addresses can be reached from %s: %s",
                 name_of(b, host), list);
        give_up_host(b, neighbour, text);
    }
    advance(b);
}

/* A task may have gone elsewhere since it was asked for. */
static void take_ports(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    uint32_t id = psrti_wire_get_u32(r);
    r->bad |= id >= b->job->task_count;
    if (r->bad) return;
    psrti_task_t *task = &b->job->tasks[id];
    for (unsigned k = 0; k < task->role->ports; k++) {
        uint16_t port = (uint16_t)psrti_wire_get_u32(r);
        if (!r->bad && has_ports_at(task, host)) task->ports[k] = port;
    }
}

void psrti_assemble_opened(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    psrti_job_t *job = b->job;
    const char *dir = psrti_wire_get_text(r);
    while (!r->bad && r->at < r->end)
        take_ports(b, host, r);
    psrti_node_t *node = &b->nodes[host];
    r->bad |=
        !dir || !psrti_wire_is_done(r) || (b->phase != PSRTI_HOSTS_OPENING && !node->returning);
    if (r->bad) return;
    psrti_job_set(&job->hosts[host].dir, dir);
    node->state = PSRTI_NODE_OPENED;
    if (!node->returning) {
        advance(b);
        return;
    }
    node->returning = 0;
    node->why[0] = '\0';
    int back = node->known;
    node->known = 1;
    b->events.host_up(b->events.arg, host, back);
}
