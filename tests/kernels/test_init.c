/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <stdlib.h>

#include "kernels/awkward.h"
#include "support/test.h"

#define N 100003u /* odd, so that no group of values ends with it */

static const uint64_t shape2[] = { 300, 500 };

static psrti_init_t *parsed_for(const char *spec, const char *name, int ndim, const uint64_t *shape)
{
    psrti_init_t *init = NULL;
    cr_assert_eq(psrti_init_parse(spec, name, ndim, shape, &init), PSRT_OK, "%s: %s", spec,
                 psrt_last_error());
    return init;
}

/* N values of element `first` on; the caller frees them. */
static void *values_of(const char *spec, const char *name, psrt_dtype_t dtype, uint64_t first)
{
    psrti_init_t *init = parsed_for(spec, name, 2, shape2);
    void *values = malloc(N * sizeof(double));
    cr_assert_not_null(values);
    psrti_init_fill(init, dtype, values, first, N);
    psrti_init_destroy(init);
    return values;
}

typedef struct moments {
    double mean, deviation, skew, kurtosis, low, high;
} moments_t;

static moments_t moments_of(psrt_dtype_t dtype, const void *values)
{
    moments_t m = { 0, 0, 0, 0, INFINITY, -INFINITY };
    for (uint64_t i = 0; i < N; i++) {
        double x = get(dtype, values, i);
        m.mean += x / N;
        m.low = fmin(m.low, x);
        m.high = fmax(m.high, x);
    }
    double square = 0, cube = 0, fourth = 0;
    for (uint64_t i = 0; i < N; i++) {
        double d = get(dtype, values, i) - m.mean;
        square += d * d / N, cube += d * d * d / N, fourth += d * d * d * d / N;
    }
    m.deviation = sqrt(square);
    m.skew = cube / (square * m.deviation);
    m.kurtosis = fourth / (square * square);
    return m;
}

static double correlation(psrt_dtype_t dtype, const void *a, const void *b, uint64_t lag)
{
    double sum = 0;
    moments_t x = moments_of(dtype, a), y = moments_of(dtype, b);
    for (uint64_t i = 0; i + lag < N; i++)
        sum += (get(dtype, a, i) - x.mean) * (get(dtype, b, i + lag) - y.mean);
    return sum / (double)(N - lag) / (x.deviation * y.deviation);
}

/* Bounds are five standard errors of N values; the values are fixed, so it never fails by
 * chance. */
static void check_uniform(const char *spec, double low, double high)
{
    for (psrt_dtype_t dtype = PSRT_F32; dtype <= PSRT_F64; dtype++) {
        void *v = values_of(spec, "table", dtype, 0);
        moments_t m = moments_of(dtype, v);
        double range = high - low, error = 5 / sqrt(N);
        cr_assert_float_eq(m.mean, (low + high) / 2, range * 0.289 * error, "%s mean", spec);
        cr_assert_float_eq(m.deviation, range / sqrt(12), range * 0.2 * error, "%s deviation",
                           spec);
        cr_assert_float_eq(m.kurtosis, 1.8, 3 * error, "%s kurtosis", spec);
        cr_assert(m.low >= (dtype == PSRT_F32 ? (double)(float)low : low) &&
                  m.low < low + range * 2e-4);
        cr_assert(m.high < high && m.high > high - range * 2e-4);
        for (uint64_t lag = 1; lag <= 4; lag++)
            cr_assert_float_eq(correlation(dtype, v, v, lag), 0, error, "%s lag", spec);
        free(v);
    }
}

Test(init, uniform_is_uniform)
{
    check_uniform("uniform:low=-2,high=6", -2, 6);
    check_uniform("uniform", -0.05, 0.05);
    check_uniform("uniform:low=1,high=1.5,seed=7", 1, 1.5);
    check_uniform("glorot", -sqrt(6.0 / 800), sqrt(6.0 / 800));
}

