/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/compat/psdrun.h"
#include "launcher/discover.h"
#include "launcher/exports.h"
#include "launcher/help.h"
#include "launcher/hosts.h"
#include "launcher/indices.h"
#include "launcher/inherit.h"
#include "launcher/jobfile.h"
#include "launcher/logfile.h"
#include "launcher/netif.h"
#include "launcher/render/render.h"
#include "launcher/shown.h"
#include "launcher/tensorboard.h"

#define SERVER_COMMAND_SAME "same"
#define LETTERS "+:c:o:w:s:x:H:h"

typedef struct parser {
    psrti_job_t *job;
    const char *config; /* the job file, if there is one */
    int has_config;
    const char *out;            /* of psd_run */
    const char *tensorboard;    /* NULL: none */
    const char *server_command; /* NULL: psrtd, or what the job file says */
    unsigned min_workers;       /* 0: not given */
    unsigned first_workers;     /* of -w; 0: not given */
    int has_max_workers;
    int has_shown; /* a flag says whose output is shown */
} parser_t;

enum {
    OPT_SERVER_COMMAND = PSRTI_FLAG_LETTERS,
    OPT_ROLE,
    OPT_COMMAND,
    OPT_SET,
    OPT_HOSTFILE,
    OPT_DISCOVERY_SCRIPT,
    OPT_DISCOVERY_INTERVAL,
    OPT_SLOTS_PER_HOST,
    OPT_BACKEND,
    OPT_INTERFACE,
    OPT_SUBNET,
    OPT_CONNECT_TIMEOUT,
    OPT_SSH_PORT,
    OPT_SSH_IDENTITY,
    OPT_SSH_OPTION,
    OPT_NO_COORDINATOR,
    OPT_JSON,
    OPT_BIND,
    OPT_ENV_FILE,
    OPT_INHERIT_ENV,
    OPT_LOG_DIR,
    OPT_LOG_LIMIT,
    OPT_TIMEOUT,
    OPT_START_TIMEOUT,
    OPT_LAUNCH_TIMEOUT,
    OPT_GRACE,
    OPT_DRY_RUN,
    OPT_QUIET,
    OPT_NO_PREFIX,
    OPT_LABEL_HOST,
    OPT_SECURITY,
    OPT_TRANSPORT,
    OPT_NAME,
    OPT_MIN_WORKERS,
    OPT_MAX_WORKERS,
    OPT_RESTART,
    OPT_MAX_RESTARTS,
    OPT_HOST_COOLDOWN,
    OPT_ELASTIC_TIMEOUT,
    OPT_WORKER_LOGS,
    OPT_TEE,
    OPT_QUIET_RANKS,
    OPT_TENSORBOARD,
    OPT_TIMESTAMPS,
    OPT_DETACH,
    OPT_VERSION,
    OPT_OF_VERB /* the first of the verb's own */
};

#define VERB_FLAGS_MAX PSRTI_RENDER_FLAGS /* no other verb has any */

