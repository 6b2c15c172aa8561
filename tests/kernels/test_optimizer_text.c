/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as texts: names, hyper-parameters, keys of every optimizer, the page that documents them. */
#include "kernels/optimizer.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "kernels/optimizer_rig.h"
#include "support/test.h"

/* ---- names and hyper-parameters -------------------------------------------------------------- */

Test(optimizer, table_is_well_formed)
{
    for (const psrt_optimizer_ops_t *const *p = psrti_optimizer_all(); *p; p++) {
        const psrt_optimizer_ops_t *ops = *p;
        cr_assert_eq(ops->size, sizeof *ops);
        cr_assert(ops->name && ops->doc && ops->apply_f32 && ops->apply_f64);
        int prepares = (ops->needs & PSRT_NEEDS_UPDATE_NORM) != 0;
        cr_assert_eq(ops->prepare_f32 != NULL, prepares, "%s", ops->name);
        cr_assert_eq(ops->prepare_f64 != NULL, prepares, "%s", ops->name);
        cr_assert(ops->num_params >= 0 && ops->num_params <= PSRT_OPTIMIZER_MAX_PARAMS);
        cr_assert(ops->num_states >= 0 && ops->num_states <= PSRT_OPTIMIZER_MAX_STATES);
        for (int i = 0; i < ops->num_params; i++)
            cr_assert_not_null(ops->param_names[i], "%s parameter %d", ops->name, i);
        for (int i = 0; i < ops->num_states; i++)
            cr_assert_not_null(ops->state_names[i], "%s state %d", ops->name, i);
        if (ops->check) cr_assert_null(ops->check(ops->param_defaults), "%s defaults", ops->name);
    }
}

static void check_format(const char *text, const char *canonical)
{
    char buf[256];
    psrti_optimizer_t opt = parsed(text), again;
    cr_assert_eq(psrti_optimizer_format(&opt, buf, sizeof buf), PSRT_OK);
    cr_assert_str_eq(buf, canonical);
    again = parsed(buf);
    cr_assert_eq(again.ops, opt.ops);
    cr_assert_arr_eq(again.params, opt.params, sizeof opt.params);
    cr_assert_arr_eq(&again.schedule, &opt.schedule, sizeof opt.schedule);
    cr_assert_eq(again.clip_norm, opt.clip_norm);
    cr_assert_eq(again.skip_nonfinite, opt.skip_nonfinite);
    cr_assert_eq(again.ema, opt.ema);
    cr_assert_neq(psrti_optimizer_format(&opt, buf, strlen(canonical)), PSRT_OK);
}

Test(optimizer, canonical_text)
{
    check_format("none", "none");
    check_format("sgd", "sgd:lr=0.01,weight_decay=0,clip_value=0");
    check_format("momentum", "momentum:lr=0.01,momentum=0.9,weight_decay=0,clip_value=0");
    check_format("adam",
                 "adam:lr=0.001,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0,clip_value=0");
    check_format("adam:weight_decay=5e-2,lr=3,clip_value=1",
                 "adam:lr=3,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0.05,clip_value=1");
    check_format("sgd:lr=0.30000000000000004",
                 "sgd:lr=0.30000000000000004,weight_decay=0,clip_value=0");
}

/* Keys that every optimizer understands are shown when they are not at their default. */
Test(optimizer, common_keys_in_the_text)
{
    check_format("none:ema=0.5,clip_norm=2", "none:clip_norm=2,ema=0.5");
    check_format("none:clip_norm=0,schedule=constant,gamma=0.1", "none");
    check_format("sgd:skip_nonfinite=true,ema=0.999,schedule=cosine,total=100,warmup=7,final=1e-4",
                 "sgd:lr=0.01,weight_decay=0,clip_value=0,schedule=cosine,warmup=7,total=100,"
                 "final=0.0001,skip_nonfinite=1,ema=0.999");
    check_format("sgd:schedule=step,period=30,gamma=0.5",
                 "sgd:lr=0.01,weight_decay=0,clip_value=0,schedule=step,period=30,gamma=0.5");
}

/* The longest text there is: every number has 17 digits. */
Test(optimizer, longest_text_has_room)
{
    psrti_optimizer_t opt = parsed("sgd:schedule=step,period=1");
    char text[PSRTI_OPTIMIZER_TEXT];
    opt.clip_norm = opt.ema = opt.schedule.warmup = opt.schedule.period = opt.schedule.gamma =
        opt.schedule.total = opt.schedule.final = -0x1.123456789abcdp-1021;
    opt.skip_nonfinite = 1;
    for (int i = 0; i < PSRT_OPTIMIZER_MAX_PARAMS; i++)
        opt.params[i] = opt.clip_norm;
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++) {
        opt.ops = *ops;
        cr_assert_eq(psrti_optimizer_format(&opt, text, sizeof text), PSRT_OK, "%s", (*ops)->name);
    }
}

