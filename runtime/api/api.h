/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the public API share. */
#ifndef PSRTI_API_H
#define PSRTI_API_H

#include <pthread.h>

#include "base/config.h"
#include "base/jobkey.h"
#include "base/list.h"
#include "runtime/cluster/coordinator.h"
#include "runtime/core/table_spec.h"
#include "runtime/server/server.h"
#include "runtime/worker/worker.h"

struct psrt_context {
    psrti_config_t *config;
    psrti_jobkey_t key;
    psrti_worker_t *worker;
    uint32_t rank, workers, servers;
    void (*on_event)(void *arg, int event, const char *text);
    void *arg;
    pthread_mutex_t lock; /* of the list of tables */
    psrti_list_t tables;
    /* embedded server */
    psrti_server_t *server;
    psrti_coordinator_t *coordinator;
    pthread_t coordinator_thread;
    int coordinator_started;
    volatile int coordinator_stop;
    char job_dir[64]; /* made for shared memory within the process; "" else */
};

struct psrt_table {
    psrti_list_t node;
    psrt_context_t *ctx;
    psrti_ctable_t *ctable;
    psrti_table_spec_t spec;
};

/* What the environment and settings say of this task's place in the job. */
typedef struct psrti_place {
    uint32_t rank, workers, servers;
    const char *coordinator; /* "": alone */
} psrti_place_t;

/* Configuration with the settings applied. */
psrt_status_t psrti_api_config(const char *const *settings, psrti_config_t **config_p);
/* Checks role and rank; names the variable that is wrong. `role` is "worker", "server", ... */
psrt_status_t psrti_api_place(const psrti_config_t *config, const char *role, psrti_place_t *place);
psrt_status_t psrti_api_key(const psrti_config_t *config, psrti_jobkey_t *key);

#endif
