/* SPDX-License-Identifier: Apache-2.0 */
#include "zmq_node.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

const uint8_t node_secret[32] = { 0x70, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1,
                                  0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x92, 0xeb, 0xc0,
                                  0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a };
const uint8_t node_nonce[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static uint8_t byte_at(uint64_t seq, uint64_t i)
{
    return (uint8_t)((seq * 131 + i * 7 + (i >> 8) * 13) & 0xff);
}

void node_fill(uint8_t *data, uint64_t len, uint64_t seq)
{
    for (uint64_t i = 0; i < len; i++)
        data[i] = byte_at(seq, i);
}

static int matches(const uint8_t *data, uint64_t len, uint64_t seq)
{
    for (uint64_t i = 0; i < len; i++)
        if (data[i] != byte_at(seq, i)) return 0;
    return 1;
}

psrt_hdr_t node_hdr(uint64_t len, uint64_t seq)
{
    return (psrt_hdr_t){ .type = PSRTI_T_CTRL, .session = 5, .seq = seq, .length = len };
}

static psrt_rx_t on_msg(void *arg, psrt_msg_t *msg)
{
    node_t *node = arg;
    node->received++;
    node->last_seq = msg->hdr.seq;
    if (msg->len != msg->hdr.length || !matches(msg->data, msg->len, msg->hdr.seq)) node->wrong++;
    return PSRT_RX_DONE;
}

static void on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    node_t *node = arg;
    if (event == PSRT_EP_UP) {
        node->up++;
        node->ep = ep;
    } else if (event == PSRT_EP_WRITABLE) {
        node->writable++;
    } else {
        node->lost++;
        node->why = status;
        if (node->ep == ep) node->ep = NULL;
        ZMQ_OPS->ep_close(ep);
    }
}

psrt_iface_params_t node_params(node_t *node, uint32_t task)
{
    return (psrt_iface_params_t){ .size = sizeof(psrt_iface_params_t),
                                  .on_msg = on_msg,
                                  .on_ep = on_ep,
                                  .arg = node,
                                  .listen_fd = -1,
                                  .job_nonce = node_nonce,
                                  .secret = node_secret,
                                  .security = PSRT_SECURITY_ENCRYPTED,
                                  .task = task,
                                  .incarnation = 3,
                                  .max_message = MAX_MESSAGE,
                                  .window = WINDOW };
}

void node_open(node_t *node, const psrt_iface_params_t *params)
{
    psrt_status_t status = ZMQ_OPS->iface_open(params, &node->iface);
    cr_assert_eq(status, PSRT_OK, "%s", psrt_last_error());
    if (!params->listen) return;
    status = ZMQ_OPS->iface_addr(node->iface, node->addr, sizeof(node->addr));
    cr_assert_eq(status, PSRT_OK, "%s", psrt_last_error());
}

void node_dial(node_t *node, const char *addr)
{
    psrt_status_t status = ZMQ_OPS->ep_open(node->iface, addr, &node->ep);
    cr_assert_eq(status, PSRT_OK, "%s", psrt_last_error());
}

void node_open_pair(node_t *a, node_t *b, int security)
{
    psrt_iface_params_t pa = node_params(a, 1), pb = node_params(b, 2);
    pa.listen = 1;
    pa.security = pb.security = security;
    node_open(a, &pa);
    node_open(b, &pb);
    node_dial(b, a->addr);
    PUMP(a->up == 1 && b->up == 1, a, b);
}

void node_close(node_t *node)
{
    if (node->iface) ZMQ_OPS->iface_close(node->iface);
    node->iface = NULL;
    node->ep = NULL;
}

void node_pump(node_t *const *nodes, size_t count)
{
    struct pollfd fds[3];
    unsigned events = 0, busy = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        if (nodes[i]->iface) events += ZMQ_OPS->progress(nodes[i]->iface);
    for (size_t i = 0; i < count; i++) {
        if (!nodes[i]->iface) continue;
        busy += ZMQ_OPS->arm(nodes[i]->iface) != PSRT_OK;
        fds[n++] = (struct pollfd){ .fd = ZMQ_OPS->wait_fd(nodes[i]->iface), .events = POLLIN };
    }
    if (!events && !busy) poll(fds, n, 100);
}

typedef struct sent {
    psrt_tx_t tx;
    int done;
    psrt_status_t status;
} sent_t;

static void on_done(psrt_tx_t *tx, psrt_status_t status)
{
    sent_t *sent = (sent_t *)tx;
    sent->done++;
    sent->status = status;
}

