/* SPDX-License-Identifier: Apache-2.0 */
/* One owner, requests made by hand: steps, exactly once, consistency, malformed requests, blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fixture.h"

/* ---- sync -------------------------------------------------------------------------------------- */

static void sync_step(const char *reduce, float expect)
{
    fx_t *fx = fx_open(3);
    fx_table(fx, 1, 4, NULL, NULL, reduce, "constant:value=10", 0);
    fx_reply_t *r = fx_push(fx, 2, 1, 0, 1, 0);
    cr_assert_eq(r->hdr.type, PSRTI_T_ACK);
    cr_assert_eq(r->hdr.flags & PSRTI_F_APPLIED, 0, "captured, not applied");
    fx_push(fx, 0, 1, 0, 2, 0);
    cr_assert_eq(fx_version(fx, 1), 0u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 10.0f, 0.0);
    r = fx_push(fx, 1, 1, 0, 6, 0);
    cr_assert(r->hdr.flags & PSRTI_F_APPLIED);
    cr_assert_eq(fx_version(fx, 1), 1u);
    for (uint64_t i = 0; i < 4; i++)
        cr_assert_float_eq(fx_value(fx, 1, i), expect, 0.0);
    for (uint32_t w = 0; w < 3; w += 2) { /* the others are told */
        r = fx_last(fx, w);
        cr_assert(r->hdr.seq == 0 && r->hdr.step == 1 && r->hdr.flags == PSRTI_F_APPLIED);
    }
    cr_assert_eq(fx_counts(fx).applied, 3u);
    cr_assert_eq(fx_counts(fx).steps, 1u);
    fx_close(fx);
}

Test(shard, sync_sum) { sync_step("sum", 19.0f); }
Test(shard, sync_average) { sync_step("average", 13.0f); }

/* adagrad: the sum of squares starts at 16, 16 + 3 * 3 has the root 5. ftrl: only the first of its
 * two states starts at 16; z = 3 - (5 - 4) * 10 = -7, and 7 / 5 is the value. */
Test(shard, optimizer_states_start_where_the_optimizer_says)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, "adagrad:lr=1,initial_accumulator_value=16", NULL, NULL, "constant:value=10",
             0);
    fx_table(fx, 2, 4, "ftrl:lr=1,initial_accumulator_value=16", NULL, NULL, "constant:value=10",
             0);
    fx_push(fx, 0, 1, 0, 3, 0);
    fx_push(fx, 0, 2, 0, 3, 0);
    for (uint64_t i = 0; i < 4; i++) {
        cr_assert_float_eq(fx_value(fx, 1, i), 9.4f, 1e-6);
        cr_assert_float_eq(fx_value(fx, 2, i), 1.4f, 1e-6);
    }
    fx_close(fx);
}

/* Rates of 1, 1/2, 1/4 and so on, for the step that is closed: one without a gradient counts too. */
Test(shard, schedule_of_the_steps)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, "sgd:lr=1,schedule=step,period=1,gamma=0.5", NULL, NULL, NULL, 0);
    fx_push(fx, 0, 1, 0, -8, 0);
    fx_push(fx, 0, 1, 1, -8, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 12.0f, 0.0);
    fx_clock(fx, 0, 1, 2);
    fx_push(fx, 0, 1, 3, -8, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 13.0f, 0.0);
    fx_close(fx);
}

Test(shard, schedule_of_the_updates_in_async)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, "sgd:lr=1,schedule=linear,total=4", "async", NULL, NULL, 0);
    for (int i = 0; i < 3; i++)
        fx_push(fx, (uint32_t)i % 2, 1, 7, -8, 0);
    cr_assert_float_eq(fx_value(fx, 1, 3), 8.0f + 6.0f + 4.0f, 0.0);
    fx_close(fx);
}

Test(shard, a_late_push_is_discarded_and_told)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_push(fx, 0, 1, 1, 2, 0);
    fx_reply_t *r = fx_push(fx, 0, 1, 0, 50, 0);
    cr_assert_eq(r->hdr.status, 0);
    cr_assert_eq(r->hdr.flags, PSRTI_F_LATE);
    cr_assert_eq(r->hdr.step, 2u);
    r = fx_push(fx, 0, 1, 1, 50, PSRTI_F_PULL);
    cr_assert_eq(r->hdr.type, PSRTI_T_VALUE);
    cr_assert(r->hdr.flags & PSRTI_F_LATE);
    cr_assert_float_eq(fx_value(fx, 1, 3), 3.0f, 0.0);
    cr_assert_eq(fx_counts(fx).late, 2u);
    fx_close(fx);
}

