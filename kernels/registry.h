/* SPDX-License-Identifier: Apache-2.0 */
/* The list of optimizers: those of kernels/optim/, then those that programs and plug-ins register. One a
 * process, because a loaded plug-in belongs to the process; it only grows. */
#ifndef PSRTI_REGISTRY_H
#define PSRTI_REGISTRY_H

#include <psrt/ext/optimizer_v1.h>

#define PSRTI_REGISTERED_MAX 64

/* Entry `index`, NULL past the end. Any thread, also while others register. */
const psrt_optimizer_ops_t *psrti_optimizer_at(size_t index);
/* By name; *ops_p is NULL for "none". ERR_INVALID with the nearest name. */
psrt_status_t psrti_optimizer_find(const char *name, const psrt_optimizer_ops_t **ops_p);
/* Is it one of kernels/optim/, which every task has, or "none"? */
int psrti_optimizer_is_builtin(const char *name, size_t len);

/* Loads the plug-ins of a comma list of paths and registers their optimizers. A plug-in that this
 * process has loaded is left as it is, so that contexts may repeat their lists; the same optimizer may be
 * registered again, another of its name not. ERR_NOT_FOUND: no such file or it cannot be loaded, or it
 * has no optimizers; ERR_INVALID: one of them is malformed. The texts name the plug-in. */
psrt_status_t psrti_plugins_load(const char *list);
/* The same for one path of `len` bytes. */
psrt_status_t psrti_plugin_load(const char *path, size_t len);

#endif
