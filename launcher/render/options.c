/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/options.h"
#include "launcher/render/render.h"

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

static const char *const flag_names[] = { "dns-domain", "marathon-url", "namespace", "secret",
                                          "base-port",  "image",        "jobset" };
enum { DNS_DOMAIN, MARATHON_URL, NAMESPACE, SECRET, BASE_PORT, IMAGE, JOBSET };

static psrt_status_t set_flag(psrti_render_t *r, size_t flag, const char *value)
{
    psrti_render_params_t *p = &r->params;
    int64_t port;
    if ((flag == JOBSET) != !value)
        return psrti_fail(PSRT_ERR_INVALID, "option --%s %s", flag_names[flag],
                          value ? "takes no argument" : "needs an argument");
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

/* The flag that `word` is, with its value if that stands behind '='; -1: none of these. */
static int find_flag(const char *word, const char **value_p)
{
    if (strncmp(word, "--", 2)) return -1;
    size_t len = strcspn(word += 2, "=");
    for (size_t i = 0; i < PSRTI_COUNT(flag_names); i++)
        if (strlen(flag_names[i]) == len && !strncmp(word, flag_names[i], len)) {
            *value_p = word[len] ? word + len + 1 : NULL;
            return (int)i;
        }
    return -1;
}

/* Its own flags are taken out of the words before "--"; the others are those of every job. */
static psrt_status_t take_flags(psrti_render_t *r, int *argc, char **argv)
{
    int to = 1, from = 1;
    psrt_status_t st = PSRT_OK;
    for (; from < *argc && strcmp(argv[from], "--") && !st; from++) {
        const char *value = NULL;
        int flag = find_flag(argv[from], &value);
        if (flag < 0) {
            argv[to++] = argv[from];
            continue;
        }
        if (flag != JOBSET && !value && from + 1 < *argc && strcmp(argv[from + 1], "--"))
            value = argv[++from];
        st = set_flag(r, (size_t)flag, value);
    }
    while (from < *argc)
        argv[to++] = argv[from++];
    argv[ *argc = to] = NULL;
    return st;
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
    if (!r->run) {
        const char *near = psrti_nearest(name, names, PSRTI_COUNT(names));
        return psrti_fail(PSRT_ERR_INVALID, "render %s: write marathon, k8s or slurm%s%s%s", name,
                          near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    memmove(&argv[1], &argv[3], (size_t)(*argc - 2) * sizeof *argv);
    *argc -= 2;
    psrti_options_also(flag_names, PSRTI_COUNT(flag_names));
    psrt_status_t st = take_flags(r, argc, argv);
    if (st) return st;
    /* getopt moves the words of the original. */
    r->params.words = psrti_argv_copy(argv + 1);
    return PSRT_OK;
}

void psrti_render_clear(psrti_render_t *r)
{
    for (char **word = r->params.words; word && *word; word++)
        free(*word);
    free(r->params.words);
}
