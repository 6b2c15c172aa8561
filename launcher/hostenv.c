/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hostenv.h"

#include <stdlib.h>

#include "base/util.h"

static const char *const names[] = {
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "HOSTNAME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CACHE_HOME",
    "PWD",
    "OLDPWD",
    "DISPLAY",
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "SSH_CLIENT",
    "SSH_TTY",
    "XAUTHORITY",
    /* its devices */
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
};

void psrti_hostenv_remove(psrti_env_t *env)
{
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        psrti_env_unset(env, names[i]);
}

static void add(psrti_env_t *env, const char *name)
{
    if (getenv(name) && !psrti_env_get(env, name)) psrti_env_set(env, name, getenv(name));
}

void psrti_hostenv_add(psrti_env_t *env)
{
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        add(env, names[i]);
    add(env, "PATH"); /* without one hardly anything runs */
}
