/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by server.c (threads, links, life) and server_jobs.c (what the coordinator tells a server, which
 * every thread does to its own shard). */
#ifndef PSRTI_SERVER_INT_H
#define PSRTI_SERVER_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/spin.h"
#include "runtime/cluster/member.h"
#include "runtime/core/net.h"
#include "runtime/server/server.h"
#include "runtime/server/shard.h"
#include "runtime/server/writer.h"

typedef struct sthread {
    psrti_server_t *server;
    uint32_t index;
    pthread_t thread;
    int started;
    psrti_net_t *net;
    psrti_shard_t *shard; /* from the first view on */
    psrti_link_t **out;   /* by owner: dialled, for groups of tables; NULL: none */
    uint32_t nowners;
    pthread_mutex_t lock; /* of the inbox           */
    struct entry *first, **last;
    atomic_int filled; /* the inbox has something */
    uint64_t last_loop, frozen;
    unsigned turns; /* since the shard's progress */
    psrti_writer_t writer;
    psrti_spin_t spin;
} sthread_t;

struct psrti_server {
    psrti_server_start_t p;
    const psrti_kernels_t *kernels;
    _Atomic(psrti_member_t *) member;
    uint32_t nthreads;
    sthread_t *threads;
    atomic_int stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ended;
    psrt_status_t end_status;
    char end_text[PSRTI_ERROR_MAX];
};

/* server.c: makes the thread's shard with its first view; drops links with owners that are gone. */
void psrti_server_view(sthread_t *thread, const psrti_view_t *view);

/* server_jobs.c: in the thread */
void psrti_server_work(sthread_t *thread);   /* does what is in the inbox */
void psrti_server_forget(sthread_t *thread); /* what is left there        */
/* Callbacks of the member, `arg` is the server. */
void psrti_server_on_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                          const uint32_t *table, const uint64_t *from_step);
void psrti_server_on_hold(void *arg, size_t count, const psrti_member_table_t *tables);
void psrti_server_on_prepare(void *arg, uint64_t view, uint32_t worker);
void psrti_server_on_set_prepare(void *arg, const psrti_member_set_t *set);
void psrti_server_on_set_end(void *arg, uint64_t number, int commit, uint64_t from_step);

#endif
