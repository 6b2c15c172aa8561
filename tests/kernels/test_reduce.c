/* SPDX-License-Identifier: Apache-2.0 */
/* Every variant against a computation that shares no code with the kernels: elements as numbers, decoded and
 * rounded by arithmetic instead of bits. */
#include "kernels/reduce.h"

#include <stdlib.h>

#include "awkward.h"
#include "variants.h"

#define SOURCES 8
#ifndef MAX_COUNT
#define MAX_COUNT 65537
#endif
#define GUARD 128 /* bytes around dst that nobody may touch */
#define MEMORY ((MAX_COUNT + 64) / 64 * 64 * sizeof(double) + 4 * GUARD) /* a multiple of 64 */

static const psrt_dtype_t dtypes[] = { PSRT_F32, PSRT_F64, PSRT_F16, PSRT_BF16, PSRT_I32,
                                       PSRT_I64, PSRT_I8,  PSRT_I16, PSRT_U8 };
static const unsigned widths[] = { 1, 2, 3, 5, SOURCES };
static const uint64_t counts[] = { 0, 1, 7, 64, 1000, MAX_COUNT };

typedef struct reduction {
    psrt_dtype_t dtype;
    psrt_redop_t op;
    unsigned nsrc;
    uint64_t n;
    uint32_t ranks;
} reduction_t;

/* ---- 16-bit formats as numbers ----------------------------------------------------------------- */

typedef struct half_format {
    int mantissa, lowest,
        highest; /* bits; exponents of the smallest and the largest normal number */
} half_format_t;
static const half_format_t f16_format = { 10, -14, 15 }, bf16_format = { 7, -126, 127 };

static double half_value(const half_format_t *f, uint16_t bits)
{
    const int exponent = (bits & 0x7fff) >> f->mantissa, mantissa = bits & ((1 << f->mantissa) - 1);
    double v = exponent > f->highest - f->lowest + 1
                   ? (mantissa ? NAN : INFINITY)
                   : ldexp(mantissa + (exponent ? 1 << f->mantissa : 0),
                           (exponent ? exponent - 1 : 0) + f->lowest - f->mantissa);
    return bits & 0x8000 ? -v : v;
}

/* nearbyint rounds to the nearest, ties to even. */
static uint16_t half_bits(const half_format_t *f, double v)
{
    const int infinity = (f->highest - f->lowest + 2) << f->mantissa;
    if (isnan(v)) return (uint16_t)(infinity | 1 << (f->mantissa - 1));
    int bits = infinity, exponent = v == 0 || isinf(v) ? f->lowest : ilogb(v);
    if (exponent < f->lowest) exponent = f->lowest;
    if (!isinf(v) && exponent <= f->highest)
        bits = (int)nearbyint(ldexp(fabs(v), f->mantissa - exponent)) +
               ((exponent - f->lowest) << f->mantissa);
    return (uint16_t)(bits | (signbit(v) ? 0x8000 : 0));
}

static const half_format_t *format_of(psrt_dtype_t dtype)
{
    return dtype == PSRT_F16 ? &f16_format : dtype == PSRT_BF16 ? &bf16_format : NULL;
}

/* ---- the expectation --------------------------------------------------------------------------- */

static int is_floating(psrt_dtype_t dtype)
{
    return dtype == PSRT_F32 || dtype == PSRT_F64 || format_of(dtype);
}

static double float_at(psrt_dtype_t dtype, const void *array, uint64_t i)
{
    const half_format_t *half = format_of(dtype);
    return half ? half_value(half, ((const uint16_t *)array)[i]) : get(dtype, array, i);
}

static int64_t integer_at(psrt_dtype_t dtype, const void *array, uint64_t i)
{
    switch (dtype) {
    case PSRT_I8: return ((const int8_t *)array)[i];
    case PSRT_U8: return ((const uint8_t *)array)[i];
    case PSRT_I16: return ((const int16_t *)array)[i];
    case PSRT_I32: return ((const int32_t *)array)[i];
    default: return ((const int64_t *)array)[i];
    }
}

