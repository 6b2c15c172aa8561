/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with many small tables, driven by lines on stdin as agent.c is.
 *
 *   create | destroy | quit
 *   declare N CONSISTENCY              i64 tables of 1 to 37 elements, summed
 *   all push|pull|push_pull            every table in one operation
 *   loop push|push_pull N              the same N times; an answer each time
 *   check                              "a=A k=MIN..MAX" of what was pulled last, see below
 *   barrier NAME
 *
 * Worker 0 pushes m, the others K * m, where m differs from element to element. So each value divided
 * by m is a + K * k, where worker 0's pushes were added a times and the others' k times. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#define K 1000003

static psrt_context_t *ctx;
static size_t ntables, nelements;
static psrt_table_t **tables;
static psrt_request_t *requests;
static int64_t *grad, *value;

static void answer(psrt_status_t status, const char *text)
{
    if (status == PSRT_OK)
        printf("ok %s\n", text ? text : "");
    else
        printf("err %s %s\n", psrt_status_name(status), text ? text : psrt_last_error());
    fflush(stdout);
}

static size_t size_of(size_t table) { return 1 + table % 37; }

static int64_t m_of(size_t element) { return 1 + (int64_t)(element % 1009); }

static psrt_status_t allocate(size_t count)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    psrt_status_t rc = psrt_context_query(ctx, &attr);
    ntables = count;
    nelements = 0;
    for (size_t i = 0; i < count; i++)
        nelements += size_of(i);
    tables = calloc(count, sizeof(void *));
    requests = calloc(count, sizeof *requests);
    grad = malloc(nelements * sizeof *grad);
    value = malloc(nelements * sizeof *value);
    for (size_t e = 0; e < nelements; e++) {
        grad[e] = (attr.rank ? K : 1) * m_of(e);
        value[e] = -1;
    }
    return rc;
}

static void cmd_declare(size_t count, const char *consistency)
{
    psrt_dense_params_t *params = calloc(count, sizeof *params);
    char(*names)[48] = calloc(count, sizeof *names);
    const char **name = calloc(count, sizeof *name);
    psrt_status_t rc = allocate(count);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "layer.%zu/weight", i);
        name[i] = names[i];
        params[i] = (psrt_dense_params_t)PSRT_DENSE_PARAMS_INIT;
        params[i].dtype = PSRT_I64;
        params[i].ndim = 1;
        params[i].shape[0] = size_of(i);
        params[i].consistency = consistency;
    }
    if (!rc) rc = psrt_dense_create_many(ctx, count, name, params, tables);
    answer(rc, NULL);
    free(params);
    free(names);
    free(name);
}

static psrt_status_t all(const char *what)
{
    for (size_t i = 0, at = 0; i < ntables; at += size_of(i++)) {
        requests[i] = (psrt_request_t)PSRT_REQUEST_INIT;
        requests[i].table = tables[i];
        if (strncmp(what, "push", 4) == 0) requests[i].grad = grad + at;
        if (strstr(what, "pull")) requests[i].value = value + at;
    }
    return psrt_submit(ctx, requests, ntables, NULL, NULL);
}

static void cmd_loop(const char *what, long count)
{
    psrt_status_t rc = PSRT_OK;
    for (long i = 0; i < count && !rc; i++)
        answer(rc = all(what), NULL);
}

/* A table is added to whole, so k is the same for all of its elements; a is for all tables. */
static void cmd_check(void)
{
    char text[128];
    int64_t a = value[0] / m_of(0) % K, low = INT64_MAX, high = 0;
    for (size_t i = 0, at = 0; i < ntables; at += size_of(i++)) {
        int64_t k = value[at] / m_of(at) / K;
        for (size_t e = at; e < at + size_of(i); e++)
            if (value[e] != (a + K * k) * m_of(e)) {
                snprintf(text, sizeof text, "table %zu element %zu: %" PRId64, i, e - at, value[e]);
                return answer(PSRT_OK, text);
            }
        low = k < low ? k : low;
        high = k > high ? k : high;
    }
    snprintf(text, sizeof text, "a=%" PRId64 " k=%" PRId64 "..%" PRId64, a, low, high);
    answer(PSRT_OK, text);
}

static void run(const char *c, const char *first, const char *second)
{
    if (strcmp(c, "create") == 0) {
        answer(psrt_context_create(NULL, &ctx), NULL);
    } else if (strcmp(c, "declare") == 0) {
        cmd_declare(strtoull(first, NULL, 10), second);
    } else if (strcmp(c, "all") == 0) {
        answer(all(first), NULL);
    } else if (strcmp(c, "loop") == 0) {
        cmd_loop(first, atol(second));
    } else if (strcmp(c, "check") == 0) {
        cmd_check();
    } else if (strcmp(c, "barrier") == 0) {
        answer(psrt_barrier(ctx, first, 0, PSRT_FOREVER), NULL);
    } else if (strcmp(c, "destroy") == 0) {
        psrt_context_destroy(ctx);
        ctx = NULL;
        answer(PSRT_OK, NULL);
    } else {
        answer(PSRT_ERR_INVALID, "no such command");
    }
}

int main(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        char *save = NULL, *word[3];
        for (int i = 0; i < 3; i++) {
            word[i] = strtok_r(i ? NULL : line, " \n", &save);
            if (!word[i]) word[i] = "";
        }
        if (strcmp(word[0], "quit") == 0) break;
        run(word[0], word[1], word[2]);
    }
    psrt_context_destroy(ctx);
    free(tables);
    free(requests);
    free(grad);
    free(value);
    return 0;
}
