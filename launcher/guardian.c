/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/util.h"
#include "launcher/cgroup.h"
#include "launcher/contract.h"
#include "launcher/jobdir.h"
#include "launcher/proctree.h"

/* What a task leaves behind when it ends may finish by itself (`> >(tee log)` has a last line to
 * write) before it is asked to end. */
#define LEFTOVER_NS (500 * PSRTI_NS_PER_MS)
#define KILL_PASS_MS 5
#define PORT_TRIES 30 /* in about two seconds and a half */
#define HIGH_FD 10

typedef struct state {
    const psrti_guardian_t *g;
    int sockets[PSRTI_JOB_PORTS_MAX];
    psrti_cgroup_t cgroup;
    pid_t task;
    int children, task_ended, orphaned, terminating, killing;
    uint64_t term_at_ns, kill_at_ns; /* UINT64_MAX: not set */
} state_t;

/* ---- the task's side ------------------------------------------------------------------------- */

/* Why the task's side did not get as far as the command. */
typedef struct start_failure {
    psrti_guardian_event_t event;
    int error;
} start_failure_t;

static _Noreturn void fail_start(int status_fd, psrti_guardian_event_t event)
{
    start_failure_t failure = { .event = event, .error = errno };
    ssize_t ignored = write(status_fd, &failure, sizeof failure);
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

/* Without it a python of the system would run the command. A relative one is below the task's directory. */
static int has_virtualenv(char *const *env)
{
    static const char name[] = "VIRTUAL_ENV=";
    char path[PATH_MAX];
    while (*env && strncmp(*env, name, sizeof name - 1))
        env++;
    errno = ENOENT;
    return *env && snprintf(path, sizeof path, "%s/bin", *env + sizeof name - 1) < PATH_MAX &&
           !access(path, X_OK);
}

static _Noreturn void exec_task(const state_t *s, pid_t guardian, int status_fd)
{
    const psrti_guardian_t *g = s->g;
    setpgid(0, 0);
    psrti_cgroup_enter(&s->cgroup);
    /* The guardian may have died before the call takes effect. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) fail_start(status_fd, PSRTI_GUARDIAN_CANNOT_RUN);
    if (getppid() != guardian) _exit(127);
    int ok = dup2(g->out, STDOUT_FILENO) >= 0 && dup2(g->err, STDERR_FILENO) >= 0;
    for (unsigned i = 0; i < g->socket_count; i++)
        ok = ok && dup2(g->sockets[i], PSRTI_LISTEN_FD + (int)i) >= 0;
    if (!ok || (g->binding && !psrti_binding_apply(g->binding)))
        fail_start(status_fd, PSRTI_GUARDIAN_CANNOT_RUN);
    if (g->directory && chdir(g->directory)) fail_start(status_fd, PSRTI_GUARDIAN_NO_DIRECTORY);
    if (g->virtualenv && !has_virtualenv(g->env))
        fail_start(status_fd, PSRTI_GUARDIAN_NO_VIRTUALENV);
    restore_inherited(g->inherited);
    environ = (char **)g->env; /* the command is looked for in the PATH of the task */
    execvp(g->argv[0], g->argv);
    fail_start(status_fd, PSRTI_GUARDIAN_CANNOT_RUN);
}

/* ---- the guardian's side --------------------------------------------------------------------- */

static void report(const state_t *s, psrti_guardian_event_t event, int value)
{
    psrti_guardian_msg_t msg = {
        .event = event, .pid = (int32_t)s->task, .value = value, .time_ns = psrti_now_ns()
    };
    send(s->g->control, &msg, sizeof msg, MSG_NOSIGNAL);
}

/* Above what the task's side overwrites from PSRTI_LISTEN_FD on. */
static int high_fd(const psrti_guardian_t *g) { return HIGH_FD + (int)g->socket_count; }

static int move_high(const psrti_guardian_t *g, int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, high_fd(g));
    if (high < 0) return 0;
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

/* Moves what is used out of the way of what tasks get, and closes the rest. */
static int arrange_fds(psrti_guardian_t *g, int sockets[PSRTI_JOB_PORTS_MAX])
{
    int keep[3 + PSRTI_JOB_PORTS_MAX];
    if (!move_high(g, &g->control) || !move_high(g, &g->out) || !move_high(g, &g->err)) return 0;
    for (unsigned i = 0; i < g->socket_count; i++) {
        sockets[i] = g->sockets[i];
        if (!move_high(g, &sockets[i])) return 0;
        keep[3 + i] = sockets[i];
    }
    g->sockets = sockets;
    keep[0] = g->control;
    keep[1] = g->out;
    keep[2] = g->err;
    close_others(keep, 3 + g->socket_count);
    return 1;
}

/* Out of the terminal's reach, but in the launcher's session: where the scheduler gives each session a share of its own
 * (autogroups), a task of another one that offers its core with sched_yield offers it to nobody. */
static void leave_terminal(void)
{
    setpgid(0, 0);
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (tty < 0) return; /* there is none */
    ioctl(tty, TIOCNOTTY);
    close(tty);
}

static int setup(psrti_guardian_t *g, int sockets[PSRTI_JOB_PORTS_MAX])
{
    leave_terminal();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Another name than the launcher's, so that `killall` of one spares the other. */
    char title[64];
    snprintf(title, sizeof title, "psrt-guardian %s", g->name);
    uv_set_process_title(title);
    prctl(PR_SET_NAME, "psrt-guardian");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return 0;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    close(null);
    return arrange_fds(g, sockets);
}

static int is_free(uint16_t port)
{
    const struct sockaddr_in addr = { .sin_family = AF_INET,
                                      .sin_port = htons(port),
                                      .sin_addr.s_addr = htonl(INADDR_ANY) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    /* As servers do: connections of a former life that wait for their end are no conflict. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int busy =
        fd >= 0 && bind(fd, (const struct sockaddr *)&addr, sizeof addr) && errno == EADDRINUSE;
    if (fd >= 0) close(fd);
    return !busy;
}

/* Ports that were given up for the task may be in use for a moment: by a connection that got one as its own
 * end, by what is left of the former life. False with errno set: they still are. */
static int wait_for_ports(const psrti_guardian_t *g)
{
    struct timespec pause = { .tv_nsec = 1000000 };
    for (unsigned i = 0, tries = 0; i < g->port_count; i++) {
        for (; !is_free(g->ports[i]); tries++) {
            if (tries == PORT_TRIES) {
                errno = EADDRINUSE;
                return 0;
            }
            nanosleep(&pause, NULL);
            pause.tv_nsec = PSRTI_MIN(2 * pause.tv_nsec, 100000000);
        }
    }
    return 1;
}

/* False when it could not be run, which was reported. */
static int start_task(state_t *s)
{
    int status[2];
    start_failure_t failure = { .event = PSRTI_GUARDIAN_CANNOT_RUN };
    pid_t self = getpid();
    if (!wait_for_ports(s->g) || pipe2(status, O_CLOEXEC)) {
        report(s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        return 0;
    }
    int high = fcntl(status[1], F_DUPFD_CLOEXEC, high_fd(s->g));
    s->task = high < 0 ? -1 : fork();
    if (s->task == 0) exec_task(s, self, high);
    if (s->task < 0) failure.error = errno;
    close(status[1]);
    close(high);
    if (!failure.error && read(status[0], &failure, sizeof failure) != sizeof failure)
        failure.error = 0;
    close(status[0]);
    s->children = s->task > 0;
    s->task_ended = failure.error != 0;
    report(s, failure.error ? failure.event : PSRTI_GUARDIAN_STARTED, failure.error);
    return !failure.error;
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

static void signal_task(const state_t *s, int sig)
{
    if (!s->task_ended) kill(s->task, sig); /* not reaped, so the pid is its own */
}

static void read_control(state_t *s)
{
    char order;
    ssize_t n = recv(s->g->control, &order, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        s->orphaned = 1;
        terminate(s);
        return;
    }
    switch (order) {
    case PSRTI_GUARDIAN_KILL: s->killing = 1; break;
    case PSRTI_GUARDIAN_USR1: signal_task(s, SIGUSR1); break;
    case PSRTI_GUARDIAN_USR2: signal_task(s, SIGUSR2); break;
    default: terminate(s); break;
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
        if (s->killing) {
            psrti_cgroup_kill(&s->cgroup);
            psrti_proctree_signal(getpid(), SIGKILL, NULL, 0);
        }
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
    if (!setup(&g, s.sockets)) {
        report(&s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        _exit(1);
    }
    int lock = psrti_jobdir_lock(g.job_dir);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (lock < 0 || signals < 0) {
        report(&s, PSRTI_GUARDIAN_CANNOT_RUN, errno);
        _exit(1);
    }
    psrti_cgroup_create(&s.cgroup, getpid());
    start_task(&s);
    close(g.out);
    close(g.err);
    for (unsigned i = 0; i < g.socket_count; i++)
        close(g.sockets[i]);
    watch(&s, signals);
    psrti_cgroup_remove(&s.cgroup);
    /* Removes nothing while the launcher lives. */
    psrti_jobdir_release(g.job_dir, lock, s.orphaned);
    _exit(0);
}
