/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/compat/tfrun.h"

#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/expand.h"
#include "launcher/hosts.h"
#include "launcher/indices.h"
#include "launcher/jobfile.h"
#include "launcher/jsonread.h"

#define GPUS_MAX PSRTI_JOB_GPUS_MAX
#define CPUS_MAX 4096.0
#define MEM_MAX (1024.0 * 1024 * 1024) /* MB */

/* What tfrun says of a kind of task. */
typedef struct amount {
    unsigned count, gpus;
    double cpus, mem;
} amount_t;

typedef struct tfrun {
    amount_t workers, servers;
    const char *name, *master, *extra_config, *worker_logs;
    psrti_hosts_t hosts;
    char **volumes;
    size_t volume_count;
    int dry_run;
} tfrun_t;

enum {
    OPT_WORKER_LOGS = 256,
    OPT_WORKER_CPUS,
    OPT_WORKER_GPUS,
    OPT_WORKER_MEM,
    OPT_SERVER_CPUS,
    OPT_SERVER_GPUS,
    OPT_SERVER_MEM,
    OPT_HOSTFILE,
    OPT_DRY_RUN
};

/* tfrun's two letters after one dash are long names to getopt_long_only. */
static const struct option longs[] = {
    { "nworker", 1, NULL, 'w' },
    { "nserver", 1, NULL, 's' },
    { "master", 1, NULL, 'm' },
    { "name", 1, NULL, 'n' },
    { "containerizer_type", 1, NULL, 'C' },
    { "force_pull_image", 0, NULL, 'f' },
    { "Cw", 1, NULL, OPT_WORKER_CPUS },
    { "worker-cpus", 1, NULL, OPT_WORKER_CPUS },
    { "Gw", 1, NULL, OPT_WORKER_GPUS },
    { "worker-gpus", 1, NULL, OPT_WORKER_GPUS },
    { "Mw", 1, NULL, OPT_WORKER_MEM },
    { "worker-mem", 1, NULL, OPT_WORKER_MEM },
    { "Cs", 1, NULL, OPT_SERVER_CPUS },
    { "server-cpus", 1, NULL, OPT_SERVER_CPUS },
    { "Gs", 1, NULL, OPT_SERVER_GPUS },
    { "server-gpus", 1, NULL, OPT_SERVER_GPUS },
    { "Ms", 1, NULL, OPT_SERVER_MEM },
    { "server-mem", 1, NULL, OPT_SERVER_MEM },
    { "verbose", 0, NULL, 'v' },
    { "volume", 1, NULL, 'V' },
    { "role", 1, NULL, 'r' },
    { "extra_config", 1, NULL, 'e' },
    { "worker-logs", 1, NULL, OPT_WORKER_LOGS },
    { "host", 1, NULL, 'H' },
    { "hostfile", 1, NULL, OPT_HOSTFILE },
    { "dry-run", 0, NULL, OPT_DRY_RUN },
    { "help", 0, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char help[] =
    "NAME\n"
    "    psrt-launch tfrun - run a line that was written for TFMesos' tfrun\n\n"
    "SYNOPSIS\n"
    "    psrt-launch tfrun -w N -s N [options] -- CMD...\n\n"
    "DESCRIPTION\n"
    "    The words of CMD are joined with spaces and run by /bin/sh, on workers and servers (ps)\n"
    "    alike. {ps_hosts} {worker_hosts} {job_name} {task_index} and the other placeholders of\n"
    "    psrt-launch are replaced; every other brace is written twice. The job ends when all\n"
    "    workers have ended; the ps are stopped then.\n\n"
    "OPTIONS\n"
    "    -w, --nworker N, -s, --nserver N\n"
    "            number of workers and of ps; both are required\n"
    "    -Cw, --worker-cpus C, -Gw, --worker-gpus G, -Mw, --worker-mem MB\n"
    "    -Cs, --server-cpus C, -Gs, --server-gpus G, -Ms, --server-mem MB\n"
    "            what each takes; default 1 cpu, no GPU, 1024 MB\n"
    "    -n, --name NAME\n"
    "            name of the job\n"
    "    -V, --volume SRC:DST\n"
    "            volume, where the backend runs containers; may be repeated\n"
    "    -e, --extra_config FILE\n"
    "            JSON: initializer, a shell command before CMD, whose failure is fatal, and\n"
    "            finalizer, one after it in any case\n"
    "    --worker-logs LIST\n"
    "            of which workers output is shown: 0,2 or *; default 0\n"
    "    -m, --master, -C, --containerizer_type, -f, --force_pull_image, -r, --role\n"
    "            of Mesos. A master, also in MESOS_MASTER, is refused: this version has no backend\n"
    "            for Mesos. The others have no effect without one\n"
    "    -v, --verbose\n"
    "            no effect\n"
    "    -H, --host LIST, --hostfile FILE, --dry-run\n"
    "            of psrt-launch: where tasks run; default: here\n"
    "    DOCKER_IMAGE in the environment names the image, where the backend runs containers.\n";

/* ---- values ---------------------------------------------------------------------------------- */

static psrt_status_t parse_count(const char *flag, const char *text, int64_t min, int64_t max,
                                 unsigned *out)
{
    int64_t value;
    if (psrti_parse_i64(text, min, max, &value))
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a number from %d to %d", flag, text,
                          (int)min, (int)max);
    *out = (unsigned)value;
    return PSRT_OK;
}

static psrt_status_t parse_real(const char *flag, const char *text, double max, double *out)
{
    double value;
    if (psrti_parse_f64(text, &value) || value < 0 || value > max)
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a number from 0 to %.0f", flag, text, max);
    *out = value;
    return PSRT_OK;
}

static psrt_status_t parse_containerizer(const char *text)
{
    if (!strcasecmp(text, "MESOS") || !strcasecmp(text, "DOCKER")) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "-C %s: not one of MESOS, DOCKER", text);
}

