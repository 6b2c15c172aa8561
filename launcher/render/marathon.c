/* SPDX-License-Identifier: Apache-2.0 */
/* A group of Marathon apps: one app of one instance for each task, since each has a place, a port and
 * a text of its own. Marathon starts again whatever ends, also with exit code 0 (facts of 1.4 to 1.11),
 * so a task that is done is held; what ends a job is the deletion of its group. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/render/render.h"

#define LABEL_MAX 63
#define CPUS_DEFAULT 1.0
#define MEM_DEFAULT 1024 /* MB; Marathon's own 128 starts little */
#define SECRET "job-key"
#define SECRET_PATH "job-key/key" /* in the sandbox */

/* What the shell of a task does around its command, "$@": it hands a failure to Marathon, and after success
 * waits to be killed. Mesos sends SIGTERM to every process of a task, so the shell only has to survive it until
 * its command has ended, and then not to wait. */
#define RUN_AND_WAIT                                                                               \
    "stop=; trap stop=1 TERM INT; \"$@\" & pid=$!; wait $pid; code=$?; "                           \
    "while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done; trap - TERM INT; "               \
    "[ $code -eq 0 ] && [ -z \"$stop\" ] || exit $code; "
#define HOLD "echo 'done; held until the group is deleted' >&2; exec sleep infinity"

/* ---- where tasks are ------------------------------------------------------------------------- */

static void app_name(const psrti_task_t *t, char *name, size_t size)
{
    snprintf(name, size, t->role->kind == PSRTI_KIND_COORDINATOR ? "%s" : "%s-%u", t->role->name,
             t->index);
}

/* Mesos-DNS names app /GROUP/APP "APP-GROUP.DOMAIN". Ports differ within the job, so that tasks that
 * share a host and its network do not collide. */
static psrt_status_t lay_out(psrti_job_t *job, const psrti_render_params_t *p)
{
    unsigned port = p->base_port;
    psrti_render_clear_places(job);
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *t = &job->tasks[i];
        char app[128], host[384];
        app_name(t, app, sizeof app);
        snprintf(host, sizeof host, "%s-%s.%s", app, job->name, p->dns_domain);
        psrt_status_t st = psrti_render_check_label("task", app, LABEL_MAX);
        if (!st && strcspn(host, ".") > LABEL_MAX)
            st = psrti_fail(PSRT_ERR_INVALID,
                            "%s: names of hosts have at most %d characters: shorten the job's name",
                            host, LABEL_MAX);
        if (!st) st = psrti_render_place(job, t, host, &port);
        if (st) return st;
    }
    return PSRT_OK;
}

/* ---- an app ---------------------------------------------------------------------------------- */

static json_t *constraints(const psrti_role_t *role)
{
    json_t *all = json_array();
    for (size_t i = 0; i < role->constraint_count; i++) {
        const psrti_constraint_t *c = &role->constraints[i];
        json_t *one = json_pack("[s, s]", c->field, c->op);
        if (c->value) json_array_append_new(one, json_string(c->value));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *container(const psrti_job_t *job, const psrti_role_t *role, const char *image)
{
    json_t *volumes = json_array(), *c = json_pack("{s: s}", "type", "MESOS");
    if (image) json_object_set_new(c, "docker", json_pack("{s: s}", "image", image));
    for (size_t i = 0; i < role->volume_count; i++) {
        const psrti_volume_t *v = &role->volumes[i];
        json_array_append_new(volumes,
                              json_pack("{s: s, s: s, s: s}", "containerPath", v->target,
                                        "hostPath", v->source, "mode", v->read_only ? "RO" : "RW"));
    }
    if (psrti_render_has_key(job))
        json_array_append_new(
            volumes, json_pack("{s: s, s: s}", "containerPath", SECRET_PATH, "secret", SECRET));
    json_object_set_new(c, "volumes", volumes);
    return c;
}

static json_t *ports(const psrti_task_t *t)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < t->role->ports; i++) {
        char name[16];
        snprintf(name, sizeof name, "port%u", i);
        json_array_append_new(all, json_pack("{s: i, s: s, s: s}", "port", (int)t->ports[i],
                                             "protocol", "tcp", "name", name));
    }
    return all;
}

/* Only what serves others is probed: a worker of libpsrt listens when it has joined, and one of another
 * library perhaps never. */
static json_t *health(const psrti_task_t *t)
{
    int is_board = !strcmp(t->role->name, "tensorboard");
    if (!is_board && t->role->kind != PSRTI_KIND_COORDINATOR && t->role->kind != PSRTI_KIND_SERVER)
        return json_array();
    json_t *h =
        json_pack("{s: s, s: i, s: i, s: i, s: i, s: i}", "protocol",
                  is_board ? "MESOS_HTTP" : "MESOS_TCP", "portIndex", 0, "gracePeriodSeconds", 300,
                  "intervalSeconds", 20, "timeoutSeconds", 10, "maxConsecutiveFailures", 3);
    if (is_board) json_object_set_new(h, "path", json_string("/"));
    return json_pack("[o]", h);
}

