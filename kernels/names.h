/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PSRTI_KERNELS_NAMES_H
#define PSRTI_KERNELS_NAMES_H

#include "base/log.h"
#include "base/util.h"

/* ERR_INVALID: `where` ("optimizer", "table fc/weight: initializer") has no such name; the text has the
 * nearest, or all. */
static inline psrt_status_t psrti_fail_unknown(const char *where, const char *name,
                                               const char *const *names, size_t count)
{
    const char *nearest = psrti_nearest(name, names, count);
    char list[256] = "";
    size_t pos = 0;
    if (nearest)
        return psrti_fail(PSRT_ERR_INVALID, "%s \"%.80s\" is unknown, did you mean \"%s\"?", where,
                          name, nearest);
    for (size_t i = 0; i < count; i++)
        psrti_append(list, sizeof list, &pos, "%s%s", i ? ", " : "", names[i]);
    return psrti_fail(PSRT_ERR_INVALID, "%s \"%.80s\" is unknown, there are: %s", where, name,
                      list);
}

#endif
