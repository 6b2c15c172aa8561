/* SPDX-License-Identifier: Apache-2.0 */
/* Linear probing. Removal shifts later entries of the run back, so that there are no tombstones and
 * a probe may stop at the first free slot. */
#include "base/map.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"

#define MAP_MIN_CAPACITY 16

static size_t home_of(const psrti_map_t *map, uint64_t key)
{
    return (size_t)psrti_mix64(key) & (map->capacity - 1);
}

/* The slot of `key`, or the free slot where it belongs. The capacity is not 0, a slot is free. */
static struct psrti_map_slot *find_slot(const psrti_map_t *map, uint64_t key)
{
    size_t i = home_of(map, key);
    while (map->slots[i].value && map->slots[i].key != key)
        i = (i + 1) & (map->capacity - 1);
    return &map->slots[i];
}

static psrt_status_t grow(psrti_map_t *map)
{
    psrti_map_t bigger = { NULL, map->capacity ? map->capacity * 2 : MAP_MIN_CAPACITY, map->count };
    bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
    if (!bigger.slots)
        return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a map of %zu slots", bigger.capacity);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].value) *find_slot(&bigger, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = bigger;
    return PSRT_OK;
}

void psrti_map_clear(psrti_map_t *map)
{
    free(map->slots);
    *map = (psrti_map_t){ NULL, 0, 0 };
}

void *psrti_map_get(const psrti_map_t *map, uint64_t key)
{
    return map->capacity ? find_slot(map, key)->value : NULL;
}

psrt_status_t psrti_map_put(psrti_map_t *map, uint64_t key, void *value)
{
    if (!value) return psrti_fail(PSRT_ERR_INVALID, "map: a value may not be NULL");
    if ((map->count + 1) * 10 > map->capacity * 7) {
        psrt_status_t status = grow(map);
        if (status != PSRT_OK) return status;
    }
    struct psrti_map_slot *slot = find_slot(map, key);
    map->count += !slot->value;
    *slot = (struct psrti_map_slot){ key, value };
    return PSRT_OK;
}

/* Fills the hole with the next entry of the run that may move there, and so on to the run's end. */
static void close_hole(psrti_map_t *map, size_t hole)
{
    size_t mask = map->capacity - 1;
    for (size_t i = (hole + 1) & mask; map->slots[i].value; i = (i + 1) & mask) {
        /* It may move if its home is not behind the hole, seen along the run. */
        if (((i - home_of(map, map->slots[i].key)) & mask) < ((i - hole) & mask)) continue;
        map->slots[hole] = map->slots[i];
        hole = i;
    }
    map->slots[hole].value = NULL;
}

void *psrti_map_remove(psrti_map_t *map, uint64_t key)
{
    if (!map->capacity) return NULL;
    struct psrti_map_slot *slot = find_slot(map, key);
    void *value = slot->value;
    if (!value) return NULL;
    close_hole(map, (size_t)(slot - map->slots));
    map->count--;
    return value;
}

void *psrti_map_next(const psrti_map_t *map, size_t *pos, uint64_t *key_p)
{
    while (*pos < map->capacity) {
        const struct psrti_map_slot *slot = &map->slots[(*pos)++];
        if (!slot->value) continue;
        if (key_p) *key_p = slot->key;
        return slot->value;
    }
    return NULL;
}
