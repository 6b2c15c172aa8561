/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "coll.h"
#include "flag_values.h"
#include "flags.h"

const char *const coll_kind_names[COLL_KINDS] = {
    "allreduce", "reduce",  "broadcast",  "allgather", "reduce_scatter", "alltoall", "gather",
    "scatter",   "barrier", "allgatherv", "alltoallv", "sendrecv",       "latency"
};
const char *const coll_dtype_names[COLL_DTYPES] = { "f32", "f64", "f16", "bf16", "i8",
                                                    "i16", "i32", "i64", "u8" };
const char *const coll_redop_names[COLL_REDOPS] = { "sum", "prod", "min", "max", "avg" };
const char *const coll_buffers_names[COLL_BUFFERS] = { "psrt", "user" };
const char *const coll_transport_names[COLL_TRANSPORTS] = { "shm", "zmq" };

static int parse_size(const char *name, const char *text, uint64_t *out)
{
    if (!bench_parse_bytes(text, out)) return 0;
    return bench_fail("--%s: \"%s\" is not a size such as 64, 4KiB, 16MiB, up to 1024MiB", name,
                      text);
}

static int set_min(void *options, const char *name, const char *text)
{
    return parse_size(name, text, &((coll_options_t *)options)->min);
}

static int set_max(void *options, const char *name, const char *text)
{
    return parse_size(name, text, &((coll_options_t *)options)->max);
}

static int set_factor(void *options, const char *name, const char *text)
{
    uint32_t factor;
    if (bench_parse_count(name, text, 2, 1024, &factor)) return -1;
    ((coll_options_t *)options)->factor = factor;
    return 0;
}

static int set_collective(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, coll_kind_names, COLL_KINDS,
                             &((coll_options_t *)options)->kinds);
}

static int set_dtype(void *options, const char *name, const char *text)
{
    unsigned index;
    if (bench_parse_name(name, text, coll_dtype_names, COLL_DTYPES, &index)) return -1;
    ((coll_options_t *)options)->dtype = (coll_dtype_t)index;
    return 0;
}

static int set_op(void *options, const char *name, const char *text)
{
    unsigned index;
    if (bench_parse_name(name, text, coll_redop_names, COLL_REDOPS, &index)) return -1;
    ((coll_options_t *)options)->redop = (coll_redop_t)index;
    return 0;
}

static int set_buffers(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, coll_buffers_names, COLL_BUFFERS,
                             &((coll_options_t *)options)->buffers);
}

static int set_transport(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, coll_transport_names, COLL_TRANSPORTS,
                             &((coll_options_t *)options)->transports);
}

static int set_ranks(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, COLL_RANKS_MAX, &((coll_options_t *)options)->ranks);
}

static int set_seconds(void *options, const char *name, const char *text)
{
    return bench_parse_seconds(name, text, &((coll_options_t *)options)->seconds);
}

static int set_json(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((coll_options_t *)options)->json);
}

static int set_area(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((coll_options_t *)options)->area);
}

static const bench_flag_t flags[] = {
    { "collective", "LIST",
      "of allreduce,reduce,broadcast,allgather,reduce_scatter,alltoall,gather,scatter,\n"
      "barrier,allgatherv,alltoallv,sendrecv,latency (default: all)",
      set_collective },
    { "min", "BYTES", "first size, such as 64, 4KiB (default 64)", set_min },
    { "max", "BYTES", "last size (default 256MiB)", set_max },
    { "factor", "N", "from one size to the next (default 4)", set_factor },
    { "ranks", "N", "processes (default 2)", set_ranks },
    { "dtype", "TYPE", "f32 (default), f64, f16, bf16, i8, i16, i32, i64, u8", set_dtype },
    { "op", "OP", "of reductions: sum (default), prod, min, max, avg", set_op },
    { "buffers", "LIST", "of psrt,user: memory of psrt_alloc, ordinary memory (default: both)",
      set_buffers },
    { "transport", "LIST", "of shm,zmq (default shm)", set_transport },
    { "seconds", "S", "measuring time of one cell, about (default 0.3)", set_seconds },
    { "json", "FILE", "also write the rows to FILE, as an array of objects", set_json },
    { "area", "PATH", "(internal) be a rank; where the ranks meet", set_area },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(const char *usage)
{
    puts(usage);
    bench_flags_print(flags, FLAGS - 1); /* not the internal one */
    puts(
        "  -h, --help           print this\n"
        "\n"
        "Columns\n"
        "  size       bytes of the larger one of the two buffers of a rank, as nccl-tests counts\n"
        "             (of allgatherv and alltoallv: the sum of all parts)\n"
        "  count      elements as the call counts them: of the whole vector, or of the block of a rank\n"
        "             (of allgatherv and alltoallv: of all parts, which are of different lengths)\n"
        "  time us    median over the iterations. In each of them every rank writes its input anew,\n"
        "             all meet, each times its own blocking call, and the slowest rank's time counts\n"
        "  p99 us     of the same times\n"
        "  algbw      1e9 bytes of size per second\n"
        "  busbw      algbw times what each rank sends or receives at least, divided by size:\n"
        "             2(n-1)/n for allreduce, 1 for reduce, broadcast and sendrecv, else (n-1)/n\n"
        "  limit us   the same for plain loops in the same processes, measured in the same run: memory\n"
        "             on huge pages that all share, each rank sums its part straight from all inputs into\n"
        "             all outputs, or copies; flags before and after; writing in or past the caches,\n"
        "             whichever is faster\n"
        "  / limit    limit divided by time\n"
        "  wrong      elements of all ranks that differ from an independent computation, after the\n"
        "             first and the last iteration\n"
        "\n"
        "The collective `latency` is an allreduce of 64 bytes, one call after the other without meeting:\n"
        "what a loop of a program sees. The root is rank 0.\n"
        "In `sendrecv` every rank sends to the next one and receives from the one before it, the last one to and\n"
        "the first one from the other end; size is what it sends. Of n parts of allgatherv and alltoallv the i-th\n"
        "has i shares of n(n+1)/2: the last one is n times the first. In allgatherv rank i gives part i; in\n"
        "alltoallv rank a sends rank b part (a+b) mod n, so that all ranks send and receive as much.\n"
        "\n"
        "Exit status: 0, 1 when something failed or a value was wrong, 2 wrong usage.");
    return BENCH_OK;
}

static int check(const coll_options_t *o)
{
    if (o->min <= o->max) return BENCH_RUN;
    bench_fail("--min is above --max");
    return BENCH_USAGE;
}

int coll_options_parse(int argc, char **argv, const char *usage, coll_options_t *out)
{
    coll_options_t o = { .min = 64,
                         .max = (uint64_t)256 << 20,
                         .factor = 4,
                         .kinds = (1u << COLL_KINDS) - 1,
                         .buffers = (1u << COLL_BUFFERS) - 1,
                         .transports = 1u << COLL_SHM,
                         .ranks = 2,
                         .seconds = 0.3 };
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return print_help(usage);
    int result = bench_flags_parse(flags, FLAGS, &o, argc, argv);
    if (result == BENCH_RUN) result = check(&o);
    if (result == BENCH_RUN) *out = o;
    return result;
}
