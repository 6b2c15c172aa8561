/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this process that is read and written in bulk: zeroed, page aligned, on huge pages where the
 * system gives them. What is smaller than a huge page lies with others on some. Not thread-safe. */
#ifndef PSRTI_BASE_PAGES_H
#define PSRTI_BASE_PAGES_H

#include <stdint.h>

#include <psrt/psrt.h>

typedef struct psrti_chunk psrti_chunk_t;

/* All zero: empty. */
typedef struct psrti_pages {
    psrti_chunk_t *chunks;
    uint64_t bytes; /* mapped */
} psrti_pages_t;

/* NULL: the system has no memory for it. */
void *psrti_pages_alloc(psrti_pages_t *pages, uint64_t bytes);
/* A pointer that psrti_pages_alloc returned. */
void psrti_pages_free(psrti_pages_t *pages, void *ptr);
/* Also what was not freed. */
void psrti_pages_destroy(psrti_pages_t *pages);

#endif
