/* SPDX-License-Identifier: Apache-2.0 */
/* Links, and what the cores ask of their environment; it checks what they say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cores_rig.h"
#include "support/test.h"

uint64_t rig_random(rig_t *r, uint64_t below) { return psrti_mix64(r->random++) % below; }

static process_t *by_link(rig_t *r, uint64_t link)
{
    for (uint32_t i = 0; i < TASKS; i++)
        if (r->tasks[i].link == link) return &r->tasks[i];
    return NULL;
}

/* ---- wire ------------------------------------------------------------------------------------ */

static void post(rig_t *r, process_t *p, int to_coord, const Psrt__Control *msg)
{
    size_t len = psrti_wire_size(msg);
    packet_t *k = malloc(sizeof *k + len);

    k->to_coord = to_coord;
    k->len = len;
    k->at = r->now + STEP + rig_random(r, 200 * PSRTI_NS_PER_MS);
    /* in order per direction */
    for (psrti_list_t *n = p->wire.next; n != &p->wire; n = n->next) {
        const packet_t *before = PSRTI_LIST_ENTRY(n, packet_t, node);
        if (before->to_coord == to_coord && before->at > k->at) k->at = before->at;
    }
    psrti_wire_pack(msg, k->bytes);
    psrti_list_push(&p->wire, &k->node);
}

void rig_clear_wire(process_t *p)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&p->wire)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, packet_t, node));
}

void rig_cut(rig_t *r, process_t *p)
{
    uint64_t link = p->link;
    int was_up = link && !p->up_at;

    if (!link) return;
    rig_clear_wire(p);
    p->link = 0;
    p->lost_at = r->now + STEP + rig_random(r, SECOND);
    if (was_up && r->coord) psrti_coord_peer_lost(r->coord, link, r->now);
}

/* ---- environment of the coordinator ---------------------------------------------------------- */

static void c_send(void *arg, uint64_t peer, const Psrt__Control *msg)
{
    rig_t *r = arg;
    process_t *p = by_link(r, peer);

    if (!p) return;
    if (msg->body_case == PSRT__CONTROL__BODY_DECLARED)
        for (size_t i = 0; i < msg->declared->n_tables; i++)
            if (msg->declared->tables[i]->status == PSRT_OK)
                r->ready[msg->declared->tables[i]->id] = 1;
    if (msg->body_case == PSRT__CONTROL__BODY_COMMIT) r->late_joins++;
    post(r, p, 0, msg);
}

static void c_close(void *arg, uint64_t peer)
{
    rig_t *r = arg;
    process_t *p = by_link(r, peer);

    if (!p) return;
    rig_clear_wire(p);
    p->link = 0;
    p->lost_at = r->now + STEP;
}

static int c_persist(void *arg, const char *text, size_t len, int append)
{
    rig_t *r = arg;
    char *state = NULL;
    cr_assert(asprintf(&state, "%s%.*s", append ? r->state : "", (int)len, text) > 0);
    free(r->state);
    r->state = state;
    return 1;
}

static void c_note(void *arg, psrt_log_level_t level, const char *text)
{
    rig_t *r = arg;
    (void)level;
    if (getenv("PSRT_TEST_SEED")) fprintf(stderr, "%6.2f %s\n", (double)r->now / 1e9, text);
}

static void c_finish(void *arg, psrt_status_t status, const char *text)
{
    rig_t *r = arg;
    cr_assert_eq(r->coord_finished, 0);
    r->coord_finished = 1;
    r->coord_status = status;
    (void)text;
}

void rig_start_coord(rig_t *r)
{
    psrti_coord_params_t p = {
        .workers = WORKERS,
        .servers = SERVERS,
        .vshards = VSHARDS,
        .heartbeat_ns = HEARTBEAT,
        .lease_ns = LEASE,
        .start_timeout_ns = 1000 * SECOND,
        .drain_ns = 1000 * SECOND,
    };
    psrti_coord_env_t env = { r, c_send, c_close, c_persist, c_note, c_finish };
    char *copy = r->state ? strdup(r->state) : NULL;

    p.state = copy;
    cr_assert_eq(psrti_coord_new(&p, &env, r->now, &r->coord), PSRT_OK);
    free(copy);
    r->coord_next = r->now;
}

/* ---- environment of a member ----------------------------------------------------------------- */