static void put_integer(psrt_dtype_t dtype, void *array, uint64_t i, int64_t v)
{
    memcpy((char *)array + i * psrt_dtype_size(dtype), &v, psrt_dtype_size(dtype)); /* low bytes */
}

static void put_float(psrt_dtype_t dtype, void *array, uint64_t i, double v)
{
    const half_format_t *half = format_of(dtype);
    const uint64_t quiet = dtype == PSRT_F64 ? 0x7ff8000000000000u : 0x7fc00000u;
    if (half)
        ((uint16_t *)array)[i] = half_bits(half, v);
    else if (isnan(v))
        put_integer(dtype, array, i, (int64_t)quiet);
    else
        put(dtype, array, i, v);
}

static double extreme(psrt_redop_t op, double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    const int a_below = a < b || (a == b && signbit(a));
    return (op == PSRT_MIN) == a_below ? a : b;
}

static double float_step(psrt_dtype_t dtype, psrt_redop_t op, double a, double b)
{
    if (op == PSRT_MIN || op == PSRT_MAX) return extreme(op, a, b);
    if (dtype == PSRT_F64) return op == PSRT_PROD ? a * b : a + b;
    return op == PSRT_PROD ? (float)a * (float)b : (float)a + (float)b;
}

static void expect_float(const reduction_t *r, void *out, const void *const *src, uint64_t i)
{
    double v = float_at(r->dtype, src[0], i);
    for (unsigned j = 1; j < r->nsrc; j++)
        v = float_step(r->dtype, r->op, v, float_at(r->dtype, src[j], i));
    if (r->op == PSRT_AVG && r->ranks)
        v = r->dtype == PSRT_F64 ? v / r->ranks : (float)v / (float)r->ranks;
    put_float(r->dtype, out, i, v);
}

static void expect_integer(const reduction_t *r, void *out, const void *const *src, uint64_t i)
{
    int64_t v = integer_at(r->dtype, src[0], i);
    for (unsigned j = 1; j < r->nsrc; j++) {
        const int64_t w = integer_at(r->dtype, src[j], i);
        switch (r->op) {
        case PSRT_PROD: v = (int64_t)((uint64_t)v * (uint64_t)w); break;
        case PSRT_MIN: v = w < v ? w : v; break;
        case PSRT_MAX: v = w > v ? w : v; break;
        default: v = (int64_t)((uint64_t)v + (uint64_t)w); break;
        }
    }
    if (r->op == PSRT_AVG && r->ranks) v /= (int64_t)r->ranks;
    put_integer(r->dtype, out, i, v);
}

static void expect(const reduction_t *r, void *out, const void *const *src)
{
    for (uint64_t i = 0; i < r->n; i++)
        (is_floating(r->dtype) ? expect_float : expect_integer)(r, out, src, i);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

/* Of 16 bits a third are any bits: NaN, infinities and denormals among them. */
static void fill(psrt_dtype_t dtype, void *array, uint64_t n, uint64_t seed)
{
    const half_format_t *half = format_of(dtype);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t bits = psrti_mix64(i * 31 + seed);
        if (half && bits % 3)
            ((uint16_t *)array)[i] = half_bits(half, awkward(i, seed) * 0x1p-13);
        else if (half || !is_floating(dtype))
            put_integer(dtype, array, i, (int64_t)(bits >> 8));
        else
            put(dtype, array, i, awkward(i, seed));
    }
}

typedef struct rig {
    const psrti_kernels_t *k;
    void *memory[SOURCES + 1];  /* what is reduced, and room for a result */
    const void *input[SOURCES]; /* as filled, which nobody changes */
    unsigned char *expected;
} rig_t;

static void *get_memory(void)
{
    void *p = aligned_alloc(64, MEMORY);
    cr_assert(p);
    return p;
}

