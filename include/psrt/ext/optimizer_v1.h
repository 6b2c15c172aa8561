/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer table, version 1: what a server does with the combined gradient of a step.
 *
 * An optimizer is one file with one table. The runtime keeps its state arrays beside the values (same
 * number of elements; f64 for f64 tables, f32 for f32, f16 and bf16 tables), zero at the start
 * unless `state_start` says otherwise.
 * `apply` is called for blocks of a slice, fused with the last fold; it must be a pure function of its
 * arguments and treat each element alone, so that results depend on neither blocks nor servers.
 *
 * Two-phase optimizers (`needs` is not 0) also use L2 norms of the whole table. They work in sync
 * tables only: a step is applied when the norms of all its slices are known.
 */
#ifndef PSRT_EXT_OPTIMIZER_V1_H
#define PSRT_EXT_OPTIMIZER_V1_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/psrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PSRT_OPTIMIZER_MAX_STATES 4
#define PSRT_OPTIMIZER_MAX_PARAMS 12

/* One block. Arrays have n elements of the table's accumulation type. `value_out` may equal
 * `value_in`; `grad` may be changed by nobody. */
typedef struct psrt_apply {
    uint64_t n;
    const void *grad; /* combined gradient, already divided for an average */
    const void *value_in;
    void *value_out;
    void *state[PSRT_OPTIMIZER_MAX_STATES];
    const double *params; /* hyper-parameters in the order of `param_names` */
    uint64_t t;           /* 1 for the first update of this slice, grows by 1 with each */
    /* Two-phase: `prepare` writes it, may be the memory of grad; `apply` reads it in place of grad. */
    void *update;
    /* Of the whole table: those that `needs` asks for. The update's is known to `apply` only. */
    double grad_norm, value_norm, update_norm;
} psrt_apply_t;

/* Norms that an optimizer needs. */
#define PSRT_NEEDS_GRAD_NORM 1u   /* of the combined gradient, after clipping by norm */
#define PSRT_NEEDS_VALUE_NORM 2u  /* of the values before the update */
#define PSRT_NEEDS_UPDATE_NORM 4u /* of what `prepare` writes */

typedef struct psrt_optimizer_ops {
    size_t size;
    const char *name;
    const char *doc; /* one line: formula and whose definition it follows */
    int num_params;
    const char *param_names[PSRT_OPTIMIZER_MAX_PARAMS];
    double param_defaults[PSRT_OPTIMIZER_MAX_PARAMS];
    int num_states;
    unsigned needs; /* PSRT_NEEDS_*, 0: each element alone */
    const char *state_names[PSRT_OPTIMIZER_MAX_STATES];
    /* NULL: fine; else a static text that says what is wrong with the hyper-parameters */
    const char *(*check)(const double *params);
    void (*apply_f32)(const psrt_apply_t *block);
    void (*apply_f64)(const psrt_apply_t *block);
    /* Value of all elements of state `index` before the first update; NULL: 0 for every state. */
    double (*state_start)(int index, const double *params);
    /* With NEEDS_UPDATE_NORM, else NULL: changes the states and writes `update`, not the values. */
    void (*prepare_f32)(const psrt_apply_t *block);
    void (*prepare_f64)(const psrt_apply_t *block);
} psrt_optimizer_ops_t;

#pragma GCC visibility push(default)

/**
 * What a plug-in exports: its optimizers, NULL at the end, all static. A plug-in is a shared object whose
 * path is in PSRT_PLUGINS of every worker and server; contexts and servers load it when they start.
 */
const psrt_optimizer_ops_t *const *psrt_optimizer_plugin_v1(void);
typedef const psrt_optimizer_ops_t *const *(*psrt_optimizer_plugin_fn)(void);

/**
 * Adds an optimizer to this process, for programs that bring their own without a plug-in. Workers and
 * servers need it before a table names it, so both roles must be processes of such a program.
 * @param ops stays valid until the process ends
 * @return OK, also when it is registered already; ERR_INVALID: the text says what is wrong: `size`, the
 *         name is taken, a count or a function; ERR_LIMIT: 64 are registered
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_optimizer_register(const psrt_optimizer_ops_t *ops);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
