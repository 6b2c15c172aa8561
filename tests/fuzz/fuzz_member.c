/* SPDX-License-Identifier: Apache-2.0 */
/* Input: mode | events. An event: what, then for a message of the coordinator its length 2 and its bytes,
 * for time how much, for a request of the task its number. With MODE_JOINED the task has joined before
 * the first event. */
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "runtime/cluster/member_core.h"

#define SECOND PSRTI_NS_PER_S
#define REQUESTS 64
#define WORKERS 2

enum { MODE_JOINED = 1, MODE_SERVER = 2 };
enum { MESSAGE, LOST, TIME, DECLARE, BARRIER, WITHDRAW, SET, USED, HELD, LEAVE, EVENTS };

typedef struct fx {
    psrti_member_core_t *core;
    uint64_t now, view, incarnation;
    uint32_t owners, vshards; /* of the first view */
    int linked, dialing, ended;
    unsigned declares, barriers, sets; /* asked so far: they are numbered from 1 */
    uint8_t declared[REQUESTS], met[REQUESTS], set[REQUESTS]; /* answers to each */
    uint32_t held[8];                                         /* tables to be created */
    unsigned holds;
} fx_t;

/* ---- environment ------------------------------------------------------------------------------- */

static void on_dial(void *arg)
{
    fx_t *fx = arg;
    FUZZ_ASSERT(!fx->linked && !fx->dialing);
    fx->dialing = 1;
}

static void on_drop(void *arg)
{
    fx_t *fx = arg;
    fx->linked = fx->dialing = 0;
}

static void on_send(void *arg, const Psrt__Control *msg)
{
    fx_t *fx = arg;
    FUZZ_ASSERT(fx->linked);
    fuzz_check_control(msg);
}

static void on_joined(void *arg, uint64_t incarnation)
{
    fx_t *fx = arg;
    FUZZ_ASSERT(!fx->incarnation && incarnation);
    fx->incarnation = incarnation;
}

static void on_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                    const uint32_t *table, const uint64_t *from_step)
{
    fx_t *fx = arg;
    volatile uint64_t sum = 0;
    FUZZ_ASSERT(fx->incarnation && view->number >= fx->view);
    /* Whoever holds a view has arrays by worker, owner and virtual shard. */
    if (fx->owners) FUZZ_ASSERT(view->nowners == fx->owners && view->nvshards == fx->vshards);
    FUZZ_ASSERT(view->nworkers == WORKERS);
    fx->owners = view->nowners, fx->vshards = view->nvshards;
    fx->view = view->number;
    for (size_t i = 0; i < count; i++)
        sum += table[i] + from_step[i];
    (void)sum;
    if (count) FUZZ_ASSERT(worker < view->nworkers);
    for (uint32_t v = 0; v < view->nvshards; v++)
        FUZZ_ASSERT(view->vshards[v].owner < view->nowners);
}

static void check_tables(size_t count, const psrti_member_table_t *tables)
{
    for (size_t i = 0; i < count; i++) {
        FUZZ_ASSERT(tables[i].text);
        if (tables[i].spec) FUZZ_ASSERT(psrti_table_spec_check(tables[i].spec) == PSRT_OK);
    }
}

static void answered(uint8_t *answers, unsigned asked, uint64_t request)
{
    FUZZ_ASSERT(request >= 1 && request <= asked);
    FUZZ_ASSERT(!answers[request - 1]++);
}

static void on_declared(void *arg, uint64_t request, size_t count,
                        const psrti_member_table_t *tables)
{
    fx_t *fx = arg;
    check_tables(count, tables);
    if (request) answered(fx->declared, fx->declares, request); /* 0: a table failed later */
}

static void on_hold(void *arg, size_t count, const psrti_member_table_t *tables)
{
    fx_t *fx = arg;
    check_tables(count, tables);
    for (size_t i = 0; i < count; i++) {
        FUZZ_ASSERT(tables[i].spec);
        if (fx->holds < PSRTI_COUNT(fx->held)) fx->held[fx->holds++] = tables[i].id;
    }
}

static void on_prepare(void *arg, uint64_t view, uint32_t worker)
{
    fx_t *fx = arg;
    uint32_t table = 1;
    uint64_t step = 7;
    (void)worker;
    psrti_member_core_prepared(fx->core, view, 1, &table, &step);
}

static void on_barrier_done(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    fx_t *fx = arg;
    (void)status;
    FUZZ_ASSERT(text);
    answered(fx->met, fx->barriers, request);
}

