/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/bind.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define NODES_MAX 1024 /* as many as Linux can have */

typedef struct cpu {
    int package, core, number;
} cpu_t;

/* -1 when the system does not say: then each processor is a core. */
static int read_id(const char *sysfs, int cpu, const char *name)
{
    char path[PATH_MAX];
    int id = -1;
    snprintf(path, sizeof path, "%s/cpu%d/topology/%s", sysfs, cpu, name);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    if (fscanf(file, "%d", &id) != 1) id = -1;
    fclose(file);
    return id;
}

static int by_place(const void *a, const void *b)
{
    const cpu_t *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->number - y->number;
}

void psrti_bind_share(const char *sysfs, const cpu_set_t *allowed, unsigned part, unsigned parts,
                      cpu_set_t *share)
{
    cpu_t cpus[CPU_SETSIZE] = { { 0 } };
    unsigned core_of[CPU_SETSIZE], count = 0, cores = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, allowed)) continue;
        int core = read_id(sysfs, i, "core_id");
        cpus[count++] = (cpu_t){ read_id(sysfs, i, "physical_package_id"), core < 0 ? i : core, i };
    }
    qsort(cpus, count, sizeof *cpus, by_place);
    for (unsigned i = 0; i < count; i++) {
        cores += i && (cpus[i].package != cpus[i - 1].package || cpus[i].core != cpus[i - 1].core);
        core_of[i] = cores;
    }
    cores++;
    unsigned first = part * cores / parts, end = (part + 1) * cores / parts;
    if (parts > cores) {
        first = part % cores;
        end = first + 1;
    }
    CPU_ZERO(share);
    for (unsigned i = 0; i < count; i++)
        if (core_of[i] >= first && core_of[i] < end) CPU_SET(cpus[i].number, share);
}

/* ---- NUMA nodes ------------------------------------------------------------------------------ */

/* Linux shows a processor's node as an entry beside its topology. */
static int read_node(const char *sysfs, int cpu)
{
    char path[PATH_MAX];
    int node = 0;
    snprintf(path, sizeof path, "%s/cpu%d", sysfs, cpu);
    DIR *dir = opendir(path);
    if (!dir) return 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (sscanf(entry->d_name, "node%d", &node) == 1) break;
    closedir(dir);
    return node >= 0 && node < NODES_MAX ? node : 0;
}

int psrti_bind_node(const char *sysfs, const cpu_set_t *allowed, unsigned part, unsigned parts,
                    cpu_set_t *share)
{
    int node_of[CPU_SETSIZE] = { 0 }, node = -1;
    unsigned char is_used[NODES_MAX] = { 0 };
    unsigned nodes = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, allowed)) continue;
        node_of[i] = read_node(sysfs, i);
        nodes += !is_used[node_of[i]];
        is_used[node_of[i]] = 1;
    }
    unsigned before = part * nodes / parts + 1;
    while (before && ++node < NODES_MAX)
        before -= is_used[node];
    CPU_ZERO(share);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, allowed) && node_of[i] == node) CPU_SET(i, share);
    return node;
}

/* ---- one start ------------------------------------------------------------------------------- */

psrt_status_t psrti_binding_choose(const psrti_launch_t *launch, psrti_binding_t *binding)
{
    cpu_set_t allowed;
    *binding = (psrti_binding_t){ .node = -1 };
    if (!launch->bind) return PSRT_OK;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return psrti_fail(PSRT_ERR_LIMIT, "sched_getaffinity: %s", strerror(errno));
    if (launch->bind == PSRTI_BIND_NUMA)
        binding->node = psrti_bind_node(PSRTI_BIND_SYSFS, &allowed, launch->bind_part,
                                        launch->bind_parts, &binding->cpus);
    else
        psrti_bind_share(PSRTI_BIND_SYSFS, &allowed, launch->bind_part, launch->bind_parts,
                         &binding->cpus);
    return PSRT_OK;
}

/* A node without free memory is no reason to fail: what is preferred may come from elsewhere. The kernel reads one
 * bit less than it is told. */
static void prefer_memory(int node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / BITS] = { 0 };
    mask[node / BITS] = 1UL << node % BITS;
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)NODES_MAX + 1))
        psrti_debug("memory is not bound to NUMA node %d: %s", node, strerror(errno));
}

int psrti_binding_apply(const psrti_binding_t *binding)
{
    if (sched_setaffinity(0, sizeof binding->cpus, &binding->cpus)) return 0;
    if (binding->node >= 0) prefer_memory(binding->node);
    return 1;
}

void psrti_binding_text(const psrti_binding_t *binding, char *text, size_t size)
{
    size_t pos = 0;
    *text = '\0';
    if (binding->node < 0) return;
    psrti_append(text, size, &pos, "NUMA node %d, processors", binding->node);
    for (int i = 0, end, count = 0; i < CPU_SETSIZE; i = end) {
        for (end = i + 1;
             CPU_ISSET(i, &binding->cpus) && end < CPU_SETSIZE && CPU_ISSET(end, &binding->cpus);)
            end++;
        if (!CPU_ISSET(i, &binding->cpus)) continue;
        psrti_append(text, size, &pos, "%s%d", count++ ? "," : " ", i);
        if (end > i + 1) psrti_append(text, size, &pos, "-%d", end - 1);
    }
}
