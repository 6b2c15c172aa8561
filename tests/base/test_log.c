/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "support/test.h"

typedef struct capture {
    char line[2048];
    int level;
    atomic_int lines;
} capture_t;

/* For one thread at a time. */
static void keep_line(void *arg, psrt_log_level_t level, const char *line)
{
    capture_t *capture = arg;
    snprintf(capture->line, sizeof(capture->line), "%s", line);
    capture->level = (int)level;
    atomic_fetch_add(&capture->lines, 1);
}

static void count_line(void *arg, psrt_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
    atomic_fetch_add((atomic_int *)arg, 1);
}

Test(log, level_is_read_once)
{
    setenv("PSRT_LOG_LEVEL", "info", 1);
    cr_assert_eq(psrti_log_level(), PSRT_LOG_INFO);
    setenv("PSRT_LOG_LEVEL", "debug", 1);
    cr_assert_eq(psrti_log_level(), PSRT_LOG_INFO);
    psrti_log_set_level(PSRT_LOG_ERROR);
    cr_assert_eq(psrti_log_level(), PSRT_LOG_ERROR);
}

Test(log, level_defaults_to_warn)
{
    unsetenv("PSRT_LOG_LEVEL");
    cr_assert_eq(psrti_log_level(), PSRT_LOG_WARN);
}

Test(log, illegal_level_counts_as_the_default)
{
    setenv("PSRT_LOG_LEVEL", "loud", 1);
    cr_assert_eq(psrti_log_level(), PSRT_LOG_WARN);
}

Test(log, sink_gets_lines_up_to_the_level)
{
    capture_t capture = { .lines = 0 };
    psrti_log_set_level(PSRT_LOG_WARN);
    psrt_log_set_sink(keep_line, &capture);
    psrti_info("not this");
    cr_assert_eq(capture.lines, 0);
    psrti_warn("peer %s: %d", "server:1", 7);
    cr_assert_eq(capture.lines, 1);
    cr_assert_eq(capture.level, PSRT_LOG_WARN);
    cr_assert_str_eq(capture.line, "peer server:1: 7");
    psrti_log_set_name("worker:3");
    psrti_error("that");
    cr_assert_eq(capture.level, PSRT_LOG_ERROR);
    cr_assert_str_eq(capture.line, "worker:3: that");
}

Test(log, text_stays_one_printable_line)
{
    capture_t capture = { .lines = 0 };
    psrt_log_set_sink(keep_line, &capture);
    psrti_error("a\nb\rc\x1b[2Jd\te\xc3\xa9");
    cr_assert_str_eq(capture.line, "a?b?c?[2Jd e\xc3\xa9");
    char text[5000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    psrti_error("%s", text);
    cr_assert_eq(capture.lines, 2);
    cr_assert(strlen(capture.line) > 500);
}

Test(log, errno_is_kept)
{
    capture_t capture = { .lines = 0 };
    psrt_log_set_sink(keep_line, &capture);
    errno = ENOENT;
    psrti_error("open: %m");
    cr_assert_eq(errno, ENOENT);
    cr_assert_str_eq(capture.line, "open: No such file or directory");
    psrti_fail(PSRT_ERR_IO, "read: %m");
    cr_assert_eq(errno, ENOENT);
}

/* What `body` writes to standard error. */
static size_t read_stderr(void (*body)(void), char *out, size_t size)
{
    int ends[2], saved = dup(STDERR_FILENO);
    cr_assert_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    body();
    dup2(saved, STDERR_FILENO);
    close(saved);
    size_t len = 0;
    for (ssize_t n; (n = read(ends[0], out + len, size - 1 - len)) > 0;)
        len += (size_t)n;
    close(ends[0]);
    out[len] = '\0';
    return len;
}

static void log_three(void)
{
    psrti_warn("text");
    psrti_log_set_name("worker:1");
    psrti_warn("text");
    psrti_error("%s", "x\n");
}

Test(log, default_sink_writes_lines_to_stderr)
{
    char out[4096];
    capture_t capture = { .lines = 0 };
    psrti_log_set_level(PSRT_LOG_WARN);
    psrt_log_set_sink(keep_line, &capture);
    psrt_log_set_sink(NULL, NULL);
    read_stderr(log_three, out, sizeof(out));
    cr_assert_str_eq(out,
                     "psrt [warn] text\npsrt [warn] worker:1: text\npsrt [error] worker:1: x?\n");
    cr_assert_eq(capture.lines, 0);
}

static void log_longest(void)
{
    char text[5000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    psrti_error("%s", text);
}

Test(log, longest_line_still_ends_in_a_newline)
{
    char out[8192];
    size_t len = read_stderr(log_longest, out, sizeof(out));
    cr_assert(len > 500 && len < 5000);
    cr_assert(strchr(out, '\n') == out + len - 1);
}

#define LOGGERS 3
#define LINES 2000

static void *log_lines(void *arg)
{
    (void)arg;
    for (int i = 0; i < LINES; i++)
        psrti_error("line %d", i);
    return NULL;
}

Test(log, sink_is_replaced_while_others_log, .timeout = 60)
{
    atomic_int counts[2] = { 0, 0 };
    pthread_t threads[LOGGERS];
    psrt_log_set_sink(count_line, &counts[0]);
    for (int i = 0; i < LOGGERS; i++)
        pthread_create(&threads[i], NULL, log_lines, NULL);
    for (int i = 0; i < 2000; i++) {
        psrt_log_set_sink(count_line, &counts[i % 2]);
        psrti_log_set_name(i % 2 ? "worker:1" : "server:0");
    }
    for (int i = 0; i < LOGGERS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(counts[0] + counts[1], LOGGERS * LINES);
}

static void *fail_elsewhere(void *arg)
{
    if (strcmp(psrt_last_error(), "") != 0) return NULL;
    psrti_fail(PSRT_ERR_IO, "elsewhere");
    return strcmp(psrt_last_error(), "elsewhere") ? NULL : arg;
}

Test(log, last_error_belongs_to_the_thread)
{
    pthread_t thread;
    void *result;
    cr_assert_str_eq(psrt_last_error(), "");
    cr_assert_eq(psrti_fail(PSRT_ERR_TIMEOUT, "table %s: %d", "fc", 3), PSRT_ERR_TIMEOUT);
    char token;
    pthread_create(&thread, NULL, fail_elsewhere, &token);
    pthread_join(thread, &result);
    cr_assert(result == &token);
    cr_assert_str_eq(psrt_last_error(), "table fc: 3");
}

Test(log, last_error_may_quote_itself_and_is_cut)
{
    psrti_fail(PSRT_ERR_IO, "inner");
    psrti_fail(PSRT_ERR_IO, "outer: %s", psrt_last_error());
    cr_assert_str_eq(psrt_last_error(), "outer: inner");
    psrti_fail_text("100%s");
    cr_assert_str_eq(psrt_last_error(), "100%s");
    psrti_fail_text(psrt_last_error());
    cr_assert_str_eq(psrt_last_error(), "100%s");
    char text[5000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    psrti_fail_text(text);
    cr_assert_eq(strlen(psrt_last_error()), PSRTI_ERROR_MAX - 1);
}
