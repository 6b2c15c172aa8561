/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core alone, event by event. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"
#include "support/test.h"

/* What a peer was sent last. */
typedef struct seen {
    unsigned welcomes, views, finishes, refusals, holds, declared, barriers;
    uint64_t incarnation, view;
    char addrs[64];       /* of the first worker in the last view that told of it */
    psrt_status_t status; /* of the last Refused, Finish or BarrierDone */
    char text[512];
    psrt_status_t table_status;
    uint32_t table;
    uint64_t declared_request;
} seen_t;

typedef struct fixture {
    coord_fx_t fx;
    seen_t peer[PEERS];
} fixture_t;

static void note(void *arg, uint64_t peer, const Psrt__Control *m)
{
    fixture_t *f = arg;
    seen_t *s = &f->peer[peer];

    switch (m->body_case) {
    case PSRT__CONTROL__BODY_WELCOME:
        s->welcomes++;
        s->incarnation = m->welcome->incarnation;
        break;
    case PSRT__CONTROL__BODY_VIEW:
        s->views++;
        s->view = m->view->number;
        if (m->view->n_workers)
            snprintf(s->addrs, sizeof s->addrs, "%s", m->view->workers[0]->addrs);
        break;
    case PSRT__CONTROL__BODY_REFUSED:
        s->refusals++;
        s->status = (psrt_status_t)m->refused->status;
        snprintf(s->text, sizeof s->text, "%s", m->refused->text);
        break;
    case PSRT__CONTROL__BODY_FINISH:
        s->finishes++;
        s->status = (psrt_status_t)m->finish->status;
        snprintf(s->text, sizeof s->text, "%s", m->finish->text);
        break;
    case PSRT__CONTROL__BODY_BARRIER_DONE:
        s->barriers++;
        s->status = (psrt_status_t)m->barrier_done->status;
        snprintf(s->text, sizeof s->text, "%s", m->barrier_done->text);
        break;
    case PSRT__CONTROL__BODY_HOLD:
        s->holds++;
        s->table = m->hold->tables[0]->id;
        break;
    case PSRT__CONTROL__BODY_DECLARED:
        s->declared++;
        s->declared_request = m->declared->request;
        s->table = m->declared->tables[0]->id;
        s->table_status = (psrt_status_t)m->declared->tables[0]->status;
        snprintf(s->text, sizeof s->text, "%s", m->declared->tables[0]->text);
        break;
    default: break;
    }
}

static psrt_status_t open_with(fixture_t *f, const char *state)
{
    f->fx.sent = note;
    f->fx.arg = f;
    return coord_fx_open(&f->fx, 1, state);
}

/* 2 workers, 1 server */
static fixture_t *fixture(void)
{
    fixture_t *f = calloc(1, sizeof *f);
    cr_assert_eq(open_with(f, NULL), PSRT_OK);
    return f;
}

static void fixture_free(fixture_t *f)
{
    coord_fx_close(&f->fx);
    free(f);
}

static psrt_status_t message(fixture_t *f, uint64_t peer, const Psrt__Control *m)
{
    return coord_fx_message(&f->fx, peer, m);
}

static psrt_status_t join_as(fixture_t *f, uint64_t peer, uint32_t task, uint64_t incarnation,
                             uint32_t workers, size_t threads)
{
    coord_fx_join_t join = { .task = task,
                             .incarnation = incarnation,
                             .nonce = 1000 + peer,
                             .workers = workers,
                             .servers = 1,
                             .threads = threads };
    return coord_fx_join(&f->fx, peer, &join);
}

/* Connects as `task` and joins as a new process. */
static void join(fixture_t *f, uint64_t peer, uint32_t task)
{
    psrti_coord_peer_up(f->fx.c, peer, task, f->fx.now);
    cr_assert_eq(join_as(f, peer, task, 0, 2, PSRTI_TASK_ROLE(task) == PSRTI_SERVER), PSRT_OK);
}

