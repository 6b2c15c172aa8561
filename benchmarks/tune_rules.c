/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tune.h"

/* A rule goes from the first size where its algorithm was fastest up to the next measured one. */
static void print_rule(FILE *out, const char *collective, const tune_best_t *best, size_t first,
                       size_t end, size_t count, const char *where)
{
    unsigned long long from = first ? best[first].bytes : 0;
    if (count == 1)
        fprintf(out, "%s::%s%s", collective, best->algorithm, where);
    else if (end == count)
        fprintf(out, "%s:%llu-:%s%s", collective, from, best[first].algorithm, where);
    else
        fprintf(out, "%s:%llu-%llu:%s%s", collective, from, (unsigned long long)best[end].bytes - 1,
                best[first].algorithm, where);
    fprintf(out, " #");
    for (size_t i = first; i < end; i++)
        fprintf(out, " %.4g us", best[i].us);
    fputc('\n', out);
}

void tune_print(FILE *out, const char *collective, const tune_best_t *best, size_t count,
                const char *where)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && !strcmp(best[end].algorithm, best[first].algorithm))
            end++;
        print_rule(out, collective, best, first, end, count, where);
    }
}
