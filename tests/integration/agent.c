/* SPDX-License-Identifier: Apache-2.0 */
/* A worker driven by lines on stdin, so that a test script can order what several processes do.
 *
 *   create [PSRT_NAME=value]...        context NAME: contexts are numbered by `use N` (default 0)
 *   use N
 *   table NAME key=value...            n= dtype= codec= init= opt= cons= reduce= det= group=
 *                                      data=V (rank0)
 *   fill NAME V                        gradient element i becomes V * (1 + i % 5)
 *   flat NAME V                        every gradient element becomes V
 *   load NAME FILE | save NAME FILE    gradient from, values to a file, as they are in memory
 *   values NAME V                      value element i becomes V * (1 + i % 5)
 *   push|pull|push_pull NAME [offset=] [count=] [step=] [more=1] [prio=] [avg=1] [deadline=SECONDS]
 *                                      waits
 *   start push|pull|push_pull ...      prints the number of the operation
 *   wait ID SECONDS | test ID | cancel ID
 *   many NAME...                       one push_pull of several tables
 *   loop push|pull|push_pull NAME N
 *   meet ROUNDS RANK...        a context and a thread for each rank, ROUNDS barriers of these
 *   upto push|push_pull NAME STEP      until the next step is STEP
 *   set NAME KEY VALUE STEP|next            prints the step from which it holds
 *   sum NAME | at NAME I | hash NAME   of the value buffer
 *   slices NAME                        the value of each slice, whose elements must be alike
 *   members worker|server   rank:incarnation:alive:finished:host of each
 *   events                  texts of the events about members since the last time, joined by " | "
 *   barrier NAME [COUNT] [SECONDS] | info | step NAME | skipped NAME | rss | sleep MS | destroy | quit
 *
 * Each answers one line: "ok ..." or "err STATUS text". */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <psrt/psrt.h>

#define MAX_TABLES 1024
#define MAX_OPS 4096
#define MAX_WORDS 1100
#define MAX_CONTEXTS 8

typedef struct table {
    char name[256];
    psrt_table_t *handle;
    uint64_t n;
    int f64;
    void *grad, *value;
} table_t;

static psrt_context_t *contexts[MAX_CONTEXTS], *ctx;
static int current;
static table_t tables[MAX_CONTEXTS][MAX_TABLES];
static size_t ntables[MAX_CONTEXTS];
static psrt_op_t *ops[MAX_OPS];
static psrt_result_t results[MAX_OPS];
static size_t nops;

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static char events[8192];

static void on_event(void *arg, int event, const char *text)
{
    (void)arg;
    if (event != PSRT_EVENT_MEMBERS) return;
    pthread_mutex_lock(&event_lock);
    size_t at = strlen(events);
    snprintf(events + at, sizeof events - at, "%s%s", at ? " | " : "", text);
    pthread_mutex_unlock(&event_lock);
}

static void answer(psrt_status_t status, const char *text)
{
    if (status == PSRT_OK)
        printf("ok %s\n", text ? text : "");
    else
        printf("err %s %s\n", psrt_status_name(status), text ? text : psrt_last_error());
    fflush(stdout);
}

static table_t *find(const char *name)
{
    for (size_t i = 0; name && i < ntables[current]; i++)
        if (strcmp(tables[current][i].name, name) == 0) return &tables[current][i];
    return NULL;
}

/* Value of "key=" among the words, or NULL. */
static const char *opt(char **w, int n, const char *key)
{
    size_t len = strlen(key);
    for (int i = 0; i < n; i++)
        if (strncmp(w[i], key, len) == 0 && w[i][len] == '=') return w[i] + len + 1;
    return NULL;
}

static uint64_t opt_u64(char **w, int n, const char *key, uint64_t def)
{
    const char *v = opt(w, n, key);
    return v ? strtoull(v, NULL, 0) : def;
}

