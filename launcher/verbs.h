/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of psrt-launch that look for running jobs. Each returns the exit code; argv[1] is the
 * verb. */
#ifndef PSRTI_LAUNCHER_VERBS_H
#define PSRTI_LAUNCHER_VERBS_H

int psrti_verb_ps(int argc, char **argv);
int psrti_verb_status(int argc, char **argv);
int psrti_verb_logs(int argc, char **argv);
int psrti_verb_attach(int argc, char **argv);
int psrti_verb_kill(int argc, char **argv);
int psrti_verb_restart(int argc, char **argv); /* and replace */

#endif
