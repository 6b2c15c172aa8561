/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/select.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

/* ---- the table ---------------------------------------------------------------------------------- */

#define SHORT 16384u      /* up to here latency counts more than bytes       */
#define MIDDLE (1u << 20) /* up to here between hosts rounds still do        */
#define FEW 4u            /* ranks that each can talk to all others          */

/* For all sizes and numbers of ranks there is a rule, with an algorithm that does any number of ranks. */
#define RULE(WHAT, ALG, SCORE, HOSTS, RANKS, BYTES_FROM, BYTES_TO)                                 \
    {                                                                                              \
        PSRTI_COLL_##WHAT, PSRTI_ALG_##ALG, SCORE, PSRTI_COLL_##HOSTS, 1, RANKS, BYTES_FROM,       \
            BYTES_TO                                                                               \
    }
#define ANY UINT32_MAX
#define ALL UINT64_MAX

static const psrti_coll_rule_t table[] = {
    RULE(ALLREDUCE, DIRECT, 40, ANY_HOSTS, FEW, 0, SHORT),
    RULE(ALLREDUCE, DOUBLING, 30, ANY_HOSTS, ANY, 0, SHORT),
    RULE(ALLREDUCE, ONE_LEADER, 35, NESTED, ANY, 0, SHORT),
    RULE(ALLREDUCE, ALL_LEADERS, 30, NESTED, ANY, SHORT + 1, ALL),
    RULE(ALLREDUCE, HALVING, 20, MORE_HOSTS, ANY, SHORT + 1, MIDDLE),
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
    RULE(REDUCE_SCATTER, PAIRWISE, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(REDUCE_SCATTER, RING, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(ALLTOALL, DIRECT, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(ALLTOALL, PAIRWISE, 10, ANY_HOSTS, ANY, 0, ALL),
    RULE(GATHER, DIRECT, 30, ANY_HOSTS, FEW, 0, ALL),
    RULE(GATHER, BINOMIAL, 20, ANY_HOSTS, ANY, 0, SHORT),
    RULE(GATHER, DIRECT, 10, ANY_HOSTS, ANY, 0, ALL),
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
        score = r->score;
        best = r->algorithm;
    }
    return best;
}

/* ---- PSRT_COLL_TUNE ----------------------------------------------------------------------------- */

#define WORD_MAX 32 /* longer than all names and sizes */

/* The index of `word`, or `count` with an error text. */
static size_t find_name(const char *kind, const char *word, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], word)) return i;
    const char *near = psrti_nearest(word, names, count);
    psrti_fail(PSRT_ERR_INVALID, "PSRT_COLL_TUNE: there is no %s \"%s\"%s%s%s", kind, word,
               near ? ", the nearest is \"" : "", near ? near : "", near ? "\"" : "");
    return count;
}

/* "from-to", "from-", "-to", "size" or "". */
static psrt_status_t parse_sizes(char *word, psrti_coll_rule_t *rule)
{
    char *dash = strchr(word, '-'), *to = dash ? dash + 1 : word;
    psrt_status_t rc = PSRT_OK;

    if (dash) *dash = 0;
    if (*word) rc = psrti_parse_size(word, &rule->min_bytes);
    if (!rc && *to) rc = psrti_parse_size(to, &rule->max_bytes);
    if (dash) *dash = '-';
    if (!rc && rule->min_bytes <= rule->max_bytes) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "PSRT_COLL_TUNE: \"%s\" are no sizes; such are 64KiB-1MiB, 1MiB-, -4KiB",
                      word);
}

