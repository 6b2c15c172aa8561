/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment says: configuration, place in the job, key. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "runtime/api/api.h"

static psrt_status_t apply_setting(psrti_config_t *config, const char *setting)
{
    char name[64];
    const char *eq = strchr(setting, '=');
    if (!eq || (size_t)(eq - setting) >= sizeof name)
        return psrti_fail(PSRT_ERR_INVALID, "setting \"%s\" is not of the form PSRT_NAME=value",
                          setting);
    memcpy(name, setting, (size_t)(eq - setting));
    name[eq - setting] = '\0';
    return psrti_config_set(config, name, eq + 1);
}

psrt_status_t psrti_api_config(const char *const *settings, psrti_config_t **config_p)
{
    psrti_config_t *config;
    psrt_status_t rc = psrti_config_create(&config);
    if (rc) return rc;
    for (; !rc && settings && *settings; settings++)
        rc = apply_setting(config, *settings);
    if (rc)
        psrti_config_destroy(config);
    else
        *config_p = config;
    return rc;
}

/* Alone is what a process without any PSRT_ place is; half a description is an error. */
static psrt_status_t alone(const psrti_config_t *config, const char *role, psrti_place_t *place)
{
    static const psrti_config_id_t ids[] = { PSRTI_CONF_ROLE, PSRTI_CONF_RANK, PSRTI_CONF_WORKERS,
                                             PSRTI_CONF_SERVERS };
    for (size_t i = 0; i < PSRTI_COUNT(ids); i++)
        if (!psrti_config_is_default(config, ids[i]) && *psrti_config_text(config, ids[i]))
            return psrti_fail(PSRT_ERR_INVALID,
                              "%s is set, but PSRT_COORDINATOR is not: set both, or neither to run "
                              "alone",
                              psrti_config_entry(ids[i])->name);
    if (strcmp(role, "worker") != 0)
        return psrti_fail(PSRT_ERR_INVALID,
                          "PSRT_COORDINATOR is not set: a %s needs it "
                          "(tcp://host:port)",
                          role);
    *place = (psrti_place_t){ .rank = 0, .workers = 1, .servers = 1, .coordinator = "" };
    return PSRT_OK;
}

/* tcp://host:port, tcp://[ipv6]:port. Without a port the coordinator would listen at one that nobody
 * knows. */
static psrt_status_t check_coordinator(const char *address)
{
    const char *host = strncmp(address, "tcp://", 6) == 0 ? address + 6 : "";
    const char *end = *host == '[' ? strchr(host, ']') : strchr(host, ':');
    if (end && *end == ']') end++;
    int64_t port;
    if (end && end > host && *end == ':' && psrti_parse_i64(end + 1, 1, 65535, &port) == PSRT_OK)
        return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "PSRT_COORDINATOR=\"%s\" is not legal: allowed is tcp://HOST:PORT, "
                      "tcp://[IPV6]:PORT",
                      address);
}

psrt_status_t psrti_api_place(const psrti_config_t *config, const char *role, psrti_place_t *place)
{
    const char *given = psrti_config_text(config, PSRTI_CONF_ROLE);
    const char *coordinator = psrti_config_text(config, PSRTI_CONF_COORDINATOR);
    if (!*coordinator) return alone(config, role, place);
    if (strcmp(given, role) != 0)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_ROLE is \"%s\", must be %s for this call", given,
                          role);
    psrt_status_t rc = check_coordinator(coordinator);
    if (rc) return rc;
    place->rank = (uint32_t)psrti_config_int(config, PSRTI_CONF_RANK);
    place->workers = (uint32_t)psrti_config_int(config, PSRTI_CONF_WORKERS);
    place->servers = (uint32_t)psrti_config_int(config, PSRTI_CONF_SERVERS);
    place->coordinator = coordinator;
    uint32_t size = strcmp(role, "worker") == 0   ? place->workers
                    : strcmp(role, "server") == 0 ? place->servers
                                                  : UINT32_MAX;
    if (place->rank >= size)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_RANK is %u, but the job has %u %ss (0 to %u)",
                          place->rank, size, role, size ? size - 1 : 0);
    return PSRT_OK;
}

psrt_status_t psrti_api_key(const psrti_config_t *config, psrti_jobkey_t *key)
{
    const char *file = psrti_config_text(config, PSRTI_CONF_KEY_FILE);
    const char *dir = psrti_config_text(config, PSRTI_CONF_JOB_DIR);
    char path[PATH_MAX];
    if (*file) return psrti_jobkey_read(file, key);
    if (!*dir)
        return psrti_fail(PSRT_ERR_INVALID,
                          "neither PSRT_KEY_FILE nor PSRT_JOB_DIR is set: a job needs its key "
                          "(psrt-launch makes one)");
    if ((size_t)snprintf(path, sizeof path, "%s/key", dir) >= sizeof path)
        return psrti_fail(PSRT_ERR_INVALID, "PSRT_JOB_DIR is longer than %d bytes", PATH_MAX - 5);
    return psrti_jobkey_read(path, key);
}
