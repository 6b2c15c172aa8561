/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "flag_values.h"
#include "flags.h"
#include "ps.h"

#define TABLES_LIMIT 1000000
#define DEFAULT_SIZES "4,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB"

const char *const ps_op_names[PS_OPS + 1] = { "push", "pull", "push_pull", "declare" };
const char *const ps_buffers_names[PS_BUFFERS + 1] = { "psrt", "user", "none" };
const char *const ps_transport_names[PS_TRANSPORTS] = { "shm", "zmq", "inproc" };

/* f32 elements. */
static int parse_elements(const char *text, uint64_t *out)
{
    uint64_t bytes;
    if (bench_parse_bytes(text, &bytes) || bytes % sizeof(float)) return -1;
    *out = bytes;
    return 0;
}

static int set_sizes(void *options, const char *name, const char *text)
{
    ps_options_t *o = options;
    char word[32];
    size_t count = 0;
    int more;
    while ((more = bench_next_word(&text, word, sizeof word)) > 0) {
        if (count == PS_SIZES_MAX) return bench_fail("--%s: more than %d", name, PS_SIZES_MAX);
        if (parse_elements(word, &o->sizes[count++]))
            return bench_fail(
                "--%s: \"%s\" is not a size such as 4, 64KiB, 16MiB: a multiple of 4, "
                "up to 1024MiB",
                name, word);
    }
    if (more < 0) return bench_fail("--%s: a word is too long", name);
    o->size_count = count;
    return 0;
}

static int set_ops(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, ps_op_names, PS_OPS, &((ps_options_t *)options)->ops);
}

static int set_transports(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, ps_transport_names, PS_TRANSPORTS,
                             &((ps_options_t *)options)->transports);
}

static int set_buffers(void *options, const char *name, const char *text)
{
    return bench_parse_names(name, text, ps_buffers_names, PS_BUFFERS,
                             &((ps_options_t *)options)->buffers);
}

static int set_workers(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, PS_TASKS_MAX, &((ps_options_t *)options)->workers);
}

static int set_servers(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, PS_TASKS_MAX, &((ps_options_t *)options)->servers);
}

static int set_tables(void *options, const char *name, const char *text)
{
    return bench_parse_count(name, text, 1, TABLES_LIMIT, &((ps_options_t *)options)->tables);
}

static int set_table_bytes(void *options, const char *name, const char *text)
{
    if (!parse_elements(text, &((ps_options_t *)options)->table_bytes)) return 0;
    return bench_fail("--%s: \"%s\" is not a size such as 4, 64KiB: a multiple of 4", name, text);
}

static int set_security(void *options, const char *name, const char *text)
{
    if (strcmp(text, "encrypted") && strcmp(text, "authenticated") && strcmp(text, "off"))
        return bench_fail("--%s %s: not one of encrypted, authenticated, off", name, text);
    ((ps_options_t *)options)->security = text;
    return 0;
}

static int set_seconds(void *options, const char *name, const char *text)
{
    return bench_parse_seconds(name, text, &((ps_options_t *)options)->seconds);
}

static int set_json(void *options, const char *name, const char *text)
{
    return bench_parse_file(name, text, &((ps_options_t *)options)->json);
}

static int set_worker(void *options, const char *name, const char *text)
{
    ((ps_options_t *)options)->worker = 1;
    return set_transports(options, name, text);
}

static const bench_flag_t flags[] = {
    { "sizes", "LIST", "payloads, such as 4,64KiB,16MiB; f32 elements\n(default " DEFAULT_SIZES ")",
      set_sizes },
    { "ops", "LIST", "of push,pull,push_pull (default: all)", set_ops },
    { "transports", "LIST",
      "of shm,zmq,inproc (default: all); inproc is one worker with an\nembedded server",
      set_transports },
    { "buffers", "LIST", "of psrt,user: memory of psrt_alloc, ordinary memory (default: both)",
      set_buffers },
    { "workers", "N", "worker processes (default 1)", set_workers },
    { "servers", "N", "server processes (default 1)", set_servers },
    { "tables", "N", "declare N tables and transfer all of them in one operation (default 1)",
      set_tables },
    { "table-bytes", "B", "size of each of the N tables, instead of --sizes (default 1KiB)",
      set_table_bytes },
    { "security", "LEVEL", "encrypted, authenticated or off; concerns zmq (default: the library's)",
      set_security },
    { "seconds", "S", "measuring time of one cell, about (default 0.5)", set_seconds },
    { "json", "FILE", "also write the rows to FILE, as an array of objects", set_json },
    { "worker", "TRANSPORT", "(internal) be a worker of a job that was started", set_worker },
};

