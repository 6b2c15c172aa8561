/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const options_t defaults = {
    .epochs = 6,
    .batch = 128,
    .seed = 1,
    .optimizer = "momentum:lr=0.015,momentum=0.9",
    .consistency = "sync",
    .dtype = PSRT_F32,
    .data = "/usr/share/datasets/fashion-mnist",
};

static void print_help(void)
{
    printf(
        "usage: mnist_replica [options]\n"
        "       psrt-launch -w WORKERS -s SERVERS -- mnist_replica [options]\n"
        "\n"
        "Trains a perceptron 784-1024-10 on Fashion-MNIST with parameter servers, each worker on\n"
        "its own part of the images, and prints the accuracy on the test images.\n"
        "\n"
        "  --epochs N         passes over the images (default %llu)\n"
        "  --steps N          train N steps instead of whole epochs\n"
        "  --batch N          images of one worker in a step (default %u)\n"
        "  --optimizer SPEC   sgd:lr=.., momentum:lr=..,momentum=.., adam:lr=.., ...\n"
        "                     (default %s)\n"
        "  --consistency C    sync, sync:backup=B, async or ssp:S (default %s)\n"
        "  --dtype T          f32, f16 or bf16: of the tables (default f32)\n"
        "  --deterministic    bit-equal results in every run (sync only)\n"
        "  --seed N           of initial weights and order of the images (default %llu)\n"
        "  --train-limit N    use the first N training images only\n"
        "  --data DIR         the IDX files, plain or gzip (default %s)\n"
        "  --save FILE        worker 0 writes the final weights, raw f32: fc1/weight, fc1/bias,\n"
        "                     fc2/weight, fc2/bias\n"
        "  --quiet            no progress\n"
        "  -h, --help         print this\n"
        "\n"
        "Exit status: 0, 1 when training failed or changed nothing, 2 wrong usage.\n",
        (unsigned long long)defaults.epochs, defaults.batch, defaults.optimizer,
        defaults.consistency, (unsigned long long)defaults.seed, defaults.data);
}

/* strtoull takes blanks and signs, and " -1" as a large number: only digits are allowed here. */
static int parse_number(const char *flag, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value < min || value > max) {
        fprintf(stderr, "mnist_replica: --%s %s: not a number from %llu to %llu\n", flag, text,
                (unsigned long long)min, (unsigned long long)max);
        return -1;
    }
    *out = value;
    return 0;
}

static int parse_dtype(const char *text, psrt_dtype_t *out)
{
    static const struct {
        const char *name;
        psrt_dtype_t dtype;
    } known[] = { { "f32", PSRT_F32 }, { "f16", PSRT_F16 }, { "bf16", PSRT_BF16 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) return *out = known[i].dtype, 0;
    fprintf(stderr, "mnist_replica: --dtype %s: not f32, f16 or bf16\n", text);
    return -1;
}

enum {
    EPOCHS = 256,
    STEPS,
    BATCH,
    OPTIMIZER,
    CONSISTENCY,
    DTYPE,
    DETERMINISTIC,
    SEED,
    TRAIN_LIMIT,
    DATA,
    SAVE,
    QUIET
};

static const struct option flags[] = { { "epochs", required_argument, NULL, EPOCHS },
                                       { "steps", required_argument, NULL, STEPS },
                                       { "batch", required_argument, NULL, BATCH },
                                       { "optimizer", required_argument, NULL, OPTIMIZER },
                                       { "consistency", required_argument, NULL, CONSISTENCY },
                                       { "dtype", required_argument, NULL, DTYPE },
                                       { "deterministic", no_argument, NULL, DETERMINISTIC },
                                       { "seed", required_argument, NULL, SEED },
                                       { "train-limit", required_argument, NULL, TRAIN_LIMIT },
                                       { "data", required_argument, NULL, DATA },
                                       { "save", required_argument, NULL, SAVE },
                                       { "quiet", no_argument, NULL, QUIET },
                                       { "help", no_argument, NULL, 'h' },
                                       { NULL, 0, NULL, 0 } };

static int apply(options_t *o, int flag, const char *name, const char *arg)
{
    uint64_t number = 0;
    int result = 0;
    switch (flag) {
    case EPOCHS: return parse_number(name, arg, 1, 1000000, &o->epochs);
    case STEPS: return parse_number(name, arg, 1, INT64_MAX, &o->steps);
    case SEED: return parse_number(name, arg, 0, UINT32_MAX, &o->seed);
    case BATCH:
        result = parse_number(name, arg, 1, 65536, &number);
        o->batch = (uint32_t)number;
        return result;
    case TRAIN_LIMIT:
        result = parse_number(name, arg, 1, UINT32_MAX, &number);
        o->train_limit = (uint32_t)number;
        return result;
    case OPTIMIZER: o->optimizer = arg; return 0;
    case CONSISTENCY: o->consistency = arg; return 0;
    case DTYPE: return parse_dtype(arg, &o->dtype);
    case DETERMINISTIC: o->deterministic = 1; return 0;
    case DATA: o->data = arg; return 0;
    case SAVE: o->save = arg; return 0;
    case QUIET: o->quiet = 1; return 0;
    default:
        fputs("see mnist_replica --help\n", stderr);
        return -1; /* getopt_long named the flag */
    }
}

int options_parse(int argc, char **argv, options_t *out)
{
    options_t o = defaults;
    for (int flag, index = 0; (flag = getopt_long(argc, argv, "h", flags, &index)) != -1;) {
        if (flag == 'h') return print_help(), 0;
        if (apply(&o, flag, flags[index].name, optarg)) return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "mnist_replica: unexpected argument \"%s\"; see mnist_replica --help\n",
                argv[optind]);
        return 2;
    }
    *out = o;
    return OPTIONS_RUN;
}
