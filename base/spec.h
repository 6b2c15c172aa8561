/* SPDX-License-Identifier: Apache-2.0 */
/* "name:key=value,key=value": how optimizers, initializers and consistency are named. */
#ifndef PSRTI_BASE_SPEC_H
#define PSRTI_BASE_SPEC_H

#include <stddef.h>

#include <psrt/status.h>

#define PSRTI_SPEC_KEYS 32
#define PSRTI_SPEC_TEXT 512

/* Parsed text. "ssp:3" gives name "ssp" and one entry with key "" and value "3". Points into
 * itself: not to be copied by assignment. */
typedef struct psrti_spec {
    char text[PSRTI_SPEC_TEXT]; /* storage: name, keys and values point into it */
    const char *name;
    size_t count;
    struct {
        const char *key, *value;
    } entry[PSRTI_SPEC_KEYS];
} psrti_spec_t;

/* ERR_INVALID with last error set on malformed text; `what` ("optimizer") names it in the error. */
psrt_status_t psrti_spec_parse(const char *what, const char *text, psrti_spec_t *out);

/* Checks that every key is in `keys` and reads numbers: values[i] is left as it is (the default)
 * when keys[i] is absent. A bool gives 0 or 1. Unknown keys fail with the nearest name. */
psrt_status_t psrti_spec_numbers(const char *what, const psrti_spec_t *spec,
                                 const char *const *keys, double *values, size_t count);

#endif
