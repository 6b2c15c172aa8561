/* SPDX-License-Identifier: Apache-2.0 */
/* What was asked of the coordinator or by it: tables and barriers. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/member_internal.h"

/* ---- asking ---------------------------------------------------------------------------------- */

static psrt_status_t send_declare(psrti_member_core_t *m, const declare_t *d)
{
    Psrt__Declare body = PSRT__DECLARE__INIT;
    Psrt__TableSpec **list = malloc(d->count * (sizeof *list + sizeof **list));

    if (!list) return PSRT_ERR_NO_MEMORY;
    Psrt__TableSpec *specs = (Psrt__TableSpec *)(list + d->count);
    for (size_t i = 0; i < d->count; i++) {
        psrti_spec_to_wire(&d->specs[i], &specs[i]);
        list[i] = &specs[i];
    }
    body.request = d->request;
    body.n_specs = d->count;
    body.specs = list;
    PSRTI_CONTROL(msg, DECLARE, declare, &body);
    m->env.send(m->env.arg, &msg);
    free(list);
    return PSRT_OK;
}

static void send_barrier(psrti_member_core_t *m, const barrier_wait_t *b)
{
    Psrt__Barrier body = PSRT__BARRIER__INIT;

    body.name = (char *)b->name;
    body.count = b->count;
    body.request = b->request;
    body.withdraw = b->withdrawn;
    PSRTI_CONTROL(msg, BARRIER, barrier, &body);
    m->env.send(m->env.arg, &msg);
}

static void send_used(psrti_member_core_t *m, uint32_t table)
{
    Psrt__Used body = PSRT__USED__INIT;

    body.table = table;
    PSRTI_CONTROL(msg, USED, used, &body);
    m->env.send(m->env.arg, &msg);
}

void psrti_member_ask_again(psrti_member_core_t *m)
{
    size_t pos = 0;

    if (!psrti_member_can_ask(m)) return;
    for (const known_t *k; (k = psrti_map_next(&m->tables, &pos, NULL)) != NULL;)
        if (k->used) send_used(m, k->id);
    for (psrti_list_t *n = m->declares.next; n != &m->declares; n = n->next) {
        if (send_declare(m, PSRTI_LIST_ENTRY(n, declare_t, node)) == PSRT_OK) continue;
        psrti_member_end(m, PSRT_ERR_NO_MEMORY, "no memory to declare tables");
        return;
    }
    for (psrti_list_t *n = m->barriers.next; n != &m->barriers; n = n->next)
        send_barrier(m, PSRTI_LIST_ENTRY(n, barrier_wait_t, node));
    psrti_member_ask_set(m);
}

psrt_status_t psrti_member_core_declare(psrti_member_core_t *m, uint64_t request, size_t count,
                                        const psrti_table_spec_t *specs)
{
    declare_t *d = malloc(sizeof *d + count * sizeof d->specs[0]);

    if (!d) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory to declare %zu tables", count);
    d->request = request;
    d->count = count;
    memcpy(d->specs, specs, count * sizeof d->specs[0]);
    psrti_list_push(&m->declares, &d->node);
    return psrti_member_can_ask(m) ? send_declare(m, d) : PSRT_OK;
}

psrt_status_t psrti_member_core_barrier(psrti_member_core_t *m, uint64_t request, const char *name,
                                        uint32_t count)
{
    barrier_wait_t *b = calloc(1, sizeof *b);

    if (!b) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a barrier");
    snprintf(b->name, sizeof b->name, "%s", name);
    b->request = request;
    b->count = count;
    psrti_list_push(&m->barriers, &b->node);
    if (psrti_member_can_ask(m)) send_barrier(m, b);
    return PSRT_OK;
}

static barrier_wait_t *find_barrier(const psrti_member_core_t *m, uint64_t request)
{
    for (psrti_list_t *n = m->barriers.next; n != &m->barriers; n = n->next) {
        barrier_wait_t *b = PSRTI_LIST_ENTRY(n, barrier_wait_t, node);
        if (b->request == request) return b;
    }
    return NULL;
}

void psrti_member_core_withdraw(psrti_member_core_t *m, uint64_t request)
{
    barrier_wait_t *b = find_barrier(m, request);

    if (!b) return;
    b->withdrawn = 1;
    if (psrti_member_can_ask(m)) send_barrier(m, b);
}

void psrti_member_core_used(psrti_member_core_t *m, uint32_t table)
{
    known_t *k = psrti_map_get(&m->tables, table);

    if (!k || k->used) return;
    k->used = 1;
    if (psrti_member_can_ask(m)) send_used(m, table);
}

/* Only tables that failed have a text. */
static const char *text_of(const known_t *k) { return k->text ? k->text : ""; }