static void on_set_prepare(void *arg, const psrti_member_set_t *set)
{
    fx_t *fx = arg;
    FUZZ_ASSERT(set->key && set->number);
    psrti_member_core_set_prepared(fx->core, set->number, 3, PSRT_OK, "");
}

static void on_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    fx_t *fx = arg;
    (void)from_step;
    if (commit) psrti_member_core_set_ended(fx->core, number);
}

static void on_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                        uint64_t step)
{
    fx_t *fx = arg;
    (void)status, (void)step;
    FUZZ_ASSERT(text);
    answered(fx->set, fx->sets, request);
}

static void on_end(void *arg, psrt_status_t status, const char *text)
{
    fx_t *fx = arg;
    (void)status;
    FUZZ_ASSERT(!fx->ended && text);
    fx->ended = 1;
}

static void open_core(fx_t *fx, int server, const psrti_view_owner_t *thread)
{
    psrti_member_core_params_t p = {
        .task = PSRTI_TASK(server ? PSRTI_SERVER : PSRTI_WORKER, 0),
        .workers = WORKERS,
        .servers = 2,
        .nthreads = server ? 1 : 0,
        .threads = thread,
        .host = "node7",
        .coordinator = "tcp://10.0.0.1:7000",
        .pid = 42,
        .nonce = 4711,
        .heartbeat_ns = SECOND,
        .lease_ns = 5 * SECOND,
        .start_timeout_ns = 60 * SECOND,
        .coordinator_timeout_ns = 60 * SECOND,
    };
    psrti_member_env_t env = { fx,          on_dial,         on_drop,        on_send,
                               on_joined,   on_view,         on_declared,    on_hold,
                               on_prepare,  on_barrier_done, on_set_prepare, on_set_end,
                               on_set_done, on_end };
    FUZZ_ASSERT(psrti_member_core_new(&p, &env, fx->now, &fx->core) == PSRT_OK);
}

/* ---- events ------------------------------------------------------------------------------------ */

/* Lets the core dial, and the link come up. */
static void link_up(fx_t *fx)
{
    psrti_member_core_tick(fx->core, fx->now);
    if (!fx->dialing) return;
    fx->dialing = 0;
    fx->linked = 1;
    psrti_member_core_link_up(fx->core, fx->now);
}

static void lose(fx_t *fx, psrt_status_t status)
{
    if (!fx->linked && !fx->dialing) return;
    fx->linked = fx->dialing = 0;
    psrti_member_core_link_lost(fx->core, status, "cut", fx->now);
}

static void message(fx_t *fx, fuzz_in_t *in)
{
    Psrt__Control *msg = fuzz_control(in);
    link_up(fx);
    if (!msg || (fx->linked && psrti_member_core_message(fx->core, msg, fx->now) != PSRT_OK)) {
        fuzz_refuse();
        lose(fx, PSRT_ERR_PROTOCOL); /* as the driver does */
    }
    psrti_wire_free(msg);
}

static void ask(fx_t *fx, unsigned what, unsigned n)
{
    psrti_table_spec_t spec = fuzz_table_spec(n % 4, "sgd:lr=0.1", NULL);
    psrti_member_table_t table = { .id = n,
                                   .status = n & 1 ? PSRT_ERR_NO_MEMORY : PSRT_OK,
                                   .text = "" };
    switch (what) {
    case DECLARE:
        if (fx->declares < REQUESTS) psrti_member_core_declare(fx->core, ++fx->declares, 1, &spec);
        break;
    case BARRIER:
        if (fx->barriers < REQUESTS)
            psrti_member_core_barrier(fx->core, ++fx->barriers, "epoch", n % 3);
        break;
    case WITHDRAW: psrti_member_core_withdraw(fx->core, n); break;
    case SET:
        if (fx->sets < REQUESTS) psrti_member_core_set(fx->core, ++fx->sets, n, "lr", 0.5, 3);
        break;
    case USED: psrti_member_core_used(fx->core, n); break;
    case HELD:
        if (fx->holds) table.id = fx->held[--fx->holds];
        (void)psrti_member_core_held(fx->core, 1, &table);
        break;
    default: psrti_member_core_leave(fx->core, n & 1); break;
    }
}

