/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of coordinator and members together, with a virtual clock and links that delay and
 * break.
 *
 * For each seed: tasks start in any order; for a while links are cut, tasks are killed and
 * restarted or stopped for longer than a lease, and the coordinator is restarted from its state;
 * then all heals and the job must come to its orderly end. Checked all the way: incarnations
 * grow, views grow, answers agree, a table that was ready is never given to a server a second
 * time. */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "runtime/cluster/coord_core.h"
#include "runtime/cluster/member_core.h"
#include "support/test.h"

#define WORKERS 3u
#define SERVERS 2u
#define VSHARDS 16u
#define TASKS (WORKERS + SERVERS)
#define TABLES 6u /* names; the last one does not fit into server 1 */
#define MAX_IDS 65536u
#define STEP (10 * PSRTI_NS_PER_MS)
#define SECOND PSRTI_NS_PER_S
#define HEARTBEAT SECOND
#define LEASE (5 * SECOND)
#define CHAOS_END (150 * SECOND)
#define HEAL_END (CHAOS_END + 300 * SECOND)

typedef struct packet {
    psrti_list_t node;
    uint64_t at;
    int to_coord;
    size_t len;
    uint8_t bytes[];
} packet_t;

struct rig;

/* A process of a task. */
typedef struct process {
    struct rig *rig;
    uint32_t task;
    psrti_member_core_t *core; /* NULL: not running */
    uint64_t start_at, paused_until, next_tick;
    psrti_view_owner_t thread;
    /* link: number is the coordinator's peer id */
    uint64_t link, up_at; /* link 0: none; up_at 0: is up */
    uint64_t lost_at;     /* cut: the member hears of it then; 0: no */
    psrti_list_t wire;
    /* what it saw */
    uint64_t incarnation, view;
    uint64_t former_incarnation; /* of an earlier process of this task */
    psrti_view_t *last_view;
    psrt_status_t answer[TABLES]; /* IN_PROGRESS: asked; ERR_AGAIN: not asked */
    uint32_t id[TABLES];
    uint32_t nheld, held[64]; /* server: ids it was told to hold */
    int large[64];            /* the table that does not fit into server 1 */
    uint32_t answers_due;     /* held, not answered yet */
    uint64_t set_held;        /* server: number of the set it holds for; 0: none */
    uint64_t set_reached;     /* the step that it said                           */
    uint64_t sets, sets_done; /* worker */
    int met, ended;
    psrt_status_t end_status;
    char end_text[128];
} process_t;

typedef struct rig {
    uint64_t random, now;
    psrti_coord_t *coord;
    uint64_t coord_next, coord_back_at, trouble_at;
    char *state;
    uint64_t next_link;
    int coord_finished, finishing, leaving;
    psrt_status_t coord_status;
    process_t tasks[TASKS];
    uint32_t name_of_id[MAX_IDS]; /* 1 + name, once declared OK to somebody */
    uint8_t ready[MAX_IDS];
    uint64_t set_number, set_from; /* last set that a server was told to make */
    uint64_t set_released;         /* last hold that ended without it         */
    unsigned sets, sets_too_late;
    unsigned cuts, kills, pauses, coord_restarts, late_joins, fenced, lost_tables, no_memory;
} rig_t;

static uint64_t current_seed; /* for the messages of failures */

static uint64_t rnd(rig_t *r, uint64_t below) { return psrti_mix64(r->random++) % below; }

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
    k->at = r->now + STEP + rnd(r, 200 * PSRTI_NS_PER_MS);
    /* in order per direction */
    for (psrti_list_t *n = p->wire.next; n != &p->wire; n = n->next) {
        const packet_t *before = PSRTI_LIST_ENTRY(n, packet_t, node);
        if (before->to_coord == to_coord && before->at > k->at) k->at = before->at;
    }
    psrti_wire_pack(msg, k->bytes);
    psrti_list_push(&p->wire, &k->node);
}

