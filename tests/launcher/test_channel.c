/* SPDX-License-Identifier: Apache-2.0 */
/* The channel between controller and agents, also against peers that have no key, lie or stop. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/channel.h"
#include "support/test.h"

#define DEADLINE_MS 20000
#define HELLO_LEN 40

typedef struct end {
    psrti_channel_t *channel;
    int opened, closed, drained;
    size_t messages, bytes;
    uint64_t hash; /* of all bytes in order */
    int pause_at;  /* pauses at this many messages */
    char why[256];
} end_t;

static uv_loop_t loop;
static uv_tcp_t listener;
static struct sockaddr_in address;
static psrti_jobkey_t key;
static end_t accepted, dialled;
static uint64_t silent_ms = 5000, open_ms = 5000;

static void on_open(void *arg) { ((end_t *)arg)->opened++; }
static void on_drained(void *arg) { ((end_t *)arg)->drained++; }

static void on_message(void *arg, const void *data, size_t len)
{
    end_t *e = arg;
    const uint8_t *bytes = data;
    e->messages++;
    e->bytes += len;
    for (size_t i = 0; i < len; i++)
        e->hash = (e->hash ^ bytes[i]) * 1099511628211u;
    if (e->pause_at && e->messages == (size_t)e->pause_at) psrti_channel_pause(e->channel, 1);
}

static void on_closed(void *arg, const char *why)
{
    end_t *e = arg;
    e->closed++;
    e->channel = NULL;
    snprintf(e->why, sizeof e->why, "%s", why ? why : "");
}

static psrti_channel_params_t params(end_t *e, const psrti_jobkey_t *k)
{
    return (psrti_channel_params_t){
        .loop = &loop,
        .key = k,
        .open_ms = open_ms,
        .beat_ms = silent_ms / 4,
        .silent_ms = silent_ms,
        .events = { on_open, on_message, on_drained, on_closed, e },
    };
}

static void on_connection(uv_stream_t *stream, int status)
{
    cr_assert_eq(status, 0);
    psrti_channel_params_t p = params(&accepted, &key);
    accepted = (end_t){ .pause_at = accepted.pause_at };
    cr_assert_eq(psrti_channel_accept(&p, stream, &accepted.channel), PSRT_OK);
}

static void set_up(void)
{
    int len = sizeof address;
    accepted = dialled = (end_t){ 0 };
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    uv_loop_init(&loop);
    uv_tcp_init(&loop, &listener);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&listener, (struct sockaddr *)&address, 0);
    uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len);
    cr_assert_eq(uv_listen((uv_stream_t *)&listener, 8, on_connection), 0);
}

/* Both ends must be over: nothing keeps the loop alive but the listener. */
static void tear_down(void)
{
    uv_close((uv_handle_t *)&listener, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle is left");
}

static void dial(const psrti_jobkey_t *k)
{
    psrti_channel_params_t p = params(&dialled, k);
    cr_assert_eq(psrti_channel_dial(&p, (struct sockaddr *)&address, &dialled.channel), PSRT_OK);
}

#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        uint64_t end = uv_hrtime() / 1000000 + DEADLINE_MS;                                        \
        while (!(condition)) {                                                                     \
            cr_assert_lt(uv_hrtime() / 1000000, end, "%s", #condition);                            \
            if (!uv_run(&loop, UV_RUN_NOWAIT)) break;                                              \
            usleep(200);                                                                           \
        }                                                                                          \
    } while (0)

static void open_both(void)
{
    dial(&key);
    RUN_UNTIL(accepted.opened && dialled.opened);
}

static void close_both(void)
{
    if (dialled.channel) psrti_channel_close(dialled.channel);
    RUN_UNTIL(accepted.closed && dialled.closed);
}

TestSuite(channel, .init = set_up, .fini = tear_down);

Test(channel, both_sides_prove_the_key_and_close_in_order)
{
    open_both();
    close_both();
    cr_assert_str_eq(accepted.why, "");
    cr_assert_str_eq(dialled.why, "");
    cr_assert(accepted.opened == 1 && accepted.closed == 1 && dialled.closed == 1);
}

Test(channel, messages_arrive_whole_in_order_and_before_the_end)
{
    open_both();
    static const size_t sizes[] = { 1, 2, 3, 100, 65535, 65536, 65537, 5000000, 1, 7 };
    uint64_t hash = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < PSRTI_COUNT(sizes); i++) {
        uint8_t *data = malloc(sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) {
            data[k] = (uint8_t)(k * 31 + i);
            hash = (hash ^ data[k]) * 1099511628211u;
        }
        psrti_channel_send(dialled.channel, data, sizes[i]);
        psrti_channel_send(accepted.channel, data, sizes[i]);
        bytes += sizes[i];
        free(data);
    }
    cr_assert_gt(psrti_channel_backlog(dialled.channel), bytes);
    psrti_channel_close(dialled.channel); /* what was sent still leaves */
    RUN_UNTIL(accepted.closed && dialled.closed);
    cr_assert_eq(accepted.messages, PSRTI_COUNT(sizes));
    cr_assert_eq(accepted.hash, hash);
    cr_assert_str_eq(accepted.why, "");
}

