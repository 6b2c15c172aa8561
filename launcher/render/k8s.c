/* SPDX-License-Identifier: Apache-2.0 */
/* Indexed Jobs, one for each role, behind one headless Service; or a JobSet of the same Jobs.
 *
 * A pod is the index'th of its Job, at INDEX = JOB-INDEX.SERVICE. One template serves all of them, so
 * what differs between tasks must come from $(JOB_COMPLETION_INDEX), which Kubernetes expands in
 * arguments and environment: texts are made for a task whose index is a number that nothing else has,
 * and that number is replaced. Ranks of workers behind a chief are the index plus one, which no such
 * expansion can say: a line of shell does. */
#include <stdlib.h>
#include <string.h>

#include "base/jobkey.h"
#include "base/log.h"
#include "base/util.h"
#include "launcher/render/render.h"
#include "launcher/render/yaml.h"

#define LABEL_MAX 63
#define INDEX_MARK 1829384756u
#define RANK_MARK 1829384757u
#define INDEX_TEXT "$(JOB_COMPLETION_INDEX)"
#define KEY_ENTRY "key"
/* A coordinator or server that cannot resolve names yet, or was moved, is started again. */
#define RETRIES 6

/* ---- texts ----------------------------------------------------------------------------------- */

/* `text` with each `mark` replaced; the caller frees it. */
static char *replace(const char *text, unsigned mark, const char *with)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%u", mark);
    size_t step = strlen(digits), count = 0;
    for (const char *at = text; (at = strstr(at, digits)); at += step)
        count++;
    char *out = psrti_xcalloc(strlen(text) + count * strlen(with) + 1, 1), *to = out;
    for (const char *at; (at = strstr(text, digits)); text = at + step) {
        to = mempcpy(to, text, (size_t)(at - text));
        to = stpcpy(to, with);
    }
    strcpy(to, text);
    return out;
}

/* For Kubernetes $( begins an expansion and $$ is a plain $. */
static char *escape(const char *text)
{
    char *out = psrti_xcalloc(2 * strlen(text) + 1, 1), *to = out;
    for (; *text; *to++ = *text++)
        if (text[0] == '$' && (text[1] == '$' || text[1] == '(')) *to++ = '$';
    return out;
}

static json_t *expanded(const char *text)
{
    char *plain = escape(text), *indexed = replace(plain, INDEX_MARK, INDEX_TEXT);
    json_t *value = json_string(indexed);
    free(plain);
    free(indexed);
    return value;
}

/* "NAME" of each variable that is the rank and nothing else, for the shell to set; others take the
 * index. ERR_INVALID when the rank stands inside another text. */
static psrt_status_t environment(const psrti_task_t *t, const psrti_render_text_t *text,
                                 json_t *env, json_t *ranks)
{
    char rank[16];
    const char *name;
    json_t *value;
    snprintf(rank, sizeof rank, "%u", RANK_MARK);
    json_object_foreach(text->env, name, value)
    {
        /* A pod is a node of its own. */
        int is_node = !strcmp(name, "NODE_RANK") || !strcmp(name, "GROUP_RANK");
        const char *v = is_node ? json_string_value(json_object_get(text->env, "RANK"))
                                : json_string_value(value);
        if (!strcmp(v, rank))
            json_array_append_new(ranks, json_string(name));
        else if (strstr(v, rank))
            return psrti_fail(
                PSRT_ERR_INVALID,
                "role %s: %s uses {rank} inside a text, which k8s cannot expand behind a "
                "chief: use {task_index}, or RANK in the task",
                t->role->name, name);
        else
            json_array_append_new(env,
                                  json_pack("{s: s, s: o}", "name", name, "value", expanded(v)));
    }
    return PSRT_OK;
}

