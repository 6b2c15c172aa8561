/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/jobfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/compat/psdrun.h"
#include "launcher/contract.h"
#include "launcher/exports.h"
#include "launcher/hosts.h"
#include "launcher/indices.h"
#include "launcher/inherit.h"
#include "launcher/jsonread.h"
#include "launcher/logfile.h"
#include "launcher/netif.h"

#define FILE_MAX (64 << 20)
#define CPUS_MAX 4096.0
#define RESTARTS_MAX 1000000.0

#define FIELD(key_type, key_name, member, ...)                                                     \
    {                                                                                              \
        .name = #key_name, .type = key_type, .offset = offsetof(OBJECT, member), __VA_ARGS__       \
    }

/* ---- environment ----------------------------------------------------------------------------- */

static psrt_status_t read_variable(psrti_reader_t *r, const char *name, const json_t *value,
                                   psrti_env_t *env)
{
    if (!*name || strchr(name, '=')) return psrti_reader_fail(r, "not a name of a variable");
    if (psrti_contract_env_is_reserved(name))
        return psrti_reader_fail(r, "set by psrt-launch itself");
    if (json_is_null(value) && !getenv(name))
        return psrti_reader_fail(r, "null passes the present value on, but it is not set");
    if (!json_is_null(value) && !json_is_string(value))
        return psrti_reader_wrong(r, value, "a text, or null for the present value");
    psrti_env_set(env, name, json_is_null(value) ? getenv(name) : json_string_value(value));
    return PSRT_OK;
}

static psrt_status_t read_env(psrti_reader_t *r, const json_t *value, psrti_env_t *env)
{
    const char *name;
    json_t *text;
    if (!json_is_object(value)) return psrti_reader_wrong(r, value, "an object {...}");
    json_object_foreach((json_t *)value, name, text)
    {
        size_t back = psrti_reader_enter(r, name);
        psrt_status_t st = read_variable(r, name, text, env);
        if (st) return st;
        psrti_reader_back(r, back);
    }
    return PSRT_OK;
}

/* ---- restart, volumes, constraints ----------------------------------------------------------- */

static psrt_status_t read_codes(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_restart_t *restart = object;
    const size_t count = json_array_size(value);
    if (!json_is_array(value)) return psrti_reader_wrong(r, value, "a list of exit codes");
    memset(restart->codes, 0, sizeof restart->codes);
    for (size_t i = 0; i < count; i++) {
        const json_t *code = json_array_get(value, i);
        json_int_t n = json_integer_value(code);
        size_t back = psrti_reader_enter_index(r, i);
        if (!json_is_integer(code) || n < 0 || n > 255)
            return psrti_reader_wrong(r, code, "an exit code from 0 to 255");
        restart->codes[n / 8] |= (uint8_t)(1u << n % 8);
        psrti_reader_back(r, back);
    }
    restart->codes_set = 1;
    return PSRT_OK;
}

#define OBJECT psrti_restart_t
static const char *const restart_words[] = { "never", "on-failure", "always", NULL };
static const psrti_key_t restart_keys[] = {
    FIELD(PSRTI_KEY_WORD, when, when, .words = restart_words),
    FIELD(PSRTI_KEY_COUNT, limit, limit, .max = RESTARTS_MAX),
    FIELD(PSRTI_KEY_TIME, backoff, backoff_ns),
    FIELD(PSRTI_KEY_TIME, backoff_max, backoff_max_ns),
    FIELD(PSRTI_KEY_TIME, healthy, healthy_ns),
    { .name = "codes", .type = PSRTI_KEY_READ, .read = read_codes },
};
#undef OBJECT

/* "on-failure" is short for {"when": "on-failure"}. */
static psrt_status_t read_restart(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_restart_t *restart = &((psrti_role_t *)object)->restart;
    if (!json_is_string(value))
        return psrti_read_object(r, value, restart_keys, PSRTI_COUNT(restart_keys), restart);
    json_t *full = json_pack("{sO}", "when", value);
    psrt_status_t st = psrti_read_object(r, full, restart_keys, PSRTI_COUNT(restart_keys), restart);
    json_decref(full);
    return st;
}

