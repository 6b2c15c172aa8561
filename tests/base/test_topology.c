/* SPDX-License-Identifier: Apache-2.0 */
#include "base/topology.h"

#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "support/test.h"

static char root[64];

static void make_root(void)
{
    snprintf(root, sizeof(root), "/tmp/psrt-test-cgroup-XXXXXX");
    cr_assert(mkdtemp(root) != NULL);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void remove_root(void) { nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

TestSuite(topology, .init = make_root, .fini = remove_root);

/* root/dir/name, with its parents. */
static void put_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s/%s", root, dir, name);
    for (char *slash = path + strlen(root); (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* Keeps the first `count` of the cores that this process has; how many it then has. */
static unsigned keep_cores(unsigned count)
{
    cpu_set_t all, some;
    unsigned kept = 0;
    CPU_ZERO(&some);
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && kept < count; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_SET(cpu, &some);
        kept++;
    }
    cr_assert_eq(sched_setaffinity(0, sizeof(some), &some), 0);
    return kept;
}

Test(topology, affinity_limits)
{
    unsigned all = keep_cores(CPU_SETSIZE);
    cr_assert_eq(psrti_topology_cores(root), all);
    cr_assert_eq(psrti_topology_cores("/nonexistent"), all);
    keep_cores(1);
    cr_assert_eq(psrti_topology_cores(root), 1);
}

Test(topology, cpus_are_dealt_around_the_mask)
{
    cpu_set_t all_set, left, own, one;
    unsigned all = keep_cores(CPU_SETSIZE);
    cr_assert_eq(sched_getaffinity(0, sizeof(all_set), &all_set), 0);
    left = all_set;
    for (unsigned n = all; n < 2 * all; n++) {
        cr_assert(psrti_topology_pin(n, all, &own));
        cr_assert(CPU_EQUAL(&own, &all_set));
        cr_assert_eq(sched_getaffinity(0, sizeof(one), &one), 0);
        cr_assert_eq(CPU_COUNT(&one), 1);
        CPU_XOR(&left, &left, &one);
        psrti_topology_unpin(&own);
    }
    cr_assert_eq(CPU_COUNT(&left), 0, "each has its own");
    cr_assert_not(psrti_topology_pin(0, all + 1, &own));
    cr_assert_not(psrti_topology_pin(0, 0, &own));
    cr_assert_eq(psrti_topology_cores(root), all);
}

Test(topology, quota_of_version_2)
{
    unsigned all = keep_cores(CPU_SETSIZE);
    put_file("", "cpu.max", "50000 100000\n");
    cr_assert_eq(psrti_topology_cores(root), 1);
    put_file("", "cpu.max", "150000 100000\n");
    cr_assert_eq(psrti_topology_cores(root), PSRTI_MIN(2u, all));
    put_file("", "cpu.max", "max 100000\n");
    cr_assert_eq(psrti_topology_cores(root), all);
    put_file("/unified", "cpu.max", "100000 100000\n");
    cr_assert_eq(psrti_topology_cores(root), 1);
}

Test(topology, quota_of_version_1)
{
    static const char *const mounts[] = { "/cpu", "/cpu,cpuacct" };
    unsigned all = keep_cores(CPU_SETSIZE);
    for (size_t i = 0; i < PSRTI_COUNT(mounts); i++) {
        put_file(mounts[i], "cpu.cfs_period_us", "100000\n");
        put_file(mounts[i], "cpu.cfs_quota_us", "50000\n");
        cr_assert_eq(psrti_topology_cores(root), 1);
        put_file(mounts[i], "cpu.cfs_quota_us", "-1\n");
        cr_assert_eq(psrti_topology_cores(root), all);
    }
}

Test(topology, damaged_files_are_no_limit_and_never_zero)
{
    static const char *const texts[] = { "",
                                         "\n",
                                         "0 100000\n",
                                         "50000 0\n",
                                         "50000\n",
                                         "50000 \n",
                                         "abc def\n",
                                         "-5 100000\n",
                                         " 50000 1",
                                         "50000  10\n",
                                         "99999999999999999999 1\n" };
    unsigned all = keep_cores(CPU_SETSIZE);
    for (size_t i = 0; i < PSRTI_COUNT(texts); i++) {
        put_file("", "cpu.max", texts[i]);
        cr_assert_eq(psrti_topology_cores(root), all, "%s", texts[i]);
    }
    put_file("", "cpu.max", "1 1000000\n");
    cr_assert_eq(psrti_topology_cores(root), 1);
}

Test(topology, lowest_quota_along_the_path)
{
    put_file("/a/b/c", "cpu.max", "800000 100000\n");
    put_file("/a/b", "cpu.max", "400000 100000\n");
    put_file("/a", "cpu.max", "max 100000\n");
    put_file("", "cpu.max", "600000 100000\n");
    cr_assert_eq(psrti_topology_quota(root, "/a/b/c"), 4);
    cr_assert_eq(psrti_topology_quota(root, "/a"), 6);
    cr_assert_eq(psrti_topology_quota(root, "/"), 6);
    cr_assert_eq(psrti_topology_quota(root, ""), 6);
    cr_assert_eq(psrti_topology_quota(root, "/not/here"), 6);
    cr_assert_eq(psrti_topology_quota("/nonexistent", "/a"), UINT_MAX);
}

/* keep_cores leaves the first ones of those that the test may use. */
Test(topology, place)
{
    char node[48];
    cpu_set_t set;
    unsigned cpu = 0;
    keep_cores(1);
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    cr_assert_eq(psrti_topology_place("/nonexistent"), cpu);
    snprintf(node, sizeof node, "/cpu%u/node3", cpu);
    put_file(node, "cpulist", "0\n");
    cr_assert_eq(psrti_topology_place(root), 3u << 20 | cpu);
}

Test(topology, description)
{
    char text[256], start[32];
    keep_cores(1);
    psrti_topology_describe(text, sizeof(text));
    snprintf(start, sizeof(start), "1 core, ");
    cr_assert(!strncmp(text, start, strlen(start)), "%s", text);
    cr_assert(strstr(text, "NUMA node") != NULL, "%s", text);
    cr_assert(strchr(text, '\n') == NULL);
    char tiny[4] = "xyz";
    psrti_topology_describe(tiny, sizeof(tiny));
    cr_assert_str_eq(tiny, "1 c");
    psrti_topology_describe(tiny, 0);
    cr_assert_str_eq(tiny, "1 c");
}