static psrt_status_t parse_volume(tfrun_t *t, char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return psrti_fail(PSRT_ERR_INVALID, "-V %s: not SRC:DST", text);
    t->volumes = psrti_xrealloc(t->volumes, (t->volume_count + 1) * sizeof *t->volumes);
    t->volumes[t->volume_count++] = text;
    return PSRT_OK;
}

static psrt_status_t apply_amount(tfrun_t *t, int id, const char *arg)
{
    switch (id) {
    case 'w': return parse_count("-w", arg, 1, PSRTI_JOB_TASKS_MAX, &t->workers.count);
    case 's': return parse_count("-s", arg, 0, PSRTI_JOB_TASKS_MAX, &t->servers.count);
    case OPT_WORKER_CPUS: return parse_real("-Cw", arg, CPUS_MAX, &t->workers.cpus);
    case OPT_WORKER_GPUS: return parse_count("-Gw", arg, 0, GPUS_MAX, &t->workers.gpus);
    case OPT_WORKER_MEM: return parse_real("-Mw", arg, MEM_MAX, &t->workers.mem);
    case OPT_SERVER_CPUS: return parse_real("-Cs", arg, CPUS_MAX, &t->servers.cpus);
    case OPT_SERVER_GPUS: return parse_count("-Gs", arg, 0, GPUS_MAX, &t->servers.gpus);
    case OPT_SERVER_MEM: return parse_real("-Ms", arg, MEM_MAX, &t->servers.mem);
    default: return psrti_fail(PSRT_ERR_INTERNAL, "flag %d is not handled", id);
    }
}

static psrt_status_t apply(tfrun_t *t, int id, char *arg)
{
    switch (id) {
    case 'm': t->master = arg; return PSRT_OK;
    case 'n': t->name = arg; return PSRT_OK;
    case 'C': return parse_containerizer(arg);
    case 'f':
    case 'r':
    case 'v': return PSRT_OK;
    case 'V': return parse_volume(t, arg);
    case 'e': t->extra_config = arg; return PSRT_OK;
    case 'H': return psrti_hosts_parse(&t->hosts, arg);
    case OPT_HOSTFILE: return psrti_hosts_load(&t->hosts, arg);
    case OPT_WORKER_LOGS:
        t->worker_logs = arg;
        if (psrti_indices_valid(arg)) return PSRT_OK;
        return psrti_fail(PSRT_ERR_INVALID, "--worker-logs %s: not such as 0,2-4 or *", arg);
    case OPT_DRY_RUN: t->dry_run = 1; return PSRT_OK;
    default: return apply_amount(t, id, arg);
    }
}

/* ---- extra_config ---------------------------------------------------------------------------- */

typedef struct extra {
    char *initializer, *finalizer;
} extra_t;

static psrt_status_t read_extra(const char *path, extra_t *extra)
{
    static const psrti_key_t keys[] = {
        { .name = "initializer", .type = PSRTI_KEY_TEXT, .offset = offsetof(extra_t, initializer) },
        { .name = "finalizer", .type = PSRTI_KEY_TEXT, .offset = offsetof(extra_t, finalizer) },
    };
    json_t *document;
    psrti_reader_t reader = { .source = path };
    psrt_status_t st = psrti_jobfile_parse(path, &document);
    if (st) return st;
    st = psrti_read_object(&reader, document, keys, PSRTI_COUNT(keys), extra);
    json_decref(document);
    return st;
}

