/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "transport/frame.h"

static int accepted, refused;

void fuzz_accept(void) { accepted = 1; }
void fuzz_refuse(void) { refused = 1; }

int fuzz_accepted(void)
{
    int result = accepted && !refused;
    accepted = refused = 0;
    return result;
}

_Noreturn void fuzz_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

static void no_log(void *arg, psrt_log_level_t level, const char *line)
{
    (void)arg, (void)level, (void)line;
}

/* Lines are made, to run through what they quote, and dropped. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    psrt_log_set_sink(no_log, NULL);
    psrti_log_set_level(PSRT_LOG_DEBUG);
    return 0;
}

int fuzz_open_fds(void)
{
    int count = 0;
    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- input ------------------------------------------------------------------------------------- */

static uint64_t number(fuzz_in_t *in, size_t bytes)
{
    uint8_t raw[8] = { 0 };
    size_t n = PSRTI_MIN(bytes, in->left);
    if (n) memcpy(raw, in->at, n);
    in->at += n;
    in->left -= n;
    return psrti_get64(raw);
}

uint8_t fuzz_u8(fuzz_in_t *in) { return (uint8_t)number(in, 1); }
uint16_t fuzz_u16(fuzz_in_t *in) { return (uint16_t)number(in, 2); }
uint32_t fuzz_u32(fuzz_in_t *in) { return (uint32_t)number(in, 4); }
uint64_t fuzz_u64(fuzz_in_t *in) { return number(in, 8); }

uint8_t *fuzz_bytes(fuzz_in_t *in, size_t n)
{
    uint8_t *copy = calloc(1, n ? n : 1);
    size_t have = PSRTI_MIN(n, in->left);
    FUZZ_ASSERT(copy);
    if (have) memcpy(copy, in->at, have);
    in->at += have;
    in->left -= have;
    return copy;
}

char *fuzz_text(fuzz_in_t *in, char end)
{
    size_t n = 0;
    while (n < in->left && in->at[n] != (uint8_t)end && in->at[n])
        n++;
    char *text = malloc(n + 1);
    FUZZ_ASSERT(text);
    if (n) memcpy(text, in->at, n);
    text[n] = '\0';
    in->at += n;
    in->left -= n;
    if (in->left) in->at++, in->left--;
    return text;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

void (*fuzz_on_seed)(const char *name, const void *data, size_t size, int valid);

void fuzz_seed(const char *name, const void *data, size_t size)
{
    fuzz_on_seed(name, data, size, 1);
}

void fuzz_attack(const char *name, const void *data, size_t size)
{
    fuzz_on_seed(name, data, size, 0);
}

void fuzz_put(fuzz_out_t *out, const void *data, size_t n)
{
    FUZZ_ASSERT(n <= sizeof out->data - out->size);
    if (n) memcpy(out->data + out->size, data, n);
    out->size += n;
}

static void put_number(fuzz_out_t *out, uint64_t value, size_t bytes)
{
    uint8_t raw[8];
    psrti_put64(raw, value);
    fuzz_put(out, raw, bytes);
}

void fuzz_put8(fuzz_out_t *out, unsigned value) { put_number(out, value, 1); }
void fuzz_put16(fuzz_out_t *out, unsigned value) { put_number(out, value, 2); }
void fuzz_put32(fuzz_out_t *out, uint32_t value) { put_number(out, value, 4); }
void fuzz_put64(fuzz_out_t *out, uint64_t value) { put_number(out, value, 8); }

/* ---- frames ------------------------------------------------------------------------------------ */

void fuzz_mend_header(uint8_t *header)
{
    psrti_put16(header, PSRTI_MAGIC);
    header[2] = PSRTI_WIRE_VERSION;
    psrti_put32(header + 60, psrti_crc32c(0, header, 60));
}

void fuzz_mend_batch(uint8_t *data, size_t size)
{
    for (size_t at = 0; size - at >= PSRTI_FRAME_BYTES;) {
        psrt_hdr_t hdr;
        uint64_t payload;
        fuzz_mend_header(data + at);
        if (psrti_frame_decode(data + at, &hdr, NULL) != PSRT_OK ||
            psrti_frame_payload(&hdr, &payload) != PSRT_OK)
            return;
        at += PSRTI_FRAME_BYTES;
        if (payload > size - at || (payload + 7) / 8 * 8 > size - at) return;
        at += (payload + 7) / 8 * 8;
    }
}

void fuzz_check_header(const psrt_hdr_t *hdr)
{
    uint8_t bytes[PSRTI_FRAME_BYTES], again[PSRTI_FRAME_BYTES];
    psrt_hdr_t decoded;
    psrti_frame_encode(hdr, bytes);
    FUZZ_ASSERT(psrti_frame_decode(bytes, &decoded, NULL) == PSRT_OK);
    psrti_frame_encode(&decoded, again);
    FUZZ_ASSERT(memcmp(bytes, again, sizeof bytes) == 0);
}
