/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "psrt-guardian-"

/* Where version 2 is mounted. 0: nowhere. */
static int find_mount(char *dir, size_t size)
{
    char buf[4096];
    struct mntent entry;
    int found = 0;
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    while (mounts && !found && getmntent_r(mounts, &entry, buf, sizeof buf))
        found = !strcmp(entry.mnt_type, "cgroup2") &&
                (size_t)snprintf(dir, size, "%s", entry.mnt_dir) < size;
    if (mounts) endmntent(mounts);
    return found;
}

/* The directory of this process's own group. 0: it has none, or one outside of what is mounted. */
static int own_dir(char *dir, size_t size)
{
    char line[PATH_MAX], *path = NULL;
    if (!find_mount(dir, size)) return 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !path && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "0::", 3)) path = line + 3;
    }
    if (file) fclose(file);
    if (!path || strstr(path, "/..")) return 0;
    size_t len = strlen(dir);
    return (size_t)snprintf(dir + len, size - len, "%s", strcmp(path, "/") ? path : "") <
           size - len;
}

void psrti_cgroup_find(psrti_cgroup_t *group, pid_t guardian)
{
    char own[PATH_MAX - 64];
    group->dir[0] = '\0';
    if (own_dir(own, sizeof own))
        snprintf(group->dir, sizeof group->dir, "%s/" PREFIX "%d", own, (int)guardian);
}

void psrti_cgroup_create(psrti_cgroup_t *group, pid_t guardian)
{
    psrti_cgroup_find(group, guardian);
    if (group->dir[0] && mkdir(group->dir, 0755)) group->dir[0] = '\0';
}

static void write_to(const psrti_cgroup_t *group, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    if (!group->dir[0]) return;
    snprintf(path, sizeof path, "%s/%s", group->dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t ignored = write(fd, text, strlen(text)); /* then the walk of the tree has to do */
    (void)ignored;
    close(fd);
}

void psrti_cgroup_enter(const psrti_cgroup_t *group) { write_to(group, "cgroup.procs", "0"); }

void psrti_cgroup_kill(const psrti_cgroup_t *group) { write_to(group, "cgroup.kill", "1"); }

void psrti_cgroup_remove(const psrti_cgroup_t *group)
{
    if (group->dir[0]) rmdir(group->dir);
}

void psrti_cgroup_clean(void)
{
    char own[PATH_MAX - 128], path[PATH_MAX];
    const struct dirent *entry;
    DIR *dir = own_dir(own, sizeof own) ? opendir(own) : NULL;
    while (dir && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1)) continue;
        snprintf(path, sizeof path, "/proc/%s", entry->d_name + sizeof PREFIX - 1);
        if (!access(path, F_OK)) continue;
        snprintf(path, sizeof path, "%s/%.64s", own, entry->d_name);
        rmdir(path); /* one with processes stays */
    }
    if (dir) closedir(dir);
}
