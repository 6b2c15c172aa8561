/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/util.h"
#include "launcher/jobdir.h"
#include "launcher/proctree.h"

/* What a task leaves behind when it ends may finish by itself (`> >(tee log)` has a last line to
 * write) before it is asked to end. */
#define LEFTOVER_NS (500 * PSRTI_NS_PER_MS)
#define KILL_PASS_MS 5
/* Above PSRTI_GUARDIAN_LISTEN_FD, which the task's side overwrites. */
#define HIGH_FD 10

typedef struct state {
    const psrti_guardian_t *g;
    pid_t task;
    int children, task_ended, orphaned, terminating, killing;
    uint64_t term_at_ns, kill_at_ns; /* UINT64_MAX: not set */
} state_t;

/* ---- the task's side ------------------------------------------------------------------------- */

static _Noreturn void fail_start(int status_fd)
{
    int error = errno;
    ssize_t ignored = write(status_fd, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

static void restore_inherited(const psrti_inherited_t *inherited)
{
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, sigismember(&inherited->ignored, sig) == 1 ? SIG_IGN : SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &inherited->files);
    sigprocmask(SIG_SETMASK, &inherited->blocked, NULL);
}

static _Noreturn void exec_task(const psrti_guardian_t *g, pid_t guardian, int status_fd)
{
    setsid();
    /* The guardian may have died before the call takes effect. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) fail_start(status_fd);
    if (getppid() != guardian) _exit(127);
    if (dup2(g->out, STDOUT_FILENO) < 0 || dup2(g->err, STDERR_FILENO) < 0) fail_start(status_fd);
    if (g->listen_fd >= 0 && dup2(g->listen_fd, PSRTI_GUARDIAN_LISTEN_FD) < 0)
        fail_start(status_fd);
    restore_inherited(g->inherited);
    execvpe(g->argv[0], g->argv, g->env);
    fail_start(status_fd);
}

/* ---- the guardian's side --------------------------------------------------------------------- */

static void report(const state_t *s, psrti_guardian_event_t event, int value)
{
    psrti_guardian_msg_t msg = {
        .event = event, .pid = (int32_t)s->task, .value = value, .time_ns = psrti_now_ns()
    };
    send(s->g->control, &msg, sizeof msg, MSG_NOSIGNAL);
}

static int move_high(int *fd)
{
    int high = *fd < 0 ? -1 : fcntl(*fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) return *fd < 0;
    *fd = high;
    return 1;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* All that was inherited from the launcher but `keep`: an end of another guardian's connection kept
 * open here would hide the launcher's death from that guardian. */
static void close_others(int *keep, size_t count)
{
    unsigned from = STDERR_FILENO + 1;
    qsort(keep, count, sizeof *keep, by_value);
    for (size_t i = 0; i < count; i++) {
        if (keep[i] < (int)from) continue;
        if ((unsigned)keep[i] > from) close_range(from, (unsigned)keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    close_range(from, ~0u, 0);
}

static int setup(psrti_guardian_t *g)
{
    setsid(); /* away from the terminal's signals */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Another name than the launcher's, so that `killall` of one spares the other. */
    char title[64];
    snprintf(title, sizeof title, "psrt-guardian %s", g->name);
    uv_set_process_title(title);
    prctl(PR_SET_NAME, "psrt-guardian");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return 0;
    if (!move_high(&g->control) || !move_high(&g->out) || !move_high(&g->err) ||
        !move_high(&g->listen_fd)) {
        close(null);
        return 0;
    }
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    int keep[] = { g->control, g->out, g->err, g->listen_fd };
    close_others(keep, PSRTI_COUNT(keep));
    return 1;
}

/* False when it could not be run, which was reported. */
static int start_task(state_t *s)
{
    int status[2], error = 0;
    pid_t self = getpid();
    if (pipe2(status, O_CLOEXEC)) {
        report(s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        return 0;
    }
    int high = fcntl(status[1], F_DUPFD_CLOEXEC, HIGH_FD);
    s->task = high < 0 ? -1 : fork();
    if (s->task == 0) exec_task(s->g, self, high);
    if (s->task < 0) error = errno;
    close(status[1]);
    close(high);
    if (!error && read(status[0], &error, sizeof error) != sizeof error) error = 0;
    close(status[0]);
    s->children = s->task > 0;
    s->task_ended = error != 0;
    report(s, error ? PSRTI_GUARDIAN_CANNOT_RUN : PSRTI_GUARDIAN_STARTED, error);
    return !error;
}

static void reap(state_t *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != s->task || s->task_ended) continue;
        s->task_ended = 1;
        if (WIFSIGNALED(status))
            report(s, PSRTI_GUARDIAN_SIGNALED, WTERMSIG(status));
        else
            report(s, PSRTI_GUARDIAN_EXITED, WEXITSTATUS(status));
        if (!s->terminating) s->term_at_ns = psrti_now_ns() + LEFTOVER_NS;
    }
    s->children = pid == 0; /* -1: ECHILD */
}

static void terminate(state_t *s)
{
    if (s->terminating) return;
    s->terminating = 1;
    s->term_at_ns = UINT64_MAX;
    s->kill_at_ns = psrti_now_ns() + s->g->grace_ns;
    psrti_proctree_signal(getpid(), SIGTERM, NULL, 0);
    psrti_proctree_signal(getpid(), SIGCONT, NULL, 0); /* a stopped one would not see it */
}

static void read_control(state_t *s)
{
    char order;
    ssize_t n = recv(s->g->control, &order, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        s->orphaned = 1;
        terminate(s);
    } else if (order == PSRTI_GUARDIAN_KILL) {
        s->killing = 1;
    } else {
        terminate(s);
    }
}

static int timeout_ms(const state_t *s)
{
    uint64_t at = PSRTI_MIN(s->term_at_ns, s->kill_at_ns), now = psrti_now_ns();
    if (s->killing) return KILL_PASS_MS;
    if (at == UINT64_MAX) return -1;
    if (at <= now) return 0;
    return (int)PSRTI_MIN((at - now) / PSRTI_NS_PER_MS + 1, 60000);
}

/* Until nothing of the tree is left: its subreaper has a child as long as it has a process. */
static void watch(state_t *s, int signals)
{
    struct signalfd_siginfo ignored[8];
    while (reap(s), s->children) {
        uint64_t now = psrti_now_ns();
        if (now >= s->term_at_ns) terminate(s);
        if (now >= s->kill_at_ns) s->killing = 1;
        if (s->killing) psrti_proctree_signal(getpid(), SIGKILL, NULL, 0);
        struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
                                { .fd = s->orphaned ? -1 : s->g->control, .events = POLLIN } };
        poll(fds, PSRTI_COUNT(fds), timeout_ms(s));
        if (fds[0].revents && read(signals, ignored, sizeof ignored) < 0) continue;
        if (fds[1].revents) read_control(s);
    }
}

_Noreturn void psrti_guardian_run(const psrti_guardian_t *guardian)
{
    psrti_guardian_t g = *guardian;
    state_t s = { .g = &g, .term_at_ns = UINT64_MAX, .kill_at_ns = UINT64_MAX };
    sigset_t all, child;
    /* Only SIGKILL ends a guardian; the signals that stop a job go to the launcher. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (!setup(&g)) {
        report(&s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        _exit(1);
    }
    int lock = psrti_jobdir_lock(g.job_dir);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (lock < 0 || signals < 0) {
        report(&s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        _exit(1);
    }
    start_task(&s);
    close(g.out);
    close(g.err);
    if (g.listen_fd >= 0) close(g.listen_fd);
    watch(&s, signals);
    /* Removes nothing while the launcher lives. */
    psrti_jobdir_release(g.job_dir, lock, s.orphaned);
    _exit(0);
}
