/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance/harness.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- peers ------------------------------------------------------------------------------------- */

seen_ep_t *peer_ep(peer_t *peer, const psrt_ep_t *ep)
{
    for (size_t i = peer->ep_count; i-- > 0;)
        if (peer->eps[i].ep == ep && !peer->eps[i].closed) return &peer->eps[i];
    return NULL;
}

static seen_ep_t *add_ep(peer_t *peer, psrt_ep_t *ep, int accepted)
{
    cr_assert(peer->ep_count < MAX_EPS, "%s: too many endpoints", peer->ops->name);
    seen_ep_t *seen = &peer->eps[peer->ep_count++];
    *seen = (seen_ep_t){ .ep = ep, .accepted = accepted };
    return seen;
}

static void on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    peer_t *peer = arg;
    cr_assert(peer->in_progress, "%s: on_ep outside progress", peer->ops->name);
    seen_ep_t *seen = peer_ep(peer, ep);
    if (!seen) {
        cr_assert_eq(event, PSRT_EP_UP, "%s: first event of an endpoint", peer->ops->name);
        seen = add_ep(peer, ep, 1);
    }
    cr_assert_eq(seen->lost, 0, "%s: event %d after LOST", peer->ops->name, (int)event);
    if (event == PSRT_EP_UP) seen->up++;
    if (event == PSRT_EP_WRITABLE) seen->writable++;
    if (event == PSRT_EP_LOST) {
        cr_assert(status < 0, "%s: LOST with status %d", peer->ops->name, (int)status);
        seen->lost++;
        seen->why = status;
    }
}

psrt_status_t read_payload(peer_t *peer, psrt_msg_t *msg, void *out)
{
    const void *data = msg->data;
    if (msg->len == 0) return PSRT_OK;
    if (!data) {
        cr_assert(peer->ops->map != NULL, "%s: no data and no map", peer->ops->name);
        psrt_status_t status = peer->ops->map(peer->iface, msg, &data);
        if (status != PSRT_OK) return status;
    }
    memcpy(out, data, msg->len);
    return peer->ops->verify ? peer->ops->verify(peer->iface, msg) : PSRT_OK;
}

static void record(peer_t *peer, psrt_msg_t *msg)
{
    if (peer->rx_count == peer->rx_capacity) {
        peer->rx_capacity = peer->rx_capacity ? 2 * peer->rx_capacity : 64;
        peer->rx = realloc(peer->rx, peer->rx_capacity * sizeof *peer->rx);
    }
    seen_msg_t *seen = &peer->rx[peer->rx_count++];
    *seen = (seen_msg_t){ .hdr = msg->hdr, .len = msg->len, .ep = msg->ep };
    seen->data = malloc(msg->len ? msg->len : 1);
    seen->stale = read_payload(peer, msg, seen->data) != PSRT_OK;
}

static psrt_rx_t on_msg(void *arg, psrt_msg_t *msg)
{
    peer_t *peer = arg;
    seen_ep_t *seen = peer_ep(peer, msg->ep);
    cr_assert(peer->in_progress, "%s: on_msg outside progress", peer->ops->name);
    cr_assert(seen && seen->up == 1 && seen->lost == 0, "%s: message of an endpoint not UP",
              peer->ops->name);
    if (peer->hook) return peer->hook(peer, msg);
    psrt_rx_t verdict = peer->verdict;
    if (verdict == PSRT_RX_BAD) {
        peer->verdict = PSRT_RX_DONE;
        return verdict;
    }
    if (verdict == PSRT_RX_DONE) {
        record(peer, msg);
        return verdict;
    }
    if (peer->held_count == peer->held_capacity) {
        peer->held_capacity = peer->held_capacity ? 2 * peer->held_capacity : 64;
        peer->held = realloc(peer->held, peer->held_capacity * sizeof *peer->held);
    }
    peer->held[peer->held_count++] = *msg;
    return verdict;
}