static void m_dial(void *arg)
{
    process_t *p = arg;
    rig_t *r = p->rig;

    cr_assert_eq(p->link, 0);
    p->link = ++r->next_link;
    p->up_at = r->now + STEP + rig_random(r, 100 * PSRTI_NS_PER_MS);
}

static void m_drop(void *arg)
{
    process_t *p = arg;
    rig_t *r = p->rig;
    uint64_t link = p->link;
    int was_up = link && !p->up_at;

    rig_clear_wire(p);
    p->link = 0;
    p->lost_at = 0;
    if (was_up && r->coord) psrti_coord_peer_lost(r->coord, link, r->now);
}

static void m_send(void *arg, const Psrt__Control *msg)
{
    process_t *p = arg;
    if (p->link && !p->up_at) post(p->rig, p, 1, msg);
}

static void m_joined(void *arg, uint64_t incarnation)
{
    process_t *p = arg;
    cr_assert_eq(p->incarnation, 0);
    cr_assert(incarnation > p->former_incarnation);
    p->incarnation = p->former_incarnation = incarnation;
}

static uint64_t open_step(uint32_t server, uint32_t table) { return 100 + table * 10 + server; }

static void m_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                   const uint32_t *table, const uint64_t *from_step)
{
    process_t *p = arg;

    cr_assert(from_step ? view->number >= p->view : view->number > p->view);
    p->view = view->number;
    psrti_view_unref(p->last_view);
    p->last_view = psrti_view_ref(view);
    if (!from_step) return;
    cr_assert_eq(PSRTI_TASK_ROLE(p->task), PSRTI_SERVER);
    cr_assert_eq(view->workers[worker].alive, 1);
    for (size_t i = 0; i < count; i++)
        cr_assert(from_step[i] == open_step(0, table[i]) + 1 ||
                  from_step[i] == open_step(1, table[i]) + 1);
}

void rig_name_text(uint32_t name, char buf[32]) { snprintf(buf, 32, "table%u", name); }

static uint32_t table_name(const psrti_member_table_t *t)
{
    return (uint32_t)atoi(t->spec->name + strlen("table"));
}

static void m_declared(void *arg, uint64_t request, size_t count, const psrti_member_table_t *t)
{
    process_t *p = arg;
    rig_t *r = p->rig;

    for (size_t i = 0; i < count; i++) {
        uint32_t name = table_name(&t[i]);
        if (request) {
            cr_assert_eq(request, name + 1);
            cr_assert_eq(p->answer[name], PSRT_IN_PROGRESS);
        } else {
            cr_assert_eq(p->answer[name], PSRT_OK);
            cr_assert_neq(t[i].status, PSRT_OK);
        }
        p->answer[name] = t[i].status;
        p->id[name] = t[i].id;
        if (t[i].status != PSRT_OK) continue;
        if (!r->name_of_id[t[i].id]) r->name_of_id[t[i].id] = name + 1;
        cr_assert_eq(r->name_of_id[t[i].id], name + 1);
    }
}

int rig_has_part(const process_t *p, const char *name)
{
    uint64_t hash = psrti_hash_bytes(name, strlen(name));

    return psrti_slice_vshard(hash, 0, VSHARDS) % SERVERS == PSRTI_TASK_RANK(p->task);
}

static void m_hold(void *arg, size_t count, const psrti_member_table_t *t)
{
    process_t *p = arg;

    for (size_t i = 0; i < count; i++) {
        if (rig_has_part(p, t[i].spec->name))
            cr_assert_eq(p->rig->ready[t[i].id], 0, "table %u is given out a second time", t[i].id);
        cr_assert(p->nheld < 64);
        p->large[p->nheld] = table_name(&t[i]) == TABLES - 1;
        p->held[p->nheld++] = t[i].id;
        p->answers_due++;
    }
}

void rig_answer_hold(process_t *p)
{
    uint32_t at = p->nheld - p->answers_due--;
    psrti_member_table_t t = { .id = p->held[at], .status = PSRT_OK, .text = "" };

    if (p->task == PSRTI_TASK(PSRTI_SERVER, 1) && p->large[at])
        t.status = PSRT_ERR_NO_MEMORY, t.text = "server:1: no memory for table5";
    cr_assert_eq(psrti_member_core_held(p->core, 1, &t), PSRT_OK);
}

