/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator tells a server: jobs that every thread does to its own shard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "runtime/server/server_int.h"

/* A command of the member's thread, one copy for all threads of the server; the last one to finish it
 * answers for all. */
typedef struct job {
    atomic_uint left; /* threads that have not done it */
    enum { JOB_VIEW, JOB_HOLD, JOB_PREPARE, JOB_SET_PREPARE, JOB_SET_END } kind;
    psrti_view_t *view; /* VIEW */
    uint32_t worker;    /* VIEW, PREPARE */
    uint64_t number;    /* PREPARE: of the view; SET: of the set */
    struct {
        uint32_t table;
        double value;
        uint64_t from_step, reached; /* reached: highest of the threads    */
        int commit;                  /* END */
        psrt_status_t status;        /* PREPARE: first failure of a thread */
        char *key, text[PSRTI_ERROR_MAX];
    } set;
    size_t count;
    uint32_t *table;
    uint64_t *step;                 /* VIEW: from; PREPARE: open */
    psrti_map_t reported;           /* PREPARE: table -> its place in `table`, plus one */
    psrti_member_table_t *tables;   /* HOLD */
    psrti_table_spec_t *specs;      /* HOLD */
    char (*texts)[PSRTI_ERROR_MAX]; /* HOLD */
    pthread_mutex_t lock;           /* of what threads write: tables, step, set */
} job_t;

typedef struct entry {
    struct entry *next;
    job_t *job;
} entry_t;

/* ---- jobs -------------------------------------------------------------------------------------- */

static void job_free(job_t *j)
{
    if (!j) return;
    psrti_view_unref(j->view);
    pthread_mutex_destroy(&j->lock);
    free(j->set.key);
    psrti_map_clear(&j->reported);
    free(j->table);
    free(j->step);
    free(j->tables);
    free(j->specs);
    free(j->texts);
    free(j);
}

static void job_answer(psrti_server_t *s, job_t *j)
{
    psrti_member_t *m = atomic_load(&s->member);
    if (j->kind == JOB_HOLD && m) psrti_member_held(m, j->count, j->tables);
    if (j->kind == JOB_PREPARE && m)
        psrti_member_prepared(m, j->number, j->count, j->table, j->step);
    if (j->kind == JOB_SET_PREPARE && m)
        psrti_member_set_prepared(m, j->number, j->set.reached, j->set.status, j->set.text);
    if (j->kind == JOB_SET_END && j->set.commit && m) psrti_member_set_ended(m, j->number);
    job_free(j);
}

static void job_post(psrti_server_t *s, job_t *j)
{
    atomic_store(&j->left, s->nthreads);
    for (uint32_t i = 0; i < s->nthreads; i++) {
        sthread_t *t = &s->threads[i];
        entry_t *e = calloc(1, sizeof *e);
        if (!e) { /* nothing sensible is left to do without 16 bytes */
            psrti_error("server:%u: out of memory, a command of the coordinator is lost",
                        s->p.rank);
            if (atomic_fetch_sub(&j->left, 1) == 1) job_free(j);
            continue;
        }
        e->job = j;
        pthread_mutex_lock(&t->lock);
        *t->last = e;
        t->last = &e->next;
        atomic_store(&t->filled, 1);
        pthread_mutex_unlock(&t->lock);
        psrti_net_wake(t->net);
    }
}

static job_t *job_new(int kind)
{
    job_t *j = calloc(1, sizeof *j);
    if (!j) {
        psrti_error("out of memory, a command of the coordinator is lost");
        return NULL;
    }
    j->kind = kind;
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

static void *copy_of(const void *data, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p && bytes) memcpy(p, data, bytes);
    return p;
}

/* ---- member's callbacks -------------------------------------------------------------------- */

void psrti_server_on_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                          const uint32_t *table, const uint64_t *from_step)
{
    job_t *j = job_new(JOB_VIEW);
    if (!j) return;
    j->view = psrti_view_ref(view);
    j->worker = worker;
    if (from_step) {
        j->count = count;
        j->table = copy_of(table, count * sizeof *table);
        j->step = copy_of(from_step, count * sizeof *from_step);
        if (!j->table || !j->step) {
            psrti_error("out of memory, a view is lost");
            job_free(j);
            return;
        }
    }
    job_post(arg, j);
}

void psrti_server_on_hold(void *arg, size_t count, const psrti_member_table_t *tables)
{
    job_t *j = job_new(JOB_HOLD);
    if (!j) return;
    j->count = count;
    j->tables = copy_of(tables, count * sizeof *tables);
    j->specs = calloc(count, sizeof *j->specs);
    j->texts = calloc(count, sizeof *j->texts);
    if (!j->tables || !j->specs || !j->texts) {
        psrti_error("out of memory for %zu table declarations", count);
        job_free(j);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        j->specs[i] = *tables[i].spec;
        j->tables[i].spec = &j->specs[i];
        j->tables[i].status = PSRT_OK;
        j->tables[i].text = j->texts[i];
    }
    job_post(arg, j);
}

