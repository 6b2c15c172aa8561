/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/hosts.h"
#include "launcher/script.h"

#define INTERVAL_DEFAULT PSRTI_NS_PER_S

/* ---- what was asked for ---------------------------------------------------------------------- */

static int is_elastic(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].min < job->roles[i].max) return 1;
    return 0;
}

psrt_status_t psrti_discover_check(const psrti_job_t *job)
{
    const char *script = job->discovery_script;
    if (!script && (job->discovery_interval_ns || job->slots_per_host))
        return psrti_fail(PSRT_ERR_INVALID, "%s: only beside --host-discovery-script",
                          job->slots_per_host ? "--slots-per-host" : "--host-discovery-interval");
    if (!script) return PSRT_OK;
    if (job->host_count)
        return psrti_fail(PSRT_ERR_INVALID,
                          "--host-discovery-script %s lists the hosts; drop -H, --hostfile, and "
                          "hosts and hostfile of the job file",
                          script);
    if (job->backend && strcmp(job->backend, "ssh"))
        return psrti_fail(
            PSRT_ERR_INVALID,
            "--host-discovery-script %s: its hosts are reached with ssh; drop backend "
            "%s",
            script, job->backend);
    if (!is_elastic(job))
        return psrti_fail(PSRT_ERR_INVALID,
                          "--host-discovery-script %s: the number of tasks must be free to change; "
                          "add --min-workers N --max-workers M, or min to a role of the job file",
                          script);
    return PSRT_OK;
}

/* ---- a list ---------------------------------------------------------------------------------- */

static FILE *open_text(const char *text, size_t len)
{
    FILE *file = fmemopen((void *)text, len, "r");
    if (file) return file;
    psrti_out_of_memory();
}

/* The text is what the script printed. */
static psrt_status_t read_list(const psrti_job_t *job, const char *text, size_t len,
                               psrti_hosts_t *hosts)
{
    FILE *file = open_text(text, len);
    psrt_status_t st = psrti_hosts_read(hosts, file, job->discovery_script);
    fclose(file);
    for (size_t i = 0; i < hosts->count; i++)
        if (!hosts->hosts[i].slots) hosts->hosts[i].slots = PSRTI_MAX(job->slots_per_host, 1);
    return st;
}

/* ---- the first one --------------------------------------------------------------------------- */

typedef struct first {
    psrti_job_t *job;
    psrti_script_t script;
    psrt_status_t st;
} first_t;

static void on_first(void *arg, psrt_status_t st, const char *text, size_t len)
{
    first_t *f = arg;
    psrti_hosts_t hosts = { 0 };
    if (!st) st = read_list(f->job, text, len, &hosts);
    if (!st && hosts.count > PSRTI_JOB_HOSTS_MAX)
        st = psrti_fail(PSRT_ERR_INVALID, "%s lists %zu hosts; there may be %d",
                        f->job->discovery_script, hosts.count, PSRTI_JOB_HOSTS_MAX);
    if (st)
        psrti_hosts_clear(&hosts);
    else
        psrti_job_take_hosts(f->job, &hosts);
    f->st = st ? PSRT_ERR_NOT_FOUND : PSRT_OK;
    psrti_script_close(&f->script);
}

psrt_status_t psrti_discover_first(psrti_job_t *job, uint64_t limit_ms)
{
    uv_loop_t loop;
    first_t f = { .job = job,
                  .script = { .loop = &loop,
                              .path = job->discovery_script,
                              .limit_ms = limit_ms,
                              .done = on_first,
                              .arg = &f } };
    if (uv_loop_init(&loop)) return psrti_fail(PSRT_ERR_LIMIT, "event loop: no descriptors left");
    psrti_script_init(&f.script);
    f.st = psrti_script_start(&f.script);
    if (f.st) psrti_script_close(&f.script);
    uv_run(&loop, UV_RUN_DEFAULT);
    psrti_script_release(&f.script);
    uv_loop_close(&loop);
    return f.st ? psrti_fail(f.st, "host discovery: %s", psrt_last_error()) : PSRT_OK;
}

/* ---- and what changes ------------------------------------------------------------------------ */

/* What is known of a host of the job. */
typedef struct known {
    int named, listed; /* by the last list that was good; by the present one */
    int told;          /* that it would like to be another */
} known_t;

struct psrti_discovery {
    psrti_job_t *job;
    psrti_discovery_events_t events;
    psrti_script_t script;
    uv_timer_t next;
    known_t known[PSRTI_JOB_HOSTS_MAX];
    int failing, closed;
};

static void on_next(uv_timer_t *timer);

