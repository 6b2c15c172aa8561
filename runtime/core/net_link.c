/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "runtime/core/net_internal.h"
#include "transport/frame.h"

/* ---- life of a link -------------------------------------------------------------------------- */

static net_link_t *link_new(psrti_net_t *net, psrti_list_t *list, link_state_t state)
{
    net_link_t *link = calloc(1, sizeof *link);

    if (!link) return NULL;
    link->net = net;
    link->state = state;
    link->deadline = psrti_now_ns() + NET_HELLO_TIMEOUT;
    link->pub.transport = "";
    link->why = PSRT_ERR_UNREACHABLE;
    psrti_list_push(list, &link->node);
    return link;
}

static void close_ep(net_link_t *link)
{
    psrt_ep_t *ep = link->ep;

    if (!ep) return;
    link->ep = NULL;
    ep->user = NULL;
    link->net->paths[link->path].open--;
    link->net->paths[link->path].ops->ep_close(ep);
}

static void to_graveyard(net_link_t *link)
{
    psrti_net_t *net = link->net;

    if (link->state == LINK_PENDING || link->state == LINK_REFUSED) net->npending--;
    link->state = LINK_DEAD;
    link->pub.up = 0;
    psrti_list_remove(&link->node);
    psrti_list_push(&net->graveyard, &link->node);
    close_ep(link);
}

static void tell_lost(net_link_t *link, psrt_status_t status, const char *text)
{
    psrti_net_t *net = link->net;

    to_graveyard(link);
    net->p.on_link(net->p.arg, &link->pub, PSRTI_LINK_LOST, status, text);
}

void psrti_net_bury(psrti_net_t *net)
{
    for (psrti_list_t *node; (node = psrti_list_pop(&net->graveyard)) != NULL;) {
        net_link_t *link = PSRTI_LIST_ENTRY(node, net_link_t, node);
        free(link->candidates);
        free(link);
    }
}

void psrti_net_close_links(psrti_net_t *net)
{
    psrti_list_t *lists[] = { &net->dialing, &net->pending, &net->up };

    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        PSRTI_LIST_FOREACH_SAFE(node, next, lists[i])
    to_graveyard(PSRTI_LIST_ENTRY(node, net_link_t, node));
    if (!net->busy) psrti_net_bury(net);
}

void psrti_net_drop(psrti_net_t *net, psrti_link_t *pub)
{
    to_graveyard((net_link_t *)pub);
    if (!net->busy) psrti_net_bury(net);
}

static void set_up(net_link_t *link)
{
    psrti_net_t *net = link->net;

    if (link->state == LINK_PENDING) net->npending--;
    link->state = LINK_UP;
    link->pub.up = 1;
    link->pub.transport = net->paths[link->path].ops->name;
    free(link->candidates);
    link->candidates = NULL;
    psrti_list_remove(&link->node);
    psrti_list_push(&net->up, &link->node);
    net->p.on_link(net->p.arg, &link->pub, PSRTI_LINK_UP, PSRT_OK, "");
}

/* ---- dialling -------------------------------------------------------------------------------- */

static void fail(net_link_t *link, psrt_status_t why, const char *text)
{
    close_ep(link);
    link->why = why;
    if (text != link->text) snprintf(link->text, sizeof link->text, "%.159s", text);
    link->state = LINK_FAILED;
}

/* REFUSED is an answer of the peer to HELLO; a closed port is only a peer that cannot be
 * reached. */
static psrt_status_t unreached(psrt_status_t status)
{
    return status == PSRT_ERR_REFUSED ? PSRT_ERR_UNREACHABLE : status;
}

