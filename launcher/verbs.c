/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/verbs.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/client.h"
#include "launcher/exits.h"
#include "launcher/record.h"

/* ---- the command line of a verb -------------------------------------------------------------- */

enum {
    FLAG_JOB = 1,
    FLAG_JSON = 2,
    FLAG_ALL = 4,
    FLAG_FOLLOW = 8,
    FLAG_SIGNAL = 16,
    FLAG_LINES = 32
};

typedef struct line {
    const char *job; /* NULL: the only one */
    int json, all, follow, no_prefix, timestamps, sig;
    char **words; /* what is left */
    int count;
} line_t;

static void print_usage(FILE *file, const char *verb)
{
    static const char *const usages[] = {
        "ps [-a|--all] [--json]",
        "status [--json] [JOB]",
        "logs [-f|--follow] [--no-prefix] [--timestamps] [JOB] [ROLE[:INDEX]]",
        "attach [--no-prefix] [--timestamps] [JOB]",
        "kill [--signal SIGNAL] [JOB]",
        "restart [-j|--job JOB] ROLE INDEX",
        "replace [-j|--job JOB] ROLE INDEX",
    };
    for (size_t i = 0; i < PSRTI_COUNT(usages); i++)
        if (!strncmp(usages[i], verb, strlen(verb)))
            fprintf(file, "usage: psrt-launch %s\n", usages[i]);
}

static int usage(const char *verb, const char *text)
{
    fprintf(stderr, "psrt-launch %s: %s\n", verb, text);
    print_usage(stderr, verb);
    return PSRTI_EXIT_USAGE;
}

static int bad_option(const char *verb, const char *what, const char *word)
{
    char text[128];
    snprintf(text, sizeof text, "option %s %s", word, what);
    return usage(verb, text);
}

static int report(const char *verb, psrt_status_t st)
{
    fprintf(stderr, "psrt-launch %s: %s\n", verb, psrt_last_error());
    /* REFUSED: the launcher knows no such task. */
    if (st == PSRT_ERR_INVALID || st == PSRT_ERR_REFUSED) return PSRTI_EXIT_USAGE;
    return st == PSRT_ERR_NOT_FOUND ? PSRTI_EXIT_UNAVAILABLE : PSRTI_EXIT_INTERNAL;
}

/* "TERM", "SIGTERM", "15"; 0: none of these. */
static int parse_signal(const char *text)
{
    int64_t number;
    if (!psrti_parse_i64(text, 1, NSIG - 1, &number)) return (int)number;
    if (!strncasecmp(text, "SIG", 3)) text += 3;
    for (int sig = 1; sig < NSIG; sig++) {
        const char *name = sigabbrev_np(sig);
        if (name && !strcasecmp(name, text)) return sig;
    }
    return 0;
}

/* What the verb allows; 0, the exit code, or -1 when help was printed. */
static int parse(int argc, char **argv, int allowed, line_t *line)
{
    static const struct option longs[] = {
        { "job", 1, NULL, 'j' },       { "json", 0, NULL, 'J' },       { "all", 0, NULL, 'a' },
        { "follow", 0, NULL, 'f' },    { "signal", 1, NULL, 's' },     { "help", 0, NULL, 'h' },
        { "no-prefix", 0, NULL, 'P' }, { "timestamps", 0, NULL, 'T' }, { NULL, 0, NULL, 0 },
    };
    const char *verb = argv[1];
    *line = (line_t){ .sig = SIGTERM };
    opterr = 0;
    optind = 2;
    for (int id; (id = getopt_long(argc, argv, ":j:afs:h", longs, NULL)) != -1;) {
        int needs = id == 'j'                ? FLAG_JOB
                    : id == 'J'              ? FLAG_JSON
                    : id == 'a'              ? FLAG_ALL
                    : id == 'f'              ? FLAG_FOLLOW
                    : id == 's'              ? FLAG_SIGNAL
                    : id == 'P' || id == 'T' ? FLAG_LINES
                                             : 0;
        if (id == 'h') return print_usage(stdout, verb), -1;
        if (id == ':') return bad_option(verb, "lacks its argument", argv[optind - 1]);
        if (!(needs & allowed)) return bad_option(verb, "is not known here", argv[optind - 1]);
        if (id == 'j') line->job = optarg;
        if (id == 's' && !(line->sig = parse_signal(optarg))) return usage(verb, "no such signal");
        line->json |= id == 'J';
        line->all |= id == 'a';
        line->follow |= id == 'f';
        line->no_prefix |= id == 'P';
        line->timestamps |= id == 'T';
    }
    line->words = argv + optind;
    line->count = argc - optind;
    return 0;
}

