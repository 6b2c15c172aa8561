/* SPDX-License-Identifier: Apache-2.0 */
#include "limits_zmq.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zmq.h>

#include "flags.h"
#include "limits.h"
#include "stats.h"

/* Bytes of a stream of one message size in one round; a cell of half a second has 32 MiB. */
#define STREAM_BYTES_PER_S ((double)(64 << 20))
#define STREAM_BYTES_MIN ((double)(4 << 20))
#define STREAM_BYTES_MAX ((double)(64 << 20))
#define STREAM_MESSAGES 20000u /* at most */
#define PINGS_PER_S 400.0      /* likewise */
#define PINGS_MIN 10.0
#define PINGS_MAX 400.0
#define PING_BYTES 64
#define KEY_TEXT 41

static const size_t message_bytes[] = { 64 << 10, 256 << 10, 1 << 20, 4 << 20 };

#define MESSAGE_SIZES (sizeof message_bytes / sizeof *message_bytes)
#define BUFFER_MAX ((uint64_t)64 << 20)

typedef enum way { WAY_PUSH, WAY_PULL, WAYS } way_t;

struct limits_zmq {
    pid_t pid;
    int link; /* to the other process: its address */
    void *context, *socket;
    int encrypted;
    char public_key[KEY_TEXT], secret_key[KEY_TEXT]; /* of both, as in a job */
    char *buffer; /* both sides send it from its beginning to its end, and again */
    uint64_t bytes, next, stream_bytes;
    uint32_t pings;
    size_t rounds;
    double ping_us[LIMIT_ROUNDS], ns_per_byte[WAYS][MESSAGE_SIZES][LIMIT_ROUNDS];
    unsigned measured; /* bit mask of ways */
};

/* What the worker asks for. The other process answers with one empty message when its buffer is there,
 * and when the last message of a stream towards it is. */
typedef struct command {
    enum { RESIZE, PING, PUSH, PULL } kind;
    uint32_t count;
    uint64_t bytes; /* of the buffer; of a message */
} command_t;

static int fail(const char *what) { return bench_fail("raw zmq: %s: %s", what, strerror(errno)); }

static int open_socket(limits_zmq_t *l, int type)
{
    const int none = 0, one = 1;
    l->context = zmq_ctx_new();
    l->socket = l->context ? zmq_socket(l->context, type) : NULL;
    if (!l->socket) return fail("socket");
    int rc = zmq_setsockopt(l->socket, ZMQ_LINGER, &none, sizeof none);
    rc |= zmq_setsockopt(l->socket, ZMQ_SNDHWM, &none, sizeof none); /* else a ROUTER drops */
    rc |= zmq_setsockopt(l->socket, ZMQ_RCVHWM, &none, sizeof none);
    if (l->encrypted) {
        rc |= zmq_setsockopt(l->socket, ZMQ_CURVE_SECRETKEY, l->secret_key, KEY_TEXT);
        if (type == ZMQ_ROUTER) {
            rc |= zmq_setsockopt(l->socket, ZMQ_CURVE_SERVER, &one, sizeof one);
        } else {
            rc |= zmq_setsockopt(l->socket, ZMQ_CURVE_PUBLICKEY, l->public_key, KEY_TEXT);
            rc |= zmq_setsockopt(l->socket, ZMQ_CURVE_SERVERKEY, l->public_key, KEY_TEXT);
        }
    }
    return rc ? fail("options") : 0;
}

/* ---- both sides ----------------------------------------------------------------------------- */

static void keep(void *data, void *hint)
{
    (void)data;
    (void)hint;
}

static int send_next(limits_zmq_t *l, size_t bytes)
{
    zmq_msg_t msg;
    if (l->next + bytes > l->bytes) l->next = 0;
    if (zmq_msg_init_data(&msg, l->buffer + l->next, bytes, keep, NULL) ||
        zmq_msg_send(&msg, l->socket, 0) < 0)
        return fail("send");
    l->next += bytes;
    return 0;
}

/* Nothing is in flight. */
static int resize(limits_zmq_t *l, uint64_t bytes)
{
    free(l->buffer);
    l->bytes = bytes;
    l->next = 0;
    l->buffer = malloc(bytes);
    if (!l->buffer) return bench_fail("out of memory");
    memset(l->buffer, 1, bytes); /* touches the pages */
    return 0;
}

