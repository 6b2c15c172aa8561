/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of the 16-bit formats. The expectation is computed in double, from the definition: a value
 * is a multiple of the unit of its exponent, and rounding is nearbyint. */
#include <stdlib.h>

#include "kernels/awkward.h"
#include "kernels/half_golden.h"
#include "kernels/variants.h"
#include "support/test.h"

typedef struct format {
    const char *name;
    int mantissa; /* bits, without the implicit one */
    int bias;
    const struct psrti_kernels_of_half *(*kernels)(const psrti_kernels_t *k);
} format_t;

static const struct psrti_kernels_of_half *f16_of(const psrti_kernels_t *k) { return &k->f16; }
static const struct psrti_kernels_of_half *bf16_of(const psrti_kernels_t *k) { return &k->bf16; }

static const format_t formats[] = { { "f16", 10, 15, f16_of }, { "bf16", 7, 127, bf16_of } };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exponent field of the infinities, in place. */
static unsigned infinity_of(const format_t *f) { return 0x8000u - (1u << f->mantissa); }

/* Finite; the one after the largest finite value is what would follow were there no infinity. */
static double value_of(const format_t *f, unsigned half)
{
    int exponent = (int)((half & 0x7fffu) >> f->mantissa);
    unsigned mantissa = half & ((1u << f->mantissa) - 1);
    double value = exponent ? ldexp(1 + ldexp(mantissa, -f->mantissa), exponent - f->bias)
                            : ldexp(mantissa, 1 - f->bias - f->mantissa);
    return half & 0x8000u ? -value : value;
}

/* Of a number that is no NaN. */
static unsigned rounded(const format_t *f, double value)
{
    unsigned sign = signbit(value) ? 0x8000u : 0;
    value = fabs(value);
    if (isinf(value)) return sign | infinity_of(f);
    int exponent = value > 0 ? ilogb(value) : 1 - f->bias;
    if (exponent < 1 - f->bias) exponent = 1 - f->bias; /* denormals share the least unit */
    double units = nearbyint(ldexp(value, f->mantissa - exponent));
    /* Fields are contiguous: a carry out of the mantissa, or into infinity, falls into place. */
    double half = units + ldexp(exponent + f->bias - 1, f->mantissa);
    return half >= infinity_of(f) ? sign | infinity_of(f) : sign | (unsigned)half;
}

static unsigned expected_half(const format_t *f, uint32_t bits)
{
    float value = float_of(bits);
    if (!isnan(value)) return rounded(f, value);
    unsigned payload = (bits & 0x7fffffu) >> (23 - f->mantissa);
    return (bits >> 16 & 0x8000u) | infinity_of(f) | 1u << (f->mantissa - 1) | payload;
}

/* The expectation itself, on numbers that everyone knows. */
Test(half, reference)
{
    cr_assert_eq(value_of(&formats[0], 0x3c00), 1.0);
    cr_assert_eq(value_of(&formats[0], 0x0001), 0x1p-24);
    cr_assert_eq(value_of(&formats[0], 0xfbff), -65504.0);
    cr_assert_eq(value_of(&formats[1], 0x3f80), 1.0);
    cr_assert_eq(value_of(&formats[1], 0x0001), 0x1p-133);
    cr_assert_eq(rounded(&formats[0], 65519.996), 0x7bffu);
    cr_assert_eq(rounded(&formats[0], 65520), 0x7c00u);
    cr_assert_eq(rounded(&formats[0], -0x1p-25), 0x8000u);
    cr_assert_eq(rounded(&formats[1], 3.140625), 0x4049u);
    for (size_t i = 0; i < PSRTI_COUNT(half_golden); i++)
        cr_assert_eq(expected_half(&formats[0], half_golden[i].f32), half_golden[i].f16);
}

/* ---- all values ------------------------------------------------------------------------------ */

