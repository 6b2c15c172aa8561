/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the MPI that it is compiled with; IMPL is its name in the rows. */
#include <stdio.h>

#include <mpi.h>

#include "benchmarks/coll_area.h"
#include "benchmarks/flags.h"

#define KINDS ((1u << COLL_KINDS) - 1)

/* MPI counts in ints. */
static void to_ints(int *ints, const uint64_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ints[i] = (int)numbers[i];
}

static int run_parts(const coll_call_t *call, int rank, int size)
{
    int lengths[COLL_RANKS_MAX], offsets[COLL_RANKS_MAX];
    to_ints(lengths, call->lengths, (uint32_t)size);
    to_ints(offsets, call->offsets, (uint32_t)size);
    if (call->kind == COLL_ALLGATHERV)
        return MPI_Allgatherv(call->in, lengths[rank], MPI_FLOAT, call->out, lengths, offsets,
                              MPI_FLOAT, MPI_COMM_WORLD);
    return MPI_Alltoallv(call->in, lengths, offsets, MPI_FLOAT, call->out, lengths, offsets,
                         MPI_FLOAT, MPI_COMM_WORLD);
}

typedef struct place {
    int rank, size;
} place_t;

static int run(void *state, const coll_call_t *call)
{
    const place_t *at = state;
    int n = (int)call->count, rank = at->rank;
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_LATENCY:
        return MPI_Allreduce(call->in, call->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case COLL_REDUCE:
        return MPI_Reduce(call->in, call->out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    case COLL_BROADCAST:
        return MPI_Bcast(rank ? call->out : (void *)call->in, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case COLL_ALLGATHER:
        return MPI_Allgather(call->in, n, MPI_FLOAT, call->out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case COLL_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(call->in, call->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case COLL_ALLTOALL:
        return MPI_Alltoall(call->in, n, MPI_FLOAT, call->out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case COLL_GATHER:
        return MPI_Gather(call->in, n, MPI_FLOAT, call->out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case COLL_SCATTER:
        return MPI_Scatter(call->in, n, MPI_FLOAT, call->out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case COLL_ALLGATHERV:
    case COLL_ALLTOALLV: return run_parts(call, rank, at->size);
    case COLL_SENDRECV:
        return MPI_Sendrecv(call->in, n, MPI_FLOAT, (rank + 1) % at->size, 0, call->out, n,
                            MPI_FLOAT, (rank + at->size - 1) % at->size, 0, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE);
    default: return MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    coll_options_t o;
    place_t at;
    MPI_Init(&argc, &argv); /* errors end the job: MPI_ERRORS_ARE_FATAL */
    MPI_Comm_rank(MPI_COMM_WORLD, &at.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &at.size);
    int result =
        coll_options_parse(argc - 1, argv + 1, "usage: " IMPL " --area PATH [flags]\n", &o);
    if (result == BENCH_RUN) {
        coll_backend_t backend = { .impl = IMPL,
                                   .transport = "shm",
                                   .state = &at,
                                   .rank = (uint32_t)at.rank,
                                   .size = o.ranks = (uint32_t)at.size,
                                   .kinds = KINDS,
                                   .run = run };
        coll_area_t *area = coll_area_open(o.area, backend.rank, backend.size);
        result = !area || coll_cells_run(&o, area, &backend, NULL, 0) ? BENCH_FAILED : BENCH_OK;
        coll_area_close(area);
    }
    if (result > BENCH_OK) MPI_Abort(MPI_COMM_WORLD, result);
    MPI_Finalize();
    return result;
}
