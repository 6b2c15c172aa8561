/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <stdlib.h>

#include "kernels/awkward.h"
#include "kernels/cpu/cpu.h"
#include "kernels/variants.h"
#include "support/test.h"

#define MAX_N 257
#define MAX_SHIFT 8
#define ROOM (MAX_N + 2 * MAX_SHIFT)

/* Linked in place of kernels/cpu/features.c. */
static int hide_avx2, hide_avx512;
#if defined(__x86_64__)
int psrti_cpu_has_avx2(void) { return !hide_avx2 && __builtin_cpu_supports("avx2"); }

int psrti_cpu_has_avx512(void)
{
    return !hide_avx512 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
int psrti_cpu_has_avx2(void) { return hide_avx2 & 0; }

int psrti_cpu_has_avx512(void) { return hide_avx512 & 0; }
#endif

static const psrt_dtype_t dtypes[] = { PSRT_F32, PSRT_F64 };

static const struct psrti_kernels_of_type *of_type(const psrti_kernels_t *k, psrt_dtype_t dtype)
{
    return dtype == PSRT_F32 ? &k->f32 : &k->f64;
}

static void *at(psrt_dtype_t dtype, void *array, uint64_t i)
{
    return (char *)array + i * (dtype == PSRT_F32 ? sizeof(float) : sizeof(double));
}

/* One element, computed here. */
static double sum(psrt_dtype_t dtype, double a, double b)
{
    return dtype == PSRT_F32 ? (double)(float)((float)a + (float)b) : a + b;
}

static double quotient(psrt_dtype_t dtype, double a, double b)
{
    return dtype == PSRT_F32 ? (double)(float)((float)a / (float)b) : a / b;
}

typedef struct sums {
    psrt_dtype_t dtype;
    double a[ROOM], b[ROOM], dst[ROOM], expected[ROOM];
} sums_t;

/* dst = a + b with dst `to` and b `from` elements off; what is around dst keeps its bits. */
static void check_add_at(const psrti_kernels_t *k, sums_t *s, uint64_t n, unsigned to,
                         unsigned from)
{
    put_awkward(s->dtype, s->dst, ROOM, 3);
    put_awkward(s->dtype, s->expected, ROOM, 3);
    for (uint64_t i = 0; i < n; i++)
        put(s->dtype, s->expected, to + i,
            sum(s->dtype, get(s->dtype, s->a, i), get(s->dtype, s->b, from + i)));
    of_type(k, s->dtype)->add(at(s->dtype, s->dst, to), s->a, at(s->dtype, s->b, from), n);
    uint64_t i = first_difference(s->dtype, s->dst, s->expected, ROOM);
    cr_assert_eq(i, ROOM, "%s add n=%d dst+%u b+%u differs at %d", k->name, (int)n, to, from,
                 (int)i);
}

static void check_add(const psrti_kernels_t *k)
{
    static sums_t s;
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        s.dtype = dtypes[t];
        put_awkward(s.dtype, s.a, ROOM, 1);
        put_awkward(s.dtype, s.b, ROOM, 2);
        for (uint64_t n = 0; n <= MAX_N; n++)
            for (unsigned to = 0; to < MAX_SHIFT; to++)
                for (unsigned from = 0; from < MAX_SHIFT; from++)
                    check_add_at(k, &s, n, to, from);
    }
}

Test(kernels, add, .timeout = 120) { each_variant(check_add); }

static void check_add_in_place(const psrti_kernels_t *k)
{
    static sums_t s;
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        for (uint64_t n = 0; n <= MAX_N; n++) {
            psrt_dtype_t dtype = s.dtype = dtypes[t];
            put_awkward(dtype, s.a, ROOM, 1);
            put_awkward(dtype, s.b, ROOM, 2);
            put_awkward(dtype, s.expected, ROOM, 1);
            for (uint64_t i = 0; i < n; i++)
                put(dtype, s.expected, i, sum(dtype, get(dtype, s.a, i), get(dtype, s.b, i)));
            of_type(k, dtype)->add(s.a, s.a, s.b, n);
            cr_assert_eq(first_difference(dtype, s.a, s.expected, ROOM), ROOM);

            put_awkward(dtype, s.a, ROOM, 1);
            of_type(k, dtype)->add(s.b, s.a, s.b, n);
            cr_assert_eq(first_difference(dtype, s.b, s.expected, n), n);

            for (uint64_t i = 0; i < n; i++)
                put(dtype, s.expected, i, sum(dtype, get(dtype, s.a, i), get(dtype, s.a, i)));
            of_type(k, dtype)->add(s.a, s.a, s.a, n);
            cr_assert_eq(first_difference(dtype, s.a, s.expected, n), n);
        }
    }
}

