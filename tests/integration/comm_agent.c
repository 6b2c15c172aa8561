/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with communicators, driven by lines on stdin as agent.c is. With an argument N, N workers of ranks 0 .. N - 1
 * as threads of one process, which carry out each line at once; the answer is that of the first one that failed.
 *
 *   create | destroy | quit
 *   comm C [RANKS]                     RANKS: "0,2,1"; answers when all members called
 *   split C PARENT COLOUR KEY | dup C PARENT | shrink C PARENT | free C
 *   query C                            "rank=R ranks=N status=S"
 *   hosts C                            how many hosts its members are on
 *   run C WHAT DTYPE REDOP COUNT ROOT [FLAGS]   one call, checked; FLAGS of p (in place), b (buffers of the
 *                                      runtime), n (without an operation)
 *   start C WHAT ... | wait | cancel   the same, the answer comes with wait
 *   loop C N COUNT                     N allreduces of i32, one blocking call after the other, each checked
 *   many C N                           N communicators of the members of C at once, a few calls in each
 *   descriptors N                      no more than N may be opened from now on; -1: as many as before
 *   random C SEED N                    N calls drawn from SEED, up to four at a time, each checked; of those that are
 *                                      alone some ranks wait, others have an operation */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm_calls.h"

#define COMMS 8
#define IN_FLIGHT 4

#define LINE 1024
#define WORKERS 16

static _Thread_local psrt_context_t *ctx;
static _Thread_local const char *rank_setting; /* NULL: the environment has it */
static _Thread_local char said[2 * LINE];

static void answer(psrt_status_t status, const char *text)
{
    if (status == PSRT_OK)
        snprintf(said, sizeof said, "ok %s", text ? text : "");
    else
        snprintf(said, sizeof said, "err %s %s", psrt_status_name(status),
                 text ? text : psrt_last_error());
}

/* ---- commands ---------------------------------------------------------------------------------- */

static _Thread_local psrt_comm_t *comms[COMMS];
static _Thread_local call_t started;
static _Thread_local psrt_status_t started_rc;

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static int parse_call(char *args, call_t *c, int *comm)
{
    char what[24], dtype[8], redop[8], flags[8] = "";
    *c = (call_t){ 0 };
    if (sscanf(args, "%d %23s %7s %7s %" SCNu64 " %u %7s", comm, what, dtype, redop, &c->count,
               &c->root, flags) < 6)
        return 0;
    c->what = find(whats, WHATS, what);
    c->redop = find(redops, 5, redop);
    c->dtype = PSRT_DTYPE_NONE;
    for (size_t i = 0; i < DTYPES; i++)
        if (strcmp(psrt_dtype_name(dtypes[i]), dtype) == 0) c->dtype = dtypes[i];
    c->in_place = strchr(flags, 'p') != NULL;
    c->shared = strchr(flags, 'b') != NULL;
    c->now = strchr(flags, 'n') != NULL && c->what != RING;
    return c->what >= 0 && c->redop >= 0 && c->dtype && *comm >= 0 && *comm < COMMS;
}

static void cmd_run(char *args, int wait)
{
    char text[1024];
    int comm;
    if (!parse_call(args, &started, &comm)) {
        answer(PSRT_ERR_INVALID, "run C WHAT DTYPE REDOP COUNT ROOT [FLAGS]");
        return;
    }
    started_rc = call_prepare(&started, ctx, comms[comm]);
    if (!started_rc) started_rc = call_begin(&started, comms[comm]);
    if (!wait) {
        answer(PSRT_OK, NULL);
        return;
    }
    psrt_status_t rc = call_finish(&started, started_rc, text, sizeof text);
    answer(rc, rc ? text : NULL);
}

static _Thread_local uint64_t state;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

static void draw_call(call_t *c)
{
    static const uint64_t counts[] = { 0, 1, 2, 3, 7, 16, 100, 1000, 4097, 70000, (1 << 20) + 3 };
    *c = (call_t){ .what = (int)draw(WHATS), .redop = (int)draw(5), .in_place = (int)draw(2) };
    c->shared = (int)draw(2);
    c->dtype = dtypes[draw(DTYPES)];
    uint32_t i = draw(8) ? draw(9) : draw(11);
    c->count = counts[i];
    c->root = draw(64);
}