static void event(fx_t *fx, fuzz_in_t *in)
{
    unsigned what = fuzz_u8(in) % EVENTS;
    switch (what) {
    case MESSAGE: message(fx, in); break;
    case LOST: lose(fx, fuzz_u8(in) & 1 ? PSRT_ERR_REFUSED : PSRT_ERR_PEER_LOST); break;
    case TIME:
        fx->now += fuzz_u8(in) * SECOND / 8;
        link_up(fx);
        break;
    default: ask(fx, what, fuzz_u8(in)); break;
    }
}

/* ---- messages of a coordinator ----------------------------------------------------------------- */

static void welcome(Psrt__Welcome *body)
{
    psrt__welcome__init(body);
    body->incarnation = 3;
    body->generation = 1;
    body->lease_ms = 5000;
}

static psrti_view_t *make_view(uint64_t number)
{
    psrti_view_t *view = psrti_view_new(WORKERS, 2, 8);
    FUZZ_ASSERT(view);
    view->number = number;
    view->generation = 1;
    for (uint32_t i = 0; i < 2; i++) {
        view->workers[i] = (psrti_view_worker_t){ .incarnation = 3 + i, .alive = 1 };
        view->owners[i] =
            (psrti_view_owner_t){ .server = i, .incarnation = 5 + i, .alive = 1, .naddrs = 1 };
        strcpy(view->owners[i].addr[0], "tcp://10.0.0.1:7000");
    }
    for (uint32_t v = 0; v < 8; v++)
        view->vshards[v] = (psrti_view_vshard_t){ .owner = (uint16_t)(v % 2), .term = 1 };
    return view;
}

