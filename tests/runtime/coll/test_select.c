/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/coll/select.h"
#include "support/test.h"

static psrti_coll_tune_t tune;

static psrt_status_t parse(const char *text)
{
    return psrti_coll_tune_parse(text, "PSRT_COLL_TUNE", 0, &tune);
}

enum { ONE = PSRTI_COLL_ONE_HOST, FLAT = PSRTI_COLL_FLAT, NESTED = PSRTI_COLL_NESTED };

static psrti_coll_algorithm_t chosen(int hosts, psrti_collective_t what, uint64_t bytes,
                                     uint32_t ranks)
{
    psrti_coll_site_t site = { .hosts = hosts, .tune = &tune };
    return psrti_coll_select(&site, what, bytes, ranks);
}

/* Whatever is asked, a plan exists. */
Test(select, always_a_plan)
{
    static const uint64_t sizes[] = { 0, 1, 16384, 16385, 1u << 20, 1ull << 40, UINT64_MAX };
    for (int what = 0; what < PSRTI_COLL_COUNT; what++)
        for (uint32_t ranks = 1; ranks <= 65; ranks++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int hosts = ONE; hosts <= NESTED; hosts *= 2) {
                    psrti_collective_t c = (psrti_collective_t)what;
                    psrti_coll_algorithm_t a = chosen(hosts, c, sizes[i], ranks);
                    cr_assert(a < PSRTI_ALG_COUNT && psrti_coll_plan_exists(c, a, ranks),
                              "%s of %llu bytes, %u ranks", psrti_collective_name(c),
                              (unsigned long long)sizes[i], ranks);
                }
}

Test(select, by_size_ranks_and_hosts)
{
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 64, 4), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 262144, 2), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 262145, 2), PSRTI_ALG_RING);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 1u << 20, 2), PSRTI_ALG_HALVING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 262144, 3), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 64, 5), PSRTI_ALG_DOUBLING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 16384, 5), PSRTI_ALG_DOUBLING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 16385, 4), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 16385, 5), PSRTI_ALG_PAIRWISE);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1u << 30, 8), PSRTI_ALG_PAIRWISE);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1u << 30, 9), PSRTI_ALG_RING);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 16385, 5), PSRTI_ALG_HALVING);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 1u << 26, 5), PSRTI_ALG_RING);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_ALLREDUCE, 64, 5), PSRTI_ALG_ONE_LEADER);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_ALLREDUCE, 1u << 26, 4), PSRTI_ALG_ALL_LEADERS);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_REDUCE_SCATTER, 1u << 26, 4), PSRTI_ALG_RING);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_REDUCE_SCATTER, 1u << 26, 4), PSRTI_ALG_ALL_LEADERS);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_ALLTOALL, 16384, 4), PSRTI_ALG_ALL_LEADERS);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_ALLTOALL, 16385, 4), PSRTI_ALG_PAIRWISE);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_GATHER, 64, 4), PSRTI_ALG_ONE_LEADER);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_SCATTER, 64, 4), PSRTI_ALG_DIRECT);
}

/* What a host gathers for another one is bounded. */
Test(select, hosts_swap_little)
{
    psrti_coll_site_t site = { .hosts = NESTED, .most = 8 };
    cr_assert_eq(psrti_coll_select(&site, PSRTI_COLL_ALLTOALL, 16384, 16), PSRTI_ALG_ALL_LEADERS);
    site.most = 65;
    cr_assert_eq(psrti_coll_select(&site, PSRTI_COLL_ALLTOALL, 16384, 130), PSRTI_ALG_DIRECT);
    cr_assert_eq(psrti_coll_select(&site, PSRTI_COLL_ALLTOALL, 512, 130), PSRTI_ALG_ALL_LEADERS);
    cr_assert_eq(parse("alltoall::all_leaders"), PSRT_OK);
    site.tune = &tune;
    cr_assert_eq(psrti_coll_select(&site, PSRTI_COLL_ALLTOALL, 16384, 130), PSRTI_ALG_ALL_LEADERS);
}

