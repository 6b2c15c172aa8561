/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "examples/mnist_replica/idx.h"

static char path[64];
static char error[256];

static void make_path(void)
{
    snprintf(path, sizeof path, "/tmp/test_idx.XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void remove_path(void) { unlink(path); }

static void write_file(const void *bytes, size_t count, int compressed)
{
    gzFile file = gzopen(path, compressed ? "wb" : "wbT"); /* T: as it is */
    cr_assert(file != NULL);
    cr_assert_eq(gzwrite(file, bytes, (unsigned)count), (int)count);
    cr_assert_eq(gzclose(file), Z_OK);
}

/* 2 x 3 bytes */
static const uint8_t good[] = { 0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 250 };

Test(idx, plain_and_gzip, .init = make_path, .fini = remove_path)
{
    for (int compressed = 0; compressed < 2; compressed++) {
        idx_t idx;
        write_file(good, sizeof good, compressed);
        cr_assert_eq(idx_read(path, &idx, error, sizeof error), 0);
        cr_assert_eq(idx.ndim, 2);
        cr_assert_eq(idx.dim[0], 2);
        cr_assert_eq(idx.dim[1], 3);
        cr_assert_eq(idx.bytes, 6);
        cr_assert_eq(memcmp(idx.data, good + 12, 6), 0);
        free(idx.data);
    }
}

static void expect_refused(const void *bytes, size_t count, const char *why)
{
    for (int compressed = 0; compressed < 2; compressed++) {
        idx_t idx = { .ndim = 77 };
        write_file(bytes, count, compressed);
        cr_assert_eq(idx_read(path, &idx, error, sizeof error), -1);
        cr_assert_eq(idx.ndim, 77); /* outputs only on success */
        cr_assert(strstr(error, path) != NULL);
        cr_assert(strstr(error, why) != NULL, "\"%s\" does not say \"%s\"", error, why);
    }
}

Test(idx, cut_off_anywhere, .init = make_path, .fini = remove_path)
{
    for (size_t count = 0; count < sizeof good; count++)
        expect_refused(good, count, "cut off");
}

Test(idx, damaged, .init = make_path, .fini = remove_path)
{
    uint8_t bytes[sizeof good + 1] = { 0 };
    memcpy(bytes, good, sizeof good);
    expect_refused(bytes, sizeof bytes, "after its last element");
    static const struct {
        size_t at;
        uint8_t value;
        const char *why;
    } cases[] = { { 0, 1, "not an IDX" },
                  { 1, 9, "not an IDX" },
                  { 3, 0, "not an IDX" },
                  { 3, 5, "not an IDX" },
                  { 2, 13, "not one of unsigned bytes" },
                  { 7, 0, "extent" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bytes, good, sizeof good);
        bytes[cases[i].at] = cases[i].value;
        expect_refused(bytes, sizeof good, cases[i].why);
    }
    /* 0xff000002 x 0xff000003 elements: refused before anything is allocated. */
    memcpy(bytes, good, sizeof good);
    bytes[4] = bytes[8] = 0xff;
    expect_refused(bytes, sizeof good, "extent");
}

Test(idx, truncated_gzip, .init = make_path, .fini = remove_path)
{
    uint8_t noise[4096 + 8] = { 0, 0, 8, 1, 0, 0, 0x10, 0 };
    idx_t idx;
    uint32_t state = 1;
    for (size_t i = 8; i < sizeof noise; i++)
        noise[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    write_file(noise, sizeof noise, 1);
    cr_assert_eq(truncate(path, 2000), 0);
    cr_assert_eq(idx_read(path, &idx, error, sizeof error), -1);
    cr_assert(strstr(error, "cut off or damaged") != NULL, "%s", error);
}

Test(idx, missing)
{
    idx_t idx;
    cr_assert_eq(idx_read("/nonexistent/file", &idx, error, sizeof error), -1);
    cr_assert_str_eq(error, "/nonexistent/file: No such file or directory");
}