static psrt_status_t arguments(const psrti_task_t *t, const psrti_render_text_t *text,
                               const json_t *ranks, json_t *args)
{
    char rank[16], export[128];
    size_t i;
    json_t *name;
    snprintf(rank, sizeof rank, "%u", RANK_MARK);
    if (json_array_size(ranks)) {
        json_t *line = json_string("");
        json_array_foreach((json_t *)ranks, i, name)
        {
            char *old = strdup(json_string_value(line));
            json_decref(line);
            snprintf(export, sizeof export, "export %s=$((JOB_COMPLETION_INDEX + 1)); ",
                     json_string_value(name));
            line = json_sprintf("%s%s", old, export);
            free(old);
        }
        char *plain = escape(json_string_value(line));
        json_t *script = json_sprintf("%sexec \"$@\"", plain);
        free(plain);
        json_decref(line);
        json_array_append_new(args, json_string("/bin/sh"));
        json_array_append_new(args, json_string("-c"));
        json_array_append_new(args, script);
        json_array_append_new(args, json_string("sh"));
    }
    for (char *const *word = text->launch.argv; *word; word++) {
        if (strstr(*word, rank))
            return psrti_fail(
                PSRT_ERR_INVALID,
                "role %s: {rank} in the command cannot be expanded by k8s behind a chief: "
                "use {task_index}, or RANK in the task",
                t->role->name);
        json_array_append_new(args, expanded(*word));
    }
    return PSRT_OK;
}

/* ---- a role ---------------------------------------------------------------------------------- */

static json_t *labels(const psrti_job_t *job, const psrti_role_t *role)
{
    json_t *l = json_pack("{s: s}", "psrt-job", job->name);
    if (role) json_object_set_new(l, "psrt-role", json_string(role->name));
    return l;
}

static json_t *resources(const psrti_role_t *role)
{
    json_t *amounts = json_object();
    if (role->cpus > 0)
        json_object_set_new(amounts, "cpu", json_sprintf("%.0fm", role->cpus * 1000));
    if (role->mem_mb)
        json_object_set_new(amounts, "memory",
                            json_sprintf("%lluMi", (unsigned long long)role->mem_mb));
    if (role->gpus) json_object_set_new(amounts, "nvidia.com/gpu", json_sprintf("%u", role->gpus));
    return json_pack("{s: O, s: o}", "requests", amounts, "limits", amounts);
}

static void add_volume(json_t *volumes, json_t *mounts, json_t *volume, const char *path,
                       int read_only)
{
    json_t *name = json_sprintf("volume%zu", json_array_size(volumes));
    json_object_set(volume, "name", name);
    json_array_append_new(volumes, volume);
    json_array_append_new(mounts, json_pack("{s: o, s: s, s: b}", "name", name, "mountPath", path,
                                            "readOnly", read_only));
}

static void set_volumes(const psrti_job_t *job, const psrti_render_params_t *p,
                        const psrti_role_t *role, json_t *pod, json_t *container)
{
    json_t *volumes = json_array(), *mounts = json_array();
    for (size_t i = 0; i < role->volume_count; i++) {
        const psrti_volume_t *v = &role->volumes[i];
        add_volume(volumes, mounts, json_pack("{s: {s: s}}", "hostPath", "path", v->source),
                   v->target, v->read_only);
    }
    if (psrti_render_has_key(job)) {
        json_t *name = p->secret ? json_string(p->secret) : json_sprintf("%s-key", job->name);
        add_volume(
            volumes, mounts,
            json_pack("{s: {s: o, s: i}}", "secret", "secretName", name, "defaultMode", 0400),
            PSRTI_RENDER_KEY_DIR, 1);
    }
    json_object_set_new(pod, "volumes", volumes);
    json_object_set_new(container, "volumeMounts", mounts);
}

static json_t *container_ports(const psrti_task_t *t)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < t->role->ports; i++)
        json_array_append_new(all, json_pack("{s: o, s: i}", "name", json_sprintf("port%u", i),
                                             "containerPort", (int)t->ports[i]));
    return all;
}

/* The index as a variable stands first: others refer to it, and only to what stands before them. */
static json_t *index_variable(void)
{
    return json_pack("{s: s, s: {s: {s: s}}}", "name", "JOB_COMPLETION_INDEX", "valueFrom",
                     "fieldRef", "fieldPath",
                     "metadata.annotations['batch.kubernetes.io/job-completion-index']");
}

