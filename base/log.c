/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

#define LINE_MAX_BYTES 1024
#define NAME_MAX_BYTES 64
#define LEVEL_UNREAD (-1)

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static atomic_int log_level = LEVEL_UNREAD;

/* Guards the sink, its argument and the name. Not held while a sink runs. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static psrt_log_fn sink_fn;
static void *sink_arg;
static char process_name[NAME_MAX_BYTES];

static __thread char last_error[PSRTI_ERROR_MAX];

/* An illegal value counts as the default here; psrti_config_create is who reports it. */
static int level_from_environment(void)
{
    const char *text = getenv("PSRT_LOG_LEVEL");
    for (size_t i = 0; text && i < PSRTI_COUNT(level_names); i++)
        if (!strcmp(text, level_names[i])) return (int)i;
    return PSRT_LOG_WARN;
}

int psrti_log_level(void)
{
    int level = atomic_load_explicit(&log_level, memory_order_relaxed);
    if (level != LEVEL_UNREAD) return level;
    /* A level that was set meanwhile wins. */
    int read_level = level_from_environment();
    if (atomic_compare_exchange_strong(&log_level, &level, read_level)) return read_level;
    return level;
}

void psrti_log_set_level(psrt_log_level_t level) { atomic_store(&log_level, (int)level); }

void psrti_log_set_name(const char *name)
{
    pthread_mutex_lock(&sink_lock);
    snprintf(process_name, sizeof(process_name), "%s", name);
    pthread_mutex_unlock(&sink_lock);
}

void psrt_log_set_sink(psrt_log_fn fn, void *arg)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = fn;
    sink_arg = arg;
    pthread_mutex_unlock(&sink_lock);
}

/* One write, so that lines of several threads and processes do not mix. */
static void write_stderr(psrt_log_level_t level, const char *line)
{
    char out[LINE_MAX_BYTES + 32];
    int len = snprintf(out, sizeof(out), "psrt [%s] %s\n", level_names[level], line);
    ssize_t written;
    do {
        written = write(STDERR_FILENO, out, (size_t)len);
    } while (written < 0 && errno == EINTR);
}

/* Text may come from peers and files: it must stay one line and not steer a terminal. */
static void make_printable(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < 0x20 || *line == 0x7f) *line = *line == '\t' ? ' ' : '?';
}

void psrti_log_write(psrt_log_level_t level, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[LINE_MAX_BYTES], line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);

    pthread_mutex_lock(&sink_lock);
    psrt_log_fn fn = sink_fn;
    void *arg = sink_arg;
    size_t pos = 0;
    if (process_name[0]) psrti_append(line, sizeof(line), &pos, "%s: ", process_name);
    pthread_mutex_unlock(&sink_lock);

    psrti_append(line, sizeof(line), &pos, "%s", text);
    make_printable(line);
    if (fn)
        fn(arg, level, line);
    else
        write_stderr(level, line);
    errno = saved_errno;
}

const char *psrt_last_error(void) { return last_error; }

psrt_status_t psrti_vfail(psrt_status_t status, const char *fmt, va_list ap)
{
    int saved_errno = errno;
    char text[PSRTI_ERROR_MAX]; /* the arguments may hold the previous text */
    vsnprintf(text, sizeof(text), fmt, ap);
    memcpy(last_error, text, strlen(text) + 1);
    errno = saved_errno;
    return status;
}

#undef psrti_fail /* see log.h */
psrt_status_t psrti_fail(psrt_status_t status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    psrti_vfail(status, fmt, ap);
    va_end(ap);
    return status;
}

void psrti_fail_text(const char *text) { psrti_fail(PSRT_OK, "%s", text); }