static void clear_wire(process_t *p)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&p->wire)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, packet_t, node));
}

/* What is under way is lost; the member hears of it a little later. */
static void cut(rig_t *r, process_t *p)
{
    uint64_t link = p->link;
    int was_up = link && !p->up_at;

    if (!link) return;
    clear_wire(p);
    p->link = 0;
    p->lost_at = r->now + STEP + rnd(r, SECOND);
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
    clear_wire(p);
    p->link = 0;
    p->lost_at = r->now + STEP;
}

static void c_persist(void *arg, const char *text, size_t len)
{
    rig_t *r = arg;
    free(r->state);
    r->state = strndup(text, len);
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

static void coord_start(rig_t *r)
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
    p->up_at = r->now + STEP + rnd(r, 100 * PSRTI_NS_PER_MS);
}

static void m_drop(void *arg)
{
    process_t *p = arg;
    rig_t *r = p->rig;
    uint64_t link = p->link;
    int was_up = link && !p->up_at;

    clear_wire(p);
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

static void name_text(uint32_t name, char buf[32]) { snprintf(buf, 32, "table%u", name); }

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

/* The tables have one slice. */
static int has_part(const process_t *p, const char *name)
{
    uint64_t hash = psrti_hash_bytes(name, strlen(name));

    return psrti_slice_vshard(hash, 0, VSHARDS) % SERVERS == PSRTI_TASK_RANK(p->task);
}

static void m_hold(void *arg, size_t count, const psrti_member_table_t *t)
{
    process_t *p = arg;

    for (size_t i = 0; i < count; i++) {
        if (has_part(p, t[i].spec->name))
            cr_assert_eq(p->rig->ready[t[i].id], 0, "table %u is given out a second time", t[i].id);
        cr_assert(p->nheld < 64);
        p->large[p->nheld] = table_name(&t[i]) == TABLES - 1;
        p->held[p->nheld++] = t[i].id;
        p->answers_due++;
    }
}

static void answer_hold(process_t *p)
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

static void process_start(rig_t *r, process_t *p)
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

static void process_kill(rig_t *r, process_t *p)
{
    cut(r, p);
    psrti_member_core_free(p->core);
    p->core = NULL;
    psrti_view_unref(p->last_view);
    p->last_view = NULL;
    p->start_at = r->now + STEP + rnd(r, 8 * SECOND);
}

static void deliver(rig_t *r, process_t *p)
{
    PSRTI_LIST_FOREACH_SAFE(n, next, &p->wire)
    {
        packet_t *k = PSRTI_LIST_ENTRY(n, packet_t, node);
        Psrt__Control *msg;

        if (k->at > r->now || (!k->to_coord && p->paused_until > r->now) ||
            (k->to_coord && !r->coord))
            continue;
        psrti_list_remove(&k->node);
        cr_assert_eq(psrti_wire_unpack(k->bytes, k->len, 1 << 20, &msg), PSRT_OK);
        if (k->to_coord)
            cr_assert_eq(psrti_coord_message(r->coord, p->link, msg, r->now), PSRT_OK);
        else
            cr_assert_eq(psrti_member_core_message(p->core, msg, r->now), PSRT_OK);
        psrti_wire_free(msg);
        free(k);
        return; /* the list may have changed */
    }
}

static void links(rig_t *r, process_t *p)
{
    if (p->lost_at && r->now >= p->lost_at) {
        p->lost_at = 0;
        psrti_member_core_link_lost(p->core, PSRT_ERR_PEER_LOST, "cut", r->now);
    }
    if (p->link && p->up_at && r->now >= p->up_at) {
        p->up_at = 0;
        if (!r->coord) {
            p->link = 0;
            psrti_member_core_link_lost(p->core, PSRT_ERR_UNREACHABLE, "down", r->now);
            return;
        }
        psrti_coord_peer_up(r->coord, p->link, p->task, r->now);
        psrti_member_core_link_up(p->core, r->now);
    }
}

static void declare(process_t *p, uint32_t name)
{
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    char text[32];

    dp.ndim = 1;
    dp.shape[0] = 10 + name;
    name_text(name, text);
    cr_assert_eq(psrti_table_spec_make(text, &dp, &spec), PSRT_OK);
    p->answer[name] = PSRT_IN_PROGRESS;
    cr_assert_eq(psrti_member_core_declare(p->core, name + 1, 1, &spec), PSRT_OK);
}

static void set(rig_t *r, process_t *p)
{
    uint32_t name = (uint32_t)rnd(r, TABLES);
    uint64_t from = rnd(r, 3) ? r->now / (10 * SECOND) + rnd(r, 3) : PSRT_STEP_NEXT;

    if (p->answer[name] == PSRT_OK)
        cr_assert_eq(psrti_member_core_set(p->core, ++p->sets, p->id[name], "lr", 0.5, from),
                     PSRT_OK);
}

static void act(rig_t *r, process_t *p)
{
    if (p->answers_due && rnd(r, 4) == 0) answer_hold(p);
    if (r->now > CHAOS_END || PSRTI_TASK_ROLE(p->task) != PSRTI_WORKER ||
        !psrti_member_core_is_ready(p->core))
        return;
    if (rnd(r, 100) == 0) {
        uint32_t name = (uint32_t)rnd(r, TABLES);
        if (p->answer[name] == PSRT_ERR_AGAIN) declare(p, name);
    }
    if (rnd(r, 300) == 0) set(r, p);
}

static void run_process(rig_t *r, process_t *p)
{
    if (!p->core) {
        if (p->start_at && r->now >= p->start_at) process_start(r, p);
        return;
    }
    if (p->paused_until <= r->now) {
        links(r, p);
        if (!p->ended) act(r, p);
        if (r->now >= p->next_tick) p->next_tick = psrti_member_core_tick(p->core, r->now);
    }
    deliver(r, p);
    deliver(r, p);
    if (p->ended && !r->leaving) {
        /* The only ends before the orderly one: declared dead while stopped or cut off. */
        cr_assert_eq(p->end_status, PSRT_ERR_FENCED, "%s", p->end_text);
        r->fenced++;
        process_kill(r, p);
    }
}

static void run_coord(rig_t *r)
{
    if (!r->coord) {
        if (r->now >= r->coord_back_at) coord_start(r);
        return;
    }
    if (r->now >= r->coord_next) r->coord_next = psrti_coord_tick(r->coord, r->now);
}

static void coord_kill(rig_t *r)
{
    psrti_coord_free(r->coord);
    r->coord = NULL;
    for (uint32_t i = 0; i < TASKS; i++)
        if (r->tasks[i].core) cut(r, &r->tasks[i]);
    r->coord_back_at = r->now + rnd(r, r->finishing ? SECOND : 6 * SECOND);
    r->coord_restarts++;
}

static void make_trouble(rig_t *r)
{
    process_t *p = &r->tasks[rnd(r, TASKS)];

    switch (rnd(r, 2400)) {
    case 0:
    case 1:
    case 2:
        if (p->core && p->link) cut(r, p), r->cuts++;
        break;
    case 3:
    case 4:
        if (p->core) process_kill(r, p), r->kills++;
        break;
    case 5:
        if (p->core) p->paused_until = r->now + rnd(r, 12 * SECOND), r->pauses++;
        break;
    case 6:
        if (r->coord) coord_kill(r);
        break;
    default: break;
    }
}

/* While the job ends nobody may be taken for dead, but connections and the coordinator still
 * break. */
static void make_little_trouble(rig_t *r)
{
    process_t *p = &r->tasks[rnd(r, r->leaving ? WORKERS : TASKS)];

    if (r->now < r->trouble_at || !r->coord) return;
    r->trouble_at = r->now + LEASE + rnd(r, 3 * SECOND);
    if (rnd(r, 2))
        coord_kill(r);
    else
        cut(r, p), r->cuts++;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void step(rig_t *r)
{
    r->now += STEP;
    run_coord(r);
    for (uint32_t i = 0; i < TASKS && !r->coord_finished; i++)
        run_process(r, &r->tasks[i]);
}

static int all_ready(const rig_t *r)
{
    for (uint32_t i = 0; i < TASKS; i++)
        if (!r->tasks[i].core || r->tasks[i].ended ||
            !psrti_member_core_is_ready(r->tasks[i].core) || r->tasks[i].view != r->tasks[0].view)
            return 0;
    return 1;
}

static void check_agreement(const rig_t *r)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        const psrti_view_t *v = r->tasks[i].last_view;
        for (uint32_t w = 0; w < WORKERS; w++) {
            cr_assert_eq(v->workers[w].alive, 1);
            cr_assert_eq(v->workers[w].incarnation, r->tasks[w].incarnation);
        }
        for (uint32_t s = 0; s < SERVERS; s++) {
            cr_assert_eq(v->owners[s].alive, 1);
            cr_assert_eq(v->owners[s].incarnation, r->tasks[WORKERS + s].incarnation);
        }
    }
}