/* peers: 1 worker:0, 2 worker:1, 3 server:0 */
static fixture_t *assembled(void)
{
    fixture_t *f = fixture();
    join(f, 1, W(0));
    join(f, 2, W(1));
    cr_assert_eq(f->peer[1].views, 0);
    join(f, 3, S(0));
    for (int i = 1; i <= 3; i++)
        cr_assert_eq(f->peer[i].views, 1);
    return f;
}

static void pass(fixture_t *f, uint64_t ns, unsigned beating)
{
    coord_fx_pass(&f->fx, ns, beating);
}

static psrt_status_t declare(fixture_t *f, uint64_t peer, uint64_t request, uint64_t rows)
{
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;

    dp.ndim = 1;
    dp.shape[0] = rows;
    cr_assert_eq(psrti_table_spec_make("t", &dp, &spec), PSRT_OK);
    return coord_fx_declare(&f->fx, peer, request, &spec);
}

static void held(fixture_t *f, uint64_t peer, uint32_t table, psrt_status_t status,
                 const char *text)
{
    coord_fx_held(&f->fx, peer, table, status, text);
}

static void barrier(fixture_t *f, uint64_t peer, uint64_t request, uint32_t count)
{
    Psrt__Barrier body = PSRT__BARRIER__INIT;
    body.name = "b";
    body.request = request;
    body.count = count;
    PSRTI_CONTROL(m, BARRIER, barrier, &body);
    cr_assert_eq(message(f, peer, &m), PSRT_OK);
}

static void leave(fixture_t *f, uint64_t peer, int failed)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;
    body.failed = failed;
    PSRTI_CONTROL(m, LEAVE, leave, &body);
    cr_assert_eq(message(f, peer, &m), PSRT_OK);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void refused_join(uint32_t task, uint32_t as, uint32_t workers, size_t threads,
                         const char *text)
{
    fixture_t *f = fixture();
    psrti_coord_peer_up(f->fx.c, 1, task, f->fx.now);
    cr_assert_eq(join_as(f, 1, as, 0, workers, threads), PSRT_OK);
    cr_assert_eq(f->peer[1].refusals, 1);
    cr_assert_eq(f->peer[1].status, PSRT_ERR_REFUSED);
    cr_assert_str_eq(f->peer[1].text, text);
    fixture_free(f);
}

Test(coord, wrong_joins_are_refused)
{
    refused_join(W(0), W(0), 2, 2, "worker:0: its addresses are malformed");
    refused_join(PSRTI_TASK(PSRTI_WORKER, 2), PSRTI_TASK(PSRTI_WORKER, 2), 2, 0,
                 "worker:2 is not in the job, which has 2 workers and 1 servers");
    refused_join(W(0), W(0), 3, 0,
                 "worker:0 was told of 3 workers and 1 servers, the job has 2 and 1 (PSRT_WORKERS, "
                 "PSRT_SERVERS)");
    refused_join(W(0), W(1), 2, 0, "joins as another task than it is connected as");
    refused_join(S(0), S(0), 2, 0, "server:0 listens with no thread");
}

Test(coord, workers_learn_where_workers_listen)
{
    fixture_t *f = fixture();
    psrti_coord_peer_up(f->fx.c, 1, W(0), f->fx.now);
    cr_assert_eq(join_as(f, 1, W(0), 0, 2, 1), PSRT_OK);
    join(f, 2, W(1)); /* listens nowhere */
    join(f, 3, S(0));
    cr_assert_str_eq(f->peer[2].addrs, "shm:near tcp://far:1");
    fixture_free(f);
}

Test(coord, who_is_missing_is_told_while_waiting)
{
    fixture_t *f = fixture();
    join(f, 2, W(1));
    f->fx.now += 9 * SECOND;
    psrti_coord_tick(f->fx.c, f->fx.now);
    cr_assert_eq(f->fx.warnings, 0);
    f->fx.now += SECOND;
    psrti_coord_tick(f->fx.c, f->fx.now);
    cr_assert_eq(f->fx.warnings, 1);
    cr_assert_str_eq(f->fx.note, "still waiting for worker:0, server:0 (1 of 3 joined)");
    psrti_coord_tick(f->fx.c, f->fx.now + 9 * SECOND);
    cr_assert_eq(f->fx.warnings, 1);
    psrti_coord_tick(f->fx.c, f->fx.now + 10 * SECOND);
    cr_assert_eq(f->fx.warnings, 2);
    fixture_free(f);
}

