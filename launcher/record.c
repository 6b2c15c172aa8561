/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "launcher/jobdir.h"
#include "launcher/tasklog.h"

#define ID_LEN 6
#define REALS JSON_REAL_PRECISION(13) /* times to the millisecond */

struct psrti_record {
    char dir[PATH_MAX];
    const char *id; /* the last part of it */
    json_t *job;
    FILE *events;
    size_t events_size;
    int lock;
};

static int base_dir(char path[PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len = -1;
    if (state && *state == '/')
        len = snprintf(path, PATH_MAX, "%s/psrt/jobs", state);
    else if (home && *home == '/')
        len = snprintf(path, PATH_MAX, "%s/.local/state/psrt/jobs", home);
    return len > 0 && len < PATH_MAX - 64;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* An ended job's lock is to be had. */
static int is_alive(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    int alive = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(fd);
    return alive;
}

static int is_id(const char *name)
{
    return strlen(name) == ID_LEN && strspn(name, "abcdefghijklmnopqrstuvwxyz"
                                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ID_LEN;
}

json_t *psrti_record_read(const char *id)
{
    char dir[PATH_MAX], path[PATH_MAX + 16];
    if (!is_id(id) || !base_dir(dir)) return NULL;
    size_t len = strlen(dir);
    snprintf(dir + len, sizeof dir - len, "/%s", id);
    snprintf(path, sizeof path, "%s/job.json", dir);
    json_t *job = json_load_file(path, 0, NULL);
    if (!json_is_object(job)) {
        json_decref(job);
        return NULL;
    }
    json_object_set_new(job, "alive", json_boolean(is_alive(dir)));
    json_object_set_new(job, "record", json_string(dir));
    return job;
}

static double started(const json_t *job)
{
    return json_number_value(json_object_get(job, "started"));
}

static void insert_by_time(json_t *list, json_t *job)
{
    size_t at = 0;
    while (at < json_array_size(list) && started(json_array_get(list, at)) > started(job))
        at++;
    json_array_insert_new(list, at, job);
}

json_t *psrti_record_list(void)
{
    char base[PATH_MAX];
    json_t *list = json_array();
    DIR *dir = base_dir(base) ? opendir(base) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        json_t *job = psrti_record_read(entry->d_name);
        if (job) insert_by_time(list, job);
    }
    if (dir) closedir(dir);
    return list;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void remove_old(void)
{
    json_t *list = psrti_record_list();
    size_t ended = 0;
    const json_t *job;
    for (size_t i = 0; (job = json_array_get(list, i)) != NULL; i++) {
        if (json_is_true(json_object_get(job, "alive")) || ++ended < PSRTI_RECORDS_KEPT) continue;
        psrti_jobdir_remove(json_string_value(json_object_get(job, "record")));
    }
    json_decref(list);
}

/* Whoever reads it finds the old or the new one. */
static void write_job(psrti_record_t *record)
{
    char path[PATH_MAX + 16], fresh[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/job.json", record->dir);
    snprintf(fresh, sizeof fresh, "%s/job.json.new", record->dir);
    if (json_dump_file(record->job, fresh, JSON_INDENT(2) | REALS) || rename(fresh, path))
        unlink(fresh);
}

static void describe_job(psrti_record_t *record, const psrti_job_t *job)
{
    char host[256] = "", cwd[PATH_MAX] = "";
    gethostname(host, sizeof host - 1);
    if (!getcwd(cwd, sizeof cwd)) *cwd = '\0';
    char log_dir[PATH_MAX];
    json_t *roles = json_object();
    for (size_t i = 0; i < job->role_count; i++)
        json_object_set_new(roles, job->roles[i].name, json_integer(job->roles[i].count));
    record->job = json_pack("{s:s, s:s, s:f, s:i, s:s, s:s*, s:s, s:o}", "id", record->id, "name",
                            job->name, "started", now_s(), "pid", (int)getpid(), "host", host,
                            "directory", *cwd ? cwd : NULL, "backend",
                            job->backend ? job->backend : "local", "roles", roles);
    if (!record->job) record->job = json_object(); /* a name that is not UTF-8 */
    if (job->log_dir && realpath(job->log_dir, log_dir))
        json_object_set_new(record->job, "log_dir", json_string(log_dir));
}

psrt_status_t psrti_record_open(const psrti_job_t *job, psrti_record_t **record_p)
{
    psrti_record_t *record = psrti_xcalloc(1, sizeof *record);
    char path[PATH_MAX + 16];
    psrt_status_t st = PSRT_OK;
    if (!base_dir(record->dir)) {
        st = psrti_fail(PSRT_ERR_IO, "neither XDG_STATE_HOME nor HOME is an absolute path");
        goto err_free;
    }
    st = psrti_tasklog_make_dir(record->dir);
    if (st) goto err_free;
    remove_old();
    size_t len = strlen(record->dir);
    snprintf(record->dir + len, sizeof record->dir - len, "/XXXXXX");
    record->id = record->dir + len + 1;
    if (!mkdtemp(record->dir)) {
        st = psrti_fail(PSRT_ERR_IO, "record of the job %s: %s", record->dir, strerror(errno));
        goto err_free;
    }
    record->lock = open(record->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/events.jsonl", record->dir);
    record->events = fopen(path, "we");
    if (record->lock < 0 || flock(record->lock, LOCK_EX) || !record->events) {
        st = psrti_fail(PSRT_ERR_IO, "record of the job %s: %s", record->dir, strerror(errno));
        goto err_remove;
    }
    describe_job(record, job);
    write_job(record);
    *record_p = record;
    return PSRT_OK;
err_remove:
    if (record->events) fclose(record->events);
    if (record->lock >= 0) close(record->lock);
    psrti_jobdir_remove(record->dir);
err_free:
    free(record);
    return st;
}

const char *psrti_record_id(const psrti_record_t *record) { return record ? record->id : ""; }

const char *psrti_record_dir(const psrti_record_t *record) { return record ? record->dir : NULL; }

void psrti_record_set(psrti_record_t *record, const char *name, json_t *value)
{
    if (!record) {
        json_decref(value);
        return;
    }
    json_object_set_new(record->job, name, value);
    write_job(record);
}

void psrti_record_event(psrti_record_t *record, json_t *event)
{
    if (record && event && record->events_size < PSRTI_RECORD_EVENTS_MAX) {
        json_object_set_new(event, "time", json_real(now_s()));
        char *text = json_dumps(event, JSON_COMPACT | REALS);
        int len = text ? fprintf(record->events, "%s\n", text) : 0;
        free(text);
        record->events_size += len > 0 ? (size_t)len : 0;
        if (record->events_size >= PSRTI_RECORD_EVENTS_MAX)
            fputs("{\"event\":\"truncated\"}\n", record->events);
        fflush(record->events);
    }
    json_decref(event);
}

void psrti_record_close(psrti_record_t *record)
{
    if (!record) return;
    psrti_record_set(record, "ended", json_real(now_s()));
    fclose(record->events);
    close(record->lock);
    json_decref(record->job);
    free(record);
}
