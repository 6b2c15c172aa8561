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

/* A step that takes longer than the stall at first. */
Test(fuse, rounds_end_though_steps_are_long)
{
    for (uint32_t n = 1; n <= FR_RANKS; n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fr_rig_t *rig = rig_new(n, same_set);
            rig->pause = 7000 * FR_MS;
            rig->steps = 16;
            fr_run(rig, seed);
            no_failure(rig);
            for (uint32_t r = 0; r < n; r++)
                cr_assert_eq(rig->rank[r].rounds_at[16], rig->rank[r].rounds_at[10],
                             "%u ranks, seed %llu: %llu rounds, %llu after ten steps", n,
                             (unsigned long long)seed,
                             (unsigned long long)rig->rank[r].rounds_at[16],
                             (unsigned long long)rig->rank[r].rounds_at[10]);
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

Test(fuse, large_tensors_go_alone_and_small_ones_together)
{
    fr_rig_t *rig = rig_new(3, same_set);
    rig->alone = 2000; /* bytes; four of eight counts are larger */
    fr_run(rig, 5);
    no_failure(rig);
    unsigned alone = 0, together = 0;
    for (uint32_t i = 0; rig->sent[i]; i++) {
        unsigned tensors = 0, large = strstr(rig->sent[i], ":500") || strstr(rig->sent[i], ":102");
        for (const char *c = rig->sent[i]; (c = strchr(c, '@')); c++)
            tensors++;
        cr_assert(!strstr(rig->sent[i], ":5000:1") || tensors == 1, "%s", rig->sent[i]);
        alone += large && tensors == 1;
        together += tensors > 3;
    }
    cr_assert(alone >= 8 && together >= 8, "%u, %u", alone, together);
    rig_free(rig);
}

/* Notes that no member of ours sends. */
Test(fuse, notes_that_make_no_sense_are_refused)
{
    psrti_fuse_params_t p = { .rank = 0, .size = 2, .bucket = 100, .cycle = 1, .stall = 1000 };
    psrti_fuse_t *f;
    uint8_t note[PSRTI_FUSE_PIECE + 1] = { 1, 0, 0, 0, 0, 40 };
    cr_assert_eq(psrti_fuse_create(&p, &f), PSRT_OK);
    cr_assert(!psrti_fuse_note(f, 1, note, 0));
    cr_assert(!psrti_fuse_note(f, 0, note, 20), "from this rank");
    cr_assert(!psrti_fuse_note(f, 2, note, 20), "from nobody");
    cr_assert(!psrti_fuse_note(f, 1, note, 13), "an empty piece");
    cr_assert(!psrti_fuse_note(f, 1, note, sizeof note), "longer than a piece");
    cr_assert(!psrti_fuse_note(f, 1, note, 13 + 41), "more than the word");
    note[1] = 2;
    cr_assert(!psrti_fuse_note(f, 1, note, 20), "two rounds ahead");
    note[1] = 0, note[9] = 7;
    cr_assert(!psrti_fuse_note(f, 1, note, 20), "a gap");
    note[9] = 0, note[0] = 9;
    cr_assert(!psrti_fuse_note(f, 1, note, 20), "no kind");
    note[0] = 1;
    cr_assert(psrti_fuse_note(f, 1, note, 13 + 40));

    psrti_fuse_act_t act;
    psrti_fuse_next(f, 1, &act);
    cr_assert_eq(act.what, PSRTI_FUSE_NOTE);
    psrti_fuse_next(f, 1, &act); /* all words are there, but the other one is of zeros */
    cr_assert_eq(act.what, PSRTI_FUSE_FAIL);
    cr_assert_eq(act.status, PSRT_ERR_MISMATCH, "%s", act.text);
    psrti_fuse_destroy(f);
}

/* A word that ends within an entry, has a type that does not exist, or a name with a zero. */
Test(fuse, words_that_make_no_sense_fail)
{
    for (int bad = 0; bad < 4; bad++) {
        psrti_fuse_params_t p = { .size = 2, .bucket = 100, .alone = 50, .stall = 1000 };
        psrti_fuse_t *f;
        psrti_fuse_act_t act;
        uint8_t note[13 + 29 + 12] = { 1, 0, 0, 0, 0, 29 + 12 };
        uint8_t *word = note + 13, *entry = word + 29;
        word[8] = 100, word[16] = 50, word[25] = bad == 0 ? 2 : 1;
        entry[0] = 5, entry[8] = bad == 1 ? 77 : PSRT_F32, entry[9] = bad == 2 ? 9 : PSRT_SUM;
        entry[10] = 1, entry[11] = bad == 3 ? 0 : 'x';
        cr_assert_eq(psrti_fuse_create(&p, &f), PSRT_OK);
        cr_assert(psrti_fuse_note(f, 1, note, sizeof note));
        psrti_fuse_next(f, 1, &act);
        cr_assert_eq(act.what, PSRTI_FUSE_NOTE);
        psrti_fuse_next(f, 1, &act);
        cr_assert(act.what == PSRTI_FUSE_FAIL && act.status == PSRT_ERR_PEER_LOST, "case %d", bad);
        cr_assert(strstr(act.text, "rank 1 sent a list that makes no sense"), "%s", act.text);
        psrti_fuse_destroy(f);
    }
}
