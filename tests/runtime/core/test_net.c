/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/net.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/core/net_internal.h"
#include "runtime/core/session.h"
#include "support/test.h"
#include "transport/frame.h"
#include "transport/transport.h"

#define SERVER PSRTI_TASK(PSRTI_SERVER, 0)
#define WORKER PSRTI_TASK(PSRTI_WORKER, 0)
#define DEADLINE_NS (60 * PSRTI_NS_PER_S)

/* A net and what it reported. */
typedef struct end {
    psrti_net_t *net;
    psrti_link_t *last; /* link of the last event */
    unsigned up, lost, messages;
    psrt_status_t lost_status;
    char lost_text[256];
    uint64_t tag; /* seq of the last message */
    psrt_rx_t answer;
    const char *refusal; /* what admit says */
    psrt_status_t refused_with;
} end_t;

static psrti_config_t *config;
static psrti_jobkey_t key;

static void setup(void)
{
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
}

static void teardown(void)
{
    psrti_config_destroy(config);
    psrt_log_set_sink(NULL, NULL);
}

static void quiet(void *arg, psrt_log_level_t level, const char *line)
{
    unsigned *lines = arg;
    (void)level;
    (void)line;
    if (lines) ++*lines;
}

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    end_t *e = arg;
    e->last = link;
    if (event == PSRTI_LINK_UP) e->up++;
    if (event != PSRTI_LINK_LOST) return;
    e->lost++;
    e->lost_status = status;
    snprintf(e->lost_text, sizeof e->lost_text, "%s", text);
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    end_t *e = arg;
    e->last = link;
    e->messages++;
    e->tag = msg->hdr.seq;
    cr_assert_eq(msg->hdr.session, link->session);
    return e->answer;
}

static psrt_status_t admit(void *arg, uint32_t task, uint64_t incarnation, char *text, size_t size)
{
    end_t *e = arg;
    (void)task;
    (void)incarnation;
    if (!e->refusal) return PSRT_OK;
    snprintf(text, size, "%s", e->refusal);
    return e->refused_with ? e->refused_with : PSRT_ERR_REFUSED;
}

static void open_over(end_t *e, uint32_t task, uint64_t incarnation, const psrti_jobkey_t *with,
                      const char *transports)
{
    psrti_net_params_t p = {
        .config = config,
        .key = with,
        .task = task,
        .incarnation = incarnation,
        .transports = transports,
        .listen = task == SERVER,
        .listen_fd = -1,
        .channel = 4,
        .arg = e,
        .on_link = on_link,
        .on_msg = on_msg,
        .admit = admit,
    };
    memset(e, 0, sizeof *e);
    cr_assert_eq(psrti_net_open(&p, &e->net), PSRT_OK, "%s", psrt_last_error());
}

static void open_end(end_t *e, uint32_t task, uint64_t incarnation, const psrti_jobkey_t *with)
{
    open_over(e, task, incarnation, with, "inproc");
}

static psrti_link_t *dial(end_t *from, end_t *to, uint32_t channel)
{
    char addr[1][PSRT_ADDR_MAX];
    psrti_link_t *link;
    cr_assert_eq(psrti_net_addrs(to->net, addr, 1), 1);
    cr_assert_eq(
        psrti_net_connect(from->net, (const char(*)[PSRT_ADDR_MAX])addr, 1, SERVER, channel, &link),
        PSRT_OK);
    cr_assert_eq(from->up + from->lost, 0, "an event from inside connect");
    return link;
}

/* Moves the ends until *count has the value. */
static void until(const unsigned *count, unsigned value, end_t *a, end_t *b)
{
    uint64_t deadline = psrti_now_ns() + DEADLINE_NS;
    while (*count != value) {
        psrti_net_progress(a->net);
        if (b) psrti_net_progress(b->net);
        cr_assert(psrti_now_ns() < deadline);
    }
}

static void send_tag(end_t *from, psrti_link_t *link, uint64_t tag)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_PULL, .seq = tag };
    cr_assert_eq(psrti_net_send(from->net, link, &hdr, NULL, 0, NULL), PSRT_OK);
}

