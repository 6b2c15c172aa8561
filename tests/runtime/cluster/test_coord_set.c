/* SPDX-License-Identifier: Apache-2.0 */
/* How the coordinator makes a set, message by message. Peers: 1 and 2 the workers, 3 and 4 the servers,
 * higher ones are later connections. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"
#include "support/test.h"

/* What a peer was sent of sets. */
typedef struct seen {
    uint64_t incarnation;
    uint32_t table;
    unsigned prepares, commits, releases, dones;
    uint64_t number, from_step; /* of the last SetPrepare or SetEnd */
    char key[64];
    double value;
    uint64_t request, step; /* of the last SetDone */
    psrt_status_t status;
    char text[512];
} seen_t;

typedef struct fixture {
    coord_fx_t fx;
    seen_t peer[PEERS];
} fixture_t;

static void note(void *arg, uint64_t peer, const Psrt__Control *m)
{
    seen_t *s = &((fixture_t *)arg)->peer[peer];

    switch (m->body_case) {
    case PSRT__CONTROL__BODY_WELCOME: s->incarnation = m->welcome->incarnation; break;
    case PSRT__CONTROL__BODY_HOLD: s->table = m->hold->tables[0]->id; break;
    case PSRT__CONTROL__BODY_SET_PREPARE:
        s->prepares++;
        s->number = m->set_prepare->number;
        s->from_step = m->set_prepare->from_step;
        s->value = m->set_prepare->value;
        snprintf(s->key, sizeof s->key, "%s", m->set_prepare->key);
        break;
    case PSRT__CONTROL__BODY_SET_END:
        s->commits += m->set_end->commit != 0;
        s->releases += m->set_end->commit == 0;
        s->number = m->set_end->number;
        s->from_step = m->set_end->from_step;
        break;
    case PSRT__CONTROL__BODY_SET_DONE:
        s->dones++;
        s->request = m->set_done->request;
        s->status = (psrt_status_t)m->set_done->status;
        s->step = m->set_done->step;
        snprintf(s->text, sizeof s->text, "%s", m->set_done->text);
        break;
    default: break;
    }
}

static void start(fixture_t *f, const char *state)
{
    f->fx.sent = note;
    f->fx.arg = f;
    cr_assert_eq(coord_fx_open(&f->fx, 2, state), PSRT_OK, "%s", psrt_last_error());
}

static void send(fixture_t *f, uint64_t peer, const Psrt__Control *m)
{
    cr_assert_eq(coord_fx_message(&f->fx, peer, m), PSRT_OK);
}

static void spec(psrti_table_spec_t *out)
{
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    dp.ndim = 1;
    dp.shape[0] = 8 * PSRTI_SLICE_ELEMS; /* a part on every server */
    dp.optimizer = "sgd:lr=1";
    cr_assert_eq(psrti_table_spec_make("t", &dp, out), PSRT_OK);
}

/* Connects and joins, or registers again with the table that it holds. */
static void join(fixture_t *f, uint64_t peer, uint32_t task, uint64_t incarnation, uint64_t nonce)
{
    psrti_table_spec_t s;
    spec(&s);
    coord_fx_join_t join = { .task = task,
                             .incarnation = incarnation,
                             .nonce = nonce,
                             .workers = 2,
                             .servers = 2,
                             .threads = PSRTI_TASK_ROLE(task) == PSRTI_SERVER,
                             .held = incarnation ? &s : NULL };

    psrti_coord_peer_up(f->fx.c, peer, task, f->fx.now);
    cr_assert_eq(coord_fx_join(&f->fx, peer, &join), PSRT_OK);
}

static void declare(fixture_t *f)
{
    psrti_table_spec_t s;

    spec(&s);
    cr_assert_eq(coord_fx_declare(&f->fx, 1, 1, &s), PSRT_OK);
    cr_assert_eq(f->peer[3].table, 1u);
    coord_fx_held(&f->fx, 3, 1, PSRT_OK, "");
    coord_fx_held(&f->fx, 4, 1, PSRT_OK, "");
}

static fixture_t *fixture(void)
{
    fixture_t *f = calloc(1, sizeof *f);
    start(f, NULL);
    join(f, 1, W(0), 0, 1);
    join(f, 2, W(1), 0, 2);
    join(f, 3, S(0), 0, 3);
    join(f, 4, S(1), 0, 4);
    declare(f);
    return f;
}

