/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm carries out a collective: of the rules that apply the one with the highest score. All ranks must
 * choose the same one, so nothing counts that differs between them. */
#ifndef PSRTI_COLL_SELECT_H
#define PSRTI_COLL_SELECT_H

#include "runtime/coll/plan.h"

#define PSRTI_COLL_TUNE_RULES 32u     /* of PSRT_COLL_TUNE, at most     */
#define PSRTI_COLL_TUNE_SCORE 1000000 /* of its first rule              */

enum {
    PSRTI_COLL_ONE_HOST = 1,
    PSRTI_COLL_FLAT = 2,   /* several hosts, a rank on each                  */
    PSRTI_COLL_NESTED = 4, /* several hosts, some of them with several ranks */
    PSRTI_COLL_MORE_HOSTS = PSRTI_COLL_FLAT | PSRTI_COLL_NESTED,
    PSRTI_COLL_ANY_HOSTS = PSRTI_COLL_ONE_HOST | PSRTI_COLL_MORE_HOSTS
};

typedef struct psrti_coll_rule {
    psrti_collective_t collective;
    psrti_coll_algorithm_t algorithm;
    int score;
    int hosts;                     /* PSRTI_COLL_ONE_HOST | ...        */
    uint32_t min_ranks, max_ranks; /* inclusive                        */
    uint64_t min_bytes, max_bytes; /* inclusive; see psrti_coll_select */
} psrti_coll_rule_t;

typedef struct psrti_coll_tune {
    size_t count;
    psrti_coll_rule_t rules[PSRTI_COLL_TUNE_RULES];
} psrti_coll_tune_t;

/* "allreduce:1M-:ring,broadcast::binomial,barrier:direct": collective, sizes from-to (inclusive, one of them or
 * all may be missing), algorithm. The first entry that applies counts. ERR_INVALID: the text names the variable, the
 * entry, and what is near. NULL or "": no rules. */
psrt_status_t psrti_coll_tune_parse(const char *text, psrti_coll_tune_t *tune);

typedef struct psrti_coll_site {
    int hosts; /* PSRTI_COLL_ONE_HOST, FLAT or NESTED */
    const psrti_coll_tune_t *tune;
} psrti_coll_site_t;
int psrti_coll_hosts(const psrti_coll_topo_t *topo);

/* `bytes` of the data: of allreduce, reduce, broadcast all, else of one rank's part; 0 where ranks have counts of
 * their own. */
psrti_coll_algorithm_t psrti_coll_select(const psrti_coll_site_t *site,
                                         psrti_collective_t collective, uint64_t bytes,
                                         uint32_t ranks);

/* All rules as a table of text, to be given to free(). ERR_NO_MEMORY. */
psrt_status_t psrti_coll_rules_print(const psrti_coll_tune_t *tune, char **text_p);

#endif