void psrti_server_on_prepare(void *arg, uint64_t view, uint32_t worker)
{
    job_t *j = job_new(JOB_PREPARE);
    if (!j) return;
    j->number = view;
    j->worker = worker;
    job_post(arg, j);
}

void psrti_server_on_set_prepare(void *arg, const psrti_member_set_t *set)
{
    job_t *j = job_new(JOB_SET_PREPARE);
    if (!j) return;
    j->number = set->number;
    j->set.table = set->table;
    j->set.value = set->value;
    j->set.from_step = set->from_step;
    j->set.key = copy_of(set->key, strlen(set->key) + 1);
    if (j->set.key) {
        job_post(arg, j);
        return;
    }
    psrti_error("out of memory to set %s", set->key);
    job_free(j);
}

void psrti_server_on_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    job_t *j = job_new(JOB_SET_END);
    if (!j) return;
    j->number = number;
    j->set.commit = commit;
    j->set.from_step = from_step;
    job_post(arg, j);
}

/* ---- in the threads ---------------------------------------------------------------------------- */

static void do_view(sthread_t *t, const job_t *j)
{
    psrti_server_view(t, j->view);
    if (t->shard) psrti_shard_view(t->shard, j->view, j->worker, j->count, j->table, j->step);
}

static void do_hold(sthread_t *t, job_t *j)
{
    for (size_t i = 0; i < j->count; i++) {
        psrt_status_t rc = t->shard
                               ? psrti_shard_hold(t->shard, j->tables[i].id, &j->specs[i])
                               : psrti_fail(PSRT_ERR_NOT_READY, "table %s comes before any view",
                                            j->specs[i].name);
        if (!rc) continue;
        pthread_mutex_lock(&j->lock);
        j->tables[i].status = rc;
        snprintf(j->texts[i], sizeof j->texts[i], "server:%u: %s", t->server->p.rank,
                 psrt_last_error());
        pthread_mutex_unlock(&j->lock);
    }
}

/* The highest open step of a table over the threads. */
static void report(void *arg, uint32_t table, uint64_t open_step)
{
    job_t *j = arg;
    uintptr_t known = (uintptr_t)psrti_map_get(&j->reported, table);
    if (known) {
        j->step[known - 1] = PSRTI_MAX(j->step[known - 1], open_step);
        return;
    }
    uint32_t *t = realloc(j->table, (j->count + 1) * sizeof *t);
    if (t) j->table = t;
    uint64_t *s = realloc(j->step, (j->count + 1) * sizeof *s);
    if (s) j->step = s;
    if (!t || !s) return;
    j->table[j->count] = table;
    j->step[j->count++] = open_step;
    (void)psrti_map_put(&j->reported, table, (void *)(uintptr_t)j->count);
}

static void do_set_prepare(sthread_t *t, job_t *j)
{
    uint64_t reached = 0;
    psrt_status_t rc = t->shard
                           ? psrti_shard_set_prepare(t->shard, j->number, j->set.table, j->set.key,
                                                     j->set.value, j->set.from_step, &reached)
                           : PSRT_OK;
    pthread_mutex_lock(&j->lock);
    j->set.reached = PSRTI_MAX(j->set.reached, reached);
    if (rc && !j->set.status) {
        j->set.status = rc;
        snprintf(j->set.text, sizeof j->set.text, "server:%u: %s", t->server->p.rank,
                 psrt_last_error());
    }
    pthread_mutex_unlock(&j->lock);
}

static void do_job(sthread_t *t, job_t *j)
{
    switch (j->kind) {
    case JOB_VIEW: do_view(t, j); break;
    case JOB_HOLD: do_hold(t, j); break;
    case JOB_PREPARE:
        pthread_mutex_lock(&j->lock);
        if (t->shard) psrti_shard_prepare(t->shard, report, j);
        pthread_mutex_unlock(&j->lock);
        break;
    case JOB_SET_PREPARE: do_set_prepare(t, j); break;
    case JOB_SET_END:
        if (t->shard) psrti_shard_set_end(t->shard, j->number, j->set.commit, j->set.from_step);
        break;
    }
    if (atomic_fetch_sub(&j->left, 1) == 1) job_answer(t->server, j);
}

void psrti_server_work(sthread_t *t)
{
    if (!atomic_load(&t->filled)) return;
    pthread_mutex_lock(&t->lock);
    entry_t *e = t->first;
    t->first = NULL;
    t->last = &t->first;
    atomic_store(&t->filled, 0);
    pthread_mutex_unlock(&t->lock);
    while (e) {
        entry_t *next = e->next;
        do_job(t, e->job);
        free(e);
        e = next;
    }
}

void psrti_server_forget(sthread_t *t)
{
    while (t->first) {
        entry_t *e = t->first;
        t->first = e->next;
        if (atomic_fetch_sub(&e->job->left, 1) == 1) job_free(e->job);
        free(e);
    }
}