Test(kernels, add_in_place, .timeout = 120) { each_variant(check_add_in_place); }

static double product(psrt_dtype_t dtype, double a, double b)
{
    return dtype == PSRT_F32 ? (double)(float)((float)a * (float)b) : a * b;
}

/* A kernel of an array and a number. */
typedef struct by_number {
    const char *name;
    size_t kernel; /* in struct psrti_kernels_of_type */
    double (*one)(psrt_dtype_t dtype, double a, double number);
    double in_place; /* number of the check in place */
} by_number_t;

static const by_number_t divide = { "divide", offsetof(struct psrti_kernels_of_type, divide),
                                    quotient, 3 };
static const by_number_t scale = { "scale", offsetof(struct psrti_kernels_of_type, scale), product,
                                   0.1 };

static void run(const by_number_t *op, const psrti_kernels_t *k, psrt_dtype_t dtype, void *dst,
                const void *src, double number, uint64_t n)
{
    void (*kernel)(void *, const void *, double, uint64_t);
    memcpy(&kernel, (const char *)of_type(k, dtype) + op->kernel, sizeof kernel);
    kernel(dst, src, number, n);
}

static void check_number_at(const by_number_t *op, const psrti_kernels_t *k, sums_t *s,
                            double number, uint64_t n, unsigned to, unsigned from)
{
    put_awkward(s->dtype, s->dst, ROOM, 3);
    put_awkward(s->dtype, s->expected, ROOM, 3);
    for (uint64_t i = 0; i < n; i++)
        put(s->dtype, s->expected, to + i,
            op->one(s->dtype, get(s->dtype, s->a, from + i), number));
    run(op, k, s->dtype, at(s->dtype, s->dst, to), at(s->dtype, s->a, from), number, n);
    uint64_t i = first_difference(s->dtype, s->dst, s->expected, ROOM);
    cr_assert_eq(i, ROOM, "%s %s n=%d by %g differs at %d", k->name, op->name, (int)n, number,
                 (int)i);
}

static void check_by_number(const by_number_t *op, const psrti_kernels_t *k)
{
    static const double numbers[] = { 3, 0.1, 1, -7e30, 1e-40, 0, INFINITY, NAN };
    static sums_t s;
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        s.dtype = dtypes[t];
        put_awkward(s.dtype, s.a, ROOM, 1);
        for (size_t d = 0; d < PSRTI_COUNT(numbers); d++)
            for (uint64_t n = 0; n <= MAX_N; n++)
                for (unsigned shift = 0; shift < MAX_SHIFT; shift++)
                    check_number_at(op, k, &s, numbers[d], n, shift, MAX_SHIFT - 1 - shift);
        put_awkward(s.dtype, s.expected, ROOM, 1);
        for (uint64_t i = 0; i < MAX_N; i++)
            put(s.dtype, s.expected, i, op->one(s.dtype, get(s.dtype, s.a, i), op->in_place));
        run(op, k, s.dtype, s.a, s.a, op->in_place, MAX_N);
        cr_assert_eq(first_difference(s.dtype, s.a, s.expected, ROOM), ROOM, "in place");
    }
}

static void check_divide(const psrti_kernels_t *k) { check_by_number(&divide, k); }
static void check_scale(const psrti_kernels_t *k) { check_by_number(&scale, k); }

Test(kernels, divide, .timeout = 120) { each_variant(check_divide); }
Test(kernels, scale, .timeout = 120) { each_variant(check_scale); }

/* ---- sums of squares ------------------------------------------------------------------------- */

/* Sizes whose sums round; a NaN, an infinity or an overflow would hide what the other lanes have. */
static double moderate(uint64_t i, uint64_t seed)
{
    double x = awkward(i, seed);
    return isfinite(x) && fabs(x) < 1e15 ? x : 0.1 * (double)i;
}