static int holds(const process_t *server, uint32_t id)
{
    for (uint32_t i = 0; i < server->nheld; i++)
        if (server->held[i] == id) return 1;
    return 0;
}

static int answered(const rig_t *r)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint32_t t = 0; t < TABLES; t++)
            if (r->tasks[w].answer[t] == PSRT_IN_PROGRESS) return 0;
    for (uint32_t w = 0; w < WORKERS; w++)
        if (r->tasks[w].sets_done < r->tasks[w].sets) return 0;
    for (uint32_t s = 0; s < SERVERS; s++)
        if (r->tasks[WORKERS + s].set_held) return 0;
    return 1;
}

/* A table is fine for all or for none, and every server of now holds its part of those that are fine. */
static void check_tables(rig_t *r)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        const process_t *p = &r->tasks[w];
        for (uint32_t t = 0; t < TABLES; t++) {
            r->lost_tables += p->answer[t] == PSRT_ERR_SHARD_LOST;
            r->no_memory += p->answer[t] == PSRT_ERR_NO_MEMORY;
            if (p->answer[t] != PSRT_OK) continue;
            cr_assert_neq(t, TABLES - 1);
            char name[32];
            name_text(t, name);
            for (uint32_t s = 0; s < SERVERS; s++)
                cr_assert(!has_part(&r->tasks[WORKERS + s], name) ||
                              holds(&r->tasks[WORKERS + s], p->id[t]),
                          "server %u lacks table %u", s, t);
            for (uint32_t o = 0; o < WORKERS; o++)
                if (r->tasks[o].answer[t] != PSRT_ERR_AGAIN)
                    cr_assert_eq(r->tasks[o].answer[t], PSRT_OK,
                                 "table%u: OK on worker:%u, %s on worker:%u", t, w,
                                 psrt_status_text(r->tasks[o].answer[t]), o);
        }
    }
}