Test(shard, two_steps_may_be_open_a_third_comes_again)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    cr_assert_eq(fx_push(fx, 0, 1, 0, 1, 0)->hdr.status, 0);
    cr_assert_eq(fx_push(fx, 0, 1, 1, 10, 0)->hdr.status, 0);
    cr_assert_eq(fx_push(fx, 0, 1, 2, 100, 0)->hdr.status, -PSRT_ERR_AGAIN);
    cr_assert(fx_last(fx, 0)->hdr.flags & PSRTI_F_LATE, "its number is refused");
    cr_assert_eq(fx_clock(fx, 0, 1, 2)->hdr.status, -PSRT_ERR_AGAIN);
    fx_push(fx, 1, 1, 1, 1000, 0); /* the later step first */
    cr_assert_eq(fx_version(fx, 1), 0u);
    fx_push(fx, 1, 1, 0, 5, 0);
    cr_assert_eq(fx_version(fx, 1), 2u, "both steps close");
    cr_assert_float_eq(fx_value(fx, 1, 0), 1016.0f, 0.0);
    cr_assert_eq(fx_push(fx, 0, 1, 2, 100, 0)->hdr.status, 0);
    fx_close(fx);
}

Test(shard, the_same_number_is_added_once)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    float g[4] = { 1, 2, 3, 4 };
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END | PSRTI_F_PULL);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE);
    cr_assert_eq(fx_counts(fx).duplicates, 2u);
    cr_assert_eq(fx_counts(fx).parked, 1u, "its pull waits once");
    fx_push(fx, 1, 1, 0, 10, 0);
    cr_assert_eq(fx_version(fx, 1), 1u);
    cr_assert_float_eq(fx_value(fx, 1, 3), 14.0f, 0.0);
    fx_forget(fx);
    cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE); /* the answer was lost */
    fx_reply_t *r = fx_last(fx, 0);
    cr_assert(r->hdr.type == PSRTI_T_VALUE && r->hdr.step == 1 && r->hdr.seq == h.seq);
    cr_assert_float_eq(((float *)r->copy)[3], 14.0f, 0.0);
    cr_assert_eq(r->hdr.flags & PSRTI_F_LATE, 0);
    fx_close(fx);
}

Test(shard, a_worker_contributes_to_a_step_once)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_push(fx, 0, 1, 0, 1, 0); /* another number, as a second life would send */
    cr_assert_eq(fx_counts(fx).duplicates, 1u);
    fx_push(fx, 1, 1, 0, 10, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 11.0f, 0.0);
    fx_close(fx);
}

Test(shard, ranges_end_with_a_clock)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    float a[2] = { 1, 2 }, b[3] = { 10, 20, 30 };
    fx_range(fx, 0, 1, 0, 0, a, 2);
    fx_range(fx, 0, 1, 0, 1, b, 3);
    fx_push(fx, 1, 1, 0, 100, 0);
    cr_assert_eq(fx_version(fx, 1), 0u, "worker 0 has not ended the step");
    cr_assert_eq(fx_clock(fx, 0, 1, 0)->hdr.status, 0);
    cr_assert_eq(fx_version(fx, 1), 1u);
    const float expect[4] = { 101, 112, 120, 130 };
    for (uint64_t i = 0; i < 4; i++)
        cr_assert_float_eq(fx_value(fx, 1, i), expect[i], 0.0);
    fx_clock(fx, 0, 1, 0); /* repeated: nothing */
    cr_assert_eq(fx_version(fx, 1), 1u);
    fx_clock(fx, 0, 1, 1); /* a step may be ended by nothing but clocks */
    fx_clock(fx, 1, 1, 1);
    cr_assert_eq(fx_version(fx, 1), 2u);
    cr_assert_float_eq(fx_value(fx, 1, 0), 101.0f, 0.0);
    fx_close(fx);
}

/* ---- deterministic ----------------------------------------------------------------------------- */

typedef struct act {
    uint32_t rank;
    int kind; /* 0 whole with END; 1, 2 first and second of two whole pushes; 3 range; 4 CLOCK */
} act_t;

