/* SPDX-License-Identifier: Apache-2.0 */
/* A view: who is in the job, where the owners listen, which owner has which virtual shard.
 * Numbered by the coordinator, immutable once made, shared by reference count.
 *
 * An owner is one server thread: share-nothing, with its own interfaces, sessions and shards. */
#ifndef PSRTI_VIEW_H
#define PSRTI_VIEW_H

#include <stdatomic.h>

#include <psrt/ext/transport_v1.h>

#include "runtime/core/placement.h"

#define PSRTI_ADDRS_PER_OWNER 4
#define PSRTI_VIEW_HOST 64
#define PSRTI_VIEW_ADDRS 256

typedef struct psrti_view_worker {
    uint64_t incarnation;         /* 0: has not joined yet                              */
    int alive;                    /* in the membership                                  */
    int finished;                 /* left in order (not a failure)                      */
    char host[PSRTI_VIEW_HOST];   /* of its process; "": not known              */
    char addrs[PSRTI_VIEW_ADDRS]; /* for other workers, with spaces between; ""  */
} psrti_view_worker_t;

typedef struct psrti_view_owner {
    uint32_t server; /* rank  */
    uint32_t thread;
    uint64_t incarnation; /* of the server's process                          */
    int alive;
    char host[PSRTI_VIEW_HOST];
    uint32_t naddrs;
    char addr[PSRTI_ADDRS_PER_OWNER][PSRT_ADDR_MAX];
} psrti_view_owner_t;

typedef struct psrti_view_vshard {
    uint16_t owner;
    uint32_t term; /* grows whenever the owner or its incarnation changes */
} psrti_view_vshard_t;

typedef struct psrti_view {
    atomic_uint refs;
    uint64_t number;     /* grows with every change                                   */
    uint64_t generation; /* of the coordinator                                        */
    uint32_t nworkers, nowners, nvshards;
    psrti_view_worker_t *workers; /* by rank  */
    psrti_view_owner_t *owners;   /* by owner */
    psrti_view_vshard_t *vshards;
} psrti_view_t;

psrti_view_t *psrti_view_new(uint32_t nworkers, uint32_t nowners, uint32_t nvshards); /* refs 1 */
psrti_view_t *psrti_view_clone(const psrti_view_t *view);
psrti_view_t *psrti_view_ref(psrti_view_t *view);
void psrti_view_unref(psrti_view_t *view); /* NULL allowed */
uint32_t psrti_view_live_workers(const psrti_view_t *view);
uint32_t psrti_view_live_servers(const psrti_view_t *view);
/* Threads of the living that poll on this host: of servers, and one of each worker. */
uint32_t psrti_view_pollers(const psrti_view_t *view, const char *host);
/* What is different in `view` from `old`, for people: "worker:1 died, server:0 joined at node7"; "" if
 * nobody came or went; with `old` NULL how many there are. Cut to `size`. */
void psrti_view_changes(const psrti_view_t *old, const psrti_view_t *view, char *buf, size_t size);

#endif
