/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON values as YAML in block style, for files that people read and edit. */
#ifndef PSRTI_LAUNCHER_RENDER_YAML_H
#define PSRTI_LAUNCHER_RENDER_YAML_H

#include <jansson.h>
#include <stdio.h>

/* One document, "---" in front. Every string stands in double quotes with JSON's escapes, which are
 * YAML's too, so that none is taken for a number, a boolean or a tag. Keys stay in their order. */
void psrti_yaml_write(FILE *out, const json_t *document);

#endif