/* A pod is a node of its own, but the rank of one is not known before it starts. */
static psrt_status_t check_no_node_rank(const psrti_job_t *job, const psrti_role_t *role)
{
    char *const shell[] = { role->shell, NULL };
    char *const *const lists[] = { role->argv, shell, role->env.entries, job->env.entries };
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        for (char *const *word = lists[i]; word && *word; word++)
            if (strstr(*word, "{node_rank}"))
                return psrti_fail(PSRT_ERR_INVALID,
                                  "role %s: {node_rank} cannot be expanded by k8s: use {rank}",
                                  role->name);
    return PSRT_OK;
}

static psrt_status_t pod_of(const psrti_job_t *job, const psrti_render_params_t *p,
                            const psrti_task_t *t, json_t **pod_p)
{
    const psrti_role_t *role = t->role;
    psrti_render_text_t text;
    const char *image = psrti_render_image(job, p, role);
    if (!image)
        return psrti_fail(PSRT_ERR_INVALID,
                          "role %s has no image, and a pod needs one: give \"image\" or --image",
                          role->name);
    psrt_status_t st = check_no_node_rank(job, role);
    if (!st) st = psrti_render_text(job, t, &text);
    if (st) return st;
    json_t *env = json_pack("[o]", index_variable()), *args = json_array(), *ranks = json_array();
    st = environment(t, &text, env, ranks);
    if (!st) st = arguments(t, &text, ranks, args);
    if (st) goto err_text;
    json_t *c =
        json_pack("{s: s, s: s, s: O, s: O, s: o, s: o}", "name", "task", "image", image, "args",
                  args, "env", env, "ports", container_ports(t), "resources", resources(role));
    if (text.launch.directory)
        json_object_set_new(c, "workingDir", expanded(text.launch.directory));
    json_t *pod =
        json_pack("{s: s, s: s, s: I}", "restartPolicy", "Never", "subdomain", job->name,
                  "terminationGracePeriodSeconds", (json_int_t)psrti_render_grace_s(job, role));
    set_volumes(job, p, role, pod, c);
    json_object_set_new(pod, "containers", json_pack("[o]", c));
    *pod_p = pod;
err_text:
    json_decref(env);
    json_decref(args);
    json_decref(ranks);
    psrti_render_text_clear(&text);
    return st;
}

/* ---- its Job --------------------------------------------------------------------------------- */

static int is_psrtd(const psrti_role_t *role)
{
    return role->kind == PSRTI_KIND_COORDINATOR || (!role->argv && !role->shell);
}

/* A pod that a drained or lost node took away is no failure of the program. */
static json_t *failure_policy(const psrti_role_t *role)
{
    json_t *rules = json_pack("[{s: s, s: [{s: s, s: s}]}]", "action", "Ignore", "onPodConditions",
                              "type", "DisruptionTarget", "status", "True");
    json_t *retried = json_array();
    for (int code = 1; code < 256 && role->restart.codes_set; code++)
        if (role->restart.codes[code / 8] >> code % 8 & 1)
            json_array_append_new(retried, json_integer(code));
    if (json_array_size(retried)) {
        json_array_append_new(rules,
                              json_pack("{s: s, s: {s: s, s: O}}", "action", "FailJob",
                                        "onExitCodes", "operator", "NotIn", "values", retried));
    }
    json_decref(retried);
    return json_pack("{s: o}", "rules", rules);
}