static void settle(end_t *a, end_t *b)
{
    while (psrti_net_progress(a->net) + psrti_net_progress(b->net))
        continue;
}

Test(net, session_and_messages, .init = setup, .fini = teardown)
{
    end_t s, w;
    open_end(&s, SERVER, 1, &key);
    open_end(&w, WORKER, 2, &key);
    psrti_link_t *link = dial(&w, &s, 4);
    until(&w.up, 1, &w, &s);
    cr_assert_eq(s.up, 1);
    cr_assert_eq(s.last->task, WORKER);
    cr_assert_eq(s.last->incarnation, 2);
    cr_assert_eq(s.last->session, link->session);
    cr_assert_neq(link->session, 0);
    cr_assert_str_eq(link->transport, "inproc");
    send_tag(&w, link, 17);
    until(&s.messages, 1, &w, &s);
    cr_assert_eq(s.tag, 17);
    send_tag(&s, s.last, 18);
    until(&w.messages, 1, &w, &s);
    cr_assert_eq(w.tag, 18);
    psrti_net_drop(w.net, link);
    until(&s.lost, 1, &w, &s);
    cr_assert_eq(w.lost, 0);
    psrti_net_close(w.net);
    psrti_net_close(s.net);
}

static void refused(const psrti_jobkey_t *with, uint32_t channel, const char *refusal,
                    const char *text)
{
    end_t s, w;
    psrt_log_set_sink(quiet, NULL);
    open_end(&s, SERVER, 1, &key);
    open_end(&w, WORKER, 2, with);
    s.refusal = refusal;
    dial(&w, &s, channel);
    until(&w.lost, 1, &w, &s);
    cr_assert_eq(w.lost_status, PSRT_ERR_REFUSED);
    cr_assert_str_eq(w.lost_text, text);
    settle(&w, &s);
    cr_assert_eq(w.up + s.up + s.lost, 0);
    psrti_net_close(w.net);
    psrti_net_close(s.net);
}

Test(net, refusals_reach_the_dialler, .init = setup, .fini = teardown)
{
    psrti_jobkey_t secret = key, job = key;
    secret.secret[0] ^= 1;
    job.nonce[0] ^= 1;
    refused(&secret, 4, NULL, "wrong job key, or a repeated HELLO");
    refused(&job, 4, NULL, "this address belongs to another job");
    refused(&key, 5, NULL, "channel 5 was asked for, this is channel 4");
    refused(&key, 4, "not in the view", "not in the view");
}

static void count_warnings(void *arg, psrt_log_level_t level, const char *line)
{
    if (level > PSRT_LOG_WARN) return;
    fprintf(stderr, "%s\n", line);
    ++*(unsigned *)arg;
}

/* A dialler that hangs up at any point of the handshake is no reason for a warning: neither where it
 * would have been let in nor where it would have been told to come again. */
Test(net, a_dialler_that_gives_up_is_no_offence, .init = setup, .fini = teardown)
{
    unsigned warnings = 0;
    psrt_log_set_sink(count_warnings, &warnings);
    for (unsigned turns = 0; turns < 12; turns++) {
        end_t s, w;
        open_end(&s, SERVER, 1, &key);
        open_end(&w, WORKER, 2, &key);
        if (turns % 2) s.refusal = "not ready", s.refused_with = PSRT_ERR_NOT_READY;
        psrti_link_t *link = dial(&w, &s, 4);
        for (unsigned i = 0; i < turns / 2 && !w.lost; i++)
            psrti_net_progress(i % 2 ? w.net : s.net);
        if (!w.lost) psrti_net_drop(w.net, link);
        settle(&w, &s);
        cr_assert_eq(warnings, 0, "after %u turns", turns / 2);
        psrti_net_close(w.net);
        psrti_net_close(s.net);
    }
}

