/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include "benchmarks/stats.h"

Test(stats, percentile_is_nearest_rank)
{
    /* Example of Wikipedia's "Percentile", nearest-rank method. */
    const double sorted[] = { 15, 20, 35, 40, 50 };
    cr_assert_float_eq(bench_percentile(sorted, 5, 5), 15, 0);
    cr_assert_float_eq(bench_percentile(sorted, 5, 30), 20, 0);
    cr_assert_float_eq(bench_percentile(sorted, 5, 40), 20, 0);
    cr_assert_float_eq(bench_percentile(sorted, 5, 50), 35, 0);
    cr_assert_float_eq(bench_percentile(sorted, 5, 100), 50, 0);
    cr_assert_float_eq(bench_percentile(sorted, 5, 0), 15, 0);
    cr_assert_float_eq(bench_percentile(sorted, 1, 99), 15, 0);
}

Test(stats, percentile_of_many)
{
    double values[1000];
    for (int i = 0; i < 1000; i++)
        values[(i * 7) % 1000] = i; /* a permutation: 7 and 1000 have no common factor */
    bench_sort(values, 1000);
    cr_assert_float_eq(bench_percentile(values, 1000, 50), 499, 0);
    cr_assert_float_eq(bench_percentile(values, 1000, 99), 989, 0);
}

Test(stats, median)
{
    double odd[] = { 9, 1, 5 }, even[] = { 4, 1, 3, 2 }, one[] = { 8 };
    cr_assert_float_eq(bench_median(odd, 3), 5, 0);
    cr_assert_float_eq(bench_median(even, 4), 2.5, 0);
    cr_assert_float_eq(bench_median(one, 1), 8, 0);
}