static const psrti_flag_t flags[] = {
    { "config", 'c', "FILE", "the job, in JSON; flags override what it says" },
    { "cluster_config", 'c', "FILE", "the same, as psd_run calls it" },
    { "set", OPT_SET, "KEY=VALUE",
      "a value of the job file, such as roles.worker.cpus=2;\nmay be repeated" },
    { "role", OPT_ROLE, "NAME=N", "N tasks of a role: worker, server (or ps), chief, any name" },
    { "command", OPT_COMMAND, "ROLE=CMD", "what a role runs: a command line for /bin/sh" },
    { "backend", OPT_BACKEND, "NAME",
      "local, ssh or slurm; default: ssh when a host is another\nmachine, else local" },
    { "host", 'H', "LIST", "where to run: [user@]host[:slots],..." },
    { "hostfile", OPT_HOSTFILE, "FILE", "hosts, one a line: host slots=4" },
    { "host-discovery-script", OPT_DISCOVERY_SCRIPT, "FILE",
      "a program that prints such lines, run again and again:\nelastic roles grow onto hosts that come, and leave those that go" },
    { "host-discovery-interval", OPT_DISCOVERY_INTERVAL, "T", "between its runs; default 1s" },
    { "slots-per-host", OPT_SLOTS_PER_HOST, "N",
      "of hosts that it lists without a number; default 1" },
    { "iface", OPT_INTERFACE, "NAME", "tasks use the hosts' addresses on that interface" },
    { "subnet", OPT_SUBNET, "NET", "tasks use the hosts' addresses in it: 10.1.0.0/16" },
    { "connect-timeout", OPT_CONNECT_TIMEOUT, "T",
      "time within which all hosts must be there; default 30s" },
    { "ssh-port", OPT_SSH_PORT, "N", "ssh -p N, for hosts that have no port of their own" },
    { "ssh-identity", OPT_SSH_IDENTITY, "FILE", "ssh -i FILE" },
    { "ssh-option", OPT_SSH_OPTION, "OPTION",
      "ssh -o OPTION, such as ProxyJump=gate; may be repeated" },
    { "workers", 'w', "N", "number of workers, each runs CMD; default 1" },
    { "servers", 's', "N", "number of servers; 0 for a job without; default 1" },
    { "server-command", OPT_SERVER_COMMAND, "same|CMD",
      "what servers run: the workers' command (same), or a\n"
      "command line for /bin/sh; default: psrtd" },
    { "env", 'x', "NAME[=V]|PREFIX*",
      "set NAME for all tasks, or pass on its present value,\nor those of all names that begin so; may be repeated" },
    { "env-file", OPT_ENV_FILE, "FILE", "a file of such, one a line" },
    { "inherit-env", OPT_INHERIT_ENV, "all|listed|none",
      "variables that tasks have besides; listed: such as PATH and\nOMP_*; default: listed over ssh, else all" },
    { "log-dir", OPT_LOG_DIR, "DIR",
      "also write each task's output, unchanged, to\nDIR/ROLE-INDEX.ATTEMPT.stdout and .stderr" },
    { "log-limit", OPT_LOG_LIMIT, "SIZE",
      "such as 100MiB: what each of these files may take; of more,\nthe oldest is dropped. Default: no limit" },
    { "timeout", OPT_TIMEOUT, "T", "stop the job when it runs for longer (exit code 124)" },
    { "start-timeout", OPT_START_TIMEOUT, "T",
      "time within which all tasks must have joined\n(PSRT_START_TIMEOUT of the tasks)" },
    { "launch-timeout", OPT_LAUNCH_TIMEOUT, "T",
      "time within which a task must start on its host;\ndefault 60s; 0: none" },
    { "grace", OPT_GRACE, "T",
      "time between asking tasks to end (SIGTERM) and killing\nthem (SIGKILL); default 5s" },
    { "security", OPT_SECURITY, "LEVEL",
      "PSRT_SECURITY of the tasks: encrypted, authenticated or off" },
    { "transport", OPT_TRANSPORT, "LIST", "PSRT_TRANSPORT of the tasks, such as shm,zmq" },
    { "bind", OPT_BIND, "cores|numa|none",
      "bind each worker to its share of the host's cores, or to a NUMA node" },
    { "name", OPT_NAME, "NAME", "of the job, for psrt-launch ps; default: that of the command" },
    { "min-workers", OPT_MIN_WORKERS, "N",
      "go on with as few workers when others are lost and\nmay not be restarted" },
    { "max-workers", OPT_MAX_WORKERS, "N", "the same as --workers, beside --min-workers" },
    { "restart", OPT_RESTART, "WHEN", "start workers anew: never, on-failure or always" },
    { "max-restarts", OPT_MAX_RESTARTS, "N", "so many times each, between healthy times" },
    { "host-cooldown", OPT_HOST_COOLDOWN, "T",
      "how long a lost host is not used; doubles each time, up to\n10m; default 10s" },
    { "elastic-timeout", OPT_ELASTIC_TIMEOUT, "T",
      "how long a task that the job needs may be without a host;\ndefault 60s" },
    { "worker-logs", OPT_WORKER_LOGS, "LIST",
      "workers whose output is shown, such as 0,2-4 or *;\n--log-dir has all" },
    { "tee", OPT_TEE, "LIST", "the same as --worker-logs" },
    { "quiet-ranks", OPT_QUIET_RANKS, "LIST", "workers whose output is not shown" },
    { "timestamps", OPT_TIMESTAMPS, NULL, "the time in front of each line" },
    { "detach", OPT_DETACH, NULL, "run in the background, and print the job's id" },
    { "tensorboard", OPT_TENSORBOARD, "DIR",
      "also run TensorBoard on DIR, when it is installed;\nit never decides how the job ends" },
    { "out", 'o', "DIR", "beside a configuration of psd_run: where its logs go" },
    { "no-coordinator", OPT_NO_COORDINATOR, NULL, "for programs that do not use libpsrt" },
    { "dry-run", OPT_DRY_RUN, NULL, "the same as the verb plan" },
    { "json", OPT_JSON, NULL, "plan in JSON" },
    { "quiet", OPT_QUIET, NULL, "print no notes of the launcher but errors" },
    { "no-prefix", OPT_NO_PREFIX, NULL, "no [worker:1] in front of the lines" },
    { "label-host", OPT_LABEL_HOST, NULL, "[worker:1@node2]: the host too" },
    { "help", 'h', NULL, "print this" },
    { "version", OPT_VERSION, NULL, "print the version" },
};