/* Of two workers one begins the job: the other one is not missed, and joins late. */
Test(coord, some_workers_may_be_late)
{
    fixture_t *f = calloc(1, sizeof *f);
    f->fx.start_workers = 1;
    cr_assert_eq(open_with(f, NULL), PSRT_OK);
    join(f, 2, W(1)); /* not the one that is needed */
    join(f, 3, S(0));
    f->fx.now += 10 * SECOND;
    psrti_coord_tick(f->fx.c, f->fx.now);
    cr_assert_str_eq(f->fx.note, "still waiting for worker:0 (1 of 2 joined)");
    cr_assert_eq(f->peer[2].views, 0);
    fixture_free(f);

    f = calloc(1, sizeof *f);
    f->fx.start_workers = 1;
    cr_assert_eq(open_with(f, NULL), PSRT_OK);
    join(f, 1, W(0));
    join(f, 3, S(0));
    cr_assert_eq(f->peer[1].views, 1);
    pass(f, 100 * SECOND, 1 << 1 | 1 << 3);
    cr_assert(!f->fx.finished);
    join(f, 2, W(1));
    cr_assert_eq(f->peer[2].welcomes, 1);
    cr_assert_eq(f->peer[2].views, 0); /* the server has to say from which step it counts */
    fixture_free(f);
}

Test(coord, joins_are_idempotent_and_ranks_are_taken)
{
    fixture_t *f = fixture();
    join(f, 1, W(0));
    cr_assert_eq(join_as(f, 1, W(0), 0, 2, 0), PSRT_OK);
    cr_assert_eq(f->peer[1].welcomes, 2);
    cr_assert_eq(f->peer[1].incarnation, 1);
    join(f, 4, W(0)); /* another process: waits */
    cr_assert_eq(f->peer[4].welcomes + f->peer[4].refusals, 0);
    pass(f, SECOND, 1u << 1);
    cr_assert_eq(f->peer[4].status, PSRT_ERR_REFUSED);
    cr_assert_str_eq(f->peer[4].text, "worker:0 is already taken by pid 42 on host host");
    join(f, 5, W(0));
    pass(f, 6 * SECOND, 1u << 5); /* now the older one is silent */
    cr_assert_eq(f->peer[1].status, PSRT_ERR_FENCED);
    cr_assert_eq(f->peer[5].welcomes, 1);
    cr_assert_eq(f->peer[5].incarnation, 2);
    /* the older one comes back */
    psrti_coord_peer_up(f->fx.c, 6, W(0), f->fx.now);
    cr_assert_eq(join_as(f, 6, W(0), 1, 2, 0), PSRT_OK);
    cr_assert_eq(f->peer[6].status, PSRT_ERR_FENCED);
    cr_assert_str_eq(f->peer[6].text, "worker:0 incarnation 1 was declared dead");
    fixture_free(f);
}

Test(coord, newcomers_wait_in_a_queue)
{
    fixture_t *f = assembled(); /* worker:0 has died */
    pass(f, 2 * SECOND, 1u << 2 | 1u << 3);
    join(f, 4, W(0)); /* and soon this one has as well */
    pass(f, SECOND, 1u << 2 | 1u << 3);
    join(f, 5, W(0));
    join(f, 6, W(0));
    psrti_coord_peer_lost(f->fx.c, 6, f->fx.now);
    pass(f, 3 * SECOND, 1u << 2 | 1u << 3 | 1u << 5);
    cr_assert(f->peer[1].status == PSRT_ERR_FENCED && f->peer[4].welcomes == 1);
    cr_assert(f->peer[5].welcomes == 0 && f->peer[5].refusals == 0);
    pass(f, 6 * SECOND, 1u << 2 | 1u << 3 | 1u << 5);
    cr_assert(f->peer[5].welcomes == 1 && f->peer[5].refusals == 0);
    cr_assert_gt(f->peer[5].incarnation, f->peer[3].incarnation);
    fixture_free(f);
}

