/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: the checks of arguments. */
#include <string.h>

#include "base/log.h"
#include "runtime/api/api.h"
#include "runtime/worker/comm.h"
#include "runtime/worker/fusion.h"

#define BUCKET_BYTES (25ull << 20)
#define ALONE_BYTES (32u << 10)
#define CYCLE_NS (5 * PSRTI_NS_PER_MS)

static psrt_status_t may_wait(psrti_worker_t *worker, const char *call, psrt_op_t **op_p)
{
    return op_p ? PSRT_OK : psrti_worker_may_wait(worker, call);
}

psrt_status_t psrt_fusion_create(psrt_comm_t *comm, const psrt_fusion_params_t *params,
                                 psrt_fusion_t **fusion_p, psrt_op_t **op_p)
{
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    psrt_op_t *op;
    psrt_fusion_t *f;
    psrt_status_t rc = psrt_comm_query(comm, &attr);
    if (!rc) rc = may_wait(psrti_comm_worker(comm), "psrt_fusion_create without op_p", op_p);
    if (rc) return rc;
    if (params && params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_fusion_create: params must start as PSRT_FUSION_PARAMS_INIT");
    if (!fusion_p) return psrti_fail(PSRT_ERR_INVALID, "psrt_fusion_create: fusion_p is NULL");
    if (attr.status == PSRT_ERR_BUSY || attr.ranks == 0)
        return psrti_fail(attr.status,
                          "psrt_fusion_create: the communicator is not ready, or none");
    if (attr.status)
        return psrti_fail(attr.status,
                          "psrt_fusion_create: the communicator has failed, make another one "
                          "(psrt_comm_shrink: of those that live)");
    psrt_fusion_params_t p = PSRT_FUSION_PARAMS_INIT;
    if (params) p = *params;
    if (!p.bucket_bytes) p.bucket_bytes = BUCKET_BYTES;
    if (!p.alone_bytes) p.alone_bytes = ALONE_BYTES;
    if (!p.cycle_ns) p.cycle_ns = CYCLE_NS;
    rc = psrti_worker_fusion_create(comm, &p, &f, &op);
    if (rc) return rc;
    if (op_p) {
        *op_p = op;
    } else if ((rc = psrti_worker_wait(op, PSRT_FOREVER))) {
        psrti_worker_fusion_free(f);
        return rc;
    }
    *fusion_p = f;
    return PSRT_OK;
}

static psrt_status_t check_ready(psrt_fusion_t *f, const char *call)
{
    if (!f) return psrti_fail(PSRT_ERR_INVALID, "%s: the fusion is NULL", call);
    if (psrti_fusion_is_ready(f)) return PSRT_OK;
    return psrti_fail(PSRT_ERR_BUSY,
                      "%s: the fusion is not ready, wait for the operation of its creation", call);
}

static psrt_status_t bad(const char *what)
{
    return psrti_fail(PSRT_ERR_INVALID, "psrt_fusion_allreduce: %s", what);
}

static psrt_status_t check_tensor(const char *name, const void *in, const void *out, uint64_t count,
                                  int dtype, int redop)
{
    size_t len = name ? strlen(name) : 0, width = psrt_dtype_size((psrt_dtype_t)dtype);
    if (len == 0 || len > PSRTI_FUSE_NAME) return bad("the name must have 1 to 255 bytes");
    if (width == 0) return bad("dtype is not one of psrt_dtype_t");
    if (redop < PSRT_SUM || redop > PSRT_AVG) return bad("redop is not one of psrt_redop_t");
    if (count && !in) return bad("`in` is NULL");
    if (count && !out) return bad("`out` is NULL");
    if (count > INT64_MAX / width) return bad("the buffers would be larger than any memory");
    return PSRT_OK;
}

psrt_status_t psrt_fusion_allreduce(psrt_fusion_t *f, const char *name, const void *in, void *out,
                                    uint64_t count, psrt_dtype_t dtype, psrt_redop_t redop,
                                    psrt_op_t **op_p)
{
    psrt_op_t *op;
    psrt_status_t rc = check_ready(f, "psrt_fusion_allreduce");
    if (!rc) rc = may_wait(psrti_fusion_worker(f), "psrt_fusion_allreduce without op_p", op_p);
    if (!rc) rc = check_tensor(name, in, out, count, (int)dtype, (int)redop);
    if (rc) return rc;
    psrti_fuse_sig_t sig = { count, (uint8_t)dtype, (uint8_t)redop };
    rc = psrti_worker_fuse(f, name, in, out, sig, &op);
    if (rc) return rc;
    if (op_p) {
        *op_p = op;
        return PSRT_OK;
    }
    (void)psrti_worker_fusion_flush(f); /* if it failed so does the operation */
    return psrti_worker_wait(op, PSRT_FOREVER);
}

psrt_status_t psrt_fusion_flush(psrt_fusion_t *f)
{
    psrt_status_t rc = check_ready(f, "psrt_fusion_flush");
    return rc ? rc : psrti_worker_fusion_flush(f);
}

psrt_status_t psrt_fusion_query(psrt_fusion_t *f, psrt_fusion_attr_t *attr)
{
    if (!f) return psrti_fail(PSRT_ERR_INVALID, "psrt_fusion_query: the fusion is NULL");
    if (!attr || attr->size != sizeof *attr)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_fusion_query: attr must start as PSRT_FUSION_ATTR_INIT");
    psrti_worker_fusion_query(f, attr);
    return PSRT_OK;
}

void psrt_fusion_free(psrt_fusion_t *f)
{
    if (f) psrti_worker_fusion_free(f);
}
