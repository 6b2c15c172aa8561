/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of small collectives in shared memory, by threads and by processes that may write to their own
 * segment only, with members that stall; disagreement; segments that hold anything. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "flat_rig.h"
#include "support/test.h"

#define STEPS 1500u

TestSuite(flat, .timeout = 60);

/* ---- random sequences --------------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    flat_member_t *m = arg;
    flat_rig_run(m);
    return NULL;
}

static void expect_all_well(const flat_rig_t *rig)
{
    for (uint32_t i = 0; i < rig->members; i++)
        cr_assert_str_empty(rig->failures[i], "member %u of %u: %s", i, rig->members,
                            rig->failures[i]);
}

static void run_threads(uint32_t members)
{
    flat_rig_t *rig = flat_rig_new(members, STEPS, 100 + members);
    pthread_t threads[PSRTI_FLAT_MEMBERS];
    flat_member_t state[PSRTI_FLAT_MEMBERS];

    for (uint32_t i = 0; i < members; i++) {
        state[i] = (flat_member_t){ .rig = rig, .member = i };
        cr_assert_eq(pthread_create(&threads[i], NULL, run_thread, &state[i]), 0);
    }
    for (uint32_t i = 0; i < members; i++)
        pthread_join(threads[i], NULL);
    expect_all_well(rig);
    flat_rig_free(rig);
}

static void run_processes(uint32_t members)
{
    flat_rig_t *rig = flat_rig_new(members, STEPS, 200 + members);
    pid_t children[PSRTI_FLAT_MEMBERS];

    for (uint32_t i = 0; i < members; i++) {
        children[i] = fork();
        cr_assert_geq(children[i], 0);
        if (children[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the parent give up a hang */
        for (uint32_t j = 0; j < members; j++)
            if (j != i && mprotect(rig->segments[j], FLAT_RIG_SEGMENT, PROT_READ)) _exit(2);
        flat_rig_run(&(flat_member_t){ .rig = rig, .member = i });
        _exit(0);
    }
    for (uint32_t i = 0; i < members; i++) {
        int status = -1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert_eq(status, 0, "member %u of %u died: %#x", i, members, (unsigned)status);
    }
    expect_all_well(rig);
    flat_rig_free(rig);
}

Test(flat, threads)
{
    for (uint32_t members = 1; members <= PSRTI_FLAT_MEMBERS; members++)
        run_threads(members);
}

Test(flat, processes)
{
    for (uint32_t members = 1; members <= PSRTI_FLAT_MEMBERS; members++)
        run_processes(members);
}

/* ---- one step after the other ------------------------------------------------------------------- */

#define TRIO 3u

typedef struct trio {
    flat_rig_t *rig;
    psrti_flat_t *flat[TRIO];
    float in[TRIO][4], out[TRIO][4 * TRIO];
} trio_t;

static void trio_open(trio_t *t)
{
    const psrti_kernels_t *kernels;
    *t = (trio_t){ .rig = flat_rig_new(TRIO, 0, 0) };
    cr_assert_eq(psrti_kernels_select("", &kernels), PSRT_OK);
    for (uint32_t i = 0; i < TRIO; i++) {
        cr_assert_eq(psrti_flat_create(kernels, i, TRIO, t->rig->segments, &t->flat[i]), PSRT_OK);
        for (uint32_t j = 0; j < 4; j++)
            t->in[i][j] = (float)(10 * i + j);
    }
}

static void trio_close(trio_t *t)
{
    for (uint32_t i = 0; i < TRIO; i++)
        psrti_flat_free(t->flat[i]);
    flat_rig_free(t->rig);
}

static psrti_flat_state_t call(trio_t *t, uint32_t member, psrti_coll_call_t c)
{
    c.in = t->in[member];
    c.out = t->out[member];
    psrti_flat_begin(t->flat[member], &c);
    return psrti_flat_poll(t->flat[member]);
}

static psrti_flat_state_t broadcast(trio_t *t, uint32_t member, float first)
{
    if (member == 1) t->in[1][0] = first;
    return call(t, member,
                (psrti_coll_call_t){
                    .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F32, .root = 1, .count = 4 });
}

