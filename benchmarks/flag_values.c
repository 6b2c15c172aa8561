/* SPDX-License-Identifier: Apache-2.0 */
#include "flag_values.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"

#define WORD_MAX 32

int bench_next_word(const char **list, char *word, size_t size)
{
    if (!*list) return 0;
    size_t len = strcspn(*list, ",");
    if (len >= size) return -1;
    memcpy(word, *list, len);
    word[len] = '\0';
    *list = (*list)[len] ? *list + len + 1 : NULL;
    return 1;
}

int bench_parse_name(const char *flag, const char *text, const char *const *names, size_t count,
                     unsigned *index_p)
{
    char all[256] = "";
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(names[i], text)) {
            *index_p = (unsigned)i;
            return 0;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    return bench_fail("--%s: \"%s\" is not one of %s", flag, text, all);
}

int bench_parse_names(const char *flag, const char *list, const char *const *names, size_t count,
                      unsigned *mask_p)
{
    char word[WORD_MAX];
    unsigned mask = 0, index = 0;
    int more;
    while ((more = bench_next_word(&list, word, sizeof word)) > 0) {
        if (bench_parse_name(flag, word, names, count, &index)) return -1;
        mask |= 1u << index;
    }
    if (more < 0) return bench_fail("--%s: a word is too long", flag);
    *mask_p = mask;
    return 0;
}

/* Only digits may start it. */
int bench_parse_bytes(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno || !value || value > BENCH_BYTES_LIMIT) return -1;
    unsigned shift = !*end ? 0 : !strcmp(end, "KiB") ? 10 : !strcmp(end, "MiB") ? 20 : 64;
    if (shift == 64 || value << shift > BENCH_BYTES_LIMIT) return -1;
    *out = value << shift;
    return 0;
}

int bench_parse_count(const char *flag, const char *text, uint32_t low, uint32_t high,
                      uint32_t *out)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || value < low || value > high)
        return bench_fail("--%s %s: not a number from %u to %u", flag, text, low, high);
    *out = (uint32_t)value;
    return 0;
}

int bench_parse_seconds(const char *flag, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (!isdigit((unsigned char)*text) || *end || !(value > 0 && value <= 3600))
        return bench_fail("--%s %s: not a number above 0, up to 3600", flag, text);
    *out = value;
    return 0;
}

int bench_parse_file(const char *flag, const char *text, const char **out)
{
    if (!*text) return bench_fail("--%s: the name is empty", flag);
    *out = text;
    return 0;
}
