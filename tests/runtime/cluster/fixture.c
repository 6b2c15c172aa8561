/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* ---- environment ------------------------------------------------------------------------------- */

static void on_send(void *arg, uint64_t peer, const Psrt__Control *m)
{
    coord_fx_t *fx = arg;
    fx->sent(fx->arg, peer, m);
}

static void on_close(void *arg, uint64_t peer) { (void)arg, (void)peer; }

static int on_persist(void *arg, const char *text, size_t len, int append)
{
    coord_fx_t *fx = arg;
    char *state = NULL;
    cr_assert(asprintf(&state, "%s%.*s", append ? fx->state : "", (int)len, text) > 0);
    free(fx->state);
    fx->state = state;
    fx->written += len;
    return 1;
}

static void on_note(void *arg, psrt_log_level_t level, const char *text)
{
    coord_fx_t *fx = arg;
    if (level != PSRT_LOG_WARN) return;
    fx->warnings++;
    snprintf(fx->note, sizeof fx->note, "%s", text);
}

static void on_finish(void *arg, psrt_status_t status, const char *text)
{
    coord_fx_t *fx = arg;
    cr_assert_eq(fx->finished, 0);
    fx->finished = 1;
    fx->status = status;
    snprintf(fx->text, sizeof fx->text, "%s", text);
}

psrt_status_t coord_fx_open(coord_fx_t *fx, uint32_t servers, const char *state)
{
    psrti_coord_params_t p = {
        .workers = 2,
        .servers = servers,
        .start_workers = fx->start_workers,
        .vshards = 8,
        .heartbeat_ns = SECOND,
        .lease_ns = 5 * SECOND,
        .start_timeout_ns = 60 * SECOND,
        .drain_ns = 10 * SECOND,
        .state = state,
    };
    psrti_coord_env_t env = { fx, on_send, on_close, on_persist, on_note, on_finish };
    if (!fx->now) fx->now = 100 * SECOND;
    return psrti_coord_new(&p, &env, fx->now, &fx->c);
}

void coord_fx_close(coord_fx_t *fx)
{
    psrti_coord_free(fx->c);
    free(fx->state);
}

/* ---- messages ---------------------------------------------------------------------------------- */

psrt_status_t coord_fx_message(coord_fx_t *fx, uint64_t peer, const Psrt__Control *m)
{
    return psrti_coord_message(fx->c, peer, m, fx->now);
}

static void must(coord_fx_t *fx, uint64_t peer, const Psrt__Control *m)
{
    cr_assert_eq(coord_fx_message(fx, peer, m), PSRT_OK);
}

psrt_status_t coord_fx_join(coord_fx_t *fx, uint64_t peer, const coord_fx_join_t *join)
{
    Psrt__Join body = PSRT__JOIN__INIT;
    Psrt__Owner owner = PSRT__OWNER__INIT, *owners[2] = { &owner, &owner };
    char *addrs[] = { "shm:near", "tcp://far:1" };
    psrti_wire_tables_t held;

    body.task = join->task;
    body.incarnation = join->incarnation;
    body.host = "host";
    body.pid = 42;
    body.nonce = join->nonce;
    body.workers = join->workers;
    body.servers = join->servers;
    body.n_threads = join->threads;
    body.threads = owners;
    owner.n_addr = 2;
    owner.addr = addrs;
    cr_assert_eq(psrti_wire_tables_init(&held, 1), PSRT_OK);
    if (join->held) psrti_wire_tables_add(&held, 1, PSRT_OK, "", join->held, 0);
    body.n_held = held.count;
    body.held = held.list;
    PSRTI_CONTROL(m, JOIN, join, &body);
    psrt_status_t rc = coord_fx_message(fx, peer, &m);
    psrti_wire_tables_free(&held);
    return rc;
}

psrt_status_t coord_fx_declare(coord_fx_t *fx, uint64_t peer, uint64_t request,
                               const psrti_table_spec_t *spec)
{
    Psrt__TableSpec wire, *list[1] = { &wire };
    Psrt__Declare body = PSRT__DECLARE__INIT;

    psrti_spec_to_wire(spec, &wire);
    body.request = request;
    body.n_specs = 1;
    body.specs = list;
    PSRTI_CONTROL(m, DECLARE, declare, &body);
    return coord_fx_message(fx, peer, &m);
}

void coord_fx_held(coord_fx_t *fx, uint64_t peer, uint32_t table, psrt_status_t status,
                   const char *text)
{
    psrti_wire_tables_t tables;
    Psrt__Held body = PSRT__HELD__INIT;

    cr_assert_eq(psrti_wire_tables_init(&tables, 1), PSRT_OK);
    psrti_wire_tables_add(&tables, table, status, text, NULL, 0);
    body.n_tables = 1;
    body.tables = tables.list;
    PSRTI_CONTROL(m, HELD, held, &body);
    must(fx, peer, &m);
    psrti_wire_tables_free(&tables);
}

static void beat(coord_fx_t *fx, uint64_t peer)
{
    Psrt__Heartbeat body = PSRT__HEARTBEAT__INIT;
    PSRTI_CONTROL(m, HEARTBEAT, heartbeat, &body);
    must(fx, peer, &m);
}

void coord_fx_pass(coord_fx_t *fx, uint64_t ns, unsigned beating)
{
    for (uint64_t end = fx->now + ns; fx->now < end;) {
        fx->now += SECOND / 2;
        for (uint64_t p = 1; p < PEERS; p++)
            if (beating >> p & 1) beat(fx, p);
        psrti_coord_tick(fx->c, fx->now);
    }
}
