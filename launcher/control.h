/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of a running job, by which its user asks how it is and what it is to do. Mode 0600 in
 * the job's directory; peers of other users are turned away.
 *
 * A request is a line of JSON: {"verb": ..., ...}. What comes back are lines of JSON; one with
 * "bytes": n is followed by n bytes of output. The last line has "error", or else "end". */
#ifndef PSRTI_LAUNCHER_CONTROL_H
#define PSRTI_LAUNCHER_CONTROL_H

#include <jansson.h>
#include <stddef.h>
#include <uv.h>

#include <psrt/status.h>

#define PSRTI_CONTROL_NAME "control" /* in the job's directory */

typedef struct psrti_control psrti_control_t;
typedef struct psrti_watcher psrti_watcher_t; /* a peer that made a request */

/* Does what the request asks, with the functions below. ERR_*: is told to the peer. */
typedef struct psrti_control_ops {
    psrt_status_t (*request)(void *arg, psrti_watcher_t *watcher, const json_t *request);
    void *arg;
} psrti_control_ops_t;

psrt_status_t psrti_control_open(uv_loop_t *loop, const char *dir, const psrti_control_ops_t *ops,
                                 psrti_control_t **control_p);
/* Tells watchers the end and closes the loop's handles; run the loop until they are closed, then
 * release. */
void psrti_control_close(psrti_control_t *control, int code);
void psrti_control_release(psrti_control_t *control);

/* To all that watch. */
void psrti_control_output(psrti_control_t *control, size_t task, int fd, const char *data,
                          size_t len);
void psrti_control_note(psrti_control_t *control, const char *text);
void psrti_control_status(psrti_control_t *control, const char *text);
int psrti_control_is_watched(const psrti_control_t *control); /* by one that gets notes */

/* To one. The connection ends after a request that did not call psrti_watcher_follow. */
void psrti_watcher_answer(psrti_watcher_t *watcher, json_t *answer); /* takes it over */
void psrti_watcher_output(psrti_watcher_t *watcher, size_t task, int fd, const char *data,
                          size_t len);
/* From now on it gets output: of the tasks for which `tasks` is not 0, all when it is NULL (taken
 * over); and notes and the status. */
void psrti_watcher_follow(psrti_watcher_t *watcher, char *tasks, int notes);

#endif
