/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "launcher/env.h"

typedef struct chunk {
    char *data;
    size_t len, capacity;
} chunk_t;

struct psrti_sink {
    int fd;
    psrti_logfile_t *file; /* NULL: none */
    void (*wake)(void *arg);
    void *arg;
    uv_thread_t thread;
    uv_mutex_t lock; /* of what follows */
    uv_cond_t filled;
    chunk_t pending;
    size_t writing; /* bytes that the thread has taken */
    int closing, failed, error;
};

static int write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd ready = { .fd = fd, .events = POLLOUT };
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static int write_out(psrti_sink_t *sink, const char *data, size_t len)
{
    if (!sink->file) return write_all(sink->fd, data, len);
    return psrti_logfile_write(sink->file, data, len) ? EIO : 0;
}

static void run(void *arg)
{
    psrti_sink_t *sink = arg;
    chunk_t mine = { 0 };
    uv_mutex_lock(&sink->lock);
    for (;;) {
        while (!sink->pending.len && !sink->closing)
            uv_cond_wait(&sink->filled, &sink->lock);
        if (!sink->pending.len) break;
        chunk_t empty = mine;
        mine = sink->pending;
        sink->pending = empty;
        sink->writing = mine.len;
        uv_mutex_unlock(&sink->lock);
        int error = write_out(sink, mine.data, mine.len);
        mine.len = 0;
        uv_mutex_lock(&sink->lock);
        sink->writing = 0;
        if (error) {
            sink->failed = 1;
            sink->error = error;
            sink->pending.len = 0;
        }
        sink->wake(sink->arg);
    }
    uv_mutex_unlock(&sink->lock);
    free(mine.data);
}

psrti_sink_t *psrti_sink_open(int fd, psrti_logfile_t *file, void (*wake)(void *arg), void *arg)
{
    psrti_sink_t *sink = psrti_xcalloc(1, sizeof *sink);
    sink->fd = fd;
    sink->file = file;
    sink->wake = wake;
    sink->arg = arg;
    int ok = !uv_mutex_init(&sink->lock);
    if (ok && uv_cond_init(&sink->filled)) {
        uv_mutex_destroy(&sink->lock);
        ok = 0;
    }
    if (ok && uv_thread_create(&sink->thread, run, sink)) {
        uv_cond_destroy(&sink->filled);
        uv_mutex_destroy(&sink->lock);
        ok = 0;
    }
    if (ok) return sink;
    free(sink);
    return NULL;
}

void psrti_sink_put(psrti_sink_t *sink, const void *data, size_t len)
{
    if (!len) return;
    uv_mutex_lock(&sink->lock);
    chunk_t *to = &sink->pending;
    if (!sink->failed) {
        if (to->len + len > to->capacity) {
            to->capacity = 2 * (to->len + len);
            to->data = psrti_xrealloc(to->data, to->capacity);
        }
        memcpy(to->data + to->len, data, len);
        to->len += len;
        uv_cond_signal(&sink->filled);
    }
    uv_mutex_unlock(&sink->lock);
}

size_t psrti_sink_backlog(psrti_sink_t *sink)
{
    uv_mutex_lock(&sink->lock);
    size_t len = sink->pending.len + sink->writing;
    uv_mutex_unlock(&sink->lock);
    return len;
}

int psrti_sink_take_error(psrti_sink_t *sink)
{
    uv_mutex_lock(&sink->lock);
    int error = sink->error;
    sink->error = 0;
    uv_mutex_unlock(&sink->lock);
    return error;
}

void psrti_sink_close(psrti_sink_t *sink)
{
    if (!sink) return;
    uv_mutex_lock(&sink->lock);
    sink->closing = 1;
    uv_cond_signal(&sink->filled);
    uv_mutex_unlock(&sink->lock);
    uv_thread_join(&sink->thread);
    uv_cond_destroy(&sink->filled);
    uv_mutex_destroy(&sink->lock);
    free(sink->pending.data);
    free(sink);
}