static psrt_status_t job_spec(const psrti_job_t *job, const psrti_render_params_t *p,
                              const psrti_task_t *t, json_t **spec_p)
{
    const psrti_role_t *role = t->role;
    json_t *pod = NULL;
    psrt_status_t st = pod_of(job, p, t, &pod);
    if (st) return st;
    json_t *spec =
        json_pack("{s: s, s: i, s: i, s: {s: {s: o}, s: o}}", "completionMode", "Indexed",
                  "completions", (int)role->count, "parallelism", (int)role->count, "template",
                  "metadata", "labels", labels(job, role), "spec", pod);
    unsigned limit = role->restart.when == PSRTI_RESTART_NEVER ? 0 : role->restart.limit;
    if (is_psrtd(role)) {
        json_object_set_new(spec, "backoffLimit", json_integer(PSRTI_MAX(limit, RETRIES)));
    } else {
        json_object_set_new(spec, "backoffLimitPerIndex", json_integer(limit));
        json_object_set_new(spec, "maxFailedIndexes", json_integer(0));
    }
    json_object_set_new(spec, "podFailurePolicy", failure_policy(role));
    if (job->timeout_ns)
        json_object_set_new(spec, "activeDeadlineSeconds",
                            json_integer((json_int_t)(job->timeout_ns / PSRTI_NS_PER_S)));
    *spec_p = spec;
    return PSRT_OK;
}

static json_t *object(const psrti_job_t *job, const psrti_render_params_t *p, const char *version,
                      const char *kind, const char *name)
{
    json_t *meta = json_pack("{s: s, s: o}", "name", name, "labels", labels(job, NULL));
    if (p->kube_namespace) json_object_set_new(meta, "namespace", json_string(p->kube_namespace));
    return json_pack("{s: s, s: s, s: o}", "apiVersion", version, "kind", kind, "metadata", meta);
}

static void add(json_t *documents, json_t *object_taken, const char *key, json_t *body)
{
    json_object_set_new(object_taken, key, body);
    json_array_append_new(documents, object_taken);
}

/* Names of pods, also of those that are not ready: peers look for one another while they start. */
static void add_service(const psrti_job_t *job, const psrti_render_params_t *p, json_t *documents)
{
    add(documents, object(job, p, "v1", "Service", job->name), "spec",
        json_pack("{s: s, s: b, s: {s: s}}", "clusterIP", "None", "publishNotReadyAddresses", 1,
                  "selector", "psrt-job", job->name));
}

static psrt_status_t add_secret(const psrti_job_t *job, const psrti_render_params_t *p,
                                json_t *documents)
{
    if (!psrti_render_has_key(job) || p->secret) return PSRT_OK;
    char text[PSRTI_JOBKEY_TEXT_MAX], name[128];
    psrti_jobkey_t key;
    psrt_status_t st = psrti_jobkey_generate(&key);
    if (st) return st;
    psrti_jobkey_format(&key, text);
    snprintf(name, sizeof name, "%s-key", job->name);
    json_t *secret = object(job, p, "v1", "Secret", name);
    json_object_set_new(secret, "type", json_string("Opaque"));
    add(documents, secret, "stringData", json_pack("{s: s}", KEY_ENTRY, text));
    psrti_jobkey_wipe(&key);
    return PSRT_OK;
}

/* ---- the end of a job ------------------------------------------------------------------------ */

/* psrtd leaves when the workers are done. What else would stay is ended by a Job of its own, which
 * waits for those that decide. */
static int needs_end(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].success == PSRTI_SUCCESS_NONE && !is_psrtd(&job->roles[i])) return 1;
    return 0;
}

static const char end_script[] =
    "api=https://kubernetes.default.svc/apis/batch/v1/namespaces/$NAMESPACE/jobs\n"
    "account=/var/run/secrets/kubernetes.io/serviceaccount\n"
    "call() {\n"
    "    printf 'Authorization: Bearer %s' \"$(cat $account/token)\" |\n"
    "        curl -fsS --cacert $account/ca.crt -H @- \"$@\"\n"
    "}\n"
    "state() { call \"$api/$1\" | tr -d ' \\n' | grep -Eo '\"type\":\"(Complete|Failed)\",\"status\":\"True\"'; }\n"
    "while :; do\n"
    "    left=0 failed=0\n"
    "    for job in $DECIDE; do\n"
    "        case $(state \"$job\") in\n"
    "        *Failed*) failed=1 ;;\n"
    "        *Complete*) ;;\n"
    "        *) left=1 ;;\n"
    "        esac\n"
    "    done\n"
    "    [ $left -eq 0 ] || [ $failed -eq 1 ] && break\n"
    "    sleep 5\n"
    "done\n"
    "rest=$FOLLOW\n"
    "[ $failed -eq 0 ] || rest=\"$DECIDE $FOLLOW\"\n"
    "for job in $rest; do\n"
    "    call -X DELETE \"$api/$job?propagationPolicy=Background\" >/dev/null\n"
    "done\n"
    "exit $failed\n";

