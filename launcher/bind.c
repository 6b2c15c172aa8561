/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/bind.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

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
