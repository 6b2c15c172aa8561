/* SPDX-License-Identifier: Apache-2.0 */
#include "flat_rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "support/half_ref.h"

flat_rig_t *flat_rig_new(uint32_t members, uint32_t steps, uint64_t seed)
{
    size_t bytes = FLAT_RIG_SEGMENT * (1 + members);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();

    flat_rig_t *rig = (flat_rig_t *)p;
    *rig = (flat_rig_t){ .members = members, .steps = steps, .seed = seed };
    for (uint32_t i = 0; i < members; i++) {
        rig->segments[i] = p + FLAT_RIG_SEGMENT * (1 + i);
        psrti_flat_format(rig->segments[i], i, members);
        rig->bells[i] = eventfd(0, 0);
        if (rig->bells[i] < 0) abort();
    }
    return rig;
}

void flat_rig_free(flat_rig_t *rig)
{
    for (uint32_t i = 0; i < rig->members; i++)
        close(rig->bells[i]);
    munmap(rig, FLAT_RIG_SEGMENT * (1 + rig->members));
}

/* Bytes that a member gives: now and then more than a slot has room for. */
#define MOST (4 * PSRTI_FLAT_DATA)

/* ---- the sequence ------------------------------------------------------------------------------- */

static uint64_t random_of(const flat_rig_t *rig, uint64_t a, uint64_t b, uint64_t c)
{
    return psrti_mix64(psrti_mix64(psrti_mix64(rig->seed + a) + b) + c);
}

static int has_blocks(uint8_t what)
{
    return what == PSRTI_COLL_REDUCE_SCATTER || what == PSRTI_COLL_ALLTOALL ||
           what == PSRTI_COLL_SCATTER;
}

static int reduces(uint8_t what)
{
    return what == PSRTI_COLL_ALLREDUCE || what == PSRTI_COLL_REDUCE ||
           what == PSRTI_COLL_REDUCE_SCATTER;
}

static int is_rooted(uint8_t what)
{
    return what == PSRTI_COLL_REDUCE || what == PSRTI_COLL_BROADCAST || what == PSRTI_COLL_GATHER ||
           what == PSRTI_COLL_SCATTER;
}

static psrti_coll_call_t step_call(const flat_rig_t *rig, uint32_t step)
{
    uint64_t r = random_of(rig, step, 1000, 0), size = random_of(rig, step, 1001, 0);
    psrti_coll_call_t c = { .what = (uint8_t)(r % (PSRTI_COLL_BARRIER + 1)) };

    if (c.what == PSRTI_COLL_BARRIER) return c;
    c.dtype = (uint8_t)(1 + (r >> 8) % PSRT_U8);
    if (reduces(c.what)) c.redop = (uint8_t)((r >> 16) % (PSRT_AVG + 1));
    if (is_rooted(c.what)) c.root = (uint32_t)((r >> 24) % rig->members);
    uint64_t most = (r >> 44 & 15 ? PSRTI_FLAT_DATA : MOST) /
                    psrt_dtype_size((psrt_dtype_t)c.dtype) /
                    (has_blocks(c.what) ? rig->members : 1);
    /* As many small ones as large ones, the extremes among them. */
    c.count = r >> 63 ? size % (most + 1) : PSRTI_MIN(size % 18, most);
    if (r >> 40 & 15) return c;
    c.count = most;
    return c;
}

/* ---- an independent computation ----------------------------------------------------------------- */

static int is_float(uint8_t t)
{
    return t == PSRT_F32 || t == PSRT_F64 || t == PSRT_F16 || t == PSRT_BF16;
}

/* Element e of what a member gives. Small whole numbers for floats, so that sums are exact in all formats and
 * rounding happens once, in a mean; products of 8 too. Anything for integers: they wrap. */
static double float_given(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                          uint32_t member, uint64_t e)
{
    uint64_t r = random_of(rig, step, member, e);
    if (c->redop == PSRT_PROD) return (double)(1 + (r >> 8 & 1)) * (r & 1 ? 1 : -1);
    return (double)(r % 31) - 15.5 + 0.5 * (double)(r >> 8 & 1);
}

static int64_t cut(uint8_t t, uint64_t x)
{
    switch (t) {
    case PSRT_I8: return (int8_t)x;
    case PSRT_I16: return (int16_t)x;
    case PSRT_I32: return (int32_t)x;
    case PSRT_U8: return (uint8_t)x;
    default: return (int64_t)x;
    }
}

