/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_data.h"

#include <stdlib.h>
#include <string.h>

#include "coll_parts.h"
#include "flags.h"

#define STRIDE 31u       /* elements by which iterations differ */
#define DOUBLING_RANKS 6 /* of a product: the result stays in an i8 */

static const unsigned char sizes[COLL_DTYPES] = { 4, 8, 2, 2, 1, 2, 4, 8, 1 };

uint64_t coll_dtype_size(coll_dtype_t dtype) { return sizes[dtype]; }

/* ---- values ------------------------------------------------------------------------------------ */

/* The finalizer of MurmurHash3. */
static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static int64_t value(const coll_data_t *d, uint32_t at, uint32_t rank)
{
    uint32_t random = mix(at * COLL_RANKS_MAX + rank);
    switch (d->redop) {
    case COLL_PROD: return rank < DOUBLING_RANKS ? 1 + (random & 1) : 1;
    case COLL_AVG: return (int64_t)d->ranks * (random & 1); /* the mean is an integer */
    default: return random & 3;
    }
}

static int64_t reduced(const coll_data_t *d, uint32_t at)
{
    int64_t result = value(d, at, 0);
    for (uint32_t rank = 1; rank < d->ranks; rank++) {
        int64_t next = value(d, at, rank);
        switch (d->redop) {
        case COLL_PROD: result *= next; break;
        case COLL_MIN: result = next < result ? next : result; break;
        case COLL_MAX: result = next > result ? next : result; break;
        default: result += next;
        }
    }
    return d->redop == COLL_AVG ? result / d->ranks : result;
}

/* Integers below 2^8 have at most eight significant bits: exact in all types, even in bf16. */
static void encode(coll_dtype_t dtype, int64_t integer, char *at)
{
    float f32 = (float)integer;
    double f64 = (double)integer;
    uint32_t bits;
    memcpy(&bits, &f32, sizeof bits);
    uint16_t bf16 = (uint16_t)(bits >> 16);
    uint16_t f16 = integer ? (uint16_t)((bits >> 13) - ((127u - 15u) << 10)) : 0;
    switch (dtype) {
    case COLL_F32: memcpy(at, &f32, sizeof f32); break;
    case COLL_F64: memcpy(at, &f64, sizeof f64); break;
    case COLL_F16: memcpy(at, &f16, sizeof f16); break;
    case COLL_BF16: memcpy(at, &bf16, sizeof bf16); break;
    default: /* little endian, two's complement */
        for (unsigned i = 0; i < sizes[dtype]; i++)
            at[i] = (char)((uint64_t)integer >> 8 * i);
    }
}

static void make_block(const coll_data_t *d, char *block, int64_t rank)
{
    uint64_t size = sizes[d->dtype];
    for (uint32_t i = 0; i < COLL_PERIOD; i++)
        encode(d->dtype, rank < 0 ? reduced(d, i) : value(d, i, (uint32_t)rank), block + i * size);
    memcpy(block + COLL_PERIOD * size, block, COLL_PERIOD * size);
}

int coll_data_init(coll_data_t *d, coll_dtype_t dtype, coll_redop_t redop, uint32_t rank,
                   uint32_t ranks)
{
    uint64_t bytes = 2 * (uint64_t)COLL_PERIOD * sizes[dtype];
    *d = (coll_data_t){ .dtype = dtype, .redop = redop, .rank = rank, .ranks = ranks };
    d->own = malloc(3 * bytes);
    if (!d->own) return bench_fail("out of memory");
    d->reduced = d->own + bytes;
    d->another = d->reduced + bytes;
    make_block(d, d->own, rank);
    make_block(d, d->reduced, -1);
    return 0;
}

void coll_data_free(coll_data_t *d) { free(d->own); }

/* ---- buffers ----------------------------------------------------------------------------------- */

uint64_t coll_data_in(const coll_data_t *d, const coll_call_t *call)
{
    switch (call->kind) {
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: return call->count * d->ranks;
    case COLL_SCATTER: return d->rank == 0 ? call->count * d->ranks : 0;
    case COLL_BROADCAST: return d->rank == 0 ? call->count : 0;
    case COLL_ALLGATHERV: return call->lengths[d->rank];
    default: return call->count;
    }
}

