/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_limit.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "coll_parts.h"

#define BLOCK 2048u /* elements that stay in the first cache between two passes */
#define LINE 16u    /* elements */

typedef void add_fn(float *dst, const float *a, const float *b, uint64_t elements);
typedef void copy_fn(float *dst, const float *src, uint64_t elements);
typedef void pass_fn(const coll_limit_t *limit, copy_fn *write, const coll_call_t *call);

static void add_plain(float *dst, const float *a, const float *b, uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++)
        dst[i] = a[i] + b[i];
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(float *dst, const float *a, const float *b,
                                                     uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++)
        dst[i] = a[i] + b[i];
}
#endif

static add_fn *fastest_add(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add_plain;
}

static void copy(float *dst, const float *src, uint64_t elements)
{
    memcpy(dst, src, elements * sizeof *dst);
}

static void copy_past(float *dst, const float *src, uint64_t elements)
{
    uint64_t i = 0;
#ifdef __SSE2__
    for (; (uintptr_t)dst % 64 == 0 && i + LINE <= elements; i += LINE)
        for (uint64_t k = i; k < i + LINE; k += 4)
            _mm_stream_ps(dst + k, _mm_loadu_ps(src + k));
    _mm_sfence();
#endif
    memcpy(dst + i, src + i, (elements - i) * sizeof *dst);
}

/* ---- passes ------------------------------------------------------------------------------------ */

static float *in_of(const coll_limit_t *l, uint32_t rank)
{
    return coll_area_buffer(l->area, rank, 0);
}

static float *out_of(const coll_limit_t *l, uint32_t rank)
{
    return coll_area_buffer(l->area, rank, 1);
}

/* The part of `count` elements that falls to `rank`, of whole lines. */
static uint64_t part_begin(const coll_limit_t *l, uint64_t count, uint32_t rank)
{
    uint64_t lines = (count + LINE - 1) / LINE, at = lines * rank / l->size * LINE;
    return at < count ? at : count;
}

/* Sums elements [begin, end) of all inputs into the outputs of `outs` ranks from `first` on, at `to`. */
static void reduce(const coll_limit_t *l, copy_fn *write, uint64_t begin, uint64_t end,
                   uint32_t first, uint32_t outs, uint64_t to)
{
    _Alignas(64) float sum[BLOCK];
    add_fn *add = fastest_add();
    for (uint64_t at = begin; at < end; at += BLOCK, to += BLOCK) {
        uint64_t length = end - at < BLOCK ? end - at : BLOCK;
        const float *sums = in_of(l, 0) + at;
        for (uint32_t rank = 1; rank < l->size; rank++, sums = sum)
            add(sum, sums, in_of(l, rank) + at, length);
        for (uint32_t i = 0; i < outs; i++)
            write(out_of(l, first + i) + to, sums, length);
    }
}

/* From every rank the part that is for this one. */
static void copy_parts(const coll_limit_t *l, copy_fn *write, const coll_call_t *call)
{
    for (uint32_t rank = 0; rank < l->size; rank++) {
        coll_parts_t theirs;
        coll_parts_init(&theirs, call->kind, call->count, rank, l->size);
        write(out_of(l, l->rank) + call->offsets[rank],
              in_of(l, rank) + (call->kind == COLL_ALLTOALLV ? theirs.offsets[l->rank] : 0),
              call->lengths[rank]);
    }
}

