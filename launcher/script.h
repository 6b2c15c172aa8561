/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program of the user's for what it prints, within a time and a size. Nothing of it is left
 * when it has ended or its time is up, nor when the launcher is killed: a keeper stands between both
 * that ends all that the program started. */
#ifndef PSRTI_LAUNCHER_SCRIPT_H
#define PSRTI_LAUNCHER_SCRIPT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include <psrt/status.h>

#define PSRTI_SCRIPT_OUTPUT_MAX (1 << 20) /* bytes */

/* OK: all that it printed, valid during the call; else psrt_last_error tells what went wrong. The
 * script may be started again from a later turn of the loop. */
typedef void psrti_script_done_fn(void *arg, psrt_status_t st, const char *text, size_t len);

typedef struct psrti_script {
    uv_loop_t *loop;
    const char *path; /* as the user gave it; not looked for in PATH */
    uint64_t limit_ms;
    psrti_script_done_fn *done;
    void *arg;

    /* Its own. */
    pid_t keeper;    /* 0: does not run */
    int *exec_error; /* shared with it: errno, when it could not be run */
    int stopping, too_long, too_late;
    uv_pipe_t out;
    uv_signal_t child;
    uv_timer_t limit;
    char *text;
    size_t len, capacity;
} psrti_script_t;

/* ERR_INVALID says why it cannot be run. */
psrt_status_t psrti_script_check(const char *path);

/* With the first five members filled in; once for each script. */
void psrti_script_init(psrti_script_t *script);
/* ERR_LIMIT: the system gives no process. Standard input is empty, standard error the launcher's. */
psrt_status_t psrti_script_start(psrti_script_t *script);
/* Ends what runs, untold, and closes the handles; run the loop, then release. */
void psrti_script_close(psrti_script_t *script);
void psrti_script_release(psrti_script_t *script);

#endif
