/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "launcher/env.h"

#define ENTRIES 512
#define LINE_MAX_LEN 4096 /* longer ones are shown each time */
#define SHOWN_MAX 160     /* of the line, in what is told */
#define NAMES_MAX 8

typedef struct entry {
    uint64_t hash, first_ms;
    size_t first, len, others; /* task that was shown; how many more there were */
    uint64_t *set;             /* those, by bit */
    char *line;
} entry_t;

struct psrti_merge {
    size_t tasks, words;
    const char *(*name)(void *arg, size_t task);
    void (*tell)(void *arg, const char *text);
    void *arg;
    entry_t ring[ENTRIES]; /* in the order of their times */
    size_t start, count;
};

static entry_t *at(psrti_merge_t *m, size_t i) { return &m->ring[(m->start + i) % ENTRIES]; }

psrti_merge_t *psrti_merge_create(size_t task_count, const char *(*name)(void *arg, size_t task),
                                  void (*tell)(void *arg, const char *text), void *arg)
{
    psrti_merge_t *m = psrti_xcalloc(1, sizeof *m);
    m->tasks = task_count;
    m->words = (task_count + 63) / 64;
    m->name = name;
    m->tell = tell;
    m->arg = arg;
    return m;
}

static void drop(psrti_merge_t *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(at(m, i)->line);
        free(at(m, i)->set);
        *at(m, i) = (entry_t){ 0 };
    }
    m->start = (m->start + n) % ENTRIES;
    m->count -= n;
}

void psrti_merge_destroy(psrti_merge_t *m)
{
    if (!m) return;
    drop(m, m->count);
    free(m);
}

/* ---- telling --------------------------------------------------------------------------------- */

static int same_tasks(const psrti_merge_t *m, const entry_t *a, const entry_t *b)
{
    return a->first == b->first && a->others == b->others &&
           !memcmp(a->set, b->set, m->words * sizeof *a->set);
}

static void tell_group(psrti_merge_t *m, const entry_t *e, size_t lines)
{
    char text[1024];
    size_t pos = 0, named = 0;
    for (size_t i = 0; i < m->tasks && named < NAMES_MAX; i++)
        if (e->set[i / 64] >> (i % 64) & 1)
            psrti_append(text, sizeof text, &pos, "%s%s", named++ ? ", " : "", m->name(m->arg, i));
    if (e->others > named)
        psrti_append(text, sizeof text, &pos, " and %zu more", e->others - named);
    psrti_append(text, sizeof text, &pos, " wrote the same as %s", m->name(m->arg, e->first));
    if (lines > 1) psrti_append(text, sizeof text, &pos, ", %zu lines from here", lines);
    int len = (int)PSRTI_MIN(e->len, SHOWN_MAX);
    psrti_append(text, sizeof text, &pos, ": %.*s%s", len, e->line,
                 e->len > SHOWN_MAX ? "..." : "");
    m->tell(m->arg, text);
}

/* The first n entries. Lines that the same tasks wrote one after the other, such as a traceback, are
 * told together. */
static void tell(psrti_merge_t *m, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t lines = 1;
        if (at(m, i)->others) {
            while (i + lines < n && at(m, i + lines)->others &&
                   same_tasks(m, at(m, i), at(m, i + lines)))
                lines++;
            tell_group(m, at(m, i), lines);
        }
        i += lines;
    }
    drop(m, n);
}

int psrti_merge_tick(psrti_merge_t *m, uint64_t now_ms)
{
    size_t n = 0;
    while (n < m->count && now_ms - at(m, n)->first_ms >= PSRTI_MERGE_WINDOW_MS)
        n++;
    tell(m, n);
    return m->count > 0;
}

void psrti_merge_flush(psrti_merge_t *m) { tell(m, m->count); }

/* ---- lines ----------------------------------------------------------------------------------- */

static entry_t *find(psrti_merge_t *m, uint64_t hash, const char *line, size_t len)
{
    for (size_t i = m->count; i-- > 0;) {
        entry_t *e = at(m, i);
        if (e->hash == hash && e->len == len && !memcmp(e->line, line, len)) return e;
    }
    return NULL;
}

static void remember(psrti_merge_t *m, uint64_t now_ms, uint64_t hash, size_t task,
                     const char *line, size_t len)
{
    if (m->count == ENTRIES) tell(m, ENTRIES / 2);
    entry_t *e = at(m, m->count++);
    *e = (entry_t){ .hash = hash, .first_ms = now_ms, .first = task, .len = len };
    e->line = psrti_xrealloc(NULL, len);
    memcpy(e->line, line, len);
    e->set = psrti_xcalloc(m->words, sizeof *e->set);
}

int psrti_merge_line(psrti_merge_t *m, uint64_t now_ms, size_t task, const char *line, size_t len)
{
    if (!len || len > LINE_MAX_LEN || task >= m->tasks) return 0;
    psrti_merge_tick(m, now_ms);
    uint64_t hash = psrti_hash_bytes(line, len);
    entry_t *e = find(m, hash, line, len);
    if (!e) {
        remember(m, now_ms, hash, task, line, len);
        return 0;
    }
    uint64_t bit = 1ull << (task % 64);
    /* One that repeats itself has something to say each time. */
    if (task == e->first || e->set[task / 64] & bit) return 0;
    e->set[task / 64] |= bit;
    e->others++;
    return 1;
}
