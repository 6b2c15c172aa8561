/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "launcher/env.h"

#define NAME_MAX_LEN 255

typedef struct list {
    const char *text; /* the whole, for messages */
    char **names;
    size_t count, capacity;
} list_t;

static psrt_status_t malformed(const list_t *list, const char *at, const char *what)
{
    return psrti_fail(PSRT_ERR_INVALID, "host list \"%s\": %s at \"%s\"", list->text, what, at);
}

static psrt_status_t add(list_t *list, const char *name)
{
    if (list->count == PSRTI_HOSTLIST_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "host list \"%.64s...\": more than %d names",
                          list->text, PSRTI_HOSTLIST_MAX);
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->names = psrti_xrealloc(list->names, list->capacity * sizeof *list->names);
    }
    list->names[list->count++] = psrti_xstrdup(name);
    return PSRT_OK;
}

/* A number of a range, of at most nine digits; the first position behind it, NULL when there is none. */
static const char *number(const char *at, unsigned *value_p, int *width_p)
{
    const char *from = at;
    for (*value_p = 0; isdigit((unsigned char)*at) && at - from < 9; at++)
        *value_p = 10 * *value_p + (unsigned)(*at - '0');
    *width_p = (int)(at - from);
    return at == from || isdigit((unsigned char)*at) ? NULL : at;
}

static psrt_status_t expand(list_t *list, const char *at, const char *end, const char *prefix);

/* `at` stands behind '['; each number of the brackets goes between the prefix and the rest. */
static psrt_status_t expand_brackets(list_t *list, const char *at, const char *end,
                                     const char *prefix)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close) return malformed(list, at, "no ']'");
    while (at < close) {
        unsigned first, last;
        int width, ignored;
        const char *next = number(at, &first, &width);
        if (!next) return malformed(list, at, "no number");
        last = first;
        if (*next == '-' && !(next = number(next + 1, &last, &ignored)))
            return malformed(list, at, "no range of numbers");
        if (last < first) return malformed(list, at, "a range that goes down");
        if (*next != ',' && next != close) return malformed(list, next, "no ',' or ']'");
        for (unsigned n = first; n <= last; n++) {
            char longer[NAME_MAX_LEN + 1];
            if (snprintf(longer, sizeof longer, "%s%0*u", prefix, width, n) > NAME_MAX_LEN)
                return malformed(list, at, "too long a name");
            psrt_status_t st = expand(list, close + 1, end, longer);
            if (st) return st;
        }
        at = next + (*next == ',');
        if (*next == ',' && at == close) return malformed(list, next, "no number behind ','");
    }
    return close[-1] == '[' ? malformed(list, close - 1, "empty brackets") : PSRT_OK;
}

/* One entry, from `at` to `end`, behind a prefix that is already expanded. */
static psrt_status_t expand(list_t *list, const char *at, const char *end, const char *prefix)
{
    char name[NAME_MAX_LEN + 1];
    size_t plain = strcspn(at, "[],");
    const char *next = at + plain < end ? at + plain : end;
    if (snprintf(name, sizeof name, "%s%.*s", prefix, (int)(next - at), at) > NAME_MAX_LEN)
        return malformed(list, at, "too long a name");
    if (next < end && *next == '[') return expand_brackets(list, next + 1, end, name);
    if (next < end) return malformed(list, next, "unexpected sign");
    return *name ? add(list, name) : malformed(list, at, "an empty name");
}

/* Up to the next ',' outside of brackets. */
static const char *end_of_entry(const char *at)
{
    for (int depth = 0; *at && (*at != ',' || depth); at++)
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
    return at;
}

psrt_status_t psrti_hostlist_expand(const char *text, char ***names_p, size_t *count_p)
{
    list_t list = { .text = text };
    psrt_status_t st = PSRT_OK;
    for (const char *at = text, *end; !st; at = end + 1) {
        end = end_of_entry(at);
        st = expand(&list, at, end, "");
        if (!*end) break;
    }
    if (!st) {
        *names_p = list.names;
        *count_p = list.count;
        return PSRT_OK;
    }
    while (list.count)
        free(list.names[--list.count]);
    free(list.names);
    return st;
}

psrt_status_t psrti_hostlist_counts(const char *text, unsigned *counts, size_t count)
{
    size_t done = 0;
    const char *at = text;
    while (at) {
        unsigned value, times = 1;
        int width;
        const char *next = number(at, &value, &width);
        if (next && next[0] == '(' && next[1] == 'x') {
            next = number(next + 2, &times, &width);
            if (next) next = *next == ')' ? next + 1 : NULL;
        }
        if (!next || (*next && *next != ',') || times > count - done) break;
        while (times--)
            counts[done++] = value;
        at = *next ? next + 1 : NULL;
    }
    if (!at && done == count) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "\"%s\" does not give a number for each of %zu hosts", text,
                      count);
}
