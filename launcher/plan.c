/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "launcher/contract.h"

static void print_quoted(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=/.,:@%";
    if (*text && text[strspn(text, plain)] == '\0') {
        fputs(text, stdout);
        return;
    }
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

/* By the names that such variables bear: a plan is pasted into reports. */
static int looks_secret(const char *entry)
{
    static const char *const words[] = {
        "SECRET", "TOKEN", "PASSW", "CREDENTIAL", "_KEY", "APIKEY"
    };
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, "="), entry);
    for (size_t i = 0; i < PSRTI_COUNT(words); i++)
        if (strcasestr(name, words[i])) return 1;
    return 0;
}

static void print_task(const psrti_job_t *job, const psrti_task_t *task)
{
    psrti_env_t own = { 0 };
    psrti_launch_t launch;
    psrti_contract_make(job, task, &launch);
    psrti_contract_env(job, task, &own);
    printf("%s\n    role %s, index %u\n    command:", task->name, task->role->name, task->index);
    for (char *const *arg = launch.argv; *arg; arg++) {
        putchar(' ');
        print_quoted(*arg);
    }
    printf("\n    environment:\n");
    for (size_t i = 0; i < own.count; i++) {
        const char *value = strchr(own.entries[i], '=') + 1;
        printf("        %.*s", (int)(value - own.entries[i]), own.entries[i]);
        if (looks_secret(own.entries[i]))
            fputs("(hidden)", stdout);
        else
            print_quoted(value);
        putchar('\n');
    }
    psrti_launch_clear(&launch);
    psrti_env_clear(&own);
}

void psrti_plan_print(psrti_job_t *job)
{
    snprintf(job->dir, sizeof job->dir, "(made at the start)");
    snprintf(job->coordinator, sizeof job->coordinator, "tcp://127.0.0.1:(chosen at the start)");
    for (size_t i = 0; i < job->task_count; i++)
        print_task(job, &job->tasks[i]);
}
