/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that die or stop, closing, and the limits of the process. */
#include "zmq_node.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct sent {
    psrt_tx_t tx;
    unsigned done;
    psrt_status_t status;
} sent_t;

static void on_done(psrt_tx_t *tx, psrt_status_t status)
{
    sent_t *sent = (sent_t *)tx;
    sent->done++;
    sent->status = status;
}

/* Sends until the window is full; the number of messages that were taken. */
static unsigned fill_window(node_t *node, const uint8_t *data, uint64_t size, sent_t *sent,
                            unsigned max)
{
    for (unsigned i = 0; i < max; i++) {
        psrt_hdr_t hdr = node_hdr(size, 1);
        sent[i] = (sent_t){ .tx.done = on_done };
        psrt_status_t status = ZMQ_OPS->send(node->ep, &hdr, data, size, 0, &sent[i].tx);
        if (status == PSRT_ERR_AGAIN) return i;
        cr_assert_geq(status, PSRT_OK, "%s", psrt_last_error());
        if (status == PSRT_OK) sent[i].done = 1;
    }
    return max;
}

static unsigned count_done(const sent_t *sent, unsigned count)
{
    unsigned done = 0;
    for (unsigned i = 0; i < count; i++) {
        cr_assert_leq(sent[i].done, 1);
        done += sent[i].done;
    }
    return done;
}

static void open_dialler(node_t *node, const char *addr)
{
    psrt_iface_params_t params = node_params(node, 2);
    node_open(node, &params);
    node_dial(node, addr);
    PUMP(node->up == 1, node);
}

/* ---- death ------------------------------------------------------------------------------------- */

Test(zmq_lifetime, acceptor_killed)
{
    node_t b = { 0 };
    node_child_t child;
    child_start(&child, 1, 0);
    open_dialler(&b, child.addr);
    child_end(&child, SIGKILL);
    PUMP_NS(LOST_NS, b.lost == 1, &b);
    cr_assert_eq(b.why, PSRT_ERR_PEER_LOST);
    node_close(&b);
}

/* Payloads that it did not take come back, each once. */
Test(zmq_lifetime, dialler_killed)
{
    static uint8_t data[MIB];
    static sent_t sent[64];
    node_t a = { 0 };
    node_child_t child;
    child_start(&child, 0, 0);
    psrt_iface_params_t params = node_params(&a, 1);
    params.listen = 1;
    node_open(&a, &params);
    child_dial(&child, a.addr);
    PUMP(a.up == 1, &a);
    kill(child.pid, SIGSTOP);
    unsigned count = fill_window(&a, data, sizeof(data), sent, PSRTI_COUNT(sent));
    cr_assert_eq(count, 4);
    child_end(&child, SIGKILL);
    PUMP_NS(LOST_NS, a.lost == 1, &a);
    cr_assert_eq(a.why, PSRT_ERR_PEER_LOST);
    cr_assert_eq(count_done(sent, count), count);
    node_close(&a);
}

/* ---- a receiver that stands still -------------------------------------------------------------- */

/* Window and memory stay bounded while it stands still, and everything arrives afterwards. */
static void stopped_receiver(uint64_t size)
{
    static uint8_t data[MIB];
    unsigned max = WINDOW / 128 + 2; /* a message counts 128 bytes besides its payload */
    sent_t *sent = calloc(max, sizeof(*sent));
    node_t b = { 0 };
    node_child_t child;
    cr_assert_not_null(sent);
    node_fill(data, size, 1);
    child_start(&child, 1, 0);
    open_dialler(&b, child.addr);
    kill(child.pid, SIGSTOP);
    size_t before = rss_bytes();
    unsigned count = fill_window(&b, data, size, sent, max);
    cr_assert_eq(count, (WINDOW + size + 127) / (size + 128), "%u messages of %u bytes", count,
                 (unsigned)size);
    for (int i = 0; i < 1000; i++) {
        psrt_hdr_t hdr = node_hdr(size, 1);
        sent_t more = { .tx.done = on_done };
        cr_assert_eq(ZMQ_OPS->send(b.ep, &hdr, data, size, 0, &more.tx), PSRT_ERR_AGAIN);
        ZMQ_OPS->progress(b.iface);
    }
    cr_assert_lt(rss_bytes(), before + 64 * MIB);
    cr_assert_eq(b.writable, 0);
    kill(child.pid, SIGCONT);
    PUMP(b.writable == 1 && count_done(sent, count) == count, &b);
    unsigned again = fill_window(&b, data, size, sent, max);
    cr_assert_gt(again, 0);
    PUMP(count_done(sent, again) == again, &b);
    cr_assert_eq(b.lost, 0);
    node_close(&b);
    child_end(&child, 0);
    free(sent);
}

