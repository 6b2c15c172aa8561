/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "flag_values.h"
#include "flags.h"
#include "tune.h"

static int parse_size(const char *name, const char *text, uint64_t *out)
{
    if (!bench_parse_bytes(text, out)) return 0;
    return bench_fail("--%s: \"%s\" is not a size such as 64, 4KiB, 16MiB, up to 1024MiB", name,
                      text);
}

static int set_out(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((tune_options_t *)options)->out);
}

static int set_min(void *options, const char *name, const char *text)
{
    return parse_size(name, text, &((tune_options_t *)options)->min);
}

static int set_max(void *options, const char *name, const char *text)
{
    return parse_size(name, text, &((tune_options_t *)options)->max);
}

static int set_factor(void *options, const char *name, const char *text)
{
    uint32_t factor;
    if (bench_parse_count(name, text, 2, 1024, &factor)) return -1;
    ((tune_options_t *)options)->factor = factor;
    return 0;
}

static int set_collective(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, coll_kind_names, TUNE_KINDS,
                             &((tune_options_t *)options)->kinds);
}

static int set_seconds(void *options, const char *name, const char *text)
{
    return bench_parse_seconds(name, text, &((tune_options_t *)options)->seconds);
}

static const bench_flag_t flags[] = {
    { "out", "FILE", "rank 0 writes the rules there; needed", set_out },
    { "collective", "LIST",
      "of allreduce,reduce,broadcast,allgather,reduce_scatter,alltoall,gather,scatter,\n"
      "barrier (default: all)",
      set_collective },
    { "min", "BYTES", "first size of a rank's larger buffer (default 256)", set_min },
    { "max", "BYTES", "last size (default 16MiB)", set_max },
    { "factor", "N", "from one size to the next (default 4)", set_factor },
    { "seconds", "S", "measuring time of an algorithm and size, about (default 0.1)", set_seconds },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(void)
{
    puts(
        "usage: psrt-launch -s 0 -w N ... -- psrt-bench tune --out FILE [flags]\n"
        "\n"
        "Measures every algorithm of the collectives among the workers of this job, where they are, and\n"
        "writes the fastest ones as rules that hold for this number of ranks and kind of hosts:\n"
        "PSRT_COLL_TUNE=@FILE uses them. A file may hold the rules of several runs.\n");
    bench_flags_print(flags, FLAGS);
    puts("  -h, --help           print this");
    return BENCH_OK;
}

int tune_options_parse(int argc, char **argv, tune_options_t *out)
{
    *out = (tune_options_t){
        .min = 256, .max = 16u << 20, .factor = 4, .kinds = (1u << TUNE_KINDS) - 1, .seconds = 0.1
    };
    if (argc && (!strcmp(argv[0], "-h") || !strcmp(argv[0], "--help"))) return print_help();
    int result = bench_flags_parse(flags, FLAGS, out, argc, argv);
    if (result != BENCH_RUN) return result;
    if (out->out && out->min <= out->max) return BENCH_RUN;
    bench_fail(out->out ? "--min is above --max" : "--out FILE is missing");
    return BENCH_USAGE;
}