Test(channel, drained_is_told)
{
    open_both();
    static const uint8_t big[4000000];
    dialled.drained = 0;
    psrti_channel_send(dialled.channel, big, sizeof big);
    cr_assert_eq(dialled.drained, 0);
    RUN_UNTIL(dialled.drained && accepted.messages == 1);
    cr_assert_eq(psrti_channel_backlog(dialled.channel), 0);
    close_both();
}

Test(channel, nothing_is_delivered_while_paused)
{
    accepted.pause_at = 2;
    open_both();
    for (int i = 0; i < 5; i++)
        psrti_channel_send(dialled.channel, "abc", 3);
    RUN_UNTIL(accepted.messages == 2 && !psrti_channel_backlog(dialled.channel));
    for (int i = 0; i < 50; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    cr_assert_eq(accepted.messages, 2);
    psrti_channel_pause(accepted.channel, 0);
    RUN_UNTIL(accepted.messages == 5);
    close_both();
}

Test(channel, a_pause_is_no_silence)
{
    silent_ms = 200;
    accepted.pause_at = 1;
    open_both();
    psrti_channel_send(dialled.channel, "abc", 3);
    uint64_t end = uv_hrtime() / 1000000 + 700;
    while (uv_hrtime() / 1000000 < end) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    cr_assert(!accepted.closed && !dialled.closed, "%s %s", accepted.why, dialled.why);
    psrti_channel_pause(accepted.channel, 0);
    close_both();
}

Test(channel, another_key)
{
    psrti_jobkey_t other;
    psrti_jobkey_generate(&other);
    memcpy(other.nonce, key.nonce, sizeof key.nonce);
    dial(&other);
    RUN_UNTIL(accepted.closed && dialled.closed);
    cr_assert(!accepted.opened && !dialled.opened);
    cr_assert_not_null(strstr(accepted.why, "key of this job"), "%s", accepted.why);
}

Test(channel, another_job_with_the_same_secret)
{
    psrti_jobkey_t other = key;
    other.nonce[0] ^= 1;
    dial(&other);
    RUN_UNTIL(accepted.closed && dialled.closed);
    cr_assert(!accepted.opened && !dialled.opened);
}

Test(channel, nobody_listens)
{
    uint16_t port = address.sin_port;
    address.sin_port = htons(1);
    dial(&key);
    RUN_UNTIL(dialled.closed);
    address.sin_port = port;
    cr_assert_not_null(strstr(dialled.why, "refused"), "%s", dialled.why);
}

/* ---- a peer by hand -------------------------------------------------------------------------- */

static int raw(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static size_t receive(int fd, uint8_t *data, size_t want)
{
    size_t len = 0;
    uint64_t end = uv_hrtime() / 1000000 + DEADLINE_MS;
    while (len < want) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, data + len, want - len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) break;
        if (n > 0) len += (size_t)n;
        cr_assert_lt(uv_hrtime() / 1000000, end);
    }
    return len;
}

Test(channel, garbage_ends_at_once_and_without_memory)
{
    static const char *const texts[] = { "GET / HTTP/1.1\r\n\r\n", "psrtchn2", "x",
                                         "SSH-2.0-x\r\n" };
    for (size_t i = 0; i < PSRTI_COUNT(texts); i++) {
        int fd = raw();
        send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
        accepted.closed = 0;
        RUN_UNTIL(accepted.closed);
        cr_assert_not_null(strstr(accepted.why, "protocol"), "%s", accepted.why);
        close(fd);
    }
}

Test(channel, what_it_said_itself_proves_nothing)
{
    static const uint8_t magic[8] = { 'p', 's', 'r', 't', 'c', 'h', 'n', '1' };
    uint8_t hello[HELLO_LEN], data[256];
    int fd = raw();
    memset(hello, 7, sizeof hello);
    memcpy(hello, magic, sizeof magic);
    send(fd, hello, sizeof hello, MSG_NOSIGNAL);
    cr_assert_eq(receive(fd, data, HELLO_LEN), HELLO_LEN);
    cr_assert_eq(accepted.opened, 0);
    uint8_t proof[24 + 4 + 17] = { 0 };
    proof[24] = 17;
    send(fd, proof, sizeof proof, MSG_NOSIGNAL);
    RUN_UNTIL(accepted.closed);
    cr_assert_not_null(strstr(accepted.why, "key of this job"), "%s", accepted.why);
    cr_assert_eq(receive(fd, data, 1), 0, "nothing is said to who has no key");
    close(fd);
}

/* Between two real ends: passes everything on, remembers the dialling side, may change a byte. */
typedef struct relay {
    int left, right;
    size_t passed, change_at; /* 1-based */
    uint8_t seen[65536];
} relay_t;

