/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers that know nothing of anything else. */
#ifndef PSRTI_BASE_UTIL_H
#define PSRTI_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <psrt/status.h>

#define PSRTI_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define PSRTI_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PSRTI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PSRTI_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PSRTI_NS_PER_S 1000000000ull
#define PSRTI_NS_PER_MS 1000000ull

/* Monotonic nanoseconds; wall-clock steps do not move it. */
uint64_t psrti_now_ns(void);

/* a * b into *out; false on overflow. */
static inline int psrti_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* 64-bit mix (splitmix64's finaliser), for hashes and seeds. */
static inline uint64_t psrti_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* FNV-1a 64 of bytes, then psrti_mix64. Test vectors in docs/wire-format.md. */
uint64_t psrti_hash_bytes(const void *data, size_t len);

/* CRC32C (Castagnoli), hardware when there is; psrti_crc32c(0, "123456789", 9) == 0xe3069283. */
uint32_t psrti_crc32c(uint32_t crc, const void *data, size_t len);
/* The table version, which the hardware one must equal. */
uint32_t psrti_crc32c_portable(uint32_t crc, const void *data, size_t len);

/* Philox4x32-10, counter-based: the same numbers wherever they are computed. */
void psrti_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Edit distance nearest of `names` to `word`, NULL when none is within 3. */
const char *psrti_nearest(const char *word, const char *const *names, size_t count);

/* The parsers write *out only on success and set no error text: callers name the variable. */
/* Strict decimal integer in [min, max]: no sign unless min < 0, no spaces, no trailing text. */
psrt_status_t psrti_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);
psrt_status_t psrti_parse_f64(const char *text, double *out); /* finite, whole text */
psrt_status_t psrti_parse_bool(const char *text, int *out);   /* 0 1 yes no true false on off */
/* "16MiB", "4k", "1048576", "12B": bytes, powers of 1024. */
psrt_status_t psrti_parse_size(const char *text, uint64_t *out);
/* "500ms", "5s", "2m", "1.5" (seconds) into nanoseconds; units ns us ms s m h. */
psrt_status_t psrti_parse_duration(const char *text, uint64_t *ns_out);

/* snprintf that appends at *pos; ERR_LIMIT when the text was cut. The buffer stays terminated. */
psrt_status_t psrti_append(char *buf, size_t size, size_t *pos, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