Test(net, a_newer_life_replaces_the_older, .init = setup, .fini = teardown)
{
    end_t s, old, same, new;
    psrt_log_set_sink(quiet, NULL);
    open_end(&s, SERVER, 1, &key);
    open_end(&old, WORKER, 5, &key);
    open_end(&same, WORKER, 5, &key);
    open_end(&new, WORKER, 6, &key);
    dial(&old, &s, 4);
    until(&old.up, 1, &old, &s);
    dial(&same, &s, 4);
    until(&same.up, 1, &same, &s);
    cr_assert_eq(s.lost, 1);
    cr_assert_eq(s.lost_status, PSRT_ERR_STALE);
    until(&old.lost, 1, &old, &s);
    psrti_link_t *link = dial(&new, &s, 4);
    until(&new.up, 1, &new, &s);
    cr_assert_eq(s.lost, 2);
    until(&same.lost, 1, &same, &s);
    old.lost = old.up = 0;
    dial(&old, &s, 4);
    until(&old.lost, 1, &old, &s);
    cr_assert_eq(old.lost_status, PSRT_ERR_STALE);
    cr_assert_eq(s.lost, 2);
    send_tag(&new, link, 3);
    until(&s.messages, 1, &new, &s);
    psrti_net_close(old.net);
    psrti_net_close(same.net);
    psrti_net_close(new.net);
    psrti_net_close(s.net);
}

Test(net, the_next_address_is_tried, .init = setup, .fini = teardown)
{
    end_t s, gone, w;
    char addr[2][PSRT_ADDR_MAX];
    psrti_link_t *link;
    open_end(&gone, SERVER, 1, &key);
    open_end(&s, SERVER, 1, &key);
    open_end(&w, WORKER, 2, &key);
    cr_assert_eq(psrti_net_addrs(gone.net, &addr[0], 1), 1);
    cr_assert_eq(psrti_net_addrs(s.net, &addr[1], 1), 1);
    psrti_net_close(gone.net);
    cr_assert_eq(psrti_net_connect(w.net, (const char(*)[PSRT_ADDR_MAX])addr, 2, SERVER, 4, &link),
                 PSRT_OK);
    until(&w.up, 1, &w, &s);
    cr_assert_eq(w.lost, 0);
    psrti_net_drop(w.net, link);
    cr_assert_eq(psrti_net_connect(w.net, (const char(*)[PSRT_ADDR_MAX])addr, 1, SERVER, 4, &link),
                 PSRT_OK);
    until(&w.lost, 1, &w, &s);
    cr_assert_eq(w.lost_status, PSRT_ERR_UNREACHABLE);
    strcpy(addr[0], "nowhere:1");
    cr_assert_eq(psrti_net_connect(w.net, (const char(*)[PSRT_ADDR_MAX])addr, 1, SERVER, 4, &link),
                 PSRT_ERR_UNREACHABLE);
    cr_assert(strstr(psrt_last_error(), "server:0") && strstr(psrt_last_error(), "nowhere:1"), "%s",
              psrt_last_error());
    psrti_net_close(w.net);
    psrti_net_close(s.net);
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Speaks to a net through the bare transport. */
typedef struct stranger {
    psrt_iface_t *iface;
    psrt_ep_t *ep;
    unsigned up, lost, greeted, messages; /* messages: without the peer's HELLO */
    uint32_t session;
    psrti_acceptor_t acceptor;
} stranger_t;

static psrt_rx_t stranger_msg(void *arg, psrt_msg_t *msg)
{
    stranger_t *x = arg;
    if (msg->hdr.type == PSRTI_T_HELLO) {
        cr_assert_eq(msg->len, PSRTI_CHALLENGE_BYTES);
        memcpy(x->acceptor.challenge, msg->data, PSRTI_CHALLENGE_BYTES);
        x->greeted++;
        return PSRT_RX_DONE;
    }
    x->messages++;
    x->session = msg->hdr.session;
    return PSRT_RX_DONE;
}

static void stranger_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    stranger_t *x = arg;
    (void)status;
    if (event == PSRT_EP_UP) x->up++;
    if (event != PSRT_EP_LOST) return;
    x->lost++;
    psrti_transport_inproc.ep_close(ep);
}