/* Lane j has the elements i with i % 16 == j, in their order. */
static void check_squares_of(const psrti_kernels_t *k, psrt_dtype_t dtype, const void *array,
                             unsigned first, uint64_t n)
{
    double lane[16] = { 0 }, total = 0;
    int nonfinite = 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = get(dtype, array, first + i);
        lane[i % 16] += x * x;
        nonfinite |= !isfinite(x);
    }
    for (int j = 0; j < 16; j++)
        total += lane[j];
    /* In two pieces, the first one of whole turns. */
    for (uint64_t cut = 0; cut <= n; cut += 48) {
        psrti_squares_t sum = { .nonfinite = 0 };
        of_type(k, dtype)->squares(&sum, at(dtype, (void *)array, first), cut);
        of_type(k, dtype)->squares(&sum, at(dtype, (void *)array, first + cut), n - cut);
        cr_assert_eq(first_difference(PSRT_F64, sum.lane, lane, 16), 16u, "%s n=%d+%d", k->name,
                     (int)n, first);
        double got = psrti_squares_total(&sum);
        cr_assert_eq(first_difference(PSRT_F64, &got, &total, 1), 1u, "%s n=%d", k->name, (int)n);
        cr_assert_eq(sum.nonfinite, nonfinite, "%s n=%d+%d", k->name, (int)n, first);
    }
}

static void check_squares(const psrti_kernels_t *k)
{
    static double array[ROOM];
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++)
        for (int awkward_ones = 0; awkward_ones < 2; awkward_ones++) {
            for (uint64_t i = 0; i < ROOM; i++)
                put(dtypes[t], array, i, awkward_ones ? awkward(i, 5) : moderate(i, 5));
            for (uint64_t n = 0; n <= MAX_N; n++)
                for (unsigned first = 0; first < MAX_SHIFT; first++)
                    check_squares_of(k, dtypes[t], array, first, n);
        }
}

Test(kernels, squares, .timeout = 120) { each_variant(check_squares); }

/* One of them anywhere is seen; what overflows only as a square is none. */
static void check_nonfinite(const psrti_kernels_t *k)
{
    static const double strange[] = { NAN, INFINITY, -INFINITY };
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++)
        for (uint64_t where = 0; where < 40; where++)
            for (size_t s = 0; s < PSRTI_COUNT(strange); s++) {
                double array[40];
                psrti_squares_t sum = { .nonfinite = 0 };
                for (uint64_t i = 0; i < 40; i++)
                    put(dtypes[t], array, i, dtypes[t] == PSRT_F32 ? (double)FLT_MAX : DBL_MAX);
                of_type(k, dtypes[t])->squares(&sum, array, 40);
                cr_assert_eq(sum.nonfinite, 0, "%s", k->name);
                put(dtypes[t], array, where, strange[s]);
                of_type(k, dtypes[t])->squares(&sum, array, 40);
                cr_assert_eq(sum.nonfinite, 1, "%s at %d", k->name, (int)where);
            }
}

Test(kernels, nonfinite) { each_variant(check_nonfinite); }

/* n equal contributions average to exactly that value. */
static void check_average(const psrti_kernels_t *k)
{
    for (unsigned workers = 1; workers <= 64; workers++) {
        float value = 3.0f, total = 0;
        for (unsigned w = 0; w < workers; w++)
            k->f32.add(&total, &total, &value, 1);
        k->f32.divide(&total, &total, workers, 1);
        cr_assert_eq(total, 3.0f, "%s: average of %u", k->name, workers);
    }
}

Test(kernels, average_of_equal_values) { each_variant(check_average); }

/* ---- integers -------------------------------------------------------------------------------- */

/* Modulo 2^64; every third number is at an end of the range. */
static uint64_t integer(uint64_t index, uint64_t seed)
{
    static const uint64_t special[] = {
        0, 1, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, INT32_MAX, (uint64_t)INT32_MIN
    };
    uint64_t bits = psrti_mix64(index * 17 + seed);
    return bits % 3 ? bits : special[(bits >> 8) % PSRTI_COUNT(special)];
}

/* The sum that two's complement gives, brought into the range by hand. */
static int32_t sum_i32(int32_t a, int32_t b)
{
    int64_t wide = (int64_t)a + b;
    if (wide > INT32_MAX) wide -= INT64_C(1) << 32;
    if (wide < INT32_MIN) wide += INT64_C(1) << 32;
    return (int32_t)wide;
}

static int64_t sum_i64(int64_t a, int64_t b)
{
    __int128 wide = (__int128)a + b;
    if (wide > INT64_MAX) wide -= (__int128)1 << 64;
    if (wide < INT64_MIN) wide += (__int128)1 << 64;
    return (int64_t)wide;
}

