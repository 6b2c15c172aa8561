/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/backend.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/remote.h"

static int is_this_machine(const char *host)
{
    char self[256] = "";
    gethostname(self, sizeof self - 1);
    const char *const here[] = { "localhost", "127.0.0.1", "::1", self };
    for (size_t i = 0; i < PSRTI_COUNT(here); i++)
        if (!strcmp(host, here[i])) return 1;
    return 0;
}

/* The first that is another machine; NULL: none. */
static const char *other_machine(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->host_count; i++)
        if (!is_this_machine(job->hosts[i].name)) return job->hosts[i].name;
    return NULL;
}

psrt_status_t psrti_backend_find(const psrti_job_t *job, const psrti_backend_ops_t **ops_p)
{
    const psrti_backend_ops_t *const all[] = { &psrti_backend_local, &psrti_backend_ssh,
                                               &psrti_backend_slurm };
    const char *other = other_machine(job);
    /* Hosts that come may be other machines. */
    const char *name = job->backend ? job->backend : other || job->discovers ? "ssh" : "local";
    for (size_t i = 0; i < PSRTI_COUNT(all); i++) {
        if (strcmp(name, all[i]->name)) continue;
        *ops_p = all[i];
        /* A job that was meant for other machines must not run here in silence. */
        if (all[i] != &psrti_backend_local || !other) return PSRT_OK;
        return psrti_fail(PSRT_ERR_INVALID, "host %s is not this machine, and the backend is local",
                          other);
    }
    int rendered = !strcmp(name, "marathon") || !strcmp(name, "k8s");
    return psrti_fail(PSRT_ERR_INVALID, "backend %s: there are local, ssh and slurm%s%s%s", name,
                      rendered ? "; psrt-launch render " : "", rendered ? name : "",
                      rendered ? " writes the job as a file for it" : "");
}
