/* SPDX-License-Identifier: Apache-2.0 */
/* What is told when the members change. */
#include <stdio.h>
#include <string.h>

#include "runtime/core/view.h"
#include "support/test.h"

/* Three workers and two servers of two threads each; worker 2 has not joined. */
static psrti_view_t *start(void)
{
    psrti_view_t *v = psrti_view_new(3, 4, 8);
    for (uint32_t i = 0; i < 2; i++) {
        v->workers[i].incarnation = 10 + i;
        v->workers[i].alive = 1;
        snprintf(v->workers[i].host, PSRTI_VIEW_HOST, "w%u", i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        v->owners[i].server = i / 2, v->owners[i].thread = i % 2;
        v->owners[i].incarnation = 20 + i / 2;
        v->owners[i].alive = 1;
        snprintf(v->owners[i].host, PSRTI_VIEW_HOST, "s%u", i / 2);
    }
    return v;
}

static void expect(const psrti_view_t *old, psrti_view_t *now, const char *text)
{
    char buf[256] = "?";
    psrti_view_changes(old, now, buf, sizeof buf);
    cr_assert_str_eq(buf, text);
}

Test(view, changes_are_told)
{
    psrti_view_t *old = start(), *now = psrti_view_clone(old);
    expect(NULL, old, "2 workers and 2 servers are in the job");
    expect(old, now, "");
    now->workers[0].alive = 0;
    expect(old, now, "worker:0 died");
    now->workers[0].finished = 1;
    expect(old, now, "worker:0 left");
    now->workers[1].incarnation = 30;
    now->workers[2].incarnation = 31;
    now->workers[2].alive = 1;
    expect(old, now, "worker:0 left, worker:1 was restarted at w1, worker:2 joined");
    now->owners[2].alive = now->owners[3].alive = 0;
    now->owners[0].incarnation = now->owners[1].incarnation = 40;
    expect(
        old, now,
        "worker:0 left, worker:1 was restarted at w1, worker:2 joined, server:0 was restarted at "
        "s0, server:1 died");
    expect(now, now, "");
    psrti_view_unref(old);
    psrti_view_unref(now);
}

/* It came and went between two views that were seen. */
Test(view, a_life_that_was_missed_is_told)
{
    psrti_view_t *old = start(), *now = psrti_view_clone(old);
    now->workers[2].incarnation = 30;
    expect(old, now, "worker:2 died");
    now->workers[2].finished = 1;
    expect(old, now, "worker:2 left");
    psrti_view_unref(old);
    psrti_view_unref(now);
}

Test(view, a_long_text_is_cut)
{
    psrti_view_t *old = start(), *now = psrti_view_clone(old);
    char buf[12];
    now->workers[0].alive = now->workers[1].alive = 0;
    psrti_view_changes(old, now, buf, sizeof buf);
    cr_assert_str_eq(buf, "worker:0 di");
    psrti_view_unref(old);
    psrti_view_unref(now);
}

Test(view, pollers_of_a_host_are_its_living_workers_and_threads_of_servers)
{
    psrti_view_t *v = start();
    cr_assert_eq(psrti_view_pollers(v, "w1"), 1u);
    cr_assert_eq(psrti_view_pollers(v, "s0"), 2u);
    snprintf(v->workers[0].host, PSRTI_VIEW_HOST, "s0");
    cr_assert_eq(psrti_view_pollers(v, "s0"), 3u);
    v->workers[0].alive = v->owners[1].alive = 0;
    cr_assert_eq(psrti_view_pollers(v, "s0"), 1u);
    cr_assert_eq(psrti_view_pollers(v, "w2"), 0u);
    psrti_view_unref(v);
}
