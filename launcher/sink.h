/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to stdout or stderr from a thread of its own. Standard streams may block for as long as
 * their reader likes, and cannot be made non-blocking without changing them for every process that
 * shares them; the loop must never wait for them. */
#ifndef PSRTI_LAUNCHER_SINK_H
#define PSRTI_LAUNCHER_SINK_H

#include <stddef.h>

#include "launcher/logfile.h"

typedef struct psrti_sink psrti_sink_t;

/* Into `file`, when it is not NULL, instead of the descriptor. `wake` is called on the sink's thread each time it has
 * written what it took. */
psrti_sink_t *psrti_sink_open(int fd, psrti_logfile_t *file, void (*wake)(void *arg), void *arg);
/* Copies. After a write error data is dropped. */
void psrti_sink_put(psrti_sink_t *sink, const void *data, size_t len);
/* Bytes that are not written yet. */
size_t psrti_sink_backlog(psrti_sink_t *sink);
/* errno of the write that failed, once; 0: none. */
int psrti_sink_take_error(psrti_sink_t *sink);
/* Only with no backlog: waits for the thread. */
void psrti_sink_close(psrti_sink_t *sink);

#endif