static void fixture_free(fixture_t *f)
{
    coord_fx_close(&f->fx);
    free(f);
}

static void ask(fixture_t *f, uint64_t peer, uint64_t request, double value, uint64_t from)
{
    Psrt__Set body = PSRT__SET__INIT;
    body.request = request;
    body.table = 1;
    body.key = "lr";
    body.value = value;
    body.from_step = from;
    PSRTI_CONTROL(m, SET, set, &body);
    send(f, peer, &m);
}

static void answer(fixture_t *f, uint64_t peer, uint64_t step, psrt_status_t status,
                   const char *text)
{
    Psrt__SetPrepared body = PSRT__SET_PREPARED__INIT;
    body.number = f->peer[peer].number;
    body.step = step;
    body.status = (int32_t)status;
    body.text = (char *)text;
    PSRTI_CONTROL(m, SET_PREPARED, set_prepared, &body);
    send(f, peer, &m);
}

static void took(fixture_t *f, uint64_t peer)
{
    Psrt__SetEnded body = PSRT__SET_ENDED__INIT;
    body.number = f->peer[peer].number;
    PSRTI_CONTROL(m, SET_ENDED, set_ended, &body);
    send(f, peer, &m);
}

static void pass(fixture_t *f, uint64_t ns, unsigned beating)
{
    coord_fx_pass(&f->fx, ns, beating);
}

static void restart(fixture_t *f)
{
    char *state = strdup(f->fx.state);
    psrti_coord_free(f->fx.c);
    start(f, state);
    free(state);
}

static void all_return(fixture_t *f)
{
    static const uint32_t tasks[] = { 0, W(0), W(1), S(0), S(1) };
    for (uint64_t p = 1; p <= 4; p++)
        join(f, p + 4, tasks[p], f->peer[p].incarnation, p);
}

Test(coord_set, two_phases)
{
    fixture_t *f = fixture();
    ask(f, 1, 9, 0.25, 40);
    for (int s = 3; s <= 4; s++) {
        cr_assert_eq(f->peer[s].prepares, 1u);
        cr_assert_eq(f->peer[s].from_step, 40u);
        cr_assert_float_eq(f->peer[s].value, 0.25, 0.0);
        cr_assert_str_eq(f->peer[s].key, "lr");
    }
    answer(f, 3, 12, PSRT_OK, "");
    cr_assert_eq(f->peer[3].commits, 0u);
    answer(f, 4, 40, PSRT_OK, "");
    cr_assert(f->peer[3].commits == 1 && f->peer[4].commits == 1);
    cr_assert_eq(f->peer[3].from_step, 40u);
    took(f, 3);
    cr_assert_eq(f->peer[1].dones, 0u, "the other one has not taken it");
    took(f, 4);
    cr_assert_eq(f->peer[1].status, PSRT_OK);
    cr_assert(f->peer[1].dones == 1 && f->peer[1].request == 9 && f->peer[1].step == 40);
    fixture_free(f);
}

Test(coord_set, next_is_the_highest_that_a_server_has_open)
{
    fixture_t *f = fixture();
    ask(f, 2, 1, 0.25, PSRT_STEP_NEXT);
    answer(f, 3, 7, PSRT_OK, "");
    answer(f, 4, 5, PSRT_OK, "");
    cr_assert(f->peer[3].from_step == 7 && f->peer[4].from_step == 7);
    took(f, 4);
    took(f, 3);
    cr_assert_eq(f->peer[2].step, 7u);
    fixture_free(f);
}

Test(coord_set, too_late_names_the_server_and_changes_nothing)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 40, PSRT_OK, "");
    answer(f, 4, 42, PSRT_OK, "");
    cr_assert(f->peer[3].releases == 1 && f->peer[4].releases == 1);
    cr_assert(f->peer[3].commits == 0 && f->peer[4].commits == 0);
    cr_assert_eq(f->peer[1].status, PSRT_ERR_TOO_LATE);
    cr_assert_str_eq(f->peer[1].text,
                     "table t: lr cannot be set from step 40: server:1 has closed it, step 42 is "
                     "the first that is open");
    fixture_free(f);
}

