/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/select.h"

#include <string.h>

static psrti_coll_algorithm_t best(psrti_collective_t collective, uint64_t bytes, uint32_t ranks)
{
    int few = ranks <= 4, is_short = bytes <= 16384;
    switch (collective) {
    case PSRTI_COLL_ALLREDUCE:
        if (is_short) return few ? PSRTI_ALG_DIRECT : PSRTI_ALG_DOUBLING;
        return PSRTI_ALG_RING;
    case PSRTI_COLL_REDUCE: return is_short ? PSRTI_ALG_BINOMIAL : PSRTI_ALG_RING;
    case PSRTI_COLL_BROADCAST: return few || is_short ? PSRTI_ALG_BINOMIAL : PSRTI_ALG_SCATTER_RING;
    case PSRTI_COLL_ALLGATHER: return few || is_short ? PSRTI_ALG_DIRECT : PSRTI_ALG_RING;
    case PSRTI_COLL_REDUCE_SCATTER: return is_short ? PSRTI_ALG_PAIRWISE : PSRTI_ALG_RING;
    case PSRTI_COLL_ALLTOALL: return is_short ? PSRTI_ALG_DIRECT : PSRTI_ALG_PAIRWISE;
    case PSRTI_COLL_GATHER:
    case PSRTI_COLL_SCATTER: return few || !is_short ? PSRTI_ALG_DIRECT : PSRTI_ALG_BINOMIAL;
    case PSRTI_COLL_BARRIER:
    case PSRTI_COLL_COUNT: break;
    }
    return PSRTI_ALG_DISSEMINATION;
}

/* The algorithm named at `text`, up to a comma or its end; ALG_COUNT: there is no such one. */
static psrti_coll_algorithm_t algorithm_at(const char *text)
{
    size_t len = strcspn(text, ",");
    for (int a = 0; a < PSRTI_ALG_COUNT; a++) {
        const char *name = psrti_coll_algorithm_name((psrti_coll_algorithm_t)a);
        if (strlen(name) == len && strncmp(text, name, len) == 0) return (psrti_coll_algorithm_t)a;
    }
    return PSRTI_ALG_COUNT;
}

/* "allreduce:ring,broadcast:binomial" */
static psrti_coll_algorithm_t tuned(const char *tune, psrti_collective_t collective)
{
    const char *name = psrti_collective_name(collective);
    size_t len = strlen(name);
    while (tune && *tune) {
        if (strncmp(tune, name, len) == 0 && tune[len] == ':') return algorithm_at(tune + len + 1);
        tune += strcspn(tune, ",");
        tune += *tune == ',';
    }
    return PSRTI_ALG_COUNT;
}

psrti_coll_algorithm_t psrti_coll_select(const psrti_coll_site_t *site,
                                         psrti_collective_t collective, uint64_t bytes,
                                         uint32_t ranks)
{
    psrti_coll_algorithm_t algorithm = tuned(site->tune, collective);
    if (algorithm < PSRTI_ALG_COUNT && psrti_coll_plan_exists(collective, algorithm, ranks))
        return algorithm;
    return best(collective, bytes, ranks);
}
