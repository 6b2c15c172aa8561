/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/select.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"
#include "runtime/coll/flat.h"

/* ---- the table ---------------------------------------------------------------------------------- */

#define SHORT 16384u      /* up to here latency counts more than bytes       */
#define MIDDLE (1u << 20) /* up to here between hosts rounds still do        */
#define FEW 4u            /* ranks that each can talk to all others          */
#define SOME 8u           /* ranks that a message to each costs less than a step for each */
#define PAIR 2u           /* of which each may read all of the other: a ring reads as much */
#define NEAR 262144u      /* up to here its data are in its caches, and are to stay there  */
#define SWAP (4u << 20)   /* bytes that a host gathers for another one       */

/* For all sizes and numbers of ranks there is a rule, with an algorithm that does any number of ranks. */
#define RULE(WHAT, ALG, SCORE, HOSTS, RANKS, BYTES_FROM, BYTES_TO)                                 \
    {                                                                                              \
        PSRTI_COLL_##WHAT, PSRTI_ALG_##ALG, SCORE, PSRTI_COLL_##HOSTS, 1, RANKS, BYTES_FROM,       \
            BYTES_TO                                                                               \
    }
#define ANY UINT32_MAX
#define ALL UINT64_MAX

static const psrti_coll_rule_t table[] = {
    RULE(ALLREDUCE, DIRECT, 45, ONE_HOST, PAIR, 0, NEAR),
    RULE(ALLREDUCE, DIRECT, 40, ANY_HOSTS, FEW, 0, SHORT),
    RULE(ALLREDUCE, DOUBLING, 30, ANY_HOSTS, ANY, 0, SHORT),
    RULE(ALLREDUCE, ONE_LEADER, 35, NESTED, ANY, 0, SHORT),
    RULE(ALLREDUCE, ALL_LEADERS, 30, NESTED, ANY, SHORT + 1, ALL),
    RULE(ALLREDUCE, HALVING, 20, MORE_HOSTS, ANY, SHORT + 1, MIDDLE),
    RULE(ALLREDUCE, RING, 18, ONE_HOST, FEW, 0, ALL),
    RULE(ALLREDUCE, PAIRWISE, 15, ONE_HOST, SOME, 0, ALL),
    RULE(ALLREDUCE, RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(REDUCE, ONE_LEADER, 30, NESTED, ANY, 0, SHORT),
    RULE(REDUCE, BINOMIAL, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(REDUCE, RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(BROADCAST, ONE_LEADER, 40, NESTED, ANY, 0, SHORT),
    RULE(BROADCAST, ONE_LEADER, 25, NESTED, FEW, 0, ALL),
    RULE(BROADCAST, BINOMIAL, 30, ANY_HOSTS, ANY, 0, SHORT),
    RULE(BROADCAST, BINOMIAL, 20, ANY_HOSTS, FEW, 0, ALL),
    RULE(BROADCAST, SCATTER_RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(ALLGATHER, DIRECT, 30, ANY_HOSTS, ANY, 0, SHORT),
    RULE(ALLGATHER, ALL_LEADERS, 25, NESTED, ANY, SHORT + 1, ALL),
    RULE(ALLGATHER, DIRECT, 20, ANY_HOSTS, FEW, 0, ALL),
    RULE(ALLGATHER, RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(REDUCE_SCATTER, ALL_LEADERS, 30, NESTED, ANY, 0, ALL),
    RULE(REDUCE_SCATTER, PAIRWISE, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(REDUCE_SCATTER, RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(ALLTOALL, ALL_LEADERS, 30, NESTED, ANY, 0, SHORT),
    RULE(ALLTOALL, DIRECT, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(ALLTOALL, PAIRWISE, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(GATHER, ONE_LEADER, 40, NESTED, ANY, 0, ALL),
    RULE(GATHER, DIRECT, 30, ANY_HOSTS, FEW, 0, ALL),
    RULE(GATHER, BINOMIAL, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(GATHER, DIRECT, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(SCATTER, ONE_LEADER, 40, NESTED, ANY, 0, ALL),
    RULE(SCATTER, DIRECT, 30, ANY_HOSTS, FEW, 0, ALL),
    RULE(SCATTER, BINOMIAL, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(SCATTER, DIRECT, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(BARRIER, ONE_LEADER, 20, NESTED, ANY, 0, ALL),
    RULE(BARRIER, DISSEMINATION, 10, ANY_HOSTS, ANY, 0, ALL),
};

/* ---- selection ---------------------------------------------------------------------------------- */

int psrti_coll_hosts(const psrti_coll_topo_t *topo)
{
    if (topo->hosts == 1) return PSRTI_COLL_ONE_HOST;
    return topo->most == 1 ? PSRTI_COLL_FLAT : PSRTI_COLL_NESTED;
}

static int applies(const psrti_coll_rule_t *r, int hosts, psrti_collective_t collective,
                   uint64_t bytes, uint32_t ranks)
{
    return r->collective == collective && (r->hosts & hosts) && r->min_ranks <= ranks &&
           ranks <= r->max_ranks && r->min_bytes <= bytes && bytes <= r->max_bytes &&
           psrti_coll_plan_exists(collective, r->algorithm, ranks);
}

/* Of a rule of the table: an alltoall by all leaders has the parts of all pairs of ranks of two hosts in one message. */
static int is_too_much(const psrti_coll_rule_t *r, const psrti_coll_site_t *site, uint64_t bytes)
{
    uint64_t pairs = PSRTI_MAX(1, (uint64_t)site->most * site->most);
    return r->collective == PSRTI_COLL_ALLTOALL && r->algorithm == PSRTI_ALG_ALL_LEADERS &&
           bytes > SWAP / pairs;
}

psrti_coll_algorithm_t psrti_coll_select(const psrti_coll_site_t *site,
                                         psrti_collective_t collective, uint64_t bytes,
                                         uint32_t ranks)
{
    size_t tuned = site->tune ? site->tune->count : 0;
    psrti_coll_algorithm_t best = PSRTI_ALG_COUNT;
    int score = 0;

    for (size_t i = 0; i < tuned + PSRTI_COUNT(table); i++) {
        const psrti_coll_rule_t *r = i < tuned ? &site->tune->rules[i] : &table[i - tuned];
        if (r->score <= score || !applies(r, site->hosts, collective, bytes, ranks)) continue;
        if (i >= tuned && is_too_much(r, site, bytes)) continue;
        score = r->score;
        best = r->algorithm;
    }
    return best;
}

/* ---- as text ------------------------------------------------------------------------------------ */

static void size_text(uint64_t bytes, char *buf, size_t size)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
    unsigned unit = 0;
    while (unit < 3 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buf, size, "%" PRIu64 "%s", bytes, units[unit]);
}

static void print_rule(FILE *out, const psrti_coll_rule_t *r)
{
    char from[32], to[32] = "", ranks[32] = "any", score[16] = "tune";

    size_text(r->min_bytes, from, sizeof from);
    if (r->max_bytes != UINT64_MAX) size_text(r->max_bytes, to, sizeof to);
    if (r->max_ranks != UINT32_MAX)
        snprintf(ranks, sizeof ranks, "%u-%u", r->min_ranks, r->max_ranks);
    else if (r->min_ranks > 1)
        snprintf(ranks, sizeof ranks, "%u-", r->min_ranks);
    if (r->score <= PSRTI_COLL_TUNE_SCORE - (int)PSRTI_COLL_TUNE_RULES)
        snprintf(score, sizeof score, "%d", r->score);
    fprintf(out, "%-15s %-14s %6s  %-8s %-6s %s-%s\n", psrti_collective_name(r->collective),
            psrti_coll_algorithm_name(r->algorithm), score, psrti_coll_hosts_name(r->hosts), ranks,
            from, to);
}

static void print_rules(FILE *out, const psrti_coll_tune_t *tune)
{
    fprintf(out, "%-15s %-14s %6s  %-8s %-6s %s\n", "collective", "algorithm", "score", "hosts",
            "ranks", "bytes");
    for (int c = 0; c < PSRTI_COLL_COUNT; c++) {
        for (size_t i = 0; i < tune->count; i++)
            if ((int)tune->rules[i].collective == c) print_rule(out, &tune->rules[i]);
        for (size_t i = 0; i < PSRTI_COUNT(table); i++)
            if ((int)table[i].collective == c) print_rule(out, &table[i]);
    }
    fprintf(
        out,
        "\nup to %u bytes of a rank (%u where ranks share cores, and of an allreduce of two ranks), among at "
        "most %u on one host, go through shared memory without an algorithm, but for collectives for which a rule names one algorithm for "
        "all sizes, ranks and hosts, such as allreduce::ring\n",
        PSRTI_FLAT_DATA, PSRTI_FLAT_WIDE, PSRTI_FLAT_MEMBERS);
    fputs("\nalgorithms that PSRT_COLL_TUNE can name:\n", out);
    for (int c = 0; c < PSRTI_COLL_COUNT; c++) {
        fprintf(out, "%-15s", psrti_collective_name((psrti_collective_t)c));
        for (int a = 0; a < PSRTI_ALG_COUNT; a++)
            if (psrti_coll_plan_exists((psrti_collective_t)c, (psrti_coll_algorithm_t)a, 4))
                fprintf(out, " %s", psrti_coll_algorithm_name((psrti_coll_algorithm_t)a));
        fputc('\n', out);
    }
}

psrt_status_t psrti_coll_rules_print(const psrti_coll_tune_t *tune, char **text_p)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out) return PSRT_ERR_NO_MEMORY;
    print_rules(out, tune);
    int failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return PSRT_ERR_NO_MEMORY;
    }
    *text_p = text;
    return PSRT_OK;
}
