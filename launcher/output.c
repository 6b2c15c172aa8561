/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "launcher/env.h"
#include "launcher/merge.h"
#include "launcher/sink.h"

#define TICK_MS 50
/* How long an unfinished line is held. Lines in files are to stay whole, a person at a terminal is
 * to see the prompt. */
#define HOLD_TERMINAL_MS 100
#define HOLD_MS 2000
/* Longer lines are passed on in pieces. */
#define HOLD_MAX (16u << 20)
#define BACKLOG_HIGH (1u << 20)
#define BACKLOG_LOW (256u << 10)

/* What stdout or stderr leads to; both are one target when they are the same file. */
typedef struct target {
    psrti_sink_t *sink;
    int fd, is_terminal, colour, moves; /* moves: knows how to erase a line */
    psrti_stream_t *open;               /* has an unfinished line there */
    int redraw;       /* and that line ended with \r: the cursor is at its start */
    int shows_status; /* the cursor is behind it */
} target_t;

struct psrti_stream {
    psrti_list_t node;
    psrti_output_t *output;
    target_t *target;
    size_t task;
    int is_err;
    char *prefix;
    char *held; /* read, but not passed on */
    size_t held_len, held_capacity;
    uint64_t held_since; /* loop time of the last bytes */
};

struct psrti_output {
    psrti_output_params_t params;
    target_t targets[2], *err;
    size_t target_count;
    psrti_list_t streams;
    uv_timer_t tick;
    uv_async_t wake;
    psrti_merge_t *merge; /* NULL: not wanted */
    char *status;
    time_t stamp_second;
    char stamp[32]; /* of that second */
    int paused, finishing;
};

static void tick(uv_timer_t *timer);

/* ---- lines to targets ------------------------------------------------------------------------ */

static void put(target_t *target, const char *data, size_t len)
{
    psrti_sink_put(target->sink, data, len);
}

static void put_timestamp(psrti_output_t *output, target_t *target)
{
    struct timespec now;
    char text[48];
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != output->stamp_second) {
        struct tm parts;
        localtime_r(&now.tv_sec, &parts);
        strftime(output->stamp, sizeof output->stamp, "%Y-%m-%dT%H:%M:%S", &parts);
        output->stamp_second = now.tv_sec;
    }
    int len = snprintf(text, sizeof text, "%s.%03ld ", output->stamp, now.tv_nsec / 1000000);
    put(target, text, (size_t)len);
}

static void erase_status(target_t *target)
{
    if (target->shows_status) put(target, "\r\033[K", 4);
    target->shows_status = 0;
}

/* Brings the target to where `stream` may go on; NULL: the launcher itself. */
static void begin(psrti_output_t *output, target_t *target, psrti_stream_t *stream)
{
    erase_status(target);
    if (target->open && target->open != stream) {
        put(target, "\n", 1);
        target->open = NULL;
    }
    if (!target->open || target->redraw) {
        if (output->params.timestamps) put_timestamp(output, target);
        if (stream) put(target, stream->prefix, strlen(stream->prefix));
    }
    target->redraw = 0;
}

static void pass_part(psrti_stream_t *stream, const char *data, size_t len)
{
    begin(stream->output, stream->target, stream);
    put(stream->target, data, len);
    stream->target->open = stream;
}

static void want_tick(psrti_output_t *output)
{
    if (!uv_is_active((uv_handle_t *)&output->tick))
        uv_timer_start(&output->tick, tick, TICK_MS, TICK_MS);
}

/* `len` counts the newline. */
static void pass_line(psrti_stream_t *stream, const char *data, size_t len)
{
    psrti_output_t *output = stream->output;
    if (output->merge && stream->is_err && stream->target->open != stream) {
        want_tick(output);
        if (psrti_merge_line(output->merge, uv_now(output->params.loop), stream->task, data,
                             len - 1))
            return;
    }
    begin(output, stream->target, stream);
    put(stream->target, data, len);
    stream->target->open = NULL;
}

/* A segment that ends with a lone \r, which `len` does not count. */
static void pass_redraw(psrti_stream_t *stream, const char *data, size_t len)
{
    target_t *target = stream->target;
    if (target->is_terminal) {
        pass_part(stream, data, len);
        put(target, "\r", 1);
        target->redraw = 1;
    } else if (len || target->open == stream) { /* bars start with \r: no empty lines for those */
        begin(stream->output, target, stream);
        put(target, data, len);
        put(target, "\n", 1);
        target->open = NULL;
    }
}

/* ---- bytes to lines -------------------------------------------------------------------------- */

static void drop_held(psrti_stream_t *stream, size_t len)
{
    if (!len) return;
    stream->held_len -= len;
    memmove(stream->held, stream->held + len, stream->held_len);
}

/* Passes on what is complete. A \r in the last place waits: it may belong to a \r\n. `from`: no end
 * of a line before it. */