static void stranger_open(stranger_t *x, int listen)
{
    psrt_iface_params_t p = {
        .size = sizeof p,
        .on_msg = stranger_msg,
        .on_ep = stranger_ep,
        .arg = x,
        .listen = listen,
        .listen_fd = -1,
        .job_nonce = key.nonce,
        .task = WORKER,
        .max_message = 1 << 20,
        .window = 1 << 20,
    };
    memset(x, 0, sizeof *x);
    cr_assert_eq(psrti_transport_inproc.iface_open(&p, &x->iface), PSRT_OK);
}

static void stranger_dial(stranger_t *x, end_t *to)
{
    char addr[1][PSRT_ADDR_MAX];
    cr_assert_eq(psrti_net_addrs(to->net, addr, 1), 1);
    cr_assert_eq(psrti_transport_inproc.ep_open(x->iface, addr[0], &x->ep), PSRT_OK);
}

static void stranger_until(const unsigned *count, unsigned value, stranger_t *x, end_t *e)
{
    uint64_t deadline = psrti_now_ns() + DEADLINE_NS;
    while (*count != value) {
        psrti_transport_inproc.progress(x->iface);
        psrti_net_progress(e->net);
        cr_assert(psrti_now_ns() < deadline);
    }
}

static void stranger_send(stranger_t *x, psrt_hdr_t hdr, const void *data)
{
    cr_assert_eq(psrti_transport_inproc.send(x->ep, &hdr, data, data ? hdr.length : 0, 0, NULL),
                 PSRT_OK);
}

static void stranger_hello(stranger_t *x)
{
    psrti_hello_t hello = { .task = WORKER, .channel = 4, .incarnation = 2, .challenge = 99 };
    uint8_t bytes[PSRTI_HELLO_BYTES];
    x->acceptor.task = SERVER;
    psrti_hello_sign(&key, &x->acceptor, &hello);
    psrti_hello_encode(&hello, bytes);
    stranger_send(x, (psrt_hdr_t){ .type = PSRTI_T_HELLO, .length = sizeof bytes }, bytes);
}

Test(net, nothing_gets_in_before_hello, .init = setup, .fini = teardown)
{
    unsigned lines = 0;
    end_t s;
    stranger_t x;
    psrt_log_set_sink(quiet, &lines);
    open_end(&s, SERVER, 1, &key);
    stranger_open(&x, 0);
    for (unsigned type = PSRTI_T_HELLO; type <= PSRTI_T_MAX; type++) {
        stranger_dial(&x, &s);
        stranger_until(&x.up, type, &x, &s);
        if (type <= PSRTI_T_CTRL)
            stranger_send(&x, (psrt_hdr_t){ .type = (uint8_t)type, .length = 7 }, "GET / H");
        else
            stranger_send(&x, (psrt_hdr_t){ .type = (uint8_t)type }, NULL);
        stranger_until(&x.lost, type, &x, &s);
    }
    cr_assert_eq(s.messages + s.up + s.lost, 0);
    cr_assert(lines >= PSRTI_T_MAX);
    psrti_transport_inproc.iface_close(x.iface);
    psrti_net_close(s.net);
}

Test(net, a_frame_of_another_session_closes_the_link, .init = setup, .fini = teardown)
{
    end_t s;
    stranger_t x;
    psrt_log_set_sink(quiet, NULL);
    open_end(&s, SERVER, 1, &key);
    stranger_open(&x, 0);
    for (unsigned round = 1; round <= 3; round++) {
        stranger_dial(&x, &s);
        stranger_until(&x.greeted, round, &x, &s);
        stranger_hello(&x);
        stranger_until(&x.messages, round, &x, &s);
        stranger_send(&x, (psrt_hdr_t){ .type = PSRTI_T_PULL, .session = x.session, .seq = round },
                      NULL);
        stranger_until(&s.messages, round, &x, &s);
        if (round == 1)
            stranger_hello(&x); /* a second HELLO is no better */
        else
            stranger_send(
                &x, (psrt_hdr_t){ .type = PSRTI_T_PULL, .session = round == 2 ? 0 : x.session + 1 },
                NULL);
        stranger_until(&x.lost, round, &x, &s);
        stranger_until(&s.lost, round, &x, &s);
        cr_assert_eq(s.lost_status, PSRT_ERR_PROTOCOL);
    }
    cr_assert_eq(s.messages, 3);
    psrti_transport_inproc.iface_close(x.iface);
    psrti_net_close(s.net);
}

