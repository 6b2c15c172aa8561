/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm carries out a collective. All ranks must choose the same one, so nothing counts that differs
 * between them. */
#ifndef PSRTI_COLL_SELECT_H
#define PSRTI_COLL_SELECT_H

#include "runtime/coll/plan.h"

typedef struct psrti_coll_site {
    uint32_t hosts;   /* on which the ranks are */
    const char *tune; /* PSRT_COLL_TUNE; NULL or "": nothing */
} psrti_coll_site_t;

/* `bytes` of the data: of allreduce, reduce, broadcast all, else of one rank's part; 0 where ranks have counts of their
 * own. */
psrti_coll_algorithm_t psrti_coll_select(const psrti_coll_site_t *site,
                                         psrti_collective_t collective, uint64_t bytes,
                                         uint32_t ranks);

#endif
