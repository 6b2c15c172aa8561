/* SPDX-License-Identifier: Apache-2.0 */
/* What every test includes. Plain builds use Criterion. Sanitizer builds use runner.c, which offers
 * the subset of Criterion that the tests are restricted to: Criterion 2.4.1 cannot start under
 * ThreadSanitizer, and under AddressSanitizer a test that leaks passes, because the leak report comes
 * after the child told its result. */
#ifndef PSRT_TESTS_SUPPORT_TEST_H
#define PSRT_TESTS_SUPPORT_TEST_H

#ifdef PSRT_OWN_TEST_RUNNER
#include "support/runner.h"
#else
#include <stdio.h>

#include <criterion/criterion.h>
/* Criterion shows the reason only when asked to be verbose. */
#undef cr_skip_test
#define cr_skip_test(...)                                                                          \
    (fprintf(stderr, "[SKIP] " __VA_ARGS__), fputc('\n', stderr),                                  \
     criterion_skip_test("" __VA_ARGS__))
#endif

#endif