Test(optimizer, two_phase)
{
    static const struct {
        const char *text;
        unsigned needs;
        int two_phase;
    } cases[] = { { "none", 0, 0 },
                  { "adam:ema=0.9,warmup=3,clip_value=1", 0, 0 },
                  { "none:clip_norm=1", PSRT_NEEDS_GRAD_NORM, 1 },
                  { "adam:clip_norm=1", PSRT_NEEDS_GRAD_NORM, 1 },
                  { "sgd:skip_nonfinite=1", 0, 1 },
                  { "lamb", PSRT_NEEDS_VALUE_NORM | PSRT_NEEDS_UPDATE_NORM, 1 },
                  { "lars:clip_norm=1",
                    PSRT_NEEDS_GRAD_NORM | PSRT_NEEDS_VALUE_NORM | PSRT_NEEDS_UPDATE_NORM, 1 } };
    for (size_t i = 0; i < PSRTI_COUNT(cases); i++) {
        psrti_optimizer_t opt = parsed(cases[i].text);
        cr_assert_eq(psrti_optimizer_needs(&opt), cases[i].needs, "%s", cases[i].text);
        cr_assert_eq(psrti_optimizer_two_phase(&opt), cases[i].two_phase, "%s", cases[i].text);
    }
}

/* clip_coef of torch.nn.utils.clip_grad_norm_. */
Test(optimizer, clip_scale)
{
    psrti_optimizer_t off = parsed("sgd"), opt = parsed("sgd:clip_norm=2");
    cr_assert_eq(psrti_optimizer_clip_scale(&off, 1e30), 1);
    cr_assert_eq(psrti_optimizer_clip_scale(&opt, 0), 1);
    cr_assert_eq(psrti_optimizer_clip_scale(&opt, 1.5), 1);
    cr_assert_eq(psrti_optimizer_clip_scale(&opt, 4), 2 / 4.000001);
    cr_assert_eq(psrti_optimizer_clip_scale(&opt, INFINITY), 0);
    cr_assert(isnan(psrti_optimizer_clip_scale(&opt, NAN)));
}

/* Row of docs/optimizers.md: | `name` | `hyper-parameters with defaults` | `state`, `state` | */
static void page_row(const psrt_optimizer_ops_t *ops, char *row, size_t size)
{
    char text[256];
    psrti_optimizer_t opt = parsed(ops->name);
    cr_assert_eq(psrti_optimizer_format(&opt, text, sizeof text), PSRT_OK);
    int used = snprintf(row, size, "| `%s` | `%s` | %s", ops->name, text + strlen(ops->name) + 1,
                        ops->num_states ? "" : "-");
    for (int i = 0; i < ops->num_states; i++)
        used +=
            snprintf(row + used, size - (size_t)used, "%s`%s`", i ? ", " : "", ops->state_names[i]);
    snprintf(row + used, size - (size_t)used, " |\n");
}

/* The first table of the page has these rows in the order of the registry, and no others. */
Test(optimizer, page)
{
    char line[1024] = "", row[1024];
    FILE *page = fopen(PSRT_SOURCE_DIR "/docs/optimizers.md", "r");
    cr_assert(page != NULL, "docs/optimizers.md cannot be read");
    while (strncmp(line, "|---", 4) != 0)
        cr_assert_not_null(fgets(line, sizeof line, page));
    for (const psrt_optimizer_ops_t *const *ops = psrti_optimizer_all(); *ops; ops++) {
        page_row(*ops, row, sizeof row);
        cr_assert_not_null(fgets(line, sizeof line, page));
        cr_assert_str_eq(line, row);
    }
    cr_assert_not_null(fgets(line, sizeof line, page));
    cr_assert_str_eq(line, "\n", "the table ends with the registry");
    fclose(page);
}

