/* SPDX-License-Identifier: Apache-2.0 */
/* One connection a host does it all. The command is one line that any login shell passes on to
 * /bin/sh. It looks for psrt-agent and psrtd as they are here, by their hashes, at the same place
 * and then in a cache; what it prints for the launcher begins with a word of ours, since login shells
 * print greetings. Only when it asks do files follow on its standard input, and then the bootstrap,
 * so nothing that reads ahead takes what is not its own. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/login.h"
#include "launcher/sshfiles.h"

#define WORD PSRTI_SSH_WORD
#define KEEP 4096 /* of what comes from it */
#define DYING_MS 3000

typedef struct link {
    psrti_starter_t *starter;
    unsigned host;
    uv_process_t process;
    uv_pipe_t pipes[3]; /* its standard input, output, error */
    int handles;        /* open ones */
    int ended, failed, not_spawned;
    char out[KEEP], err[KEEP];
    size_t out_len, err_len;
    char program[32];
    char *bootstrap; /* NULL: sent */
    size_t bootstrap_len;
} link_t;

struct psrti_starter {
    uv_loop_t *loop;
    const psrti_job_t *job;
    psrti_starter_events_t events;
    psrti_login_fn *argv_of;
    psrti_sshfiles_t files;
    char *command;
    struct utsname machine;
    link_t *links;
    uv_timer_t patience;
    int closing, running;
};

