/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that came before they were wanted. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/coll_int.h"

#define SPARE_KEPT 256

static psrti_parcel_t *parcel_get(psrti_coll_t *coll)
{
    psrti_list_t *spare = psrti_list_pop(&coll->spare);
    psrti_parcel_t *p = spare ? PSRTI_LIST_ENTRY(spare, psrti_parcel_t, node) : malloc(sizeof *p);
    if (!p) return NULL;
    if (spare) coll->nspare--;
    psrti_list_init(&p->node);
    psrti_list_init(&p->held);
    p->large = NULL;
    return p;
}

/* The payload into memory of ours; `p` has the message of the transport. ERR_STALE: its sender withdrew it. */
static psrt_status_t copy_payload(psrti_coll_t *coll, psrti_parcel_t *p)
{
    const psrti_coll_env_t *env = &coll->env;
    uint64_t len = p->msg.len;
    const void *from = NULL;
    void *to = p->small;

    if (len > PSRTI_COLL_SMALL) to = p->large = malloc(len);
    if (!to) return PSRT_ERR_NO_MEMORY;
    psrt_status_t status = len ? env->map(env->arg, p->rank, &p->msg, &from) : PSRT_OK;
    if (status == PSRT_OK && len) {
        memcpy(to, from, len);
        status = env->verify(env->arg, p->rank, &p->msg);
    }
    if (status == PSRT_OK) return PSRT_OK;
    free(p->large);
    p->large = NULL;
    return status;
}

static void own(psrti_parcel_t *p)
{
    p->is_held = 0;
    p->msg.data = p->large ? p->large : p->small;
    psrti_list_remove(&p->held);
}

/* A small message is copied at once (the transport needs it no more), a larger one kept where it is. NULL: no memory. */
psrti_parcel_t *psrti_parcel_new(psrti_coll_t *coll, uint32_t rank, const psrt_msg_t *msg,
                                 psrt_rx_t *rx_p)
{
    psrti_parcel_t *p = parcel_get(coll);
    if (!p) return NULL;
    p->msg = *msg;
    p->rank = rank;
    p->is_held = 1;
    *rx_p = PSRT_RX_HOLD;
    if (msg->len <= PSRTI_COLL_SMALL && copy_payload(coll, p) == PSRT_OK) {
        own(p);
        *rx_p = PSRT_RX_DONE;
    } else {
        psrti_list_push(&coll->held, &p->held);
    }
    return p;
}

/* Lets go of the sender's memory. */
psrt_status_t psrti_parcel_copy(psrti_coll_t *coll, psrti_parcel_t *p)
{
    if (!p->is_held) return PSRT_OK;
    psrt_status_t status = copy_payload(coll, p);
    if (status != PSRT_OK) return status;
    psrt_msg_t msg = p->msg;
    own(p);
    coll->env.release(coll->env.arg, p->rank, &msg);
    return PSRT_OK;
}

void psrti_parcel_free(psrti_coll_t *coll, psrti_parcel_t *p)
{
    psrti_list_remove(&p->node);
    psrti_list_remove(&p->held);
    if (p->is_held) coll->env.release(coll->env.arg, p->rank, &p->msg);
    free(p->large);
    if (coll->nspare >= SPARE_KEPT) {
        free(p);
        return;
    }
    coll->nspare++;
    psrti_list_push(&coll->spare, &p->node);
}

unsigned psrti_coll_idle(psrti_coll_t *coll)
{
    unsigned n = 0;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->held)
    n += psrti_parcel_copy(coll, PSRTI_LIST_ENTRY(it, psrti_parcel_t, held)) == PSRT_OK;
    return n;
}

/* Those of a link that ends, as far as they can still be read. */
void psrti_parcels_copy_from(psrti_coll_t *coll, uint32_t rank)
{
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->held)
    {
        psrti_parcel_t *p = PSRTI_LIST_ENTRY(it, psrti_parcel_t, held);
        if (p->rank == rank) (void)psrti_parcel_copy(coll, p);
    }
}