static void check_normal(const char *spec, double mean, double deviation)
{
    for (psrt_dtype_t dtype = PSRT_F32; dtype <= PSRT_F64; dtype++) {
        void *v = values_of(spec, "table", dtype, 0);
        moments_t m = moments_of(dtype, v);
        double error = 5 / sqrt(N);
        cr_assert_float_eq(m.mean, mean, deviation * error, "%s mean", spec);
        cr_assert_float_eq(m.deviation, deviation, deviation * 0.8 * error, "%s deviation", spec);
        cr_assert_float_eq(m.skew, 0, 2.5 * error, "%s skew", spec);
        cr_assert_float_eq(m.kurtosis, 3, 5 * error, "%s kurtosis", spec);
        cr_assert(m.high - mean > 3.8 * deviation && mean - m.low > 3.8 * deviation);
        for (uint64_t lag = 1; lag <= 4; lag++)
            cr_assert_float_eq(correlation(dtype, v, v, lag), 0, error, "%s lag", spec);
        free(v);
    }
}

Test(init, normal_is_normal)
{
    check_normal("normal:mean=3,std=2", 3, 2);
    check_normal("normal", 0, 0.05);
    check_normal("he:seed=5", 0, sqrt(2.0 / 300));
}

/* Any cut into pieces gives the values of the whole. */
static void check_pieces(const char *spec, psrt_dtype_t dtype, uint64_t start)
{
    size_t size = dtype == PSRT_F32 ? sizeof(float) : sizeof(double);
    char *whole = values_of(spec, "table", dtype, start), *pieces = malloc(N * size);
    psrti_init_t *init = parsed_for(spec, "table", 2, shape2);
    uint64_t first = 0, round = 0;
    while (first < N) {
        uint64_t n = psrti_mix64(round++) % 23;
        if (n > N - first) n = N - first;
        psrti_init_fill(init, dtype, pieces + first * size, start + first, n);
        first += n;
    }
    cr_assert_arr_eq(pieces, whole, N * size, "%s from %llu", spec, (unsigned long long)start);
    psrti_init_destroy(init);
    free(whole);
    free(pieces);
}

Test(init, pieces_equal_the_whole)
{
    static const char *const specs[] = { "uniform", "normal", "glorot", "he",
                                         "constant:value=2.5" };
    /* the last crosses the element where a 32-bit count would start again */
    static const uint64_t starts[] = { 0, 3, (UINT64_C(1) << 34) - 50001 };
    for (size_t s = 0; s < PSRTI_COUNT(specs); s++) {
        for (size_t i = 0; i < PSRTI_COUNT(starts); i++) {
            check_pieces(specs[s], PSRT_F32, starts[i]);
            check_pieces(specs[s], PSRT_F64, starts[i]);
        }
    }
}

static void check_unrelated(void *a, void *b, const char *what)
{
    cr_assert_float_eq(correlation(PSRT_F32, a, b, 0), 0, 5 / sqrt(N), "%s", what);
    free(b);
}

Test(init, names_seeds_and_elements_differ)
{
    void *a = values_of("uniform", "fc/weight", PSRT_F32, 0);
    check_unrelated(a, values_of("uniform", "fc/weight2", PSRT_F32, 0), "name");
    check_unrelated(a, values_of("uniform:seed=1", "fc/weight", PSRT_F32, 0), "seed");
    check_unrelated(a, values_of("uniform", "fc/weight", PSRT_F32, UINT64_C(1) << 34), "element");
    void *again = values_of("uniform:seed=0", "fc/weight", PSRT_F32, 0);
    cr_assert_arr_eq(a, again, N * sizeof(float), "the default seed is 0");
    free(a);
    free(again);
}

/* The definition, written out again: what a server of another version must give as well. */
Test(init, uniform_values_are_fixed)
{
    uint64_t key = psrti_mix64(psrti_hash_bytes("t", 1) ^ psrti_mix64(9));
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) }, word[4];
    psrti_init_t *init = parsed_for("uniform:low=0,high=1,seed=9", "t", 2, shape2);
    float f[4];
    double d[2];
    uint32_t counter32[4] = { 5, 1, 0, 4 }, counter64[4] = { 5, 1, 0, 2 };
    psrti_philox4x32(counter32, k, word);
    psrti_init_fill(init, PSRT_F32, f, 4 * ((UINT64_C(1) << 32) + 5), 4);
    for (int i = 0; i < 4; i++) {
        uint32_t top24 = word[i] / 256;
        cr_assert_eq(f[i], (float)top24 / 16777216.0f);
    }
    psrti_philox4x32(counter64, k, word);
    psrti_init_fill(init, PSRT_F64, d, 2 * ((UINT64_C(1) << 32) + 5), 2);
    for (int i = 0; i < 2; i++) {
        uint32_t top21 = word[2 * i] / 2048;
        cr_assert_eq(d[i], (word[2 * i + 1] * 2097152.0 + top21) / 9007199254740992.0);
    }
    psrti_init_destroy(init);
}

