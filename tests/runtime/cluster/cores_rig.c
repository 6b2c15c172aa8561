/* SPDX-License-Identifier: Apache-2.0 */
#include "cores_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"

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
    rig_name_text(name, text);
    cr_assert_eq(psrti_table_spec_make(text, &dp, &spec), PSRT_OK);
    p->answer[name] = PSRT_IN_PROGRESS;
    cr_assert_eq(psrti_member_core_declare(p->core, name + 1, 1, &spec), PSRT_OK);
}

static void set(rig_t *r, process_t *p)
{
    uint32_t name = (uint32_t)rig_random(r, TABLES);
    uint64_t from = rig_random(r, 3) ? r->now / (10 * SECOND) + rig_random(r, 3) : PSRT_STEP_NEXT;

    if (p->answer[name] == PSRT_OK)
        cr_assert_eq(psrti_member_core_set(p->core, ++p->sets, p->id[name], "lr", 0.5, from),
                     PSRT_OK);
}

static void act(rig_t *r, process_t *p)
{
    if (p->answers_due && rig_random(r, 4) == 0) rig_answer_hold(p);
    if (r->now > CHAOS_END || PSRTI_TASK_ROLE(p->task) != PSRTI_WORKER ||
        !psrti_member_core_is_ready(p->core))
        return;
    if (rig_random(r, 100) == 0) {
        uint32_t name = (uint32_t)rig_random(r, TABLES);
        if (p->answer[name] == PSRT_ERR_AGAIN) declare(p, name);
    }
    if (rig_random(r, 300) == 0) set(r, p);
}

static void run_process(rig_t *r, process_t *p)
{
    if (!p->core) {
        if (p->start_at && r->now >= p->start_at) rig_start(r, p);
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
        rig_kill(r, p);
    }
}

static void run_coord(rig_t *r)
{
    if (!r->coord) {
        if (r->now >= r->coord_back_at) rig_start_coord(r);
        return;
    }
    if (r->now >= r->coord_next) r->coord_next = psrti_coord_tick(r->coord, r->now);
}

static void coord_kill(rig_t *r)
{
    psrti_coord_free(r->coord);
    r->coord = NULL;
    for (uint32_t i = 0; i < TASKS; i++)
        if (r->tasks[i].core) rig_cut(r, &r->tasks[i]);
    r->coord_back_at = r->now + rig_random(r, r->finishing ? SECOND : 6 * SECOND);
    r->coord_restarts++;
}

void rig_trouble(rig_t *r)
{
    process_t *p = &r->tasks[rig_random(r, TASKS)];

    switch (rig_random(r, 2400)) {
    case 0:
    case 1:
    case 2:
        if (p->core && p->link) rig_cut(r, p), r->cuts++;
        break;
    case 3:
    case 4:
        if (p->core) rig_kill(r, p), r->kills++;
        break;
    case 5:
        if (p->core) p->paused_until = r->now + rig_random(r, 12 * SECOND), r->pauses++;
        break;
    case 6:
        if (r->coord) coord_kill(r);
        break;
    default: break;
    }
}

void rig_little_trouble(rig_t *r)
{
    process_t *p = &r->tasks[rig_random(r, r->leaving ? WORKERS : TASKS)];

    if (r->now < r->trouble_at || !r->coord) return;
    r->trouble_at = r->now + LEASE + rig_random(r, 3 * SECOND);
    if (rig_random(r, 2))
        coord_kill(r);
    else
        rig_cut(r, p), r->cuts++;
}

void rig_step(rig_t *r)
{
    r->now += STEP;
    run_coord(r);
    for (uint32_t i = 0; i < TASKS && !r->coord_finished; i++)
        run_process(r, &r->tasks[i]);
}

rig_t *rig_new(uint64_t seed)
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
        p->start_at = r->now + rig_random(r, 20 * SECOND);
    }
    r->coord_back_at = r->now + rig_random(r, 20 * SECOND);
    return r;
}

void rig_free(rig_t *r)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        rig_clear_wire(&r->tasks[i]);
        psrti_member_core_free(r->tasks[i].core);
        psrti_view_unref(r->tasks[i].last_view);
    }
    psrti_coord_free(r->coord);
    free(r->state);
    free(r);
}