Test(coord, a_newcomer_that_waits_keeps_its_turn)
{
    fixture_t *f = assembled();
    join(f, 4, W(0));
    join(f, 5, W(0));
    pass(f, SECOND, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5);
    cr_assert_eq(f->peer[5].status, PSRT_ERR_REFUSED, "peer 4 lives");
    cr_assert_str_eq(f->peer[5].text, "worker:0 is already taken by pid 42 on host host");
    pass(f, 6 * SECOND, 1u << 2 | 1u << 3 | 1u << 4);
    cr_assert(f->peer[4].welcomes == 1 && f->peer[4].refusals == 0);
    fixture_free(f);
}

Test(coord, a_newcomer_waits_for_one_that_leaves)
{
    fixture_t *f = assembled();
    Psrt__Leave body = PSRT__LEAVE__INIT;
    PSRTI_CONTROL(m, LEAVE, leave, &body);
    join(f, 4, W(0));
    body.failed = 1;
    cr_assert_eq(message(f, 1, &m), PSRT_OK);
    cr_assert_eq(f->peer[4].welcomes, 1);
    join(f, 5, W(1));
    body.failed = 0;
    cr_assert_eq(message(f, 2, &m), PSRT_OK);
    cr_assert_str_eq(f->peer[5].text, "worker:1 has already finished");
    fixture_free(f);
}

/* ---- leases and the end ---------------------------------------------------------------------- */

Test(coord, no_lease_ends_while_the_coordinator_was_stopped)
{
    fixture_t *f = assembled();
    f->fx.now += 600 * SECOND;
    psrti_coord_tick(f->fx.c, f->fx.now);
    pass(f, 3 * SECOND, 0);
    cr_assert_eq(f->peer[1].refusals, 0);
    pass(f, 3 * SECOND, 0); /* but a lease of running time does */
    cr_assert_eq(f->peer[1].refusals, 1);
    cr_assert_str_eq(f->peer[1].text, "worker:0 incarnation 1 was declared dead: silent for 5 s");
    fixture_free(f);
}

/* Its answer to Finish. */
static void heard(fixture_t *f, uint64_t peer)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;
    body.heard = 1;
    PSRTI_CONTROL(m, LEAVE, leave, &body);
    cr_assert_eq(message(f, peer, &m), PSRT_OK);
}

static void hang_up(fixture_t *f, uint64_t peer)
{
    psrti_coord_peer_lost(f->fx.c, peer, f->fx.now);
}

Test(coord, all_workers_died)
{
    fixture_t *f = assembled();
    pass(f, 6 * SECOND, 1u << 3);
    cr_assert_eq(f->peer[3].views, 3); /* the first one and two deaths */
    cr_assert_eq(f->peer[3].finishes, 0);
    pass(f, 11 * SECOND, 1u << 3);
    const char *text = "all workers died without finishing: worker:0, worker:1";
    cr_assert_eq(f->peer[3].status, PSRT_ERR_PEER_LOST);
    cr_assert_str_eq(f->peer[3].text, text);
    heard(f, 3);
    cr_assert_eq(f->peer[3].finishes, 2);
    cr_assert_eq(f->fx.finished, 0);
    psrti_coord_peer_lost(f->fx.c, 3, f->fx.now);
    cr_assert_eq(f->fx.finished, 1);
    cr_assert_eq(f->fx.status, PSRT_ERR_PEER_LOST);
    cr_assert_str_eq(f->fx.text, text);
    fixture_free(f);
}