/* What other launchers call the number of workers; getopt_long sees "-np" as the letter n. */
static int is_other_count(const char *name)
{
    static const char *const others[] = { "-n", "--n", "--np", "--nproc", "--nprocs", "--ntasks" };
    for (size_t i = 0; i < PSRTI_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0) return 1;
    return 0;
}

static const psrti_verb_flags_t *verb; /* NULL: it has none of its own */

void psrti_options_also(const psrti_verb_flags_t *verb_flags) { verb = verb_flags; }

/* Of the job and of the verb. */
static size_t flag_count(void) { return PSRTI_COUNT(flags) + (verb ? verb->count : 0); }

static const psrti_flag_t *flag_at(size_t i)
{
    return i < PSRTI_COUNT(flags) ? &flags[i] : &verb->flags[i - PSRTI_COUNT(flags)];
}

static int id_at(size_t i)
{
    return i < PSRTI_COUNT(flags) ? flags[i].id : OPT_OF_VERB + (int)(i - PSRTI_COUNT(flags));
}

static psrt_status_t unknown_flag(const char *word)
{
    const char *names[PSRTI_COUNT(flags) + VERB_FLAGS_MAX];
    size_t count = flag_count();
    for (size_t i = 0; i < count; i++)
        names[i] = flag_at(i)->name;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (is_other_count(name))
        return psrti_fail(PSRT_ERR_INVALID,
                          "unknown option %s; -w N is the number of workers, -s N that of servers",
                          name);
    const char *near = strncmp(name, "--", 2) ? NULL : psrti_nearest(name + 2, names, count);
    return psrti_fail(PSRT_ERR_INVALID, "unknown option %s%s%s%s", name,
                      near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

static psrt_status_t parse_count(const char *flag, const char *text, int64_t min, unsigned *out)
{
    int64_t value;
    if (psrti_parse_i64(text, min, PSRTI_JOB_TASKS_MAX, &value))
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a number from %d to %d", flag, text,
                          (int)min, PSRTI_JOB_TASKS_MAX);
    *out = (unsigned)value;
    return PSRT_OK;
}

static psrt_status_t parse_time(const char *flag, const char *text, int zero_ok, uint64_t *out)
{
    uint64_t ns;
    if (psrti_parse_duration(text, &ns) || (!ns && !zero_ok))
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a time such as 500ms, 5s, 2m, 1h", flag,
                          text);
    *out = ns;
    return PSRT_OK;
}

static psrt_status_t parse_log_limit(psrti_job_t *job, const char *text)
{
    if (!psrti_logfile_parse_limit(text, &job->log_limit)) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "--log-limit %s: not a size such as 100MiB, of 64KiB at least, or 0", text);
}

