/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/indices.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* A number at *text, which is moved behind it; false: there is none. */
static int take_number(const char **text, unsigned *out)
{
    size_t digits = strspn(*text, "0123456789");
    if (!digits || digits > 9) return 0;
    *out = (unsigned)strtoul(*text, NULL, 10);
    *text += digits;
    return 1;
}

/* A number or range, and the comma behind it. */
static int take_range(const char **text, unsigned *first, unsigned *last)
{
    if (!take_number(text, first)) return 0;
    *last = *first;
    if (**text == '-') {
        ++*text;
        if (!take_number(text, last) || *last < *first) return 0;
    }
    if (**text == ',') return *++*text != '\0';
    return **text == '\0';
}

int psrti_indices_valid(const char *list)
{
    unsigned first, last;
    if (!strcmp(list, "*")) return 1;
    do
        if (!take_range(&list, &first, &last)) return 0;
    while (*list);
    return 1;
}

unsigned psrti_indices_max(const char *list)
{
    unsigned first, last, max = 0;
    while (*list && take_range(&list, &first, &last))
        max = PSRTI_MAX(max, last);
    return max;
}

int psrti_indices_has(const char *list, unsigned index)
{
    unsigned first, last;
    if (!strcmp(list, "*")) return 1;
    while (*list && take_range(&list, &first, &last))
        if (index >= first && index <= last) return 1;
    return 0;
}
