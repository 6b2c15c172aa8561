/* SPDX-License-Identifier: Apache-2.0 */
/* Malformed and foreign input: it ends that connection, with one log line, and touches nothing else. */
#include "zmq_node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

/* ---- a client with the right key that speaks for itself ---------------------------------------- */

typedef struct raw {
    void *context, *socket;
} raw_t;

enum { LINK_OPEN = 1, LINK_ACCEPT = 2, LINK_CONFIRM = 3, LINK_CREDIT = 5, LINK_CLOSE = 6 };

/* docs/zmq-format.md: 'P' 'Z' | version | kind | task 4 | value 8 | incarnation 8 | nonce 16. */
static void link_message(uint8_t out[40], int kind, uint64_t value)
{
    memset(out, 0, 40);
    out[0] = 'P', out[1] = 'Z', out[2] = 1, out[3] = (uint8_t)kind;
    out[4] = 77;
    for (int i = 0; i < 8; i++)
        out[8 + i] = (uint8_t)(value >> 8 * i);
    memcpy(out + 24, node_nonce, 16);
}

static void set_int(void *socket, int option, int value)
{
    cr_assert_eq(zmq_setsockopt(socket, option, &value, sizeof(value)), 0);
}

static void raw_open(raw_t *raw, const char *addr)
{
    uint8_t public_key[32], id[25] = "Praw client";
    crypto_scalarmult_base(public_key, node_secret);
    raw->context = zmq_ctx_new();
    raw->socket = zmq_socket(raw->context, ZMQ_DEALER);
    set_int(raw->socket, ZMQ_LINGER, 0);
    set_int(raw->socket, ZMQ_RECONNECT_IVL, -1);
    set_int(raw->socket, ZMQ_IMMEDIATE, 1);
    set_int(raw->socket, ZMQ_SNDHWM, 0);
    zmq_setsockopt(raw->socket, ZMQ_ROUTING_ID, id, sizeof(id));
    zmq_setsockopt(raw->socket, ZMQ_CURVE_SERVERKEY, public_key, 32);
    zmq_setsockopt(raw->socket, ZMQ_CURVE_PUBLICKEY, public_key, 32);
    zmq_setsockopt(raw->socket, ZMQ_CURVE_SECRETKEY, node_secret, 32);
    cr_assert_eq(zmq_connect(raw->socket, addr), 0);
}

static void raw_close(raw_t *raw)
{
    zmq_close(raw->socket);
    zmq_ctx_term(raw->context);
}

static int raw_events(raw_t *raw)
{
    int events = 0;
    size_t size = sizeof(events);
    zmq_getsockopt(raw->socket, ZMQ_EVENTS, &events, &size);
    return events;
}

static void raw_send(raw_t *raw, const void *data, size_t size, int more)
{
    cr_assert_eq(zmq_send(raw->socket, data, size, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)),
                 (int)size);
}

static void raw_send_link(raw_t *raw, int kind, uint64_t value)
{
    uint8_t bytes[40];
    link_message(bytes, kind, value);
    raw_send(raw, bytes, sizeof(bytes), 0);
}

static void raw_handshake(raw_t *raw, node_t *a, node_t *b)
{
    uint8_t answer[64];
    unsigned up = a->up;
    PUMP(raw_events(raw) & ZMQ_POLLOUT, a, b);
    raw_send_link(raw, LINK_OPEN, WINDOW);
    PUMP(raw_events(raw) & ZMQ_POLLIN, a, b);
    cr_assert_eq(zmq_recv(raw->socket, answer, sizeof(answer), 0), 40);
    cr_assert_eq(answer[3], LINK_ACCEPT);
    raw_send_link(raw, LINK_CONFIRM, 0);
    PUMP(a->up == up + 1, a, b);
}

/* ---- messages ---------------------------------------------------------------------------------- */

#define NO_FLIP (-1)

typedef struct bad_case {
    const char *what;
    psrt_hdr_t hdr;
    int flip; /* byte of the encoded header that is changed */
    unsigned parts;
    size_t size[3]; /* bytes of each part; the first starts with the header */
    int64_t link;   /* or: a link message of this kind */
    uint64_t value;
    psrt_status_t why;
} bad_case_t;

#define CTRL(bytes)                                                                                \
    {                                                                                              \
        .type = PSRTI_T_CTRL, .length = (bytes)                                                    \
    }

