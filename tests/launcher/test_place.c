/* SPDX-License-Identifier: Apache-2.0 */
/* Placement against Marathon's rules and by hand. */
#include "launcher/place.h"

#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/hosts.h"
#include "support/test.h"

static void begin(psrti_job_t *job, const char *hosts)
{
    psrti_hosts_t list = { 0 };
    psrti_job_init(job);
    job->no_coordinator = 1;
    cr_assert_eq(psrti_hosts_parse(&list, hosts), PSRT_OK);
    psrti_job_take_hosts(job, &list);
}

static psrti_role_t *add(psrti_job_t *job, const char *name, unsigned count)
{
    psrti_role_t *role = psrti_job_add_role(job, name);
    psrti_role_set_count(role, count);
    psrti_role_set_shell(role, "true");
    return role;
}

static void constrain(psrti_role_t *role, const char *field, const char *op, const char *value)
{
    char *const words[] = { (char *)field, (char *)op, (char *)value, NULL };
    cr_assert_eq(psrti_role_add_constraint(role, words), PSRT_OK, "%s", psrt_last_error());
}

/* "0 0 1 ?": the hosts of the tasks in their order, "?": has none yet; "-": does not fit. */
static void expect(psrti_job_t *job, const char *expected)
{
    char hosts[256] = "";
    size_t pos = 0;
    cr_assert_eq(psrti_job_plan(job), PSRT_OK, "%s", psrt_last_error());
    if (psrti_place(job))
        psrti_append(hosts, sizeof hosts, &pos, "-");
    else
        for (size_t i = 0; i < job->task_count; i++)
            if (job->tasks[i].host == PSRTI_NO_HOST)
                psrti_append(hosts, sizeof hosts, &pos, "%s?", i ? " " : "");
            else
                psrti_append(hosts, sizeof hosts, &pos, "%s%u", i ? " " : "", job->tasks[i].host);
    cr_assert_str_eq(hosts, expected);
}

static void expect_and_end(psrti_job_t *job, const char *expected)
{
    expect(job, expected);
    psrti_job_release(job);
}

Test(place, workers_fill_slots_and_others_spread)
{
    psrti_job_t job;
    begin(&job, "a:2,b:3,c:1");
    add(&job, "ps", 4);
    add(&job, "worker", 5);
    expect(&job, "0 1 2 0 0 0 1 1 1");
    cr_assert_eq(job.tasks[4].local_rank, 0);
    cr_assert_eq(job.tasks[5].local_rank, 1);
    cr_assert_eq(job.tasks[8].local_rank, 2);
    cr_assert_eq(job.tasks[8].local_size, 3);
    psrti_job_release(&job);

    begin(&job, "a:2,b:3,c:1");
    add(&job, "worker", 7);
    expect(&job, "-");
    cr_assert_str_eq(psrt_last_error(), "worker:6 fits on no host: a: all 2 slots taken; b: all 3 "
                                        "slots taken; c: all 1 slots taken");
    psrti_job_release(&job);
}

Test(place, blocks_without_slots)
{
    psrti_job_t job;
    begin(&job, "a,b");
    add(&job, "worker", 5);
    expect_and_end(&job, "0 0 0 1 1");
    begin(&job, "a:1,b,c");
    add(&job, "worker", 5);
    expect_and_end(&job, "0 1 1 2 2");
    begin(&job, "a,b");
    add(&job, "chief", 1);
    add(&job, "worker", 3);
    expect_and_end(&job, "0 0 1 1");
}

