/* SPDX-License-Identifier: Apache-2.0 */
/* The same job as a file for another system: `psrt-launch render marathon|k8s|slurm`. Nothing is
 * submitted. The texts of a task (command, environment) are those of every backend (contract.h); here
 * the addresses in them are names that the other system gives. */
#ifndef PSRTI_LAUNCHER_RENDER_RENDER_H
#define PSRTI_LAUNCHER_RENDER_RENDER_H

#include <jansson.h>
#include <stdio.h>

#include "launcher/contract.h"
#include "launcher/job.h"
#include "launcher/options.h"

typedef struct psrti_render_params {
    const char *dns_domain; /* marathon: of Mesos-DNS; default marathon.mesos */
    const char
        *marathon_url; /* marathon: whoever ends the job deletes the group there; NULL: nobody */
    const char *kube_namespace; /* k8s; NULL: that of the one who applies it */
    const char *secret; /* the name of an existing secret with the job's key; NULL: k8s makes one */
    const char *image;  /* of roles without one; NULL: that of the first role that has one */
    char **words;       /* slurm: those that describe the job */
    unsigned base_port; /* the first of the job's ports */
    int jobset;         /* k8s: a JobSet in place of Jobs */
} psrti_render_params_t;

/* What `psrt-launch render KIND ...` asks for. */
typedef struct psrti_render {
    psrt_status_t (*run)(psrti_job_t *job, const psrti_render_params_t *params, FILE *out);
    psrti_render_params_t params; /* its texts point into argv */
    psrti_verb_flags_t flags;
} psrti_render_t;

#define PSRTI_RENDER_FLAGS 7
extern const psrti_flag_t psrti_render_flags[PSRTI_RENDER_FLAGS];

/* Takes "render" and the kind out of argv; what is left describes the job, and psrti_options_parse gives `render` its
 * flags. Where help was asked for there may be no kind. ERR_INVALID says what is allowed. */
psrt_status_t psrti_render_options(int *argc, char **argv, psrti_render_t *render);
void psrti_render_clear(psrti_render_t *render);

/* Each writes a whole file to `out`. ERR_INVALID: the description has something that the other system
 * cannot do, and which; nothing was written. */
psrt_status_t psrti_render_marathon(psrti_job_t *job, const psrti_render_params_t *params,
                                    FILE *out);
psrt_status_t psrti_render_k8s(psrti_job_t *job, const psrti_render_params_t *params, FILE *out);
psrt_status_t psrti_render_slurm(psrti_job_t *job, const psrti_render_params_t *params, FILE *out);

/* ---- what they share ------------------------------------------------------------------------- */

#define PSRTI_RENDER_KEY_DIR "/psrt"
#define PSRTI_RENDER_KEY_FILE PSRTI_RENDER_KEY_DIR "/key"

/* True when the job uses libpsrt: it has a coordinator and needs a key. */
int psrti_render_has_key(const psrti_job_t *job);
/* Lower case, digits and '-', as names of hosts are; ERR_INVALID says what of `text` is not. */
psrt_status_t psrti_render_check_label(const char *what, const char *text, size_t max);

/* Forgets the hosts of the plan; then each task gets one of its own, by the name that the other system
 * gives it, and its ports from *port on. Of a coordinator: the job's address too. */
void psrti_render_clear_places(psrti_job_t *job);
psrt_status_t psrti_render_place(psrti_job_t *job, psrti_task_t *t, const char *host,
                                 unsigned *port);

/* What a task runs, with its place filled in. The environment lacks what is of this host. */
typedef struct psrti_render_text {
    psrti_launch_t launch; /* argv and directory */
    json_t *env;           /* name: value */
} psrti_render_text_t;

psrt_status_t psrti_render_text(const psrti_job_t *job, const psrti_task_t *t,
                                psrti_render_text_t *text);
void psrti_render_text_clear(psrti_render_text_t *text);

/* The image of a role; NULL: it has none, and no other role has. */
const char *psrti_render_image(const psrti_job_t *job, const psrti_render_params_t *params,
                               const psrti_role_t *role);
/* `argv` as one line for /bin/sh. The caller frees it. */
char *psrti_render_quote(char *const *argv);
uint64_t psrti_render_grace_s(const psrti_job_t *job, const psrti_role_t *role);

#endif
