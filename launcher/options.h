/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of psrt-launch. */
#ifndef PSRTI_LAUNCHER_OPTIONS_H
#define PSRTI_LAUNCHER_OPTIONS_H

#include "launcher/job.h"

/* Fills an initialised job. ERR_INVALID says which flag and what is allowed.
 * *done_p is set when --help or --version was printed and nothing is to be run. */
psrt_status_t psrti_options_parse(int argc, char **argv, psrti_job_t *job, int *done_p);

#define PSRTI_FLAG_LETTERS 256 /* ids below are letters */

/* A flag: parsing, the nearest name in errors, and --help come from it. */
typedef struct psrti_flag {
    const char *name;
    int id;
    const char *arg; /* NULL: takes none */
    const char *doc;
} psrti_flag_t;

/* Flags that a verb has beside those of every job; their ids are of no account. `take` gets the place of one in the
 * table and its argument. */
typedef struct psrti_verb_flags {
    const psrti_flag_t *flags;
    size_t count;
    psrt_status_t (*take)(void *arg, size_t flag, const char *value);
    void *arg;
} psrti_verb_flags_t;

/* They are part of what psrti_options_parse takes from now on; `verb_flags` is kept. */
void psrti_options_also(const psrti_verb_flags_t *verb_flags);

#endif
