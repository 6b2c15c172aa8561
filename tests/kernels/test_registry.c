/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/registry.h"

#include <string.h>

#include "base/util.h"
#include "kernels/optimizer.h"
#include "support/test.h"

static void apply(const psrt_apply_t *block) { (void)block; }

static const char *refuse(const double *params)
{
    (void)params;
    return "no";
}

static psrt_optimizer_ops_t table(const char *name)
{
    return (psrt_optimizer_ops_t){ .size = sizeof(psrt_optimizer_ops_t),
                                   .name = name,
                                   .doc = "for tests",
                                   .num_params = 2,
                                   .param_names = { "lr", "decay" },
                                   .param_defaults = { 0.5, 0.25 },
                                   .num_states = 1,
                                   .state_names = { "m" },
                                   .apply_f32 = apply,
                                   .apply_f64 = apply };
}

static size_t entries(void)
{
    size_t count = 0;
    while (psrti_optimizer_at(count))
        count++;
    return count;
}

Test(registry, registered_optimizers_are_as_others)
{
    static psrt_optimizer_ops_t mine;
    psrti_optimizer_t opt;
    char text[PSRTI_OPTIMIZER_TEXT];
    size_t before = entries();
    mine = table("mine");
    cr_assert_eq(psrti_optimizer_parse("mine", &opt), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "PSRT_PLUGINS"), "%s", psrt_last_error());
    cr_assert_eq(psrt_optimizer_register(&mine), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_optimizer_register(&mine), PSRT_OK, "again is no error");
    cr_assert_eq(entries(), before + 1);
    cr_assert_eq(psrti_optimizer_at(before), &mine);
    cr_assert_eq(psrti_optimizer_parse("mine:decay=1,warmup=3", &opt), PSRT_OK);
    cr_assert_eq(psrti_optimizer_format(&opt, text, sizeof text), PSRT_OK);
    cr_assert_str_eq(text, "mine:lr=0.5,decay=1,warmup=3");
    cr_assert_eq(psrti_optimizer_parse("mime", &opt), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "did you mean \"mine\"?"), "%s", psrt_last_error());
    cr_assert_eq(psrti_optimizer_is_builtin("mine", 4), 0);
    cr_assert_eq(psrti_optimizer_is_builtin("adam:lr=1", 4), 1);
    cr_assert_eq(psrti_optimizer_is_builtin("adamw", 4), 1);
    cr_assert_eq(psrti_optimizer_is_builtin("ada", 3), 0);
    cr_assert_eq(psrti_optimizer_is_builtin("none", 4), 1);
}

static void refused(const psrt_optimizer_ops_t *ops, const char *why)
{
    size_t before = entries();
    cr_assert_eq(psrt_optimizer_register(ops), PSRT_ERR_INVALID, "%s", why);
    cr_assert(strstr(psrt_last_error(), why), "%s: %s", why, psrt_last_error());
    cr_assert_eq(entries(), before);
}

#define REFUSED(change, why)                                                                       \
    do {                                                                                           \
        psrt_optimizer_ops_t ops = table("bad");                                                   \
        change;                                                                                    \
        refused(&ops, why);                                                                        \
    } while (0)

Test(registry, malformed_tables)
{
    refused(NULL, "ops is NULL");
    REFUSED(ops.size--, "headers of this version");
    REFUSED(ops.name = NULL, "name");
    REFUSED(ops.name = "a=b", "name");
    REFUSED(ops.name = "none", "name");
    REFUSED(ops.name = "a-name-that-is-longer-than-31-bytes", "name");
    REFUSED(ops.name = "adam", "optimizer adam: there is one");
    REFUSED(ops.doc = NULL, "optimizer bad: doc");
    REFUSED(ops.num_params = -1, "num_params");
    REFUSED(ops.num_params = PSRT_OPTIMIZER_MAX_PARAMS + 1, "num_params");
    REFUSED(ops.num_states = PSRT_OPTIMIZER_MAX_STATES + 1, "num_states");
    REFUSED(ops.param_names[1] = NULL, "hyper-parameter");
    REFUSED(ops.param_names[1] = "lr", "repeated");
    REFUSED(ops.param_names[1] = "a,b", "character");
    REFUSED(ops.param_names[1] = "clip_norm", "key that every optimizer has");
    REFUSED(ops.param_names[1] = "schedule", "key that every optimizer has");
    REFUSED(ops.state_names[0] = "", "state");
    REFUSED(ops.apply_f32 = NULL, "apply_f32");
    REFUSED(ops.apply_f64 = NULL, "apply_f64");
    REFUSED(ops.needs = 8, "unknown bit");
    REFUSED(ops.needs = PSRT_NEEDS_UPDATE_NORM, "prepare_f32");
    REFUSED(ops.prepare_f64 = apply, "prepare_f32");
    REFUSED(ops.check = refuse, "refuses the defaults");
}

Test(registry, is_full_at_some_time)
{
    static psrt_optimizer_ops_t many[PSRTI_REGISTERED_MAX + 1];
    static char names[PSRTI_REGISTERED_MAX + 1][16];
    for (int i = 0; i <= PSRTI_REGISTERED_MAX; i++) {
        snprintf(names[i], sizeof names[i], "o%d", i);
        many[i] = table(names[i]);
    }
    for (int i = 0; i < PSRTI_REGISTERED_MAX; i++)
        cr_assert_eq(psrt_optimizer_register(&many[i]), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_optimizer_register(&many[PSRTI_REGISTERED_MAX]), PSRT_ERR_LIMIT);
    psrti_optimizer_t opt;
    cr_assert_eq(psrti_optimizer_parse("o63", &opt), PSRT_OK);
    cr_assert_eq(psrti_optimizer_parse("o64", &opt), PSRT_ERR_INVALID);
}

Test(registry, plugins_that_cannot_be_loaded)
{
    cr_assert_eq(psrti_plugins_load(""), PSRT_OK);
    cr_assert_eq(psrti_plugins_load(",,"), PSRT_OK);
    cr_assert_eq(psrti_plugins_load("/nonexistent/a.so"), PSRT_ERR_NOT_FOUND);
    cr_assert(strstr(psrt_last_error(), "/nonexistent/a.so"), "%s", psrt_last_error());
    cr_assert_eq(psrti_plugins_load("libm.so.6"), PSRT_ERR_NOT_FOUND);
    cr_assert(strstr(psrt_last_error(), "psrt_optimizer_plugin_v1"), "%s", psrt_last_error());
}
