/* SPDX-License-Identifier: Apache-2.0 */
/* Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds). */
#include "base/util.h"

#include "support/test.h"

static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
      { 0xffffffff, 0xffffffff },
      { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
      { 0xa4093822, 0x299f31d0 },
      { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

Test(philox, known_answers)
{
    for (size_t i = 0; i < PSRTI_COUNT(known); i++) {
        uint32_t out[4];
        psrti_philox4x32(known[i].counter, known[i].key, out);
        for (int lane = 0; lane < 4; lane++)
            cr_assert_eq(out[lane], known[i].out[lane]);
    }
}

Test(philox, output_may_be_the_counter)
{
    uint32_t block[4] = { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 };
    psrti_philox4x32(block, known[2].key, block);
    for (int lane = 0; lane < 4; lane++)
        cr_assert_eq(block[lane], known[2].out[lane]);
}