static json_t *names_of(const psrti_job_t *job, int deciding)
{
    json_t *names = json_string("");
    for (size_t i = 0; i < job->role_count; i++) {
        const psrti_role_t *role = &job->roles[i];
        if ((role->success != PSRTI_SUCCESS_NONE) != deciding || (!deciding && is_psrtd(role)))
            continue;
        json_t *longer = json_sprintf("%s%s%s-%s", json_string_value(names),
                                      *json_string_value(names) ? " " : "", job->name, role->name);
        json_decref(names);
        names = longer;
    }
    return names;
}

static json_t *end_pod(const psrti_job_t *job, const char *image, const char *account)
{
    json_t *env =
        json_pack("[{s: s, s: {s: {s: s}}}, {s: s, s: o}, {s: s, s: o}]", "name", "NAMESPACE",
                  "valueFrom", "fieldRef", "fieldPath", "metadata.namespace", "name", "DECIDE",
                  "value", names_of(job, 1), "name", "FOLLOW", "value", names_of(job, 0));
    json_t *c = json_pack("{s: s, s: s, s: [s, s, s], s: o}", "name", "end", "image", image,
                          "command", "/bin/sh", "-c", end_script, "env", env);
    return json_pack("{s: s, s: s, s: [o]}", "serviceAccountName", account, "restartPolicy",
                     "OnFailure", "containers", c);
}