Test(zmq_lifetime, stopped_receiver_large) { stopped_receiver(MIB); }
Test(zmq_lifetime, stopped_receiver_small) { stopped_receiver(4096); }
Test(zmq_lifetime, stopped_receiver_headers) { stopped_receiver(0); }

/* Its libzmq reads on while its owner does not progress: the window bounds that too. */
Test(zmq_lifetime, idle_receiver)
{
    static uint8_t data[MIB];
    static sent_t sent[64];
    node_t a = { 0 }, b = { 0 };
    node_fill(data, sizeof(data), 1);
    node_open_pair(&a, &b, PSRT_SECURITY_OFF);
    size_t before = rss_bytes();
    (void)before;
    unsigned count = fill_window(&b, data, sizeof(data), sent, PSRTI_COUNT(sent));
    cr_assert_eq(count, 4);
    PUMP(count_done(sent, count) == count, &b); /* all left our memory */
    cr_assert_eq(fill_window(&b, data, sizeof(data), sent, 1), 0);
#ifndef PSRT_OWN_TEST_RUNNER /* a sanitizer's own memory says nothing of ours */
    cr_assert_lt(rss_bytes(), before + 32 * MIB);
#endif
    PUMP(a.received == count && b.writable == 1, &a, &b);
    node_exchange(&a, &b);
    node_close(&b);
    node_close(&a);
}

/* ---- closing ----------------------------------------------------------------------------------- */

/* What was sent by copy arrives before the end does, in both directions. */
Test(zmq_lifetime, last_words)
{
    for (int direction = 0; direction < 2; direction++) {
        node_t a = { 0 }, b = { 0 };
        uint8_t data[100];
        node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
        node_t *from = direction ? &a : &b, *to = direction ? &b : &a;
        for (uint64_t seq = 1; seq <= 50; seq++) {
            psrt_hdr_t hdr = node_hdr(sizeof(data), seq);
            node_fill(data, sizeof(data), seq);
            cr_assert_eq(ZMQ_OPS->send(from->ep, &hdr, data, sizeof(data), 0, NULL), PSRT_OK);
        }
        ZMQ_OPS->ep_close(from->ep);
        from->ep = NULL;
        PUMP(to->lost == 1, &a, &b);
        cr_assert_eq(to->received, 50, "%u of 50", to->received);
        cr_assert_eq(to->wrong, 0);
        cr_assert_eq(from->lost, 0);
        node_close(&b);
        node_close(&a);
    }
}

/* After ep_close the payload is ours: it is overwritten, and no torn one arrives. */
Test(zmq_lifetime, close_fences)
{
    static uint8_t data[4 * MIB];
    static sent_t sent[16];
    for (int direction = 0; direction < 2; direction++) {
        node_t a = { 0 }, b = { 0 };
        node_open_pair(&a, &b, PSRT_SECURITY_OFF);
        node_t *from = direction ? &a : &b, *to = direction ? &b : &a;
        node_fill(data, sizeof(data), 1);
        unsigned count = fill_window(from, data, sizeof(data), sent, PSRTI_COUNT(sent));
        ZMQ_OPS->ep_close(from->ep);
        from->ep = NULL;
        cr_assert_eq(count_done(sent, count), count);
        memset(data, 0, sizeof(data));
        PUMP(to->lost == 1, &a, &b);
        cr_assert_eq(to->wrong, 0);
        node_close(&b);
        node_close(&a);
    }
}

/* Its sender may not go on as if it had been sent. */
Test(zmq_lifetime, a_refused_message_ends_the_connection)
{
    static uint8_t data[MAX_MESSAGE + 1];
    for (int direction = 0; direction < 2; direction++) {
        node_t a = { 0 }, b = { 0 };
        sent_t sent = { .tx.done = on_done };
        node_open_pair(&a, &b, PSRT_SECURITY_OFF);
        node_t *from = direction ? &a : &b, *to = direction ? &b : &a;
        psrt_hdr_t hdr = node_hdr(sizeof(data), 1);
        cr_assert_eq(ZMQ_OPS->send(from->ep, &hdr, data, sizeof(data), 0, &sent.tx),
                     PSRT_ERR_LIMIT);
        cr_assert(strstr(psrt_last_error(), "PSRT_MAX_MESSAGE"), "%s", psrt_last_error());
        hdr = node_hdr(0, 2);
        cr_assert_eq(ZMQ_OPS->send(from->ep, &hdr, NULL, 0, 0, NULL), PSRT_ERR_PEER_LOST);
        PUMP(from->lost == 1 && to->lost == 1, &a, &b);
        cr_assert_eq(from->why, PSRT_ERR_LIMIT);
        cr_assert_eq(to->received, 0);
        cr_assert_eq(sent.done, 0);
        node_close(&b);
        node_close(&a);
    }
}

