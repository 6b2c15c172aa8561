/* SPDX-License-Identifier: Apache-2.0 */
/* Input: mode | the payload of the dialler's HELLO; or mode | status | session 4 | size of the text's
 * buffer | the payload of WELCOME. With MODE_SIGN the tokens are made right first. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/core/placement.h"
#include "runtime/core/session.h"
#include "transport/frame.h"

enum { MODE_WELCOME = 1, MODE_SIGN = 2 };
enum { CHANNEL = 2 };

static const psrti_jobkey_t key = { .secret = { 1, 2, 3 }, .nonce = { 0xa0, 0xa1, 0xa2 } };
static const psrti_acceptor_t self = { .task = PSRTI_TASK(PSRTI_SERVER, 0), .challenge = { 0xc0 } };

/* ---- HELLO ------------------------------------------------------------------------------------- */

static void check_hello(psrti_hello_t *hello, int sign)
{
    char text[PSRTI_WELCOME_TEXT_MAX + 1] = "";
    uint8_t token[16];
    if (sign) psrti_hello_sign(&key, &self, hello);
    psrt_status_t rc = psrti_hello_check(hello, &key, &self, CHANNEL, PSRTI_LEVEL_AUTHENTICATED,
                                         text, sizeof text);
    FUZZ_ASSERT(rc == PSRT_OK || rc == PSRT_ERR_REFUSED);
    FUZZ_ASSERT((rc == PSRT_OK) == (*text == '\0'));
    if (rc != PSRT_OK) return;
    FUZZ_ASSERT(hello->level == PSRTI_LEVEL_AUTHENTICATED && (hello->channel & 0xffff) == CHANNEL);
    memcpy(token, hello->token, sizeof token);
    psrti_hello_sign(&key, &self, hello);
    FUZZ_ASSERT(memcmp(token, hello->token, sizeof token) == 0);
    fuzz_accept();
}

static void read_hello(const uint8_t *data, size_t size, int sign)
{
    psrti_hello_t hello;
    uint8_t again[PSRTI_HELLO_BYTES];
    if (psrti_hello_decode(size ? data : NULL, size, &hello) != PSRT_OK) return;
    FUZZ_ASSERT(size == PSRTI_HELLO_BYTES);
    psrti_hello_encode(&hello, again);
    FUZZ_ASSERT(memcmp(data, again, sizeof again) == 0);
    check_hello(&hello, sign);
}

/* ---- WELCOME ----------------------------------------------------------------------------------- */

static void read_welcome(const psrt_hdr_t *hdr, uint8_t *data, size_t size, size_t room, int sign)
{
    psrti_hello_t hello = { .task = PSRTI_TASK(PSRTI_WORKER, 1), .channel = CHANNEL };
    uint8_t right[PSRTI_WELCOME_BYTES];
    char *text = malloc(room);
    FUZZ_ASSERT(text);
    psrti_hello_sign(&key, &self, &hello);
    psrti_welcome_token(&key, &self, &hello, hdr->session, right);
    if (sign && size >= sizeof right) memcpy(data, right, sizeof right);
    psrt_status_t rc =
        psrti_welcome_check(&key, &self, &hello, hdr, size ? data : NULL, size, text, room);
    FUZZ_ASSERT(memchr(text, '\0', room));
    for (const char *c = text; *c; c++)
        FUZZ_ASSERT((unsigned char)*c >= 0x20 && *c != 0x7f);
    if (rc == PSRT_OK) {
        FUZZ_ASSERT(hdr->status == 0 && hdr->session && size == sizeof right &&
                    memcmp(data, right, sizeof right) == 0);
    } else {
        FUZZ_ASSERT(rc == PSRT_ERR_PROTOCOL || -(int)rc == hdr->status);
    }
    if (rc == PSRT_OK || (hdr->status && rc != PSRT_ERR_PROTOCOL)) fuzz_accept();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size)
{
    fuzz_in_t in = { input, input_size };
    unsigned mode = fuzz_u8(&in);
    psrt_hdr_t hdr = { .type = PSRTI_T_WELCOME };
    size_t room = 1;
    if (mode & MODE_WELCOME) {
        hdr.status = fuzz_u8(&in);
        hdr.session = fuzz_u32(&in);
        room += fuzz_u8(&in);
    }
    size_t size = in.left;
    uint8_t *data = fuzz_bytes(&in, size);
    if (mode & MODE_WELCOME)
        read_welcome(&hdr, data, size, room, (mode & MODE_SIGN) != 0);
    else
        read_hello(data, size, (mode & MODE_SIGN) != 0);
    free(data);
    return 0;
}

static void seed_welcome(const char *name, unsigned mode, psrt_status_t status, const char *payload)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, MODE_WELCOME | mode);
    fuzz_put8(&out, (unsigned)-status);
    fuzz_put32(&out, 5);
    fuzz_put8(&out, 255);
    fuzz_put(&out, payload, strlen(payload));
    fuzz_seed(name, out.data, out.size);
}

void fuzz_seeds(void)
{
    psrti_hello_t hello = { .task = PSRTI_TASK(PSRTI_WORKER, 1),
                            .channel = CHANNEL,
                            .incarnation = 7,
                            .challenge = 0x1122334455667788,
                            .level = PSRTI_LEVEL_AUTHENTICATED };
    for (unsigned mode = 0; mode <= MODE_SIGN; mode += MODE_SIGN) {
        fuzz_out_t out = { .size = 1 + PSRTI_HELLO_BYTES };
        out.data[0] = (uint8_t)mode;
        psrti_hello_sign(&key, &self, &hello);
        psrti_hello_encode(&hello, out.data + 1);
        fuzz_seed(mode ? "hello-signed" : "hello", out.data, out.size);
    }
    seed_welcome("welcome", MODE_SIGN, PSRT_OK, "0123456789abcdef");
    seed_welcome("refused", 0, PSRT_ERR_REFUSED, "this address belongs to another job");
}
