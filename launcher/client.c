/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/control.h"
#include "launcher/env.h"
#include "launcher/exits.h"
#include "launcher/output.h"
#include "launcher/record.h"

#define WAIT_MS 200
#define ANSWER_S 10 /* for a launcher to answer */

/* ---- finding a job --------------------------------------------------------------------------- */

static const char *text_of(const json_t *job, const char *name)
{
    const char *text = json_string_value(json_object_get(job, name));
    return text ? text : "";
}

int psrti_client_is_alive(const json_t *job) { return json_is_true(json_object_get(job, "alive")); }

static psrt_status_t ambiguous(const json_t *list, const char *which)
{
    char names[512];
    size_t pos = 0;
    const json_t *job;
    *names = '\0';
    for (size_t i = 0; (job = json_array_get(list, i)) != NULL; i++)
        if (psrti_client_is_alive(job))
            psrti_append(names, sizeof names, &pos, "%s%s (%s)", pos ? ", " : "",
                         text_of(job, "id"), text_of(job, "name"));
    if (!pos) psrti_append(names, sizeof names, &pos, "none");
    if (which)
        return psrti_fail(PSRT_ERR_NOT_FOUND, "no single job is called %s; running: %s", which,
                          names);
    return psrti_fail(PSRT_ERR_NOT_FOUND, "which job? running: %s", names);
}

/* By id any job; by name one that runs, else the last one that ended; without either the only one that runs. */
psrt_status_t psrti_client_find(const char *which, json_t **job_p)
{
    json_t *list = psrti_record_list(), *found = NULL, *ended = NULL, *job;
    size_t matches = 0;
    for (size_t i = 0; (job = json_array_get(list, i)) != NULL; i++) {
        int by_id = which && !strcmp(which, text_of(job, "id"));
        int alive = psrti_client_is_alive(job);
        int by_name = !which || !strcmp(which, text_of(job, "name"));
        if (which && by_name && !alive && !ended) ended = job; /* the newest stand first */
        if (!by_id && !(by_name && alive)) continue;
        found = job;
        matches = by_id ? 1 : matches + 1;
        if (by_id) break;
    }
    psrt_status_t st = PSRT_OK;
    if (!matches && ended) found = ended, matches = 1;
    if (matches == 1)
        *job_p = json_incref(found);
    else
        st = ambiguous(list, which);
    json_decref(list);
    return st;
}

/* ---- connection ------------------------------------------------------------------------------ */

static psrt_status_t connect_to(const json_t *job, int *fd_p)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int len = snprintf(address.sun_path, sizeof address.sun_path, "%s/" PSRTI_CONTROL_NAME,
                       text_of(job, "job_dir"));
    if (!psrti_client_is_alive(job))
        return psrti_fail(PSRT_ERR_NOT_FOUND, "job %s does not run any more%s%s",
                          text_of(job, "id"), *text_of(job, "log_dir") ? "; its logs are in " : "",
                          text_of(job, "log_dir"));
    if (len < 0 || len >= (int)sizeof address.sun_path || !*text_of(job, "job_dir"))
        return psrti_fail(PSRT_ERR_NOT_READY, "job %s is only just starting", text_of(job, "id"));
    const struct timeval patience = { .tv_sec = ANSWER_S };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address)) {
        *fd_p = fd;
        return PSRT_OK;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    return psrti_fail(PSRT_ERR_IO, "job %s on %s: %s: %s", text_of(job, "id"), text_of(job, "host"),
                      address.sun_path, strerror(error));
}

static psrt_status_t send_request(int fd, json_t *request)
{
    char *text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    if (!text) return psrti_fail(PSRT_ERR_INVALID, "text that is not UTF-8");
    int len = dprintf(fd, "%s\n", text);
    free(text);
    return len > 0 ? PSRT_OK : psrti_fail(PSRT_ERR_IO, "request: %s", strerror(errno));
}

static psrt_status_t begin(const json_t *job, json_t *request, int *fd_p)
{
    psrt_status_t st = connect_to(job, fd_p);
    if (st) {
        json_decref(request);
        return st;
    }
    st = send_request(*fd_p, request);
    if (st) close(*fd_p);
    return st;
}

