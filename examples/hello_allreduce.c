/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest program with a collective: every worker gives its rank, all get the sum.
 *
 *   build-release/bin/hello_allreduce              alone
 *   build-release/bin/psrt-launch -s 0 -w 4 -- build-release/bin/hello_allreduce    4 workers, no server */
#include <stdio.h>

#include <psrt/comm.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, psrt_last_error());
    return 1;
}

int main(void)
{
    psrt_context_t *ctx;
    psrt_comm_t *world;
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;

    if (psrt_context_create(NULL, &ctx)) return fail("cannot join");
    if (psrt_comm_create(ctx, NULL, &world, NULL)) return fail("cannot create a communicator");
    psrt_comm_query(world, &attr);

    float mine = (float)attr.rank, sum;
    if (psrt_allreduce(world, &mine, &sum, 1, PSRT_F32, PSRT_SUM, NULL)) return fail("allreduce");
    printf("rank %u of %u: the sum of all ranks is %g\n", attr.rank, attr.ranks, sum);

    psrt_comm_free(world);
    psrt_context_destroy(ctx);
    return 0;
}
