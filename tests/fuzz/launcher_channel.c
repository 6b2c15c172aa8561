/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_channel.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "channel_uv.h"
#include "launcher/channel.h"

#define PIPE_MAX 65536
#define WRITES 64
#define SENDS 64
#define CLOSES 8

/* One end: what channel.c has of libuv there, and what its user was told. */
typedef struct end {
    psrti_channel_t *channel; /* NULL: freed */
    uv_tcp_t *tcp;
    uv_timer_t *timer;
    uv_timer_cb on_timer;
    uint64_t due, repeat;
    uv_alloc_cb alloc;
    uv_read_cb read; /* NULL: it does not read */
    struct {
        uv_write_t *req;
        uv_write_cb cb;
    } writes[WRITES];
    unsigned nwrites;
    uv_connect_t *connecting;
    uv_connect_cb on_connected;
    uv_shutdown_t *ending;
    uv_shutdown_cb on_ended;
    uint8_t pipe[PIPE_MAX]; /* what it wrote and the other end has not read */
    size_t len;
    int broken; /* no more room: the connection is lost */
    uint8_t
        lengths[SENDS]; /* of the messages that it sent: each byte is the number of the message */
    unsigned sent, received;
    int opened, closed;
} end_t;

static struct {
    end_t end[2]; /* 0 dials, 1 accepts */
    struct {
        uv_handle_t *handle;
        uv_close_cb cb;
    } closing[CLOSES];
    unsigned nclosing, created;
    uint64_t now, random;
    int other_key;
} world;

static end_t *end_of(const void *handle)
{
    end_t *e = &world.end[0];
    return e->tcp == handle || (const void *)e->timer == handle ? e : &world.end[1];
}

/* ---- libuv ------------------------------------------------------------------------------------- */

int fake_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp)
{
    (void)loop;
    world.end[world.created].tcp = tcp;
    return 0;
}

int fake_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    (void)loop;
    world.end[world.created++].timer = timer;
    return 0;
}

int fake_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    end_t *e = end_of(timer);
    e->on_timer = cb;
    e->due = world.now + timeout;
    e->repeat = repeat;
    return 0;
}

void fake_close(uv_handle_t *handle, uv_close_cb cb)
{
    end_t *e = end_of(handle);
    FUZZ_ASSERT(world.nclosing < CLOSES);
    world.closing[world.nclosing].handle = handle;
    world.closing[world.nclosing++].cb = cb;
    if (handle == (uv_handle_t *)e->timer)
        e->on_timer = NULL;
    else
        e->read = NULL;
}

int fake_accept(uv_stream_t *listener, uv_stream_t *stream)
{
    (void)listener, (void)stream;
    return 0;
}

int fake_tcp_connect(uv_connect_t *req, uv_tcp_t *tcp, const struct sockaddr *address,
                     uv_connect_cb cb)
{
    (void)address;
    end_of(tcp)->connecting = req;
    end_of(tcp)->on_connected = cb;
    return 0;
}

int fake_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read)
{
    end_of(stream)->alloc = alloc;
    end_of(stream)->read = read;
    return 0;
}

int fake_read_stop(uv_stream_t *stream)
{
    end_of(stream)->read = NULL;
    return 0;
}

int fake_write(uv_write_t *req, uv_stream_t *stream, const uv_buf_t bufs[], unsigned n,
               uv_write_cb cb)
{
    end_t *e = end_of(stream);
    FUZZ_ASSERT(n == 1);
    if (e->broken || e->nwrites == WRITES || bufs[0].len > PIPE_MAX - e->len) {
        e->broken = 1;
        return UV_EPIPE;
    }
    memcpy(e->pipe + e->len, bufs[0].base, bufs[0].len);
    e->len += bufs[0].len;
    e->writes[e->nwrites].req = req;
    e->writes[e->nwrites++].cb = cb;
    return 0;
}

int fake_shutdown(uv_shutdown_t *req, uv_stream_t *stream, uv_shutdown_cb cb)
{
    end_of(stream)->ending = req;
    end_of(stream)->on_ended = cb;
    return 0;
}

uint64_t fake_now(const uv_loop_t *loop)
{
    (void)loop;
    return world.now;
}

int fake_fileno(const uv_handle_t *handle, uv_os_fd_t *fd)
{
    (void)handle, (void)fd;
    return UV_EBADF;
}

int fake_nodelay(uv_tcp_t *tcp, int on)
{
    (void)tcp, (void)on;
    return 0;
}

/* ---- what the loop does --------------------------------------------------------------------------- */

