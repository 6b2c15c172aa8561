/* SPDX-License-Identifier: Apache-2.0 */
/* The state file: what a restarted coordinator cannot learn from the tasks that come back. A
 * text of lines, the first names the version; tables are not in it (tasks bring them along),
 * only the bound below which ids were given out.
 *
 * A change appends what is new, so that it costs the same in a job of any size: records that end with the
 * line "end", in which the line of a task stands for all that was said of it before. When they are longer
 * than the rest, the file is replaced. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

#define STATE_HEAD "psrt-coordinator 1"

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t len, capacity;
    int failed;
} text_t;

static void put(text_t *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(text_t *t, const char *fmt, ...)
{
    va_list ap;

    for (int tries = 0; tries < 2 && !t->failed; tries++) {
        size_t room = t->capacity - t->len;
        va_start(ap, fmt);
        int n = vsnprintf(t->at ? t->at + t->len : NULL, room, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < room) {
            t->len += (size_t)n;
            return;
        }
        size_t capacity = (t->capacity + (size_t)n + 1) * 2;
        char *grown = n < 0 ? NULL : realloc(t->at, capacity);
        t->failed = grown == NULL;
        if (!grown) return;
        t->at = grown;
        t->capacity = capacity;
    }
}

static void put_place(text_t *t, const place_t *p)
{
    if (p->incarnation == 0) return;
    put(t, "task %u %d %" PRIu64 " %" PRIu64 " %u %u %u %s\n", p->task, (int)p->state,
        p->incarnation, p->nonce, p->term, p->nthreads, p->pid, *p->host ? p->host : "?");
    if (p->lost_before) put(t, "lost %u %u\n", p->task, p->lost_before);
    for (uint32_t i = 0; i < COORD_RESULTS; i++)
        if (p->results[i].request)
            put(t, "result %u %" PRIu64 " %d\n", p->task, p->results[i].request,
                (int)p->results[i].status);
    if (p->set_request)
        put(t, "granted %u %" PRIu64 " %" PRIu64 "\n", p->task, p->set_request, p->set_step);
    if (p->commit_view) put(t, "from %u %" PRIu64 " %u", p->task, p->commit_view, p->nfrom);
    for (uint32_t i = 0; p->commit_view && i < p->nfrom; i++)
        put(t, " %u:%" PRIu64, p->from_table[i], p->from_step[i]);
    if (p->commit_view) put(t, "\n");
}

static void put_places(psrti_coord_t *c, text_t *t, int whole)
{
    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        place_t *p = psrti_place_at(c, i);
        if (whole || p->changed) put_place(t, p);
    }
}

static void note_written(psrti_coord_t *c, size_t len, int whole, int written)
{
    if (whole) c->state_size = c->state_tail = 0;
    *(whole ? &c->state_size : &c->state_tail) += len;
    if (!written) c->state_size = 0; /* whatever is in the file now: it is replaced next */
    for (uint32_t i = 0; i < psrti_place_count(c); i++)
        psrti_place_at(c, i)->changed = 0;
}

