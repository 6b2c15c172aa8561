/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator's core sends to whom, as the job grows: docs/scaling.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "support/test.h"

#define SERVERS 3
#define SERVER(i) (10u + (uint64_t)(i)) /* peers */

typedef struct fixture {
    coord_fx_t fx;
    size_t held[PEERS];  /* tables in Holds, by peer   */
    size_t steps[PEERS]; /* tables in Commits, by peer */
    uint64_t prepare;    /* number of the last Prepare */
    unsigned declared;   /* answers to declares */
    unsigned views[PEERS];
    size_t entries; /* of all kinds in the last View    */
    uint64_t since;
} fixture_t;

static void note(void *arg, uint64_t peer, const Psrt__Control *m)
{
    fixture_t *f = arg;

    if (m->body_case == PSRT__CONTROL__BODY_HOLD) f->held[peer] += m->hold->n_tables;
    if (m->body_case == PSRT__CONTROL__BODY_COMMIT) f->steps[peer] += m->commit->n_table;
    if (m->body_case == PSRT__CONTROL__BODY_PREPARE) f->prepare = m->prepare->view;
    if (m->body_case == PSRT__CONTROL__BODY_VIEW) {
        f->views[peer]++;
        f->since = m->view->since;
        f->entries = m->view->n_workers + m->view->n_owners + m->view->n_vshard_owner;
    }
    f->declared += m->body_case == PSRT__CONTROL__BODY_DECLARED;
}

static void join(fixture_t *f, uint64_t peer, uint32_t task, uint64_t nonce)
{
    coord_fx_join_t join = { .task = task,
                             .nonce = nonce,
                             .workers = 2,
                             .servers = SERVERS,
                             .threads = PSRTI_TASK_ROLE(task) == PSRTI_SERVER };
    psrti_coord_peer_up(f->fx.c, peer, task, f->fx.now);
    cr_assert_eq(coord_fx_join(&f->fx, peer, &join), PSRT_OK);
}

/* peers: 1 worker:0, 2 worker:1, 10 and so on the servers */
static fixture_t *assembled(void)
{
    fixture_t *f = calloc(1, sizeof *f);
    f->fx.sent = note;
    f->fx.arg = f;
    cr_assert_eq(coord_fx_open(&f->fx, SERVERS, NULL), PSRT_OK);
    join(f, 1, W(0), 1);
    join(f, 2, W(1), 2);
    for (uint32_t i = 0; i < SERVERS; i++)
        join(f, SERVER(i), S(i), SERVER(i));
    return f;
}

static void fixture_free(fixture_t *f)
{
    coord_fx_close(&f->fx);
    free(f);
}

static void declare(fixture_t *f, const char *name, uint64_t rows)
{
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    static uint64_t request;

    dp.ndim = 1;
    dp.shape[0] = rows;
    cr_assert_eq(psrti_table_spec_make(name, &dp, &spec), PSRT_OK);
    cr_assert_eq(coord_fx_declare(&f->fx, 1, ++request, &spec), PSRT_OK);
}

static size_t sum(const size_t *by_peer)
{
    size_t n = 0;
    for (int i = 0; i < SERVERS; i++)
        n += by_peer[SERVER(i)];
    return n;
}

/* 20 tables of one slice, which the servers share out, and one with a slice on each. */
static void declare_some(fixture_t *f)
{
    char name[16];

    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d", i);
        declare(f, name, 7);
    }
    cr_assert_eq(sum(f->held), 20u, "one server each");
    declare(f, "large", SERVERS * PSRTI_SLICE_ELEMS);
    cr_assert_eq(sum(f->held), 20u + SERVERS);
    for (int i = 0; i < SERVERS; i++)
        cr_assert(f->held[SERVER(i)] > 1 && f->held[SERVER(i)] < 20);
}

static void hold_all(fixture_t *f)
{
    for (uint32_t id = 1; id <= 21; id++)
        for (int i = 0; i < SERVERS; i++)
            coord_fx_held(&f->fx, SERVER(i), id, PSRT_OK, NULL);
}

Test(coord_scale, servers_hear_only_of_tables_of_which_they_have_a_part)
{
    fixture_t *f = assembled();
    declare_some(f);
    cr_assert_eq(f->declared, 0u);
    hold_all(f);
    cr_assert_eq(f->declared, 21u);
    fixture_free(f);
}

