/* SPDX-License-Identifier: Apache-2.0 */
/* Agents started with OpenSSH's client, whose configuration (jump hosts, keys, ports) holds. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "launcher/env.h"
#include "launcher/login.h"

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static char *format(const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    return len < 0 ? psrti_xstrdup("") : text;
}

/* Options of the user come first: ssh takes the first value that it gets. */
static char **make_argv(const psrti_job_t *job, unsigned host, const char *command)
{
    const psrti_host_t *h = &job->hosts[host];
    const char *program = getenv("PSRT_LAUNCH_SSH");
    unsigned timeout = (unsigned)(job->connect_ns / PSRTI_NS_PER_S);
    size_t options = 0, n = 0;
    while (job->ssh_options && job->ssh_options[options])
        options++;
    char **argv = psrti_xcalloc(2 * options + 24, sizeof *argv);
    argv[n++] = psrti_xstrdup(program ? program : "ssh");
    for (size_t i = 0; i < options; i++) {
        argv[n++] = psrti_xstrdup("-o");
        argv[n++] = psrti_xstrdup(job->ssh_options[i]);
    }
    argv[n++] = psrti_xstrdup("-T"); /* no terminal: it would change what is sent */
    argv[n++] = psrti_xstrdup("-oBatchMode=yes");
    argv[n++] = format("-oConnectTimeout=%u", PSRTI_MIN(PSRTI_MAX(timeout, 1), 10));
    argv[n++] = psrti_xstrdup("-oServerAliveInterval=5");
    argv[n++] = psrti_xstrdup("-oServerAliveCountMax=3");
    unsigned port = h->ssh_port ? h->ssh_port : job->ssh_port;
    if (port) argv[n++] = format("-p%u", port);
    if (h->user) argv[n++] = format("-l%s", h->user);
    if (job->ssh_identity) argv[n++] = format("-i%s", job->ssh_identity);
    argv[n++] = psrti_xstrdup("--");
    argv[n++] = psrti_xstrdup(h->name);
    argv[n++] = psrti_xstrdup(command);
    return argv;
}

PSRTI_LOGIN_BACKEND(ssh, make_argv);
