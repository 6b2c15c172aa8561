/* SPDX-License-Identifier: Apache-2.0 */
/* A shard with plain memory around it: requests are made by hand, replies are kept in an array. */
#ifndef PSRT_TESTS_SHARD_FIXTURE_H
#define PSRT_TESTS_SHARD_FIXTURE_H

#include "runtime/server/shard.h"
#include "support/test.h"
#include "transport/frame.h"

#define FX_WORKERS 4
#define FX_REPLIES 1024
#define FX_TERM 5 /* of every virtual shard in the first view */

typedef struct fx_reply {
    psrt_hdr_t hdr;
    uint32_t rank;
    const void *data; /* the shard's memory */
    void *copy;       /* of the data at the time of the send */
    uint64_t len;
    psrt_tx_t *tx; /* pending */
} fx_reply_t;

typedef struct fx {
    psrti_shard_t *shard;
    psrti_view_t *view;
    psrti_peer_t *peer[FX_WORKERS];
    uint32_t link[FX_WORKERS]; /* its address is the link */
    uint64_t seq[FX_WORKERS];
    fx_reply_t reply[FX_REPLIES];
    size_t replies;
    int full, keep; /* sends say AGAIN; sends of values stay pending */
    size_t allocs;
} fx_t;

/* One owner with 8 virtual shards, all workers alive with incarnation rank + 1 and linked. */
fx_t *fx_open(uint32_t workers);
fx_t *fx_open_batching(uint32_t workers, uint64_t batch_bytes);
void fx_close(fx_t *fx);
/* Declares "t<id>", f32, `elements`, whose other properties are the texts (NULL: default). */
void fx_table(fx_t *fx, uint32_t id, uint64_t elements, const char *optimizer,
              const char *consistency, const char *reduce, const char *init, int deterministic);

psrt_hdr_t fx_hdr(fx_t *fx, uint32_t rank, int type, uint32_t table, uint64_t step, uint64_t offset,
                  uint64_t count, unsigned flags);
psrt_rx_t fx_send(fx_t *fx, uint32_t rank, const psrt_hdr_t *hdr, const void *data);
/* The whole of a table of one slice, every element `g`, with END and the flags; a new number. */
fx_reply_t *fx_push(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step, float g,
                    unsigned flags);
fx_reply_t *fx_range(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step, uint64_t offset,
                     const float *g, uint64_t count);
fx_reply_t *fx_clock(fx_t *fx, uint32_t rank, uint32_t table, uint64_t step);
/* NULL when it waits. */
fx_reply_t *fx_pull(fx_t *fx, uint32_t rank, uint32_t table, uint64_t want);

/* Newest reply to the worker, NULL: none since fx_forget. */
fx_reply_t *fx_last(fx_t *fx, uint32_t rank);
void fx_forget(fx_t *fx);
void fx_done(fx_t *fx, size_t i); /* the pending send of reply i is over */
uint64_t fx_version(fx_t *fx, uint32_t table);
float fx_value(fx_t *fx, uint32_t table, uint64_t element);
psrti_shard_counts_t fx_counts(fx_t *fx);

/* The next view: the worker's place is dead (incarnation 0: it keeps its number) or lives. */
void fx_worker_dies(fx_t *fx, uint32_t rank);
/* A new life, counting from `from` on table 1; also a new session. */
void fx_worker_joins(fx_t *fx, uint32_t rank, uint64_t from);

#endif
