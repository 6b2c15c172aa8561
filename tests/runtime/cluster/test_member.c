/* SPDX-License-Identifier: Apache-2.0 */
/* A member's core alone: time, lost connections, the ends. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/member_core.h"
#include "support/test.h"

#define SECOND PSRTI_NS_PER_S

typedef struct fixture {
    psrti_member_core_t *m;
    uint64_t now;
    unsigned dials, drops, joins, heartbeats, leaves, barriers;
    uint64_t join_incarnation, set_number, set_step, sets_done;
    unsigned sets;
    uint64_t set_request; /* of the last Set that was sent */
    int ended;
    psrt_status_t status;
    char text[512];
} fixture_t;

static void f_dial(void *arg) { ((fixture_t *)arg)->dials++; }
static void f_drop(void *arg) { ((fixture_t *)arg)->drops++; }

static void f_send(void *arg, const Psrt__Control *msg)
{
    fixture_t *f = arg;
    if (msg->body_case == PSRT__CONTROL__BODY_JOIN) {
        f->joins++;
        f->join_incarnation = msg->join->incarnation;
    }
    f->heartbeats += msg->body_case == PSRT__CONTROL__BODY_HEARTBEAT;
    f->leaves += msg->body_case == PSRT__CONTROL__BODY_LEAVE;
    f->barriers += msg->body_case == PSRT__CONTROL__BODY_BARRIER;
    if (msg->body_case == PSRT__CONTROL__BODY_SET) {
        f->sets++;
        f->set_request = msg->set->request;
    }
}

static void f_joined(void *arg, uint64_t incarnation)
{
    (void)arg;
    (void)incarnation;
}

static void f_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                   const uint32_t *table, const uint64_t *step)
{
    (void)arg;
    (void)view;
    (void)worker;
    (void)count;
    (void)table;
    (void)step;
}

static void f_tables(void *arg, size_t count, const psrti_member_table_t *tables)
{
    (void)arg;
    (void)count;
    (void)tables;
}

static void f_declared(void *arg, uint64_t request, size_t count,
                       const psrti_member_table_t *tables)
{
    (void)request;
    f_tables(arg, count, tables);
}

static void f_prepare(void *arg, uint64_t view, uint32_t worker)
{
    (void)arg;
    (void)view;
    (void)worker;
}

static void f_barrier(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    (void)arg;
    (void)request;
    (void)status;
    (void)text;
}

static void f_set_prepare(void *arg, const psrti_member_set_t *set)
{
    ((fixture_t *)arg)->set_number = set->number;
}

static void f_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    (void)arg, (void)number, (void)commit, (void)from_step;
}

static void f_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                       uint64_t step)
{
    fixture_t *f = arg;
    (void)text;
    cr_assert_eq(request, ++f->sets_done);
    f->status = status;
    f->set_step = step;
}

static void f_end(void *arg, psrt_status_t status, const char *text)
{
    fixture_t *f = arg;
    cr_assert_eq(f->ended, 0);
    f->ended = 1;
    f->status = status;
    snprintf(f->text, sizeof f->text, "%s", text);
}

static fixture_t *fixture_with(uint64_t heartbeat, uint64_t lease)
{
    fixture_t *f = calloc(1, sizeof *f);
    psrti_member_env_t env = { f,          f_dial,   f_drop,    f_send,    f_joined,      f_view,
                               f_declared, f_tables, f_prepare, f_barrier, f_set_prepare, f_set_end,
                               f_set_done, f_end };
    psrti_member_core_params_t p = {
        .task = PSRTI_TASK(PSRTI_WORKER, 0),
        .workers = 1,
        .host = "h",
        .coordinator = "tcp://c:1",
        .pid = 1,
        .nonce = 5,
        .heartbeat_ns = heartbeat,
        .lease_ns = lease,
        .start_timeout_ns = 60 * SECOND,
        .coordinator_timeout_ns = 60 * SECOND,
    };
    f->now = 7 * SECOND;
    cr_assert_eq(psrti_member_core_new(&p, &env, f->now, &f->m), PSRT_OK);
    return f;
}

static fixture_t *fixture(void) { return fixture_with(SECOND, 5 * SECOND); }

static void fixture_free(fixture_t *f)
{
    psrti_member_core_free(f->m);
    free(f);
}

static void tick(fixture_t *f) { cr_assert(psrti_member_core_tick(f->m, f->now) > f->now); }

static void receive(fixture_t *f, const Psrt__Control *msg)
{
    cr_assert_eq(psrti_member_core_message(f->m, msg, f->now), PSRT_OK);
}

static void welcome(fixture_t *f, uint64_t incarnation)
{
    Psrt__Welcome body = PSRT__WELCOME__INIT;
    body.incarnation = incarnation;
    body.lease_ms = 5000;
    PSRTI_CONTROL(msg, WELCOME, welcome, &body);
    receive(f, &msg);
}