peer_t *peer_open(world_t *w, int index, int listen)
{
    peer_t *peer = &w->peer[index];
    psrt_iface_params_t params = {
        .size = sizeof params,
        .on_msg = on_msg,
        .on_ep = on_ep,
        .arg = peer,
        .listen = listen,
        .listen_fd = -1,
        .job_dir = w->dir,
        .job_nonce = w->nonce,
        .secret = w->secret,
        .security = PSRT_SECURITY_ENCRYPTED,
        .task = (uint32_t)index,
        .incarnation = 1,
        .max_message = w->max_message,
        .arena = 16 * MIB,
        .window = w->window,
    };
    cr_assert(peer->iface == NULL);
    peer->world = w;
    peer->ops = w->ops;
    peer->ep_count = 0;
    peer->verdict = PSRT_RX_DONE;
    peer->addr[0] = '\0';
    cr_assert_eq(w->ops->iface_open(&params, &peer->iface), PSRT_OK, "%s: iface_open",
                 w->ops->name);
    cr_assert(peer->iface->ops == w->ops && peer->iface->arg == peer, "%s: base of the interface",
              w->ops->name);
    if (listen) {
        cr_assert_eq(w->ops->iface_addr(peer->iface, peer->addr, sizeof peer->addr), PSRT_OK);
        cr_assert(peer->addr[0] && memchr(peer->addr, 0, sizeof peer->addr), "%s: address",
                  w->ops->name);
    }
    return peer;
}

void peer_clear(peer_t *peer)
{
    for (size_t i = 0; i < peer->rx_count; i++)
        free(peer->rx[i].data);
    free(peer->rx);
    free(peer->held);
    peer->rx = NULL;
    peer->held = NULL;
    peer->rx_count = peer->rx_capacity = peer->held_count = peer->held_capacity = 0;
}

void peer_close(peer_t *peer)
{
    if (!peer->iface) return;
    uint64_t start = psrti_now_ns();
    peer->ops->iface_close(peer->iface);
    cr_assert(psrti_now_ns() - start < 2 * PATIENCE * PSRTI_NS_PER_S, "%s: slow iface_close",
              peer->ops->name);
    peer->iface = NULL;
    peer->ep_count = 0;
}

seen_ep_t *dial(peer_t *peer, const char *addr)
{
    psrt_ep_t *ep = NULL;
    cr_assert_eq(peer->ops->ep_open(peer->iface, addr, &ep), PSRT_OK, "%s: ep_open",
                 peer->ops->name);
    cr_assert(ep && ep->iface == peer->iface, "%s: base of the endpoint", peer->ops->name);
    return add_ep(peer, ep, 0);
}

void hang_up(peer_t *peer, seen_ep_t *ep)
{
    peer->ops->ep_close(ep->ep);
    ep->closed = 1;
}

static seen_ep_t *newest_accepted(peer_t *peer)
{
    for (size_t i = peer->ep_count; i-- > 0;)
        if (peer->eps[i].accepted) return &peer->eps[i];
    return NULL;
}

void connect_pair(world_t *w, seen_ep_t **dialled_p, seen_ep_t **accepted_p)
{
    peer_t *from = &w->peer[0], *to = &w->peer[1];
    size_t before = to->ep_count;
    seen_ep_t *ep = dial(from, to->addr);
    PUMP_UNTIL(w, ep->up && to->ep_count > before);
    *dialled_p = ep;
    *accepted_p = newest_accepted(to);
}

static unsigned progress(peer_t *peer)
{
    if (!peer->iface) return 0;
    peer->in_progress = 1;
    unsigned events = peer->ops->progress(peer->iface);
    peer->in_progress = 0;
    return events;
}

static void sleep_on(peer_t *const *peers, size_t count, int wait_ms)
{
    struct pollfd fds[MAX_PEERS];
    nfds_t used = 0;
    int busy = 0;
    for (size_t i = 0; i < count; i++) {
        if (!peers[i]->iface) continue;
        busy |= peers[i]->ops->arm(peers[i]->iface) != PSRT_OK;
        fds[used++] =
            (struct pollfd){ .fd = peers[i]->ops->wait_fd(peers[i]->iface), .events = POLLIN };
    }
    if (!busy) poll(fds, used, wait_ms);
}

unsigned pump(world_t *w)
{
    peer_t *peers[MAX_PEERS];
    unsigned events = 0;
    for (int i = 0; i < MAX_PEERS; i++)
        events += progress(peers[i] = &w->peer[i]);
    if (events == 0) sleep_on(peers, MAX_PEERS, w->wait_ms);
    return events;
}

