/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/util.h"
#include "support/test.h"

#define MODEL_KEYS 300

Test(map, empty_and_cleared)
{
    psrti_map_t map = { NULL, 0, 0 };
    size_t pos = 0;
    uint64_t key;
    cr_assert(psrti_map_get(&map, 0) == NULL);
    cr_assert(psrti_map_remove(&map, 0) == NULL);
    cr_assert(psrti_map_next(&map, &pos, &key) == NULL);
    cr_assert_eq(psrti_map_put(&map, 5, &map), PSRT_OK);
    psrti_map_clear(&map);
    cr_assert_eq(map.count, 0);
    cr_assert(psrti_map_get(&map, 5) == NULL);
    psrti_map_clear(&map);
}

Test(map, put_replaces_and_refuses_null)
{
    psrti_map_t map = { NULL, 0, 0 };
    int first, second;
    cr_assert_eq(psrti_map_put(&map, 0, &first), PSRT_OK);
    cr_assert_eq(psrti_map_put(&map, UINT64_MAX, &first), PSRT_OK);
    cr_assert_eq(psrti_map_put(&map, 0, &second), PSRT_OK);
    cr_assert_eq(psrti_map_put(&map, 0, NULL), PSRT_ERR_INVALID);
    cr_assert_eq(map.count, 2);
    cr_assert(psrti_map_get(&map, 0) == &second);
    cr_assert(psrti_map_get(&map, UINT64_MAX) == &first);
    cr_assert(psrti_map_remove(&map, 0) == &second);
    cr_assert(psrti_map_remove(&map, 0) == NULL);
    cr_assert_eq(map.count, 1);
    psrti_map_clear(&map);
}

/* The model: values[k] belongs to model_key(k). */
static uint64_t model_key(size_t k) { return k % 2 ? k : k << 40; }

static void compare_with_model(const psrti_map_t *map, void *const values[MODEL_KEYS])
{
    size_t count = 0, seen = 0, pos = 0;
    uint64_t key;
    for (size_t k = 0; k < MODEL_KEYS; k++) {
        cr_assert(psrti_map_get(map, model_key(k)) == values[k]);
        count += values[k] != NULL;
    }
    cr_assert_eq(map->count, count);
    for (void *value; (value = psrti_map_next(map, &pos, &key)); seen++) {
        size_t k = key >> 40 ? (size_t)(key >> 40) : (size_t)key;
        cr_assert(k < MODEL_KEYS);
        cr_assert(values[k] == value);
    }
    cr_assert_eq(seen, count);
    cr_assert(map->count * 10 <= map->capacity * 7);
}

/* Filled up to near the limit of 0.7 and emptied again, so that long runs form, wrap and close. */
Test(map, random_operations_against_a_model)
{
    static char objects[1000];
    void *values[MODEL_KEYS] = { NULL };
    psrti_map_t map = { NULL, 0, 0 };
    for (uint64_t step = 0; step < 200000; step++) {
        uint64_t random = psrti_mix64(step);
        size_t k = random % MODEL_KEYS;
        int filling = step / 1000 % 2 == 0;
        if ((random >> 32) % 4 < (filling ? 3u : 1u)) {
            values[k] = &objects[(random >> 40) % sizeof(objects)];
            cr_assert_eq(psrti_map_put(&map, model_key(k), values[k]), PSRT_OK);
        } else {
            cr_assert(psrti_map_remove(&map, model_key(k)) == values[k]);
            values[k] = NULL;
        }
        if (step % 100 == 99) compare_with_model(&map, values);
    }
    psrti_map_clear(&map);
}