static void pass_complete(psrti_stream_t *stream, size_t from)
{
    const char *data = stream->held;
    size_t start = 0, len = stream->held_len;
    for (size_t i = from; i < len; i++) {
        if (data[i] == '\n') {
            pass_line(stream, data + start, i + 1 - start);
            start = i + 1;
        } else if (data[i] == '\r' && i + 1 < len && data[i + 1] != '\n') {
            pass_redraw(stream, data + start, i - start);
            start = i + 1;
        }
    }
    drop_held(stream, start);
}

/* Passes on what is not. */
static void pass_held(psrti_stream_t *stream)
{
    size_t len = stream->held_len;
    if (len && stream->held[len - 1] == '\r')
        pass_redraw(stream, stream->held, len - 1);
    else if (len)
        pass_part(stream, stream->held, len);
    stream->held_len = 0;
}

/* Below all lines, and not while one is unfinished. */
static void draw_status(psrti_output_t *output)
{
    target_t *target = output->err;
    struct winsize size;
    if (!output->status || !target->moves || target->shows_status || target->open) return;
    if (psrti_sink_backlog(target->sink)) return;
    size_t len = strlen(output->status), columns = 80;
    if (!ioctl(target->fd, TIOCGWINSZ, &size) && size.ws_col) columns = size.ws_col;
    len = PSRTI_MIN(len, columns - 1);
    while (len && ((unsigned char)output->status[len] & 0xc0) == 0x80) /* no half characters */
        len--;
    put(target, output->status, len);
    target->shows_status = 1;
}

void psrti_output_status(psrti_output_t *output, const char *text)
{
    if (!output->err->moves) return;
    if (output->status && text && !strcmp(output->status, text)) return;
    free(output->status);
    output->status = text ? psrti_xstrdup(text) : NULL;
    erase_status(output->err);
    draw_status(output);
    if (text) want_tick(output);
}

int psrti_output_shows_status(const psrti_output_t *output) { return output->err->moves; }

static void tick(uv_timer_t *timer)
{
    psrti_output_t *output = timer->data;
    uint64_t now = uv_now(output->params.loop);
    int holding = output->status != NULL;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &output->streams)
    {
        psrti_stream_t *stream = PSRTI_LIST_ENTRY(it, psrti_stream_t, node);
        uint64_t hold = stream->target->is_terminal ? HOLD_TERMINAL_MS : HOLD_MS;
        if (stream->held_len && now - stream->held_since >= hold) pass_held(stream);
        holding |= stream->held_len > 0;
    }
    if (output->merge) holding |= psrti_merge_tick(output->merge, now);
    draw_status(output);
    if (!holding) uv_timer_stop(timer);
}

static void check_backlog(psrti_output_t *output)
{
    size_t backlog = 0;
    for (size_t i = 0; i < output->target_count; i++) {
        size_t one = psrti_sink_backlog(output->targets[i].sink);
        backlog = PSRTI_MAX(backlog, one);
    }
    int paused = backlog > (output->paused ? BACKLOG_LOW : BACKLOG_HIGH);
    if (paused == output->paused) return;
    output->paused = paused;
    output->params.pause(output->params.arg, paused);
}

void psrti_stream_write(psrti_stream_t *stream, const char *data, size_t len)
{
    size_t need = stream->held_len + len, from = stream->held_len;
    if (need > stream->held_capacity) {
        stream->held_capacity = 2 * need;
        stream->held = psrti_xrealloc(stream->held, stream->held_capacity);
    }
    memcpy(stream->held + stream->held_len, data, len);
    stream->held_len = need;
    stream->held_since = uv_now(stream->output->params.loop);
    pass_complete(stream, from ? from - 1 : 0);
    if (stream->held_len > HOLD_MAX) pass_held(stream);
    if (stream->held_len) want_tick(stream->output);
    check_backlog(stream->output);
}

void psrti_stream_close(psrti_stream_t *stream)
{
    if (!stream) return;
    pass_held(stream);
    if (stream->target->open == stream) {
        put(stream->target, "\n", 1);
        stream->target->open = NULL;
        stream->target->redraw = 0;
    }
    psrti_list_remove(&stream->node);
    free(stream->prefix);
    free(stream->held);
    free(stream);
}

/* ---- the launcher's side --------------------------------------------------------------------- */

static char *make_prefix(const target_t *target, const char *name, size_t hue)
{
    size_t size = strlen(name) + sizeof "\033[31m[]\033[0m ";
    char *text = psrti_xcalloc(size, 1);
    if (target->colour)
        snprintf(text, size, "\033[%dm[%s]\033[0m ", 31 + (int)(hue % 6), name);
    else
        snprintf(text, size, "[%s] ", name);
    return text;
}

