/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody on the path can read at each level, and what he gains by repeating it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/core/net.h"
#include "support/tap.h"
#include "support/test.h"
#include "transport/frame.h"

#define SERVER PSRTI_TASK(PSRTI_SERVER, 0)
#define WORKER PSRTI_TASK(PSRTI_WORKER, 0)
#define DEADLINE_NS (60 * PSRTI_NS_PER_S)

static const char secret_text[] = "what a worker pushes";

typedef struct end {
    psrti_net_t *net;
    psrti_link_t *link; /* of the last UP */
    unsigned up, lost, messages;
} end_t;

static psrti_config_t *config;
static psrti_jobkey_t key;
static unsigned refusals; /* log lines that tell of one */

static void on_log(void *arg, psrt_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "refused a connection of worker:0: wrong job key, or a repeated HELLO"))
        refusals++;
}

static void setup(void)
{
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    psrt_log_set_sink(on_log, NULL);
    refusals = 0;
}

static void teardown(void)
{
    psrti_config_destroy(config);
    psrt_log_set_sink(NULL, NULL);
}

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    end_t *e = arg;
    (void)status;
    (void)text;
    if (event == PSRTI_LINK_UP) {
        e->up++;
        e->link = link;
    }
    if (event == PSRTI_LINK_LOST) e->lost++;
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    (void)link;
    (void)msg;
    ((end_t *)arg)->messages++;
    return PSRT_RX_DONE;
}

static void open_end(end_t *e, uint32_t task, const char *level, int control)
{
    psrti_net_params_t p = {
        .config = config,
        .key = &key,
        .task = task,
        .incarnation = 3,
        .transports = "zmq",
        .listen = task == SERVER,
        .listen_fd = -1,
        .control = control,
        .arg = e,
        .on_link = on_link,
        .on_msg = on_msg,
    };
    memset(e, 0, sizeof *e);
    cr_assert_eq(psrti_config_set(config, "PSRT_SECURITY", level), PSRT_OK);
    cr_assert_eq(psrti_net_open(&p, &e->net), PSRT_OK, "%s", psrt_last_error());
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

/* A session of w with s through the tap, in which w sent a message. */
static void talk(end_t *s, end_t *w, tap_t *tap, const char *level, int control)
{
    char addr[1][PSRT_ADDR_MAX];
    psrti_link_t *link;
    psrt_hdr_t hdr = { .type = PSRTI_T_CTRL, .length = sizeof secret_text };

    open_end(s, SERVER, level, control);
    open_end(w, WORKER, level, control);
    cr_assert_eq(psrti_net_addrs(s->net, addr, 1), 1);
    tap_open(tap, addr[0]);
    snprintf(addr[0], sizeof addr[0], "tcp://127.0.0.1:%u", tap->port);
    cr_assert_eq(psrti_net_connect(w->net, (const char(*)[PSRT_ADDR_MAX])addr, 1, SERVER, 0, &link),
                 PSRT_OK);
    until(&w->up, 1, w, s);
    cr_assert_eq(psrti_net_send(w->net, link, &hdr, secret_text, sizeof secret_text, NULL),
                 PSRT_OK);
    until(&s->messages, 1, w, s);
    cr_assert_eq(s->up, 1);
}

static void expect_visible(const char *level, int control, int visible)
{
    end_t s, w;
    tap_t tap;

    talk(&s, &w, &tap, level, control);
    psrti_net_close(w.net);
    psrti_net_close(s.net);
    cr_assert_eq(tap_shows(&tap, secret_text, sizeof secret_text), visible, "%s, control %d", level,
                 control);
    cr_assert_eq(tap_shows(&tap, key.nonce, sizeof key.nonce), visible, "%s, control %d", level,
                 control);
    cr_assert(!tap_shows(&tap, key.secret, 16), "%s, control %d", level, control);
    tap_close(&tap);
}

Test(replay, levels_encrypt_what_they_promise, .init = setup, .fini = teardown)
{
    expect_visible("encrypted", 0, 0);
    expect_visible("encrypted", 1, 0);
    expect_visible("authenticated", 0, 1);
    expect_visible("authenticated", 1, 0);
    expect_visible("off", 0, 1);
    expect_visible("off", 1, 1);
}

/* libzmq drops a second connection with the routing id of a living one before we see it; somebody
 * who repeats plain bytes can change it. The id ends with random bytes. */
static void change_routing_id(uint8_t *bytes, size_t size)
{
    static const char name[] = "\x08Identity\0\0\0";
    uint8_t *at = memmem(bytes, size, name, sizeof name - 1);

    cr_assert(at != NULL);
    at += sizeof name - 1;
    cr_assert_eq(at[0], 25);
    at[25] ^= 0x5a;
}

/* Receives exactly `size` bytes; the server moves meanwhile, for it admits connections itself. */
static void hear(int fd, uint8_t *bytes, size_t size, end_t *s)
{
    uint64_t deadline = psrti_now_ns() + DEADLINE_NS;
    for (size_t got = 0; got < size;) {
        ssize_t n = recv(fd, bytes + got, size - got, MSG_DONTWAIT);
        cr_assert(n > 0 || (n < 0 && errno == EAGAIN));
        if (n > 0) got += (size_t)n;
        psrti_net_progress(s->net);
        cr_assert(psrti_now_ns() < deadline);
    }
}

/* libzmq hangs up on who does not wait for its part of the handshake of ZMTP: a greeting of 64 bytes,
 * then a command READY, whose second byte is the length of the rest. */
static int play_back(const tap_t *tap, const uint8_t *said, size_t size, end_t *s)
{
    uint8_t answer[64 + 2 + 255];
    int fd = tap_dial(tap);
    size_t handshake = 64 + 2 + (size_t)said[65];

    cr_assert_lt(handshake, size);
    cr_assert(tap_say(fd, said, handshake));
    hear(fd, answer, 66, s);
    hear(fd, answer + 66, answer[65], s);
    cr_assert(tap_say(fd, said + handshake, size - handshake));
    return fd;
}

/* Plays the worker's side of a finished or of a living session back to the server. */
static void replay(const char *level, int alive)
{
    end_t s, w;
    tap_t tap;

    talk(&s, &w, &tap, level, 0);
    size_t size = tap.said[TAP_TO_SERVER].count;
    uint8_t *said = malloc(size);
    cr_assert(said != NULL);
    memcpy(said, tap.said[TAP_TO_SERVER].bytes, size);
    unsigned before = refusals;
    if (alive) {
        change_routing_id(said, size);
    } else {
        psrti_net_close(w.net);
        until(&s.lost, 1, &s, NULL);
    }
    int fd = play_back(&tap, said, size, &s);
    until(&refusals, before + 1, &s, alive ? &w : NULL);
    close(fd);
    cr_assert_eq(s.up, 1);
    cr_assert_eq(s.messages, 1);
    cr_assert_eq(s.lost, alive ? 0 : 1);
    if (alive) {
        psrt_hdr_t hdr = { .type = PSRTI_T_PULL };
        cr_assert_eq(psrti_net_send(w.net, w.link, &hdr, NULL, 0, NULL), PSRT_OK);
        until(&s.messages, 2, &w, &s);
        psrti_net_close(w.net);
    }
    psrti_net_close(s.net);
    free(said);
    tap_close(&tap);
}

Test(replay, a_finished_session_opens_nothing_again, .init = setup, .fini = teardown)
{
    replay("authenticated", 0);
    replay("off", 0);
}

Test(replay, a_living_session_is_not_displaced, .init = setup, .fini = teardown)
{
    replay("authenticated", 1);
    replay("off", 1);
}
