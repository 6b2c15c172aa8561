/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

#define NAME_MAX_LENGTH 255 /* of DNS */

#define WHITE " \t\r\n\v\f"
#define MIB (1024 * 1024)

void psrti_host_clear(psrti_host_t *host)
{
    free(host->name);
    free(host->address);
    free(host->user);
    free(host->gpu_names);
    free(host->dir);
    free(host->psrtd);
    psrti_env_clear(&host->attributes);
    *host = (psrti_host_t){ 0 };
}

void psrti_hosts_clear(psrti_hosts_t *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        psrti_host_clear(&hosts->hosts[i]);
    free(hosts->hosts);
    *hosts = (psrti_hosts_t){ 0 };
}

void psrti_job_take_hosts(psrti_job_t *job, psrti_hosts_t *hosts)
{
    psrti_hosts_t old = { job->hosts, job->host_count };
    psrti_hosts_clear(&old);
    job->hosts = hosts->hosts;
    job->host_count = hosts->count;
    *hosts = (psrti_hosts_t){ 0 };
}

/* ---- one host -------------------------------------------------------------------------------- */

/* What ssh and resolvers take; never something that ssh could read as an option. */
static int is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-:%";
    return *name && *name != '-' && strlen(name) <= NAME_MAX_LENGTH && !name[strspn(name, letters)];
}

static psrt_status_t check_host(const psrti_hosts_t *hosts, const psrti_host_t *host)
{
    if (!is_name(host->name))
        return psrti_fail(PSRT_ERR_INVALID, "\"%.300s\" is no name of a host", host->name);
    if (host->user && (!is_name(host->user) || strchr(host->user, ':')))
        return psrti_fail(PSRT_ERR_INVALID, "host %s: \"%s\" is no name of a user", host->name,
                          host->user);
    for (size_t i = 0; i < hosts->count; i++)
        if (!strcmp(hosts->hosts[i].name, host->name))
            return psrti_fail(PSRT_ERR_INVALID, "host %s is there twice; give it more slots",
                              host->name);
    return PSRT_OK;
}

psrt_status_t psrti_hosts_add(psrti_hosts_t *hosts, psrti_host_t *host)
{
    psrt_status_t st = check_host(hosts, host);
    if (st) {
        psrti_host_clear(host);
        return st;
    }
    hosts->hosts = psrti_xrealloc(hosts->hosts, (hosts->count + 1) * sizeof *hosts->hosts);
    hosts->hosts[hosts->count++] = *host;
    *host = (psrti_host_t){ 0 };
    return PSRT_OK;
}

static psrt_status_t parse_slots(const char *text, unsigned *slots)
{
    int64_t value;
    if (psrti_parse_i64(text, 1, PSRTI_JOB_TASKS_MAX, &value))
        return psrti_fail(PSRT_ERR_INVALID, "slots \"%s\": not a number from 1 to %d", text,
                          PSRTI_JOB_TASKS_MAX);
    *slots = (unsigned)value;
    return PSRT_OK;
}

/* Cuts "[user@]host[:slots]" into its parts, in place. */
static psrt_status_t cut(char *text, char **user, char **name, char **slots)
{
    char *at = strrchr(text, '@'), *end;
    *user = at ? text : NULL;
    *name = at ? at + 1 : text;
    if (at) *at = '\0';
    if (**name == '[') {
        end = strchr(*name, ']');
        if (!end || (end[1] && end[1] != ':'))
            return psrti_fail(PSRT_ERR_INVALID, "\"%s\": not [IPv6 address] or [address]:slots",
                              *name);
        (*name)++;
        *end++ = '\0';
    } else {
        end = *name + strcspn(*name, ":");
        if (*end && strchr(end + 1, ':'))
            return psrti_fail(PSRT_ERR_INVALID, "\"%s\": an IPv6 address stands in brackets",
                              *name);
    }
    *slots = *end ? end + 1 : NULL;
    *end = '\0';
    return PSRT_OK;
}

static psrt_status_t parse_host(const char *text, psrti_host_t *host)
{
    char *copy = psrti_xstrdup(text), *user = NULL, *name = NULL, *slots = NULL;
    psrt_status_t st = cut(copy, &user, &name, &slots);
    if (!st) {
        psrti_job_set(&host->user, user);
        psrti_job_set(&host->name, name);
        if (slots) st = parse_slots(slots, &host->slots);
    }
    free(copy);
    return st;
}

psrt_status_t psrti_hosts_add_text(psrti_hosts_t *hosts, const char *text)
{
    psrti_host_t host = { 0 };
    psrt_status_t st = parse_host(text, &host);
    if (!st) return psrti_hosts_add(hosts, &host);
    psrti_host_clear(&host);
    return st;
}

