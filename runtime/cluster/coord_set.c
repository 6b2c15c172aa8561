/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters that workers set for a step, in two phases, one set at a time.
 *
 * Every live server is asked how far it is and holds the table from that step on (SetPrepare). If
 * none has closed the step, the decision is persisted before the first server hears of it (SetEnd),
 * and the worker is answered when all have taken it. Until the decision a set may be forgotten: its
 * worker asks again, and a server that registers again while no set is under way is told to let go
 * of whatever it holds. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/coord_internal.h"

typedef struct set {
    psrti_list_t node; /* the first is under way when it has a number */
    place_t *worker;   /* NULL: gone */
    uint64_t request, number;
    uint32_t table;
    double value;
    uint64_t from_step;
    int committed;
    uint32_t owed;    /* servers that have not answered; `owes_set` of the places */
    uint64_t reached; /* highest step that a server has reached, and which it was */
    uint32_t where;
    psrt_status_t refusal; /* the first, with its text */
    char why[COORD_TEXT_MAX];
    char key[];
} set_t;

static set_t *under_way(const psrti_coord_t *c)
{
    set_t *s = PSRTI_LIST_ENTRY(c->sets.next, set_t, node);

    return psrti_list_empty(&c->sets) || !s->number ? NULL : s;
}

static void set_free(set_t *s)
{
    psrti_list_remove(&s->node);
    free(s);
}

