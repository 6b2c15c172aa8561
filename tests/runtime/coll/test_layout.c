/* SPDX-License-Identifier: Apache-2.0 */
/* How much a message may be, and by which size the algorithm of a call is chosen. */
#include "runtime/coll/coll_int.h"
#include "support/test.h"

#define RANKS 16

/* Two hosts of 8 ranks. */
static void open_comm(psrti_comm_t *comm, psrti_coll_tune_t *tune, const char *rules)
{
    static psrti_coll_t coll = { .p.message = PSRTI_COLL_MESSAGE };
    uint64_t host[RANKS];
    uint32_t place[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        host[r] = r / 8;
        place[r] = r;
    }
    cr_assert_eq(psrti_coll_tune_parse(rules, "a test", 0, tune), PSRT_OK);
    *comm = (psrti_comm_t){
        .coll = &coll, .size = RANKS, .topo = psrti_coll_topo_new(RANKS, host, place), .tune = tune
    };
    cr_assert_not_null(comm->topo);
}

/* An alltoall by all leaders would send 64 blocks at once, a pairwise one sends one. */
Test(layout, blocks_travel_together_up_to_a_limit)
{
    static psrti_coll_tune_t tune;
    psrti_comm_t comm;
    open_comm(&comm, &tune, "");
    psrti_collop_t op = { .comm = &comm, .call = { .what = PSRTI_COLL_ALLTOALL } };
    psrti_collcut_t cut = { .layout = PSRTI_LAYOUT_PARTS, .chunks = 1, .elements = 512 << 10 };
    cr_assert(psrti_layout_splits(&op, PSRTI_ALG_ALL_LEADERS, 1, cut));
    cr_assert(!psrti_layout_splits(&op, PSRTI_ALG_BRUCK, 1, cut));
    cut.elements = 256 << 10;
    cr_assert(!psrti_layout_splits(&op, PSRTI_ALG_ALL_LEADERS, 1, cut));
    cr_assert(psrti_layout_splits(&op, PSRTI_ALG_ALL_LEADERS, 2, cut));
    psrti_coll_topo_free(comm.topo);
}

static uint8_t chosen(const psrti_comm_t *comm, uint8_t what, uint64_t count)
{
    uint64_t counts[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        counts[r] = r % 2 ? 2 * count : 0;
    psrti_coll_call_t call = {
        .what = what, .dtype = PSRT_F32, .in_counts = counts, .out_counts = counts
    };
    return psrti_comm_algorithm(comm, &call);
}

/* Of an allgatherv by the mean of the parts, which all ranks know; of an alltoallv they know only their own. */
Test(layout, calls_with_counts_choose_alike)
{
    static psrti_coll_tune_t tune;
    psrti_comm_t comm;
    open_comm(&comm, &tune, "");
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLGATHERV, 0), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLGATHERV, 4096), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLGATHERV, 4097), PSRTI_ALG_ALL_LEADERS);
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLTOALLV, 0), PSRTI_ALG_PAIRWISE);
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLTOALLV, 1 << 20), PSRTI_ALG_PAIRWISE);
    psrti_coll_topo_free(comm.topo);
    open_comm(&comm, &tune, "alltoall::bruck,allgather:1KiB-:ring");
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLTOALLV, 1), PSRTI_ALG_DIRECT, "it packs");
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLGATHERV, 256), PSRTI_ALG_RING);
    cr_assert_eq(chosen(&comm, PSRTI_COLL_ALLGATHERV, 255), PSRTI_ALG_DIRECT);
    psrti_coll_topo_free(comm.topo);
}