static void perform(fx_t *fx, const act_t *a, const float g[3][2])
{
    float part[4];
    for (int i = 0; i < 4; i++)
        part[i] = g[a->rank][a->kind == 2];
    if (a->kind == 0)
        fx_push(fx, a->rank, 1, 0, g[a->rank][0], 0);
    else if (a->kind <= 2)
        fx_range(fx, a->rank, 1, 0, 0, part, 4);
    else if (a->kind == 3)
        fx_range(fx, a->rank, 1, 0, 1, part, 2);
    else
        fx_clock(fx, a->rank, 1, 0);
}

/* Performs the acts in every order that keeps each rank's own order; all must give the same bits. */
static unsigned orders(act_t *acts, int n, act_t *chosen, int depth, const float g[3][2],
                       float *first, int *have)
{
    if (depth == n) {
        fx_t *fx = fx_open(3);
        fx_table(fx, 1, 4, "sgd:lr=0.1", NULL, "average", "constant:value=0.3", 1);
        for (int i = 0; i < n; i++)
            perform(fx, &chosen[i], g);
        cr_assert_eq(fx_version(fx, 1), 1u);
        for (uint64_t i = 0; i < 4; i++) {
            float v = fx_value(fx, 1, i);
            if (!*have) first[i] = v;
            cr_assert(v == first[i], "element %llu: %a, and %a in another order",
                      (unsigned long long)i, (double)v, (double)first[i]);
        }
        *have = 1;
        fx_close(fx);
        return 1;
    }
    unsigned done = 0;
    for (int i = 0; i < n; i++) {
        if (acts[i].kind < 0) continue;
        int blocked = 0;
        for (int j = 0; j < i; j++)
            blocked |= acts[j].kind >= 0 && acts[j].rank == acts[i].rank;
        if (blocked) continue;
        chosen[depth] = acts[i];
        acts[i].kind = -1;
        done += orders(acts, n, chosen, depth + 1, g, first, have);
        acts[i].kind = chosen[depth].kind;
    }
    return done;
}

static const float addends[3][2] = { { 1e8f, 0 }, { 3, 3 }, { -1e8f, 1.1e-3f } };

Test(shard, deterministic_whole_pushes)
{
    act_t acts[] = { { 0, 0 }, { 1, 0 }, { 2, 0 } }, chosen[3];
    float first[4];
    int have = 0;
    cr_assert_eq(orders(acts, 3, chosen, 0, addends, first, &have), 6u);
    float sum = (1e8f + 3.0f) + -1e8f; /* 0: the 3 is lost in the first sum */
    cr_assert_float_eq(first[0], 0.3f - 0.1f * (sum / 3.0f), 0.0, "the sum is not in rank order");
}

Test(shard, deterministic_ranges_and_several_pushes)
{
    act_t acts[] = {
        { 0, 3 }, { 0, 4 }, { 1, 1 }, { 1, 2 }, { 1, 4 }, { 2, 1 }, { 2, 3 }, { 2, 4 }
    };
    act_t chosen[8];
    float first[4];
    int have = 0;
    cr_assert_eq(orders(acts, 8, chosen, 0, addends, first, &have), 560u);
}

Test(shard, deterministic_whole_and_several_pushes)
{
    act_t acts[] = { { 0, 0 }, { 1, 1 }, { 1, 2 }, { 1, 4 }, { 2, 0 } }, chosen[5];
    float first[4];
    int have = 0;
    cr_assert_eq(orders(acts, 5, chosen, 0, addends, first, &have), 20u);
    float sum = (1e8f + (3.0f + 3.0f)) + -1e8f; /* 8 */
    cr_assert_float_eq(first[0], 0.3f - 0.1f * (sum / 3.0f), 0.0);
}

/* ---- async and ssp ----------------------------------------------------------------------------- */

Test(shard, async_applies_on_arrival)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, "momentum:lr=0.5,momentum=0.5", "async", NULL, NULL, 0);
    fx_reply_t *r = fx_push(fx, 0, 1, 0, 2, 0);
    cr_assert(r->hdr.flags & PSRTI_F_APPLIED);
    cr_assert_float_eq(fx_value(fx, 1, 0), -1.0f, 0.0); /* m = 2 */
    r = fx_push(fx, 0, 1, 7, 4, PSRTI_F_PULL);          /* m = 5; steps do not matter */
    cr_assert_eq(r->hdr.type, PSRTI_T_VALUE);
    cr_assert_float_eq(((float *)r->copy)[0], -3.5f, 0.0);
    cr_assert_eq(fx_version(fx, 1), 2u);
    fx_close(fx);
}

