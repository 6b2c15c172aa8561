/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define PREFIX "PSRT_"
#define SHOWN 64                       /* bytes of a value that an error repeats */
#define WARNED_MAX 64                  /* unknown variables that are warned about in a process */
#define OF_THE_LAUNCHER "PSRT_LAUNCH_" /* a user exports them for all that he starts */
#define ALLOWED_MAX 128

typedef struct setting_def {
    psrti_config_entry_t entry;
    psrti_config_type_t type;
    int64_t min, max;
} setting_def_t;

#define TYPE_NAME_INT "int"
#define TYPE_NAME_BOOL "bool"
#define TYPE_NAME_SIZE "size"
#define TYPE_NAME_DURATION "duration"
#define TYPE_NAME_TEXT "text"
#define TYPE_NAME_ENUM "enum"

static const setting_def_t settings[PSRTI_CONF_COUNT] = {
#define SETTING(id, type, name, def, choices, min, max, doc)                                       \
    { { name, TYPE_NAME_##type, def, choices, doc }, PSRTI_CONFIG_##type, min, max },
    PSRTI_CONFIG_MAP(SETTING)
#undef SETTING
};

static const char *const setting_names[PSRTI_CONF_COUNT] = {
#define SETTING_NAME(id, type, name, def, choices, min, max, doc) name,
    PSRTI_CONFIG_MAP(SETTING_NAME)
#undef SETTING_NAME
};

typedef enum origin { ORIGIN_DEFAULT, ORIGIN_ENVIRONMENT, ORIGIN_SET } origin_t;

struct psrti_config {
    struct {
        char *text;
        int64_t number; /* 0 for TEXT */
        origin_t origin;
    } value[PSRTI_CONF_COUNT];
};

/* PSRTI_CONF_COUNT when there is none. */
static psrti_config_id_t find_setting(const char *name)
{
    unsigned id = 0;
    while (id < PSRTI_CONF_COUNT && strcmp(setting_names[id], name))
        id++;
    return (psrti_config_id_t)id;
}

static psrt_status_t parse_choice(const char *choices, const char *text, int64_t *out)
{
    size_t len = strlen(text);
    for (int64_t index = 0;; index++) {
        size_t choice_len = strcspn(choices, "|");
        if (len == choice_len && !memcmp(text, choices, len)) {
            *out = index;
            return PSRT_OK;
        }
        if (!choices[choice_len]) return PSRT_ERR_INVALID;
        choices += choice_len + 1;
    }
}

/* Bytes and nanoseconds: unsigned text, but kept as int64 as every other number is. */
static psrt_status_t check_quantity(const setting_def_t *def, uint64_t value, int64_t *out)
{
    uint64_t max = def->max ? (uint64_t)def->max : (uint64_t)INT64_MAX;
    if (value < (uint64_t)def->min || value > max) return PSRT_ERR_INVALID;
    *out = (int64_t)value;
    return PSRT_OK;
}

static psrt_status_t parse_value(const setting_def_t *def, const char *text, int64_t *out)
{
    uint64_t quantity;
    int truth;
    psrt_status_t status = PSRT_OK;
    switch (def->type) {
    case PSRTI_CONFIG_INT: return psrti_parse_i64(text, def->min, def->max, out);
    case PSRTI_CONFIG_BOOL:
        status = psrti_parse_bool(text, &truth);
        if (status == PSRT_OK) *out = truth;
        return status;
    case PSRTI_CONFIG_SIZE:
        status = psrti_parse_size(text, &quantity);
        return status == PSRT_OK ? check_quantity(def, quantity, out) : status;
    case PSRTI_CONFIG_DURATION:
        status = psrti_parse_duration(text, &quantity);
        return status == PSRT_OK ? check_quantity(def, quantity, out) : status;
    case PSRTI_CONFIG_ENUM: return parse_choice(def->entry.choices, text, out);
    case PSRTI_CONFIG_TEXT: *out = 0; break;
    }
    return status;
}

static void describe_allowed(const setting_def_t *def, char allowed[ALLOWED_MAX])
{
    size_t pos = 0;
    switch (def->type) {
    case PSRTI_CONFIG_INT:
        psrti_append(allowed, ALLOWED_MAX, &pos, "an integer from %lld to %lld",
                     (long long)def->min, (long long)def->max);
        break;
    case PSRTI_CONFIG_BOOL: psrti_append(allowed, ALLOWED_MAX, &pos, "yes or no"); break;
    case PSRTI_CONFIG_SIZE:
        psrti_append(allowed, ALLOWED_MAX, &pos, "a size such as %s, at least %lld bytes",
                     def->entry.def, (long long)def->min);
        break;
    case PSRTI_CONFIG_DURATION:
        psrti_append(allowed, ALLOWED_MAX, &pos, "a time such as %s, at least %lld ns",
                     def->entry.def, (long long)def->min);
        break;
    case PSRTI_CONFIG_ENUM:
        psrti_append(allowed, ALLOWED_MAX, &pos, "one of %s", def->entry.choices);
        break;
    case PSRTI_CONFIG_TEXT: psrti_append(allowed, ALLOWED_MAX, &pos, "any text"); break;
    }
}

static psrt_status_t illegal_value(const setting_def_t *def, const char *text)
{
    char allowed[ALLOWED_MAX];
    describe_allowed(def, allowed);
    if (!*text)
        return psrti_fail(PSRT_ERR_INVALID,
                          "%s is empty: allowed is %s; unset it for the default %s",
                          def->entry.name, allowed, def->entry.def);
    return psrti_fail(PSRT_ERR_INVALID, "%s=\"%.*s\" is not legal: allowed is %s", def->entry.name,
                      SHOWN, text, allowed);
}

static psrt_status_t assign(psrti_config_t *config, psrti_config_id_t id, const char *text,
                            origin_t origin)
{
    int64_t number;
    psrt_status_t status = parse_value(&settings[id], text, &number);
    if (status != PSRT_OK) return illegal_value(&settings[id], text);
    char *copy = strdup(text);
    if (!copy) return psrti_fail(PSRT_ERR_NO_MEMORY, "%s: out of memory", setting_names[id]);
    free(config->value[id].text);
    config->value[id].text = copy;
    config->value[id].number = number;
    config->value[id].origin = origin;
    return PSRT_OK;
}

/* 1 for the first call with this name in the process, until too many names were seen. */
static int first_warning(uint64_t name_hash)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t warned[WARNED_MAX];
    static size_t warned_count;
    size_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < warned_count && warned[i] != name_hash)
        i++;
    int first = i == warned_count && i < WARNED_MAX;
    if (first) warned[warned_count++] = name_hash;
    pthread_mutex_unlock(&lock);
    return first;
}

