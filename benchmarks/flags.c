/* SPDX-License-Identifier: Apache-2.0 */
#include "flags.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_LEN 32

int bench_fail(const char *format, ...)
{
    va_list args;
    fputs("psrt-bench: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return -1;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Levenshtein, one row of the matrix at a time. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1], b_len = strlen(b);
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_len];
}

const char *bench_nearest(const char *word, const void *names, size_t count, size_t stride)
{
    const char *best = NULL;
    size_t best_distance = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        if (strlen(name) > NAME_MAX_LEN) continue;
        size_t distance = edit_distance(word, name);
        if (distance > strlen(name) / 2 || (best && distance >= best_distance)) continue;
        best = name;
        best_distance = distance;
    }
    return best;
}

void bench_flags_print(const bench_flag_t *flags, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *doc = flags[i].doc;
        char head[64];
        snprintf(head, sizeof head, "--%s %s", flags[i].name, flags[i].arg);
        for (const char *lead = head; *doc; lead = "") {
            int len = (int)strcspn(doc, "\n");
            printf("  %-20s %.*s\n", lead, len, doc);
            doc += len + (doc[len] == '\n');
        }
    }
}

static int unknown(const bench_flag_t *flags, size_t count, const char *word)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (strncmp(name, "--", 2) != 0) {
        bench_fail("unexpected argument \"%s\"", name);
        return BENCH_USAGE;
    }
    const char *nearest = bench_nearest(name + 2, flags, count, sizeof *flags);
    if (nearest)
        bench_fail("unknown flag %s, did you mean --%s?", name, nearest);
    else
        bench_fail("unknown flag %s", name);
    return BENCH_USAGE;
}

static const bench_flag_t *find(const bench_flag_t *flags, size_t count, const char *word)
{
    size_t len = strcspn(word, "=");
    if (len < 3 || strncmp(word, "--", 2) != 0) return NULL;
    for (size_t i = 0; i < count; i++)
        if (strlen(flags[i].name) == len - 2 && !strncmp(flags[i].name, word + 2, len - 2))
            return &flags[i];
    return NULL;
}

int bench_flags_parse(const bench_flag_t *flags, size_t count, void *options, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const bench_flag_t *flag = find(flags, count, argv[i]);
        if (!flag) return unknown(flags, count, argv[i]);
        const char *text = strchr(argv[i], '=');
        if (text)
            text++;
        else if (i + 1 < argc)
            text = argv[++i];
        if (!text) {
            bench_fail("--%s needs an argument, %s", flag->name, flag->arg);
            return BENCH_USAGE;
        }
        if (flag->set(options, flag->name, text)) return BENCH_USAGE;
    }
    return BENCH_RUN;
}
