/* SPDX-License-Identifier: Apache-2.0 */
/* What the arguments of flags have in common. Each returns 0, or -1 after it printed what is wrong. */
#ifndef BENCH_FLAG_VALUES_H
#define BENCH_FLAG_VALUES_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_BYTES_LIMIT ((uint64_t)1 << 30)

/* Splits `list` at commas into `word`; 1, 0 at the end, -1 when a word is too long. */
int bench_next_word(const char **list, char *word, size_t size);

/* A list of names, as a bit mask of their places in `names`. */
int bench_parse_names(const char *flag, const char *list, const char *const *names, size_t count,
                      unsigned *mask_p);
/* One name, as its place in `names`. */
int bench_parse_name(const char *flag, const char *text, const char *const *names, size_t count,
                     unsigned *index_p);

/* "4", "4KiB", "16MiB": 1 to BENCH_BYTES_LIMIT. Prints nothing. */
int bench_parse_bytes(const char *text, uint64_t *out);
int bench_parse_count(const char *flag, const char *text, uint32_t low, uint32_t high,
                      uint32_t *out);
int bench_parse_seconds(const char *flag, const char *text, double *out);
/* The name of a file. */
int bench_parse_file(const char *flag, const char *text, const char **out);

#endif
