/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"

#include <locale.h>
#include <string.h>

#include "support/test.h"

Test(util, clock_does_not_go_back)
{
    uint64_t before = psrti_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = psrti_now_ns();
        cr_assert(now >= before);
        before = now;
    }
}

Test(util, multiplication_overflow)
{
    uint64_t out = 1;
    cr_assert(psrti_mul_u64(UINT64_MAX, 1, &out));
    cr_assert_eq(out, UINT64_MAX);
    cr_assert(psrti_mul_u64(0, UINT64_MAX, &out));
    cr_assert_eq(out, 0);
    cr_assert(!psrti_mul_u64(1ull << 32, 1ull << 32, &out));
}

/* FNV-1a's published vectors, put through splitmix64's finaliser by a program of its own. */
Test(util, hash_vectors)
{
    cr_assert_eq(psrti_mix64(0), 0xe220a8397b1dcdafull);
    cr_assert_eq(psrti_hash_bytes("", 0), 0xc3817c016ba4ff30ull);
    cr_assert_eq(psrti_hash_bytes("a", 1), 0x5f29c2aadd9b8527ull);
    cr_assert_eq(psrti_hash_bytes("foobar", 6), 0x5df295413403de4full);
    cr_assert_eq(psrti_hash_bytes("fc/weight", 9), 0x07c72c72aef8e978ull);
}

Test(util, nearest_name)
{
    static const char *const names[] = { "momentum", "adam", "sgd", "kitten" };
    cr_assert_str_eq(psrti_nearest("adam", names, 4), "adam");
    cr_assert_str_eq(psrti_nearest("adm", names, 4), "adam");
    cr_assert_str_eq(psrti_nearest("sitting", names, 4), "kitten");
    cr_assert_str_eq(psrti_nearest("momentun", names, 4), "momentum");
    cr_assert(psrti_nearest("momentxxxx", names, 4) == NULL);
    cr_assert(psrti_nearest("nothing like these", names, 4) == NULL);
    cr_assert(psrti_nearest("adam", names, 0) == NULL);
    cr_assert(psrti_nearest("xyz", (const char *const[]){ "sgd", "shm" }, 2) == NULL);
    cr_assert_str_eq(psrti_nearest("smh", (const char *const[]){ "shm", "sgd" }, 2), "shm");
}

Test(util, nearest_takes_words_of_any_length)
{
    static const char *const names[] = { "sgd" };
    char word[500];
    for (size_t len = 55; len < sizeof(word); len++) {
        memset(word, 'x', len);
        word[len] = '\0';
        cr_assert(psrti_nearest(word, names, 1) == NULL);
    }
}

Test(util, integers)
{
    static const char *const illegal[] = { "-1",
                                           "",
                                           " 2",
                                           "2 ",
                                           "abc",
                                           "2147483648",
                                           "+1",
                                           "0x1",
                                           "1.0",
                                           "1e3",
                                           "--1",
                                           "-",
                                           "2\n",
                                           "1_000",
                                           "18446744073709551616",
                                           "99999999999999999999999999" };
    int64_t value = 42;
    for (size_t i = 0; i < PSRTI_COUNT(illegal); i++)
        cr_assert_eq(psrti_parse_i64(illegal[i], 0, INT32_MAX, &value), PSRT_ERR_INVALID);
    cr_assert_eq(psrti_parse_i64("0", 1, 5, &value), PSRT_ERR_INVALID);
    cr_assert_eq(psrti_parse_i64("6", 1, 5, &value), PSRT_ERR_INVALID);
    cr_assert_eq(value, 42);
    cr_assert_eq(psrti_parse_i64("5", 1, 5, &value), PSRT_OK);
    cr_assert_eq(value, 5);
    cr_assert_eq(psrti_parse_i64("-1", -1, 5, &value), PSRT_OK);
    cr_assert_eq(value, -1);
    cr_assert_eq(psrti_parse_i64("007", 0, 9, &value), PSRT_OK);
    cr_assert_eq(value, 7);
}

Test(util, integers_at_the_ends_of_64_bits)
{
    int64_t value;
    cr_assert_eq(psrti_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &value), PSRT_OK);
    cr_assert_eq(value, INT64_MAX);
    cr_assert_eq(psrti_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &value), PSRT_OK);
    cr_assert_eq(value, INT64_MIN);
    cr_assert_eq(psrti_parse_i64("9223372036854775808", INT64_MIN, INT64_MAX, &value),
                 PSRT_ERR_INVALID);
    cr_assert_eq(psrti_parse_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &value),
                 PSRT_ERR_INVALID);
}

Test(util, reals)
{
    static const char *const illegal[] = { "",      " 1",    "1 ",    "nan", "inf", "-inf",
                                           "0x1p3", "1,5",   "1.5.2", "1e",  "e5",  ".",
                                           "-",     "1e999", "1f",    "--1" };
    double value = 42;
    for (size_t i = 0; i < PSRTI_COUNT(illegal); i++)
        cr_assert_eq(psrti_parse_f64(illegal[i], &value), PSRT_ERR_INVALID);
    cr_assert(value == 42);
    cr_assert_eq(psrti_parse_f64("-1.5", &value), PSRT_OK);
    cr_assert(value == -1.5);
    cr_assert_eq(psrti_parse_f64("1e-3", &value), PSRT_OK);
    cr_assert(value == 1e-3);
    cr_assert_eq(psrti_parse_f64(".25", &value), PSRT_OK);
    cr_assert(value == 0.25);
}