Test(coord_set, a_server_may_object)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, -1, 40);
    answer(f, 3, 0, PSRT_ERR_INVALID, "server:0: lr must not be negative");
    answer(f, 4, 0, PSRT_OK, "");
    cr_assert_eq(f->peer[1].status, PSRT_ERR_INVALID);
    cr_assert_str_eq(f->peer[1].text, "server:0: lr must not be negative");
    cr_assert(f->peer[4].releases == 1 && f->peer[4].commits == 0);
    fixture_free(f);
}

Test(coord_set, one_at_a_time_in_the_order_of_asking)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    ask(f, 2, 1, 0.5, 40);
    cr_assert_eq(f->peer[3].prepares, 1u);
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    took(f, 3);
    cr_assert_eq(f->peer[3].prepares, 1u);
    took(f, 4);
    cr_assert_eq(f->peer[3].prepares, 2u);
    cr_assert_float_eq(f->peer[3].value, 0.5, 0.0);
    fixture_free(f);
}

Test(coord_set, a_repeated_request_is_made_once)
{
    fixture_t *f = fixture();
    ask(f, 1, 3, 0.25, 40);
    ask(f, 1, 3, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    took(f, 3), took(f, 4);
    cr_assert_eq(f->peer[1].dones, 1u);
    ask(f, 1, 3, 0.25, 40);
    cr_assert(f->peer[1].dones == 2 && f->peer[1].step == 40, "answered from memory");
    ask(f, 1, 2, 0.25, 40);
    cr_assert_eq(f->peer[1].dones, 2u, "an old one that was answered long ago");
    cr_assert_eq(f->peer[3].prepares, 1u);
    fixture_free(f);
}

Test(coord_set, a_server_that_was_cut_off_is_asked_again)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, "");
    psrti_coord_peer_lost(f->fx.c, 4, f->fx.now);
    join(f, 8, S(1), f->peer[4].incarnation, 4);
    cr_assert_eq(f->peer[8].prepares, 1u);
    answer(f, 8, 0, PSRT_OK, "");
    psrti_coord_peer_lost(f->fx.c, 8, f->fx.now);
    took(f, 3);
    join(f, 9, S(1), f->peer[4].incarnation, 4);
    cr_assert(f->peer[9].commits == 1 && f->peer[9].releases == 0 && f->peer[9].prepares == 0);
    took(f, 9);
    cr_assert_eq(f->peer[1].dones, 1u);
    psrti_coord_peer_lost(f->fx.c, 9, f->fx.now);
    join(f, 10, S(1), f->peer[4].incarnation, 4);
    cr_assert(f->peer[10].releases == 1 && f->peer[10].number >= f->peer[9].number,
              "with nothing under way it lets go of what it may hold");
    fixture_free(f);
}

Test(coord_set, a_server_that_dies_ends_it)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, "");
    psrti_coord_peer_lost(f->fx.c, 4, f->fx.now);
    pass(f, 7 * SECOND, 1 << 1 | 1 << 2 | 1 << 3);
    cr_assert_eq(f->peer[1].status, PSRT_ERR_SHARD_LOST);
    cr_assert_str_eq(f->peer[1].text, "table \"t\": server:1 died, its part is lost");
    cr_assert(f->peer[3].releases == 1 && f->peer[3].commits == 0);
    ask(f, 1, 2, 0.25, 40);
    cr_assert(f->peer[1].dones == 2 && f->peer[1].status == PSRT_ERR_SHARD_LOST);
    cr_assert_eq(f->peer[3].prepares, 1u);
    fixture_free(f);
}

Test(coord_set, a_server_that_dies_after_the_decision_is_not_waited_for)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    took(f, 3);
    psrti_coord_peer_lost(f->fx.c, 4, f->fx.now);
    pass(f, 7 * SECOND, 1 << 1 | 1 << 2 | 1 << 3);
    cr_assert(f->peer[1].dones == 1 && f->peer[1].status == PSRT_OK);
    fixture_free(f);
}

Test(coord_set, it_goes_on_without_its_worker)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    ask(f, 2, 1, 0.5, 41);
    ask(f, 1, 2, 0.75, 42);
    psrti_coord_peer_lost(f->fx.c, 1, f->fx.now);
    pass(f, 7 * SECOND, 1 << 2 | 1 << 3 | 1 << 4);
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    cr_assert(f->peer[3].commits == 1 && f->peer[4].commits == 1);
    took(f, 3), took(f, 4);
    cr_assert(f->peer[3].prepares == 2 && f->peer[3].from_step == 41, "the next one");
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    took(f, 3), took(f, 4);
    cr_assert_eq(f->peer[2].dones, 1u);
    cr_assert_eq(f->peer[3].prepares, 2u, "what the dead one asked for later is forgotten");
    join(f, 12, W(0), 0, 77);
    answer(f, 3, 0, PSRT_OK, "");
    fixture_free(f);
}

