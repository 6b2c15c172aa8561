/* SPDX-License-Identifier: Apache-2.0 */
/* Command line flags of the subcommands: one table gives parsing, --help, and the nearest name. */
#ifndef BENCH_FLAGS_H
#define BENCH_FLAGS_H

#include <stddef.h>

typedef struct bench_flag {
    const char *name; /* without the dashes */
    const char *arg;  /* name of the argument; every flag has one */
    const char *doc;  /* lines separated by newlines */
    /* 0, or -1 after it printed what is wrong. */
    int (*set)(void *options, const char *name, const char *text);
} bench_flag_t;

enum { BENCH_RUN = -1, BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2 };

void bench_flags_print(const bench_flag_t *flags, size_t count);
/* BENCH_RUN, or BENCH_USAGE after it printed what is wrong. `argv` has flags only. */
int bench_flags_parse(const bench_flag_t *flags, size_t count, void *options, int argc,
                      char **argv);

/* The name with the smallest edit distance to `word`, NULL when all are far from it. `stride` is
 * the distance in bytes of the names, which are the first members of an array of structs. */
const char *bench_nearest(const char *word, const void *names, size_t count, size_t stride);

/* Prints "psrt-bench: ..." to stderr and returns -1. */
int bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