/* Three waits of 5 s at once: an accepted connection that says nothing, one too many of those,
 * and a dialled peer that answers nothing. */
Test(net, silence_ends_in_time, .init = setup, .fini = teardown, .timeout = 120)
{
    end_t s, w;
    stranger_t x, deaf;
    char addr[1][PSRT_ADDR_MAX];
    psrti_link_t *link;
    psrt_log_set_sink(quiet, NULL);
    open_end(&s, SERVER, 1, &key);
    open_end(&w, WORKER, 2, &key);
    stranger_open(&x, 0);
    stranger_open(&deaf, 1);
    for (unsigned i = 0; i < 70; i++)
        stranger_dial(&x, &s);
    stranger_until(&x.lost, 6, &x, &s); /* 64 may wait */
    cr_assert_eq(psrti_transport_inproc.iface_addr(deaf.iface, addr[0], PSRT_ADDR_MAX), PSRT_OK);
    cr_assert_eq(psrti_net_connect(w.net, (const char(*)[PSRT_ADDR_MAX])addr, 1, SERVER, 4, &link),
                 PSRT_OK);
    uint64_t deadline = psrti_now_ns() + DEADLINE_NS;
    while (x.lost < 70 || w.lost < 1) {
        psrti_transport_inproc.progress(x.iface);
        psrti_transport_inproc.progress(deaf.iface);
        psrti_net_progress(s.net);
        psrti_net_progress(w.net);
        psrti_net_sleep(s.net, 10 * PSRTI_NS_PER_MS);
        cr_assert(psrti_now_ns() < deadline);
    }
    cr_assert_eq(w.lost_status, PSRT_ERR_TIMEOUT);
    cr_assert(strstr(w.lost_text, "no answer from "), "%s", w.lost_text);
    cr_assert_eq(s.up + s.lost, 0);
    psrti_transport_inproc.iface_close(x.iface);
    psrti_transport_inproc.iface_close(deaf.iface);
    psrti_net_close(w.net);
    psrti_net_close(s.net);
}

/* ---- sleeping, memory, names ----------------------------------------------------------------- */

static void *wake_often(void *arg)
{
    end_t *e = arg;
    for (unsigned i = 0; i < 10000; i++) {
        __atomic_fetch_add(&e->tag, 1, __ATOMIC_SEQ_CST);
        psrti_net_wake(e->net);
        while (__atomic_load_n(&e->tag, __ATOMIC_SEQ_CST) != 0)
            continue;
    }
    return NULL;
}

/* Every wake ends a sleep: with one lost, this sleeps for an hour. */
Test(net, no_wake_is_lost, .init = setup, .fini = teardown, .timeout = 120)
{
    end_t e;
    pthread_t thread;
    open_end(&e, SERVER, 1, &key);
    cr_assert_eq(pthread_create(&thread, NULL, wake_often, &e), 0);
    for (unsigned seen = 0; seen < 10000;) {
        psrti_net_sleep(e.net, 3600 * PSRTI_NS_PER_S);
        if (__atomic_load_n(&e.tag, __ATOMIC_SEQ_CST) == 0) continue;
        seen++;
        __atomic_store_n(&e.tag, 0, __ATOMIC_SEQ_CST);
    }
    pthread_join(thread, NULL);
    psrti_net_close(e.net);
}

