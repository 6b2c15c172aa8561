/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/expand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

/* ---- what placeholders stand for ------------------------------------------------------------- */

const char *psrti_expand_role_name(const psrti_role_t *role)
{
    return role->kind == PSRTI_KIND_SERVER ? "ps" : role->name;
}

const char *psrti_expand_host(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_host_t *host = psrti_job_host(job, task);
    if (!host) return "?";
    return host->address ? host->address : host->name;
}

static void put_port(FILE *out, const psrti_task_t *task, unsigned port)
{
    unsigned number = port < task->role->ports ? task->ports[port] : 0;
    if (number)
        fprintf(out, "%u", number);
    else
        fputc('?', out);
}

static void put_address(FILE *out, const psrti_job_t *job, const psrti_task_t *task, unsigned port)
{
    const char *host = psrti_expand_host(job, task);
    fprintf(out, strchr(host, ':') ? "[%s]:" : "%s:", host);
    put_port(out, task, port);
}

/* Who has no host yet has no address. Those are the last ones of a role: each place in the list is
 * that of its index. */
static void put_hosts(FILE *out, const psrti_job_t *job, const psrti_role_t *role)
{
    const char *comma = "";
    for (size_t i = 0; i < job->task_count; i++) {
        if (job->tasks[i].role != role || !psrti_job_host(job, &job->tasks[i])) continue;
        fputs(comma, out);
        put_address(out, job, &job->tasks[i], 0);
        comma = ",";
    }
}

/* Tasks of a kind lie in the order of their ranks, and so do the first ones on each host. */
unsigned psrti_expand_node_rank(const psrti_job_t *job, const psrti_task_t *task)
{
    unsigned rank = 0;
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *other = &job->tasks[i];
        if (other->role->kind != task->role->kind || !psrti_job_host(job, other)) continue;
        if (other->host == task->host) break;
        rank += other->local_rank == 0;
    }
    return rank;
}

/* ---- names ----------------------------------------------------------------------------------- */

typedef enum what {
    WHAT_JOB_NAME,
    WHAT_TASK_INDEX,
    WHAT_HOST,
    WHAT_RANK,
    WHAT_LOCAL_RANK,
    WHAT_LOCAL_SIZE,
    WHAT_NODE_RANK,
    WHAT_WORLD_SIZE,
    WHAT_NUM_WORKERS,
    WHAT_NUM_PS,
    WHAT_COORDINATOR,
    WHAT_JOB_DIR,
    WHAT_LOG_DIR,
    WHAT_PORT, /* from here on not by the table */
    WHAT_HOSTS /* "ROLE_hosts" */
} what_t;

static const char *const names[] = {
    [WHAT_JOB_NAME] = "job_name",
    [WHAT_TASK_INDEX] = "task_index",
    [WHAT_HOST] = "host",
    [WHAT_RANK] = "rank",
    [WHAT_LOCAL_RANK] = "local_rank",
    [WHAT_LOCAL_SIZE] = "local_size",
    [WHAT_NODE_RANK] = "node_rank",
    [WHAT_WORLD_SIZE] = "world_size",
    [WHAT_NUM_WORKERS] = "num_workers",
    [WHAT_NUM_PS] = "num_ps",
    [WHAT_COORDINATOR] = "coordinator",
    [WHAT_JOB_DIR] = "job_dir",
    [WHAT_LOG_DIR] = "log_dir",
};

typedef struct placeholder {
    what_t what;
    unsigned port;
    const psrti_role_t *role; /* of WHAT_HOSTS; NULL: one that this job has not */
} placeholder_t;

/* "ps" and "server" are the servers, whatever their role is called. A job may have none, or no
 * workers but a chief: their list is empty. */
static int find_hosts(const psrti_job_t *job, const char *name, placeholder_t *found)
{
    char role[PSRTI_ROLE_NAME_MAX];
    size_t len = strlen(name), tail = strlen("_hosts");
    if (len <= tail || len - tail >= sizeof role || strcmp(name + len - tail, "_hosts")) return 0;
    snprintf(role, sizeof role, "%.*s", (int)(len - tail), name);
    int is_server = !strcmp(role, "ps") || !strcmp(role, "server");
    *found = (placeholder_t){ .what = WHAT_HOSTS, .role = psrti_job_role(job, role) };
    if (!found->role && is_server) found->role = psrti_job_role_of(job, PSRTI_KIND_SERVER);
    return found->role || is_server || !strcmp(role, "worker");
}

/* "port" is the first one, as is "port0". */
static int find_port(const char *name, unsigned ports, placeholder_t *found)
{
    int64_t port;
    if (strncmp(name, "port", 4)) return 0;
    if (psrti_parse_i64(name[4] ? name + 4 : "0", 0, (int64_t)ports - 1, &port)) return 0;
    *found = (placeholder_t){ .what = WHAT_PORT, .port = (unsigned)port };
    return 1;
}

