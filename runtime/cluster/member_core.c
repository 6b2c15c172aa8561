/* SPDX-License-Identifier: Apache-2.0 */
/* Connection, joining, heartbeats, views, the end. */
#include "runtime/cluster/member_core.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/member_internal.h"

#define DIAL_FIRST_NS (50 * PSRTI_NS_PER_MS)
#define DIAL_MAX_NS PSRTI_NS_PER_S
#define SILENT_BEATS 3

/* ---- connection ------------------------------------------------------------------------------ */

void psrti_member_end(psrti_member_core_t *m, psrt_status_t status, const char *text)
{
    if (m->state == MEMBER_ENDED) return;
    if (m->state != MEMBER_WAIT) m->env.drop(m->env.arg);
    m->state = MEMBER_ENDED;
    if (!m->leaving) m->env.end(m->env.arg, status, text);
}

static int linked(const psrti_member_core_t *m)
{
    return m->state == MEMBER_JOINING || m->state == MEMBER_JOINED;
}

/* Doubling pauses, spread so that the tasks of a large job do not dial in step; several fit in a
 * lease, so that whose connections are cut a few times on end is still heard of in time. */
static void wait_to_dial(psrti_member_core_t *m)
{
    uint64_t most = PSRTI_MIN(DIAL_MAX_NS, PSRTI_MAX(m->lease_ns / 4, PSRTI_NS_PER_MS));
    uint64_t pause = PSRTI_MIN(DIAL_FIRST_NS << PSRTI_MIN(m->attempts, 5u), most);
    uint64_t spread = psrti_mix64(m->p.nonce + m->attempts) % (pause / 2);

    m->attempts++;
    m->state = MEMBER_WAIT;
    m->dial_at = m->now + pause / 2 + spread;
}

static void redial_now(psrti_member_core_t *m)
{
    m->env.drop(m->env.arg);
    m->state = MEMBER_WAIT;
    m->dial_at = m->now;
}

/* Every event comes through here first. */
static void enter(psrti_member_core_t *m, uint64_t now)
{
    uint64_t gap = now > m->now ? now - m->now : 0;

    m->now += gap;
    if (gap <= m->lease_ns || !m->incarnation || m->state == MEMBER_ENDED) return;
    /* We were stopped for so long that we may have been declared dead. */
    m->current = 0;
    m->heard = m->now; /* the coordinator was not silent, we were deaf */
    if (m->state != MEMBER_WAIT) redial_now(m);
}

static void send_join(psrti_member_core_t *m)
{
    Psrt__Join body = PSRT__JOIN__INIT;
    psrti_wire_tables_t held;
    Psrt__Owner **threads = psrti_owners_to_wire(m->p.threads, m->p.nthreads);

    if (!threads || psrti_member_list_held(m, &held) != PSRT_OK) {
        free(threads);
        psrti_member_end(m, PSRT_ERR_NO_MEMORY, "no memory to join the job");
        return;
    }
    body.task = m->p.task;
    body.incarnation = m->incarnation;
    body.host = (char *)m->p.host;
    body.pid = m->p.pid;
    body.nonce = m->p.nonce;
    body.n_threads = m->p.nthreads;
    body.threads = threads;
    body.workers = m->p.workers;
    body.servers = m->p.servers;
    body.n_held = held.count;
    body.held = held.list;
    body.view = m->view_number;
    PSRTI_CONTROL(msg, JOIN, join, &body);
    m->env.send(m->env.arg, &msg);
    psrti_wire_tables_free(&held);
    free(threads);
}

void psrti_member_core_link_up(psrti_member_core_t *m, uint64_t now)
{
    enter(m, now);
    if (m->state != MEMBER_DIALING) return;
    m->state = MEMBER_JOINING;
    m->reached = 1;
    m->heard = m->now;
    m->next_beat = m->now + m->p.heartbeat_ns;
    send_join(m);
}

void psrti_member_core_link_lost(psrti_member_core_t *m, psrt_status_t status, const char *text,
                                 uint64_t now)
{
    enter(m, now);
    if (m->state == MEMBER_ENDED || m->state == MEMBER_WAIT) return;
    snprintf(m->why, sizeof m->why, "%s", text);
    wait_to_dial(m);
    if (status == PSRT_ERR_REFUSED) psrti_member_end(m, status, text);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_leave(psrti_member_core_t *m)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;

    body.failed = m->failed != 0;
    PSRTI_CONTROL(msg, LEAVE, leave, &body);
    m->env.send(m->env.arg, &msg);
}

static psrt_status_t on_welcome(psrti_member_core_t *m, const Psrt__Welcome *msg)
{
    int first = m->incarnation == 0;

    if (m->state != MEMBER_JOINING) return PSRT_OK; /* a repeated Join was answered twice */
    if (msg->incarnation == 0 || (!first && msg->incarnation != m->incarnation))
        return PSRT_ERR_PROTOCOL;
    m->incarnation = msg->incarnation;
    m->generation = msg->generation;
    m->lease_ns = msg->lease_ms * PSRTI_NS_PER_MS;
    m->state = MEMBER_JOINED;
    m->current = 1;
    m->attempts = 0;
    if (first) m->env.joined(m->env.arg, m->incarnation);
    if (m->leaving)
        send_leave(m);
    else
        psrti_member_ask_again(m);
    return PSRT_OK;
}