static void until(rig_t *r, int (*condition)(const rig_t *), const char *what)
{
    uint64_t heal = r->now + 60 * SECOND;

    while (!condition(r)) {
        if (r->finishing && r->now < heal) make_little_trouble(r);
        cr_assert(r->now < HEAL_END, "seed %llu does not come to an end: %s",
                  (unsigned long long)current_seed, what);
        step(r);
    }
}

static int all_met(const rig_t *r)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        if (r->tasks[w].met != 2) return 0;
    return 1;
}

static int all_over(const rig_t *r) { return r->coord_finished; }

static void finish_job(rig_t *r)
{
    r->finishing = 1;
    for (uint32_t w = 0; w < WORKERS; w++) {
        r->tasks[w].met = 1;
        cr_assert_eq(psrti_member_core_barrier(r->tasks[w].core, 1, "end", 0), PSRT_OK);
    }
    until(r, all_met, "barrier");
    r->leaving = 1;
    for (uint32_t w = 0; w < WORKERS; w++)
        psrti_member_core_leave(r->tasks[w].core, 0);
    until(r, all_over, "leaving");
    cr_assert_eq(r->coord_status, PSRT_OK);
    for (uint32_t s = 0; s < SERVERS; s++) {
        cr_assert_eq(r->tasks[WORKERS + s].ended, 1);
        cr_assert_eq(r->tasks[WORKERS + s].end_status, PSRT_OK, "%s",
                     r->tasks[WORKERS + s].end_text);
    }
}

