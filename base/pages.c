/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"

#define PAGE ((uint64_t)4096)
#define HUGE_PAGE ((uint64_t)2 << 20)
#define SHARED_MOST (16 * HUGE_PAGE)

/* One mapping. */
struct psrti_chunk {
    psrti_chunk_t *next;
    uint8_t *base; /* at a multiple of a huge page */
    uint64_t bytes;
    uint32_t count, taken; /* pages that allocations share; 0: it is a single one's */
    uint16_t run[];        /* pages of the allocation that begins there, 0: none does */
};

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static void *map(uint64_t bytes)
{
    uint64_t wide = bytes + HUGE_PAGE;
    uint8_t *start = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    uint8_t *base = start + (round_up((uintptr_t)start, HUGE_PAGE) - (uintptr_t)start);
    uint64_t before = (uint64_t)(base - start);
    if (before) munmap(start, before);
    if (before < HUGE_PAGE) munmap(base + bytes, HUGE_PAGE - before);
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* else small ones */
    return base;
}

static psrti_chunk_t *chunk_new(psrti_pages_t *pages, uint64_t bytes, uint32_t count)
{
    psrti_chunk_t *c = calloc(1, sizeof *c + count * sizeof c->run[0]);
    if (!c) return NULL;
    c->base = map(bytes);
    if (!c->base) {
        free(c);
        return NULL;
    }
    c->bytes = bytes;
    c->count = count;
    c->next = pages->chunks;
    pages->chunks = c;
    pages->bytes += bytes;
    return c;
}

static void chunk_free(psrti_pages_t *pages, psrti_chunk_t *chunk)
{
    psrti_chunk_t **at = &pages->chunks;
    while (*at != chunk)
        at = &(*at)->next;
    *at = chunk->next;
    pages->bytes -= chunk->bytes;
    munmap(chunk->base, chunk->bytes);
    free(chunk);
}

/* As much again as there is, within bounds: little for little use, few mappings for much. */
static psrti_chunk_t *shared_new(psrti_pages_t *pages)
{
    uint64_t bytes = 0;
    for (const psrti_chunk_t *c = pages->chunks; c && bytes < SHARED_MOST; c = c->next)
        if (c->count) bytes += c->bytes;
    bytes = PSRTI_MIN(PSRTI_MAX(bytes, HUGE_PAGE), SHARED_MOST);
    return chunk_new(pages, bytes, (uint32_t)(bytes / PAGE));
}

/* Where `need` free pages begin, or c->count. */
static uint32_t find(const psrti_chunk_t *c, uint32_t need)
{
    uint32_t row = 0; /* free pages before i */
    if (need > c->count - c->taken) return c->count;
    for (uint32_t i = 0; i < c->count;) {
        if (c->run[i]) {
            i += c->run[i];
            row = 0;
        } else {
            i++;
            if (++row == need) return i - need;
        }
    }
    return c->count;
}

static void *take(psrti_chunk_t *c, uint32_t start, uint32_t need)
{
    void *ptr = c->base + start * PAGE;
    c->run[start] = (uint16_t)need;
    c->taken += need;
    return memset(ptr, 0, need * PAGE);
}

void *psrti_pages_alloc(psrti_pages_t *pages, uint64_t bytes)
{
    if (bytes == 0 || bytes > INT64_MAX - 2 * HUGE_PAGE) return NULL;
    if (bytes >= HUGE_PAGE) {
        const psrti_chunk_t *own = chunk_new(pages, round_up(bytes, PAGE), 0);
        return own ? own->base : NULL;
    }
    uint32_t need = (uint32_t)(round_up(bytes, PAGE) / PAGE);
    for (psrti_chunk_t *c = pages->chunks; c; c = c->next) {
        uint32_t start = find(c, need);
        if (start != c->count) return take(c, start, need);
    }
    psrti_chunk_t *c = shared_new(pages);
    return c ? take(c, 0, need) : NULL;
}

void psrti_pages_free(psrti_pages_t *pages, void *ptr)
{
    psrti_chunk_t *c = pages->chunks;
    while ((uintptr_t)ptr - (uintptr_t)c->base >= c->bytes)
        c = c->next;
    if (c->count) {
        uint16_t *run = &c->run[((uint8_t *)ptr - c->base) / (ptrdiff_t)PAGE];
        c->taken -= *run;
        *run = 0;
    }
    if (!c->taken) chunk_free(pages, c);
}

void psrti_pages_destroy(psrti_pages_t *pages)
{
    while (pages->chunks)
        chunk_free(pages, pages->chunks);
}
