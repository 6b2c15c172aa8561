/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/mnist_replica/data.h"

#define COUNT 5

static char dir[64];
static char error[256];

static void put_u32(FILE *file, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(value >> shift & 255), file);
}

static void write_images(uint32_t count, uint32_t rows, uint32_t columns)
{
    char path[128];
    snprintf(path, sizeof path, "%s/some-images-idx3-ubyte", dir);
    FILE *file = fopen(path, "wb");
    put_u32(file, 0x803), put_u32(file, count), put_u32(file, rows), put_u32(file, columns);
    for (uint32_t i = 0; i < count * rows * columns; i++)
        fputc((int)(i % 251), file);
    fclose(file);
}

static void write_labels(uint32_t count, uint8_t last)
{
    char path[128];
    snprintf(path, sizeof path, "%s/some-labels-idx1-ubyte", dir);
    FILE *file = fopen(path, "wb");
    put_u32(file, 0x801), put_u32(file, count);
    for (uint32_t i = 0; i < count; i++)
        fputc(i + 1 == count ? last : (int)i, file);
    fclose(file);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/test_data.XXXXXX");
    cr_assert(mkdtemp(dir) != NULL);
    write_images(COUNT, 28, 28);
    write_labels(COUNT, 9);
}

static void remove_dir(void)
{
    char path[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/some-%s-ubyte", dir, i ? "labels-idx1" : "images-idx3");
        unlink(path);
    }
    rmdir(dir);
}

Test(data, load_and_gather, .init = make_dir, .fini = remove_dir)
{
    data_t data;
    float images[2 * IMAGE_PIXELS];
    uint8_t labels[2];
    const uint32_t order[] = { 4, 1 };
    cr_assert_eq(data_load(dir, "some", 0, &data, error, sizeof error), 0);
    cr_assert_eq(data.count, COUNT);
    data_gather(&data, order, 2, images, labels);
    cr_assert_eq(labels[0], 9);
    cr_assert_eq(labels[1], 1);
    for (uint32_t row = 0; row < 2; row++)
        for (uint32_t i = 0; i < IMAGE_PIXELS; i++) {
            double byte = (order[row] * IMAGE_PIXELS + i) % 251;
            cr_assert_float_eq(images[row * IMAGE_PIXELS + i], (byte / 255 - 0.2860) / 0.3530,
                               1e-5);
        }
    data_free(&data);
}

Test(data, limit, .init = make_dir, .fini = remove_dir)
{
    data_t data;
    cr_assert_eq(data_load(dir, "some", 3, &data, error, sizeof error), 0);
    cr_assert_eq(data.count, 3);
    data_free(&data);
    cr_assert_eq(data_load(dir, "some", 99, &data, error, sizeof error), 0);
    cr_assert_eq(data.count, COUNT);
    data_free(&data);
}

static void expect_refused(const char *why)
{
    data_t data;
    cr_assert_eq(data_load(dir, "some", 0, &data, error, sizeof error), -1);
    cr_assert(strstr(error, why) != NULL, "\"%s\" does not say \"%s\"", error, why);
}

Test(data, refused, .init = make_dir, .fini = remove_dir)
{
    write_labels(COUNT, 10);
    expect_refused("not in 0..9");
    write_labels(COUNT - 1, 3);
    expect_refused("one label for each");
    write_images(COUNT, 28, 29);
    expect_refused("28 x 28");
    write_images(COUNT, 56, 14); /* as many pixels, but not that shape */
    expect_refused("28 x 28");
}

Test(data, shuffle_is_a_permutation)
{
    enum { MANY = 1000 };
    uint32_t first[MANY], second[MANY], seen[MANY] = { 0 };
    data_shuffle(first, MANY, 7, 0);
    data_shuffle(second, MANY, 7, 0);
    cr_assert_eq(memcmp(first, second, sizeof first), 0);
    for (int i = 0; i < MANY; i++) {
        cr_assert(first[i] < MANY);
        cr_assert_eq(seen[first[i]]++, 0);
    }
    size_t at_home = 0; /* 1 on average */
    for (uint32_t i = 0; i < MANY; i++)
        at_home += first[i] == i;
    cr_assert(at_home < 20);
    data_shuffle(second, MANY, 7, 1);
    cr_assert(memcmp(first, second, sizeof first) != 0);
    data_shuffle(second, MANY, 8, 0);
    cr_assert(memcmp(first, second, sizeof first) != 0);
}