Test(coord, finished_workers_end_the_job)
{
    fixture_t *f = assembled();
    pass(f, SECOND, 7u << 1); /* views of workers that leave are sent with a pause */
    leave(f, 1, 0);
    cr_assert_eq(f->peer[1].finishes, 1);
    cr_assert_eq(f->peer[2].views, 2);
    leave(f, 2, 0);
    hang_up(f, 2);
    cr_assert_eq(f->peer[3].finishes, 1);
    cr_assert_eq(f->peer[3].status, PSRT_OK);
    cr_assert_eq(f->fx.finished, 0);
    heard(f, 3);
    cr_assert_eq(f->peer[3].finishes, 2);
    cr_assert_eq(f->fx.finished, 0);
    hang_up(f, 3);
    cr_assert_eq(f->fx.finished, 0, "worker:0 has not heard that it may leave");
    hang_up(f, 1);
    cr_assert_eq(f->fx.finished, 1);
    cr_assert_eq(f->fx.status, PSRT_OK);
    fixture_free(f);
}

/* Who never came hinders no end; and a successor knows that the job has begun. */
Test(coord, who_never_joined_is_not_waited_for)
{
    fixture_t *f = calloc(1, sizeof *f), *next = calloc(1, sizeof *next);
    f->fx.start_workers = next->fx.start_workers = 1;
    cr_assert_eq(open_with(f, NULL), PSRT_OK);
    join(f, 1, W(0));
    join(f, 3, S(0));
    cr_assert_eq(open_with(next, f->fx.state), PSRT_OK);
    psrti_coord_peer_up(next->fx.c, 1, W(0), next->fx.now);
    cr_assert_eq(join_as(next, 1, W(0), f->peer[1].incarnation, 2, 0), PSRT_OK);
    psrti_coord_peer_up(next->fx.c, 3, S(0), next->fx.now);
    cr_assert_eq(join_as(next, 3, S(0), f->peer[3].incarnation, 2, 1), PSRT_OK);
    cr_assert_eq(next->peer[1].views, 1);
    fixture_free(next);
    leave(f, 1, 0);
    cr_assert_eq(f->peer[3].finishes, 1);
    cr_assert_eq(f->peer[3].status, PSRT_OK);
    fixture_free(f);
}

/* It had given up the connection in which it was told, and dials again. */
Test(coord, who_was_told_but_did_not_answer_is_waited_for)
{
    fixture_t *f = assembled();
    leave(f, 1, 0);
    heard(f, 1);
    cr_assert_eq(f->peer[1].finishes, 2);
    hang_up(f, 1);
    leave(f, 2, 0);
    hang_up(f, 2);
    cr_assert_eq(f->peer[3].finishes, 1);
    psrti_coord_peer_lost(f->fx.c, 3, f->fx.now);
    cr_assert_eq(f->fx.finished, 0);
    psrti_coord_peer_up(f->fx.c, 5, PSRTI_TASK(PSRTI_SERVER, 0), f->fx.now);
    cr_assert_eq(join_as(f, 5, PSRTI_TASK(PSRTI_SERVER, 0), 3, 2, 1), PSRT_OK);
    cr_assert_eq(f->peer[5].finishes, 1);
    heard(f, 5);
    cr_assert_eq(f->fx.finished, 0);
    psrti_coord_peer_lost(f->fx.c, 5, f->fx.now);
    cr_assert_eq(f->fx.finished, 1);
    cr_assert_eq(f->fx.status, PSRT_OK);
    fixture_free(f);
}

Test(coord, a_failed_worker_fails_the_job)
{
    fixture_t *f = assembled();
    leave(f, 1, 1);
    leave(f, 2, 0);
    pass(f, 11 * SECOND, 1u << 3);
    cr_assert_eq(f->peer[3].status, PSRT_ERR_PEER_LOST);
    cr_assert_str_eq(f->peer[3].text, "worker:0 failed");
    pass(f, 6 * SECOND, 1u << 3); /* the server does not leave: not waited for */
    cr_assert_eq(f->fx.finished, 1);
    cr_assert_eq(f->fx.status, PSRT_ERR_PEER_LOST);
    fixture_free(f);
}

/* ---- tables ---------------------------------------------------------------------------------- */