static psrt_status_t receive_view(fixture_t *f, uint64_t number, size_t workers, size_t owners)
{
    Psrt__View body = PSRT__VIEW__INIT;
    Psrt__Worker worker = PSRT__WORKER__INIT, *worker_list[] = { &worker, &worker };
    Psrt__Owner owner = PSRT__OWNER__INIT, *owner_list[] = { &owner, &owner };
    body.number = number;
    body.n_workers = workers;
    body.workers = worker_list;
    body.n_owners = owners;
    body.owners = owner_list;
    PSRTI_CONTROL(msg, VIEW, view, &body);
    return psrti_member_core_message(f->m, &msg, f->now);
}

static void view(fixture_t *f, uint64_t number)
{
    cr_assert_eq(receive_view(f, number, 1, 1), PSRT_OK);
}

/* Joined as incarnation 3, with a view. */
static fixture_t *joined(void)
{
    fixture_t *f = fixture();
    tick(f);
    cr_assert_eq(f->dials, 1);
    psrti_member_core_link_up(f->m, f->now);
    cr_assert_eq(f->joins, 1);
    cr_assert_eq(f->join_incarnation, 0);
    cr_assert(!psrti_member_core_is_current(f->m));
    welcome(f, 3);
    view(f, 1);
    cr_assert(psrti_member_core_is_ready(f->m) && psrti_member_core_is_current(f->m));
    return f;
}

Test(member, a_lease_outlives_a_lost_heartbeat)
{
    psrti_member_core_params_t p = { .heartbeat_ns = SECOND, .lease_ns = 2 * SECOND - 1 };
    psrti_member_env_t env = { 0 };
    psrti_member_core_t *m;
    cr_assert_eq(psrti_member_core_new(&p, &env, 0, &m), PSRT_ERR_INVALID);
    p.heartbeat_ns = 0;
    cr_assert_eq(psrti_member_core_new(&p, &env, 0, &m), PSRT_ERR_INVALID);
}

Test(member, an_unreachable_coordinator_is_named)
{
    fixture_t *f = fixture();
    unsigned steps = 0;
    for (; !f->ended && steps < 10000; steps++) {
        unsigned before = f->dials;
        uint64_t next = psrti_member_core_tick(f->m, f->now);
        if (f->dials > before)
            psrti_member_core_link_lost(f->m, PSRT_ERR_UNREACHABLE, "no route", f->now);
        else
            f->now = next;
    }
    cr_assert_eq(f->status, PSRT_ERR_UNREACHABLE);
    cr_assert_str_eq(f->text, "coordinator tcp://c:1 could not be reached within 60 s: no route");
    cr_assert(f->dials > 50 && f->dials < 200, "%u dials in 60 s", f->dials);
    fixture_free(f);
}

Test(member, a_silent_coordinator_is_dialled_again)
{
    fixture_t *f = joined();
    for (int i = 0; i < 3; i++) {
        f->now += SECOND;
        tick(f);
    }
    cr_assert_eq(f->heartbeats, 3);
    cr_assert_eq(f->drops, 0);
    f->now += SECOND;
    tick(f);
    cr_assert_eq(f->drops, 1);
    cr_assert_eq(f->dials, 2);
    psrti_member_core_link_up(f->m, f->now);
    cr_assert_eq(f->join_incarnation, 3);
    while (!f->ended) {
        f->now += SECOND;
        (void)psrti_member_core_tick(f->m, f->now);
        cr_assert(f->now < 200 * SECOND);
    }
    cr_assert_eq(f->status, PSRT_ERR_COORDINATOR_LOST);
    fixture_free(f);
}

/* However often it failed before: a pause never takes the time in which it must be heard of. */
Test(member, dials_several_times_within_a_lease)
{
    uint64_t lease = 400 * PSRTI_NS_PER_MS;
    fixture_t *f = fixture_with(lease / 8, lease);
    uint64_t last = f->now;
    for (unsigned dials = 0; dials < 20;) {
        uint64_t next = psrti_member_core_tick(f->m, f->now);
        if (f->dials == dials) {
            f->now = next;
            continue;
        }
        cr_assert(f->now - last <= lease / 4, "dial %u after %llu ns", f->dials,
                  (unsigned long long)(f->now - last));
        dials = f->dials;
        last = f->now;
        psrti_member_core_link_lost(f->m, PSRT_ERR_PEER_LOST, "cut", f->now);
    }
    fixture_free(f);
}

Test(member, after_a_gap_it_asks_before_anything_else)
{
    fixture_t *f = joined();
    f->now += 20 * SECOND;
    view(f, 2); /* was in the queue: from before the gap */
    cr_assert_eq(f->drops, 1);
    cr_assert(!psrti_member_core_is_current(f->m));
    tick(f);
    cr_assert_eq(f->dials, 2);
    psrti_member_core_link_up(f->m, f->now);
    cr_assert_eq(f->join_incarnation, 3);
    cr_assert(!psrti_member_core_is_current(f->m));
    welcome(f, 3);
    cr_assert(psrti_member_core_is_current(f->m));
    fixture_free(f);
}

