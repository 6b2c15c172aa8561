/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that die, descriptors and directories that run out of room. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psrt/psrt.h>

#include "transport/shm_rig.h"

#define MIB (1024u * 1024u)

static const psrt_transport_ops_t *const shm = &psrti_transport_shm;

/* ---- death ------------------------------------------------------------------------------------ */

#define TALK 500 /* messages: more than a turn takes, less than a lane has room for */

/* Says much at once, and that it did. */
static void talk(int report)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_ACK };
    for (unsigned i = 0; i < TALK; i++)
        if (shm->send(rig.b.ep, &hdr, NULL, 0, 0, NULL) != PSRT_OK) _exit(3);
    if (write(report, "!", 1) != 1) _exit(3);
}

/* A process that listens, holds what it gets, answers a CTRL with many messages, and sleeps on wait_fd when
 * there is nothing to do. */
static void server(int report, int fork_before_end)
{
    side_t *side = &rig.b;
    cr_assert_eq(side_open(side, rig.dir, rig.nonce, 1), PSRT_OK);
    side->verdict = PSRT_RX_HOLD;
    if (write(report, side->addr, sizeof side->addr) != sizeof side->addr) _exit(3);
    for (;;) {
        shm->progress(side->iface);
        if (fork_before_end && side->up && fork_before_end-- == 1) {
            pid_t pid = fork(); /* keeps a copy of every descriptor */
            if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, 0);
                for (;;)
                    pause();
            }
            if (write(report, &pid, sizeof pid) != sizeof pid) _exit(3);
        }
        if (side->messages && side->last_type == PSRTI_T_CTRL) {
            side->messages = 0;
            talk(report);
        }
        struct pollfd fd = { .fd = shm->wait_fd(side->iface), .events = POLLIN };
        if (shm->arm(side->iface) == PSRT_OK) poll(&fd, 1, -1);
    }
}

static pid_t server_start(int fork_before_end, int *report_p)
{
    int ends[2];
    rig_open();
    side_close(&rig.b);
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig.a.iface = NULL; /* the parent's */
        close(ends[0]);
        server(ends[1], fork_before_end);
    }
    close(ends[1]);
    char addr[PSRT_ADDR_MAX];
    cr_assert_eq(read(ends[0], addr, sizeof addr), (ssize_t)sizeof addr);
    cr_assert(shm->reachable(rig.a.iface, addr));
    psrt_ep_t *ep;
    cr_assert_eq(shm->ep_open(rig.a.iface, addr, &ep), PSRT_OK);
    RIG_UNTIL(rig.a.up == 1);
    *report_p = ends[0];
    return pid;
}

static void server_killed(pid_t pid, int report)
{
    close(report);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    char command[600];
    snprintf(command, sizeof command, "rm -f %s/s*", rig.dir); /* the launcher's task otherwise */
    cr_assert_eq(system(command), 0);
    rig_close();
}

static void send_pending(unsigned count, uint64_t len)
{
    for (unsigned i = 0; i < count; i++) {
        void *memory;
        cr_assert_eq(shm->mem_alloc(rig.a.iface, len, &memory), PSRT_OK);
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, len), PSRT_IN_PROGRESS);
    }
}

Test(shm_process, killed, .timeout = 120)
{
    int report;
    pid_t pid = server_start(0, &report);
    send_pending(3, MIB);
    cr_assert_eq(rig.a.done, 0);
    kill(pid, SIGKILL);
    RIG_UNTIL(rig.a.lost == 1);
    cr_assert_eq(rig.a.why, PSRT_ERR_PEER_LOST);
    cr_assert_eq(rig.a.done, 3);
    cr_assert_eq(rig.a.done_status, PSRT_ERR_PEER_LOST);
    server_killed(pid, report);
}

/* The socket stays open in the grandchild: only the process descriptor tells. */
Test(shm_process, killed_with_child, .timeout = 120)
{
    int report;
    pid_t pid = server_start(1, &report), grandchild;
    cr_assert_eq(read(report, &grandchild, sizeof grandchild), (ssize_t)sizeof grandchild);
    send_pending(3, MIB);
    kill(pid, SIGKILL);
    RIG_UNTIL(rig.a.lost == 1);
    cr_assert_eq(rig.a.done, 3);
    cr_assert_eq(kill(grandchild, 0), 0, "the grandchild was meant to live");
    kill(grandchild, SIGKILL);
    server_killed(pid, report);
}

