/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of a pair: listener, dialling, handshake, descriptors of segments, wake bytes.
 *
 *   dialler                                acceptor
 *   HELLO + lane descriptor      ->        checks, maps, makes its own lane
 *                                <-        WELCOME + lane descriptor
 *   checks, maps, UP   READY     ->        UP
 *
 * Sockets are SOCK_SEQPACKET, so a packet is whole or wrong. They are reached through
 * /proc/self/fd/<directory>/<name>, which fits sun_path however long the job directory's name is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfd.h"
#include "transport/shm/shm.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define HANDSHAKE_NS (10 * PSRTI_NS_PER_S)
#define ACCEPTS_PER_CALL 16
#define PACKETS_PER_CALL 256

/* ---- directory and addresses ------------------------------------------------------------------ */

static psrt_status_t private_dir(shm_iface_t *iface)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp) tmp = "/tmp";
    if (asprintf(&iface->private_dir, "%s/psrt-XXXXXX", tmp) < 0) {
        iface->private_dir = NULL;
        return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
    }
    if (mkdtemp(iface->private_dir)) return PSRT_OK;
    psrt_status_t status =
        psrti_fail(PSRT_ERR_IO, "shm: cannot make a directory in %s: %s", tmp, strerror(errno));
    free(iface->private_dir);
    iface->private_dir = NULL;
    return status;
}

psrt_status_t psrti_shm_dir_open(shm_iface_t *iface)
{
    const char *path = iface->params.job_dir;
    if (!path) {
        psrt_status_t status = private_dir(iface);
        if (status != PSRT_OK) return status;
        path = iface->private_dir;
    }
    iface->dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (iface->dir_fd < 0)
        return psrti_fail(errno == EMFILE ? PSRT_ERR_LIMIT : PSRT_ERR_IO,
                          "shm: job directory %s: %s", path,
                          errno == EMFILE ? "no descriptors left, raise RLIMIT_NOFILE (ulimit -n)"
                                          : strerror(errno));
    struct stat st;
    if (fstat(iface->dir_fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 022))
        return psrti_fail(PSRT_ERR_INVALID,
                          "shm: job directory %s must belong to this user and be writable by "
                          "nobody else (mode 0700)",
                          path);
    return PSRT_OK;
}

/* Tasks with the same value can pass descriptors, see each other's process ids and agree on user
 * ids: same boot, same user and pid namespace. */
uint64_t psrti_shm_host_id(void)
{
    char text[256] = "";
    size_t len = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, text, 64);
        if (n > 0) len = (size_t)n;
        close(fd);
    }
    static const char *const spaces[] = { "/proc/self/ns/user", "/proc/self/ns/pid" };
    for (size_t i = 0; i < PSRTI_COUNT(spaces); i++) {
        ssize_t n = readlink(spaces[i], text + len, 64);
        if (n > 0) len += (size_t)n;
    }
    return psrti_hash_bytes(text, len);
}

bool psrti_shm_addr_parse(const char *addr, uint64_t *host_p, char name[40])
{
    static const char digits[] = "0123456789abcdef",
                      letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const char *host = addr + 4, *rest = addr + 21;
    if (strncmp(addr, "shm:", 4) != 0 || strspn(host, digits) != 16 || host[16] != ':' || !*rest ||
        strspn(rest, letters) != strlen(rest) || strlen(rest) >= 40)
        return false;
    *host_p = strtoull(host, NULL, 16);
    snprintf(name, 40, "%s", rest);
    return true;
}

static void socket_address(const shm_iface_t *iface, const char *name, struct sockaddr_un *sun)
{
    memset(sun, 0, sizeof *sun);
    sun->sun_family = AF_UNIX;
    snprintf(sun->sun_path, sizeof sun->sun_path, "/proc/self/fd/%d/%s", iface->dir_fd, name);
}

/* ---- listener --------------------------------------------------------------------------------- */

