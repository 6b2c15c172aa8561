/* SPDX-License-Identifier: Apache-2.0 */
#include "idx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define IDX_UBYTE 0x08
#define MAX_BYTES ((uint64_t)1 << 32) /* a header that claims more is garbage */
#define CHUNK ((size_t)1 << 20)

static int fail(char *error, size_t size, const char *path, const char *what)
{
    snprintf(error, size, "%s: %s", path, what);
    return -1;
}

/* gzread takes `unsigned` counts and may return fewer bytes than asked for. */
static size_t read_bytes(gzFile file, uint8_t *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        int got = gzread(file, to + done, (unsigned)part);
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

static uint32_t big_endian(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* NULL, or what is wrong. */
static const char *read_header(gzFile file, idx_t *idx)
{
    uint8_t word[4];
    uint64_t bytes = 1;
    if (read_bytes(file, word, 4) != 4) return "is cut off in the header";
    if (word[0] || word[1] || word[3] == 0 || word[3] > IDX_MAX_DIMS) return "is not an IDX file";
    if (word[2] != IDX_UBYTE) return "is an IDX file, but not one of unsigned bytes";
    idx->ndim = word[3];
    for (int i = 0; i < idx->ndim; i++) {
        if (read_bytes(file, word, 4) != 4) return "is cut off in the header";
        idx->dim[i] = big_endian(word);
        bytes *= idx->dim[i]; /* below 2^64: both factors are at most 2^32 */
        if (!bytes || bytes > MAX_BYTES) return "has an impossible extent";
    }
    idx->bytes = (size_t)bytes;
    return NULL;
}

static const char *read_content(gzFile file, idx_t *idx)
{
    uint8_t extra;
    const char *wrong = read_header(file, idx);
    if (wrong) return wrong;
    idx->data = malloc(idx->bytes);
    if (!idx->data) return "does not fit into memory";
    if (read_bytes(file, idx->data, idx->bytes) != idx->bytes) return "is cut off or damaged";
    if (gzread(file, &extra, 1) != 0) return "has bytes after its last element, or is damaged";
    return NULL;
}

int idx_read(const char *path, idx_t *out, char *error, size_t error_size)
{
    idx_t idx = { 0 };
    gzFile file = gzopen(path, "rb"); /* reads uncompressed files too */
    if (!file) return fail(error, error_size, path, errno ? strerror(errno) : "out of memory");
    const char *wrong = read_content(file, &idx);
    gzclose(file);
    if (wrong) {
        free(idx.data);
        return fail(error, error_size, path, wrong);
    }
    *out = idx;
    return 0;
}