/* The last frame of a message; a ROUTER has the peer's identity before it. */
static int receive_message(void *socket, zmq_msg_t *msg)
{
    do {
        zmq_msg_init(msg);
        if (zmq_msg_recv(msg, socket, 0) < 0) return fail("receive");
    } while (zmq_msg_more(msg) && !zmq_msg_close(msg));
    return 0;
}

static int drop_messages(void *socket, uint32_t count)
{
    zmq_msg_t msg;
    for (uint32_t i = 0; i < count; i++) {
        if (receive_message(socket, &msg)) return -1;
        zmq_msg_close(&msg);
    }
    return 0;
}

/* ---- the other process ---------------------------------------------------------------------- */

static int answer(limits_zmq_t *l, zmq_msg_t *id, size_t bytes)
{
    zmq_msg_t copy;
    zmq_msg_init(&copy);
    if (zmq_msg_copy(&copy, id) || zmq_msg_send(&copy, l->socket, ZMQ_SNDMORE) < 0)
        return fail("send");
    return send_next(l, bytes);
}

static int obey(limits_zmq_t *l, zmq_msg_t *id, const command_t *command)
{
    if (command->kind == RESIZE) return resize(l, command->bytes) || answer(l, id, 0);
    if (command->kind == PUSH) return drop_messages(l->socket, command->count) || answer(l, id, 0);
    for (uint32_t i = 0; i < command->count; i++) {
        if (command->kind == PING && drop_messages(l->socket, 1)) return -1;
        if (answer(l, id, command->bytes)) return -1;
    }
    return 0;
}

static int serve(limits_zmq_t *l)
{
    zmq_msg_t id, msg;
    command_t command;
    int failed;
    do {
        zmq_msg_init(&id);
        if (zmq_msg_recv(&id, l->socket, 0) < 0 || receive_message(l->socket, &msg)) return -1;
        failed = zmq_msg_size(&msg) != sizeof command;
        if (!failed) memcpy(&command, zmq_msg_data(&msg), sizeof command);
        failed = failed || obey(l, &id, &command);
        zmq_msg_close(&msg);
        zmq_msg_close(&id);
    } while (!failed);
    return -1;
}

/* Ends by a signal: of limits_zmq_stop, or when its parent is gone. */
static _Noreturn void be_other(limits_zmq_t *l, pid_t parent)
{
    char addr[64] = "";
    size_t size = sizeof addr;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(BENCH_FAILED);
    if (open_socket(l, ZMQ_ROUTER) || zmq_bind(l->socket, "tcp://127.0.0.1:*") ||
        zmq_getsockopt(l->socket, ZMQ_LAST_ENDPOINT, addr, &size) ||
        send(l->link, addr, sizeof addr, MSG_NOSIGNAL) < 0)
        fail("bind");
    else
        serve(l);
    _exit(BENCH_FAILED);
}

/* ---- this process --------------------------------------------------------------------------- */

static int connect_to(limits_zmq_t *l)
{
    char addr[64];
    if (recv(l->link, addr, sizeof addr, 0) != sizeof addr) return fail("address");
    if (open_socket(l, ZMQ_DEALER) || zmq_connect(l->socket, addr)) return fail("connect");
    return 0;
}