Test(shard, ssp_clocks_gate_pulls)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, "ssp:2", NULL, NULL, 0);
    for (uint64_t n = 0; n < 3; n++) {
        cr_assert_eq(fx_push(fx, 0, 1, n, 1, 0)->hdr.status, 0);
        fx_clock(fx, 0, 1, n);
    }
    cr_assert_not_null(fx_pull(fx, 0, 1, 0), "at clock 2 the slowest may be at 0");
    cr_assert_null(fx_pull(fx, 0, 1, 1), "at clock 3 it may not");
    fx_forget(fx);
    fx_push(fx, 1, 1, 0, 10, 0);
    cr_assert_null(fx_last(fx, 0));
    fx_clock(fx, 1, 1, 0);
    fx_reply_t *r = fx_last(fx, 0);
    cr_assert_not_null(r);
    cr_assert_float_eq(((float *)r->copy)[0], 13.0f, 0.0);
    cr_assert_null(fx_pull(fx, 0, 1, 3));
    fx_worker_dies(fx, 1); /* the dead hold up nobody */
    cr_assert_float_eq(((float *)fx_last(fx, 0)->copy)[0], 13.0f, 0.0);
    fx_close(fx);
}

/* ---- values ------------------------------------------------------------------------------------ */

Test(shard, rank0_gives_the_first_values_once)
{
    fx_t *fx = fx_open(2);
    float v[4] = { 1, 2, 3, 4 }, w[4] = { 9, 9, 9, 9 };
    fx_table(fx, 1, 4, NULL, NULL, "sum", "rank0", 0);
    cr_assert_null(fx_pull(fx, 1, 1, 0), "no values yet");
    cr_assert_eq(fx_push(fx, 1, 1, 0, 1, 0)->hdr.status, -PSRT_ERR_AGAIN);
    cr_assert_eq(fx_clock(fx, 1, 1, 0)->hdr.status, -PSRT_ERR_AGAIN);
    psrt_hdr_t h = fx_hdr(fx, 1, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 1, &h, w), PSRT_RX_BAD, "only worker 0 gives values");
    h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 0, &h, v), PSRT_RX_DONE);
    cr_assert_float_eq(((float *)fx_last(fx, 1)->copy)[3], 4.0f, 0.0, "the pull is answered");
    h = fx_hdr(fx, 0, PSRTI_T_INIT, 1, 0, 0, 4, 0);
    cr_assert_eq(fx_send(fx, 0, &h, w), PSRT_RX_DONE);
    cr_assert_eq(fx_last(fx, 0)->hdr.status, 0);
    cr_assert_float_eq(fx_value(fx, 1, 0), 1.0f, 0.0);
    fx_close(fx);
}

Test(shard, sync_pull_waits_for_its_version)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    cr_assert_null(fx_pull(fx, 1, 1, 1));
    fx_push(fx, 0, 1, 0, 1, 0);
    fx_forget(fx);
    fx_push(fx, 1, 1, 0, 1, 0);
    int values = 0;
    for (size_t i = 0; i < fx->replies; i++)
        values += fx->reply[i].hdr.type == PSRTI_T_VALUE && fx->reply[i].rank == 1;
    cr_assert_eq(values, 1);
    fx_close(fx);
}

