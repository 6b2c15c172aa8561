/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <string.h>

#include "base/util.h"
#include "support/test.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define HELD 64

static int is_all(const uint8_t *at, uint64_t bytes, uint8_t value)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (at[i] != value) return 0;
    return 1;
}

/* Sizes on both sides of a page and of a huge page. */
static uint64_t some_bytes(uint32_t random)
{
    static const uint64_t bytes[] = { 1,           4096,    4097,        64 * KIB,   MIB - 1,
                                      2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB + 5 };
    return bytes[random % PSRTI_COUNT(bytes)];
}

Test(pages, each_has_its_own_zeroed_memory)
{
    psrti_pages_t pages = { 0 };
    uint8_t *at[HELD] = { 0 };
    uint64_t bytes[HELD] = { 0 };
    uint32_t random = 1;
    for (unsigned turn = 0; turn < 1000; turn++) {
        random = random * 1664525u + 1013904223u;
        unsigned i = random >> 26;
        if (at[i]) {
            cr_assert(is_all(at[i], bytes[i], (uint8_t)(i + 1)), "of another");
            psrti_pages_free(&pages, at[i]);
            at[i] = NULL;
            continue;
        }
        bytes[i] = some_bytes(random >> 8);
        at[i] = psrti_pages_alloc(&pages, bytes[i]);
        cr_assert_not_null(at[i]);
        cr_assert_eq((uintptr_t)at[i] % 4096, 0);
        cr_assert(bytes[i] < 2 * MIB || (uintptr_t)at[i] % (2 * MIB) == 0);
        cr_assert(is_all(at[i], bytes[i], 0));
        memset(at[i], (int)i + 1, bytes[i]);
    }
    for (unsigned i = 0; i < HELD; i++)
        if (at[i]) psrti_pages_free(&pages, at[i]);
    cr_assert_eq(pages.bytes, 0);
    cr_assert_null(pages.chunks);
}

Test(pages, little_for_little_and_few_mappings_for_much)
{
    psrti_pages_t pages = { 0 };
    cr_assert_not_null(psrti_pages_alloc(&pages, 1));
    cr_assert_eq(pages.bytes, 2 * MIB);
    for (unsigned i = 0; i < 100; i++)
        cr_assert_not_null(psrti_pages_alloc(&pages, MIB));
    cr_assert_leq(pages.bytes, (101 + 32) * MIB);
    psrti_pages_destroy(&pages);
    cr_assert_eq(pages.bytes, 0);
}

Test(pages, what_was_given_back_is_taken_again)
{
    psrti_pages_t pages = { 0 };
    cr_assert_not_null(psrti_pages_alloc(&pages, 4096));
    for (unsigned i = 0; i < 1000; i++) {
        void *a = psrti_pages_alloc(&pages, MIB), *b = psrti_pages_alloc(&pages, 512 * KIB);
        psrti_pages_free(&pages, a);
        psrti_pages_free(&pages, b);
    }
    cr_assert_eq(pages.bytes, 2 * MIB);
    psrti_pages_destroy(&pages);
}

Test(pages, what_nobody_has)
{
    psrti_pages_t pages = { 0 };
    cr_assert_null(psrti_pages_alloc(&pages, 0));
    cr_assert_null(psrti_pages_alloc(&pages, UINT64_MAX));
    cr_assert_null(psrti_pages_alloc(&pages, (uint64_t)1 << 60));
    cr_assert_eq(pages.bytes, 0);
}