/* The root of broadcasts runs ahead, but never so far that somebody misses data. */
Test(flat, root_is_one_operation_ahead)
{
    trio_t t;

    trio_open(&t);
    cr_assert_eq(broadcast(&t, 1, 101), PSRTI_FLAT_DONE);
    cr_assert_eq(broadcast(&t, 1, 102), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_missing(t.flat[1]), 5u);
    cr_assert_eq(broadcast(&t, 0, 0), PSRTI_FLAT_DONE);
    cr_assert_eq(t.out[0][0], 101);
    cr_assert_eq(psrti_flat_poll(t.flat[1]), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_missing(t.flat[1]), 4u);
    /* A leaf ends when it has its data, and waits in the next one for all others. */
    cr_assert_eq(broadcast(&t, 0, 0), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_missing(t.flat[0]), 4u);
    cr_assert_eq(broadcast(&t, 2, 0), PSRTI_FLAT_DONE);
    cr_assert_eq(t.out[2][0], 101);
    cr_assert_eq(psrti_flat_poll(t.flat[1]), PSRTI_FLAT_DONE);
    cr_assert_eq(psrti_flat_poll(t.flat[0]), PSRTI_FLAT_DONE);
    cr_assert_eq(t.out[0][0], 102);
    trio_close(&t);
}

/* The bytes of docs/shm-format.md. */
Test(flat, format)
{
    static const uint8_t head[] = { 0x46, 0x4c, 0x41, 0x54, 3, 0, 0, 0, 0, 0, 0, 0, TRIO };
    static const uint8_t first[] = { 0x10, 0xc0, 0, 0, 1,    0,    0, 0, 0, 0,
                                     0,    0,    0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 };
    psrti_coll_call_t c = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 3 };
    trio_t t;

    trio_open(&t);
    call(&t, 0, c);
    const uint8_t *segment = t.rig->segments[0];
    cr_assert_arr_eq(segment, head, sizeof head);
    cr_assert_arr_eq(segment + FLAT_RIG_SLOT_1, first, sizeof first);
    call(&t, 1, c);
    call(&t, 2, c);
    psrti_flat_poll(t.flat[0]);
    call(&t, 0, c);
    cr_assert_eq(segment[128 + 4], 2, "even operations");
    cr_assert_arr_eq(segment + 136, t.in[0], 3 * sizeof(float));
    psrti_flat_want_wake(t.flat[0]);
    psrti_flat_wakes(t.flat[0]);
    cr_assert(psrti_flat_want_wake(t.flat[0]));
    cr_assert_eq(segment[16], 1 + 1, "waits for member 1");
    trio_close(&t);
}

/* Whoever sleeps is woken by the one it waits for, and by nobody else. */
Test(flat, wakes_who_waits)
{
    trio_t t;
    psrti_coll_call_t barrier = { .what = PSRTI_COLL_BARRIER };

    trio_open(&t);
    cr_assert_eq(call(&t, 0, barrier), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_want_wake(t.flat[0]), 0, "slept before it woke others");
    cr_assert_eq(psrti_flat_wakes(t.flat[0]), 0u);
    cr_assert_eq(psrti_flat_want_wake(t.flat[0]), 1);
    cr_assert_eq(call(&t, 2, barrier), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_wakes(t.flat[2]), 0u, "member 0 waits for member 1 first");
    cr_assert_eq(psrti_flat_want_wake(t.flat[2]), 1);
    cr_assert_eq(call(&t, 1, barrier), PSRTI_FLAT_DONE);
    cr_assert_eq(psrti_flat_want_wake(t.flat[0]), 0, "everybody is there");
    cr_assert_eq(psrti_flat_wakes(t.flat[1]), 4u);
    cr_assert_eq(psrti_flat_wakes(t.flat[1]), 0u, "told once");
    cr_assert_eq(psrti_flat_poll(t.flat[2]), PSRTI_FLAT_DONE);
    trio_close(&t);
}