/* Opens the next candidate; the link fails when none is left. */
static void dial_next(net_link_t *link)
{
    candidates_t *c = link->candidates;

    close_ep(link);
    while (c->next < c->count) {
        uint32_t i = c->next++;
        const net_path_t *path = &link->net->paths[c->at[i].path];
        psrt_status_t st = path->ops->ep_open(path->iface, c->at[i].addr, &link->ep);

        if (st == PSRT_OK) {
            link->path = c->at[i].path;
            link->net->paths[link->path].open++;
            link->ep->user = link;
            link->state = LINK_DIALING;
            link->deadline = psrti_now_ns() + NET_HELLO_TIMEOUT;
            return;
        }
        link->ep = NULL;
        link->why = unreached(st);
        snprintf(link->text, sizeof link->text, "%.100s: %s", c->at[i].addr, psrt_status_text(st));
    }
    fail(link, link->why, link->text);
}

static candidates_t *candidates_of(const psrti_net_t *net, const char addr[][PSRT_ADDR_MAX],
                                   uint32_t naddrs)
{
    uint32_t max = naddrs * net->npaths;
    candidates_t *c = calloc(1, sizeof *c + max * sizeof c->at[0]);

    if (!c) return NULL;
    for (uint32_t p = 0; p < net->npaths; p++) {
        for (uint32_t a = 0; a < naddrs; a++) {
            if (!net->paths[p].ops->reachable(net->paths[p].iface, addr[a])) continue;
            c->at[c->count].path = p;
            memcpy(c->at[c->count].addr, addr[a], PSRT_ADDR_MAX);
            c->at[c->count++].addr[PSRT_ADDR_MAX - 1] = '\0';
        }
    }
    return c;
}

psrt_status_t psrti_net_connect(psrti_net_t *net, const char addr[][PSRT_ADDR_MAX], uint32_t naddrs,
                                uint32_t task, uint32_t channel, psrti_link_t **link_p)
{
    candidates_t *c = candidates_of(net, addr, naddrs);
    char name[32];

    if (!c) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a link");
    if (c->count == 0) {
        free(c);
        return psrti_fail(PSRT_ERR_UNREACHABLE,
                          "%s cannot be reached: no allowed transport reaches %s",
                          psrti_task_name(task, name), naddrs ? addr[0] : "it (no address)");
    }
    net_link_t *link = link_new(net, &net->dialing, LINK_DIALING);
    if (!link) {
        free(c);
        return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a link");
    }
    link->candidates = c;
    link->pub.task = task;
    link->pub.channel = channel;
    link->acceptor.task = task;
    dial_next(link);
    *link_p = &link->pub;
    return PSRT_OK;
}

static psrt_status_t send_frame(net_link_t *link, psrt_hdr_t hdr, const void *payload, size_t len)
{
    hdr.length = len;
    return link->net->paths[link->path].ops->send(link->ep, &hdr, payload, len, 0, NULL);
}

static void send_hello(net_link_t *link)
{
    psrti_net_t *net = link->net;
    uint8_t payload[PSRTI_HELLO_BYTES];

    link->hello.task = net->p.task;
    link->hello.channel = link->pub.channel;
    link->hello.level = net->level;
    link->hello.incarnation = __atomic_load_n(&net->p.incarnation, __ATOMIC_RELAXED);
    psrti_hello_sign(net->p.key, &link->acceptor, &link->hello);
    psrti_hello_encode(&link->hello, payload);
    psrt_status_t st =
        send_frame(link, (psrt_hdr_t){ .type = PSRTI_T_HELLO }, payload, sizeof payload);
    /* AGAIN: WRITABLE follows. Others: LOST follows. */
    if (st == PSRT_OK) link->state = LINK_HELLO;
}

static psrt_rx_t got_challenge(net_link_t *link, const psrt_msg_t *msg)
{
    if (msg->hdr.type != PSRTI_T_HELLO || !msg->data || msg->len != PSRTI_CHALLENGE_BYTES)
        return PSRT_RX_BAD;
    if (getrandom(&link->hello.challenge, sizeof link->hello.challenge, 0) !=
        sizeof link->hello.challenge)
        return PSRT_RX_BAD;
    memcpy(link->acceptor.challenge, msg->data, PSRTI_CHALLENGE_BYTES);
    link->state = LINK_GREETED;
    send_hello(link);
    return PSRT_RX_DONE;
}