/* Another process reads the text, perhaps in another locale. */
Test(optimizer, text_does_not_depend_on_the_locale)
{
    static const char *const comma[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    size_t i = 0;
    while (i < PSRTI_COUNT(comma) && !setlocale(LC_ALL, comma[i]))
        i++;
    if (i == PSRTI_COUNT(comma)) cr_skip_test("no locale with a decimal comma is installed");
    cr_assert_eq(localeconv()->decimal_point[0], ',');
    check_format("sgd:lr=0.5", "sgd:lr=0.5,weight_decay=0,clip_value=0");
    cr_assert_eq(localeconv()->decimal_point[0], ',', "the host's locale is as before");
}

Test(optimizer, none)
{
    psrti_optimizer_t opt;
    memset(&opt, 0xff, sizeof opt);
    cr_assert_eq(psrti_optimizer_parse(NULL, &opt), PSRT_OK);
    cr_assert_null(opt.ops);
    cr_assert_eq(opt.num_states, 0);
    cr_assert_eq(psrti_optimizer_parse("none:lr=1", &opt), PSRT_ERR_INVALID);
}

Test(optimizer, hyper_parameters_are_set_one_by_one)
{
    static const struct {
        const char *key;
        double value;
        const char *says;
    } bad[] = {
        { "beta_1", 0.5,
          "did you mean \"beta1\"?: lr, beta1, beta2, eps, weight_decay, clip_value" },
        { "zzz", 0.5, "adam has no hyper-parameter \"zzz\": lr, " },
        { "beta1", 1, "adam with beta1=1: beta1 must" },
        { "lr", -1, "lr" },
        { "lr", NAN, "finite" },
        { "clip_norm", 1, "adam: clip_norm stays as it was declared; can be set: lr, beta1" },
        { "schedule", 1, "schedule stays" },
        { "clip_value", INFINITY, "finite" },
    };
    psrti_optimizer_t opt;
    int index = -1;
    cr_assert_eq(psrti_optimizer_parse("adam", &opt), PSRT_OK);
    cr_assert_eq(psrti_optimizer_set(&opt, "eps", 1e-3, &index), PSRT_OK);
    cr_assert(index == 3 && opt.params[3] == 1e-3 && opt.params[0] == 1e-3);
    psrti_optimizer_t before = opt;
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        cr_assert_eq(psrti_optimizer_set(&opt, bad[i].key, bad[i].value, &index), PSRT_ERR_INVALID);
        cr_assert(strstr(psrt_last_error(), bad[i].says), "%s", psrt_last_error());
        cr_assert_arr_eq(opt.params, before.params, sizeof opt.params);
    }
    cr_assert_eq(psrti_optimizer_parse("none", &opt), PSRT_OK);
    cr_assert_eq(psrti_optimizer_set(&opt, "lr", 1, &index), PSRT_ERR_INVALID);
}

Test(optimizer, bad_text_names_what_is_wrong)
{
    static const char *const bad[][2] = {
        { "adma", "\"adam\"?" },
        { "momentun:lr=1", "\"momentum\"?" },
        { "non", "\"none\"?" },
        { "signum", "optimizer \"signum\" is unknown, there are: none, sgd, " },
        { "adam:lr", "optimizer adam: \"lr\" is not of the form key=value; keys: lr, " },
        { "sgd:schedule=cosin",
          "optimizer sgd: schedule \"cosin\" is unknown, did you mean \"cosine\"?" },
        { "sgd:schedule=poly", "\"poly\" is unknown, there are: constant, step, cosine, linear" },
        { "", "optimizer" },
        { "adam:beta_1=0.9", "\"beta1\"?" },
        { "sgd:momentum=0.9", "momentum" },
        { "sgd:lr=abc", "abc" },
        { "sgd:lr=-1", "lr" },
        { "sgd:weight_decay=-0.1", "weight_decay" },
        { "momentum:momentum=1", "momentum must" },
        { "momentum:momentum=-0.5", "momentum must" },
        { "adam:beta1=1", "beta1 must" },
        { "adam:beta2=-0.1", "beta2 must" },
        { "adam:eps=0", "eps must" },
        { "adam:lr=nan", "lr" },
        { "adam:lr=inf", "lr" },
        { "nesterov:momentum=1", "momentum must" },
        { "adagrad:lr_decay=-1", "lr_decay must" },
        { "adagrad:initial_accumulator_value=-1", "initial_accumulator_value must" },
        { "adadelta:rho=1", "rho must" },
        { "rmsprop:centered=2", "centered must" },
        { "rmsprop:alpha=1", "alpha must" },
        { "adamw:weight_decay=-1", "weight_decay must" },
        { "adamax:eps=0", "eps must" },
        { "nadam:momentum_decay=-1", "momentum_decay must" },
        { "ftrl:lr=0", "lr must" },
        { "ftrl:learning_rate_power=-0.3", "learning_rate_power must" },
        { "ftrl:weight_decay=0.1", "weight_decay" },
        { "lion:beta2=1", "beta2 must" },
        { "sgd:clip_value=-1", "clip_value must" },
        { "adam:clip_value=inf", "clip_value" },
        { "lars:trust=0", "trust must" },
        { "lars:eps=-1", "eps must" },
        { "lamb:beta2=1", "beta2 must" },
        { "adam:clip_norm=-1", "clip_norm must" },
        { "none:clip_norm=inf", "clip_norm" },
        { "adam:skip_nonfinite=2", "skip_nonfinite must" },
        { "adam:ema=1", "ema must" },
        { "adam:clip_nrom=1", "\"clip_norm\"?" },
    };
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        psrti_optimizer_t opt, before;
        memset(&opt, 0x5a, sizeof opt);
        memset(&before, 0x5a, sizeof before);
        cr_assert_eq(psrti_optimizer_parse(bad[i][0], &opt), PSRT_ERR_INVALID, "%s", bad[i][0]);
        cr_assert(strstr(psrt_last_error(), bad[i][1]), "%s: %s", bad[i][0], psrt_last_error());
        cr_assert_arr_eq(&opt, &before, sizeof opt, "%s changed the output", bad[i][0]);
    }
}
