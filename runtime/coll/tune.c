/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the user: PSRT_COLL_TUNE, a file that it names, or those of one communicator. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "runtime/coll/select.h"

#define RULE_MAX 128 /* longer than all names, sizes and conditions */
#define FILE_MAX (256u << 10)

typedef struct source {
    const char *name;
    unsigned line; /* 0: it has no lines */
} source_t;

static const char *const hosts_names[] = { [0] = "none",
                                           [PSRTI_COLL_ONE_HOST] = "one",
                                           [PSRTI_COLL_FLAT] = "flat",
                                           [PSRTI_COLL_ONE_HOST | PSRTI_COLL_FLAT] = "one or flat",
                                           [PSRTI_COLL_NESTED] = "nested",
                                           [PSRTI_COLL_ONE_HOST | PSRTI_COLL_NESTED] =
                                               "one or nested",
                                           [PSRTI_COLL_MORE_HOSTS] = "several",
                                           [PSRTI_COLL_ANY_HOSTS] = "any" };

const char *psrti_coll_hosts_name(int hosts) { return hosts_names[hosts]; }

__attribute__((format(printf, 2, 3))) static psrt_status_t bad(const source_t *from,
                                                               const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (from->line)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_COLL_TUNE: %s, line %u: %s", from->name,
                          from->line, text);
    return psrti_fail(PSRT_ERR_INVALID, "%s: %s", from->name, text);
}

/* The index of `word`, or `count` with an error text. */
static size_t find_name(const source_t *from, const char *kind, const char *word,
                        const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], word)) return i;
    const char *near = psrti_nearest(word, names, count);
    bad(from, "there is no %s \"%s\"%s%s%s", kind, word, near ? ", the nearest is \"" : "",
        near ? near : "", near ? "\"" : "");
    return count;
}

/* "from-to", "from-", "-to", "size" or "" into two numbers that are the widest range before. */
static int parse_range(char *word, uint64_t *from, uint64_t *to)
{
    char *dash = strchr(word, '-'), *end = dash ? dash + 1 : word;
    psrt_status_t rc = PSRT_OK;

    if (dash) *dash = 0;
    if (*word) rc = psrti_parse_size(word, from);
    if (!rc && *end) rc = psrti_parse_size(end, to);
    if (dash) *dash = '-';
    return !rc && *from <= *to;
}

static psrt_status_t set_rule(const source_t *from, const char *what, char *sizes, const char *how,
                              psrti_coll_rule_t *rule)
{
    size_t collective =
        find_name(from, "collective", what, psrti_collective_names, PSRTI_COLL_COUNT);
    if (collective == PSRTI_COLL_COUNT) return PSRT_ERR_INVALID;
    size_t algorithm =
        find_name(from, "algorithm", how, psrti_coll_algorithm_names, PSRTI_ALG_COUNT);
    if (algorithm == PSRTI_ALG_COUNT) return PSRT_ERR_INVALID;

    *rule = (psrti_coll_rule_t){ .collective = (psrti_collective_t)collective,
                                 .algorithm = (psrti_coll_algorithm_t)algorithm,
                                 .hosts = PSRTI_COLL_ANY_HOSTS,
                                 .min_ranks = 1,
                                 .max_ranks = UINT32_MAX,
                                 .max_bytes = UINT64_MAX };
    /* What needs a power of two does 4. */
    if (!psrti_coll_plan_exists(rule->collective, rule->algorithm, 4))
        return bad(from, "%s does not do %s; psrt-info coll lists what does", how, what);
    if (parse_range(sizes, &rule->min_bytes, &rule->max_bytes)) return PSRT_OK;
    return bad(from, "\"%s\" are no sizes; such are 64KiB-1MiB, 1MiB-, -4KiB", sizes);
}

/* Cuts `entry` at its colons. */
static psrt_status_t parse_rule(const source_t *from, char *entry, psrti_coll_rule_t *rule)
{
    char none[1] = "", *sizes = none;
    char *colon = strchr(entry, ':'), *last = strrchr(entry, ':');

    if (!colon || (colon != last && strchr(colon + 1, ':') != last))
        return bad(from, "\"%s\" is not collective:sizes:algorithm, such as allreduce:1MiB-:ring",
                   entry);
    *colon = *last = 0;
    if (colon != last) sizes = colon + 1;
    return set_rule(from, entry, sizes, last + 1, rule);
}

static psrt_status_t parse_ranks(const source_t *from, char *word, psrti_coll_rule_t *rule)
{
    uint64_t min = 1, max = UINT32_MAX;
    if (!*word || !parse_range(word, &min, &max) || max > UINT32_MAX || !max)
        return bad(from, "\"%s\" are no ranks; such are 4, 2-8, 9-", word);
    rule->min_ranks = (uint32_t)min;
    rule->max_ranks = (uint32_t)max;
    return PSRT_OK;
}