#define OBJECT psrti_volume_t
static const psrti_key_t volume_keys[] = {
    FIELD(PSRTI_KEY_TEXT, source, source),
    FIELD(PSRTI_KEY_TEXT, target, target),
    FIELD(PSRTI_KEY_BOOL, read_only, read_only),
};
#undef OBJECT

static psrt_status_t read_volumes(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_role_t *role = object;
    if (!json_is_array(value)) return psrti_reader_wrong(r, value, "a list of volumes");
    psrti_role_clear_volumes(role);
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t back = psrti_reader_enter_index(r, i);
        psrti_volume_t *volume = psrti_role_add_volume(role);
        psrt_status_t st = psrti_read_object(r, json_array_get(value, i), volume_keys,
                                             PSRTI_COUNT(volume_keys), volume);
        if (st) return st;
        if (!volume->source || !volume->target)
            return psrti_reader_fail(r, "a volume needs source and target");
        psrti_reader_back(r, back);
    }
    return PSRT_OK;
}

static psrt_status_t read_constraint(psrti_reader_t *r, const json_t *value, psrti_role_t *role)
{
    char **words;
    psrt_status_t st = psrti_read_texts(r, value, &words);
    if (st) return st;
    st = psrti_role_add_constraint(role, words);
    for (char **word = words; *word; word++)
        free(*word);
    free(words);
    return st ? psrti_reader_fail(r, "%s", psrt_last_error()) : PSRT_OK;
}

static psrt_status_t read_constraints(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_role_t *role = object;
    if (!json_is_array(value))
        return psrti_reader_wrong(r, value, "a list such as [[\"hostname\", \"UNIQUE\"]]");
    psrti_role_clear_constraints(role);
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t back = psrti_reader_enter_index(r, i);
        psrt_status_t st = read_constraint(r, json_array_get(value, i), role);
        if (st) return st;
        psrti_reader_back(r, back);
    }
    return PSRT_OK;
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* A role as it stands in the document; what stands there together is judged together. */
typedef struct role_text {
    psrti_role_t role;
    unsigned count, min; /* UINT_MAX: not given */
    char **argv, *command;
    int shell;
} role_text_t;

static psrt_status_t read_role_env(psrti_reader_t *r, const json_t *value, void *object)
{
    return read_env(r, value, &((psrti_role_t *)object)->env);
}

static psrt_status_t read_argv(psrti_reader_t *r, const json_t *value, void *object)
{
    role_text_t *text = object;
    psrt_status_t st = psrti_read_texts(r, value, &text->argv);
    if (!st && !*text->argv[0]) st = psrti_reader_fail(r, "the first text names the program");
    return st;
}

#define OBJECT role_text_t
static const char *const kind_words[] = { "coordinator", "server", "worker", "other", NULL };
static const char *const success_words[] = { "default", "all", "any", "none", NULL };
static const psrti_key_t role_keys[] = {
    FIELD(PSRTI_KEY_WORD, kind, role.kind, .words = kind_words),
    FIELD(PSRTI_KEY_COUNT, count, count, .max = PSRTI_JOB_TASKS_MAX),
    FIELD(PSRTI_KEY_COUNT, min, min, .max = PSRTI_JOB_TASKS_MAX),
    { .name = "argv", .type = PSRTI_KEY_READ, .read = read_argv },
    FIELD(PSRTI_KEY_TEXT, command, command),
    FIELD(PSRTI_KEY_BOOL, shell, shell),
    FIELD(PSRTI_KEY_REAL, cpus, role.cpus, .max = CPUS_MAX),
    FIELD(PSRTI_KEY_MEMORY, mem, role.mem_mb),
    FIELD(PSRTI_KEY_COUNT, gpus, role.gpus, .max = PSRTI_JOB_GPUS_MAX),
    FIELD(PSRTI_KEY_COUNT, ports, role.ports, .min = 1, .max = PSRTI_JOB_PORTS_MAX),
    { .name = "env", .type = PSRTI_KEY_READ, .read = read_role_env },
    FIELD(PSRTI_KEY_TEXT, image, role.image),
    FIELD(PSRTI_KEY_TEXT, directory, role.directory),
    FIELD(PSRTI_KEY_TEXT, virtualenv, role.virtualenv),
    { .name = "volumes", .type = PSRTI_KEY_READ, .read = read_volumes },
    { .name = "constraints", .type = PSRTI_KEY_READ, .read = read_constraints },
    { .name = "restart", .type = PSRTI_KEY_READ, .read = read_restart },
    FIELD(PSRTI_KEY_WORD, success, role.success, .words = success_words),
    FIELD(PSRTI_KEY_TIME, grace, role.grace_ns),
};
#undef OBJECT