/* A new life counts its requests from 1 again. */
Test(coord_set, a_restarted_worker_is_not_taken_for_the_one_before)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, ""), answer(f, 4, 0, PSRT_OK, "");
    took(f, 3), took(f, 4);
    psrti_coord_peer_lost(f->fx.c, 1, f->fx.now);
    pass(f, 7 * SECOND, 1 << 2 | 1 << 3 | 1 << 4);
    join(f, 12, W(0), 0, 77);
    Psrt__Prepared body = PSRT__PREPARED__INIT;
    body.view = 3;
    PSRTI_CONTROL(m, PREPARED, prepared, &body);
    send(f, 3, &m), send(f, 4, &m);
    ask(f, 12, 1, 0.5, 50);
    cr_assert_eq(f->peer[12].dones, 0u);
    cr_assert(f->peer[3].prepares == 2 && f->peer[3].from_step == 50);
    fixture_free(f);
}

Test(coord_set, what_was_not_decided_is_forgotten_by_a_restart)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.25, 40);
    answer(f, 3, 0, PSRT_OK, "");
    uint64_t held = f->peer[3].number;
    restart(f);
    all_return(f);
    for (int s = 7; s <= 8; s++)
        cr_assert(f->peer[s].releases == 1 && f->peer[s].commits == 0 && f->peer[s].number > held);
    ask(f, 5, 1, 0.25, 40);
    cr_assert(f->peer[7].prepares == 1 && f->peer[7].number > held, "asked again");
    fixture_free(f);
}

Test(coord_set, what_was_decided_survives_a_restart)
{
    fixture_t *f = fixture();
    ask(f, 1, 1, 0.1, 40);
    answer(f, 3, 0, PSRT_OK, "");
    answer(f, 4, 0, PSRT_OK, "");
    took(f, 3); /* and server:1 has not heard of it */
    uint64_t number = f->peer[3].number;
    restart(f);
    all_return(f);
    for (int s = 7; s <= 8; s++) {
        cr_assert(f->peer[s].commits == 1 && f->peer[s].releases == 0);
        cr_assert(f->peer[s].number == number && f->peer[s].from_step == 40);
    }
    ask(f, 5, 1, 0.1, 40); /* the worker repeats what was not answered */
    took(f, 7), took(f, 8);
    cr_assert(f->peer[5].dones == 1 && f->peer[5].status == PSRT_OK && f->peer[5].step == 40);
    restart(f);
    for (int p = 1; p <= 4; p++)
        f->peer[p + 4] = (seen_t){ 0 };
    all_return(f);
    cr_assert(f->peer[7].commits == 0 && f->peer[7].releases == 1, "once it is known to all");
    ask(f, 5, 1, 0.1, 40);
    cr_assert(f->peer[5].dones == 1 && f->peer[5].step == 40, "and the answer is remembered");
    fixture_free(f);
}

Test(coord_set, malformed_requests)
{
    static const char *const keys[] = { "", "two words", "line\nbreak" };
    fixture_t *f = fixture();
    Psrt__Set body = PSRT__SET__INIT;
    PSRTI_CONTROL(m, SET, set, &body);
    body.table = 1;
    body.key = "lr";
    cr_assert_eq(psrti_coord_message(f->fx.c, 1, &m, f->fx.now), PSRT_ERR_PROTOCOL, "request 0");
    body.request = 1;
    for (size_t i = 0; i < PSRTI_COUNT(keys); i++) {
        body.key = (char *)keys[i];
        cr_assert_eq(psrti_coord_message(f->fx.c, 1, &m, f->fx.now), PSRT_ERR_PROTOCOL);
    }
    body.key = "lr";
    cr_assert_eq(psrti_coord_message(f->fx.c, 3, &m, f->fx.now), PSRT_ERR_PROTOCOL, "of a server");
    body.table = 99;
    cr_assert_eq(psrti_coord_message(f->fx.c, 1, &m, f->fx.now), PSRT_OK);
    cr_assert_eq(f->peer[1].status, PSRT_ERR_NOT_FOUND);
    fixture_free(f);
}
