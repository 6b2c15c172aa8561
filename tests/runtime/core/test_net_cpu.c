/* SPDX-License-Identifier: Apache-2.0 */
/* Where the threads of a net's transports run. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "runtime/core/net.h"
#include "support/test.h"

static psrti_config_t *config;
static psrti_jobkey_t key;

static void setup(void)
{
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
}

static void teardown(void) { psrti_config_destroy(config); }

TestSuite(net_cpu, .init = setup, .fini = teardown);

/* This thread's mask afterwards: the first `count` CPUs of it. How many there are. */
static int keep_cpus(int count, cpu_set_t *kept)
{
    cr_assert_eq(sched_getaffinity(0, sizeof *kept, kept), 0);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, kept) && seen++ >= count) CPU_CLR(cpu, kept);
    cr_assert_eq(sched_setaffinity(0, sizeof *kept, kept), 0);
    return CPU_COUNT(kept);
}

static int is_of_libzmq(const char *tid)
{
    char path[300], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", tid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int got = fgets(name, sizeof name, f) != NULL;
    fclose(f);
    return got && strncmp(name, "ZMQbg", 5) == 0;
}

/* The mask of all of libzmq's threads that have their names; how many these are. */
static unsigned named_io_mask(cpu_set_t *mask)
{
    unsigned found = 0;
    DIR *dir = opendir("/proc/self/task");
    cr_assert_not_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        cpu_set_t one;
        pid_t tid = atoi(e->d_name);
        if (!tid || !is_of_libzmq(e->d_name)) continue;
        cr_assert_eq(sched_getaffinity(tid, sizeof one, &one), 0);
        cr_assert(!found++ || CPU_EQUAL(mask, &one));
        *mask = one;
    }
    closedir(dir);
    return found;
}

/* A thread names itself when it first runs: one for I/O and the reaper. */
static void io_mask(cpu_set_t *mask)
{
    uint64_t deadline = psrti_now_ns() + 30 * PSRTI_NS_PER_S;
    while (named_io_mask(mask) < 2) {
        cr_assert(psrti_now_ns() < deadline, "libzmq has no threads");
        usleep(1000);
    }
}

static void mask_of(psrti_role_t role, uint32_t rank, int control, cpu_set_t *mask)
{
    psrti_net_params_t p = { .config = config,
                             .key = &key,
                             .task = PSRTI_TASK(role, rank),
                             .incarnation = 1,
                             .transports = "zmq",
                             .listen = role == PSRTI_SERVER,
                             .listen_fd = -1,
                             .control = control };
    psrti_net_t *net;
    cr_assert_eq(psrti_net_open(&p, &net), PSRT_OK, "%s", psrt_last_error());
    io_mask(mask);
    psrti_net_close(net);
}

Test(net_cpu, with_two_cores_worker_and_server_and_neighbours_get_one_each)
{
    cpu_set_t own, server, worker, next, after;
    if (keep_cpus(2, &own) < 2) cr_skip_test("one core only");
    mask_of(PSRTI_SERVER, 0, 0, &server);
    mask_of(PSRTI_WORKER, 0, 0, &worker);
    mask_of(PSRTI_WORKER, 1, 0, &next);
    cr_assert_eq(CPU_COUNT(&server), 1);
    cr_assert_eq(CPU_COUNT(&worker), 1);
    cr_assert_not(CPU_EQUAL(&server, &worker));
    cr_assert_not(CPU_EQUAL(&next, &worker));
    cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
    cr_assert(CPU_EQUAL(&own, &after), "the caller's own mask");
}

Test(net_cpu, the_control_plane_runs_anywhere)
{
    cpu_set_t own, mask;
    keep_cpus(2, &own);
    mask_of(PSRTI_WORKER, 0, 1, &mask);
    cr_assert(CPU_EQUAL(&own, &mask));
}

Test(net_cpu, unless_it_is_off)
{
    cpu_set_t own, mask;
    keep_cpus(2, &own);
    cr_assert_eq(psrti_config_set(config, "PSRT_PIN_IO", "off"), PSRT_OK);
    mask_of(PSRTI_WORKER, 0, 0, &mask);
    cr_assert(CPU_EQUAL(&own, &mask));
}

Test(net_cpu, one_core_is_no_choice)
{
    cpu_set_t own, mask;
    keep_cpus(1, &own);
    mask_of(PSRTI_WORKER, 0, 0, &mask);
    cr_assert(CPU_EQUAL(&own, &mask));
}