unsigned pump_peer(peer_t *peer)
{
    unsigned events = progress(peer);
    if (events == 0) sleep_on(&peer, 1, peer->world->wait_ms);
    return events;
}

/* ---- data -------------------------------------------------------------------------------------- */

static void tx_done(psrt_tx_t *base, psrt_status_t status)
{
    test_tx_t *tx = PSRTI_CONTAINER_OF(base, test_tx_t, tx);
    tx->done++;
    tx->status = status;
}

void tx_init(test_tx_t *tx) { *tx = (test_tx_t){ .tx.done = tx_done }; }

void fill(void *data, uint64_t len, uint64_t seed)
{
    uint8_t *out = data;
    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t word = psrti_mix64(seed * 0x10001 + i);
        memcpy(out + i, &word, PSRTI_MIN(len - i, 8));
    }
}

int filled_with(const void *data, uint64_t len, uint64_t seed)
{
    const uint8_t *in = data;
    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t word = psrti_mix64(seed * 0x10001 + i);
        if (memcmp(in + i, &word, PSRTI_MIN(len - i, 8)) != 0) return 0;
    }
    return 1;
}

psrt_hdr_t make_hdr(uint8_t type, uint64_t len, uint64_t seed)
{
    uint64_t x = psrti_mix64(seed);
    return (psrt_hdr_t){
        .type = type,
        .flags = (uint16_t)(x & PSRTI_F_KNOWN & ~(PSRTI_F_EXT | PSRTI_F_CRC)),
        .session = (uint32_t)(x >> 8),
        .term = (uint32_t)(x >> 16),
        .seq = seed,
        .step = x,
        .table = (uint32_t)(x >> 24),
        .vshard = (uint16_t)(x >> 32),
        .seq_floor = (uint16_t)(x >> 40),
        .offset = x * 3,
        .length = len,
        .priority = (uint8_t)(x >> 48),
        .status = (uint8_t)(x >> 56),
    };
}

int same_hdr(const psrt_hdr_t *a, const psrt_hdr_t *b)
{
    return a->type == b->type && a->flags == b->flags && a->dtype == b->dtype &&
           a->codec == b->codec && a->session == b->session && a->term == b->term &&
           a->seq == b->seq && a->step == b->step && a->table == b->table &&
           a->vshard == b->vshard && a->seq_floor == b->seq_floor && a->offset == b->offset &&
           a->length == b->length && a->priority == b->priority && a->status == b->status;
}

psrt_status_t send_ctrl(world_t *w, psrt_ep_t *ep, const void *data, uint64_t len, uint64_t seed,
                        psrt_tx_t *tx)
{
    psrt_hdr_t hdr = make_hdr(PSRTI_T_CTRL, len, seed);
    psrt_status_t status;
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    while ((status = w->ops->send(ep, &hdr, data, len, 0, tx)) == PSRT_ERR_AGAIN) {
        cr_assert(psrti_now_ns() < until, "%s: AGAIN for too long", w->ops->name);
        pump(w);
    }
    return status;
}