static void set_text(known_t *k, const char *text)
{
    free(k->text);
    k->text = text ? strdup(text) : NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

static declare_t *find_declare(const psrti_member_core_t *m, uint64_t request)
{
    for (psrti_list_t *n = m->declares.next; n != &m->declares; n = n->next) {
        declare_t *d = PSRTI_LIST_ENTRY(n, declare_t, node);
        if (d->request == request) return d;
    }
    return NULL;
}

static psrt_status_t remember(psrti_member_core_t *m, uint32_t id, const psrti_table_spec_t *spec,
                              known_t **known_p)
{
    known_t *k = psrti_map_get(&m->tables, id);

    if (!k) {
        k = calloc(1, sizeof *k);
        if (!k || psrti_map_put(&m->tables, id, k) != PSRT_OK) {
            free(k);
            return PSRT_ERR_NO_MEMORY;
        }
        k->id = id;
        k->spec = *spec;
    }
    *known_p = k;
    return PSRT_OK;
}

/* The answer to a request: one entry per specification, in its order. */
static psrt_status_t answer(psrti_member_core_t *m, const Psrt__Declared *msg, declare_t *d,
                            psrti_member_table_t *out)
{
    for (size_t i = 0; i < d->count; i++) {
        const Psrt__Table *t = msg->tables[i];
        known_t *k;

        out[i].id = t->id;
        out[i].status = psrti_status_from_wire(t->status);
        out[i].text = t->text;
        out[i].first_step = t->first_step;
        out[i].spec = &d->specs[i];
        if (t->id == 0 || out[i].status == PSRT_ERR_PROTOCOL) return PSRT_ERR_PROTOCOL;
        /* What is remembered is brought along when registering again, so that a lost table stays
         * lost. After a mismatch it is only this task's own specification that was refused. */
        if (out[i].status == PSRT_ERR_MISMATCH) continue;
        if (remember(m, t->id, &d->specs[i], &k) != PSRT_OK) return PSRT_ERR_NO_MEMORY;
        k->status = out[i].status;
        if (k->status != PSRT_OK) set_text(k, t->text);
    }
    psrti_list_remove(&d->node);
    m->env.declared(m->env.arg, d->request, d->count, out);
    free(d);
    return PSRT_OK;
}

/* Tables that failed later; those this task does not know or knows to be failed are left out. */
static psrt_status_t failed_later(psrti_member_core_t *m, const Psrt__Declared *msg,
                                  psrti_member_table_t *out)
{
    size_t n = 0;

    for (size_t i = 0; i < msg->n_tables; i++) {
        const Psrt__Table *t = msg->tables[i];
        known_t *k = psrti_map_get(&m->tables, t->id);
        psrt_status_t st = psrti_status_from_wire(t->status);

        if (st == PSRT_ERR_PROTOCOL) return st;
        if (!k || k->status != PSRT_OK || st == PSRT_OK) continue;
        k->status = st;
        set_text(k, t->text);
        out[n].id = k->id;
        out[n].status = st;
        out[n].text = text_of(k);
        out[n].first_step = 0;
        out[n++].spec = &k->spec;
    }
    if (n) m->env.declared(m->env.arg, 0, n, out);
    return PSRT_OK;
}

psrt_status_t psrti_member_on_declared(psrti_member_core_t *m, const Psrt__Declared *msg)
{
    declare_t *d = msg->request ? find_declare(m, msg->request) : NULL;

    if (msg->request && !d) return PSRT_OK; /* answered before */
    if (d && d->count != msg->n_tables) return PSRT_ERR_PROTOCOL;
    psrti_member_table_t *out = calloc(msg->n_tables + 1, sizeof *out);
    if (!out) return PSRT_ERR_NO_MEMORY;
    psrt_status_t st = d ? answer(m, msg, d, out) : failed_later(m, msg, out);
    free(out);
    return st;
}

psrt_status_t psrti_member_on_barrier_done(psrti_member_core_t *m, const Psrt__BarrierDone *msg)
{
    barrier_wait_t *b = find_barrier(m, msg->request);
    psrt_status_t st = psrti_status_from_wire(msg->status);

    if (st == PSRT_ERR_PROTOCOL) return st;
    if (!b) return PSRT_OK;
    psrti_list_remove(&b->node);
    free(b);
    m->env.barrier_done(m->env.arg, msg->request, st, msg->text);
    return PSRT_OK;
}

/* ---- servers --------------------------------------------------------------------------------- */

static void send_held(psrti_member_core_t *m, const psrti_wire_tables_t *tables)
{
    Psrt__Held body = PSRT__HELD__INIT;

    body.n_tables = tables->count;
    body.tables = tables->list;
    PSRTI_CONTROL(msg, HELD, held, &body);
    if (tables->count && m->state == MEMBER_JOINED) m->env.send(m->env.arg, &msg);
}

static psrt_status_t sort_holds(psrti_member_core_t *m, const Psrt__Hold *msg,
                                psrti_member_table_t *fresh, size_t *nfresh,
                                psrti_wire_tables_t *again)
{
    for (size_t i = 0; i < msg->n_tables; i++) {
        const Psrt__Table *t = msg->tables[i];
        known_t *k = psrti_map_get(&m->tables, t->id);
        psrti_table_spec_t spec;

        if (k && !k->pending) psrti_wire_tables_add(again, k->id, k->status, text_of(k), NULL, 0);
        if (k) continue;
        if (t->id == 0 || psrti_spec_from_wire(t->spec, &spec) != PSRT_OK) return PSRT_ERR_PROTOCOL;
        if (remember(m, t->id, &spec, &k) != PSRT_OK) return PSRT_ERR_NO_MEMORY;
        k->pending = 1;
        fresh[*nfresh].id = t->id;
        fresh[*nfresh].status = PSRT_OK;
        fresh[*nfresh].text = "";
        fresh[(*nfresh)++].spec = &k->spec;
    }
    return PSRT_OK;
}

/* A Hold that is repeated after a reconnect is answered from what was said before. */
psrt_status_t psrti_member_on_hold(psrti_member_core_t *m, const Psrt__Hold *msg)
{
    psrti_member_table_t *fresh = calloc(msg->n_tables + 1, sizeof *fresh);
    psrti_wire_tables_t again;
    size_t nfresh = 0;

    if (!fresh || psrti_wire_tables_init(&again, msg->n_tables) != PSRT_OK) {
        free(fresh);
        return PSRT_ERR_NO_MEMORY;
    }
    psrt_status_t st = sort_holds(m, msg, fresh, &nfresh, &again);
    send_held(m, &again);
    if (nfresh) m->env.hold(m->env.arg, nfresh, fresh);
    psrti_wire_tables_free(&again);
    free(fresh);
    return st;
}

psrt_status_t psrti_member_core_held(psrti_member_core_t *m, size_t count,
                                     const psrti_member_table_t *tables)
{
    psrti_wire_tables_t list;
    psrt_status_t st = psrti_wire_tables_init(&list, count);

    if (st != PSRT_OK) return st;
    for (size_t i = 0; i < count; i++) {
        known_t *k = psrti_map_get(&m->tables, tables[i].id);
        if (!k || !k->pending) continue;
        k->pending = 0;
        k->status = tables[i].status;
        if (k->status != PSRT_OK) set_text(k, tables[i].text);
        psrti_wire_tables_add(&list, k->id, k->status, text_of(k), NULL, 0);
    }
    send_held(m, &list);
    psrti_wire_tables_free(&list);
    return PSRT_OK;
}

void psrti_member_core_prepared(psrti_member_core_t *m, uint64_t view, size_t count,
                                const uint32_t *table, const uint64_t *open_step)
{
    Psrt__Prepared body = PSRT__PREPARED__INIT;

    body.view = view;
    body.n_table = body.n_open_step = count;
    body.table = (uint32_t *)table;
    body.open_step = (uint64_t *)open_step;
    PSRTI_CONTROL(msg, PREPARED, prepared, &body);
    if (m->state == MEMBER_JOINED) m->env.send(m->env.arg, &msg);
}

/* ---- registering again ----------------------------------------------------------------------- */

psrt_status_t psrti_member_list_held(const psrti_member_core_t *m, psrti_wire_tables_t *tables)
{
    psrt_status_t st = psrti_wire_tables_init(tables, m->tables.count);
    size_t pos = 0;

    if (st != PSRT_OK) return st;
    for (const known_t *k; (k = psrti_map_next(&m->tables, &pos, NULL)) != NULL;) {
        if (k->pending) continue;
        psrti_wire_tables_add(tables, k->id, k->status, text_of(k), &k->spec, 0);
        tables->tables[tables->count - 1].used = k->used != 0;
    }
    return PSRT_OK;
}

void psrti_member_tables_free(psrti_member_core_t *m)
{
    size_t pos = 0;

    for (known_t *k; (k = psrti_map_next(&m->tables, &pos, NULL)) != NULL;) {
        free(k->text);
        free(k);
    }
    psrti_map_clear(&m->tables);
    for (psrti_list_t *n; (n = psrti_list_pop(&m->declares)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, declare_t, node));
    for (psrti_list_t *n; (n = psrti_list_pop(&m->barriers)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, barrier_wait_t, node));
}
