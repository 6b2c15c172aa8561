/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes, before anything is trusted:
 *
 *     dialling side              accepting side
 *     magic[8] nonce[32]  ---->
 *                         <----  magic[8] nonce[32]
 *     header[24] frame    ---->                          frame: an empty message
 *                         <----  header[24] frame
 *
 * and then frames both ways: the length of what follows (u32, little-endian, which is authenticated
 * with it), and one message of crypto_secretstream_xchacha20poly1305. The key of each direction is
 * BLAKE2b, keyed by the job's secret, of a word for the direction, the job's nonce and both nonces of
 * the connection: a record of another connection, or of the other direction, does not decrypt. An empty
 * message says that its sender lives; the tag FINAL that it closes. */
#include "launcher/channel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"

#define MAGIC "psrtchn1"
#define MAGIC_LEN 8
#define NONCE_LEN 32
#define HELLO_LEN (MAGIC_LEN + NONCE_LEN)
#define LENGTH_LEN 4
#define HEADER_LEN crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define SEAL_LEN crypto_secretstream_xchacha20poly1305_ABYTES
#define TAG_MESSAGE crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
#define TAG_FINAL crypto_secretstream_xchacha20poly1305_TAG_FINAL
#define FRAME_MAX (PSRTI_CHANNEL_MESSAGE_MAX + SEAL_LEN)

typedef enum state {
    STATE_CONNECTING,
    STATE_HELLO, /* waits for the other side's nonce */
    STATE_PROOF, /* waits for its header and first frame */
    STATE_OPEN,
    STATE_CLOSING, /* its last frames leave, then the other side closes */
    STATE_CLOSED   /* handles are being closed */
} state_t;

struct psrti_channel {
    psrti_channel_params_t p;
    psrti_jobkey_t key;
    state_t state;
    int dials, paused, open_handles;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connecting;
    uv_shutdown_t ending;
    uint8_t nonce[NONCE_LEN], other_nonce[NONCE_LEN];
    crypto_secretstream_xchacha20poly1305_state out, in;
    uint8_t *buf; /* what came and is not yet used */
    size_t len, capacity, backlog;
    uint64_t since_ms; /* of the state; of the last byte when open */
    int sent;          /* since the last beat */
    int in_use;        /* buf is being taken from */
    char why[256];
};

typedef struct record {
    uv_write_t req;
    psrti_channel_t *channel;
    size_t len;
    uint8_t bytes[];
} record_t;

/* ---- the end --------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    psrti_channel_t *c = handle->data;
    if (--c->open_handles) return;
    psrti_channel_events_t events = c->p.events;
    char why[sizeof c->why];
    memcpy(why, c->why, sizeof why);
    free(c->buf);
    sodium_memzero(c, sizeof *c);
    free(c);
    events.closed(events.arg, why[0] ? why : NULL);
}

static void close_handles(psrti_channel_t *c)
{
    if (c->state == STATE_CLOSED) return;
    c->state = STATE_CLOSED;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

__attribute__((format(printf, 2, 3))) static void fail(psrti_channel_t *c, const char *fmt, ...)
{
    va_list ap;
    if (c->state == STATE_CLOSED) return;
    if (c->state != STATE_CLOSING) {
        va_start(ap, fmt);
        vsnprintf(c->why, sizeof c->why, fmt, ap);
        va_end(ap);
    }
    close_handles(c);
}

/* Whoever closes while there is something unread resets the connection, and the last messages are lost.
 * So the end of the other side is waited for. */
static void on_half_closed(uv_shutdown_t *req, int status)
{
    psrti_channel_t *c = req->data;
    if (status < 0) close_handles(c);
}

