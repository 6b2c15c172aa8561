/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/contract.h"

#define SERVER_COMMAND_SAME "same"

typedef struct parser {
    psrti_job_t *job;
    unsigned workers, servers;
    const char *server_command; /* NULL: psrtd */
} parser_t;

enum {
    OPT_SERVER_COMMAND = 256,
    OPT_LOG_DIR,
    OPT_TIMEOUT,
    OPT_START_TIMEOUT,
    OPT_GRACE,
    OPT_DRY_RUN,
    OPT_QUIET,
    OPT_NO_PREFIX,
    OPT_SECURITY,
    OPT_TRANSPORT,
    OPT_VERSION
};

/* One row a flag: parsing, the nearest name in errors, and --help come from it. */
static const struct flag {
    const char *name;
    int id;
    const char *arg; /* NULL: takes none */
    const char *doc;
} flags[] = {
    { "workers", 'w', "N", "number of workers, each runs CMD; default 1" },
    { "servers", 's', "N", "number of servers; 0 for a job without; default 1" },
    { "server-command", OPT_SERVER_COMMAND, "same|CMD",
      "what servers run: the workers' command (same), or a\n"
      "command line for /bin/sh; default: psrtd" },
    { "env", 'x', "NAME[=V]",
      "set NAME for all tasks, or pass on its present value;\nmay be repeated" },
    { "log-dir", OPT_LOG_DIR, "DIR",
      "also write each task's output, unchanged, to\nDIR/ROLE-INDEX.ATTEMPT.stdout and .stderr" },
    { "timeout", OPT_TIMEOUT, "T", "stop the job when it runs for longer (exit code 124)" },
    { "start-timeout", OPT_START_TIMEOUT, "T",
      "time within which all tasks must have joined\n(PSRT_START_TIMEOUT of the tasks)" },
    { "grace", OPT_GRACE, "T",
      "time between asking tasks to end (SIGTERM) and killing\nthem (SIGKILL); default 5s" },
    { "security", OPT_SECURITY, "LEVEL",
      "PSRT_SECURITY of the tasks: encrypted, authenticated or off" },
    { "transport", OPT_TRANSPORT, "LIST", "PSRT_TRANSPORT of the tasks, such as shm,zmq" },
    { "dry-run", OPT_DRY_RUN, NULL, "print role, index, command and environment of each task" },
    { "quiet", OPT_QUIET, NULL, "print no notes of the launcher but errors" },
    { "no-prefix", OPT_NO_PREFIX, NULL, "no [worker:1] in front of the lines" },
    { "help", 'h', NULL, "print this" },
    { "version", OPT_VERSION, NULL, "print the version" },
};

