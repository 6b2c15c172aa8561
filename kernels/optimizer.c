/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name. */
#include "kernels/optimizer.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "kernels/names.h"

/* One row for each file in optim/. */
#define OPTIMIZERS(X)                                                                              \
    X(sgd)                                                                                         \
    X(momentum)                                                                                    \
    X(nesterov)                                                                                    \
    X(adagrad)                                                                                     \
    X(adadelta)                                                                                    \
    X(rmsprop)                                                                                     \
    X(adam)                                                                                        \
    X(adamw)                                                                                       \
    X(adamax)                                                                                      \
    X(nadam)                                                                                       \
    X(ftrl)                                                                                        \
    X(lion)

#define DECLARE(name) extern const psrt_optimizer_ops_t psrti_optimizer_##name;
OPTIMIZERS(DECLARE)

#define ADDRESS(name) &psrti_optimizer_##name,
static const psrt_optimizer_ops_t *const optimizers[] = { OPTIMIZERS(ADDRESS) NULL };

const psrt_optimizer_ops_t *const *psrti_optimizer_all(void) { return optimizers; }

static psrt_status_t find(const char *name, const psrt_optimizer_ops_t **ops_p)
{
    const char *names[PSRTI_COUNT(optimizers)] = { "none" };
    size_t count = 1;
    for (size_t i = 0; optimizers[i]; i++) {
        if (strcmp(optimizers[i]->name, name) == 0) {
            *ops_p = optimizers[i];
            return PSRT_OK;
        }
        names[count++] = optimizers[i]->name;
    }
    if (strcmp(name, "none") != 0) return psrti_fail_unknown("optimizer", name, names, count);
    *ops_p = NULL;
    return PSRT_OK;
}

psrt_status_t psrti_optimizer_parse(const char *text, psrti_optimizer_t *out)
{
    psrti_optimizer_t opt = { NULL, { 0 }, 0 };
    psrti_spec_t spec;
    size_t num_params = 0;
    psrt_status_t status = psrti_spec_parse("optimizer", text ? text : "none", &spec);
    if (status == PSRT_OK) status = find(spec.name, &opt.ops);
    if (status != PSRT_OK) return status;

    if (opt.ops) {
        num_params = (size_t)opt.ops->num_params;
        opt.num_states = opt.ops->num_states;
        memcpy(opt.params, opt.ops->param_defaults, sizeof opt.params);
    }
    status = psrti_spec_numbers("optimizer", &spec, opt.ops ? opt.ops->param_names : NULL,
                                opt.params, num_params);
    if (status != PSRT_OK) return status;
    const char *wrong = opt.ops && opt.ops->check ? opt.ops->check(opt.params) : NULL;
    if (wrong) return psrti_fail(PSRT_ERR_INVALID, "optimizer %s: %s", opt.ops->name, wrong);
    *out = opt;
    return PSRT_OK;
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

static psrt_status_t append_all(const psrti_optimizer_t *opt, char *buf, size_t size)
{
    size_t pos = 0;
    psrt_status_t status = psrti_append(buf, size, &pos, "%s", opt->ops ? opt->ops->name : "none");
    for (int i = 0; opt->ops && i < opt->ops->num_params && status == PSRT_OK; i++) {
        status = psrti_append(buf, size, &pos, "%c%s=", i ? ',' : ':', opt->ops->param_names[i]);
        if (status == PSRT_OK) status = append_number(buf, size, &pos, opt->params[i]);
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
