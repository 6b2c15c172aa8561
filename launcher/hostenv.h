/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that describe a host, or the login to it: one host's are wrong on another. */
#ifndef PSRTI_LAUNCHER_HOSTENV_H
#define PSRTI_LAUNCHER_HOSTENV_H

#include "launcher/env.h"

void psrti_hostenv_remove(psrti_env_t *env);
/* Sets those of this process that are not in the list, and its PATH. */
void psrti_hostenv_add(psrti_env_t *env);

#endif
