/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <psrt/psrt.h>

#include "coll.h"
#include "flags.h"
#include "fusion.h"
#include "kernels.h"
#include "model.h"
#include "ps.h"
#include "tune.h"

static const struct {
    const char *name;
    const char *doc;
    int (*run)(int argc, char **argv); /* arguments after the subcommand; returns the exit code */
} subcommands[] = {
    { "ps", "push, pull and push_pull between workers and servers", bench_ps },
    { "coll", "collectives between workers", bench_coll },
    { "fusion", "many tensors: an allreduce each, fused, and as one", bench_fusion },
    { "tune", "the fastest algorithm of each collective, as rules for PSRT_COLL_TUNE", bench_tune },
    { "kernels", "copies, sums, conversions and optimizers in memory", bench_kernels },
    { "model", "training steps with the tensors of a real model, without its arithmetic",
      bench_model },
};

#define SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

static int print_help(void)
{
    puts("usage: psrt-bench SUBCOMMAND [flags]\n"
         "\n"
         "Measures libpsrt on this machine, beside what the machine itself can do.\n");
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        printf("  %-10s %s\n", subcommands[i].name, subcommands[i].doc);
    puts("\n  -h, --help, --version\n"
         "\n"
         "psrt-bench SUBCOMMAND --help explains a subcommand.");
    return BENCH_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        bench_fail("no subcommand given; see psrt-bench --help");
        return BENCH_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "-h") || !strcmp(name, "--help")) return print_help();
    if (!strcmp(name, "--version")) return printf("psrt-bench %s\n", psrt_version()) < 0;
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        if (!strcmp(name, subcommands[i].name)) return subcommands[i].run(argc - 2, argv + 2);
    const char *nearest = bench_nearest(name, subcommands, SUBCOMMANDS, sizeof *subcommands);
    if (nearest)
        bench_fail("unknown subcommand %s, did you mean %s?", name, nearest);
    else
        bench_fail("unknown subcommand %s; see psrt-bench --help", name);
    return BENCH_USAGE;
}
