/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/script.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/proctree.h"

#define CHUNK 4096
#define SWEEP_NS 10000000

/* ---- the keeper ------------------------------------------------------------------------------ */

_Noreturn static void exec_script(const psrti_script_t *s, pid_t keeper)
{
    char *const argv[] = { (char *)s->path, NULL };
    sigset_t none;
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == keeper) execv(s->path, argv);
    *s->exec_error = errno;
    _exit(127);
}

/* What it left in the background is not waited for. */
static void sweep(void)
{
    const struct timespec pause = { .tv_nsec = SWEEP_NS };
    while (psrti_proctree_signal(getpid(), SIGKILL, NULL, 0)) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
        nanosleep(&pause, NULL);
    }
}

/* 1: it has ended, and its status was written. */
static int reap(pid_t script, int *status_p)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != script) continue;
        *status_p = status;
        return 1;
    }
    return 0;
}

/* All signals are blocked. SIGTERM is the launcher's order, and its death. */
_Noreturn static void keep(const psrti_script_t *s, pid_t launcher, int out)
{
    int null = open("/dev/null", O_RDONLY), status = 0, sig;
    sigset_t awaited;
    setsid();
    uv_set_process_title("psrt-keeper"); /* as guardians do: `killall` of the launcher spares it */
    prctl(PR_SET_NAME, "psrt-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(out, STDOUT_FILENO) < 0)
        _exit(127);
    /* The ends of others' connections among them: a copy would hide the launcher's death. */
    close_range(STDERR_FILENO + 1, ~0u, 0);
    pid_t self = getpid(), script = fork();
    if (script == 0) exec_script(s, self);
    if (script < 0) *s->exec_error = errno;
    close(STDOUT_FILENO);
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGCHLD);
    while (script > 0 && !sigwait(&awaited, &sig) && sig == SIGCHLD)
        if (reap(script, &status)) break;
    sweep();
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- its end --------------------------------------------------------------------------------- */

static void stop(psrti_script_t *s)
{
    if (!s->keeper || s->stopping) return;
    s->stopping = 1;
    kill(s->keeper, SIGTERM); /* not reaped, so the pid is its own */
}

static psrt_status_t judge(const psrti_script_t *s, int status)
{
    int error = *s->exec_error;
    if (s->too_late)
        return psrti_fail(PSRT_ERR_TIMEOUT, "%s did not end within %.1f s", s->path,
                          (double)s->limit_ms / 1000);
    if (s->too_long)
        return psrti_fail(PSRT_ERR_INVALID, "%s printed more than %d bytes", s->path,
                          PSRTI_SCRIPT_OUTPUT_MAX);
    if (error == ENOEXEC)
        return psrti_fail(PSRT_ERR_INVALID,
                          "%s cannot be run: its first line must name its interpreter, such as "
                          "#!/bin/sh",
                          s->path);
    if (error)
        return psrti_fail(PSRT_ERR_INVALID, "%s cannot be run: %s%s", s->path, strerror(error),
                          error == ENOENT ? "; is the interpreter in its first line there?" : "");
    if (WIFSIGNALED(status) || WEXITSTATUS(status))
        return psrti_fail(PSRT_ERR_INVALID, "%s ended with code %d", s->path,
                          WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    return PSRT_OK;
}

static void take(psrti_script_t *s, const char *data, size_t len)
{
    if (s->len + len > PSRTI_SCRIPT_OUTPUT_MAX) {
        s->too_long = 1;
        stop(s);
        return;
    }
    if (s->len + len > s->capacity) {
        s->capacity = PSRTI_MAX(2 * s->capacity, s->len + len);
        s->text = psrti_xrealloc(s->text, s->capacity);
    }
    memcpy(s->text + s->len, data, len);
    s->len += len;
}

/* What it wrote before it ended; whoever else has the pipe is not waited for. */
static void take_rest(psrti_script_t *s)
{
    char chunk[CHUNK];
    uv_os_fd_t fd;
    ssize_t n;
    if (uv_is_closing((uv_handle_t *)&s->out) || uv_fileno((uv_handle_t *)&s->out, &fd)) return;
    while (!s->too_long && (n = read(fd, chunk, sizeof chunk)) > 0)
        take(s, chunk, (size_t)n);
}

static void close_pipe(psrti_script_t *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->out)) uv_close((uv_handle_t *)&s->out, NULL);
}

