/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for this machine: a guardian for each task, reached by a socket pair. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/util.h"
#include "launcher/backend.h"
#include "launcher/cgroup.h"
#include "launcher/guardian.h"
#include "launcher/jobdir.h"
#include "launcher/proctree.h"
#include "launcher/sockets.h"

#define SWEEP_MS 10
/* Once its processes are gone only a foreign process can hold a task's pipe. */
#define LINGER_MS 1000
#define FOREIGN_MAX 64

/* One start of a task; freed when its handles are closed and it is gone. */
typedef struct attempt {
    psrti_list_t node;
    psrti_backend_t *backend;
    const psrti_task_t *task;
    pid_t guardian;
    char bound[PSRTI_BINDING_TEXT];
    psrti_cgroup_t cgroup; /* once it is lost */
    int control;           /* -1: closed */
    uv_poll_t watch;
    uv_pipe_t pipes[2];
    uv_timer_t linger;
    int open_pipes, open_handles;
    int ended, lost, gone; /* lost: the guardian was killed, its tree is ours to end */
} attempt_t;

struct psrti_backend {
    uv_loop_t *loop;
    psrti_job_t *job;
    psrti_backend_events_t events;
    psrti_inherited_t inherited;
    int lock, paused, closing;
    char host[256];
    psrti_sockets_t sockets;
    psrti_list_t attempts;
    uv_signal_t child;
    uv_timer_t sweep, opened;
    char buf[65536];
    /* Children from before: `exec psrt-launch` in a shell inherits its background jobs. */
    pid_t foreign[FOREIGN_MAX];
    size_t foreign_count;
};

/* ---- the life of an attempt ------------------------------------------------------------------ */

static void free_when_over(attempt_t *a)
{
    if (a->open_handles || !(a->gone || a->backend->closing)) return;
    psrti_list_remove(&a->node);
    free(a);
}

static void on_handle_closed(uv_handle_t *handle)
{
    attempt_t *a = handle->data;
    a->open_handles--;
    free_when_over(a);
}

static void close_pipe(attempt_t *a, int which)
{
    uv_handle_t *pipe = (uv_handle_t *)&a->pipes[which];
    if (uv_is_closing(pipe)) return;
    uv_close(pipe, on_handle_closed);
    a->open_pipes--;
    if (!a->backend->closing)
        a->backend->events.output(a->backend->events.arg, a->task, STDOUT_FILENO + which, NULL, 0);
    if (!a->open_pipes) uv_close((uv_handle_t *)&a->linger, on_handle_closed);
}

static void on_linger(uv_timer_t *timer)
{
    attempt_t *a = timer->data;
    close_pipe(a, 0);
    close_pipe(a, 1);
}

static void check_linger(attempt_t *a)
{
    if (!a->open_pipes) return;
    if (a->gone && !a->backend->paused)
        uv_timer_start(&a->linger, on_linger, LINGER_MS, 0);
    else
        uv_timer_stop(&a->linger);
}

static void report_end(attempt_t *a, psrti_end_kind_t kind, int value, uint64_t time_ns)
{
    if (a->ended) return;
    a->ended = 1;
    psrti_end_t end = { .kind = kind, .value = value, .time_ns = time_ns };
    a->backend->events.ended(a->backend->events.arg, a->task, &end);
}

static void report_gone(attempt_t *a)
{
    a->gone = 1;
    a->lost = 0;
    check_linger(a);
    a->backend->events.gone(a->backend->events.arg, a->task);
    free_when_over(a);
}

/* Ends what the trees of killed guardians left: it became ours when they died. */
static void on_sweep(uv_timer_t *timer)
{
    psrti_backend_t *b = timer->data;
    size_t count = b->foreign_count;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts) count++;
    pid_t *except = psrti_xcalloc(count, sizeof *except);
    memcpy(except, b->foreign, b->foreign_count * sizeof *except);
    count = b->foreign_count;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        if (!a->lost && !a->gone) except[count++] = a->guardian;
    }
    size_t alive = psrti_proctree_signal(getpid(), SIGKILL, except, count);
    free(except);
    if (alive) return;
    uv_timer_stop(timer);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        if (!a->lost) continue;
        psrti_cgroup_remove(&a->cgroup);
        report_gone(a);
    }
}

