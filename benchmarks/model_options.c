/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flag_values.h"
#include "flags.h"
#include "model.h"

#define BATCH_LIMIT 1000000
#define STEPS_LIMIT 10000 /* sums of gradients 0..3 of 64 workers stay below 2^24, exact in f32 */

static int parse_number(const char *name, const char *text, double low, double high, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (!isdigit((unsigned char)*text) || *end || !(value >= low && value <= high))
        return bench_fail("--%s %s: not a number from %g to %g", name, text, low, high);
    *out = value;
    return 0;
}

static int set_tensors(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((model_options_t *)options)->tensors);
}

static int set_batch(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, BATCH_LIMIT, &((model_options_t *)options)->batch);
}

static int set_steps(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, STEPS_LIMIT, &((model_options_t *)options)->steps);
}

static int set_step_ms(void *options, const char *name, const char *text)
{
    return parse_number(name, text, 0, 1e6, &((model_options_t *)options)->step_ms);
}

static int set_divide(void *options, const char *name, const char *text)
{
    return parse_number(name, text, 1, 1e9, &((model_options_t *)options)->divide);
}

static int set_json(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((model_options_t *)options)->json);
}

static const bench_flag_t flags[] = {
    { "tensors", "FILE", "the model: a line for each tensor, as in benchmarks/models",
      set_tensors },
    { "step-ms", "MS", "compute time of a step (default 100)", set_step_ms },
    { "divide", "N", "the elements of each tensor by N, rounded up (default 1)", set_divide },
    { "batch", "N", "samples of a step of one worker (default 32)", set_batch },
    { "steps", "N", "steps that are measured, after two that are not (default 10)", set_steps },
    { "json", "FILE", "worker 0 also writes the row to FILE, as an array of one object", set_json },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(void)
{
    puts(
        "usage: psrt-bench model --tensors FILE [flags]\n"
        "       psrt-launch -w N -s M -- psrt-bench model --tensors FILE [flags]\n"
        "\n"
        "Trains with the tensors of a real model and without its arithmetic: a timer runs for each layer,\n"
        "in proportion to its operations, a third of the step in the forward pass and two thirds in\n"
        "the backward pass. When a layer's backward time is over, its gradients are pushed and the new\n"
        "values pulled (sync), the first layers' before others; the next step's forward pass waits for\n"
        "each layer's values.\n");
    bench_flags_print(flags, FLAGS);
    puts("  -h, --help           print this\n"
         "\n"
         "Columns\n"
         "  parameters   of the model, after --divide\n"
         "  bytes        of its gradients, f32\n"
         "  compute ms   --step-ms\n"
         "  step ms      from the start of a step to that of the next, median of worker 0\n"
         "  samples/s    of all workers: W x batch / step\n"
         "  efficiency   compute / step: 1 where all communication hides behind the computation\n"
         "\n"
         "Exit status: 0, 1 when something failed or a value was wrong, 2 wrong usage.");
    return BENCH_OK;
}

int model_options_parse(int argc, char **argv, model_options_t *out)
{
    model_options_t o = { .batch = 32, .steps = 10, .step_ms = 100, .divide = 1 };
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return print_help();
    int result = bench_flags_parse(flags, FLAGS, &o, argc, argv);
    if (result != BENCH_RUN) return result;
    if (!o.tensors) {
        bench_fail("model: --tensors FILE is missing, for example benchmarks/models/resnet50.tsv");
        return BENCH_USAGE;
    }
    *out = o;
    return BENCH_RUN;
}