static void warn_if_unknown(const char *variable)
{
    char name[128];
    size_t len = strcspn(variable, "=");
    if (len >= sizeof(name)) len = sizeof(name) - 1;
    memcpy(name, variable, len);
    name[len] = '\0';
    if (find_setting(name) != PSRTI_CONF_COUNT ||
        !strncmp(name, OF_THE_LAUNCHER, strlen(OF_THE_LAUNCHER)))
        return;
    if (!first_warning(psrti_hash_bytes(name, len))) return;
    const char *nearest = psrti_nearest(name, setting_names, PSRTI_CONF_COUNT);
    if (nearest)
        psrti_warn("unknown variable %s is ignored, did you mean %s?", name, nearest);
    else
        psrti_warn("unknown variable %s is ignored", name);
}

static psrt_status_t read_environment(psrti_config_t *config)
{
    for (char **variable = environ; variable && *variable; variable++)
        if (!strncmp(*variable, PREFIX, strlen(PREFIX))) warn_if_unknown(*variable);
    for (unsigned id = 0; id < PSRTI_CONF_COUNT; id++) {
        const char *text = getenv(setting_names[id]);
        if (!text) continue;
        psrt_status_t status = assign(config, (psrti_config_id_t)id, text, ORIGIN_ENVIRONMENT);
        if (status != PSRT_OK) return status;
    }
    return PSRT_OK;
}

psrt_status_t psrti_config_create(psrti_config_t **config_p)
{
    psrti_config_t *config = calloc(1, sizeof(*config));
    if (!config) return psrti_fail(PSRT_ERR_NO_MEMORY, "configuration: out of memory");
    psrt_status_t status = PSRT_OK;
    for (unsigned id = 0; id < PSRTI_CONF_COUNT && status == PSRT_OK; id++)
        status = assign(config, (psrti_config_id_t)id, settings[id].entry.def, ORIGIN_DEFAULT);
    if (status == PSRT_OK) status = read_environment(config);
    if (status != PSRT_OK) {
        psrti_config_destroy(config);
        return status;
    }
    *config_p = config;
    return PSRT_OK;
}

void psrti_config_destroy(psrti_config_t *config)
{
    if (!config) return;
    for (size_t id = 0; id < PSRTI_CONF_COUNT; id++)
        free(config->value[id].text);
    free(config);
}

psrt_status_t psrti_config_set(psrti_config_t *config, const char *name, const char *value)
{
    psrti_config_id_t id = find_setting(name);
    if (id == PSRTI_CONF_COUNT) {
        const char *nearest = psrti_nearest(name, setting_names, PSRTI_CONF_COUNT);
        return psrti_fail(PSRT_ERR_INVALID, "unknown setting %.*s%s%s%s", SHOWN, name,
                          nearest ? ", did you mean " : "", nearest ? nearest : "",
                          nearest ? "?" : "");
    }
    psrt_status_t status = assign(config, id, value, ORIGIN_SET);
    if (status == PSRT_OK && id == PSRTI_CONF_LOG_LEVEL)
        psrti_log_set_level((psrt_log_level_t)config->value[id].number);
    return status;
}

int64_t psrti_config_int(const psrti_config_t *config, psrti_config_id_t id)
{
    return config->value[id].number;
}

uint64_t psrti_config_u64(const psrti_config_t *config, psrti_config_id_t id)
{
    return (uint64_t)config->value[id].number;
}

const char *psrti_config_text(const psrti_config_t *config, psrti_config_id_t id)
{
    return config->value[id].text;
}

int psrti_config_is_default(const psrti_config_t *config, psrti_config_id_t id)
{
    return config->value[id].origin == ORIGIN_DEFAULT;
}

const psrti_config_entry_t *psrti_config_entry(psrti_config_id_t id) { return &settings[id].entry; }

const char *psrti_config_origin(const psrti_config_t *config, psrti_config_id_t id)
{
    static const char *const names[] = { "default", "environment", "set" };
    return names[config->value[id].origin];
}

const char *psrti_config_value(const psrti_config_t *config, psrti_config_id_t id)
{
    return config->value[id].text;
}
