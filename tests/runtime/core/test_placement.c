/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/placement.h"

#include <string.h>

#include "runtime/core/view.h"
#include "support/test.h"

Test(placement, task_names)
{
    char name[32];
    cr_assert_str_eq(psrti_task_name(PSRTI_TASK(PSRTI_WORKER, 3), name), "worker:3");
    cr_assert_str_eq(psrti_task_name(PSRTI_TASK(PSRTI_SERVER, 65535), name), "server:65535");
    cr_assert_str_eq(psrti_task_name(PSRTI_TASK(PSRTI_COORDINATOR, 0), name), "coordinator");
    cr_assert_str_eq(psrti_task_name(17, name), "task:17");
}

Test(placement, every_vshard_has_one_owner_and_shares_are_even)
{
    static const uint32_t vshards[] = { 1, 7, 16, 1000, 1024 };
    uint16_t owner_of[1024];

    for (uint32_t owners = 1; owners <= 9; owners++) {
        for (size_t i = 0; i < PSRTI_COUNT(vshards); i++) {
            uint32_t share[9] = { 0 };
            memset(owner_of, 0xff, sizeof owner_of);
            psrti_place_vshards(vshards[i], owners, owner_of);
            for (uint32_t v = 0; v < vshards[i]; v++) {
                cr_assert(owner_of[v] < owners);
                share[owner_of[v]]++;
            }
            for (uint32_t o = 0; o < owners; o++)
                cr_assert(share[o] == vshards[i] / owners || share[o] == vshards[i] / owners + 1);
        }
    }
}

/* A table of up to as many slices as virtual shards is spread as evenly as the shards are. */
Test(placement, slices_of_a_table_are_spread)
{
    uint16_t owner_of[1024];
    uint64_t hash = psrti_hash_bytes("fc/weight", 9);

    psrti_place_vshards(1024, 3, owner_of);
    for (uint64_t slices = 1; slices <= 64; slices++) {
        uint32_t share[3] = { 0 };
        for (uint64_t s = 0; s < slices; s++)
            share[owner_of[psrti_slice_vshard(hash, s, 1024)]]++;
        for (int o = 0; o < 3; o++)
            cr_assert(share[o] + 1 >= slices / 3 && share[o] <= slices / 3 + 2);
    }
}

Test(placement, slices_cover_every_element_once)
{
    static const uint64_t elements[] = { 1,
                                         PSRTI_SLICE_ELEMS - 1,
                                         PSRTI_SLICE_ELEMS,
                                         PSRTI_SLICE_ELEMS + 1,
                                         5 * PSRTI_SLICE_ELEMS + 77,
                                         (1ull << 31) - 1,
                                         (1ull << 31) + 1,
                                         (1ull << 32) + 3 };
    for (size_t i = 0; i < PSRTI_COUNT(elements); i++) {
        uint64_t next = 0;
        for (uint64_t s = 0; s < psrti_slice_count(elements[i]); s++) {
            cr_assert_eq(psrti_slice_first(s), next);
            cr_assert(psrti_slice_len(elements[i], s) > 0);
            next += psrti_slice_len(elements[i], s);
        }
        cr_assert_eq(next, elements[i]);
    }
}

/* The same numbers by division, around 2^31 and beyond 2^32. */
Test(placement, large_tables)
{
    static const struct {
        uint64_t element, slice, first, len; /* len: of the slice if the element is the last one */
    } cases[] = {
        { (1ull << 31) - 2, 8191, 2147221504, 262143 },
        { (1ull << 31) - 1, 8191, 2147221504, 262144 },
        { 1ull << 31, 8192, 2147483648, 1 },
        { (1ull << 32) - 1, 16383, 4294705152, 262144 },
        { (1ull << 32) + 2, 16384, 4294967296, 3 },
    };
    for (size_t i = 0; i < PSRTI_COUNT(cases); i++) {
        uint64_t elements = cases[i].element + 1, slice = cases[i].element >> PSRTI_SLICE_SHIFT;
        cr_assert_eq(slice, cases[i].slice);
        cr_assert_eq(psrti_slice_count(elements), cases[i].slice + 1);
        cr_assert_eq(psrti_slice_first(slice), cases[i].first);
        cr_assert_eq(psrti_slice_len(elements, slice), cases[i].len);
    }
    /* More slices than 32 bits count. */
    cr_assert_eq(psrti_slice_count((1ull << 60) + 1), (1ull << 42) + 1);
    cr_assert_eq(psrti_slice_vshard(UINT64_MAX, (1ull << 33) + 5, 1000), 212);
}

/* docs/wire-format.md, computed by a program of its own. */
Test(placement, hash_vectors)
{
    static const struct {
        const char *name;
        uint64_t hash;
        uint16_t first, last;
    } vectors[] = {
        { "", 0xc3817c016ba4ff30ull, 816, 815 },
        { "a", 0x5f29c2aadd9b8527ull, 295, 294 },
        { "fc/weight", 0x07c72c72aef8e978ull, 376, 375 },
        { "embedding/w_0", 0xf02f797538c36f6full, 879, 878 },
    };
    for (size_t i = 0; i < PSRTI_COUNT(vectors); i++) {
        uint64_t hash = psrti_hash_bytes(vectors[i].name, strlen(vectors[i].name));
        cr_assert_eq(hash, vectors[i].hash);
        cr_assert_eq(psrti_slice_vshard(hash, 0, 1024), vectors[i].first);
        cr_assert_eq(psrti_slice_vshard(hash, 1023, 1024), vectors[i].last);
        cr_assert_eq(psrti_slice_vshard(hash, 1024, 1024), vectors[i].first);
    }
}

Test(view, clone_is_deep_and_references_count)
{
    psrti_view_t *view = psrti_view_new(3, 2, 5);
    view->number = 7;
    view->workers[1].alive = 1;
    view->workers[2].alive = 1;
    view->owners[1].incarnation = 99;
    view->vshards[4].term = 12;
    psrti_view_t *copy = psrti_view_clone(view);
    cr_assert_eq(psrti_view_live_workers(copy), 2);
    view->workers[1].alive = 0;
    view->owners[1].incarnation = 1;
    view->vshards[4].term = 1;
    cr_assert_eq(psrti_view_live_workers(view), 1);
    cr_assert_eq(copy->number, 7);
    cr_assert_eq(copy->workers[1].alive, 1);
    cr_assert_eq(copy->owners[1].incarnation, 99);
    cr_assert_eq(copy->vshards[4].term, 12);
    psrti_view_unref(psrti_view_ref(view));
    cr_assert_eq(view->number, 7);
    psrti_view_unref(view);
    psrti_view_unref(copy);
    psrti_view_unref(NULL);
}
