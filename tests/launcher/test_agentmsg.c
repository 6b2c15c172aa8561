/* SPDX-License-Identifier: Apache-2.0 */
/* What agents and their controller tell each other; and that no bytes of a stranger or of a broken
 * program do more than be refused. */
#include "launcher/agentmsg.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/job.h"
#include "support/test.h"

static psrti_wire_in_t in(const psrti_wire_out_t *w)
{
    return (psrti_wire_in_t){ .at = w->data, .end = w->data + w->len };
}

static psrti_wire_out_t sample(void)
{
    char *const texts[] = { (char *)"A.B=line\nline", (char *)"", (char *)"x=\"'", NULL };
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, 7);
    psrti_wire_put_u32(&w, 0xfedcba98);
    psrti_wire_put_u64(&w, UINT64_MAX - 1);
    psrti_wire_put_text(&w, "text");
    psrti_wire_put_text(&w, NULL);
    psrti_wire_put_text(&w, "");
    psrti_wire_put_texts(&w, texts);
    psrti_wire_put_texts(&w, NULL);
    return w;
}

/* True when all was there. */
static int read_sample(psrti_wire_in_t r)
{
    int ok = psrti_wire_get_u8(&r) == 7;
    ok &= psrti_wire_get_u32(&r) == 0xfedcba98;
    ok &= psrti_wire_get_u64(&r) == UINT64_MAX - 1;
    const char *text = psrti_wire_get_text(&r), *none = psrti_wire_get_text(&r);
    const char *empty = psrti_wire_get_text(&r);
    ok &= text && !strcmp(text, "text") && !none && empty && !*empty;
    char **texts = psrti_wire_get_texts(&r), **nothing = psrti_wire_get_texts(&r);
    ok &= texts[0] && !strcmp(texts[0], "A.B=line\nline") && texts[1] && !*texts[1] && texts[2] &&
          !texts[3] && !nothing[0];
    psrti_argv_free(texts);
    psrti_argv_free(nothing);
    return psrti_wire_is_done(&r) && ok;
}

Test(agentmsg, values_come_back)
{
    psrti_wire_out_t w = sample();
    cr_assert(read_sample(in(&w)));
    psrti_wire_clear(&w);
}

Test(agentmsg, every_cut_and_every_changed_length_is_refused)
{
    psrti_wire_out_t w = sample();
    for (size_t len = 0; len < w.len; len++) {
        /* Of its own size, so that a sanitizer sees what reads past it. */
        uint8_t *cut = malloc(len + !len);
        memcpy(cut, w.data, len);
        cr_assert_not(read_sample((psrti_wire_in_t){ .at = cut, .end = cut + len }));
        free(cut);
    }
    for (size_t i = 0; i < w.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            w.data[i] ^= (uint8_t)(1 << bit);
            psrti_wire_in_t r = in(&w);
            read_sample(r); /* may be another text, must not leave the message */
            w.data[i] ^= (uint8_t)(1 << bit);
        }
    psrti_wire_put_u8(&w, 0);
    cr_assert_not(read_sample(in(&w)), "something behind the last value");
    psrti_wire_clear(&w);
}

Test(agentmsg, a_bootstrap_comes_back)
{
    char *addresses[] = { (char *)"10.0.0.1", (char *)"fd00::1", NULL };
    psrti_bootstrap_t sent = { .host = 3,
                               .open_ms = 30000,
                               .directory = (char *)"/a b\nc",
                               .addresses = addresses,
                               .port = 65535 },
                      got;
    psrti_wire_out_t w = { 0 };
    cr_assert_eq(psrti_jobkey_generate(&sent.key), PSRT_OK);
    psrti_bootstrap_write(&sent, &w);
    cr_assert_eq(psrti_bootstrap_length(w.data), w.len - PSRTI_BOOTSTRAP_HEAD);
    const uint8_t *rest = w.data + PSRTI_BOOTSTRAP_HEAD;
    cr_assert_eq(psrti_bootstrap_read(rest, w.len - PSRTI_BOOTSTRAP_HEAD, &got), PSRT_OK);
    cr_assert_eq(memcmp(&got.key, &sent.key, sizeof got.key), 0);
    cr_assert_eq(got.host, 3);
    cr_assert_eq(got.port, 65535);
    cr_assert_str_eq(got.directory, "/a b\nc");
    cr_assert_str_eq(got.addresses[1], "fd00::1");
    psrti_bootstrap_clear(&got);
    for (size_t len = 0; len < w.len - PSRTI_BOOTSTRAP_HEAD; len++)
        cr_assert_eq(psrti_bootstrap_read(rest, len, &got), PSRT_ERR_INVALID);
    w.data[PSRTI_BOOTSTRAP_HEAD]++; /* another protocol */
    cr_assert_eq(psrti_bootstrap_read(rest, w.len - PSRTI_BOOTSTRAP_HEAD, &got), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "same version"));
    w.data[0]++;
    cr_assert_eq(psrti_bootstrap_length(w.data), 0);
    psrti_wire_clear(&w);
}

Test(agentmsg, facts_come_back)
{
    psrti_facts_t sent, got;
    psrti_wire_out_t w = { 0 };
    psrti_facts_gather(&sent);
    sent.directory_error = 2;
    sent.probe_port = 4711;
    psrti_facts_write(&sent, &w);
    psrti_wire_in_t r = in(&w);
    psrti_facts_read(&r, &got);
    cr_assert(psrti_wire_is_done(&r));
    cr_assert_gt(got.cores, 0);
    cr_assert_eq(got.directory_error, 2);
    cr_assert_eq(got.probe_port, 4711);
    cr_assert_eq(got.netif_count, sent.netif_count);
    cr_assert_str_eq(got.host, sent.host);
    cr_assert_str_eq(got.netifs[0].address, sent.netifs[0].address);
    for (size_t len = 0; len < w.len; len++) {
        psrti_wire_in_t cut = { .at = w.data, .end = w.data + len };
        psrti_facts_read(&cut, &got);
        cr_assert_not(psrti_wire_is_done(&cut));
        cr_assert_leq(got.netif_count, PSRTI_NETIF_MAX);
    }
    psrti_wire_clear(&w);
}
