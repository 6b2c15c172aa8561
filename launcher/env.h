/* SPDX-License-Identifier: Apache-2.0 */
/* A list of "NAME=value", as execve takes it. */
#ifndef PSRTI_LAUNCHER_ENV_H
#define PSRTI_LAUNCHER_ENV_H

#include <stddef.h>

/* A zeroed list is empty and valid; entries[count] is NULL once something was set. */
typedef struct psrti_env {
    char **entries;
    size_t count, capacity;
} psrti_env_t;

/* Replaces or appends. */
void psrti_env_set(psrti_env_t *env, const char *name, const char *value);
void psrti_env_setf(psrti_env_t *env, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *psrti_env_get(const psrti_env_t *env, const char *name); /* NULL: not in the list */
void psrti_env_unset(psrti_env_t *env, const char *name);
void psrti_env_merge(psrti_env_t *env, char *const *entries); /* sets each of "NAME=value" */
void psrti_env_clear(psrti_env_t *env);

/* Whether "NAME=value" bears a name as secrets do. */
int psrti_env_looks_secret(const char *entry);

/* Memory of the launcher. When there is none left it ends at once with PSRTI_EXIT_INTERNAL: the
 * guardians then stop the tasks and clear up, as after any death of the launcher. */
void *psrti_xrealloc(void *ptr, size_t size);
void *psrti_xcalloc(size_t count, size_t size);
char *psrti_xstrdup(const char *text);
_Noreturn void psrti_out_of_memory(void);

#endif