static psrt_status_t parse_export(psrti_job_t *job, const char *text)
{
    psrt_status_t st = psrti_export(job, text);
    return st ? psrti_fail(st, "-x %s", psrt_last_error()) : PSRT_OK;
}

static psrt_status_t parse_bind(psrti_job_t *job, const char *text)
{
    static const char *const words[] = {
        [PSRTI_BIND_NONE] = "none", [PSRTI_BIND_CORES] = "cores", [PSRTI_BIND_NUMA] = "numa"
    };
    for (size_t i = 0; i < PSRTI_COUNT(words); i++) {
        if (strcmp(text, words[i])) continue;
        job->bind = (psrti_bind_t)i;
        return PSRT_OK;
    }
    return psrti_fail(PSRT_ERR_INVALID, "--bind %s: not one of cores, numa, none", text);
}

static psrt_status_t parse_inherit(psrti_job_t *job, const char *text)
{
    for (int i = 0; psrti_inherit_words[i]; i++) {
        if (strcmp(text, psrti_inherit_words[i])) continue;
        job->inherit = (psrti_inherit_t)i;
        return PSRT_OK;
    }
    return psrti_fail(PSRT_ERR_INVALID, "--inherit-env %s: not one of auto, all, listed, none",
                      text);
}

static psrt_status_t parse_security(psrti_job_t *job, const char *text)
{
    if (!psrti_job_set_security(job, text)) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "--security %s: not one of encrypted, authenticated, off",
                      text);
}

/* The role that a flag names before '='; *rest_p: what stands behind. */
static psrt_status_t named_role(psrti_job_t *job, const char *flag, const char *text,
                                psrti_role_t **role_p, const char **rest_p)
{
    char name[PSRTI_ROLE_NAME_MAX + 1];
    size_t length = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (!text[length] || !text[length + 1] || !psrti_role_name_is_valid(name))
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not ROLE=VALUE, with a role such as worker",
                          flag, text);
    psrti_role_t *role = psrti_job_role(job, name);
    *role_p = role ? role : psrti_job_add_role(job, name);
    *rest_p = text + length + 1;
    return PSRT_OK;
}

static psrt_status_t parse_role(psrti_job_t *job, const char *text)
{
    psrti_role_t *role;
    const char *rest;
    unsigned count = 0;
    psrt_status_t st = named_role(job, "--role", text, &role, &rest);
    if (!st) st = parse_count("--role", rest, 0, &count);
    if (!st) psrti_role_set_count(role, count);
    return st;
}

static psrt_status_t parse_command(psrti_job_t *job, const char *text)
{
    psrti_role_t *role;
    const char *rest;
    psrt_status_t st = named_role(job, "--command", text, &role, &rest);
    if (!st) psrti_role_set_shell(role, rest);
    return st;
}

static psrti_role_t *role_of(psrti_job_t *job, psrti_kind_t kind, const char *name)
{
    psrti_role_t *role = psrti_job_role(job, name);
    if (!role && kind == PSRTI_KIND_SERVER) role = psrti_job_role_of(job, kind); /* called ps */
    return role ? role : psrti_job_add_role(job, name);
}

static psrti_role_t *workers_of(psrti_job_t *job)
{
    return role_of(job, PSRTI_KIND_WORKER, "worker");
}

static psrti_role_t *servers_of(psrti_job_t *job)
{
    return role_of(job, PSRTI_KIND_SERVER, "server");
}

static psrt_status_t parse_hosts(psrti_job_t *job, int id, const char *text)
{
    psrti_hosts_t hosts = { 0 };
    psrt_status_t st = id == 'H' ? psrti_hosts_parse(&hosts, text) : psrti_hosts_load(&hosts, text);
    if (st)
        psrti_hosts_clear(&hosts);
    else
        psrti_job_take_hosts(job, &hosts);
    return st;
}

static psrt_status_t parse_restart(psrti_job_t *job, const char *text)
{
    static const char *const words[] = { "never", "on-failure", "always" };
    for (size_t i = 0; i < PSRTI_COUNT(words); i++) {
        if (strcmp(text, words[i])) continue;
        workers_of(job)->restart.when = (psrti_restart_when_t)i;
        return PSRT_OK;
    }
    return psrti_fail(PSRT_ERR_INVALID, "--restart %s: not one of never, on-failure, always", text);
}

