/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/coll_area.h"
#include "benchmarks/coll_data.h"
#include "benchmarks/coll_limit.h"
#include "benchmarks/coll_parts.h"

#define RANKS 3
#define COUNT 10000u /* more than two periods */

/* ---- data -------------------------------------------------------------------------------------- */

typedef struct world {
    coll_data_t data[RANKS];
    int32_t *in[RANKS], *out;
} world_t;

static void world_init(world_t *w, coll_redop_t redop, uint64_t iteration)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(coll_data_init(&w->data[rank], COLL_I32, redop, rank, RANKS), 0);
        w->in[rank] = malloc(RANKS * COUNT * sizeof(int32_t));
        coll_data_fill(&w->data[rank], w->in[rank], RANKS * COUNT, iteration);
    }
    w->out = calloc(RANKS * COUNT, sizeof(int32_t));
}

static void world_free(world_t *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        coll_data_free(&w->data[rank]);
        free(w->in[rank]);
    }
    free(w->out);
}

static int32_t reduce(const world_t *w, coll_redop_t redop, uint64_t at)
{
    int32_t a = w->in[0][at], b = w->in[1][at], c = w->in[2][at];
    int32_t low = a < b ? a : b, high = a > b ? a : b;
    switch (redop) {
    case COLL_SUM: return a + b + c;
    case COLL_PROD: return a * b * c;
    case COLL_MIN: return low < c ? low : c;
    case COLL_MAX: return high > c ? high : c;
    default: return (a + b + c) / RANKS;
    }
}

/* Parts of 10000 elements that three ranks give, in the input of each: of an allgatherv, of an alltoallv. */
static const uint64_t v_lengths[RANKS] = { 1666, 3334, 5000 };
static const uint64_t v_sent[RANKS][RANKS] = { { 1666, 3334, 5000 },
                                               { 3334, 5000, 1666 },
                                               { 5000, 1666, 3334 } };

static void carry_out_v(world_t *w, coll_kind_t kind, uint32_t rank)
{
    int32_t *at = w->out;
    for (uint32_t from = 0; from < RANKS; from++) {
        uint64_t begin = 0, length = v_lengths[from];
        if (kind == COLL_ALLTOALLV) {
            length = v_sent[from][rank];
            for (uint32_t to = 0; to < rank; to++)
                begin += v_sent[from][to];
        }
        memcpy(at, w->in[from] + begin, length * sizeof *at);
        at += length;
    }
}

/* By the definition of the collective, for `rank`. */
static void carry_out(world_t *w, coll_kind_t kind, coll_redop_t redop, uint32_t rank)
{
    if (kind == COLL_ALLGATHERV || kind == COLL_ALLTOALLV) {
        carry_out_v(w, kind, rank);
        return;
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        w->out[i] = kind == COLL_REDUCE_SCATTER ? reduce(w, redop, rank * COUNT + i)
                    : kind == COLL_BROADCAST    ? w->in[0][i]
                    : kind == COLL_SENDRECV     ? w->in[(rank + RANKS - 1) % RANKS][i]
                    : kind == COLL_SCATTER      ? w->in[0][rank * COUNT + i]
                                                : reduce(w, redop, i);
        for (uint32_t from = 0; from < RANKS; from++)
            if (kind == COLL_ALLGATHER || kind == COLL_GATHER)
                w->out[from * COUNT + i] = w->in[from][i];
            else if (kind == COLL_ALLTOALL)
                w->out[from * COUNT + i] = w->in[from][rank * COUNT + i];
    }
}

static void check_kind(coll_kind_t kind, coll_redop_t redop)
{
    world_t w;
    world_init(&w, redop, 7);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        coll_call_t call = { .kind = kind, .dtype = COLL_I32, .redop = redop, .count = COUNT };
        coll_parts_t parts;
        coll_parts_init(&parts, kind, COUNT, rank, RANKS);
        call.out = w.out;
        call.lengths = parts.lengths;
        call.offsets = parts.offsets;
        carry_out(&w, kind, redop, rank);
        uint64_t elements = coll_data_out(&w.data[rank], &call);
        cr_assert_eq(coll_data_wrong(&w.data[rank], &call, 7), 0, "%s", coll_kind_names[kind]);
        if (!elements) continue;
        w.out[elements - 1]++;
        cr_assert_eq(coll_data_wrong(&w.data[rank], &call, 7), 1, "%s", coll_kind_names[kind]);
        w.out[elements - 1]--;
        cr_assert_gt(coll_data_wrong(&w.data[rank], &call, 8), COUNT / 8, "an iteration's result");
        memmove(w.out, w.out + 4096, 4096 * sizeof(int32_t));
        cr_assert_gt(coll_data_wrong(&w.data[rank], &call, 7), 256, "a chunk in the wrong place");
    }
    world_free(&w);
}