psrti_stream_t *psrti_output_stream(psrti_output_t *output, int fd, const char *name, size_t task)
{
    psrti_stream_t *stream = psrti_xcalloc(1, sizeof *stream);
    stream->output = output;
    stream->task = task;
    stream->is_err = fd == STDERR_FILENO;
    stream->target = fd == STDERR_FILENO ? output->err : &output->targets[0];
    stream->prefix =
        output->params.no_prefix ? psrti_xstrdup("") : make_prefix(stream->target, name, task);
    psrti_list_push(&output->streams, &stream->node);
    return stream;
}

void psrti_output_note(psrti_output_t *output, const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (len < 0) return;
    begin(output, output->err, NULL);
    put(output->err, "psrt-launch: ", 13);
    put(output->err, text, (size_t)len);
    put(output->err, "\n", 1);
    free(text);
}

static void tell_merged(void *arg, const char *text) { psrti_output_note(arg, "%s", text); }

static const char *name_of(void *arg, size_t task)
{
    psrti_output_t *output = arg;
    return output->params.name(output->params.arg, task);
}

void psrti_output_settle(psrti_output_t *output)
{
    if (output->merge) psrti_merge_flush(output->merge);
}

static int is_drained(psrti_output_t *output)
{
    for (size_t i = 0; i < output->target_count; i++)
        if (psrti_sink_backlog(output->targets[i].sink)) return 0;
    return 1;
}

int psrti_output_wait(psrti_output_t *output, unsigned timeout_ms)
{
    for (unsigned waited = 0; !is_drained(output); waited++) {
        if (waited >= timeout_ms) return 0;
        uv_sleep(1);
    }
    return 1;
}

static void check_drained(psrti_output_t *output)
{
    if (!output->finishing || !is_drained(output)) return;
    output->finishing = 0;
    output->params.drained(output->params.arg);
}

void psrti_output_finish(psrti_output_t *output)
{
    psrti_output_settle(output);
    psrti_output_status(output, NULL);
    output->finishing = 1;
    check_drained(output);
}

/* A reader that went away (`| head`) does not end a training run: the rest is dropped. */
static void check_errors(psrti_output_t *output)
{
    for (size_t i = 0; i < output->target_count; i++) {
        target_t *target = &output->targets[i];
        int error = psrti_sink_take_error(target->sink);
        if (error && target != output->err)
            psrti_output_note(output, "stdout: %s; further output is dropped", strerror(error));
    }
}

static void on_wake(uv_async_t *wake)
{
    psrti_output_t *output = wake->data;
    check_errors(output);
    check_backlog(output);
    check_drained(output);
}

static void wake_loop(void *arg) { uv_async_send(&((psrti_output_t *)arg)->wake); }

static int same_file(int a, int b)
{
    struct stat x, y;
    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static psrt_status_t open_target(psrti_output_t *output, int fd)
{
    target_t *target = &output->targets[output->target_count];
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    target->fd = fd;
    target->is_terminal = isatty(fd);
    target->moves = target->is_terminal && term && strcmp(term, "dumb") != 0;
    target->colour = target->moves && !(no_colour && *no_colour);
    target->sink = psrti_sink_open(fd, output->params.file, wake_loop, output);
    if (!target->sink) return psrti_fail(PSRT_ERR_LIMIT, "output: cannot start a thread");
    output->target_count++;
    output->err = target;
    return PSRT_OK;
}

psrt_status_t psrti_output_create(const psrti_output_params_t *params, psrti_output_t **output_p)
{
    psrti_output_t *output = psrti_xcalloc(1, sizeof *output);
    output->params = *params;
    psrti_list_init(&output->streams);
    uv_timer_init(params->loop, &output->tick);
    output->tick.data = output;
    if (uv_async_init(params->loop, &output->wake, on_wake)) {
        uv_close((uv_handle_t *)&output->tick, NULL);
        uv_run(params->loop, UV_RUN_NOWAIT);
        free(output);
        return psrti_fail(PSRT_ERR_LIMIT, "output: no descriptors left");
    }
    output->wake.data = output;
    psrt_status_t st = open_target(output, STDOUT_FILENO);
    if (!st && !same_file(STDOUT_FILENO, STDERR_FILENO)) st = open_target(output, STDERR_FILENO);
    if (!st) {
        if (params->merge_tasks)
            output->merge = psrti_merge_create(params->merge_tasks, name_of, tell_merged, output);
        *output_p = output;
        return PSRT_OK;
    }
    psrti_output_close(output);
    uv_run(params->loop, UV_RUN_NOWAIT);
    psrti_output_release(output);
    return st;
}

void psrti_output_close(psrti_output_t *output)
{
    uv_close((uv_handle_t *)&output->tick, NULL);
    uv_close((uv_handle_t *)&output->wake, NULL);
}

void psrti_output_release(psrti_output_t *output)
{
    for (size_t i = 0; i < output->target_count; i++)
        psrti_sink_close(output->targets[i].sink);
    psrti_merge_destroy(output->merge);
    free(output->status);
    free(output);
}
