/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's lists of hosts. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "launcher/hostlist.h"
#include "support/test.h"

static void gives(const char *text, const char *expect)
{
    char **names, joined[4096] = "";
    size_t count;
    cr_assert_eq(psrti_hostlist_expand(text, &names, &count), PSRT_OK, "%s: %s", text,
                 psrt_last_error());
    for (size_t i = 0; i < count; i++) {
        if (i) strcat(joined, " ");
        strcat(joined, names[i]);
        free(names[i]);
    }
    free(names);
    cr_assert_str_eq(joined, expect, "%s gives %s, not %s", text, joined, expect);
}

Test(hostlist, names)
{
    gives("linux[1,2]", "linux1 linux2");
    gives("alpha,beta,gamma", "alpha beta gamma");
    gives("jean-zay-ia[810-811]", "jean-zay-ia810 jean-zay-ia811");
    gives("b04-[09-10]", "b04-09 b04-10");
    gives("n[001-003,007]", "n001 n002 n003 n007");
    gives("nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC");
    gives("n", "n");
    gives("r[1-2]c[01-02]", "r1c01 r1c02 r2c01 r2c02");
    gives("r[1-2]c[01-02]-x", "r1c01-x r1c02-x r2c01-x r2c02-x");
    gives("[9-11]", "9 10 11");
    gives("n[98-101]", "n98 n99 n100 n101");
}

Test(hostlist, malformed)
{
    static const char *const bad[] = { "",
                                       "[",
                                       "n[",
                                       "n[]",
                                       "n[1",
                                       "n[1-]",
                                       "n[-1]",
                                       "n[2-1]",
                                       "n[a]",
                                       "a,,b",
                                       "a,",
                                       ",a",
                                       "n]",
                                       "n[1,]",
                                       "n[1]]",
                                       "n[1 2]",
                                       "n[0-99999]",
                                       "n[0-999999999]",
                                       "n[1234567890]" };
    char **names = (char **)&bad;
    size_t count = 77;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(psrti_hostlist_expand(bad[i], &names, &count), PSRT_ERR_INVALID, "%s", bad[i]);
        cr_assert_not_null(strstr(psrt_last_error(), "host list"), "%s", psrt_last_error());
    }
    cr_assert_eq(count, 77);
    char longest[600] = { 0 };
    memset(longest, 'n', sizeof longest - 1);
    cr_assert_eq(psrti_hostlist_expand(longest, &names, &count), PSRT_ERR_INVALID);
}

Test(hostlist, counts)
{
    unsigned n[4];
    cr_assert_eq(psrti_hostlist_counts("2(x3),1", n, 4), PSRT_OK);
    cr_assert(n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 1);
    cr_assert_eq(psrti_hostlist_counts("5", n, 1), PSRT_OK);
    cr_assert_eq(n[0], 5);
    static const char *const bad[] = { "",  "2",      "2(x4),1",   "2(x3)",  "2(x3",   "2(x3),",
                                       "a", "2,,1,1", "1,1,1,1,1", "2(3),1", "-1(x4)", "2(x3) ,1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(psrti_hostlist_counts(bad[i], n, 4), PSRT_ERR_INVALID, "%s", bad[i]);
}