/* A send that finds its peer dead does not cost what the peer had said. */
Test(shm_process, killed_after_a_talk, .timeout = 120)
{
    int report;
    char said;
    void *memory;
    siginfo_t info;
    pid_t pid = server_start(0, &report);
    cr_assert_eq(shm->mem_alloc(rig.a.iface, MIB, &memory), PSRT_OK);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, &report, sizeof report), PSRT_OK);
    cr_assert_eq(read(report, &said, 1), 1);
    kill(pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, MIB), PSRT_ERR_PEER_LOST);
    RIG_UNTIL(rig.a.lost == 1);
    cr_assert_eq(rig.a.why, PSRT_ERR_PEER_LOST);
    cr_assert_eq(rig.a.messages, TALK);
    server_killed(pid, report);
}

/* A sleeping process is woken by each message, and the death of a sleeping one is seen as well. */
Test(shm_process, stopped, .timeout = 120)
{
    int report;
    pid_t pid = server_start(0, &report);
    kill(pid, SIGSTOP);
    psrt_hdr_t hdr = { .type = PSRTI_T_ACK };
    unsigned sent = 0;
    while (shm->send(rig.a.ep, &hdr, NULL, 0, 0, NULL) == PSRT_OK)
        sent++;
    cr_assert(sent >= 300 && sent <= SHM_UNITS, "%u messages", sent);
    unsigned maps = mapped_segments();
    for (int i = 0; i < 100000; i++)
        rig_pump();
    cr_assert_eq(rig.a.lost, 0, "stopped is not dead");
    cr_assert_eq(rig.a.writable, 0);
    cr_assert_eq(mapped_segments(), maps);
    kill(pid, SIGCONT);
    RIG_UNTIL(rig.a.writable == 1);
    kill(pid, SIGSTOP);
    kill(pid, SIGKILL);
    RIG_UNTIL(rig.a.lost == 1);
    server_killed(pid, report);
}

/* ---- descriptors ------------------------------------------------------------------------------ */

Test(shm_process, thousand_connections, .timeout = 240)
{
    rig_open();
    rig_connect();
    void *memory;
    cr_assert_eq(shm->mem_alloc(rig.a.iface, MIB, &memory), PSRT_OK);
    shm->ep_close(rig.a.ep);
    RIG_UNTIL(rig.b.lost == 1);
    unsigned fds = open_fds(), maps = mapped_segments();
    for (unsigned i = 0; i < 1000; i++) {
        side_t *closer = i % 2 ? &rig.a : &rig.b, *other = i % 2 ? &rig.b : &rig.a;
        unsigned lost = other->lost;
        rig_connect();
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, 40000), PSRT_IN_PROGRESS);
        if (i % 3) RIG_UNTIL(rig.a.done == i + 1);
        shm->ep_close(closer->ep);
        RIG_UNTIL(other->lost == lost + 1);
        cr_assert_eq(rig.a.done, i + 1);
    }
    RIG_UNTIL(open_fds() == fds);
    cr_assert_eq(mapped_segments(), maps);
    cr_assert_eq(rig.warnings, 0, "%s", rig.warning);
    rig_close();
}

