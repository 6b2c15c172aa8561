/* SPDX-License-Identifier: Apache-2.0 */
/* A job that this program starts, of processes that are this program again, and the rows that its first worker
 * prints: the columns, a tab, a JSON object. The columns go to the terminal, the object into a file. */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* The JSON array; rows are separated as they come. */
typedef struct job_sink {
    FILE *json; /* NULL: none */
    size_t rows;
} job_sink_t;

int job_own_path(char path[PATH_MAX]);
/* psrt-launch beside this program, else the one in PATH. */
void job_launcher_path(const char *own, char path[PATH_MAX]);

/* Begins and ends the file; `json` NULL: none. 0, or -1 after it printed what failed. */
int job_collect(const char *json, job_sink_t *sink);
int job_collected(job_sink_t *sink, const char *json);

/* Runs `argv`, called `what`, and takes its lines; returns when it has ended. SIGINT must be ignored: the
 * launcher ends the job in order, then this process follows. 0, or -1 after it printed what failed. */
int job_run(job_sink_t *sink, char *const *argv, const char *what);

#endif
