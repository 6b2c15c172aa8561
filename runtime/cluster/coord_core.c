/* SPDX-License-Identifier: Apache-2.0 */
/* Events, leases, recovery, the end of the job. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

/* ---- helpers --------------------------------------------------------------------------------- */

place_t *psrti_coord_place(psrti_coord_t *c, uint32_t task)
{
    uint32_t role = PSRTI_TASK_ROLE(task), rank = PSRTI_TASK_RANK(task);

    if (role == PSRTI_SERVER && rank < c->p.servers) return &c->servers[rank];
    if (role == PSRTI_WORKER && rank < c->p.workers) return &c->workers[rank];
    return NULL;
}

void psrti_coord_send(psrti_coord_t *c, uint64_t peer, const Psrt__Control *msg)
{
    if (peer && !c->ended) c->env.send(c->env.arg, peer, msg);
}

void psrti_coord_note(psrti_coord_t *c, psrt_log_level_t level, const char *fmt, ...)
{
    char text[COORD_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->env.note(c->env.arg, level, text);
}

void psrti_coord_refuse(psrti_coord_t *c, uint64_t peer, psrt_status_t status, const char *text)
{
    Psrt__Refused body = PSRT__REFUSED__INIT;

    body.status = (int32_t)status;
    body.text = (char *)text;
    PSRTI_CONTROL(msg, REFUSED, refused, &body);
    psrti_coord_send(c, peer, &msg);
}

void psrti_coord_send_finish(psrti_coord_t *c, uint64_t peer, psrt_status_t status,
                             const char *text)
{
    Psrt__Finish body = PSRT__FINISH__INIT;
    peer_t *told = psrti_map_get(&c->peers, peer);

    if (told) told->told_end = 1;
    body.status = (int32_t)status;
    body.text = (char *)text;
    PSRTI_CONTROL(msg, FINISH, finish, &body);
    psrti_coord_send(c, peer, &msg);
}

void psrti_coord_send_welcome(psrti_coord_t *c, const place_t *p)
{
    Psrt__Welcome body = PSRT__WELCOME__INIT;

    body.incarnation = p->incarnation;
    body.generation = c->generation;
    body.lease_ms = c->p.lease_ns / PSRTI_NS_PER_MS;
    PSRTI_CONTROL(msg, WELCOME, welcome, &body);
    psrti_coord_send(c, p->peer, &msg);
}

uint32_t psrti_coord_live_workers(const psrti_coord_t *c)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < c->p.workers; i++)
        live += c->workers[i].state == PLACE_ALIVE;
    return live;
}

/* ---- the end --------------------------------------------------------------------------------- */

void psrti_coord_end(psrti_coord_t *c, psrt_status_t status, const char *text)
{
    if (c->ending) return;
    c->ending = 1;
    c->end_status = status;
    snprintf(c->end_text, sizeof c->end_text, "%s", text);
    c->end_deadline = c->now + PSRTI_MAX(COORD_END_NS, c->p.lease_ns);
    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        place_t *p = psrti_place_at(c, i);
        psrti_coord_send_finish(c, p->peer, status, text);
        psrti_coord_finish_parked(c, p);
    }
}

void psrti_coord_no_memory(psrti_coord_t *c)
{
    psrti_coord_end(c, PSRT_ERR_NO_MEMORY, "coordinator: out of memory");
}

/* A task answers that it heard of the end, and hangs up. One whose connection broke before will dial again and
 * ask: it may have given up the connection in which it was told. One that left before has a connection
 * until it has heard so. */
static int everybody_heard(psrti_coord_t *c)
{
    const peer_t *peer;
    size_t pos = 0;

    while ((peer = psrti_map_next(&c->peers, &pos, NULL)))
        if (peer->told_end) return 0;
    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        const place_t *p = psrti_place_at(c, i);
        if (psrti_place_live(p) && !p->heard_end) return 0;
    }
    return 1;
}

static void seconds(uint64_t ns, char buf[32])
{
    if (ns % PSRTI_NS_PER_S == 0)
        snprintf(buf, 32, "%llu s", (unsigned long long)(ns / PSRTI_NS_PER_S));
    else
        snprintf(buf, 32, "%.3g s", (double)ns / 1e9);
}