static void on_child(uv_signal_t *handle, int sig)
{
    psrti_script_t *s = handle->data;
    int status;
    (void)sig;
    if (!s->keeper || waitpid(s->keeper, &status, WNOHANG) != s->keeper) return;
    s->keeper = 0;
    take_rest(s);
    close_pipe(s);
    uv_timer_stop(&s->limit);
    uv_signal_stop(&s->child);
    psrt_status_t st = judge(s, status);
    s->done(s->arg, st, s->text ? s->text : "", s->len);
}

/* ---- start ----------------------------------------------------------------------------------- */

static void on_limit(uv_timer_t *timer)
{
    psrti_script_t *s = timer->data;
    s->too_late = 1;
    stop(s);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char chunk[CHUNK]; /* of all loops: it is emptied in on_read */
    (void)handle, (void)suggested;
    *buf = uv_buf_init(chunk, sizeof chunk);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    psrti_script_t *s = stream->data;
    if (n < 0)
        close_pipe(s);
    else if (n > 0 && !s->too_long)
        take(s, buf->base, (size_t)n);
}

psrt_status_t psrti_script_check(const char *path)
{
    struct stat info;
    if (stat(path, &info)) return psrti_fail(PSRT_ERR_INVALID, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return psrti_fail(PSRT_ERR_INVALID, "%s is not a program", path);
    if (access(path, X_OK))
        return psrti_fail(PSRT_ERR_INVALID, "%s is not executable: chmod +x %s", path, path);
    return PSRT_OK;
}

void psrti_script_init(psrti_script_t *s)
{
    uv_signal_init(s->loop, &s->child);
    uv_timer_init(s->loop, &s->limit);
    s->child.data = s->limit.data = s->out.data = s;
    s->exec_error = mmap(NULL, sizeof *s->exec_error, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->exec_error == MAP_FAILED) psrti_out_of_memory();
}

static pid_t fork_keeper(const psrti_script_t *s, int out)
{
    sigset_t all, before;
    pid_t launcher = getpid();
    /* As around the fork of a guardian: the loop's pipe for signals is shared until it is closed. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) keep(s, launcher, out);
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

psrt_status_t psrti_script_start(psrti_script_t *s)
{
    int ends[2];
    psrt_status_t st = psrti_script_check(s->path);
    if (st) return st;
    if (pipe2(ends, O_CLOEXEC)) return psrti_fail(PSRT_ERR_LIMIT, "pipe: %s", strerror(errno));
    s->stopping = s->too_long = s->too_late = *s->exec_error = 0;
    s->len = 0;
    uv_signal_start(&s->child, on_child, SIGCHLD);
    pid_t pid = fork_keeper(s, ends[1]);
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        uv_signal_stop(&s->child);
        close(ends[0]);
        return psrti_fail(PSRT_ERR_LIMIT, "%s: fork: %s", s->path, strerror(error));
    }
    s->keeper = pid;
    uv_pipe_init(s->loop, &s->out, 0);
    uv_pipe_open(&s->out, ends[0]);
    uv_read_start((uv_stream_t *)&s->out, on_alloc, on_read);
    uv_timer_start(&s->limit, on_limit, s->limit_ms, 0);
    return PSRT_OK;
}

/* ---- close ----------------------------------------------------------------------------------- */

/* The keeper is not waited for: should it not get something killed, it goes on trying without us. */
void psrti_script_close(psrti_script_t *s)
{
    if (s->keeper) {
        stop(s);
        close_pipe(s);
    }
    uv_close((uv_handle_t *)&s->child, NULL);
    uv_close((uv_handle_t *)&s->limit, NULL);
}

void psrti_script_release(psrti_script_t *s)
{
    if (s->keeper) waitpid(s->keeper, NULL, WNOHANG);
    munmap(s->exec_error, sizeof *s->exec_error);
    free(s->text);
}
