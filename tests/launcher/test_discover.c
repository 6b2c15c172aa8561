/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that a script lists: what it may print, what is made of it when it does not, what changes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/discover.h"
#include "launcher/hosts.h"
#include "launcher/script.h"
#include "support/test.h"

#define LIMIT_MS 20000 /* of what ends by itself */

static char folder[] = "/tmp/psrt-discover-XXXXXX";
static char script[64], list[64], mark[64];

static void write_file(const char *path, const char *text, size_t len, mode_t mode)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, len, file), len);
    fclose(file);
    cr_assert_eq(chmod(path, mode), 0);
}

static void write_script(const char *text) { write_file(script, text, strlen(text), 0755); }

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(script, sizeof script, "%s/script", folder);
    snprintf(list, sizeof list, "%s/list", folder);
    snprintf(mark, sizeof mark, "%s/mark", folder);
    setenv("LIST", list, 1);
    setenv("MARK", mark, 1);
}

static void tear_down(void)
{
    unlink(script);
    unlink(list);
    unlink(mark);
    rmdir(folder);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a process is left");
}

static psrti_job_t a_job(void)
{
    psrti_job_t job;
    char *const argv[] = { (char *)"true", NULL };
    psrti_job_init(&job);
    job.no_coordinator = job.discovers = 1;
    psrti_job_set(&job.discovery_script, script);
    psrti_role_t *role = psrti_job_add_role(&job, "worker");
    psrti_role_set_argv(role, argv);
    psrti_role_set_count(role, 3);
    role->min = 1;
    return job;
}

/* It is no list, for a reason that holds `expect`. */
static void refused(const char *expect, psrt_status_t status, uint64_t limit_ms)
{
    psrti_job_t job = a_job();
    uint64_t begin = psrti_now_ns();
    psrt_status_t st = psrti_discover_first(&job, limit_ms);
    cr_assert_eq(st, status, "%s", psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), expect), "%s, not %s", psrt_last_error(), expect);
    cr_assert_eq(job.host_count, 0);
    cr_assert_lt(psrti_now_ns() - begin, 15 * PSRTI_NS_PER_S);
    psrti_job_release(&job);
}

TestSuite(discover, .init = set_up, .fini = tear_down);