static void check_to_f32_of(const psrti_kernels_t *k, const format_t *f)
{
    enum { ALL = 0x10000 };
    static uint16_t half[ALL];
    static float got[ALL];
    for (unsigned i = 0; i < ALL; i++)
        half[i] = (uint16_t)i;
    f->kernels(k)->to_f32(got, half, ALL);
    for (unsigned i = 0; i < ALL; i++) {
        if ((i & 0x7fffu) > infinity_of(f)) {
            cr_assert(isnan(got[i]) && !signbit(got[i]) == !(i & 0x8000u), "%s %s %04x", k->name,
                      f->name, i);
            continue;
        }
        double expected = (i & 0x7fffu) == infinity_of(f) ? INFINITY : value_of(f, i & 0x7fffu);
        if (i & 0x8000u) expected = -expected;
        cr_assert_eq(bits_of(got[i]), bits_of((float)expected), "%s %s %04x gives %g", k->name,
                     f->name, i, got[i]);
    }
}

static void check_to_f32(const psrti_kernels_t *k)
{
    for (size_t i = 0; i < PSRTI_COUNT(formats); i++)
        check_to_f32_of(k, &formats[i]);
}

Test(half, to_f32_of_all_values) { each_variant(check_to_f32); }

/* For each finite value from 0 up: itself, the f32 below the middle to the next, the middle, the f32
 * above it; then the same with a minus sign. The order is that of make_half_golden.py. */
static uint64_t put_halfway(const format_t *f, float *values)
{
    uint64_t n = 0;
    for (unsigned half = 0; half < infinity_of(f); half++) {
        uint32_t middle = bits_of((float)((value_of(f, half) + value_of(f, half + 1)) / 2));
        values[n++] = (float)value_of(f, half);
        for (uint32_t bits = middle - 1; bits != middle + 2; bits++)
            values[n++] = float_of(bits);
    }
    for (uint64_t i = 0; i < n; i++)
        values[n + i] = -values[i];
    return 2 * n;
}

/* Random bits: every exponent alike, and NaNs of many payloads, one value in 256. */
static uint64_t put_random(float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)psrti_mix64(i);
        memcpy(&values[i], &bits, sizeof bits); /* keeps a signalling NaN */
    }
    return n;
}

#define RANDOM 1000000
#define FROM_ROOM (8 * 0x8000 + RANDOM)

static void check_from_f32_of(const psrti_kernels_t *k, const format_t *f)
{
    float *values = malloc(FROM_ROOM * sizeof *values);
    uint16_t *got = malloc(FROM_ROOM * sizeof *got);
    cr_assert(values && got);
    uint64_t n = put_halfway(f, values);
    n += put_random(values + n, RANDOM);
    f->kernels(k)->from_f32(got, values, n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        unsigned expected = expected_half(f, bits);
        cr_assert_eq(got[i], expected, "%s %s of bits %08x is %04x, not %04x", k->name, f->name,
                     bits, got[i], expected);
    }
    free(values);
    free(got);
}

static void check_from_f32(const psrti_kernels_t *k)
{
    for (size_t i = 0; i < PSRTI_COUNT(formats); i++)
        check_from_f32_of(k, &formats[i]);
}

Test(half, from_f32_halfway_and_random, .timeout = 120) { each_variant(check_from_f32); }

/* ---- NumPy ----------------------------------------------------------------------------------- */

static void check_numpy_from(const psrti_kernels_t *k)
{
    float *values = malloc(FROM_ROOM * sizeof *values);
    uint16_t *got = malloc(FROM_ROOM * sizeof *got);
    cr_assert(values && got);
    for (size_t i = 0; i < PSRTI_COUNT(half_golden); i++)
        values[i] = float_of(half_golden[i].f32);
    k->f16.from_f32(got, values, PSRTI_COUNT(half_golden));
    for (size_t i = 0; i < PSRTI_COUNT(half_golden); i++)
        cr_assert_eq(got[i], half_golden[i].f16, "%s of bits %08x", k->name, half_golden[i].f32);

    uint64_t n = put_halfway(&formats[0], values), sum = 0;
    k->f16.from_f32(got, values, n);
    for (uint64_t i = 0; i < n; i++)
        sum += (i + 1) * got[i];
    cr_assert_eq(sum, half_golden_from_f32, "%s", k->name);
    free(values);
    free(got);
}

