/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/exports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "launcher/contract.h"

static void export_to_all(psrti_job_t *job, const char *name, const char *value)
{
    psrti_env_set(&job->env, name, value);
    for (size_t i = 0; i < job->role_count; i++)
        psrti_env_unset(&job->roles[i].env, name);
}

/* What says who a task of an enclosing job is stays behind. */
static psrt_status_t export_prefix(psrti_job_t *job, const char *prefix, size_t length)
{
    int found = 0;
    for (char **entry = environ; *entry; entry++) {
        const char *equal = strchr(*entry, '=');
        if (!equal || strncmp(*entry, prefix, length)) continue;
        char *name = psrti_xstrdup(*entry);
        name[equal - *entry] = '\0';
        if (!psrti_contract_env_is_reserved(name)) {
            export_to_all(job, name, equal + 1);
            found = 1;
        }
        free(name);
    }
    if (found) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "%.*s*: no variable in the environment begins so",
                      (int)length, prefix);
}

psrt_status_t psrti_export(psrti_job_t *job, const char *text)
{
    size_t length = strcspn(text, "=");
    if (!length) return psrti_fail(PSRT_ERR_INVALID, "%s: not NAME, NAME=VALUE or PREFIX*", text);
    if (!text[length] && text[length - 1] == '*') return export_prefix(job, text, length - 1);
    char *name = psrti_xstrdup(text);
    name[length] = '\0';
    const char *value = text[length] ? text + length + 1 : getenv(name);
    psrt_status_t st = PSRT_OK;
    if (psrti_contract_env_is_reserved(name))
        st = psrti_fail(PSRT_ERR_INVALID, "%s: set by psrt-launch itself", name);
    else if (!value)
        st = psrti_fail(PSRT_ERR_INVALID, "%s: not set in the environment", name);
    else
        export_to_all(job, name, value);
    free(name);
    return st;
}

static psrt_status_t export_line(psrti_job_t *job, char *line, size_t length)
{
    if (strlen(line) != length) return psrti_fail(PSRT_ERR_INVALID, "a NUL byte in the line");
    line[strcspn(line, "\n")] = '\0';
    length = strlen(line);
    if (length && line[length - 1] == '\r') line[length - 1] = '\0';
    return *line && *line != '#' ? psrti_export(job, line) : PSRT_OK;
}

psrt_status_t psrti_export_file(psrti_job_t *job, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    psrt_status_t st = PSRT_OK;
    if (!file) return psrti_fail(PSRT_ERR_INVALID, "%s: %s", path, strerror(errno));
    for (unsigned number = 1; !st; number++) {
        errno = 0;
        ssize_t length = getline(&line, &size, file);
        if (length < 0) {
            if (errno) st = psrti_fail(PSRT_ERR_INVALID, "%s: %s", path, strerror(errno));
            break;
        }
        st = export_line(job, line, (size_t)length);
        if (st) st = psrti_fail(st, "%s:%u: %s", path, number, psrt_last_error());
    }
    free(line);
    fclose(file);
    return st;
}
