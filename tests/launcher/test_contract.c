/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders and variables, on a job of two hosts whose numbers are written down here. */
#include "launcher/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/expand.h"
#include "support/test.h"

static char *const command[] = { (char *)"train", NULL };

static void init_job(psrti_job_t *job)
{
    psrti_job_init(job);
    job->no_coordinator = 1;
}

static psrti_role_t *add_role(psrti_job_t *job, const char *name, unsigned count, unsigned ports)
{
    psrti_role_t *role = psrti_job_add_role(job, name);
    role->count = role->min = role->max = count;
    role->ports = ports;
    psrti_role_set_argv(role, command);
    return role;
}

/* Tasks 0 1 2 3 4 5: ps:0 ps:1 chief:0 worker:0 worker:1 evaluator:0, as the roles come; the first
 * half of each kind on host 0. The port n of task t is 7000 + 10 t + n. */
static void plan(psrti_job_t *job, const char *first, const char *second)
{
    const char *addresses[] = { first, second };
    job->hosts = psrti_xcalloc(2, sizeof *job->hosts);
    job->host_count = 2;
    for (size_t i = 0; i < 2; i++) {
        job->hosts[i].name = psrti_xstrdup("unused");
        job->hosts[i].address = psrti_xstrdup(addresses[i]);
    }
    cr_assert(!psrti_job_plan(job), "%s", "the job is not planned");
    unsigned on_host[2][4] = { { 0 } };
    for (size_t t = 0; t < job->task_count; t++) {
        psrti_task_t *task = &job->tasks[t];
        unsigned all = task->role->kind == PSRTI_KIND_SERVER ? job->servers : job->workers;
        task->host = task->rank >= (all + 1) / 2;
        task->local_rank = on_host[task->host][task->role->kind]++;
        for (unsigned p = 0; p < task->role->ports; p++)
            task->ports[p] = (uint16_t)(7000 + 10 * t + p);
    }
    for (size_t t = 0; t < job->task_count; t++)
        job->tasks[t].local_size = on_host[job->tasks[t].host][job->tasks[t].role->kind];
    snprintf(job->coordinator, sizeof job->coordinator, "tcp://10.0.0.1:6999");
    snprintf(job->dir, sizeof job->dir, "/run/job");
}

static void make_job(psrti_job_t *job)
{
    init_job(job);
    add_role(job, "ps", 2, 1);
    add_role(job, "chief", 1, 1);
    add_role(job, "worker", 2, 3);
    add_role(job, "evaluator", 1, 1);
    plan(job, "10.0.0.1", "fd00::2");
}

static void assert_expands(const psrti_job_t *job, size_t task, const char *text,
                           const char *expected)
{
    char *got = psrti_expand(job, &job->tasks[task], text);
    cr_assert_str_eq(got, expected);
    free(got);
}

Test(contract, every_placeholder)
{
    static const struct {
        size_t task;
        const char *text, *expected;
    } cases[] = {
        { 0, "{job_name}:{task_index}", "ps:0" },
        { 1, "{job_name}:{task_index}", "ps:1" },
        { 2, "{job_name}:{task_index}", "chief:0" },
        { 4, "{job_name}:{task_index}", "worker:1" },
        { 0, "{ps_hosts}", "10.0.0.1:7000,[fd00::2]:7010" },
        { 0, "{server_hosts}", "10.0.0.1:7000,[fd00::2]:7010" },
        { 0, "{chief_hosts}", "10.0.0.1:7020" },
        { 5, "{worker_hosts}", "10.0.0.1:7030,[fd00::2]:7040" },
        { 3, "{evaluator_hosts}", "10.0.0.1:7050" },
        { 3, "{host}:{port}", "10.0.0.1:7030" },
        { 4, "{host} {port}", "fd00::2 7040" },
        { 4, "{port0} {port1} {port2}", "7040 7041 7042" },
        { 2, "{rank} {local_rank} {local_size} {node_rank}", "0 0 2 0" },
        { 3, "{rank} {local_rank} {local_size} {node_rank}", "1 1 2 0" },
        { 4, "{rank} {local_rank} {local_size} {node_rank}", "2 0 1 1" },
        { 1, "{rank} {local_rank} {local_size} {node_rank}", "1 0 1 1" },
        { 0, "{world_size} {num_workers} {num_ps}", "3 3 2" },
        { 0, "{coordinator}", "tcp://10.0.0.1:6999" },
        { 0, "{job_dir}/x", "/run/job/x" },
        { 0, "{log_dir}", "/var/log/it" },
    };
    psrti_job_t job;
    make_job(&job);
    psrti_job_set(&job.log_dir, "/var/log/it");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_expands(&job, cases[i].task, cases[i].text, cases[i].expected);
    psrti_job_release(&job);
}

