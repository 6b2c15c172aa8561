/* SPDX-License-Identifier: Apache-2.0 */
/* What psrt-launch --help prints; the manual page is made of it. */
#ifndef PSRTI_LAUNCHER_HELP_H
#define PSRTI_LAUNCHER_HELP_H

#include "launcher/options.h"

/* `flags` are those of every job. */
void psrti_help_print(const psrti_flag_t *flags, size_t count);

#endif