static void check_add_i32_at(const psrti_kernels_t *k, uint64_t n, uint64_t shift)
{
    int32_t a[ROOM], b[ROOM], dst[ROOM], expected[ROOM];
    for (uint64_t i = 0; i < ROOM; i++) {
        a[i] = (int32_t)integer(i, 1), b[i] = (int32_t)integer(i, 2);
        dst[i] = expected[i] = (int32_t)integer(i, 3);
    }
    for (uint64_t i = 0; i < n; i++)
        expected[shift + i] = sum_i32(a[i], b[i + 1]);
    k->add_i32(dst + shift, a, b + 1, n);
    cr_assert_arr_eq(dst, expected, sizeof dst, "%s add_i32 n=%d", k->name, (int)n);
    for (uint64_t i = 0; i < n; i++)
        expected[i] = sum_i32(a[i], b[i]);
    k->add_i32(a, a, b, n);
    cr_assert_arr_eq(a, expected, n * sizeof *a, "%s add_i32 n=%d in place", k->name, (int)n);
}

static void check_add_i64_at(const psrti_kernels_t *k, uint64_t n, uint64_t shift)
{
    int64_t a[ROOM], b[ROOM], dst[ROOM], expected[ROOM];
    for (uint64_t i = 0; i < ROOM; i++) {
        a[i] = (int64_t)integer(i, 1), b[i] = (int64_t)integer(i, 2);
        dst[i] = expected[i] = (int64_t)integer(i, 3);
    }
    for (uint64_t i = 0; i < n; i++)
        expected[shift + i] = sum_i64(a[i], b[i + 1]);
    k->add_i64(dst + shift, a, b + 1, n);
    cr_assert_arr_eq(dst, expected, sizeof dst, "%s add_i64 n=%d", k->name, (int)n);
    for (uint64_t i = 0; i < n; i++)
        expected[i] = sum_i64(a[i], b[i]);
    k->add_i64(a, a, b, n);
    cr_assert_arr_eq(a, expected, n * sizeof *a, "%s add_i64 n=%d in place", k->name, (int)n);
}

static void check_add_integers(const psrti_kernels_t *k)
{
    for (uint64_t n = 0; n <= MAX_N; n++)
        for (uint64_t shift = 0; shift < MAX_SHIFT; shift++) {
            check_add_i32_at(k, n, shift);
            check_add_i64_at(k, n, shift);
        }
}

Test(kernels, add_integers, .timeout = 120) { each_variant(check_add_integers); }

/* ---- copy ------------------------------------------------------------------------------------ */

#define PAGE 4096

static unsigned char byte_of(uint64_t i, uint64_t seed)
{
    return (unsigned char)psrti_mix64(i + (seed << 32));
}

typedef void copy_fn(void *dst, const void *src, uint64_t bytes);

static void check_copy_at(const char *name, copy_fn *copy, unsigned char *dst,
                          const unsigned char *src, uint64_t n, uint64_t to, uint64_t from,
                          uint64_t room)
{
    for (uint64_t i = 0; i < room; i++)
        dst[i] = byte_of(i, 2);
    copy(dst + to, src + from, n);
    for (uint64_t i = 0; i < room; i++) {
        int inside = i >= to && i < to + n;
        unsigned char expected = inside ? byte_of(from + i - to, 1) : byte_of(i, 2);
        cr_assert_eq(dst[i], expected, "%s copy n=%d to+%d from+%d: byte %d", name, (int)n, (int)to,
                     (int)from, (int)i);
    }
}

static void check_copies(const char *name, copy_fn *copy)
{
    static const uint64_t large[] = { 511,  512,  1023, 2047,      2048,       2049,
                                      2303, 2304, 4095, 4096 + 31, 8192 + 255, 3 * PAGE };
    const uint64_t room = 4 * PAGE;
    unsigned char *dst = aligned_alloc(PAGE, room), *src = aligned_alloc(PAGE, room);
    cr_assert(dst && src);
    for (uint64_t i = 0; i < room; i++)
        src[i] = byte_of(i, 1);
    for (uint64_t n = 0; n <= MAX_N; n++)
        for (uint64_t shift = 0; shift < MAX_SHIFT; shift++)
            check_copy_at(name, copy, dst, src, n, shift, 3 * shift % 8, MAX_N + MAX_SHIFT + 64);
    for (size_t i = 0; i < PSRTI_COUNT(large); i++)
        for (uint64_t to = 0; to < 36; to += 5)
            for (uint64_t from = 0; from < 36; from += 7)
                check_copy_at(name, copy, dst, src, large[i], to, from, room);
    free(dst);
    free(src);
}

static void check_copy(const psrti_kernels_t *k) { check_copies(k->name, k->copy); }

static void check_stream(const psrti_kernels_t *k) { check_copies(k->name, k->stream); }

