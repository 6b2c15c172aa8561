/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: the first specification of a name wins; a table is complete when every live server that
 * has a part of it answered for it; the others never hear of it. A table that failed stays in the registry, so that its name keeps failing. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

#define ID_BLOCK 1024u /* ids reserved in the state file at once */

typedef struct request request_t;

/* One table of one Declare. */
typedef struct entry {
    struct table *table;
    request_t *request;
    struct entry *next; /* of the same table, waiting */
    char *mismatch;     /* text if this specification differs; NULL else */
} entry_t;

struct request {
    psrti_list_t node; /* of the worker; points at itself when the worker is gone */
    place_t *worker;   /* NULL: gone */
    uint64_t number;
    size_t count, waiting;
    entry_t entries[];
};

static uint64_t name_hash(const char *name)
{
    return psrti_hash_bytes(name, strlen(name)) | 1; /* keys of the map are not 0 */
}

static table_t *find(const psrti_coord_t *c, const char *name)
{
    table_t *t = psrti_map_get(&c->by_name, name_hash(name));

    while (t && strcmp(t->spec.name, name) != 0)
        t = t->next_name;
    return t;
}

static int has_bit(const uint64_t *bits, uint32_t server)
{
    return (int)(bits[server / 64] >> server % 64 & 1);
}

static int lost_part(const psrti_coord_t *c, const table_t *t)
{
    for (uint32_t i = 0; i < c->p.servers; i++)
        if (t->id < c->servers[i].lost_before && has_bit(t->parts, i)) return 1;
    return 0;
}

static int owes(const table_t *t, uint32_t server) { return t->bits && has_bit(t->bits, server); }

static void owe(table_t *t, uint32_t server)
{
    if (owes(t, server)) return;
    t->bits[server / 64] |= 1ull << server % 64;
    t->owed++;
}

static void paid(table_t *t, uint32_t server)
{
    if (!owes(t, server)) return;
    t->bits[server / 64] &= ~(1ull << server % 64);
    t->owed--;
}

/* New, owed by every live server that has a part of it. NULL: no memory. */
static table_t *table_new(psrti_coord_t *c, uint32_t id, const psrti_table_spec_t *spec)
{
    uint64_t hash = name_hash(spec->name);
    table_t *t = calloc(1, sizeof *t);

    if (t) t->bits = calloc(c->p.servers / 64 + 1, sizeof *t->bits);
    if (t) t->parts = calloc(c->p.servers / 64 + 1, sizeof *t->parts);
    if (!t || !t->bits || !t->parts || psrti_map_put(&c->by_id, id, t) != PSRT_OK) goto err_free;
    t->next_name = psrti_map_get(&c->by_name, hash);
    if (psrti_map_put(&c->by_name, hash, t) != PSRT_OK) goto err_remove;
    t->id = id;
    t->spec = *spec;
    psrti_list_push(&c->inflight, &t->node);
    psrti_list_init(&t->failed_node);
    psrti_coord_find_parts(c, t);
    for (uint32_t i = 0; i < c->p.servers; i++)
        if (c->servers[i].state == PLACE_ALIVE && has_bit(t->parts, i)) owe(t, i);
    return t;

err_remove:
    psrti_map_remove(&c->by_id, id);
err_free:
    if (t) free(t->bits);
    if (t) free(t->parts);
    free(t);
    psrti_coord_no_memory(c);
    return NULL;
}