static void end_writes(end_t *e, int status)
{
    while (e->nwrites) {
        uv_write_t *req = e->writes[0].req;
        uv_write_cb cb = e->writes[0].cb;
        memmove(e->writes, e->writes + 1, --e->nwrites * sizeof *e->writes);
        cb(req, status);
    }
}

static void end_requests(end_t *e, int status)
{
    uv_connect_t *connecting = e->connecting;
    uv_shutdown_t *ending = e->ending;
    e->connecting = NULL;
    e->ending = NULL;
    if (connecting) e->on_connected(connecting, status);
    end_writes(e, status);
    if (ending) e->on_ended(ending, status);
}

static void run_closes(void)
{
    while (world.nclosing) {
        uv_handle_t *handle = world.closing[0].handle;
        uv_close_cb cb = world.closing[0].cb;
        memmove(world.closing, world.closing + 1, --world.nclosing * sizeof *world.closing);
        end_t *e = end_of(handle);
        if (handle == (uv_handle_t *)e->tcp) end_requests(e, UV_ECANCELED);
        cb(handle);
    }
}

static void deliver(end_t *from, end_t *to, size_t n)
{
    uv_buf_t buf = uv_buf_init(NULL, 0);
    n = PSRTI_MIN(n, from->len);
    if (!to->read || !n) return;
    to->alloc((uv_handle_t *)to->tcp, 65536, &buf);
    n = PSRTI_MIN(n, buf.len);
    memcpy(buf.base, from->pipe, n);
    memmove(from->pipe, from->pipe + n, from->len -= n);
    to->read((uv_stream_t *)to->tcp, (ssize_t)n, &buf);
}

static void lose(end_t *to)
{
    uv_buf_t buf = uv_buf_init(NULL, 0);
    if (to->read) to->read((uv_stream_t *)to->tcp, UV_EOF, &buf);
}

static void run_timers(void)
{
    for (int i = 0; i < 2; i++) {
        end_t *e = &world.end[i];
        if (!e->on_timer || e->due > world.now) continue;
        e->due = world.now + e->repeat;
        e->on_timer(e->timer);
    }
}

/* ---- what the user is told -------------------------------------------------------------------------- */

static void on_open(void *arg)
{
    end_t *e = arg;
    FUZZ_ASSERT(!e->opened && !e->closed && !world.other_key);
    e->opened = 1;
}

/* Whole, once, in order, and only what the other end sent. */
static void on_message(void *arg, const void *data, size_t len)
{
    end_t *e = arg;
    const end_t *other = &world.end[e == &world.end[0]];
    const uint8_t *bytes = data;
    FUZZ_ASSERT(e->opened && !e->closed && e->received < other->sent);
    FUZZ_ASSERT(len == other->lengths[e->received]);
    for (size_t i = 0; i < len; i++)
        FUZZ_ASSERT(bytes[i] == e->received);
    e->received++;
}

static void on_closed(void *arg, const char *why)
{
    end_t *e = arg;
    FUZZ_ASSERT(!e->closed && (!why || *why));
    e->closed = 1;
    e->channel = NULL;
}

static void say(end_t *e, size_t len)
{
    uint8_t message[255];
    if (!e->channel || !e->opened || !len || e->sent == SENDS) return;
    memset(message, (int)e->sent, sizeof message);
    e->lengths[e->sent++] = (uint8_t)len; /* before: it may be lost, but comes from nowhere else */
    psrti_channel_send(e->channel, message, len);
}

/* ---- what happens ----------------------------------------------------------------------------------- */

enum what {
    DELIVER,
    ALL,
    CHANGE,
    INSERT,
    SEND,
    TIME,
    CLOSE,
    ABORT,
    PAUSE,
    GO_ON,
    WRITTEN,
    LOSE,
    CONNECT
};

/* Random bytes that are the same in each run. */
static void next_bytes(void *buf, const size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(psrti_mix64(world.random++) >> 32);
}

static const char *name_of_random(void) { return "fuzz"; }
static uint32_t next_word(void)
{
    uint32_t word;
    next_bytes(&word, sizeof word);
    return word;
}

static void start(void)
{
    static randombytes_implementation random = { .implementation_name = name_of_random,
                                                 .random = next_word,
                                                 .buf = next_bytes };
    psrti_jobkey_t key[2] = { { .secret = { 1, 2, 3 }, .nonce = { 4, 5, 6 } } };
    struct sockaddr address = { .sa_family = AF_INET };
    randombytes_set_implementation(&random);
    key[1] = key[0];
    key[1].secret[31] ^= (uint8_t)world.other_key;
    for (int i = 0; i < 2; i++) {
        end_t *e = &world.end[i];
        psrti_channel_params_t p = { .key = &key[i],
                                     .open_ms = 2000,
                                     .beat_ms = 1000,
                                     .silent_ms = 5000,
                                     .events = { on_open, on_message, NULL, on_closed, e } };
        psrt_status_t rc = i ? psrti_channel_accept(&p, NULL, &e->channel)
                             : psrti_channel_dial(&p, &address, &e->channel);
        FUZZ_ASSERT(rc == PSRT_OK);
    }
}

