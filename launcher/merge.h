/* SPDX-License-Identifier: Apache-2.0 */
/* Equal lines of many tasks: the first is shown, those of other tasks soon after are counted and told
 * in one line later. Pure: the time goes in. */
#ifndef PSRTI_LAUNCHER_MERGE_H
#define PSRTI_LAUNCHER_MERGE_H

#include <stddef.h>
#include <stdint.h>

#define PSRTI_MERGE_WINDOW_MS 1000

typedef struct psrti_merge psrti_merge_t;

/* `tell` gets a text about lines that were counted; `name` is that of a task, below task_count. */
psrti_merge_t *psrti_merge_create(size_t task_count, const char *(*name)(void *arg, size_t task),
                                  void (*tell)(void *arg, const char *text), void *arg);
void psrti_merge_destroy(psrti_merge_t *merge);
/* True when the line, without its end, was counted and is not to be shown. */
int psrti_merge_line(psrti_merge_t *merge, uint64_t now_ms, size_t task, const char *line,
                     size_t len);
/* Tells what is older than the window; false: nothing is kept any more. */
int psrti_merge_tick(psrti_merge_t *merge, uint64_t now_ms);
void psrti_merge_flush(psrti_merge_t *merge); /* tells all */

#endif
