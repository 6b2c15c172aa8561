/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "coll_area.h"
#include "coll_data.h"
#include "coll_parts.h"
#include "flags.h"
#include "stats.h"

#define ITERATIONS_MIN 5u
#define LIMIT_SHARE 0.2 /* of a cell's time, for each way to the limit */

typedef struct cell {
    coll_area_t *area;
    const coll_backend_t *backend;
    coll_data_t data;
    coll_call_t call;
    coll_parts_t parts;
    coll_buffers_t buffers;
    void *in;
    uint64_t iteration; /* since the cell began; tells the inputs apart */
} cell_t;

/* ---- memory ------------------------------------------------------------------------------------ */

static void *allocate(const cell_t *c, uint64_t bytes)
{
    const coll_backend_t *b = c->backend;
    if (!bytes) bytes = 1;
    void *memory = b->allocate ? b->allocate(b->state, c->buffers, bytes) : malloc(bytes);
    if (memory) memset(memory, 0xff, bytes); /* touches the pages; no value of a result */
    return memory;
}

static void release(const cell_t *c, void *memory)
{
    const coll_backend_t *b = c->backend;
    if (b->release)
        b->release(b->state, c->buffers, memory);
    else
        free(memory);
}

static int cell_init(cell_t *c)
{
    uint64_t size = coll_dtype_size(c->call.dtype);
    coll_parts_init(&c->parts, c->call.kind, c->call.count, c->data.rank, c->data.ranks);
    c->call.lengths = c->parts.lengths;
    c->call.offsets = c->parts.offsets;
    uint64_t in = coll_data_in(&c->data, &c->call), out = coll_data_out(&c->data, &c->call);
    c->call.in = c->in = allocate(c, in * size);
    c->call.out = allocate(c, out * size);
    if (c->call.in && c->call.out) return 0;
    return bench_fail("%llu bytes: out of memory", (unsigned long long)(in + out) * size);
}

static void cell_free(cell_t *c)
{
    release(c, c->in);
    release(c, c->call.out);
}

/* ---- iterations -------------------------------------------------------------------------------- */

static int call_once(cell_t *c, double *us)
{
    c->iteration++;
    coll_data_fill(&c->data, c->in, coll_data_in(&c->data, &c->call), c->iteration);
    coll_area_meet(c->area);
    uint64_t start = bench_now();
    if (c->backend->run(c->backend->state, &c->call)) return -1;
    *us = (double)(bench_now() - start) / 1000;
    return 0;
}

/* One call after the other, as a loop of a program: nothing but the clock is read between them. */
static int call_in_turn(cell_t *c, uint64_t count, double *us)
{
    uint64_t elements = coll_data_in(&c->data, &c->call);
    coll_area_meet(c->area);
    uint64_t before = bench_now();
    for (uint64_t i = 0; i < count; i++) {
        c->iteration++;
        coll_data_fill(&c->data, c->in, elements, c->iteration);
        if (c->backend->run(c->backend->state, &c->call)) return -1;
        uint64_t now = bench_now();
        us[i] = (double)(now - before) / 1000;
        before = now;
    }
    return 0;
}

static int iterate(cell_t *c, uint64_t count, double *us)
{
    if (c->call.kind == COLL_LATENCY) return call_in_turn(c, count, us);
    for (uint64_t i = 0; i < count; i++)
        if (call_once(c, &us[i])) return -1;
    return 0;
}

/* As many as fill the time, with what they cost beside the measured call. Rank 0 decides. */
static int plan(cell_t *c, double seconds, uint64_t *iterations_p)
{
    uint64_t start = bench_now(), count = 0;
    double elapsed;
    do {
        if (iterate(c, 2, coll_area_times(c->area))) return -1;
        count += 2;
        elapsed = (double)(bench_now() - start) / 1e9;
    } while (coll_area_share(c->area, elapsed < seconds / 20));
    double wanted = seconds * (double)count / elapsed;
    uint64_t iterations = wanted < ITERATIONS_MIN        ? ITERATIONS_MIN
                          : wanted > COLL_ITERATIONS_MAX ? COLL_ITERATIONS_MAX
                                                         : (uint64_t)wanted;
    *iterations_p = coll_area_share(c->area, iterations);
    return 0;
}

/* The figures are valid on rank 0; *wrong_p on all. */
static int measure(cell_t *c, double seconds, double *p50_p, double *p99_p, uint64_t *wrong_p)
{
    uint64_t iterations, wrong = 0;
    double *us = coll_area_times(c->area);
    if (cell_init(c) || iterate(c, 1, us)) return -1;
    wrong = coll_data_wrong(&c->data, &c->call, c->iteration);
    if (plan(c, seconds, &iterations) || iterate(c, iterations, us)) return -1;
    wrong += coll_data_wrong(&c->data, &c->call, c->iteration);
    *wrong_p = coll_area_sum(c->area, wrong);
    coll_area_slowest(c->area, iterations);
    if (c->backend->rank == 0) {
        bench_sort(us, iterations);
        *p50_p = bench_percentile(us, iterations, 50);
        *p99_p = bench_percentile(us, iterations, 99);
    }
    cell_free(c);
    return 0;
}