size_t count_fds(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    cr_assert(dir != NULL);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

void remove_dir_contents(const char *path)
{
    struct dirent *entry;
    DIR *dir = opendir(path);
    cr_assert(dir != NULL);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

/* ---- worlds ------------------------------------------------------------------------------------ */

/* A warning is what a misbehaving peer causes; an error is a fault of the transport itself. */
static void sink(void *arg, psrt_log_level_t level, const char *line)
{
    if (level == PSRT_LOG_ERROR) atomic_fetch_add(&((world_t *)arg)->errors, 1);
    fprintf(stderr, "%s%s\n", level == PSRT_LOG_ERROR ? "error: " : "", line);
}

static void world_open(world_t *w, const psrt_transport_ops_t *ops)
{
    uint8_t public_key[32];
    memset(w, 0, sizeof *w);
    psrt_log_set_sink(sink, w);
    w->ops = ops;
    w->fds = count_fds();
    w->max_message = 64 * MIB;
    w->window = WINDOW;
    w->wait_ms = 10;
    snprintf(w->dir, sizeof w->dir, "/tmp/psrt-conf-XXXXXX");
    cr_assert(mkdtemp(w->dir) != NULL, "mkdtemp: %s", strerror(errno));
    fill(w->nonce, sizeof w->nonce, (uint64_t)getpid());
    cr_assert(sodium_init() >= 0);
    crypto_box_keypair(public_key, w->secret);
}

static void world_close(world_t *w)
{
    for (int i = 0; i < MAX_PEERS; i++) {
        peer_close(&w->peer[i]);
        peer_clear(&w->peer[i]);
    }
    /* Some descriptors close in the background. */
    uint64_t until = psrti_now_ns() + DEADLINE_NS;
    while (count_fds() > w->fds) {
        cr_assert(psrti_now_ns() < until, "%s: %zu descriptors before, %zu after", w->ops->name,
                  w->fds, count_fds());
        sched_yield();
    }
    psrt_log_set_sink(NULL, NULL);
    cr_assert_eq(atomic_load(&w->errors), 0, "%s: logged errors", w->ops->name);
    cr_assert_eq(rmdir(w->dir), 0, "%s: left something in its job directory: %s", w->ops->name,
                 strerror(errno));
}

void run_case(const psrt_transport_ops_t *ops, void (*run)(world_t *w))
{
    static world_t world;
    printf("[run ] %s\n", ops->name);
    fflush(stdout);
    world_open(&world, ops);
    run(&world);
    world_close(&world);
}

static void run_if_usable(const psrt_transport_ops_t *ops, void (*run)(world_t *w))
{
    char why[128] = "";
    const char *only = getenv("PSRT_CONFORMANCE");
    if (only && strcmp(only, ops->name) != 0) return;
    if (ops->probe(why, sizeof why) == PSRT_OK)
        run_case(ops, run);
    else
        printf("[skip] %s: %s\n", ops->name, why);
}

void for_each_transport(void (*run)(world_t *w))
{
    for (const psrt_transport_ops_t *const *ops = psrti_transport_all(); *ops; ops++)
        run_if_usable(*ops, run);
    const psrt_transport_ops_t *wrapped; /* without faults it has to be like what it wraps */
    cr_assert_eq(psrti_transport_fault_create(&psrti_transport_inproc, "seed=1", &wrapped),
                 PSRT_OK);
    run_if_usable(wrapped, run);
    psrti_transport_fault_destroy(wrapped);
}

void for_each_remote_transport(void (*run)(world_t *w))
{
    for (const psrt_transport_ops_t *const *ops = psrti_transport_all(); *ops; ops++)
        if (!((*ops)->caps & PSRT_TRANSPORT_CAP_SAME_PROCESS)) run_if_usable(*ops, run);
}

/* ---- children ---------------------------------------------------------------------------------- */

void child_start(world_t *w, child_t *child, void (*main_fn)(world_t *w, peer_t *peer, int stop_fd))
{
    int down[2], up[2];
    cr_assert(pipe(down) == 0 && pipe(up) == 0);
    child->pid = fork();
    cr_assert(child->pid >= 0);
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        peer_t *peer = peer_open(w, 1, 1);
        if (write(up[1], peer->addr, sizeof peer->addr) != sizeof peer->addr) _exit(3);
        main_fn(w, peer, down[0]);
        peer_close(peer);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    child->to_child = down[1];
    child->from_child = up[0];
    cr_assert_eq(read(child->from_child, child->addr, sizeof child->addr),
                 (ssize_t)sizeof child->addr, "%s: the peer process did not start", w->ops->name);
}

int child_should_stop(int stop_fd)
{
    struct pollfd fd = { .fd = stop_fd, .events = POLLIN };
    return poll(&fd, 1, 0) > 0;
}

static int reap(child_t *child)
{
    int status = 0;
    close(child->to_child);
    close(child->from_child);
    cr_assert_eq(waitpid(child->pid, &status, 0), child->pid);
    return status;
}

void child_stop(child_t *child)
{
    int status = reap(child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer process failed: %x", status);
}

void child_kill(child_t *child)
{
    kill(child->pid, SIGKILL);
    int status = reap(child);
    cr_assert(WIFSIGNALED(status));
}
