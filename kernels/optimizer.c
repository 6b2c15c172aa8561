/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name. */
#include "kernels/optimizer.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "kernels/names.h"
#include "kernels/registry.h"

/* ---- keys that every optimizer understands ----------------------------------------------------- */

#define SCHEDULE_KEY "schedule"

/* Numbers; `schedule`, which is a name, comes before them. */
static const struct common_key {
    const char *name;
    size_t at; /* in psrti_optimizer_t */
    double start;
} common_keys[] = {
    { "warmup", offsetof(psrti_optimizer_t, schedule.warmup), 0 },
    { "period", offsetof(psrti_optimizer_t, schedule.period), 0 },
    { "gamma", offsetof(psrti_optimizer_t, schedule.gamma), PSRTI_SCHEDULE_GAMMA },
    { "total", offsetof(psrti_optimizer_t, schedule.total), 0 },
    { "final", offsetof(psrti_optimizer_t, schedule.final), 0 },
    { "clip_norm", offsetof(psrti_optimizer_t, clip_norm), 0 },
    { "skip_nonfinite", offsetof(psrti_optimizer_t, skip_nonfinite), 0 },
    { "ema", offsetof(psrti_optimizer_t, ema), 0 },
};
#define COMMON PSRTI_COUNT(common_keys)

int psrti_optimizer_is_common_key(const char *name)
{
    size_t i = 0;
    while (i < COMMON && strcmp(common_keys[i].name, name) != 0)
        i++;
    return i < COMMON || strcmp(name, SCHEDULE_KEY) == 0;
}

static double *common_value(psrti_optimizer_t *opt, size_t key)
{
    return (void *)((char *)opt + common_keys[key].at);
}

static int has_schedule(const psrti_optimizer_t *opt)
{
    return opt->schedule.kind != PSRTI_SCHEDULE_CONSTANT || opt->schedule.warmup > 0;
}

static psrt_status_t unknown_schedule(const char *optimizer, const char *name)
{
    char where[128];
    snprintf(where, sizeof where, "optimizer %.80s: schedule", optimizer);
    return psrti_fail_unknown(where, name, psrti_schedule_names, PSRTI_SCHEDULES);
}

/* Gives the entry `schedule` its number instead of its name, so that it is read as the others are. */
static psrt_status_t number_schedule(psrti_spec_t *spec)
{
    static const char *const numbers[PSRTI_SCHEDULES] = { "0", "1", "2", "3" };
    for (size_t i = 0; i < spec->count; i++) {
        if (strcmp(spec->entry[i].key, SCHEDULE_KEY) != 0) continue;
        size_t kind = 0;
        while (kind < PSRTI_SCHEDULES &&
               strcmp(psrti_schedule_names[kind], spec->entry[i].value) != 0)
            kind++;
        if (kind == PSRTI_SCHEDULES) return unknown_schedule(spec->name, spec->entry[i].value);
        spec->entry[i].value = numbers[kind];
    }
    return PSRT_OK;
}

/* Own hyper-parameters and common keys, which are at their defaults, from the text. */
static psrt_status_t read_numbers(psrti_spec_t *spec, psrti_optimizer_t *opt)
{
    const char *names[PSRT_OPTIMIZER_MAX_PARAMS + 1 + COMMON];
    double values[PSRTI_COUNT(names)];
    const size_t own = opt->ops ? (size_t)opt->ops->num_params : 0;
    for (size_t i = 0; i < own; i++)
        names[i] = opt->ops->param_names[i], values[i] = opt->params[i];
    names[own] = SCHEDULE_KEY, values[own] = PSRTI_SCHEDULE_CONSTANT;
    for (size_t i = 0; i < COMMON; i++)
        names[own + 1 + i] = common_keys[i].name, values[own + 1 + i] = *common_value(opt, i);
    psrt_status_t status = number_schedule(spec);
    if (!status) status = psrti_spec_numbers("optimizer", spec, names, values, own + 1 + COMMON);
    if (status) return status;
    memcpy(opt->params, values, own * sizeof *values);
    opt->schedule.kind = (psrti_schedule_kind_t)values[own];
    for (size_t i = 0; i < COMMON; i++)
        *common_value(opt, i) = values[own + 1 + i];
    return PSRT_OK;
}

static const char *check_params(const psrti_optimizer_t *opt, const double *params)
{
    return opt->ops && opt->ops->check ? opt->ops->check(params) : NULL;
}