/* Who sleeps on a word does so on that of the member that it waits for, which knows it. */
Test(flat, sleeps_on_words)
{
    trio_t t;
    psrti_coll_call_t barrier = { .what = PSRTI_COLL_BARRIER };
    uint32_t number = 7;

    trio_open(&t);
    cr_assert_eq(call(&t, 0, barrier), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_wakes(t.flat[0]), 0u);
    const _Atomic uint32_t *word = psrti_flat_want_word(t.flat[0], &number);
    cr_assert_not_null(word);
    cr_assert_eq(*word, number, "it would not sleep");
    cr_assert_eq(call(&t, 2, barrier), PSRTI_FLAT_WAITING);
    cr_assert_eq(psrti_flat_wakes(t.flat[2]), 0u, "member 0 waits for member 1 first");
    cr_assert_eq(call(&t, 1, barrier), PSRTI_FLAT_DONE);
    cr_assert_neq(*word, number, "it would sleep on");
    cr_assert_eq(psrti_flat_word(t.flat[1]), word);
    cr_assert_eq(psrti_flat_wakes(t.flat[1]), 2u, "itself: its own word");
    cr_assert_null(psrti_flat_want_word(t.flat[0], &number), "everybody is there");
    cr_assert_eq(psrti_flat_poll(t.flat[2]), PSRTI_FLAT_DONE);
    trio_close(&t);
}

/* Before it publishes, a member waits for the operation before. */
Test(flat, sleeps_on_words_of_the_operation_before)
{
    trio_t t;
    uint32_t number = 7;

    trio_open(&t);
    cr_assert_eq(broadcast(&t, 1, 101), PSRTI_FLAT_DONE);
    cr_assert_eq(psrti_flat_wakes(t.flat[1]), 0u);
    cr_assert_eq(broadcast(&t, 1, 102), PSRTI_FLAT_WAITING);
    const _Atomic uint32_t *word = psrti_flat_want_word(t.flat[1], &number);
    cr_assert_not_null(word);
    cr_assert_eq(*word, number, "it would not sleep");
    cr_assert_eq(broadcast(&t, 0, 0), PSRTI_FLAT_DONE);
    cr_assert_neq(*word, number, "it would sleep on");
    cr_assert_eq(psrti_flat_wakes(t.flat[0]), 1u, "itself: its own word");
    trio_close(&t);
}

/* The largest that goes this way; who comes second copies the first one's sum. */
Test(flat, one_adds_for_all)
{
    enum { COUNT = PSRTI_FLAT_WIDE / sizeof(float) };
    psrti_coll_call_t c = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = COUNT };
    float *in[TRIO], *out[TRIO];
    trio_t t;

    trio_open(&t);
    for (uint32_t i = 0; i < TRIO; i++) {
        in[i] = malloc(PSRTI_FLAT_WIDE);
        out[i] = calloc(1, PSRTI_FLAT_WIDE);
        for (uint32_t e = 0; e < COUNT; e++)
            in[i][e] = (float)(e + i * COUNT);
        c.in = in[i];
        c.out = out[i];
        psrti_flat_begin(t.flat[i], &c);
    }
    cr_assert_eq(psrti_flat_poll(t.flat[0]), PSRTI_FLAT_DONE);
    for (uint32_t e = 0; e < COUNT; e++)
        cr_assert_eq(out[0][e], (float)(3 * e + 3 * COUNT), "element %u: %g", e, out[0][e]);
    const float five = 5;
    memcpy((uint8_t *)t.rig->segments[0] + FLAT_RIG_SUM_1 + (COUNT - 1) * sizeof(five), &five,
           sizeof(five));
    for (uint32_t i = 1; i < TRIO; i++) {
        cr_assert_eq(psrti_flat_poll(t.flat[i]), PSRTI_FLAT_DONE);
        cr_assert_eq(out[i][COUNT - 1], 5, "member %u added by itself", i);
        cr_assert_arr_eq(out[i], out[0], PSRTI_FLAT_WIDE - sizeof(float));
    }
    for (uint32_t i = 0; i < TRIO; i++) {
        free(in[i]);
        free(out[i]);
    }
    trio_close(&t);
}

/* Broadcasts of `bytes` bytes of value `number`, without looking for others. */
static void begin_bytes(trio_t *t, uint32_t member, uint8_t number, uint64_t bytes, uint8_t *buffer)
{
    if (member == 1) memset(buffer, number, bytes);
    psrti_coll_call_t c = { .what = PSRTI_COLL_BROADCAST,
                            .dtype = PSRT_U8,
                            .root = 1,
                            .count = bytes,
                            .in = member == 1 ? buffer : NULL,
                            .out = buffer };
    psrti_flat_begin(t->flat[member], &c);
}

