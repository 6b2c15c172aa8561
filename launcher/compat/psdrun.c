/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/compat/psdrun.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/hosts.h"
#include "launcher/jsonread.h"

#define WORKERS "worker_nodes"
#define SERVERS "server_nodes"
#define MASTER "master_node"
#define RUN_LOG "poseidon_run.log"
#define ADDED_FLAGS "--distributed --master_address {coordinator} --client_id {rank}"

typedef struct config {
    char *virtualenv, *username, *pem_file, *master;
    char **workers, **servers;
} config_t;

static psrt_status_t read_workers(psrti_reader_t *r, const json_t *value, void *object)
{
    return psrti_read_texts(r, value, &((config_t *)object)->workers);
}

static psrt_status_t read_servers(psrti_reader_t *r, const json_t *value, void *object)
{
    return psrti_read_texts(r, value, &((config_t *)object)->servers);
}

#define TEXT(key, member)                                                                          \
    {                                                                                              \
        .name = (key), .type = PSRTI_KEY_TEXT, .offset = offsetof(config_t, member)                \
    }

static const psrti_key_t keys[] = {
    TEXT("virtualenv", virtualenv),
    TEXT("username", username),
    TEXT("pem_file", pem_file),
    TEXT(MASTER, master),
    { .name = WORKERS, .type = PSRTI_KEY_READ, .read = read_workers },
    { .name = SERVERS, .type = PSRTI_KEY_READ, .read = read_servers },
};

static void free_texts(char **texts)
{
    for (char **text = texts; text && *text; text++)
        free(*text);
    free(texts);
}

static void config_clear(config_t *c)
{
    free(c->virtualenv);
    free(c->username);
    free(c->pem_file);
    free(c->master);
    free_texts(c->workers);
    free_texts(c->servers);
}

int psrti_psdrun_wrote(const json_t *document)
{
    return json_object_get(document, WORKERS) || json_object_get(document, SERVERS);
}

/* ---- hosts and roles ------------------------------------------------------------------------- */

static size_t count_of(char *const *texts)
{
    size_t count = 0;
    while (texts && texts[count])
        count++;
    return count;
}

static int is_in(char *const *texts, const char *text)
{
    for (; texts && *texts; texts++)
        if (!strcmp(*texts, text)) return 1;
    return 0;
}

/* The machine itself cannot be named to the others; then any of their hosts may have the master. */
static int has_master(const config_t *c)
{
    static const char *const here[] = { "localhost", "127.0.0.1", "::1" };
    int is_node = c->master && (is_in(c->workers, c->master) || is_in(c->servers, c->master));
    for (size_t i = 0; c->master && !is_node && i < PSRTI_COUNT(here); i++)
        if (!strcmp(c->master, here[i])) return 0;
    return c->master != NULL;
}

/* Which lists name a host is an attribute of it, and each role wants that of its list. */
static psrt_status_t add_host(psrti_hosts_t *hosts, const config_t *c, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (!strcmp(hosts->hosts[i].name, name)) return PSRT_OK;
    psrti_host_t host = { .name = psrti_xstrdup(name) };
    psrti_job_set(&host.user, c->username);
    if (is_in(c->workers, name)) psrti_env_set(&host.attributes, WORKERS, "yes");
    if (is_in(c->servers, name)) psrti_env_set(&host.attributes, SERVERS, "yes");
    if (c->master && !strcmp(c->master, name)) psrti_env_set(&host.attributes, MASTER, "yes");
    return psrti_hosts_add(hosts, &host);
}

static psrt_status_t add_hosts(psrti_hosts_t *hosts, const config_t *c)
{
    psrt_status_t st = PSRT_OK;
    for (char **name = c->workers; name && *name && !st; name++)
        st = add_host(hosts, c, *name);
    for (char **name = c->servers; name && *name && !st; name++)
        st = add_host(hosts, c, *name);
    return st || !has_master(c) ? st : add_host(hosts, c, c->master);
}

static psrt_status_t add_role(psrti_job_t *job, const char *name, size_t count, const char *list)
{
    char *const words[] = { (char *)list, (char *)"IS", (char *)"yes", NULL };
    psrti_role_t *role = psrti_job_add_role(job, name);
    psrti_role_set_count(role, (unsigned)count);
    return psrti_role_add_constraint(role, words);
}

static psrt_status_t check(psrti_reader_t *r, const config_t *c)
{
    char *const *const lists[] = { c->workers, c->servers };
    for (size_t l = 0; l < PSRTI_COUNT(lists); l++)
        for (char *const *name = lists[l]; name && *name; name++)
            if (is_in(name + 1, *name))
                return psrti_reader_fail(r, "%s is twice in %s", *name, l ? SERVERS : WORKERS);
    return count_of(c->workers) ? PSRT_OK : psrti_reader_fail(r, WORKERS " has no host");
}

static psrt_status_t describe(psrti_job_t *job, const config_t *c)
{
    psrti_hosts_t hosts = { 0 };
    psrt_status_t st = add_hosts(&hosts, c);
    if (st) {
        psrti_hosts_clear(&hosts);
        return st;
    }
    psrti_job_take_hosts(job, &hosts);
    psrti_job_set(&job->ssh_identity, c->pem_file);
    if (has_master(c)) st = add_role(job, "coordinator", 1, MASTER);
    if (!st) st = add_role(job, "server", count_of(c->servers), SERVERS);
    if (!st) st = add_role(job, "worker", count_of(c->workers), WORKERS);
    if (!st) psrti_job_set(&psrti_job_role(job, "worker")->virtualenv, c->virtualenv);
    return st;
}

psrt_status_t psrti_psdrun_read(psrti_job_t *job, const json_t *document, const char *path)
{
    config_t config = { 0 };
    psrti_reader_t reader = { .source = path };
    psrt_status_t st = psrti_read_object(&reader, document, keys, PSRTI_COUNT(keys), &config);
    if (!st) st = check(&reader, &config);
    if (!st) st = describe(job, &config);
    config_clear(&config);
    job->psd_run = 1;
    return st;
}

/* ---- command and logs ------------------------------------------------------------------------ */

static char *text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) psrti_out_of_memory();
    va_end(ap);
    return text;
}

psrt_status_t psrti_psdrun_complete(psrti_job_t *job, char *const *command, const char *out)
{
    char stamp[32];
    struct tm now;
    const time_t seconds = time(NULL);
    if (!command[0] || !*command[0] || command[1])
        return psrti_fail(PSRT_ERR_INVALID, "a configuration of psd_run wants the command as one "
                                            "word: psrt-launch -c config.json -o logs \"cmd\"");
    char *shell = text_of("%s " ADDED_FLAGS, command[0]);
    psrti_role_set_shell(psrti_job_role(job, "worker"), shell);
    free(shell);
    localtime_r(&seconds, &now);
    strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &now);
    free(job->log_dir);
    job->log_dir = text_of("%s/poseidon_log_%s", out ? out : ".", stamp);
    psrti_job_set(&job->run_log, RUN_LOG);
    return PSRT_OK;
}
