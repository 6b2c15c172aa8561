/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the output of all tasks: whole lines, each with the name of its task in front.
 *
 * A line of one task is never interrupted by another's. An unfinished line is shown after a while
 * without more of it, so that prompts and progress are seen; should another task write then, the
 * unfinished line is ended first. A lone \r (progress bars) ends a line too: on a terminal it stays
 * a \r, so that the next one overwrites it; elsewhere it becomes \n. \r\n and all other bytes pass
 * unchanged. */
#ifndef PSRTI_LAUNCHER_OUTPUT_H
#define PSRTI_LAUNCHER_OUTPUT_H

#include <stdarg.h>
#include <stddef.h>
#include <uv.h>

#include <psrt/status.h>

#include "launcher/logfile.h"

typedef struct psrti_output psrti_output_t;
typedef struct psrti_stream psrti_stream_t;

typedef struct psrti_output_params {
    uv_loop_t *loop;
    psrti_logfile_t *file; /* to which stdout and stderr lead; NULL: they lead elsewhere */
    int no_prefix, timestamps;
    /* Of so many tasks equal lines on stderr are told once with a count (merge.h); 0: never. */
    size_t merge_tasks;
    const char *(*name)(void *arg, size_t task);
    /* The readers of the standard streams are behind: tasks' output is not to be read until the
     * call with 0. */
    void (*pause)(void *arg, int paused);
    /* After psrti_output_finish: everything is written. */
    void (*drained)(void *arg);
    void *arg;
} psrti_output_params_t;

psrt_status_t psrti_output_create(const psrti_output_params_t *params, psrti_output_t **output_p);

/* One stream of a task; fd is STDOUT_FILENO or STDERR_FILENO. */
psrti_stream_t *psrti_output_stream(psrti_output_t *output, int fd, const char *name, size_t task);
void psrti_stream_write(psrti_stream_t *stream, const char *data, size_t len);
void psrti_stream_close(psrti_stream_t *stream); /* ends its last line */

/* Keeps the text as the last line of the terminal to which stderr leads, if it does; NULL: none. */
void psrti_output_status(psrti_output_t *output, const char *text);
int psrti_output_shows_status(const psrti_output_t *output);
/* Tells now what was counted of equal lines. */
void psrti_output_settle(psrti_output_t *output);

/* A line of the launcher itself on stderr: "psrt-launch: ...". */
void psrti_output_note(psrti_output_t *output, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Calls drained, perhaps at once, when all is written. */
void psrti_output_finish(psrti_output_t *output);
/* True when all is written within that time; for an end that did not wait for `drained`. */
int psrti_output_wait(psrti_output_t *output, unsigned timeout_ms);
/* Closes the loop's handles of it; run the loop until they are closed, then release. */
void psrti_output_close(psrti_output_t *output);
/* Only when it is drained. */
void psrti_output_release(psrti_output_t *output);

#endif