static void expect_bytes(trio_t *t, uint32_t member, uint8_t number, uint64_t bytes,
                         const uint8_t *buffer)
{
    cr_assert_eq(psrti_flat_poll(t->flat[member]), PSRTI_FLAT_DONE);
    for (uint64_t i = 0; i < bytes; i++)
        cr_assert_eq(buffer[i], number, "byte %llu of operation %u is %u", (unsigned long long)i,
                     number, buffer[i]);
}

/* Two are published and unread, wherever in the lap they come to lie. */
Test(flat, the_next_operation_leaves_the_data_of_this_one)
{
    uint8_t *buffers[TRIO];
    trio_t t;

    trio_open(&t);
    for (uint32_t i = 0; i < TRIO; i++)
        buffers[i] = malloc(PSRTI_FLAT_WIDE);
    for (uint8_t k = 1; k < 100; k = (uint8_t)(k + 2)) {
        uint64_t bytes = PSRTI_FLAT_WIDE - 1 - k * 12345u % 200000;
        uint64_t next = PSRTI_FLAT_WIDE - 1 - k * 54321u % 260000;
        for (uint32_t i = 0; i < TRIO; i += 2)
            begin_bytes(&t, i, k, bytes, buffers[i]);
        for (uint32_t i = 0; i < TRIO; i += 2)
            cr_assert_eq(psrti_flat_poll(t.flat[i]), PSRTI_FLAT_WAITING);
        begin_bytes(&t, 1, k, bytes, buffers[1]);
        cr_assert_eq(psrti_flat_poll(t.flat[1]), PSRTI_FLAT_DONE);
        begin_bytes(&t, 1, k + 1, next, buffers[1]);
        cr_assert_eq(psrti_flat_poll(t.flat[1]), PSRTI_FLAT_DONE);
        for (uint32_t i = 0; i < TRIO; i += 2)
            expect_bytes(&t, i, k, bytes, buffers[i]);
        for (uint32_t i = 0; i < TRIO; i += 2)
            begin_bytes(&t, i, k + 1, next, buffers[i]);
        for (uint32_t i = 0; i < TRIO; i += 2)
            expect_bytes(&t, i, k + 1, next, buffers[i]);
    }
    for (uint32_t i = 0; i < TRIO; i++)
        free(buffers[i]);
    trio_close(&t);
}

/* What two members give lies behind one another, at the beginning of lines. */
Test(flat, format_of_the_lap)
{
    psrti_coll_call_t c = { .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_U8, .root = 1 };
    uint8_t *data = calloc(1, 6000);
    trio_t t;

    trio_open(&t);
    c.in = c.out = data;
    for (uint8_t k = 1; k <= 3; k++) {
        c.count = 4998u + k;
        memset(data, k, c.count);
        for (uint32_t i = 0; i < TRIO; i++)
            psrti_flat_begin(t.flat[i], &c);
        for (uint32_t i = 0; i < TRIO; i++)
            cr_assert_eq(psrti_flat_poll(t.flat[(i + 1) % TRIO]), PSRTI_FLAT_DONE);
        const uint8_t *lap = (uint8_t *)t.rig->segments[1] + FLAT_RIG_LAP;
        cr_assert_arr_eq(lap + 5120 * (k - 1u), data, c.count);
    }
    free(data);
    trio_close(&t);
}

/* Where the order of a sum matters it is that of the ranks, everywhere. */
Test(flat, sums_in_the_order_of_ranks)
{
    static const float given[TRIO] = { 1e8f, 1, -1e8f }; /* the 1 is lost, but not at the end */
    trio_t t;

    trio_open(&t);
    for (uint32_t i = 0; i < TRIO; i++) {
        t.in[i][0] = given[i];
        t.out[i][0] = 7;
        call(&t, i,
             (psrti_coll_call_t){ .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F32, .count = 1 });
    }
    for (uint32_t i = 0; i < TRIO; i++) {
        cr_assert_eq(psrti_flat_poll(t.flat[i]), PSRTI_FLAT_DONE);
        cr_assert_eq(t.out[i][0], 0, "member %u: %g", i, t.out[i][0]);
    }
    trio_close(&t);
}