static void give_joined(fx_t *fx)
{
    Psrt__Welcome body;
    psrti_view_t *view = make_view(1);
    Psrt__View *wire = psrti_view_to_wire(view);
    FUZZ_ASSERT(wire);
    welcome(&body);
    PSRTI_CONTROL(first, WELCOME, welcome, &body);
    PSRTI_CONTROL(second, VIEW, view, wire);
    link_up(fx);
    FUZZ_ASSERT(psrti_member_core_message(fx->core, &first, fx->now) == PSRT_OK);
    FUZZ_ASSERT(psrti_member_core_message(fx->core, &second, fx->now) == PSRT_OK);
    FUZZ_ASSERT(psrti_member_core_is_ready(fx->core) && fx->view == 1);
    free(wire);
    psrti_view_unref(view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    psrti_view_owner_t thread = { .naddrs = 1 };
    fx_t fx = { .now = 100 * SECOND };
    unsigned mode = fuzz_u8(&in);
    strcpy(thread.addr[0], "tcp://10.0.0.2:7000");
    open_core(&fx, mode & MODE_SERVER, &thread);
    if (mode & MODE_JOINED) give_joined(&fx);
    while (in.left)
        event(&fx, &in);
    psrti_member_core_free(fx.core);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void put(fuzz_out_t *out, const Psrt__Control *msg)
{
    fuzz_put8(out, MESSAGE);
    fuzz_put_control(out, msg);
}

static void put_event(fuzz_out_t *out, unsigned what, unsigned n)
{
    fuzz_put8(out, what);
    fuzz_put8(out, n);
}

/* Only what changed since `since`. */
static void put_changes(fuzz_out_t *out, uint64_t since, uint64_t number)
{
    psrti_view_t *base = make_view(since), *view = make_view(number);
    view->workers[1].alive = 0;
    view->owners[1].incarnation++;
    view->vshards[1].term++;
    Psrt__View *wire = psrti_view_changes_to_wire(base, view);
    FUZZ_ASSERT(wire);
    PSRTI_CONTROL(msg, VIEW, view, wire);
    put(out, &msg);
    free(wire);
    psrti_view_unref(base);
    psrti_view_unref(view);
}

static void put_view(fuzz_out_t *out, uint64_t number, int commit)
{
    psrti_view_t *view = make_view(number);
    Psrt__View *wire = psrti_view_to_wire(view);
    Psrt__Commit body = PSRT__COMMIT__INIT;
    uint32_t table = 1;
    uint64_t step = 7;
    FUZZ_ASSERT(wire);
    body.view = wire;
    body.worker = 1;
    body.n_table = body.n_from_step = 1;
    body.table = &table;
    body.from_step = &step;
    PSRTI_CONTROL(alone, VIEW, view, wire);
    PSRTI_CONTROL(with_steps, COMMIT, commit, &body);
    put(out, commit ? &with_steps : &alone);
    free(wire);
    psrti_view_unref(view);
}

static void put_tables(fuzz_out_t *out, int hold, uint64_t request, psrt_status_t status)
{
    psrti_table_spec_t spec = fuzz_table_spec(1, "sgd:lr=0.1", NULL);
    psrti_wire_tables_t tables;
    Psrt__Declared declared = PSRT__DECLARED__INIT;
    Psrt__Hold holds = PSRT__HOLD__INIT;
    FUZZ_ASSERT(psrti_wire_tables_init(&tables, 1) == PSRT_OK);
    psrti_wire_tables_add(&tables, 1, status, status ? "differs" : "", &spec, 0);
    declared.request = request;
    declared.n_tables = holds.n_tables = 1;
    declared.tables = holds.tables = tables.list;
    PSRTI_CONTROL(to_worker, DECLARED, declared, &declared);
    PSRTI_CONTROL(to_server, HOLD, hold, &holds);
    put(out, hold ? &to_server : &to_worker);
    psrti_wire_tables_free(&tables);
}

static void seed_joining(void)
{
    fuzz_out_t out = { .size = 0 };
    Psrt__Welcome body;
    Psrt__Refused refused = PSRT__REFUSED__INIT;
    welcome(&body);
    refused.status = PSRT_ERR_FENCED;
    refused.text = "declared dead";
    PSRTI_CONTROL(first, WELCOME, welcome, &body);
    PSRTI_CONTROL(last, REFUSED, refused, &refused);
    fuzz_put8(&out, 0);
    put(&out, &first);
    put_view(&out, 1, 0);
    put_event(&out, TIME, 8);
    put_event(&out, LOST, 0);
    put_event(&out, TIME, 8);
    put(&out, &first);
    put_view(&out, 2, 1);
    put_changes(&out, 2, 3);
    put(&out, &last);
    fuzz_seed("joining", out.data, out.size);
}

static void seed_worker(void)
{
    fuzz_out_t out = { .size = 0 };
    Psrt__BarrierDone met = PSRT__BARRIER_DONE__INIT;
    Psrt__SetDone set = PSRT__SET_DONE__INIT;
    Psrt__Finish finish = PSRT__FINISH__INIT;
    met.name = "epoch", met.text = "", met.request = 1;
    set.text = "", set.request = 1, set.step = 4;
    finish.text = "all workers finished";
    PSRTI_CONTROL(done, BARRIER_DONE, barrier_done, &met);
    PSRTI_CONTROL(changed, SET_DONE, set_done, &set);
    PSRTI_CONTROL(over, FINISH, finish, &finish);
    fuzz_put8(&out, MODE_JOINED);
    put_event(&out, DECLARE, 1);
    put_tables(&out, 0, 1, PSRT_OK);
    put_event(&out, USED, 1);
    put_event(&out, BARRIER, 2);
    put_event(&out, WITHDRAW, 1);
    put(&out, &done);
    put_event(&out, SET, 1);
    put(&out, &changed);
    put_tables(&out, 0, 0, PSRT_ERR_MISMATCH);
    put_event(&out, LEAVE, 0);
    put(&out, &over);
    fuzz_seed("worker", out.data, out.size);
}

static void seed_server(void)
{
    fuzz_out_t out = { .size = 0 };
    Psrt__Prepare prepare = PSRT__PREPARE__INIT;
    Psrt__SetPrepare set = PSRT__SET_PREPARE__INIT;
    Psrt__SetEnd end = PSRT__SET_END__INIT;
    prepare.view = 2, prepare.worker = 1;
    set.number = end.number = 9, set.table = 1, set.key = "lr", set.value = 0.5;
    end.commit = 1, end.from_step = 4;
    PSRTI_CONTROL(join, PREPARE, prepare, &prepare);
    PSRTI_CONTROL(hold, SET_PREPARE, set_prepare, &set);
    PSRTI_CONTROL(commit, SET_END, set_end, &end);
    fuzz_put8(&out, MODE_JOINED | MODE_SERVER);
    put_tables(&out, 1, 0, PSRT_OK);
    put_event(&out, HELD, 0);
    put(&out, &join);
    put_view(&out, 2, 1);
    put(&out, &hold);
    put(&out, &commit);
    put_event(&out, LOST, 0);
    put_event(&out, TIME, 20);
    fuzz_seed("server", out.data, out.size);
}

void fuzz_seeds(void)
{
    seed_joining();
    seed_worker();
    seed_server();
}
