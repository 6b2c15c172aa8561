/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-bench ps`: the process that was called starts, for each transport, a job whose workers are
 * this program again, in the worker mode, and collects the rows that worker 0 prints. */
#ifndef BENCH_PS_H
#define BENCH_PS_H

#include <stddef.h>
#include <stdint.h>

#define PS_SIZES_MAX 64
#define PS_TASKS_MAX 64

typedef enum ps_op { PS_PUSH, PS_PULL, PS_PUSH_PULL, PS_OPS, PS_DECLARE = PS_OPS } ps_op_t;
typedef enum ps_buffers {
    PS_BUFFERS_PSRT,
    PS_BUFFERS_USER,
    PS_BUFFERS,
    PS_BUFFERS_NONE = PS_BUFFERS /* of PS_DECLARE */
} ps_buffers_t;
typedef enum ps_transport { PS_SHM, PS_ZMQ, PS_INPROC, PS_TRANSPORTS } ps_transport_t;

extern const char *const ps_op_names[PS_OPS + 1];
extern const char *const ps_buffers_names[PS_BUFFERS + 1];
extern const char *const ps_transport_names[PS_TRANSPORTS];

typedef struct ps_options {
    uint64_t sizes[PS_SIZES_MAX]; /* bytes, multiples of 4 */
    size_t size_count;
    unsigned ops, buffers, transports; /* bit masks */
    uint32_t workers, servers;
    uint32_t tables; /* above 1: all in one operation, of table_bytes each, in place of `sizes` */
    uint64_t table_bytes;
    const char *security; /* for psrt-launch */
    double seconds;       /* of a cell       */
    const char *json;
    int worker; /* this process is a worker of a job; `transports` then has one bit */
} ps_options_t;

int bench_ps(int argc, char **argv);

/* BENCH_RUN, or the exit code after --help or a wrong flag. */
int ps_options_parse(int argc, char **argv, ps_options_t *out);

/* One result, as worker 0 measured it. */
typedef struct ps_row {
    ps_op_t op;
    ps_buffers_t buffers;
    ps_transport_t transport;
    uint64_t bytes; /* of one table */
    uint64_t tables;
    uint32_t workers, servers;
    double p50_us, p99_us;      /* of an operation            */
    double ops_per_s, limit_us; /* transfers of one table, all of an operation count */
    double all_ops_per_s;       /* of all workers together; 0: not measured  */
    double raw_us, raw_ping_us; /* of the bare transport; 0: not measured    */
} ps_row_t;

void ps_row_header(void);
/* One line: the columns, a tab, the JSON object. */
void ps_row_print(const ps_row_t *row);

/* Joins the job, measures all cells, prints the rows if it is worker 0. 0 or -1. */
int ps_worker_run(const ps_options_t *options);

#endif
