/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the MPI that it is compiled with; IMPL is its name in the rows. */
#include <stdio.h>

#include <mpi.h>

#include "benchmarks/coll_area.h"
#include "benchmarks/flags.h"

#define KINDS ((1u << COLL_KINDS) - 1)

static int run(void *state, const coll_call_t *call)
{
    int n = (int)call->count, rank = *(const int *)state;
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
    default: return MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    coll_options_t o;
    int rank, size;
    MPI_Init(&argc, &argv); /* errors end the job: MPI_ERRORS_ARE_FATAL */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int result =
        coll_options_parse(argc - 1, argv + 1, "usage: " IMPL " --area PATH [flags]\n", &o);
    if (result == BENCH_RUN) {
        coll_backend_t backend = { .impl = IMPL,
                                   .transport = "shm",
                                   .state = &rank,
                                   .rank = (uint32_t)rank,
                                   .size = o.ranks = (uint32_t)size,
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