static void half_close(psrti_channel_t *c)
{
    c->ending.data = c;
    if (uv_shutdown(&c->ending, (uv_stream_t *)&c->tcp, on_half_closed) < 0) close_handles(c);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void on_written(uv_write_t *req, int status)
{
    record_t *r = req->data;
    psrti_channel_t *c = r->channel;
    c->backlog -= r->len;
    free(r);
    if (status < 0) {
        fail(c, "connection lost: %s", uv_strerror(status));
        return;
    }
    if (c->backlog) return;
    if (c->state == STATE_CLOSING)
        half_close(c);
    else if (c->state == STATE_OPEN && c->p.events.drained)
        c->p.events.drained(c->p.events.arg);
}

static record_t *make_record(psrti_channel_t *c, size_t len)
{
    record_t *r = psrti_xrealloc(NULL, sizeof *r + len);
    r->req.data = r;
    r->channel = c;
    r->len = len;
    return r;
}

static void write_record(psrti_channel_t *c, record_t *r)
{
    uv_buf_t buf = uv_buf_init((char *)r->bytes, (unsigned)r->len);
    c->backlog += r->len;
    c->sent = 1;
    int rc = uv_write(&r->req, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (rc < 0) {
        c->backlog -= r->len;
        free(r);
        fail(c, "connection lost: %s", uv_strerror(rc));
    }
}

static void send_frame(psrti_channel_t *c, const void *data, size_t len, unsigned char tag)
{
    record_t *r = make_record(c, LENGTH_LEN + len + SEAL_LEN);
    psrti_put32(r->bytes, (uint32_t)(len + SEAL_LEN));
    crypto_secretstream_xchacha20poly1305_push(&c->out, r->bytes + LENGTH_LEN, NULL, data, len,
                                               r->bytes, LENGTH_LEN, tag);
    write_record(c, r);
}

static void send_hello(psrti_channel_t *c)
{
    record_t *r = make_record(c, HELLO_LEN);
    memcpy(r->bytes, MAGIC, MAGIC_LEN);
    memcpy(r->bytes + MAGIC_LEN, c->nonce, NONCE_LEN);
    write_record(c, r);
}

/* The key of what the dialling side says, or of what the accepting side says. */
static void derive(const psrti_channel_t *c, int of_dialler,
                   uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES])
{
    static const char *const words[] = { "psrt channel, accepting side",
                                         "psrt channel, dialling side" };
    const uint8_t *first = c->dials ? c->nonce : c->other_nonce;
    const uint8_t *second = c->dials ? c->other_nonce : c->nonce;
    crypto_generichash_state state;
    crypto_generichash_init(&state, c->key.secret, sizeof c->key.secret,
                            crypto_secretstream_xchacha20poly1305_KEYBYTES);
    crypto_generichash_update(&state, (const uint8_t *)words[of_dialler],
                              strlen(words[of_dialler]) + 1);
    crypto_generichash_update(&state, c->key.nonce, sizeof c->key.nonce);
    crypto_generichash_update(&state, first, NONCE_LEN);
    crypto_generichash_update(&state, second, NONCE_LEN);
    crypto_generichash_final(&state, key, crypto_secretstream_xchacha20poly1305_KEYBYTES);
}

static void send_proof(psrti_channel_t *c)
{
    uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    record_t *r = make_record(c, HEADER_LEN);
    derive(c, c->dials, key);
    crypto_secretstream_xchacha20poly1305_init_push(&c->out, r->bytes, key);
    sodium_memzero(key, sizeof key);
    write_record(c, r);
    if (c->state != STATE_CLOSED) send_frame(c, NULL, 0, TAG_MESSAGE);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Each takes what it can use from the front of `data` and says how much; 0: more must come first, or
 * the channel ended. */

static size_t take_hello(psrti_channel_t *c, const uint8_t *data, size_t len)
{
    size_t magic = PSRTI_MIN(len, MAGIC_LEN);
    if (memcmp(data, MAGIC, magic)) {
        fail(c, "the other side does not speak this protocol");
        return 0;
    }
    if (len < HELLO_LEN) return 0;
    memcpy(c->other_nonce, data + MAGIC_LEN, NONCE_LEN);
    c->state = STATE_PROOF;
    if (c->dials)
        send_proof(c);
    else
        send_hello(c);
    return HELLO_LEN;
}

static int length_of_frame(psrti_channel_t *c, const uint8_t *data, size_t max, size_t *len_p)
{
    *len_p = psrti_get32(data);
    if (*len_p >= SEAL_LEN && *len_p <= max) return 1;
    fail(c, "a frame of %zu bytes where %d to %zu are possible", *len_p, (int)SEAL_LEN, max);
    return 0;
}

static size_t take_proof(psrti_channel_t *c, const uint8_t *data, size_t len)
{
    uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES], nothing[1];
    unsigned char tag;
    size_t frame;
    if (len < HEADER_LEN + LENGTH_LEN) return 0;
    const uint8_t *length = data + HEADER_LEN;
    if (!length_of_frame(c, length, SEAL_LEN, &frame) || len < HEADER_LEN + LENGTH_LEN + frame)
        return 0;
    derive(c, !c->dials, key);
    int wrong = crypto_secretstream_xchacha20poly1305_init_pull(&c->in, data, key) ||
                crypto_secretstream_xchacha20poly1305_pull(
                    &c->in, nothing, NULL, &tag, length + LENGTH_LEN, frame, length, LENGTH_LEN);
    sodium_memzero(key, sizeof key);
    if (wrong) {
        fail(c, "the other side does not have the key of this job");
        return 0;
    }
    c->state = STATE_OPEN;
    if (!c->dials) send_proof(c);
    if (c->state == STATE_OPEN) c->p.events.open(c->p.events.arg);
    return HEADER_LEN + LENGTH_LEN + frame;
}

/* Decrypted in place, over its own length, which was authenticated first. */
static size_t take_frame(psrti_channel_t *c, uint8_t *data, size_t len)
{
    unsigned char tag;
    unsigned long long plain;
    size_t frame;
    if (len < LENGTH_LEN || !length_of_frame(c, data, FRAME_MAX, &frame) ||
        len < LENGTH_LEN + frame)
        return 0;
    uint8_t *text = data + LENGTH_LEN + 1;
    if (crypto_secretstream_xchacha20poly1305_pull(&c->in, text, &plain, &tag, data + LENGTH_LEN,
                                                   frame, data, LENGTH_LEN)) {
        fail(c, "a frame was changed on its way");
        return 0;
    }
    if (tag == TAG_FINAL)
        close_handles(c);
    else if (plain)
        c->p.events.message(c->p.events.arg, text, (size_t)plain);
    return LENGTH_LEN + frame;
}

static size_t take(psrti_channel_t *c, uint8_t *data, size_t len)
{
    switch (c->state) {
    case STATE_HELLO: return take_hello(c, data, len);
    case STATE_PROOF: return take_proof(c, data, len);
    case STATE_OPEN: return c->paused ? 0 : take_frame(c, data, len);
    default: return 0;
    }
}

static void use_input(psrti_channel_t *c)
{
    size_t used = 0, n;
    if (c->in_use) return;
    c->in_use = 1;
    while (used < c->len && (n = take(c, c->buf + used, c->len - used)))
        used += n;
    c->in_use = 0;
    if (!used) return;
    memmove(c->buf, c->buf + used, c->len - used);
    c->len -= used;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    psrti_channel_t *c = handle->data;
    /* Before the proof no more than the handshake has room. */
    size_t room = c->state == STATE_OPEN ? suggested : 256 - PSRTI_MIN(c->len, 255);
    if (c->capacity - c->len < room) {
        c->capacity = PSRTI_MAX(c->len + room, c->state == STATE_OPEN ? 2 * c->capacity : 0);
        c->buf = psrti_xrealloc(c->buf, c->capacity);
    }
    *buf = uv_buf_init((char *)c->buf + c->len, (unsigned)room);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    psrti_channel_t *c = stream->data;
    (void)buf;
    if (n < 0) {
        fail(c, "connection lost: %s", uv_strerror((int)n));
        return;
    }
    if (c->state == STATE_CLOSING) return; /* whatever it still says */
    c->len += (size_t)n;
    if (c->state == STATE_OPEN) c->since_ms = uv_now(c->p.loop);
    use_input(c);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
    psrti_channel_t *c = timer->data;
    uint64_t passed = uv_now(c->p.loop) - c->since_ms;
    switch (c->state) {
    case STATE_CONNECTING:
    case STATE_HELLO:
    case STATE_PROOF:
        if (passed >= c->p.open_ms)
            fail(c, "no %s within %.1f s",
                 c->state == STATE_CONNECTING ? "connection" : "answer of the other side",
                 (double)c->p.open_ms / 1000);
        break;
    case STATE_OPEN:
        if (passed >= c->p.silent_ms && !c->paused) {
            fail(c, "silent for %.1f s", (double)passed / 1000);
            break;
        }
        if (!c->sent) send_frame(c, NULL, 0, TAG_MESSAGE);
        c->sent = 0;
        break;
    case STATE_CLOSING:
        if (passed >= c->p.silent_ms) close_handles(c);
        break;
    case STATE_CLOSED: break;
    }
}

/* ---- the beginning --------------------------------------------------------------------------- */

static psrt_status_t create(const psrti_channel_params_t *params, int dials,
                            psrti_channel_t **channel_p)
{
    if (sodium_init() < 0) return psrti_fail(PSRT_ERR_INTERNAL, "libsodium does not start");
    psrti_channel_t *c = psrti_xcalloc(1, sizeof *c);
    c->p = *params;
    c->key = *params->key;
    c->dials = dials;
    c->since_ms = uv_now(params->loop);
    randombytes_buf(c->nonce, sizeof c->nonce);
    int rc = uv_tcp_init(params->loop, &c->tcp);
    if (rc < 0) {
        free(c);
        return psrti_fail(PSRT_ERR_LIMIT, "channel: %s", uv_strerror(rc));
    }
    uv_timer_init(params->loop, &c->timer);
    c->tcp.data = c->timer.data = c;
    c->open_handles = 2;
    uint64_t step = PSRTI_MAX(PSRTI_MIN(params->beat_ms, params->open_ms / 4), 1);
    uv_timer_start(&c->timer, on_timer, step, step);
    *channel_p = c;
    return PSRT_OK;
}

/* A dead host is found by what is sent to it, also while nothing is read here. */
static void set_options(psrti_channel_t *c)
{
    uv_os_fd_t fd;
    unsigned ms = (unsigned)c->p.silent_ms;
    uv_tcp_nodelay(&c->tcp, 1);
    if (!uv_fileno((uv_handle_t *)&c->tcp, &fd))
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void begin(psrti_channel_t *c)
{
    set_options(c);
    c->state = STATE_HELLO;
    if (c->dials) send_hello(c);
    int rc =
        c->state == STATE_CLOSED ? 0 : uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (rc < 0) fail(c, "connection lost: %s", uv_strerror(rc));
}

static void on_connected(uv_connect_t *req, int status)
{
    psrti_channel_t *c = req->data;
    if (c->state == STATE_CLOSED) return;
    if (status < 0)
        fail(c, "%s", uv_strerror(status));
    else
        begin(c);
}

psrt_status_t psrti_channel_dial(const psrti_channel_params_t *params,
                                 const struct sockaddr *address, psrti_channel_t **channel_p)
{
    psrt_status_t st = create(params, 1, channel_p);
    if (st) return st;
    psrti_channel_t *c = *channel_p;
    c->connecting.data = c;
    int rc = uv_tcp_connect(&c->connecting, &c->tcp, address, on_connected);
    if (rc < 0) fail(c, "%s", uv_strerror(rc));
    return PSRT_OK;
}

psrt_status_t psrti_channel_accept(const psrti_channel_params_t *params, uv_stream_t *listener,
                                   psrti_channel_t **channel_p)
{
    psrt_status_t st = create(params, 0, channel_p);
    if (st) return st;
    psrti_channel_t *c = *channel_p;
    int rc = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (rc < 0)
        fail(c, "accept: %s", uv_strerror(rc));
    else
        begin(c);
    return PSRT_OK;
}

/* ---- its use --------------------------------------------------------------------------------- */

void psrti_channel_set_arg(psrti_channel_t *c, void *arg) { c->p.events.arg = arg; }

void psrti_channel_send(psrti_channel_t *c, const void *data, size_t len)
{
    if (c->state == STATE_OPEN) send_frame(c, data, len, TAG_MESSAGE);
}

size_t psrti_channel_backlog(const psrti_channel_t *c) { return c->backlog; }

void psrti_channel_pause(psrti_channel_t *c, int paused)
{
    if (c->state != STATE_OPEN || c->paused == paused) return;
    c->paused = paused;
    if (paused) {
        uv_read_stop((uv_stream_t *)&c->tcp);
        return;
    }
    c->since_ms = uv_now(c->p.loop);
    use_input(c);
    if (c->state == STATE_OPEN && !c->paused)
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

void psrti_channel_close(psrti_channel_t *c)
{
    if (c->state == STATE_CLOSING || c->state == STATE_CLOSED) return;
    if (c->state != STATE_OPEN) {
        close_handles(c);
        return;
    }
    send_frame(c, NULL, 0, TAG_FINAL);
    if (c->state == STATE_CLOSED) return;
    c->state = STATE_CLOSING;
    c->since_ms = uv_now(c->p.loop);
    if (c->paused) uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

void psrti_channel_abort(psrti_channel_t *c) { close_handles(c); }

static void format_address(const struct sockaddr_storage *sa, char *text, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    int v6 = sa->ss_family == AF_INET6;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)sa;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)sa;
    int mapped = v6 && IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr);
    if (mapped)
        inet_ntop(AF_INET, &a6->sin6_addr.s6_addr[12], ip, sizeof ip);
    else
        inet_ntop(sa->ss_family, v6 ? (const void *)&a6->sin6_addr : (const void *)&a4->sin_addr,
                  ip, sizeof ip);
    snprintf(text, size, "%s", ip);
}

void psrti_channel_peer(const psrti_channel_t *c, char *text, size_t size)
{
    struct sockaddr_storage sa = { 0 };
    int len = sizeof sa;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&sa, &len))
        snprintf(text, size, "?");
    else
        format_address(&sa, text, size);
}

void psrti_channel_local(const psrti_channel_t *c, char *text, size_t size)
{
    struct sockaddr_storage sa = { 0 };
    int len = sizeof sa;
    if (uv_tcp_getsockname(&c->tcp, (struct sockaddr *)&sa, &len))
        snprintf(text, size, "?");
    else
        format_address(&sa, text, size);
}
