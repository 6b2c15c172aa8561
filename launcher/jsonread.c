/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/jsonread.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"

#define MIB (1024.0 * 1024.0)
#define NAMES_MAX 64
#define SHOWN_MAX 60 /* bytes of a wrong value */

/* ---- path and errors ------------------------------------------------------------------------- */

size_t psrti_reader_enter(psrti_reader_t *reader, const char *key)
{
    size_t length = strlen(reader->path), pos = length;
    psrti_append(reader->path, sizeof reader->path, &pos, "%s%s", length ? "." : "", key);
    return length;
}

size_t psrti_reader_enter_index(psrti_reader_t *reader, size_t index)
{
    size_t length = strlen(reader->path), pos = length;
    psrti_append(reader->path, sizeof reader->path, &pos, "[%zu]", index);
    return length;
}

void psrti_reader_back(psrti_reader_t *reader, size_t length) { reader->path[length] = '\0'; }

psrt_status_t psrti_reader_fail(const psrti_reader_t *reader, const char *fmt, ...)
{
    char text[PSRTI_ERROR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return psrti_fail(PSRT_ERR_INVALID, "%s: %s%s%s", reader->source, reader->path,
                      *reader->path ? ": " : "", text);
}

psrt_status_t psrti_reader_wrong(const psrti_reader_t *reader, const json_t *value,
                                 const char *allowed)
{
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    psrt_status_t st =
        psrti_reader_fail(reader, "%.*s%s is not %s", SHOWN_MAX, shown ? shown : "the value",
                          shown && strlen(shown) > SHOWN_MAX ? "..." : "", allowed);
    free(shown);
    return st;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int number_of(const psrti_reader_t *r, const json_t *value, double *number_p)
{
    if (json_is_number(value)) {
        *number_p = json_number_value(value);
        return 1;
    }
    return r->texts && json_is_string(value) &&
           !psrti_parse_f64(json_string_value(value), number_p);
}

static psrt_status_t read_text(psrti_reader_t *r, const json_t *value, char **text)
{
    const char *given = json_string_value(value);
    if (!given || !*given) return psrti_reader_wrong(r, value, "a text that is not empty");
    free(*text);
    *text = psrti_xstrdup(given);
    return PSRT_OK;
}

psrt_status_t psrti_read_bool(psrti_reader_t *r, const json_t *value, int *flag)
{
    if (json_is_boolean(value))
        *flag = json_is_true(value);
    else if (!r->texts || !json_is_string(value) ||
             psrti_parse_bool(json_string_value(value), flag))
        return psrti_reader_wrong(r, value, "true or false");
    return PSRT_OK;
}

static psrt_status_t read_count(psrti_reader_t *r, const json_t *value, const psrti_key_t *key,
                                unsigned *count)
{
    double number;
    char allowed[64];
    snprintf(allowed, sizeof allowed, "a whole number from %.0f to %.0f", key->min, key->max);
    if (!number_of(r, value, &number) || number != floor(number) || number < key->min ||
        number > key->max || json_is_real(value))
        return psrti_reader_wrong(r, value, allowed);
    *count = (unsigned)number;
    return PSRT_OK;
}

static psrt_status_t read_real(psrti_reader_t *r, const json_t *value, const psrti_key_t *key,
                               double *real)
{
    double number;
    char allowed[64];
    snprintf(allowed, sizeof allowed, "a number above %g, up to %g", key->min, key->max);
    if (!number_of(r, value, &number) || !(number > key->min && number <= key->max))
        return psrti_reader_wrong(r, value, allowed);
    *real = number;
    return PSRT_OK;
}

static psrt_status_t read_memory(psrti_reader_t *r, const json_t *value, uint64_t *mib)
{
    static const char allowed[] = "a number of MiB above 0, or a size such as \"4g\"";
    double number;
    uint64_t bytes;
    if (number_of(r, value, &number)) {
        if (!(number >= 1 && number < 1e12)) return psrti_reader_wrong(r, value, allowed);
        *mib = (uint64_t)number;
        return PSRT_OK;
    }
    if (!json_is_string(value) || psrti_parse_size(json_string_value(value), &bytes) ||
        bytes < (uint64_t)MIB)
        return psrti_reader_wrong(r, value, allowed);
    *mib = bytes / (uint64_t)MIB;
    return PSRT_OK;
}

psrt_status_t psrti_read_time(psrti_reader_t *r, const json_t *value, uint64_t *ns)
{
    static const char allowed[] = "a time: seconds, or a text such as \"500ms\", \"5s\", \"2h\"";
    if (json_is_number(value)) {
        double seconds = json_number_value(value);
        if (!(seconds >= 0 && seconds < 1e9)) return psrti_reader_wrong(r, value, allowed);
        *ns = (uint64_t)(seconds * (double)PSRTI_NS_PER_S);
        return PSRT_OK;
    }
    if (!json_is_string(value) || psrti_parse_duration(json_string_value(value), ns))
        return psrti_reader_wrong(r, value, allowed);
    return PSRT_OK;
}

static psrt_status_t read_word(psrti_reader_t *r, const json_t *value, const char *const *words,
                               unsigned *position)
{
    char allowed[256] = "one of";
    const char *given = json_string_value(value);
    size_t pos = strlen(allowed);
    for (unsigned i = 0; words[i]; i++) {
        if (given && !strcmp(given, words[i])) {
            *position = i;
            return PSRT_OK;
        }
        psrti_append(allowed, sizeof allowed, &pos, "%s %s", i ? "," : "", words[i]);
    }
    return psrti_reader_wrong(r, value, allowed);
}

/* ---- objects --------------------------------------------------------------------------------- */

static psrt_status_t read_key(psrti_reader_t *r, const json_t *value, const psrti_key_t *key,
                              void *into)
{
    void *field = (char *)into + key->offset;
    switch (key->type) {
    case PSRTI_KEY_TEXT: return read_text(r, value, field);
    case PSRTI_KEY_BOOL: return psrti_read_bool(r, value, field);
    case PSRTI_KEY_COUNT: return read_count(r, value, key, field);
    case PSRTI_KEY_REAL: return read_real(r, value, key, field);
    case PSRTI_KEY_MEMORY: return read_memory(r, value, field);
    case PSRTI_KEY_TIME: return psrti_read_time(r, value, field);
    case PSRTI_KEY_WORD: return read_word(r, value, key->words, field);
    default: return key->read(r, value, into);
    }
}

static psrt_status_t unknown_key(const psrti_reader_t *r, const char *name, const psrti_key_t *keys,
                                 size_t count)
{
    const char *names[NAMES_MAX];
    char all[PSRTI_ERROR_MAX] = "";
    size_t pos = 0;
    for (size_t i = 0; i < count && i < NAMES_MAX; i++) {
        names[i] = keys[i].name;
        psrti_append(all, sizeof all, &pos, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = psrti_nearest(name, names, PSRTI_MIN(count, NAMES_MAX));
    if (near) return psrti_reader_fail(r, "unknown key; did you mean %s?", near);
    return psrti_reader_fail(r, "unknown key; there are %s", all);
}

psrt_status_t psrti_read_object(psrti_reader_t *reader, const json_t *object,
                                const psrti_key_t *keys, size_t count, void *into)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object)) return psrti_reader_wrong(reader, object, "an object {...}");
    json_object_foreach((json_t *)object, name, value)
    {
        const psrti_key_t *key = keys;
        while (key < keys + count && strcmp(key->name, name))
            key++;
        size_t back = psrti_reader_enter(reader, name);
        psrt_status_t st = key < keys + count ? read_key(reader, value, key, into)
                                              : unknown_key(reader, name, keys, count);
        if (st) return st;
        psrti_reader_back(reader, back);
    }
    return PSRT_OK;
}

psrt_status_t psrti_read_texts(psrti_reader_t *reader, const json_t *value, char ***texts_p)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || !count)
        return psrti_reader_wrong(reader, value, "a list of texts that is not empty");
    char **texts = psrti_xcalloc(count + 1, sizeof *texts);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (text) {
            texts[i] = psrti_xstrdup(text);
            continue;
        }
        for (size_t k = 0; k < i; k++)
            free(texts[k]);
        free(texts);
        psrti_reader_enter_index(reader, i);
        return psrti_reader_wrong(reader, json_array_get(value, i), "a text");
    }
    *texts_p = texts;
    return PSRT_OK;
}