Test(contract, wherever_they_stand)
{
    psrti_job_t job;
    make_job(&job);
    assert_expands(&job, 3, "{task_index}{task_index}", "00");
    assert_expands(&job, 3, "--x={{task_index}}", "--x={0}");
    assert_expands(&job, 3, "{\"type\":\"{job_name}\",\"a\":{\"b\":{}}}",
                   "{\"type\":\"worker\",\"a\":{\"b\":{}}}");
    psrti_job_release(&job);
}

Test(contract, other_braces_stay)
{
    static const char *const texts[] = {
        "",
        "{",
        "}",
        "{}",
        "{{}}",
        "${HOME}",
        "{print $1}",
        "{1..3}",
        "{task_index",
        "{Rank}",
        "{ rank }",
        "{rank:d}",
        "{port3}",
        "{port-1}",
        "{hosts}",
        "{_hosts}",
        "{nobody_hosts}",
        "{portx}",
        "a{b{c}d}e",
        "{averyveryveryveryveryveryveryveryveryverylongname_hosts}",
    };
    psrti_job_t job;
    make_job(&job);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_expands(&job, 4, texts[i], texts[i]);
    psrti_job_release(&job);
}

Test(contract, roles_that_are_not_there)
{
    psrti_job_t job;
    init_job(&job);
    add_role(&job, "chief", 1, 0);
    plan(&job, "h", "h");
    assert_expands(&job, 0, "[{ps_hosts}] [{worker_hosts}] {port}", "[] [] {port}");
    psrti_job_release(&job);
}

Test(contract, an_unknown_port_shows)
{
    psrti_job_t job;
    make_job(&job);
    job.tasks[0].ports[0] = 0;
    free(job.hosts[0].address);
    job.hosts[0].address = NULL;
    assert_expands(&job, 0, "{ps_hosts} {port}", "unused:?,[fd00::2]:7010 ?");
    psrti_job_release(&job);
}

