/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside the tree: sees only what is installed. Prints the version of the library. */
#include <psrt/psrt.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    if (strcmp(psrt_version(), PSRT_VERSION_STRING) != 0) return 1;
    if (strcmp(psrt_status_name(PSRT_OK), "PSRT_OK") != 0) return 2;
    return puts(psrt_version()) < 0;
}
