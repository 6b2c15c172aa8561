/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "launcher/exits.h"

_Noreturn void psrti_out_of_memory(void)
{
    static const char text[] = "psrt-launch: out of memory; the job is stopped\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(PSRTI_EXIT_INTERNAL);
}

void *psrti_xrealloc(void *ptr, size_t size)
{
    void *p = realloc(ptr, size ? size : 1);
    if (!p) psrti_out_of_memory();
    return p;
}

void *psrti_xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) psrti_out_of_memory();
    return p;
}

char *psrti_xstrdup(const char *text)
{
    char *p = strdup(text);
    if (!p) psrti_out_of_memory();
    return p;
}

static char **find(const psrti_env_t *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < env->count; i++)
        if (!strncmp(env->entries[i], name, len) && env->entries[i][len] == '=')
            return &env->entries[i];
    return NULL;
}

/* Takes the entry over. */
static void put(psrti_env_t *env, const char *name, char *entry)
{
    char **old = find(env, name);
    if (old) {
        free(*old);
        *old = entry;
        return;
    }
    if (env->count + 2 > env->capacity) {
        env->capacity = env->capacity ? 2 * env->capacity : 32;
        env->entries = psrti_xrealloc(env->entries, env->capacity * sizeof *env->entries);
    }
    env->entries[env->count++] = entry;
    env->entries[env->count] = NULL;
}

void psrti_env_set(psrti_env_t *env, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    char *entry = psrti_xrealloc(NULL, size);
    snprintf(entry, size, "%s=%s", name, value);
    put(env, name, entry);
}

void psrti_env_setf(psrti_env_t *env, const char *name, const char *fmt, ...)
{
    char *value;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&value, fmt, ap);
    va_end(ap);
    if (len < 0) psrti_out_of_memory();
    psrti_env_set(env, name, value);
    free(value);
}

const char *psrti_env_get(const psrti_env_t *env, const char *name)
{
    char **entry = find(env, name);
    return entry ? *entry + strlen(name) + 1 : NULL;
}

void psrti_env_unset(psrti_env_t *env, const char *name)
{
    char **entry = find(env, name);
    if (!entry) return;
    free(*entry);
    size_t at = (size_t)(entry - env->entries);
    memmove(entry, entry + 1, (env->count - at) * sizeof *entry);
    env->count--;
}

void psrti_env_merge(psrti_env_t *env, char *const *entries)
{
    for (; entries && *entries; entries++) {
        const char *equal = strchr(*entries, '=');
        if (!equal) continue;
        char *name = psrti_xstrdup(*entries);
        name[equal - *entries] = '\0';
        put(env, name, psrti_xstrdup(*entries));
        free(name);
    }
}

void psrti_env_clear(psrti_env_t *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->entries[i]);
    free(env->entries);
    *env = (psrti_env_t){ 0 };
}

int psrti_env_looks_secret(const char *entry)
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