static void on_guardian_gone(attempt_t *a)
{
    uv_close((uv_handle_t *)&a->watch, on_handle_closed);
    close(a->control);
    a->control = -1;
    if (a->ended) {
        report_gone(a);
        return;
    }
    a->lost = 1;
    psrti_cgroup_find(&a->cgroup, a->guardian);
    psrti_cgroup_kill(&a->cgroup);
    uv_timer_start(&a->backend->sweep, on_sweep, 0, SWEEP_MS);
    report_end(a, PSRTI_END_LOST, SIGKILL, psrti_now_ns());
}

static void on_message(attempt_t *a, const psrti_guardian_msg_t *msg)
{
    psrti_backend_t *b = a->backend;
    switch (msg->event) {
    case PSRTI_GUARDIAN_STARTED:
        b->events.started(b->events.arg, a->task, b->host, msg->pid, a->bound);
        break;
    case PSRTI_GUARDIAN_CANNOT_RUN:
        report_end(a, PSRTI_END_CANNOT_RUN, msg->value, msg->time_ns);
        break;
    case PSRTI_GUARDIAN_NO_DIRECTORY:
        report_end(a, PSRTI_END_NO_DIRECTORY, msg->value, msg->time_ns);
        break;
    case PSRTI_GUARDIAN_NO_VIRTUALENV:
        report_end(a, PSRTI_END_NO_VIRTUALENV, msg->value, msg->time_ns);
        break;
    case PSRTI_GUARDIAN_EXITED: report_end(a, PSRTI_END_EXITED, msg->value, msg->time_ns); break;
    case PSRTI_GUARDIAN_SIGNALED:
        report_end(a, PSRTI_END_SIGNALED, msg->value, msg->time_ns);
        break;
    }
}

static void on_control(uv_poll_t *watch, int status, int events)
{
    (void)status, (void)events;
    attempt_t *a = watch->data;
    psrti_guardian_msg_t msg;
    ssize_t n;
    /* ECONNRESET, because the guardian left without reading an order, comes before the messages. */
    while ((n = recv(a->control, &msg, sizeof msg, MSG_DONTWAIT)) > 0 ||
           (n < 0 && (errno == ECONNRESET || errno == EINTR)))
        if (n == sizeof msg) on_message(a, &msg);
    if (n == 0 || errno != EAGAIN) on_guardian_gone(a);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    psrti_backend_t *b = ((attempt_t *)handle->data)->backend;
    *buf = uv_buf_init(b->buf, sizeof b->buf);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    attempt_t *a = stream->data;
    int which = stream == (uv_stream_t *)&a->pipes[1];
    if (n < 0)
        close_pipe(a, which);
    else if (n > 0)
        a->backend->events.output(a->backend->events.arg, a->task, STDOUT_FILENO + which, buf->base,
                                  (size_t)n);
}

/* ---- start ----------------------------------------------------------------------------------- */

typedef struct fds {
    int control[2], out[2], err[2]; /* ours, the guardian's */
} fds_t;

static void close_fds(const fds_t *fds, int side)
{
    const int all[] = { fds->control[side], fds->out[side], fds->err[side] };
    for (size_t i = 0; i < PSRTI_COUNT(all); i++)
        if (all[i] >= 0) close(all[i]);
}

static int open_fds(fds_t *fds)
{
    *fds = (fds_t){ { -1, -1 }, { -1, -1 }, { -1, -1 } };
    if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds->control) &&
        !pipe2(fds->out, O_CLOEXEC) && !pipe2(fds->err, O_CLOEXEC))
        return 1;
    int error = errno;
    close_fds(fds, 0);
    close_fds(fds, 1);
    errno = error;
    return 0;
}

