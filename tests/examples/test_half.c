/* SPDX-License-Identifier: Apache-2.0 */
/* Every 16-bit number, and the middles between neighbours, against the formats' definitions. */
#include "support/test.h"

#include <math.h>

#include "examples/mnist_replica/half.h"

/* The number that the bits stand for, with its subnormals. */
static double value_of(uint16_t bits, int digits, int bias)
{
    int exponent = (bits & 0x7fff) >> (digits - 1), fraction = bits & ((1 << (digits - 1)) - 1);
    double x = exponent ? ldexp((1 << (digits - 1)) + fraction, exponent - bias - digits + 1)
                        : ldexp(fraction, 2 - bias - digits);
    return bits & 0x8000 ? -x : x;
}

static void check(int digits, int bias, void (*from)(const uint16_t *, float *, size_t),
                  void (*to)(const float *, uint16_t *, size_t))
{
    const uint16_t infinity = (uint16_t)((2 * bias + 1) << (digits - 1));
    for (unsigned bits = 0; bits < infinity; bits++) {
        uint16_t half = (uint16_t)bits, back = 1, up = (uint16_t)(bits + 1), even;
        float value, middle;
        from(&half, &value, 1);
        cr_assert_eq((double)value, value_of(half, digits, bias), "%04x", bits);
        to(&value, &back, 1);
        cr_assert_eq(back, half);
        value = -value;
        to(&value, &back, 1);
        cr_assert_eq(back, half | 0x8000);
        /* The step above the largest number has the size of the one below it. */
        double next = up == infinity ? 2 * value_of(half, digits, bias) -
                                           value_of((uint16_t)(half - 1), digits, bias)
                                     : value_of(up, digits, bias);
        middle = (float)((value_of(half, digits, bias) + next) / 2);
        even = bits % 2 ? up : half;
        to(&middle, &back, 1);
        cr_assert_eq(back, even, "the middle above %04x gave %04x", bits, back);
        middle = nextafterf(middle, INFINITY);
        to(&middle, &back, 1);
        cr_assert_eq(back, up, "just above the middle above %04x", bits);
    }
    uint16_t half = infinity, back = 0;
    float value;
    from(&half, &value, 1);
    cr_assert(isinf(value) && value > 0);
    value = -value;
    to(&value, &back, 1);
    cr_assert_eq(back, infinity | 0x8000);
    value = NAN;
    to(&value, &back, 1);
    cr_assert((back & infinity) == infinity && (back & 0x7fff) != infinity);
    from(&back, &value, 1);
    cr_assert(isnan(value));
}

Test(half, f16) { check(11, 15, half_from_f16, half_to_f16); }
Test(half, bf16) { check(8, 127, half_from_bf16, half_to_bf16); }