static void cmd_random(psrt_comm_t *comm, uint64_t seed, uint64_t n)
{
    call_t calls[IN_FLIGHT];
    char text[1024] = "";
    psrt_status_t rc = PSRT_OK;
    state = seed;
    while (n > 0 && !rc) {
        uint64_t k = 1 + draw(IN_FLIGHT), made = 0;
        psrt_status_t st[IN_FLIGHT] = { PSRT_OK };
        for (; made < k && made < n; made++) {
            draw_call(&calls[made]);
            st[made] = call_prepare(&calls[made], ctx, comm);
            calls[made].now = k == 1 && calls[made].what != RING && (calls[made].rank + n) % 2;
            if (!st[made]) st[made] = call_begin(&calls[made], comm);
        }
        for (uint64_t i = 0; i < made; i++) {
            char why[1024];
            psrt_status_t end_rc = call_finish(&calls[i], st[i], why, sizeof why);
            if (!rc && end_rc) {
                rc = end_rc;
                snprintf(text, sizeof text, "%s", why);
            }
        }
        n -= made;
    }
    answer(rc, rc ? text : NULL);
}

static psrt_status_t loop(psrt_comm_t *comm, uint64_t n, uint64_t count, char *text, size_t size)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    int32_t in[4096], out[4096];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    if (count > 4096) rc = PSRT_ERR_INVALID;
    for (uint64_t i = 0; !rc && i < n; i++) {
        for (uint64_t k = 0; k < count; k++)
            in[k] = (int32_t)(i * (attr.rank + 1) + k);
        rc = psrt_allreduce(comm, in, out, count, PSRT_I32, PSRT_SUM, NULL);
        snprintf(text, size, "%s", psrt_last_error());
        for (uint64_t k = 0; !rc && k < count; k++) {
            uint64_t want = i * attr.ranks * (attr.ranks + 1) / 2 + k * attr.ranks;
            if (out[k] == (int32_t)want) continue;
            snprintf(text, size, "call %" PRIu64 ", element %" PRIu64 ": %d, not %d", i, k, out[k],
                     (int32_t)want);
            rc = PSRT_ERR_INTERNAL;
        }
    }
    return rc;
}

static void cmd_loop(psrt_comm_t *comm, uint64_t n, uint64_t count)
{
    char text[1024] = "";
    psrt_status_t rc = loop(comm, n, count, text, sizeof text);
    answer(rc, rc ? text : NULL);
}

static void cmd_many(psrt_comm_t *comm, uint64_t n)
{
    char text[1024] = "";
    psrt_comm_t **all = calloc(n + 1, sizeof(psrt_comm_t *));
    psrt_status_t rc = PSRT_OK;
    for (uint64_t i = 0; !rc && i < n; i++)
        if ((rc = psrt_comm_dup(comm, &all[i], NULL)))
            snprintf(text, sizeof text, "%s", psrt_last_error());
    for (uint64_t i = 0; !rc && i < n; i++)
        rc = loop(all[i], 3 + i % 5, i % 7, text, sizeof text);
    for (uint64_t i = 0; i < n; i++)
        psrt_comm_free(all[i]);
    free(all);
    answer(rc, rc ? text : NULL);
}

static void cmd_descriptors(int more)
{
    static struct rlimit before;
    struct rlimit limit;
    if (!before.rlim_cur) getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    int fd = dup(0);
    close(fd);
    if (more >= 0) limit.rlim_cur = (rlim_t)fd + (rlim_t)more;
    answer(setrlimit(RLIMIT_NOFILE, &limit) ? PSRT_ERR_IO : PSRT_OK, NULL);
}

static void cmd_comm(int at, char *list)
{
    uint32_t ranks[64], n = 0;
    char *save = NULL;
    for (char *s = strtok_r(list, ", \n", &save); s && n < 64; s = strtok_r(NULL, ", \n", &save))
        ranks[n++] = (uint32_t)strtoul(s, NULL, 10);
    psrt_comm_params_t params = PSRT_COMM_PARAMS_INIT;
    params.ranks = n ? ranks : NULL;
    params.count = n;
    answer(psrt_comm_create(ctx, &params, &comms[at], NULL), NULL);
}

static void cmd_query(psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    char text[96];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    snprintf(text, sizeof text, "rank=%u ranks=%u status=%s", attr.rank, attr.ranks,
             psrt_status_name(attr.status));
    answer(rc, rc ? NULL : text);
}

static void cmd_hosts(psrt_comm_t *comm)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    char text[16];
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    snprintf(text, sizeof text, "%u", attr.hosts);
    answer(rc, rc ? NULL : text);
}

static void cmd_derive(const char *verb, int at, psrt_comm_t *parent, int colour, int key)
{
    psrt_status_t rc;
    if (strcmp(verb, "split") == 0)
        rc = psrt_comm_split(parent, colour, key, &comms[at], NULL);
    else if (strcmp(verb, "dup") == 0)
        rc = psrt_comm_dup(parent, &comms[at], NULL);
    else
        rc = psrt_comm_shrink(parent, &comms[at], NULL);
    answer(rc, NULL);
}