static void pump(relay_t *r, int listen_fd)
{
    uint8_t data[4096];
    if (r->left < 0) {
        r->left = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (r->left >= 0) r->right = raw();
        return;
    }
    ssize_t n = recv(r->left, data, sizeof data, 0);
    for (ssize_t i = 0; i < n; i++) {
        if (++r->passed == r->change_at) data[i] ^= 0x40;
        r->seen[r->passed - 1] = data[i];
    }
    if (n > 0) send(r->right, data, (size_t)n, MSG_NOSIGNAL);
    n = recv(r->right, data, sizeof data, 0);
    if (n > 0) send(r->left, data, (size_t)n, MSG_NOSIGNAL);
    if (n == 0) shutdown(r->left, SHUT_RDWR);
}

static int listen_for_relay(struct sockaddr_in *real)
{
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *real = address;
    address.sin_port = 0;
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(fd, 1), 0);
    getsockname(fd, (struct sockaddr *)&address, &len);
    return fd;
}

/* Dials through a relay that changes a byte, or none; all that the dialling side said. */
static void through_relay(relay_t *r)
{
    struct sockaddr_in real;
    int fd = listen_for_relay(&real);
    r->left = r->right = -1;
    dial(&key);
    address = real;
    uint64_t end = uv_hrtime() / 1000000 + DEADLINE_MS;
    int sent = 0;
    while (!dialled.closed || !accepted.closed) {
        cr_assert_lt(uv_hrtime() / 1000000, end);
        pump(r, fd);
        uv_run(&loop, UV_RUN_NOWAIT);
        if (dialled.opened && !sent++) psrti_channel_send(dialled.channel, "secret word", 11);
        if (accepted.messages && dialled.channel) psrti_channel_close(dialled.channel);
        if (dialled.closed && r->right >= 0) shutdown(r->right, SHUT_WR);
    }
    close(fd);
    close(r->left);
    close(r->right);
}

Test(channel, a_recorded_connection_cannot_be_played_again)
{
    static relay_t r;
    uint8_t data[256];
    through_relay(&r);
    cr_assert_eq(accepted.messages, 1);
    cr_assert_null(memmem(r.seen, r.passed, "secret", 6), "it is encrypted");
    accepted = (end_t){ 0 };
    int fd = raw();
    send(fd, r.seen, r.passed, MSG_NOSIGNAL);
    RUN_UNTIL(accepted.closed);
    cr_assert_eq(accepted.opened, 0);
    cr_assert_eq(accepted.messages, 0);
    while (recv(fd, data, sizeof data, 0) > 0) {}
    close(fd);
}

Test(channel, a_changed_byte_ends_it)
{
    /* In magic, nonce, header, length and text of the proof, length and text of the message. */
    static const size_t where[] = { 1, 20, 50, 65, 70, 80, 86, 90, 100, 110 };
    for (size_t i = 0; i < PSRTI_COUNT(where); i++) {
        static relay_t r;
        r = (relay_t){ .change_at = where[i] };
        accepted = dialled = (end_t){ 0 };
        open_ms = silent_ms = 400; /* a greater length is found when so many bytes have come */
        through_relay(&r);
        cr_assert_eq(accepted.messages, 0, "byte %zu", where[i]);
        cr_assert(accepted.why[0], "byte %zu", where[i]);
    }
}

Test(channel, whoever_says_nothing_is_let_go)
{
    open_ms = 200;
    int fd = raw();
    RUN_UNTIL(accepted.closed);
    cr_assert_not_null(strstr(accepted.why, "0.2 s"), "%s", accepted.why);
    close(fd);
}

Test(channel, one_byte_at_a_time_is_no_answer)
{
    open_ms = 300;
    int fd = raw();
    const char *text = "psrtchn1";
    for (int i = 0; !accepted.closed; i++) {
        if (i < 8) send(fd, text + i, 1, MSG_NOSIGNAL);
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(50000);
    }
    cr_assert_not_null(strstr(accepted.why, "answer"), "%s", accepted.why);
    close(fd);
}

Test(channel, a_lost_connection_is_no_end)
{
    open_both();
    uv_os_fd_t fd = -1;
    struct sockaddr_in sa = { 0 };
    socklen_t len;
    for (int i = 3; i < 256 && fd < 0; i++) { /* the dialling side's socket */
        len = sizeof sa;
        if (!getpeername(i, (struct sockaddr *)&sa, &len) && sa.sin_port == address.sin_port)
            fd = i;
    }
    cr_assert_geq(fd, 0);
    shutdown(fd, SHUT_RDWR);
    RUN_UNTIL(accepted.closed && dialled.closed);
    cr_assert_not_null(strstr(accepted.why, "connection lost"), "%s", accepted.why);
}

Test(channel, addresses)
{
    char text[64];
    open_both();
    psrti_channel_peer(dialled.channel, text, sizeof text);
    cr_assert_str_eq(text, "127.0.0.1");
    psrti_channel_local(dialled.channel, text, sizeof text);
    cr_assert_str_eq(text, "127.0.0.1");
    close_both();
}
