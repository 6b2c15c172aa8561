/* SPDX-License-Identifier: Apache-2.0 */
/* Runs many seeds of the simulator on all cores. Of one that fails it prints the command that
 * replays it, reduced to the faults that it needs, and the part of its trace that matters. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define BLOCK 100u /* seeds that a process takes at once */
#define MAX_JOBS 256

typedef struct settings {
    sim_case_t what; /* of --seed */
    uint64_t first, seeds, jobs;
    int one, trace, complete, brief;
} settings_t;

/* What the processes share. */
typedef struct board {
    _Atomic uint64_t next, done; /* seeds that are taken, that are run */
    _Atomic int stop;
    struct job {
        uint64_t seed; /* that runs, or failed */
        int failed;
        char text[512];
        sim_counts_t counts;
    } job[MAX_JOBS];
} board_t;

static const char usage[] =
    "usage: psrt-sim [--seeds N] [--first N] [--jobs N] [--complete]\n"
    "       psrt-sim --seed N [--without KIND,..] [--until MS] [--trace]\n"
    "\n"
    "Simulates jobs, one a seed, and checks them after every event.\n"
    "\n"
    "  --seeds N     how many (1000), --first N: from which on (1)\n"
    "  --jobs N      processes (one a core)\n"
    "  --complete    fail also when one of the events that are counted never happened\n"
    "  --brief       say only which seed fails, and why\n"
    "  --seed N      this one alone; --trace: print everything that happens in it\n"
    "  --without ..  leave out kinds of faults\n"
    "  --until MS    no fault begins later\n";

static uint64_t number_or_exit(const char *text)
{
    int64_t value;
    if (psrti_parse_i64(text, 0, INT64_MAX, &value) == PSRT_OK) return (uint64_t)value;
    fprintf(stderr, "psrt-sim: \"%s\" is not a number\n%s", text, usage);
    exit(2);
}

static unsigned kinds_or_exit(char *list)
{
    unsigned kinds = 0;
    char *rest;
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int kind = 0;
        while (kind < SIM_KIND_COUNT && strcmp(name, sim_kind_names[kind]) != 0)
            kind++;
        if (kind == SIM_KIND_COUNT) {
            fprintf(stderr, "psrt-sim: there is no kind of faults \"%s\"; there are:", name);
            for (kind = 0; kind < SIM_KIND_COUNT; kind++)
                fprintf(stderr, " %s", sim_kind_names[kind]);
            fputc('\n', stderr);
            exit(2);
        }
        kinds |= 1u << kind;
    }
    return kinds;
}

static settings_t parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "seeds", 1, NULL, 'n' }, { "first", 1, NULL, 'f' },    { "jobs", 1, NULL, 'j' },
        { "seed", 1, NULL, 's' },  { "without", 1, NULL, 'w' },  { "until", 1, NULL, 'u' },
        { "trace", 0, NULL, 't' }, { "complete", 0, NULL, 'c' }, { "brief", 0, NULL, 'b' },
        { "help", 0, NULL, 'h' },  { NULL, 0, NULL, 0 }
    };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    settings_t s = { .first = 1, .seeds = 1000, .jobs = cores > 0 ? (uint64_t)cores : 1 };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'n': s.seeds = number_or_exit(optarg); break;
        case 'f': s.first = number_or_exit(optarg); break;
        case 'j': s.jobs = number_or_exit(optarg); break;
        case 's': s.what.seed = number_or_exit(optarg), s.one = 1; break;
        case 'w': s.what.without = kinds_or_exit(optarg); break;
        case 'u': s.what.until = number_or_exit(optarg) * MS; break;
        case 't': s.trace = 1; break;
        case 'c': s.complete = 1; break;
        case 'b': s.brief = 1; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) fputs(usage, stderr), exit(2);
    s.jobs = PSRTI_MAX(PSRTI_MIN(s.jobs, (uint64_t)MAX_JOBS), 1u);
    return s;
}

/* ---- a seed that fails ----------------------------------------------------------------------- */

static void print_command(const sim_case_t *what)
{
    const char *before = " --without ";
    printf("replay: build/tests/bin/psrt-sim --seed %" PRIu64, what->seed);
    for (int kind = 0; kind < SIM_KIND_COUNT; kind++) {
        if (!(what->without >> kind & 1)) continue;
        printf("%s%s", before, sim_kind_names[kind]);
        before = ",";
    }
    if (what->until) printf(" --until %llu", (unsigned long long)(what->until / MS));
    puts(" --trace");
}