/* ---- question and answer --------------------------------------------------------------------- */

psrt_status_t psrti_client_ask(const json_t *job, json_t *request, json_t **answer_p)
{
    int fd;
    psrt_status_t st = begin(job, request, &fd);
    if (st) return st;
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return psrti_fail(PSRT_ERR_LIMIT, "no memory for the answer");
    }
    char *line = NULL;
    size_t capacity = 0;
    json_t *answer = NULL;
    int ended = 0;
    while (!st && !ended && getline(&line, &capacity, file) > 0) {
        json_t *part = json_loads(line, 0, NULL);
        if (json_object_get(part, "error"))
            st = psrti_fail(PSRT_ERR_REFUSED, "%s", text_of(part, "error"));
        ended = json_object_get(part, "end") != NULL;
        if (!st && !ended && part) {
            json_decref(answer);
            answer = json_incref(part);
        }
        json_decref(part);
    }
    if (!st && !ended)
        st = psrti_fail(PSRT_ERR_IO,
                        "job %s did not answer within %d s; its launcher is process %d on %s",
                        text_of(job, "id"), ANSWER_S,
                        (int)json_integer_value(json_object_get(job, "pid")), text_of(job, "host"));
    free(line);
    fclose(file);
    if (st)
        json_decref(answer);
    else
        *answer_p = answer;
    return st;
}

/* ---- watching -------------------------------------------------------------------------------- */

typedef struct watch {
    const psrti_client_show_t *show;
    uv_loop_t loop;
    uv_poll_t poll;
    uv_signal_t interrupt;
    psrti_output_t *output;
    json_t *names;
    psrti_stream_t **streams; /* two for each task */
    size_t count;
    char *buf;
    size_t len, capacity;
    int fd, ended, code;
    psrt_status_t status;
    char error[PSRTI_ERROR_MAX];
} watch_t;

static void end_watch(watch_t *w)
{
    if (w->ended) return;
    w->ended = 1;
    uv_poll_stop(&w->poll);
    for (size_t i = 0; i < 2 * w->count; i++)
        psrti_stream_close(w->streams[i]);
    psrti_output_finish(w->output);
}

static void fail_watch(watch_t *w, const char *text)
{
    w->status = PSRT_ERR_REFUSED;
    snprintf(w->error, sizeof w->error, "%s", text);
    end_watch(w);
}

static const char *name_of(void *arg, size_t task)
{
    const watch_t *w = arg;
    const char *name = json_string_value(json_array_get(w->names, task));
    return name ? name : "?";
}

static void take_names(watch_t *w, const json_t *names)
{
    if (w->names) return;
    w->names = json_deep_copy(names);
    w->count = json_array_size(names);
    w->streams = psrti_xcalloc(2 * w->count, sizeof *w->streams);
}

static void take_output(watch_t *w, const json_t *head, const char *data, size_t len)
{
    size_t task = (size_t)json_integer_value(json_object_get(head, "task"));
    int fd = (int)json_integer_value(json_object_get(head, "fd"));
    if (task >= w->count || fd < 1 || fd > 2) return;
    psrti_stream_t **stream = &w->streams[2 * task + (size_t)fd - 1];
    if (!*stream) *stream = psrti_output_stream(w->output, fd, name_of(w, task), task);
    psrti_stream_write(*stream, data, len);
}

static void take_head(watch_t *w, const json_t *head)
{
    const json_t *end = json_object_get(head, "end"), *names = json_object_get(head, "names");
    json_int_t lost = json_integer_value(json_object_get(head, "lost"));
    if (names) take_names(w, names);
    if (*text_of(head, "note")) psrti_output_note(w->output, "%s", text_of(head, "note"));
    if (*text_of(head, "status")) psrti_output_status(w->output, text_of(head, "status"));
    if (lost) psrti_output_note(w->output, "%lld bytes passed by unseen", (long long)lost);
    if (*text_of(head, "error")) fail_watch(w, text_of(head, "error"));
    if (!end) return;
    w->code = (int)json_integer_value(end);
    end_watch(w);
}

