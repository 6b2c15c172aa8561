/* SPDX-License-Identifier: Apache-2.0 */
/* What client.c, part.c, queue.c, batch.c and answer.c share. */
#ifndef PSRTI_CLIENT_INT_H
#define PSRTI_CLIENT_INT_H

#include "base/map.h"
#include "runtime/core/batch.h"
#include "runtime/worker/client.h"
#include "transport/frame.h"

#ifndef PSRTI_NUMBERS     /* outstanding mutating requests a vshard; the simulator has fewer */
#define PSRTI_NUMBERS 256 /* as many as server/window.h */
#endif

typedef enum psrti_part_state {
    PSRTI_PART_QUEUED,   /* in its slice's queue; the head may also be in the heap */
    PSRTI_PART_READY,    /* in the heap of its owner                               */
    PSRTI_PART_BLOCKED,  /* head of its queue, 256 numbers of its vshard are out   */
    PSRTI_PART_DELAYED,  /* the server asked to come again later                   */
    PSRTI_PART_SENT,     /* waits for its answer                                   */
    PSRTI_PART_CANCELED, /* waits for the answer to CANCEL, or any other           */
    PSRTI_PART_ENDED     /* answered, a send is still in flight                    */
} psrti_part_state_t;

typedef struct psrti_part {
    psrti_list_t op_node; /* in op->parts; self: none                                  */
    psrti_list_t node;    /* slice queue, or the client's delayed, sent or recalled list */
    psrti_list_t
        wait_node; /* its vshard's blocked list, or the client's gated one                        */
    psrt_tx_t tx;
    psrti_client_t *client;
    psrti_cop_t *op; /* NULL: CLOCK, or given up by its op */
    psrti_ctable_t *table;
    struct psrti_cstep *cstep; /* pushes of a step that ends with CLOCK; CLOCK itself */
    psrti_part_state_t state;
    uint8_t type, resend, captured, in_flight, abandoned;
    uint16_t flags;
    uint16_t vshard;
    uint32_t owner;
    int priority;
    uint64_t order;
    uint64_t slice, offset, count, step;
    uint64_t seq; /* 0: not numbered yet */
    const char *grad;
    void *encoded; /* with a codec: what is sent in place of grad; until the part ends */
    char *value;
    uint64_t due;     /* DELAYED: when; SENT: when to send again; QUEUED head: when to probe;
                     CANCELED: when to send CANCEL (again)                             */
    uint64_t give_up; /* recalled: when to fence the owner  */
    uint32_t session; /* of the owner's links, when it was sent last */
    uint32_t tries;
    uint32_t epoch;       /* pushes: the table's when it was submitted */
    psrt_status_t status; /* ENDED */
    struct psrti_part *next_free;
} psrti_part_t;

/* A step of a table that ends by CLOCK: ssp, or sync with ranges. */
typedef struct psrti_cstep {
    psrti_list_t node;   /* in table->csteps */
    uint64_t step, last; /* the one that is told, up to the last that is to be told after it */
    uint64_t uncaptured; /* pushes                           */
    uint32_t clocks;     /* CLOCK messages not answered      */
    int closing;         /* its last push was submitted      */
    int clocked;         /* CLOCKs were made                 */
    int skip;            /* not an end: the worker came late and goes on from `step`; waits for all
                            pushes of its epoch and earlier ones */
    uint32_t epoch;
} psrti_cstep_t;

typedef struct psrti_cslice {
    psrti_list_t queue; /* parts not sent yet, in order */
    uint64_t version;   /* highest known to be published */
} psrti_cslice_t;

struct psrti_ctable {
    uint32_t id;
    psrti_table_spec_t spec;
    uint64_t hash, nslices, next_step, created_view;
    uint64_t skipped_steps;  /* of its group, as servers say */
    uint16_t group_vshard;   /* two-phase tables: where their group is decided; else slice 0's */
    size_t elem;             /* bytes of an element, as the user has it */
    psrt_dtype_t wire_value; /* the format in which values come        */
    int used;
    uint32_t epoch;       /* grows when the worker comes late     */
    uint64_t uncaptured;  /* pushes                               */
    psrt_status_t status; /* not OK: failed */
    char *text;
    psrti_cslice_t *slice;
    psrti_list_t csteps;
};

typedef struct psrti_cvshard {
    uint64_t next_seq, floor; /* floor: lowest number not ended */
    uint64_t changed_view;    /* view in which the term last grew */
    psrti_part_t **ring;      /* by seq % 256; NULL until used     */
    psrti_list_t blocked;     /* parts that wait for a number      */
} psrti_cvshard_t;

/* A part that may be sent; the smallest key goes first. */
typedef struct psrti_queued {
    uint64_t key;
    psrti_part_t *part;
} psrti_queued_t;

typedef struct psrti_cowner {
    int up, full;         /* link; it said AGAIN */
    uint32_t session;     /* links that were up so far */
    psrti_queued_t *heap; /* queue.c */
    size_t count, capacity;
} psrti_cowner_t;

