/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/merge.h"

#include <stdio.h>
#include <string.h>

#include "launcher/tail.h"
#include "support/test.h"

#define TASKS 100

static char told[8][1024];
static size_t told_count;

static const char *name_of(void *arg, size_t task)
{
    static char names[TASKS][8];
    (void)arg;
    snprintf(names[task], sizeof names[task], "w:%zu", task);
    return names[task];
}

static void on_told(void *arg, const char *text)
{
    (void)arg;
    cr_assert(told_count < 8);
    snprintf(told[told_count++], sizeof told[0], "%s", text);
}

static psrti_merge_t *create(void)
{
    told_count = 0;
    return psrti_merge_create(TASKS, name_of, on_told, NULL);
}

static int say(psrti_merge_t *m, uint64_t now, size_t task, const char *line)
{
    return psrti_merge_line(m, now, task, line, strlen(line));
}

Test(merge, lines_of_others_are_counted)
{
    psrti_merge_t *m = create();
    cr_assert(!say(m, 1000, 3, "no memory"));
    cr_assert(say(m, 1001, 1, "no memory"));
    cr_assert(!say(m, 1002, 1, "no memory 2"));
    cr_assert(say(m, 1400, 64, "no memory"));
    cr_assert(psrti_merge_tick(m, 1999));
    cr_assert_eq(told_count, 0);
    cr_assert(psrti_merge_tick(m, 2000)); /* the other line is still kept */
    cr_assert_eq(told_count, 1);
    cr_assert_str_eq(told[0], "w:1, w:64 wrote the same as w:3: no memory");
    cr_assert(!psrti_merge_tick(m, 2002));
    cr_assert_eq(told_count, 1);              /* nobody else said that one */
    cr_assert(!say(m, 2003, 1, "no memory")); /* news again */
    psrti_merge_destroy(m);
}

Test(merge, who_repeats_itself_is_shown)
{
    psrti_merge_t *m = create();
    for (int i = 0; i < 5; i++)
        cr_assert(!say(m, 0, 0, "step"));
    cr_assert(say(m, 0, 1, "step"));
    cr_assert(!say(m, 0, 1, "step"));
    cr_assert(!say(m, 0, 1, ""));
    cr_assert(!say(m, 0, 2, ""));
    psrti_merge_flush(m);
    cr_assert_eq(told_count, 1);
    psrti_merge_destroy(m);
}

Test(merge, a_traceback_is_told_as_one)
{
    static const char *const lines[] = { "Traceback", "  File x", "ValueError" };
    psrti_merge_t *m = create();
    for (size_t task = 0; task < 50; task++)
        for (size_t i = 0; i < 3; i++)
            cr_assert_eq(say(m, 5, task, lines[i]), task != 0);
    psrti_merge_flush(m);
    cr_assert_eq(told_count, 1);
    cr_assert_str_eq(told[0],
                     "w:1, w:2, w:3, w:4, w:5, w:6, w:7, w:8 and 41 more wrote the same as "
                     "w:0, 3 lines from here: Traceback");
    psrti_merge_destroy(m);
}

Test(merge, many_different_lines)
{
    char line[32];
    psrti_merge_t *m = create();
    for (size_t i = 0; i < 5000; i++) {
        snprintf(line, sizeof line, "line %zu", i);
        cr_assert(!say(m, 5, i % 2, line));
        if (i == 7) cr_assert(say(m, 5, 5, line));
    }
    cr_assert_eq(told_count, 1); /* when its place was needed */
    psrti_merge_destroy(m);
}

Test(tail, keeps_the_end_from_the_start_of_a_line)
{
    psrti_tail_t tail = { 0 };
    char line[32], last[16];
    psrti_tail_last_line(&tail, last, sizeof last);
    cr_assert_str_eq(last, "");
    for (int i = 0; i < 20000; i++) {
        snprintf(line, sizeof line, "line %d\n", i);
        psrti_tail_add(&tail, line, strlen(line));
        cr_assert(tail.len <= 2 * PSRTI_TAIL_MAX);
    }
    cr_assert(tail.len >= PSRTI_TAIL_MAX - 16);
    cr_assert(!memcmp(tail.data, "line ", 5));
    cr_assert(!memcmp(tail.data + tail.len - 11, "line 19999\n", 11));
    psrti_tail_last_line(&tail, last, sizeof last);
    cr_assert_str_eq(last, "line 19999");
    static char much[3 * PSRTI_TAIL_MAX];
    memset(much, 'x', sizeof much);
    psrti_tail_add(&tail, much, sizeof much);
    cr_assert_eq(tail.len, PSRTI_TAIL_MAX);
    psrti_tail_last_line(&tail, last, sizeof last);
    cr_assert_str_eq(last, "xxxxxxxxxxxxxxx");
    psrti_tail_clear(&tail);
}

Test(tail, last_line_is_plain)
{
    psrti_tail_t tail = { 0 };
    char last[64];
    static const char text[] = "a\n\033[31mepoch\t1\033[0m\r 50%\r\r\n\n";
    psrti_tail_add(&tail, text, sizeof text - 1);
    psrti_tail_last_line(&tail, last, sizeof last);
    cr_assert_str_eq(last, " 50%");
    psrti_tail_clear(&tail);
    psrti_tail_add(&tail, text, 18);
    psrti_tail_last_line(&tail, last, sizeof last);
    cr_assert_str_eq(last, "epoch 1");
    psrti_tail_clear(&tail);
}
