/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "support/test.h"

/* The environment of whoever runs the tests must not matter. */
static void clear_environment(void)
{
    for (size_t i = 0; environ && environ[i];) {
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        if (strncmp(name, "PSRT_", 5))
            i++;
        else
            unsetenv(name);
    }
}

TestSuite(config, .init = clear_environment);

static psrti_config_t *create(void)
{
    psrti_config_t *config = NULL;
    cr_assert_eq(psrti_config_create(&config), PSRT_OK, "%s", psrt_last_error());
    return config;
}

static void assert_error_has(const char *part)
{
    cr_assert(strstr(psrt_last_error(), part) != NULL, "\"%s\" is not in \"%s\"", part,
              psrt_last_error());
}

/* The error names variable, value and what is allowed, and no config is written. */
static void assert_refused(const char *name, const char *value, const char *allowed)
{
    psrti_config_t *config = NULL;
    psrti_fail_text("");
    setenv(name, value, 1);
    cr_assert_eq(psrti_config_create(&config), PSRT_ERR_INVALID, "%s=\"%s\"", name, value);
    cr_assert(config == NULL);
    assert_error_has(name);
    assert_error_has(*value ? value : "is empty");
    assert_error_has(allowed);
    unsetenv(name);
}

Test(config, defaults)
{
    psrti_config_t *config = create();
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_RANK), 0);
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_WORKERS), 1);
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_LISTEN_FD), -1);
    cr_assert_str_eq(psrti_config_text(config, PSRTI_CONF_COORDINATOR), "");
    cr_assert_eq(psrti_config_u64(config, PSRTI_CONF_LEASE), 5000000000ull);
    cr_assert_eq(psrti_config_u64(config, PSRTI_CONF_SPIN), 500000ull);
    cr_assert_eq(psrti_config_u64(config, PSRTI_CONF_MAX_MESSAGE), 67108864ull);
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_SECURITY), 0);
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_LOG_LEVEL), PSRT_LOG_WARN);
    cr_assert(psrti_config_is_default(config, PSRTI_CONF_RANK));
    cr_assert_str_eq(psrti_config_origin(config, PSRTI_CONF_RANK), "default");
    psrti_config_destroy(config);
    psrti_config_destroy(NULL);
}

Test(config, environment_then_set)
{
    setenv("PSRT_RANK", "3", 1);
    setenv("PSRT_ARENA", "1MiB", 1);
    setenv("PSRT_SECURITY", "off", 1);
    psrti_config_t *config = create();
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_RANK), 3);
    cr_assert_str_eq(psrti_config_origin(config, PSRTI_CONF_RANK), "environment");
    cr_assert(!psrti_config_is_default(config, PSRTI_CONF_RANK));
    cr_assert_eq(psrti_config_u64(config, PSRTI_CONF_EAGER_ARENA), 1048576);
    cr_assert_str_eq(psrti_config_value(config, PSRTI_CONF_EAGER_ARENA), "1MiB");
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_SECURITY), 2);
    cr_assert_eq(psrti_config_set(config, "PSRT_RANK", "4"), PSRT_OK);
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_RANK), 4);
    cr_assert_str_eq(psrti_config_origin(config, PSRTI_CONF_RANK), "set");
    psrti_config_destroy(config);
}

Test(config, two_configs_are_apart)
{
    psrti_config_t *one = create(), *two = create();
    cr_assert_eq(psrti_config_set(one, "PSRT_ROLE", "server"), PSRT_OK);
    cr_assert_str_eq(psrti_config_text(one, PSRTI_CONF_ROLE), "server");
    cr_assert_str_eq(psrti_config_text(two, PSRTI_CONF_ROLE), "");
    psrti_config_destroy(one);
    psrti_config_destroy(two);
}

Test(config, illegal_counts_and_ranks)
{
    static const char *const names[] = { "PSRT_RANK", "PSRT_WORKERS", "PSRT_SERVERS" };
    static const char *const values[] = {
        "-1", "", " 2", "2 ", "abc", "2147483648", "99999999999999999999", "1.5", "0x2"
    };
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        for (size_t j = 0; j < PSRTI_COUNT(values); j++)
            assert_refused(names[i], values[j], "an integer from");
    assert_refused("PSRT_WORKERS", "0", "from 1 to 65535");
    assert_refused("PSRT_VSHARDS", "0", "from 1 to 65536");
}

Test(config, illegal_values_of_the_other_types)
{
    assert_refused("PSRT_LEASE", "5 s", "a time such as 5s");
    assert_refused("PSRT_LEASE", "", "a time such as 5s");
    assert_refused("PSRT_LEASE", "0", "at least 1000000 ns");
    assert_refused("PSRT_WINDOW", "big", "a size such as 4MiB");
    assert_refused("PSRT_WINDOW", "4095", "at least 4096 bytes");
    assert_refused("PSRT_WINDOW", "9223372036854775808", "a size such as");
    assert_refused("PSRT_SECURITY", "on", "one of encrypted|authenticated|off");
    assert_refused("PSRT_SECURITY", "encrypted|off", "one of encrypted|authenticated|off");
    assert_refused("PSRT_SECURITY", "encrypte", "one of encrypted|authenticated|off");
    assert_refused("PSRT_SECURITY", "", "one of encrypted|authenticated|off");
    assert_refused("PSRT_LOG_LEVEL", "loud", "one of error|warn|info|debug");
}

