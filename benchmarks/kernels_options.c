/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flag_values.h"
#include "flags.h"
#include "kernels.h"

#define SIZE_LIMIT ((uint64_t)1 << 32)
#define DEFAULT_SIZES "64KiB,1MiB,16MiB,256MiB"

/* One size at *text, which moves behind it and its comma; 0, or -1. */
static int next_size(const char **text, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**text)) return -1;
    unsigned long long value = strtoull(*text, &end, 10);
    unsigned shift = strncmp(end, "KiB", 3) == 0 ? 10 : strncmp(end, "MiB", 3) == 0 ? 20 : 0;
    end += shift ? 3 : 0;
    if ((*end && *end != ',') || (*end == ',' && !end[1])) return -1;
    if (!value || value > SIZE_LIMIT >> shift || (value << shift) % 8) return -1;
    *out = value << shift;
    *text = *end ? end + 1 : end;
    return 0;
}

static int set_sizes(void *options, const char *name, const char *text)
{
    kernels_options_t *o = options;
    const char *rest = text;
    size_t count = 0;
    do {
        if (count == KERNELS_SIZES_MAX)
            return bench_fail("--%s: more than %d", name, KERNELS_SIZES_MAX);
        if (next_size(&rest, &o->sizes[count++]))
            return bench_fail("--%s: \"%s\" is not a list of sizes such as 64KiB,16MiB: multiples "
                              "of 8, up to 4096MiB",
                              name, text);
    } while (*rest);
    o->size_count = count;
    return 0;
}

static int set_seconds(void *options, const char *name, const char *text)
{
    return bench_parse_seconds(name, text, &((kernels_options_t *)options)->seconds);
}

static int set_json(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((kernels_options_t *)options)->json);
}

static const bench_flag_t flags[] = {
    { "sizes", "LIST",
      "bytes of the largest operand, such as 64KiB,16MiB\n(default " DEFAULT_SIZES ")", set_sizes },
    { "seconds", "S", "measuring time of one row, about (default 0.1)", set_seconds },
    { "json", "FILE", "also write the rows to FILE, as an array of objects", set_json },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(void)
{
    puts(
        "usage: psrt-bench kernels [flags]\n"
        "\n"
        "Measures, in one thread, each variant of each kernel that this machine has, and the pass of\n"
        "each optimizer with its default hyper-parameters, in the variant that the runtime takes.\n");
    bench_flags_print(flags, FLAGS);
    puts(
        "  -h, --help           print this\n"
        "\n"
        "Columns\n"
        "  kernel     its name; apply_NAME_f32 is an optimizer. Kernels of two operands add to the\n"
        "             first one in place: dst += src\n"
        "  variant    scalar, avx2, ...; auto: the runtime's choice\n"
        "  bytes      of the largest operand\n"
        "  GB/s       1e9 bytes read and written per second, each operand counted once for each;\n"
        "             median of 5 rounds\n"
        "  memcpy     the same of memcpy with that many bytes, measured in the same rounds\n"
        "  plain      the same of a plain loop, compiled for any processor of the architecture, that\n"
        "             touches the same bytes: d[i] = s[i] + 1, d[i] += s[i], for an optimizer d += g\n"
        "             for the value and each state\n"
        "  ratio      GB/s divided by plain\n"
        "\n"
        "Exit status: 0, 1 when something failed, 2 wrong usage.");
    return BENCH_OK;
}

int kernels_options_parse(int argc, char **argv, kernels_options_t *out)
{
    kernels_options_t o = { .seconds = 0.1 };
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return print_help();
    if (set_sizes(&o, "sizes", DEFAULT_SIZES)) return BENCH_USAGE;
    int result = bench_flags_parse(flags, FLAGS, &o, argc, argv);
    if (result == BENCH_RUN) *out = o;
    return result;
}
