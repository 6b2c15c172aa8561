/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-bench tune`: which algorithm is fastest, measured among the workers of a job, written as rules for
 * PSRT_COLL_TUNE. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include <stdio.h>

#include <psrt/comm.h>

#include "coll.h"

#define TUNE_KINDS ((unsigned)COLL_BARRIER + 1)
#define TUNE_SIZES 32 /* more than there are powers of two up to the largest buffer */
#define TUNE_NAME 32

typedef struct tune_options {
    const char *out;
    uint64_t min, max, factor;
    unsigned kinds; /* bit mask */
    double seconds; /* of a cell */
} tune_options_t;

/* BENCH_RUN, or the exit code after --help or a wrong flag. */
int tune_options_parse(int argc, char **argv, tune_options_t *out);

/* What was fastest, by size. */
typedef struct tune_best {
    uint64_t bytes; /* as rules count them: all, or a rank's part */
    double us;
    char algorithm[TUNE_NAME];
} tune_best_t;

/* The rules of a collective, sizes with the same algorithm in one. `where`: " ranks=4 hosts=nested". */
void tune_print(FILE *out, const char *collective, const tune_best_t *best, size_t count,
                const char *where);

int bench_tune(int argc, char **argv);

#endif
