/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers from shared objects. A plug-in stays loaded: tables point into it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/registry.h"

#define ENTRY "psrt_optimizer_plugin_v1"

static psrt_status_t register_all(const char *path, const psrt_optimizer_ops_t *const *list)
{
    if (!list || !*list)
        return psrti_fail(PSRT_ERR_NOT_FOUND, "plug-in %s: it has no optimizers", path);
    for (; *list; list++) {
        psrt_status_t rc = psrt_optimizer_register(*list);
        if (rc) return psrti_fail(rc, "plug-in %s: %s", path, psrt_last_error());
    }
    return PSRT_OK;
}

psrt_status_t psrti_plugin_load(const char *start, size_t len)
{
    char path[4096];
    psrt_optimizer_plugin_fn entry;
    if (len >= sizeof path)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_PLUGINS: a path has more than %zu bytes",
                          sizeof path - 1);
    snprintf(path, sizeof path, "%.*s", (int)len, start);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return psrti_fail(PSRT_ERR_NOT_FOUND, "plug-in %s", dlerror()); /* with its path */
    void *symbol = dlsym(object, ENTRY);
    if (!symbol) {
        dlclose(object);
        return psrti_fail(PSRT_ERR_NOT_FOUND, "plug-in %s: it has no function %s", path, ENTRY);
    }
    memcpy(&entry, &symbol, sizeof entry); /* ISO C converts no object pointer to a function's */
    /* cppcheck-suppress resourceLeak ; stays loaded */
    return register_all(path, entry());
}

psrt_status_t psrti_plugins_load(const char *list)
{
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        psrt_status_t rc = len ? psrti_plugin_load(at, len) : PSRT_OK;
        if (rc) return rc;
        at += len + (at[len] == ',');
    }
    return PSRT_OK;
}