/* Appends the names of the places for which `wanted` holds: "worker:1, server:0". */
static void name_places(psrti_coord_t *c, int (*wanted)(const place_t *), int workers_only,
                        char *buf, size_t size, size_t *pos)
{
    const char *sep = "";
    char name[32];

    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        /* workers first: people look for those */
        const place_t *p = i < c->p.workers ? &c->workers[i] : &c->servers[i - c->p.workers];
        if (!wanted(p) || (workers_only && i >= c->p.workers)) continue;
        if (*pos + 64 > size) {
            (void)psrti_append(buf, size, pos, "%s...", sep);
            return;
        }
        (void)psrti_append(buf, size, pos, "%s%s", sep, psrti_task_name(p->task, name));
        sep = ", ";
    }
}

static int is_missing(const place_t *p) { return !psrti_place_live(p) && !p->may_be_late; }
static int is_failed(const place_t *p) { return p->state == PLACE_FAILED; }
static int is_dead(const place_t *p) { return p->state == PLACE_DEAD; }

/* "worker:1, server:0 (2 of 4 joined)" */
static void name_missing(psrti_coord_t *c, char *text, size_t size, size_t *pos)
{
    uint32_t wanted = 0, missing = 0;

    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        wanted += !psrti_place_at(c, i)->may_be_late;
        missing += is_missing(psrti_place_at(c, i));
    }
    name_places(c, is_missing, 0, text, size - 32, pos);
    (void)psrti_append(text, size, pos, " (%u of %u joined)", wanted - missing, wanted);
}

static void start_timed_out(psrti_coord_t *c)
{
    char text[COORD_TEXT_MAX], after[32];
    size_t pos = 0;

    seconds(c->p.start_timeout_ns, after);
    (void)psrti_append(text, sizeof text, &pos, "job did not assemble within %s: missing ", after);
    name_missing(c, text, sizeof text, &pos);
    psrti_coord_end(c, PSRT_ERR_START_TIMEOUT, text);
}

/* Whoever watches a job that does not start wants to know why before it is given up. */
static void tell_missing(psrti_coord_t *c)
{
    char text[COORD_TEXT_MAX];
    size_t pos = 0;

    (void)psrti_append(text, sizeof text, &pos, "still waiting for ");
    name_missing(c, text, sizeof text, &pos);
    c->env.note(c->env.arg, PSRT_LOG_WARN, text);
    c->next_word = c->now + COORD_WORD_NS;
}

static void workers_lost(psrti_coord_t *c, uint32_t failed)
{
    char text[COORD_TEXT_MAX] = "";
    size_t pos = 0;

    if (failed) {
        name_places(c, is_failed, 1, text, sizeof text - 64, &pos);
        (void)psrti_append(text, sizeof text, &pos, " failed");
    } else {
        (void)psrti_append(text, sizeof text, &pos, "all workers died without finishing: ");
        name_places(c, is_dead, 1, text, sizeof text, &pos);
    }
    psrti_coord_end(c, PSRT_ERR_PEER_LOST, text);
}

/* The job is over when no worker is left; one that died may be restarted within the drain time. */
static void check_end(psrti_coord_t *c)
{
    uint32_t finished = 0, failed = 0;
    int left = !c->formed || c->recovering;

    for (uint32_t i = 0; i < c->p.workers && !left; i++) {
        const place_t *p = &c->workers[i];
        left = psrti_place_live(p) || !psrti_list_empty(&p->parked);
        finished += p->state == PLACE_FINISHED;
        failed += p->state == PLACE_FAILED;
    }
    if (left || c->ending) {
        c->gone_since = 0;
        return;
    }
    if (finished && !failed) {
        psrti_coord_end(c, PSRT_OK, "all workers finished");
        return;
    }
    if (!c->gone_since) c->gone_since = c->now;
    if (c->now - c->gone_since >= c->p.drain_ns) workers_lost(c, failed);
}

/* ---- leaving and dying ----------------------------------------------------------------------- */

