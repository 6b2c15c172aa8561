/* SPDX-License-Identifier: Apache-2.0 */
/* What ends with its table or with all: parts are looked for wherever they may wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/worker/client_int.h"

typedef int (*part_test_fn)(const psrti_part_t *p, const void *arg);

/* Parts that were found; some may have ended since, with others. */
typedef struct found {
    part_test_fn test;
    const void *arg;
    psrti_part_t **part, *few[64]; /* part: few, or malloc'ed */
    size_t count, capacity;
} found_t;

static void look_at(found_t *f, psrti_part_t *p)
{
    if (p->state == PSRTI_PART_ENDED || !f->test(p, f->arg)) return;
    if (f->count == f->capacity) {
        psrti_part_t **more = malloc(2 * f->capacity * sizeof(void *));
        if (!more) return; /* it is found again when those before have ended */
        memcpy(more, f->part, f->count * sizeof(void *));
        if (f->part != f->few) free(f->part);
        f->part = more;
        f->capacity *= 2;
    }
    f->part[f->count++] = p;
}

static void look_in(found_t *f, psrti_list_t *list)
{
    for (psrti_list_t *n = list->next; n != list; n = n->next)
        look_at(f, PSRTI_LIST_ENTRY(n, psrti_part_t, node));
}

/* Those that wait for a number and are not in the queue of their slice: they were sent before. */
static void look_in_blocked(found_t *f, psrti_cvshard_t *v)
{
    for (psrti_list_t *n = v->blocked.next; n != &v->blocked; n = n->next) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node);
        if (psrti_list_empty(&p->node)) look_at(f, p);
    }
}

/* All that pass the test, but for those that only wait for their send. */
static void find_parts(psrti_client_t *c, found_t *f)
{
    f->count = 0;
    look_in(f, &c->sent);
    look_in(f, &c->delayed);
    look_in(f, &c->recalled);
    for (uint32_t v = 0; v < c->view->nvshards; v++)
        look_in_blocked(f, &c->vshards[v]);
    for (uint32_t i = 0; i < c->view->nowners; i++)
        for (size_t j = 0; j < c->owners[i].count; j++)
            look_at(f, c->owners[i].heap[j].part);
    size_t pos = 0;
    psrti_ctable_t *t;
    while ((t = psrti_map_next(&c->tables, &pos, NULL)))
        for (uint64_t i = 0; i < t->nslices; i++)
            look_in(f, &t->slice[i].queue);
}

/* Ends every part that passes the test, with its op; status OK: as its table failed. What ends one may end
 * others and make new ones, so they are looked for until there are none; their memory stays ours. */
static void fail_parts(psrti_client_t *c, part_test_fn test, const void *arg, psrt_status_t why,
                       const char *why_text)
{
    found_t f = { .test = test, .arg = arg, .capacity = PSRTI_COUNT(f.few) };
    f.part = f.few;
    for (find_parts(c, &f); f.count; find_parts(c, &f)) {
        for (size_t i = 0; i < f.count; i++) {
            psrti_part_t *p = f.part[i];
            if (p->state == PSRTI_PART_ENDED || !test(p, arg)) continue;
            psrt_status_t status = why ? why : p->table->status;
            const char *text = why ? why_text : p->table->text;
            if (p->op && !p->abandoned)
                psrti_op_fail(c, p->op, status, text);
            else
                psrti_part_end(c, p, status);
        }
    }
    if (f.part != f.few) free(f.part);
}

static int is_of_table(const psrti_part_t *p, const void *arg) { return p->table == arg; }

static int is_of_failed(const psrti_part_t *p, const void *arg)
{
    (void)arg;
    return p->table->status != PSRT_OK;
}

static int is_any(const psrti_part_t *p, const void *arg)
{
    (void)p, (void)arg;
    return 1;
}

void psrti_table_mark_failed(psrti_client_t *c, psrti_ctable_t *t, psrt_status_t status,
                             const char *text)
{
    char why[2 * PSRTI_NAME_MAX + 256];
    size_t pos = 0;
    psrti_ctable_t *other;
    c->some_table_failed = 1;
    t->status = status;
    t->text = strdup(text);
    while (*t->spec.group && (other = psrti_map_next(&c->tables, &pos, NULL))) {
        if (other->status || strcmp(other->spec.group, t->spec.group) != 0) continue;
        snprintf(why, sizeof why, "table %s: lost with its group %s: %s", other->spec.name,
                 t->spec.group, text);
        other->status = status;
        other->text = strdup(why);
    }
}

void psrti_fail_marked(psrti_client_t *c) { fail_parts(c, is_of_failed, NULL, PSRT_OK, NULL); }

void psrti_client_table_fail(psrti_client_t *c, uint32_t id, psrt_status_t status, const char *text)
{
    psrti_ctable_t *t = psrti_map_get(&c->tables, id);
    if (!t || t->status) return;
    psrti_table_mark_failed(c, t, status, text);
    if (*t->spec.group)
        psrti_fail_marked(c);
    else
        fail_parts(c, is_of_table, t, status, text);
}

void psrti_client_fail(psrti_client_t *c, psrt_status_t status, const char *text)
{
    if (c->status) return;
    c->status = status;
    c->text = strdup(text);
    if (c->view) fail_parts(c, is_any, NULL, status, text);
}
