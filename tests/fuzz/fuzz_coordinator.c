/* SPDX-License-Identifier: Apache-2.0 */
/* Input: mode | events. An event: what | peer, then for a message its length 2 and its bytes, for time
 * how much. With MODE_FORMED the job has assembled before the first event. */
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "runtime/cluster/coord_core.h"

#define WORKERS 2u
#define SERVERS 2u
#define PEERS (WORKERS + SERVERS + 2) /* two more who want a place that is taken */
#define INCARNATIONS 256
#define SECOND PSRTI_NS_PER_S
#define GROUPED "sgd:lr=0.01,clip_norm=1"

enum { MODE_FORMED = 1 };
enum { MESSAGE, LOST, TIME, RESTART, EVENTS };

typedef struct fx {
    psrti_coord_t *c;
    uint64_t now, peer[PEERS]; /* 0: not connected */
    psrti_view_t *view[PEERS]; /* that came last over the connection; NULL: none */
    uint64_t next_peer;
    uint32_t owner[INCARNATIONS]; /* task that was given it */
    char *state;                  /* the last one that was persisted */
    int finished;
    unsigned sent, persisted;
} fx_t;

static uint32_t task_of(unsigned i)
{
    i %= WORKERS + SERVERS;
    return i < WORKERS ? PSRTI_TASK(PSRTI_WORKER, i) : PSRTI_TASK(PSRTI_SERVER, i - WORKERS);
}

/* ---- environment ------------------------------------------------------------------------------- */

static unsigned index_of(const fx_t *fx, uint64_t peer)
{
    unsigned i = 0;
    while (i < PEERS && fx->peer[i] != peer)
        i++;
    return i;
}

/* An incarnation belongs to one task for ever. */
static void check_welcome(fx_t *fx, uint32_t task, const Psrt__Welcome *welcome)
{
    uint64_t n = welcome->incarnation;
    FUZZ_ASSERT(n > 0);
    if (n >= INCARNATIONS) return;
    FUZZ_ASSERT(fx->owner[n] == 0 || fx->owner[n] == task);
    fx->owner[n] = task;
}

/* Views grow over every connection; where only changes come, they are those of the view before. */
static void check_view(fx_t *fx, unsigned i, const Psrt__View *in)
{
    psrti_view_t *view;
    psrt_status_t rc =
        in->since ? psrti_view_changed(fx->view[i], in, &view) : psrti_view_from_wire(in, &view);
    FUZZ_ASSERT(rc == PSRT_OK && view->nworkers == WORKERS);
    FUZZ_ASSERT(!fx->view[i] || view->number >= fx->view[i]->number);
    psrti_view_unref(fx->view[i]);
    fx->view[i] = view;
}

static void forget(fx_t *fx, unsigned i)
{
    fx->peer[i] = 0;
    psrti_view_unref(fx->view[i]);
    fx->view[i] = NULL;
}

static void on_send(void *arg, uint64_t peer, const Psrt__Control *msg)
{
    fx_t *fx = arg;
    unsigned i = index_of(fx, peer);
    FUZZ_ASSERT(i < PEERS && !fx->finished);
    fx->sent++;
    fuzz_check_control(msg);
    if (msg->body_case == PSRT__CONTROL__BODY_WELCOME) check_welcome(fx, task_of(i), msg->welcome);
    if (msg->body_case == PSRT__CONTROL__BODY_VIEW) check_view(fx, i, msg->view);
    if (msg->body_case == PSRT__CONTROL__BODY_COMMIT) check_view(fx, i, msg->commit->view);
}

static void on_close(void *arg, uint64_t peer)
{
    fx_t *fx = arg;
    unsigned i = index_of(fx, peer);
    FUZZ_ASSERT(i < PEERS);
    forget(fx, i);
}

static int on_persist(void *arg, const char *text, size_t len, int append)
{
    fx_t *fx = arg;
    fx->persisted++;
    size_t before = append ? strlen(fx->state) : 0;
    fx->state = realloc(fx->state, before + len + 1);
    FUZZ_ASSERT(fx->state && memchr(text, 0, len) == NULL && !fx->finished);
    memcpy(fx->state + before, text, len);
    fx->state[before + len] = 0;
    return 1;
}

static void on_note(void *arg, psrt_log_level_t level, const char *text)
{
    (void)arg, (void)level;
    FUZZ_ASSERT(*text);
}

static void on_finish(void *arg, psrt_status_t status, const char *text)
{
    fx_t *fx = arg;
    (void)status;
    FUZZ_ASSERT(!fx->finished && text);
    fx->finished = 1;
}