/* Flags about losing and restarting workers. */
static psrt_status_t apply_restarts(parser_t *p, int id, const char *arg)
{
    psrti_job_t *job = p->job;
    psrti_role_t *workers = workers_of(job);
    unsigned count = 0;
    psrt_status_t st;
    switch (id) {
    case OPT_MIN_WORKERS: return parse_count("--min-workers", arg, 1, &p->min_workers);
    case OPT_MAX_WORKERS:
        st = parse_count("--max-workers", arg, 1, &count);
        if (!st) psrti_role_set_count(workers, count);
        p->has_max_workers = !st;
        return st;
    case OPT_RESTART: return parse_restart(job, arg);
    default: return parse_count("--max-restarts", arg, 0, &workers->restart.limit);
    }
}

/* The first of these flags takes the place of all that the job file says of it. */
static psrt_status_t parse_shown(parser_t *p, const char *flag, const char *text, char **list)
{
    if (!psrti_indices_valid(text))
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not such as 0,2-4 or *", flag, text);
    if (!p->has_shown) psrti_job_set(&p->job->worker_logs, NULL);
    if (!p->has_shown) psrti_job_set(&p->job->quiet_ranks, NULL);
    p->has_shown = 1;
    psrti_job_set(list, text);
    return PSRT_OK;
}

static void add_ssh_option(psrti_job_t *job, const char *text)
{
    size_t count = 0;
    while (job->ssh_options && job->ssh_options[count])
        count++;
    job->ssh_options = psrti_xrealloc(job->ssh_options, (count + 2) * sizeof *job->ssh_options);
    job->ssh_options[count] = psrti_xstrdup(text);
    job->ssh_options[count + 1] = NULL;
}

/* Flags about the way to the hosts. */
static psrt_status_t apply_hosts(parser_t *p, int id, const char *arg)
{
    psrti_job_t *job = p->job;
    switch (id) {
    case 'H':
    case OPT_HOSTFILE: return parse_hosts(job, id, arg);
    case OPT_DISCOVERY_SCRIPT: psrti_job_set(&job->discovery_script, arg); return PSRT_OK;
    case OPT_DISCOVERY_INTERVAL:
        return parse_time("--host-discovery-interval", arg, 0, &job->discovery_interval_ns);
    case OPT_SLOTS_PER_HOST: return parse_count("--slots-per-host", arg, 1, &job->slots_per_host);
    case OPT_INTERFACE: psrti_job_set(&job->interface, arg); return PSRT_OK;
    case OPT_SUBNET: psrti_job_set(&job->subnet, arg); return psrti_netif_check_subnet(arg);
    case OPT_CONNECT_TIMEOUT: return parse_time("--connect-timeout", arg, 0, &job->connect_ns);
    case OPT_SSH_PORT: return parse_count("--ssh-port", arg, 1, &job->ssh_port);
    case OPT_SSH_IDENTITY: psrti_job_set(&job->ssh_identity, arg); return PSRT_OK;
    case OPT_SSH_OPTION: add_ssh_option(job, arg); return PSRT_OK;
    default: return psrti_fail(PSRT_ERR_INTERNAL, "flag %d is not handled", id);
    }
}