/* A host program may have set a locale with a decimal comma. */
Test(util, reals_do_not_follow_the_locale)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) cr_skip_test("no locale with a decimal comma here");
    double value = 0;
    cr_assert_eq(psrti_parse_f64("0.5", &value), PSRT_OK);
    cr_assert(value == 0.5);
}

Test(util, bools)
{
    static const char *const yes[] = { "1", "yes", "true", "on", "TRUE", "On" };
    static const char *const no[] = { "0", "no", "false", "off", "False", "OFF" };
    static const char *const illegal[] = { "", "2", "y", " 1", "truely", "01" };
    int value;
    for (size_t i = 0; i < PSRTI_COUNT(yes); i++) {
        value = 42;
        cr_assert_eq(psrti_parse_bool(yes[i], &value), PSRT_OK);
        cr_assert_eq(value, 1);
        cr_assert_eq(psrti_parse_bool(no[i], &value), PSRT_OK);
        cr_assert_eq(value, 0);
    }
    for (size_t i = 0; i < PSRTI_COUNT(illegal); i++)
        cr_assert_eq(psrti_parse_bool(illegal[i], &value), PSRT_ERR_INVALID);
}

Test(util, sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } legal[] = { { "0", 0 },
                  { "1048576", 1048576 },
                  { "12B", 12 },
                  { "4k", 4096 },
                  { "4K", 4096 },
                  { "4Ki", 4096 },
                  { "16MiB", 16777216 },
                  { "3g", 3221225472 },
                  { "1TiB", 1099511627776 },
                  { "16777215TiB", 18446742974197923840ull } };
    static const char *const illegal[] = { "",      "k",  "-1", "1.5M",      "4 k", "4kB",  "4kk",
                                           "4KiBB", " 4", "4P", "16777216T", "4Bi", "16mib" };
    uint64_t bytes;
    for (size_t i = 0; i < PSRTI_COUNT(legal); i++) {
        cr_assert_eq(psrti_parse_size(legal[i].text, &bytes), PSRT_OK);
        cr_assert_eq(bytes, legal[i].bytes);
    }
    bytes = 42;
    for (size_t i = 0; i < PSRTI_COUNT(illegal); i++)
        cr_assert_eq(psrti_parse_size(illegal[i], &bytes), PSRT_ERR_INVALID);
    cr_assert_eq(bytes, 42);
}

Test(util, durations)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } legal[] = { { "0", 0 },
                  { "7ns", 7 },
                  { "50us", 50000 },
                  { "500ms", 500000000 },
                  { "5s", 5000000000 },
                  { "5", 5000000000 },
                  { "2m", 120000000000 },
                  { "5h", 18000000000000 },
                  { "1.5", 1500000000 },
                  { "0.1s", 100000000 },
                  { "0.000000001", 1 },
                  { "1.9ns", 1 },
                  { "18446744073.709551615", UINT64_MAX } };
    static const char *const illegal[] = { "",
                                           "s",
                                           "-1s",
                                           "1.",
                                           ".5",
                                           "1.5.1",
                                           "5 s",
                                           "5sec",
                                           "5d",
                                           " 5",
                                           "1e3",
                                           "5ms ",
                                           "inf",
                                           "18446744073.709551616",
                                           "99999999999m",
                                           "0.0000000001" };
    uint64_t ns;
    for (size_t i = 0; i < PSRTI_COUNT(legal); i++) {
        cr_assert_eq(psrti_parse_duration(legal[i].text, &ns), PSRT_OK);
        cr_assert_eq(ns, legal[i].ns);
    }
    ns = 42;
    for (size_t i = 0; i < PSRTI_COUNT(illegal); i++)
        cr_assert_eq(psrti_parse_duration(illegal[i], &ns), PSRT_ERR_INVALID, "%s", illegal[i]);
    cr_assert_eq(ns, 42);
}

Test(util, append_tells_truncation)
{
    char buf[8];
    size_t pos = 0;
    cr_assert_eq(psrti_append(buf, sizeof(buf), &pos, "%s", "abc"), PSRT_OK);
    cr_assert_eq(psrti_append(buf, sizeof(buf), &pos, "%d", 1234), PSRT_OK);
    cr_assert_str_eq(buf, "abc1234");
    cr_assert_eq(psrti_append(buf, sizeof(buf), &pos, "x"), PSRT_ERR_LIMIT);
    cr_assert_eq(psrti_append(buf, sizeof(buf), &pos, "x"), PSRT_ERR_LIMIT);
    cr_assert_str_eq(buf, "abc1234");
    pos = 3;
    cr_assert_eq(psrti_append(buf, sizeof(buf), &pos, "efghijk"), PSRT_ERR_LIMIT);
    cr_assert_str_eq(buf, "abcefgh");
    cr_assert_eq(psrti_append(buf, 0, &(size_t){ 0 }, "x"), PSRT_ERR_LIMIT);
}
