/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hostenv.h"

#include <stdlib.h>

#include "base/util.h"

static const char *const names[] = {
    "HOME",     "USER",       "LOGNAME",         "SHELL",          "MAIL",
    "HOSTNAME", "TMPDIR",     "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "PWD",
    "OLDPWD",   "DISPLAY",    "SSH_AUTH_SOCK",   "SSH_CONNECTION", "SSH_CLIENT",
    "SSH_TTY",  "XAUTHORITY",
};

void psrti_hostenv_remove(psrti_env_t *env)
{
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        psrti_env_unset(env, names[i]);
}

void psrti_hostenv_add(psrti_env_t *env)
{
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        if (getenv(names[i]) && !psrti_env_get(env, names[i]))
            psrti_env_set(env, names[i], getenv(names[i]));
}
