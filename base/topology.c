/* SPDX-License-Identifier: Apache-2.0 */
#include "base/topology.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define MAX_CPUS (1 << 20)

typedef struct affinity {
    unsigned cores, first;
} affinity_t;

static affinity_t look_at(const cpu_set_t *set, size_t size)
{
    affinity_t a = { .cores = (unsigned)CPU_COUNT_S(size, set) };
    while (a.cores && !CPU_ISSET_S(a.first, size, set))
        a.first++;
    return a;
}

/* Zeros when the mask cannot be read. The kernel wants a mask as large as its own, whose size only it
 * knows. */
static affinity_t affinity(void)
{
    for (int cpus = CPU_SETSIZE; cpus <= MAX_CPUS; cpus *= 2) {
        size_t size = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set) break;
        int failed = sched_getaffinity(0, size, set) != 0;
        int too_small = failed && errno == EINVAL;
        affinity_t a = { 0 };
        if (!failed) a = look_at(set, size);
        CPU_FREE(set);
        if (!too_small) return a;
    }
    return (affinity_t){ 0 };
}

int psrti_topology_pin(unsigned n, unsigned cores, cpu_set_t *own)
{
    cpu_set_t one;
    int cpu = -1;
    if (!cores || sched_getaffinity(0, sizeof *own, own) != 0 || (unsigned)CPU_COUNT(own) != cores)
        return 0;
    for (unsigned left = n % cores + 1; left; left--)
        do
            cpu++;
        while (!CPU_ISSET(cpu, own));
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

void psrti_topology_unpin(const cpu_set_t *own) { (void)sched_setaffinity(0, sizeof *own, own); }

/* 0 where the kernel does not say. */
static unsigned node_of(const char *cpu_root, unsigned cpu)
{
    char path[PATH_MAX];
    unsigned node = 0;
    snprintf(path, sizeof path, "%s/cpu%u", cpu_root, cpu);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        if (sscanf(e->d_name, "node%u", &node) == 1) break;
    if (dir) closedir(dir);
    return node;
}

uint32_t psrti_topology_place(const char *cpu_root)
{
    unsigned cpu = affinity().first;
    unsigned node = node_of(cpu_root ? cpu_root : "/sys/devices/system/cpu", cpu);
    return PSRTI_MIN(node, 0xfffu) << 20 | PSRTI_MIN(cpu, MAX_CPUS - 1u);
}

/* First line of dir/name without newline; 0 on success. */
static int read_line(const char *dir, const char *name, char *line, int size)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path)) return -1;
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    int failed = !fgets(line, size, file);
    fclose(file);
    if (failed) return -1;
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

/* Cores of "quota period" in microseconds, a part counting as a whole one; UINT_MAX without a limit
 * ("max", -1) or when the text is no quota. */
static unsigned quota_cores(const char *quota_text, const char *period_text)
{
    int64_t quota, period;
    if (psrti_parse_i64(quota_text, 1, INT64_MAX / 2, &quota) != PSRT_OK) return UINT_MAX;
    if (psrti_parse_i64(period_text, 1, INT64_MAX / 2, &period) != PSRT_OK) return UINT_MAX;
    int64_t cores = (quota + period - 1) / period;
    return cores > UINT_MAX ? UINT_MAX : (unsigned)cores;
}

/* What the files of both versions in one directory say; a directory has at most one kind. */
static unsigned quota_of(const char *dir)
{
    char quota[128], period[64];
    if (read_line(dir, "cpu.max", quota, sizeof(quota)) == 0) {
        char *space = strchr(quota, ' ');
        if (!space) return UINT_MAX;
        *space = '\0';
        return quota_cores(quota, space + 1);
    }
    if (read_line(dir, "cpu.cfs_quota_us", quota, sizeof(quota)) != 0) return UINT_MAX;
    if (read_line(dir, "cpu.cfs_period_us", period, sizeof(period)) != 0) return UINT_MAX;
    return quota_cores(quota, period);
}

