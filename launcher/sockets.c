/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "launcher/contract.h"
#include "launcher/netif.h"

/* A socket that is handed over listens where the job's tasks dial, from now on: what dials before
 * the task runs, or while it is restarted, waits. One that is released is only bound, to all
 * addresses, since nobody knows which of them the program will want. Port 0: the system chooses. */
static int bind_port(const char *address, int handed_over, uint16_t *port_p)
{
    struct sockaddr_storage addr;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&addr;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&addr;
    if (!psrti_netif_sockaddr(address, *port_p, &addr)) {
        errno = EINVAL;
        return -1;
    }
    if (!handed_over && addr.ss_family == AF_INET) v4->sin_addr.s_addr = htonl(INADDR_ANY);
    if (!handed_over && addr.ss_family == AF_INET6) v6->sin6_addr = in6addr_any;
    socklen_t len = addr.ss_family == AF_INET ? sizeof *v4 : sizeof *v6;
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* Without SO_REUSEADDR: with it another program that sets it too could take the port, as long as
     * nobody listens there. */
    if (bind(fd, (struct sockaddr *)&addr, len) || (handed_over && listen(fd, SOMAXCONN)) ||
        getsockname(fd, (struct sockaddr *)&addr, &len)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port_p = ntohs(addr.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    return fd;
}

static void close_fds(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
}

psrt_status_t psrti_sockets_bind(psrti_sockets_t *sockets, psrti_task_t *task)
{
    const psrti_job_t *job = sockets->job;
    int *fds = sockets->fds[task->id];
    for (unsigned i = 0; i < task->role->ports; i++) {
        if (fds[i] >= 0) continue;
        fds[i] = bind_port(job->hosts[task->host].address, psrti_contract_takes_sockets(task),
                           &task->ports[i]);
        if (fds[i] < 0)
            return psrti_fail(PSRT_ERR_IO, "%s: binding port %u: %s", task->name, task->ports[i],
                              strerror(errno));
    }
    return PSRT_OK;
}

psrt_status_t psrti_sockets_open(psrti_sockets_t *sockets, psrti_job_t *job)
{
    *sockets = (psrti_sockets_t){ .job = job,
                                  .fds = psrti_xcalloc(job->task_count, sizeof *sockets->fds) };
    psrt_status_t st = PSRT_OK;
    for (size_t t = 0; t < job->task_count; t++) {
        unsigned ports = job->tasks[t].role->ports;
        sockets->fds[t] = psrti_xcalloc(ports, sizeof(int));
        memset(sockets->fds[t], -1, ports * sizeof(int));
        if (!st && job->tasks[t].host < job->host_count)
            st = psrti_sockets_bind(sockets, &job->tasks[t]);
    }
    if (st) psrti_sockets_close(sockets);
    return st;
}

void psrti_sockets_close(psrti_sockets_t *sockets)
{
    for (size_t t = 0; t < sockets->job->task_count && sockets->fds; t++) {
        close_fds(sockets->fds[t], sockets->job->tasks[t].role->ports);
        free(sockets->fds[t]);
    }
    free(sockets->fds);
    sockets->fds = NULL;
}

const int *psrti_sockets_of(const psrti_sockets_t *sockets, const psrti_task_t *task)
{
    return sockets->fds[task->id];
}

/* Closing would not do: a guardian that was forked a moment ago and has not come to close what it
 * inherited still holds the port. The end of listening gives a port that the system chose back,
 * whoever else has the socket. */
void psrti_sockets_release(psrti_sockets_t *sockets, const psrti_task_t *task)
{
    int *fds = sockets->fds[task->id];
    for (unsigned i = 0; i < task->role->ports; i++) {
        if (fds[i] < 0) continue;
        listen(fds[i], 0);
        shutdown(fds[i], SHUT_RDWR);
    }
    close_fds(fds, task->role->ports);
}