/* ---- disagreement ------------------------------------------------------------------------------- */

static const psrti_coll_call_t agreed = { .what = PSRTI_COLL_ALLREDUCE,
                                          .dtype = PSRT_F32,
                                          .count = 2 };

static void expect_same(psrti_coll_call_t a, psrti_coll_call_t b)
{
    cr_assert(a.what == b.what && a.dtype == b.dtype && a.redop == b.redop && a.root == b.root &&
              a.count == b.count);
}

static void expect_mismatch(psrti_flat_t *flat, uint32_t culprit, psrti_coll_call_t theirs,
                            psrti_coll_call_t ours)
{
    psrti_coll_call_t t, o;
    cr_assert_eq(psrti_flat_poll(flat), PSRTI_FLAT_MISMATCH);
    cr_assert_eq(psrti_flat_culprit(flat, &t, &o), culprit);
    expect_same(t, theirs);
    expect_same(o, ours);
}

static void disagree(psrti_coll_call_t other)
{
    trio_t t;

    trio_open(&t);
    call(&t, 0, agreed);
    call(&t, 1, agreed);
    call(&t, 2, other);
    expect_mismatch(t.flat[0], 2, other, agreed);
    expect_mismatch(t.flat[1], 2, other, agreed);
    psrti_coll_call_t theirs, ours;
    cr_assert_eq(psrti_flat_poll(t.flat[2]), PSRTI_FLAT_MISMATCH);
    cr_assert_lt(psrti_flat_culprit(t.flat[2], &theirs, &ours), 2u);
    expect_same(theirs, agreed);
    expect_same(ours, other);
    cr_assert_eq(call(&t, 0, agreed), PSRTI_FLAT_MISMATCH, "it stays so");
    trio_close(&t);
}

Test(flat, every_field_is_compared)
{
    psrti_coll_call_t other = agreed;
    other.what = PSRTI_COLL_ALLGATHER;
    disagree(other);
    other = agreed;
    other.dtype = PSRT_I32;
    disagree(other);
    other = agreed;
    other.redop = PSRT_MAX;
    disagree(other);
    other = agreed;
    other.root = 1;
    disagree(other);
    other = agreed;
    other.count = 3;
    disagree(other);
}

/* A root that waits for nobody learns it before it publishes again. */
Test(flat, late_mismatch)
{
    trio_t t;
    psrti_coll_call_t first = {
        .what = PSRTI_COLL_BROADCAST, .dtype = PSRT_F32, .root = 1, .count = 4
    };

    trio_open(&t);
    cr_assert_eq(broadcast(&t, 1, 1), PSRTI_FLAT_DONE);
    cr_assert_eq(call(&t, 0, agreed), PSRTI_FLAT_MISMATCH);
    cr_assert_eq(call(&t, 1, agreed), PSRTI_FLAT_MISMATCH);
    expect_mismatch(t.flat[1], 0, agreed, first);
    trio_close(&t);
}

/* ---- what does not belong here ------------------------------------------------------------------ */

Test(flat, fits)
{
    psrti_coll_call_t c = { .what = PSRTI_COLL_ALLREDUCE, .dtype = PSRT_F64, .count = 512 };
    cr_assert(psrti_flat_fits(8, PSRTI_FLAT_DATA, &c));
    cr_assert(!psrti_flat_fits(9, PSRTI_FLAT_DATA, &c));
    c.count = 513;
    cr_assert(!psrti_flat_fits(8, PSRTI_FLAT_DATA, &c));
    cr_assert(psrti_flat_fits(8, PSRTI_FLAT_WIDE, &c));
    c.dtype = PSRT_U8;
    c.count = 1u << 18; /* which no word can say */
    cr_assert(!psrti_flat_fits(8, PSRTI_FLAT_WIDE, &c));
    c.dtype = PSRT_F64;
    c.count = UINT64_MAX / 8 + 2; /* times 8 it is 8 */
    cr_assert(!psrti_flat_fits(8, PSRTI_FLAT_DATA, &c));
    c.what = PSRTI_COLL_SCATTER;
    c.count = 64;
    cr_assert(psrti_flat_fits(8, PSRTI_FLAT_DATA, &c));
    c.count = 65;
    cr_assert(!psrti_flat_fits(8, PSRTI_FLAT_DATA, &c));
    c.what = PSRTI_COLL_ALLGATHERV;
    c.count = 1;
    cr_assert(!psrti_flat_fits(2, PSRTI_FLAT_DATA, &c));
}