Test(coord, a_declare_is_answered_when_all_servers_hold)
{
    fixture_t *f = assembled();
    cr_assert_eq(declare(f, 1, 1, 7), PSRT_OK);
    cr_assert_eq(declare(f, 1, 1, 7), PSRT_OK); /* repeated */
    cr_assert_eq(f->peer[3].holds, 1);
    cr_assert_eq(declare(f, 2, 9, 7), PSRT_OK);
    cr_assert_eq(f->peer[1].declared + f->peer[2].declared, 0);
    held(f, 3, f->peer[3].table, PSRT_OK, NULL);
    held(f, 3, f->peer[3].table, PSRT_OK, NULL);
    for (int i = 1; i <= 2; i++) {
        cr_assert_eq(f->peer[i].declared, 1);
        cr_assert_eq(f->peer[i].table_status, PSRT_OK);
        cr_assert_eq(f->peer[i].table, 1);
        cr_assert_eq(f->peer[i].declared_request, i == 1 ? 1 : 9);
    }
    cr_assert_eq(declare(f, 2, 9, 7), PSRT_OK); /* the answer was lost: the same again */
    cr_assert_eq(f->peer[2].declared, 2);
    cr_assert_eq(f->peer[2].table, 1);
    fixture_free(f);
}

Test(coord, a_server_without_memory_fails_the_table_for_all)
{
    fixture_t *f = assembled();
    cr_assert_eq(declare(f, 1, 1, 7), PSRT_OK);
    held(f, 3, 1, PSRT_ERR_NO_MEMORY, "server:0: 7 elements are too many");
    cr_assert_eq(f->peer[1].table_status, PSRT_ERR_NO_MEMORY);
    cr_assert_str_eq(f->peer[1].text, "server:0: 7 elements are too many");
    cr_assert_eq(declare(f, 2, 1, 7), PSRT_OK);
    cr_assert_eq(f->peer[2].table_status, PSRT_ERR_NO_MEMORY);
    fixture_free(f);
}

Test(coord, a_mismatch_in_flight_fails_both)
{
    fixture_t *f = assembled();
    cr_assert_eq(declare(f, 1, 1, 7), PSRT_OK);
    cr_assert_eq(declare(f, 2, 1, 8), PSRT_OK);
    for (int i = 1; i <= 2; i++) {
        cr_assert_eq(f->peer[i].declared, 1);
        cr_assert_eq(f->peer[i].declared_request, 1);
        cr_assert_eq(f->peer[i].table_status, PSRT_ERR_MISMATCH);
        cr_assert(strstr(f->peer[i].text, "worker:0") && strstr(f->peer[i].text, "worker:1"), "%s",
                  f->peer[i].text);
    }
    held(f, 3, 1, PSRT_OK, NULL); /* comes too late to matter */
    cr_assert_eq(f->peer[1].declared, 1);
    fixture_free(f);
}

Test(coord, malformed_requests_are_protocol_errors)
{
    fixture_t *f = assembled();
    Psrt__Declare none = PSRT__DECLARE__INIT;
    Psrt__Held body = PSRT__HELD__INIT;
    PSRTI_CONTROL(empty, DECLARE, declare, &none);
    PSRTI_CONTROL(role, HELD, held, &body);
    none.request = 1;
    cr_assert_eq(message(f, 1, &empty), PSRT_ERR_PROTOCOL);
    cr_assert_eq(declare(f, 1, 0, 7), PSRT_ERR_PROTOCOL);
    cr_assert_eq(declare(f, 3, 1, 7), PSRT_ERR_PROTOCOL);  /* a server declares nothing */
    cr_assert_eq(message(f, 1, &role), PSRT_ERR_PROTOCOL); /* a worker holds nothing */
    fixture_free(f);
}

/* ---- barriers -------------------------------------------------------------------------------- */

Test(coord, barriers_complete_once_for_everyone)
{
    fixture_t *f = assembled();
    barrier(f, 1, 1, 0);
    barrier(f, 1, 1, 0); /* repeated: does not stand in for another worker */
    cr_assert_eq(f->peer[1].barriers, 0);
    barrier(f, 2, 4, 0);
    cr_assert_eq(f->peer[1].barriers, 1);
    cr_assert_eq(f->peer[2].barriers, 1);
    barrier(f, 1, 1, 0); /* the answer was lost */
    cr_assert_eq(f->peer[1].barriers, 2);
    cr_assert_eq(f->peer[1].status, PSRT_OK);
    barrier(f, 1, 2, 0); /* the name again: a new barrier */
    cr_assert_eq(f->peer[1].barriers, 2);
    fixture_free(f);
}

