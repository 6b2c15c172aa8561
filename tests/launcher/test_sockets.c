/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "support/test.h"

/* 0, or errno: what a program meets that binds a port, perhaps with SO_REUSEADDR. */
static int try_bind(uint16_t port, int reuse)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    int error = bind(fd, (struct sockaddr *)&addr, sizeof addr) || listen(fd, 1) ? errno : 0;
    close(fd);
    return error;
}

static int try_connect(uint16_t port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int error = connect(fd, (struct sockaddr *)&addr, sizeof addr) ? errno : 0;
    close(fd);
    return error;
}

static void make_job(psrti_job_t *job)
{
    char *const argv[] = { (char *)"true", NULL };
    psrti_job_init(job);
    psrti_role_t *role = psrti_job_add_role(job, "worker");
    psrti_role_set_count(role, 2);
    psrti_role_set_argv(role, argv);
    role->ports = 3;
    setenv("PSRT_LAUNCH_PSRTD", "/bin/true", 1); /* of the coordinator, which is not run here */
    cr_assert_eq(psrti_job_plan(job), PSRT_OK, "%s", psrt_last_error());
}

Test(sockets, ports_are_kept_until_released)
{
    psrti_job_t job;
    psrti_sockets_t sockets;
    make_job(&job);
    cr_assert_eq(psrti_sockets_open(&sockets, &job), PSRT_OK, "%s", psrt_last_error());
    for (size_t t = 1; t < job.task_count; t++) {
        const psrti_task_t *task = &job.tasks[t];
        for (unsigned i = 0; i < task->role->ports; i++) {
            cr_assert_neq(task->ports[i], 0);
            cr_assert_eq(try_bind(task->ports[i], 0), EADDRINUSE);
            cr_assert_eq(try_bind(task->ports[i], 1), EADDRINUSE);
            cr_assert_eq(try_connect(task->ports[i]), ECONNREFUSED);
        }
    }
    /* A guardian that is just starting has a copy. */
    int copy = dup(psrti_sockets_of(&sockets, &job.tasks[1])[0]);
    psrti_sockets_release(&sockets, &job.tasks[1]);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(try_bind(job.tasks[1].ports[i], 0), 0);
        cr_assert_eq(try_bind(job.tasks[2].ports[i], 0), EADDRINUSE);
    }
    psrti_sockets_release(&sockets, &job.tasks[1]); /* before each restart */
    close(copy);
    psrti_sockets_close(&sockets);
    cr_assert_eq(try_bind(job.tasks[2].ports[0], 0), 0);
    psrti_job_release(&job);
}

Test(sockets, who_is_handed_one_is_listened_for)
{
    psrti_job_t job;
    psrti_sockets_t sockets;
    make_job(&job);
    cr_assert_eq(psrti_sockets_open(&sockets, &job), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(job.tasks[0].role->kind, PSRTI_KIND_COORDINATOR);
    cr_assert_eq(try_connect(job.tasks[0].ports[0]), 0);
    psrti_sockets_close(&sockets);
    psrti_job_release(&job);
}