static pid_t fork_guardian(const psrti_backend_t *b, const psrti_task_t *task,
                           const psrti_launch_t *launch, const psrti_binding_t *binding,
                           const fds_t *fds)
{
    psrti_guardian_t guardian = {
        .name = task->name,
        .argv = launch->argv,
        .env = launch->env.entries,
        .directory = launch->directory,
        .virtualenv = launch->virtualenv,
        .binding = launch->bind ? binding : NULL,
        .control = fds->control[1],
        .out = fds->out[1],
        .err = fds->err[1],
        .sockets = psrti_sockets_of(&b->sockets, task),
        .socket_count = launch->listen ? task->role->ports : 0,
        .ports = task->ports,
        .port_count = launch->listen ? 0 : task->role->ports,
        .job_dir = b->job->dir,
        .grace_ns = launch->grace_ns,
        .inherited = &b->inherited,
    };
    /* A signal that the child gets before it blocks them would reach our loop, through the pipe of
     * libuv that both share. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) psrti_guardian_run(&guardian);
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

static void add_attempt(psrti_backend_t *b, const psrti_task_t *task, pid_t guardian,
                        const psrti_binding_t *binding, const fds_t *fds)
{
    attempt_t *a = psrti_xcalloc(1, sizeof *a);
    const int read_ends[] = { fds->out[0], fds->err[0] };
    *a =
        (attempt_t){ .backend = b, .task = task, .guardian = guardian, .control = fds->control[0] };
    psrti_binding_text(binding, a->bound, sizeof a->bound);
    psrti_list_push(&b->attempts, &a->node);
    uv_poll_init(b->loop, &a->watch, a->control);
    uv_poll_start(&a->watch, UV_READABLE | UV_DISCONNECT, on_control);
    uv_timer_init(b->loop, &a->linger);
    a->watch.data = a->linger.data = a;
    for (int i = 0; i < 2; i++) {
        uv_pipe_init(b->loop, &a->pipes[i], 0);
        uv_pipe_open(&a->pipes[i], read_ends[i]);
        a->pipes[i].data = a;
        if (!b->paused) uv_read_start((uv_stream_t *)&a->pipes[i], on_alloc, on_read);
    }
    a->open_pipes = 2;
    a->open_handles = 4;
}

static psrt_status_t local_start(psrti_backend_t *b, const psrti_task_t *task,
                                 const psrti_launch_t *launch)
{
    fds_t fds;
    psrti_binding_t binding;
    psrt_status_t st = psrti_binding_choose(launch, &binding);
    if (st) return st;
    if (launch->listen) {
        st = psrti_sockets_bind(&b->sockets, &b->job->tasks[task->id]);
        if (st) return st;
    }
    if (!open_fds(&fds))
        return psrti_fail(PSRT_ERR_LIMIT, "%s: pipes: %s", task->name, strerror(errno));
    if (!launch->listen) psrti_sockets_release(&b->sockets, task);
    pid_t guardian = fork_guardian(b, task, launch, &binding, &fds);
    int error = errno;
    close_fds(&fds, 1);
    if (guardian < 0) {
        close_fds(&fds, 0);
        return psrti_fail(PSRT_ERR_LIMIT, "%s: fork: %s", task->name, strerror(error));
    }
    add_attempt(b, task, guardian, &binding, &fds);
    return PSRT_OK;
}

/* ---- stop, signal, pause ----------------------------------------------------------------------------- */

static void send_order(psrti_backend_t *b, const psrti_task_t *task, char order)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        if (a->task == task && a->control >= 0)
            send(a->control, &order, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* The task dies with its guardian, and the sweep ends the rest. */
static void kill_guardian(psrti_backend_t *b, const psrti_task_t *task)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        if (a->task == task && a->control >= 0) kill(a->guardian, SIGKILL);
    }
}

static void local_stop(psrti_backend_t *b, const psrti_task_t *task, psrti_stop_t how)
{
    if (how == PSRTI_STOP_ABANDON)
        kill_guardian(b, task);
    else
        send_order(b, task, how == PSRTI_STOP_TERM ? PSRTI_GUARDIAN_TERM : PSRTI_GUARDIAN_KILL);
}

static void local_signal(psrti_backend_t *b, const psrti_task_t *task, int sig)
{
    send_order(b, task, sig == SIGUSR1 ? PSRTI_GUARDIAN_USR1 : PSRTI_GUARDIAN_USR2);
}

static void local_pause(psrti_backend_t *b, int paused)
{
    b->paused = paused;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        for (int i = 0; i < 2; i++) {
            uv_stream_t *pipe = (uv_stream_t *)&a->pipes[i];
            if (uv_is_closing((uv_handle_t *)pipe)) continue;
            if (paused)
                uv_read_stop(pipe);
            else
                uv_read_start(pipe, on_alloc, on_read);
        }
        check_linger(a);
    }
}