/* A reader that is slow keeps the version it was given, whatever is applied meanwhile. */
Test(shard, a_pinned_block_never_changes)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx->keep = 1;
    for (uint64_t n = 0; n < 5; n++) {
        fx_pull(fx, 0, 1, n);
        fx_push(fx, 0, 1, n, (float)(n + 1), 0);
    }
    size_t readers = 0;
    for (size_t i = 0; i < fx->replies; i++) {
        const fx_reply_t *r = &fx->reply[i];
        if (!r->len) continue;
        readers++;
        cr_assert(memcmp(r->data, r->copy, r->len) == 0, "version %llu changed under its reader",
                  (unsigned long long)r->hdr.step);
        uint64_t sum = r->hdr.step * (r->hdr.step + 1) / 2;
        float expect = (float)sum;
        cr_assert_float_eq(((const float *)r->data)[2], expect, 0.0);
    }
    cr_assert_eq(readers, 5u);
    cr_assert_eq(fx_counts(fx).blocks, 6u);
    for (size_t i = 0; i < fx->replies; i++)
        fx_done(fx, i);
    cr_assert_eq(fx_counts(fx).blocks, 1u, "readers that left cost nothing");
    fx_push(fx, 0, 1, 5, 1, 0);
    cr_assert_eq(fx_counts(fx).blocks, 1u, "nobody reads: in place");
    fx_close(fx);
}

Test(shard, owed_replies_go_out_in_order_when_there_is_room)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    fx->full = 1;
    psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    float g[4] = { 1, 1, 1, 1 };
    fx_send(fx, 0, &h, g); /* 1: ACK, captured        */
    psrt_hdr_t p = fx_hdr(fx, 0, PSRTI_T_PULL, 1, 0, 0, 4, 0);
    fx_send(fx, 0, &p, NULL); /* 2: VALUE, version 0     */
    h = fx_hdr(fx, 1, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    fx_send(fx, 1, &h, g); /* 3: version 1 is there   */
    cr_assert_eq(fx->replies, 0u);
    fx->full = 0;
    psrti_shard_link_writable(fx->shard, fx->peer[0]);
    cr_assert_eq(fx->replies, 3u);
    cr_assert(fx->reply[0].hdr.type == PSRTI_T_ACK && fx->reply[0].hdr.seq == 1);
    cr_assert(fx->reply[1].hdr.type == PSRTI_T_VALUE && fx->reply[1].hdr.step == 1,
              "the value is the one of the time when it goes out");
    cr_assert_float_eq(((float *)fx->reply[1].copy)[0], 2.0f, 0.0);
    cr_assert(fx->reply[2].hdr.type == PSRTI_T_ACK && fx->reply[2].hdr.seq == 0);
    fx->full = 1;
    fx_send(fx, 0, &p, NULL);
    fx_close(fx); /* what is owed to a lost link is forgotten */
}

Test(shard, blocks_of_a_long_slice_are_folded_piece_by_piece)
{
    uint64_t n = PSRTI_SLICE_ELEMS + 5;
    float *g = malloc(n * sizeof *g);
    for (uint64_t i = 0; i < n; i++)
        g[i] = (float)(i % 1000);
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, n, "sgd:lr=0.5", NULL, "average", NULL, 0);
    for (uint32_t w = 0; w < 2; w++) {
        for (uint64_t first = 0; first < n; first += PSRTI_SLICE_ELEMS) {
            uint64_t len = PSRTI_MIN(PSRTI_SLICE_ELEMS, n - first);
            psrt_hdr_t h = fx_hdr(fx, w, PSRTI_T_PUSH, 1, 0, first, len, PSRTI_F_END);
            cr_assert_eq(fx_send(fx, w, &h, g + first), PSRT_RX_DONE);
        }
    }
    for (uint64_t i = 0; i < n; i++)
        cr_assert_float_eq(fx_value(fx, 1, i), -0.5f * (float)(i % 1000), 0.0);
    fx_close(fx);
    free(g);
}

/* ---- requests that are refused ----------------------------------------------------------------- */

Test(shard, another_term_is_refused_with_owner_and_term)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    float g[4] = { 1, 1, 1, 1 };
    for (int d = -1; d <= 1; d += 2) {
        psrt_hdr_t h = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
        h.term = (uint32_t)(FX_TERM + d);
        cr_assert_eq(fx_send(fx, 0, &h, g), PSRT_RX_DONE);
        fx_reply_t *r = fx_last(fx, 0);
        cr_assert(r->hdr.type == PSRTI_T_MOVED && r->hdr.term == FX_TERM && r->hdr.step == 0 &&
                  r->hdr.seq == h.seq && r->len == 0);
    }
    cr_assert_eq(fx_counts(fx).moved, 2u);
    cr_assert_eq(fx_version(fx, 1), 0u);
    fx_close(fx);
}