static psrt_status_t fail_socket(const char *what)
{
    int err = errno;
    if (err != EMFILE && err != ENFILE)
        return psrti_fail(PSRT_ERR_IO, "shm: %s: %s", what, strerror(err));
    struct rlimit limit = { 0, 0 };
    getrlimit(RLIMIT_NOFILE, &limit);
    return psrti_fail(PSRT_ERR_LIMIT,
                      "shm: %s: no descriptors left, raise RLIMIT_NOFILE (ulimit -n), now %llu",
                      what, (unsigned long long)limit.rlim_cur);
}

/* The name says nothing and does not repeat: two jobs or two lives of a task never share it. */
static void choose_name(shm_iface_t *iface)
{
    struct {
        uint8_t nonce[16];
        uint64_t incarnation, random;
        uint32_t task, pid;
    } seed = { .incarnation = iface->params.incarnation,
               .random = psrti_now_ns(),
               .task = iface->params.task,
               .pid = (uint32_t)getpid() };
    memcpy(seed.nonce, iface->nonce, sizeof seed.nonce);
    uint64_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) == sizeof random) seed.random = random;
    snprintf(iface->name, sizeof iface->name, "s%016llx",
             (unsigned long long)psrti_hash_bytes(&seed, sizeof seed));
}

psrt_status_t psrti_shm_listen(shm_iface_t *iface)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_socket("listening socket");
    choose_name(iface);
    struct sockaddr_un sun;
    socket_address(iface, iface->name, &sun);
    /* Before bind, on Linux, this is the mode that the socket file is made with. */
    (void)fchmod(fd, 0600);
    if (bind(fd, (struct sockaddr *)&sun, sizeof sun) != 0) {
        psrt_status_t status = fail_socket("binding a socket in the job directory");
        iface->name[0] = '\0';
        close(fd);
        return status;
    }
    iface->listen_fd = fd;
    if (listen(fd, 4096) != 0) return fail_socket("listening socket");
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0 };
    if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) return fail_socket("epoll");
    iface->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return PSRT_OK;
}

void psrti_shm_listen_close(shm_iface_t *iface)
{
    if (iface->listen_fd >= 0) close(iface->listen_fd);
    if (iface->spare_fd >= 0) close(iface->spare_fd);
    if (iface->name[0]) unlinkat(iface->dir_fd, iface->name, 0);
    if (iface->dir_fd >= 0) close(iface->dir_fd);
    if (iface->private_dir) rmdir(iface->private_dir);
    free(iface->private_dir);
}

/* ---- one pair's socket ------------------------------------------------------------------------ */

/* The pidfd tells of a death that a forked child, which keeps the socket open, would hide. */
psrt_status_t psrti_shm_watch(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_iface_of(ep);
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uintptr_t)ep };
    if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, ep->sock, &event) != 0)
        return fail_socket("epoll");
    if (ep->pidfd < 0) return PSRT_OK;
    event.data.u64 |= 1;
    if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, ep->pidfd, &event) != 0)
        return fail_socket("epoll");
    return PSRT_OK;
}