Test(member, fenced_is_the_end)
{
    fixture_t *f = joined();
    Psrt__Refused body = PSRT__REFUSED__INIT;
    body.status = PSRT_ERR_FENCED;
    body.text = "worker:0 incarnation 3 was declared dead";
    PSRTI_CONTROL(msg, REFUSED, refused, &body);
    receive(f, &msg);
    cr_assert_eq(f->status, PSRT_ERR_FENCED);
    cr_assert_str_eq(f->text, body.text);
    cr_assert_eq(f->drops, 1);
    cr_assert_eq(psrti_member_core_tick(f->m, f->now + 100 * SECOND), UINT64_MAX);
    fixture_free(f);
}

Test(member, what_was_asked_is_asked_again)
{
    fixture_t *f = joined();
    cr_assert_eq(psrti_member_core_barrier(f->m, 1, "b", 0), PSRT_OK);
    cr_assert_eq(f->barriers, 1);
    psrti_member_core_link_lost(f->m, PSRT_ERR_PEER_LOST, "cut", f->now);
    cr_assert_eq(psrti_member_core_barrier(f->m, 2, "c", 0), PSRT_OK);
    psrti_member_core_leave(f->m, 0);
    cr_assert_eq(f->barriers + f->leaves, 1);
    f->now += SECOND;
    tick(f);
    psrti_member_core_link_up(f->m, f->now);
    welcome(f, 3);
    cr_assert_eq(f->leaves, 1);
    Psrt__Finish body = PSRT__FINISH__INIT;
    PSRTI_CONTROL(msg, FINISH, finish, &body);
    receive(f, &msg);
    cr_assert(psrti_member_core_ended(f->m));
    cr_assert_eq(f->ended, 0);  /* it left by its own will */
    cr_assert_eq(f->leaves, 2); /* the answer, which must arrive: it hangs up when that is known */
    unsigned drops = f->drops;
    receive(f, &msg);
    cr_assert_eq(f->drops, drops + 1);
    fixture_free(f);
}

static void set_done(fixture_t *f, uint64_t request, uint64_t step)
{
    Psrt__SetDone body = PSRT__SET_DONE__INIT;
    body.request = request;
    body.step = step;
    PSRTI_CONTROL(msg, SET_DONE, set_done, &body);
    receive(f, &msg);
}

Test(member, sets_are_asked_for_one_by_one)
{
    fixture_t *f = joined();
    for (uint64_t request = 1; request <= 3; request++)
        cr_assert_eq(psrti_member_core_set(f->m, request, 7, "lr", 0.5, 40), PSRT_OK);
    cr_assert(f->sets == 1 && f->set_request == 1);
    set_done(f, 2, 99);
    cr_assert_eq(f->sets_done, 0u, "nobody asked for that yet");
    set_done(f, 1, 40);
    cr_assert(f->sets_done == 1 && f->set_step == 40);
    cr_assert(f->sets == 2 && f->set_request == 2);
    psrti_member_core_link_lost(f->m, PSRT_ERR_PEER_LOST, "cut", f->now);
    f->now += SECOND;
    tick(f);
    psrti_member_core_link_up(f->m, f->now);
    welcome(f, 3);
    cr_assert(f->sets == 3 && f->set_request == 2, "asked again");
    set_done(f, 2, 41);
    set_done(f, 2, 41);
    cr_assert(f->sets_done == 2 && f->set_request == 3);
    set_done(f, 3, 42);
    cr_assert(f->sets_done == 3 && f->sets == 4);
    fixture_free(f);
}

Test(member, another_incarnation_is_not_ours)
{
    fixture_t *f = joined();
    psrti_member_core_link_lost(f->m, PSRT_ERR_PEER_LOST, "cut", f->now);
    f->now += SECOND;
    tick(f);
    psrti_member_core_link_up(f->m, f->now);
    Psrt__Welcome body = PSRT__WELCOME__INIT;
    body.incarnation = 4;
    PSRTI_CONTROL(msg, WELCOME, welcome, &body);
    cr_assert_eq(psrti_member_core_message(f->m, &msg, f->now), PSRT_ERR_PROTOCOL);
    fixture_free(f);
}

/* Workers and servers keep arrays by worker, owner and virtual shard, made for the first view. */
Test(member, views_keep_their_size)
{
    fixture_t *f = joined();
    cr_assert_eq(receive_view(f, 2, 1, 2), PSRT_ERR_PROTOCOL, "one more owner");
    cr_assert_eq(receive_view(f, 2, 2, 1), PSRT_ERR_PROTOCOL, "one more worker");
    cr_assert_eq(receive_view(f, 2, 1, 0), PSRT_ERR_PROTOCOL, "one owner less");
    cr_assert_eq(receive_view(f, 2, 1, 1), PSRT_OK);
    fixture_free(f);
}