static psrt_status_t start(fx_t *fx, const char *state)
{
    psrti_coord_params_t p = { .workers = WORKERS,
                               .servers = SERVERS,
                               .vshards = 8,
                               .heartbeat_ns = SECOND,
                               .lease_ns = 5 * SECOND,
                               .start_timeout_ns = 60 * SECOND,
                               .drain_ns = 10 * SECOND,
                               .state = state };
    psrti_coord_env_t env = { fx, on_send, on_close, on_persist, on_note, on_finish };
    return psrti_coord_new(&p, &env, fx->now, &fx->c);
}

/* ---- events ------------------------------------------------------------------------------------ */

static void lose(fx_t *fx, unsigned i)
{
    uint64_t peer = fx->peer[i];
    forget(fx, i); /* nothing is sent to it from here on */
    if (peer) psrti_coord_peer_lost(fx->c, peer, fx->now);
}

static void give(fx_t *fx, unsigned i, const Psrt__Control *msg)
{
    if (!fx->peer[i]) {
        fx->peer[i] = ++fx->next_peer;
        psrti_coord_peer_up(fx->c, fx->peer[i], task_of(i), fx->now);
    }
    if (!fx->peer[i] || psrti_coord_message(fx->c, fx->peer[i], msg, fx->now) == PSRT_OK) return;
    fuzz_refuse();
    lose(fx, i); /* as the driver does */
}

static void message(fx_t *fx, unsigned i, fuzz_in_t *in)
{
    Psrt__Control *msg = fuzz_control(in);
    if (msg)
        give(fx, i, msg);
    else
        lose(fx, i);
    psrti_wire_free(msg);
}

/* What was persisted is all that a successor needs. */
static void restart(fx_t *fx)
{
    if (fx->finished || !fx->state) return;
    char *state = strdup(fx->state);
    psrti_coord_free(fx->c);
    for (unsigned i = 0; i < PEERS; i++)
        forget(fx, i);
    FUZZ_ASSERT(start(fx, state) == PSRT_OK);
    free(state);
}

static void event(fx_t *fx, fuzz_in_t *in)
{
    unsigned what = fuzz_u8(in) % EVENTS, peer = fuzz_u8(in) % PEERS;
    switch (what) {
    case MESSAGE: message(fx, peer, in); break;
    case LOST: lose(fx, peer); break;
    case TIME:
        fx->now += fuzz_u8(in) * SECOND / 8;
        psrti_coord_tick(fx->c, fx->now);
        break;
    default: restart(fx); break;
    }
}

/* ---- messages that tasks send ------------------------------------------------------------------ */

typedef void (*use_fn)(void *arg, unsigned peer, const Psrt__Control *msg);

/* With `tables` of the group "all" that it holds or declared. */
static void join_with(use_fn use, void *arg, unsigned i, uint64_t incarnation, unsigned tables)
{
    psrti_table_spec_t spec[2];
    psrti_wire_tables_t list;
    Psrt__Join body = PSRT__JOIN__INIT;
    Psrt__Owner owner = PSRT__OWNER__INIT, *owners[] = { &owner };
    char *addr[] = { "tcp://10.0.0.1:7000" };
    owner.n_addr = 1;
    owner.addr = addr;
    owner.server = PSRTI_TASK_RANK(task_of(i));
    body.task = task_of(i);
    body.incarnation = incarnation;
    body.host = "node7";
    body.pid = 42 + i;
    body.nonce = 1000 + i;
    body.workers = WORKERS;
    body.servers = SERVERS;
    body.n_threads = PSRTI_TASK_ROLE(task_of(i)) == PSRTI_SERVER;
    body.threads = owners;
    FUZZ_ASSERT(psrti_wire_tables_init(&list, 2) == PSRT_OK);
    for (unsigned t = 0; t < tables; t++) {
        spec[t] = fuzz_table_spec(t, GROUPED, "all");
        psrti_wire_tables_add(&list, t + 1, PSRT_OK, "", &spec[t], 0);
        list.tables[t].used = i < WORKERS;
    }
    body.n_held = list.count;
    body.held = list.list;
    PSRTI_CONTROL(msg, JOIN, join, &body);
    use(arg, i, &msg);
    psrti_wire_tables_free(&list);
}

static void join(use_fn use, void *arg, unsigned i, uint64_t incarnation)
{
    join_with(use, arg, i, incarnation, 0);
}

