/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of tables in the coordinator's registry, with one scripted server and two workers. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"
#include "support/test.h"

#define W0 1 /* peers */
#define W1 2
#define S0 3

typedef struct seen {
    psrt_status_t status[16]; /* by table: what was declared of it last */
    char text[16][512];
    uint32_t last; /* table of the last answer */
    int prepares, nfrom;
    uint64_t prepare_view, from[16]; /* of a commit, by table */
} seen_t;

typedef struct fixture {
    coord_fx_t fx;
    uint64_t requests;
    seen_t peer[PEERS];
} fixture_t;

static void note_tables(seen_t *s, const Psrt__Declared *m)
{
    for (size_t i = 0; i < m->n_tables; i++) {
        const Psrt__Table *t = m->tables[i];
        s->last = t->id;
        s->status[t->id] = (psrt_status_t)t->status;
        snprintf(s->text[t->id], sizeof s->text[0], "%s", t->text);
    }
}

static void on_send(void *arg, uint64_t peer, const Psrt__Control *m)
{
    seen_t *s = &((fixture_t *)arg)->peer[peer];
    if (m->body_case == PSRT__CONTROL__BODY_DECLARED) note_tables(s, m->declared);
    if (m->body_case == PSRT__CONTROL__BODY_PREPARE)
        s->prepares++, s->prepare_view = m->prepare->view;
    if (m->body_case != PSRT__CONTROL__BODY_COMMIT) return;
    s->nfrom = (int)m->commit->n_table;
    for (size_t i = 0; i < m->commit->n_table; i++)
        s->from[m->commit->table[i]] = m->commit->from_step[i];
}

static void message(fixture_t *f, uint64_t peer, const Psrt__Control *m)
{
    cr_assert_eq(coord_fx_message(&f->fx, peer, m), PSRT_OK);
}

static void join(fixture_t *f, uint64_t peer, uint32_t task)
{
    coord_fx_join_t join = { .task = task,
                             .nonce = 1000 + peer,
                             .workers = 2,
                             .servers = 1,
                             .threads = PSRTI_TASK_ROLE(task) == PSRTI_SERVER };
    psrti_coord_peer_up(f->fx.c, peer, task, f->fx.now);
    cr_assert_eq(coord_fx_join(&f->fx, peer, &join), PSRT_OK);
}

static fixture_t *assembled(void)
{
    fixture_t *f = calloc(1, sizeof *f);
    f->fx.sent = on_send;
    f->fx.arg = f;
    cr_assert_eq(coord_fx_open(&f->fx, 1, NULL), PSRT_OK);
    join(f, W0, W(0));
    join(f, W1, W(1));
    join(f, S0, S(0));
    return f;
}

static void fixture_free(fixture_t *f)
{
    cr_assert_eq(f->fx.finished, 0, "the job is over: %s", f->fx.text);
    coord_fx_close(&f->fx);
    free(f);
}

static void held(fixture_t *f, uint32_t table, psrt_status_t status, const char *text)
{
    coord_fx_held(&f->fx, S0, table, status, text);
}

static void declare(fixture_t *f, uint64_t peer, const char *name, const char *optimizer,
                    const char *group)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    p.ndim = 1, p.shape[0] = 4, p.optimizer = optimizer, p.group = group;
    cr_assert_eq(psrti_table_spec_make(name, &p, &spec), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(coord_fx_declare(&f->fx, peer, ++f->requests, &spec), PSRT_OK);
}

static void used(fixture_t *f, uint32_t table)
{
    Psrt__Used body = PSRT__USED__INIT;
    body.table = table;
    PSRTI_CONTROL(m, USED, used, &body);
    message(f, W0, &m);
}

/* Table 1 "a" and table 2 "b" of group g are held. */
static fixture_t *two_tables(void)
{
    fixture_t *f = assembled();
    declare(f, W0, "a", "sgd:clip_norm=1", "g");
    declare(f, W0, "b", "adam:clip_norm=1", "g");
    held(f, 1, PSRT_OK, NULL);
    held(f, 2, PSRT_OK, NULL);
    cr_assert(f->peer[W0].last == 2 && f->peer[W0].status[2] == PSRT_OK);
    return f;
}