Test(select, tune_goes_before_the_table)
{
    cr_assert_eq(parse("allreduce:1MiB-:halving,allreduce:1KiB-2KiB:two_trees,"
                       "broadcast::direct,reduce:-4KiB:ring,gather:binomial"),
                 PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1u << 20, 3), PSRTI_ALG_HALVING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, (1u << 20) - 1, 3), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 2048, 3), PSRTI_ALG_TWO_TREES);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 2049, 3), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_BROADCAST, 0, 9), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_REDUCE, 4096, 9), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_REDUCE, 4097, 9), PSRTI_ALG_BINOMIAL);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_GATHER, 1u << 30, 9), PSRTI_ALG_BINOMIAL);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_SCATTER, 1u << 30, 9), PSRTI_ALG_DIRECT, "not named");
}

Test(select, the_first_entry_counts)
{
    cr_assert_eq(parse("allreduce:-1k:ring,allreduce::halving"), PSRT_OK);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1024, 4), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1025, 4), PSRTI_ALG_HALVING);
}

static void refused(const char *text, const char *why)
{
    tune.count = 77;
    cr_assert_eq(parse(text), PSRT_ERR_INVALID, "%s", text);
    cr_assert(strstr(psrt_last_error(), "PSRT_COLL_TUNE"), "%s", psrt_last_error());
    cr_assert(strstr(psrt_last_error(), why), "%s: %s", text, psrt_last_error());
    cr_assert_eq(tune.count, 77u, "written though refused");
}

Test(select, tune_is_checked)
{
    refused("allredcue::ring", "nearest is \"allreduce\"");
    refused("allreduce::rnig", "nearest is \"ring\"");
    refused("allreduce::something", "no algorithm \"something\"");
    refused("broadcast::halving", "halving does not do broadcast");
    refused("allreduce", "\"allreduce\" is not collective:sizes:algorithm");
    refused("allreduce:1:2:ring", "is not collective:sizes:algorithm");
    refused("allreduce:2k-1k:ring", "\"2k-1k\" are no sizes");
    refused("allreduce:1x-:ring", "\"1x-\" are no sizes");
    refused("allreduce:1-2-3:ring", "\"1-2-3\" are no sizes");
    refused("allreduce::ring,,", "\"\" is not");
    static char text[17 * (PSRTI_COLL_TUNE_RULES + 2)];
    for (unsigned i = 0; i <= PSRTI_COLL_TUNE_RULES; i++)
        strcat(text, "allreduce::ring,");
    refused(text, "at most 128");
    memset(text, 'x', 200);
    text[200] = 0;
    refused(text, "at most 127 characters");
    cr_assert_eq(parse(""), PSRT_OK);
    cr_assert_eq(tune.count, 0u);
    cr_assert_eq(parse(NULL), PSRT_OK);
}

/* ---- conditions, files -------------------------------------------------------------------------- */

Test(select, conditions)
{
    cr_assert_eq(parse("allreduce::halving ranks=2-4 hosts=flat, allreduce::two_trees hosts=nested,"
                       "allreduce::binomial ranks=7"),
                 PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 1u << 26, 4), PSRTI_ALG_HALVING);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 1u << 26, 5), PSRTI_ALG_RING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 1u << 26, 4), PSRTI_ALG_RING);
    cr_assert_eq(chosen(NESTED, PSRTI_COLL_ALLREDUCE, 1u << 26, 4), PSRTI_ALG_TWO_TREES);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_ALLREDUCE, 64, 7), PSRTI_ALG_BINOMIAL);
    refused("allreduce::ring ranks=0", "\"0\" are no ranks; such are 4");
    refused("allreduce::ring ranks=", "are no ranks");
    refused("allreduce::ring hosts=two", "\"hosts=two\" is none of hosts=one, flat");
    refused("allreduce::ring host=one", "neither ranks= nor hosts=");
}

