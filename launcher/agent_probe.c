/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a host's addresses lead to it, as its neighbour sees it: container bridges have the same
 * address on every host, management networks may be filtered. Who answers proves the job's key and
 * says which host it is, so an address that leads elsewhere does not count. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "launcher/agent.h"
#include "launcher/env.h"

#define PROBE_MS 5000
#define MORE_MS 500 /* once one address was found to lead there */
#define VISITORS_MAX 64

typedef struct visitor {
    psrti_list_t node;
    psrti_agent_t *agent;
    psrti_channel_t *channel;
} visitor_t;

typedef struct dial {
    psrti_agent_t *agent;
    unsigned at;
} dial_t;

static psrti_channel_params_t channel_params(psrti_agent_t *agent)
{
    return (psrti_channel_params_t){ .loop = &agent->loop,
                                     .key = &agent->bootstrap.key,
                                     .open_ms = PROBE_MS,
                                     .beat_ms = PSRTI_AGENT_BEAT_MS,
                                     .silent_ms = PROBE_MS };
}

/* ---- answering ------------------------------------------------------------------------------- */

static void visitor_open(void *arg)
{
    visitor_t *v = arg;
    uint8_t host[4];
    psrti_put32(host, v->agent->bootstrap.host);
    psrti_channel_send(v->channel, host, sizeof host);
}

static void visitor_message(void *arg, const void *data, size_t len)
{
    (void)data, (void)len;
    psrti_channel_close(((visitor_t *)arg)->channel); /* it has nothing to say */
}

static void visitor_closed(void *arg, const char *why)
{
    visitor_t *v = arg;
    (void)why;
    psrti_list_remove(&v->node);
    v->agent->probe.visitor_count--;
    free(v);
}

static void on_visitor(uv_stream_t *listener, int status)
{
    psrti_agent_t *agent = listener->data;
    psrti_agent_probe_t *p = &agent->probe;
    if (status < 0) return;
    if (p->visitor_count == VISITORS_MAX) {
        psrti_netif_refuse(listener);
        return;
    }
    visitor_t *v = psrti_xcalloc(1, sizeof *v);
    psrti_channel_params_t params = channel_params(agent);
    params.events = (psrti_channel_events_t){
        .open = visitor_open, .message = visitor_message, .closed = visitor_closed, .arg = v
    };
    v->agent = agent;
    if (psrti_channel_accept(&params, listener, &v->channel)) {
        free(v);
        return;
    }
    psrti_list_push(&p->visitors, &v->node);
    p->visitor_count++;
}

psrt_status_t psrti_agent_probe_open(psrti_agent_t *agent, uint16_t *port_p)
{
    psrti_agent_probe_t *p = &agent->probe;
    psrti_list_init(&p->visitors);
    uv_timer_init(&agent->loop, &p->timer);
    p->timer.data = p->listener.data = agent;
    psrt_status_t st = psrti_netif_listen(&agent->loop, &p->listener, on_visitor, port_p);
    p->listening = !st;
    return st;
}

/* ---- looking --------------------------------------------------------------------------------- */

static void answer(psrti_agent_t *agent)
{
    psrti_agent_probe_t *p = &agent->probe;
    psrti_wire_out_t w = { 0 };
    if (p->answered) return;
    p->answered = 1;
    uv_timer_stop(&p->timer);
    psrti_wire_put_u8(&w, PSRTI_AGENT_PROBED);
    psrti_wire_put_u64(&w, p->reached);
    psrti_agent_send(agent, &w);
}

static void on_timer(uv_timer_t *timer) { answer(timer->data); }

static void dial_open(void *arg) { (void)arg; }

static void dial_message(void *arg, const void *data, size_t len)
{
    dial_t *dial = arg;
    psrti_agent_probe_t *p = &dial->agent->probe;
    if (len == 4 && psrti_get32(data) == p->neighbour) {
        p->reached |= 1ull << dial->at;
        if (!p->answered && !dial->agent->over) uv_timer_start(&p->timer, on_timer, MORE_MS, 0);
    }
    psrti_channel_close(p->dials[dial->at]);
}

static void dial_closed(void *arg, const char *why)
{
    dial_t *dial = arg;
    psrti_agent_probe_t *p = &dial->agent->probe;
    (void)why;
    p->dials[dial->at] = NULL;
    if (!--p->open_dials && !dial->agent->over) answer(dial->agent);
    free(dial);
}

static void dial_address(psrti_agent_t *agent, unsigned at, const char *address, uint16_t port)
{
    psrti_agent_probe_t *p = &agent->probe;
    struct sockaddr_storage sa;
    if (!psrti_netif_sockaddr(address, port, &sa)) return;
    dial_t *dial = psrti_xcalloc(1, sizeof *dial);
    *dial = (dial_t){ .agent = agent, .at = at };
    psrti_channel_params_t params = channel_params(agent);
    params.events = (psrti_channel_events_t){
        .open = dial_open, .message = dial_message, .closed = dial_closed, .arg = dial
    };
    if (psrti_channel_dial(&params, (struct sockaddr *)&sa, &p->dials[at]))
        free(dial);
    else
        p->open_dials++;
}

void psrti_agent_probe_start(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    psrti_agent_probe_t *p = &agent->probe;
    p->neighbour = psrti_wire_get_u32(r);
    uint16_t port = (uint16_t)psrti_wire_get_u32(r);
    uint32_t count = psrti_wire_get_u32(r);
    r->bad |= p->asked || count > PSRTI_NETIF_MAX;
    p->asked = 1;
    for (unsigned i = 0; i < count && !r->bad; i++) {
        const char *address = psrti_wire_get_text(r);
        if (address) dial_address(agent, i, address, port);
    }
    uv_timer_start(&p->timer, on_timer, PROBE_MS, 0);
    if (!p->open_dials) answer(agent);
}

void psrti_agent_probe_close(psrti_agent_t *agent)
{
    psrti_agent_probe_t *p = &agent->probe;
    if (p->listening) uv_close((uv_handle_t *)&p->listener, NULL);
    if (p->timer.data) uv_close((uv_handle_t *)&p->timer, NULL);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &p->visitors)
    psrti_channel_abort(PSRTI_LIST_ENTRY(it, visitor_t, node)->channel);
    for (unsigned i = 0; i < PSRTI_NETIF_MAX; i++)
        if (p->dials[i]) psrti_channel_abort(p->dials[i]);
}