Test(coord, barriers_with_other_counts_mismatch)
{
    fixture_t *f = assembled();
    barrier(f, 1, 1, 2);
    barrier(f, 2, 1, 0);
    for (int i = 1; i <= 2; i++) {
        cr_assert_eq(f->peer[i].status, PSRT_ERR_MISMATCH);
        cr_assert_str_eq(f->peer[i].text, "barrier \"b\": worker:1 gave count 0, others 2");
    }
    fixture_free(f);
}

Test(coord, the_dead_are_not_waited_for)
{
    fixture_t *f = assembled();
    barrier(f, 1, 1, 2);
    pass(f, 6 * SECOND, 1u << 1 | 1u << 3);
    cr_assert_eq(f->peer[1].barriers, 1);
    cr_assert_eq(f->peer[1].status, PSRT_OK);
    fixture_free(f);
}

/* ---- state ----------------------------------------------------------------------------------- */

Test(coord, state_is_read_strictly)
{
    fixture_t *f = assembled(), *g = calloc(1, sizeof *g);
    char *state = strdup(f->fx.state), text[128];
    size_t lines = 0;

    cr_assert_eq(open_with(g, state), PSRT_OK);
    psrti_coord_free(g->fx.c);
    g->fx.c = NULL;
    for (const char *s = state; *s; s++)
        lines += *s == '\n';
    cr_assert(lines > 8);
    /* without its end, with a line that is none, of another job, of another program */
    *strstr(state, "end\n") = '\0';
    cr_assert_eq(open_with(g, state), PSRT_ERR_INVALID);
    strcpy(text, "psrt-coordinator 1\njob - 2 1 8\nview x\nend\n");
    cr_assert_eq(open_with(g, text), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "line 3 \"view x\""), "%s", psrt_last_error());
    cr_assert_eq(open_with(g, "psrt-coordinator 1\njob - 3 1 8\nend\n"), PSRT_ERR_INVALID);
    cr_assert_eq(open_with(g, "psrt-coordinator 1\njob a0 2 1 8\nend\n"), PSRT_ERR_INVALID);
    cr_assert_eq(open_with(g, "{}"), PSRT_ERR_INVALID);
    cr_assert_eq(open_with(g, ""), PSRT_ERR_INVALID);
    free(state);
    fixture_free(g);
    fixture_free(f);
}

Test(coord, a_successor_knows_lives_and_never_reuses_numbers)
{
    fixture_t *f = assembled();
    cr_assert_eq(declare(f, 1, 1, 7), PSRT_OK);
    uint64_t view = f->peer[1].view;
    psrti_coord_free(f->fx.c);
    char *state = strdup(f->fx.state);
    memset(f->peer, 0, sizeof f->peer);
    cr_assert_eq(open_with(f, state), PSRT_OK);
    free(state);
    static const uint32_t tasks[] = { 0, W(0), W(1), S(0) };
    for (uint64_t p = 1; p <= 3; p++) {
        cr_assert_eq(f->peer[1].welcomes, 0, "decides before all are back");
        psrti_coord_peer_up(f->fx.c, p, tasks[p], f->fx.now);
        cr_assert_eq(join_as(f, p, tasks[p], p, 2, p == 3), PSRT_OK);
    }
    for (uint64_t p = 1; p <= 3; p++) {
        cr_assert_eq(f->peer[p].welcomes, 1);
        cr_assert_eq(f->peer[p].incarnation, p);
        cr_assert(f->peer[p].view > view);
    }
    cr_assert_eq(declare(f, 1, 2, 7), PSRT_OK); /* nobody brought the table: a new one */
    cr_assert(f->peer[3].table > 1);
    fixture_free(f);
}