Test(discover, a_list)
{
    psrti_job_t job = a_job();
    job.slots_per_host = 3;
    write_script("#!/bin/sh\necho '# hosts'; printf 'n1\\nme@n2:4 port=2222\\r\\n\\nn3 slots=2'\n");
    cr_assert_eq(psrti_discover_first(&job, LIMIT_MS), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(job.host_count, 3);
    cr_assert_str_eq(job.hosts[0].name, "n1");
    cr_assert_str_eq(job.hosts[1].user, "me");
    cr_assert_str_eq(job.hosts[2].name, "n3");
    cr_assert_eq(job.hosts[0].slots, 3);
    cr_assert_eq(job.hosts[1].slots, 4);
    cr_assert_eq(job.hosts[1].ssh_port, 2222);
    cr_assert_eq(job.hosts[2].slots, 2);
    psrti_job_release(&job);
}

Test(discover, a_place_for_one_worker_unless_said)
{
    psrti_job_t job = a_job();
    write_script("#!/bin/sh\necho n1\n");
    cr_assert_eq(psrti_discover_first(&job, LIMIT_MS), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(job.hosts[0].slots, 1);
    psrti_job_release(&job);
}

Test(discover, what_is_no_list)
{
    write_script("#!/bin/sh\necho n1; echo n2:x\n");
    refused("script:2: slots \"x\": not a number", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script("#!/bin/sh\necho n1; echo; echo n1:2\n");
    refused("script:3: host n1 is there twice", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script("#!/bin/sh\nprintf 'n1\\0n2\\n'\n");
    refused("script:1: a NUL byte", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script("#!/bin/sh\necho '# none'\n");
    refused("script: no host", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script("#!/bin/sh\n");
    refused("script: no host", PSRT_ERR_NOT_FOUND, LIMIT_MS);
}

Test(discover, what_does_not_run)
{
    static const char plain[] = "echo n1\n", missing[] = "#!/no/such\n";
    refused("script: No such file", PSRT_ERR_INVALID, LIMIT_MS);
    write_file(script, plain, strlen(plain), 0644);
    refused("is not executable: chmod +x /tmp/", PSRT_ERR_INVALID, LIMIT_MS);
    write_file(script, plain, strlen(plain), 0755);
    refused("first line must name its interpreter", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_file(script, missing, strlen(missing), 0755);
    refused("No such file or directory; is the interpreter", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    unlink(script);
    mkdir(script, 0755);
    refused("is not a program", PSRT_ERR_INVALID, LIMIT_MS);
    rmdir(script);
}

Test(discover, failures)
{
    write_script("#!/bin/sh\necho n1; exit 3\n");
    refused("ended with code 3", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script("#!/bin/sh\necho n1; kill -9 $$\n");
    refused("ended with code 137", PSRT_ERR_NOT_FOUND, LIMIT_MS);
    write_script(
        "#!/bin/sh\nwhile :; do echo nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn; done\n");
    refused("printed more than 1048576 bytes", PSRT_ERR_NOT_FOUND, LIMIT_MS);
}

static int runs(const char *pid_file)
{
    char pid[32] = "", stat[64], text[512] = "";
    FILE *file = fopen(pid_file, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(pid, sizeof pid, file));
    fclose(file);
    snprintf(stat, sizeof stat, "/proc/%d/stat", atoi(pid));
    file = fopen(stat, "r");
    if (!file) return 0;
    if (!fgets(text, sizeof text, file)) text[0] = '\0';
    fclose(file);
    char *state = strrchr(text, ')');
    return state && state[2] != 'Z';
}

/* With what it started, also in another session. */
Test(discover, one_that_hangs_is_killed)
{
    write_script("#!/bin/sh\nsetsid sh -c 'echo $$ >$MARK; trap \"\" TERM; sleep 1000; :' &\n"
                 "trap '' TERM; while :; do sleep 1000; done\n");
    refused("did not end within 1.0 s", PSRT_ERR_NOT_FOUND, 1000);
    cr_assert(!runs(mark));
}

Test(discover, what_it_leaves_is_not_waited_for)
{
    psrti_job_t job = a_job();
    write_script("#!/bin/sh\nsh -c 'echo $$ >$MARK; exec sleep 1000' &\n"
                 "while [ ! -s $MARK ]; do :; done; echo n1\n");
    uint64_t begin = psrti_now_ns();
    cr_assert_eq(psrti_discover_first(&job, 30000), PSRT_OK, "%s", psrt_last_error());
    cr_assert_lt(psrti_now_ns() - begin, 15 * PSRTI_NS_PER_S);
    cr_assert_eq(job.host_count, 1);
    cr_assert(!runs(mark));
    psrti_job_release(&job);
}

/* Its input is empty, and no descriptor but the standard ones is its own. */
Test(discover, what_it_finds)
{
    psrti_job_t job = a_job();
    int held = open("/dev/null", O_RDONLY); /* leaks, unless somebody sees to it */
    cr_assert_lt(held, 17);
    write_script(
        "#!/bin/sh\nread line; for fd in 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do\n"
        "[ \"$(readlink /proc/$$/fd/$fd)\" = /dev/null ] && echo n$fd; done; echo first\n");
    cr_assert_eq(psrti_discover_first(&job, LIMIT_MS), PSRT_OK, "%s", psrt_last_error());
    cr_assert_str_eq(job.hosts[0].name, "first");
    close(held);
    psrti_job_release(&job);
}

/* ---- while the job runs ---------------------------------------------------------------------- */

typedef struct bench {
    psrti_job_t job;
    uv_loop_t loop;
    uv_timer_t deadline;
    psrti_discovery_t *discovery;
    char seen[4096]; /* "+n2 -n1 " */
    size_t len;
    const char *until;
    int warnings;
    char warning[512];
} bench_t;

static void check_until(bench_t *b)
{
    if (!strstr(b->seen, b->until)) return;
    uv_stop(&b->loop);
}

static void on_added(void *arg, unsigned host)
{
    bench_t *b = arg;
    cr_assert_eq(host + 1, b->job.host_count);
    psrti_append(b->seen, sizeof b->seen, &b->len, "+%s ", b->job.hosts[host].name);
    check_until(b);
}

static void on_named(void *arg, unsigned host, int named)
{
    bench_t *b = arg;
    psrti_append(b->seen, sizeof b->seen, &b->len, "%s%s ", named ? "=" : "-",
                 b->job.hosts[host].name);
    check_until(b);
}

static void on_warned(void *arg, const char *text)
{
    bench_t *b = arg;
    b->warnings++;
    snprintf(b->warning, sizeof b->warning, "%s", text);
    psrti_append(b->seen, sizeof b->seen, &b->len, "! ");
    check_until(b);
}

static void on_deadline(uv_timer_t *timer) { uv_stop(timer->loop); }

static void write_list(const char *text)
{
    char next[80];
    snprintf(next, sizeof next, "%s.next", list);
    write_file(next, text, strlen(text), 0644);
    cr_assert_eq(rename(next, list), 0);
}

static void start(bench_t *b, const char *first)
{
    const psrti_discovery_events_t events = { on_added, on_named, on_warned, b };
    *b = (bench_t){ .job = a_job(), .until = "" };
    b->job.discovery_interval_ns = 5 * PSRTI_NS_PER_MS;
    write_list(first);
    write_script("#!/bin/sh\necho run >>$MARK; cat $LIST\n");
    cr_assert_eq(psrti_discover_first(&b->job, LIMIT_MS), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_job_plan(&b->job), PSRT_OK, "%s", psrt_last_error());
    uv_loop_init(&b->loop);
    uv_timer_init(&b->loop, &b->deadline);
    b->discovery = psrti_discovery_open(&b->loop, &b->job, LIMIT_MS, &events);
}

static void run_until(bench_t *b, const char *text)
{
    b->until = text;
    uv_timer_start(&b->deadline, on_deadline, 30000, 0);
    if (!strstr(b->seen, text)) uv_run(&b->loop, UV_RUN_DEFAULT);
    cr_assert_not_null(strstr(b->seen, text), "no %s in %s", text, b->seen);
}

static size_t run_count(void)
{
    struct stat info;
    return stat(mark, &info) ? 0 : (size_t)info.st_size / 4;
}

/* So many more times, whatever it says. */
static void run_times(bench_t *b, size_t times)
{
    uint64_t until = psrti_now_ns() + 30 * PSRTI_NS_PER_S;
    b->until = "never";
    for (size_t want = run_count() + times; run_count() < want && psrti_now_ns() < until;) {
        uv_timer_start(&b->deadline, on_deadline, 10, 0);
        uv_run(&b->loop, UV_RUN_DEFAULT);
    }
    cr_assert_lt(psrti_now_ns(), until);
}

static void end(bench_t *b)
{
    psrti_discovery_close(b->discovery);
    uv_close((uv_handle_t *)&b->deadline, NULL);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    psrti_discovery_release(b->discovery);
    cr_assert_eq(uv_loop_close(&b->loop), 0);
    psrti_job_release(&b->job);
    while (waitpid(-1, NULL, 0) > 0) {} /* a run that was ended */
}

Test(discover, hosts_come_and_go)
{
    bench_t b = { 0 };
    start(&b, "n1\nn2\n");
    write_list("n2\nn3:2\n");
    run_until(&b, "+n3 ");
    cr_assert_eq(b.job.hosts[2].slots, 2);
    write_list("n3:2\nn1\n");
    run_until(&b, "-n2 ");
    write_list("n1\nn2\nn3:2\n");
    run_until(&b, "=n2 ");
    run_times(&b, 3);
    cr_assert_str_eq(b.seen, "-n1 +n3 =n1 -n2 =n2 ");
    end(&b);
}

Test(discover, the_list_stays_when_there_is_no_new_one)
{
    bench_t b = { 0 };
    start(&b, "n1\nn2\n");
    write_list("n1:x\n");
    run_until(&b, "! ");
    cr_assert_not_null(strstr(b.warning, "script:1: slots \"x\""), "%s", b.warning);
    write_list("# none\n");
    run_times(&b, 3);
    cr_assert_eq(b.warnings, 1);
    write_list("n1\nn2\n");
    run_times(&b, 3);
    unlink(list);
    run_until(&b, "! ! ");
    cr_assert_not_null(strstr(b.warning, "ended with code 1"), "%s", b.warning);
    cr_assert_str_eq(b.seen, "! ! ");
    end(&b);
}

Test(discover, another_size_is_told_once)
{
    bench_t b = { 0 };
    start(&b, "n1\nn2:2\n");
    write_list("n1\nn2:3\n");
    run_until(&b, "! ");
    run_times(&b, 3);
    cr_assert_str_eq(b.seen, "! ");
    cr_assert_not_null(strstr(b.warning, "host n2 is listed with other"), "%s", b.warning);
    cr_assert_eq(b.job.hosts[1].slots, 2);
    end(&b);
}

/* Never two runs at once, and the next one begins when the last has ended. */
Test(discover, the_interval_begins_with_the_end)
{
    bench_t b = { 0 };
    start(&b, "n1\n");
    write_script(
        "#!/bin/sh\nmkdir $LIST.d || echo n9; echo run >>$MARK; sleep 0.1; rmdir $LIST.d; cat $LIST\n");
    run_times(&b, 4);
    cr_assert_str_eq(b.seen, "");
    end(&b);
    char held[80];
    snprintf(held, sizeof held, "%s.d", list);
    rmdir(held);
}

Test(discover, a_run_does_not_hold_up_the_end)
{
    bench_t b = { 0 };
    start(&b, "n1\n");
    write_script("#!/bin/sh\necho run >>$MARK; sleep 1000\n");
    run_times(&b, 1);
    uint64_t begin = psrti_now_ns();
    end(&b);
    cr_assert_lt(psrti_now_ns() - begin, 15 * PSRTI_NS_PER_S);
}

Test(discover, what_goes_together)
{
    psrti_job_t job = a_job();
    job.roles[0].min = 3;
    cr_assert_eq(psrti_discover_check(&job), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "add --min-workers"), "%s", psrt_last_error());
    job.roles[0].min = 1;
    cr_assert_eq(psrti_discover_check(&job), PSRT_OK);
    psrti_job_set(&job.backend, "slurm");
    cr_assert_eq(psrti_discover_check(&job), PSRT_ERR_INVALID);
    psrti_job_set(&job.backend, "ssh");
    cr_assert_eq(psrti_discover_check(&job), PSRT_OK);
    psrti_job_set(&job.discovery_script, NULL);
    cr_assert_eq(psrti_discover_check(&job), PSRT_OK);
    job.slots_per_host = 2;
    cr_assert_eq(psrti_discover_check(&job), PSRT_ERR_INVALID);
    psrti_job_release(&job);
}