/* With each number of free descriptors: it works, or an error names the limit; nothing is left. */
static void run_with_limit(unsigned extra)
{
    struct rlimit limit;
    unsigned used = open_fds() - 1; /* less the one of the count */
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = used + extra - 2; /* opendir's "." and ".." were counted */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    psrt_status_t a = side_open(&rig.a, rig.dir, rig.nonce, 0), b = PSRT_OK;
    if (a == PSRT_OK) b = side_open(&rig.b, rig.dir, rig.nonce, 1);
    if (a != PSRT_OK || b != PSRT_OK) {
        cr_assert_eq(a != PSRT_OK ? a : b, PSRT_ERR_LIMIT, "%s", psrt_last_error());
        cr_assert(strstr(psrt_last_error(), "RLIMIT_NOFILE"), "%s", psrt_last_error());
    } else {
        psrt_ep_t *ep;
        cr_assert_eq(shm->ep_open(rig.a.iface, rig.b.addr, &ep), PSRT_OK);
        RIG_UNTIL(rig.a.lost || (rig.a.up && rig.b.up));
        if (!rig.a.lost) {
            void *memory;
            psrt_status_t status = shm->mem_alloc(rig.a.iface, MIB, &memory);
            cr_assert(status == PSRT_OK || status == PSRT_ERR_LIMIT, "%s", psrt_last_error());
            if (status == PSRT_OK) side_send(&rig.a, PSRTI_T_PUSH, memory, MIB);
            RIG_UNTIL(rig.a.lost || status != PSRT_OK || rig.a.done);
        }
        cr_assert(rig.a.lost == 0 || strstr(rig.warning, "RLIMIT_NOFILE") ||
                      rig.a.why == PSRT_ERR_REFUSED || rig.a.why == PSRT_ERR_PEER_LOST,
                  "%d %s", (int)rig.a.why, rig.warning);
    }
    side_close(&rig.a);
    side_close(&rig.b);
    limit.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

Test(shm_process, no_descriptors, .timeout = 240)
{
    rig_open();
    side_close(&rig.a);
    side_close(&rig.b);
    unsigned fds = open_fds();
    for (unsigned extra = 0; extra < 24; extra++) {
        run_with_limit(extra);
        cr_assert_eq(open_fds(), fds, "%u free: descriptors left open", extra);
        cr_assert_eq(mapped_segments(), 0, "%u free: mappings left", extra);
    }
    cr_assert_eq(side_open(&rig.a, rig.dir, rig.nonce, 0), PSRT_OK);
    cr_assert_eq(side_open(&rig.b, rig.dir, rig.nonce, 1), PSRT_OK);
    rig_connect();
    rig_check_traffic();
    rig_close();
}

/* The copy of a message finds no descriptor: send says so, and the endpoint, which now misses a
 * message, takes no more of them and is lost; others are not. */
Test(shm_process, no_descriptor_for_a_copy, .timeout = 120)
{
    enum { LEN = 3 * MIB };
    rig.arena = 2 * MIB;
    rig_open();
    rig_connect();
    struct rlimit limit, none = { .rlim_cur = 3 };
    uint8_t *data = calloc(1, LEN);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_max = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, data, LEN), PSRT_ERR_LIMIT);
    cr_assert(strstr(psrt_last_error(), "RLIMIT_NOFILE"), "%s", psrt_last_error());
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, data, 10), PSRT_ERR_PEER_LOST);
    RIG_UNTIL(rig.a.lost == 1 && rig.b.lost == 1);
    cr_assert_eq(rig.b.messages, 0, "after one that is missing");
    cr_assert_eq(rig.a.why, PSRT_ERR_LIMIT);
    cr_assert_eq(rig.b.why, PSRT_ERR_PEER_LOST);
    rig_connect();
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, data, LEN), PSRT_OK);
    RIG_UNTIL(rig.b.messages == 1);
    free(data);
    rig_close();
}

/* ---- directories ------------------------------------------------------------------------------ */

/* A directory whose name has exactly `length` bytes, made of parts of up to 100. */
static void make_dir(char *path, size_t length)
{
    size_t at = strlen(path);
    while (at < length) {
        size_t part = PSRTI_MIN(length - at - 1, 100);
        if (length - at - 1 - part == 1) part--; /* a slash needs a name after it */
        path[at++] = '/';
        memset(path + at, 'd', part);
        at += part;
        path[at] = '\0';
        cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST, "%s: %s", path, strerror(errno));
    }
    cr_assert_eq(strlen(path), length);
}