static void fill(table_t *t, void *dst, double v)
{
    for (uint64_t i = 0; i < t->n; i++) {
        double x = v * (double)(1 + i % 5);
        if (t->f64)
            ((double *)dst)[i] = x;
        else
            ((float *)dst)[i] = (float)x;
    }
}

static void flat(table_t *t, double v)
{
    for (uint64_t i = 0; i < t->n; i++) {
        if (t->f64)
            ((double *)t->grad)[i] = v;
        else
            ((float *)t->grad)[i] = (float)v;
    }
}

static double at(const table_t *t, uint64_t i)
{
    return t->f64 ? ((const double *)t->value)[i] : (double)((const float *)t->value)[i];
}

static void cmd_create(char **w, int n)
{
    const char *settings[MAX_WORDS + 1];
    for (int i = 0; i < n; i++)
        settings[i] = w[i];
    settings[n] = NULL;
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    p.settings = settings;
    p.on_event = on_event;
    psrt_status_t rc = psrt_context_create(&p, &contexts[current]);
    if (!rc) ctx = contexts[current];
    answer(rc, NULL);
}

static void cmd_table(char **w, int n)
{
    if (ntables[current] == MAX_TABLES) return answer(PSRT_ERR_LIMIT, "too many tables");
    table_t *t = &tables[current][ntables[current]];
    memset(t, 0, sizeof *t);
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    const char *dtype = opt(w, n, "dtype"), *data = opt(w, n, "data");
    snprintf(t->name, sizeof t->name, "%s", w[0]);
    t->n = opt_u64(w, n, "n", 1000);
    t->f64 = dtype && strcmp(dtype, "f64") == 0;
    uint64_t bytes = t->n * (t->f64 ? 8 : 4);
    p.dtype = t->f64 ? PSRT_F64 : PSRT_F32;
    p.ndim = 1;
    p.shape[0] = t->n;
    p.init = opt(w, n, "init");
    p.optimizer = opt(w, n, "opt");
    p.consistency = opt(w, n, "cons");
    p.reduce = opt(w, n, "reduce");
    p.group = opt(w, n, "group");
    p.codec = opt(w, n, "codec");
    p.deterministic = (int)opt_u64(w, n, "det", 0);
    int user = opt(w, n, "mem") && strcmp(opt(w, n, "mem"), "user") == 0;
    t->grad = user ? calloc(1, bytes) : psrt_alloc(ctx, bytes ? bytes : 1);
    t->value = user ? calloc(1, bytes) : psrt_alloc(ctx, bytes ? bytes : 1);
    if (!t->grad || !t->value) return answer(PSRT_ERR_NO_MEMORY, NULL);
    if (data) {
        fill(t, t->value, atof(data));
        p.init_data = t->value;
    }
    psrt_status_t rc = psrt_dense_create(ctx, t->name, &p, &t->handle);
    if (!rc) ntables[current]++;
    answer(rc, NULL);
}

static int request(const char *what, char **w, int n, psrt_request_t *r)
{
    table_t *t = n ? find(w[0]) : NULL;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table"), 0;
    *r = (psrt_request_t)PSRT_REQUEST_INIT;
    size_t elem = t->f64 ? 8 : 4;
    r->table = t->handle;
    r->offset = opt_u64(w, n, "offset", 0);
    r->count = opt_u64(w, n, "count", 0);
    r->step = opt_u64(w, n, "step", PSRT_STEP_NEXT);
    r->more = (int)opt_u64(w, n, "more", 0);
    r->ema = (int)opt_u64(w, n, "avg", 0);
    const char *prio = opt(w, n, "prio");
    r->priority = prio ? atoi(prio) : 0;
    if (strncmp(what, "push", 4) == 0) r->grad = (char *)t->grad + r->offset * elem;
    if (strstr(what, "pull")) r->value = (char *)t->value + r->offset * elem;
    return 1;
}

static uint64_t deadline_of(char **w, int n)
{
    const char *seconds = opt(w, n, "deadline");
    return seconds ? (uint64_t)(atof(seconds) * 1e9) : 0;
}

