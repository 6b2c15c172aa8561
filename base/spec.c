/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec.h"

#include <ctype.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

#define SHOWN 80 /* bytes of a text that an error repeats */

static int is_word(const char *text)
{
    if (!*text) return 0;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("_-.", *text)) return 0;
    return 1;
}

static psrt_status_t malformed(const char *what, const char *text, const char *why)
{
    return psrti_fail(PSRT_ERR_INVALID, "%s \"%.*s\": %s; the form is name:key=value,key=value",
                      what, SHOWN, text, why);
}

/* Adds "key=value", or "value" where it stands alone. NULL or why not. */
static const char *add_entry(psrti_spec_t *out, char *item, int alone)
{
    char *value = strchr(item, '=');
    if (!value && !alone) return "an entry has no =";
    if (value) *value++ = '\0';
    const char *key = value ? item : "";
    if (value && !is_word(key)) return "a key is empty or has a character other than a-z 0-9 _ - .";
    if (!value) value = item;
    if (!*value) return "a value is empty";
    if (value[strcspn(value, " \t\r\n=:")]) return "a value has a space, = or : in it";
    for (size_t i = 0; i < out->count; i++)
        if (!strcmp(out->entry[i].key, key)) return "a key is given twice";
    if (out->count == PSRTI_SPEC_KEYS) return "too many keys";
    out->entry[out->count].key = key;
    out->entry[out->count++].value = value;
    return NULL;
}

psrt_status_t psrti_spec_parse(const char *what, const char *text, psrti_spec_t *out)
{
    if (!text || !*text) return malformed(what, "", "is empty");
    if (strlen(text) >= sizeof(out->text)) return malformed(what, text, "is longer than 511 bytes");
    memcpy(out->text, text, strlen(text) + 1);
    out->name = out->text;
    out->count = 0;

    char *list = strchr(out->text, ':');
    if (list) *list++ = '\0';
    if (!is_word(out->name))
        return malformed(what, text,
                         "the name is empty or has a character other than a-z 0-9 _ - .");
    int alone = list && !strchr(list, ',');
    for (char *next; list; list = next) {
        next = strchr(list, ',');
        if (next) *next++ = '\0';
        const char *why = add_entry(out, list, alone);
        if (why) return malformed(what, text, why);
    }
    return PSRT_OK;
}

static psrt_status_t unknown_key(const char *what, const psrti_spec_t *spec, size_t entry,
                                 const char *const *keys, size_t count)
{
    const char *key = spec->entry[entry].key, *value = spec->entry[entry].value;
    const char *nearest = psrti_nearest(key, keys, count);
    char list[256] = "none";
    size_t pos = 0;
    for (size_t i = 0; i < count; i++)
        psrti_append(list, sizeof(list), &pos, "%s%s", i ? ", " : "", keys[i]);
    if (!*key)
        return psrti_fail(PSRT_ERR_INVALID,
                          "%s %s: \"%.*s\" is not of the form key=value; keys: %s", what,
                          spec->name, SHOWN, value, list);
    return psrti_fail(
        PSRT_ERR_INVALID, "%s %s: unknown key \"%.*s\" in \"%.*s=%.*s\"%s%s%s; keys: %s", what,
        spec->name, SHOWN, key, SHOWN, key, SHOWN, value, nearest ? ", did you mean \"" : "",
        nearest ? nearest : "", nearest ? "\"?" : "", list);
}

static psrt_status_t parse_number(const char *text, double *out)
{
    int truth;
    if (psrti_parse_f64(text, out) == PSRT_OK) return PSRT_OK;
    psrt_status_t status = psrti_parse_bool(text, &truth);
    if (status == PSRT_OK) *out = truth;
    return status;
}

static size_t find_key(const char *key, const char *const *keys, size_t count)
{
    size_t i = 0;
    while (i < count && strcmp(key, keys[i]))
        i++;
    return i;
}

/* Checks all entries before it writes any value. */
psrt_status_t psrti_spec_numbers(const char *what, const psrti_spec_t *spec,
                                 const char *const *keys, double *values, size_t count)
{
    double numbers[PSRTI_SPEC_KEYS];
    for (size_t i = 0; i < spec->count; i++) {
        if (find_key(spec->entry[i].key, keys, count) == count)
            return unknown_key(what, spec, i, keys, count);
        if (parse_number(spec->entry[i].value, &numbers[i]) != PSRT_OK)
            return psrti_fail(PSRT_ERR_INVALID, "%s %s: %.*s \"%.*s\" is not a number", what,
                              spec->name, SHOWN, spec->entry[i].key, SHOWN, spec->entry[i].value);
    }
    for (size_t i = 0; i < spec->count; i++)
        values[find_key(spec->entry[i].key, keys, count)] = numbers[i];
    return PSRT_OK;
}
