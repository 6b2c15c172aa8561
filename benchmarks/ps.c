/* SPDX-License-Identifier: Apache-2.0 */
#include "ps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flags.h"

#define ARGS_MAX 64

/* The JSON array; rows are separated as they come. */
typedef struct sink {
    FILE *json; /* NULL: none */
    size_t rows;
} sink_t;

static int own_path(char path[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (len < 0) return bench_fail("/proc/self/exe: %s", strerror(errno));
    path[len] = '\0';
    return 0;
}

/* psrt-launch beside this program, else the one in PATH. */
static void launcher_path(const char *own, char path[PATH_MAX])
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

/* A line of worker 0: what is before the tab goes to the terminal, the rest into the file. */
static void take_line(sink_t *sink, char *line)
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

static int take_output(sink_t *sink, int fd)
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

static int run_child(sink_t *sink, char *const *argv, const char *what)
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

/* psrt-launch ... -- psrt-bench ps ARGS --worker TRANSPORT; inproc needs no launcher. */
static int run_transport(const ps_options_t *o, ps_transport_t transport, int argc, char **argv,
                         sink_t *sink)
{
    char own[PATH_MAX], launcher[PATH_MAX], workers[16], servers[16];
    char *child[ARGS_MAX];
    int n = 0;
    if (own_path(own)) return -1;
    if (argc > ARGS_MAX - 20) return bench_fail("too many arguments");
    launcher_path(own, launcher);
    snprintf(workers, sizeof workers, "%u", o->workers);
    snprintf(servers, sizeof servers, "%u", o->servers);
    char *name = (char *)ps_transport_names[transport];
    if (transport != PS_INPROC) {
        char *launch[] = { launcher, "--quiet", "--no-prefix", "-w", workers,
                           "-s",     servers,   "--transport", name };
        memcpy(child, launch, sizeof launch);
        n = sizeof launch / sizeof *launch;
        if (o->security) child[n++] = "--security", child[n++] = (char *)o->security;
        child[n++] = "--";
    }
    child[n++] = own;
    child[n++] = "ps";
    for (int i = 0; i < argc; i++)
        child[n++] = argv[i];
    child[n++] = "--worker";
    child[n++] = name;
    child[n] = NULL;
    return run_child(sink, child, name);
}

static int run_all(const ps_options_t *o, int argc, char **argv, sink_t *sink)
{
    int failed = 0;
    ps_row_header();
    for (unsigned transport = 0; transport < PS_TRANSPORTS; transport++)
        if (o->transports & 1u << transport)
            failed |= run_transport(o, (ps_transport_t)transport, argc, argv, sink);
    return failed;
}

static int run_with_json(const ps_options_t *o, int argc, char **argv)
{
    sink_t sink = { 0 };
    if (!o->json) return run_all(o, argc, argv, &sink);
    sink.json = fopen(o->json, "we");
    if (!sink.json) return bench_fail("%s: %s", o->json, strerror(errno));
    fputs("[", sink.json);
    int failed = run_all(o, argc, argv, &sink);
    fputs("\n]\n", sink.json);
    if (ferror(sink.json) | fclose(sink.json)) failed = bench_fail("%s: not written", o->json);
    return failed;
}

int bench_ps(int argc, char **argv)
{
    ps_options_t options;
    int result = ps_options_parse(argc, argv, &options);
    if (result != BENCH_RUN) return result;
    if (options.worker) return ps_worker_run(&options) ? BENCH_FAILED : BENCH_OK;
    signal(SIGINT, SIG_IGN); /* the launcher ends the job in order, then this process follows */
    return run_with_json(&options, argc, argv) ? BENCH_FAILED : BENCH_OK;
}