static psrt_status_t set_rule(const char *what, char *sizes, const char *how,
                              psrti_coll_rule_t *rule)
{
    size_t collective = find_name("collective", what, psrti_collective_names, PSRTI_COLL_COUNT);
    if (collective == PSRTI_COLL_COUNT) return PSRT_ERR_INVALID;
    size_t algorithm = find_name("algorithm", how, psrti_coll_algorithm_names, PSRTI_ALG_COUNT);
    if (algorithm == PSRTI_ALG_COUNT) return PSRT_ERR_INVALID;

    *rule = (psrti_coll_rule_t){ .collective = (psrti_collective_t)collective,
                                 .algorithm = (psrti_coll_algorithm_t)algorithm,
                                 .hosts = PSRTI_COLL_ANY_HOSTS,
                                 .min_ranks = 1,
                                 .max_ranks = UINT32_MAX,
                                 .max_bytes = UINT64_MAX };
    /* What needs a power of two does 4. */
    if (!psrti_coll_plan_exists(rule->collective, rule->algorithm, 4))
        return psrti_fail(PSRT_ERR_INVALID,
                          "PSRT_COLL_TUNE: %s does not do %s; psrt-info coll lists "
                          "what does",
                          how, what);
    return parse_sizes(sizes, rule);
}

/* Cuts `entry` at its colons. */
static psrt_status_t parse_entry(char *entry, psrti_coll_rule_t *rule)
{
    char none[1] = "", *sizes = none;
    char *colon = strchr(entry, ':'), *last = strrchr(entry, ':');

    if (!colon || (colon != last && strchr(colon + 1, ':') != last))
        return psrti_fail(PSRT_ERR_INVALID,
                          "PSRT_COLL_TUNE: \"%s\" is not collective:sizes:algorithm, such as "
                          "allreduce:1MiB-:ring",
                          entry);
    *colon = *last = 0;
    if (colon != last) sizes = colon + 1;
    return set_rule(entry, sizes, last + 1, rule);
}

psrt_status_t psrti_coll_tune_parse(const char *text, psrti_coll_tune_t *tune)
{
    psrti_coll_tune_t parsed = { 0 };

    while (text && *text) {
        char entry[3 * WORD_MAX];
        size_t len = strcspn(text, ",");
        if (len >= sizeof entry || parsed.count == PSRTI_COLL_TUNE_RULES)
            return psrti_fail(
                PSRT_ERR_INVALID,
                "PSRT_COLL_TUNE: an entry has at most %zu characters, and there are at "
                "most %u: %.40s",
                sizeof entry - 1, PSRTI_COLL_TUNE_RULES, text);
        memcpy(entry, text, len);
        entry[len] = 0;
        psrti_coll_rule_t *rule = &parsed.rules[parsed.count];
        psrt_status_t rc = parse_entry(entry, rule);
        if (rc) return rc;
        rule->score = PSRTI_COLL_TUNE_SCORE - (int)parsed.count++;
        text += len + (text[len] == ',');
    }
    *tune = parsed;
    return PSRT_OK;
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
    static const char *const hosts[] = { [PSRTI_COLL_ONE_HOST] = "one",
                                         [PSRTI_COLL_FLAT] = "flat",
                                         [PSRTI_COLL_NESTED] = "nested",
                                         [PSRTI_COLL_MORE_HOSTS] = "several",
                                         [PSRTI_COLL_ANY_HOSTS] = "any" };
    char from[32], to[32] = "", ranks[32] = "any", score[16] = "tune";

    size_text(r->min_bytes, from, sizeof from);
    if (r->max_bytes != UINT64_MAX) size_text(r->max_bytes, to, sizeof to);
    if (r->max_ranks != UINT32_MAX)
        snprintf(ranks, sizeof ranks, "%u-%u", r->min_ranks, r->max_ranks);
    if (r->score <= PSRTI_COLL_TUNE_SCORE - (int)PSRTI_COLL_TUNE_RULES)
        snprintf(score, sizeof score, "%d", r->score);
    fprintf(out, "%-15s %-14s %6s  %-8s %-6s %s-%s\n", psrti_collective_name(r->collective),
            psrti_coll_algorithm_name(r->algorithm), score, hosts[r->hosts], ranks, from, to);
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