Test(place, cpus_and_memory)
{
    psrti_job_t job;
    begin(&job, "a,b");
    job.hosts[0].cpus = 0.3;
    job.hosts[1].cpus = 8;
    job.hosts[1].mem_mb = 1024;
    psrti_role_t *role = add(&job, "worker", 5);
    role->cpus = 0.1;
    role->mem_mb = 512;
    expect_and_end(&job, "0 0 0 1 1");

    begin(&job, "a,b");
    job.hosts[0].cpus = 2;
    job.hosts[1].mem_mb = 100;
    role = add(&job, "worker", 1);
    role->cpus = 4;
    role->mem_mb = 512;
    expect(&job, "-");
    cr_assert_str_eq(psrt_last_error(), "worker:0 fits on no host: a: 2 of 2 cpus free, 4 wanted; "
                                        "b: 100 of 100 MiB free, 512 wanted");
    psrti_job_release(&job);
}

Test(place, gpus_are_nobodys_elses)
{
    psrti_job_t job;
    begin(&job, "a,b");
    job.hosts[0].gpus = 3;
    job.hosts[1].gpus = 4;
    add(&job, "chief", 1)->gpus = 1;
    add(&job, "worker", 3)->gpus = 2;
    expect(&job, "0 0 1 1");
    uint64_t seen[2] = { 0 };
    for (size_t i = 0; i < job.task_count; i++) {
        const psrti_task_t *task = &job.tasks[i];
        cr_assert_eq(task->gpu_count, task->role->gpus);
        for (unsigned k = 0; k < task->gpu_count; k++) {
            uint64_t bit = UINT64_C(1) << task->gpu_ids[k];
            cr_assert(!(seen[task->host] & bit), "GPU %u twice", task->gpu_ids[k]);
            seen[task->host] |= bit;
        }
    }
    cr_assert_eq(seen[0], 7);
    cr_assert_eq(seen[1], 15);
    psrti_job_release(&job);

    begin(&job, "a");
    job.hosts[0].gpus = 3;
    add(&job, "worker", 2)->gpus = 2;
    expect(&job, "-");
    cr_assert_str_eq(psrt_last_error(), "worker:1 fits on no host: a: 1 of 3 GPUs free, 2 wanted");
    psrti_job_release(&job);
}

Test(place, elastic_roles_become_smaller)
{
    psrti_job_t job;
    begin(&job, "a:2,b:1");
    add(&job, "chief", 1);
    add(&job, "worker", 8);
    add(&job, "evaluator", 1)->gpus = 1;
    psrti_job_role(&job, "worker")->min = 2;
    job.hosts[0].gpus = 1;
    expect(&job, "0 0 1 0");
    const psrti_role_t *role = psrti_job_role(&job, "worker");
    cr_assert_eq(role->count, 2);
    cr_assert_eq(role->max, 8);
    cr_assert_eq(job.workers, 3);
    cr_assert_str_eq(job.tasks[3].name, "evaluator:0");
    cr_assert_eq(job.tasks[3].id, 3);
    cr_assert_eq(job.tasks[3].role->gpus, 1);
    cr_assert_eq(job.tasks[3].gpu_ids[0], 0);
    psrti_job_release(&job);

    begin(&job, "a:2,b:1");
    add(&job, "worker", 8)->min = 4;
    expect_and_end(&job, "-");
}

/* ---- hosts that are found while the job runs --------------------------------------------------- */

static psrt_status_t add_host(psrti_job_t *job, const char *name)
{
    psrti_host_t host = { .name = psrti_xstrdup(name), .slots = 1 };
    return psrti_job_add_host(job, &host);
}

Test(place, hosts_are_added_and_stay_where_they_are)
{
    psrti_job_t job;
    begin(&job, "a:1,b:1");
    add(&job, "worker", 1);
    job.discovers = 1;
    cr_assert_eq(psrti_job_plan(&job), PSRT_OK);
    const psrti_host_t *hosts = job.hosts;
    for (size_t i = 2; i < PSRTI_JOB_HOSTS_MAX; i++)
        cr_assert_eq(add_host(&job, "c"), PSRT_OK);
    cr_assert_eq(job.host_count, PSRTI_JOB_HOSTS_MAX);
    cr_assert_eq(job.hosts, hosts);
    cr_assert_str_eq(job.hosts[1].name, "b");
    cr_assert_eq(add_host(&job, "d"), PSRT_ERR_LIMIT);
    cr_assert_str_eq(psrt_last_error(), "host d: the job has had 1024 hosts, and may have no more");
    psrti_job_release(&job);

    begin(&job, "a");
    add(&job, "worker", 1);
    cr_assert_eq(psrti_job_plan(&job), PSRT_OK);
    cr_assert_eq(add_host(&job, "b"), PSRT_ERR_LIMIT); /* not one that discovers hosts */
    psrti_job_release(&job);
}