static void m_prepare(void *arg, uint64_t view, uint32_t worker)
{
    process_t *p = arg;
    uint32_t ids[64];
    uint64_t steps[64];

    (void)worker;
    for (uint32_t i = 0; i < p->nheld; i++) {
        ids[i] = p->held[i];
        steps[i] = open_step(PSRTI_TASK_RANK(p->task), ids[i]);
    }
    psrti_member_core_prepared(p->core, view, p->nheld, ids, steps);
}

static void m_barrier_done(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    process_t *p = arg;
    (void)text;
    cr_assert_eq(request, 1);
    cr_assert_eq(p->met, 1);
    cr_assert_eq(status, PSRT_OK);
    p->met = 2;
}

static void m_set_prepare(void *arg, const psrti_member_set_t *set)
{
    process_t *p = arg;

    /* It stands still while it holds. */
    if (!p->set_held) p->set_reached = p->rig->now / (10 * SECOND) + PSRTI_TASK_RANK(p->task);
    p->set_held = set->number;
    psrti_member_core_set_prepared(p->core, set->number, p->set_reached, PSRT_OK, "");
}

/* All servers are told the same, and never a step that one of them has left behind. */
static void m_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    process_t *p = arg;
    rig_t *r = p->rig;

    cr_assert(number >= p->set_held);
    if (commit) {
        cr_assert(number >= r->set_number && number > r->set_released);
        if (number == r->set_number) cr_assert_eq(from_step, r->set_from);
        r->set_number = number;
        r->set_from = from_step;
        if (p->set_held) cr_assert(from_step >= p->set_reached);
        psrti_member_core_set_ended(p->core, number);
    } else if (p->set_held) {
        cr_assert(p->set_held != r->set_number, "one server was told to make the set, one not to");
        r->set_released = PSRTI_MAX(r->set_released, p->set_held);
    }
    p->set_held = 0;
}

static void m_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                       uint64_t step)
{
    process_t *p = arg;

    cr_assert_eq(request, ++p->sets_done);
    cr_assert(status == PSRT_OK || status == PSRT_ERR_TOO_LATE || status == PSRT_ERR_SHARD_LOST,
              "%s", text);
    p->rig->sets += status == PSRT_OK;
    p->rig->sets_too_late += status == PSRT_ERR_TOO_LATE;
    if (status == PSRT_OK) cr_assert_neq(step, PSRT_STEP_NEXT);
}

static void m_end(void *arg, psrt_status_t status, const char *text)
{
    process_t *p = arg;
    p->ended = 1;
    p->end_status = status;
    snprintf(p->end_text, sizeof p->end_text, "%s", text);
}

/* ---- processes ------------------------------------------------------------------------------- */

void rig_start(rig_t *r, process_t *p)
{
    static const psrti_member_env_t calls = { NULL,       m_dial,         m_drop,        m_send,
                                              m_joined,   m_view,         m_declared,    m_hold,
                                              m_prepare,  m_barrier_done, m_set_prepare, m_set_end,
                                              m_set_done, m_end };
    psrti_member_env_t env = calls;
    psrti_member_core_params_t cp = {
        .task = p->task,
        .workers = WORKERS,
        .servers = SERVERS,
        .nthreads = PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER,
        .threads = &p->thread,
        .host = "host",
        .coordinator = "virtual",
        .pid = 7,
        .nonce = psrti_mix64(r->random++) | 1,
        .heartbeat_ns = HEARTBEAT,
        .lease_ns = LEASE,
        .start_timeout_ns = 1000 * SECOND,
        .coordinator_timeout_ns = 1000 * SECOND,
    };

    p->incarnation = p->view = 0;
    p->nheld = p->answers_due = 0;
    p->set_held = p->sets = p->sets_done = 0;
    p->met = p->ended = 0;
    p->paused_until = p->start_at = p->lost_at = p->up_at = 0;
    for (uint32_t i = 0; i < TABLES; i++)
        p->answer[i] = PSRT_ERR_AGAIN;
    env.arg = p;
    cr_assert_eq(psrti_member_core_new(&cp, &env, r->now, &p->core), PSRT_OK);
    p->next_tick = r->now;
}

void rig_kill(rig_t *r, process_t *p)
{
    rig_cut(r, p);
    psrti_member_core_free(p->core);
    p->core = NULL;
    psrti_view_unref(p->last_view);
    p->last_view = NULL;
    p->start_at = r->now + STEP + rig_random(r, 8 * SECOND);
}