static void declare(use_fn use, void *arg, unsigned i, unsigned tables, const char *optimizer)
{
    Psrt__Declare body = PSRT__DECLARE__INIT;
    psrti_table_spec_t spec[2];
    Psrt__TableSpec wire[2], *list[] = { &wire[0], &wire[1] };
    for (unsigned t = 0; t < tables; t++) {
        spec[t] = fuzz_table_spec(t, optimizer, tables > 1 ? "all" : NULL);
        psrti_spec_to_wire(&spec[t], &wire[t]);
    }
    body.request = 1;
    body.n_specs = tables;
    body.specs = list;
    PSRTI_CONTROL(msg, DECLARE, declare, &body);
    use(arg, i, &msg);
}

static void held(use_fn use, void *arg, unsigned i, uint32_t table, psrt_status_t status)
{
    Psrt__Held body = PSRT__HELD__INIT;
    psrti_wire_tables_t tables;
    FUZZ_ASSERT(psrti_wire_tables_init(&tables, 1) == PSRT_OK);
    psrti_wire_tables_add(&tables, table, status, status ? "no memory" : "", NULL, 0);
    body.n_tables = 1;
    body.tables = tables.list;
    PSRTI_CONTROL(msg, HELD, held, &body);
    use(arg, i, &msg);
    psrti_wire_tables_free(&tables);
}

static void beat(use_fn use, void *arg, unsigned i)
{
    Psrt__Heartbeat body = PSRT__HEARTBEAT__INIT;
    PSRTI_CONTROL(msg, HEARTBEAT, heartbeat, &body);
    use(arg, i, &msg);
}

static void use_table(use_fn use, void *arg, unsigned i, uint32_t table)
{
    Psrt__Used body = PSRT__USED__INIT;
    body.table = table;
    PSRTI_CONTROL(msg, USED, used, &body);
    use(arg, i, &msg);
}

static void barrier(use_fn use, void *arg, unsigned i, uint32_t count, int withdraw)
{
    Psrt__Barrier body = PSRT__BARRIER__INIT;
    body.name = "epoch";
    body.count = count;
    body.request = 5;
    body.withdraw = withdraw;
    PSRTI_CONTROL(msg, BARRIER, barrier, &body);
    use(arg, i, &msg);
}

static void set(use_fn use, void *arg, unsigned i)
{
    Psrt__Set body = PSRT__SET__INIT;
    body.request = 1;
    body.table = 1;
    body.key = "lr";
    body.value = 0.5;
    body.from_step = UINT64_MAX;
    PSRTI_CONTROL(msg, SET, set, &body);
    use(arg, i, &msg);
}

static void set_answers(use_fn use, void *arg, unsigned i, uint64_t number)
{
    Psrt__SetPrepared prepared = PSRT__SET_PREPARED__INIT;
    Psrt__SetEnded ended = PSRT__SET_ENDED__INIT;
    prepared.number = ended.number = number;
    prepared.step = 3;
    prepared.text = "";
    PSRTI_CONTROL(first, SET_PREPARED, set_prepared, &prepared);
    PSRTI_CONTROL(second, SET_ENDED, set_ended, &ended);
    use(arg, i, &first);
    use(arg, i, &second);
}

static void prepared(use_fn use, void *arg, unsigned i, uint64_t view)
{
    Psrt__Prepared body = PSRT__PREPARED__INIT;
    uint32_t table = 1;
    uint64_t step = 7;
    body.view = view;
    body.n_table = body.n_open_step = 1;
    body.table = &table;
    body.open_step = &step;
    PSRTI_CONTROL(msg, PREPARED, prepared, &body);
    use(arg, i, &msg);
}

static void leave(use_fn use, void *arg, unsigned i, int failed, int heard)
{
    Psrt__Leave body = PSRT__LEAVE__INIT;
    body.failed = failed;
    body.heard = heard;
    PSRTI_CONTROL(msg, LEAVE, leave, &body);
    use(arg, i, &msg);
}

/* ---- the target -------------------------------------------------------------------------------- */

static void give_to(void *arg, unsigned i, const Psrt__Control *msg) { give(arg, i, msg); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    fx_t fx = { .now = 100 * SECOND };
    unsigned mode = fuzz_u8(&in);
    FUZZ_ASSERT(start(&fx, NULL) == PSRT_OK);
    for (unsigned i = 0; mode & MODE_FORMED && i < WORKERS + SERVERS; i++)
        join(give_to, &fx, i, 0);
    while (in.left)
        event(&fx, &in);
    restart(&fx);
    psrti_coord_free(fx.c);
    for (unsigned i = 0; i < PEERS; i++)
        forget(&fx, i);
    free(fx.state);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void put(void *arg, unsigned i, const Psrt__Control *msg)
{
    fuzz_put8(arg, MESSAGE);
    fuzz_put8(arg, i);
    fuzz_put_control(arg, msg);
}

static void put_event(fuzz_out_t *out, unsigned what, unsigned i)
{
    fuzz_put8(out, what);
    fuzz_put8(out, i);
}

static void pass(fuzz_out_t *out, unsigned seconds)
{
    put_event(out, TIME, 0);
    fuzz_put8(out, seconds * 8);
}

static void seed_formed(const char *name, void (*events)(fuzz_out_t *out))
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, MODE_FORMED);
    events(&out);
    fuzz_seed(name, out.data, out.size);
}