static uint32_t hash_of(const char *text)
{
    cr_assert_eq(parse(text), PSRT_OK, "%s", psrt_last_error());
    return tune.hash;
}

Test(select, hash_tells_rules_apart)
{
    uint32_t h = hash_of("allreduce:1k-:ring ranks=4");
    cr_assert_eq(hash_of("allreduce:1KiB-:ring   ranks=4-4"), h);
    cr_assert_neq(hash_of("allreduce:1k-:ring ranks=4,allreduce::halving"), h);
    cr_assert_neq(hash_of("allreduce:1k-2k:ring ranks=4"), h);
    cr_assert_neq(hash_of("allreduce:1k-:ring ranks=4-5"), h);
    cr_assert_neq(hash_of("allreduce:1k-:ring ranks=4 hosts=one"), h);
    cr_assert_neq(hash_of("allreduce:1k-:halving ranks=4"), h);
    cr_assert_neq(hash_of("reduce:1k-:ring ranks=4"), h);
    cr_assert_neq(hash_of(""), h);
}

static psrt_status_t load(const char *text)
{
    char setting[] = "@/tmp/psrt-tune-XXXXXX";
    int fd = mkstemp(setting + 1);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    psrt_status_t rc = psrti_coll_tune_load(setting, &tune);
    unlink(setting + 1);
    return rc;
}

static void file_refused(const char *text, const char *why)
{
    cr_assert_eq(load(text), PSRT_ERR_INVALID, "%s", text);
    cr_assert(strstr(psrt_last_error(), "/tmp/psrt-tune-"), "%s", psrt_last_error());
    cr_assert(strstr(psrt_last_error(), why), "%s: %s", text, psrt_last_error());
}

Test(select, file)
{
    cr_assert_eq(load("# measured\n\nallreduce:-4KiB:halving hosts=flat # fast\n"
                      "  broadcast::direct, reduce::ring\r\n#allreduce::rnig"),
                 PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(tune.count, 3u);
    cr_assert_eq(chosen(FLAT, PSRTI_COLL_ALLREDUCE, 64, 4), PSRTI_ALG_HALVING);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_BROADCAST, 64, 9), PSRTI_ALG_DIRECT);
    cr_assert_eq(chosen(ONE, PSRTI_COLL_REDUCE, 64, 9), PSRTI_ALG_RING);
    cr_assert_eq(load(""), PSRT_OK);
    cr_assert_eq(tune.count, 0u);
    file_refused("allreduce::ring\n# a, b\nallreduce::rnig\n",
                 "line 3: there is no algorithm \"rnig\", the "
                 "nearest is \"ring\"");
    file_refused("\n\n\nallreduce ring", "line 4: \"allreduce\" is not collective:sizes:algorithm");
    cr_assert_eq(psrti_coll_tune_load("@/nonexistent/tune", &tune), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "/nonexistent/tune: No such file"), "%s",
              psrt_last_error());
    cr_assert_eq(psrti_coll_tune_load("allreduce::ring", &tune), PSRT_OK);
    cr_assert_eq(tune.count, 1u);
}

Test(select, table_as_text)
{
    char *text = NULL;
    cr_assert_eq(parse("alltoall:3000-1MiB:bruck"), PSRT_OK);
    cr_assert_eq(psrti_coll_rules_print(&tune, &text), PSRT_OK);
    cr_assert(strstr(text, "alltoall        bruck            tune  any      any    3000B-1MiB\n"
                           "alltoall        all_leaders        30  nested   any    0B-16KiB\n"
                           "alltoall        direct             20  any      any    0B-16KiB\n"),
              "%s", text);
    cr_assert(
        strstr(text, "\nallreduce       halving            20  several  any    16385B-1MiB\n"),
        "%s", text);
    cr_assert(strstr(text, "\nallreduce       all_leaders        30  nested   any    16385B-\n"),
              "%s", text);
    free(text);
}
