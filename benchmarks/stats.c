/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

uint64_t bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count) { qsort(values, count, sizeof *values, compare); }

double bench_percentile(const double *sorted, size_t count, double percent)
{
    size_t rank = (size_t)ceil(percent / 100 * (double)count);
    return sorted[rank > 0 ? rank - 1 : 0];
}

double bench_median(double *values, size_t count)
{
    bench_sort(values, count);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