static psrt_rx_t got_welcome(net_link_t *link, const psrt_msg_t *msg)
{
    psrti_net_t *net = link->net;
    char text[PSRTI_WELCOME_TEXT_MAX + 1];

    if (msg->hdr.type != PSRTI_T_WELCOME) return PSRT_RX_BAD;
    psrt_status_t st = psrti_welcome_check(net->p.key, &link->acceptor, &link->hello, &msg->hdr,
                                           msg->data, msg->len, text, sizeof text);
    if (st != PSRT_OK) {
        /* A considered answer is final: another path leads to the same task. */
        fail(link, st, text);
        return PSRT_RX_DONE;
    }
    link->pub.session = msg->hdr.session;
    set_up(link);
    return PSRT_RX_DONE;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static psrt_status_t send_welcome(net_link_t *link, psrt_status_t status, const void *payload,
                                  size_t len)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_WELCOME,
                       .session = link->pub.session,
                       .status = (uint8_t) - (int)status };

    return send_frame(link, hdr, payload, len);
}

/* The verdict on a HELLO whose answer could not be sent. A peer that hung up meanwhile did nothing
 * wrong: its loss is told next. A fresh endpoint has room for two small frames, or is not worth
 * keeping. */
static psrt_rx_t not_answered(psrt_status_t status)
{
    return status == PSRT_ERR_PEER_LOST ? PSRT_RX_DONE : PSRT_RX_BAD;
}

static psrt_rx_t refuse(net_link_t *link, psrt_status_t status, const char *text)
{
    char name[32];
    psrt_status_t st;

    /* Not ready is what happens while a job assembles; the peer comes again. */
    psrti_log(status == PSRT_ERR_NOT_READY ? PSRT_LOG_DEBUG : PSRT_LOG_WARN,
              "refused a connection of %s: %s", psrti_task_name(link->pub.task, name), text);
    st = send_welcome(link, status, text, strnlen(text, PSRTI_WELCOME_TEXT_MAX));
    if (st != PSRT_OK) return not_answered(st);
    link->state = LINK_REFUSED;
    link->deadline = psrti_now_ns() + NET_REFUSED_LINGER;
    return PSRT_RX_DONE;
}

static net_link_t *find_accepted(const psrti_net_t *net, uint32_t task, uint32_t channel)
{
    for (psrti_list_t *node = net->up.next; node != &net->up; node = node->next) {
        net_link_t *link = PSRTI_LIST_ENTRY(node, net_link_t, node);
        if (link->accepted && link->pub.task == task && link->pub.channel == channel) return link;
    }
    return NULL;
}

/* Between data links the incarnation decides which one lives. On the control plane a process has no
 * incarnation until it joined, so there the coordinator decides. */
static psrt_status_t supersede(psrti_net_t *net, const psrti_hello_t *hello, char *text,
                               size_t size)
{
    net_link_t *old = net->p.control ? NULL : find_accepted(net, hello->task, hello->channel);

    if (!old) return PSRT_OK;
    if (hello->incarnation < old->pub.incarnation) {
        snprintf(text, size, "a newer life of this task is connected");
        return PSRT_ERR_STALE;
    }
    tell_lost(old, PSRT_ERR_STALE, "replaced by a newer connection of the same task");
    return PSRT_OK;
}

static psrt_status_t judge(net_link_t *link, const psrti_hello_t *hello, char *text, size_t size)
{
    const psrti_net_params_t *p = &link->net->p;
    psrt_status_t st =
        psrti_hello_check(hello, p->key, &link->acceptor, p->channel, link->net->level, text, size);

    if (st == PSRT_OK && p->admit)
        st = p->admit(p->arg, hello->task, hello->incarnation, text, size);
    return st == PSRT_OK ? supersede(link->net, hello, text, size) : st;
}