static void rig_open(rig_t *rig)
{
    for (unsigned j = 0; j <= SOURCES; j++)
        rig->memory[j] = get_memory();
    for (unsigned j = 0; j < SOURCES; j++)
        rig->input[j] = get_memory();
    rig->expected = get_memory();
}

static void rig_close(rig_t *rig)
{
    for (unsigned j = 0; j <= SOURCES; j++)
        free(rig->memory[j]);
    for (unsigned j = 0; j < SOURCES; j++)
        free((void *)rig->input[j]);
    free(rig->expected);
}

/* ---- the checks -------------------------------------------------------------------------------- */

static void same(const rig_t *rig, const reduction_t *r, const void *got, const char *how)
{
    const size_t size = psrt_dtype_size(r->dtype);
    if (memcmp(got, rig->expected, r->n * size) == 0) return;
    for (uint64_t i = 0; i < r->n; i++) {
        uint64_t a = 0, b = 0;
        memcpy(&a, (const char *)got + i * size, size);
        memcpy(&b, rig->expected + i * size, size);
        cr_assert(a == b,
                  "%s %s of %s, %u sources, ranks %u, element %llu of %llu: %#llx, not %#llx (%s)",
                  rig->k->name, psrt_redop_name(r->op), psrt_dtype_name(r->dtype), r->nsrc,
                  r->ranks, (unsigned long long)i, (unsigned long long)r->n, (unsigned long long)a,
                  (unsigned long long)b, how);
    }
}

typedef void (*reduce_fn)(const psrti_kernels_t *k, psrt_dtype_t dtype, psrt_redop_t op, void *dst,
                          const void *const *src, unsigned nsrc, uint64_t n, uint32_t ranks);

/* Into a place of its own, `shift` elements off a line of the cache, sources up to the
 * end of their memory, where reading on is seen by sanitizers. */
static void check_apart(const rig_t *rig, const reduction_t *r, unsigned shift, reduce_fn reduce,
                        const char *how)
{
    const size_t size = psrt_dtype_size(r->dtype), bytes = r->n * size;
    const void *src[SOURCES];
    unsigned char *whole = rig->memory[SOURCES], *dst = whole + GUARD + shift * size;
    for (unsigned j = 0; j < r->nsrc; j++) {
        unsigned char *place = rig->memory[j];
        if (shift) place += MEMORY - bytes;
        memcpy(place, rig->input[j], bytes);
        src[j] = place;
    }
    memset(whole, 0xa5, GUARD + shift * size);
    memset(dst + bytes, 0xa5, GUARD);
    reduce(rig->k, r->dtype, r->op, dst, src, r->nsrc, r->n, r->ranks);
    same(rig, r, dst, how);
    for (unsigned char *p = whole; p < dst; p++)
        cr_assert_eq(*p, 0xa5, "%s: written before dst", how);
    for (unsigned char *p = dst + bytes; p < dst + bytes + GUARD; p++)
        cr_assert_eq(*p, 0xa5, "%s: written past dst", how);
    for (unsigned j = 0; j < r->nsrc; j++)
        cr_assert(memcmp(src[j], rig->input[j], bytes) == 0, "%s: source %u changed", how, j);
}

/* Into source `at`. */
static void check_in_place(const rig_t *rig, const reduction_t *r, unsigned at, reduce_fn reduce)
{
    const void *src[SOURCES];
    memcpy(rig->memory[at], rig->input[at], r->n * psrt_dtype_size(r->dtype));
    for (unsigned j = 0; j < r->nsrc; j++)
        src[j] = j == at ? rig->memory[at] : rig->input[j];
    reduce(rig->k, r->dtype, r->op, rig->memory[at], src, r->nsrc, r->n, r->ranks);
    same(rig, r, rig->memory[at], "in place");
}