Test(kernels, stream, .timeout = 120) { each_variant(check_stream); }

Test(kernels, copy, .timeout = 120) { each_variant(check_copy); }

static void check_nothing(const psrti_kernels_t *k)
{
    k->copy(NULL, NULL, 0);
    k->stream(NULL, NULL, 0);
    k->f32.add(NULL, NULL, NULL, 0);
    k->f64.add(NULL, NULL, NULL, 0);
    k->f32.divide(NULL, NULL, 2, 0);
    k->f64.divide(NULL, NULL, 2, 0);
    k->f32.scale(NULL, NULL, 2, 0);
    k->f64.scale(NULL, NULL, 2, 0);
    k->f32.squares(&(psrti_squares_t){ .nonfinite = 0 }, NULL, 0);
    k->f64.squares(&(psrti_squares_t){ .nonfinite = 0 }, NULL, 0);
    k->add_i32(NULL, NULL, NULL, 0);
    k->add_i64(NULL, NULL, NULL, 0);
    k->f16.to_f32(NULL, NULL, 0);
    k->f16.from_f32(NULL, NULL, 0);
    k->f16.add_to_f32(NULL, NULL, NULL, 0);
    k->bf16.to_f32(NULL, NULL, 0);
    k->bf16.from_f32(NULL, NULL, 0);
    k->bf16.add_to_f32(NULL, NULL, NULL, 0);
    cr_assert_str_not_empty(k->name);
}

Test(kernels, nothing_to_do) { each_variant(check_nothing); }

/* ---- selection and public entries ------------------------------------------------------------ */

static const char *best_name(void)
{
#if defined(__aarch64__)
    return "neon";
#else
    if (psrti_cpu_has_avx512()) return "avx512";
    return psrti_cpu_has_avx2() ? "avx2" : "scalar";
#endif
}

Test(kernels, best_first)
{
    const psrti_kernels_t *const *all = psrti_kernels_all(), *k = NULL;
    size_t count = 0;
    for (; all[count]; count++)
        if (count) cr_assert_lt(all[count]->score, all[count - 1]->score);
    cr_assert_str_eq(all[count - 1]->name, "scalar");

    for (int hidden = 0; hidden < 3; hidden++) {
        hide_avx512 = hidden > 0;
        hide_avx2 = hidden > 1;
        const char *best = best_name();
        cr_assert_eq(psrti_kernels_select(NULL, &k), PSRT_OK);
        cr_assert_str_eq(k->name, best);
        cr_assert_eq(psrti_kernels_select("", &k), PSRT_OK);
        cr_assert_str_eq(k->name, best);
    }
}

Test(kernels, select_by_name)
{
    const psrti_kernels_t *k = NULL;
    cr_assert_eq(psrti_kernels_select("scalar", &k), PSRT_OK);
    cr_assert_str_eq(k->name, "scalar");

    k = NULL;
    cr_assert_eq(psrti_kernels_select("scaler", &k), PSRT_ERR_INVALID);
    cr_assert_null(k);
    cr_assert(strstr(psrt_last_error(), "\"scaler\""), "%s", psrt_last_error());
    cr_assert(strstr(psrt_last_error(), "\"scalar\"?"), "%s", psrt_last_error());
    cr_assert_eq(psrti_kernels_select("quantum-computer", &k), PSRT_ERR_INVALID);
    cr_assert_null(strstr(psrt_last_error(), "did you mean"));
}

#if defined(__x86_64__)
Test(kernels, unsupported_variant)
{
    static const char *const names[] = { "avx2", "avx512" };
    hide_avx2 = hide_avx512 = 1;
    for (size_t i = 0; i < PSRTI_COUNT(names); i++) {
        const psrti_kernels_t *k = NULL;
        cr_assert_eq(psrti_kernels_select(names[i], &k), PSRT_ERR_INVALID);
        cr_assert_null(k);
        cr_assert(strstr(psrt_last_error(), names[i]), "%s", psrt_last_error());
        cr_assert(strstr(psrt_last_error(), "processor"), "%s", psrt_last_error());
    }
}
#endif

Test(kernels, public_entries)
{
    float a[1000], b[1000];
    for (int i = 0; i < 1000; i++)
        b[i] = 0.5f + (float)i, a[i] = -1;
    psrt_kernel_copy(a, b, sizeof a);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(a[i], 0.5f + (float)i);
    psrt_kernel_add_f32(a, b, 999);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(a[i], i < 999 ? 1 + 2 * (float)i : 999.5f);
}