static psrt_rx_t got_hello(net_link_t *link, const psrt_msg_t *msg)
{
    psrti_net_t *net = link->net;
    uint8_t token[PSRTI_WELCOME_BYTES];
    psrti_hello_t hello;
    char text[PSRTI_WELCOME_TEXT_MAX + 1] = "";

    if (msg->hdr.type != PSRTI_T_HELLO ||
        psrti_hello_decode(msg->data, msg->len, &hello) != PSRT_OK) {
        psrti_warn("closed a connection that did not begin with a valid HELLO");
        return PSRT_RX_BAD;
    }
    link->pub.task = hello.task;
    link->pub.channel = hello.channel;
    link->pub.incarnation = hello.incarnation;
    psrt_status_t st = judge(link, &hello, text, sizeof text);
    if (link->state != LINK_PENDING) return PSRT_RX_DONE; /* dropped by a callback */
    if (st != PSRT_OK) return refuse(link, st, text);
    if (++net->next_session == 0) net->next_session = 1;
    link->pub.session = net->next_session;
    psrti_welcome_token(net->p.key, &link->acceptor, &hello, link->pub.session, token);
    st = send_welcome(link, PSRT_OK, token, sizeof token);
    if (st != PSRT_OK) return not_answered(st);
    set_up(link);
    return PSRT_RX_DONE;
}

static int send_challenge(net_link_t *link)
{
    psrti_acceptor_t *self = &link->acceptor;

    self->task = link->net->p.task;
    return getrandom(self->challenge, sizeof self->challenge, 0) == sizeof self->challenge &&
           send_frame(link, (psrt_hdr_t){ .type = PSRTI_T_HELLO }, self->challenge,
                      sizeof self->challenge) == PSRT_OK;
}

static void accept_ep(psrti_net_t *net, psrt_ep_t *ep)
{
    uint32_t path = 0;

    while (path < net->npaths && net->paths[path].iface != ep->iface)
        path++;
    if (path == net->npaths) return;
    net_link_t *link =
        net->npending < NET_MAX_PENDING ? link_new(net, &net->pending, LINK_PENDING) : NULL;
    if (!link) {
        psrti_warn("closed a connection: %u others have not said HELLO yet", net->npending);
        net->paths[path].ops->ep_close(ep);
        return;
    }
    net->npending++;
    link->accepted = 1;
    link->path = path;
    net->paths[path].open++;
    link->ep = ep;
    ep->user = link;
    if (!send_challenge(link)) to_graveyard(link);
}

/* ---- events of the transports ---------------------------------------------------------------- */

psrt_rx_t psrti_net_on_msg(void *arg, psrt_msg_t *msg)
{
    psrti_net_t *net = arg;
    net_link_t *link = msg->ep->user;
    char name[32];

    if (!link) return PSRT_RX_BAD;
    switch (link->state) {
    case LINK_DIALING: return got_challenge(link, msg);
    case LINK_PENDING: return got_hello(link, msg);
    case LINK_HELLO: return got_welcome(link, msg);
    case LINK_REFUSED: return PSRT_RX_DONE;
    case LINK_UP: break;
    default: return PSRT_RX_BAD;
    }
    if (msg->hdr.session != link->pub.session || msg->hdr.type == PSRTI_T_HELLO ||
        msg->hdr.type == PSRTI_T_WELCOME) {
        psrti_warn("peer %s: frame of type %u with session %08x in session %08x, closing",
                   psrti_task_name(link->pub.task, name), msg->hdr.type, msg->hdr.session,
                   link->pub.session);
        return PSRT_RX_BAD;
    }
    psrti_net_note(net, msg->len);
    msg->flags = link->path; /* an endpoint may be gone when its held message is released */
    return net->p.on_msg(net->p.arg, &link->pub, msg);
}

static void ep_lost(net_link_t *link, psrt_status_t status)
{
    switch (link->state) {
    case LINK_DIALING:
    case LINK_GREETED:
    case LINK_HELLO:
        link->why = unreached(status);
        snprintf(link->text, sizeof link->text, "%.100s: %s%s",
                 link->candidates->at[link->candidates->next - 1].addr, psrt_status_text(status),
                 status == PSRT_ERR_REFUSED ? " (has it another job key?)" : "");
        dial_next(link);
        break;
    case LINK_UP: tell_lost(link, status, psrt_status_text(status)); break;
    default: to_graveyard(link);
    }
}

