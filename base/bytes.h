/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as they stand on the wire: little endian, at any address. */
#ifndef PSRTI_BASE_BYTES_H
#define PSRTI_BASE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void psrti_put16(uint8_t *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof v);
}

static inline void psrti_put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof v);
}

static inline void psrti_put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
}

static inline void psrti_put_double(uint8_t *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    psrti_put64(p, bits);
}

static inline uint16_t psrti_get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static inline uint32_t psrti_get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static inline uint64_t psrti_get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static inline double psrti_get_double(const uint8_t *p)
{
    uint64_t bits = psrti_get64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
