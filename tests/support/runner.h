/* SPDX-License-Identifier: Apache-2.0 */
/* The subset of Criterion's interface that tests use, on runner.c. One process a test. Options:
 * --filter SUITE/NAME (shell pattern), --list, --help; Criterion's -jN and --verbose are accepted and ignored. */
#ifndef PSRT_TESTS_SUPPORT_RUNNER_H
#define PSRT_TESTS_SUPPORT_RUNNER_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct psrt_runner_options {
    int sentinel_; /* lets the list of options be empty */
    void (*init)(void);
    void (*fini)(void);
    bool disabled;
    const char *description;
    double timeout; /* seconds in a plain build; sanitizer builds get a multiple */
} psrt_runner_options_t;

typedef struct psrt_runner_test {
    const char *suite;
    const char *name; /* NULL: options of the suite */
    void (*run)(void);
    psrt_runner_options_t options;
    struct psrt_runner_test *next;
} psrt_runner_test_t;

void psrt_runner_add(psrt_runner_test_t *test);
/* Prints the message of the failure that follows. */
void psrt_runner_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Marks the running test as failed; `fatal` ends its process. */
void psrt_runner_fail(bool fatal, const char *file, int line, const char *what);
_Noreturn void psrt_runner_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void psrt_runner_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define PSRT_RUNNER_CAT_(a, b, c, d) a##b##_##c##d
#define PSRT_RUNNER_CAT(a, b, c, d) PSRT_RUNNER_CAT_(a, b, c, d)

#define PSRT_RUNNER_REGISTER_(id_suite, id_name, text_name, function, ...)                         \
    static psrt_runner_test_t PSRT_RUNNER_CAT(rec_, id_suite, id_name, _) = {                      \
        #id_suite, text_name, function, { .sentinel_ = 0 __VA_OPT__(, ) __VA_ARGS__ }, NULL        \
    };                                                                                             \
    __attribute__((constructor)) static void PSRT_RUNNER_CAT(add_, id_suite, id_name, _)(void)     \
    {                                                                                              \
        psrt_runner_add(&PSRT_RUNNER_CAT(rec_, id_suite, id_name, _));                             \
    }

#define Test(suite, name, ...)                                                                     \
    static void PSRT_RUNNER_CAT(run_, suite, name, _)(void);                                       \
    PSRT_RUNNER_REGISTER_(suite, name, #name, PSRT_RUNNER_CAT(run_, suite, name, _), __VA_ARGS__)  \
    static void PSRT_RUNNER_CAT(run_, suite, name, _)(void)

#define TestSuite(suite, ...)                                                                      \
    PSRT_RUNNER_REGISTER_(suite, suite_options, NULL, NULL, __VA_ARGS__)                           \
    struct psrt_runner_test

#define PSRT_CHECK_(fatal, condition, what, ...)                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            __VA_OPT__(psrt_runner_note(__VA_ARGS__);)                                             \
            psrt_runner_fail(fatal, __FILE__, __LINE__, what);                                     \
        }                                                                                          \
    } while (0)
