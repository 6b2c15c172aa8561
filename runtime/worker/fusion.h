/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion in a worker: submissions by any thread, moved by whoever holds the baton. */
#ifndef PSRTI_WORKER_FUSION_H
#define PSRTI_WORKER_FUSION_H

#include <psrt/fusion.h>

#include "runtime/coll/fuse.h"
#include "runtime/worker/worker.h"

/* All of params is set. */
psrt_status_t psrti_worker_fusion_create(psrt_comm_t *parent, const psrt_fusion_params_t *params,
                                         psrt_fusion_t **fusion_p, psrt_op_t **op_p);
void psrti_worker_fusion_free(psrt_fusion_t *fusion);
/* Arguments are checked. */
psrt_status_t psrti_worker_fuse(psrt_fusion_t *fusion, const char *name, const void *in, void *out,
                                psrti_fuse_sig_t sig, psrt_op_t **op_p);
psrt_status_t psrti_worker_fusion_flush(psrt_fusion_t *fusion);
void psrti_worker_fusion_query(psrt_fusion_t *fusion, psrt_fusion_attr_t *attr);
/* Any thread, without the baton. It may have failed since. */
int psrti_fusion_is_ready(const psrt_fusion_t *fusion);
psrti_worker_t *psrti_fusion_worker(const psrt_fusion_t *fusion);

#endif
