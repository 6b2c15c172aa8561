/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that are lost, found again, listed and listed no more: what the core and the user hear of
 * it. */
#include "launcher/supervisor.h"

static const char *name_of(const psrti_supervisor_t *s, unsigned host)
{
    return s->job->hosts[host].name;
}

/* ---- from the backend ------------------------------------------------------------------------ */

void psrti_hostnews_lost(void *arg, unsigned host, const char *text)
{
    psrti_supervisor_t *s = arg;
    psrti_supervisor_tell(s, "host %s was lost: %s", name_of(s, host), text);
    psrti_core_host_lost(s->core, psrti_now_ns(), host);
    psrti_supervisor_act(s);
}

void psrti_hostnews_up(void *arg, unsigned host, int back)
{
    psrti_supervisor_t *s = arg;
    psrti_supervisor_note(s, "host %s is %s", name_of(s, host), back ? "back" : "ready");
    psrti_core_host_up(s->core, psrti_now_ns(), host);
    psrti_supervisor_act(s);
}

/* The core tries again when the host has cooled down, whatever the reason. */
void psrti_hostnews_not_reached(void *arg, unsigned host, const char *text)
{
    psrti_supervisor_t *s = arg;
    psrti_supervisor_tell(s, "host %s cannot be used: %s; it is tried again", name_of(s, host),
                          text);
}

/* ---- from the script ------------------------------------------------------------------------- */

static void on_added(void *arg, unsigned host)
{
    psrti_supervisor_t *s = arg;
    psrti_supervisor_note(s, "host %s is new, with %u slot%s", name_of(s, host),
                          s->job->hosts[host].slots, s->job->hosts[host].slots == 1 ? "" : "s");
    psrti_core_host_added(s->core, psrti_now_ns());
    psrti_supervisor_act(s);
}

static void on_named(void *arg, unsigned host, int named)
{
    psrti_supervisor_t *s = arg;
    if (named) psrti_supervisor_note(s, "host %s is listed again", name_of(s, host));
    psrti_core_host_named(s->core, psrti_now_ns(), host, named);
    psrti_supervisor_act(s);
}

static void on_warned(void *arg, const char *text) { psrti_supervisor_tell(arg, "%s", text); }

void psrti_hostnews_watch(psrti_supervisor_t *s)
{
    const psrti_discovery_events_t events = {
        .added = on_added, .named = on_named, .warned = on_warned, .arg = s
    };
    if (!s->job->discovers) return;
    s->discovery = psrti_discovery_open(&s->loop, s->job, PSRTI_DISCOVER_LIMIT_MS, &events);
}

void psrti_hostnews_check(psrti_supervisor_t *s)
{
    if (psrti_core_cause(s->core) || psrti_core_draining(s->core))
        psrti_discovery_close(s->discovery);
}