/* Whoever gets views has arrays by worker, owner and virtual shard, made for the first one. */
static psrt_status_t check_size(const psrti_member_core_t *m, const psrti_view_t *view)
{
    int fits = m->view ? view->nowners == m->view->nowners && view->nvshards == m->view->nvshards
                       : m->p.servers == 0 || (view->nowners && view->nvshards);

    if (fits && view->nworkers == m->p.workers) return PSRT_OK;
    return psrti_fail(PSRT_ERR_PROTOCOL,
                      "view %llu of %u workers, %u server threads and %u virtual shards is not one "
                      "of this job",
                      (unsigned long long)view->number, view->nworkers, view->nowners,
                      view->nvshards);
}

static psrt_status_t hand_up_view(psrti_member_core_t *m, const Psrt__View *in,
                                  const Psrt__Commit *commit)
{
    psrti_view_t *view;
    int first = !m->ready, steps = commit && commit->n_table > 0;

    if (m->state != MEMBER_JOINED) return PSRT_ERR_PROTOCOL;
    /* A commit may come with a view that is known already: it is about the joiner's steps. */
    if (in->number < m->view_number || (in->number == m->view_number && !steps)) return PSRT_OK;
    psrt_status_t st =
        in->since ? psrti_view_changed(m->view, in, &view) : psrti_view_from_wire(in, &view);
    if (st != PSRT_OK) return st;
    st = check_size(m, view);
    if (st == PSRT_OK && steps && commit->worker >= view->nworkers) st = PSRT_ERR_PROTOCOL;
    if (st != PSRT_OK) {
        psrti_view_unref(view);
        return st;
    }
    psrti_view_unref(m->view);
    m->view = psrti_view_ref(view);
    m->view_number = view->number;
    m->ready = 1;
    if (steps)
        m->env.view(m->env.arg, view, commit->worker, commit->n_table, commit->table,
                    commit->from_step);
    else
        m->env.view(m->env.arg, view, 0, 0, NULL, NULL);
    psrti_view_unref(view);
    if (first) psrti_member_ask_again(m);
    return PSRT_OK;
}

static psrt_status_t on_commit(psrti_member_core_t *m, const Psrt__Commit *msg)
{
    if (!msg->view || msg->n_table != msg->n_from_step) return PSRT_ERR_PROTOCOL;
    return hand_up_view(m, msg->view, msg);
}

static psrt_status_t on_refused(psrti_member_core_t *m, const Psrt__Refused *msg)
{
    psrt_status_t status = psrti_status_from_wire(msg->status);

    psrti_member_end(m, status, *msg->text ? msg->text : psrt_status_text(status));
    return PSRT_OK;
}

/* The coordinator repeats it when it has the answer; member.c waits for that. */
static psrt_status_t on_finish(psrti_member_core_t *m, const Psrt__Finish *msg)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;
    psrt_status_t status = psrti_status_from_wire(msg->status);

    body.heard = 1;
    PSRTI_CONTROL(answer, LEAVE, leave, &body);
    m->env.send(m->env.arg, &answer);
    m->state = MEMBER_ENDED;
    if (!m->leaving)
        m->env.end(m->env.arg, status, *msg->text ? msg->text : psrt_status_text(status));
    return PSRT_OK;
}

static psrt_status_t dispatch(psrti_member_core_t *m, const Psrt__Control *msg)
{
    switch (msg->body_case) {
    case PSRT__CONTROL__BODY_WELCOME: return on_welcome(m, msg->welcome);
    case PSRT__CONTROL__BODY_REFUSED: return on_refused(m, msg->refused);
    case PSRT__CONTROL__BODY_FINISH: return on_finish(m, msg->finish);
    case PSRT__CONTROL__BODY_HEARTBEAT_ACK: return PSRT_OK;
    case PSRT__CONTROL__BODY_VIEW: return hand_up_view(m, msg->view, NULL);
    case PSRT__CONTROL__BODY_COMMIT: return on_commit(m, msg->commit);
    case PSRT__CONTROL__BODY_DECLARED: return psrti_member_on_declared(m, msg->declared);
    case PSRT__CONTROL__BODY_HOLD: return psrti_member_on_hold(m, msg->hold);
    case PSRT__CONTROL__BODY_BARRIER_DONE:
        return psrti_member_on_barrier_done(m, msg->barrier_done);
    case PSRT__CONTROL__BODY_SET_DONE: return psrti_member_on_set_done(m, msg->set_done);
    case PSRT__CONTROL__BODY_SET_PREPARE: return psrti_member_on_set_prepare(m, msg->set_prepare);
    case PSRT__CONTROL__BODY_SET_END:
        m->env.set_end(m->env.arg, msg->set_end->number, msg->set_end->commit,
                       msg->set_end->from_step);
        return PSRT_OK;
    case PSRT__CONTROL__BODY_PREPARE:
        m->env.prepare(m->env.arg, msg->prepare->view, msg->prepare->worker);
        return PSRT_OK;
    default: return PSRT_ERR_PROTOCOL;
    }
}