void psrti_coord_persist(psrti_coord_t *c)
{
    text_t t = { NULL, 0, 0, 0 };
    char set[COORD_TEXT_MAX];
    int whole = c->state_tail >= c->state_size;

    if (!c->env.persist || c->ended) return;
    if (whole)
        put(&t, STATE_HEAD "\njob %s %u %u %u\n", c->job, c->p.workers, c->p.servers, c->p.vshards);
    put(&t, "generation %" PRIu64 "\nincarnation %" PRIu64 "\nview %" PRIu64 "\n", c->generation,
        c->next_incarnation, c->view_number);
    put(&t, "table %u\nformed %d\n", c->table_bound, c->formed);
    put_places(c, &t, whole);
    if (psrti_coord_set_line(c, set, sizeof set)) put(&t, "%s", set);
    put(&t, "end\n");
    if (t.failed)
        psrti_coord_no_memory(c);
    else
        note_written(c, t.len, whole, c->env.persist(c->env.arg, t.at, t.len, !whole));
    free(t.at);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_job(psrti_coord_t *c, const char *line)
{
    unsigned workers, servers, vshards;
    char job[64];

    return sscanf(line, "job %63s %u %u %u", job, &workers, &servers, &vshards) == 4 &&
           strcmp(job, c->job) == 0 && workers == c->p.workers && servers == c->p.servers &&
           vshards == c->p.vshards;
}

/* What records before said of the place. */
static void forget(place_t *p)
{
    free(p->from_table);
    free(p->from_step);
    p->from_table = NULL;
    p->from_step = NULL;
    p->nfrom = p->lost_before = p->next_result = 0;
    p->commit_view = p->set_request = p->set_step = 0;
    memset(p->results, 0, sizeof p->results);
}

static int read_task(psrti_coord_t *c, const char *line)
{
    place_t r = { 0 };
    int state;

    if (sscanf(line, "task %u %d %" SCNu64 " %" SCNu64 " %u %u %u %63s", &r.task, &state,
               &r.incarnation, &r.nonce, &r.term, &r.nthreads, &r.pid, r.host) != 8)
        return 0;
    place_t *p = psrti_coord_place(c, r.task);
    if (!p || state < PLACE_EMPTY || state > PLACE_FINISHED || r.nthreads > PSRTI_MAX_RANKS)
        return 0;
    forget(p);
    p->state = (place_state_t)state;
    p->incarnation = r.incarnation;
    p->nonce = r.nonce;
    p->term = r.term;
    p->nthreads = r.nthreads;
    p->pid = r.pid;
    memcpy(p->host, r.host, sizeof p->host);
    return 1;
}

static int read_lost(psrti_coord_t *c, const char *line)
{
    unsigned task, before;

    if (sscanf(line, "lost %u %u", &task, &before) != 2) return 0;
    place_t *p = psrti_coord_place(c, task);
    if (!p) return 0;
    p->lost_before = before;
    return 1;
}

static int read_result(psrti_coord_t *c, const char *line)
{
    unsigned task;
    uint64_t request;
    int status;

    if (sscanf(line, "result %u %" SCNu64 " %d", &task, &request, &status) != 3) return 0;
    place_t *p = psrti_coord_place(c, task);
    if (!p) return 0;
    uint32_t i = p->next_result++ % COORD_RESULTS;
    p->results[i].request = request;
    p->results[i].status = (psrt_status_t)status;
    return 1;
}

static int read_granted(psrti_coord_t *c, const char *line)
{
    unsigned task;
    uint64_t request, step;

    if (sscanf(line, "granted %u %" SCNu64 " %" SCNu64, &task, &request, &step) != 3) return 0;
    place_t *p = psrti_coord_place(c, task);
    if (!p) return 0;
    p->set_request = request;
    p->set_step = step;
    return 1;
}

static int read_from(psrti_coord_t *c, const char *line)
{
    unsigned task, n;
    uint64_t view;
    int used = 0;

    if (sscanf(line, "from %u %" SCNu64 " %u%n", &task, &view, &n, &used) != 3) return 0;
    place_t *p = psrti_coord_place(c, task);
    if (!p || p->from_table || n > strlen(line)) return 0;
    p->from_table = calloc(n + 1, sizeof *p->from_table);
    p->from_step = calloc(n + 1, sizeof *p->from_step);
    if (!p->from_table || !p->from_step) return 0;
    p->commit_view = view;
    for (line += used; p->nfrom < n; p->nfrom++, line += used)
        if (sscanf(line, " %u:%" SCNu64 "%n", &p->from_table[p->nfrom], &p->from_step[p->nfrom],
                   &used) != 2)
            return 0;
    return 1;
}

static int read_line(psrti_coord_t *c, const char *line)
{
    if (strncmp(line, "task ", 5) == 0) return read_task(c, line);
    if (strncmp(line, "lost ", 5) == 0) return read_lost(c, line);
    if (strncmp(line, "result ", 7) == 0) return read_result(c, line);
    if (strncmp(line, "granted ", 8) == 0) return read_granted(c, line);
    if (strncmp(line, "from ", 5) == 0) return read_from(c, line);
    return sscanf(line, "generation %" SCNu64, &c->generation) == 1 ||
           sscanf(line, "incarnation %" SCNu64, &c->next_incarnation) == 1 ||
           sscanf(line, "view %" SCNu64, &c->view_number) == 1 ||
           sscanf(line, "table %u", &c->table_bound) == 1 ||
           sscanf(line, "formed %d", &c->formed) == 1;
}

/* A record that has no set says that none is under way. */
static int read_end(psrti_coord_t *c, int *has_set)
{
    if (!*has_set) psrti_coord_sets_free(c);
    *has_set = 0;
    return 1;
}

static int read_set(psrti_coord_t *c, const char *line, int *has_set)
{
    psrti_coord_sets_free(c);
    *has_set = 1;
    return psrti_coord_read_set(c, line);
}

/* Cuts off what follows the last complete record; 0: there is none. */
static int cut_tail(char *text)
{
    char *end = NULL;

    for (char *s = text; (s = strstr(s, "\nend\n")) != NULL; s += 4)
        end = s;
    if (end) end[5] = '\0';
    return end != NULL;
}

static psrt_status_t read_lines(psrti_coord_t *c, char *text)
{
    char *save = NULL;
    unsigned number = 1;
    int has_set = 0, whole = cut_tail(text);
    char *line = strtok_r(text, "\n", &save);

    if (!line || strcmp(line, STATE_HEAD) != 0)
        return psrti_fail(PSRT_ERR_INVALID, "coordinator state: does not begin with \"%s\"",
                          STATE_HEAD);
    while ((line = strtok_r(NULL, "\n", &save)) != NULL) {
        number++;
        int ok = number == 2                     ? read_job(c, line)
                 : strcmp(line, "end") == 0      ? read_end(c, &has_set)
                 : strncmp(line, "set ", 4) == 0 ? read_set(c, line, &has_set)
                                                 : read_line(c, line);
        if (!ok)
            return psrti_fail(PSRT_ERR_INVALID,
                              "coordinator state: line %u \"%.60s\" is malformed or of another job",
                              number, line);
    }
    if (whole) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "coordinator state: the end is missing");
}

/* Whoever was alive gets a full lease to come back. */
static psrt_status_t resume(psrti_coord_t *c)
{
    int late = 0;

    c->generation++;
    c->next_table = PSRTI_MAX(c->table_bound, 1);
    for (uint32_t i = 0; i < c->p.servers; i++)
        c->recovering |= psrti_place_live(&c->servers[i]);
    for (uint32_t i = 0; i < c->p.workers; i++) {
        c->recovering |= psrti_place_live(&c->workers[i]);
        late |= c->workers[i].state == PLACE_JOINING;
    }
    if (late && !c->formed) return psrti_fail(PSRT_ERR_INVALID, "coordinator state: inconsistent");
    return c->formed ? psrti_coord_form(c) : PSRT_OK;
}

psrt_status_t psrti_coord_load(psrti_coord_t *c, const char *text)
{
    char *copy = strdup(text);

    if (!copy) return psrti_fail(PSRT_ERR_NO_MEMORY, "coordinator: no memory");
    psrt_status_t st = read_lines(c, copy);
    free(copy);
    return st == PSRT_OK ? resume(c) : st;
}