static void on_done(void *arg, const psrt_result_t *result) { *(psrt_result_t *)arg = *result; }

/* The result belongs to the callback until the operation ended. */
static void result_line(psrt_status_t rc, const psrt_result_t *r)
{
    char text[128];
    if (rc) return answer(rc, NULL);
    snprintf(text, sizeof text, "late=%d step=%" PRIu64 " version=%" PRIu64, r->late, r->step,
             r->version);
    answer(PSRT_OK, text);
}

static void cmd_transfer(const char *what, char **w, int n)
{
    psrt_request_t r;
    psrt_result_t result = { PSRT_OK, 0, 0, 0 };
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    sp.callback = on_done;
    sp.arg = &result;
    sp.deadline_ns = deadline_of(w, n);
    if (!request(what, w, n, &r)) return;
    psrt_status_t rc = psrt_submit(ctx, &r, 1, &sp, NULL);
    result_line(rc, &result);
}

static void cmd_start(char **w, int n)
{
    psrt_request_t r;
    char text[32];
    if (n < 2 || nops == MAX_OPS) return answer(PSRT_ERR_INVALID, "start what?");
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    sp.callback = on_done;
    sp.arg = &results[nops];
    sp.deadline_ns = deadline_of(w, n);
    if (!request(w[0], w + 1, n - 1, &r)) return;
    psrt_status_t rc = psrt_submit(ctx, &r, 1, &sp, &ops[nops]);
    snprintf(text, sizeof text, "%zu", nops);
    if (!rc) nops++;
    answer(rc, rc ? NULL : text);
}

static void cmd_wait(char **w, int n)
{
    size_t id = n ? strtoull(w[0], NULL, 0) : nops;
    if (n < 2 || id >= nops) return answer(PSRT_ERR_INVALID, "wait ID SECONDS");
    psrt_status_t rc = psrt_op_wait(ops[id], (uint64_t)(atof(w[1]) * 1e9));
    result_line(rc, &results[id]);
}

static void cmd_many(char **w, int n)
{
    if (n < 1) return answer(PSRT_ERR_INVALID, "many NAME...");
    psrt_request_t *r = calloc((size_t)n, sizeof *r);
    for (int i = 0; i < n; i++)
        if (!request("push_pull", w + i, 1, &r[i])) {
            free(r);
            return;
        }
    answer(psrt_submit(ctx, r, (size_t)n, NULL, NULL), NULL);
    free(r);
}

static void cmd_loop(char **w, int n)
{
    psrt_request_t r;
    psrt_status_t rc = PSRT_OK;
    if (n < 3 || !request(w[0], w + 1, 1, &r)) return;
    for (long i = 0, count = atol(w[2]); !rc && i < count; i++)
        rc = psrt_submit(ctx, &r, 1, NULL, NULL);
    answer(rc, NULL);
}

static void cmd_upto(char **w, int n)
{
    psrt_request_t r;
    psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
    if (n < 3 || !request(w[0], w + 1, 1, &r)) return;
    psrt_status_t rc = psrt_table_query(r.table, &a);
    while (!rc && a.step < strtoull(w[2], NULL, 0)) {
        rc = psrt_submit(ctx, &r, 1, NULL, NULL);
        if (!rc) rc = psrt_table_query(r.table, &a);
    }
    answer(rc, NULL);
}

static void cmd_set(char **w, int n)
{
    table_t *t = n == 4 ? find(w[0]) : NULL;
    char text[32];
    uint64_t step;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    uint64_t from = strcmp(w[3], "next") == 0 ? PSRT_STEP_NEXT : strtoull(w[3], NULL, 0);
    psrt_status_t rc = psrt_table_set(t->handle, w[1], atof(w[2]), from, &step);
    if (!rc) snprintf(text, sizeof text, "%" PRIu64, step);
    answer(rc, rc ? NULL : text);
}

