/* SPDX-License-Identifier: Apache-2.0 */
/* One table of every variable: name, type, default, doc. A config object holds the values of one
 * context: default, then environment, then explicit settings, each with its origin. */
#ifndef PSRTI_BASE_CONFIG_H
#define PSRTI_BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

typedef enum psrti_config_type {
    PSRTI_CONFIG_INT,      /* int64 within [min, max]          */
    PSRTI_CONFIG_BOOL,     /* 0 1 yes no true false on off     */
    PSRTI_CONFIG_SIZE,     /* bytes, "16MiB"                   */
    PSRTI_CONFIG_DURATION, /* nanoseconds, "5s"                */
    PSRTI_CONFIG_TEXT,
    PSRTI_CONFIG_ENUM /* one of `choices`, value is the index; "a|b|c" */
} psrti_config_type_t;

/* X(ID, type, name, default text, choices or NULL, min, max, doc); max 0 of a SIZE or DURATION: no
 * upper limit. */
#define PSRTI_CONFIG_MAP(X)                                                                          \
    X(ROLE, TEXT, "PSRT_ROLE", "", NULL, 0, 0,                                                       \
      "what this process is: worker, server or coordinator; empty: alone, with embedded server")     \
    X(RANK, INT, "PSRT_RANK", "0", NULL, 0, 65535, "index of this task within its role")             \
    X(WORKERS, INT, "PSRT_WORKERS", "1", NULL, 1, 65535, "number of workers of the job")             \
    X(SERVERS, INT, "PSRT_SERVERS", "1", NULL, 0, 65535, "number of servers of the job")             \
    X(START_WORKERS, INT, "PSRT_START_WORKERS", "0", NULL, 0, 65535,                                 \
      "of the coordinator: so many workers, of the lowest ranks, begin the job, and others join "    \
      "late; 0: all")                                                                                \
    X(COORDINATOR, TEXT, "PSRT_COORDINATOR", "", NULL, 0, 0,                                         \
      "address of the coordinator, tcp://host:port; empty: alone, with an embedded server")          \
    X(JOB_DIR, TEXT, "PSRT_JOB_DIR", "", NULL, 0, 0,                                                 \
      "directory (mode 0700) of this job on this host: key file, sockets, state")                    \
    X(KEY_FILE, TEXT, "PSRT_KEY_FILE", "", NULL, 0, 0,                                               \
      "file (mode 0600) with the job's key; default: `key` in PSRT_JOB_DIR")                         \
    X(LISTEN_FD, INT, "PSRT_LISTEN_FD", "-1", NULL, -1, 1048576,                                     \
      "inherited listening TCP socket to use instead of binding one; of a server: its first thread") \
    X(BIND_ADDRESS, TEXT, "PSRT_BIND_ADDRESS", "", NULL, 0, 0,                                       \
      "address to listen on; default: that of the interface towards the coordinator")                \
    X(PORT, INT, "PSRT_PORT", "0", NULL, 0, 65535,                                                   \
      "port to listen on, for the n-th thread of a server this plus n; 0: the system chooses")       \
    X(SECURITY, ENUM, "PSRT_SECURITY", "encrypted", "encrypted|authenticated|off", 0, 0,             \
      "protection between hosts, the same for all tasks of a job: docs/security.md")                 \
    X(TRANSPORT, TEXT, "PSRT_TRANSPORT", "", NULL, 0, 0,                                             \
      "comma list of allowed transports in order of preference; empty: by score")                    \
    X(FAULT, TEXT, "PSRT_FAULT", "", NULL, 0, 0,                                                     \
      "test only: fault injection, for example seed=1,drop=0.01,dup=0.01,reorder=0.01,cut=0.001")    \
    X(SERVER_THREADS, INT, "PSRT_SERVER_THREADS", "1", NULL, 1, 256,                                 \
      "threads of a server; each owns its share of the virtual shards")                              \
    X(VSHARDS, INT, "PSRT_VSHARDS", "1024", NULL, 1, 65536, "virtual shards of the job")             \
    X(HEARTBEAT, DURATION, "PSRT_HEARTBEAT", "1s", NULL, 1000000, 0, "interval of lease renewals")   \
    X(LEASE, DURATION, "PSRT_LEASE", "5s", NULL, 1000000, 0,                                         \
      "a task that is silent for longer is declared dead")                                           \
    X(START_TIMEOUT, DURATION, "PSRT_START_TIMEOUT", "60s", NULL, 0, 0,                              \
      "time within which all tasks of the job must have joined")                                     \
    X(DRAIN_TIMEOUT, DURATION, "PSRT_DRAIN_TIMEOUT", "10s", NULL, 0, 0,                              \
      "time for which a closing context waits for unfinished operations")                            \
    X(COORDINATOR_TIMEOUT, DURATION, "PSRT_COORDINATOR_TIMEOUT", "60s", NULL, 0, 0,                  \
      "contexts end when the coordinator, or a server that lives, was unreachable for this long")    \
    X(RETRY, DURATION, "PSRT_RETRY", "2s", NULL, 1000000, 0,                                         \
      "first retransmission of an unanswered request; doubles up to 16 times this")                  \
    X(OP_DEADLINE, DURATION, "PSRT_OP_DEADLINE", "0s", NULL, 0, 0,                                   \
      "operations without a deadline of their own end after this long; 0: never")                    \
    X(STALL_WARNING, DURATION, "PSRT_STALL_WARNING", "60s", NULL, 0, 0,                              \
      "a wait for an operation that takes longer is logged, with what is missing; 0: never")         \
    X(CANCEL_TIMEOUT, DURATION, "PSRT_CANCEL_TIMEOUT", "1s", NULL, 1000000, 0,                       \
      "a server that does not answer a cancel for this long is fenced: its link is dialled anew")    \
    X(EAGER_ARENA, SIZE, "PSRT_ARENA", "16MiB", NULL, 4096, 0,                                       \
      "staging of a worker for pushes from ordinary memory")                                         \
    X(WINDOW, SIZE, "PSRT_WINDOW", "4MiB", NULL, 4096, 0, "payload in flight per connection")        \
    X(MAX_MESSAGE, SIZE, "PSRT_MAX_MESSAGE", "64MiB", NULL, 4096, 0, "largest payload accepted")     \
    X(COLLECTIVES, BOOL, "PSRT_COLLECTIVES", "on", NULL, 0, 0,                                       \
      "workers listen for one another; off: they listen on nothing, and have no communicators")      \
    X(COLL_CHUNK, SIZE, "PSRT_COLL_CHUNK", "256KiB", NULL, 4096, 1u << 30,                           \
      "piece of a buffer that a collective moves at once; the same on all workers")                  \
    X(COLL_EAGER, SIZE, "PSRT_COLL_EAGER", "64KiB", NULL, 1024, 1u << 30,                            \
      "what a collective sends to a worker that has not called it; the same on all workers")         \
    X(COLL_TIMEOUT, DURATION, "PSRT_COLL_TIMEOUT", "300s", NULL, 0, 0,                               \
      "a collective without progress for this long fails and names who is missing; 0: never")        \
    X(COLL_TUNE, TEXT, "PSRT_COLL_TUNE", "", NULL, 0, 0,                                             \
      "algorithms of collectives, or @FILE with them; the same on all workers: docs/collectives.md") \
    X(SPIN, DURATION, "PSRT_SPIN", "500us", NULL, 0, 0,                                              \
      "how long a waiter polls before it sleeps, when cores are free")                               \
    X(PIN_IO, BOOL, "PSRT_PIN_IO", "on", NULL, 0, 0,                                                 \
      "with two or three cores, threads of transports stay on one of them: docs/performance.md")     \
    X(CPU, TEXT, "PSRT_CPU", "", NULL, 0, 0,                                                         \
      "kernel variant: scalar, avx2, avx512, neon; empty: the best of this machine")                 \
    X(PLUGINS, TEXT, "PSRT_PLUGINS", "", NULL, 0, 0,                                                 \
      "comma list of shared objects with optimizers; the same on workers and servers")               \
    X(LOG_LEVEL, ENUM, "PSRT_LOG_LEVEL", "warn", "error|warn|info|debug", 0, 0,                      \
      "lines up to this level go to the log sink")