#define FLAGS (sizeof flags / sizeof *flags)

static int print_help(void)
{
    puts(
        "usage: psrt-bench ps [flags]\n"
        "\n"
        "Measures push, pull and push_pull over sizes, transports and kinds of memory. Starts a job\n"
        "of N workers and M servers with psrt-launch for each transport; all workers do the same,\n"
        "worker 0 measures.\n");
    bench_flags_print(flags, FLAGS - 1); /* not the internal one */
    puts(
        "  -h, --help           print this\n"
        "\n"
        "Columns\n"
        "  tables     that one operation transfers\n"
        "  bytes      payload of a table in one operation of one worker; push_pull: of one direction\n"
        "  GB/s       1e9 bytes of that payload per second of worker 0, several operations in flight\n"
        "             (64 small ones, 2 large ones, 1 from 64 MiB up); median of 5 rounds\n"
        "  limit      the same for the limit, which one thread reaches in its own memory, measured\n"
        "             between the rounds on other buffers of the same size: push: dst += src,\n"
        "             pull: memcpy, push_pull: the sum of both times; the faster of libc's or the\n"
        "             compiler's code and the library's. Memory as in the operation: the table on huge\n"
        "             pages; gradient and values too, for buffers `user` they are of malloc\n"
        "  ratio      GB/s divided by limit\n"
        "  raw        the same for the bare transport. shm: two processes that share memory on huge\n"
        "             pages. push_pull: one adds the gradient of the other to its table, the other\n"
        "             copies the table out; both at once in pieces, one piece being copied while the next\n"
        "             is added, two operations in flight, no piece is added to before it is copied;\n"
        "             polling, without headers; the best of pieces of 64 KiB, 256 KiB, 1 MiB and of\n"
        "             copies in and past the caches. push and\n"
        "             pull are a pass of one process: as limit. zmq: libzmq, a DEALER and a ROUTER in two\n"
        "             processes over loopback, one I/O thread each, the job's security level; memory of\n"
        "             the operation's size (64 MiB at most), sent in place in messages of 64 KiB, 256 KiB,\n"
        "             1 MiB or 4 MiB, whichever is fastest, and dropped by the receiver. push: from the\n"
        "             worker; pull: to it; push_pull: one after the other\n"
        "  / raw      GB/s divided by raw\n"
        "  total      GB/s of all workers together, from their common start to the end of the last one\n"
        "  p50, p99   us from the start of an operation to the return of its wait, one at a time\n"
        "  ops/s      tables transferred per second, several operations in flight\n"
        "  limit us   time of the limit for one table of an operation\n"
        "  ping us    round trip of the bare transport. shm: a cache line there and one back, between two\n"
        "             processes that poll; zmq: 64 bytes there and back, both sides sleeping\n"
        "\n"
        "Tables have no optimizer: a push is added. push and pull use consistency async, push_pull\n"
        "sync with the sum over the workers. The values are checked once a cell. With --tables, N tables\n"
        "of each kind are declared by all workers at once: the rows `declare`, whose limit is that of pull.\n"
        "\n"
        "Exit status: 0, 1 when something failed or a value was wrong, 2 wrong usage.");
    return BENCH_OK;
}

int ps_options_parse(int argc, char **argv, ps_options_t *out)
{
    ps_options_t o = { .ops = (1u << PS_OPS) - 1,
                       .buffers = (1u << PS_BUFFERS) - 1,
                       .transports = (1u << PS_TRANSPORTS) - 1,
                       .workers = 1,
                       .servers = 1,
                       .tables = 1,
                       .table_bytes = 1024,
                       .seconds = 0.5 };
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return print_help();
    if (set_sizes(&o, "sizes", DEFAULT_SIZES)) return BENCH_USAGE;
    int result = bench_flags_parse(flags, FLAGS, &o, argc, argv);
    if (result == BENCH_RUN) *out = o;
    return result;
}
