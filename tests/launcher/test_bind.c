/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "support/test.h"

static void make_dir(const char *dir) { cr_assert_eq(mkdir(dir, 0700), 0); }

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
        make_dir(dir);
        snprintf(dir, sizeof dir, "%s/cpu%d/topology", root, cpu);
        make_dir(dir);
        write_id(dir, "physical_package_id", cpu % 4 / 2);
        write_id(dir, "core_id", cpu % 2);
    }
}

/* As Linux shows it: node_of[i] - '0' is the node of processor i. */
static void add_nodes(const char *root, const char *node_of)
{
    for (int cpu = 0; node_of[cpu]; cpu++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/cpu%d/node%c", root, cpu, node_of[cpu]);
        make_dir(dir);
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

static void expect_node(const char *root, const char *allowed, unsigned part, unsigned parts,
                        const char *expected)
{
    psrti_binding_t binding = { 0 };
    char text[PSRTI_BINDING_TEXT];
    cpu_set_t from;
    CPU_ZERO(&from);
    for (; *allowed; allowed++)
        CPU_SET(*allowed - '0', &from);
    binding.node = psrti_bind_node(root, &from, part, parts, &binding.cpus);
    psrti_binding_text(&binding, text, sizeof text);
    cr_assert_str_eq(text, expected);
}

Test(bind, nodes_in_order)
{
    char root[] = "/tmp/bind-XXXXXX";
    make_machine(root);
    add_nodes(root, "00330033"); /* nodes need not be numbered one after the other */
    expect_node(root, "01234567", 0, 2, "NUMA node 0, processors 0-1,4-5");
    expect_node(root, "01234567", 1, 2, "NUMA node 3, processors 2-3,6-7");
    expect_node(root, "01234567", 0, 1, "NUMA node 0, processors 0-1,4-5");
    expect_node(root, "01234567", 1, 4, "NUMA node 0, processors 0-1,4-5"); /* two workers a node */
    expect_node(root, "01234567", 2, 4, "NUMA node 3, processors 2-3,6-7");
    remove_machine(root);
}

Test(bind, nodes_that_are_allowed)
{
    char root[] = "/tmp/bind-XXXXXX";
    make_machine(root);
    add_nodes(root, "01230123");
    expect_node(root, "156", 0, 2, "NUMA node 1, processors 1,5");
    expect_node(root, "156", 1, 2, "NUMA node 2, processors 6");
    expect_node(root, "01234567", 1, 2,
                "NUMA node 2, processors 2,6"); /* spread, not side by side */
    remove_machine(root);
}

Test(bind, without_nodes_all_is_one)
{
    expect_node("/nothing", "0123", 1, 2, "NUMA node 0, processors 0-3");
}

Test(bind, nothing_is_told_without_a_node)
{
    psrti_launch_t launch = { .bind = PSRTI_BIND_CORES, .bind_parts = 1 };
    psrti_binding_t binding;
    char text[PSRTI_BINDING_TEXT] = "x";
    cr_assert_eq(psrti_binding_choose(&launch, &binding), PSRT_OK);
    cr_assert(CPU_COUNT(&binding.cpus) > 0);
    psrti_binding_text(&binding, text, sizeof text);
    cr_assert_str_eq(text, "");
}
