/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define NEAREST_WITHIN 3
#define NEAREST_MAX_LEN 63

uint64_t psrti_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * PSRTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t psrti_hash_bytes(const void *data, size_t len)
{
    const uint8_t *byte = data;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3ull;
    return psrti_mix64(hash);
}

/* Levenshtein distance, one row at a time; both are at most NEAREST_MAX_LEN long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NEAREST_MAX_LEN + 1];
    size_t b_len = strlen(b);
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_len; j++) {
            size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = PSRTI_MIN(replaced, PSRTI_MIN(diagonal, row[j]) + 1);
        }
    }
    return row[b_len];
}

const char *psrti_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t best = NEAREST_WITHIN + 1;
    if (strlen(word) > NEAREST_MAX_LEN) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) > NEAREST_MAX_LEN) continue;
        size_t distance = edit_distance(word, names[i]);
        if (distance >= best || distance >= strlen(word)) continue; /* no letter in common */
        best = distance;
        nearest = names[i];
    }
    return nearest;
}

/* Reads decimal digits; the number of them, 0 when there are none or the value exceeds 64 bits. */
static size_t parse_digits(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    size_t n = 0;
    for (; text[n] >= '0' && text[n] <= '9'; n++) {
        if (!psrti_mul_u64(value, 10, &value)) return 0;
        if (__builtin_add_overflow(value, (uint64_t)(text[n] - '0'), &value)) return 0;
    }
    *out = value;
    return n;
}

psrt_status_t psrti_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    int negative = min < 0 && text[0] == '-';
    uint64_t magnitude;
    int64_t value;
    text += negative;
    size_t n = parse_digits(text, &magnitude);
    if (!n || text[n]) return PSRT_ERR_INVALID;
    if (negative ? __builtin_sub_overflow((int64_t)0, magnitude, &value)
                 : __builtin_add_overflow((int64_t)0, magnitude, &value))
        return PSRT_ERR_INVALID;
    if (value < min || value > max) return PSRT_ERR_INVALID;
    *out = value;
    return PSRT_OK;
}

static locale_t c_locale;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

psrt_status_t psrti_parse_f64(const char *text, double *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    /* strtod alone takes spaces, hex, inf and nan, and the decimal point of the host's locale. */
    if (!text[0] || text[strspn(text, "0123456789+-.eE")]) return PSRT_ERR_INVALID;
    pthread_once(&once, make_c_locale);
    if (!c_locale) return PSRT_ERR_NO_MEMORY;
    char *end;
    double value = strtod_l(text, &end, c_locale);
    if (end == text || *end || !isfinite(value)) return PSRT_ERR_INVALID;
    *out = value;
    return PSRT_OK;
}

psrt_status_t psrti_parse_bool(const char *text, int *out)
{
    static const char *const words[][2] = {
        { "0", "1" }, { "no", "yes" }, { "false", "true" }, { "off", "on" }
    };
    for (size_t i = 0; i < PSRTI_COUNT(words); i++) {
        for (int value = 0; value < 2; value++) {
            if (strcasecmp(text, words[i][value])) continue;
            *out = value;
            return PSRT_OK;
        }
    }
    return PSRT_ERR_INVALID;
}

/* "", "B", "k", "Ki", "KiB", ... into a shift; -1 for anything else. kB is refused: it means 1000
 * to some and 1024 to others. */
static int size_unit_shift(const char *unit)
{
    static const char letters[] = "kmgt";
    if (!unit[0] || !strcmp(unit, "B")) return 0;
    const char *letter = strchr(letters, tolower((unsigned char)unit[0]));
    if (!letter) return -1;
    if (unit[1] && strcmp(unit + 1, "i") && strcmp(unit + 1, "iB")) return -1;
    return 10 * (int)(letter - letters + 1);
}

psrt_status_t psrti_parse_size(const char *text, uint64_t *out)
{
    uint64_t count;
    size_t n = parse_digits(text, &count);
    if (!n) return PSRT_ERR_INVALID;
    int shift = size_unit_shift(text + n);
    if (shift < 0 || !psrti_mul_u64(count, 1ull << shift, &count)) return PSRT_ERR_INVALID;
    *out = count;
    return PSRT_OK;
}

/* Nanoseconds of a unit; 0 for anything else. */
static uint64_t duration_unit_ns(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = { { "", PSRTI_NS_PER_S },
                  { "ns", 1 },
                  { "us", 1000 },
                  { "ms", PSRTI_NS_PER_MS },
                  { "s", PSRTI_NS_PER_S },
                  { "m", 60 * PSRTI_NS_PER_S },
                  { "h", 3600 * PSRTI_NS_PER_S } };
    for (size_t i = 0; i < PSRTI_COUNT(units); i++)
        if (!strcmp(unit, units[i].name)) return units[i].ns;
    return 0;
}

/* In integers, so that "0.1s" is exactly 100 ms. Parts below a nanosecond are cut. */
psrt_status_t psrti_parse_duration(const char *text, uint64_t *ns_out)
{
    uint64_t whole, fraction = 0, scale = 1, ns;
    size_t n = parse_digits(text, &whole);
    if (!n) return PSRT_ERR_INVALID;
    text += n;
    if (*text == '.') {
        n = parse_digits(++text, &fraction);
        if (!n || n > 9) return PSRT_ERR_INVALID;
        for (size_t i = 0; i < n; i++)
            scale *= 10;
        text += n;
    }
    uint64_t unit = duration_unit_ns(text);
    if (!unit || !psrti_mul_u64(whole, unit, &ns) || !psrti_mul_u64(fraction, unit, &fraction))
        return PSRT_ERR_INVALID;
    if (__builtin_add_overflow(ns, fraction / scale, &ns)) return PSRT_ERR_INVALID;
    *ns_out = ns;
    return PSRT_OK;
}

psrt_status_t psrti_append(char *buf, size_t size, size_t *pos, const char *fmt, ...)
{
    if (*pos >= size) return PSRT_ERR_LIMIT;
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(buf + *pos, size - *pos, fmt, ap);
    va_end(ap);
    if (len < 0 || (size_t)len >= size - *pos) {
        *pos = size - 1;
        buf[*pos] = '\0';
        return PSRT_ERR_LIMIT;
    }
    *pos += (size_t)len;
    return PSRT_OK;
}