Test(shard, an_unknown_table_is_lost)
{
    fx_t *fx = fx_open(1);
    cr_assert_eq(fx_push(fx, 0, 77, 0, 1, 0)->hdr.status, (uint8_t)-PSRT_ERR_SHARD_LOST);
    fx_close(fx);
}

Test(shard, another_life_is_fenced_or_comes_again)
{
    fx_t *fx = fx_open(2);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    uint32_t old = 0, young = 0;
    psrti_peer_t *mine = fx->peer[0];
    fx->peer[0] = psrti_shard_link_up(fx->shard, &old, PSRTI_TASK(PSRTI_WORKER, 0), 0);
    cr_assert_eq(fx_push(fx, 0, 1, 0, 1, 0)->hdr.status, (uint8_t)-PSRT_ERR_FENCED);
    psrti_peer_t *stale = fx->peer[0];
    fx->peer[0] = psrti_shard_link_up(fx->shard, &young, PSRTI_TASK(PSRTI_WORKER, 0), 9);
    cr_assert_eq(fx_push(fx, 0, 1, 0, 1, 0)->hdr.status, -PSRT_ERR_AGAIN, "our view is older");
    psrti_shard_link_lost(fx->shard, stale);
    psrti_shard_link_lost(fx->shard, fx->peer[0]);
    fx->peer[0] = mine;
    fx_worker_dies(fx, 1);
    cr_assert_eq(fx_push(fx, 1, 1, 0, 1, 0)->hdr.status, (uint8_t)-PSRT_ERR_FENCED);
    cr_assert_eq(fx_counts(fx).applied, 0u);
    fx_close(fx);
}

Test(shard, malformed_requests_change_nothing)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    float g[8] = { 0 };
    const psrt_hdr_t good = fx_hdr(fx, 0, PSRTI_T_PUSH, 1, 0, 0, 4, PSRTI_F_END);
    psrt_hdr_t bad[16];
    size_t n = 0;
#define BAD(change)                                                                                \
    bad[n] = good;                                                                                 \
    bad[n].change;                                                                                 \
    n++
    BAD(type = PSRTI_T_ACK);
    BAD(type = PSRTI_T_HELLO);
    BAD(vshard = 8);
    BAD(vshard = (uint16_t)((good.vshard + 1) % 8));
    BAD(offset = 1);
    BAD(offset = 4);
    BAD(offset = PSRTI_SLICE_ELEMS);
    BAD(offset = UINT64_MAX);
    BAD(length = 0);
    BAD(length = 5);
    BAD(length = UINT64_MAX);
    BAD(dtype = PSRT_F64);
    BAD(seq_floor = 9);
    BAD(seq = 5000; bad[n].seq_floor = 300); /* more than 256 outstanding */
#undef BAD
    for (size_t i = 0; i < n; i++) {
        psrt_msg_t msg = { .hdr = bad[i], .data = g, .len = 16 };
        cr_assert_eq(psrti_shard_msg(fx->shard, fx->peer[0], &msg), PSRT_RX_BAD, "case %zu", i);
    }
    psrt_msg_t msg = { .hdr = good, .data = g, .len = 12 };
    cr_assert_eq(psrti_shard_msg(fx->shard, fx->peer[0], &msg), PSRT_RX_BAD);
    cr_assert_eq(fx->replies, 0u);
    cr_assert_eq(fx_counts(fx).applied, 0u);
    fx_close(fx);
}

Test(shard, not_a_number_is_the_workers_own_business)
{
    fx_t *fx = fx_open(1);
    fx_table(fx, 1, 4, NULL, NULL, "sum", NULL, 0);
    cr_assert_eq(fx_push(fx, 0, 1, 0, NAN, 0)->hdr.status, 0);
    cr_assert(isnan(fx_value(fx, 1, 0)));
    fx_close(fx);
}

/* A specification passes the coordinator without its plug-in; the server says what it lacks. */
Test(shard, an_optimizer_that_it_does_not_have)
{
    fx_t *fx = fx_open(1);
    psrti_table_spec_t spec;
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = 4;
    cr_assert_eq(psrti_table_spec_make("w", &p, &spec), PSRT_OK);
    strcpy(spec.optimizer, "of_a_plugin:lr=1");
    cr_assert_eq(psrti_shard_hold(fx->shard, 1, &spec), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "table w: optimizer \"of_a_plugin\""), "%s",
              psrt_last_error());
    fx_close(fx);
}
