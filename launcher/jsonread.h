/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON objects into structs by tables of keys, strictly: what is wrong is named by its path in
 * the document, with what is allowed there. */
#ifndef PSRTI_LAUNCHER_JSONREAD_H
#define PSRTI_LAUNCHER_JSONREAD_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

typedef struct psrti_reader {
    const char *source; /* of the document: a file, a flag */
    int texts;          /* numbers and booleans may be texts: a flag knows no types */
    char path[512];     /* of the value that is read: "roles.worker.cpus" */
} psrti_reader_t;

typedef enum psrti_key_type {
    PSRTI_KEY_TEXT,   /* char *, owned; not empty */
    PSRTI_KEY_BOOL,   /* int */
    PSRTI_KEY_COUNT,  /* unsigned, from min to max */
    PSRTI_KEY_REAL,   /* double, above min, up to max */
    PSRTI_KEY_MEMORY, /* uint64_t MiB: a number of them, or a text such as "4g" */
    PSRTI_KEY_TIME,   /* uint64_t ns: seconds, or a text such as "5s" */
    PSRTI_KEY_WORD,   /* unsigned: the position in words */
    PSRTI_KEY_READ    /* the function reads it into the object */
} psrti_key_type_t;

typedef struct psrti_key {
    const char *name;
    psrti_key_type_t type;
    size_t offset;
    double min, max;
    const char *const *words; /* NULL-terminated */
    psrt_status_t (*read)(psrti_reader_t *reader, const json_t *value, void *object);
} psrti_key_t;

/* Every key must be in the table. ERR_INVALID says which value is wrong. */
psrt_status_t psrti_read_object(psrti_reader_t *reader, const json_t *object,
                                const psrti_key_t *keys, size_t count, void *into);
psrt_status_t psrti_read_bool(psrti_reader_t *reader, const json_t *value, int *flag);
psrt_status_t psrti_read_time(psrti_reader_t *reader, const json_t *value, uint64_t *ns);
/* A list of texts, NULL-terminated and owned. */
psrt_status_t psrti_read_texts(psrti_reader_t *reader, const json_t *value, char ***texts_p);

/* Steps down to a member or an element; `back` returns with what it gave. */
size_t psrti_reader_enter(psrti_reader_t *reader, const char *key);
size_t psrti_reader_enter_index(psrti_reader_t *reader, size_t index);
void psrti_reader_back(psrti_reader_t *reader, size_t length);

/* ERR_INVALID with source and path in front. */
psrt_status_t psrti_reader_fail(const psrti_reader_t *reader, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "VALUE is not ALLOWED". */
psrt_status_t psrti_reader_wrong(const psrti_reader_t *reader, const json_t *value,
                                 const char *allowed);

#endif