struct psrti_client {
    uint32_t rank;
    uint64_t retry_ns, cancel_ns, now, order, next_tag;
    const psrti_kernels_t *k;
    psrti_client_env_t env;
    psrti_view_t *view;
    psrti_cowner_t *owners;
    psrti_cvshard_t *vshards;
    psrti_map_t tables, pulls;
    psrti_list_t sent, delayed, gated, completed;
    psrti_list_t
        recalled;       /* parts of ops that were asked to end: CANCELED, or ENDED and in flight */
    psrti_list_t timed; /* ops with a deadline */
    uint64_t next_recall, next_deadline; /* no timer of those two lists is due earlier */
    psrti_part_t *free_parts;
    psrti_batches_t batches;
    uint64_t outstanding, next_scan;
    int some_table_failed;
    int starved;          /* parts wait for numbers; see psrti_numbers_relieve */
    psrt_status_t status; /* not OK: everything failed */
    char *text;
    psrti_client_counts_t counts;
};

/* part.c: life of a part */
psrti_part_t *psrti_part_new(psrti_client_t *c, psrti_ctable_t *table, psrti_cop_t *op);
void psrti_part_enqueue(psrti_client_t *c, psrti_part_t *part);
/* Puts the head of a slice's queue into its owner's heap if its step may go out, else on the gated
 * list. It stays the head until it is sent. */
void psrti_slice_kick(psrti_client_t *c, psrti_ctable_t *table, uint64_t slice);
void psrti_part_ready(psrti_client_t *c, psrti_part_t *part);
/* Answered: ends it now or when its send is done. */
void psrti_part_end(psrti_client_t *c, psrti_part_t *part, psrt_status_t status);
/* A push was taken over by the server (its step may end). */
void psrti_part_captured(psrti_client_t *c, psrti_part_t *part);
void psrti_part_delay(psrti_client_t *c, psrti_part_t *part);
/* Its number was refused, so that it will not be applied under it: it takes another when it is
 * sent again, and holds none while it waits for other workers, who may need the window to move. */
void psrti_part_renumber(psrti_client_t *c, psrti_part_t *part);
/* Takes a READY part out of the heap of its owner. */
void psrti_part_unready(psrti_client_t *c, psrti_part_t *part);
void psrti_part_header(psrti_client_t *c, const psrti_part_t *part, psrt_hdr_t *hdr);
/* Number, header and payload. ERR_AGAIN: its vshard has no number left. */
psrt_status_t psrti_part_prepare(psrti_client_t *c, psrti_part_t *part, psrt_hdr_t *hdr,
                                 const void **data_p);
uint64_t psrti_part_bytes(const psrti_part_t *part); /* of the payload */
/* Until its vshard has a number again. It is in no queue of an owner. */
void psrti_part_block(psrti_client_t *c, psrti_part_t *part);
/* Makes numbers free that captured push_pulls hold while they wait for other workers, where
 * parts wait for numbers: those workers may wait for just these parts. */
void psrti_numbers_relieve(psrti_client_t *c);
/* It leaves its slice's queue; the next one may follow. */
void psrti_part_sent(psrti_client_t *c, psrti_part_t *part);
void psrti_owner_send(psrti_client_t *c, uint32_t owner);
void psrti_op_fail(psrti_client_t *c, psrti_cop_t *op, psrt_status_t status, const char *text);
void psrti_op_settle(psrti_client_t *c, psrti_cop_t *op);
/* The worker came late: tells the servers that it goes on from the table's next step. */
void psrti_table_skipped(psrti_client_t *c, psrti_ctable_t *table);
void psrti_cstep_review(psrti_client_t *c, psrti_ctable_t *table, psrti_cstep_t *cstep);

/* fail.c */
/* Marks the table, and the others of its group: they step together, so what ends one ends them all. Their
 * parts are the caller's to end, with psrti_fail_marked. */
void psrti_table_mark_failed(psrti_client_t *c, psrti_ctable_t *t, psrt_status_t status,
                             const char *text);
void psrti_fail_marked(psrti_client_t *c);

/* cancel.c */
/* A submitted op has a deadline. */
void psrti_cancel_watch(psrti_client_t *c, psrti_cop_t *op);
/* The answer to a recalled part's CANCEL. */
void psrti_cancel_answered(psrti_client_t *c, psrti_part_t *part, const psrt_hdr_t *hdr);
/* The session with the owner is over: what was recalled ends. */
void psrti_cancel_lost(psrti_client_t *c, uint32_t owner);
/* Deadlines, CANCELs that are due, fences; lowers *next to the next timer. */
void psrti_cancel_progress(psrti_client_t *c, uint64_t *next);

/* queue.c: what may be sent to an owner, the first one at the head */
psrt_status_t psrti_queue_push(psrti_cowner_t *o, psrti_part_t *part);
psrti_part_t *psrti_queue_head(const psrti_cowner_t *o); /* NULL: empty */
void psrti_queue_pop(psrti_cowner_t *o);
void psrti_queue_remove(psrti_cowner_t *o, const psrti_part_t *part);

/* batch.c: if the first parts in the owner's queue are small, and more than one, they go out as one
 * message. 0: they are not, or there is no memory. */
int psrti_batch_send(psrti_client_t *c, uint32_t owner);

static inline const struct psrti_kernels_of_half *psrti_half_of(const psrti_client_t *c,
                                                                psrti_codec_t codec)
{
    return codec == PSRTI_CODEC_F16 ? &c->k->f16 : &c->k->bf16;
}
static inline int psrti_part_mutates(const psrti_part_t *part)
{
    return part->type == PSRTI_T_PUSH || part->type == PSRTI_T_INIT;
}

#endif