psrt_status_t psrti_hosts_parse(psrti_hosts_t *hosts, const char *list)
{
    char *copy = psrti_xstrdup(list), *rest = copy, *item;
    psrt_status_t st = PSRT_OK;
    while (!st && (item = strsep(&rest, ","))) {
        item += strspn(item, WHITE);
        item[strcspn(item, WHITE)] = '\0';
        st = psrti_hosts_add_text(hosts, item);
    }
    free(copy);
    return st;
}

/* ---- file ------------------------------------------------------------------------------------ */

static psrt_status_t set_key(psrti_host_t *host, const char *key, const char *value)
{
    static const char *const names[] = { "slots", "user", "port", "cpus", "mem", "gpus" };
    int64_t number = 0;
    uint64_t bytes = 0;
    psrt_status_t bad = PSRT_OK;
    if (!strcmp(key, "slots")) return parse_slots(value, &host->slots);
    if (!strcmp(key, "user")) {
        psrti_job_set(&host->user, value);
    } else if (!strcmp(key, "port")) {
        bad = psrti_parse_i64(value, 1, 65535, &number);
        host->ssh_port = (unsigned)number;
    } else if (!strcmp(key, "cpus")) {
        bad = psrti_parse_f64(value, &host->cpus);
        if (host->cpus <= 0) bad = PSRT_ERR_INVALID;
    } else if (!strcmp(key, "mem")) {
        bad = psrti_parse_size(value, &bytes);
        host->mem_mb = bytes / MIB;
        if (!host->mem_mb) bad = PSRT_ERR_INVALID;
    } else if (!strcmp(key, "gpus")) {
        bad = psrti_parse_i64(value, 1, PSRTI_JOB_GPUS_MAX, &number);
        host->gpus = (unsigned)number;
    } else {
        const char *near = psrti_nearest(key, names, PSRTI_COUNT(names));
        return psrti_fail(PSRT_ERR_INVALID, "%s: unknown key; %s%s%s", key,
                          near ? "did you mean " : "there are slots, user, port, cpus, mem, gpus",
                          near ? near : "", near ? "?" : "");
    }
    if (bad) return psrti_fail(PSRT_ERR_INVALID, "%s: \"%s\" is not what it takes", key, value);
    return PSRT_OK;
}

static psrt_status_t set_word(psrti_host_t *host, char *word)
{
    char *equal = strchr(word, '=');
    if (!equal) return psrti_fail(PSRT_ERR_INVALID, "\"%s\": not KEY=VALUE such as slots=4", word);
    *equal = '\0';
    return set_key(host, word, equal + 1);
}

static psrt_status_t add_line(psrti_hosts_t *hosts, char *line)
{
    psrti_host_t host = { 0 };
    char *word, *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    word = strtok_r(line, WHITE, &rest);
    if (!word) return PSRT_OK;
    psrt_status_t st = parse_host(word, &host);
    while (!st && (word = strtok_r(NULL, WHITE, &rest)))
        st = set_word(&host, word);
    if (!st) return psrti_hosts_add(hosts, &host);
    psrti_host_clear(&host);
    return st;
}

/* One line of the file. */
static psrt_status_t read_line(psrti_hosts_t *hosts, char *line, size_t length, int is_first)
{
    static const char bom[] = "\xef\xbb\xbf";
    if (strlen(line) != length) return psrti_fail(PSRT_ERR_INVALID, "a NUL byte in the line");
    return add_line(hosts, line + (is_first && !strncmp(line, bom, 3) ? 3 : 0));
}

psrt_status_t psrti_hosts_read(psrti_hosts_t *hosts, FILE *file, const char *name)
{
    char *line = NULL;
    size_t size = 0;
    psrt_status_t st = PSRT_OK;
    for (unsigned number = 1; !st; number++) {
        errno = 0;
        ssize_t length = getline(&line, &size, file);
        if (length < 0) {
            if (errno) st = psrti_fail(PSRT_ERR_INVALID, "%s: %s", name, strerror(errno));
            break;
        }
        st = read_line(hosts, line, (size_t)length, number == 1);
        if (st) st = psrti_fail(st, "%s:%u: %s", name, number, psrt_last_error());
    }
    free(line);
    if (!st && !hosts->count) st = psrti_fail(PSRT_ERR_INVALID, "%s: no host", name);
    if (st) psrti_hosts_clear(hosts);
    return st;
}

psrt_status_t psrti_hosts_load(psrti_hosts_t *hosts, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) return psrti_fail(PSRT_ERR_INVALID, "host file %s: %s", path, strerror(errno));
    psrt_status_t st = psrti_hosts_read(hosts, file, path);
    fclose(file);
    return st;
}