static psrt_status_t take_command(psrti_reader_t *r, role_text_t *text)
{
    if (text->argv && text->command)
        return psrti_reader_fail(r, "argv and command are two ways to say one thing; give one");
    if (text->command && !text->shell)
        return psrti_reader_fail(
            r, "command is a text for /bin/sh: say \"shell\": true, or give \"argv\": [...]");
    if (text->shell && !text->command)
        return psrti_reader_fail(r, "\"shell\": true goes with command");
    if (text->argv) psrti_role_set_argv(&text->role, text->argv);
    if (text->command) psrti_role_set_shell(&text->role, text->command);
    return PSRT_OK;
}

/* A count alone is fixed; with min it is elastic, and starts with as many as there may be. */
static psrt_status_t take_count(psrti_reader_t *r, const role_text_t *text, psrti_role_t *role)
{
    if (text->count != UINT_MAX) psrti_role_set_count(role, text->count);
    if (text->min != UINT_MAX) role->min = text->min;
    if (role->min <= role->count) return PSRT_OK;
    return psrti_reader_fail(r, "min %u is more than count %u", role->min, role->count);
}

static psrt_status_t read_role(psrti_reader_t *r, const char *name, const json_t *value,
                               psrti_job_t *job)
{
    if (!psrti_role_name_is_valid(name))
        return psrti_reader_fail(r, "a role's name is a-z, then a-z 0-9 _ -, up to %d letters",
                                 PSRTI_ROLE_NAME_MAX - 1);
    psrti_role_t *role = psrti_job_role(job, name);
    if (!role) role = psrti_job_add_role(job, name);
    role_text_t text = { .role = *role, .count = UINT_MAX, .min = UINT_MAX };
    psrt_status_t st = psrti_read_object(r, value, role_keys, PSRTI_COUNT(role_keys), &text);
    if (!st) st = take_command(r, &text);
    if (!st) st = take_count(r, &text, &text.role);
    *role = text.role; /* also what was read before an error: it owns that */
    for (char **arg = text.argv; arg && *arg; arg++)
        free(*arg);
    free(text.argv);
    free(text.command);
    return st;
}

