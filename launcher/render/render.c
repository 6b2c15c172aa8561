/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/render/render.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

#define PORT_LAST 65535

int psrti_render_has_key(const psrti_job_t *job) { return !job->no_coordinator; }

psrt_status_t psrti_render_check_label(const char *what, const char *text, size_t max)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t len = strlen(text);
    if (!len || text[strspn(text, legal)] || text[0] == '-' || text[len - 1] == '-')
        return psrti_fail(
            PSRT_ERR_INVALID,
            "%s name \"%s\": there it becomes a name of hosts: use a-z, 0-9 and '-' inside", what,
            text);
    if (len > max)
        return psrti_fail(PSRT_ERR_INVALID, "%s name \"%s\": longer than %zu characters", what,
                          text, max);
    return PSRT_OK;
}

void psrti_render_clear_places(psrti_job_t *job)
{
    for (size_t i = 0; i < job->host_count; i++) {
        free(job->hosts[i].name);
        free(job->hosts[i].address);
        free(job->hosts[i].user);
    }
    job->host_count = 0;
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *t = &job->tasks[i];
        if (t->role->kind != PSRTI_KIND_COORDINATOR || t->role->ports) continue;
        t->role->ports = 1; /* elsewhere it inherits a socket */
        t->ports = psrti_xrealloc(t->ports, sizeof *t->ports);
    }
    job->dir[0] = '\0';
    snprintf(job->psrtd, sizeof job->psrtd, "psrtd"); /* of the image */
}

psrt_status_t psrti_render_place(psrti_job_t *job, psrti_task_t *t, const char *host,
                                 unsigned *port)
{
    job->hosts = psrti_xrealloc(job->hosts, (job->host_count + 1) * sizeof *job->hosts);
    job->hosts[job->host_count] =
        (psrti_host_t){ .name = psrti_xstrdup(host), .address = psrti_xstrdup(host) };
    t->host = (unsigned)job->host_count++;
    t->local_rank = 0, t->local_size = 1, t->gpu_count = 0;
    for (unsigned i = 0; i < t->role->ports; i++) {
        if (*port > PORT_LAST)
            return psrti_fail(PSRT_ERR_INVALID, "%s: no port above %d: choose a lower --base-port",
                              t->name, PORT_LAST);
        t->ports[i] = (uint16_t)(*port)++;
    }
    if (t->role->kind == PSRTI_KIND_COORDINATOR && t == &job->tasks[t->id])
        snprintf(job->coordinator, sizeof job->coordinator, "tcp://%s:%u", host, t->ports[0]);
    return PSRT_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

char *psrti_render_quote(char *const *argv)
{
    size_t size = 1;
    for (char *const *word = argv; *word; word++)
        size += 4 * strlen(*word) + 3;
    char *line = psrti_xcalloc(size, 1), *to = line;
    for (char *const *word = argv; *word; word++) {
        if (to != line) *to++ = ' ';
        *to++ = '\'';
        for (const char *c = *word; *c; c++)
            to = *c == '\'' ? stpcpy(to, "'\\''") : (*to = *c, to + 1);
        *to++ = '\'';
    }
    return line;
}

static int is_of_this_host(const char *name)
{
    static const char *const names[] = { "PSRT_JOB_DIR", "PSRT_LISTEN_FD", "PSRT_KEY_FILE",
                                         "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS" };
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        if (!strcmp(name, names[i])) return 1;
    return 0;
}

static psrt_status_t set_variable(json_t *env, const char *task, const char *entry)
{
    const char *equal = strchr(entry, '=');
    char *name = strndup(entry, (size_t)(equal - entry));
    json_t *value = json_string(equal + 1);
    psrt_status_t st = PSRT_OK;
    if (!name || !value)
        st = psrti_fail(PSRT_ERR_INVALID,
                        "%s: the value of %s is no UTF-8, which JSON and YAML need", task, name);
    else if (!is_of_this_host(name))
        json_object_set(env, name, value);
    json_decref(value);
    free(name);
    return st;
}

static psrt_status_t set_environment(const psrti_job_t *job, const psrti_task_t *t, json_t *env)
{
    psrti_env_t own = { 0 };
    psrt_status_t st = PSRT_OK;
    psrti_contract_env(job, t, &own);
    for (size_t i = 0; i < own.count && !st; i++)
        st = set_variable(env, t->name, own.entries[i]);
    psrti_env_clear(&own);
    if (st || !psrti_render_has_key(job) || t->role->kind == PSRTI_KIND_OTHER) return st;
    json_object_set_new(env, "PSRT_KEY_FILE", json_string(PSRTI_RENDER_KEY_FILE));
    /* What the description reserves, a task of libpsrt listens on. */
    if (t->role->kind != PSRTI_KIND_COORDINATOR && t->role->ports)
        json_object_set_new(env, "PSRT_PORT", json_sprintf("%u", t->ports[0]));
    return PSRT_OK;
}

psrt_status_t psrti_render_text(const psrti_job_t *job, const psrti_task_t *t,
                                psrti_render_text_t *text)
{
    *text = (psrti_render_text_t){ .env = json_object() };
    psrt_status_t st = set_environment(job, t, text->env);
    psrti_contract_make(job, t, &text->launch);
    for (char **word = text->launch.argv; *word && !st; word++) {
        json_t *check = json_string(*word);
        if (!check)
            st = psrti_fail(PSRT_ERR_INVALID,
                            "%s: the command is no UTF-8, which JSON and YAML need", t->name);
        json_decref(check);
    }
    if (st) psrti_render_text_clear(text);
    return st;
}

void psrti_render_text_clear(psrti_render_text_t *text)
{
    json_decref(text->env);
    psrti_launch_clear(&text->launch);
}

uint64_t psrti_render_grace_s(const psrti_job_t *job, const psrti_role_t *role)
{
    uint64_t ns = role->grace_ns ? role->grace_ns : job->grace_ns;
    return (ns + PSRTI_NS_PER_S - 1) / PSRTI_NS_PER_S;
}

const char *psrti_render_image(const psrti_job_t *job, const psrti_render_params_t *p,
                               const psrti_role_t *role)
{
    if (role->image || p->image) return role->image ? role->image : p->image;
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].image) return job->roles[i].image;
    return NULL;
}
