/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/session.h"

#include <string.h>

#include "runtime/core/placement.h"
#include "support/page.h"
#include "support/test.h"

#define WORKER PSRTI_TASK(PSRTI_WORKER, 1)
#define SERVER PSRTI_TASK(PSRTI_SERVER, 0)
#define LEVEL PSRTI_LEVEL_AUTHENTICATED

/* The key of the examples of docs/wire-format.md. */
static psrti_jobkey_t example_key(void)
{
    psrti_jobkey_t key;
    memset(&key, 0, sizeof key);
    for (int i = 0; i < 32; i++)
        key.secret[i] = (uint8_t)i;
    for (int i = 0; i < 16; i++)
        key.nonce[i] = (uint8_t)(0xa0 + i);
    return key;
}

static psrti_acceptor_t example_acceptor(void)
{
    psrti_acceptor_t acceptor = { .task = SERVER };
    for (int i = 0; i < PSRTI_CHALLENGE_BYTES; i++)
        acceptor.challenge[i] = (uint8_t)(0xc0 + i);
    return acceptor;
}

static psrti_hello_t example_hello(const psrti_jobkey_t *key)
{
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = {
        .task = WORKER,
        .channel = 2,
        .incarnation = 7,
        .challenge = 0x1122334455667788ull,
        .level = LEVEL,
    };
    psrti_hello_sign(key, &acceptor, &hello);
    return hello;
}

Test(session, hello_is_as_documented)
{
    psrti_jobkey_t key = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key), back;
    uint8_t bytes[PSRTI_HELLO_BYTES], page[PSRTI_HELLO_BYTES + 1];
    char text[128];

    cr_assert_eq(page_block("hello", page, sizeof page), PSRTI_HELLO_BYTES);
    psrti_hello_encode(&hello, bytes);
    cr_assert_eq(memcmp(bytes, page, sizeof bytes), 0);
    cr_assert_eq(psrti_hello_decode(page, PSRTI_HELLO_BYTES, &back), PSRT_OK);
    cr_assert_eq(back.task, WORKER);
    cr_assert_eq(back.channel, 2);
    cr_assert_eq(back.incarnation, 7);
    cr_assert_eq(back.challenge, 0x1122334455667788ull);
    cr_assert_eq(psrti_hello_check(&back, &key, &acceptor, 2, LEVEL, text, sizeof text), PSRT_OK);
}

Test(session, hello_is_decoded_strictly)
{
    psrti_jobkey_t key = example_key();
    psrti_hello_t hello = example_hello(&key), back;
    uint8_t bytes[PSRTI_HELLO_BYTES + 1] = { 0 };

    psrti_hello_encode(&hello, bytes);
    for (uint64_t len = 0; len <= sizeof bytes; len++)
        cr_assert_eq(psrti_hello_decode(bytes, len, &back),
                     len == PSRTI_HELLO_BYTES ? PSRT_OK : PSRT_ERR_PROTOCOL);
    cr_assert_eq(psrti_hello_decode(NULL, PSRTI_HELLO_BYTES, &back), PSRT_ERR_PROTOCOL);
    for (unsigned role = 0; role < 256; role++) {
        bytes[19] = (uint8_t)role;
        cr_assert_eq(psrti_hello_decode(bytes, PSRTI_HELLO_BYTES, &back),
                     role == PSRTI_SERVER || role == PSRTI_WORKER ? PSRT_OK : PSRT_ERR_PROTOCOL);
    }
}

/* Whatever byte of a HELLO is changed, it is not accepted. */
Test(session, every_byte_of_a_hello_counts)
{
    psrti_jobkey_t key = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key), back;
    uint8_t bytes[PSRTI_HELLO_BYTES];
    char text[128];

    for (size_t i = 0; i < sizeof bytes; i++) {
        psrti_hello_encode(&hello, bytes);
        bytes[i] ^= 0x04;
        if (psrti_hello_decode(bytes, sizeof bytes, &back) != PSRT_OK) continue;
        cr_assert_eq(psrti_hello_check(&back, &key, &acceptor, 2, LEVEL, text, sizeof text),
                     PSRT_ERR_REFUSED, "byte %zu", i);
    }
}

