/* SPDX-License-Identifier: Apache-2.0 */
/* Starters that reach a host by a program of its own: one that runs a command there and passes its
 * standard streams on, as ssh and srun do. */
#ifndef PSRTI_LAUNCHER_LOGIN_H
#define PSRTI_LAUNCHER_LOGIN_H

#include "launcher/remote.h"

/* The program and its arguments, to run `command`, a line for /bin/sh, on a host. All is freed. */
typedef char **psrti_login_fn(const psrti_job_t *job, unsigned host, const char *command);

psrt_status_t psrti_login_open(uv_loop_t *loop, const psrti_job_t *job,
                               const psrti_starter_events_t *events, psrti_login_fn *argv_of,
                               psrti_starter_t **starter_p);
/* The rest of a starter's table. */
void psrti_login_start(psrti_starter_t *starter, unsigned host, const void *bootstrap, size_t len);
void psrti_login_close(psrti_starter_t *starter);
void psrti_login_release(psrti_starter_t *starter);

/* The table of a backend whose agents are started so, from the name and what makes the arguments. */
#define PSRTI_LOGIN_BACKEND(backend, argv_of)                                                      \
    static psrt_status_t open_starter(uv_loop_t *loop, const psrti_job_t *job,                     \
                                      const psrti_starter_events_t *events,                        \
                                      psrti_starter_t **starter_p)                                 \
    {                                                                                              \
        return psrti_login_open(loop, job, events, argv_of, starter_p);                            \
    }                                                                                              \
    static psrt_status_t open_backend(uv_loop_t *loop, psrti_job_t *job,                           \
                                      const psrti_backend_events_t *events,                        \
                                      psrti_backend_t **backend_p)                                 \
    {                                                                                              \
        static const psrti_starter_ops_t starter = { .name = #backend,                             \
                                                     .open = open_starter,                         \
                                                     .start = psrti_login_start,                   \
                                                     .close = psrti_login_close,                   \
                                                     .release = psrti_login_release };             \
        return psrti_remote_open(loop, job, events, &starter, backend_p);                          \
    }                                                                                              \
    const psrti_backend_ops_t psrti_backend_##backend = { .name = #backend,                        \
                                                          .open = open_backend,                    \
                                                          .start = psrti_remote_start,             \
                                                          .stop = psrti_remote_stop,               \
                                                          .signal = psrti_remote_signal,           \
                                                          .reach = psrti_remote_reach,             \
                                                          .pause = psrti_remote_pause,             \
                                                          .close = psrti_remote_close,             \
                                                          .release = psrti_remote_release }

#endif