static int64_t int_given(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                         uint32_t member, uint64_t e)
{
    return cut(c->dtype, random_of(rig, step, member, e));
}

static void store_float(uint8_t t, void *at, uint64_t i, double x)
{
    float f = (float)x;
    uint16_t h;

    switch (t) {
    case PSRT_F64: memcpy((char *)at + 8 * i, &x, 8); return;
    case PSRT_F32: memcpy((char *)at + 4 * i, &f, 4); return;
    case PSRT_F16: h = half_encode(&half_f16, half_round(&half_f16, f)); break;
    default: h = half_encode(&half_bf16, half_round(&half_bf16, f)); break;
    }
    memcpy((char *)at + 2 * i, &h, 2);
}

static void store_given(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                        uint32_t member, uint64_t e, void *at, uint64_t i)
{
    size_t width = psrt_dtype_size((psrt_dtype_t)c->dtype);
    int64_t x;

    if (is_float(c->dtype)) {
        store_float(c->dtype, at, i, float_given(rig, c, step, member, e));
        return;
    }
    x = int_given(rig, c, step, member, e);
    memcpy((char *)at + width * i, &x, width); /* little endian */
}

static double float_reduced(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                            uint64_t e)
{
    double all = float_given(rig, c, step, 0, e);
    for (uint32_t m = 1; m < rig->members; m++) {
        double x = float_given(rig, c, step, m, e);
        switch (c->redop) {
        case PSRT_PROD: all *= x; break;
        case PSRT_MIN: all = fmin(all, x); break;
        case PSRT_MAX: all = fmax(all, x); break;
        default: all += x; break;
        }
    }
    return c->redop == PSRT_AVG ? all / rig->members : all;
}

static int64_t int_reduced(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                           uint64_t e)
{
    int64_t all = int_given(rig, c, step, 0, e);
    for (uint32_t m = 1; m < rig->members; m++) {
        int64_t x = int_given(rig, c, step, m, e);
        switch (c->redop) {
        case PSRT_PROD: all = (int64_t)((uint64_t)all * (uint64_t)x); break;
        case PSRT_MIN: all = PSRTI_MIN(all, x); break;
        case PSRT_MAX: all = PSRTI_MAX(all, x); break;
        default: all = (int64_t)((uint64_t)all + (uint64_t)x); break;
        }
    }
    return c->redop == PSRT_AVG ? all / (int64_t)rig->members : cut(c->dtype, (uint64_t)all);
}

static void store_reduced(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                          uint64_t e, void *at, uint64_t i)
{
    size_t width = psrt_dtype_size((psrt_dtype_t)c->dtype);

    if (is_float(c->dtype)) {
        store_float(c->dtype, at, i, float_reduced(rig, c, step, e));
    } else {
        int64_t x = int_reduced(rig, c, step, e);
        memcpy((char *)at + width * i, &x, width);
    }
}

/* Elements of the result of `member`. */
static uint64_t expect(const flat_rig_t *rig, const psrti_coll_call_t *c, uint32_t step,
                       uint32_t member, void *at)
{
    uint64_t n = c->count, first = (uint64_t)member * n;
    int root = member == c->root;

    switch (c->what) {
    case PSRTI_COLL_REDUCE:
        if (!root) return 0;
        /* fall through */
    case PSRTI_COLL_ALLREDUCE: first = 0; /* fall through */
    case PSRTI_COLL_REDUCE_SCATTER:
        for (uint64_t i = 0; i < n; i++)
            store_reduced(rig, c, step, first + i, at, i);
        return n;
    case PSRTI_COLL_BROADCAST: first = 0; /* fall through */
    case PSRTI_COLL_SCATTER:
        for (uint64_t i = 0; i < n; i++)
            store_given(rig, c, step, c->root, first + i, at, i);
        return n;
    case PSRTI_COLL_GATHER:
        if (!root) return 0;
        /* fall through */
    case PSRTI_COLL_ALLGATHER: first = 0; /* fall through */
    case PSRTI_COLL_ALLTOALL:
        for (uint64_t i = 0; i < n * rig->members; i++)
            store_given(rig, c, step, (uint32_t)(i / n), first + i % n, at, i);
        return n * rig->members;
    default: return 0;
    }
}

/* ---- a member ----------------------------------------------------------------------------------- */