uint64_t coll_data_out(const coll_data_t *d, const coll_call_t *call)
{
    switch (call->kind) {
    case COLL_ALLGATHER:
    case COLL_ALLTOALL: return call->count * d->ranks;
    case COLL_GATHER: return d->rank == 0 ? call->count * d->ranks : 0;
    case COLL_REDUCE: return d->rank == 0 ? call->count : 0;
    case COLL_BROADCAST: return d->rank == 0 ? 0 : call->count;
    default: return call->count;
    }
}

/* Where element `at` of an iteration lies in a block. */
static uint64_t place(uint64_t at, uint64_t iteration)
{
    return (at + iteration % COLL_PERIOD * STRIDE) % COLL_PERIOD;
}

void coll_data_fill(const coll_data_t *d, void *in, uint64_t elements, uint64_t iteration)
{
    uint64_t size = sizes[d->dtype];
    const char *block = d->own + place(0, iteration) * size;
    for (uint64_t i = 0; i < elements; i += COLL_PERIOD) {
        uint64_t left = elements - i;
        memcpy((char *)in + i * size, block, (left < COLL_PERIOD ? left : COLL_PERIOD) * size);
    }
}

/* `out` must hold the elements of the block from `from` on. */
static uint64_t wrong_in(const coll_data_t *d, const char *out, uint64_t elements,
                         const char *block, uint64_t from)
{
    uint64_t size = sizes[d->dtype], wrong = 0;
    block += from * size;
    for (uint64_t i = 0; i < elements; i += COLL_PERIOD) {
        uint64_t left = elements - i, length = left < COLL_PERIOD ? left : COLL_PERIOD;
        if (!memcmp(out + i * size, block, length * size)) continue;
        for (uint64_t k = 0; k < length; k++)
            wrong += memcmp(out + (i + k) * size, block + k * size, size) != 0;
    }
    return wrong;
}

/* One block of every rank, the elements of each from `from` on. */
static uint64_t wrong_of_each(coll_data_t *d, const coll_call_t *call, uint64_t from)
{
    uint64_t wrong = 0, bytes = call->count * sizes[d->dtype];
    for (uint32_t rank = 0; rank < d->ranks; rank++) {
        make_block(d, d->another, rank);
        wrong += wrong_in(d, (char *)call->out + rank * bytes, call->count, d->another, from);
    }
    return wrong;
}

/* A part of every rank: the beginning of its input, or the part that was for this rank. */
static uint64_t wrong_of_parts(coll_data_t *d, const coll_call_t *call, uint64_t iteration)
{
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < d->ranks; rank++) {
        coll_parts_t theirs;
        coll_parts_init(&theirs, call->kind, call->count, rank, d->ranks);
        uint64_t from = call->kind == COLL_ALLTOALLV ? theirs.offsets[d->rank] : 0;
        make_block(d, d->another, rank);
        wrong += wrong_in(d, (char *)call->out + call->offsets[rank] * sizes[d->dtype],
                          call->lengths[rank], d->another, place(from, iteration));
    }
    return wrong;
}

uint64_t coll_data_wrong(coll_data_t *d, const coll_call_t *call, uint64_t iteration)
{
    uint64_t elements = coll_data_out(d, call);
    uint64_t first = place(0, iteration), mine = place(d->rank * call->count, iteration);
    if (!elements) return 0;
    switch (call->kind) {
    case COLL_ALLGATHER:
    case COLL_GATHER: return wrong_of_each(d, call, first);
    case COLL_ALLTOALL: return wrong_of_each(d, call, mine);
    case COLL_ALLGATHERV:
    case COLL_ALLTOALLV: return wrong_of_parts(d, call, iteration);
    case COLL_SENDRECV:
        make_block(d, d->another, (d->rank + d->ranks - 1) % d->ranks);
        return wrong_in(d, call->out, elements, d->another, first);
    case COLL_REDUCE_SCATTER: return wrong_in(d, call->out, elements, d->reduced, mine);
    case COLL_BROADCAST:
    case COLL_SCATTER:
        make_block(d, d->another, 0);
        return wrong_in(d, call->out, elements, d->another,
                        call->kind == COLL_SCATTER ? mine : first);
    default: return wrong_in(d, call->out, elements, d->reduced, first);
    }
}