/* Sum over elements divided by what the fill pattern sums to: the factor V of a filled buffer. */
static void cmd_sum(char **w, int n)
{
    table_t *t = n ? find(w[0]) : NULL;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    double v = at(t, 0);
    char text[64];
    for (uint64_t i = 0; i < t->n; i++)
        if (at(t, i) !=
            (t->f64 ? v * (double)(1 + i % 5) : (double)(float)(v * (double)(1 + i % 5)))) {
            snprintf(text, sizeof text, "mixed at %" PRIu64 ": %.17g", i, at(t, i));
            return answer(PSRT_OK, text);
        }
    snprintf(text, sizeof text, "%.17g", v);
    answer(PSRT_OK, text);
}

static void cmd_slices(char **w, int n)
{
    table_t *t = n ? find(w[0]) : NULL;
    char text[4096];
    size_t pos = 0;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    for (uint64_t i = 0; i < t->n && pos < sizeof text - 64; i++) {
        uint64_t first = i & ~((1ull << 18) - 1);
        if (at(t, i) != at(t, first)) {
            snprintf(text, sizeof text, "mixed at %" PRIu64 ": %.17g, not %.17g", i, at(t, i),
                     at(t, first));
            return answer(PSRT_OK, text);
        }
        if (i == first) pos += (size_t)sprintf(text + pos, "%s%.17g", i ? " " : "", at(t, i));
    }
    answer(PSRT_OK, text);
}

static void cmd_file(const char *what, char **w, int n)
{
    table_t *t = n == 2 ? find(w[0]) : NULL;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    size_t elem = t->f64 ? 8 : 4, done = 0;
    if (strcmp(what, "load") == 0) {
        FILE *f = fopen(w[1], "rb");
        if (f) done = fread(t->grad, elem, t->n, f);
        if (f) fclose(f);
    } else {
        FILE *f = fopen(w[1], "wb");
        if (f) done = fwrite(t->value, elem, t->n, f);
        if (f && fclose(f) != 0) done = 0;
    }
    if (done != t->n) return answer(PSRT_ERR_INVALID, "the file is not as long");
    answer(PSRT_OK, NULL);
}

static void cmd_at(char **w, int n)
{
    table_t *t = n == 2 ? find(w[0]) : NULL;
    char text[64];
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    snprintf(text, sizeof text, "%.17g", at(t, strtoull(w[1], NULL, 0)));
    answer(PSRT_OK, text);
}

static void cmd_hash(char **w, int n)
{
    table_t *t = n ? find(w[0]) : NULL;
    char text[64];
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    const unsigned char *p = t->value;
    uint64_t h = 1469598103934665603ull;
    for (uint64_t i = 0; i < t->n * (t->f64 ? 8 : 4); i++)
        h = (h ^ p[i]) * 1099511628211ull;
    snprintf(text, sizeof text, "%016" PRIx64, h);
    answer(PSRT_OK, text);
}

static void cmd_info(void)
{
    char text[512];
    psrt_context_attr_t a = PSRT_CONTEXT_ATTR_INIT;
    psrt_status_t rc = psrt_context_query(ctx, &a);
    snprintf(text, sizeof text,
             "rank=%u workers=%u servers=%u live_workers=%u live_servers=%u view=%" PRIu64
             " transports=%s pushed=%" PRIu64 " pulled=%" PRIu64,
             a.rank, a.workers, a.servers, a.live_workers, a.live_servers, a.view, a.transports,
             a.pushed_bytes, a.pulled_bytes);
    answer(rc, rc ? NULL : text);
}

static void cmd_members(char **w, int n)
{
    static psrt_member_t m[64] = { PSRT_MEMBER_INIT };
    static char text[64 * 128];
    uint32_t count = 64;
    size_t at = 0;
    int server = n && strcmp(w[0], "server") == 0;
    psrt_status_t rc =
        psrt_context_members(ctx, server ? PSRT_ROLE_SERVER : PSRT_ROLE_WORKER, m, &count);
    text[0] = '\0';
    for (uint32_t i = 0; !rc && i < count && i < 64; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s%u:%" PRIu64 ":%d:%d:%s", i ? " " : "",
                             m[i].rank, m[i].incarnation, m[i].alive, m[i].finished, m[i].host);
    answer(rc, rc ? NULL : text);
}

