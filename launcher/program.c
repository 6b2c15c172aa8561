/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static int is_in(const char *dir, int len, const char *name, char path[PATH_MAX])
{
    return len && snprintf(path, PATH_MAX, "%.*s/%s", len, dir, name) < PATH_MAX &&
           !access(path, X_OK);
}

psrt_status_t psrti_find_program(const char *name, const char *variable, const char *purpose,
                                 char path[PATH_MAX])
{
    const char *override = getenv(variable);
    if (override) {
        if (access(override, X_OK))
            return psrti_fail(PSRT_ERR_NOT_FOUND, "%s=%s: %s", variable, override, strerror(errno));
        snprintf(path, PATH_MAX, "%s", override);
        return PSRT_OK;
    }
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) *slash = '\0';
    if (slash && is_in(self, (int)strlen(self), name, path)) return PSRT_OK;
    for (const char *dir = getenv("PATH"); dir && *dir;) {
        int n = (int)strcspn(dir, ":");
        if (is_in(dir, n, name, path)) return PSRT_OK;
        dir += n + (dir[n] == ':');
    }
    return psrti_fail(PSRT_ERR_NOT_FOUND,
                      "%s was found neither beside psrt-launch (%s) nor in PATH; %s", name, self,
                      purpose);
}