static void start_timer(psrti_discovery_t *d)
{
    uint64_t ns = d->job->discovery_interval_ns ? d->job->discovery_interval_ns : INTERVAL_DEFAULT;
    if (!d->closed) uv_timer_start(&d->next, on_next, PSRTI_MAX(ns / PSRTI_NS_PER_MS, 1), 0);
}

/* The first of several in a row. */
static void fail(psrti_discovery_t *d)
{
    char text[PSRTI_ERROR_MAX + 64];
    snprintf(text, sizeof text, "host discovery: %s; the list before holds", psrt_last_error());
    if (!d->failing) d->events.warned(d->events.arg, text);
    d->failing = 1;
}

static unsigned find(const psrti_job_t *job, const char *name)
{
    unsigned h = 0;
    while (h < job->host_count && strcmp(job->hosts[h].name, name))
        h++;
    return h;
}

static int is_same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static int is_same(const psrti_host_t *a, const psrti_host_t *b)
{
    return a->slots == b->slots && a->ssh_port == b->ssh_port && is_same_text(a->user, b->user) &&
           a->mem_mb == b->mem_mb && a->gpus == b->gpus && !(a->cpus < b->cpus) &&
           !(a->cpus > b->cpus);
}

/* Tasks were placed by what it was. */
static void check_same(psrti_discovery_t *d, unsigned host, const psrti_host_t *listed)
{
    char text[PSRTI_ERROR_MAX];
    if (d->known[host].told || is_same(&d->job->hosts[host], listed)) return;
    d->known[host].told = 1;
    snprintf(text, sizeof text,
             "host discovery: host %s is listed with other slots or keys than before; it stays as "
             "it was",
             listed->name);
    d->events.warned(d->events.arg, text);
}

static void note_names(psrti_discovery_t *d)
{
    for (unsigned h = 0; h < d->job->host_count && !d->closed; h++) {
        known_t *k = &d->known[h];
        if (k->named == k->listed) continue;
        k->named = k->listed;
        d->events.named(d->events.arg, h, k->named);
    }
}

static psrt_status_t add_new(psrti_discovery_t *d, psrti_hosts_t *hosts)
{
    psrt_status_t st = PSRT_OK;
    for (size_t i = 0; i < hosts->count && !st && !d->closed; i++) {
        unsigned h = find(d->job, hosts->hosts[i].name);
        if (h < d->job->host_count) continue;
        st = psrti_job_add_host(d->job, &hosts->hosts[i]);
        if (st) continue;
        d->known[h] = (known_t){ .named = 1 };
        d->events.added(d->events.arg, h);
    }
    return st;
}

static psrt_status_t apply(psrti_discovery_t *d, psrti_hosts_t *hosts)
{
    for (unsigned h = 0; h < d->job->host_count; h++)
        d->known[h].listed = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        unsigned h = find(d->job, hosts->hosts[i].name);
        if (h == d->job->host_count) continue;
        d->known[h].listed = 1;
        check_same(d, h, &hosts->hosts[i]);
    }
    note_names(d);
    return add_new(d, hosts);
}

static void on_list(void *arg, psrt_status_t st, const char *text, size_t len)
{
    psrti_discovery_t *d = arg;
    psrti_hosts_t hosts = { 0 };
    if (!st) st = read_list(d->job, text, len, &hosts);
    if (!st) st = apply(d, &hosts);
    if (st)
        fail(d);
    else
        d->failing = 0;
    psrti_hosts_clear(&hosts);
    start_timer(d);
}

static void on_next(uv_timer_t *timer)
{
    psrti_discovery_t *d = timer->data;
    if (!psrti_script_start(&d->script)) return;
    fail(d);
    start_timer(d);
}

psrti_discovery_t *psrti_discovery_open(uv_loop_t *loop, psrti_job_t *job, uint64_t limit_ms,
                                        const psrti_discovery_events_t *events)
{
    psrti_discovery_t *d = psrti_xcalloc(1, sizeof *d);
    *d = (psrti_discovery_t){ .job = job,
                              .events = *events,
                              .script = { .loop = loop,
                                          .path = job->discovery_script,
                                          .limit_ms = limit_ms,
                                          .done = on_list,
                                          .arg = d } };
    for (size_t h = 0; h < job->host_count; h++)
        d->known[h].named = 1;
    psrti_script_init(&d->script);
    uv_timer_init(loop, &d->next);
    d->next.data = d;
    start_timer(d);
    return d;
}

void psrti_discovery_close(psrti_discovery_t *d)
{
    if (!d || d->closed) return;
    d->closed = 1;
    psrti_script_close(&d->script);
    uv_close((uv_handle_t *)&d->next, NULL);
}

void psrti_discovery_release(psrti_discovery_t *d)
{
    if (!d) return;
    psrti_script_release(&d->script);
    free(d);
}