static void cmd_events(void)
{
    char text[sizeof events];
    pthread_mutex_lock(&event_lock);
    strcpy(text, events);
    events[0] = '\0';
    pthread_mutex_unlock(&event_lock);
    answer(PSRT_OK, text);
}

static void cmd_rss(void)
{
    char text[64];
    long pages = 0, ignored;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &ignored, &pages) != 2) pages = 0;
    if (f) fclose(f);
    snprintf(text, sizeof text, "%ld", pages * 4096);
    answer(PSRT_OK, text);
}

static void cmd_step(char **w, int n)
{
    table_t *t = n ? find(w[0]) : NULL;
    psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
    char text[32];
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    psrt_status_t rc = psrt_table_query(t->handle, &a);
    snprintf(text, sizeof text, "%" PRIu64, a.step);
    answer(rc, rc ? NULL : text);
}

static void cmd_skipped(char **w, int n)
{
    char text[32];
    psrt_table_attr_t attr = PSRT_TABLE_ATTR_INIT;
    table_t *t = n ? find(w[0]) : NULL;
    if (!t) return answer(PSRT_ERR_NOT_FOUND, "no such table");
    psrt_status_t rc = psrt_table_query(t->handle, &attr);
    snprintf(text, sizeof text, "%" PRIu64, attr.skipped_steps);
    answer(rc, rc ? NULL : text);
}

/* ---- several contexts of one process meet -------------------------------------------------------- */

typedef struct meeter {
    pthread_t thread;
    int started;
    char rank[32];
    unsigned rounds, count;
    psrt_status_t status;
    char text[256];
} meeter_t;

static void *meet(void *arg)
{
    meeter_t *m = arg;
    const char *settings[] = { m->rank, NULL };
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    psrt_context_t *own = NULL;
    p.settings = settings;
    m->status = psrt_context_create(&p, &own);
    for (unsigned i = 0; !m->status && i < m->rounds; i++) {
        char name[32];
        snprintf(name, sizeof name, "meet%u", i);
        m->status = psrt_barrier(own, name, m->count, 60000000000ull);
    }
    if (m->status) snprintf(m->text, sizeof m->text, "%s: %s", m->rank, psrt_last_error());
    psrt_context_destroy(own);
    return NULL;
}

/* meet ROUNDS RANK...: a context and thread for each rank, ROUNDS barriers of these alone. */
static void cmd_meet(char **w, int n)
{
    meeter_t all[16] = { 0 }, *wrong = NULL;
    if (n < 2 || n > 17) return answer(PSRT_ERR_INVALID, "meet ROUNDS RANK...");
    for (int i = 1; i < n; i++) {
        meeter_t *m = &all[i - 1];
        snprintf(m->rank, sizeof m->rank, "PSRT_RANK=%s", w[i]);
        m->rounds = (unsigned)atoi(w[0]);
        m->count = (unsigned)n - 1;
        m->started = pthread_create(&m->thread, NULL, meet, m) == 0;
    }
    for (int i = 0; i < n - 1; i++) {
        if (!all[i].started) return answer(PSRT_ERR_LIMIT, "no thread");
        pthread_join(all[i].thread, NULL);
        if (all[i].status) wrong = &all[i];
    }
    answer(wrong ? wrong->status : PSRT_OK, wrong ? wrong->text : NULL);
}

