/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/render/render.h"

enum { IMAGE, BASE_PORT, SECRET, DNS_DOMAIN, MARATHON_URL, NAMESPACE, JOBSET };

#define PORT_DEFAULT 2222 /* what TensorFlow's examples use */

typedef psrt_status_t (*render_fn)(psrti_job_t *job, const psrti_render_params_t *params,
                                   FILE *out);

static const struct kind {
    const char *name;
    render_fn run;
} kinds[] = {
    { "marathon", psrti_render_marathon },
    { "k8s", psrti_render_k8s },
    { "slurm", psrti_render_slurm },
};

const psrti_flag_t psrti_render_flags[PSRTI_RENDER_FLAGS] = {
    [IMAGE] = { "image", 0, "IMAGE", "image of roles that have none" },
    [BASE_PORT] = { "base-port", 0, "N",
                    "first port; default 2222. Marathon: every task has its own;\nKubernetes: the same for all" },
    [SECRET] = { "secret", 0, "NAME",
                 "existing secret with the job's key. Marathon: default job-key;\n"
                 "Kubernetes: default: one is made, and stands in the file" },
    [DNS_DOMAIN] = { "dns-domain", 0, "D",
                     "Marathon: domain of Mesos-DNS; default marathon.mesos" },
    [MARATHON_URL] = { "marathon-url", 0, "URL",
                       "Marathon: whoever ends the job deletes its group there" },
    [NAMESPACE] = { "namespace", 0, "NS", "Kubernetes: namespace of all objects" },
    [JOBSET] = { "jobset", 0, NULL, "Kubernetes: a JobSet in place of Jobs" },
};

static psrt_status_t take_flag(void *arg, size_t flag, const char *value)
{
    psrti_render_t *r = arg;
    psrti_render_params_t *p = &r->params;
    int64_t port;
    if (r->run == psrti_render_slurm)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "--%s is for marathon and k8s; its counterpart in Slurm stands in options "
            "of sbatch",
            psrti_render_flags[flag].name);
    switch (flag) {
    case DNS_DOMAIN: p->dns_domain = value; break;
    case MARATHON_URL: p->marathon_url = value; break;
    case NAMESPACE: p->kube_namespace = value; break;
    case SECRET: p->secret = value; break;
    case IMAGE: p->image = value; break;
    case JOBSET: p->jobset = 1; break;
    default:
        if (psrti_parse_i64(value, 1, 65535, &port))
            return psrti_fail(PSRT_ERR_INVALID, "--base-port %s: not a port from 1 to 65535",
                              value);
        p->base_port = (unsigned)port;
    }
    return PSRT_OK;
}

psrt_status_t psrti_render_options(int *argc, char **argv, psrti_render_t *r)
{
    const char *names[PSRTI_COUNT(kinds)], *name = *argc > 2 ? argv[2] : "";
    *r =
        (psrti_render_t){ .params = { .dns_domain = "marathon.mesos", .base_port = PORT_DEFAULT } };
    for (size_t i = 0; i < PSRTI_COUNT(kinds); i++) {
        names[i] = kinds[i].name;
        if (!strcmp(name, kinds[i].name)) r->run = kinds[i].run;
    }
    int help = !strcmp(name, "--help") || !strcmp(name, "-h");
    if (!r->run && !help) {
        const char *near = psrti_nearest(name, names, PSRTI_COUNT(names));
        return psrti_fail(PSRT_ERR_INVALID,
                          "render%s%s: write marathon, k8s or slurm behind it%s%s%s",
                          *name ? " " : "", name, near ? "; did you mean " : "", near ? near : "",
                          near ? "?" : "");
    }
    int taken = help ? 1 : 2;
    memmove(&argv[1], &argv[1 + taken], (size_t)(*argc - taken) * sizeof *argv);
    *argc -= taken;
    r->flags = (psrti_verb_flags_t){ psrti_render_flags, PSRTI_RENDER_FLAGS, take_flag, r };
    psrti_options_also(&r->flags);
    r->params.words = psrti_argv_copy(argv + 1);
    return PSRT_OK;
}

void psrti_render_clear(psrti_render_t *r)
{
    for (char **word = r->params.words; word && *word; word++)
        free(*word);
    free(r->params.words);
}
