/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the sanitizers, in every program of a sanitizer build. The variables ASAN_OPTIONS and
 * TSAN_OPTIONS still override them. */

/* The sanitizers' libraries must find them. */
#pragma GCC visibility push(default)
const char *__asan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);
const char *__tsan_default_options(void);
const char *__tsan_default_suppressions(void);
const char *__ubsan_default_options(void);
#pragma GCC visibility pop

/* An allocation that cannot be satisfied returns NULL, as without the sanitizer: tests ask for it. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1";
}

/* Tests read what programs print. */
const char *__lsan_default_options(void) { return "print_suppressions=0"; }

/* OpenBLAS keeps its worker threads' memory to the end of the process. libzmq 4.3.4 forgets the first
 * frame of a message that is half received when its socket is closed. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libopenblas\n"
           "leak:libzmq.so\n";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1:print_suppressions=0:second_deadlock_stack=1";
}

/* Libraries of the system are not instrumented: ThreadSanitizer sees their memory accesses through
 * intercepted functions, but not all of their synchronization. So it also misses that
 *  tx_free, called in libzmq's thread, runs after the send that handed its argument over;
 *  libzmq opens and closes descriptors, whose numbers our own close and closedir meet again. */
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\n"
           "called_from_lib:libpgm\n"
           "called_from_lib:libsodium.so\n"
           "called_from_lib:libopenblas\n"
           "called_from_lib:libhwloc.so\n"
           "race:tx_free\n"
           "race:zt_sock_close\n"
           "race:zt_ep_bury\n"
           "race:descriptors_open\n";
}

const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }
