/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a communicator are. Pure: the same facts give the same order on all ranks. */
#ifndef PSRTI_COLL_TOPO_H
#define PSRTI_COLL_TOPO_H

#include <stdint.h>

typedef struct psrti_coll_topo {
    uint32_t ranks, hosts;
    uint32_t fewest; /* ranks of the host that has fewest */
    uint32_t most;   /* of the host that has most         */
    uint32_t *order; /* all ranks: those of a host side by side, near ones of a host too */
    uint32_t *at;    /* by rank: where it is in `order`               */
    uint32_t *host;  /* by rank: the number of its host, from 0       */
    uint32_t *first; /* hosts + 1: where each host begins in `order`  */
} psrti_coll_topo_t;

/* Ranks with the same `host` share memory; of these, ranks whose `place` is near are near. Hosts are numbered in the
 * order of their lowest ranks. NULL: no memory. */
psrti_coll_topo_t *psrti_coll_topo_new(uint32_t ranks, const uint64_t *host, const uint32_t *place);
void psrti_coll_topo_free(psrti_coll_topo_t *topo); /* NULL allowed */

#endif
