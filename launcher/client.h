/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to running jobs: the other end of control.h. */
#ifndef PSRTI_LAUNCHER_CLIENT_H
#define PSRTI_LAUNCHER_CLIENT_H

#include <jansson.h>

#include <psrt/status.h>

/* The user's job of that id or name; NULL: the only one that runs. ERR_NOT_FOUND lists them. */
psrt_status_t psrti_client_find(const char *which, json_t **job_p);
int psrti_client_is_alive(const json_t *job);

/* Sends the request (taken over) and waits for the answer; *answer_p is NULL when it is only that it
 * was done. */
psrt_status_t psrti_client_ask(const json_t *job, json_t *request, json_t **answer_p);

/* Sends the request (taken over) and shows the output that comes back until the end; *code_p: that of
 * the job, 0 when it goes on. */
typedef struct psrti_client_show {
    int no_prefix, timestamps;
    const char *on_interrupt; /* NULL: SIGINT ends the process; else what is said then */
} psrti_client_show_t;
psrt_status_t psrti_client_watch(const json_t *job, json_t *request,
                                 const psrti_client_show_t *show, int *code_p);

#endif
