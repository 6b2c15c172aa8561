/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm carries out a collective: of the rules that apply the one with the highest score. All ranks must
 * choose the same one, so nothing counts that differs between them. */
#ifndef PSRTI_COLL_SELECT_H
#define PSRTI_COLL_SELECT_H

#include "runtime/coll/plan.h"

#define PSRTI_COLL_TUNE_RULES 128u    /* of PSRT_COLL_TUNE, at most     */
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
    uint32_t hash; /* of the rules: other rules, another hash */
    psrti_coll_rule_t rules[PSRTI_COLL_TUNE_RULES];
} psrti_coll_tune_t;

/* "allreduce:1M-:ring,broadcast::binomial hosts=nested ranks=4-8": collective, sizes from-to (inclusive, one of them or
 * all may be missing), algorithm; then for which numbers of ranks and which hosts, if not for any. Commas or lines
 * lie between rules, # begins a comment. The first rule that applies counts. ERR_INVALID: the text names `from` (and,
 * if `is_file`, the line), the rule, and what is near. NULL or "": no rules. */
psrt_status_t psrti_coll_tune_parse(const char *text, const char *from, int is_file,
                                    psrti_coll_tune_t *tune);
/* The value of PSRT_COLL_TUNE: rules, or @FILE with rules. */
psrt_status_t psrti_coll_tune_load(const char *setting, psrti_coll_tune_t *tune);
/* "one", "flat", "nested", "several", "any". */
const char *psrti_coll_hosts_name(int hosts);

typedef struct psrti_coll_site {
    int hosts;     /* PSRTI_COLL_ONE_HOST, FLAT or NESTED */
    uint32_t most; /* ranks of the host that has most     */
    const psrti_coll_tune_t *tune;
} psrti_coll_site_t;
int psrti_coll_hosts(const psrti_coll_topo_t *topo);

/* `bytes` of the data: of allreduce, reduce, broadcast all, else of one rank's part, of allgatherv the mean of the parts;
 * UINT64_MAX for an alltoallv. */
psrti_coll_algorithm_t psrti_coll_select(const psrti_coll_site_t *site,
                                         psrti_collective_t collective, uint64_t bytes,
                                         uint32_t ranks);

/* All rules as a table of text, to be given to free(). ERR_NO_MEMORY. */
psrt_status_t psrti_coll_rules_print(const psrti_coll_tune_t *tune, char **text_p);

#endif
