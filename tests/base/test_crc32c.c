/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of RFC 3720, appendix B.4. */
#include "base/util.h"

#include <string.h>

#include "support/test.h"

typedef uint32_t (*crc_fn)(uint32_t crc, const void *data, size_t len);
static const crc_fn variants[] = { psrti_crc32c, psrti_crc32c_portable };

Test(crc32c, published_vectors)
{
    uint8_t zeros[32] = { 0 }, ones[32], up[32], down[32];
    memset(ones, 0xff, sizeof(ones));
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    for (size_t i = 0; i < PSRTI_COUNT(variants); i++) {
        crc_fn crc = variants[i];
        cr_assert_eq(crc(0, "123456789", 9), 0xe3069283u);
        cr_assert_eq(crc(0, zeros, 32), 0x8a9136aau);
        cr_assert_eq(crc(0, ones, 32), 0x62a8ab43u);
        cr_assert_eq(crc(0, up, 32), 0x46dd794eu);
        cr_assert_eq(crc(0, down, 32), 0x113fdb5cu);
        cr_assert_eq(crc(0, NULL, 0), 0u);
    }
}

/* Bit by bit, from the definition. */
static uint32_t crc_of_definition(uint32_t crc, const uint8_t *data, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

Test(crc32c, all_lengths_and_alignments_and_pieces)
{
    uint8_t data[300];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 37 + i / 7);
    for (size_t start = 0; start < 8; start++) {
        for (size_t len = 0; len <= 257; len++) {
            uint32_t expected = crc_of_definition(0, data + start, len);
            size_t cut = len / 3;
            for (size_t i = 0; i < PSRTI_COUNT(variants); i++) {
                crc_fn crc = variants[i];
                cr_assert_eq(crc(0, data + start, len), expected);
                uint32_t first = crc(0, data + start, cut);
                cr_assert_eq(crc(first, data + start + cut, len - cut), expected);
            }
        }
    }
}