static void explain(sim_case_t what, const char *text, int brief)
{
    printf("seed %" PRIu64 " fails %s\n", what.seed, text);
    fflush(stdout);
    if (brief) return;
    sim_shrink(&what);
    sim_explain(&what, stdout);
    print_command(&what);
    fflush(stdout);
}

static int run_one(const settings_t *s)
{
    sim_counts_t counts = { 0 };
    char text[512];
    int fine = sim_run(&s->what, s->trace ? stdout : NULL, &counts, text, sizeof text);
    if (fine)
        puts("the seed runs clean");
    else if (s->trace)
        printf("fails %s\n", text);
    else
        explain(s->what, text, s->brief);
    return !fine;
}

/* ---- many ------------------------------------------------------------------------------------ */

/* One process: takes seeds in the order of their numbers, so that all below a failure were run. */
static void work(const settings_t *s, board_t *board, struct job *job)
{
    while (!atomic_load(&board->stop)) {
        uint64_t at = atomic_fetch_add(&board->next, BLOCK), end = PSRTI_MIN(at + BLOCK, s->seeds);
        if (at >= s->seeds) return;
        for (; at < end; at++) {
            sim_case_t what = { .seed = s->first + at };
            job->seed = what.seed;
            if (!sim_run(&what, NULL, &job->counts, job->text, sizeof job->text)) {
                job->failed = 1;
                atomic_store(&board->stop, 1);
                return;
            }
            atomic_fetch_add(&board->done, 1);
        }
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print_progress(const settings_t *s, board_t *board, double start)
{
    uint64_t done = atomic_load(&board->done);
    double rate = (double)done / (seconds() - start);
    printf("%" PRIu64 " of %" PRIu64 " seeds, %.0f a second, %.0f s left\n", done, s->seeds, rate,
           rate > 0 ? (double)(s->seeds - done) / rate : 0);
    fflush(stdout);
}

/* A process that crashed or leaked counts as a seed that failed. */
static void judge(board_t *board, struct job *job, int status)
{
    if (job->failed || (WIFEXITED(status) && !WEXITSTATUS(status))) return;
    job->failed = 1;
    atomic_store(&board->stop, 1);
    if (WIFSIGNALED(status))
        snprintf(job->text, sizeof job->text, "with signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(job->text, sizeof job->text, "or one before it, at the exit of its process");
}

static void run_jobs(const settings_t *s, board_t *board)
{
    pid_t pid[MAX_JOBS];
    uint64_t left = s->jobs;
    double start = seconds(), next = start + 10;
    for (uint64_t i = 0; i < s->jobs; i++) {
        fflush(stdout);
        pid[i] = fork();
        if (pid[i] < 0) perror("psrt-sim: fork"), exit(2);
        if (pid[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(s, board, &board->job[i]);
        exit(0);
    }
    while (left) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        for (uint64_t i = 0; ended > 0 && i < s->jobs; i++)
            if (pid[i] == ended) judge(board, &board->job[i], status), left--;
        if (ended == 0) nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
        if (seconds() < next || !left) continue;
        next += 10;
        print_progress(s, board, start);
    }
    print_progress(s, board, start);
}

static int print_counts(const sim_counts_t *counts, int complete)
{
    int missing = 0;
#define PRINT(name)                                                                                \
    printf("  %-24s %" PRIu64 "%s\n", #name, counts->name, counts->name ? "" : " NEVER HAPPENED"); \
    missing |= !counts->name;
    SIM_COUNTS(PRINT)
    SIM_PEAKS(PRINT)
#undef PRINT
    return complete && missing;
}

static int run_many(const settings_t *s)
{
    sim_counts_t counts = { 0 };
    const struct job *first = NULL;
    board_t *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) perror("psrt-sim"), exit(2);
    run_jobs(s, board);
    for (uint64_t i = 0; i < s->jobs; i++) {
        const struct job *job = &board->job[i];
        sim_add_counts(&counts, &job->counts);
        if (job->failed && (!first || job->seed < first->seed)) first = job;
    }
    if (!first) return print_counts(&counts, s->complete);
    sim_case_t what = { .seed = first->seed };
    if (first->text[0] == 'a') { /* "at .. ms": not one that ends the process */
        explain(what, first->text, s->brief);
    } else {
        printf("seed %" PRIu64 " ends its process %s\n", what.seed, first->text);
        print_command(&what);
    }
    return 1;
}

int main(int argc, char **argv)
{
    settings_t s = parse(argc, argv);
    return s.one ? run_one(&s) : run_many(&s);
}