static void cmd_simple(const char *c, char **w, int n)
{
    if (strcmp(c, "use") == 0 && n == 1 && atoi(w[0]) >= 0 && atoi(w[0]) < MAX_CONTEXTS) {
        current = atoi(w[0]);
        ctx = contexts[current];
        answer(PSRT_OK, NULL);
    } else if (strcmp(c, "fill") == 0 && n == 2 && find(w[0])) {
        fill(find(w[0]), find(w[0])->grad, atof(w[1]));
        answer(PSRT_OK, NULL);
    } else if (strcmp(c, "values") == 0 && n == 2 && find(w[0])) {
        fill(find(w[0]), find(w[0])->value, atof(w[1]));
        answer(PSRT_OK, NULL);
    } else if (strcmp(c, "flat") == 0 && n == 2 && find(w[0])) {
        flat(find(w[0]), atof(w[1]));
        answer(PSRT_OK, NULL);
    } else if (strcmp(c, "barrier") == 0 && n >= 1) {
        uint64_t ns = n > 2 ? (uint64_t)(atof(w[2]) * 1e9) : PSRT_FOREVER;
        answer(psrt_barrier(ctx, w[0], n > 1 ? (uint32_t)atoi(w[1]) : 0, ns), NULL);
    } else if (strcmp(c, "test") == 0 && n == 1 && strtoull(w[0], NULL, 0) < nops) {
        answer(psrt_op_test(ops[strtoull(w[0], NULL, 0)], NULL), NULL);
    } else if (strcmp(c, "cancel") == 0 && n == 1 && strtoull(w[0], NULL, 0) < nops) {
        psrt_op_cancel(ops[strtoull(w[0], NULL, 0)]);
        answer(PSRT_OK, NULL);
    } else if (strcmp(c, "destroy") == 0) {
        psrt_context_destroy(ctx);
        ctx = contexts[current] = NULL;
        ntables[current] = 0;
        answer(PSRT_OK, NULL);
    } else {
        answer(PSRT_ERR_INVALID, "no such command");
    }
}

static void run(const char *c, char **w, int n)
{
    if (strcmp(c, "create") == 0)
        cmd_create(w, n);
    else if (strcmp(c, "table") == 0 && n)
        cmd_table(w, n);
    else if (strcmp(c, "push") == 0 || strcmp(c, "pull") == 0 || strcmp(c, "push_pull") == 0)
        cmd_transfer(c, w, n);
    else if (strcmp(c, "start") == 0)
        cmd_start(w, n);
    else if (strcmp(c, "wait") == 0)
        cmd_wait(w, n);
    else if (strcmp(c, "many") == 0)
        cmd_many(w, n);
    else if (strcmp(c, "loop") == 0)
        cmd_loop(w, n);
    else if (strcmp(c, "upto") == 0)
        cmd_upto(w, n);
    else if (strcmp(c, "set") == 0)
        cmd_set(w, n);
    else if (strcmp(c, "sum") == 0)
        cmd_sum(w, n);
    else if (strcmp(c, "slices") == 0)
        cmd_slices(w, n);
    else if (strcmp(c, "load") == 0 || strcmp(c, "save") == 0)
        cmd_file(c, w, n);
    else if (strcmp(c, "at") == 0)
        cmd_at(w, n);
    else if (strcmp(c, "hash") == 0)
        cmd_hash(w, n);
    else if (strcmp(c, "info") == 0)
        cmd_info();
    else if (strcmp(c, "members") == 0)
        cmd_members(w, n);
    else if (strcmp(c, "events") == 0)
        cmd_events();
    else if (strcmp(c, "step") == 0)
        cmd_step(w, n);
    else if (strcmp(c, "skipped") == 0)
        cmd_skipped(w, n);
    else if (strcmp(c, "rss") == 0)
        cmd_rss();
    else if (strcmp(c, "meet") == 0)
        cmd_meet(w, n);
    else
        cmd_simple(c, w, n);
}

int main(void)
{
    static char line[65536];
    while (fgets(line, sizeof line, stdin)) {
        char *words[MAX_WORDS], *save = NULL;
        int n = 0;
        for (char *p = strtok_r(line, " \t\n", &save); p && n < MAX_WORDS;
             p = strtok_r(NULL, " \t\n", &save))
            words[n++] = p;
        if (n == 0) continue;
        if (strcmp(words[0], "quit") == 0) return n > 1 ? atoi(words[1]) : 0;
        run(words[0], words + 1, n - 1);
    }
    return 0;
}