/* One whose only word may be a job. */
static int parse_with_job(int argc, char **argv, int allowed, line_t *line)
{
    int code = parse(argc, argv, allowed, line);
    if (code) return code;
    if (line->count > 1) return usage(argv[1], "too many words");
    if (line->count) line->job = line->words[0];
    return 0;
}

static int print_json(json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    if (text) puts(text);
    free(text);
    json_decref(json);
    return fflush(stdout) ? PSRTI_EXIT_INTERNAL : 0;
}

static const char *text_of(const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "";
}

static int int_of(const json_t *json, const char *name)
{
    return (int)json_integer_value(json_object_get(json, name));
}

/* ---- ps -------------------------------------------------------------------------------------- */

static void describe_state(const json_t *job, char *buf, size_t size)
{
    const json_t *code = json_object_get(job, "exit_code");
    if (psrti_client_is_alive(job))
        snprintf(buf, size, "running");
    else if (code)
        snprintf(buf, size, "ended, %d", (int)json_integer_value(code));
    else
        snprintf(buf, size, "ended"); /* its launcher was killed, or never got far */
}

static void print_job(const json_t *job)
{
    char state[32], started[32] = "", roles[256] = "";
    size_t pos = 0;
    time_t when = (time_t)json_number_value(json_object_get(job, "started"));
    struct tm parts;
    describe_state(job, state, sizeof state);
    if (localtime_r(&when, &parts)) strftime(started, sizeof started, "%Y-%m-%d %H:%M:%S", &parts);
    json_t *all = json_object_get(job, "roles");
    for (void *it = json_object_iter(all); it; it = json_object_iter_next(all, it))
        if (json_integer_value(json_object_iter_value(it)))
            psrti_append(roles, sizeof roles, &pos, "%s%d %s", pos ? ", " : "",
                         (int)json_integer_value(json_object_iter_value(it)),
                         json_object_iter_key(it));
    printf("%-7s %-20s %-11s %-19s %8d  %s\n", text_of(job, "id"), text_of(job, "name"), state,
           started, int_of(job, "pid"), roles);
}

int psrti_verb_ps(int argc, char **argv)
{
    line_t line;
    int code = parse(argc, argv, FLAG_JSON | FLAG_ALL, &line);
    if (code) return code < 0 ? 0 : code;
    if (line.count) return usage(argv[1], "too many words");
    json_t *list = psrti_record_list(), *shown = json_array(), *job;
    for (size_t i = 0; (job = json_array_get(list, i)) != NULL; i++)
        if (line.all || psrti_client_is_alive(job)) json_array_append(shown, job);
    json_decref(list);
    if (line.json) return print_json(shown);
    printf("%-7s %-20s %-11s %-19s %8s  %s\n", "JOB", "NAME", "STATE", "STARTED", "PID", "TASKS");
    for (size_t i = 0; (job = json_array_get(shown, i)) != NULL; i++)
        print_job(job);
    json_decref(shown);
    return fflush(stdout) ? PSRTI_EXIT_INTERNAL : 0;
}

/* ---- status ---------------------------------------------------------------------------------- */

static void print_task(const json_t *task)
{
    char what[32];
    const json_t *code = json_object_get(task, "exit_code");
    int width = snprintf(what, sizeof what, "%s", text_of(task, "state"));
    if (code)
        snprintf(what + width, sizeof what - (size_t)width, ", %d", (int)json_integer_value(code));
    printf("%-16s %-12s %-16s %8d %7d %8.1f  %s\n", text_of(task, "task"), what,
           text_of(task, "host"), int_of(task, "pid"), int_of(task, "attempt"),
           json_number_value(json_object_get(task, "since_s")), text_of(task, "last_line"));
}

static int print_state(const json_t *state)
{
    const json_t *tasks = json_object_get(state, "tasks"), *task;
    printf("job %s (%s) is %s, after %.1f s\n", text_of(state, "job"), text_of(state, "name"),
           text_of(state, "state"), json_number_value(json_object_get(state, "elapsed_s")));
    printf("%-16s %-12s %-16s %8s %7s %8s  %s\n", "TASK", "STATE", "HOST", "PID", "ATTEMPT",
           "SINCE", "LAST LINE");
    for (size_t i = 0; (task = json_array_get(tasks, i)) != NULL; i++)
        print_task(task);
    return fflush(stdout) ? PSRTI_EXIT_INTERNAL : 0;
}

