/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of psrt-agent: the way to the controller (agent.c), the look at the neighbour's addresses
 * (agent_probe.c), this host's tasks (agent_tasks.c). */
#ifndef PSRTI_LAUNCHER_AGENT_H
#define PSRTI_LAUNCHER_AGENT_H

#include <uv.h>

#include "base/list.h"
#include "launcher/agentmsg.h"
#include "launcher/backend.h"

typedef struct psrti_agent psrti_agent_t;

typedef struct psrti_agent_probe {
    uv_tcp_t listener;
    int listening;
    psrti_list_t visitors; /* channels of those that look whether this host is here */
    size_t visitor_count;
    /* The look at the neighbour. */
    uv_timer_t timer;
    psrti_channel_t *dials[PSRTI_NETIF_MAX];
    uint32_t neighbour;
    unsigned open_dials;
    uint64_t reached;
    int asked, answered;
} psrti_agent_probe_t;

typedef struct psrti_agent_tasks {
    psrti_job_t job; /* all tasks, those of other hosts too */
    psrti_backend_t *backend;
    int asked_pause, behind; /* by the controller; what was sent to it has not left */
} psrti_agent_tasks_t;

struct psrti_agent {
    uv_loop_t loop;
    psrti_bootstrap_t bootstrap;
    psrti_channel_t *channel; /* NULL: not open */
    int over, code;
    psrti_agent_probe_t probe;
    psrti_agent_tasks_t tasks;
};

/* Ends the agent; what watches over tasks that are left ends them. NULL: as the controller asked. */
void psrti_agent_end(psrti_agent_t *agent, const char *why);
/* Sends the message and clears the writer. */
void psrti_agent_send(psrti_agent_t *agent, psrti_wire_out_t *w);

psrt_status_t psrti_agent_probe_open(psrti_agent_t *agent, uint16_t *port_p);
void psrti_agent_probe_start(psrti_agent_t *agent, psrti_wire_in_t *r);
void psrti_agent_probe_close(psrti_agent_t *agent);

void psrti_agent_tasks_open(psrti_agent_t *agent, psrti_wire_in_t *r);
void psrti_agent_tasks_start(psrti_agent_t *agent, psrti_wire_in_t *r);
void psrti_agent_tasks_stop(psrti_agent_t *agent, psrti_wire_in_t *r);
void psrti_agent_tasks_signal(psrti_agent_t *agent, psrti_wire_in_t *r);
void psrti_agent_tasks_pause(psrti_agent_t *agent, int paused);
void psrti_agent_tasks_drained(psrti_agent_t *agent);
void psrti_agent_tasks_close(psrti_agent_t *agent);
void psrti_agent_tasks_release(psrti_agent_t *agent);

#endif
