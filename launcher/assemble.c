/* SPDX-License-Identifier: Apache-2.0 */
/* From agents that are started to tasks that may be: all hosts say hello, each looks which of its
 * neighbour's addresses lead there, then binds the ports of its tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
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
    give_up_host(b, host, text);
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
        psrti_wire_put_u8(&w, task->host == host);
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
        b->nodes[0].reached = UINT64_MAX;
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

/* The launcher's directory matters only to roles that have none of their own. */
static void check_directory(psrti_backend_t *b, unsigned host)
{
    const psrti_job_t *job = b->job;
    char text[400], here[256];
    uint32_t error = b->nodes[host].facts.directory_error;
    for (size_t i = 0; error && i < job->task_count; i++) {
        if (job->tasks[i].host != host || job->tasks[i].role->directory) continue;
        snprintf(text, sizeof text, "directory %s, where psrt-launch runs: %s",
                 uv_cwd(here, &(size_t){ sizeof here }) ? "" : here, strerror((int)error));
        give_up_host(b, host, text);
        return;
    }
}

/* One that was lost while the job ran. The others know it by the address that it had. */
static void welcome_back(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    const psrti_facts_t *facts = &b->nodes[host].facts;
    for (size_t i = 0; i < facts->netif_count && b->nodes[host].state == PSRTI_NODE_HERE; i++) {
        if (strcmp(facts->netifs[i].address, b->job->hosts[host].address)) continue;
        send_open(b, host);
        return;
    }
    r->bad = 1;
}

void psrti_assemble_hello(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    psrti_node_t *node = &b->nodes[host];
    psrti_facts_read(r, &node->facts);
    r->bad |= !psrti_wire_is_done(r) || !node->facts.netif_count;
    if (r->bad) return;
    node->skew_ns = (int64_t)(node->facts.wall_ns - psrti_wall_ns());
    node->state = PSRTI_NODE_HERE;
    check_addresses(b, host);
    check_directory(b, host);
    if (node->returning)
        welcome_back(b, host, r);
    else
        advance(b);
}

void psrti_assemble_probed(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    unsigned neighbour = (unsigned)((host + 1) % b->job->host_count);
    char text[512], list[256];
    uint64_t reached = psrti_wire_get_u64(r);
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

void psrti_assemble_opened(psrti_backend_t *b, unsigned host, psrti_wire_in_t *r)
{
    psrti_job_t *job = b->job;
    const char *dir = psrti_wire_get_text(r);
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *task = &job->tasks[i];
        for (unsigned k = 0; task->host == host && k < task->role->ports; k++)
            task->ports[k] = (uint16_t)psrti_wire_get_u32(r);
    }
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
    b->events.host_up(b->events.arg, host);
}
