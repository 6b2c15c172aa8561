/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/render/yaml.h"

#include <stdlib.h>
#include <string.h>

static void write_value(FILE *out, const json_t *value, int depth, int in_list);

/* Names of fields are plain words; those that users choose (labels, keys of a map) may be anything. */
static int is_plain_key(const char *key)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char *const words[] = {
        "y", "n", "yes", "no", "on", "off", "true", "false", "null"
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(key, words[i])) return 0;
    return *key && key[strspn(key, plain)] == '\0';
}

static void write_scalar(FILE *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    fputs(text ? text : "null", out);
    free(text);
}

static void write_key(FILE *out, const char *key)
{
    if (is_plain_key(key)) {
        fputs(key, out);
        return;
    }
    json_t *quoted = json_string(key);
    write_scalar(out, quoted);
    json_decref(quoted);
}

static int is_block(const json_t *value)
{
    return (json_is_object(value) && json_object_size(value)) ||
           (json_is_array(value) && json_array_size(value));
}

/* The first entry of an object in a list stands behind the dash. */
static void write_object(FILE *out, const json_t *object, int depth, int in_list)
{
    const char *key;
    json_t *value;
    int first = in_list;
    json_object_foreach((json_t *)object, key, value)
    {
        fprintf(out, "%*s", first ? 0 : 2 * depth, "");
        first = 0;
        write_key(out, key);
        fputc(':', out);
        if (is_block(value)) {
            fputc('\n', out);
            write_value(out, value, depth + json_is_object(value), 0);
        } else {
            fputc(' ', out);
            write_value(out, value, depth, 0);
        }
    }
}

static void write_value(FILE *out, const json_t *value, int depth, int in_list)
{
    size_t i;
    json_t *item;
    if (!is_block(value)) {
        write_scalar(out, value);
        fputc('\n', out);
    } else if (json_is_object(value)) {
        write_object(out, value, depth, in_list);
    } else {
        json_array_foreach((json_t *)value, i, item)
        {
            fprintf(out, "%*s- ", in_list && i == 0 ? 0 : 2 * depth, "");
            write_value(out, item, depth + 1, 1);
        }
    }
}

void psrti_yaml_write(FILE *out, const json_t *document)
{
    fputs("---\n", out);
    write_value(out, document, 0, 0);
}
