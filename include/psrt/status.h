/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes of libpsrt, grouped by the largest thing that is lost when one is returned. */
#ifndef PSRT_STATUS_H
#define PSRT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* the library is built with hidden visibility */

/* X(name, value, text). The enum, psrt_status_name and psrt_status_text expand from this list. */
#define PSRT_STATUS_MAP(X)                                                                         \
    /* not errors */                                                                               \
    X(OK, 0, "success")                                                                            \
    X(IN_PROGRESS, 1, "operation in progress")                                                     \
    /* the call failed, everything else is as before */                                            \
    X(ERR_INVALID, -1, "invalid argument")                                                         \
    X(ERR_NO_MEMORY, -2, "out of memory")                                                          \
    X(ERR_TIMEOUT, -3, "timed out")                                                                \
    X(ERR_CANCELED, -4, "canceled")                                                                \
    X(ERR_BUSY, -5, "resource busy")                                                               \
    X(ERR_AGAIN, -6, "no room now, try again")                                                     \
    X(ERR_UNSUPPORTED, -7, "not supported")                                                        \
    X(ERR_MISMATCH, -8, "specifications do not match")                                             \
    X(ERR_NOT_FOUND, -9, "not found")                                                              \
    X(ERR_LIMIT, -10, "limit of the system or configuration reached")                              \
    X(ERR_IO, -11, "input/output error")                                                           \
    X(ERR_INTERNAL, -12, "internal error")                                                         \
    X(ERR_DEADLINE, -13, "deadline passed")                                                        \
    X(ERR_NOT_READY, -14, "not ready")                                                             \
    X(ERR_PROTOCOL, -15, "malformed or foreign message")                                           \
    X(ERR_TOO_LATE, -16, "step already closed")                                                    \
    /* a peer or the connection to it is lost */                                                   \
    X(ERR_PEER_LOST, -40, "peer lost")                                                             \
    X(ERR_UNREACHABLE, -41, "peer cannot be reached")                                              \
    X(ERR_REFUSED, -42, "peer refused the connection")                                             \
    X(ERR_STALE, -43, "stale session, term or generation")                                         \
    /* data of a shard is lost */                                                                  \
    X(ERR_SHARD_LOST, -60, "shard lost")                                                           \
    /* the whole context is lost */                                                                \
    X(ERR_FENCED, -80, "this task was declared dead and is fenced")                                \
    X(ERR_COORDINATOR_LOST, -81, "coordinator lost")                                               \
    X(ERR_START_TIMEOUT, -82, "job did not assemble in time")                                      \
    X(ERR_CLOSED, -83, "context is closed")

typedef enum psrt_status {
#define PSRT_STATUS_ENUM_(name, value, text) PSRT_##name = value,
    PSRT_STATUS_MAP(PSRT_STATUS_ENUM_)
#undef PSRT_STATUS_ENUM_
} psrt_status_t;

/**
 * Name of a status code as written in C, for example "PSRT_ERR_TIMEOUT".
 * @param status any value
 * @return a static string; "PSRT_UNKNOWN" for a value that is not in the list
 * @threads any  @blocks no  @since 0.1
 */
const char *psrt_status_name(psrt_status_t status);

/**
 * One-line text of a status code.
 * @param status any value
 * @return a static string; "unknown status" for a value that is not in the list
 * @threads any  @blocks no  @since 0.1
 */
const char *psrt_status_text(psrt_status_t status);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
