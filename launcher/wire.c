/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/util.h"
#include "launcher/env.h"

/* ---- writing --------------------------------------------------------------------------------- */

static uint8_t *grow(psrti_wire_out_t *w, size_t len)
{
    if (w->len + len > w->capacity) {
        w->capacity = PSRTI_MAX(2 * w->capacity, w->len + len);
        w->data = psrti_xrealloc(w->data, w->capacity);
    }
    w->len += len;
    return w->data + w->len - len;
}

void psrti_wire_put_u8(psrti_wire_out_t *w, uint8_t value) { *grow(w, 1) = value; }
void psrti_wire_put_u32(psrti_wire_out_t *w, uint32_t value) { psrti_put32(grow(w, 4), value); }
void psrti_wire_put_u64(psrti_wire_out_t *w, uint64_t value) { psrti_put64(grow(w, 8), value); }

void psrti_wire_put_bytes(psrti_wire_out_t *w, const void *data, size_t len)
{
    if (len) memcpy(grow(w, len), data, len);
}

/* The length counts the final NUL, so 0 says that there is no text. */
void psrti_wire_put_text(psrti_wire_out_t *w, const char *text)
{
    size_t len = text ? strlen(text) + 1 : 0;
    psrti_wire_put_u32(w, (uint32_t)len);
    psrti_wire_put_bytes(w, text, len);
}

void psrti_wire_put_texts(psrti_wire_out_t *w, char *const *texts)
{
    uint32_t count = 0;
    while (texts && texts[count])
        count++;
    psrti_wire_put_u32(w, count);
    for (uint32_t i = 0; i < count; i++)
        psrti_wire_put_text(w, texts[i]);
}

void psrti_wire_clear(psrti_wire_out_t *w)
{
    free(w->data);
    *w = (psrti_wire_out_t){ 0 };
}

/* ---- reading --------------------------------------------------------------------------------- */

const uint8_t *psrti_wire_get_bytes(psrti_wire_in_t *r, size_t len)
{
    if (r->bad || (size_t)(r->end - r->at) < len) {
        r->bad = 1;
        return NULL;
    }
    r->at += len;
    return r->at - len;
}

uint8_t psrti_wire_get_u8(psrti_wire_in_t *r)
{
    const uint8_t *p = psrti_wire_get_bytes(r, 1);
    return p ? *p : 0;
}

uint32_t psrti_wire_get_u32(psrti_wire_in_t *r)
{
    const uint8_t *p = psrti_wire_get_bytes(r, 4);
    return p ? psrti_get32(p) : 0;
}

uint64_t psrti_wire_get_u64(psrti_wire_in_t *r)
{
    const uint8_t *p = psrti_wire_get_bytes(r, 8);
    return p ? psrti_get64(p) : 0;
}

const char *psrti_wire_get_text(psrti_wire_in_t *r)
{
    size_t len = psrti_wire_get_u32(r);
    if (!len) return NULL;
    const char *text = (const char *)psrti_wire_get_bytes(r, len);
    if (text && memchr(text, '\0', len) == text + len - 1) return text;
    r->bad = 1;
    return NULL;
}

char **psrti_wire_get_texts(psrti_wire_in_t *r)
{
    size_t count = psrti_wire_get_u32(r);
    if (count > (size_t)(r->end - r->at) / 5) { /* a text takes 5 bytes at least */
        r->bad = 1;
        count = 0;
    }
    char **texts = psrti_xcalloc(count + 1, sizeof *texts);
    for (size_t i = 0; i < count; i++) {
        const char *text = psrti_wire_get_text(r);
        r->bad |= !text;
        texts[i] = psrti_xstrdup(text ? text : "");
    }
    return texts;
}

int psrti_wire_is_done(const psrti_wire_in_t *r) { return !r->bad && r->at == r->end; }