static void print_help(void)
{
    fputs(
        "NAME\n"
        "    psrt-launch - start, supervise and end the tasks of a job on this machine\n\n"
        "SYNOPSIS\n"
        "    psrt-launch [-w|--workers N] [-s|--servers N] [options] -- CMD [ARGS]\n\n"
        "DESCRIPTION\n"
        "    Workers run CMD, servers and the coordinator run psrtd, found beside psrt-launch or\n"
        "    in PATH. Tasks learn who they are from PSRT_* variables; workers also get RANK,\n"
        "    LOCAL_RANK and WORLD_SIZE. Lines of output carry the name of their task. The first\n"
        "    failure ends the job. No process and no file of a job outlives it.\n\n"
        "OPTIONS\n",
        stdout);
    for (size_t i = 0; i < PSRTI_COUNT(flags); i++) {
        const struct flag *f = &flags[i];
        char head[64];
        if (f->id < 256)
            snprintf(head, sizeof head, "-%c, --%s", f->id, f->name);
        else
            snprintf(head, sizeof head, "    --%s", f->name);
        printf("    %s%s%s\n", head, f->arg ? " " : "", f->arg ? f->arg : "");
        for (const char *doc = f->doc; *doc;) {
            int n = (int)strcspn(doc, "\n");
            printf("            %.*s\n", n, doc);
            doc += n + (doc[n] == '\n');
        }
    }
    fputs(
        "    Times are such as 500ms, 5s, 2m; a number alone counts seconds.\n\n"
        "ENVIRONMENT\n"
        "    OMP_NUM_THREADS, OPENBLAS_NUM_THREADS\n"
        "            set for workers to usable cores / workers, at least 1, unless you set them\n"
        "    PYTHONUNBUFFERED\n"
        "            set to 1 for all tasks, unless you set it\n"
        "    XDG_RUNTIME_DIR, TMPDIR\n"
        "            where the job's directory is made; else /tmp\n"
        "    NO_COLOR\n"
        "            no coloured prefixes on a terminal\n"
        "    PSRT_LAUNCH_PSRTD\n"
        "            for testing: the psrtd to run\n\n"
        "SIGNALS\n"
        "    SIGINT (Ctrl-C), SIGTERM and SIGHUP stop the job: tasks get SIGTERM, and SIGKILL\n"
        "    after the grace time. A second one kills at once, a third does not wait for that.\n"
        "    SIGUSR1 and SIGUSR2 are passed on to the tasks. SIGQUIT prints the state of each.\n\n"
        "EXIT STATUS\n"
        "    0 when all workers ended with 0. Else that of the first task that failed, 128+n\n"
        "    when signal n killed it or stopped the job; 124 after --timeout; 126 or 127 when a\n"
        "    command could not be run; 3 when not all tasks joined in time (of psrtd), 2 wrong\n"
        "    usage, 69 psrtd is missing, 70 system error.\n",
        stdout);
}

/* What other launchers call the number of workers; getopt_long sees "-np" as the letter n. */
static int is_other_count(const char *name)
{
    static const char *const others[] = { "-n", "--n", "--np", "--nproc", "--nprocs", "--ntasks" };
    for (size_t i = 0; i < PSRTI_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0) return 1;
    return 0;
}

static psrt_status_t unknown_flag(const char *word)
{
    const char *names[PSRTI_COUNT(flags)];
    for (size_t i = 0; i < PSRTI_COUNT(flags); i++)
        names[i] = flags[i].name;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (is_other_count(name))
        return psrti_fail(PSRT_ERR_INVALID,
                          "unknown option %s; -w N is the number of workers, -s N that of servers",
                          name);
    const char *near =
        strncmp(name, "--", 2) ? NULL : psrti_nearest(name + 2, names, PSRTI_COUNT(names));
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
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: not a time such as 500ms, 5s, 2m", flag, text);
    *out = ns;
    return PSRT_OK;
}

static psrt_status_t parse_export(psrti_job_t *job, const char *text)
{
    size_t len = strcspn(text, "=");
    if (!len) return psrti_fail(PSRT_ERR_INVALID, "-x %s: not NAME or NAME=VALUE", text);
    char *name = psrti_xstrdup(text);
    name[len] = '\0';
    const char *value = text[len] ? text + len + 1 : getenv(name);
    psrt_status_t st = PSRT_OK;
    if (psrti_contract_env_is_reserved(name))
        st = psrti_fail(PSRT_ERR_INVALID, "-x %s: set by psrt-launch itself", name);
    else if (!value)
        st = psrti_fail(PSRT_ERR_INVALID, "-x %s: not set in the environment", name);
    else
        psrti_env_set(&job->env, name, value);
    free(name);
    return st;
}

static psrt_status_t parse_security(psrti_job_t *job, const char *text)
{
    if (strcmp(text, "encrypted") && strcmp(text, "authenticated") && strcmp(text, "off"))
        return psrti_fail(PSRT_ERR_INVALID,
                          "--security %s: not one of encrypted, authenticated, off", text);
    psrti_job_set(&job->security, text);
    return PSRT_OK;
}