/* Every server says that step 4 of every table is open; the joiner counts from step 5 on. */
Test(coord_scale, a_late_join_tells_servers_only_of_their_tables)
{
    fixture_t *f = assembled();
    uint32_t ids[21];
    uint64_t open[21];
    declare_some(f);
    hold_all(f);
    psrti_coord_peer_lost(f->fx.c, 2, f->fx.now);
    for (int i = 0; i < 8; i++)
        coord_fx_pass(&f->fx, SECOND, 1u << 1 | 7u << 10);
    join(f, 2, W(1), 77);
    for (uint32_t i = 0; i < 21; i++)
        ids[i] = i + 1, open[i] = 4;
    cr_assert_neq(f->prepare, 0u);
    for (int i = 0; i < SERVERS; i++) {
        Psrt__Prepared body = PSRT__PREPARED__INIT;
        body.view = f->prepare;
        body.n_table = body.n_open_step = 21;
        body.table = ids;
        body.open_step = open;
        PSRTI_CONTROL(m, PREPARED, prepared, &body);
        cr_assert_eq(coord_fx_message(&f->fx, SERVER(i), &m), PSRT_OK);
    }
    for (int i = 0; i < SERVERS; i++)
        cr_assert_eq(f->steps[SERVER(i)], f->held[SERVER(i)], "server:%d", i);
    fixture_free(f);
}

static void leave(fixture_t *f, uint64_t peer)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;
    PSRTI_CONTROL(m, LEAVE, leave, &body);
    cr_assert_eq(coord_fx_message(&f->fx, peer, &m), PSRT_OK);
}

/* 8 virtual shards, 3 servers, 2 workers */
Test(coord_scale, a_view_has_what_changed_for_those_who_have_the_one_before)
{
    fixture_t *f = assembled();
    cr_assert_eq(f->since, 0u);
    cr_assert_eq(f->entries, 8u + SERVERS + 2);
    coord_fx_pass(&f->fx, SECOND, 3u << 1 | 7u << 10);
    leave(f, 2);
    cr_assert_eq(f->views[1], 2u);
    cr_assert_eq(f->since, 1u);
    cr_assert_eq(f->entries, 1u);
    psrti_coord_peer_lost(f->fx.c, 1, f->fx.now);
    join(f, 1, W(0), 1); /* over a new connection */
    cr_assert_eq(f->views[1], 3u);
    cr_assert_eq(f->since, 0u);
    cr_assert_eq(f->entries, 8u + SERVERS + 2);
    fixture_free(f);
}

/* The first view was sent this moment. */
Test(coord_scale, a_worker_that_leaves_is_told_of_after_a_pause)
{
    fixture_t *f = assembled();
    cr_assert_eq(f->views[1], 1u);
    leave(f, 2);
    cr_assert_eq(f->views[1], 1u);
    uint64_t due = psrti_coord_tick(f->fx.c, f->fx.now);
    cr_assert(due > f->fx.now && due < f->fx.now + PSRTI_NS_PER_MS);
    psrti_coord_tick(f->fx.c, due);
    cr_assert_eq(f->views[1], 2u);
    cr_assert_eq(f->entries, 1u);
    fixture_free(f);
}

/* The coordinator was killed in the middle of a write; a record that is not whole was never acted upon. */
Test(coord_scale, the_state_grows_by_what_changed)
{
    fixture_t *f = assembled();
    size_t file = strlen(f->fx.state), written = f->fx.written;
    char *torn;
    declare(f, "t", 7); /* a block of ids is reserved */
    cr_assert(f->fx.written - written < file / 3, "no line of any task");
    cr_assert(f->fx.written - written == strlen(f->fx.state) - file, "appended");
    cr_assert(asprintf(&torn, "%sgeneration 9\ntask 1", f->fx.state) > 0);
    psrti_coord_free(f->fx.c);
    cr_assert_eq(coord_fx_open(&f->fx, SERVERS, torn), PSRT_OK, "%s", psrt_last_error());
    cr_assert(strstr(f->fx.state, "\ngeneration 2\nincarnation 5\nview 1\ntable 1025\n"), "%s",
              f->fx.state);
    free(torn);
    fixture_free(f);
}
