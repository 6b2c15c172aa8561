/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"

#define LIMIT_MIN (64u << 10)

psrt_status_t psrti_logfile_parse_limit(const char *text, uint64_t *limit)
{
    uint64_t bytes;
    if (psrti_parse_size(text, &bytes) || (bytes && bytes < LIMIT_MIN)) return PSRT_ERR_INVALID;
    *limit = bytes;
    return PSRT_OK;
}

static psrt_status_t fail(psrti_logfile_t *file)
{
    psrt_status_t st = psrti_fail(PSRT_ERR_IO, "log file %s: %s", file->path, strerror(errno));
    psrti_logfile_close(file);
    return st;
}

static psrt_status_t begin(psrti_logfile_t *file)
{
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    file->size = 0;
    file->full = file->in_line = 0;
    if (file->fd < 0) return fail(file);
    if (file->is_output) dup2(file->fd, STDOUT_FILENO);
    if (file->is_output) dup2(file->fd, STDERR_FILENO);
    return PSRT_OK;
}

static void old_path(const psrti_logfile_t *file, char path[PATH_MAX + 2])
{
    snprintf(path, PATH_MAX + 2, "%s.1", file->path);
}

/* The file becomes FILE.1. */
static psrt_status_t roll(psrti_logfile_t *file)
{
    char old[PATH_MAX + 2];
    old_path(file, old);
    if (rename(file->path, old) && errno != ENOENT)
        return fail(file); /* ENOENT: the user took it */
    close(file->fd);
    return begin(file);
}

/* How much of the data belongs into the present file; it is full when the rest does not. It ends with
 * the last end of a line in reach, once the data pass the half or that end lies in its last eighth: so
 * lines up to an eighth of it are never cut, however the data are divided. */
static size_t share(psrti_logfile_t *file, const char *data, size_t len)
{
    uint64_t half = file->limit / 2, room = half - file->size;
    size_t reach = PSRTI_MIN(len, room);
    const char *end = memrchr(data, '\n', reach);
    size_t lines = end ? (size_t)(end - data) + 1 : 0;
    int is_over = len >= room, cuts = lines || (file->size && !file->in_line);
    file->full = is_over || (lines && file->size + lines >= half - half / 8);
    return file->full && cuts ? lines : reach;
}

static psrt_status_t write_all(psrti_logfile_t *file, const char *data, size_t len)
{
    file->size += len;
    if (len) file->in_line = data[len - 1] != '\n';
    while (len) {
        ssize_t n = write(file->fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(file);
        data += n;
        len -= (size_t)n;
    }
    return PSRT_OK;
}

/* ---- interface ------------------------------------------------------------------------------- */

void psrti_logfile_init(psrti_logfile_t *file) { *file = (psrti_logfile_t){ .fd = -1 }; }

static psrt_status_t open_anew(psrti_logfile_t *file, const char *path, uint64_t limit,
                               int is_output)
{
    char old[PATH_MAX + 2];
    *file = (psrti_logfile_t){
        .fd = -1, .path = psrti_xstrdup(path), .limit = limit, .is_output = is_output
    };
    old_path(file, old);
    unlink(old);
    return begin(file);
}

psrt_status_t psrti_logfile_open(psrti_logfile_t *file, const char *path, uint64_t limit)
{
    return open_anew(file, path, limit, 0);
}

psrt_status_t psrti_logfile_open_output(psrti_logfile_t *file, const char *path, uint64_t limit)
{
    return open_anew(file, path, limit, 1);
}

psrt_status_t psrti_logfile_write(psrti_logfile_t *file, const char *data, size_t len)
{
    psrt_status_t st = PSRT_OK;
    while (!st && file->fd >= 0 && len) {
        if (file->full) st = roll(file); /* not before there is something for the next one */
        if (st) return st;
        size_t part = file->limit ? share(file, data, len) : len;
        st = write_all(file, data, part);
        data += part;
        len -= part;
    }
    return st;
}

void psrti_logfile_close(psrti_logfile_t *file)
{
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    psrti_logfile_init(file);
}