Test(zmq_lifetime, close_with_unsent_messages)
{
    static uint8_t data[4096];
    node_t b = { 0 };
    node_child_t child;
    child_start(&child, 1, 0);
    open_dialler(&b, child.addr);
    kill(child.pid, SIGSTOP);
    for (int i = 0; i < 1000; i++) {
        psrt_hdr_t hdr = node_hdr(sizeof(data), 1);
        if (ZMQ_OPS->send(b.ep, &hdr, data, sizeof(data), 0, NULL) != PSRT_OK) break;
    }
    uint64_t begin = psrti_now_ns();
    node_close(&b);
    cr_assert_lt(psrti_now_ns() - begin, 2 * PSRTI_NS_PER_S);
    child_end(&child, SIGKILL);
}

/* ---- a machine that is too busy ---------------------------------------------------------------- */

/* A process that stops libzmq's I/O thread of ours for a while, as a busy machine does. */
typedef struct starver {
    pid_t pid;
    int to, from;
} starver_t;

static _Noreturn void starver_main(int in, int out)
{
    pid_t tid;
    int status;
    const struct timespec while_closing = { 0, 300000000 };
    if (read(in, &tid, sizeof(tid)) != sizeof(tid)) _exit(1);
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) _exit(2);
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 || waitpid(tid, &status, __WALL) != tid)
        _exit(3);
    if (write(out, &tid, sizeof(tid)) != sizeof(tid)) _exit(4);
    if (read(in, &tid, sizeof(tid)) != sizeof(tid)) _exit(5);
    nanosleep(&while_closing, NULL);
    _exit(ptrace(PTRACE_DETACH, tid, NULL, NULL) == 0 ? 0 : 6);
}

static void starver_start(starver_t *s)
{
    int up[2], down[2];
    cr_assert(pipe(up) == 0 && pipe(down) == 0);
    fflush(NULL);
    s->pid = fork();
    cr_assert_geq(s->pid, 0);
    if (s->pid == 0) {
        close(up[0]), close(down[1]);
        starver_main(down[0], up[1]);
    }
    close(up[1]), close(down[0]);
    s->to = down[1], s->from = up[0];
    prctl(PR_SET_PTRACER, s->pid); /* where only parents may trace */
}

static pid_t io_thread(void)
{
    DIR *dir = opendir("/proc/self/task");
    pid_t found = 0;
    cr_assert_not_null(dir);
    for (struct dirent *e; !found && (e = readdir(dir));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fgets(name, sizeof(name), file) && strncmp(name, "ZMQbg/IO", 8) == 0)
            found = (pid_t)strtol(e->d_name, NULL, 10);
        fclose(file);
    }
    closedir(dir);
    return found;
}

/* 0: this process may not be traced. */
static int starver_stop_io(starver_t *s)
{
    pid_t tid = io_thread();
    cr_assert_neq(tid, 0);
    cr_assert_eq(write(s->to, &tid, sizeof(tid)), (ssize_t)sizeof(tid));
    return read(s->from, &tid, sizeof(tid)) == sizeof(tid);
}

static void starver_end(starver_t *s)
{
    int status;
    cr_assert_eq(waitpid(s->pid, &status, 0), s->pid);
    cr_assert_eq(status, 0);
    close(s->to), close(s->from);
}

/* What a stopped peer does not take does not hold up the end, in whatever order libzmq's threads hear
 * of it: here a session learns that its pipe ends before it learns that it ends itself. */
Test(zmq_lifetime, close_with_a_starved_io_thread, .timeout = 60)
{
    static uint8_t data[4096];
    node_t a = { 0 };
    node_child_t child;
    starver_t starver;
    starver_start(&starver);
    child_start(&child, 0, 0);
    psrt_iface_params_t params = node_params(&a, 1);
    params.listen = 1, params.window = 32 * MIB; /* more than the kernel takes */
    node_open(&a, &params);
    child_dial(&child, a.addr);
    PUMP(a.up == 1, &a);
    kill(child.pid, SIGSTOP);
    if (!starver_stop_io(&starver)) {
        child_end(&child, SIGKILL);
        cr_skip_test("ptrace is not permitted here");
    }
    psrt_status_t status = PSRT_OK;
    while (status == PSRT_OK) {
        psrt_hdr_t hdr = node_hdr(sizeof(data), 1);
        status = ZMQ_OPS->send(a.ep, &hdr, data, sizeof(data), 0, NULL);
    }
    cr_assert_eq(status, PSRT_ERR_AGAIN);
    pid_t tid = io_thread();
    cr_assert_eq(write(starver.to, &tid, sizeof(tid)), (ssize_t)sizeof(tid));
    node_close(&a);
    starver_end(&starver);
    child_end(&child, SIGKILL);
}