Test(net, memory_is_zeroed_and_given_back, .init = setup, .fini = teardown)
{
    end_t e;
    unsigned char *p[4];
    void *none;
    open_end(&e, SERVER, 1, &key);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(psrti_net_alloc(e.net, 5000 * (i + 1), (void **)&p[i]), PSRT_OK);
        cr_assert_eq((uintptr_t)p[i] % 4096, 0);
        for (size_t b = 0; b < 5000 * (i + 1); b++)
            cr_assert_eq(p[i][b], 0);
        memset(p[i], 7, 5000 * (i + 1));
    }
    psrti_net_free(e.net, p[2]);
    psrti_net_free(e.net, p[0]);
    psrti_net_free(e.net, NULL);
    cr_assert_eq(psrti_net_alloc(e.net, 0, &none), PSRT_ERR_INVALID);
    psrti_net_close(e.net); /* frees the others */
}

Test(net, transports_are_chosen_by_name, .init = setup, .fini = teardown)
{
    psrti_net_params_t p = { .config = config, .key = &key, .task = WORKER, .listen_fd = -1 };
    psrti_net_t *net;
    p.transports = "inprok";
    cr_assert_eq(psrti_net_open(&p, &net), PSRT_ERR_INVALID);
    cr_assert_str_eq(psrt_last_error(),
                     "unknown transport \"inprok\" in PSRT_TRANSPORT, did you mean \"inproc\"?");
    p.transports = "carrier-pigeon";
    cr_assert_eq(psrti_net_open(&p, &net), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "there are inproc"), "%s", psrt_last_error());
    p.transports = " ,";
    cr_assert_eq(psrti_net_open(&p, &net), PSRT_ERR_INVALID);
    p.transports = NULL;
    cr_assert_eq(psrti_config_set(config, "PSRT_TRANSPORT", "inproc,inproc"), PSRT_OK);
    cr_assert_eq(psrti_net_open(&p, &net), PSRT_OK);
    psrti_net_close(net);
}

static void was_sent(psrt_tx_t *tx, psrt_status_t status)
{
    (void)tx;
    cr_assert_eq(status, PSRT_OK);
}

static void send_bulk(end_t *from, psrti_link_t *link)
{
    static float data[NET_BULK / sizeof(float)];
    static psrt_tx_t tx = { .done = was_sent };
    psrt_hdr_t hdr = { .type = PSRTI_T_PUSH, .dtype = PSRT_F32, .length = PSRTI_COUNT(data) };
    psrt_status_t status = psrti_net_send(from->net, link, &hdr, data, sizeof data, &tx);
    cr_assert(status == PSRT_OK || status == PSRT_IN_PROGRESS, "%s", psrt_last_error());
}

/* Whether it may, on one core: while a large payload is part of what it does, and else. */
static void polls(const char *transport, int bulk)
{
    end_t s, w;
    open_over(&s, SERVER, 1, &key, transport);
    open_over(&w, WORKER, 2, &key, transport);
    cr_assert(psrti_net_may_poll(w.net), "%s", transport);
    psrti_link_t *link = dial(&w, &s, 4);
    until(&w.up, 1, &w, &s);
    cr_assert(psrti_net_may_poll(w.net), "%s", transport);
    send_bulk(&w, link);
    until(&s.messages, 1, &w, &s);
    for (unsigned i = 1; i <= NET_BULK_TURNS; i++) {
        cr_assert_eq(psrti_net_may_poll(w.net), bulk, "%s", transport);
        cr_assert_eq(psrti_net_may_poll(s.net), bulk, "%s", transport);
        send_tag(&w, link, i);
        until(&s.messages, 1 + i, &w, &s);
    }
    cr_assert(psrti_net_may_poll(w.net), "%s", transport);
    cr_assert(psrti_net_may_poll(s.net), "%s", transport);
    psrti_net_close(w.net);
    psrti_net_close(s.net);
}

Test(net, where_cores_are_scarce_nobody_polls_for_threads_that_move_much, .init = setup,
     .fini = teardown)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    polls("inproc", 1);
    polls("zmq", 0);
}
