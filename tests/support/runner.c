/* SPDX-License-Identifier: Apache-2.0 */
/* Test runner of the sanitizer builds. Each test runs in a process of its own, forked while the
 * runner has a single thread. Its result is how that process ends, after the sanitizers had their
 * last word at exit; so a leak or a race fails the test. */
#include "support/runner.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 101
#define EXIT_SKIPPED 102
#define DEFAULT_TIMEOUT 240.0
/* Sanitizers slow a test down by up to this factor. */
#define TIMEOUT_FACTOR 4.0

typedef enum result { PASSED, FAILED, CRASHED, SKIPPED, RESULTS } result_t;

/* Written by the child, read by the runner when the child is gone. */
typedef struct report {
    volatile int failures;
    volatile int finished; /* the body, and fini, returned */
} report_t;

static psrt_runner_test_t *all_tests;
static psrt_runner_test_t **last_test = &all_tests;
static report_t *report;

void psrt_runner_add(psrt_runner_test_t *test)
{
    *last_test = test;
    last_test = &test->next;
}

static void print_line(const char *tag, const char *format, va_list args)
{
    fprintf(stderr, "[%s] ", tag);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void psrt_runner_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("----", format, args);
    va_end(args);
}

void psrt_runner_log(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("----", format, args);
    va_end(args);
}

void psrt_runner_fail(bool fatal, const char *file, int line, const char *what)
{
    fprintf(stderr, "[----] %s:%d: failed: %s\n", file, line, what);
    report->failures++;
    if (!fatal) return;
    fflush(NULL);
    _exit(EXIT_FAILED); /* threads of the test may still run: no exit handlers */
}

void psrt_runner_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("SKIP", format, args);
    va_end(args);
    fflush(NULL);
    _exit(EXIT_SKIPPED);
}

static const psrt_runner_options_t *suite_options(const char *suite)
{
    static const psrt_runner_options_t none = { 0 };
    for (const psrt_runner_test_t *test = all_tests; test; test = test->next)
        if (!test->name && strcmp(test->suite, suite) == 0) return &test->options;
    return &none;
}

/* exit(), not _exit(): LeakSanitizer and ThreadSanitizer report there. */
static _Noreturn void run_child(const psrt_runner_test_t *test, pid_t runner)
{
    const psrt_runner_options_t *suite = suite_options(test->suite);
    setpgid(0, 0); /* so that a timeout also ends what the test started */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != runner) _exit(EXIT_FAILED);
    if (suite->init) suite->init();
    if (test->options.init) test->options.init();
    test->run();
    if (test->options.fini) test->options.fini();
    if (suite->fini) suite->fini();
    report->finished = 1;
    fflush(NULL);
    exit(report->failures ? EXIT_FAILED : 0);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Waits for the child; false when the time is over. SIGCHLD is blocked, so none is missed. */
static bool wait_child(pid_t child, double timeout, int *status_p)
{
    double deadline = now() + timeout;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (;;) {
        pid_t got = waitpid(child, status_p, WNOHANG);
        double left = deadline - now();
        if (got == child) return true;
        if (got < 0 && errno != EINTR) return false;
        if (left <= 0) return false;
        struct timespec ts = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };
        sigtimedwait(&set, NULL, &ts);
    }
}

static result_t judge(const char *suite, const char *name, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "[----] %s/%s: killed by signal %d\n", suite, name, WTERMSIG(status));
        return CRASHED;
    }
    if (code == EXIT_SKIPPED) return SKIPPED;
    if (code == EXIT_FAILED) return FAILED;
    if (code != 0) {
        fprintf(stderr, "[----] %s/%s: a sanitizer's report above, or exit: code %d\n", suite, name,
                code);
        return CRASHED;
    }
    if (!report->finished) {
        fprintf(stderr, "[----] %s/%s: ended its process before the test was over\n", suite, name);
        return CRASHED;
    }
    return report->failures ? FAILED : PASSED;
}

static result_t run_test(const psrt_runner_test_t *test)
{
    const psrt_runner_options_t *suite = suite_options(test->suite);
    double timeout = test->options.timeout > 0 ? test->options.timeout : suite->timeout;
    timeout = timeout > 0 ? timeout * TIMEOUT_FACTOR : DEFAULT_TIMEOUT;
    report->failures = report->finished = 0;
    fflush(NULL);
    pid_t runner = getpid(), child = fork();
    int status = 0;
    if (child < 0) {
        perror("fork");
        return CRASHED;
    }
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        run_child(test, runner);
    }
    setpgid(child, child); /* both sides do it: whoever comes first */
    bool ended = wait_child(child, timeout, &status);
    kill(-child, SIGKILL); /* also what the test left behind */
    if (ended) return judge(test->suite, test->name, status);
    waitpid(child, &status, 0);
    fprintf(stderr, "[----] %s/%s: timed out after %.1f s\n", test->suite, test->name, timeout);
    return CRASHED;
}

static bool selected(const psrt_runner_test_t *test, const char *filter)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", test->suite, test->name);
    return !filter || fnmatch(filter, full, 0) == 0;
}

static int run_all(const char *filter)
{
    static const char *const tags[RESULTS] = { "PASS", "FAIL", "CRSH", "SKIP" };
    int count[RESULTS] = { 0 };
    for (const psrt_runner_test_t *test = all_tests; test; test = test->next) {
        if (!test->name || !selected(test, filter)) continue;
        bool disabled = test->options.disabled || suite_options(test->suite)->disabled;
        double start = now();
        result_t result = disabled ? SKIPPED : run_test(test);
        count[result]++;
        fprintf(stderr, "[%s] %s/%s: %s(%.2fs)\n", tags[result], test->suite, test->name,
                disabled ? "disabled " : "", now() - start);
    }
    fprintf(stderr, "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d\n",
            count[PASSED] + count[FAILED] + count[CRASHED], count[PASSED],
            count[FAILED] + count[CRASHED], count[CRASHED]);
    return count[FAILED] + count[CRASHED] ? 1 : 0;
}

static int list_all(void)
{
    for (const psrt_runner_test_t *test = all_tests; test; test = test->next)
        if (test->name) printf("%s/%s\n", test->suite, test->name);
    return 0;
}

int main(int argc, char **argv)
{
    const char *filter = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
            filter = argv[++i];
        } else if (strcmp(argv[i], "--list") == 0) {
            return list_all();
        } else if (strncmp(argv[i], "-j", 2) != 0 && strncmp(argv[i], "--verbose", 9) != 0) {
            fprintf(stderr, "usage: %s [--filter SUITE/NAME] [--list]\n", argv[0]);
            return strcmp(argv[i], "--help") == 0 ? 0 : 2;
        }
    }
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) return perror("mmap"), 2;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return run_all(filter);
}
