/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a word of memory that processes share; who only reads it may map it read-only. */
#ifndef PSRTI_BASE_FUTEX_H
#define PSRTI_BASE_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

/* Returns when it is woken, for no reason, after `ns`, and at once if the word is not `value`. */
static inline void psrti_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec ts = { (time_t)(ns / PSRTI_NS_PER_S), (long)(ns % PSRTI_NS_PER_S) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

/* All that sleep on it. */
static inline void psrti_futex_wake(const _Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