/* Step by step, as algorithms over a network do. */
static void check_steps(const rig_t *rig, const reduction_t *r)
{
    const psrt_dtype_t acc = psrti_acc_dtype(r->dtype, r->op);
    if (r->op == PSRT_AVG && !r->ranks) return;
    psrti_widen(rig->k, r->dtype, r->op, rig->memory[0], rig->input[0], r->n);
    for (unsigned j = 1; j < r->nsrc; j++) {
        psrti_widen(rig->k, r->dtype, r->op, rig->memory[1], rig->input[j], r->n);
        psrti_fold(rig->k, acc, r->op, rig->memory[0], rig->memory[0], rig->memory[1], r->n);
    }
    psrti_narrow(rig->k, r->dtype, r->op, rig->memory[2], rig->memory[0], r->n, r->ranks);
    same(rig, r, rig->memory[2], "in steps");
    if (acc != r->dtype) return;
    psrti_narrow(rig->k, r->dtype, r->op, rig->memory[0], rig->memory[0], r->n, r->ranks);
    same(rig, r, rig->memory[0], "in steps, narrowed in place");
}

static void check_reduction(rig_t *rig, const reduction_t *r)
{
    expect(r, rig->expected, rig->input);
    for (const psrti_kernels_t *const *k = psrti_kernels_all(); *k; k++) {
        if (!(*k)->supported()) continue;
        rig->k = *k;
        check_apart(rig, r, 0, psrti_reduce, "apart");
        check_apart(rig, r, 3, psrti_reduce_stream, "streamed, misaligned");
        if (r->nsrc > 1) check_steps(rig, r);
        if (r->n > 1000) continue;
        check_apart(rig, r, 1, psrti_reduce, "misaligned");
        check_apart(rig, r, 0, psrti_reduce_stream, "streamed");
        for (unsigned at = 0; at < r->nsrc; at++) {
            check_in_place(rig, r, at, psrti_reduce);
            check_in_place(rig, r, at, psrti_reduce_stream);
        }
    }
}

static void check_dtype(rig_t *rig, psrt_dtype_t dtype)
{
    for (unsigned j = 0; j < SOURCES; j++)
        fill(dtype, (void *)rig->input[j], MAX_COUNT, j + 1);
    for (int op = PSRT_SUM; op <= PSRT_AVG; op++)
        for (size_t w = 0; w < PSRTI_COUNT(widths); w++)
            for (size_t c = 0; c < PSRTI_COUNT(counts); c++) {
                reduction_t r = { dtype, (psrt_redop_t)op, widths[w], counts[c], widths[w] };
                check_reduction(rig, &r);
            }
}

Test(reduce, all_types_operations_widths_and_counts)
{
    rig_t rig;
    rig_open(&rig);
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++)
        check_dtype(&rig, dtypes[t]);
    rig_close(&rig);
}

/* Sources may be partial sums of more ranks, and an average of 0 ranks is left undivided. */
Test(reduce, averages_over_other_numbers_of_ranks)
{
    static const uint32_t ranks[] = { 0, 1, 7, 1000000007 };
    rig_t rig;
    rig_open(&rig);
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        for (unsigned j = 0; j < 3; j++)
            fill(dtypes[t], (void *)rig.input[j], 1000, j + 11);
        for (size_t i = 0; i < PSRTI_COUNT(ranks); i++) {
            reduction_t r = { dtypes[t], PSRT_AVG, 3, 1000, ranks[i] };
            check_reduction(&rig, &r);
        }
    }
    rig_close(&rig);
}

/* Lengths around every boundary of vectors and turns. */
Test(reduce, all_short_counts)
{
    rig_t rig;
    rig_open(&rig);
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        for (unsigned j = 0; j < 3; j++)
            fill(dtypes[t], (void *)rig.input[j], 300, j + 21);
        for (uint64_t n = 0; n < 300; n++) {
            reduction_t r = { dtypes[t], n % 2 ? PSRT_MAX : PSRT_SUM, 3, n, 3 };
            check_reduction(&rig, &r);
        }
    }
    rig_close(&rig);
}