/* One line, with the bytes that belong to it; 0: it is not complete yet. */
static size_t take_frame(watch_t *w, size_t from)
{
    const char *start = w->buf + from, *end = memchr(start, '\n', w->len - from);
    if (!end) return 0;
    size_t line = (size_t)(end - start) + 1;
    json_t *head = json_loadb(start, line, 0, NULL);
    size_t bytes = (size_t)json_integer_value(json_object_get(head, "bytes"));
    int complete = bytes <= w->len - from - line;
    if (complete && bytes)
        take_output(w, head, start + line, bytes);
    else if (complete)
        take_head(w, head);
    json_decref(head);
    return complete ? line + bytes : 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    watch_t *w = poll->data;
    (void)status, (void)events;
    if (w->capacity - w->len < 65536) {
        w->capacity = 2 * w->capacity + 65536;
        w->buf = psrti_xrealloc(w->buf, w->capacity);
    }
    ssize_t n = recv(w->fd, w->buf + w->len, w->capacity - w->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        fail_watch(w, "the job has ended, or its launcher was killed");
        return;
    }
    w->len += (size_t)n;
    size_t from = 0;
    for (size_t taken; !w->ended && (taken = take_frame(w, from)) != 0;)
        from += taken;
    w->len -= from;
    memmove(w->buf, w->buf + from, w->len);
}

static void on_pause(void *arg, int paused)
{
    watch_t *w = arg;
    if (w->ended) return;
    if (paused)
        uv_poll_stop(&w->poll);
    else
        uv_poll_start(&w->poll, UV_READABLE, on_readable);
}

static void on_drained(void *arg)
{
    watch_t *w = arg;
    uv_close((uv_handle_t *)&w->poll, NULL);
    uv_close((uv_handle_t *)&w->interrupt, NULL);
    psrti_output_close(w->output);
}

static void on_interrupt(uv_signal_t *handle, int sig)
{
    watch_t *w = handle->data;
    if (w->ended) return;
    psrti_output_status(w->output, NULL);
    psrti_output_note(w->output, "%s", w->show->on_interrupt);
    w->code = PSRTI_EXIT_SIGNAL + sig;
    end_watch(w);
}

static psrt_status_t run_watch(watch_t *w)
{
    const psrti_output_params_t params = { .loop = &w->loop,
                                           .no_prefix = w->show->no_prefix,
                                           .timestamps = w->show->timestamps,
                                           .name = name_of,
                                           .pause = on_pause,
                                           .drained = on_drained,
                                           .arg = w };
    psrt_status_t st = psrti_output_create(&params, &w->output);
    if (st) return st;
    signal(SIGPIPE, SIG_IGN);
    uv_poll_init(&w->loop, &w->poll, w->fd);
    uv_poll_start(&w->poll, UV_READABLE, on_readable);
    uv_signal_init(&w->loop, &w->interrupt);
    w->poll.data = w->interrupt.data = w;
    if (w->show->on_interrupt) uv_signal_start(&w->interrupt, on_interrupt, SIGINT);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    if (!psrti_output_wait(w->output, WAIT_MS)) _exit(w->code);
    psrti_output_release(w->output);
    return w->status ? psrti_fail(w->status, "%s", w->error) : PSRT_OK;
}

psrt_status_t psrti_client_watch(const json_t *job, json_t *request,
                                 const psrti_client_show_t *show, int *code_p)
{
    watch_t *w = psrti_xcalloc(1, sizeof *w);
    w->show = show;
    psrt_status_t st = begin(job, request, &w->fd);
    if (st) goto out_free;
    if (uv_loop_init(&w->loop)) {
        st = psrti_fail(PSRT_ERR_LIMIT, "event loop: no descriptors left");
        goto out_fd;
    }
    st = run_watch(w);
    uv_loop_close(&w->loop);
    *code_p = w->code;
out_fd:
    close(w->fd);
out_free:
    json_decref(w->names);
    free(w->streams);
    free(w->buf);
    free(w);
    return st;
}