static const bad_case_t bad_cases[] = {
    { "no bytes", CTRL(0), NO_FLIP, 1, { 0 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "a byte less than a header", CTRL(0), NO_FLIP, 1, { 63 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "wrong magic", CTRL(0), 0, 1, { 64 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "wrong version", CTRL(0), 2, 1, { 64 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "wrong crc", CTRL(0), 60, 1, { 64 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "payload too short", CTRL(10), NO_FLIP, 1, { 64 + 9 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "payload too long", CTRL(10), NO_FLIP, 1, { 64 + 11 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "small payload apart", CTRL(10), NO_FLIP, 2, { 64, 10 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "large payload inside", CTRL(5000), NO_FLIP, 1, { 64 + 5000 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "large payload cut", CTRL(5000), NO_FLIP, 2, { 64, 4999 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "large payload missing", CTRL(5000), NO_FLIP, 1, { 64 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "three frames", CTRL(5000), NO_FLIP, 3, { 64, 5000, 1 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "length 2^63", CTRL(1ull << 63), NO_FLIP, 1, { 64 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "length -1", CTRL(UINT64_MAX), NO_FLIP, 2, { 64, 5000 }, 0, 0, PSRT_ERR_PROTOCOL },
    { "count x size overflows",
      { .type = PSRTI_T_PUSH, .dtype = PSRT_F64, .length = (1ull << 61) + 1 },
      NO_FLIP,
      1,
      { 64 + 8 },
      0,
      0,
      PSRT_ERR_PROTOCOL },
    { "more than max_message",
      CTRL(MAX_MESSAGE + 1),
      NO_FLIP,
      2,
      { 64, MAX_MESSAGE + 1 },
      0,
      0,
      PSRT_ERR_PROTOCOL },
    { "frame that libzmq refuses",
      CTRL(MAX_MESSAGE),
      NO_FLIP,
      1,
      { MAX_MESSAGE + 256 },
      0,
      0,
      PSRT_ERR_PEER_LOST },
    { "second OPEN", CTRL(0), NO_FLIP, 0, { 0 }, LINK_OPEN, WINDOW, PSRT_ERR_PROTOCOL },
    { "second CONFIRM", CTRL(0), NO_FLIP, 0, { 0 }, LINK_CONFIRM, 0, PSRT_ERR_PROTOCOL },
    { "credit for nothing", CTRL(0), NO_FLIP, 0, { 0 }, LINK_CREDIT, 1, PSRT_ERR_PROTOCOL },
    { "CLOSE by the dialler", CTRL(0), NO_FLIP, 0, { 0 }, LINK_CLOSE, 0, PSRT_ERR_PROTOCOL },
    { "link message of no kind", CTRL(0), NO_FLIP, 0, { 0 }, 99, 0, PSRT_ERR_PROTOCOL },
};

static void send_case(raw_t *raw, const bad_case_t *c)
{
    static uint8_t body[MAX_MESSAGE + 256];
    if (c->link) {
        raw_send_link(raw, c->link, c->value);
        return;
    }
    psrti_frame_encode(&c->hdr, body);
    if (c->flip != NO_FLIP) body[c->flip] ^= 0x20;
    for (unsigned i = 0; i < c->parts; i++)
        raw_send(raw, body, c->size[i], i + 1 < c->parts);
}

Test(zmq_input, malformed_messages, .timeout = 60)
{
    node_t a = { 0 }, b = { 0 };
    log_capture();
    node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
    psrt_ep_t *to_b = a.ep;
    for (size_t i = 0; i < PSRTI_COUNT(bad_cases); i++) {
        const bad_case_t *c = &bad_cases[i];
        raw_t raw;
        unsigned lost = a.lost, received = a.received;
        raw_open(&raw, a.addr);
        raw_handshake(&raw, &a, &b);
        log_clear();
        send_case(&raw, c);
        PUMP(a.lost == lost + 1, &a, &b);
        cr_assert_eq(a.why, c->why, "%s: %s", c->what, psrt_status_name(a.why));
        cr_assert_eq(a.received, received, "%s", c->what);
        cr_assert_eq(log_count("task 77: closed: "), c->why == PSRT_ERR_PROTOCOL, "%s", c->what);
        PUMP(!(raw_events(&raw) & ZMQ_POLLOUT), &a, &b); /* we hung up */
        a.ep = to_b;
        node_exchange(&a, &b);
        raw_close(&raw);
    }
    cr_assert_eq(b.lost, 0);
    node_close(&b);
    node_close(&a);
}

/* It has the key and never opens: it gets no endpoint, and cannot fill the log. */
Test(zmq_input, messages_of_a_stranger)
{
    node_t a = { 0 }, b = { 0 };
    raw_t raw;
    log_capture();
    node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
    raw_open(&raw, a.addr);
    PUMP(raw_events(&raw) & ZMQ_POLLOUT, &a, &b);
    for (int i = 0; i < 1000; i++) {
        raw_send(&raw, "stray", 5, i % 3 == 0);
        raw_send(&raw, "", 0, 0);
        raw_send_link(&raw, LINK_CONFIRM, 0);
    }
    raw_handshake(&raw, &a, &b); /* all of the above was read before */
    cr_assert_eq(a.up, 2);
    cr_assert_geq(log_count("message from a stranger"), 1);
    cr_assert_leq(log_count(""), 100);
    cr_assert(!a.lost && !b.lost);
    raw_close(&raw);
    node_close(&b);
    node_close(&a);
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static int tcp_dial(const char *addr)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    sa.sin_port = htons((uint16_t)atoi(strrchr(addr, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    return fd;
}

static void tcp_send_and_close(const char *addr, const void *data, size_t size)
{
    int fd = tcp_dial(addr);
    if (send(fd, data, size, MSG_NOSIGNAL) < 0) cr_assert(errno == EPIPE || errno == ECONNRESET);
    close(fd);
}

/* ZMTP 3: the greeting and READY of a DEALER with mechanism NULL. */
static size_t plain_hello(uint8_t out[160])
{
    static const char ready[] = "\x04\0\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER"
                                "\x08Identity\0\0\0\x19"
                                "Pplain client of 25 bytes";
    const size_t size = sizeof(ready) - 1;
    memset(out, 0, 160);
    out[0] = 0xff, out[8] = 1, out[9] = 0x7f, out[10] = 3;
    memcpy(out + 12, "NULL", 4); /* NOLINT(bugprone-not-null-terminated-result): no text */
    memcpy(out + 64, ready, size);
    out[65] = (uint8_t)(size - 2);
    return 64 + size;
}

/* Reads up to the end of the connection, or up to `text` if given; true if it came. */
static int tcp_read_until(int fd, const char *text, node_t *a, node_t *b)
{
    char got[1024];
    size_t count = 0;
    for (;;) {
        struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
        PUMP(poll(&poll_fd, 1, 0) == 1, a, b);
        ssize_t n = read(fd, got + count, sizeof(got) - count);
        if (n <= 0) return 0;
        count += (size_t)n;
        if (text && memmem(got, count, text, strlen(text))) return 1;
    }
}

/* A connection with `a` after the handshake: frames may follow. libzmq wants its own READY out first. */
static int plain_dial(node_t *a, node_t *b)
{
    uint8_t hello[160];
    size_t size = plain_hello(hello);
    int fd = tcp_dial(a->addr);
    cr_assert_eq(send(fd, hello, size, MSG_NOSIGNAL), (ssize_t)size);
    cr_assert(tcp_read_until(fd, "READY", a, b));
    return fd;
}

/* OPEN as libzmq frames it: flags, length, body. */
static void plain_open_frame(uint8_t out[42])
{
    out[0] = 0, out[1] = 40;
    link_message(out + 2, LINK_OPEN, WINDOW);
}

static void stray_bytes(int security)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: stray\r\n\r\n";
    node_t a = { 0 }, b = { 0 };
    uint8_t bytes[256];
    log_capture();
    node_open_pair(&a, &b, security);
    tcp_send_and_close(a.addr, http, sizeof(http) - 1);
    node_exchange(&a, &b);
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint32_t key[2] = { seed, 0 }, counter[4] = { 0 };
        for (size_t i = 0; i < sizeof(bytes); i += 16, counter[0]++)
            psrti_philox4x32(counter, key, (uint32_t *)(void *)(bytes + i));
        tcp_send_and_close(a.addr, bytes, 1 + seed % 256 % sizeof(bytes));
    }
    node_exchange(&a, &b);
    size_t size = plain_hello(bytes);
    for (size_t cut = 0; cut <= size; cut++)
        tcp_send_and_close(a.addr, bytes, cut);
    node_exchange(&a, &b);
    cr_assert(a.up == 1 && b.up == 1 && !a.lost && !b.lost);
    node_close(&b);
    node_close(&a);
}

Test(zmq_input, stray_bytes_encrypted, .timeout = 60) { stray_bytes(PSRT_SECURITY_ENCRYPTED); }

Test(zmq_input, stray_bytes_plain, .timeout = 60) { stray_bytes(PSRT_SECURITY_OFF); }

/* Peers of ZMTP 1 and 2 are hung up on at once: libzmq could not close beside one that says its name
 * meanwhile. */
Test(zmq_input, old_protocols, .timeout = 60)
{
    static const uint8_t greetings[][12] = { { 2, 0, 'x' },
                                             { 0xff, 0, 0, 0, 0, 0, 0, 0, 2, 0x7f, 0, 6 },
                                             { 0xff, 0, 0, 0, 0, 0, 0, 0, 2, 0x7f, 1, 6 } };
    for (size_t i = 0; i < PSRTI_COUNT(greetings); i++) {
        node_t a = { 0 }, b = { 0 };
        node_open_pair(&a, &b, PSRT_SECURITY_OFF);
        int fd = tcp_dial(a.addr);
        cr_assert_eq(send(fd, greetings[i], sizeof(greetings[i]), MSG_NOSIGNAL),
                     (ssize_t)sizeof(greetings[i]));
        cr_assert_not(tcp_read_until(fd, NULL, &a, &b));
        close(fd);
        node_exchange(&a, &b);
        node_close(&b);
        node_close(&a);
    }
}

/* Cut anywhere, OPEN opens nothing; whole, it gets an answer, and then nobody confirms. */
Test(zmq_input, truncated_frame)
{
    node_t a = { 0 }, b = { 0 };
    uint8_t frame[42];
    node_open_pair(&a, &b, PSRT_SECURITY_OFF);
    plain_open_frame(frame);
    for (size_t cut = 0; cut <= sizeof(frame); cut++) {
        int fd = plain_dial(&a, &b);
        cr_assert_eq(send(fd, frame, cut, MSG_NOSIGNAL), (ssize_t)cut);
        if (cut == sizeof(frame)) {
            struct pollfd answer = { .fd = fd, .events = POLLIN };
            PUMP(poll(&answer, 1, 0) == 1, &a, &b);
            cr_assert(tcp_read_until(fd, "PZ\x01\x02", &a, &b));
        }
        close(fd);
        node_exchange(&a, &b);
    }
    cr_assert(a.up == 1 && b.up == 1 && !a.lost && !b.lost);
    node_close(&b);
    node_close(&a);
}

/* A length of 2^63 and of 2^64 - 1 in libzmq's own framing takes no memory. */
Test(zmq_input, huge_frame)
{
    static const uint8_t lengths[][8] = { { 0x80 },
                                          { 255, 255, 255, 255, 255, 255, 255, 255 },
                                          { 0, 0, 0, 4 } /* 16 GiB */ };
    node_t a = { 0 }, b = { 0 };
    node_open_pair(&a, &b, PSRT_SECURITY_OFF);
    size_t before = rss_bytes();
    for (size_t i = 0; i < PSRTI_COUNT(lengths); i++) {
        uint8_t frame[9] = { 2 /* a long one */ };
        int fd = plain_dial(&a, &b);
        memcpy(frame + 1, lengths[i], 8);
        cr_assert_eq(send(fd, frame, sizeof(frame), MSG_NOSIGNAL), (ssize_t)sizeof(frame));
        cr_assert_not(tcp_read_until(fd, NULL, &a, &b));
        close(fd);
        node_exchange(&a, &b);
    }
    cr_assert_lt(rss_bytes(), before + 64 * MIB);
    cr_assert(a.up == 1 && !a.lost && !b.lost);
    node_close(&b);
    node_close(&a);
}

/* The example of docs/zmq-format.md. */
Test(zmq_input, documented_open)
{
    static const uint8_t want[40] = { 0x50, 0x5a, 1, 1, 2, 0,  0,  0,  0,  0,  0x40, 0, 0, 0,
                                      0,    0,    3, 0, 0, 0,  0,  0,  0,  0,  1,    2, 3, 4,
                                      5,    6,    7, 8, 9, 10, 11, 12, 13, 14, 15,   16 };
    node_t b = { 0 };
    psrt_iface_params_t params = node_params(&b, 2);
    params.security = PSRT_SECURITY_OFF;
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    char addr[PSRT_ADDR_MAX];
    uint8_t id[256], got[64];
    size_t size = sizeof(addr);
    set_int(router, ZMQ_LINGER, 0);
    cr_assert_eq(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
    cr_assert_eq(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, addr, &size), 0);
    node_open(&b, &params);
    node_dial(&b, addr);
    int id_size;
    PUMP((id_size = zmq_recv(router, id, sizeof(id), ZMQ_DONTWAIT)) > 0, &b);
    cr_assert_eq(zmq_recv(router, got, sizeof(got), 0), 40);
    cr_assert_arr_eq(got, want, 40);
    static const uint8_t want_id[13] = { 'P', 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0 };
    cr_assert_eq(id_size, 25);
    cr_assert_arr_eq(id, want_id, 13); /* then the connection's number and random bytes */
    node_close(&b);
    zmq_close(router);
    zmq_ctx_term(context);
}