static psrt_status_t apply(parser_t *p, int id, const char *arg)
{
    psrti_job_t *job = p->job;
    uint64_t checked;
    switch (id) {
    case 'w': return parse_count("--workers", arg, 1, &p->workers);
    case 's': return parse_count("--servers", arg, 0, &p->servers);
    case 'x': return parse_export(job, arg);
    case OPT_SERVER_COMMAND:
        if (!*arg) return psrti_fail(PSRT_ERR_INVALID, "--server-command: empty command");
        p->server_command = arg;
        return PSRT_OK;
    case OPT_LOG_DIR:
        if (!*arg) return psrti_fail(PSRT_ERR_INVALID, "--log-dir: empty name");
        psrti_job_set(&job->log_dir, arg);
        return PSRT_OK;
    case OPT_TIMEOUT: return parse_time("--timeout", arg, 0, &job->timeout_ns);
    case OPT_START_TIMEOUT:
        psrti_job_set(&job->start_timeout, arg);
        return parse_time("--start-timeout", arg, 0, &checked);
    case OPT_GRACE: return parse_time("--grace", arg, 1, &job->grace_ns);
    case OPT_SECURITY: return parse_security(job, arg);
    case OPT_TRANSPORT: psrti_job_set(&job->transport, arg); return PSRT_OK;
    case OPT_DRY_RUN: job->dry_run = 1; return PSRT_OK;
    case OPT_QUIET: job->quiet = 1; return PSRT_OK;
    case OPT_NO_PREFIX: job->no_prefix = 1; return PSRT_OK;
    default: return psrti_fail(PSRT_ERR_INTERNAL, "flag %d is not handled", id);
    }
}

/* What getopt_long returned for a flag that is unknown ('?') or lacks its argument (':'). */
static psrt_status_t bad_flag(int what, int id, const char *word)
{
    if (what == ':') return psrti_fail(PSRT_ERR_INVALID, "option %s needs an argument", word);
    for (size_t i = 0; i < PSRTI_COUNT(flags); i++)
        if (id && flags[i].id == id)
            return psrti_fail(PSRT_ERR_INVALID, "option --%s takes no argument", flags[i].name);
    char letter[3] = { '-', (char)id, '\0' };
    return unknown_flag(id > 0 && id < 256 ? letter : word);
}

static void make_roles(const parser_t *p, char *const *command)
{
    psrti_role_t *server = psrti_job_add_role(p->job, "server");
    server->count = server->min = server->max = p->servers;
    if (p->server_command && !strcmp(p->server_command, SERVER_COMMAND_SAME))
        psrti_role_set_argv(server, command);
    else if (p->server_command)
        psrti_role_set_shell(server, p->server_command);
    psrti_role_t *worker = psrti_job_add_role(p->job, "worker");
    worker->count = worker->min = worker->max = p->workers;
    psrti_role_set_argv(worker, command);
}

psrt_status_t psrti_options_parse(int argc, char **argv, psrti_job_t *job, int *done_p)
{
    struct option longs[PSRTI_COUNT(flags) + 1] = { { 0 } };
    for (size_t i = 0; i < PSRTI_COUNT(flags); i++)
        longs[i] = (struct option){ flags[i].name, flags[i].arg != NULL, NULL, flags[i].id };
    parser_t parser = { .job = job, .workers = 1, .servers = 1 };
    *done_p = 1;
    opterr = 0;
    for (int id; (id = getopt_long(argc, argv, "+:w:s:x:h", longs, NULL)) != -1;) {
        if (id == 'h') return print_help(), PSRT_OK;
        if (id == OPT_VERSION) return printf("psrt-launch %s\n", PSRT_VERSION_STRING), PSRT_OK;
        psrt_status_t st = id == '?' || id == ':' ? bad_flag(id, optopt, argv[optind - 1])
                                                  : apply(&parser, id, optarg);
        if (st) return st;
    }
    if (!argv[optind] || !*argv[optind])
        return psrti_fail(PSRT_ERR_INVALID,
                          "no command given; psrt-launch [options] -- CMD [ARGS]");
    make_roles(&parser, argv + optind);
    *done_p = 0;
    return PSRT_OK;
}