static void send_checked(node_t *from, node_t *to, uint64_t len, uint64_t seq)
{
    uint8_t *data = malloc(len + 1);
    sent_t sent = { .tx.done = on_done };
    psrt_hdr_t hdr = node_hdr(len, seq);
    unsigned before = to->received;
    cr_assert_not_null(data);
    node_fill(data, len, seq);
    psrt_status_t status;
    while ((status = ZMQ_OPS->send(from->ep, &hdr, data, len, 0, &sent.tx)) == PSRT_ERR_AGAIN) {
        unsigned writable = from->writable;
        PUMP(from->writable > writable, from, to);
    }
    cr_assert_geq(status, PSRT_OK, "%s", psrt_last_error());
    PUMP(to->received > before && (status == PSRT_OK || sent.done), from, to);
    cr_assert_eq(sent.done, status == PSRT_OK ? 0 : 1);
    cr_assert_eq(sent.status, PSRT_OK);
    cr_assert_eq(to->last_seq, seq);
    free(data);
}

void node_exchange(node_t *a, node_t *b)
{
    static const uint64_t sizes[] = { 0, 1, 4096, 4097, 8192, 8193, 300001 };
    static uint64_t seq = 1;
    cr_assert(a->ep && b->ep);
    for (size_t i = 0; i < PSRTI_COUNT(sizes); i++) {
        send_checked(a, b, sizes[i], seq++);
        send_checked(b, a, sizes[i], seq++);
    }
    cr_assert_eq(a->wrong + b->wrong, 0);
}

/* ---- log --------------------------------------------------------------------------------------- */

#define LOG_LINES 256
static struct {
    pthread_mutex_t lock;
    unsigned count;
    char line[LOG_LINES][256];
} captured = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void sink(void *arg, psrt_log_level_t level, const char *line)
{
    (void)arg, (void)level;
    pthread_mutex_lock(&captured.lock);
    snprintf(captured.line[captured.count++ % LOG_LINES], sizeof(captured.line[0]), "%s", line);
    pthread_mutex_unlock(&captured.lock);
}

void log_capture(void) { psrt_log_set_sink(sink, NULL); }

void log_clear(void) { captured.count = 0; }

unsigned log_count(const char *part)
{
    unsigned found = 0;
    for (unsigned i = 0; i < PSRTI_MIN(captured.count, LOG_LINES); i++)
        found += strstr(captured.line[i], part) != NULL;
    return found;
}

/* ---- this process ------------------------------------------------------------------------------ */

size_t count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;
    cr_assert_not_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

size_t rss_bytes(void)
{
    unsigned long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%lu %lu", &size, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- a task in another process ----------------------------------------------------------------- */

static _Noreturn void child_main(int listen, int in, int out)
{
    node_t node = { 0 };
    psrt_iface_params_t params = node_params(&node, 9);
    params.listen = listen;
    if (!listen && read(in, node.addr, sizeof(node.addr)) != sizeof(node.addr)) _exit(1);
    node_open(&node, &params);
    if (!listen) node_dial(&node, node.addr);
    if (write(out, node.addr, sizeof(node.addr)) != sizeof(node.addr)) _exit(1);
    for (;;) {
        struct pollfd fds[] = { { .fd = in, .events = POLLIN },
                                { .fd = ZMQ_OPS->wait_fd(node.iface), .events = POLLIN } };
        ZMQ_OPS->progress(node.iface);
        int busy = ZMQ_OPS->arm(node.iface) != PSRT_OK;
        poll(fds, 2, busy ? 0 : 100);
        if (fds[0].revents) break;
    }
    node_close(&node);
    _exit(node.wrong ? 1 : 0);
}

static void read_addr(node_child_t *child)
{
    cr_assert_eq(read(child->from, child->addr, sizeof(child->addr)), (ssize_t)sizeof(child->addr));
}

void child_start(node_child_t *child, int listen, unsigned fds)
{
    int up[2], down[2];
    cr_assert(pipe(up) == 0 && pipe(down) == 0);
    fflush(NULL);
    child->pid = fork();
    cr_assert_geq(child->pid, 0);
    if (child->pid == 0) {
        struct rlimit limit = { fds, fds };
        close(up[0]), close(down[1]);
        if (fds && setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
        child_main(listen, down[0], up[1]);
    }
    close(up[1]), close(down[0]);
    child->to = down[1];
    child->from = up[0];
    if (listen) read_addr(child);
}

void child_dial(node_child_t *child, const char *addr)
{
    char text[PSRT_ADDR_MAX] = "";
    snprintf(text, sizeof(text), "%s", addr);
    cr_assert_eq(write(child->to, text, sizeof(text)), (ssize_t)sizeof(text));
    read_addr(child);
}

void child_end(node_child_t *child, int signal_number)
{
    int status;
    if (signal_number) kill(child->pid, signal_number);
    close(child->to);
    cr_assert_eq(waitpid(child->pid, &status, 0), child->pid);
    close(child->from);
    if (!signal_number) cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
