/* SPDX-License-Identifier: Apache-2.0 */
/* Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#include "base/util.h"

#include <string.h>

#define PHILOX_ROUNDS 10
#define PHILOX_MUL0 0xd2511f53u
#define PHILOX_MUL1 0xcd9e8d57u
#define PHILOX_WEYL0 0x9e3779b9u
#define PHILOX_WEYL1 0xbb67ae85u

void psrti_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = { counter[0], counter[1], counter[2], counter[3] };
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_MUL0 * x[0];
        uint64_t p1 = (uint64_t)PHILOX_MUL1 * x[2];
        x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ k0;
        x[1] = (uint32_t)p1;
        x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;
        x[3] = (uint32_t)p0;
        k0 += PHILOX_WEYL0;
        k1 += PHILOX_WEYL1;
    }
    memcpy(out, x, sizeof(x));
}
