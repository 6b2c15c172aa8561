/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_parts.h"

/* Where part i begins when all lie one after the other. */
static uint64_t begin(uint64_t elements, uint64_t i, uint64_t ranks)
{
    return elements * (i * (i + 1)) / (ranks * (ranks + 1));
}

void coll_parts_init(coll_parts_t *parts, coll_kind_t kind, uint64_t elements, uint32_t rank,
                     uint32_t ranks)
{
    uint64_t offset = 0;
    for (uint32_t other = 0; other < ranks; other++) {
        uint32_t i = kind == COLL_ALLTOALLV ? (rank + other) % ranks : other;
        parts->lengths[other] = begin(elements, i + 1, ranks) - begin(elements, i, ranks);
        parts->offsets[other] = offset;
        offset += parts->lengths[other];
    }
}
