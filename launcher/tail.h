/* SPDX-License-Identifier: Apache-2.0 */
/* The last bytes of a stream, from the start of a line. A zeroed tail is empty. */
#ifndef PSRTI_LAUNCHER_TAIL_H
#define PSRTI_LAUNCHER_TAIL_H

#include <stddef.h>

#define PSRTI_TAIL_MAX (16u << 10)

typedef struct psrti_tail {
    char *data;
    size_t len, capacity;
} psrti_tail_t;

void psrti_tail_add(psrti_tail_t *tail, const char *data, size_t len);
void psrti_tail_clear(psrti_tail_t *tail);
/* The last line that is not empty, as text that a terminal shows in one row. */
void psrti_tail_last_line(const psrti_tail_t *tail, char *buf, size_t size);

#endif