/* The place is vacant now, whatever the reason. */
static void vacate(psrti_coord_t *c, place_t *p, place_state_t state)
{
    int server = PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER;
    int in_view = p->state == PLACE_ALIVE;

    psrti_coord_detach(c, p);
    p->state = c->formed ? state : PLACE_EMPTY;
    p->changed = 1;
    if (server) {
        psrti_coord_server_gone(c, p);
        psrti_coord_server_prepared(c, p);
        psrti_coord_set_paid(c, p);
    } else {
        psrti_coord_worker_gone(c, p);
        psrti_coord_set_worker_gone(c, p);
        if (in_view) psrti_coord_barrier_gone(c, p);
        psrti_coord_join_gone(c, p);
    }
    psrti_coord_persist(c);
    if (server)
        psrti_coord_publish(c);
    else
        psrti_coord_publish_soon(c);
}

static void expire(psrti_coord_t *c, place_t *p)
{
    char text[COORD_TEXT_MAX], name[32], lease[32];

    seconds(c->p.lease_ns, lease);
    snprintf(text, sizeof text, "%s incarnation %llu was declared dead: silent for %s",
             psrti_task_name(p->task, name), (unsigned long long)p->incarnation, lease);
    psrti_coord_note(c, PSRT_LOG_WARN, "%s", text);
    psrti_coord_refuse(c, p->peer, PSRT_ERR_FENCED, text);
    vacate(c, p, PLACE_DEAD);
    if (!c->recovering) psrti_coord_admit_parked(c, p);
}

static void on_leave(psrti_coord_t *c, place_t *p, const Psrt__Leave *msg)
{
    psrti_coord_send_finish(c, p->peer, c->ending ? c->end_status : PSRT_OK,
                            c->ending ? c->end_text : "");
    if (c->ending) return;
    vacate(c, p, msg->failed ? PLACE_FAILED : PLACE_FINISHED);
    if (!c->recovering) psrti_coord_admit_parked(c, p);
}

/* The task knows that its part is over. It hangs up when it knows that this is known. */
static void on_heard(psrti_coord_t *c, peer_t *peer)
{
    if (peer->place) peer->place->heard_end = 1;
    psrti_coord_send_finish(c, peer->id, c->ending ? c->end_status : PSRT_OK,
                            c->ending ? c->end_text : "");
}

/* ---- recovery -------------------------------------------------------------------------------- */

