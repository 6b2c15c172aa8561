/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of tables, which are clipped and skipped together and so step together; and the steps from
 * which workers that join late count.
 *
 * Servers take the tables that they hold when a group makes its first step for all of it. A worker
 * declares every table of a group before it pushes to one, and a step needs all workers, so those are
 * all there are. A worker that breaks this rule is refused here. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

static const table_t *first_of(const coord_group_t *g)
{
    return PSRTI_LIST_ENTRY(g->tables.next, table_t, group_node);
}

/* The group of this name, made on first use. NULL: no memory. */
static coord_group_t *group_of(psrti_coord_t *c, const char *name)
{
    uint64_t hash = psrti_hash_bytes(name, strlen(name));
    coord_group_t *first = psrti_map_get(&c->groups, hash), *g = first;

    while (g && strcmp(first_of(g)->spec.group, name) != 0)
        g = g->next_name;
    if (g) return g;
    g = calloc(1, sizeof *g);
    if (!g || psrti_map_put(&c->groups, hash, g) != PSRT_OK) {
        free(g);
        psrti_coord_no_memory(c);
        return NULL;
    }
    g->next_name = first;
    psrti_list_init(&g->tables);
    return g;
}

/* OK, or why the table cannot be in the group. */
static psrt_status_t refusal(const coord_group_t *g, const table_t *t, int known, char *text,
                             size_t size)
{
    if (psrti_list_empty(&g->tables)) return PSRT_OK;
    const table_t *first = first_of(g);
    if (g->failed) {
        snprintf(text, size, "table %.160s: its group %.80s has failed: %.200s", t->spec.name,
                 t->spec.group, first->text ? first->text : "");
        return first->status;
    }
    if (g->used && !known) {
        snprintf(
            text, size,
            "table %.160s: group %.80s is in use already: declare all tables of a group before the "
            "first push to one",
            t->spec.name, t->spec.group);
        return PSRT_ERR_INVALID;
    }
    return psrti_table_spec_match(&first->spec, &t->spec, text, size);
}

/* One that is refused is not in the group, which goes on without it. */
void psrti_coord_group_join(psrti_coord_t *c, table_t *t, int known)
{
    char text[COORD_TEXT_MAX];

    if (!*t->spec.group) return;
    coord_group_t *g = group_of(c, t->spec.group);
    if (!g) return;
    psrt_status_t st = refusal(g, t, known, text, sizeof text);
    if (st != PSRT_OK) {
        psrti_coord_fail_table(c, t, st, text);
        return;
    }
    t->group = g;
    psrti_list_push(&g->tables, &t->group_node);
}

/* Its steps can never be complete again. */
void psrti_coord_group_failed(psrti_coord_t *c, table_t *t)
{
    coord_group_t *g = t->group;
    char text[2 * COORD_TEXT_MAX];

    if (!g || g->failed) return;
    g->failed = 1;
    for (psrti_list_t *n = g->tables.next; n != &g->tables; n = n->next) {
        table_t *other = PSRTI_LIST_ENTRY(n, table_t, group_node);
        if (other->status != PSRT_OK) continue;
        snprintf(text, sizeof text, "table %s: lost with its group %s: %s", other->spec.name,
                 t->spec.group, t->text ? t->text : "");
        psrti_coord_fail_table(c, other, t->status, text);
    }
}

void psrti_coord_groups_free(psrti_coord_t *c)
{
    size_t pos = 0;

    for (coord_group_t *g; (g = psrti_map_next(&c->groups, &pos, NULL)) != NULL;) {
        for (coord_group_t *next; g; g = next) {
            next = g->next_name;
            free(g);
        }
    }
    psrti_map_clear(&c->groups);
}

/* ---- steps for a late join ------------------------------------------------------------------- */

void psrti_coord_open_step(psrti_coord_t *c, uint32_t table, uint64_t step)
{
    table_t *t = psrti_map_get(&c->by_id, table);

    if (!t) return;
    t->open_step = t->join_view == c->join_view ? PSRTI_MAX(t->open_step, step) : step;
    t->join_view = c->join_view;
}

/* The tables of a group step together, so a worker joins all of them at the same step; else its step n
 * of one would wait for its step n - 1 of another, which it ends later. */
static void align_groups(psrti_coord_t *c)
{
    size_t pos = 0;

    for (const table_t *t; (t = psrti_map_next(&c->by_id, &pos, NULL)) != NULL;) {
        coord_group_t *g = t->group;
        if (!g || t->join_view != c->join_view) continue;
        g->open_step =
            g->join_view == c->join_view ? PSRTI_MAX(g->open_step, t->open_step) : t->open_step;
        g->join_view = c->join_view;
    }
    pos = 0;
    for (table_t *t; (t = psrti_map_next(&c->by_id, &pos, NULL)) != NULL;) {
        if (!t->group || t->group->join_view != c->join_view) continue;
        t->open_step = t->group->open_step;
        t->join_view = c->join_view;
    }
}

static int by_table(const void *a, const void *b)
{
    uint32_t x = (*(table_t *const *)a)->id, y = (*(table_t *const *)b)->id;

    return (x > y) - (x < y);
}

psrt_status_t psrti_coord_collect_steps(psrti_coord_t *c, place_t *joiner)
{
    table_t **list = calloc(c->by_id.count + 1, sizeof *list);
    uint32_t *ids = calloc(c->by_id.count + 1, sizeof *ids);
    uint64_t *steps = calloc(c->by_id.count + 1, sizeof *steps);
    uint32_t n = 0;
    size_t pos = 0;

    if (!list || !ids || !steps) {
        free(list);
        free(ids);
        free(steps);
        return PSRT_ERR_NO_MEMORY;
    }
    align_groups(c);
    for (table_t *t; (t = psrti_map_next(&c->by_id, &pos, NULL)) != NULL;)
        if (t->join_view == c->join_view) list[n++] = t;
    qsort(list, n, sizeof *list, by_table);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = list[i]->id;
        steps[i] = list[i]->open_step + 1;
    }
    free(list);
    free(joiner->from_table);
    free(joiner->from_step);
    joiner->from_table = ids;
    joiner->from_step = steps;
    joiner->nfrom = n;
    return PSRT_OK;
}
