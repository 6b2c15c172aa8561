/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/proctree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/env.h"

typedef struct proc {
    pid_t pid, parent;
    int zombie, inside; /* inside: in the tree */
} proc_t;

typedef struct proc_table {
    proc_t *procs;
    size_t count;
} proc_table_t;

/* Reads at most size - 1 bytes; returns the length, 0 when the process is gone. */
static size_t read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n;
    while (fd >= 0 && len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
        len += (size_t)n;
    if (fd >= 0) close(fd);
    buf[len] = '\0';
    return len;
}

/* "pid (any name, even with brackets) state ppid ..." */
static int read_stat(pid_t pid, proc_t *out)
{
    char buf[512], state;
    int parent;
    read_proc(pid, "stat", buf, sizeof buf);
    const char *tail = strrchr(buf, ')');
    if (!tail || sscanf(tail + 1, " %c %d", &state, &parent) != 2) return 0;
    *out = (proc_t){ .pid = pid, .parent = parent, .zombie = state == 'Z' || state == 'X' };
    return 1;
}

static pid_t next_pid(DIR *proc)
{
    for (struct dirent *entry; (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0])) return (pid_t)atoi(entry->d_name);
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    return ((const proc_t *)a)->pid - ((const proc_t *)b)->pid;
}

static proc_table_t snapshot(void)
{
    proc_table_t table = { 0 };
    size_t capacity = 0;
    DIR *proc = opendir("/proc");
    for (pid_t pid; proc && (pid = next_pid(proc));) {
        if (table.count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            table.procs = psrti_xrealloc(table.procs, capacity * sizeof *table.procs);
        }
        if (read_stat(pid, &table.procs[table.count])) table.count++;
    }
    if (proc) closedir(proc);
    if (table.count) qsort(table.procs, table.count, sizeof *table.procs, by_pid);
    return table;
}

static int contains(const pid_t *pids, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (pids[i] == pid) return 1;
    return 0;
}

static int parent_inside(const proc_table_t *table, const proc_t *proc, pid_t root)
{
    if (proc->parent == root) return 1;
    const proc_t key = { .pid = proc->parent };
    const proc_t *parent = bsearch(&key, table->procs, table->count, sizeof key, by_pid);
    return parent && parent->inside;
}

/* Pids wrap, so a parent may come after its child: passes are repeated until one adds nothing. */
static void mark_inside(proc_table_t *table, pid_t root, const pid_t *except, size_t except_count)
{
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t i = 0; i < table->count; i++) {
            proc_t *proc = &table->procs[i];
            if (proc->inside || contains(except, except_count, proc->pid)) continue;
            proc->inside = parent_inside(table, proc, root);
            changed |= proc->inside;
        }
    }
}

size_t psrti_proctree_signal(pid_t root, int sig, const pid_t *except, size_t except_count)
{
    proc_table_t table = snapshot();
    mark_inside(&table, root, except, except_count);
    size_t alive = 0;
    for (size_t i = 0; i < table.count; i++) {
        if (!table.procs[i].inside || table.procs[i].zombie) continue;
        kill(table.procs[i].pid, sig);
        alive++;
    }
    free(table.procs);
    return alive;
}

size_t psrti_proctree_children(pid_t *pids, size_t capacity)
{
    proc_table_t table = snapshot();
    size_t found = 0;
    for (size_t i = 0; i < table.count && found < capacity; i++)
        if (table.procs[i].parent == getpid()) pids[found++] = table.procs[i].pid;
    free(table.procs);
    return found;
}

/* The start of an environment is searched: 256 KiB hold more than any task gets from us before
 * PSRT_JOB_DIR. */
static int has_marker(pid_t pid, const char *marker, char *buf, size_t size)
{
    size_t len = read_proc(pid, "environ", buf, size);
    for (size_t at = 0; at < len; at += strlen(buf + at) + 1)
        if (!strcmp(buf + at, marker)) return 1;
    return 0;
}

size_t psrti_proctree_signal_job(const char *dir, int sig)
{
    enum { SIZE = 256 * 1024 };
    char marker[PATH_MAX + 16];
    char *buf = psrti_xrealloc(NULL, SIZE);
    snprintf(marker, sizeof marker, "PSRT_JOB_DIR=%s", dir);
    DIR *proc = opendir("/proc");
    size_t alive = 0;
    for (pid_t pid; proc && (pid = next_pid(proc));)
        if (pid != getpid() && has_marker(pid, marker, buf, SIZE)) {
            kill(pid, sig);
            alive++;
        }
    if (proc) closedir(proc);
    free(buf);
    return alive;
}