typedef struct buffers {
    _Alignas(64) uint8_t in[MOST];
    _Alignas(64) uint8_t out[MOST * PSRTI_FLAT_MEMBERS];
    _Alignas(64) uint8_t expected[MOST * PSRTI_FLAT_MEMBERS];
} buffers_t;

/* Where the contribution lies in `out` when the call is in place, and where the result lies. */
static void place(const flat_rig_t *rig, psrti_coll_call_t *c, uint32_t member, buffers_t *b,
                  int in_place)
{
    size_t block = c->count * psrt_dtype_size((psrt_dtype_t)c->dtype);

    c->in = b->in;
    c->out = b->out;
    if (!in_place) return;
    c->in = b->out;
    if (c->what == PSRTI_COLL_ALLGATHER || c->what == PSRTI_COLL_GATHER)
        c->in = b->out + member * block;
    if (c->what == PSRTI_COLL_REDUCE_SCATTER || c->what == PSRTI_COLL_SCATTER)
        c->out = b->out + member * block;
    (void)rig;
}

static void ring_bells(const flat_rig_t *rig, psrti_flat_t *flat)
{
    uint64_t one = 1;
    for (uint32_t left = psrti_flat_wakes(flat); left; left &= left - 1)
        if (write(rig->bells[__builtin_ctz(left)], &one, sizeof one) != sizeof one) abort();
}

/* Spins a little, then sleeps until somebody rings: a lost wake hangs. */
static psrti_flat_state_t wait_for(const flat_rig_t *rig, psrti_flat_t *flat, uint32_t member,
                                   uint64_t random)
{
    psrti_flat_state_t state;
    uint64_t rung;

    while ((state = psrti_flat_poll(flat)) == PSRTI_FLAT_WAITING) {
        ring_bells(rig, flat);
        state = psrti_flat_spin(flat, random % 64);
        ring_bells(rig, flat);
        if (state != PSRTI_FLAT_WAITING || !psrti_flat_want_wake(flat)) continue;
        if (read(rig->bells[member], &rung, sizeof rung) != sizeof rung) abort();
        psrti_flat_awake(flat);
    }
    ring_bells(rig, flat);
    return state;
}

static const char *run_step(const flat_rig_t *rig, psrti_flat_t *flat, uint32_t member,
                            uint32_t step, buffers_t *b)
{
    psrti_coll_call_t c = step_call(rig, step);
    uint64_t random = random_of(rig, step, 2000 + member, 0);
    size_t width = psrt_dtype_size((psrt_dtype_t)c.dtype);

    /* Now and then one stalls, and the others run ahead as far as they can. */
    for (uint64_t i = random % 97 == 0 ? 50 : 0; i; i--)
        sched_yield();
    memset(b->out, 0xa5, sizeof b->out);
    place(rig, &c, member, b, (int)(random >> 32 & 1));
    for (uint64_t i = 0; i < c.count * (has_blocks(c.what) ? rig->members : 1); i++)
        store_given(rig, &c, step, member, i, (void *)(uintptr_t)c.in, i);
    psrti_flat_begin(flat, &c);
    if (wait_for(rig, flat, member, random >> 40) != PSRTI_FLAT_DONE) return "not done";
    uint64_t n = expect(rig, &c, step, member, b->expected);
    return memcmp(c.out, b->expected, n * width) ? "wrong result" : NULL;
}

void flat_rig_run(const flat_member_t *m)
{
    flat_rig_t *rig = m->rig;
    const psrti_kernels_t *kernels;
    psrti_flat_t *flat;
    buffers_t *b = aligned_alloc(64, sizeof *b);

    if (!b || psrti_kernels_select("", &kernels) ||
        psrti_flat_create(kernels, m->member, rig->members, rig->segments, &flat))
        abort();
    for (uint32_t step = 0; step < rig->steps; step++) {
        const char *failure = run_step(rig, flat, m->member, step, b);
        if (!failure) continue;
        psrti_coll_call_t c = step_call(rig, step);
        snprintf(rig->failures[m->member], sizeof rig->failures[0],
                 "step %u, %s of %llu %s, redop %u, root %u: %s", step,
                 psrti_collective_name((psrti_collective_t)c.what), (unsigned long long)c.count,
                 c.dtype ? psrt_dtype_name((psrt_dtype_t)c.dtype) : "-", c.redop, c.root, failure);
        break;
    }
    psrti_flat_free(flat);
    free(b);
}
