/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the 64 bytes of a header, as they are and with magic, version and checksum mended; then 32
 * bytes of an extension. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "transport/frame.h"

/* By the page: bytes an element, from the numbers of the wire. */
static unsigned __int128 announced(const psrt_hdr_t *hdr)
{
    static const uint8_t size[] = { 0, 4, 8, 2, 2, 4, 8, 1, 2, 1 };
    switch (hdr->type) {
    case PSRTI_T_PUSH:
    case PSRTI_T_INIT:
    case PSRTI_T_VALUE: return (unsigned __int128)hdr->length * (hdr->codec ? 2 : size[hdr->dtype]);
    case PSRTI_T_HELLO:
    case PSRTI_T_WELCOME:
    case PSRTI_T_CTRL:
    case PSRTI_T_BATCH:
    case PSRTI_T_PARTIALS:
    case PSRTI_T_VERDICT:
    case PSRTI_T_COLL: return hdr->length;
    default: return 0;
    }
}

static void check_payload(const psrt_hdr_t *hdr)
{
    unsigned __int128 want = announced(hdr);
    uint64_t bytes = 12345;
    int values =
        hdr->type == PSRTI_T_PUSH || hdr->type == PSRTI_T_INIT || hdr->type == PSRTI_T_VALUE;
    int ok = want <= UINT64_MAX && !(values && hdr->dtype == 0 && hdr->length);
    FUZZ_ASSERT((psrti_frame_payload(hdr, &bytes) == PSRT_OK) == ok);
    FUZZ_ASSERT(bytes == (ok ? (uint64_t)want : 12345));
}

static int check_frame(const uint8_t *bytes)
{
    psrt_hdr_t hdr, untouched;
    uint8_t again[PSRTI_FRAME_BYTES];
    const char *why = "";
    memset(&hdr, 0xa5, sizeof hdr);
    memset(&untouched, 0xa5, sizeof untouched);
    if (psrti_frame_decode(bytes, &hdr, &why) != PSRT_OK) {
        FUZZ_ASSERT(why && *why);
        FUZZ_ASSERT(memcmp(&hdr, &untouched, sizeof hdr) == 0);
        return 0;
    }
    FUZZ_ASSERT(why == NULL);
    psrti_frame_encode(&hdr, again);
    FUZZ_ASSERT(memcmp(bytes, again, sizeof again) == 0);
    check_payload(&hdr);
    return 1;
}

static void check_extension(const uint8_t *bytes)
{
    psrt_rdesc_t rdesc;
    uint8_t again[PSRTI_EXT_BYTES];
    psrti_rdesc_decode(bytes, &rdesc);
    psrti_rdesc_encode(&rdesc, again);
    FUZZ_ASSERT(memcmp(bytes, again, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    uint8_t *header = fuzz_bytes(&in, PSRTI_FRAME_BYTES);
    uint8_t *extension = fuzz_bytes(&in, PSRTI_EXT_BYTES);
    if (check_frame(header)) fuzz_accept();
    fuzz_mend_header(header);
    (void)check_frame(header);
    check_extension(extension);
    free(header);
    free(extension);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const names[] = { "",       "hello", "welcome",  "ctrl",    "push",  "pull",
                                         "init",   "clock", "ack",      "value",   "moved", "bye",
                                         "cancel", "batch", "partials", "verdict", "coll" };
    for (unsigned type = 1; type <= PSRTI_T_MAX; type++) {
        int values = type == PSRTI_T_PUSH || type == PSRTI_T_INIT || type == PSRTI_T_VALUE;
        psrt_hdr_t hdr = { .type = (uint8_t)type, .length = 100 + type, .priority = 128 };
        psrt_rdesc_t rdesc = { 1, 2, 0x03040506, 7, 8, 0x1000, 31400 };
        fuzz_out_t out = { .size = PSRTI_FRAME_BYTES + PSRTI_EXT_BYTES };
        if (values) hdr.dtype = (uint8_t)(1 + type % 6);
        hdr.seq = 0x1122334455667788, hdr.step = 42, hdr.table = 3, hdr.vshard = 517;
        hdr.term = 7, hdr.flags = PSRTI_F_PULL | PSRTI_F_END | PSRTI_F_WHOLE;
        psrti_frame_encode(&hdr, out.data);
        psrti_rdesc_encode(&rdesc, out.data + PSRTI_FRAME_BYTES);
        fuzz_seed(names[type], out.data, out.size);
    }
}