/* A HELLO opens the connection that it was made for and no other. */
Test(session, a_hello_holds_for_one_challenge_and_one_task)
{
    psrti_jobkey_t key = example_key();
    psrti_hello_t hello = example_hello(&key);
    char text[128];

    for (size_t bit = 0; bit < 8 * PSRTI_CHALLENGE_BYTES; bit++) {
        psrti_acceptor_t other = example_acceptor();
        other.challenge[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(psrti_hello_check(&hello, &key, &other, 2, LEVEL, text, sizeof text),
                     PSRT_ERR_REFUSED, "bit %zu", bit);
    }
    psrti_acceptor_t other = example_acceptor();
    other.task = SERVER + 1;
    cr_assert_eq(psrti_hello_check(&hello, &key, &other, 2, LEVEL, text, sizeof text),
                 PSRT_ERR_REFUSED);
}

/* What a server says is no HELLO, should somebody send it back. */
Test(session, a_welcome_is_no_hello)
{
    psrti_jobkey_t key = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key);
    char text[128];

    psrti_welcome_token(&key, &acceptor, &hello, 0, hello.token);
    cr_assert_eq(psrti_hello_check(&hello, &key, &acceptor, 2, LEVEL, text, sizeof text),
                 PSRT_ERR_REFUSED);
}

Test(session, refusals_say_why)
{
    psrti_jobkey_t key = example_key(), other = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key);
    char text[128];

    other.secret[5] ^= 1;
    cr_assert_eq(psrti_hello_check(&hello, &other, &acceptor, 2, LEVEL, text, sizeof text),
                 PSRT_ERR_REFUSED);
    cr_assert_str_eq(text, "wrong job key, or a repeated HELLO");
    other = example_key();
    other.nonce[0] ^= 1;
    cr_assert_eq(psrti_hello_check(&hello, &other, &acceptor, 2, LEVEL, text, sizeof text),
                 PSRT_ERR_REFUSED);
    cr_assert_str_eq(text, "this address belongs to another job");
    cr_assert_eq(psrti_hello_check(&hello, &key, &acceptor, 3, LEVEL, text, sizeof text),
                 PSRT_ERR_REFUSED);
    cr_assert_str_eq(text, "channel 2 was asked for, this is channel 3");
    cr_assert_eq(psrti_hello_check(&hello, &key, &acceptor, 2, PSRTI_LEVEL_OFF, text, sizeof text),
                 PSRT_ERR_REFUSED);
    cr_assert_str_eq(text, "PSRT_SECURITY is authenticated there and off here");
}

Test(session, welcome_proves_the_peer)
{
    psrti_jobkey_t key = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key);
    psrt_hdr_t hdr = { .session = 5 };
    uint8_t page[PSRTI_WELCOME_BYTES + 1];
    char text[PSRTI_WELCOME_TEXT_MAX + 1];

    cr_assert_eq(page_block("welcome", page, sizeof page), PSRTI_WELCOME_BYTES);
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_OK);
    /* another task, another challenge, session, length or byte */
    psrti_acceptor_t other = acceptor;
    other.task = SERVER + 1;
    cr_assert_eq(psrti_welcome_check(&key, &other, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    cr_assert(strstr(text, "server:1"), "%s", text);
    other = acceptor;
    other.challenge[9] ^= 1;
    cr_assert_eq(psrti_welcome_check(&key, &other, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    hdr.session = 6;
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    hdr.session = 5;
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, page, 15, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    page[3] ^= 1;
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    page[3] ^= 1;
    hdr.session = 0;
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, page, 16, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
}

Test(session, welcome_refuses_with_a_text)
{
    psrti_jobkey_t key = example_key();
    psrti_acceptor_t acceptor = example_acceptor();
    psrti_hello_t hello = example_hello(&key);
    psrt_hdr_t hdr = { .status = (uint8_t)-PSRT_ERR_STALE };
    char text[PSRTI_WELCOME_TEXT_MAX + 1], many[300];

    cr_assert_eq(
        psrti_welcome_check(&key, &acceptor, &hello, &hdr, "too\nlate", 8, text, sizeof text),
        PSRT_ERR_STALE);
    cr_assert_str_eq(text, "too?late");
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, NULL, 0, text, sizeof text),
                 PSRT_ERR_STALE);
    memset(many, 'x', sizeof many);
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, many, 256, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
    hdr.status = 200; /* no status has this number */
    cr_assert_eq(psrti_welcome_check(&key, &acceptor, &hello, &hdr, "x", 1, text, sizeof text),
                 PSRT_ERR_PROTOCOL);
}