/* A range of one step of the type: rounding must not reach its end. */
Test(init, high_is_excluded)
{
    float *f = values_of("uniform:low=1,high=1.00000011920928955078125", "table", PSRT_F32, 0);
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(f[i], 1.0f);
    free(f);
    double *d = values_of("uniform:low=1,high=1.0000000000000002", "table", PSRT_F64, 0);
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(d[i], 1.0);
    free(d);
}

Test(init, constants)
{
    static const struct {
        const char *spec;
        double value;
    } cases[] = { { NULL, 0 }, { "zeros", 0 }, { "constant:value=-1.25", -1.25 }, { "rank0", 0 } };
    for (size_t c = 0; c < PSRTI_COUNT(cases); c++) {
        for (psrt_dtype_t dtype = PSRT_F32; dtype <= PSRT_F64; dtype++) {
            void *v = values_of(cases[c].spec, "table", dtype, 11);
            for (uint64_t i = 0; i < N; i++)
                cr_assert_eq(get(dtype, v, i), cases[c].value);
            free(v);
        }
        psrti_init_t *init = parsed_for(cases[c].spec, "table", 2, shape2);
        cr_assert_eq(psrti_init_is_rank0(init), c == 3);
        psrti_init_destroy(init);
    }
    psrti_init_destroy(NULL);
}

/* Fans by Keras' compute_fans, found through the limits they give. */
static void check_fans(int ndim, const uint64_t *shape, double fan_in, double fan_out)
{
    static double v[N];
    double limit = sqrt(6 / (fan_in + fan_out));
    psrti_init_t *init = parsed_for("glorot", "table", ndim, shape);
    psrti_init_fill(init, PSRT_F64, v, 0, N);
    psrti_init_destroy(init);
    moments_t m = moments_of(PSRT_F64, v);
    cr_assert(m.high <= limit && m.high > 0.999 * limit, "limit of %d dimensions", ndim);

    init = parsed_for("he", "table", ndim, shape);
    psrti_init_fill(init, PSRT_F64, v, 0, N);
    psrti_init_destroy(init);
    m = moments_of(PSRT_F64, v);
    cr_assert_float_eq(m.deviation / sqrt(2 / fan_in), 1, 0.02, "deviation of %d dimensions", ndim);
}

Test(init, fans_from_the_shape)
{
    check_fans(1, (const uint64_t[]){ 40 }, 40, 40);
    check_fans(2, (const uint64_t[]){ 784, 10 }, 784, 10);
    check_fans(3, (const uint64_t[]){ 5, 16, 32 }, 80, 160);
    check_fans(4, (const uint64_t[]){ 3, 5, 16, 64 }, 240, 960);
}

Test(init, bad_text_names_what_is_wrong)
{
    static const char *const bad[][2] = {
        { "glorott", "\"glorot\"?" },
        { "xavier_uniform_", "\"xavier_uniform_\" is unknown, there are: " },
        { "uniform:hihg=1", "\"high\"?" },
        { "uniform:low=1,high=1", "low" },
        { "uniform:low=-1e308,high=1e308", "range" },
        { "normal:std=-1", "std" },
        { "constant:value=big", "big" },
        { "zeros:value=1", "value" },
        { "glorot:seed=-1", "seed" },
        { "glorot:seed=1.5", "seed" },
        { "he:seed=1e17", "seed" },
        { "", "table fc/weight" },
    };
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        psrti_init_t *init = NULL;
        psrt_status_t status = psrti_init_parse(bad[i][0], "fc/weight", 2, shape2, &init);
        cr_assert_eq(status, PSRT_ERR_INVALID, "%s", bad[i][0]);
        cr_assert_null(init);
        cr_assert(strstr(psrt_last_error(), bad[i][1]), "%s: %s", bad[i][0], psrt_last_error());
        cr_assert(strstr(psrt_last_error(), "table fc/weight"), "%s", psrt_last_error());
    }
}