static rig_t *rig_new(uint64_t seed)
{
    rig_t *r = calloc(1, sizeof *r);

    r->random = seed << 32;
    r->now = SECOND;
    for (uint32_t i = 0; i < TASKS; i++) {
        process_t *p = &r->tasks[i];
        p->rig = r;
        p->task = i < WORKERS ? PSRTI_TASK(PSRTI_WORKER, i) : PSRTI_TASK(PSRTI_SERVER, i - WORKERS);
        p->thread.naddrs = 1;
        snprintf(p->thread.addr[0], PSRT_ADDR_MAX, "server %u", i);
        psrti_list_init(&p->wire);
        p->start_at = r->now + rnd(r, 20 * SECOND);
    }
    r->coord_back_at = r->now + rnd(r, 20 * SECOND);
    return r;
}

static void rig_free(rig_t *r)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        clear_wire(&r->tasks[i]);
        psrti_member_core_free(r->tasks[i].core);
        psrti_view_unref(r->tasks[i].last_view);
    }
    psrti_coord_free(r->coord);
    free(r->state);
    free(r);
}

static void run_seed(uint64_t seed, rig_t *sum)
{
    rig_t *r = rig_new(seed);

    while (r->now < CHAOS_END) {
        make_trouble(r);
        step(r);
    }
    for (uint32_t i = 0; i < TASKS; i++)
        r->tasks[i].paused_until = 0;
    until(r, all_ready, "views");
    until(r, answered, "declares and sets");
    /* What was sent must arrive before it can be compared. */
    for (uint64_t quiet = r->now + 10 * SECOND; r->now < quiet;)
        step(r);
    until(r, answered, "declares of the last moment");
    until(r, all_ready, "views of the last moment");
    check_agreement(r);
    check_tables(r);
    finish_job(r);
    sum->cuts += r->cuts;
    sum->kills += r->kills;
    sum->pauses += r->pauses;
    sum->coord_restarts += r->coord_restarts;
    sum->late_joins += r->late_joins;
    sum->fenced += r->fenced;
    sum->lost_tables += r->lost_tables;
    sum->no_memory += r->no_memory;
    sum->sets += r->sets;
    sum->sets_too_late += r->sets_too_late;
    rig_free(r);
}

Test(cores, chaos_then_order, .timeout = 280)
{
    rig_t *sum = calloc(1, sizeof *sum);
    const char *only = getenv("PSRT_TEST_SEED"), *many = getenv("PSRT_TEST_SEEDS");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t last = only ? first : many ? strtoull(many, NULL, 10) : 500;

    for (uint64_t seed = first; seed <= last; seed++) {
        current_seed = seed;
        if (many) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        run_seed(seed, sum);
    }
    cr_log_info("cuts %u, kills %u, pauses %u, coordinator restarts %u, commits %u, fenced %u, "
                "lost tables %u, full servers %u, sets %u, too late %u",
                sum->cuts, sum->kills, sum->pauses, sum->coord_restarts, sum->late_joins,
                sum->fenced, sum->lost_tables, sum->no_memory, sum->sets, sum->sets_too_late);
    cr_assert(only || (sum->cuts && sum->kills && sum->pauses && sum->coord_restarts &&
                       sum->late_joins && sum->fenced && sum->lost_tables && sum->no_memory &&
                       sum->sets && sum->sets_too_late));
    free(sum);
}
