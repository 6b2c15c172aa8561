/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/jobdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/jobkey.h"
#include "base/log.h"
#include "launcher/proctree.h"

#define PREFIX "psrt-job-"
/* A socket's path has room for 107 bytes; the library's own names below the directory get 40. */
#define BASE_MAX (107 - 40 - (sizeof("/" PREFIX "XXXXXX") - 1))
#define PASS_NS 10000000
#define KILL_PASSES 200
#define DEATH_PASSES 200

static int usable(const char *base)
{
    struct stat st;
    return base && base[0] == '/' && !stat(base, &st) && S_ISDIR(st.st_mode) &&
           !access(base, W_OK | X_OK);
}

/* One that is too long for sockets is passed over for /tmp, and used only when /tmp cannot be. */
static const char *choose_base(void)
{
    const char *candidates[] = { getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp" };
    const char *too_long = NULL;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (!usable(candidates[i])) continue;
        if (strlen(candidates[i]) <= BASE_MAX) return candidates[i];
        if (!too_long) too_long = candidates[i];
    }
    return too_long;
}

/* ---- locks and removal ----------------------------------------------------------------------- */

static int open_dir(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int psrti_jobdir_lock(const char *path)
{
    int fd = open_dir(path);
    if (fd < 0) return -1;
    while (flock(fd, LOCK_SH)) {
        if (errno == EINTR) continue;
        close(fd);
        return -1;
    }
    return fd;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0; /* go on with the rest */
}

void psrti_jobdir_remove(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Guardians end their own trees; this is for a tree whose guardian was killed too. Bounded, since a
 * process in an uninterruptible call cannot be killed. */
static void kill_rest(const char *path)
{
    const struct timespec pause = { .tv_nsec = PASS_NS };
    for (int i = 0; i < KILL_PASSES && psrti_proctree_signal_job(path, SIGKILL); i++)
        nanosleep(&pause, NULL);
}

/* flock gives an existing shared lock up before it tries for the exclusive one, so of several
 * processes that do this at the same time the last one to try gets it. A process that is killed closes its
 * connections before its lock, so guardians may be done before the launcher's is gone. */
static int is_last(int lock, int launcher_died)
{
    const struct timespec pause = { .tv_nsec = PASS_NS };
    for (int i = 0; flock(lock, LOCK_EX | LOCK_NB); i++) {
        if (!launcher_died || i == DEATH_PASSES) return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

void psrti_jobdir_release(const char *path, int lock, int launcher_died)
{
    if (lock < 0) return;
    if (is_last(lock, launcher_died)) {
        kill_rest(path);
        psrti_jobdir_remove(path);
    }
    close(lock);
}

/* What a launcher left that was killed together with all its guardians. */
static void remove_stale(const char *base)
{
    DIR *dir = opendir(base);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[PATH_MAX];
        struct stat st;
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1)) continue;
        if (snprintf(path, sizeof path, "%s/%s", base, entry->d_name) >= (int)sizeof path) continue;
        int fd = open_dir(path);
        if (fd < 0) continue;
        if (!fstat(fd, &st) && st.st_uid == geteuid())
            psrti_jobdir_release(path, fd, 0);
        else
            close(fd);
    }
    if (dir) closedir(dir);
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Between mkdtemp and the lock another launcher may take the directory for a stale one. It removes
 * it under the exclusive lock, so once we hold ours the link count tells. */
static psrt_status_t make_locked(const char *base, char path[PATH_MAX], int *lock_p)
{
    for (;;) {
        struct stat st;
        if (snprintf(path, PATH_MAX, "%s/" PREFIX "XXXXXX", base) >= PATH_MAX)
            return psrti_fail(PSRT_ERR_LIMIT, "job directory: %s is too long", base);
        if (!mkdtemp(path))
            return psrti_fail(PSRT_ERR_IO, "job directory %s: %s", path, strerror(errno));
        int fd = psrti_jobdir_lock(path);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0) {
            psrt_status_t st_lock =
                psrti_fail(PSRT_ERR_IO, "job directory %s: lock: %s", path, strerror(errno));
            rmdir(path);
            return st_lock;
        }
        *lock_p = fd;
        if (!fstat(fd, &st) && st.st_nlink > 0) return PSRT_OK;
        close(fd);
    }
}

static psrt_status_t write_key(const psrti_jobkey_t *given, const char *dir)
{
    char path[PATH_MAX + 8];
    psrti_jobkey_t new;
    snprintf(path, sizeof path, "%s/key", dir);
    if (given) return psrti_jobkey_write(given, path);
    psrt_status_t st = psrti_jobkey_generate(&new);
    if (!st) st = psrti_jobkey_write(&new, path);
    psrti_jobkey_wipe(&new);
    return st;
}

psrt_status_t psrti_jobdir_create(char path[PATH_MAX], int *lock_p)
{
    const char *base = choose_base();
    if (!base)
        return psrti_fail(PSRT_ERR_IO, "job directory: none of XDG_RUNTIME_DIR, TMPDIR and /tmp "
                                       "is a directory that can be written to");
    remove_stale(base);
    return make_locked(base, path, lock_p);
}

psrt_status_t psrti_jobdir_create_with_key(const psrti_jobkey_t *key, char path[PATH_MAX],
                                           int *lock_p)
{
    psrt_status_t st = psrti_jobdir_create(path, lock_p);
    if (st) return st;
    st = write_key(key, path);
    if (st) {
        psrti_jobdir_remove(path);
        close(*lock_p);
    }
    return st;
}