Test(coll_data, results_by_definition_and_nothing_else)
{
    for (unsigned redop = 0; redop < COLL_REDOPS; redop++) {
        check_kind(COLL_ALLREDUCE, (coll_redop_t)redop);
        check_kind(COLL_REDUCE, (coll_redop_t)redop);
        check_kind(COLL_REDUCE_SCATTER, (coll_redop_t)redop);
    }
    for (unsigned kind = COLL_BROADCAST; kind <= COLL_SCATTER; kind++)
        if (kind != COLL_REDUCE_SCATTER) check_kind((coll_kind_t)kind, COLL_SUM);
    for (unsigned kind = COLL_ALLGATHERV; kind <= COLL_SENDRECV; kind++)
        check_kind((coll_kind_t)kind, COLL_SUM);
}

static double decode(coll_dtype_t dtype, const unsigned char *at)
{
    if (dtype == COLL_F16) { /* of 0 and normal positive numbers */
        uint32_t bits = at[0] | (uint32_t)at[1] << 8, exponent = bits >> 10;
        return bits ? (1 + (bits & 1023) / 1024.0) * (double)(1u << exponent) / 32768 : 0;
    }
    if (dtype == COLL_BF16) {
        unsigned char f32[4] = { 0, 0, at[0], at[1] };
        float value;
        memcpy(&value, f32, sizeof value);
        return (double)value;
    }
    return at[0];
}

Test(coll_data, types_hold_the_same_values)
{
    for (unsigned redop = 0; redop < COLL_REDOPS; redop++) {
        unsigned char *values[COLL_DTYPES];
        const coll_dtype_t checked[] = { COLL_F16, COLL_BF16, COLL_I8, COLL_I64, COLL_U8 };
        float f32[1000];
        coll_data_t d;
        cr_assert_eq(coll_data_init(&d, COLL_F32, (coll_redop_t)redop, 1, 4), 0);
        coll_data_fill(&d, f32, 1000, 3);
        coll_data_free(&d);
        for (size_t k = 0; k < sizeof checked / sizeof *checked; k++) {
            uint64_t size = coll_dtype_size(checked[k]);
            cr_assert_eq(coll_data_init(&d, checked[k], (coll_redop_t)redop, 1, 4), 0);
            values[k] = malloc(1000 * size);
            coll_data_fill(&d, values[k], 1000, 3);
            for (size_t i = 0; i < 1000; i++)
                cr_assert_float_eq(decode(checked[k], values[k] + i * size), (double)f32[i], 0);
            free(values[k]);
            coll_data_free(&d);
        }
    }
}

/* ---- ranks ------------------------------------------------------------------------------------- */

static int run_nothing(void *state, const coll_call_t *call)
{
    (void)state, (void)call;
    return 0;
}

static int be_rank(const coll_options_t *o, uint32_t rank, int broken)
{
    coll_limit_t limit;
    coll_backend_t backends[COLL_LIMITS];
    coll_area_t *area = coll_area_open(o->area, rank, o->ranks);
    if (!area) return 2;
    coll_limit_init(&limit, area, rank, o->ranks, backends);
    backends[0].impl = "plain";
    if (broken) backends[0].run = run_nothing;
    return coll_cells_run(o, area, &backends[0], broken ? NULL : backends, broken ? 0 : COLL_LIMITS)
               ? 1
               : 0;
}

/* Their rows go nowhere. The exit codes, which must be the same. */
static int run_ranks(coll_options_t o, int broken)
{
    char path[64];
    int status, result = -1;
    pid_t pids[RANKS];
    cr_assert_eq(coll_area_create(o.ranks, o.max, path), 0);
    o.area = path;
    for (uint32_t rank = 0; rank < o.ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] > 0) continue;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        _exit(be_rank(&o, rank, broken));
    }
    for (uint32_t rank = 0; rank < o.ranks; rank++) {
        cr_assert_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        cr_assert(WIFEXITED(status));
        cr_assert(result < 0 || result == WEXITSTATUS(status));
        result = WEXITSTATUS(status);
    }
    return result;
}

static coll_options_t small(uint32_t ranks)
{
    return (coll_options_t){ .min = 64,
                             .max = 256 << 10,
                             .factor = 16,
                             .kinds = (1u << COLL_KINDS) - 1,
                             .buffers = 1u << COLL_PSRT,
                             .ranks = ranks,
                             .seconds = 0.0005 };
}

Test(coll_limit, carries_out_every_collective)
{
    for (uint32_t ranks = 1; ranks <= RANKS; ranks++) {
        coll_options_t o = small(ranks);
        cr_assert_eq(run_ranks(o, 0), 0, "%u ranks", ranks);
    }
}

Test(coll_cell, wrong_results_are_found)
{
    coll_options_t o = small(2);
    o.max = o.min;
    for (unsigned kind = 0; kind < COLL_KINDS; kind++) {
        if (kind == COLL_BARRIER) continue; /* has none */
        o.kinds = 1u << kind;
        cr_assert_eq(run_ranks(o, 1), 1, "%s", coll_kind_names[kind]);
    }
}
