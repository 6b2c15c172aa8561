/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of numbers as users write them: "0,2-4", "*" for all. */
#ifndef PSRTI_LAUNCHER_INDICES_H
#define PSRTI_LAUNCHER_INDICES_H

int psrti_indices_valid(const char *list);
unsigned psrti_indices_max(const char *list);            /* of a valid one; "*": 0 */
int psrti_indices_has(const char *list, unsigned index); /* of a valid one */

#endif