/* NULL: fine. */
static const char *check_common(const psrti_optimizer_t *opt)
{
    if (!(opt->clip_norm >= 0 && opt->clip_norm <= DBL_MAX))
        return "clip_norm must be a finite number, at least 0";
    if (opt->skip_nonfinite != 0 && opt->skip_nonfinite != 1)
        return "skip_nonfinite must be 0 or 1";
    if (!(opt->ema >= 0 && opt->ema < 1)) return "ema must be at least 0 and below 1";
    const char *wrong = psrti_schedule_check(&opt->schedule);
    if (wrong || !has_schedule(opt)) return wrong;
    if (opt->lr < 0) return "schedule and warmup change lr, which it does not have";
    double last[PSRT_OPTIMIZER_MAX_PARAMS];
    psrti_optimizer_params_at(opt, (uint64_t)(opt->schedule.warmup + opt->schedule.total), last);
    return check_params(opt, last) ? "final is no lr that it can have" : NULL;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void set_defaults(psrti_optimizer_t *opt)
{
    for (size_t i = 0; i < COMMON; i++)
        *common_value(opt, i) = common_keys[i].start;
    opt->lr = -1;
    if (!opt->ops) return;
    opt->num_states = opt->ops->num_states;
    memcpy(opt->params, opt->ops->param_defaults, sizeof opt->params);
    for (int i = 0; i < opt->ops->num_params; i++)
        if (strcmp(opt->ops->param_names[i], "lr") == 0) opt->lr = i;
}

psrt_status_t psrti_optimizer_parse(const char *text, psrti_optimizer_t *out)
{
    psrti_optimizer_t opt = { .ops = NULL };
    psrti_spec_t spec;
    psrt_status_t status = psrti_spec_parse("optimizer", text ? text : "none", &spec);
    if (status == PSRT_OK) status = psrti_optimizer_find(spec.name, &opt.ops);
    if (status != PSRT_OK) return status;
    set_defaults(&opt);
    status = read_numbers(&spec, &opt);
    if (status != PSRT_OK) return status;
    const char *wrong = check_params(&opt, opt.params);
    if (!wrong) wrong = check_common(&opt);
    if (wrong) return psrti_fail(PSRT_ERR_INVALID, "optimizer %s: %s", spec.name, wrong);
    *out = opt;
    return PSRT_OK;
}

static psrt_status_t unknown_parameter(const psrt_optimizer_ops_t *ops, const char *key)
{
    size_t count = (size_t)ops->num_params, pos = 0;
    const char *nearest = psrti_nearest(key, ops->param_names, count);
    char list[256] = "none";
    for (size_t i = 0; i < count; i++)
        psrti_append(list, sizeof list, &pos, "%s%s", i ? ", " : "", ops->param_names[i]);
    if (psrti_optimizer_is_common_key(key))
        return psrti_fail(PSRT_ERR_INVALID,
                          "optimizer %s: %s stays as it was declared; can be set: %s", ops->name,
                          key, list);
    return psrti_fail(PSRT_ERR_INVALID, "optimizer %s has no hyper-parameter \"%.80s\"%s%s%s: %s",
                      ops->name, key, nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                      nearest ? "\"?" : "", list);
}

psrt_status_t psrti_optimizer_set(psrti_optimizer_t *opt, const char *key, double value,
                                  int *index_p)
{
    const psrt_optimizer_ops_t *ops = opt->ops;
    int i = 0;
    if (!ops)
        return psrti_fail(PSRT_ERR_INVALID, "optimizer none has no hyper-parameter \"%.80s\"", key);
    while (i < ops->num_params && strcmp(ops->param_names[i], key) != 0)
        i++;
    if (i == ops->num_params) return unknown_parameter(ops, key);
    psrti_optimizer_t changed = *opt;
    changed.params[i] = value;
    const char *wrong = !isfinite(value) ? "is not a finite number" : NULL;
    if (!wrong) wrong = check_params(&changed, changed.params);
    if (!wrong) wrong = check_common(&changed);
    if (wrong)
        return psrti_fail(PSRT_ERR_INVALID, "optimizer %s with %s=%g: %s", ops->name, key, value,
                          wrong);
    *opt = changed;
    *index_p = i;
    return PSRT_OK;
}

psrt_status_t psrti_optimizer_parse_common(const char *text, psrti_optimizer_t *out)
{
    psrti_optimizer_t opt = { .ops = NULL };
    psrti_spec_t spec;
    size_t count = 0;
    psrt_status_t status = psrti_spec_parse("optimizer", text, &spec);
    if (status != PSRT_OK) return status;
    for (size_t i = 0; i < spec.count; i++)
        if (psrti_optimizer_is_common_key(spec.entry[i].key)) spec.entry[count++] = spec.entry[i];
    spec.count = count;
    set_defaults(&opt);
    status = read_numbers(&spec, &opt);
    if (status != PSRT_OK) return status;
    opt.schedule = (psrti_schedule_t){ .gamma = PSRTI_SCHEDULE_GAMMA };
    const char *wrong = check_common(&opt);
    if (wrong) return psrti_fail(PSRT_ERR_INVALID, "optimizer %s: %s", spec.name, wrong);
    *out = opt;
    return PSRT_OK;
}

/* ---- for an update ----------------------------------------------------------------------------- */

unsigned psrti_optimizer_needs(const psrti_optimizer_t *opt)
{
    return (opt->ops ? opt->ops->needs : 0) | (opt->clip_norm > 0 ? PSRT_NEEDS_GRAD_NORM : 0);
}

int psrti_optimizer_two_phase(const psrti_optimizer_t *opt)
{
    return psrti_optimizer_needs(opt) != 0 || opt->skip_nonfinite != 0;
}

double psrti_optimizer_clip_scale(const psrti_optimizer_t *opt, double norm)
{
    double scale = opt->clip_norm / (norm + 1e-6);
    return opt->clip_norm == 0 || scale > 1 ? 1 : scale;
}

void psrti_optimizer_params_at(const psrti_optimizer_t *opt, uint64_t step,
                               double params[PSRT_OPTIMIZER_MAX_PARAMS])
{
    memcpy(params, opt->params, sizeof opt->params);
    if (has_schedule(opt))
        params[opt->lr] = psrti_schedule_rate(&opt->schedule, params[opt->lr], step);
}

void psrti_optimizer_state_fill(const psrti_optimizer_t *opt, int index, psrt_dtype_t dtype,
                                void *state, uint64_t n)
{
    double start = opt->ops->state_start ? opt->ops->state_start(index, opt->params) : 0;
    if (start == 0) return; /* pages of calloc that nothing has written cost no memory */
    for (uint64_t i = 0; dtype == PSRT_F32 && i < n; i++)
        ((float *)state)[i] = (float)start;
    for (uint64_t i = 0; dtype == PSRT_F64 && i < n; i++)
        ((double *)state)[i] = start;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* Fewest digits that read back as the same number: 0.001, not 0.0010000000000000000208. */
static psrt_status_t append_number(char *buf, size_t size, size_t *pos, double value)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return psrti_append(buf, size, pos, "%s", text);
}

/* `count` is how many are there already. */
static psrt_status_t append_key(char *buf, size_t size, size_t *pos, int *count, const char *key)
{
    return psrti_append(buf, size, pos, "%c%s=", (*count)++ ? ',' : ':', key);
}

static psrt_status_t append_all(const psrti_optimizer_t *opt, char *buf, size_t size)
{
    size_t pos = 0;
    int count = 0;
    psrti_optimizer_t all = *opt;
    psrt_status_t status = psrti_append(buf, size, &pos, "%s", opt->ops ? opt->ops->name : "none");
    for (int i = 0; opt->ops && i < opt->ops->num_params && !status; i++) {
        status = append_key(buf, size, &pos, &count, opt->ops->param_names[i]);
        if (!status) status = append_number(buf, size, &pos, opt->params[i]);
    }
    if (!status && opt->schedule.kind != PSRTI_SCHEDULE_CONSTANT) {
        status = append_key(buf, size, &pos, &count, SCHEDULE_KEY);
        if (!status)
            status = psrti_append(buf, size, &pos, "%s", psrti_schedule_names[opt->schedule.kind]);
    }
    for (size_t i = 0; i < COMMON && !status; i++) {
        double value = *common_value(&all, i);
        if (value == common_keys[i].start) continue;
        status = append_key(buf, size, &pos, &count, common_keys[i].name);
        if (!status) status = append_number(buf, size, &pos, value);
    }
    return status;
}

/* The text travels to other processes, so the host program's locale ("0,001") must not shape it. */
psrt_status_t psrti_optimizer_format(const psrti_optimizer_t *opt, char *buf, size_t size)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c) return psrti_fail(PSRT_ERR_NO_MEMORY, "optimizer: no memory for a locale");
    locale_t old = uselocale(c);
    psrt_status_t status = append_all(opt, buf, size);
    uselocale(old);
    freelocale(c);
    return status;
}