static void of_comm(const char *verb, int at, char *rest)
{
    int parent = 0, colour = 0, key = 0;
    uint64_t seed, n;
    if (strcmp(verb, "comm") == 0) {
        cmd_comm(at, rest);
    } else if (strcmp(verb, "free") == 0) {
        psrt_comm_free(comms[at]);
        comms[at] = NULL;
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "query") == 0) {
        cmd_query(comms[at]);
    } else if (strcmp(verb, "hosts") == 0) {
        cmd_hosts(comms[at]);
    } else if (strcmp(verb, "random") == 0 &&
               sscanf(rest, "%" SCNu64 " %" SCNu64, &seed, &n) == 2) {
        cmd_random(comms[at], seed, n);
    } else if (strcmp(verb, "loop") == 0 && sscanf(rest, "%" SCNu64 " %" SCNu64, &seed, &n) == 2) {
        cmd_loop(comms[at], seed, n);
    } else if (strcmp(verb, "many") == 0 && sscanf(rest, "%" SCNu64, &n) == 1) {
        cmd_many(comms[at], n);
    } else if (sscanf(rest, "%d %d %d", &parent, &colour, &key) >= 1 && parent >= 0 &&
               parent < COMMS) {
        cmd_derive(verb, at, comms[parent], colour, key);
    } else {
        answer(PSRT_ERR_INVALID, "unknown command");
    }
}

static void cmd_create(void)
{
    const char *settings[] = { rank_setting, NULL };
    psrt_context_params_t params = PSRT_CONTEXT_PARAMS_INIT;
    params.settings = settings;
    answer(psrt_context_create(&params, &ctx), NULL);
}

static void command(char *line)
{
    char verb[16] = "";
    int at = -1, used = 0;
    sscanf(line, "%15s %n", verb, &used);
    if (strcmp(verb, "create") == 0) {
        cmd_create();
    } else if (strcmp(verb, "destroy") == 0) {
        psrt_context_destroy(ctx);
        ctx = NULL;
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "run") == 0 || strcmp(verb, "start") == 0) {
        cmd_run(line + used, verb[0] == 'r');
    } else if (strcmp(verb, "cancel") == 0) {
        psrt_op_cancel(started.op[0]);
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "descriptors") == 0) {
        cmd_descriptors(atoi(line + used));
    } else if (strcmp(verb, "wait") == 0) {
        char text[1024];
        psrt_status_t rc = call_finish(&started, started_rc, text, sizeof text);
        answer(rc, rc ? text : NULL);
    } else {
        int more = 0;
        if (sscanf(line + used, "%d %n", &at, &more) < 1 || at < 0 || at >= COMMS)
            answer(PSRT_ERR_INVALID, "which communicator?");
        else
            of_comm(verb, at, line + used + more);
    }
}

/* ---- workers as threads -------------------------------------------------------------------------- */

static struct {
    unsigned count;
    int over;
    char line[LINE];
    char said[WORKERS][2 * LINE];
    pthread_barrier_t begin, end;
} crowd;

static void *work(void *arg)
{
    unsigned rank = (unsigned)(uintptr_t)arg;
    char setting[32], line[LINE];
    snprintf(setting, sizeof setting, "PSRT_RANK=%u", rank);
    rank_setting = setting;
    while (pthread_barrier_wait(&crowd.begin), !crowd.over) {
        memcpy(line, crowd.line, sizeof line);
        command(line);
        memcpy(crowd.said[rank], said, sizeof said);
        pthread_barrier_wait(&crowd.end);
    }
    psrt_context_destroy(ctx);
    return NULL;
}

static void command_all(const char *line)
{
    memcpy(crowd.line, line, LINE);
    pthread_barrier_wait(&crowd.begin);
    pthread_barrier_wait(&crowd.end);
    memcpy(said, crowd.said[0], sizeof said);
    for (unsigned r = 0; r < crowd.count; r++)
        if (strncmp(crowd.said[r], "ok", 2) != 0) {
            memcpy(said, crowd.said[r], sizeof said);
            return;
        }
}

static void serve(int is_crowd)
{
    char line[LINE] = "";
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (is_crowd)
            command_all(line);
        else
            command(line);
        puts(said);
        fflush(stdout);
    }
}

static int serve_crowd(unsigned count)
{
    pthread_t threads[WORKERS];
    crowd.count = count;
    if (pthread_barrier_init(&crowd.begin, NULL, count + 1) ||
        pthread_barrier_init(&crowd.end, NULL, count + 1))
        return 1;
    for (unsigned r = 0; r < count; r++)
        if (pthread_create(&threads[r], NULL, work, (void *)(uintptr_t)r)) abort();
    serve(1);
    crowd.over = 1;
    pthread_barrier_wait(&crowd.begin);
    for (unsigned r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (count > WORKERS) return 2;
    if (count) return serve_crowd(count);
    serve(0);
    psrt_context_destroy(ctx);
    return 0;
}