/* Who is at the other end? The same user only. */
static psrt_status_t identify(shm_ep_t *ep)
{
    struct ucred cred;
    socklen_t size = sizeof cred;
    if (getsockopt(ep->sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0)
        return fail_socket("credentials of the peer");
    ep->peer_pid = cred.pid;
    if (cred.uid != geteuid())
        return psrti_fail(PSRT_ERR_PROTOCOL, "shm: process %d of user %u is not this user",
                          (int)cred.pid, (unsigned)cred.uid);
    size = sizeof ep->pidfd;
    if (getsockopt(ep->sock, SOL_SOCKET, SO_PEERPIDFD, &ep->pidfd, &size) != 0) {
        ep->pidfd = -1;
        if (errno == ENOPROTOOPT && cred.pid > 0) ep->pidfd = pidfd_open(cred.pid, 0);
        if (errno == EMFILE || errno == ENFILE) return fail_socket("watching the peer");
    }
    return psrti_shm_watch(ep);
}

static ssize_t packet_send(shm_ep_t *ep, const void *data, size_t len, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd >= 0) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(ep->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

void psrti_shm_wake(shm_ep_t *ep)
{
    uint8_t byte = SHM_PK_WAKE;
    /* A full socket holds packets that wake the peer anyway; a closed one shows in progress. */
    (void)packet_send(ep, &byte, 1, -1);
}

psrt_status_t psrti_shm_pass_seg(shm_ep_t *ep, const shm_seg_t *seg)
{
    if (seg->slot < ep->passed_count && ep->passed[seg->slot] == seg->id) return PSRT_OK;
    if (seg->slot >= ep->passed_count) {
        uint32_t count = PSRTI_MAX(2 * ep->passed_count, seg->slot + 16);
        uint32_t *passed = realloc(ep->passed, count * sizeof(*passed));
        if (!passed) return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
        memset(passed + ep->passed_count, 0, (count - ep->passed_count) * sizeof(*passed));
        ep->passed = passed;
        ep->passed_count = count;
    }
    shm_seg_packet_t packet = { .kind = SHM_PK_SEG, .id = seg->id, .bytes = seg->size };
    if (packet_send(ep, &packet, sizeof packet, seg->fd) < 0) {
        if (errno != EAGAIN && errno != ETOOMANYREFS && errno != ENOBUFS) return PSRT_ERR_PEER_LOST;
        struct epoll_event event = { .events = EPOLLIN | EPOLLOUT, .data.u64 = (uintptr_t)ep };
        ep->sock_full = epoll_ctl(shm_iface_of(ep)->epoll_fd, EPOLL_CTL_MOD, ep->sock, &event) == 0;
        return PSRT_ERR_AGAIN;
    }
    ep->passed[seg->slot] = seg->id;
    return PSRT_OK;
}

/* ---- handshake -------------------------------------------------------------------------------- */

static psrt_status_t hello_send(shm_ep_t *ep, uint16_t kind)
{
    shm_iface_t *iface = shm_iface_of(ep);
    int fd;
    void *base = NULL;
    psrt_status_t status = psrti_memfd_create(sizeof(shm_lane_t), false, &fd, &base);
    if (status != PSRT_OK) return status;
    ep->own = base;
    shm_hello_t hello = { .magic = SHM_MAGIC,
                          .version = SHM_VERSION,
                          .kind = kind,
                          .task = iface->params.task,
                          .units = SHM_UNITS,
                          .incarnation = iface->params.incarnation,
                          .lane_bytes = sizeof(shm_lane_t) };
    memcpy(hello.nonce, iface->nonce, sizeof hello.nonce);
    ssize_t n = packet_send(ep, &hello, sizeof hello, fd);
    close(fd);
    return n == sizeof hello ? PSRT_OK : psrti_fail(PSRT_ERR_REFUSED, "closed in the handshake");
}

/* Checks HELLO or WELCOME and maps the peer's lane. */
static psrt_status_t hello_check(shm_ep_t *ep, const shm_hello_t *hello, size_t len, int fd,
                                 uint16_t kind, const char **why)
{
    *why = NULL;
    if (len != sizeof *hello || hello->magic != SHM_MAGIC || hello->kind != kind)
        *why = "malformed handshake";
    else if (hello->version != SHM_VERSION)
        *why = "another version of the shared-memory protocol";
    else if (memcmp(hello->nonce, shm_iface_of(ep)->nonce, sizeof hello->nonce) != 0)
        *why = "belongs to another job";
    else if (hello->units != SHM_UNITS || hello->lane_bytes != sizeof(shm_lane_t))
        *why = "lane of another size";
    else if (fd < 0)
        *why = "handshake without a lane (is RLIMIT_NOFILE reached?)";
    if (*why) return PSRT_ERR_PROTOCOL;
    void *base = NULL;
    psrt_status_t status = psrti_memfd_map(fd, sizeof(shm_lane_t), &base, why);
    if (status != PSRT_OK) return status;
    ep->peer = base;
    ep->peer_task = hello->task;
    return PSRT_OK;
}

static void on_hello(shm_ep_t *ep, const void *data, size_t len, int fd)
{
    const char *why;
    psrt_status_t status = hello_check(ep, data, len, fd, SHM_PK_HELLO, &why);
    if (status == PSRT_OK) {
        ep->state = SHM_READY;
        status = hello_send(ep, SHM_PK_WELCOME);
        why = NULL;
    }
    if (status != PSRT_OK) psrti_shm_ep_lose(ep, status, why);
}

static void on_welcome(shm_ep_t *ep, const void *data, size_t len, int fd)
{
    const char *why;
    psrt_status_t status = hello_check(ep, data, len, fd, SHM_PK_WELCOME, &why);
    if (status == PSRT_OK) {
        uint8_t byte = SHM_PK_READY;
        if (packet_send(ep, &byte, 1, -1) == 1) {
            psrti_shm_ep_up(ep);
            return;
        }
        why = "closed in the handshake";
        status = PSRT_ERR_REFUSED;
    }
    psrti_shm_ep_lose(ep, status, why);
}

/* ---- segments of the peer --------------------------------------------------------------------- */

static psrt_status_t seg_accept(shm_ep_t *ep, const shm_seg_packet_t *packet, int fd,
                                const char **why)
{
    if (packet->id == 0 || psrti_map_get(&ep->rsegs, packet->id) ||
        ep->rsegs.count >= SHM_MAX_SEGMENTS) {
        *why = "announced an impossible segment";
        return PSRT_ERR_PROTOCOL;
    }
    if (fd < 0) {
        *why = "a segment came without its descriptor, is RLIMIT_NOFILE (ulimit -n) reached?";
        return PSRT_ERR_LIMIT;
    }
    void *base = NULL;
    psrt_status_t status = psrti_memfd_map(fd, packet->bytes, &base, why);
    if (status != PSRT_OK) return status;
    shm_rseg_t *rseg = malloc(sizeof *rseg);
    if (rseg) {
        *rseg = (shm_rseg_t){ .base = base, .size = packet->bytes, .refs = 1 };
        if (psrti_map_put(&ep->rsegs, packet->id, rseg) == PSRT_OK) return PSRT_OK;
    }
    free(rseg);
    munmap(base, packet->bytes);
    *why = "out of memory";
    return PSRT_ERR_NO_MEMORY;
}

static void on_packet_up(shm_ep_t *ep, const void *data, size_t len, int fd)
{
    shm_seg_packet_t packet;
    const char *why = "malformed packet";
    psrt_status_t status = PSRT_ERR_PROTOCOL;
    if (len == 1 && *(const uint8_t *)data == SHM_PK_WAKE && fd < 0) return;
    if (len == sizeof packet) {
        memcpy(&packet, data, sizeof packet);
        if (packet.kind == SHM_PK_SEG) status = seg_accept(ep, &packet, fd, &why);
    }
    if (status != PSRT_OK) psrti_shm_ep_lose(ep, status, why);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void on_packet(shm_ep_t *ep, const void *data, size_t len, int fd)
{
    switch (ep->state) {
    case SHM_HELLO: on_hello(ep, data, len, fd); break;
    case SHM_WELCOME: on_welcome(ep, data, len, fd); break;
    case SHM_READY:
        if (len == 1 && *(const uint8_t *)data == SHM_PK_READY)
            psrti_shm_ep_up(ep);
        else
            psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "malformed handshake");
        break;
    case SHM_UP: on_packet_up(ep, data, len, fd); break;
    default: break;
    }
}

/* First descriptor of a packet; closes any others. */
static int take_fd(struct msghdr *msg)
{
    int first = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

static void on_eof(shm_ep_t *ep)
{
    ep->gone = true; /* UP: the lane is read to its end first, see psrti_shm_ep_poll */
    if (ep->state == SHM_LINGER) psrti_shm_ep_linger_end(ep);
    if (ep->state < SHM_UP) psrti_shm_ep_lose(ep, PSRT_ERR_REFUSED, "closed in the handshake");
}

void psrti_shm_sock_read(shm_ep_t *ep)
{
    for (int i = 0; i < PACKETS_PER_CALL; i++) {
        _Alignas(8) uint8_t data[sizeof(shm_hello_t)];
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
        struct iovec iov = { .iov_base = data, .iov_len = sizeof data };
        struct msghdr msg = { .msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = control,
                              .msg_controllen = sizeof control };
        ssize_t n = recvmsg(ep->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EAGAIN) return;
        /* ECONNRESET comes once when the peer closed with unread packets, ours; its own follow. */
        if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
        int fd = n < 0 ? -1 : take_fd(&msg); /* also of a packet without bytes */
        if (n <= 0) {
            if (fd >= 0) close(fd);
            on_eof(ep);
            return;
        }
        if (msg.msg_flags & MSG_TRUNC) {
            if (ep->state <= SHM_UP) psrti_shm_ep_lose(ep, PSRT_ERR_PROTOCOL, "oversized packet");
        } else {
            on_packet(ep, data, (size_t)n, fd);
        }
        if (fd >= 0) close(fd);
        if (ep->state > SHM_UP && ep->state != SHM_LINGER) return;
    }
}

/* ---- accepting and dialling ------------------------------------------------------------------- */

/* No descriptor is left: answer the dialler with a refusal instead of silence. */
static void refuse_one(shm_iface_t *iface)
{
    if (!iface->accept_failed) {
        fail_socket("accepting a connection");
        psrti_warn("%s", psrt_last_error());
    }
    iface->accept_failed = true;
    if (iface->spare_fd >= 0) close(iface->spare_fd);
    int fd = accept4(iface->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    iface->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void psrti_shm_accept(shm_iface_t *iface)
{
    for (int i = 0; i < ACCEPTS_PER_CALL; i++) {
        int fd = accept4(iface->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) refuse_one(iface);
            return;
        }
        shm_ep_t *ep = psrti_shm_ep_new(iface, SHM_HELLO);
        if (!ep) {
            psrti_warn("shm: out of memory, refused a connection");
            close(fd);
            return;
        }
        iface->accept_failed = false;
        ep->sock = fd;
        ep->deadline_ns = psrti_now_ns() + HANDSHAKE_NS;
        psrt_status_t status = identify(ep);
        if (status != PSRT_OK) psrti_shm_ep_lose(ep, status, NULL);
    }
}

static psrt_status_t dial_connect(shm_ep_t *ep)
{
    if (ep->sock < 0) ep->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (ep->sock < 0) return fail_socket("socket");
    struct sockaddr_un sun;
    socket_address(shm_iface_of(ep), ep->name, &sun);
    if (connect(ep->sock, (struct sockaddr *)&sun, sizeof sun) != 0) {
        if (errno == EAGAIN || errno == EINTR) return PSRT_ERR_AGAIN; /* its backlog is full */
        return psrti_fail(PSRT_ERR_UNREACHABLE, "shm: socket %s: %s", ep->name, strerror(errno));
    }
    psrt_status_t status = identify(ep);
    return status == PSRT_OK ? hello_send(ep, SHM_PK_HELLO) : status;
}

void psrti_shm_dial(shm_ep_t *ep)
{
    uint64_t now = psrti_now_ns();
    if (ep->deadline_ns == 0) ep->deadline_ns = now + HANDSHAKE_NS;
    psrt_status_t status = dial_connect(ep);
    if (status == PSRT_ERR_AGAIN) {
        if (now > ep->deadline_ns)
            psrti_shm_ep_lose(ep, PSRT_ERR_UNREACHABLE, "does not accept connections");
        return;
    }
    if (status == PSRT_OK)
        ep->state = SHM_WELCOME;
    else
        psrti_shm_ep_lose(ep, status, NULL);
}