/* After a restart nothing is decided until everybody who was alive came back or its lease ended. */
static void check_recovery(psrti_coord_t *c)
{
    if (!c->recovering || c->ending) return;
    for (uint32_t i = 0; i < psrti_place_count(c); i++)
        if (psrti_place_live(psrti_place_at(c, i)) && !psrti_place_at(c, i)->returned) return;
    c->recovering = 0;
    for (uint32_t i = 0; i < psrti_place_count(c); i++)
        if (psrti_place_live(psrti_place_at(c, i)))
            psrti_coord_send_welcome(c, psrti_place_at(c, i));
    if (c->formed) {
        psrti_coord_publish(c);       /* first: a server holds nothing before it has a view */
        psrti_coord_settle_tables(c); /* nearly all, so that few are looked at for every server */
        psrti_coord_send_commits(c);
        for (uint32_t i = 0; i < c->p.servers; i++)
            psrti_coord_send_holds(c, &c->servers[i]);
        psrti_coord_recover_sets(c);
    }
    for (uint32_t i = 0; i < psrti_place_count(c); i++)
        if (!psrti_place_live(psrti_place_at(c, i)))
            psrti_coord_admit_parked(c, psrti_place_at(c, i));
    psrti_coord_try_form(c);
    psrti_coord_next_join(c);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Only time in which the coordinator ran counts against a lease: a step of its clock is credited at
 * most a heartbeat. */
static void enter(psrti_coord_t *c, uint64_t now)
{
    uint64_t step = now > c->now ? now - c->now : 0;

    c->now += step;
    c->run += PSRTI_MIN(step, c->p.heartbeat_ns);
}

static void leave(psrti_coord_t *c)
{
    check_recovery(c);
    psrti_coord_publish_due(c);
    psrti_coord_tell_failed(c);
    check_end(c);
    if (c->ending && !c->ended && (c->now >= c->end_deadline || everybody_heard(c))) {
        c->ended = 1;
        c->env.finish(c->env.arg, c->end_status, c->end_text);
    }
}

void psrti_coord_peer_up(psrti_coord_t *c, uint64_t id, uint32_t task, uint64_t now)
{
    peer_t *peer = calloc(1, sizeof *peer);

    enter(c, now);
    if (peer) {
        peer->id = id;
        peer->task = task;
        if (psrti_map_put(&c->peers, id, peer) == PSRT_OK) return;
    }
    free(peer);
    c->env.close(c->env.arg, id);
}

void psrti_coord_peer_lost(psrti_coord_t *c, uint64_t id, uint64_t now)
{
    peer_t *peer = psrti_map_remove(&c->peers, id);

    enter(c, now);
    if (!peer) return;
    place_t *p = psrti_coord_place(c, peer->task);
    if (peer->place) peer->place->peer = 0;
    if (p) psrti_coord_parked_lost(p, id);
    free(peer);
    leave(c);
}

static psrt_status_t server_message(psrti_coord_t *c, place_t *p, const Psrt__Control *msg)
{
    switch (msg->body_case) {
    case PSRT__CONTROL__BODY_HELD: return psrti_coord_on_held(c, p, msg->held);
    case PSRT__CONTROL__BODY_PREPARED: psrti_coord_on_prepared(c, p, msg->prepared); return PSRT_OK;
    case PSRT__CONTROL__BODY_SET_PREPARED:
        return psrti_coord_on_set_prepared(c, p, msg->set_prepared);
    case PSRT__CONTROL__BODY_SET_ENDED:
        psrti_coord_on_set_ended(c, p, msg->set_ended);
        return PSRT_OK;
    default: return PSRT_ERR_PROTOCOL;
    }
}

static psrt_status_t worker_message(psrti_coord_t *c, place_t *p, const Psrt__Control *msg)
{
    /* Before its first view a worker has no steps to declare or meet with. */
    if (p->state != PLACE_ALIVE || !c->formed) return PSRT_ERR_PROTOCOL;
    switch (msg->body_case) {
    case PSRT__CONTROL__BODY_DECLARE: return psrti_coord_on_declare(c, p, msg->declare);
    case PSRT__CONTROL__BODY_BARRIER: return psrti_coord_on_barrier(c, p, msg->barrier);
    case PSRT__CONTROL__BODY_SET: return psrti_coord_on_set(c, p, msg->set);
    case PSRT__CONTROL__BODY_USED: psrti_coord_on_used(c, msg->used->table); return PSRT_OK;
    default: return PSRT_ERR_PROTOCOL;
    }
}

static void ack_heartbeat(psrti_coord_t *c, uint64_t peer)
{
    Psrt__Heartbeat body = PSRT__HEARTBEAT__INIT;
    PSRTI_CONTROL(msg, HEARTBEAT_ACK, heartbeat_ack, &body);
    psrti_coord_send(c, peer, &msg);
}

static psrt_status_t dispatch(psrti_coord_t *c, peer_t *peer, const Psrt__Control *msg)
{
    place_t *p = peer->place;

    if (p)
        psrti_coord_sign_of_life(c, p);
    else if ((p = psrti_coord_place(c, peer->task)))
        psrti_coord_parked_lives(c, p, peer->id);
    p = peer->place;
    switch (msg->body_case) {
    case PSRT__CONTROL__BODY_JOIN: return psrti_coord_on_join(c, peer, msg->join);
    case PSRT__CONTROL__BODY_HEARTBEAT: ack_heartbeat(c, peer->id); return PSRT_OK;
    case PSRT__CONTROL__BODY_LEAVE:
        if (msg->leave->heard)
            on_heard(c, peer);
        else if (p)
            on_leave(c, p, msg->leave);
        return PSRT_OK;
    default: break;
    }
    /* Fenced, parked, or not welcomed again yet: it will repeat what still matters. */
    if (!p || c->recovering || c->ending) return PSRT_OK;
    return PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER ? server_message(c, p, msg)
                                                    : worker_message(c, p, msg);
}

psrt_status_t psrti_coord_message(psrti_coord_t *c, uint64_t id, const Psrt__Control *msg,
                                  uint64_t now)
{
    peer_t *peer = psrti_map_get(&c->peers, id);

    enter(c, now);
    if (!peer || c->ended) return PSRT_OK;
    psrt_status_t st = dispatch(c, peer, msg);
    leave(c);
    return st;
}

uint64_t psrti_coord_tick(psrti_coord_t *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    enter(c, now);
    if (c->ended) return UINT64_MAX;
    for (uint32_t i = 0; i < psrti_place_count(c) && !c->ending; i++) {
        place_t *p = psrti_place_at(c, i);
        psrti_coord_expire_parked(c, p);
        if (psrti_place_live(p) && c->run - p->seen > c->p.lease_ns) expire(c, p);
    }
    if (!c->formed && !c->ending && c->now >= c->start_deadline)
        start_timed_out(c);
    else if (!c->formed && !c->ending && c->now >= c->next_word)
        tell_missing(c);
    leave(c);
    if (c->ended) return UINT64_MAX;
    if (c->ending)
        next = c->end_deadline;
    else if (!c->formed)
        next = c->start_deadline;
    else if (c->gone_since)
        next = c->gone_since + c->p.drain_ns;
    if (c->view_due && !c->ending) next = PSRTI_MIN(next, c->view_due);
    return PSRTI_MIN(next, c->now + c->p.heartbeat_ns / 2);
}

/* ---- life ------------------------------------------------------------------------------------ */

static psrt_status_t make_places(psrti_coord_t *c)
{
    c->servers = calloc(c->p.servers + 1, sizeof *c->servers);
    c->workers = calloc(c->p.workers + 1, sizeof *c->workers);
    if (!c->servers || !c->workers) return psrti_fail(PSRT_ERR_NO_MEMORY, "coordinator: no memory");
    for (uint32_t i = 0; i < c->p.servers; i++)
        c->servers[i].task = PSRTI_TASK(PSRTI_SERVER, i);
    for (uint32_t i = 0; i < c->p.workers; i++) {
        c->workers[i].task = PSRTI_TASK(PSRTI_WORKER, i);
        c->workers[i].may_be_late = c->p.start_workers && i >= c->p.start_workers;
    }
    for (uint32_t i = 0; i < psrti_place_count(c); i++) {
        psrti_list_init(&psrti_place_at(c, i)->requests);
        psrti_list_init(&psrti_place_at(c, i)->parked);
    }
    return PSRT_OK;
}

psrt_status_t psrti_coord_new(const psrti_coord_params_t *params, const psrti_coord_env_t *env,
                              uint64_t now, psrti_coord_t **coord_p)
{
    psrti_coord_t *c = calloc(1, sizeof *c);

    if (!c) return psrti_fail(PSRT_ERR_NO_MEMORY, "coordinator: no memory");
    c->p = *params;
    c->p.state = c->p.job = NULL; /* not ours to keep */
    snprintf(c->job, sizeof c->job, "%.63s", params->job ? params->job : "-");
    c->env = *env;
    c->now = now;
    c->start_deadline = now + params->start_timeout_ns;
    c->next_word = now + COORD_WORD_NS;
    c->generation = 1;
    c->next_table = 1;
    psrti_list_init(&c->inflight);
    psrti_list_init(&c->untold);
    psrti_list_init(&c->sets);
    psrt_status_t st = psrti_lease_check(params->heartbeat_ns, params->lease_ns);
    if (st == PSRT_OK) st = make_places(c);
    if (st == PSRT_OK && params->state) st = psrti_coord_load(c, params->state);
    if (st != PSRT_OK) {
        psrti_coord_free(c);
        return st;
    }
    psrti_coord_persist(c);
    *coord_p = c;
    return PSRT_OK;
}

void psrti_coord_free(psrti_coord_t *c)
{
    size_t pos = 0;

    if (!c) return;
    psrti_coord_tables_free(c);
    psrti_coord_barriers_free(c);
    psrti_coord_sets_free(c);
    for (uint32_t i = 0; c->servers && c->workers && i < psrti_place_count(c); i++) {
        place_t *p = psrti_place_at(c, i);
        psrti_coord_forget_parked(p);
        free(p->threads);
        free(p->from_table);
        free(p->from_step);
    }
    for (void *peer; (peer = psrti_map_next(&c->peers, &pos, NULL)) != NULL;)
        free(peer);
    psrti_map_clear(&c->peers);
    psrti_view_unref(c->view);
    psrti_view_unref(c->before);
    free(c->owner_of_vshard);
    free(c->server_of_owner);
    free(c->servers);
    free(c->workers);
    free(c);
}