Test(contract, doubled_braces)
{
    psrti_job_t job;
    make_job(&job);
    char *got = psrti_expand_doubled(&job, &job.tasks[4], "{{rank}} {{{rank}}} ${{X}} }}{{ {rank}");
    cr_assert_str_eq(got, "{rank} {2} ${X} }{ 2");
    free(got);
    static const char *const good[] = { "", "{{}}", "{ps_hosts}{{{rank}}}", "{port1}", "}}{{" };
    static const char *const bad[] = { "{",   "}",       "{}",
                                       "{0}", "{print}", "{rank",
                                       "{{}", "{rank}}", "{task_index:02d}" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert(!psrti_expand_check_doubled(&job, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(psrti_expand_check_doubled(&job, bad[i]), PSRT_ERR_INVALID, "%s", bad[i]);
    psrti_job_release(&job);
}

/* ---- environment ----------------------------------------------------------------------------- */

static void assert_env(const psrti_job_t *job, size_t task, const char *name, const char *expected)
{
    psrti_env_t own = { 0 };
    psrti_contract_env(job, &job->tasks[task], &own);
    const char *value = psrti_env_get(&own, name);
    if (expected) {
        cr_assert(value != NULL, "%s is missing", name);
        cr_assert_str_eq(value, expected);
    } else {
        cr_assert(value == NULL, "%s is set", name);
    }
    psrti_env_clear(&own);
}

Test(contract, who_am_i)
{
    static const struct {
        size_t task;
        const char *name, *expected;
    } cases[] = {
        { 1, "PSRT_ROLE", "server" },
        { 1, "PSRT_RANK", "1" },
        { 4, "PSRT_ROLE", "worker" },
        { 4, "PSRT_RANK", "2" },
        { 4, "PSRT_WORKERS", "3" },
        { 4, "PSRT_SERVERS", "2" },
        { 4, "PSRT_COORDINATOR", "tcp://10.0.0.1:6999" },
        { 4, "PSRT_JOB_DIR", "/run/job" },
        { 4, "PSRT_LISTEN_FD", NULL },
        { 4, "RANK", "2" },
        { 4, "LOCAL_RANK", "0" },
        { 4, "WORLD_SIZE", "3" },
        { 4, "LOCAL_WORLD_SIZE", "1" },
        { 4, "GROUP_RANK", "1" },
        { 3, "NODE_RANK", "0" },
        { 4, "MASTER_ADDR", "10.0.0.1" },
        { 4, "MASTER_PORT", "7020" },
        { 1, "RANK", NULL },
        { 1, "MASTER_PORT", NULL },
        { 5, "RANK", NULL },
        { 1, "TFMESOS_PS_HOSTS", "10.0.0.1:7000,[fd00::2]:7010" },
        { 1, "TFMESOS_WORKER_HOSTS", "10.0.0.1:7030,[fd00::2]:7040" },
        { 1, "TFMESOS_JOB_NAME", "ps" },
        { 1, "TFMESOS_TASK_INDEX", "1" },
        { 1, "TFMESOS_DISTRIBUTED", "1" },
        { 5, "TFMESOS_JOB_NAME", NULL },
        { 4, "DMLC_ROLE", NULL },
        { 4, "CUDA_VISIBLE_DEVICES", NULL },
    };
    psrti_job_t job;
    make_job(&job);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_env(&job, cases[i].task, cases[i].name, cases[i].expected);
    psrti_job_release(&job);
}

#define CLUSTER                                                                                    \
    "{\"cluster\":{\"ps\":[\"10.0.0.1:7000\",\"[fd00::2]:7010\"],\"chief\":[\"10.0.0.1:7020\"],"   \
    "\"worker\":[\"10.0.0.1:7030\",\"[fd00::2]:7040\"]},"

Test(contract, tf_config)
{
    psrti_job_t job;
    make_job(&job);
    assert_env(&job, 1, "TF_CONFIG", CLUSTER "\"task\":{\"type\":\"ps\",\"index\":1}}");
    assert_env(&job, 2, "TF_CONFIG", CLUSTER "\"task\":{\"type\":\"chief\",\"index\":0}}");
    assert_env(&job, 4, "TF_CONFIG", CLUSTER "\"task\":{\"type\":\"worker\",\"index\":1}}");
    assert_env(&job, 5, "TF_CONFIG", CLUSTER "\"task\":{\"type\":\"evaluator\",\"index\":0}}");
    psrti_job_release(&job);
}

/* psrtd is no server of TensorFlow, and a worker alone no cluster. */
Test(contract, tf_config_of_those_who_speak_it)
{
    psrti_job_t job;
    psrti_job_init(&job);
    setenv("PSRT_LAUNCH_PSRTD", "/bin/true", 1);
    add_role(&job, "worker", 1, 1);
    psrti_job_add_role(&job, "server");
    plan(&job, "h", "h");
    assert_env(&job, 2, "TF_CONFIG", NULL);
    assert_env(&job, 2, "TFMESOS_PS_HOSTS", "");
    assert_env(&job, 1, "TF_CONFIG", NULL);
    assert_env(&job, 1, "PSRT_LISTEN_FD", "3");
    psrti_job_release(&job);
}

/* A variable that the kernel would refuse keeps no program from starting. */
Test(contract, tf_config_too_long_is_left_out)
{
    psrti_job_t job;
    init_job(&job);
    add_role(&job, "worker", 8000, 1);
    plan(&job, "host.example.org", "other.example.org");
    assert_env(&job, 0, "TF_CONFIG", NULL);
    assert_env(&job, 0, "WORLD_SIZE", "8000");
    psrti_job_release(&job);
}

/* The lists have those that have an address: indices stay what they are. */
Test(contract, who_has_no_host_is_in_no_list)
{
    psrti_job_t job;
    make_job(&job);
    job.tasks[4].host = PSRTI_NO_HOST; /* worker:1, on another host until now */
    job.tasks[4].unplaced = 1;
    assert_expands(&job, 3, "{worker_hosts} {world_size}", "10.0.0.1:7030 3");
    assert_expands(&job, 4, "{host} {job_dir} {node_rank}", "? /run/job 1");
    assert_env(&job, 3, "TFMESOS_WORKER_HOSTS", "10.0.0.1:7030");
    assert_env(&job, 3, "WORLD_SIZE", "3");
    assert_env(&job, 3, "TF_CONFIG",
               "{\"cluster\":{\"ps\":[\"10.0.0.1:7000\",\"[fd00::2]:7010\"],\"chief\":["
               "\"10.0.0.1:7020\"],\"worker\":[\"10.0.0.1:7030\"]},\"task\":{\"type\":\"worker\","
               "\"index\":0}}");
    psrti_job_release(&job);
}

Test(contract, the_coordinator_waits_for_those_with_a_host)
{
    psrti_role_t role = { .kind = PSRTI_KIND_COORDINATOR, .name = (char *)"coordinator" };
    psrti_job_t job;
    make_job(&job);
    job.tasks[5].role = &role;
    assert_env(&job, 5, "PSRT_START_WORKERS", NULL);
    job.tasks[4].unplaced = 1;
    assert_env(&job, 5, "PSRT_START_WORKERS", "2");
    job.tasks[3].unplaced = 1;
    assert_env(&job, 5, "PSRT_START_WORKERS", "1");
    assert_env(&job, 2, "PSRT_START_WORKERS", NULL);
    psrti_job_release(&job);
}

Test(contract, ps_lite)
{
    static const struct {
        size_t task;
        const char *name, *expected;
    } cases[] = {
        { 0, "DMLC_ROLE", "server" },       { 0, "DMLC_SERVER_ID", "0" },
        { 0, "DMLC_WORKER_ID", NULL },      { 1, "DMLC_ROLE", "worker" },
        { 2, "DMLC_WORKER_ID", "1" },       { 2, "DMLC_TASK_ID", "1" },
        { 2, "DMLC_NODE_HOST", "b" },       { 3, "DMLC_ROLE", "scheduler" },
        { 3, "DMLC_WORKER_ID", NULL },      { 0, "DMLC_PS_ROOT_URI", "a" },
        { 0, "DMLC_PS_ROOT_PORT", "7030" }, { 3, "DMLC_NUM_WORKER", "2" },
        { 3, "DMLC_NUM_SERVER", "1" },      { 2, "DMLC_NUM_ATTEMPT", "5" },
    };
    psrti_job_t job;
    init_job(&job);
    add_role(&job, "scheduler", 1, 1);
    add_role(&job, "server", 1, 1);
    add_role(&job, "worker", 2, 1);
    plan(&job, "a", "b");
    job.tasks[2].attempt = 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_env(&job, cases[i].task, cases[i].name, cases[i].expected);
    psrti_job_release(&job);
}

Test(contract, gpus)
{
    psrti_job_t job;
    make_job(&job);
    unsigned *ids = psrti_xcalloc(2, sizeof *ids);
    ids[0] = 3, ids[1] = 1;
    job.tasks[3].gpu_ids = ids;
    job.tasks[3].gpu_count = 2;
    assert_env(&job, 3, "CUDA_VISIBLE_DEVICES", "3,1");
    assert_env(&job, 4, "CUDA_VISIBLE_DEVICES", "");
    psrti_job_release(&job);
}

Test(contract, variables_of_the_user)
{
    psrti_job_t job;
    make_job(&job);
    psrti_env_set(&job.env, "TF_CONFIG", "{\"mine\": {rank}}");
    psrti_env_set(&job.env, "dotted.name", "a\n'\"=");
    psrti_env_set(&job.tasks[4].role->env, "WHERE", "{host}");
    assert_env(&job, 4, "TF_CONFIG", "{\"mine\": 2}");
    assert_env(&job, 4, "dotted.name", "a\n'\"=");
    assert_env(&job, 4, "WHERE", "fd00::2");
    assert_env(&job, 2, "WHERE", NULL);
    psrti_job_release(&job);
}

/* ---- a start --------------------------------------------------------------------------------- */

Test(contract, launch)
{
    static char *const words[] = { (char *)"{host}", (char *)"", (char *)"a b",
                                   (char *)"{x} {rank}", NULL };
    psrti_job_t job;
    psrti_launch_t launch;
    make_job(&job);
    psrti_role_t *role = job.tasks[4].role;
    psrti_role_set_argv(role, words);
    role->directory = psrti_xstrdup("/data/{task_index}");
    role->virtualenv = psrti_xstrdup("/venv");
    setenv("PATH", "/usr/bin", 1);
    setenv("PYTHONHOME", "/elsewhere", 1);
    setenv("MASTER_ADDR", "outer", 1);
    setenv("OTHER", "{rank}", 1);
    psrti_contract_make(&job, &job.tasks[4], &launch);
    cr_assert_str_eq(launch.argv[0], "fd00::2");
    cr_assert_str_eq(launch.argv[1], "");
    cr_assert_str_eq(launch.argv[2], "a b");
    cr_assert_str_eq(launch.argv[3], "{x} 2");
    cr_assert(launch.argv[4] == NULL);
    cr_assert_str_eq(launch.directory, "/data/1");
    cr_assert_str_eq(psrti_env_get(&launch.env, "PATH"), "/venv/bin:/usr/bin");
    cr_assert_str_eq(psrti_env_get(&launch.env, "VIRTUAL_ENV"), "/venv");
    cr_assert_str_eq(psrti_env_get(&launch.env, "OTHER"), "{rank}");
    cr_assert(psrti_env_get(&launch.env, "PYTHONHOME") == NULL);
    cr_assert(!launch.listen);
    psrti_launch_clear(&launch);
    psrti_contract_make(&job, &job.tasks[0], &launch);
    cr_assert(psrti_env_get(&launch.env, "MASTER_ADDR") == NULL);
    cr_assert_str_eq(psrti_env_get(&launch.env, "PATH"), "/usr/bin");
    psrti_launch_clear(&launch);
    psrti_job_release(&job);
}
