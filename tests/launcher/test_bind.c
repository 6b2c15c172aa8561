/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "support/test.h"

static void write_id(const char *dir, const char *name, int id)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fprintf(file, "%d\n", id);
    fclose(file);
}

/* Two packages of two cores of two threads, numbered as Linux does: first threads first. */
static void make_machine(char *root)
{
    cr_assert(mkdtemp(root));
    for (int cpu = 0; cpu < 8; cpu++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/cpu%d", root, cpu);
        cr_assert_eq(mkdir(dir, 0700), 0);
        snprintf(dir, sizeof dir, "%s/cpu%d/topology", root, cpu);
        cr_assert_eq(mkdir(dir, 0700), 0);
        write_id(dir, "physical_package_id", cpu % 4 / 2);
        write_id(dir, "core_id", cpu % 2);
    }
}

static void remove_machine(const char *root)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    cr_assert_eq(system(command), 0);
}

static void expect(const char *root, const char *allowed, unsigned part, unsigned parts,
                   const char *expected)
{
    cpu_set_t from, share;
    char text[64] = "";
    size_t pos = 0;
    CPU_ZERO(&from);
    for (; *allowed; allowed++)
        CPU_SET(*allowed - '0', &from);
    psrti_bind_share(root, &from, part, parts, &share);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &share)) psrti_append(text, sizeof text, &pos, "%d", cpu);
    cr_assert_str_eq(text, expected);
}

Test(bind, whole_cores_of_one_package)
{
    char root[] = "/tmp/bind-XXXXXX";
    make_machine(root);
    expect(root, "01234567", 0, 1, "01234567");
    expect(root, "01234567", 0, 2, "0145"); /* the first package */
    expect(root, "01234567", 1, 2, "2367");
    expect(root, "01234567", 1, 4, "15");
    expect(root, "01234567", 0, 3, "04"); /* 4 cores among 3 */
    expect(root, "01234567", 2, 3, "2367");
    remove_machine(root);
}

Test(bind, only_what_is_allowed)
{
    char root[] = "/tmp/bind-XXXXXX";
    make_machine(root);
    expect(root, "137", 0, 2, "1");
    expect(root, "137", 1, 2, "37");
    remove_machine(root);
}

Test(bind, more_parts_than_cores)
{
    char root[] = "/tmp/bind-XXXXXX";
    make_machine(root);
    expect(root, "04", 0, 3, "04");
    expect(root, "04", 2, 3, "04");
    expect(root, "01", 2, 3, "0");
    remove_machine(root);
}

Test(bind, without_a_topology_each_processor_is_a_core)
{
    expect("/nothing", "0123", 1, 2, "23");
    expect("/nothing", "0123", 0, 4, "0");
}