Test(zmq_lifetime, reconnects, .timeout = 120)
{
    node_t a = { 0 }, b = { 0 }, c = { 0 };
    size_t fds = 0;
    psrt_iface_params_t params = node_params(&c, 3);
    params.security = PSRT_SECURITY_OFF;
    node_open_pair(&a, &b, PSRT_SECURITY_OFF);
    node_open(&c, &params);
    psrt_ep_t *to_b = a.ep;
    for (unsigned i = 0; i < 1000; i++) {
        node_dial(&c, a.addr);
        PUMP(c.up == i + 1 && a.up == i + 2, &a, &b, &c);
        if (i == 0) fds = count_fds();
        ZMQ_OPS->ep_close(c.ep);
        PUMP(a.lost == i + 1, &a, &b, &c);
    }
    PUMP(count_fds() <= fds, &a, &b, &c); /* libzmq's threads close in their own time */
    a.ep = to_b;
    node_exchange(&a, &b);
    cr_assert(!b.lost && !c.lost);
    node_close(&c);
    node_close(&b);
    node_close(&a);
}

Test(zmq_lifetime, cycles, .timeout = 120)
{
    size_t fds = count_fds();
    for (unsigned i = 0; i < 300; i++) {
        node_t a = { 0 }, b = { 0 };
        node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
        if (i % 2) node_close(&a);
        node_close(&b);
        node_close(&a);
    }
    cr_assert_eq(count_fds(), fds);
}

static void *exit_main(void *arg)
{
    (void)arg;
    exit(0);
}

/* The process ends although interfaces are open and in use. */
Test(zmq_lifetime, exit_from_another_thread)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        node_t a = { 0 }, b = { 0 };
        pthread_t thread;
        node_open_pair(&a, &b, PSRT_SECURITY_OFF);
        if (pthread_create(&thread, NULL, exit_main, NULL) != 0) _exit(1);
        for (;;)
            node_exchange(&a, &b);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- descriptors ------------------------------------------------------------------------------- */

/* Returns what the child should exit with. */
static int dial_until_limit(void)
{
    node_t a = { 0 }, b = { 0 };
    node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
    psrt_ep_t *to_b = a.ep, *to_a = b.ep, *ep;
    struct rlimit limit = { 64, 64 };
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    psrt_status_t status = PSRT_OK;
    for (int i = 0; i < 64 && status == PSRT_OK; i++) {
        unsigned ends = b.up + b.lost;
        status = ZMQ_OPS->ep_open(b.iface, a.addr, &ep);
        if (status == PSRT_OK) PUMP(b.up + b.lost > ends, &a, &b);
    }
    if (status != PSRT_ERR_LIMIT || !strstr(psrt_last_error(), "RLIMIT_NOFILE is 64,")) return 3;
    psrt_iface_t *iface;
    psrt_iface_params_t params = node_params(&a, 1);
    if (ZMQ_OPS->iface_open(&params, &iface) != PSRT_ERR_LIMIT) return 4;
    a.ep = to_b, b.ep = to_a;
    node_exchange(&a, &b);
    node_close(&b);
    node_close(&a);
    return 0;
}

Test(zmq_lifetime, no_descriptors_left)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(dial_until_limit());
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 0);
}

/* More dial it than it can take: those are refused, the others are not disturbed. */
Test(zmq_lifetime, acceptor_without_descriptors, .timeout = 60)
{
    static uint8_t data[MIB];
    static sent_t sent[64];
    node_t b = { 0 };
    node_child_t child;
    child_start(&child, 1, 64);
    open_dialler(&b, child.addr);
    psrt_ep_t *first = b.ep;
    for (int i = 0; i < 60; i++)
        node_dial(&b, child.addr);
    PUMP(b.up + b.lost == 61, &b);
    cr_assert_gt(b.lost, 0);
    b.ep = first;
    node_fill(data, sizeof(data), 1);
    for (unsigned sends = 0; sends < 12;) { /* three windows: it consumes them */
        unsigned count = fill_window(&b, data, sizeof(data), sent, PSRTI_COUNT(sent));
        unsigned writable = b.writable;
        sends += count;
        PUMP(count_done(sent, count) == count && b.writable > writable, &b);
    }
    node_close(&b);
    child_end(&child, 0);
}
