/* SPDX-License-Identifier: Apache-2.0 */
/* Logging and the per-thread last error. The sink is process-wide because last-error and early
 * configuration errors exist before any context; everything else lives in contexts. */
#ifndef PSRTI_BASE_LOG_H
#define PSRTI_BASE_LOG_H

#include <stdarg.h>

#include <psrt/psrt.h>

/* Level is tested before formatting. Lower case, name the object, give the cause. */
#define psrti_log(level, ...)                                                                      \
    do {                                                                                           \
        if ((int)(level) <= psrti_log_level()) psrti_log_write((level), __VA_ARGS__);              \
    } while (0)
#define psrti_error(...) psrti_log(PSRT_LOG_ERROR, __VA_ARGS__)
#define psrti_warn(...) psrti_log(PSRT_LOG_WARN, __VA_ARGS__)
#define psrti_info(...) psrti_log(PSRT_LOG_INFO, __VA_ARGS__)
#define psrti_debug(...) psrti_log(PSRT_LOG_DEBUG, __VA_ARGS__)

int psrti_log_level(void); /* that of PSRT_LOG_LEVEL, read once, until it is set */
void psrti_log_set_level(psrt_log_level_t level);
void psrti_log_write(psrt_log_level_t level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "worker:1" in front of each line of this process; empty by default, cut at 63 bytes. */
void psrti_log_set_name(const char *name);

/* Sets the text that psrt_last_error returns on this thread and returns `status`, so that
 * `return psrti_fail(PSRT_ERR_INVALID, "table %s: ...", name);` is one line. Does not log.
 * The previous text may be among the arguments. errno is kept. */
psrt_status_t psrti_fail(psrt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
psrt_status_t psrti_vfail(psrt_status_t status, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
#ifdef __clang_analyzer__ /* tells the analyzer of scripts/lint what psrti_fail returns: never OK */
#define psrti_fail(status, ...)                                                                    \
    ({                                                                                             \
        psrt_status_t fail_status_ = (status);                                                     \
        psrti_fail(fail_status_, __VA_ARGS__);                                                     \
        if (fail_status_ == PSRT_OK) __builtin_unreachable();                                      \
        fail_status_;                                                                              \
    })
#endif
/* Copies a text kept with an op. */
void psrti_fail_text(const char *text);

#define PSRTI_ERROR_MAX 512

#endif
