/* SPDX-License-Identifier: Apache-2.0 */
/* The hex blocks of docs/wire-format.md. The including target defines PSRT_SOURCE_DIR. */
#ifndef PSRT_TESTS_SUPPORT_PAGE_H
#define PSRT_TESTS_SUPPORT_PAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* Reads the block ```hex NAME; returns the number of its bytes, 0 if there is none. */
static inline size_t page_block(const char *name, uint8_t *out, size_t max)
{
    char line[256], fence[64];
    size_t n = 0;
    int inside = 0;
    FILE *page = fopen(PSRT_SOURCE_DIR "/docs/wire-format.md", "r");

    cr_assert(page != NULL, "docs/wire-format.md cannot be read");
    snprintf(fence, sizeof fence, "```hex %s\n", name);
    while (fgets(line, sizeof line, page)) {
        char *at = line, *end;
        if (inside && line[0] == '`') break;
        for (; inside && n < max; at = end) {
            unsigned long byte = strtoul(at, &end, 16);
            if (end == at) break;
            out[n++] = (uint8_t)byte;
        }
        if (strcmp(line, fence) == 0) inside = 1;
    }
    fclose(page);
    return n;
}

#endif