static void check_numpy_to(const psrti_kernels_t *k)
{
    static uint16_t half[0x10000];
    static float got[0x10000];
    uint64_t n = 0, sum = 0;
    for (unsigned i = 0; i < 0x10000; i++)
        if ((i & 0x7fffu) <= 0x7c00u) half[n++] = (uint16_t)i;
    k->f16.to_f32(got, half, n);
    for (uint64_t i = 0; i < n; i++)
        sum += (i + 1) * bits_of(got[i]);
    cr_assert_eq(sum, half_golden_to_f32, "%s", k->name);
}

Test(half, equals_numpy)
{
    each_variant(check_numpy_from);
    each_variant(check_numpy_to);
}

/* ---- lengths and alignment --------------------------------------------------------------------- */

#define MAX_N 257
#define MAX_SHIFT 8
#define ROOM (MAX_N + 2 * MAX_SHIFT)

static uint16_t half_at(uint64_t index, uint64_t seed)
{
    return (uint16_t)psrti_mix64(index * 13 + seed);
}

static double double_of(const format_t *f, uint16_t half)
{
    if ((half & 0x7fffu) > infinity_of(f)) return NAN;
    if ((half & 0x7fffu) == infinity_of(f)) return half & 0x8000u ? -INFINITY : INFINITY;
    return value_of(f, half);
}

static void check_wide_at(const psrti_kernels_t *k, const format_t *f, uint64_t n, unsigned shift)
{
    const unsigned from = MAX_SHIFT - 1 - shift;
    float a[ROOM], dst[ROOM], expected[ROOM];
    uint16_t half[ROOM];
    for (uint64_t i = 0; i < ROOM; i++)
        half[i] = half_at(i, 5);
    put_awkward(PSRT_F32, a, ROOM, 1);
    put_awkward(PSRT_F32, dst, ROOM, 3);
    put_awkward(PSRT_F32, expected, ROOM, 3);
    for (uint64_t i = 0; i < n; i++)
        expected[shift + i] = (float)double_of(f, half[from + i]);
    f->kernels(k)->to_f32(dst + shift, half + from, n);
    cr_assert_eq(first_difference(PSRT_F32, dst, expected, ROOM), ROOM, "%s %s to_f32 n=%d",
                 k->name, f->name, (int)n);

    for (uint64_t i = 0; i < n; i++)
        expected[shift + i] = a[i] + (float)double_of(f, half[from + i]);
    f->kernels(k)->add_to_f32(dst + shift, a, half + from, n);
    cr_assert_eq(first_difference(PSRT_F32, dst, expected, ROOM), ROOM, "%s %s add_to_f32 n=%d",
                 k->name, f->name, (int)n);

    put_awkward(PSRT_F32, expected, ROOM, 1);
    for (uint64_t i = 0; i < n; i++)
        expected[i] = a[i] + (float)double_of(f, half[from + i]);
    f->kernels(k)->add_to_f32(a, a, half + from, n);
    cr_assert_eq(first_difference(PSRT_F32, a, expected, ROOM), ROOM, "%s %s add in place n=%d",
                 k->name, f->name, (int)n);
}

static void check_narrow_at(const psrti_kernels_t *k, const format_t *f, uint64_t n, unsigned shift)
{
    const unsigned from = MAX_SHIFT - 1 - shift;
    float src[ROOM];
    uint16_t dst[ROOM], expected[ROOM];
    put_awkward(PSRT_F32, src, ROOM, 4);
    for (uint64_t i = 0; i < ROOM; i++)
        dst[i] = expected[i] = half_at(i, 6);
    for (uint64_t i = 0; i < n; i++)
        expected[shift + i] = (uint16_t)expected_half(f, bits_of(src[from + i]));
    f->kernels(k)->from_f32(dst + shift, src + from, n);
    cr_assert_arr_eq(dst, expected, sizeof dst, "%s %s from_f32 n=%d", k->name, f->name, (int)n);
}

static void check_ranges(const psrti_kernels_t *k)
{
    for (size_t i = 0; i < PSRTI_COUNT(formats); i++)
        for (uint64_t n = 0; n <= MAX_N; n++)
            for (unsigned shift = 0; shift < MAX_SHIFT; shift++) {
                check_wide_at(k, &formats[i], n, shift);
                check_narrow_at(k, &formats[i], n, shift);
            }
}

Test(half, lengths_and_alignment, .timeout = 120) { each_variant(check_ranges); }