void psrti_net_on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    psrti_net_t *net = arg;
    net_link_t *link = ep->user;

    if (!link) {
        if (event == PSRT_EP_UP) accept_ep(net, ep);
        return;
    }
    if (event == PSRT_EP_LOST)
        ep_lost(link, status);
    else if (link->state == LINK_GREETED)
        send_hello(link);
    else if (link->state == LINK_UP && event == PSRT_EP_WRITABLE)
        net->p.on_link(net->p.arg, &link->pub, PSRTI_LINK_WRITABLE, PSRT_OK, "");
}

static unsigned dial_timer(net_link_t *link, uint64_t now)
{
    if (link->state != LINK_FAILED && now >= link->deadline) {
        link->why = PSRT_ERR_TIMEOUT;
        snprintf(link->text, sizeof link->text, "no answer from %.100s within 5 s",
                 link->candidates->at[link->candidates->next - 1].addr);
        dial_next(link);
    }
    if (link->state != LINK_FAILED) return 0;
    tell_lost(link, link->why, link->text);
    return 1;
}

unsigned psrti_net_timers(psrti_net_t *net, uint64_t now)
{
    unsigned events = 0;

    /* A callback may drop any link, also the next one of this walk: begin again after each. */
    for (psrti_list_t *node = net->dialing.next; node != &net->dialing;) {
        unsigned told = dial_timer(PSRTI_LIST_ENTRY(node, net_link_t, node), now);
        events += told;
        node = told ? net->dialing.next : node->next;
    }
    PSRTI_LIST_FOREACH_SAFE(node, next, &net->pending)
    {
        net_link_t *link = PSRTI_LIST_ENTRY(node, net_link_t, node);
        if (now < link->deadline) continue;
        if (link->state == LINK_PENDING)
            psrti_warn("closed a connection that said no HELLO within 5 s");
        to_graveyard(link);
        events++;
    }
    return events;
}

uint64_t psrti_net_next_deadline(const psrti_net_t *net)
{
    const psrti_list_t *lists[] = { &net->dialing, &net->pending };
    uint64_t deadline = UINT64_MAX;

    for (size_t i = 0; i < PSRTI_COUNT(lists); i++) {
        for (const psrti_list_t *node = lists[i]->next; node != lists[i]; node = node->next) {
            const net_link_t *link = PSRTI_LIST_ENTRY(node, net_link_t, node);
            deadline = PSRTI_MIN(deadline, link->state == LINK_FAILED ? 0 : link->deadline);
        }
    }
    return deadline;
}

/* ---- data ------------------------------------------------------------------------------------ */

psrt_status_t psrti_net_send(psrti_net_t *net, psrti_link_t *pub, psrt_hdr_t *hdr, const void *data,
                             uint64_t len, psrt_tx_t *tx)
{
    net_link_t *link = (net_link_t *)pub;

    if (link->state != LINK_UP) return PSRT_ERR_AGAIN;
    hdr->session = pub->session;
    psrti_net_note(net, len);
    return net->paths[link->path].ops->send(link->ep, hdr, data, len, 0, tx);
}

psrt_status_t psrti_net_map(psrti_net_t *net, psrt_msg_t *msg, const void **data_p)
{
    const net_path_t *path = &net->paths[msg->flags];

    if (msg->data || msg->len == 0) {
        *data_p = msg->data;
        return PSRT_OK;
    }
    if (!path->ops->map) return PSRT_ERR_UNSUPPORTED;
    return path->ops->map(path->iface, msg, data_p);
}

psrt_status_t psrti_net_verify(psrti_net_t *net, const psrt_msg_t *msg)
{
    const net_path_t *path = &net->paths[msg->flags];

    return path->ops->verify ? path->ops->verify(path->iface, msg) : PSRT_OK;
}

void psrti_net_release(psrti_net_t *net, psrt_msg_t *msg)
{
    net->paths[msg->flags].ops->release(net->paths[msg->flags].iface, msg);
}