static psrt_status_t read_roles(psrti_reader_t *r, const json_t *value, void *object)
{
    const char *name;
    json_t *role;
    if (!json_is_object(value)) return psrti_reader_wrong(r, value, "an object {...}");
    json_object_foreach((json_t *)value, name, role)
    {
        size_t back = psrti_reader_enter(r, name);
        psrt_status_t st = read_role(r, name, role, object);
        if (st) return st;
        psrti_reader_back(r, back);
    }
    return PSRT_OK;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static psrt_status_t read_attributes(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_host_t *host = object;
    const char *name;
    json_t *text;
    if (!json_is_object(value)) return psrti_reader_wrong(r, value, "an object {...}");
    json_object_foreach((json_t *)value, name, text)
    {
        size_t back = psrti_reader_enter(r, name);
        if (!json_is_string(text)) return psrti_reader_wrong(r, text, "a text");
        psrti_env_set(&host->attributes, name, json_string_value(text));
        psrti_reader_back(r, back);
    }
    return PSRT_OK;
}

#define OBJECT psrti_host_t
static const psrti_key_t host_keys[] = {
    FIELD(PSRTI_KEY_TEXT, name, name),
    FIELD(PSRTI_KEY_TEXT, user, user),
    FIELD(PSRTI_KEY_COUNT, port, ssh_port, .min = 1, .max = 65535),
    FIELD(PSRTI_KEY_COUNT, slots, slots, .min = 1, .max = PSRTI_JOB_TASKS_MAX),
    FIELD(PSRTI_KEY_REAL, cpus, cpus, .max = CPUS_MAX),
    FIELD(PSRTI_KEY_MEMORY, mem, mem_mb),
    FIELD(PSRTI_KEY_COUNT, gpus, gpus, .min = 1, .max = PSRTI_JOB_GPUS_MAX),
    { .name = "attributes", .type = PSRTI_KEY_READ, .read = read_attributes },
};
#undef OBJECT

/* "user@host:4", or an object. */
static psrt_status_t read_host(psrti_reader_t *r, const json_t *value, psrti_hosts_t *hosts)
{
    psrti_host_t host = { 0 };
    psrt_status_t st;
    if (json_is_string(value)) {
        st = psrti_hosts_add_text(hosts, json_string_value(value));
    } else {
        st = psrti_read_object(r, value, host_keys, PSRTI_COUNT(host_keys), &host);
        if (st) {
            psrti_host_clear(&host);
            return st;
        }
        if (!host.name) return psrti_reader_fail(r, "a host needs a name");
        st = psrti_hosts_add(hosts, &host);
    }
    return st ? psrti_reader_fail(r, "%s", psrt_last_error()) : PSRT_OK;
}

static psrt_status_t read_hosts(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_hosts_t hosts = { 0 };
    psrt_status_t st = PSRT_OK;
    if (!json_is_array(value) || !json_array_size(value))
        return psrti_reader_wrong(r, value, "a list of hosts that is not empty");
    for (size_t i = 0; i < json_array_size(value) && !st; i++) {
        size_t back = psrti_reader_enter_index(r, i);
        st = read_host(r, json_array_get(value, i), &hosts);
        if (!st) psrti_reader_back(r, back);
    }
    if (st)
        psrti_hosts_clear(&hosts);
    else
        psrti_job_take_hosts(object, &hosts);
    return st;
}

static psrt_status_t read_subnet(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_job_t *job = object;
    if (!json_is_string(value) || psrti_netif_check_subnet(json_string_value(value)))
        return psrti_reader_wrong(r, value, "a network such as 10.1.0.0/16 or fd00::/8");
    psrti_job_set(&job->subnet, json_string_value(value));
    return PSRT_OK;
}

static psrt_status_t read_ssh_options(psrti_reader_t *r, const json_t *value, void *object)
{
    psrti_job_t *job = object;
    char **options = NULL;
    psrt_status_t st = psrti_read_texts(r, value, &options);
    if (st) return st;
    psrti_argv_free(job->ssh_options);
    job->ssh_options = options;
    return PSRT_OK;
}

static psrt_status_t read_hostfile(psrti_reader_t *r, const json_t *value, void *object)
{
    if (!json_is_string(value)) return psrti_reader_wrong(r, value, "the name of a file");
    psrti_hosts_t hosts = { 0 };
    psrt_status_t st = psrti_hosts_load(&hosts, json_string_value(value));
    if (!st) psrti_job_take_hosts(object, &hosts);
    return st;
}

/* ---- job ------------------------------------------------------------------------------------- */

static psrt_status_t read_job_env(psrti_reader_t *r, const json_t *value, void *object)
{
    return read_env(r, value, &((psrti_job_t *)object)->env);
}

static psrt_status_t read_env_file(psrti_reader_t *r, const json_t *value, void *object)
{
    if (!json_is_string(value)) return psrti_reader_wrong(r, value, "the name of a file");
    psrt_status_t st = psrti_export_file(object, json_string_value(value));
    return st ? psrti_reader_fail(r, "%s", psrt_last_error()) : PSRT_OK;
}

static psrt_status_t read_log_limit(psrti_reader_t *r, const json_t *value, void *object)
{
    const char *size = json_string_value(value);
    if (!size || psrti_logfile_parse_limit(size, &((psrti_job_t *)object)->log_limit))
        return psrti_reader_wrong(r, value,
                                  "a size such as \"100MiB\", of 64KiB at least, or \"0\"");
    return PSRT_OK;
}

/* Goes to the tasks as a text. */
static psrt_status_t read_start_timeout(psrti_reader_t *r, const json_t *value, void *object)
{
    uint64_t ns;
    char seconds[32];
    psrt_status_t st = psrti_read_time(r, value, &ns);
    if (st) return st;
    snprintf(seconds, sizeof seconds, "%.9g", json_number_value(value));
    psrti_job_set(&((psrti_job_t *)object)->start_timeout,
                  json_is_string(value) ? json_string_value(value) : seconds);
    return PSRT_OK;
}

static psrt_status_t read_security(psrti_reader_t *r, const json_t *value, void *object)
{
    const char *level = json_string_value(value);
    if (!level || psrti_job_set_security(object, level))
        return psrti_reader_wrong(r, value, "one of encrypted, authenticated, off");
    return PSRT_OK;
}

static psrt_status_t read_ranks(psrti_reader_t *r, const json_t *value, char **ranks)
{
    const char *list = json_string_value(value);
    if (!list || !psrti_indices_valid(list))
        return psrti_reader_wrong(r, value, "a list of workers such as \"0,2-4\", or \"*\"");
    psrti_job_set(ranks, list);
    return PSRT_OK;
}

static psrt_status_t read_worker_logs(psrti_reader_t *r, const json_t *value, void *object)
{
    return read_ranks(r, value, &((psrti_job_t *)object)->worker_logs);
}

static psrt_status_t read_quiet_ranks(psrti_reader_t *r, const json_t *value, void *object)
{
    return read_ranks(r, value, &((psrti_job_t *)object)->quiet_ranks);
}

static psrt_status_t read_coordinator(psrti_reader_t *r, const json_t *value, void *object)
{
    int wanted;
    psrt_status_t st = psrti_read_bool(r, value, &wanted);
    if (!st) ((psrti_job_t *)object)->no_coordinator = !wanted;
    return st;
}

/* Where an editor finds the schema. */
static psrt_status_t skip(psrti_reader_t *r, const json_t *value, void *object)
{
    (void)r, (void)value, (void)object;
    return PSRT_OK;
}

#define OBJECT psrti_job_t
static const char *const bind_words[] = { "none", "cores", "numa", NULL };
static const psrti_key_t job_keys[] = {
    { .name = "$schema", .type = PSRTI_KEY_READ, .read = skip },
    FIELD(PSRTI_KEY_TEXT, name, name),
    FIELD(PSRTI_KEY_TEXT, backend, backend),
    FIELD(PSRTI_KEY_TEXT, iface, interface),
    { .name = "subnet", .type = PSRTI_KEY_READ, .read = read_subnet },
    FIELD(PSRTI_KEY_TIME, connect_timeout, connect_ns),
    FIELD(PSRTI_KEY_COUNT, ssh_port, ssh_port, .min = 1, .max = 65535),
    FIELD(PSRTI_KEY_TEXT, ssh_identity, ssh_identity),
    { .name = "ssh_options", .type = PSRTI_KEY_READ, .read = read_ssh_options },
    { .name = "roles", .type = PSRTI_KEY_READ, .read = read_roles },
    { .name = "hosts", .type = PSRTI_KEY_READ, .read = read_hosts },
    { .name = "hostfile", .type = PSRTI_KEY_READ, .read = read_hostfile },
    FIELD(PSRTI_KEY_TEXT, host_discovery_script, discovery_script),
    FIELD(PSRTI_KEY_TIME, host_discovery_interval, discovery_interval_ns),
    FIELD(PSRTI_KEY_COUNT, slots_per_host, slots_per_host, .min = 1, .max = PSRTI_JOB_TASKS_MAX),
    { .name = "coordinator", .type = PSRTI_KEY_READ, .read = read_coordinator },
    { .name = "env", .type = PSRTI_KEY_READ, .read = read_job_env },
    { .name = "env_file", .type = PSRTI_KEY_READ, .read = read_env_file },
    FIELD(PSRTI_KEY_WORD, inherit_env, inherit, .words = psrti_inherit_words),
    FIELD(PSRTI_KEY_TEXT, log_dir, log_dir),
    { .name = "log_limit", .type = PSRTI_KEY_READ, .read = read_log_limit },
    FIELD(PSRTI_KEY_TIME, timeout, timeout_ns),
    { .name = "start_timeout", .type = PSRTI_KEY_READ, .read = read_start_timeout },
    FIELD(PSRTI_KEY_TIME, launch_timeout, launch_timeout_ns),
    FIELD(PSRTI_KEY_TIME, elastic_timeout, host_wait_ns),
    FIELD(PSRTI_KEY_TIME, grace, grace_ns),
    { .name = "security", .type = PSRTI_KEY_READ, .read = read_security },
    FIELD(PSRTI_KEY_TEXT, transport, transport),
    FIELD(PSRTI_KEY_WORD, bind, bind, .words = bind_words),
    FIELD(PSRTI_KEY_BOOL, quiet, quiet),
    FIELD(PSRTI_KEY_BOOL, no_prefix, no_prefix),
    FIELD(PSRTI_KEY_BOOL, label_host, label_host),
    FIELD(PSRTI_KEY_BOOL, timestamps, timestamps),
    FIELD(PSRTI_KEY_BOOL, detach, detach),
    { .name = "worker_logs", .type = PSRTI_KEY_READ, .read = read_worker_logs },
    { .name = "quiet_ranks", .type = PSRTI_KEY_READ, .read = read_quiet_ranks },
};
#undef OBJECT

/* ---- documents ------------------------------------------------------------------------------- */

static psrt_status_t read_file(const char *path, char **data_p, size_t *size_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return psrti_fail(PSRT_ERR_INVALID, "%s: %s", path, strerror(errno));
    char *data = NULL;
    size_t size = 0;
    ssize_t n = 0;
    do {
        size += (size_t)n;
        data = psrti_xrealloc(data, size + 65536);
        n = read(fd, data + size, 65536);
    } while (n > 0 && size <= FILE_MAX);
    psrt_status_t st = PSRT_OK;
    if (n < 0) st = psrti_fail(PSRT_ERR_INVALID, "%s: %s", path, strerror(errno));
    if (n > 0) st = psrti_fail(PSRT_ERR_INVALID, "%s: above %d bytes", path, FILE_MAX);
    close(fd);
    if (st) {
        free(data);
        return st;
    }
    *data_p = data;
    *size_p = size;
    return PSRT_OK;
}

psrt_status_t psrti_jobfile_parse(const char *path, json_t **document_p)
{
    static const char bom[] = "\xef\xbb\xbf";
    char *data = NULL;
    size_t size = 0;
    json_error_t error;
    psrt_status_t st = read_file(path, &data, &size);
    if (st) return st;
    size_t skipped = size >= 3 && !memcmp(data, bom, 3) ? 3 : 0;
    *document_p = json_loadb(data + skipped, size - skipped,
                             JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    free(data);
    if (*document_p) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "%s:%d:%d: %s", path, error.line, error.column, error.text);
}

psrt_status_t psrti_jobfile_load(psrti_job_t *job, const char *path)
{
    json_t *document;
    psrti_reader_t reader = { .source = path };
    psrt_status_t st = psrti_jobfile_parse(path, &document);
    if (st) return st;
    if (psrti_psdrun_wrote(document))
        st = psrti_psdrun_read(job, document, path);
    else
        st = psrti_read_object(&reader, document, job_keys, PSRTI_COUNT(job_keys), job);
    json_decref(document);
    return st;
}

/* Lists and objects, and null; everything else is the text that it is. */
static json_t *flag_value(const char *text)
{
    json_t *value = NULL;
    if (*text == '[' || *text == '{' || !strcmp(text, "null"))
        value = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

psrt_status_t psrti_jobfile_set(psrti_job_t *job, const char *assignment)
{
    const char *equal = strchr(assignment, '=');
    if (!equal || equal == assignment)
        return psrti_fail(PSRT_ERR_INVALID, "--set %s: not KEY=VALUE, such as roles.worker.cpus=2",
                          assignment);
    psrti_reader_t reader = { .source = "--set", .texts = 1 };
    /* The innermost key first; the path may have dots only between keys. */
    json_t *value = flag_value(equal + 1);
    char *path = psrti_xstrdup(assignment);
    path[equal - assignment] = '\0';
    for (char *dot = path; value && dot;) {
        dot = strrchr(path, '.');
        value = json_pack("{so}", dot ? dot + 1 : path, value);
        if (dot) *dot = '\0';
    }
    free(path);
    if (!value) return psrti_fail(PSRT_ERR_INVALID, "--set %s: not UTF-8", assignment);
    psrt_status_t st = psrti_read_object(&reader, value, job_keys, PSRTI_COUNT(job_keys), job);
    json_decref(value);
    return st;
}