typedef enum psrti_config_id {
#define PSRTI_CONFIG_ID_(id, type, name, def, choices, min, max, doc) PSRTI_CONF_##id,
    PSRTI_CONFIG_MAP(PSRTI_CONFIG_ID_)
#undef PSRTI_CONFIG_ID_
        PSRTI_CONF_COUNT
} psrti_config_id_t;

typedef struct psrti_config psrti_config_t;

/* Reads defaults and environment. ERR_INVALID names variable, value and what is allowed. Warns once
 * a process for each unknown PSRT_* variable, with the nearest name. */
psrt_status_t psrti_config_create(psrti_config_t **config_p);
void psrti_config_destroy(psrti_config_t *config);

/* Explicit setting (from parameters or a flag), origin "set". PSRT_LOG_LEVEL also sets the level of
 * the process. */
psrt_status_t psrti_config_set(psrti_config_t *config, const char *name, const char *value);

/* Typed reads. INT, BOOL, ENUM as number; SIZE in bytes; DURATION in nanoseconds. */
int64_t psrti_config_int(const psrti_config_t *config, psrti_config_id_t id);
uint64_t psrti_config_u64(const psrti_config_t *config, psrti_config_id_t id);
const char *psrti_config_text(const psrti_config_t *config, psrti_config_id_t id);
int psrti_config_is_default(const psrti_config_t *config, psrti_config_id_t id);

/* The table, for psrt-info -c, docs and tests. */
typedef struct psrti_config_entry {
    const char *name, *type, *def, *choices, *doc;
} psrti_config_entry_t;
const psrti_config_entry_t *psrti_config_entry(psrti_config_id_t id);
const char *psrti_config_origin(const psrti_config_t *config, psrti_config_id_t id);
const char *psrti_config_value(const psrti_config_t *config, psrti_config_id_t id); /* as text */

#endif