unsigned psrti_topology_quota(const char *mount, const char *group)
{
    char dir[PATH_MAX];
    if ((size_t)snprintf(dir, sizeof(dir), "%s%s", mount, group) >= sizeof(dir)) return UINT_MAX;
    char *below_mount = dir + strlen(mount);
    for (unsigned lowest = UINT_MAX;;) {
        unsigned cores = quota_of(dir);
        lowest = PSRTI_MIN(lowest, cores);
        char *slash = strrchr(below_mount, '/');
        if (!slash) return lowest;
        *slash = '\0';
    }
}

static int has_controller(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *item = list; item; item = strchr(item, ',')) {
        item += *item == ',';
        if (!strncmp(item, name, len) && (item[len] == ',' || !item[len])) return 1;
    }
    return 0;
}

/* The groups of this process, from lines "id:controllers:/path"; "" where there is none. */
static void own_groups(char v1[PATH_MAX], char v2[PATH_MAX])
{
    char line[PATH_MAX + 256];
    v1[0] = v2[0] = '\0';
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) return;
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || strstr(path, "/..")) continue; /* outside our namespace: not below the mount */
        *controllers++ = '\0';
        *path++ = '\0';
        if (!*controllers)
            snprintf(v2, PATH_MAX, "%s", path);
        else if (has_controller(controllers, "cpu"))
            snprintf(v1, PATH_MAX, "%s", path);
    }
    fclose(file);
}

static unsigned cgroup_cores(const char *root)
{
    char v1[PATH_MAX], v2[PATH_MAX], mount[PATH_MAX];
    own_groups(v1, v2);
    /* Version 2 alone, version 2 beside version 1, and the two usual places of version 1. */
    const struct {
        const char *subdir, *group;
    } mounts[] = { { "", v2 }, { "/unified", v2 }, { "/cpu", v1 }, { "/cpu,cpuacct", v1 } };
    unsigned lowest = UINT_MAX;
    for (size_t i = 0; i < PSRTI_COUNT(mounts); i++) {
        int len = snprintf(mount, sizeof(mount), "%s%s", root, mounts[i].subdir);
        if ((size_t)len >= sizeof(mount)) continue;
        unsigned cores = psrti_topology_quota(mount, mounts[i].group);
        lowest = PSRTI_MIN(lowest, cores);
    }
    return lowest;
}

unsigned psrti_topology_cores(const char *cgroup_root)
{
    unsigned cores = affinity().cores;
    unsigned quota = cgroup_cores(cgroup_root ? cgroup_root : "/sys/fs/cgroup");
    cores = PSRTI_MIN(cores, quota);
    return PSRTI_MAX(cores, 1u);
}

static void append_bytes(char *buf, size_t size, size_t *pos, const char *label, uint64_t bytes)
{
    if (!bytes) return;
    if (bytes >= 1024 * 1024)
        psrti_append(buf, size, pos, ", %s %.4g MiB", label, (double)bytes / (1024 * 1024));
    else
        psrti_append(buf, size, pos, ", %s %.4g KiB", label, (double)bytes / 1024);
}

static uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache ? cache->attr->cache.size : 0;
}

void psrti_topology_describe(char *buf, size_t size)
{
    if (!size) return;
    unsigned cores = psrti_topology_cores(NULL);
    size_t pos = 0;
    psrti_append(buf, size, &pos, "%u %s", cores, cores == 1 ? "core" : "cores");

    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        psrti_append(buf, size, &pos, ", %d NUMA node%s", nodes, nodes == 1 ? "" : "s");
        append_bytes(buf, size, &pos, "L2", cache_bytes(topology, HWLOC_OBJ_L2CACHE));
        append_bytes(buf, size, &pos, "L3", cache_bytes(topology, HWLOC_OBJ_L3CACHE));
    }
    hwloc_topology_destroy(topology);
}
