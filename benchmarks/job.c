/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flags.h"

int job_own_path(char path[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (len < 0) return bench_fail("/proc/self/exe: %s", strerror(errno));
    path[len] = '\0';
    return 0;
}

void job_launcher_path(const char *own, char path[PATH_MAX])
{
    static const char name[] = "psrt-launch";
    const char *slash = strrchr(own, '/');
    size_t dir = slash ? (size_t)(slash - own) + 1 : 0;
    if (dir + sizeof name <= PATH_MAX) {
        memcpy(path, own, dir);
        memcpy(path + dir, name, sizeof name);
        if (!access(path, X_OK)) return;
    }
    memcpy(path, name, sizeof name);
}

static void take_line(job_sink_t *sink, char *line)
{
    char *json = strchr(line, '\t');
    line[strcspn(line, "\n")] = '\0';
    if (json) *json++ = '\0';
    puts(line);
    fflush(stdout);
    if (!json) return;
    if (sink->json) fprintf(sink->json, "%s\n %s", sink->rows ? "," : "", json);
    sink->rows++;
}

static int take_output(job_sink_t *sink, int fd)
{
    FILE *in = fdopen(fd, "r");
    if (!in) {
        close(fd);
        return bench_fail("pipe: %s", strerror(errno));
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, in) > 0)
        take_line(sink, line);
    free(line);
    fclose(in);
    return 0;
}

/* The child's stdout is the pipe. Ctrl-C, which this process ignores meanwhile, ends it as usual;
 * and it is told to stop when this process dies, which no worker notices before its next line. */
static _Noreturn void be_child(char *const *argv, int out, pid_t parent)
{
    signal(SIGINT, SIG_DFL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent || dup2(out, STDOUT_FILENO) < 0)
        _exit(BENCH_FAILED);
    execvp(argv[0], argv);
    bench_fail("%s: %s", argv[0], strerror(errno));
    _exit(BENCH_FAILED);
}

int job_run(job_sink_t *sink, char *const *argv, const char *what)
{
    int fds[2], status;
    pid_t self = getpid();
    if (pipe2(fds, O_CLOEXEC)) return bench_fail("pipe: %s", strerror(errno));
    fflush(NULL); /* the child inherits no unwritten lines */
    pid_t pid = fork();
    if (pid == 0) be_child(argv, fds[1], self);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return bench_fail("fork: %s", strerror(errno));
    }
    int failed = take_output(sink, fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFSIGNALED(status)) return bench_fail("%s: ended by signal %d", what, WTERMSIG(status));
    if (WEXITSTATUS(status)) return bench_fail("%s: exit code %d", what, WEXITSTATUS(status));
    return failed;
}

int job_collect(const char *json, job_sink_t *sink)
{
    *sink = (job_sink_t){ 0 };
    if (!json) return 0;
    sink->json = fopen(json, "we");
    if (!sink->json) return bench_fail("%s: %s", json, strerror(errno));
    fputs("[", sink->json);
    return 0;
}

int job_collected(job_sink_t *sink, const char *json)
{
    if (!sink->json) return 0;
    fputs("\n]\n", sink->json);
    if (ferror(sink->json) | fclose(sink->json)) return bench_fail("%s: not written", json);
    return 0;
}
