/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of coordinator and members together.
 *
 * For each seed: tasks start in any order; for a while links are cut, tasks are killed and
 * restarted or stopped for longer than a lease, and the coordinator is restarted from its state;
 * then all heals and the job must come to its orderly end. Checked all the way: incarnations
 * grow, views grow, answers agree, a table that was ready is never given to a server a second
 * time. */
#include <stdlib.h>
#include <string.h>

#include "cores_rig.h"
#include "support/test.h"

static uint64_t current_seed; /* for the messages of failures */

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
            rig_name_text(t, name);
            for (uint32_t s = 0; s < SERVERS; s++)
                cr_assert(!rig_has_part(&r->tasks[WORKERS + s], name) ||
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
        if (r->finishing && r->now < heal) rig_little_trouble(r);
        cr_assert(r->now < HEAL_END, "seed %llu does not come to an end: %s",
                  (unsigned long long)current_seed, what);
        rig_step(r);
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

static void run_seed(uint64_t seed, rig_t *sum)
{
    rig_t *r = rig_new(seed);

    while (r->now < CHAOS_END) {
        rig_trouble(r);
        rig_step(r);
    }
    for (uint32_t i = 0; i < TASKS; i++)
        r->tasks[i].paused_until = 0;
    until(r, all_ready, "views");
    until(r, answered, "declares and sets");
    /* What was sent must arrive before it can be compared. */
    for (uint64_t quiet = r->now + 10 * SECOND; r->now < quiet;)
        rig_step(r);
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
