/* SPDX-License-Identifier: Apache-2.0 */
/* Files with a limit: what is kept is the end of all that was written, in whole lines. */
#include "launcher/logfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "support/test.h"

#define LIMIT (64u << 10)
#define HALF (LIMIT / 2)
#define LINE_MAX_WHOLE (LIMIT / 16)
#define TOTAL (1u << 20)

static char dir[64], path[96], old[112], written[TOTAL + 2 * LIMIT];

static void set_up(void)
{
    snprintf(dir, sizeof dir, "/tmp/psrt-logfile-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    snprintf(old, sizeof old, "%s.1", path);
}

static void tear_down(void)
{
    unlink(path);
    unlink(old);
    rmdir(dir);
}

static size_t load(const char *name, char *buf)
{
    int fd = open(name, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, LIMIT);
    if (fd >= 0) close(fd);
    cr_assert(n >= 0 && n <= HALF, "%s has %zd bytes", name, n);
    return (size_t)n;
}

/* Of the first `len` bytes the last ones are there. Returns where the present file begins in them. */
static size_t check(size_t len)
{
    static char kept[2 * LIMIT];
    size_t first = load(old, kept), last = load(path, kept + first), count = first + last;
    cr_assert(len == 0 || last > 0);
    cr_assert(!first || count >= LIMIT * 7 / 16, "%zu bytes are left", count);
    cr_assert(first || count == len);
    cr_assert(count <= len && !memcmp(kept, written + len - count, count));
    return len - last;
}

static void put(psrti_logfile_t *file, size_t from, size_t len)
{
    cr_assert_eq(psrti_logfile_write(file, written + from, len), PSRT_OK, "%s", psrt_last_error());
}

static void fill_with_lines(unsigned *seed, size_t longest)
{
    for (size_t at = 0; at < TOTAL;) {
        size_t len = 1 + (size_t)rand_r(seed) % longest;
        for (size_t i = 0; i < len; i++)
            written[at + i] = (char)('a' + rand_r(seed) % 26);
        written[at + len - 1] = '\n';
        at += len;
    }
}

Test(logfile, lines_stay_whole_however_they_come, .init = set_up, .fini = tear_down)
{
    static const size_t pieces[] = { 1, 100, LINE_MAX_WHOLE, HALF, TOTAL };
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        unsigned seed = (unsigned)k + 1;
        psrti_logfile_t file;
        fill_with_lines(&seed, k % 2 ? LINE_MAX_WHOLE : 80);
        cr_assert_eq(psrti_logfile_open(&file, path, LIMIT), PSRT_OK);
        cr_assert_neq(access(old, F_OK), 0); /* that of the round before */
        for (size_t at = 0, len; at < TOTAL; at += len) {
            len = 1 + (size_t)rand_r(&seed) % pieces[k];
            if (len > TOTAL - at) len = TOTAL - at;
            put(&file, at, len);
            if (at % 16) continue;
            size_t begin = check(at + len);
            cr_assert(begin == 0 || written[begin - 1] == '\n', "cut at %zu", begin);
        }
        check(TOTAL);
        psrti_logfile_close(&file);
    }
}

Test(logfile, what_has_no_lines_is_cut, .init = set_up, .fini = tear_down)
{
    unsigned seed = 9;
    psrti_logfile_t file;
    for (size_t i = 0; i < TOTAL; i++)
        written[i] = (char)('a' + rand_r(&seed) % 26);
    cr_assert_eq(psrti_logfile_open(&file, path, LIMIT), PSRT_OK);
    put(&file, 0, HALF);
    cr_assert_eq(check(HALF), 0); /* no new one before there is something for it */
    put(&file, HALF, 1);
    cr_assert_eq(check(HALF + 1), HALF);
    put(&file, HALF + 1, TOTAL - HALF - 1);
    check(TOTAL);
    psrti_logfile_close(&file);
}

Test(logfile, a_long_line_begins_a_file, .init = set_up, .fini = tear_down)
{
    psrti_logfile_t file;
    memset(written, 'x', sizeof written);
    written[99] = '\n';
    cr_assert_eq(psrti_logfile_open(&file, path, LIMIT), PSRT_OK);
    put(&file, 0, 100);
    put(&file, 100, HALF);
    struct stat st;
    cr_assert(!stat(old, &st) && st.st_size == 100);
    cr_assert(!stat(path, &st) && st.st_size == HALF);
    psrti_logfile_close(&file);
}

Test(logfile, no_limit, .init = set_up, .fini = tear_down)
{
    psrti_logfile_t file;
    struct stat st;
    memset(written, '\n', sizeof written);
    cr_assert_eq(psrti_logfile_open(&file, path, 0), PSRT_OK);
    put(&file, 0, TOTAL);
    cr_assert(!stat(path, &st) && st.st_size == TOTAL);
    cr_assert_neq(access(old, F_OK), 0);
    psrti_logfile_close(&file);
}

Test(logfile, files_that_go_away, .init = set_up, .fini = tear_down)
{
    psrti_logfile_t file;
    memset(written, '\n', sizeof written);
    cr_assert_eq(psrti_logfile_open(&file, path, LIMIT), PSRT_OK);
    put(&file, 0, HALF);
    unlink(path); /* by the user: the next one begins all the same */
    put(&file, 0, HALF);
    put(&file, 0, 1);
    check(HALF + 1);
    unlink(path);
    unlink(old);
    rmdir(dir);
    put(&file, 0, HALF - 1);
    cr_assert_eq(psrti_logfile_write(&file, written, 1), PSRT_ERR_IO);
    cr_assert_eq(file.fd, -1);
    cr_assert_eq(psrti_logfile_write(&file, written, 1), PSRT_OK); /* nothing */
}
