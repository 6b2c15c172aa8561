/* SPDX-License-Identifier: Apache-2.0 */
/* Open-addressing hash map from a 64-bit key, 0 included, to a pointer (never NULL). */
#ifndef PSRTI_BASE_MAP_H
#define PSRTI_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

struct psrti_map_slot {
    uint64_t key;
    void *value; /* NULL: free */
};

typedef struct psrti_map {
    struct psrti_map_slot *slots;
    size_t capacity, count; /* capacity 0 or a power of two */
} psrti_map_t;

/* A zeroed map is empty and valid. */
void psrti_map_clear(psrti_map_t *map); /* frees the slots, not the values */
void *psrti_map_get(const psrti_map_t *map, uint64_t key);
/* Replaces the value of a key that is there. */
psrt_status_t psrti_map_put(psrti_map_t *map, uint64_t key, void *value);
/* The value that was removed, or NULL. */
void *psrti_map_remove(psrti_map_t *map, uint64_t key);
/* Iteration: start with *pos = 0; returns NULL at the end. No put or remove meanwhile. key_p may be
 * NULL. */
void *psrti_map_next(const psrti_map_t *map, size_t *pos, uint64_t *key_p);

#endif