static void insert(fuzz_in_t *in, end_t *from)
{
    size_t n = PSRTI_MIN((size_t)fuzz_u8(in), PIPE_MAX - from->len);
    uint8_t *bytes = fuzz_bytes(in, n);
    memmove(from->pipe + n, from->pipe, from->len);
    memcpy(from->pipe, bytes, n);
    from->len += n;
    free(bytes);
}

static void happen(fuzz_in_t *in)
{
    unsigned byte = fuzz_u8(in), side = byte >> 4 & 1;
    end_t *e = &world.end[side], *other = &world.end[!side];
    uv_connect_t *connecting = e->connecting;
    switch (byte & 15) {
    case DELIVER: deliver(e, other, fuzz_u8(in) + 1u); break;
    case ALL: deliver(e, other, PIPE_MAX); break;
    case CHANGE: {
        size_t at = fuzz_u16(in);
        uint8_t with = fuzz_u8(in);
        if (at < e->len) e->pipe[at] ^= with;
        break;
    }
    case INSERT: insert(in, e); break;
    case SEND: say(e, fuzz_u8(in)); break;
    case TIME:
        world.now += fuzz_u16(in);
        run_timers();
        break;
    case CLOSE:
        if (e->channel) psrti_channel_close(e->channel);
        break;
    case ABORT:
        if (e->channel) psrti_channel_abort(e->channel);
        break;
    case PAUSE:
    case GO_ON:
        if (e->channel) psrti_channel_pause(e->channel, (byte & 15) == PAUSE);
        break;
    case WRITTEN: end_writes(e, 0); break;
    case LOSE: lose(e); break;
    case CONNECT:
        e->connecting = NULL;
        if (connecting) e->on_connected(connecting, 0);
        break;
    default: break;
    }
    run_closes();
}

void fuzz_channel(fuzz_in_t *in)
{
    memset(&world, 0, sizeof world);
    world.now = 1000;
    world.other_key = fuzz_u8(in) & 1;
    start();
    while (in->left)
        happen(in);
    if (world.end[0].received && world.end[1].received) fuzz_accept();
    for (int i = 0; i < 2; i++) {
        if (world.end[i].channel) psrti_channel_abort(world.end[i].channel);
        run_closes();
        FUZZ_ASSERT(world.end[i].closed && !world.end[i].nwrites);
    }
}

/* ---- seeds ------------------------------------------------------------------------------------------ */

static void put_open(fuzz_out_t *out)
{
    static const uint8_t course[] = {
        CONNECT, ALL, ALL | 16, ALL, ALL | 16, WRITTEN, WRITTEN | 16
    };
    fuzz_put8(out, 'c');
    fuzz_put8(out, 0);
    fuzz_put(out, course, sizeof course);
}

static void put2(fuzz_out_t *out, unsigned what, unsigned value)
{
    fuzz_put8(out, what);
    fuzz_put8(out, value);
}

static void put_talk(fuzz_out_t *out)
{
    put2(out, SEND, 9);
    put2(out, SEND | 16, 200);
    put2(out, DELIVER, 7);
    fuzz_put8(out, ALL);
    fuzz_put8(out, ALL | 16);
}

void fuzz_channel_seeds(void)
{
    fuzz_out_t talk = { .size = 0 }, close = { .size = 0 }, changed = { .size = 0 };
    put_open(&talk);
    put_talk(&talk);
    put_talk(&talk);
    fuzz_put8(&talk, TIME);
    fuzz_put16(&talk, 1500);
    fuzz_put8(&talk, ALL);
    fuzz_seed("channel", talk.data, talk.size);
    put_open(&close);
    put_talk(&close);
    put2(&close, SEND, 3);
    static const uint8_t end[] = { CLOSE, WRITTEN,  PAUSE | 16, ALL,      GO_ON | 16,
                                   ALL,   ALL | 16, LOSE,       LOSE | 16 };
    fuzz_put(&close, end, sizeof end);
    fuzz_seed("channel-close", close.data, close.size);
    put_open(&changed);
    put2(&changed, SEND, 20);
    fuzz_put8(&changed, CHANGE);
    fuzz_put16(&changed, 8);
    fuzz_put8(&changed, 0x40);
    fuzz_put8(&changed, ALL);
    fuzz_attack("channel-changed", changed.data, changed.size);
}
