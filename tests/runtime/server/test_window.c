/* SPDX-License-Identifier: Apache-2.0 */
/* The window of applied numbers against a plain set, and its edges. */
#include <stdlib.h>

#include "base/util.h"
#include "runtime/server/window.h"
#include "support/test.h"

#define NUMBERS 4096

Test(window, edges)
{
    psrti_window_t w;
    psrti_window_reset(&w, 7);
    cr_assert_eq(w.incarnation, 7u);
    cr_assert_eq(psrti_window_check(&w, 1, 1), PSRTI_WINDOW_NEW);
    psrti_window_record(&w, 1);
    cr_assert_eq(psrti_window_check(&w, 1, 1), PSRTI_WINDOW_DUPLICATE);
    cr_assert_eq(psrti_window_check(&w, 256, 1), PSRTI_WINDOW_NEW);
    cr_assert_eq(psrti_window_check(&w, 257, 1), PSRTI_WINDOW_BAD);
    cr_assert_eq(psrti_window_check(&w, 257, 2), PSRTI_WINDOW_NEW, "the floor makes room");
    cr_assert_eq(psrti_window_check(&w, 1, 1), PSRTI_WINDOW_DUPLICATE, "below the floor");
    cr_assert_eq(psrti_window_check(&w, 2, 1), PSRTI_WINDOW_NEW, "an old floor lowers nothing");
    cr_assert_eq(w.floor, 2u);
}

Test(window, a_jump_of_the_floor_forgets_everything_below)
{
    psrti_window_t w;
    psrti_window_reset(&w, 1);
    for (uint64_t n = 1; n <= 200; n++) {
        cr_assert_eq(psrti_window_check(&w, n, 1), PSRTI_WINDOW_NEW);
        psrti_window_record(&w, n);
    }
    cr_assert_eq(psrti_window_check(&w, 1000000, 1000000 - 255), PSRTI_WINDOW_NEW);
    for (uint64_t n = 1000000 - 255; n <= 1000000; n++)
        cr_assert_eq(psrti_window_check(&w, n, n), PSRTI_WINDOW_NEW, "number %llu",
                     (unsigned long long)n);
    cr_assert_eq(psrti_window_check(&w, 200, 200), PSRTI_WINDOW_DUPLICATE);
}

Test(window, a_new_life_starts_empty)
{
    psrti_window_t w;
    psrti_window_reset(&w, 1);
    cr_assert_eq(psrti_window_check(&w, 300, 300), PSRTI_WINDOW_NEW);
    psrti_window_record(&w, 300);
    psrti_window_reset(&w, 2);
    cr_assert_eq(psrti_window_check(&w, 1, 1), PSRTI_WINDOW_NEW);
    cr_assert_eq(psrti_window_check(&w, 300, 300), PSRTI_WINDOW_NEW);
}

/* A client with up to 256 numbers out, whose messages arrive in any order, several times, some never.
 * The model is an array of all numbers that were applied. */
static void against_a_set(uint64_t seed)
{
    static uint8_t applied[NUMBERS], ended[NUMBERS];
    memset(applied, 0, sizeof applied);
    memset(ended, 0, sizeof ended);
    psrti_window_t w;
    psrti_window_reset(&w, 1);
    uint64_t floor = 1, next = 1, told = 0, rnd = seed;
    for (int i = 0; i < 20000; i++) {
        rnd = psrti_mix64(rnd);
        if (rnd % 4 == 0 && next < NUMBERS && next - floor < PSRTI_WINDOW) next++;
        if (next == 1) continue;
        uint64_t seq = floor > 20 && rnd % 7 == 0 ? floor - 1 - rnd / 16 % 20
                                                  : floor + rnd / 16 % (next - floor + 1);
        if (seq == 0 || seq >= next) continue;
        uint64_t f = rnd % 5 == 0 && floor > 3 ? floor - 3 : floor; /* of an older message */
        f = PSRTI_MIN(f, seq);
        told = PSRTI_MAX(told, f);
        psrti_window_result_t got = psrti_window_check(&w, seq, f);
        int expect_dup = applied[seq] || seq < told;
        cr_assert_eq(got, expect_dup ? PSRTI_WINDOW_DUPLICATE : PSRTI_WINDOW_NEW,
                     "seed %llu: number %llu, floor %llu", (unsigned long long)seed,
                     (unsigned long long)seq, (unsigned long long)f);
        if (got == PSRTI_WINDOW_NEW && rnd / 65536 % 3 != 0) { /* else refused: not recorded */
            psrti_window_record(&w, seq);
            applied[seq] = 1;
        }
        if (rnd / 1048576 % 2) ended[seq] = applied[seq] || rnd / 2097152 % 8 == 0;
        while (floor < next && ended[floor])
            floor++;
    }
    cr_assert(floor > 300, "seed %llu: the floor only reached %llu", (unsigned long long)seed,
              (unsigned long long)floor);
}

Test(window, equals_a_set)
{
    for (uint64_t seed = 1; seed <= 50; seed++)
        against_a_set(seed);
}

Test(window, a_refused_number_is_neither_new_nor_applied)
{
    psrti_window_t w;
    psrti_window_reset(&w, 1);
    cr_assert_eq(psrti_window_check(&w, 5, 1), PSRTI_WINDOW_NEW);
    psrti_window_refuse(&w, 5);
    cr_assert_eq(psrti_window_check(&w, 5, 1), PSRTI_WINDOW_REFUSED);
    cr_assert_eq(psrti_window_check(&w, 6, 1), PSRTI_WINDOW_NEW);
    cr_assert_eq(psrti_window_check(&w, 5 + PSRTI_WINDOW, 6), PSRTI_WINDOW_NEW, "its bit is free");
    cr_assert_eq(psrti_window_check(&w, 5, 6), PSRTI_WINDOW_DUPLICATE, "below the floor");
}
