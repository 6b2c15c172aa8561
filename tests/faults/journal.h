/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker of the fault tests did, in a file that outlives it: mapped and shared, so that what was
 * written before a kill -9 is there. journal.py reads the same layout. */
#ifndef PSRT_TESTS_FAULTS_JOURNAL_H
#define PSRT_TESTS_FAULTS_JOURNAL_H

#include <stdatomic.h>
#include <stdint.h>

#define MAX_SLICES 3
#define MAX_WORKERS 3
#define MAX_RECORDS 60000u
#define MAX_GENERATIONS 64
#define UNKNOWN 100 /* status of a record whose operation has not ended */

enum { PUSH = 1, PUSH_PULL = 2, PULL = 3 };
enum { STARTING = 0, RUNNING = 1, AT_GOAL = 2, LEFT = 3, ENDED = 4 };

/* One operation. It counts from the moment its kind is set. */
typedef struct record {
    uint64_t begin, end; /* CLOCK_MONOTONIC; end 0: not known                                     */
    int32_t status;
    uint8_t kind, table, late, torn;
    uint16_t generation, final;
    uint32_t slices; /* mask of those that it covers                                              */
    uint64_t number; /* of a push: unique in this life                                            */
    uint64_t step, version;
    uint64_t applied[MAX_SLICES]; /* what was pulled: how many pushes, a field for each worker    */
    uint64_t sum[MAX_SLICES];     /* and the sum of their hashes                                  */
    uint64_t reserved[3];
} record_t;
_Static_assert(sizeof(record_t) == 128, "journal.py reads records of 128 bytes");

typedef struct journal {
    uint32_t rank, life, pid, phase, generation, nrecords;
    uint64_t step[2]; /* the next one of each table                                               */
    char text[256];   /* why it ended                                                             */
    char pad[4096 - 24 - 16 - 256];
    record_t record[MAX_RECORDS];
} journal_t;

/* What the rig tells all workers: another file that is mapped and shared. */
typedef struct control {
    _Atomic uint64_t generation;            /* of the tables; who sees them lost raises it        */
    _Atomic uint64_t finish;                /* read the final values and leave                    */
    _Atomic uint64_t goal[MAX_GENERATIONS]; /* step at which the workers of a generation wait     */
} control_t;

/* Both end the process with a message when the file cannot be mapped. */
journal_t *journal_open(const char *dir, uint32_t rank, uint32_t life);
control_t *control_open(const char *dir);

uint64_t now_ns(void);

/* The weight of a push in the sums. Any set of pushes but the right one shows. */
uint64_t push_hash(uint32_t rank, uint32_t life, uint32_t generation, uint32_t table,
                   uint64_t number);

#endif