/* ---- open, close ----------------------------------------------------------------------------- */

/* The guardians, and orphans that a killed one left. Their connections tell what happened. */
static void on_child(uv_signal_t *handle, int sig)
{
    (void)handle, (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

static void remember_inherited(psrti_inherited_t *inherited)
{
    sigemptyset(&inherited->ignored);
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction action;
        if (!sigaction(sig, NULL, &action) && action.sa_handler == SIG_IGN)
            sigaddset(&inherited->ignored, sig);
    }
    sigprocmask(SIG_SETMASK, NULL, &inherited->blocked);
    getrlimit(RLIMIT_NOFILE, &inherited->files);
}

/* Three descriptors a task, and its ports; tasks get the old limit back. */
static void raise_file_limit(const struct rlimit *old)
{
    struct rlimit files = { .rlim_cur = old->rlim_max, .rlim_max = old->rlim_max };
    setrlimit(RLIMIT_NOFILE, &files);
}

static void on_opened(uv_timer_t *timer)
{
    psrti_backend_t *b = timer->data;
    b->events.ready(b->events.arg);
}

static void init_handles(psrti_backend_t *b)
{
    uv_signal_init(b->loop, &b->child);
    uv_signal_start(&b->child, on_child, SIGCHLD);
    uv_timer_init(b->loop, &b->sweep);
    uv_timer_init(b->loop, &b->opened);
    uv_timer_start(&b->opened, on_opened, 0, 0);
    b->sweep.data = b->opened.data = b;
}

static psrt_status_t local_open(uv_loop_t *loop, psrti_job_t *job,
                                const psrti_backend_events_t *events, psrti_backend_t **backend_p)
{
    psrti_backend_t *b = psrti_xcalloc(1, sizeof *b);
    b->loop = loop;
    b->job = job;
    b->events = *events;
    psrti_list_init(&b->attempts);
    remember_inherited(&b->inherited);
    raise_file_limit(&b->inherited.files);
    gethostname(b->host, sizeof b->host - 1);
    for (size_t i = 0; i < job->host_count; i++)
        if (!job->hosts[i].address) psrti_job_set(&job->hosts[i].address, "127.0.0.1");
    psrt_status_t st = psrti_sockets_open(&b->sockets, job);
    if (st) goto err_free;
    psrti_job_set_coordinator(job);
    st = psrti_jobdir_create_with_key(job->key, job->dir, &b->lock);
    if (st) goto err_sockets;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    psrti_cgroup_clean();
    b->foreign_count = psrti_proctree_children(b->foreign, FOREIGN_MAX);
    init_handles(b);
    *backend_p = b;
    return PSRT_OK;
err_sockets:
    psrti_sockets_close(&b->sockets);
err_free:
    free(b);
    return st;
}

static void close_attempt(attempt_t *a)
{
    close_pipe(a, 0);
    close_pipe(a, 1);
    if (a->control < 0) return;
    uv_close((uv_handle_t *)&a->watch, on_handle_closed);
    close(a->control);
    a->control = -1;
}

static void local_close(psrti_backend_t *b)
{
    int all_gone = 1;
    b->closing = 1;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts)
    {
        attempt_t *a = PSRTI_LIST_ENTRY(it, attempt_t, node);
        all_gone &= a->gone;
        close_attempt(a);
    }
    uv_close((uv_handle_t *)&b->child, NULL);
    uv_close((uv_handle_t *)&b->sweep, NULL);
    uv_close((uv_handle_t *)&b->opened, NULL);
    psrti_sockets_close(&b->sockets);
    /* Else the guardians that are left do it. */
    if (all_gone) psrti_jobdir_remove(b->job->dir);
    close(b->lock);
}

static void local_release(psrti_backend_t *b)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &b->attempts) free(PSRTI_LIST_ENTRY(it, attempt_t, node));
    free(b);
}

const psrti_backend_ops_t psrti_backend_local = {
    .name = "local",
    .open = local_open,
    .start = local_start,
    .stop = local_stop,
    .signal = local_signal,
    .pause = local_pause,
    .close = local_close,
    .release = local_release,
};
