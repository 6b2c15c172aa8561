/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what the installed library is, what it found on this machine, and how it is configured. */
#include <psrt/psrt.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] =
    "usage: psrt-info [-c | -a]\n"
    "\n"
    "Prints version, build, machine and modules of libpsrt: transports and kernel variants with\n"
    "their scores (the highest that is available is preferred), optimizers, optional modules.\n"
    "\n"
    "  -c, --config  print the configuration instead: each PSRT_* variable, its value in this\n"
    "                environment, and where the value comes from\n"
    "  -a, --all     print everything, the configuration with type, default and explanation\n"
    "  -h, --help    print this\n"
    "  --version     print the version\n"
    "\n"
    "Exit status: 0, 1 when the environment has an illegal value (the text names it), 2 wrong\n"
    "usage.\n";

#if defined(__SANITIZE_ADDRESS__)
#define BUILD_SANITIZER ", AddressSanitizer"
#elif defined(__SANITIZE_THREAD__)
#define BUILD_SANITIZER ", ThreadSanitizer"
#else
#define BUILD_SANITIZER ""
#endif
#ifdef __OPTIMIZE__
#define BUILD_OPTIMIZED "optimized"
#else
#define BUILD_OPTIMIZED "not optimized"
#endif
#ifdef NDEBUG
#define BUILD_ASSERTIONS ""
#else
#define BUILD_ASSERTIONS ", assertions"
#endif
#ifdef __clang__
#define BUILD_COMPILER __VERSION__
#else
#define BUILD_COMPILER "GCC " __VERSION__
#endif

static int fail(const char *what)
{
    fprintf(stderr, "psrt-info: %s: %s\n", what, psrt_last_error());
    return EXIT_FAILED;
}

static void print_machine(void)
{
    char machine[256];
    psrt_topology_describe(machine, sizeof machine);
    printf("version  %s\n", psrt_version());
    printf("build    %s, %s%s%s\n", BUILD_COMPILER, BUILD_OPTIMIZED, BUILD_ASSERTIONS,
           BUILD_SANITIZER);
    printf("machine  %s\n", machine);
}

static int print_modules(void)
{
    psrt_module_info_t info = { .size = sizeof info };
    psrt_status_t status;
    printf("\n%-10s %-14s %-9s %5s  %s\n", "kind", "name", "available", "score", "note");
    for (size_t i = 0; (status = psrt_module_query(i, &info)) == PSRT_OK; i++) {
        char score[16] = "-";
        if (info.score) snprintf(score, sizeof score, "%d", info.score);
        printf("%-10s %-14s %-9s %5s  %s\n", info.kind, info.name, info.available ? "yes" : "no",
               score, info.note);
    }
    return status == PSRT_ERR_NOT_FOUND ? EXIT_OK : fail("modules");
}

static void print_setting(const psrt_config_info_t *info, int with_docs)
{
    printf("%-25s %-20s %s\n", info->name, *info->value ? info->value : "-", info->origin);
    if (!with_docs) return;
    printf("    %s", info->type);
    if (info->choices && *info->choices) printf(" (%s)", info->choices);
    if (*info->default_text) printf(", default %s", info->default_text);
    printf("\n    %s\n", info->doc);
}

static int print_config(int with_docs)
{
    psrt_config_info_t info = { .size = sizeof info };
    psrt_status_t status;
    printf("%-25s %-20s %s\n", "variable", "value", "origin");
    for (size_t i = 0; (status = psrt_config_query(i, &info)) == PSRT_OK; i++)
        print_setting(&info, with_docs);
    return status == PSRT_ERR_NOT_FOUND ? EXIT_OK : fail("configuration");
}

static int print_all(void)
{
    print_machine();
    int result = print_modules();
    putchar('\n');
    return result == EXIT_OK ? print_config(1) : result;
}

int main(int argc, char **argv)
{
    enum { VERSION = 256 };
    static const struct option flags[] = { { "config", no_argument, NULL, 'c' },
                                           { "all", no_argument, NULL, 'a' },
                                           { "help", no_argument, NULL, 'h' },
                                           { "version", no_argument, NULL, VERSION },
                                           { NULL, 0, NULL, 0 } };
    int mode = 0;
    for (int flag; (flag = getopt_long(argc, argv, "cah", flags, NULL)) != -1;) {
        switch (flag) {
        case 'c':
        case 'a': mode = flag; break;
        case 'h': return fputs(help, stdout) < 0;
        case VERSION: return printf("psrt-info %s\n", psrt_version()) < 0;
        default: /* getopt_long named the flag */
            fputs("psrt-info: see psrt-info --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "psrt-info: unexpected argument \"%s\"; see psrt-info --help\n",
                argv[optind]);
        return EXIT_USAGE;
    }
    if (mode == 'c') return print_config(0);
    if (mode == 'a') return print_all();
    print_machine();
    return print_modules();
}
