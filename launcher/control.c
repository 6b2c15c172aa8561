/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "launcher/env.h"

#define REQUEST_MAX 4096
/* A watcher that reads too slowly loses output and is told how much: the job does not wait for it. */
#define QUEUE_MAX (8u << 20)
#define FAREWELL_MS 2000 /* for the rest of it when the job has ended */

struct psrti_watcher {
    psrti_list_t node;
    psrti_control_t *control;
    uv_pipe_t pipe;
    char request[REQUEST_MAX];
    size_t request_len, lost;
    int asked, follows, notes;
    char *tasks; /* NULL: all */
};

struct psrti_control {
    psrti_control_ops_t ops;
    uv_loop_t *loop;
    uv_pipe_t pipe;
    uv_timer_t farewell;
    psrti_list_t watchers;
    int closing;
};

typedef struct sending {
    uv_write_t write;
    psrti_watcher_t *watcher;
    int last;
    char data[];
} sending_t;

/* ---- peers ----------------------------------------------------------------------------------- */

static void close_when_alone(psrti_control_t *control)
{
    uv_handle_t *farewell = (uv_handle_t *)&control->farewell;
    if (control->closing && psrti_list_empty(&control->watchers) && !uv_is_closing(farewell))
        uv_close(farewell, NULL);
}

static void on_closed(uv_handle_t *handle)
{
    psrti_watcher_t *w = handle->data;
    psrti_list_remove(&w->node);
    close_when_alone(w->control);
    free(w->tasks);
    free(w);
}

static void hang_up(psrti_watcher_t *w)
{
    if (!uv_is_closing((uv_handle_t *)&w->pipe)) uv_close((uv_handle_t *)&w->pipe, on_closed);
}

static void on_sent(uv_write_t *write, int status)
{
    sending_t *sending = write->data;
    if (status || sending->last) hang_up(sending->watcher);
    free(sending);
}

static void send_bytes(psrti_watcher_t *w, const char *head, const char *data, size_t len, int last)
{
    size_t head_len = strlen(head);
    if (uv_is_closing((uv_handle_t *)&w->pipe)) return;
    sending_t *sending = psrti_xrealloc(NULL, sizeof *sending + head_len + len);
    *sending = (sending_t){ .watcher = w, .last = last };
    sending->write.data = sending;
    memcpy(sending->data, head, head_len);
    if (len) memcpy(sending->data + head_len, data, len);
    uv_buf_t buf = uv_buf_init(sending->data, (unsigned)(head_len + len));
    if (!uv_write(&sending->write, (uv_stream_t *)&w->pipe, &buf, 1, on_sent)) return;
    free(sending);
    hang_up(w);
}

static void send_json(psrti_watcher_t *w, json_t *json, int last)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    size_t len = text ? strlen(text) : 0;
    if (text) {
        text = psrti_xrealloc(text, len + 2);
        memcpy(text + len, "\n", 2);
    }
    send_bytes(w, text ? text : "{\"error\":\"text that is not UTF-8\"}\n", NULL, 0, last || !text);
    free(text);
}

static void refuse(psrti_watcher_t *w, const char *text)
{
    send_json(w, json_pack("{s:s}", "error", text), 1);
}

void psrti_watcher_answer(psrti_watcher_t *w, json_t *answer) { send_json(w, answer, 0); }

void psrti_watcher_output(psrti_watcher_t *w, size_t task, int fd, const char *data, size_t len)
{
    char head[96];
    if (uv_stream_get_write_queue_size((uv_stream_t *)&w->pipe) + len > QUEUE_MAX) {
        w->lost += len;
        return;
    }
    if (w->lost) send_json(w, json_pack("{s:I}", "lost", (json_int_t)w->lost), 0);
    w->lost = 0;
    snprintf(head, sizeof head, "{\"task\":%zu,\"fd\":%d,\"bytes\":%zu}\n", task, fd, len);
    send_bytes(w, head, data, len, 0);
}

