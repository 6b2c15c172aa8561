/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <string.h>

#include "benchmarks/flags.h"
#include "benchmarks/ps.h"

static int parse(ps_options_t *options, const char *const *words, int count)
{
    return ps_options_parse(count, (char **)words, options);
}

#define PARSE(options, ...)                                                                        \
    parse(options, (const char *const[]){ __VA_ARGS__, NULL },                                     \
          (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

Test(flags, defaults)
{
    ps_options_t o;
    cr_assert_eq(ps_options_parse(0, NULL, &o), BENCH_RUN);
    cr_assert_eq(o.size_count, 12);
    cr_assert_eq(o.sizes[0], 4);
    cr_assert_eq(o.sizes[11], 268435456);
    cr_assert_eq(o.ops, 7u);
    cr_assert_eq(o.transports, 7u);
    cr_assert_eq(o.buffers, 3u);
    cr_assert_eq(o.workers, 1);
    cr_assert_eq(o.servers, 1);
    cr_assert_eq(o.worker, 0);
}

Test(flags, all)
{
    ps_options_t o;
    cr_assert_eq(PARSE(&o, "--sizes=8,3KiB,2MiB", "--ops", "push_pull", "--transports",
                       "zmq,inproc", "--buffers", "user", "--workers", "3", "--servers=2",
                       "--security", "off", "--seconds", "0.25", "--json", "x"),
                 BENCH_RUN);
    cr_assert_eq(o.size_count, 3);
    cr_assert_eq(o.sizes[0], 8);
    cr_assert_eq(o.sizes[1], 3072);
    cr_assert_eq(o.sizes[2], 2097152);
    cr_assert_eq(o.ops, 1u << PS_PUSH_PULL);
    cr_assert_eq(o.transports, 1u << PS_ZMQ | 1u << PS_INPROC);
    cr_assert_eq(o.buffers, 1u << PS_BUFFERS_USER);
    cr_assert_eq(o.workers, 3);
    cr_assert_eq(o.servers, 2);
    cr_assert_str_eq(o.security, "off");
    cr_assert_float_eq(o.seconds, 0.25, 0);
    cr_assert_str_eq(o.json, "x");
}

Test(flags, refused)
{
    static const char *const cases[][2] = {
        { "--sizes", "5" },
        { "--sizes", "" },
        { "--sizes", "4,,8" },
        { "--sizes", "4KB" },
        { "--sizes", "-4" },
        { "--sizes", "0" },
        { "--sizes", "2048MiB" },
        { "--sizes", "99999999999999999999MiB" },
        { "--ops", "pul" },
        { "--ops", "" },
        { "--transports", "shm,tcp" },
        { "--buffers", "both" },
        { "--workers", "0" },
        { "--workers", "-1" },
        { "--workers", "65" },
        { "--servers", "2x" },
        { "--security", "maybe" },
        { "--seconds", "0" },
        { "--seconds", "nan" },
        { "--seconds", "-1" },
        { "--json", "" },
        { "--sise", "4" },
        { "words", "4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ps_options_t o;
        cr_assert_eq(PARSE(&o, cases[i][0], cases[i][1]), BENCH_USAGE, "%s \"%s\"", cases[i][0],
                     cases[i][1]);
    }
    ps_options_t o;
    cr_assert_eq(PARSE(&o, "--workers"), BENCH_USAGE);
}

Test(flags, nearest)
{
    static const char *const names[] = { "push", "pull", "push_pull", "workers" };
    cr_assert_str_eq(bench_nearest("pul", names, 4, sizeof *names), "pull");
    cr_assert_str_eq(bench_nearest("push-pull", names, 4, sizeof *names), "push_pull");
    cr_assert_str_eq(bench_nearest("worker", names, 4, sizeof *names), "workers");
    cr_assert(bench_nearest("allreduce", names, 4, sizeof *names) == NULL);
}
