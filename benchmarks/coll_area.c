/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_area.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "flags.h"
#include "stats.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE 4096u
#define HUGE_PAGE ((uint64_t)2 << 20)
#define PATIENCE 1000u /* polls, some tens of us, where there is a core for each rank */
/* From the last arrival to the common start, where all poll and where one sleeps. */
#define START_NS 1000u
#define WAKE_NS 100000u

typedef struct line {
    _Alignas(64) atomic_ullong value;
} line_t;

typedef struct header {
    _Alignas(64) atomic_uint arrived; /* ranks, at the present meeting */
    _Alignas(64) atomic_uint generation;
    atomic_uint sleepers;
    atomic_ullong start; /* of bench_now: when all leave */
    line_t plan;
    line_t said[COLL_RANKS_MAX]; /* for sums */
    line_t told[COLL_RANKS_MAX];
    double times[COLL_RANKS_MAX][COLL_ITERATIONS_MAX];
} header_t;

struct coll_area {
    header_t *header;
    char *buffers;
    uint64_t bytes, room; /* of the mapping; of one buffer */
    uint32_t rank, ranks;
    unsigned patience;
};

static uint64_t round_up(uint64_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

static uint64_t head_bytes(void) { return round_up(sizeof(header_t)); }

int coll_area_create(uint32_t ranks, uint64_t max_bytes, char path[64])
{
    uint64_t bytes = head_bytes() + 2 * ranks * round_up(max_bytes);
    int fd = memfd_create("psrt-bench-coll", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
        if (fd >= 0) close(fd);
        return bench_fail("shared memory of %llu bytes: %s", (unsigned long long)bytes,
                          strerror(errno));
    }
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return 0;
}

/* From a huge page boundary on. */
static char *map_aligned(int fd, uint64_t bytes)
{
    char *base = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    char *at = base + (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return NULL;
    return at;
}

/* Where each rank can have a core, its calling thread gets one, as MPI's launchers bind processes: else two ranks
 * that polled on one core would be measured now and then. Other threads of the rank stay free. */
static void take_core(uint32_t rank, uint32_t ranks)
{
    cpu_set_t may, own;
    if (sched_getaffinity(0, sizeof may, &may) || CPU_COUNT(&may) < (int)ranks || ranks == 1)
        return;
    CPU_ZERO(&own);
    for (unsigned cpu = 0, seen = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&own); cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == rank) CPU_SET(cpu, &own);
    (void)sched_setaffinity(0, sizeof own, &own); /* without it, figures are less steady */
}

coll_area_t *coll_area_open(const char *path, uint32_t rank, uint32_t ranks)
{
    coll_area_t *area = calloc(1, sizeof *area);
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (!area || fd < 0 || fstat(fd, &info)) goto err;
    *area = (coll_area_t){ .bytes = (uint64_t)info.st_size, .rank = rank, .ranks = ranks };
    if (area->bytes < head_bytes()) {
        area->bytes = head_bytes();
        if (ftruncate(fd, (off_t)area->bytes)) goto err;
    }
    area->room = (area->bytes - head_bytes()) / (2 * ranks);
    if ((area->header = (void *)map_aligned(fd, area->bytes)) == NULL) goto err;
    area->buffers = (char *)area->header + head_bytes();
    area->patience = sysconf(_SC_NPROCESSORS_ONLN) >= (long)ranks ? PATIENCE : 0;
    close(fd);
    take_core(rank, ranks);
    return area;
err:
    bench_fail("%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(area);
    return NULL;
}

void coll_area_close(coll_area_t *area)
{
    if (!area) return;
    munmap(area->header, area->bytes);
    free(area);
}

static void pause_cpu(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void await(const coll_area_t *area, const line_t *line, uint64_t number)
{
    for (unsigned polls = 0; atomic_load_explicit(&line->value, memory_order_acquire) < number;)
        if (++polls > area->patience)
            sched_yield();
        else
            pause_cpu();
}

/* Sleeps after a while: what is measured may have threads that want the core. */
static void await_generation(coll_area_t *area, uint32_t next)
{
    atomic_uint *generation = &area->header->generation;
    for (unsigned polls = 0; polls < area->patience; polls++) {
        if (atomic_load_explicit(generation, memory_order_acquire) == next) return;
        pause_cpu();
    }
    atomic_fetch_add(&area->header->sleepers, 1);
    while (atomic_load(generation) != next)
        syscall(SYS_futex, generation, FUTEX_WAIT, next - 1, NULL, NULL, 0);
    atomic_fetch_sub(&area->header->sleepers, 1);
}

/* Wakes the others, who have the time until the common start to come back. */
static void open_generation(coll_area_t *area, uint32_t next)
{
    header_t *h = area->header;
    uint64_t wait = area->patience == 0 ? 0 : atomic_load(&h->sleepers) ? WAKE_NS : START_NS;
    atomic_store(&h->arrived, 0);
    atomic_store(&h->start, bench_now() + wait);
    atomic_store(&h->generation, next);
    if (atomic_load(&h->sleepers))
        syscall(SYS_futex, &h->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void coll_area_meet(coll_area_t *area)
{
    header_t *h = area->header;
    uint32_t next = atomic_load(&h->generation) + 1;
    if (atomic_fetch_add(&h->arrived, 1) + 1 == area->ranks)
        open_generation(area, next);
    else
        await_generation(area, next);
    uint64_t start = atomic_load(&h->start);
    while (bench_now() < start) {}
}

uint64_t coll_area_share(coll_area_t *area, uint64_t value)
{
    if (area->rank == 0) atomic_store(&area->header->plan.value, value);
    coll_area_meet(area);
    value = atomic_load(&area->header->plan.value);
    coll_area_meet(area); /* nobody reads the next one */
    return value;
}

uint64_t coll_area_sum(coll_area_t *area, uint64_t value)
{
    uint64_t sum = 0;
    atomic_store(&area->header->said[area->rank].value, value);
    coll_area_meet(area);
    for (uint32_t rank = 0; rank < area->ranks; rank++)
        sum += atomic_load(&area->header->said[rank].value);
    coll_area_meet(area);
    return sum;
}

double *coll_area_times(coll_area_t *area) { return area->header->times[area->rank]; }

void coll_area_slowest(coll_area_t *area, uint64_t iterations)
{
    double(*times)[COLL_ITERATIONS_MAX] = area->header->times;
    coll_area_meet(area);
    for (uint32_t rank = 1; rank < area->ranks && area->rank == 0; rank++)
        for (uint64_t i = 0; i < iterations; i++)
            if (times[rank][i] > times[0][i]) times[0][i] = times[rank][i];
    coll_area_meet(area);
}

void *coll_area_buffer(const coll_area_t *area, uint32_t rank, unsigned which)
{
    return area->buffers + (2 * (uint64_t)rank + which) * area->room;
}

void coll_area_populate(void *buffer, uint64_t bytes)
{
    uint64_t room = round_up(bytes);
    for (uint64_t at = 0; at < room; at += HUGE_PAGE)
        (void)madvise((char *)buffer + at, PAGE, MADV_POPULATE_WRITE);
    (void)madvise(buffer, room, MADV_COLLAPSE);
}

void coll_area_discard(coll_area_t *area)
{
    madvise(coll_area_buffer(area, area->rank, 0), 2 * area->room, MADV_REMOVE);
}

void coll_area_tell(coll_area_t *area, uint64_t number)
{
    atomic_store_explicit(&area->header->told[area->rank].value, number, memory_order_release);
}

void coll_area_await(const coll_area_t *area, uint32_t rank, uint64_t number)
{
    await(area, &area->header->told[rank], number);
}