void psrti_watcher_follow(psrti_watcher_t *w, char *tasks, int notes)
{
    free(w->tasks);
    w->tasks = tasks;
    w->follows = 1;
    w->notes = notes;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void take_request(psrti_watcher_t *w)
{
    json_t *request = json_loadb(w->request, w->request_len, 0, NULL);
    w->asked = 1;
    if (!json_is_object(request)) {
        refuse(w, "not a request");
    } else {
        psrt_status_t st = w->control->ops.request(w->control->ops.arg, w, request);
        if (st)
            refuse(w, psrt_last_error());
        else if (!w->follows)
            send_json(w, json_pack("{s:n}", "end"), 1);
    }
    json_decref(request);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    psrti_watcher_t *w = handle->data;
    *buf = uv_buf_init(w->request + w->request_len, (unsigned)(REQUEST_MAX - w->request_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    psrti_watcher_t *w = stream->data;
    if (!n) return;
    if (n < 0 || w->asked) {
        hang_up(w); /* its end, or more than one request */
        return;
    }
    const char *end = memchr(buf->base, '\n', (size_t)n);
    w->request_len += (size_t)n;
    if (end)
        take_request(w);
    else if (w->request_len == REQUEST_MAX)
        refuse(w, "the request is too long");
}

static int is_ours(const uv_pipe_t *pipe)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    int fd;
    return !uv_fileno((const uv_handle_t *)pipe, &fd) &&
           !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void on_connection(uv_stream_t *server, int status)
{
    psrti_control_t *control = server->data;
    if (status) return;
    psrti_watcher_t *w = psrti_xcalloc(1, sizeof *w);
    w->control = control;
    uv_pipe_init(control->loop, &w->pipe, 0);
    w->pipe.data = w;
    psrti_list_push(&control->watchers, &w->node);
    if (uv_accept(server, (uv_stream_t *)&w->pipe) || !is_ours(&w->pipe) ||
        uv_read_start((uv_stream_t *)&w->pipe, on_alloc, on_read))
        hang_up(w);
}

/* ---- the job's side -------------------------------------------------------------------------- */

void psrti_control_output(psrti_control_t *control, size_t task, int fd, const char *data,
                          size_t len)
{
    if (!control) return;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &control->watchers)
    {
        psrti_watcher_t *w = PSRTI_LIST_ENTRY(it, psrti_watcher_t, node);
        if (w->follows && (!w->tasks || w->tasks[task]))
            psrti_watcher_output(w, task, fd, data, len);
    }
}

static void send_text(psrti_control_t *control, const char *name, const char *text)
{
    if (!control) return;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &control->watchers)
    {
        psrti_watcher_t *w = PSRTI_LIST_ENTRY(it, psrti_watcher_t, node);
        if (uv_stream_get_write_queue_size((uv_stream_t *)&w->pipe) > QUEUE_MAX) continue;
        json_t *json = w->follows && w->notes ? json_pack("{s:s}", name, text) : NULL;
        if (json) send_json(w, json, 0);
    }
}

void psrti_control_note(psrti_control_t *control, const char *text)
{
    send_text(control, "note", text);
}

void psrti_control_status(psrti_control_t *control, const char *text)
{
    send_text(control, "status", text);
}

int psrti_control_is_watched(const psrti_control_t *control)
{
    if (!control) return 0;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &control->watchers)
    if (PSRTI_LIST_ENTRY(it, psrti_watcher_t, node)->notes) return 1;
    return 0;
}

psrt_status_t psrti_control_open(uv_loop_t *loop, const char *dir, const psrti_control_ops_t *ops,
                                 psrti_control_t **control_p)
{
    char path[4096];
    psrti_control_t *control = psrti_xcalloc(1, sizeof *control);
    control->ops = *ops;
    control->loop = loop;
    psrti_list_init(&control->watchers);
    snprintf(path, sizeof path, "%s/" PSRTI_CONTROL_NAME, dir);
    uv_pipe_init(loop, &control->pipe, 0);
    uv_timer_init(loop, &control->farewell);
    control->pipe.data = control->farewell.data = control;
    int error = uv_pipe_bind(&control->pipe, path);
    if (!error) error = chmod(path, 0600) ? UV_EPERM : 0;
    if (!error) error = uv_listen((uv_stream_t *)&control->pipe, 16, on_connection);
    *control_p = control;
    return error ? psrti_fail(PSRT_ERR_IO, "%s: %s", path, uv_strerror(error)) : PSRT_OK;
}

static void on_farewell(uv_timer_t *timer)
{
    psrti_control_t *control = timer->data;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &control->watchers)
    hang_up(PSRTI_LIST_ENTRY(it, psrti_watcher_t, node));
}

void psrti_control_close(psrti_control_t *control, int code)
{
    if (!control) return;
    control->closing = 1;
    uv_close((uv_handle_t *)&control->pipe, NULL);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &control->watchers)
    {
        psrti_watcher_t *w = PSRTI_LIST_ENTRY(it, psrti_watcher_t, node);
        if (w->follows)
            send_json(w, json_pack("{s:i}", "end", code), 1);
        else
            hang_up(w);
    }
    uv_timer_start(&control->farewell, on_farewell, FAREWELL_MS, 0);
    close_when_alone(control);
}

void psrti_control_release(psrti_control_t *control) { free(control); }
