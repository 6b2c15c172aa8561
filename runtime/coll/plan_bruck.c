/* SPDX-License-Identifier: Apache-2.0 */
/* Bruck's algorithms and the dissemination barrier: log2(p) rounds for any p, between ranks that are 1, 2, 4, ...
 * apart. For short blocks, which they copy more often than the others do. */
#include "base/util.h"
#include "runtime/coll/plan_int.h"

/* Block i of TMP is that of the rank i steps ahead. */
void psrti_coll_bruck_allgather(plan_t *p)
{
    p->tmp = p->ranks;
    psrti_coll_copy(p, in_block(0), tmp_block(0), 1);
    for (uint32_t have = 1; have < p->ranks; have *= 2) {
        uint32_t more = PSRTI_MIN(have, p->ranks - have);
        psrti_coll_round(p);
        psrti_coll_send(p, behind(p, p->rank, have), tmp_block(0), more);
        psrti_coll_recv(p, ahead(p, p->rank, have), tmp_block(have), more);
    }
    psrti_coll_round(p);
    psrti_coll_copy_to_circle(p, tmp_block(0), PSRTI_COLL_OUT, p->rank, p->ranks);
}

/* The blocks whose number has this bit, in a row at `packed`, there or back. */
static uint32_t pack(plan_t *p, uint32_t bit, uint32_t packed, int back)
{
    uint32_t n = 0;

    for (uint32_t run = bit; run < p->ranks; run += 2 * bit) {
        uint32_t len = PSRTI_MIN(bit, p->ranks - run);
        psrti_coll_copy(p, tmp_block(back ? packed + n : run), tmp_block(back ? run : packed + n),
                        len);
        n += len;
    }
    return n;
}

/* TMP: the blocks for the rank i steps ahead at i, then those packed to be sent, then those received. A block moves as
 * its number says, bit by bit. */
void psrti_coll_bruck_alltoall(plan_t *p)
{
    uint32_t half = (p->ranks + 1) / 2, sent = p->ranks, received = p->ranks + half;

    p->tmp = p->ranks + 2 * half;
    psrti_coll_copy_from_circle(p, PSRTI_COLL_IN, p->rank, tmp_block(0), p->ranks);
    for (uint32_t bit = 1; bit < p->ranks; bit *= 2) {
        psrti_coll_round(p);
        uint32_t n = pack(p, bit, sent, 0);
        psrti_coll_round(p);
        psrti_coll_send(p, ahead(p, p->rank, bit), tmp_block(sent), n);
        psrti_coll_recv(p, behind(p, p->rank, bit), tmp_block(received), n);
        psrti_coll_round(p);
        pack(p, bit, received, 1);
    }
    psrti_coll_round(p);
    for (uint32_t i = 0; i < p->ranks; i++)
        psrti_coll_copy(p, tmp_block(i), out_block(behind(p, p->rank, i)), 1);
}

void psrti_coll_dissemination_barrier(plan_t *p)
{
    for (uint32_t far = 1; far < p->ranks; far *= 2) {
        if (far > 1) psrti_coll_round(p);
        psrti_coll_send(p, ahead(p, p->rank, far), in_block(0), 0);
        psrti_coll_recv(p, behind(p, p->rank, far), out_block(0), 0);
    }
}
