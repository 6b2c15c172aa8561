/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's state machine: operations split into parts (one message each; small ones travel together),
 * queues per slice, a heap per owner, numbers, retries. Pure: no I/O, clock, thread or randomness;
 * messages leave through the env table, ended operations through psrti_client_completed. worker.c drives
 * it with real links, tests/sim with simulated ones.
 *
 * Invariants
 *  - A part ends when it was answered (or given up) and no send of it is in flight: nobody touches the
 *    memory of an op that ended.
 *  - A part that is canceled after it was sent ends when its server answered CANCEL or its session is
 *    over: its number is applied by then, or never.
 *  - A mutating part keeps its number through every retry, until its server refused it; nothing holds a
 *    number that others need while it waits for other workers. The floor told to servers is the lowest
 *    number that may still be sent.
 *  - Parts of one slice are sent in the order of their submission, whatever their priorities.
 *  - At most two steps of a sync slice are open: step s goes out when version s - 1 is known to be
 *    published, or as a probe after a retry time.
 *  - A step that needs CLOCK is ended only when all its pushes are captured. */
#ifndef PSRTI_CLIENT_H
#define PSRTI_CLIENT_H

#include "base/list.h"
#include "kernels/kernels.h"
#include "runtime/core/table_spec.h"
#include "runtime/core/view.h"

typedef struct psrti_client psrti_client_t;
typedef struct psrti_ctable psrti_ctable_t;

/* An operation; the owner embeds it. Zero it, then psrti_client_submit. */
typedef struct psrti_cop {
    psrti_list_t node;  /* completed list        */
    psrti_list_t parts; /* those not ended       */
    psrt_result_t result;
    char *text; /* of a failure, malloc'ed; the owner frees it */
    int ended;
    int is_bulk;         /* its values are more than a cache holds */
    uint64_t deadline;   /* set by the owner; 0: none                                  */
    psrti_list_t timed;  /* in the client's list of ops with a deadline                 */
    psrt_status_t asked; /* ERR_CANCELED or ERR_DEADLINE: to end as soon as it can      */
    int told;            /* how much `text` says about what was missing, see cancel.c   */
} psrti_cop_t;

/* One transfer, validated: the range lies in the table. */
typedef struct psrti_transfer {
    psrti_ctable_t *table;
    const void *grad; /* push    */
    void *value;      /* pull    */
    uint64_t offset, count, step;
    int priority, more;
    int average; /* pull: the averages of the weights */
    int init;    /* grad holds initial values of a rank0 table */
} psrti_transfer_t;

typedef struct psrti_client_env {
    void *arg;
    /* As the transport's send, to the link with this owner; ERR_AGAIN also when there is none. */
    psrt_status_t (*send)(void *arg, uint32_t owner, psrt_hdr_t *hdr, const void *data,
                          uint64_t len, psrt_tx_t *tx);
    psrt_status_t (*map)(void *arg, uint32_t owner, psrt_msg_t *msg, const void **data_p);
    psrt_status_t (*verify)(void *arg, uint32_t owner, const psrt_msg_t *msg);
    void (*used)(void *arg, uint32_t table); /* first push of the table */
    /* The owner does not answer: closes the link, so that nothing of its session is applied any more
     * once there is another one, calls psrti_client_link_lost before it returns, and dials anew. */
    void (*fence)(void *arg, uint32_t owner);
    uint64_t batch_bytes; /* payload of a BATCH at most; 0: every message goes alone */
} psrti_client_env_t;

/* Unanswered requests are repeated after retry_ns; a CANCEL that is not answered within cancel_ns fences
 * the owner. */
psrt_status_t psrti_client_create(uint32_t rank, uint64_t retry_ns, uint64_t cancel_ns,
                                  const psrti_kernels_t *kernels, const psrti_client_env_t *env,
                                  psrti_client_t **client_p);
/* All links must be gone; operations that have not ended are forgotten. NULL allowed. */
void psrti_client_destroy(psrti_client_t *client);

void psrti_client_view(psrti_client_t *client, psrti_view_t *view);
/* A declared table; from then on transfers are possible. The pointer is valid as long as the client. */
psrt_status_t psrti_client_table(psrti_client_t *client, uint32_t id,
                                 const psrti_table_spec_t *spec, uint64_t first_step,
                                 psrti_ctable_t **table_p);
/* All operations on it end, now and later, with this status. Unknown ids are ignored. */
void psrti_client_table_fail(psrti_client_t *client, uint32_t id, psrt_status_t status,
                             const char *text);
/* The same for everything. */
void psrti_client_fail(psrti_client_t *client, psrt_status_t status, const char *text);

void psrti_client_submit(psrti_client_t *client, psrti_cop_t *op, const psrti_transfer_t *transfers,
                         size_t count);

/* Ends a submitted op with `status` as soon as nobody can touch its memory, or with its normal result if
 * it is done before. */
void psrti_client_cancel(psrti_client_t *client, psrti_cop_t *op, psrt_status_t status);

void psrti_client_link_up(psrti_client_t *client, uint32_t owner);
void psrti_client_link_writable(psrti_client_t *client, uint32_t owner);
void psrti_client_link_lost(psrti_client_t *client, uint32_t owner);
psrt_rx_t psrti_client_msg(psrti_client_t *client, uint32_t owner, psrt_msg_t *msg);

/* Sends what can be sent, retries what is due. Returns the time of the next timer (UINT64_MAX: none). */
uint64_t psrti_client_progress(psrti_client_t *client, uint64_t now);
/* Next ended operation, NULL: none. */
psrti_cop_t *psrti_client_completed(psrti_client_t *client);
/* Parts of user operations and step ends that are not done yet. */
uint64_t psrti_client_outstanding(const psrti_client_t *client);
/* "push_pull of table w, step 3: no answer from server:1" into buf. */
void psrti_client_describe(const psrti_client_t *client, const psrti_cop_t *op, char *buf,
                           size_t size);

uint32_t psrti_ctable_id(const psrti_ctable_t *table);
const psrti_table_spec_t *psrti_ctable_spec(const psrti_ctable_t *table);
uint64_t psrti_ctable_next_step(const psrti_ctable_t *table);
uint64_t psrti_ctable_skipped_steps(const psrti_ctable_t *table);

typedef struct psrti_client_counts {
    uint64_t pushed_bytes, pulled_bytes; /* payload of parts that ended well */
    uint64_t retries, moved, late;
    uint64_t
        canceled; /* parts that were cut short: before they were sent, by CANCEL, or by a fence */
    uint64_t fences;
    uint64_t batches, batched; /* BATCH frames sent, messages in them */
} psrti_client_counts_t;
void psrti_client_counts(const psrti_client_t *client, psrti_client_counts_t *out);

#endif
