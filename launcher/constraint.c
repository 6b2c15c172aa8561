/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/constraint.h"

#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/util.h"

typedef enum value_rule {
    VALUE_NONE,
    VALUE_MAYBE_NUMBER,
    VALUE_NUMBER,
    VALUE_MAYBE,
    VALUE_TEXT,
    VALUE_REGEX
} value_rule_t;

static const struct operator
{
    const char *name;
    value_rule_t value;
}
operators[] = {
    { "UNIQUE", VALUE_NONE }, { "CLUSTER", VALUE_MAYBE }, { "GROUP_BY", VALUE_MAYBE_NUMBER },
    { "LIKE", VALUE_REGEX },  { "UNLIKE", VALUE_REGEX },  { "MAX_PER", VALUE_NUMBER },
    { "IS", VALUE_TEXT },
};

/* ---- regular expressions --------------------------------------------------------------------- */

/* Marathon's are Java's and match the whole text. The classes that POSIX lacks are written out;
 * groups that start with (? have no equivalent. */
static int translate(const char *java, char *posix, size_t size)
{
    size_t pos = 0;
    psrt_status_t st = psrti_append(posix, size, &pos, "^(");
    for (const char *c = java; *c && !st; c++) {
        if (c[0] == '(' && c[1] == '?') return 0;
        if (*c != '\\') {
            st = psrti_append(posix, size, &pos, "%c", *c);
            continue;
        }
        switch (*++c) {
        case 'd': st = psrti_append(posix, size, &pos, "[0-9]"); break;
        case 'w': st = psrti_append(posix, size, &pos, "[A-Za-z0-9_]"); break;
        case 's': st = psrti_append(posix, size, &pos, "[[:space:]]"); break;
        default:
            if (!*c || isalnum((unsigned char)*c)) return 0;
            st = psrti_append(posix, size, &pos, "\\%c", *c);
        }
    }
    return !st && !psrti_append(posix, size, &pos, ")$");
}

static int compile(const char *java, regex_t *regex)
{
    char posix[512];
    return translate(java, posix, sizeof posix) && !regcomp(regex, posix, REG_EXTENDED | REG_NOSUB);
}

static int matches(const char *java, const char *text)
{
    regex_t regex;
    if (!compile(java, &regex)) return 0;
    int result = !regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    return result;
}

/* ---- description ----------------------------------------------------------------------------- */

static psrt_status_t check_value(const struct operator* op, const char *value)
{
    int64_t number;
    regex_t regex;
    if (!value) {
        if (op->value == VALUE_NONE || op->value == VALUE_MAYBE || op->value == VALUE_MAYBE_NUMBER)
            return PSRT_OK;
        return psrti_fail(PSRT_ERR_INVALID, "%s needs a value", op->name);
    }
    switch (op->value) {
    case VALUE_NONE: return psrti_fail(PSRT_ERR_INVALID, "%s takes no value", op->name);
    case VALUE_NUMBER:
    case VALUE_MAYBE_NUMBER:
        if (!psrti_parse_i64(value, 1, PSRTI_JOB_TASKS_MAX, &number)) return PSRT_OK;
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a number from 1", op->name, value);
    case VALUE_REGEX:
        if (!compile(value, &regex))
            return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a regular expression (POSIX extended)",
                              op->name, value);
        regfree(&regex);
        return PSRT_OK;
    default: return PSRT_OK;
    }
}

static const struct operator* find_operator(const char *name)
{
    for (size_t i = 0; i < PSRTI_COUNT(operators); i++)
        if (!strcasecmp(name, operators[i].name)) return &operators[i];
    return NULL;
}