static void declaring(fuzz_out_t *out)
{
    declare(put, out, 0, 1, "adam:lr=0.01");
    declare(put, out, 1, 1, "adam:lr=0.1");
    held(put, out, 2, 1, PSRT_OK);
    held(put, out, 3, 1, PSRT_ERR_NO_MEMORY);
}

static void grouping(fuzz_out_t *out)
{
    declare(put, out, 0, 2, GROUPED);
    held(put, out, 2, 1, PSRT_OK);
    held(put, out, 3, 1, PSRT_OK);
    use_table(put, out, 0, 1);
    held(put, out, 2, 2, PSRT_ERR_NO_MEMORY); /* and the group has failed */
}

/* A worker joins late, while two tables of a group are in use. */
static void late(fuzz_out_t *out)
{
    declare(put, out, 0, 2, GROUPED);
    for (unsigned i = 2; i < 4; i++)
        for (uint32_t table = 1; table <= 2; table++)
            held(put, out, i, table, PSRT_OK);
    use_table(put, out, 0, 1);
    for (unsigned second = 0; second < 8; second++) {
        put_event(out, TIME, 0);
        fuzz_put8(out, 8);
        for (unsigned i = 0; i < WORKERS + SERVERS; i++)
            if (i != 1) beat(put, out, i);
    }
    join(put, out, 5, 0); /* the place of worker 1 */
    for (uint64_t view = 2; view <= 4; view++)
        for (unsigned i = 2; i < 4; i++)
            prepared(put, out, i, view);
}

/* Everybody comes back to a coordinator that was restarted. */
static void returning(fuzz_out_t *out)
{
    declare(put, out, 0, 2, GROUPED);
    for (unsigned i = 2; i < 4; i++)
        for (uint32_t table = 1; table <= 2; table++)
            held(put, out, i, table, PSRT_OK);
    put_event(out, RESTART, 0);
    for (unsigned i = 0; i < WORKERS + SERVERS; i++)
        join_with(put, out, i, i + 1, 2);
    put_event(out, LOST, 2);
    join_with(put, out, 2, 3, 1);
    pass(out, 6);
}

static void setting(fuzz_out_t *out)
{
    declare(put, out, 0, 1, "sgd:lr=0.01");
    held(put, out, 2, 1, PSRT_OK);
    held(put, out, 3, 1, PSRT_OK);
    set(put, out, 0);
    set_answers(put, out, 2, (1ull << 32) + 1);
    set_answers(put, out, 3, (1ull << 32) + 1);
    put_event(out, RESTART, 0);
    join(put, out, 2, 3);
}

static void meeting(fuzz_out_t *out)
{
    barrier(put, out, 0, 2, 0);
    barrier(put, out, 0, 2, 1);
    barrier(put, out, 0, 2, 0);
    put_event(out, LOST, 0);
    barrier(put, out, 1, 2, 0);
    barrier(put, out, 0, 0, 0);
    leave(put, out, 0, 0, 0);
    leave(put, out, 1, 1, 0);
    leave(put, out, 0, 0, 1);
}

static void dying(fuzz_out_t *out)
{
    join(put, out, 4, 0); /* waits for the place of worker 0 */
    pass(out, 3);
    barrier(put, out, 1, 0, 0);
    pass(out, 3);
    join(put, out, 4, 0);
    prepared(put, out, 2, 2);
    prepared(put, out, 3, 2);
    put_event(out, RESTART, 0);
    join(put, out, 4, 5);
}

static void joining(fuzz_out_t *out)
{
    for (unsigned i = 0; i < WORKERS + SERVERS; i++)
        join(put, out, i, 0);
    pass(out, 7);
}

void fuzz_seeds(void)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, 0);
    joining(&out);
    fuzz_seed("joining", out.data, out.size);
    seed_formed("declaring", declaring);
    seed_formed("grouping", grouping);
    seed_formed("setting", setting);
    seed_formed("meeting", meeting);
    seed_formed("dying", dying);
    seed_formed("late", late);
    seed_formed("returning", returning);
}