#define PSRT_COMPARE_(fatal, a, op, b, ...)                                                        \
    PSRT_CHECK_(fatal, (a)op(b), #a " " #op " " #b __VA_OPT__(, ) __VA_ARGS__)
#define PSRT_STR_(fatal, a, op, b, ...)                                                            \
    PSRT_CHECK_(fatal, strcmp((a), (b)) op 0,                                                      \
                "strings " #a " " #op " " #b __VA_OPT__(, ) __VA_ARGS__)
#define PSRT_ARR_(fatal, a, op, b, size, ...)                                                      \
    PSRT_CHECK_(fatal, memcmp((a), (b), (size)) op 0,                                              \
                "memory " #a " " #op " " #b __VA_OPT__(, ) __VA_ARGS__)
#define PSRT_NEAR_(fatal, a, b, eps, ...)                                                          \
    PSRT_CHECK_(fatal, (a) - (b) <= (eps) && (b) - (a) <= (eps),                                   \
                #a " within " #eps " of " #b __VA_OPT__(, ) __VA_ARGS__)
#define PSRT_FAR_(fatal, a, b, eps, ...)                                                           \
    PSRT_CHECK_(fatal, !((a) - (b) <= (eps) && (b) - (a) <= (eps)),                                \
                #a " not within " #eps " of " #b __VA_OPT__(, ) __VA_ARGS__)

#define cr_assert(cond, ...) PSRT_CHECK_(true, cond, #cond __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect(cond, ...) PSRT_CHECK_(false, cond, #cond __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_not(cond, ...)                                                                   \
    PSRT_CHECK_(true, !(cond), "!(" #cond ")" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_not(cond, ...)                                                                   \
    PSRT_CHECK_(false, !(cond), "!(" #cond ")" __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_fail(...) PSRT_CHECK_(true, 0, "explicit failure" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_fail(...) PSRT_CHECK_(false, 0, "explicit failure" __VA_OPT__(, ) __VA_ARGS__)
#define cr_fail(...) cr_expect_fail(__VA_ARGS__)
#define cr_assert_null(a, ...)                                                                     \
    PSRT_CHECK_(true, (a) == NULL, #a " is NULL" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_null(a, ...)                                                                     \
    PSRT_CHECK_(false, (a) == NULL, #a " is NULL" __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_not_null(a, ...)                                                                 \
    PSRT_CHECK_(true, (a) != NULL, #a " is not NULL" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_not_null(a, ...)                                                                 \
    PSRT_CHECK_(false, (a) != NULL, #a " is not NULL" __VA_OPT__(, ) __VA_ARGS__)

#define cr_assert_eq(a, b, ...) PSRT_COMPARE_(true, a, ==, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_neq(a, b, ...) PSRT_COMPARE_(true, a, !=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_lt(a, b, ...) PSRT_COMPARE_(true, a, <, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PSRT_COMPARE_(true, a, <=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PSRT_COMPARE_(true, a, >, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PSRT_COMPARE_(true, a, >=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PSRT_COMPARE_(false, a, ==, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_neq(a, b, ...) PSRT_COMPARE_(false, a, !=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_lt(a, b, ...) PSRT_COMPARE_(false, a, <, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PSRT_COMPARE_(false, a, <=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_gt(a, b, ...) PSRT_COMPARE_(false, a, >, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_geq(a, b, ...) PSRT_COMPARE_(false, a, >=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) PSRT_STR_(true, a, ==, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) PSRT_STR_(true, a, !=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_str_empty(a, ...) PSRT_STR_(true, a, ==, "" __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_str_not_empty(a, ...) PSRT_STR_(true, a, !=, "" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) PSRT_STR_(false, a, ==, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) PSRT_STR_(false, a, !=, b __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_str_empty(a, ...) PSRT_STR_(false, a, ==, "" __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_str_not_empty(a, ...) PSRT_STR_(false, a, !=, "" __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) PSRT_ARR_(true, a, ==, b, size __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_arr_neq(a, b, size, ...)                                                         \
    PSRT_ARR_(true, a, !=, b, size __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...)                                                          \
    PSRT_ARR_(false, a, ==, b, size __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_arr_neq(a, b, size, ...)                                                         \
    PSRT_ARR_(false, a, !=, b, size __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_float_eq(a, b, eps, ...) PSRT_NEAR_(true, a, b, eps __VA_OPT__(, ) __VA_ARGS__)
#define cr_assert_float_neq(a, b, eps, ...) PSRT_FAR_(true, a, b, eps __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_float_eq(a, b, eps, ...) PSRT_NEAR_(false, a, b, eps __VA_OPT__(, ) __VA_ARGS__)
#define cr_expect_float_neq(a, b, eps, ...) PSRT_FAR_(false, a, b, eps __VA_OPT__(, ) __VA_ARGS__)

#define cr_skip_test(...) psrt_runner_skip("" __VA_ARGS__)
#define cr_skip(...) psrt_runner_skip("" __VA_ARGS__)
#define cr_log_info(...) psrt_runner_log(__VA_ARGS__)
#define cr_log_warn(...) psrt_runner_log(__VA_ARGS__)
#define cr_log_error(...) psrt_runner_log(__VA_ARGS__)

#endif