psrt_status_t psrti_role_add_constraint(psrti_role_t *role, char *const *words)
{
    if (!words[0] || !*words[0] || !words[1] || (words[2] && words[3]))
        return psrti_fail(PSRT_ERR_INVALID,
                          "a constraint is [field, operator] or [field, operator, value]");
    const struct operator* op = find_operator(words[1]);
    if (!op)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "%s: unknown operator; there are UNIQUE, CLUSTER, GROUP_BY, LIKE, UNLIKE, "
            "MAX_PER, IS",
            words[1]);
    psrt_status_t st = check_value(op, words[2]);
    if (st) return st;
    role->constraints =
        psrti_xrealloc(role->constraints, (role->constraint_count + 1) * sizeof *role->constraints);
    role->constraints[role->constraint_count++] = (psrti_constraint_t){
        .field = psrti_xstrdup(!strcmp(words[0], "@hostname") ? "hostname" : words[0]),
        .op = psrti_xstrdup(op->name),
        .value = words[2] ? psrti_xstrdup(words[2]) : NULL,
    };
    return PSRT_OK;
}

/* ---- judgement ------------------------------------------------------------------------------- */

const char *psrti_constraint_field(const psrti_host_t *host, const char *field)
{
    return strcmp(field, "hostname") ? psrti_env_get(&host->attributes, field) : host->name;
}

static int same(const char *a, const char *b) { return a && b && !strcmp(a, b); }

/* Tasks on hosts that have this value. */
static unsigned count_of(const psrti_constraint_t *c, const psrti_job_t *job, const unsigned *taken,
                         const char *value)
{
    unsigned count = 0;
    for (size_t i = 0; i < job->host_count; i++)
        if (same(psrti_constraint_field(&job->hosts[i], c->field), value)) count += taken[i];
    return count;
}

/* True for the first host with its value, to go over values. */
static int is_first_with(const psrti_constraint_t *c, const psrti_job_t *job, size_t host)
{
    const char *value = psrti_constraint_field(&job->hosts[host], c->field);
    for (size_t i = 0; i < host; i++)
        if (same(psrti_constraint_field(&job->hosts[i], c->field), value)) return 0;
    return value != NULL;
}

/* Spread evenly over at least N values, without a number over all that there are: a value that is
 * not used yet, or, when enough are, one that is used least. */
static int allows_group(const psrti_constraint_t *c, const psrti_job_t *job, const unsigned *taken,
                        const char *value)
{
    size_t there = 0, used = 0;
    unsigned least = UINT_MAX, count = count_of(c, job, taken, value);
    for (size_t i = 0; i < job->host_count; i++) {
        if (!is_first_with(c, job, i)) continue;
        unsigned n = count_of(c, job, taken, psrti_constraint_field(&job->hosts[i], c->field));
        there++;
        used += n > 0;
        if (n) least = PSRTI_MIN(least, n);
    }
    size_t wanted = c->value ? strtoul(c->value, NULL, 10) : there;
    return !count || (used >= wanted && count == least);
}

static int allows_cluster(const psrti_constraint_t *c, const psrti_job_t *job,
                          const unsigned *taken, const char *value)
{
    if (c->value) return same(value, c->value);
    for (size_t i = 0; i < job->host_count; i++)
        if (taken[i]) return same(psrti_constraint_field(&job->hosts[i], c->field), value);
    return 1;
}

int psrti_constraint_allows(const psrti_constraint_t *c, const psrti_job_t *job,
                            const unsigned *taken, const psrti_host_t *host)
{
    const char *value = psrti_constraint_field(host, c->field);
    if (!value) return !strcmp(c->op, "UNLIKE");
    if (!strcmp(c->op, "UNIQUE")) return !count_of(c, job, taken, value);
    if (!strcmp(c->op, "CLUSTER")) return allows_cluster(c, job, taken, value);
    if (!strcmp(c->op, "GROUP_BY")) return allows_group(c, job, taken, value);
    if (!strcmp(c->op, "LIKE")) return matches(c->value, value);
    if (!strcmp(c->op, "UNLIKE")) return !matches(c->value, value);
    if (!strcmp(c->op, "MAX_PER"))
        return count_of(c, job, taken, value) < strtoul(c->value, NULL, 10);
    return same(value, c->value); /* IS */
}