/* "ranks=4-8", "hosts=nested". */
static psrt_status_t parse_condition(const source_t *from, char *word, psrti_coll_rule_t *rule)
{
    if (!strncmp(word, "ranks=", 6)) return parse_ranks(from, word + 6, rule);
    if (strncmp(word, "hosts=", 6) != 0)
        return bad(from, "\"%s\" is neither ranks= nor hosts=", word);
    for (int i = 1; i <= PSRTI_COLL_ANY_HOSTS; i++)
        if (!strcmp(word + 6, hosts_names[i])) {
            rule->hosts = i;
            return PSRT_OK;
        }
    return bad(from, "\"%s\" is none of hosts=one, flat, nested, several, any", word);
}

static psrt_status_t parse_entry(const source_t *from, char *entry, psrti_coll_rule_t *rule)
{
    char *rest = NULL, *word = strtok_r(entry, " \t\r", &rest);
    psrt_status_t rc = parse_rule(from, word ? word : entry, rule);
    while (!rc && (word = strtok_r(NULL, " \t\r", &rest)) != NULL)
        rc = parse_condition(from, word, rule);
    return rc;
}

static uint32_t hash_of(const psrti_coll_tune_t *tune)
{
    uint64_t h = tune->count;
    for (size_t i = 0; i < tune->count; i++) {
        const psrti_coll_rule_t *r = &tune->rules[i];
        const uint64_t words[] = { (uint64_t)r->collective << 32 | (uint64_t)r->algorithm,
                                   (uint64_t)r->hosts, (uint64_t)r->min_ranks << 32 | r->max_ranks,
                                   r->min_bytes, r->max_bytes };
        for (size_t w = 0; w < PSRTI_COUNT(words); w++)
            h = psrti_mix64(h ^ psrti_mix64(words[w]));
    }
    return (uint32_t)(h ^ h >> 32);
}

/* Characters that belong to the rule that begins here; *next_p: where what follows begins. */
static size_t cut(const char *text, int is_file, const char **next_p)
{
    size_t len = strcspn(text, ",\n"), comment = strcspn(text, "#\n");
    if (is_file && comment <= len) len = comment;
    const char *end = text + len;
    if (*end == '#') end += strcspn(end, "\n");
    *next_p = *end == ',' ? end + 1 : end;
    return len;
}

static int is_blank(const char *text, size_t len) { return strspn(text, " \t\r") >= len; }

static psrt_status_t add_rule(const source_t *from, const char *text, size_t len,
                              psrti_coll_tune_t *tune)
{
    char entry[RULE_MAX];
    if (len >= sizeof entry || tune->count == PSRTI_COLL_TUNE_RULES)
        return bad(from, "a rule has at most %zu characters, and there are at most %u: %.40s",
                   sizeof entry - 1, PSRTI_COLL_TUNE_RULES, text);
    memcpy(entry, text, len);
    entry[len] = 0;
    psrti_coll_rule_t *rule = &tune->rules[tune->count];
    psrt_status_t rc = parse_entry(from, entry, rule);
    if (!rc) rule->score = PSRTI_COLL_TUNE_SCORE - (int)tune->count++;
    return rc;
}

psrt_status_t psrti_coll_tune_parse(const char *text, const char *from, int is_file,
                                    psrti_coll_tune_t *tune)
{
    source_t source = { .name = from, .line = is_file ? 1 : 0 };
    psrti_coll_tune_t *parsed = calloc(1, sizeof *parsed);
    psrt_status_t rc = PSRT_OK;

    if (!parsed) return psrti_fail(PSRT_ERR_NO_MEMORY, "%s: out of memory", from);
    while (!rc && text && *text) {
        const char *next;
        size_t len = cut(text, is_file, &next);
        if (!is_file || !is_blank(text, len)) rc = add_rule(&source, text, len, parsed);
        source.line += is_file && *next == '\n';
        text = *next == '\n' ? next + 1 : next;
    }
    if (!rc) {
        parsed->hash = hash_of(parsed);
        *tune = *parsed;
    }
    free(parsed);
    return rc;
}

/* The text of a file, to be freed; NULL with an error text. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? malloc(FILE_MAX + 1) : NULL;
    size_t len = text ? fread(text, 1, FILE_MAX + 1, file) : 0;
    int error = !file || (text && ferror(file)) ? errno : 0;

    if (file) fclose(file);
    if (text && !error && len <= FILE_MAX && !memchr(text, 0, len)) {
        text[len] = 0;
        return text;
    }
    free(text);
    psrti_fail(PSRT_ERR_INVALID, "PSRT_COLL_TUNE: cannot read %s: %s", path,
               error ? strerror(error) : "it is no text of at most 256 KiB");
    return NULL;
}

psrt_status_t psrti_coll_tune_load(const char *setting, psrti_coll_tune_t *tune)
{
    if (!setting || *setting != '@')
        return psrti_coll_tune_parse(setting, "PSRT_COLL_TUNE", 0, tune);
    char *text = read_file(setting + 1);
    if (!text) return PSRT_ERR_INVALID;
    psrt_status_t rc = psrti_coll_tune_parse(text, setting + 1, 1, tune);
    free(text);
    return rc;
}