static set_t *set_new(psrti_coord_t *c, place_t *worker, uint64_t request, const char *key)
{
    size_t len = strlen(key) + 1;
    set_t *s = calloc(1, sizeof *s + len);

    if (!s) return NULL;
    s->worker = worker;
    s->request = request;
    memcpy(s->key, key, len);
    psrti_list_push(&c->sets, &s->node);
    return s;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_prepare(psrti_coord_t *c, const place_t *server, const set_t *s)
{
    Psrt__SetPrepare body = PSRT__SET_PREPARE__INIT;

    body.number = s->number;
    body.table = s->table;
    body.key = (char *)s->key;
    body.value = s->value;
    body.from_step = s->from_step;
    PSRTI_CONTROL(msg, SET_PREPARE, set_prepare, &body);
    psrti_coord_send(c, server->peer, &msg);
}

static void send_end(psrti_coord_t *c, const place_t *server, uint64_t number, int commit,
                     uint64_t from_step)
{
    Psrt__SetEnd body = PSRT__SET_END__INIT;

    body.number = number;
    body.commit = commit;
    body.from_step = from_step;
    PSRTI_CONTROL(msg, SET_END, set_end, &body);
    psrti_coord_send(c, server->peer, &msg);
}

static void send_done(psrti_coord_t *c, const place_t *worker, uint64_t request,
                      psrt_status_t status, const char *text, uint64_t step)
{
    Psrt__SetDone body = PSRT__SET_DONE__INIT;

    body.request = request;
    body.status = (int32_t)status;
    body.text = (char *)text;
    body.step = step;
    PSRTI_CONTROL(msg, SET_DONE, set_done, &body);
    psrti_coord_send(c, worker->peer, &msg);
}

static void owe_all(psrti_coord_t *c, set_t *s)
{
    s->owed = 0;
    for (uint32_t i = 0; i < c->p.servers; i++) {
        c->servers[i].owes_set = c->servers[i].state == PLACE_ALIVE;
        s->owed += (uint32_t)c->servers[i].owes_set;
    }
}

static void ask(psrti_coord_t *c, const place_t *server, const set_t *s)
{
    if (!server->owes_set) return;
    if (s->committed)
        send_end(c, server, s->number, 1, s->from_step);
    else
        send_prepare(c, server, s);
}

static void ask_all(psrti_coord_t *c, set_t *s)
{
    owe_all(c, s);
    for (uint32_t i = 0; i < c->p.servers; i++)
        ask(c, &c->servers[i], s);
}

/* ---- the two phases -------------------------------------------------------------------------- */

/* Nothing has changed and nothing will. */
static void refuse(psrti_coord_t *c, set_t *s, psrt_status_t status, const char *text)
{
    for (uint32_t i = 0; i < c->p.servers && s->number; i++) {
        c->servers[i].owes_set = 0;
        if (c->servers[i].state == PLACE_ALIVE) send_end(c, &c->servers[i], s->number, 0, 0);
    }
    if (s->worker) send_done(c, s->worker, s->request, status, text, 0);
    set_free(s);
}

/* The change is in force everywhere. */
static void complete(psrti_coord_t *c, set_t *s)
{
    place_t *worker = s->worker;
    uint64_t request = s->request, step = s->from_step;

    set_free(s);
    if (worker) {
        worker->set_request = request;
        worker->set_step = step;
        worker->changed = 1;
    }
    psrti_coord_persist(c);
    if (worker) send_done(c, worker, request, PSRT_OK, "", step);
}

/* Every server that lives has answered the question. */
static void decide(psrti_coord_t *c, set_t *s)
{
    char text[COORD_TEXT_MAX];
    psrt_status_t st = psrti_coord_table_standing(c, s->table, text, sizeof text);

    if (st == PSRT_OK && s->refusal != PSRT_OK) {
        st = s->refusal;
        snprintf(text, sizeof text, "%s", s->why);
    } else if (st == PSRT_OK && s->reached > s->from_step) {
        st = PSRT_ERR_TOO_LATE;
        snprintf(text, sizeof text,
                 "table %s: %s cannot be set from step %" PRIu64 ": server:%u has closed it, "
                 "step %" PRIu64 " is the first that is open",
                 psrti_coord_table_name(c, s->table), s->key, s->from_step, s->where, s->reached);
    }
    if (st != PSRT_OK) {
        refuse(c, s, st, text);
        return;
    }
    if (s->from_step == PSRT_STEP_NEXT) s->from_step = s->reached;
    s->committed = 1;
    psrti_coord_persist(c);
    ask_all(c, s);
    if (s->owed == 0) complete(c, s);
}

static void begin(psrti_coord_t *c, set_t *s)
{
    char text[COORD_TEXT_MAX];
    psrt_status_t st = psrti_coord_table_standing(c, s->table, text, sizeof text);

    if (st != PSRT_OK) {
        refuse(c, s, st, text);
        return;
    }
    s->number = c->generation << 32 | ++c->set_count;
    ask_all(c, s);
    if (s->owed == 0) decide(c, s);
}

static void next_set(psrti_coord_t *c)
{
    while (c->formed && !c->recovering && !c->ending && !psrti_list_empty(&c->sets) &&
           !under_way(c))
        begin(c, PSRTI_LIST_ENTRY(c->sets.next, set_t, node));
}

/* The server has answered, or will not any more. */
void psrti_coord_set_paid(psrti_coord_t *c, place_t *server)
{
    set_t *s = under_way(c);

    if (!server->owes_set || !s) return;
    server->owes_set = 0;
    if (--s->owed > 0 || c->recovering) return;
    if (s->committed)
        complete(c, s);
    else
        decide(c, s);
    next_set(c);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int is_word(const char *key)
{
    size_t n = 0;

    while (n < COORD_KEY_MAX && isgraph((unsigned char)key[n]))
        n++;
    return n > 0 && key[n] == '\0';
}

/* A worker has one request under way, so the last one that was granted tells a repetition. */
psrt_status_t psrti_coord_on_set(psrti_coord_t *c, place_t *worker, const Psrt__Set *msg)
{
    if (msg->request == 0 || !is_word(msg->key)) return PSRT_ERR_PROTOCOL;
    if (msg->request == worker->set_request)
        send_done(c, worker, msg->request, PSRT_OK, "", worker->set_step);
    if (msg->request <= worker->set_request) return PSRT_OK;
    for (const psrti_list_t *n = c->sets.next; n != &c->sets; n = n->next) {
        const set_t *other = PSRTI_LIST_ENTRY(n, set_t, node);
        if (other->worker == worker && other->request == msg->request) return PSRT_OK;
    }
    set_t *s = set_new(c, worker, msg->request, msg->key);
    if (!s) return PSRT_ERR_NO_MEMORY;
    s->table = msg->table;
    s->value = msg->value;
    s->from_step = msg->from_step;
    next_set(c);
    return PSRT_OK;
}

psrt_status_t psrti_coord_on_set_prepared(psrti_coord_t *c, place_t *server,
                                          const Psrt__SetPrepared *msg)
{
    set_t *s = under_way(c);
    psrt_status_t st = psrti_status_from_wire(msg->status);

    if (st == PSRT_ERR_PROTOCOL) return st;
    if (!s || s->committed || s->number != msg->number || !server->owes_set) return PSRT_OK;
    if (st != PSRT_OK && s->refusal == PSRT_OK) {
        s->refusal = st;
        snprintf(s->why, sizeof s->why, "%s", msg->text);
    }
    if (msg->step >= s->reached) {
        s->reached = msg->step;
        s->where = PSRTI_TASK_RANK(server->task);
    }
    psrti_coord_set_paid(c, server);
    return PSRT_OK;
}

void psrti_coord_on_set_ended(psrti_coord_t *c, place_t *server, const Psrt__SetEnded *msg)
{
    const set_t *s = under_way(c);

    if (s && s->committed && s->number == msg->number) psrti_coord_set_paid(c, server);
}

void psrti_coord_resync_set(psrti_coord_t *c, const place_t *server)
{
    const set_t *s = under_way(c);

    if (s)
        ask(c, server, s);
    else
        send_end(c, server, c->generation << 32 | c->set_count, 0, 0);
}

/* What was decided before the restart goes on; servers let go of everything else. */
void psrti_coord_recover_sets(psrti_coord_t *c)
{
    set_t *s = under_way(c);

    if (s) owe_all(c, s);
    for (uint32_t i = 0; i < c->p.servers; i++)
        if (c->servers[i].state == PLACE_ALIVE) psrti_coord_resync_set(c, &c->servers[i]);
    if (s && s->owed == 0) complete(c, s);
}

/* What is under way goes on without it. */
void psrti_coord_set_worker_gone(psrti_coord_t *c, const place_t *worker)
{
    PSRTI_LIST_FOREACH_SAFE(node, next, &c->sets)
    {
        set_t *s = PSRTI_LIST_ENTRY(node, set_t, node);
        if (s->worker != worker) continue;
        s->worker = NULL;
        if (!s->number) set_free(s);
    }
}

/* ---- state file ------------------------------------------------------------------------------ */

int psrti_coord_set_line(const psrti_coord_t *c, char *line, size_t size)
{
    const set_t *s = under_way(c);
    uint64_t bits;

    if (!s || !s->committed) return 0;
    memcpy(&bits, &s->value, sizeof bits); /* as bits: no locale shapes it */
    snprintf(line, size, "set %u %" PRIu64 " %" PRIu64 " %u %" PRIx64 " %" PRIu64 " %s\n",
             s->worker ? s->worker->task : 0, s->request, s->number, s->table, bits, s->from_step,
             s->key);
    return 1;
}

int psrti_coord_read_set(psrti_coord_t *c, const char *line)
{
    unsigned task, table;
    uint64_t request, number, bits, from_step;
    char key[COORD_KEY_MAX + 1];

    _Static_assert(COORD_KEY_MAX == 63, "width of the key below");
    if (sscanf(line, "set %u %" SCNu64 " %" SCNu64 " %u %" SCNx64 " %" SCNu64 " %63s", &task,
               &request, &number, &table, &bits, &from_step, key) != 7 ||
        number == 0)
        return 0;
    set_t *s = set_new(c, psrti_coord_place(c, task), request, key);
    if (!s) return 0;
    s->number = number;
    s->table = table;
    memcpy(&s->value, &bits, sizeof bits);
    s->from_step = from_step;
    s->committed = 1;
    return 1;
}

void psrti_coord_sets_free(psrti_coord_t *c)
{
    while (!psrti_list_empty(&c->sets))
        set_free(PSRTI_LIST_ENTRY(c->sets.next, set_t, node));
}