/* ---- the job --------------------------------------------------------------------------------- */

static char *join(char *const *words)
{
    size_t size = 1;
    for (char *const *word = words; *word; word++)
        size += strlen(*word) + 1;
    char *text = psrti_xcalloc(size, 1), *to = text;
    for (char *const *word = words; *word; word++) {
        if (to != text) *to++ = ' ';
        to = stpcpy(to, *word);
    }
    return text;
}

static void add_role(psrti_job_t *job, const char *name, const tfrun_t *t, const amount_t *amount,
                     const char *command, const extra_t *extra)
{
    psrti_role_t *role = psrti_job_add_role(job, name);
    psrti_role_set_count(role, amount->count);
    psrti_role_set_shell(role, command);
    role->doubled_braces = 1;
    role->cpus = amount->cpus;
    role->mem_mb = (uint64_t)ceil(amount->mem);
    role->gpus = amount->gpus;
    psrti_job_set(&role->image, getenv("DOCKER_IMAGE"));
    psrti_job_set(&role->initializer, extra->initializer);
    psrti_job_set(&role->finalizer, extra->finalizer);
    for (size_t i = 0; i < t->volume_count; i++) {
        psrti_volume_t *volume = psrti_role_add_volume(role);
        const char *colon = strchr(t->volumes[i], ':');
        volume->source = psrti_xstrdup(t->volumes[i]);
        volume->source[colon - t->volumes[i]] = '\0';
        volume->target = psrti_xstrdup(colon + 1);
    }
}

static psrt_status_t check(const tfrun_t *t, char *const *command)
{
    const char *master = t->master ? t->master : getenv("MESOS_MASTER");
    if (master && *master)
        return psrti_fail(PSRT_ERR_INVALID,
                          "Mesos master %s: this version has no backend for Mesos yet; without %s "
                          "the job runs here, or on the hosts of -H",
                          master, t->master ? "-m" : "MESOS_MASTER in the environment");
    if (t->workers.count == UINT32_MAX || t->servers.count == UINT32_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "tfrun needs -w N and -s N");
    if (!command[0])
        return psrti_fail(PSRT_ERR_INVALID,
                          "no command given; psrt-launch tfrun -w N -s N [options] -- CMD...");
    return PSRT_OK;
}

static psrt_status_t build(tfrun_t *t, char *const *command, psrti_job_t *job)
{
    extra_t extra = { 0 };
    psrt_status_t st = check(t, command);
    if (!st && t->extra_config) st = read_extra(t->extra_config, &extra);
    if (!st) {
        char *text = join(command);
        add_role(job, "ps", t, &t->servers, text, &extra);
        add_role(job, "worker", t, &t->workers, text, &extra);
        job->no_coordinator = 1;
        job->dry_run = t->dry_run;
        psrti_job_set(&job->name, t->name);
        psrti_job_set(&job->worker_logs, t->worker_logs);
        if (t->hosts.count) psrti_job_take_hosts(job, &t->hosts);
        st = psrti_expand_check_doubled(job, text);
        free(text);
    }
    free(extra.initializer);
    free(extra.finalizer);
    return st;
}

psrt_status_t psrti_tfrun_parse(int argc, char **argv, psrti_job_t *job, int *done_p)
{
    static const amount_t nothing = { .count = UINT32_MAX, .cpus = 1, .mem = 1024 };
    tfrun_t tfrun = { .workers = nothing, .servers = nothing, .worker_logs = "0" };
    psrt_status_t st = PSRT_OK;
    *done_p = opterr = optind = 0;
    for (int id; !st && !*done_p;) {
        id = getopt_long_only(argc, argv, "+:w:s:m:n:C:fvV:r:e:H:h", longs, NULL);
        if (id == -1) break;
        if (id == 'h')
            *done_p = fputs(help, stdout) >= 0;
        else if (id == '?' || id == ':')
            st = psrti_fail(PSRT_ERR_INVALID, "option %s %s", argv[optind - 1],
                            id == ':' ? "needs an argument" : "is not one of tfrun's");
        else
            st = apply(&tfrun, id, optarg);
    }
    if (!st && !*done_p) st = build(&tfrun, argv + optind, job);
    free(tfrun.volumes);
    psrti_hosts_clear(&tfrun.hosts);
    return st;
}