psrt_status_t psrti_member_core_message(psrti_member_core_t *m, const Psrt__Control *msg,
                                        uint64_t now)
{
    enter(m, now);
    if (m->state == MEMBER_ENDED && msg->body_case == PSRT__CONTROL__BODY_FINISH)
        m->env.drop(m->env.arg);    /* the answer to on_finish's */
    if (!linked(m)) return PSRT_OK; /* came over a link that was just given up */
    m->heard = m->now;
    return dispatch(m, msg);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void check_timeouts(psrti_member_core_t *m)
{
    char text[MEMBER_TEXT_MAX + 128];

    if (!m->incarnation && m->now - m->started >= m->p.start_timeout_ns) {
        double s = (double)m->p.start_timeout_ns / 1e9;
        if (!m->reached)
            snprintf(text, sizeof text, "coordinator %s could not be reached within %.3g s%s%s",
                     m->p.coordinator, s, *m->why ? ": " : "", m->why);
        else
            snprintf(text, sizeof text, "coordinator %s did not admit this task within %.3g s",
                     m->p.coordinator, s);
        psrti_member_end(m, m->reached ? PSRT_ERR_START_TIMEOUT : PSRT_ERR_UNREACHABLE, text);
    } else if (m->incarnation && m->now - m->heard >= m->p.coordinator_timeout_ns) {
        snprintf(text, sizeof text, "coordinator %s was silent for %.3g s%s%s", m->p.coordinator,
                 (double)m->p.coordinator_timeout_ns / 1e9, *m->why ? ": " : "", m->why);
        psrti_member_end(m, PSRT_ERR_COORDINATOR_LOST, text);
    }
}

static void send_heartbeat(psrti_member_core_t *m)
{
    Psrt__Heartbeat body = PSRT__HEARTBEAT__INIT;
    PSRTI_CONTROL(msg, HEARTBEAT, heartbeat, &body);
    m->next_beat = m->now + m->p.heartbeat_ns;
    m->env.send(m->env.arg, &msg);
}

uint64_t psrti_member_core_tick(psrti_member_core_t *m, uint64_t now)
{
    enter(m, now);
    if (m->state != MEMBER_ENDED) check_timeouts(m);
    if (m->state == MEMBER_ENDED) return UINT64_MAX;
    if (linked(m) && m->now - m->heard > SILENT_BEATS * m->p.heartbeat_ns) {
        snprintf(m->why, sizeof m->why, "no answer to %d heartbeats", SILENT_BEATS);
        redial_now(m);
    }
    if (m->state == MEMBER_WAIT && m->now >= m->dial_at) {
        m->state = MEMBER_DIALING;
        m->env.dial(m->env.arg);
    }
    if (linked(m) && m->now >= m->next_beat) send_heartbeat(m);
    uint64_t next = m->now + m->p.heartbeat_ns;
    if (m->state == MEMBER_WAIT) next = PSRTI_MIN(next, m->dial_at);
    if (linked(m)) next = PSRTI_MIN(next, m->next_beat);
    return next;
}

void psrti_member_core_leave(psrti_member_core_t *m, int failed)
{
    m->leaving = 1;
    m->failed = failed;
    if (!m->incarnation)
        psrti_member_end(m, PSRT_OK, "");
    else if (m->state == MEMBER_JOINED)
        send_leave(m);
}

/* ---- life ------------------------------------------------------------------------------------ */

psrt_status_t psrti_member_core_new(const psrti_member_core_params_t *params,
                                    const psrti_member_env_t *env, uint64_t now,
                                    psrti_member_core_t **core_p)
{
    psrt_status_t st = psrti_lease_check(params->heartbeat_ns, params->lease_ns);
    psrti_member_core_t *m = st == PSRT_OK ? calloc(1, sizeof *m) : NULL;

    if (st != PSRT_OK) return st;
    if (!m) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a member");
    m->p = *params;
    m->env = *env;
    m->now = m->started = m->heard = m->dial_at = now;
    m->lease_ns = params->lease_ns;
    psrti_list_init(&m->declares);
    psrti_list_init(&m->barriers);
    psrti_list_init(&m->sets);
    *core_p = m;
    return PSRT_OK;
}

void psrti_member_core_free(psrti_member_core_t *m)
{
    if (!m) return;
    psrti_member_tables_free(m);
    psrti_member_sets_free(m);
    psrti_view_unref(m->view);
    free(m);
}

int psrti_member_core_ended(const psrti_member_core_t *m) { return m->state == MEMBER_ENDED; }
int psrti_member_core_is_ready(const psrti_member_core_t *m) { return m->ready; }
int psrti_member_core_is_current(const psrti_member_core_t *m) { return m->current; }
uint64_t psrti_member_core_incarnation(const psrti_member_core_t *m) { return m->incarnation; }
