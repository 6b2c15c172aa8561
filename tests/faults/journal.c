/* SPDX-License-Identifier: Apache-2.0 */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void *map_file(const char *path, size_t bytes, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && (!flags || ftruncate(fd, (off_t)bytes) == 0))
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "faults_worker: %s: %s\n", path, strerror(errno));
        exit(2);
    }
    close(fd);
    return p;
}

journal_t *journal_open(const char *dir, uint32_t rank, uint32_t life)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/journal.%u.%u", dir, rank, life);
    journal_t *j = map_file(path, sizeof *j, O_CREAT | O_EXCL);
    j->rank = rank, j->life = life, j->pid = (uint32_t)getpid();
    return j;
}

control_t *control_open(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/control", dir);
    return map_file(path, sizeof(control_t), 0);
}

uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* splitmix64 of what names the push. */
uint64_t push_hash(uint32_t rank, uint32_t life, uint32_t generation, uint32_t table,
                   uint64_t number)
{
    uint64_t x = (uint64_t)rank << 60 | (uint64_t)(life & 0xfff) << 48 |
                 (uint64_t)(generation & 0xff) << 40 | (uint64_t)table << 36 | number;
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
