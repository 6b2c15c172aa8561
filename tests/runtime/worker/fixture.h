/* SPDX-License-Identifier: Apache-2.0 */
/* A client with nobody behind it: what it sends is kept in an array, answers are made by hand. */
#ifndef PSRT_TESTS_CLIENT_FIXTURE_H
#define PSRT_TESTS_CLIENT_FIXTURE_H

#include "runtime/worker/client.h"
#include "support/test.h"
#include "transport/frame.h"

#define FX_OWNERS 2
#define FX_SENDS 4096
#define FX_RETRY 1000000000ull
#define FX_CANCEL 3000000000ull
#define FX_SLICE PSRTI_SLICE_ELEMS

typedef struct fx_send {
    uint32_t owner;
    psrt_hdr_t hdr;
    const void *data;
    uint64_t len;
    psrt_tx_t *tx; /* pending */
} fx_send_t;

typedef struct fx {
    psrti_client_t *client;
    psrti_view_t *view;
    psrti_ctable_t *table[8];
    fx_send_t sent[FX_SENDS];
    size_t sends;
    int full[FX_OWNERS], keep; /* sends say AGAIN; payloads stay pending */
    int stale;                 /* values are withdrawn while they are read */
    uint64_t now;
    unsigned used, fences;
    float *memory; /* for gradients and values, 4 slices */
} fx_t;

/* Two owners with 8 virtual shards in turn, both linked. */
fx_t *fx_open(void);
fx_t *fx_open_batching(uint64_t batch_bytes);
void fx_close(fx_t *fx);
/* Declares table `id` named by a text whose slice 0 lives at owner 0. */
void fx_table(fx_t *fx, uint32_t id, uint64_t elements, const char *consistency, uint64_t first);
/* The same in a group, which is decided at owner 0 too. */
void fx_group_table(fx_t *fx, uint32_t id, uint64_t elements, const char *group);

enum { PUSH = 1, PULL = 2, MORE = 4, INIT = 8 };
psrti_transfer_t fx_transfer(fx_t *fx, uint32_t table, int kind, uint64_t offset, uint64_t count);
void fx_submit(fx_t *fx, psrti_cop_t *op, uint32_t table, int kind, uint64_t offset,
               uint64_t count);
uint64_t fx_progress(fx_t *fx);
/* Sends of a type since `from`. */
size_t fx_count(const fx_t *fx, int type, size_t from);

psrt_rx_t fx_ack(fx_t *fx, size_t i, psrt_status_t status, unsigned flags, uint64_t version);
psrt_rx_t fx_value(fx_t *fx, size_t i, uint64_t version, float value);
void fx_done(fx_t *fx, size_t i);
/* Frees the text of an op that must have ended. */
void fx_ended(fx_t *fx, psrti_cop_t *op, psrt_status_t status);
/* A view in which the owner is dead, or lives again under the next term. */
void fx_owner(fx_t *fx, uint32_t owner, int alive);

#endif