static int fork_other(limits_zmq_t *l)
{
    int ends[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return fail("socketpair");
    l->pid = fork();
    l->link = ends[l->pid == 0];
    close(ends[l->pid != 0]);
    if (l->pid == 0) be_other(l, self);
    return l->pid < 0 ? fail("fork") : 0;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

limits_zmq_t *limits_zmq_start(const char *security, double seconds)
{
    limits_zmq_t *l = calloc(1, sizeof *l);
    if (!l) {
        bench_fail("out of memory");
        return NULL;
    }
    l->pid = l->link = -1;
    l->stream_bytes =
        (uint64_t)clamp(seconds * STREAM_BYTES_PER_S, STREAM_BYTES_MIN, STREAM_BYTES_MAX);
    l->pings = (uint32_t)clamp(seconds * PINGS_PER_S, PINGS_MIN, PINGS_MAX);
    l->encrypted = strcmp(security, "off") != 0;
    if ((l->encrypted && zmq_curve_keypair(l->public_key, l->secret_key)) || fork_other(l)) {
        limits_zmq_stop(l);
        return NULL;
    }
    return l;
}

void limits_zmq_stop(limits_zmq_t *l)
{
    if (!l) return;
    if (l->socket) zmq_close(l->socket);
    if (l->context) zmq_ctx_term(l->context);
    if (l->pid > 0) {
        kill(l->pid, SIGKILL);
        while (waitpid(l->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    if (l->link >= 0) close(l->link);
    free(l->buffer);
    free(l);
}

static int order(const limits_zmq_t *l, int kind, uint32_t count, uint64_t bytes)
{
    command_t command;
    memset(&command, 0, sizeof command);
    command.kind = kind, command.count = count, command.bytes = bytes;
    return zmq_send(l->socket, &command, sizeof command, 0) < 0 ? fail("send") : 0;
}

int limits_zmq_begin(limits_zmq_t *l, uint64_t bytes)
{
    uint64_t room = bytes < PING_BYTES ? PING_BYTES : bytes < BUFFER_MAX ? bytes : BUFFER_MAX;
    l->rounds = 0;
    if (!l->socket && connect_to(l)) return -1;
    if (order(l, RESIZE, 0, room) || resize(l, room)) return -1;
    return drop_messages(l->socket, 1);
}

/* 0: another size stands for it. */
static size_t message_size(const limits_zmq_t *l, size_t i)
{
    if (i == 0 && l->bytes < message_bytes[0]) return l->bytes;
    return message_bytes[i] <= l->bytes ? message_bytes[i] : 0;
}

static int time_stream(limits_zmq_t *l, way_t way, size_t bytes, double *ns_per_byte)
{
    uint64_t fill = l->stream_bytes / bytes;
    uint32_t count = fill < STREAM_MESSAGES ? (uint32_t)fill : STREAM_MESSAGES;
    uint64_t start = bench_now();
    if (order(l, way == WAY_PUSH ? PUSH : PULL, count, bytes)) return -1;
    for (uint32_t i = 0; i < count && way == WAY_PUSH; i++)
        if (send_next(l, bytes)) return -1;
    if (drop_messages(l->socket, way == WAY_PUSH ? 1 : count)) return -1;
    *ns_per_byte = (double)(bench_now() - start) / ((double)count * (double)bytes);
    return 0;
}

static int time_pings(limits_zmq_t *l, double *us)
{
    double each[(size_t)PINGS_MAX];
    if (order(l, PING, l->pings, PING_BYTES)) return -1;
    for (uint32_t i = 0; i < l->pings; i++) {
        uint64_t start = bench_now();
        if (send_next(l, PING_BYTES) || drop_messages(l->socket, 1)) return -1;
        each[i] = (double)(bench_now() - start) / 1000;
    }
    *us = bench_median(each, l->pings);
    return 0;
}

int limits_zmq_measure(limits_zmq_t *l, int push, int pull)
{
    if (l->rounds == LIMIT_ROUNDS) return 0;
    l->measured = (push ? 1u << WAY_PUSH : 0) | (pull ? 1u << WAY_PULL : 0);
    for (unsigned way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < MESSAGE_SIZES && l->measured & 1u << way; i++) {
            size_t bytes = message_size(l, i);
            if (bytes && time_stream(l, (way_t)way, bytes, &l->ns_per_byte[way][i][l->rounds]))
                return -1;
        }
    }
    return time_pings(l, &l->ping_us[l->rounds++]);
}

double limits_zmq_gbps(limits_zmq_t *l)
{
    double sum = 0;
    for (unsigned way = 0; way < WAYS; way++) {
        double best = 0;
        for (size_t i = 0; i < MESSAGE_SIZES && l->measured & 1u << way; i++) {
            if (!message_size(l, i)) continue;
            double ns = bench_median(l->ns_per_byte[way][i], l->rounds);
            if (!i || ns < best) best = ns;
        }
        sum += best;
    }
    return 1 / sum;
}

double limits_zmq_ping_us(limits_zmq_t *l) { return bench_median(l->ping_us, l->rounds); }
