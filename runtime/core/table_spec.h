/* SPDX-License-Identifier: Apache-2.0 */
/* What a table is: the specification that all tasks agree on. */
#ifndef PSRTI_TABLE_SPEC_H
#define PSRTI_TABLE_SPEC_H

#include <psrt/psrt.h>

#include "kernels/optimizer.h"
#include "transport/frame.h"

#define PSRTI_NAME_MAX 255

typedef enum psrti_consistency { PSRTI_SYNC, PSRTI_ASYNC, PSRTI_SSP } psrti_consistency_t;

typedef struct psrti_table_spec {
    char name[PSRTI_NAME_MAX + 1];
    psrt_dtype_t value_dtype; /* of the values, as the user has them                             */
    psrt_dtype_t grad_dtype;  /* of the gradients, as the user has them                          */
    psrt_dtype_t acc_dtype;   /* of the server's values, accumulators and optimizer state        */
    int ndim;
    uint64_t shape[PSRT_MAX_DIMS];
    uint64_t elements;
    char init[128];      /* as it was given, "zeros" if it was not   */
    char optimizer[512]; /* canonical text with every hyper-parameter */
    psrti_consistency_t consistency;
    uint32_t staleness; /* ssp */
    uint32_t backup;    /* sync: workers that a step does not wait for */
    int average;        /* else sum */
    int deterministic;
    psrti_codec_t codec;            /* of gradients and values on the wire; f32 only */
    char group[PSRTI_NAME_MAX + 1]; /* whose tables are clipped and skipped together; "": alone */
} psrti_table_spec_t;

/* Checks and completes the user's parameters. ERR_INVALID names table and field. */
psrt_status_t psrti_table_spec_make(const char *name, const psrt_dense_params_t *params,
                                    psrti_table_spec_t *spec);
/* OK or ERR_MISMATCH with a text "table "w": dtype f32 (worker:0) against f64 (worker:1)" in why. */
psrt_status_t psrti_table_spec_compare(const psrti_table_spec_t *a, const char *a_who,
                                       const psrti_table_spec_t *b, const char *b_who, char *why,
                                       size_t why_size);
/* The format in which elements of `dtype` (value_dtype or grad_dtype) travel, except in INIT. */
static inline psrt_dtype_t psrti_table_spec_wire(const psrti_table_spec_t *spec, psrt_dtype_t dtype)
{
    return spec->codec == PSRTI_CODEC_F16    ? PSRT_F16
           : spec->codec == PSRTI_CODEC_BF16 ? PSRT_BF16
                                             : dtype;
}
/* Does the server keep averages of the weights? */
int psrti_table_spec_averages(const psrti_table_spec_t *spec);
/* The optimizer, checked for this table. ERR_INVALID, also when it is of a plug-in that this task does not
 * have; the text names the table. */
psrt_status_t psrti_table_spec_optimizer(const psrti_table_spec_t *spec, psrti_optimizer_t *opt_p);
/* Checks a specification that came over the wire as psrti_table_spec_make checks the user's, but for an
 * optimizer of a plug-in: see psrti_table_spec_optimizer. */
psrt_status_t psrti_table_spec_check(const psrti_table_spec_t *spec);

/* The virtual shard whose owner decides for the group; for a table alone that of its first slice. */
uint16_t psrti_table_spec_group_vshard(const psrti_table_spec_t *spec, uint32_t nvshards);
/* May two tables be in one group? OK or ERR_MISMATCH with a text that names both in why. */
psrt_status_t psrti_table_spec_match(const psrti_table_spec_t *a, const psrti_table_spec_t *b,
                                     char *why, size_t why_size);

#endif