Test(flat, other_segments_are_refused)
{
    flat_rig_t *rig = flat_rig_new(2, 0, 0);
    psrti_flat_t *flat = NULL;
    void *swapped[] = { rig->segments[1], rig->segments[0] };

    cr_assert_eq(psrti_flat_create(NULL, 0, 2, swapped, &flat), PSRT_ERR_PROTOCOL);
    cr_assert_eq(psrti_flat_create(NULL, 0, 9, rig->segments, &flat), PSRT_ERR_INVALID);
    cr_assert_eq(psrti_flat_create(NULL, 2, 2, rig->segments, &flat), PSRT_ERR_INVALID);
    psrti_flat_format(rig->segments[1], 1, 3);
    cr_assert_eq(psrti_flat_create(NULL, 0, 2, rig->segments, &flat), PSRT_ERR_PROTOCOL);
    psrti_flat_format(rig->segments[1], 1, 2);
    ((uint8_t *)rig->segments[1])[4]++; /* the version */
    cr_assert_eq(psrti_flat_create(NULL, 0, 2, rig->segments, &flat), PSRT_ERR_PROTOCOL);
    cr_assert_null(flat);
    flat_rig_free(rig);
}

/* A peer that writes anything spoils results, nothing else; sanitizers watch. The words are sometimes right, so
 * that its data are read. */
Test(flat, hostile_segment)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        trio_t t;
        psrti_coll_call_t theirs, ours, c = agreed;

        trio_open(&t);
        for (uint64_t step = 0; step < 8; step++) {
            uint64_t random = psrti_mix64(seed * 8 + step);
            uint8_t *at = (uint8_t *)t.rig->segments[2] + (random >> 8) % (FLAT_RIG_SUMS - 8);
            c.redop = random % 5;
            c.dtype = (uint8_t)(1 + random % 9);
            call(&t, 0, c);
            call(&t, 1, c);
            if (random >> 60) call(&t, 2, c);
            if (random >> 59 & 1) memcpy(at, &random, sizeof random);
            for (uint32_t i = 0; i < 2; i++)
                if (psrti_flat_poll(t.flat[i]) == PSRTI_FLAT_WAITING)
                    psrti_flat_want_wake(t.flat[i]);
            if (psrti_flat_poll(t.flat[0]) != PSRTI_FLAT_DONE) break;
        }
        if (psrti_flat_poll(t.flat[0]) == PSRTI_FLAT_MISMATCH)
            cr_assert(psrti_flat_culprit(t.flat[0], &theirs, &ours) < TRIO &&
                      theirs.what <= PSRTI_COLL_BARRIER && theirs.dtype <= PSRT_U8 &&
                      theirs.redop <= PSRT_AVG && theirs.root < TRIO);
        trio_close(&t);
    }
}

/* A number that nobody can have is no disagreement, nor is a call that nobody can make. */
Test(flat, broken_segment)
{
    static const uint64_t words[] = { 7ull << 32, 1ull << 32 | 15, 1ull << 32 | 15 << 4,
                                      1ull << 32 | 7 << 8, 1ull << 32 | TRIO << 11 };
    for (size_t i = 0; i < PSRTI_COUNT(words); i++) {
        trio_t t;
        psrti_coll_call_t theirs, ours;

        trio_open(&t);
        memcpy((uint8_t *)t.rig->segments[2] + FLAT_RIG_SLOT_1, &words[i], sizeof words[i]);
        cr_assert_eq(call(&t, 0, agreed), PSRTI_FLAT_BROKEN, "word %zu", i);
        cr_assert_eq(psrti_flat_culprit(t.flat[0], &theirs, &ours), 2u);
        trio_close(&t);
    }
}
