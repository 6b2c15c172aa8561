/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: the same buckets on all ranks in whatever order they submit, rounds only when the set changes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/fuse_rig.h"
#include "support/test.h"

#define SEEDS 20

static fr_rig_t *rig_new(uint32_t n, fr_program_fn program)
{
    fr_rig_t *rig = calloc(1, sizeof *rig);
    cr_assert(rig != NULL);
    *rig = (fr_rig_t){ .n = n, .steps = 8, .tensors = 40, .bucket = 4096, .program = program };
    return rig;
}

static void rig_free(fr_rig_t *rig)
{
    fr_close(rig);
    free(rig);
}

static void no_failure(const fr_rig_t *rig)
{
    for (uint32_t r = 0; r < rig->n; r++)
        cr_assert_eq(rig->rank[r].status, PSRT_OK, "%s", rig->rank[r].text);
}

static int some_sig(uint32_t t, psrti_fuse_sig_t *sig)
{
    static const uint64_t counts[] = { 0, 1, 64, 100, 500, 1023, 1024, 5000 };
    *sig = (psrti_fuse_sig_t){ .count = counts[t % 8] + t / 8,
                               .dtype = t % 5 ? PSRT_F32 : PSRT_BF16,
                               .redop = t % 7 ? PSRT_SUM : PSRT_AVG };
    return 1;
}

static int same_set(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t t,
                    psrti_fuse_sig_t *sig)
{
    (void)rig, (void)rank, (void)step;
    return some_sig(t, sig);
}

Test(fuse, a_set_that_stays_is_agreed_once)
{
    for (uint32_t n = 1; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, same_set);
            rig->flush = (int)(seed % 2);
            fr_run(rig, seed);
            no_failure(rig);
            for (uint32_t r = 0; r < n; r++) {
                cr_assert(rig->rank[r].rounds_at[1] >= 1);
                cr_assert_eq(rig->rank[r].rounds_at[8], rig->rank[r].rounds_at[2],
                             "%u ranks, seed %llu: %llu rounds, %llu after two steps", n,
                             (unsigned long long)seed,
                             (unsigned long long)rig->rank[r].rounds_at[8],
                             (unsigned long long)rig->rank[r].rounds_at[2]);
            }
            rig_free(rig);
        }
}

/* Steps 0 to 2 without every third tensor, 3 to 5 with all, then without every fourth. */
static int changing(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t t,
                    psrti_fuse_sig_t *sig)
{
    (void)rig, (void)rank;
    some_sig(t, sig);
    return step < 3 ? t % 3 != 0 : step < 6 ? 1 : t % 4 != 0;
}

Test(fuse, a_set_that_changes_is_agreed_anew)
{
    for (uint32_t n = 1; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, changing);
            rig->steps = 12;
            rig->flush = (int)(seed % 2);
            fr_run(rig, seed);
            no_failure(rig);
            for (uint32_t r = 0; r < n; r++) /* two passes tell that a tensor stays away */
                cr_assert_eq(rig->rank[r].rounds_at[12], rig->rank[r].rounds_at[10],
                             "%u ranks, seed %llu", n, (unsigned long long)seed);
            rig_free(rig);
        }
}

/* Every step has a set of its own, and counts of its own. */
static int restless(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t t,
                    psrti_fuse_sig_t *sig)
{
    (void)rig, (void)rank;
    some_sig(t, sig);
    sig->count += step % 3;
    return (step * 7 + t * 5) % 11 < 6;
}

Test(fuse, sets_and_counts_may_change_in_every_step)
{
    for (uint32_t n = 1; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, restless);
            rig->steps = 20;
            rig->flush = (int)(seed % 2);
            fr_run(rig, seed);
            no_failure(rig);
            rig_free(rig);
        }
}

static int wrong_count(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t t,
                       psrti_fuse_sig_t *sig)
{
    some_sig(t, sig);
    if (rank == rig->n - 1 && step == rig->steps / 2 && t == 3) sig->count = 7;
    return 1;
}

Test(fuse, a_wrong_count_names_tensor_and_both_sides_on_all_ranks)
{
    for (uint32_t n = 2; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, wrong_count);
            char side[32];
            rig->steps = seed % 2 ? 1 : 6;
            snprintf(side, sizeof side, "rank %u has 7 f32 sum", n - 1);
            fr_run(rig, seed);
            for (uint32_t r = 0; r < n; r++) {
                const char *text = rig->rank[r].text;
                cr_assert_eq(rig->rank[r].status, PSRT_ERR_MISMATCH, "%s", text);
                cr_assert(strstr(text, "tensor t3: ") && strstr(text, side) &&
                              strstr(text, " has 100 f32 sum"),
                          "%s", text);
                cr_assert_str_eq(text, rig->rank[0].text);
            }
            rig_free(rig);
        }
}

static int missing(const fr_rig_t *rig, uint32_t rank, uint32_t step, uint32_t t,
                   psrti_fuse_sig_t *sig)
{
    some_sig(t, sig);
    return rank != rig->n - 1 || step != 2 || t != 11;
}

Test(fuse, a_tensor_that_one_rank_does_not_submit_is_named)
{
    for (uint32_t n = 2; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, missing);
            char who[64];
            rig->flush = (int)(seed % 2);
            snprintf(who, sizeof who, "rank %u has not submitted tensor t11", n - 1);
            rig->timeout = 5000 * FR_MS;
            fr_run(rig, seed);
            for (uint32_t r = 0; r < n; r++) {
                cr_assert_eq(rig->rank[r].status, PSRT_ERR_TIMEOUT, "%s", rig->rank[r].text);
                cr_assert(strstr(rig->rank[r].text, who), "%s", rig->rank[r].text);
            }
            rig_free(rig);
        }
}