Test(place, what_does_not_fit_waits_for_hosts)
{
    psrti_job_t job;
    begin(&job, "a:2,b:1");
    job.discovers = 1;
    job.hosts[0].gpus = 2;
    job.hosts[1].gpus = 1;
    add(&job, "chief", 1);
    psrti_role_t *role = add(&job, "worker", 5);
    role->min = 2;
    role->gpus = 1;
    add(&job, "evaluator", 1);
    expect(&job, "0 0 1 ? ? ? 0");
    cr_assert_eq(job.workers, 6); /* ranks are those of all */
    for (size_t i = 0; i < job.task_count; i++)
        cr_assert_eq(job.tasks[i].unplaced, job.tasks[i].host == PSRTI_NO_HOST);
    cr_assert_eq(job.tasks[1].local_size, 2);

    psrti_host_t host = { .name = psrti_xstrdup("c"), .slots = 2, .gpus = 2 };
    cr_assert_eq(psrti_job_add_host(&job, &host), PSRT_OK);
    cr_assert(!psrti_place_allows(&job, &job.tasks[3], 0));
    cr_assert(psrti_place_allows(&job, &job.tasks[3], 2));
    psrti_place_move(&job, &job.tasks[3], 2);
    psrti_place_move(&job, &job.tasks[4], 2);
    cr_assert(!psrti_place_allows(&job, &job.tasks[5], 2));
    cr_assert_eq(job.tasks[3].gpu_ids[0], 0);
    cr_assert_eq(job.tasks[4].gpu_ids[0], 1);
    cr_assert_eq(job.tasks[3].local_size, 2);
    cr_assert_eq(job.tasks[4].local_rank, 1);
    psrti_place_leave(&job.tasks[3]); /* its slot, its GPU and its rank there are free */
    cr_assert(psrti_place_allows(&job, &job.tasks[5], 2));
    psrti_place_move(&job, &job.tasks[5], 2);
    cr_assert_eq(job.tasks[5].gpu_ids[0], 0);
    cr_assert_eq(job.tasks[5].local_rank, 0);
    cr_assert(!psrti_place_allows(&job, &job.tasks[3], 2));
    psrti_job_release(&job);

    begin(&job, "a:2,b:1");
    job.discovers = 1;
    add(&job, "worker", 8)->min = 4;
    expect_and_end(&job, "-");
    begin(&job, "a:2,b:1");
    job.discovers = 1;
    add(&job, "worker", 4); /* not elastic */
    expect_and_end(&job, "-");
}

Test(place, moves_where_there_is_room)
{
    psrti_job_t job;
    begin(&job, "a:2,b:2,c:3");
    job.hosts[0].gpus = 2;
    job.hosts[1].gpus = 3;
    job.hosts[2].gpus = 1;
    psrti_role_t *role = add(&job, "worker", 3);
    role->gpus = 1;
    constrain(role, "hostname", "UNLIKE", "x");
    expect(&job, "0 0 1");
    psrti_task_t *task = &job.tasks[1];
    cr_assert(psrti_place_allows(&job, task, 0));
    cr_assert(psrti_place_allows(&job, task, 1));
    psrti_place_move(&job, task, 1);
    cr_assert_eq(task->host, 1);
    cr_assert_eq(job.tasks[2].gpu_ids[0], 0);
    cr_assert_eq(task->gpu_ids[0], 1); /* not the one of worker:2 */
    cr_assert_eq(task->local_rank, 1);
    cr_assert(!psrti_place_allows(&job, &job.tasks[0], 1)); /* both slots are taken */
    psrti_place_move(&job, task, 2);
    cr_assert(!psrti_place_allows(&job, &job.tasks[0], 2)); /* its GPU is taken */
    cr_assert_eq(task->gpu_ids[0], 0);
    cr_assert_eq(task->local_rank, 0);
    psrti_job_release(&job);

    begin(&job, "a,b");
    role = add(&job, "worker", 2);
    constrain(role, "hostname", "UNIQUE", NULL);
    expect(&job, "0 1");
    cr_assert(!psrti_place_allows(&job, &job.tasks[0], 1));
    cr_assert(psrti_place_allows(&job, &job.tasks[0], 0));
    psrti_job_release(&job);
}

