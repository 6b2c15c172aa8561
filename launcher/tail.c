/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/tail.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/env.h"

static void drop(psrti_tail_t *tail, size_t len)
{
    tail->len -= len;
    memmove(tail->data, tail->data + len, tail->len);
}

void psrti_tail_add(psrti_tail_t *tail, const char *data, size_t len)
{
    if (len > PSRTI_TAIL_MAX) {
        data += len - PSRTI_TAIL_MAX;
        len = PSRTI_TAIL_MAX;
        tail->len = 0;
    }
    if (tail->len + len > tail->capacity) {
        tail->capacity = 2 * (tail->len + len);
        tail->data = psrti_xrealloc(tail->data, tail->capacity);
    }
    memcpy(tail->data + tail->len, data, len);
    tail->len += len;
    if (tail->len <= 2 * PSRTI_TAIL_MAX) return; /* so that a byte is moved about once */
    drop(tail, tail->len - PSRTI_TAIL_MAX);
    const char *end = memchr(tail->data, '\n', tail->len);
    if (end) drop(tail, (size_t)(end - tail->data) + 1);
}

void psrti_tail_clear(psrti_tail_t *tail)
{
    free(tail->data);
    *tail = (psrti_tail_t){ 0 };
}

static int ends_line(char c) { return c == '\n' || c == '\r'; }

/* Behind an escape sequence (ESC [ ... letter) that begins at i; i: there is none. */
static size_t skip_escape(const char *data, size_t i, size_t end)
{
    if (data[i] != '\033' || i + 1 >= end || data[i + 1] != '[') return i;
    for (i += 2; i < end && (data[i] < '@' || data[i] > '~');)
        i++;
    return i < end ? i + 1 : end;
}

void psrti_tail_last_line(const psrti_tail_t *tail, char *buf, size_t size)
{
    size_t end = tail->len, pos = 0;
    while (end && ends_line(tail->data[end - 1]))
        end--;
    size_t start = end;
    while (start && !ends_line(tail->data[start - 1]))
        start--;
    for (size_t i = start; i < end && pos + 1 < size;) {
        size_t next = skip_escape(tail->data, i, end);
        if (next == i) {
            unsigned char c = (unsigned char)tail->data[i++];
            buf[pos++] = c < ' ' || c == 127 ? ' ' : (char)c;
        } else {
            i = next;
        }
    }
    buf[pos] = '\0';
}
