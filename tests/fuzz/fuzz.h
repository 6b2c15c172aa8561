/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is one file, which defines the two functions below; README.md
 * says how it is run. */
#ifndef PSRT_TESTS_FUZZ_H
#define PSRT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/ext/transport_v1.h>
#include <psrt/psrt.h>

#include "base/util.h"

/* The names are libFuzzer's, and the small runner's. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Hands inputs that must be accepted, made with the real encoders, to fuzz_seed. */
void fuzz_seeds(void);
void fuzz_seed(const char *name, const void *data, size_t size);
/* The same for one that is an attack, and need not be. */
void fuzz_attack(const char *name, const void *data, size_t size);
/* The runner's. */
extern void (*fuzz_on_seed)(const char *name, const void *data, size_t size, int valid);

/* The input, or a part of it, got through; or did not, which counts more. Whoever replays a valid input
 * asks for the result, and begins anew. */
void fuzz_accept(void);
void fuzz_refuse(void);
int fuzz_accepted(void);

/* Those with low numbers, which are the ones that are given out. */
int fuzz_open_fds(void);

_Noreturn void fuzz_fail(const char *file, int line, const char *condition);
/* Also in builds without assertions. */
#define FUZZ_ASSERT(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))

/* An input is eaten from its front; at its end there are zeros and empty strings. */
typedef struct fuzz_in {
    const uint8_t *at;
    size_t left;
} fuzz_in_t;

uint8_t fuzz_u8(fuzz_in_t *in);
uint16_t fuzz_u16(fuzz_in_t *in);
uint32_t fuzz_u32(fuzz_in_t *in);
uint64_t fuzz_u64(fuzz_in_t *in);
/* Exactly `n` bytes on the heap, so that a read behind them is seen; what the input has not is zero. */
uint8_t *fuzz_bytes(fuzz_in_t *in, size_t n);
/* The text up to the next of `end` (or the input's end), which is eaten; no more memory than that. */
char *fuzz_text(fuzz_in_t *in, char end);

/* A seed under construction. */
typedef struct fuzz_out {
    uint8_t data[65536];
    size_t size;
} fuzz_out_t;

void fuzz_put(fuzz_out_t *out, const void *data, size_t n);
void fuzz_put8(fuzz_out_t *out, unsigned value);
void fuzz_put16(fuzz_out_t *out, unsigned value);
void fuzz_put32(fuzz_out_t *out, uint32_t value);
void fuzz_put64(fuzz_out_t *out, uint64_t value);

/* Gives the 64 bytes of a frame header magic, version and checksum, which no mutation would find. */
void fuzz_mend_header(uint8_t *header);
/* The same for each header of a batch's payload, as far as they can be told apart. */
void fuzz_mend_batch(uint8_t *data, size_t size);
/* Encoded and decoded, the header is the same. */
void fuzz_check_header(const psrt_hdr_t *hdr);

#endif