/* Flags that describe roles. */
static psrt_status_t apply_roles(parser_t *p, int id, const char *arg)
{
    psrti_job_t *job = p->job;
    unsigned count = 0;
    psrt_status_t st;
    switch (id) {
    case 'c': return PSRT_OK; /* read before the flags */
    case 'o': p->out = arg; return PSRT_OK;
    case OPT_TENSORBOARD: p->tensorboard = arg; return PSRT_OK;
    case 'w':
        st = parse_count("--workers", arg, 1, &count);
        if (!st) psrti_role_set_count(workers_of(job), p->first_workers = count);
        return st;
    case 's':
        st = parse_count("--servers", arg, 0, &count);
        if (!st) psrti_role_set_count(servers_of(job), count);
        return st;
    case OPT_SERVER_COMMAND:
        if (!*arg) return psrti_fail(PSRT_ERR_INVALID, "--server-command: empty command");
        p->server_command = arg;
        return PSRT_OK;
    case OPT_ROLE: return parse_role(job, arg);
    case OPT_COMMAND: return parse_command(job, arg);
    case OPT_SET: return psrti_jobfile_set(job, arg);
    case OPT_MIN_WORKERS:
    case OPT_MAX_WORKERS:
    case OPT_RESTART:
    case OPT_MAX_RESTARTS: return apply_restarts(p, id, arg);
    default: return apply_hosts(p, id, arg);
    }
}

static psrt_status_t apply(parser_t *p, int id, const char *arg)
{
    psrti_job_t *job = p->job;
    uint64_t checked;
    switch (id) {
    case 'x': return parse_export(job, arg);
    case OPT_ENV_FILE: return psrti_export_file(job, arg);
    case OPT_INHERIT_ENV: return parse_inherit(job, arg);
    case OPT_LOG_DIR:
        if (!*arg) return psrti_fail(PSRT_ERR_INVALID, "--log-dir: empty name");
        psrti_job_set(&job->log_dir, arg);
        return PSRT_OK;
    case OPT_LOG_LIMIT: return parse_log_limit(job, arg);
    case OPT_TIMEOUT: return parse_time("--timeout", arg, 0, &job->timeout_ns);
    case OPT_START_TIMEOUT:
        psrti_job_set(&job->start_timeout, arg);
        return parse_time("--start-timeout", arg, 0, &checked);
    case OPT_LAUNCH_TIMEOUT: return parse_time("--launch-timeout", arg, 1, &job->launch_timeout_ns);
    case OPT_GRACE: return parse_time("--grace", arg, 1, &job->grace_ns);
    case OPT_SECURITY: return parse_security(job, arg);
    case OPT_TRANSPORT: psrti_job_set(&job->transport, arg); return PSRT_OK;
    case OPT_BIND: return parse_bind(job, arg);
    case OPT_HOST_COOLDOWN: return parse_time("--host-cooldown", arg, 0, &job->cooldown_ns);
    case OPT_ELASTIC_TIMEOUT: return parse_time("--elastic-timeout", arg, 0, &job->host_wait_ns);
    case OPT_NAME: psrti_job_set(&job->name, arg); return PSRT_OK;
    case OPT_WORKER_LOGS: return parse_shown(p, "--worker-logs", arg, &job->worker_logs);
    case OPT_TEE: return parse_shown(p, "--tee", arg, &job->worker_logs);
    case OPT_QUIET_RANKS: return parse_shown(p, "--quiet-ranks", arg, &job->quiet_ranks);
    case OPT_TIMESTAMPS: job->timestamps = 1; return PSRT_OK;
    case OPT_DETACH: job->detach = 1; return PSRT_OK;
    case OPT_BACKEND: psrti_job_set(&job->backend, arg); return PSRT_OK;
    case OPT_NO_COORDINATOR: job->no_coordinator = 1; return PSRT_OK;
    case OPT_DRY_RUN: job->dry_run = 1; return PSRT_OK;
    case OPT_JSON: job->dry_run = job->json = 1; return PSRT_OK;
    case OPT_QUIET: job->quiet = 1; return PSRT_OK;
    case OPT_NO_PREFIX: job->no_prefix = 1; return PSRT_OK;
    case OPT_LABEL_HOST: job->label_host = 1; return PSRT_OK;
    default: return apply_roles(p, id, arg);
    }
}

/* What getopt_long returned for a flag that is unknown ('?') or lacks its argument (':'). */
static psrt_status_t bad_flag(int what, int id, const char *word)
{
    if (what == ':') return psrti_fail(PSRT_ERR_INVALID, "option %s needs an argument", word);
    for (size_t i = 0; i < flag_count(); i++)
        if (id && id_at(i) == id)
            return psrti_fail(PSRT_ERR_INVALID, "option --%s takes no argument", flag_at(i)->name);
    char letter[3] = { '-', (char)id, '\0' };
    return unknown_flag(id > 0 && id < 256 ? letter : word);
}