/* Whether "{name}" at `text` is a placeholder for tasks with so many ports; its length with the
 * braces, else 0. */
static size_t find(const psrti_job_t *job, unsigned ports, const char *text, placeholder_t *found)
{
    char name[PSRTI_ROLE_NAME_MAX + 16];
    size_t len = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (text[len + 1] != '}' || len >= sizeof name) return 0;
    snprintf(name, sizeof name, "%.*s", (int)len, text + 1);
    for (size_t i = 0; i < PSRTI_COUNT(names); i++) {
        *found = (placeholder_t){ .what = (what_t)i };
        if (!strcmp(name, names[i])) return len + 2;
    }
    return find_hosts(job, name, found) || find_port(name, ports, found) ? len + 2 : 0;
}

static void put_value(FILE *out, const psrti_job_t *job, const psrti_task_t *task,
                      const placeholder_t *p)
{
    switch (p->what) {
    case WHAT_JOB_NAME: fputs(psrti_expand_role_name(task->role), out); break;
    case WHAT_TASK_INDEX: fprintf(out, "%u", task->index); break;
    case WHAT_HOST: fputs(psrti_expand_host(job, task), out); break;
    case WHAT_PORT: put_port(out, task, p->port); break;
    case WHAT_RANK: fprintf(out, "%u", task->rank); break;
    case WHAT_LOCAL_RANK: fprintf(out, "%u", task->local_rank); break;
    case WHAT_LOCAL_SIZE: fprintf(out, "%u", task->local_size); break;
    case WHAT_NODE_RANK: fprintf(out, "%u", psrti_expand_node_rank(job, task)); break;
    case WHAT_WORLD_SIZE:
    case WHAT_NUM_WORKERS: fprintf(out, "%u", job->workers); break;
    case WHAT_NUM_PS: fprintf(out, "%u", job->servers); break;
    case WHAT_COORDINATOR: fputs(job->coordinator, out); break;
    case WHAT_JOB_DIR: fputs(psrti_job_dir(job, task), out); break;
    case WHAT_LOG_DIR: fputs(job->log_dir ? job->log_dir : "", out); break;
    case WHAT_HOSTS:
        if (p->role) put_hosts(out, job, p->role);
        break;
    }
}

/* ---- replacing ------------------------------------------------------------------------------- */

static FILE *open_text(char **text_p, size_t *size)
{
    FILE *out = open_memstream(text_p, size);
    if (!out) psrti_out_of_memory();
    return out;
}

static void close_text(FILE *out)
{
    if (ferror(out) | fclose(out)) psrti_out_of_memory();
}

static char *expand(const psrti_job_t *job, const psrti_task_t *task, const char *text, int doubled)
{
    char *result;
    size_t size;
    placeholder_t found;
    FILE *out = open_text(&result, &size);
    while (*text) {
        size_t plain = strcspn(text, doubled ? "{}" : "{");
        fwrite(text, 1, plain, out);
        text += plain;
        if (!*text) break;
        int pair = doubled && text[0] == text[1];
        size_t len = pair || *text == '}' ? 0 : find(job, task->role->ports, text, &found);
        if (len)
            put_value(out, job, task, &found);
        else
            fputc(*text, out);
        text += len ? len : (size_t)pair + 1;
    }
    close_text(out);
    return result;
}

char *psrti_expand(const psrti_job_t *job, const psrti_task_t *task, const char *text)
{
    return expand(job, task, text, 0);
}

char *psrti_expand_doubled(const psrti_job_t *job, const psrti_task_t *task, const char *text)
{
    return expand(job, task, text, 1);
}

psrt_status_t psrti_expand_check_doubled(const psrti_job_t *job, const char *text)
{
    placeholder_t found;
    for (size_t len; *(text += strcspn(text, "{}")); text += len) {
        len = 2;
        if (text[0] == text[1]) continue;
        len = *text == '{' ? find(job, PSRTI_JOB_PORTS_MAX, text, &found) : 0;
        if (!len)
            return psrti_fail(PSRT_ERR_INVALID,
                              "\"%.20s\" in the command is no placeholder such as {task_index}; as "
                              "tfrun wants it, a brace that is meant as such is written twice",
                              text);
    }
    return PSRT_OK;
}

char *psrti_expand_hosts(const psrti_job_t *job, const psrti_role_t *role)
{
    char *result;
    size_t size;
    FILE *out = open_text(&result, &size);
    if (role) put_hosts(out, job, role);
    close_text(out);
    return result;
}

char *psrti_expand_address(const psrti_job_t *job, const psrti_task_t *task, unsigned port)
{
    char *result;
    size_t size;
    FILE *out = open_text(&result, &size);
    put_address(out, job, task, port);
    close_text(out);
    return result;
}