/* ---- the end of one -------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void fail(link_t *l, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (l->failed || l->starter->closing) return;
    l->failed = 1;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->starter->events.failed(l->starter->events.arg, l->host, text);
}

static void on_handle_closed(uv_handle_t *handle) { ((link_t *)handle->data)->handles--; }

static void close_pipe(link_t *l, int which)
{
    uv_handle_t *pipe = (uv_handle_t *)&l->pipes[which];
    if (!uv_is_closing(pipe)) uv_close(pipe, on_handle_closed);
}

/* What the program or the other side said last explains best what went wrong. */
static const char *last_line(char *text, size_t len)
{
    while (len && strchr("\r\n ", text[len - 1]))
        len--;
    text[len] = '\0';
    char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static void report_end(link_t *l, int64_t code, int sig)
{
    const char *line = last_line(l->err, PSRTI_MIN(l->err_len, KEEP - 1));
    if (sig)
        fail(l, "%s was killed by signal %d (%s)", l->program, sig, strsignal(sig));
    else if (*line)
        fail(l, "%s", line);
    else
        fail(l, "%s ended with code %d", l->program, (int)code);
}

static void check_over(link_t *l, int64_t code, int sig)
{
    psrti_starter_t *s = l->starter;
    l->ended = 1;
    s->running--;
    report_end(l, code, sig);
    if (s->closing && !s->running && !uv_is_closing((uv_handle_t *)&s->patience))
        uv_close((uv_handle_t *)&s->patience, NULL);
}

static void on_program_exit(uv_process_t *process, int64_t code, int sig)
{
    link_t *l = process->data;
    char rest[KEEP];
    uv_os_fd_t fd;
    ssize_t n;
    /* What it wrote last may not have been read. */
    if (!uv_is_closing((uv_handle_t *)&l->pipes[2]) &&
        !uv_fileno((uv_handle_t *)&l->pipes[2], &fd) && (n = read(fd, rest, sizeof rest)) > 0) {
        size_t len = PSRTI_MIN((size_t)n, KEEP - 1 - l->err_len);
        memcpy(l->err + l->err_len, rest, len);
        l->err_len += len;
    }
    uv_close((uv_handle_t *)process, on_handle_closed);
    for (int i = 0; i < 3; i++)
        close_pipe(l, i);
    check_over(l, code, sig);
}

/* ---- talk with the other side ---------------------------------------------------------------- */

typedef struct message {
    uv_write_t req;
    char *data;
    size_t len;
} message_t;

/* It may have the job's key. */
static void wipe_and_free(char *data, size_t len)
{
    explicit_bzero(data, len);
    free(data);
}

static void on_written(uv_write_t *req, int status)
{
    message_t *m = req->data;
    (void)status; /* the end of the program tells */
    wipe_and_free(m->data, m->len);
    free(m);
}

/* Takes the data over. */
static void send_data(link_t *l, char *data, size_t len)
{
    message_t *m = psrti_xcalloc(1, sizeof *m);
    uv_buf_t buf = uv_buf_init(data, (unsigned)len);
    m->req.data = m;
    m->data = data;
    m->len = len;
    if (uv_write(&m->req, (uv_stream_t *)&l->pipes[0], &buf, 1, on_written)) {
        wipe_and_free(data, len);
        free(m);
    }
}

static void send_files(link_t *l)
{
    for (size_t i = 0; i < l->starter->files.count; i++) {
        const psrti_sshfile_t *file = &l->starter->files.files[i];
        char *copy = psrti_xrealloc(NULL, file->size);
        memcpy(copy, file->data, file->size);
        send_data(l, copy, file->size);
    }
}

/* "need MACHINE", "run PSRTD" or "error TEXT". */
static void on_word(link_t *l, char *word)
{
    psrti_starter_t *s = l->starter;
    char *arg = strchr(word, ' ');
    arg = arg ? arg + 1 : word + strlen(word);
    if (!strncmp(word, "need", 4)) {
        if (strcmp(arg, s->machine.machine))
            fail(l, "is %s, and psrt-agent here is for %s: install the programs there", arg,
                 s->machine.machine);
        else
            send_files(l);
    } else if (!strncmp(word, "run", 3) && l->bootstrap) {
        if (*arg) s->events.psrtd(s->events.arg, l->host, arg);
        send_data(l, l->bootstrap, l->bootstrap_len);
        l->bootstrap = NULL;
    } else if (!strncmp(word, "error", 5)) {
        fail(l, "%s", arg);
    }
}

static void take_lines(link_t *l)
{
    char *line = l->out, *end;
    while ((end = memchr(line, '\n', l->out_len - (size_t)(line - l->out)))) {
        *end = '\0';
        if (!strncmp(line, WORD, strlen(WORD))) on_word(l, line + strlen(WORD));
        line = end + 1;
    }
    l->out_len -= (size_t)(line - l->out);
    memmove(l->out, line, l->out_len);
    if (l->out_len == KEEP - 1) l->out_len = 0; /* no word of ours is so long */
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    link_t *l = handle->data;
    (void)suggested;
    if ((uv_pipe_t *)handle == &l->pipes[1]) {
        *buf = uv_buf_init(l->out + l->out_len, (unsigned)(KEEP - 1 - l->out_len));
        return;
    }
    if (l->err_len == KEEP - 1) { /* the newer half stays */
        l->err_len /= 2;
        memmove(l->err, l->err + KEEP - 1 - l->err_len, l->err_len);
    }
    *buf = uv_buf_init(l->err + l->err_len, (unsigned)(KEEP - 1 - l->err_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    link_t *l = stream->data;
    (void)buf;
    int which = (uv_pipe_t *)stream == &l->pipes[1] ? 1 : 2;
    if (n < 0) {
        close_pipe(l, which);
    } else if (which == 1) {
        l->out_len += (size_t)n;
        take_lines(l);
    } else {
        l->err_len += (size_t)n;
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static void spawn(link_t *l)
{
    psrti_starter_t *s = l->starter;
    uv_stdio_container_t stdio[3];
    char **argv = s->argv_of(s->job, l->host, s->command);
    const char *base = strrchr(argv[0], '/');
    snprintf(l->program, sizeof l->program, "%s", base ? base + 1 : argv[0]);
    for (int i = 0; i < 3; i++) {
        uv_pipe_init(s->loop, &l->pipes[i], 0);
        l->pipes[i].data = l;
        stdio[i].flags = UV_CREATE_PIPE | (i ? UV_WRITABLE_PIPE : UV_READABLE_PIPE);
        stdio[i].data.stream = (uv_stream_t *)&l->pipes[i];
    }
    /* Out of the reach of the terminal's signals: Ctrl-C is for psrt-launch, which stops gracefully. */
    const uv_process_options_t options = { .exit_cb = on_program_exit,
                                           .file = argv[0],
                                           .args = argv,
                                           .flags = UV_PROCESS_DETACHED,
                                           .stdio_count = 3,
                                           .stdio = stdio };
    l->process.data = l;
    l->handles = 4;
    int rc = uv_spawn(s->loop, &l->process, &options);
    if (rc) {
        snprintf(l->err, sizeof l->err, "%s: %s", argv[0], uv_strerror(rc));
        l->not_spawned = 1;
        uv_close((uv_handle_t *)&l->process, on_handle_closed);
        close_pipe(l, 0);
        close_pipe(l, 1);
        close_pipe(l, 2);
    } else {
        s->running++;
        uv_read_start((uv_stream_t *)&l->pipes[1], on_alloc, on_read);
        uv_read_start((uv_stream_t *)&l->pipes[2], on_alloc, on_read);
    }
    for (char **arg = argv; *arg; arg++)
        free(*arg);
    free(argv);
}

static void on_spawn_failed(uv_timer_t *timer)
{
    psrti_starter_t *s = timer->data;
    for (size_t h = 0; h < s->job->host_count && !s->closing; h++)
        if (s->links[h].starter && s->links[h].not_spawned)
            fail(&s->links[h], "%s", s->links[h].err);
}

static int is_over(const link_t *l)
{
    return !l->starter || (!l->handles && (l->ended || l->not_spawned));
}

void psrti_login_start(psrti_starter_t *s, unsigned host, const void *bootstrap, size_t len)
{
    link_t *l = &s->links[host];
    if (!is_over(l)) { /* the last one hangs; when it is gone the next try has a chance */
        if (!l->ended && !l->not_spawned) uv_process_kill(&l->process, SIGKILL);
        s->events.failed(s->events.arg, host, "the connection before has not ended");
        return;
    }
    if (l->bootstrap) wipe_and_free(l->bootstrap, l->bootstrap_len);
    *l = (link_t){ .starter = s, .host = host };
    l->bootstrap = psrti_xrealloc(NULL, len);
    l->bootstrap_len = len;
    memcpy(l->bootstrap, bootstrap, len);
    spawn(l);
    if (l->not_spawned) uv_timer_start(&s->patience, on_spawn_failed, 0, 0);
}

/* ---- open, close ----------------------------------------------------------------------------- */

psrt_status_t psrti_login_open(uv_loop_t *loop, const psrti_job_t *job,
                               const psrti_starter_events_t *events, psrti_login_fn *argv_of,
                               psrti_starter_t **starter_p)
{
    psrti_starter_t *s = psrti_xcalloc(1, sizeof *s);
    *s = (psrti_starter_t){ .loop = loop, .job = job, .events = *events, .argv_of = argv_of };
    psrt_status_t st = psrti_sshfiles_load(&s->files, *job->psrtd ? job->psrtd : NULL);
    if (st) {
        free(s);
        return st;
    }
    uname(&s->machine);
    s->command = psrti_sshfiles_command(&s->files);
    s->links = psrti_xcalloc(job->host_capacity, sizeof *s->links);
    uv_timer_init(loop, &s->patience);
    s->patience.data = s;
    *starter_p = s;
    return PSRT_OK;
}

static void on_patience(uv_timer_t *timer)
{
    psrti_starter_t *s = timer->data;
    for (size_t h = 0; h < s->job->host_count; h++)
        if (s->links[h].starter && !s->links[h].ended && !s->links[h].not_spawned)
            uv_process_kill(&s->links[h].process, SIGKILL);
    uv_close((uv_handle_t *)timer, NULL);
}

/* The program ends when the agent does; one that does not is killed. */
void psrti_login_close(psrti_starter_t *s)
{
    s->closing = 1;
    for (size_t h = 0; h < s->job->host_count; h++) {
        link_t *l = &s->links[h];
        if (l->starter && !l->not_spawned) close_pipe(l, 0);
    }
    if (s->running)
        uv_timer_start(&s->patience, on_patience, DYING_MS, 0);
    else
        uv_close((uv_handle_t *)&s->patience, NULL);
}

void psrti_login_release(psrti_starter_t *s)
{
    for (size_t h = 0; h < s->job->host_count; h++) {
        if (!s->links[h].bootstrap) continue;
        wipe_and_free(s->links[h].bootstrap, s->links[h].bootstrap_len);
    }
    psrti_sshfiles_clear(&s->files);
    free(s->command);
    free(s->links);
    free(s);
}