/* From its record. */
static int print_ended(const json_t *job)
{
    char state[32];
    describe_state(job, state, sizeof state);
    printf("job %s (%s) %s: %s\n", text_of(job, "id"), text_of(job, "name"), state,
           *text_of(job, "verdict") ? text_of(job, "verdict") : "no reason is known");
    return fflush(stdout) ? PSRTI_EXIT_INTERNAL : 0;
}

int psrti_verb_status(int argc, char **argv)
{
    line_t line;
    json_t *job, *state;
    int code = parse_with_job(argc, argv, FLAG_JOB | FLAG_JSON, &line);
    if (code) return code < 0 ? 0 : code;
    psrt_status_t st = psrti_client_find(line.job, &job);
    if (st) return report(argv[1], st);
    if (!psrti_client_is_alive(job)) {
        code = line.json ? print_json(json_incref(job)) : print_ended(job);
        json_decref(job);
        return code;
    }
    st = psrti_client_ask(job, json_pack("{s:s}", "verb", "status"), &state);
    json_decref(job);
    if (st) return report(argv[1], st);
    if (line.json) return print_json(state);
    code = print_state(state);
    json_decref(state);
    return code;
}

/* ---- output ---------------------------------------------------------------------------------- */

static int watch(const char *verb, const line_t *line, json_t *request, const char *on_interrupt)
{
    json_t *job;
    int code = 0;
    psrti_client_show_t show = { .no_prefix = line->no_prefix,
                                 .timestamps = line->timestamps,
                                 .on_interrupt = on_interrupt };
    psrt_status_t st = psrti_client_find(line->job, &job);
    if (st) {
        json_decref(request);
        return report(verb, st);
    }
    st = psrti_client_watch(job, request, &show, &code);
    json_decref(job);
    return st ? report(verb, st) : code;
}

int psrti_verb_logs(int argc, char **argv)
{
    line_t line;
    int code = parse(argc, argv, FLAG_JOB | FLAG_FOLLOW | FLAG_LINES, &line);
    if (code) return code < 0 ? 0 : code;
    /* As with the other verbs the first word may be a job. */
    json_t *job = line.count && !line.job ? psrti_record_read(line.words[0]) : NULL;
    if (job) line.job = *line.words++, line.count--;
    json_decref(job);
    if (line.count > 1) return usage(argv[1], "too many words");
    json_t *request = json_pack("{s:s, s:s, s:b}", "verb", "logs", "tasks",
                                line.count ? line.words[0] : "", "follow", line.follow);
    return watch(argv[1], &line, request, NULL);
}

int psrti_verb_attach(int argc, char **argv)
{
    line_t line;
    int code = parse_with_job(argc, argv, FLAG_JOB | FLAG_LINES, &line);
    if (code) return code < 0 ? 0 : code;
    return watch(argv[1], &line, json_pack("{s:s}", "verb", "attach"),
                 "detached; the job goes on (psrt-launch kill stops it)");
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int order(const char *verb, const line_t *line, json_t *request)
{
    json_t *job, *answer = NULL;
    psrt_status_t st = psrti_client_find(line->job, &job);
    if (st) {
        json_decref(request);
        return report(verb, st);
    }
    st = psrti_client_ask(job, request, &answer);
    json_decref(job);
    json_decref(answer);
    return st ? report(verb, st) : 0;
}

int psrti_verb_kill(int argc, char **argv)
{
    line_t line;
    int code = parse_with_job(argc, argv, FLAG_JOB | FLAG_SIGNAL, &line);
    if (code) return code < 0 ? 0 : code;
    return order(argv[1], &line, json_pack("{s:s, s:i}", "verb", "kill", "signal", line.sig));
}

int psrti_verb_restart(int argc, char **argv)
{
    line_t line;
    char task[128];
    int64_t index;
    int code = parse(argc, argv, FLAG_JOB, &line);
    if (code) return code < 0 ? 0 : code;
    if (line.count == 1) /* "worker:1", "coordinator" */
        snprintf(task, sizeof task, "%s", line.words[0]);
    else if (line.count == 2 && !psrti_parse_i64(line.words[1], 0, 65535, &index))
        snprintf(task, sizeof task, "%s:%d", line.words[0], (int)index);
    else
        return usage(argv[1], "which task? give its role and its index");
    return order(argv[1], &line, json_pack("{s:s, s:s}", "verb", argv[1], "tasks", task));
}
