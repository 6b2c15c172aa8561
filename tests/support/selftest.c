/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that fail on purpose; check_selftest.sh checks that the runner reports each of them. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/test.h"

static int initialized;

static void set_initialized(void) { initialized = 1; }

Test(good, plain)
{
    char text[] = "abc";
    float pair[2] = { 1.5f, -2.5f }, same[2] = { 1.5f, -2.5f };
    cr_assert(1 + 1 == 2, "arithmetic of %d", 2);
    cr_assert_eq(text[0], 'a');
    cr_assert_str_eq(text, "abc");
    cr_expect_not(text[1] == 'a');
    cr_assert_float_eq(pair[0], 1.4999, 1e-3);
    cr_assert_arr_eq(pair, same, sizeof pair);
    cr_assert_not_null(text);
    cr_assert_geq(2, 2, "with a message");
}

Test(good, fixture, .init = set_initialized) { cr_assert(initialized); }
Test(good, disabled, .disabled = true) { cr_assert_fail("must not run"); }
Test(good, skipped) { cr_skip_test("the reason is shown"); }

Test(bad, assert_stops)
{
    volatile int one = 1;
    cr_assert_eq(one, 2, "one is %d", one);
    raise(SIGSEGV); /* not reached: would be a crash instead of a failure */
}

Test(bad, expect_continues)
{
    volatile int one = 1;
    cr_expect_gt(one, 2);
    raise(SIGSEGV); /* reached */
}

Test(bad, expect)
{
    volatile double nan = 0;
    nan /= nan;
    cr_expect_float_eq(nan, 1.0, 1e9); /* NaN is near nothing */
}

Test(bad, crash) { raise(SIGSEGV); }
Test(bad, hang, .timeout = 0.5) { pause(); }

#ifdef PSRT_OWN_TEST_RUNNER
Test(bad, early_exit) { exit(0); }

/* Only AddressSanitizer sees this one. */
Test(leak, leak)
{
    static void *volatile lost;
    lost = malloc(77);
    lost = NULL;
    cr_assert_null(lost);
}

static int shared;

static void *bump(void *arg)
{
    shared++;
    return arg;
}

/* Only ThreadSanitizer sees this one. */
Test(race, race)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, bump, NULL), 0);
    shared++;
    pthread_join(thread, NULL);
}
#endif
