/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/registry.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "kernels/names.h"
#include "kernels/optimizer.h"

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
    X(lion)                                                                                        \
    X(lars)                                                                                        \
    X(lamb)

#define DECLARE(name) extern const psrt_optimizer_ops_t psrti_optimizer_##name;
OPTIMIZERS(DECLARE)

#define ADDRESS(name) &psrti_optimizer_##name,
static const psrt_optimizer_ops_t *const builtin[] = { OPTIMIZERS(ADDRESS) NULL };
#define BUILTIN (PSRTI_COUNT(builtin) - 1)

/* Entries are written once, under the lock, and read without it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const psrt_optimizer_ops_t *registered[PSRTI_REGISTERED_MAX];

const psrt_optimizer_ops_t *const *psrti_optimizer_all(void) { return builtin; }

const psrt_optimizer_ops_t *psrti_optimizer_at(size_t index)
{
    if (index < BUILTIN) return builtin[index];
    if (index - BUILTIN >= PSRTI_REGISTERED_MAX) return NULL;
    return __atomic_load_n(&registered[index - BUILTIN], __ATOMIC_ACQUIRE);
}

psrt_status_t psrti_optimizer_find(const char *name, const psrt_optimizer_ops_t **ops_p)
{
    const char *names[BUILTIN + PSRTI_REGISTERED_MAX + 1] = { "none" };
    const psrt_optimizer_ops_t *ops;
    size_t count = 1;
    if (strcmp(name, "none") == 0) {
        *ops_p = NULL;
        return PSRT_OK;
    }
    for (size_t i = 0; (ops = psrti_optimizer_at(i)); i++) {
        if (strcmp(ops->name, name) == 0) {
            *ops_p = ops;
            return PSRT_OK;
        }
        names[count++] = ops->name;
    }
    psrti_fail_unknown("optimizer", name, names, count);
    return psrti_fail(PSRT_ERR_INVALID, "%s; PSRT_PLUGINS may add others", psrt_last_error());
}

int psrti_optimizer_is_builtin(const char *name, size_t len)
{
    size_t i = 0;
    while (i < BUILTIN && (strlen(builtin[i]->name) != len || memcmp(builtin[i]->name, name, len)))
        i++;
    return i < BUILTIN || (len == 4 && memcmp(name, "none", 4) == 0);
}

/* ---- registering ------------------------------------------------------------------------------- */

/* What stands before '=' or ':' in a specification. */
static int is_word(const char *text)
{
    if (!text || !*text || strlen(text) > 31) return 0;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("_-.", *text)) return 0;
    return 1;
}

/* Are the first `count` of the names there, and no two the same? */
static int are_words(const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (!is_word(names[i])) return 0;
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0) return 0;
    }
    return 1;
}

/* What is wrong with a table that has the right size and a name; NULL: nothing. */
static const char *check(const psrt_optimizer_ops_t *ops)
{
    const unsigned needs = PSRT_NEEDS_GRAD_NORM | PSRT_NEEDS_VALUE_NORM | PSRT_NEEDS_UPDATE_NORM;
    const int prepares = (ops->needs & PSRT_NEEDS_UPDATE_NORM) != 0;
    if (!ops->doc) return "doc is NULL";
    if (ops->num_params < 0 || ops->num_params > PSRT_OPTIMIZER_MAX_PARAMS)
        return "num_params is not within 0 and PSRT_OPTIMIZER_MAX_PARAMS";
    if (ops->num_states < 0 || ops->num_states > PSRT_OPTIMIZER_MAX_STATES)
        return "num_states is not within 0 and PSRT_OPTIMIZER_MAX_STATES";
    if (!are_words(ops->param_names, ops->num_params))
        return "a name of a hyper-parameter is missing, repeated, longer than 31 bytes, or has a "
               "character other than a-z 0-9 _ - .";
    if (!are_words(ops->state_names, ops->num_states))
        return "a name of a state is missing, repeated, longer than 31 bytes, or has a character "
               "other than a-z 0-9 _ - .";
    for (int i = 0; i < ops->num_params; i++)
        if (psrti_optimizer_is_common_key(ops->param_names[i]))
            return "a hyper-parameter has the name of a key that every optimizer has";
    if (!ops->apply_f32 || !ops->apply_f64) return "apply_f32 or apply_f64 is NULL";
    if (ops->needs & ~needs) return "needs has an unknown bit";
    if ((ops->prepare_f32 != NULL) != prepares || (ops->prepare_f64 != NULL) != prepares)
        return "prepare_f32 and prepare_f64 go with PSRT_NEEDS_UPDATE_NORM, both or none";
    if (ops->check && ops->check(ops->param_defaults)) return "check refuses the defaults";
    return NULL;
}

/* With the lock. Registering the same table again changes nothing. */
static psrt_status_t append(const psrt_optimizer_ops_t *ops)
{
    const psrt_optimizer_ops_t *other;
    size_t count = 0;
    for (; (other = psrti_optimizer_at(count)); count++) {
        if (other == ops) return PSRT_OK;
        if (strcmp(other->name, ops->name) == 0)
            return psrti_fail(PSRT_ERR_INVALID, "optimizer %s: there is one of this name already",
                              ops->name);
    }
    if (count == BUILTIN + PSRTI_REGISTERED_MAX)
        return psrti_fail(PSRT_ERR_LIMIT, "optimizer %s: %d are registered already, no more can be",
                          ops->name, PSRTI_REGISTERED_MAX);
    __atomic_store_n(&registered[count - BUILTIN], ops, __ATOMIC_RELEASE);
    return PSRT_OK;
}

psrt_status_t psrt_optimizer_register(const psrt_optimizer_ops_t *ops)
{
    if (!ops) return psrti_fail(PSRT_ERR_INVALID, "psrt_optimizer_register: ops is NULL");
    if (ops->size != sizeof *ops)
        return psrti_fail(PSRT_ERR_INVALID,
                          "an optimizer's table has %zu bytes, in this version of libpsrt %zu: "
                          "build it with the headers of this version",
                          ops->size, sizeof *ops);
    if (!is_word(ops->name) || strcmp(ops->name, "none") == 0)
        return psrti_fail(PSRT_ERR_INVALID,
                          "an optimizer's name is missing, \"none\", longer than "
                          "31 bytes, or has a character other than a-z 0-9 _ - .");
    const char *wrong = check(ops);
    if (wrong) return psrti_fail(PSRT_ERR_INVALID, "optimizer %s: %s", ops->name, wrong);
    pthread_mutex_lock(&lock);
    psrt_status_t rc = append(ops);
    pthread_mutex_unlock(&lock);
    return rc;
}
