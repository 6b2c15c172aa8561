/* SPDX-License-Identifier: Apache-2.0 */
/* What this build and this machine offer. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "base/topology_draw.h"
#include "kernels/kernels.h"
#include "kernels/registry.h"
#include "runtime/api/api.h"
#include "runtime/coll/select.h"
#include "transport/transport.h"

psrt_status_t psrt_config_query(size_t index, psrt_config_info_t *info)
{
    if (!info || info->size != sizeof *info)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_config_query: `size` of the struct is not set");
    if (index >= PSRTI_CONF_COUNT)
        return psrti_fail(PSRT_ERR_NOT_FOUND, "there are %d configuration entries",
                          (int)PSRTI_CONF_COUNT);
    psrti_config_t *config;
    psrt_status_t rc = psrti_config_create(&config);
    if (rc) return rc;
    psrti_config_id_t id = (psrti_config_id_t)index;
    const psrti_config_entry_t *e = psrti_config_entry(id);
    info->name = e->name;
    info->type = e->type;
    info->default_text = e->def;
    info->choices = e->choices;
    info->doc = e->doc;
    snprintf(info->value, sizeof info->value, "%s", psrti_config_value(config, id));
    snprintf(info->origin, sizeof info->origin, "%s", psrti_config_origin(config, id));
    psrti_config_destroy(config);
    return PSRT_OK;
}

static void fill(psrt_module_info_t *info, const char *kind, const char *name, int available,
                 int score, const char *note)
{
    snprintf(info->kind, sizeof info->kind, "%s", kind);
    snprintf(info->name, sizeof info->name, "%s", name);
    snprintf(info->note, sizeof info->note, "%s", note ? note : "");
    info->available = available;
    info->score = score;
}

static void fill_transport(psrt_module_info_t *info, const psrt_transport_ops_t *t)
{
    char why[160] = "";
    int available = t->probe(why, sizeof why) == PSRT_OK;
    const char *reach = t->caps & PSRT_TRANSPORT_CAP_SAME_PROCESS ? "within this process"
                        : t->caps & PSRT_TRANSPORT_CAP_SAME_HOST  ? "within this host"
                                                                  : "between hosts";
    fill(info, "transport", t->name, available, t->score, *why ? why : reach);
}

/* Is entry `*index` a plug-in of PSRT_PLUGINS? Takes those before it off *index. All are loaded, so that
 * their optimizers can be listed. */
static int fill_plugin(psrt_module_info_t *info, const char *list, size_t *index)
{
    int found = 0;
    for (const char *at = list; *at; at += *at == ',') {
        size_t len = strcspn(at, ","), base = len;
        while (base && at[base - 1] != '/')
            base--;
        psrt_status_t rc = len ? psrti_plugin_load(at, len) : PSRT_OK;
        if (len && !found && (*index)-- == 0) {
            char name[sizeof info->name], path[sizeof info->note];
            snprintf(name, sizeof name, "%.*s", (int)(len - base), at + base);
            snprintf(path, sizeof path, "%.*s", (int)len, at);
            fill(info, "plugin", name, !rc, 0, rc ? psrt_last_error() : path);
            found = 1;
        }
        at += len;
    }
    return found;
}

static int query_plugins(psrt_module_info_t *info, size_t *index, psrt_status_t *rc)
{
    psrti_config_t *config;
    *rc = psrti_config_create(&config);
    if (*rc) return 1;
    int found = fill_plugin(info, psrti_config_text(config, PSRTI_CONF_PLUGINS), index);
    psrti_config_destroy(config);
    return found;
}

psrt_status_t psrt_module_query(size_t index, psrt_module_info_t *info)
{
    psrt_status_t rc;
    const psrt_optimizer_ops_t *ops;
    if (!info || info->size != sizeof *info)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_module_query: `size` of the struct is not set");
    for (const psrt_transport_ops_t *const *t = psrti_transport_all(); *t; t++)
        if (index-- == 0) return fill_transport(info, *t), PSRT_OK;
    for (const psrti_kernels_t *const *k = psrti_kernels_all(); *k; k++)
        if (index-- == 0) {
            fill(info, "kernels", (*k)->name, (*k)->supported(), (*k)->score, NULL);
            return PSRT_OK;
        }
    if (query_plugins(info, &index, &rc)) return rc;
    for (size_t i = 0; (ops = psrti_optimizer_at(i)); i++)
        if (index-- == 0) return fill(info, "optimizer", ops->name, 1, 0, ops->doc), PSRT_OK;
    static const char *const optional[] = { "rdma", "cuda" };
    if (index < PSRTI_COUNT(optional))
        return fill(info, "module", optional[index], 0, 0, "not built"), PSRT_OK;
    return psrti_fail(PSRT_ERR_NOT_FOUND, "no module with this index");
}

void psrt_topology_describe(char *buf, size_t size)
{
    if (buf && size) psrti_topology_describe(buf, size);
}

psrt_status_t psrt_topology_draw(psrt_drawing_t as, char **text_p)
{
    if ((as != PSRT_DRAW_TEXT && as != PSRT_DRAW_SVG) || !text_p)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_topology_draw: no such drawing, or text_p is NULL");
    return psrti_topology_draw(as, text_p);
}

psrt_status_t psrt_collectives_describe(char **text_p)
{
    psrti_config_t *config;
    psrti_coll_tune_t tune;

    if (!text_p) return psrti_fail(PSRT_ERR_INVALID, "psrt_collectives_describe: text_p is NULL");
    psrt_status_t rc = psrti_config_create(&config);
    if (rc) return rc;
    rc = psrti_coll_tune_load(psrti_config_text(config, PSRTI_CONF_COLL_TUNE), &tune);
    psrti_config_destroy(config);
    return rc ? rc : psrti_coll_rules_print(&tune, text_p);
}
