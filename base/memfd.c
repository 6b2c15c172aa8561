/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

/* Linux values, for C libraries older than the kernel that runs. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGE 4096u
#define HUGE (2u << 20)
#define CHECK_MEMORY (64ull << 20) /* larger ones are first compared with the free memory */

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static psrt_status_t fail_errno(const char *what, uint64_t bytes)
{
    int err = errno;
    if (err == EMFILE || err == ENFILE) {
        struct rlimit limit = { 0, 0 };
        getrlimit(RLIMIT_NOFILE, &limit);
        return psrti_fail(
            PSRT_ERR_LIMIT,
            "shared memory: %s of %llu bytes: no descriptors left, raise RLIMIT_NOFILE "
            "(ulimit -n), now %llu",
            what, (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
    }
    psrt_status_t status =
        err == ENOMEM || err == ENOSPC || err == EFBIG || err == EFAULT || err == EINVAL
            ? PSRT_ERR_NO_MEMORY
            : PSRT_ERR_IO;
    return psrti_fail(status, "shared memory: %s of %llu bytes: %s", what,
                      (unsigned long long)bytes, strerror(err));
}

/* Touching pages that the machine does not have ends in the OOM killer, not in an error. */
static bool memory_available(uint64_t bytes, unsigned long long *available_p)
{
    if (bytes < CHECK_MEMORY) return true;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return true;
    char line[128];
    bool found = false;
    while (!found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %llu", available_p) == 1;
    fclose(file);
    *available_p *= 1024;
    return !found || bytes <= *available_p;
}

/* Large segments start at a multiple of a huge page, so that huge pages can be mapped whole. */
static void *map_aligned(int fd, uint64_t bytes, int prot)
{
    if (bytes < HUGE) return mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

    uint8_t *wide = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wide == MAP_FAILED) return MAP_FAILED;
    uint8_t *base = (uint8_t *)round_up((uintptr_t)wide, HUGE);
    uint8_t *end = base + round_up(bytes, PAGE);
    if (mmap(base, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int err = errno;
        munmap(wide, bytes + HUGE);
        errno = err;
        return MAP_FAILED;
    }
    if (base > wide) munmap(wide, (size_t)(base - wide));
    munmap(end, (size_t)(wide + round_up(bytes + HUGE, PAGE) - end));
    return base;
}

/* Makes all pages present, 2 MiB ones where the kernel can: collapsing wants one page of each huge
 * page to exist, and one call for all, since each call waits for every CPU. madvise reports a lack
 * of memory where a plain store would raise SIGBUS. */
static int populate(uint8_t *base, uint64_t bytes)
{
    uint64_t huge = bytes / HUGE * HUGE;
    for (uint64_t off = 0; off < huge; off += HUGE)
        if (madvise(base + off, PAGE, MADV_POPULATE_WRITE) != 0) return errno == EINVAL ? 0 : -1;
    if (huge > 0) (void)madvise(base, huge, MADV_COLLAPSE); /* else small pages */
    if (madvise(base, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return -1;
    return 0;
}

psrt_status_t psrti_memfd_create(uint64_t bytes, bool huge, int *fd_p, void **base_p)
{
    unsigned long long available = 0;
    psrt_status_t status;
    if (!memory_available(bytes, &available))
        return psrti_fail(PSRT_ERR_NO_MEMORY,
                          "shared memory: segment of %llu bytes: %llu bytes are available",
                          (unsigned long long)bytes, available);
    if (bytes > INT64_MAX - 2ull * HUGE) {
        errno = ENOMEM;
        return fail_errno("segment", bytes);
    }
    int fd = memfd_create("psrt", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("psrt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return fail_errno("segment", bytes);
    if (ftruncate(fd, (off_t)bytes) != 0) goto err_close;
    void *base = map_aligned(fd, bytes, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) goto err_close;
    if (huge && populate(base, bytes) != 0) goto err_unmap;
    /* FUTURE_WRITE: peers can only read. Unknown before Linux 5.1, and not needed by receivers. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) goto err_unmap;
    *fd_p = fd;
    *base_p = base;
    return PSRT_OK;

err_unmap:
    status = fail_errno("segment", bytes);
    munmap(base, bytes);
    close(fd);
    return status;
err_close:
    status = fail_errno("segment", bytes);
    close(fd);
    return status;
}

psrt_status_t psrti_memfd_map(int fd, uint64_t bytes, void **base_p, const char **why)
{
    struct stat st;
    /* Without the seals a peer that truncates its file would kill this process by SIGBUS. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
        *why = "segment is not sealed against truncation";
        return PSRT_ERR_PROTOCOL;
    }
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size != bytes || bytes == 0) {
        *why = "segment is not as large as announced";
        return PSRT_ERR_PROTOCOL;
    }
    void *base = map_aligned(fd, bytes, PROT_READ);
    if (base == MAP_FAILED) {
        *why = "no memory to map the segment of the peer";
        return PSRT_ERR_NO_MEMORY;
    }
    /* Not a sparse file: reading its holes would fill them. */
    if ((uint64_t)st.st_blocks * 512 >= bytes) (void)madvise(base, bytes, MADV_POPULATE_READ);
    *base_p = base;
    return PSRT_OK;
}

int psrti_memfd_open(int32_t pid, int32_t fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}