Test(config, empty_text_counts_as_set)
{
    setenv("PSRT_COORDINATOR", "", 1);
    psrti_config_t *config = create();
    cr_assert(!psrti_config_is_default(config, PSRTI_CONF_COORDINATOR));
    cr_assert_str_eq(psrti_config_text(config, PSRTI_CONF_COORDINATOR), "");
    psrti_config_destroy(config);
}

Test(config, failed_set_changes_nothing)
{
    psrti_config_t *config = create();
    cr_assert_eq(psrti_config_set(config, "PSRT_WORKERS", "4"), PSRT_OK);
    cr_assert_eq(psrti_config_set(config, "PSRT_WORKERS", "many"), PSRT_ERR_INVALID);
    assert_error_has("PSRT_WORKERS=\"many\"");
    cr_assert_eq(psrti_config_int(config, PSRTI_CONF_WORKERS), 4);
    cr_assert_eq(psrti_config_set(config, "PSRT_WORKER", "4"), PSRT_ERR_INVALID);
    assert_error_has("did you mean PSRT_WORKERS?");
    cr_assert_eq(psrti_config_set(config, "", "4"), PSRT_ERR_INVALID);
    psrti_config_destroy(config);
}

Test(config, log_level_takes_effect)
{
    psrti_config_t *config = create();
    cr_assert_eq(psrti_log_level(), PSRT_LOG_WARN);
    cr_assert_eq(psrti_config_set(config, "PSRT_LOG_LEVEL", "debug"), PSRT_OK);
    cr_assert_eq(psrti_log_level(), PSRT_LOG_DEBUG);
    psrti_config_destroy(config);
}

typedef struct warnings {
    int count;
    char last[512];
} warnings_t;

static void keep_warning(void *arg, psrt_log_level_t level, const char *line)
{
    warnings_t *warnings = arg;
    cr_assert_eq(level, PSRT_LOG_WARN);
    warnings->count++;
    snprintf(warnings->last, sizeof(warnings->last), "%s", line);
}

Test(config, unknown_variable_warns_once)
{
    warnings_t warnings = { 0, "" };
    psrt_log_set_sink(keep_warning, &warnings);
    psrti_config_destroy(create());
    cr_assert_eq(warnings.count, 0);

    setenv("PSRT_WORKRES", "2", 1);
    psrti_config_destroy(create());
    cr_assert_eq(warnings.count, 1);
    cr_assert_str_eq(warnings.last,
                     "unknown variable PSRT_WORKRES is ignored, did you mean PSRT_WORKERS?");
    setenv("PSRT_NOTHING_LIKE_THAT", "secret", 1);
    psrti_config_destroy(create());
    cr_assert_eq(warnings.count, 2);
    cr_assert_str_eq(warnings.last, "unknown variable PSRT_NOTHING_LIKE_THAT is ignored");
    psrti_config_destroy(create());
    cr_assert_eq(warnings.count, 2);
}

Test(config, warnings_are_bounded)
{
    warnings_t warnings = { 0, "" };
    char name[300];
    psrt_log_set_sink(keep_warning, &warnings);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "PSRT_UNKNOWN_NUMBER_%d", i);
        setenv(name, "1", 1);
    }
    memset(name, 'X', sizeof(name));
    memcpy(name, "PSRT_", 5);
    name[sizeof(name) - 1] = '\0';
    setenv(name, "1", 1);
    psrti_config_destroy(create());
    int first = warnings.count;
    psrti_config_destroy(create());
    cr_assert(first > 0 && first <= 200);
    cr_assert_eq(warnings.count, first);
}

Test(config, table_is_complete)
{
    psrti_config_t *config = create();
    for (unsigned id = 0; id < PSRTI_CONF_COUNT; id++) {
        const psrti_config_entry_t *entry = psrti_config_entry((psrti_config_id_t)id);
        cr_assert(!strncmp(entry->name, "PSRT_", 5));
        cr_assert(entry->doc[0] != '\0');
        cr_assert_eq(!strcmp(entry->type, "enum"), entry->choices != NULL);
        cr_assert_str_eq(psrti_config_value(config, (psrti_config_id_t)id), entry->def);
        for (unsigned other = 0; other < id; other++)
            cr_assert(strcmp(entry->name, psrti_config_entry((psrti_config_id_t)other)->name));
    }
    cr_assert_str_eq(psrti_config_entry(PSRTI_CONF_LEASE)->type, "duration");
    psrti_config_destroy(config);
}