static void pass(const coll_limit_t *l, copy_fn *write, const coll_call_t *call)
{
    uint64_t n = call->count, at = l->rank * n;
    uint64_t begin = part_begin(l, n, l->rank), end = part_begin(l, n, l->rank + 1);
    float *out = out_of(l, l->rank);
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_LATENCY: reduce(l, write, begin, end, 0, l->size, begin); break;
    case COLL_REDUCE: reduce(l, write, begin, end, 0, 1, begin); break;
    case COLL_REDUCE_SCATTER: reduce(l, write, at, at + n, l->rank, 1, 0); break;
    case COLL_BROADCAST:
        if (l->rank) write(out, in_of(l, 0), n);
        break;
    case COLL_SCATTER: write(out, in_of(l, 0) + at, n); break;
    case COLL_GATHER: write(out_of(l, 0) + at, in_of(l, l->rank), n); break;
    case COLL_ALLGATHER:
        for (uint32_t rank = 0; rank < l->size; rank++)
            write(out + rank * n, in_of(l, rank), n);
        break;
    case COLL_ALLTOALL:
        for (uint32_t rank = 0; rank < l->size; rank++)
            write(out + rank * n, in_of(l, rank) + at, n);
        break;
    case COLL_ALLGATHERV:
    case COLL_ALLTOALLV: copy_parts(l, write, call); break;
    case COLL_SENDRECV: write(out, in_of(l, (l->rank + l->size - 1) % l->size), n); break;
    default: break;
    }
}

/* More reads, but nobody writes into memory of others. */
static void pass_alone(const coll_limit_t *l, copy_fn *write, const coll_call_t *call)
{
    reduce(l, write, 0, call->count, l->rank, 1, 0);
}

static void meet(coll_limit_t *l)
{
    coll_area_tell(l->area, ++l->told);
    for (uint32_t rank = 0; rank < l->size; rank++)
        coll_area_await(l->area, rank, l->told);
}

static void run(coll_limit_t *l, pass_fn *passes, copy_fn *write, const coll_call_t *call)
{
    meet(l);
    if (call->kind == COLL_BARRIER) return;
    passes(l, write, call);
    meet(l);
}

/* ---- as an implementation ---------------------------------------------------------------------- */

static int run_in_caches(void *state, const coll_call_t *call)
{
    run(state, pass, copy, call);
    return 0;
}

static int run_past_caches(void *state, const coll_call_t *call)
{
    run(state, pass, copy_past, call);
    return 0;
}

static int run_alone_in_caches(void *state, const coll_call_t *call)
{
    run(state, pass_alone, copy, call);
    return 0;
}

static int run_alone_past_caches(void *state, const coll_call_t *call)
{
    run(state, pass_alone, copy_past, call);
    return 0;
}

/* A cell asks for its input, then for its output. */
static void *allocate(void *state, coll_buffers_t buffers, uint64_t bytes)
{
    coll_limit_t *l = state;
    void *memory = coll_area_buffer(l->area, l->rank, l->buffers++ % 2);
    (void)buffers;
    coll_area_populate(memory, bytes);
    return memory;
}

static void release(void *state, coll_buffers_t buffers, void *memory)
{
    coll_limit_t *l = state;
    (void)buffers, (void)memory;
    if (l->buffers % 2 == 0) coll_area_discard(l->area);
}

void coll_limit_init(coll_limit_t *limit, coll_area_t *area, uint32_t rank, uint32_t size,
                     coll_backend_t backends[COLL_LIMITS])
{
    *limit = (coll_limit_t){ .area = area, .rank = rank, .size = size };
    static int (*const runs[COLL_LIMITS])(void *, const coll_call_t *) = {
        run_in_caches, run_past_caches, run_alone_in_caches, run_alone_past_caches
    };
    for (unsigned i = 0; i < COLL_LIMITS; i++) {
        int alone = runs[i] == run_alone_in_caches || runs[i] == run_alone_past_caches;
        unsigned kinds = alone ? 1u << COLL_ALLREDUCE | 1u << COLL_LATENCY : (1u << COLL_KINDS) - 1;
        backends[i] = (coll_backend_t){ .impl = "limit",
                                        .transport = "shm",
                                        .state = limit,
                                        .rank = rank,
                                        .size = size,
                                        .kinds = kinds,
                                        .run = runs[i],
                                        .allocate = allocate,
                                        .release = release };
    }
}
