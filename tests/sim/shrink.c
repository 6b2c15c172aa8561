/* SPDX-License-Identifier: Apache-2.0 */
/* From a seed that fails to what matters of it. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define SHOWN 150 /* lines of a trace, the last ones */

const char *const sim_kind_names[SIM_KIND_COUNT] = {
#define SIM_KIND_NAME(name) #name,
    SIM_KINDS(SIM_KIND_NAME)
#undef SIM_KIND_NAME
};

static int fails(const sim_case_t *what)
{
    sim_counts_t counts = { 0 };
    char text[512];
    return !sim_run(what, NULL, &counts, text, sizeof text);
}

static void leave_out_kinds(sim_case_t *what)
{
    for (int kind = 0; kind < SIM_KIND_COUNT; kind++) {
        sim_case_t less = *what;
        less.without |= 1u << kind;
        if (less.without != what->without && fails(&less)) *what = less;
    }
}

/* By halves: how early can the last fault be? */
static void end_faults_early(sim_case_t *what)
{
    uint64_t low = 0, high = what->until ? what->until : 800 * MS;
    while (high - low > MS) {
        sim_case_t less = *what;
        less.until = low + (high - low) / 2;
        if (fails(&less)) {
            *what = less;
            high = less.until;
        } else {
            low = less.until;
        }
    }
}

/* Without one kind of faults the others come at other moments, so that it may fail in another
 * way; it is a failure all the same. */
void sim_shrink(sim_case_t *what)
{
    leave_out_kinds(what);
    end_faults_early(what);
    leave_out_kinds(what);
}

/* The name of a table in a line, "t3.741"; "": none. */
static const char *table_in(const char *line, char name[32])
{
    for (const char *at = line; (at = strchr(at, 't')); at++) {
        char end;
        if (sscanf(at, "t%*u.%*u%c", &end) != 1 && sscanf(at, "t%*u.%31[0-9]", name) != 1) continue;
        snprintf(name, 32, "%.*s", (int)(1 + strspn(at + 1, "0123456789.")), at);
        return name;
    }
    name[0] = '\0';
    return name;
}

static int matters(const char *line, const char *blamed)
{
    char name[32];
    if (strstr(line, "heartbeat")) return 0;
    return !*blamed || !*table_in(line, name) || strstr(line, blamed) != NULL;
}

static void print_last(char *trace, const char *blamed, FILE *out)
{
    const char *last[SHOWN];
    size_t n = 0;
    char *rest;
    for (char *line = strtok_r(trace, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (matters(line, blamed)) last[n++ % SHOWN] = line;
    if (n > SHOWN) fprintf(out, "  (%zu lines before)\n", n - SHOWN);
    for (size_t i = n > SHOWN ? n - SHOWN : 0; i < n; i++)
        fprintf(out, "%s\n", last[i % SHOWN]);
}

void sim_explain(const sim_case_t *what, FILE *out)
{
    sim_counts_t counts = { 0 };
    char text[512], blamed[32], *trace = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&trace, &size);
    if (!file) return;
    sim_run(what, file, &counts, text, sizeof text);
    fclose(file);
    print_last(trace, table_in(text, blamed), out);
    free(trace);
}