static void says(const seen_t *s, uint32_t table, psrt_status_t status, const char *text)
{
    cr_assert_eq(s->status[table], status, "table %u: %s", table,
                 psrt_status_name(s->status[table]));
    cr_assert_not_null(strstr(s->text[table], text), "table %u: %s", table, s->text[table]);
}

Test(coord_group, other_clipping_is_refused_and_names_both_tables)
{
    fixture_t *f = two_tables();
    declare(f, W1, "c", "sgd:clip_norm=2", "g");
    says(&f->peer[W1], 3, PSRT_ERR_MISMATCH,
         "group g: clip_norm is 1 for table a, but 2 for table c");
    declare(f, W1, "d", "sgd:clip_norm=1,skip_nonfinite=1", "g");
    says(&f->peer[W1], 4, PSRT_ERR_MISMATCH,
         "group g: skip_nonfinite is 0 for table a, but 1 for table d");
    declare(f, W1, "e", "sgd:clip_norm=2", "other");
    held(f, 5, PSRT_OK, NULL);
    says(&f->peer[W1], 5, PSRT_OK, "");
    says(&f->peer[W0], 1, PSRT_OK, ""); /* the group goes on */
    fixture_free(f);
}

Test(coord_group, a_table_after_the_first_push_is_refused)
{
    fixture_t *f = two_tables();
    used(f, 1);
    declare(f, W1, "c", "sgd:clip_norm=1", "g");
    says(&f->peer[W1], 3, PSRT_ERR_INVALID, "table c: group g is in use already");
    declare(f, W1, "b", "adam:clip_norm=1", "g"); /* not a new one */
    says(&f->peer[W1], 2, PSRT_OK, "");
    says(&f->peer[W0], 1, PSRT_OK, "");
    fixture_free(f);
}

Test(coord_group, with_one_table_all_fail)
{
    fixture_t *f = two_tables();
    declare(f, W1, "c", "sgd:clip_norm=1", "g");
    held(f, 3, PSRT_ERR_NO_MEMORY, "server:0: no memory");
    says(&f->peer[W1], 3, PSRT_ERR_NO_MEMORY, "server:0: no memory");
    for (uint32_t t = 1; t <= 2; t++)
        says(&f->peer[W0], t, PSRT_ERR_NO_MEMORY, "lost with its group g: server:0: no memory");
    declare(f, W0, "d", "sgd:clip_norm=1", "g");
    says(&f->peer[W0], 4, PSRT_ERR_NO_MEMORY, "its group g has failed");
    fixture_free(f);
}

/* The joiner would wait for itself if it began the tables at other steps. */
Test(coord_group, a_late_worker_begins_all_tables_at_the_same_step)
{
    fixture_t *f = two_tables();
    uint32_t tables[] = { 1, 3 };
    uint64_t steps[] = { 4, 2 };
    declare(f, W0, "alone", "sgd", NULL);
    held(f, 3, PSRT_OK, NULL);
    coord_fx_pass(&f->fx, 6 * SECOND, 1u << W0 | 1u << S0); /* worker:1 dies */
    join(f, 4, W(1));
    cr_assert_eq(f->peer[S0].prepares, 1);
    Psrt__Prepared body = PSRT__PREPARED__INIT; /* nobody has begun table 2 */
    body.view = f->peer[S0].prepare_view;
    body.n_table = body.n_open_step = 2;
    body.table = tables;
    body.open_step = steps;
    PSRTI_CONTROL(m, PREPARED, prepared, &body);
    message(f, S0, &m);
    cr_assert_eq(f->peer[S0].nfrom, 3);
    cr_assert(f->peer[S0].from[1] == 5 && f->peer[S0].from[2] == 5);
    cr_assert_eq(f->peer[S0].from[3], 3u);
    fixture_free(f);
}