Test(shm_process, long_directories, .timeout = 240)
{
    rig_open();
    side_close(&rig.a);
    side_close(&rig.b);
    char base[512];
    snprintf(base, sizeof base, "%s", rig.dir); /* 20 bytes */
    for (size_t length = strlen(base) + 2; length <= 200; length++) {
        snprintf(rig.dir, sizeof rig.dir, "%s", base);
        make_dir(rig.dir, length);
        cr_assert_eq(side_open(&rig.a, rig.dir, rig.nonce, 0), PSRT_OK, "%s", psrt_last_error());
        cr_assert_eq(side_open(&rig.b, rig.dir, rig.nonce, 1), PSRT_OK, "%s", psrt_last_error());
        cr_assert(shm->reachable(rig.a.iface, rig.b.addr));
        rig_connect();
        rig_check_traffic();
        side_close(&rig.a);
        side_close(&rig.b);
        cr_assert_eq(rmdir(rig.dir), 0, "%s: %s", rig.dir, strerror(errno));
    }
    char command[600];
    snprintf(command, sizeof command, "find %s -depth -mindepth 1 -type d -delete", base);
    cr_assert_eq(system(command), 0);
    snprintf(rig.dir, sizeof rig.dir, "%s", base);
    rig_close();
}

Test(shm_process, directories, .timeout = 120)
{
    rig_open();
    side_t other;
    char path[600];
    snprintf(path, sizeof path, "%s/missing", rig.dir);
    cr_assert_eq(side_open(&other, path, rig.nonce, 1), PSRT_ERR_IO);
    cr_assert(strstr(psrt_last_error(), path), "%s", psrt_last_error());

    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chmod(path, 0777), 0);
    cr_assert_eq(side_open(&other, path, rig.nonce, 1), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), path), "%s", psrt_last_error());

    cr_assert_eq(chmod(path, 0700), 0); /* same host, but another directory */
    cr_assert_eq(side_open(&other, path, rig.nonce, 1), PSRT_OK);
    cr_assert_eq(shm->reachable(rig.a.iface, other.addr), 0);
    cr_assert_eq(shm->reachable(rig.b.iface, rig.b.addr), 1);
    side_close(&other);
    cr_assert_eq(rmdir(path), 0);

    char addr[PSRT_ADDR_MAX]; /* another host, or container */
    snprintf(addr, sizeof addr, "%s", rig.b.addr);
    addr[4] = addr[4] == '0' ? '1' : '0';
    psrt_ep_t *ep = NULL;
    cr_assert_eq(shm->reachable(rig.a.iface, addr), 0);
    cr_assert_eq(shm->ep_open(rig.a.iface, addr, &ep), PSRT_ERR_UNREACHABLE);
    rig_close();
}

/* User ids, process ids and descriptors mean other things in another user namespace: not reachable,
 * so that another transport is chosen before the first large message, not after it failed. */
Test(shm_process, user_namespace, .timeout = 120)
{
    int result = 0;
    rig_open();
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER) != 0) _exit(7); /* not allowed here, or threads of a sanitizer */
        side_t inside;
        if (side_open(&inside, rig.dir, rig.nonce, 0) != PSRT_OK) _exit(0); /* says so at once */
        _exit(shm->reachable(inside.iface, rig.b.addr) ? 1 : 0);
    }
    cr_assert_eq(waitpid(pid, &result, 0), pid);
    cr_assert(WIFEXITED(result) && (WEXITSTATUS(result) == 0 || WEXITSTATUS(result) == 7));
    rig_close();
}

Test(shm_process, socket_mode, .timeout = 120)
{
    struct stat st;
    char path[600];
    mode_t mask = umask(0);
    rig_open();
    umask(mask);
    snprintf(path, sizeof path, "%s/%s", rig.dir, ((shm_iface_t *)rig.b.iface)->name);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600, "mode %o", st.st_mode);
    rig_close();
}

/* Without a job directory: a private one, gone with the interface. */
Test(shm_process, private_directory, .timeout = 120)
{
    rig_open();
    cr_assert_eq(setenv("TMPDIR", rig.dir, 1), 0);
    side_t alone;
    cr_assert_eq(side_open(&alone, NULL, rig.nonce, 1), PSRT_OK);
    const char *dir = ((shm_iface_t *)alone.iface)->private_dir;
    struct stat st;
    cr_assert(strncmp(dir, rig.dir, strlen(rig.dir)) == 0, "%s", dir);
    cr_assert(stat(dir, &st) == 0 && (st.st_mode & 0777) == 0700);
    side_close(&alone);
    unsetenv("TMPDIR");
    rig_close(); /* fails if something is left in it */
}