/* What is not a flag: the workers' command. Without a job file there are servers and workers. */
static psrt_status_t complete(parser_t *p, char *const *command)
{
    psrti_job_t *job = p->job;
    int given = command[0] && *command[0];
    if (job->psd_run) return psrti_psdrun_complete(job, command, p->out);
    if (p->out)
        return psrti_fail(PSRT_ERR_INVALID,
                          "-o %s: only beside a configuration of psd_run; "
                          "--log-dir says where logs go",
                          p->out);
    if (!p->has_config) {
        servers_of(job);
        psrti_role_t *workers = workers_of(job);
        if (!given && !workers->argv && !workers->shell)
            return psrti_fail(PSRT_ERR_INVALID,
                              "no command given; psrt-launch [options] -- CMD [ARGS]");
    }
    if (given) psrti_role_set_argv(workers_of(job), command);
    /* As in horovodrun: as many as at the start. */
    if (job->discovery_script && p->has_max_workers && !p->min_workers)
        p->min_workers = PSRTI_MAX(p->first_workers, 1);
    if (p->min_workers > 0 && p->min_workers > workers_of(job)->count)
        return psrti_fail(PSRT_ERR_INVALID, "--min-workers %u is more than the %u workers",
                          p->min_workers, workers_of(job)->count);
    if (p->min_workers) workers_of(job)->min = p->min_workers;
    if (p->server_command && strcmp(p->server_command, SERVER_COMMAND_SAME))
        psrti_role_set_shell(servers_of(job), p->server_command);
    else if (p->server_command && given)
        psrti_role_set_argv(servers_of(job), command);
    else if (p->server_command)
        return psrti_fail(PSRT_ERR_INVALID, "--server-command same: the same as which -- CMD?");
    return PSRT_OK;
}

/* The flags in their order; with `only`, of these flags that one. */
static psrt_status_t each_flag(parser_t *p, int argc, char **argv, int only, int *done_p)
{
    struct option longs[PSRTI_COUNT(flags) + VERB_FLAGS_MAX + 1] = { { 0 } };
    for (size_t i = 0; i < flag_count(); i++)
        longs[i] = (struct option){ flag_at(i)->name, flag_at(i)->arg != NULL, NULL, id_at(i) };
    opterr = optind = 0; /* 0: from the start */
    for (int id; (id = getopt_long(argc, argv, LETTERS, longs, NULL)) != -1;) {
        if (only && id == only) p->config = optarg, p->has_config = 1;
        if (only) continue;
        if (id == 'h' || id == OPT_VERSION) {
            *done_p = 1;
            if (id == 'h') psrti_help_print(flags, PSRTI_COUNT(flags));
            if (id != 'h') printf("psrt-launch %s\n", PSRT_VERSION_STRING);
            return PSRT_OK;
        }
        psrt_status_t st;
        if (id == '?' || id == ':')
            st = bad_flag(id, optopt, argv[optind - 1]);
        else if (id >= OPT_OF_VERB)
            st = verb->take(verb->arg, (size_t)(id - OPT_OF_VERB), optarg);
        else
            st = apply(p, id, optarg);
        if (st) return st;
    }
    return PSRT_OK;
}

psrt_status_t psrti_options_parse(int argc, char **argv, psrti_job_t *job, int *done_p)
{
    parser_t parser = { .job = job };
    *done_p = 0;
    psrt_status_t st = each_flag(&parser, argc, argv, 'c', done_p);
    if (!st && parser.has_config) st = psrti_jobfile_load(job, parser.config);
    if (!st) st = each_flag(&parser, argc, argv, 0, done_p);
    if (st || *done_p) return st;
    st = complete(&parser, argv + optind);
    if (!st) st = psrti_shown_check(job);
    if (!st) st = psrti_discover_check(job);
    if (!st && parser.tensorboard) psrti_tensorboard_add(job, parser.tensorboard);
    return st;
}