/* The script around the command of a task; the caller frees it. */
static char *script(const psrti_job_t *job, const psrti_render_params_t *p,
                    const psrti_role_t *role, const char *directory)
{
    static const char take_key[] =
        "umask 077; export PSRT_KEY_FILE=\"$MESOS_SANDBOX/.psrt-key\"; "
        "cat \"$MESOS_SANDBOX/" SECRET_PATH "\" >\"$PSRT_KEY_FILE\" || exit 1; ";
    char end[1024] = "";
    /* A coordinator ends when the workers are done, a chief when it is. */
    int ends_job = role->kind == PSRTI_KIND_COORDINATOR || !strcmp(role->name, "chief");
    if (ends_job && p->marathon_url)
        snprintf(end, sizeof end, "curl -fsS -X DELETE '%s/v2/groups/%s?force=true' >&2; ",
                 p->marathon_url, job->name);
    const char *key = psrti_render_has_key(job) && role->kind != PSRTI_KIND_OTHER ? take_key : "";
    char *words[] = { (char *)directory, NULL };
    char *quoted = psrti_render_quote(words);
    json_t *text = json_sprintf("%s%s%s%s" RUN_AND_WAIT "%s" HOLD, key, directory ? "cd " : "",
                                quoted, directory ? " || exit 1; " : "", end);
    char *copy = psrti_xstrdup(json_string_value(text));
    json_decref(text);
    free(quoted);
    return copy;
}

/* With an image the words are its arguments, so that its entry point stays; without, Marathon takes a
 * line for the shell alone. Both give the command exactly the words of the description. */
static void set_command(json_t *app, int has_image, char *script_text, char *const *argv)
{
    size_t count = 0;
    while (argv[count])
        count++;
    char **words = psrti_xcalloc(count + 5, sizeof *words);
    words[0] = (char *)"/bin/sh", words[1] = (char *)"-c", words[2] = script_text;
    words[3] = (char *)"sh";
    memcpy(&words[4], argv, count * sizeof *words);
    if (has_image) {
        json_t *args = json_array();
        for (char **w = words; *w; w++)
            json_array_append_new(args, json_string(*w));
        json_object_set_new(app, "args", args);
    } else {
        char *line = psrti_render_quote(words);
        json_object_set_new(app, "cmd", json_sprintf("exec %s", line));
        free(line);
    }
    free(words);
}

static psrt_status_t app_of(const psrti_job_t *job, const psrti_render_params_t *p,
                            const psrti_task_t *t, json_t **app_p)
{
    const psrti_role_t *role = t->role;
    const char *image = psrti_render_image(job, p, role);
    char name[128];
    app_name(t, name, sizeof name);
    psrti_render_text_t text;
    psrt_status_t st = psrti_render_text(job, t, &text);
    if (st) return st;
    json_object_del(text.env, "PSRT_KEY_FILE"); /* the script sets it */
    json_t *app = json_pack(
        "{s: s, s: f, s: i, s: i, s: i, s: [{s: s}], s: o, s: b, s: o, s: o, s: o, s: o}", "id",
        name, "cpus", role->cpus > 0 ? role->cpus : CPUS_DEFAULT, "mem",
        (int)(role->mem_mb ? role->mem_mb : MEM_DEFAULT), "gpus", (int)role->gpus, "instances", 1,
        "networks", "mode", "host", "portDefinitions", ports(t), "requirePorts", 1, "constraints",
        constraints(role), "container", container(job, role, image), "env", json_incref(text.env),
        "healthChecks", health(t));
    char *around = script(job, p, role, text.launch.directory);
    set_command(app, image != NULL, around, text.launch.argv);
    free(around);
    if (psrti_render_has_key(job))
        json_object_set_new(
            app, "secrets",
            json_pack("{s: {s: s}}", SECRET, "source", p->secret ? p->secret : SECRET));
    json_object_set_new(app, "labels",
                        json_pack("{s: s, s: s}", "psrt-job", job->name, "psrt-role", role->name));
    json_object_set_new(app, "taskKillGracePeriodSeconds",
                        json_integer((json_int_t)psrti_render_grace_s(job, role)));
    /* The new instance needs the port of the old one. */
    json_object_set_new(
        app, "upgradeStrategy",
        json_pack("{s: f, s: f}", "minimumHealthCapacity", 0.0, "maximumOverCapacity", 0.0));
    psrti_render_text_clear(&text);
    *app_p = app;
    return PSRT_OK;
}

psrt_status_t psrti_render_marathon(psrti_job_t *job, const psrti_render_params_t *p, FILE *out)
{
    psrt_status_t st = psrti_render_check_label("job", job->name, LABEL_MAX);
    if (!st) st = lay_out(job, p);
    if (st) return st;
    json_t *apps = json_array(), *app;
    for (size_t i = 0; i < job->task_count && !st; i++)
        if (!(st = app_of(job, p, &job->tasks[i], &app))) json_array_append_new(apps, app);
    if (!st) {
        char id[128];
        snprintf(id, sizeof id, "/%s", job->name);
        json_t *group = json_pack("{s: s, s: O}", "id", id, "apps", apps);
        json_dumpf(group, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        fputc('\n', out);
        json_decref(group);
    }
    json_decref(apps);
    return st;
}
