/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of measured times, and the clock they are measured with. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

uint64_t bench_now(void); /* nanoseconds of the monotonic clock */

/* Sorts. */
void bench_sort(double *values, size_t count);
/* Nearest rank: the smallest value that at least `percent` of the sorted values do not exceed. */
double bench_percentile(const double *sorted, size_t count, double percent);
/* Sorts; the mean of the middle two when count is even. */
double bench_median(double *values, size_t count);

#endif