/* Every pair of special values, both ways round: the bits do not tell the order. */
static void check_order(const psrti_kernels_t *k)
{
    static const uint32_t special[] = {
        0,          0x80000000, 1,          0x80000001, 0x007fffff,
        0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
        0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0xffbfffff
    };
    enum { COUNT = PSRTI_COUNT(special), PAIRS = COUNT * COUNT };
    uint32_t a[PAIRS], b[PAIRS], ab[PAIRS], ba[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        a[i] = special[i / COUNT], b[i] = special[i % COUNT];
    for (int op = PSRT_SUM; op <= PSRT_AVG; op++) {
        psrti_fold(k, PSRT_F32, (psrt_redop_t)op, ab, a, b, PAIRS);
        psrti_fold(k, PSRT_F32, (psrt_redop_t)op, ba, b, a, PAIRS);
        for (int i = 0; i < PAIRS; i++) {
            const int nan = (ab[i] & 0x7fffffff) > 0x7f800000;
            cr_assert(ab[i] == ba[i], "%s %s of %#x and %#x: %#x, %#x", k->name,
                      psrt_redop_name((psrt_redop_t)op), a[i], b[i], ab[i], ba[i]);
            cr_assert(!nan || ab[i] == 0x7fc00000);
        }
    }
    psrti_fold(k, PSRT_F32, PSRT_MIN, ab, (float[]){ 0.0f }, (float[]){ -0.0f }, 1);
    psrti_fold(k, PSRT_F32, PSRT_MAX, ba, (float[]){ 0.0f }, (float[]){ -0.0f }, 1);
    cr_assert(ab[0] == 0x80000000 && ba[0] == 0);
}

Test(reduce, order_of_operands_does_not_show) { each_variant(check_order); }

/* Written out, for the definition's sake. */
static void check_integer_averages(const psrti_kernels_t *k)
{
    const int8_t a[] = { 127, -128, 3, -3, -1 }, b[] = { 127, -128, 4, -4, 0 };
    const int8_t mean[] = { 127, -128, 3, -3, 0 };
    const uint8_t c[] = { 255, 254 }, d[] = { 255, 255 };
    int8_t signed_result[5];
    uint8_t result[2];
    psrti_reduce(k, PSRT_I8, PSRT_AVG, signed_result, (const void *[]){ a, b }, 2, 5, 2);
    cr_assert(memcmp(signed_result, mean, sizeof mean) == 0, "%s", k->name);
    psrti_reduce(k, PSRT_U8, PSRT_AVG, result, (const void *[]){ c, d }, 2, 2, 2);
    cr_assert(result[0] == 255 && result[1] == 254, "%s", k->name);
}

Test(reduce, integer_averages_do_not_overflow_and_round_toward_zero)
{
    each_variant(check_integer_averages);
}

/* 2048 + 1 + 1 in f16 would stay 2048 if every step were rounded. */
static void check_rounds_once(const psrti_kernels_t *k)
{
    const uint16_t big = 0x6800, one = 0x3c00;
    uint16_t sum;
    psrti_reduce(k, PSRT_F16, PSRT_SUM, &sum, (const void *[]){ &big, &one, &one }, 3, 1, 0);
    cr_assert_eq(sum, 0x6801, "%s: %#x", k->name, sum);
}

Test(reduce, sixteen_bits_are_rounded_once) { each_variant(check_rounds_once); }

Test(reduce, types_of_partial_results)
{
    for (size_t t = 0; t < PSRTI_COUNT(dtypes); t++) {
        const psrt_dtype_t dtype = dtypes[t];
        const psrt_dtype_t sum = format_of(dtype) ? PSRT_F32 : dtype;
        cr_assert_eq(psrti_acc_dtype(dtype, PSRT_SUM), sum);
        cr_assert_eq(psrti_acc_dtype(dtype, PSRT_PROD), sum);
        cr_assert_eq(psrti_acc_dtype(dtype, PSRT_MIN), dtype);
        cr_assert_eq(psrti_acc_dtype(dtype, PSRT_MAX), dtype);
        cr_assert_eq(psrti_acc_dtype(dtype, PSRT_AVG), is_floating(dtype) ? sum : PSRT_I64);
    }
}