static void racks(psrti_job_t *job, const char *const *names, size_t count)
{
    cr_assert_eq(job->host_count, count);
    for (size_t i = 0; i < count; i++)
        if (names[i]) psrti_env_set(&job->hosts[i].attributes, "rack", names[i]);
}

Test(place, unique_and_max_per)
{
    psrti_job_t job;
    begin(&job, "a,b,c");
    constrain(add(&job, "worker", 3), "hostname", "UNIQUE", NULL);
    expect_and_end(&job, "0 1 2");
    begin(&job, "a,b,c");
    constrain(add(&job, "worker", 4), "hostname", "UNIQUE", NULL);
    expect(&job, "-");
    cr_assert_str_eq(psrt_last_error(), "worker:3 fits on no host: a: hostname UNIQUE; b: hostname "
                                        "UNIQUE; c: hostname UNIQUE");
    psrti_job_release(&job);
    begin(&job, "a,b,c");
    constrain(add(&job, "ps", 5), "hostname", "MAX_PER", "2");
    constrain(add(&job, "worker", 4), "hostname", "max_per", "2");
    expect_and_end(&job, "0 1 2 0 1 0 0 1 1");
}

Test(place, group_by)
{
    static const char *const names[] = { "r1", "r1", "r2", NULL };
    psrti_job_t job;
    begin(&job, "a,b,c,d");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 4), "rack", "GROUP_BY", NULL);
    expect(&job, "0 2 1 2"); /* by turns; d has no rack */
    psrti_job_release(&job);
    begin(&job, "a,b,c,d");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 3), "rack", "GROUP_BY", "3");
    expect_and_end(&job, "-"); /* there are two */
}

Test(place, cluster)
{
    static const char *const names[] = { "r1", "r2", "r2" };
    psrti_job_t job;
    begin(&job, "a:1,b:2,c:2");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 4), "rack", "CLUSTER", NULL);
    expect_and_end(&job, "1 1 2 2"); /* r1 could not hold them */
    begin(&job, "a:4,b:2,c:2");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 2), "rack", "CLUSTER", "r2");
    expect_and_end(&job, "1 1");
}

Test(place, like_unlike_is)
{
    static const char *const names[] = { "v100-a", NULL, "k80" };
    psrti_job_t job;
    begin(&job, "a,b,c");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 2), "rack", "LIKE", "v\\d+.*");
    expect_and_end(&job, "0 0");
    begin(&job, "a,b,c");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 2), "rack", "UNLIKE", "v100.*|k8");
    expect_and_end(&job, "1 2"); /* the whole text matches or does not; nothing is unlike */
    begin(&job, "10.0.0.1,10.0.0.2,10.0.0.20");
    constrain(add(&job, "worker", 2), "hostname", "LIKE", "10\\.0\\.0\\.2|10\\.0\\.0\\.3");
    expect_and_end(&job, "1 1");
    begin(&job, "a,b,c");
    racks(&job, names, PSRTI_COUNT(names));
    constrain(add(&job, "worker", 1), "rack", "IS", "k80");
    expect_and_end(&job, "2");
}