static uint32_t next_id(psrti_coord_t *c)
{
    uint32_t id = c->next_table++;

    if (id >= c->table_bound) {
        c->table_bound = id + ID_BLOCK;
        psrti_coord_persist(c);
    }
    return id;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void send_declared(psrti_coord_t *c, uint64_t peer, uint64_t request,
                          const psrti_wire_tables_t *tables)
{
    Psrt__Declared body = PSRT__DECLARED__INIT;

    body.request = request;
    body.n_tables = tables->count;
    body.tables = tables->list;
    PSRTI_CONTROL(msg, DECLARED, declared, &body);
    psrti_coord_send(c, peer, &msg);
}

static void request_free(request_t *r)
{
    psrti_list_remove(&r->node);
    for (size_t i = 0; i < r->count; i++)
        free(r->entries[i].mismatch);
    free(r);
}

static void answer(psrti_coord_t *c, request_t *r)
{
    psrti_wire_tables_t tables;

    if (r->worker && psrti_wire_tables_init(&tables, r->count) != PSRT_OK)
        psrti_coord_no_memory(c);
    else if (r->worker) {
        for (size_t i = 0; i < r->count; i++) {
            const entry_t *e = &r->entries[i];
            const table_t *t = e->table;
            psrti_wire_tables_add(&tables, t->id, e->mismatch ? PSRT_ERR_MISMATCH : t->status,
                                  e->mismatch ? e->mismatch : t->text, NULL,
                                  psrti_coord_first_step(r->worker, t->id));
        }
        send_declared(c, r->worker->peer, r->number, &tables);
        psrti_wire_tables_free(&tables);
    }
    request_free(r);
}

/* The table is complete or failed: whoever waited for it is answered when that was the last one. */
static void resolve(psrti_coord_t *c, table_t *t)
{
    entry_t *waiters = t->waiters;

    psrti_list_remove(&t->node);
    free(t->bits);
    t->bits = NULL;
    t->owed = 0;
    t->waiters = NULL;
    for (entry_t *e = waiters, *next; e; e = next) {
        next = e->next;
        if (--e->request->waiting == 0) answer(c, e->request);
    }
}

static void complete(psrti_coord_t *c, table_t *t)
{
    t->complete = 1;
    resolve(c, t);
}

/* Those who were answered are told at the end of the event, all tables in one message. */
void psrti_coord_fail_table(psrti_coord_t *c, table_t *t, psrt_status_t status, const char *text)
{
    if (t->status != PSRT_OK) return;
    t->status = status;
    t->text = strdup(text);
    if (!t->text) psrti_coord_no_memory(c);
    if (t->complete || t->used) psrti_list_push(&c->untold, &t->failed_node);
    if (!t->complete) resolve(c, t);
    psrti_coord_group_failed(c, t);
}

static size_t list_length(const psrti_list_t *head)
{
    size_t n = 0;

    for (const psrti_list_t *node = head->next; node != head; node = node->next)
        n++;
    return n;
}

void psrti_coord_tell_failed(psrti_coord_t *c)
{
    size_t n = list_length(&c->untold);
    psrti_wire_tables_t tables;

    if (n == 0) return;
    if (psrti_wire_tables_init(&tables, n) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    for (psrti_list_t *node; (node = psrti_list_pop(&c->untold)) != NULL;) {
        const table_t *t = PSRTI_LIST_ENTRY(node, table_t, failed_node);
        psrti_wire_tables_add(&tables, t->id, t->status, t->text, NULL, 0);
    }
    for (uint32_t i = 0; i < c->p.workers; i++)
        if (c->workers[i].state == PLACE_ALIVE) send_declared(c, c->workers[i].peer, 0, &tables);
    psrti_wire_tables_free(&tables);
}

/* ---- holds ----------------------------------------------------------------------------------- */

/* To one server: all tables that it owes an answer for. */
void psrti_coord_send_holds(psrti_coord_t *c, place_t *server)
{
    uint32_t rank = PSRTI_TASK_RANK(server->task);
    size_t n = list_length(&c->inflight);
    psrti_wire_tables_t tables;
    Psrt__Hold body = PSRT__HOLD__INIT;

    if (n == 0 || server->state != PLACE_ALIVE) return;
    if (psrti_wire_tables_init(&tables, n) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    for (psrti_list_t *node = c->inflight.next; node != &c->inflight; node = node->next) {
        const table_t *t = PSRTI_LIST_ENTRY(node, table_t, node);
        if (owes(t, rank)) psrti_wire_tables_add(&tables, t->id, PSRT_OK, NULL, &t->spec, 0);
    }
    body.n_tables = tables.count;
    body.tables = tables.list;
    PSRTI_CONTROL(msg, HOLD, hold, &body);
    if (tables.count) psrti_coord_send(c, server->peer, &msg);
    psrti_wire_tables_free(&tables);
}

void psrti_coord_settle_tables(psrti_coord_t *c)
{
    PSRTI_LIST_FOREACH_SAFE(node, next, &c->inflight)
    {
        table_t *t = PSRTI_LIST_ENTRY(node, table_t, node);
        if (t->owed == 0) complete(c, t);
    }
}

psrt_status_t psrti_coord_on_held(psrti_coord_t *c, place_t *server, const Psrt__Held *msg)
{
    uint32_t rank = PSRTI_TASK_RANK(server->task);

    for (size_t i = 0; i < msg->n_tables; i++) {
        table_t *t = psrti_map_get(&c->by_id, msg->tables[i]->id);
        psrt_status_t st = psrti_status_from_wire(msg->tables[i]->status);

        if (st == PSRT_ERR_PROTOCOL) return st;
        if (!t || !owes(t, rank)) continue;
        paid(t, rank);
        if (st != PSRT_OK)
            psrti_coord_fail_table(c, t, st, msg->tables[i]->text);
        else if (t->owed == 0)
            complete(c, t);
    }
    return PSRT_OK;
}

/* ---- declares -------------------------------------------------------------------------------- */

/* To one server: those of the request's tables that were dealt to it. */
static void send_hold(psrti_coord_t *c, const place_t *server, const request_t *r,
                      const uint32_t *index, size_t n)
{
    psrti_wire_tables_t tables;
    Psrt__Hold body = PSRT__HOLD__INIT;

    if (n == 0 || server->state != PLACE_ALIVE) return;
    if (psrti_wire_tables_init(&tables, n) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const table_t *t = r->entries[index[i]].table;
        psrti_wire_tables_add(&tables, t->id, PSRT_OK, NULL, &t->spec, 0);
    }
    body.n_tables = tables.count;
    body.tables = tables.list;
    PSRTI_CONTROL(msg, HOLD, hold, &body);
    psrti_coord_send(c, server->peer, &msg);
    psrti_wire_tables_free(&tables);
}

/* Holds of the tables that this request created, one message a server. */
static void hold_new(psrti_coord_t *c, const request_t *r, uint32_t first_id)
{
    psrti_dealt_t dealt;

    if (first_id == c->next_table || !r->count) return;
    uint32_t *ids = calloc(r->count, sizeof *ids); /* 0: not one of them */
    for (size_t i = 0; ids && i < r->count; i++) {
        const table_t *t = r->entries[i].table;
        if (t->id >= first_id && t->owed) ids[i] = t->id;
    }
    if (!ids || psrti_coord_deal(c, ids, (uint32_t)r->count, &dealt) != PSRT_OK) {
        free(ids);
        psrti_coord_no_memory(c);
        return;
    }
    for (uint32_t i = 0; i < c->p.servers; i++)
        send_hold(c, &c->servers[i], r, dealt.index + dealt.first[i],
                  dealt.first[i + 1] - dealt.first[i]);
    psrti_coord_dealt_free(&dealt);
    free(ids);
}

static void compare(psrti_coord_t *c, entry_t *e, const psrti_table_spec_t *spec, uint32_t worker)
{
    table_t *t = e->table;
    char why[COORD_TEXT_MAX], first[32], second[32];

    psrti_task_name(PSRTI_TASK(PSRTI_WORKER, t->first_worker), first);
    psrti_task_name(PSRTI_TASK(PSRTI_WORKER, worker), second);
    if (t->status != PSRT_OK ||
        psrti_table_spec_compare(&t->spec, first, spec, second, why, sizeof why) == PSRT_OK)
        return;
    e->mismatch = strdup(why);
    if (!e->mismatch) psrti_coord_no_memory(c);
    if (!t->used) psrti_coord_fail_table(c, t, PSRT_ERR_MISMATCH, why);
}

static psrt_status_t declare_one(psrti_coord_t *c, request_t *r, entry_t *e,
                                 const psrti_table_spec_t *spec)
{
    uint32_t rank = PSRTI_TASK_RANK(r->worker->task);

    e->request = r;
    e->table = find(c, spec->name);
    if (!e->table) {
        e->table = table_new(c, next_id(c), spec);
        if (!e->table) return PSRT_ERR_NO_MEMORY;
        e->table->first_worker = rank;
        psrti_coord_group_join(c, e->table, 0);
        if (e->table->owed == 0 && e->table->status == PSRT_OK) complete(c, e->table);
    }
    compare(c, e, spec, rank);
    if (e->table->complete || e->table->status != PSRT_OK) return PSRT_OK;
    e->next = e->table->waiters;
    e->table->waiters = e;
    r->waiting++;
    return PSRT_OK;
}

static int is_repeated(const place_t *worker, uint64_t number)
{
    for (const psrti_list_t *n = worker->requests.next; n != &worker->requests; n = n->next)
        if (PSRTI_LIST_ENTRY(n, request_t, node)->number == number) return 1;
    return 0;
}

static psrt_status_t check_specs(const Psrt__Declare *msg, psrti_table_spec_t **specs_p)
{
    psrti_table_spec_t *specs = calloc(msg->n_specs, sizeof *specs);

    for (size_t i = 0; specs && i < msg->n_specs; i++) {
        if (psrti_spec_from_wire(msg->specs[i], &specs[i]) == PSRT_OK) continue;
        free(specs);
        return PSRT_ERR_PROTOCOL;
    }
    *specs_p = specs;
    return specs ? PSRT_OK : PSRT_ERR_NO_MEMORY;
}

/* A repeated request is in flight and will be answered, or everything in it is decided and the
 * answer comes out the same. */
psrt_status_t psrti_coord_on_declare(psrti_coord_t *c, place_t *worker, const Psrt__Declare *msg)
{
    psrti_table_spec_t *specs;
    uint32_t first_id = c->next_table;

    if (msg->request == 0 || msg->n_specs == 0) return PSRT_ERR_PROTOCOL;
    if (is_repeated(worker, msg->request)) return PSRT_OK;
    psrt_status_t st = check_specs(msg, &specs);
    if (st != PSRT_OK) return st;
    request_t *r = calloc(1, sizeof *r + msg->n_specs * sizeof r->entries[0]);
    if (!r) {
        free(specs);
        return PSRT_ERR_NO_MEMORY;
    }
    r->worker = worker;
    r->number = msg->request;
    psrti_list_push(&worker->requests, &r->node);
    r->waiting = 1; /* keeps it from being answered before all entries are there */
    for (size_t i = 0; i < msg->n_specs && !c->ending; i++, r->count++)
        if (declare_one(c, r, &r->entries[i], &specs[i]) != PSRT_OK) break;
    free(specs);
    if (c->ending)
        return PSRT_OK; /* out of memory; the job is ending, the request is freed with it */
    hold_new(c, r, first_id);
    if (--r->waiting == 0) answer(c, r);
    return PSRT_OK;
}

void psrti_coord_on_used(psrti_coord_t *c, uint32_t table)
{
    table_t *t = psrti_map_get(&c->by_id, table);

    if (!t) return;
    t->used = 1;
    if (t->group) t->group->used = 1;
}

psrt_status_t psrti_coord_table_standing(const psrti_coord_t *c, uint32_t table, char *text,
                                         size_t size)
{
    const table_t *t = psrti_map_get(&c->by_id, table);

    if (!t) {
        snprintf(text, size, "table %u is not declared", table);
        return PSRT_ERR_NOT_FOUND;
    }
    if (t->status != PSRT_OK) {
        snprintf(text, size, "%s", t->text);
        return t->status;
    }
    for (uint32_t i = 0; i < c->p.servers; i++) {
        if (c->servers[i].state == PLACE_ALIVE || !has_bit(t->parts, i)) continue;
        snprintf(text, size, "table \"%s\": server:%u died, its part is lost", t->spec.name, i);
        return PSRT_ERR_SHARD_LOST;
    }
    return PSRT_OK;
}

const char *psrti_coord_table_name(const psrti_coord_t *c, uint32_t table)
{
    const table_t *t = psrti_map_get(&c->by_id, table);

    return t ? t->spec.name : "?";
}

/* ---- tasks that come and go ------------------------------------------------------------------ */

static psrt_status_t merge_one(psrti_coord_t *c, place_t *p, const Psrt__Table *in, table_t **t_p)
{
    psrt_status_t status = psrti_status_from_wire(in->status);
    psrti_table_spec_t spec;
    table_t *t = psrti_map_get(&c->by_id, in->id);

    *t_p = t;
    if (status == PSRT_ERR_PROTOCOL || in->id == 0) return PSRT_ERR_PROTOCOL;
    if (!t) {
        /* Known to no one here: this coordinator was restarted. */
        if (psrti_spec_from_wire(in->spec, &spec) != PSRT_OK) return PSRT_ERR_PROTOCOL;
        if (find(c, spec.name)) return PSRT_ERR_PROTOCOL;
        t = table_new(c, in->id, &spec);
        if (!t) return PSRT_ERR_NO_MEMORY;
        t->used = 1; /* nobody knows; this way a running worker is never disturbed */
        t->first_worker = PSRTI_TASK_ROLE(p->task) == PSRTI_WORKER ? PSRTI_TASK_RANK(p->task) : 0;
        c->next_table = PSRTI_MAX(c->next_table, in->id + 1);
        psrti_coord_group_join(c, t, 1);
        if (status != PSRT_OK)
            psrti_coord_fail_table(c, t, status, in->text);
        else if (lost_part(c, t))
            psrti_coord_fail_table(c, t, PSRT_ERR_SHARD_LOST,
                                   "a server was restarted, its part is lost");
        *t_p = t;
    }
    if (in->used) psrti_coord_on_used(c, in->id);
    if (PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER && owes(t, PSRTI_TASK_RANK(p->task))) {
        paid(t, PSRTI_TASK_RANK(p->task));
        if (status != PSRT_OK)
            psrti_coord_fail_table(c, t, status, in->text);
        else if (t->owed == 0 && !c->recovering)
            complete(c, t);
    }
    return PSRT_OK;
}

psrt_status_t psrti_coord_merge(psrti_coord_t *c, place_t *p, const Psrt__Join *join)
{
    psrti_wire_tables_t news; /* failures that this worker has not heard of */
    psrt_status_t st = psrti_wire_tables_init(&news, join->n_held);

    for (size_t i = 0; i < join->n_held && st == PSRT_OK; i++) {
        table_t *t = NULL;
        st = merge_one(c, p, join->held[i], &t);
        if (st == PSRT_OK && t->status != PSRT_OK && join->held[i]->status == PSRT_OK)
            psrti_wire_tables_add(&news, t->id, t->status, t->text, NULL, 0);
    }
    if (st == PSRT_OK && news.count && PSRTI_TASK_ROLE(p->task) == PSRTI_WORKER)
        send_declared(c, p->peer, 0, &news);
    psrti_wire_tables_free(&news);
    return st;
}

void psrti_coord_server_reborn(psrti_coord_t *c, place_t *server)
{
    uint32_t rank = PSRTI_TASK_RANK(server->task);
    char text[COORD_TEXT_MAX];
    size_t pos = 0;

    server->lost_before = c->next_table;
    server->changed = 1;
    for (table_t *t; (t = psrti_map_next(&c->by_id, &pos, NULL)) != NULL;) {
        if (t->status != PSRT_OK || !has_bit(t->parts, rank)) continue;
        if (!t->complete && !t->used) {
            owe(t, rank); /* nobody was told that it exists: it can still be whole */
            continue;
        }
        snprintf(text, sizeof text, "table \"%s\": server:%u was restarted, its part is lost",
                 t->spec.name, rank);
        psrti_coord_fail_table(c, t, PSRT_ERR_SHARD_LOST, text);
    }
}

void psrti_coord_server_gone(psrti_coord_t *c, place_t *server)
{
    PSRTI_LIST_FOREACH_SAFE(node, next, &c->inflight)
    paid(PSRTI_LIST_ENTRY(node, table_t, node), PSRTI_TASK_RANK(server->task));
    if (!c->recovering) psrti_coord_settle_tables(c);
}

/* Entries stay in the lists of their tables until those resolve. */
void psrti_coord_worker_gone(psrti_coord_t *c, place_t *worker)
{
    (void)c;
    for (psrti_list_t *node; (node = psrti_list_pop(&worker->requests)) != NULL;)
        PSRTI_LIST_ENTRY(node, request_t, node)->worker = NULL;
}

void psrti_coord_tables_free(psrti_coord_t *c)
{
    size_t pos = 0;

    /* Requests hang on their tables, or, already out of those lists, on their worker. */
    for (table_t *t; (t = psrti_map_next(&c->by_id, &pos, NULL)) != NULL;) {
        for (entry_t *e = t->waiters, *next; e; e = next) {
            next = e->next;
            if (--e->request->waiting == 0) request_free(e->request);
        }
        free(t->bits);
        free(t->parts);
        free(t->text);
        free(t);
    }
    for (uint32_t i = 0; c->workers && i < c->p.workers; i++)
        while (!psrti_list_empty(&c->workers[i].requests))
            request_free(PSRTI_LIST_ENTRY(c->workers[i].requests.next, request_t, node));
    psrti_coord_groups_free(c);
    psrti_map_clear(&c->by_id);
    psrti_map_clear(&c->by_name);
}