static void add_end(const psrti_job_t *job, const psrti_render_params_t *p, json_t *documents)
{
    char name[128];
    snprintf(name, sizeof name, "%s-end", job->name);
    json_array_append_new(documents, object(job, p, "v1", "ServiceAccount", name));
    add(documents, object(job, p, "rbac.authorization.k8s.io/v1", "Role", name), "rules",
        json_pack("[{s: [s], s: [s], s: [s, s]}]", "apiGroups", "batch", "resources", "jobs",
                  "verbs", "get", "delete"));
    json_t *binding = object(job, p, "rbac.authorization.k8s.io/v1", "RoleBinding", name);
    json_object_set_new(binding, "subjects",
                        json_pack("[{s: s, s: s}]", "kind", "ServiceAccount", "name", name));
    add(documents, binding, "roleRef",
        json_pack("{s: s, s: s, s: s}", "apiGroup", "rbac.authorization.k8s.io", "kind", "Role",
                  "name", name));
    add(documents, object(job, p, "batch/v1", "Job", name), "spec",
        json_pack("{s: i, s: {s: {s: o}, s: o}}", "backoffLimit", RETRIES, "template", "metadata",
                  "labels", labels(job, NULL), "spec",
                  end_pod(job, psrti_render_image(job, p, &job->roles[0]), name)));
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Every task has an address of its own, so all may use the same ports. */
static psrt_status_t place(psrti_job_t *job, const psrti_render_params_t *p, psrti_task_t *t)
{
    unsigned port = p->base_port;
    char host[256];
    snprintf(host, sizeof host, p->jobset ? "%s-%s-0-%u.%s" : "%s-%s-%u.%s", job->name,
             t->role->name, t->index, job->name);
    if (t->index != INDEX_MARK && strcspn(host, ".") > LABEL_MAX)
        return psrti_fail(PSRT_ERR_INVALID,
                          "%s: names of pods have at most %d characters: shorten the job's name",
                          host, LABEL_MAX);
    return psrti_render_place(job, t, host, &port);
}

static psrt_status_t lay_out(psrti_job_t *job, const psrti_render_params_t *p)
{
    psrt_status_t st = psrti_render_check_label("job", job->name, LABEL_MAX);
    for (size_t i = 0; i < job->role_count && !st; i++)
        st = psrti_render_check_label("role", job->roles[i].name, LABEL_MAX);
    if (st) return st;
    psrti_render_clear_places(job);
    for (size_t i = 0; i < job->task_count && !st; i++)
        st = place(job, p, &job->tasks[i]);
    return st;
}

/* One task with the marks in place of index and rank stands for all of its role. */
static psrt_status_t spec_of_role(psrti_job_t *job, const psrti_render_params_t *p,
                                  psrti_role_t *role, json_t **spec_p)
{
    int follows = role->kind == PSRTI_KIND_WORKER && strcmp(role->name, "chief") &&
                  psrti_job_role(job, "chief");
    uint16_t ports[PSRTI_JOB_PORTS_MAX] = { 0 };
    psrti_task_t t = { .role = role,
                       .index = INDEX_MARK,
                       .rank = follows ? RANK_MARK : INDEX_MARK,
                       .local_size = 1,
                       .ports = ports };
    snprintf(t.name, sizeof t.name, "%s", role->name);
    psrt_status_t st = place(job, p, &t);
    if (!st) st = job_spec(job, p, &t, spec_p);
    return st;
}

static psrt_status_t add_jobs(psrti_job_t *job, const psrti_render_params_t *p, json_t *documents)
{
    char name[128];
    json_t *spec = NULL;
    for (size_t i = 0; i < job->role_count; i++) {
        psrti_role_t *role = &job->roles[i];
        psrt_status_t st = role->count ? spec_of_role(job, p, role, &spec) : PSRT_OK;
        if (st) return st;
        snprintf(name, sizeof name, "%s-%s", job->name, role->name);
        if (role->count) add(documents, object(job, p, "batch/v1", "Job", name), "spec", spec);
    }
    if (needs_end(job)) add_end(job, p, documents);
    return PSRT_OK;
}

/* A JobSet makes the service, ends when those that decide are done, and then ends the rest. */
static psrt_status_t add_jobset(psrti_job_t *job, const psrti_render_params_t *p, json_t *documents)
{
    json_t *jobs = json_array(), *deciding = json_array(), *spec = NULL;
    psrt_status_t st = PSRT_OK;
    for (size_t i = 0; i < job->role_count && !st; i++) {
        psrti_role_t *role = &job->roles[i];
        if (role->count) st = spec_of_role(job, p, role, &spec);
        if (st || !role->count) continue;
        json_array_append_new(jobs, json_pack("{s: s, s: i, s: {s: o}}", "name", role->name,
                                              "replicas", 1, "template", "spec", spec));
        if (role->success != PSRTI_SUCCESS_NONE)
            json_array_append_new(deciding, json_string(role->name));
    }
    if (!st)
        add(documents, object(job, p, "jobset.x-k8s.io/v1alpha2", "JobSet", job->name), "spec",
            json_pack("{s: {s: b, s: s, s: b}, s: {s: s, s: O}, s: {s: i}, s: O}", "network",
                      "enableDNSHostnames", 1, "subdomain", job->name, "publishNotReadyAddresses",
                      1, "successPolicy", "operator", "All", "targetReplicatedJobs", deciding,
                      "failurePolicy", "maxRestarts", 0, "replicatedJobs", jobs));
    json_decref(jobs);
    json_decref(deciding);
    return st;
}

psrt_status_t psrti_render_k8s(psrti_job_t *job, const psrti_render_params_t *p, FILE *out)
{
    json_t *documents = json_array();
    psrt_status_t st = lay_out(job, p);
    if (!st && !p->jobset) add_service(job, p, documents);
    if (!st) st = add_secret(job, p, documents);
    if (!st) st = p->jobset ? add_jobset(job, p, documents) : add_jobs(job, p, documents);
    for (size_t i = 0; i < json_array_size(documents) && !st; i++)
        psrti_yaml_write(out, json_array_get(documents, i));
    json_decref(documents);
    return st;
}