/* ---- cells ------------------------------------------------------------------------------------- */

/* The larger buffer has a block for each rank. */
static int has_blocks(coll_kind_t kind)
{
    return kind == COLL_ALLGATHER || kind == COLL_REDUCE_SCATTER || kind == COLL_ALLTOALL ||
           kind == COLL_GATHER || kind == COLL_SCATTER;
}

/* Elements of a block when the larger buffer has that many bytes. */
static uint64_t count_of(const coll_options_t *o, coll_kind_t kind, uint64_t bytes)
{
    uint64_t elements = bytes / coll_dtype_size(o->dtype);
    if (kind == COLL_BARRIER) return 0;
    return has_blocks(kind) ? elements / o->ranks : elements;
}

static int run_cell(const coll_options_t *o, coll_area_t *area, const coll_backend_t *backend,
                    coll_row_t *row, double seconds)
{
    cell_t cell = { .area = area, .backend = backend, .buffers = row->buffers };
    cell.call = (coll_call_t){
        .kind = row->kind, .dtype = o->dtype, .redop = o->redop, .count = row->count
    };
    if (coll_data_init(&cell.data, o->dtype, o->redop, backend->rank, backend->size)) return -1;
    int failed = measure(&cell, seconds, &row->p50_us, &row->p99_us, &row->wrong);
    coll_data_free(&cell.data);
    return failed;
}

/* The limit moves f32, as many bytes as the row has. */
static int run_limits(const coll_options_t *o, coll_area_t *area, const coll_backend_t *limits,
                      size_t limit_count, coll_row_t *row)
{
    coll_options_t plain = *o;
    plain.dtype = COLL_F32;
    plain.redop = COLL_SUM;
    for (size_t i = 0; i < limit_count; i++) {
        if (!(limits[i].kinds & 1u << row->kind)) continue;
        coll_row_t bare = *row;
        bare.count = count_of(&plain, row->kind, row->bytes);
        if (run_cell(&plain, area, &limits[i], &bare, o->seconds * LIMIT_SHARE)) return -1;
        if (bare.wrong)
            return bench_fail("limit: %llu elements wrong", (unsigned long long)bare.wrong);
        if (i == 0 || bare.p50_us < row->limit_us) row->limit_us = bare.p50_us;
    }
    return 0;
}

static int run_row(const coll_options_t *o, coll_area_t *area, const coll_backend_t *backend,
                   coll_row_t *row)
{
    if (run_cell(o, area, backend, row, o->seconds)) return -1;
    if (backend->rank == 0) coll_row_print(row);
    if (!row->wrong) return 0;
    return bench_fail("%s of %llu bytes: %llu elements wrong", coll_kind_names[row->kind],
                      (unsigned long long)row->bytes, (unsigned long long)row->wrong);
}

/* A size: the limit first, then both kinds of memory. */
static int run_size(const coll_options_t *o, coll_area_t *area, const coll_backend_t *backend,
                    const coll_backend_t *limits, size_t limit_count, coll_kind_t kind,
                    uint64_t bytes)
{
    coll_row_t row = { .kind = kind,
                       .dtype = o->dtype,
                       .redop = o->redop,
                       .impl = backend->impl,
                       .transport = backend->transport,
                       .ranks = backend->size,
                       .count = count_of(o, kind, bytes) };
    row.bytes = row.count * (has_blocks(kind) ? backend->size : 1) * coll_dtype_size(o->dtype);
    if (run_limits(o, area, limits, limit_count, &row)) return -1;
    for (unsigned buffers = 0; buffers < COLL_BUFFERS; buffers++) {
        row.buffers = (coll_buffers_t)buffers;
        if (o->buffers & 1u << buffers && run_row(o, area, backend, &row)) return -1;
    }
    return 0;
}

/* Barrier and latency have one size. */
int coll_cells_run(const coll_options_t *o, coll_area_t *area, const coll_backend_t *backend,
                   const coll_backend_t *limits, size_t limit_count)
{
    for (unsigned i = 0; i < COLL_KINDS; i++) {
        int sized = i != COLL_BARRIER && i != COLL_LATENCY;
        uint64_t bytes = sized ? o->min : COLL_LATENCY_BYTES, last = sized ? o->max : bytes;
        if (!(o->kinds & backend->kinds & 1u << i)) continue;
        for (; bytes <= last; bytes *= o->factor)
            if (run_size(o, area, backend, limits, limit_count, (coll_kind_t)i, bytes)) return -1;
    }
    coll_area_meet(area); /* nobody's memory goes before the others are done with it */
    return 0;
}
