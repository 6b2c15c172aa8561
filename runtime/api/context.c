/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: joining a job, or running one in this process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/registry.h"
#include "runtime/api/api.h"
#include "runtime/core/bind.h"

/* ---- embedded ---------------------------------------------------------------------------------- */

static void *serve_coordinator(void *arg)
{
    psrt_context_t *ctx = arg;
    psrti_coordinator_serve(ctx->coordinator, &ctx->coordinator_stop);
    return NULL;
}

static psrt_status_t start_coordinator(psrt_context_t *ctx)
{
    psrti_coordinator_params_t cp = { .config = ctx->config,
                                      .key = &ctx->key,
                                      .workers = 1,
                                      .servers = 1,
                                      .transports = "inproc",
                                      .listen_fd = -1 };
    psrt_status_t rc = psrti_coordinator_open(&cp, &ctx->coordinator);
    if (rc) return rc;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&ctx->coordinator_thread, NULL, serve_coordinator, ctx);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) return psrti_fail(PSRT_ERR_LIMIT, "cannot start a thread: %s", strerror(err));
    ctx->coordinator_started = 1;
    return PSRT_OK;
}

/* Shared memory meets in a directory; only who forces it within one process needs one here. */
static psrt_status_t make_job_dir(psrt_context_t *ctx)
{
    if (!strstr(psrti_config_text(ctx->config, PSRTI_CONF_TRANSPORT), "shm") ||
        *psrti_config_text(ctx->config, PSRTI_CONF_JOB_DIR))
        return PSRT_OK;
    strcpy(ctx->job_dir, "/tmp/psrt-embedded-XXXXXX");
    if (!mkdtemp(ctx->job_dir)) {
        ctx->job_dir[0] = '\0';
        return psrti_fail(PSRT_ERR_IO, "cannot make a directory in /tmp: %s", strerror(errno));
    }
    return psrti_config_set(ctx->config, "PSRT_JOB_DIR", ctx->job_dir);
}

static psrt_status_t start_embedded(psrt_context_t *ctx)
{
    psrt_status_t rc = psrti_jobkey_generate(&ctx->key);
    if (!rc) rc = make_job_dir(ctx);
    if (!rc) rc = start_coordinator(ctx);
    if (rc) return rc;
    psrti_server_start_t sp = { .config = ctx->config,
                                .key = &ctx->key,
                                .rank = 0,
                                .workers = 1,
                                .servers = 1,
                                .coordinator = psrti_coordinator_addr(ctx->coordinator) };
    return psrti_server_start(&sp, &ctx->server);
}

static void stop_embedded(psrt_context_t *ctx)
{
    psrti_server_stop(ctx->server);
    __atomic_store_n(&ctx->coordinator_stop, 1, __ATOMIC_RELEASE);
    if (ctx->coordinator_started) pthread_join(ctx->coordinator_thread, NULL);
    psrti_coordinator_close(ctx->coordinator);
    if (*ctx->job_dir) rmdir(ctx->job_dir);
}

/* ---- life -------------------------------------------------------------------------------------- */

static psrt_status_t load_plugins(const psrti_config_t *config)
{
    return psrti_plugins_load(psrti_config_text(config, PSRTI_CONF_PLUGINS));
}

static psrt_status_t start(psrt_context_t *ctx)
{
    psrti_place_t place;
    psrt_status_t rc = psrti_api_place(ctx->config, "worker", &place);
    if (!rc) rc = load_plugins(ctx->config);
    if (rc) return rc;
    int embedded = !*place.coordinator;
    rc = embedded ? start_embedded(ctx) : psrti_api_key(ctx->config, &ctx->key);
    if (rc) return rc;
    ctx->rank = place.rank, ctx->workers = place.workers, ctx->servers = place.servers;
    psrti_worker_start_t wp = { .config = ctx->config,
                                .key = &ctx->key,
                                .rank = place.rank,
                                .workers = place.workers,
                                .servers = place.servers,
                                .coordinator = embedded ? psrti_coordinator_addr(ctx->coordinator)
                                                        : place.coordinator,
                                .on_event = ctx->on_event,
                                .arg = ctx->arg };
    return psrti_worker_start(&wp, &ctx->worker);
}

psrt_status_t psrt_context_create(const psrt_context_params_t *params, psrt_context_t **ctx_p)
{
    if (!ctx_p) return psrti_fail(PSRT_ERR_INVALID, "psrt_context_create: ctx_p is NULL");
    if (params && params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_context_create: params must start as PSRT_CONTEXT_PARAMS_INIT");
    psrt_context_t *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a context");
    pthread_mutex_init(&ctx->lock, NULL);
    psrti_list_init(&ctx->tables);
    if (params) ctx->on_event = params->on_event, ctx->arg = params->arg;
    psrt_status_t rc = psrti_api_config(params ? params->settings : NULL, &ctx->config);
    if (!rc) rc = start(ctx);
    if (rc) {
        char text[PSRTI_ERROR_MAX];
        snprintf(text, sizeof text, "%s", psrt_last_error());
        psrt_context_destroy(ctx);
        return psrti_fail(rc, "%s", text);
    }
    *ctx_p = ctx;
    return PSRT_OK;
}

void psrt_context_destroy(psrt_context_t *ctx)
{
    if (!ctx) return;
    psrti_worker_stop(ctx->worker);
    stop_embedded(ctx);
    psrti_list_t *n;
    while ((n = psrti_list_pop(&ctx->tables)))
        free(PSRTI_LIST_ENTRY(n, psrt_table_t, node));
    psrti_jobkey_wipe(&ctx->key);
    psrti_config_destroy(ctx->config);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

psrt_status_t psrt_context_query(psrt_context_t *ctx, psrt_context_attr_t *attr)
{
    if (!ctx) return psrti_fail(PSRT_ERR_INVALID, "psrt_context_query: ctx is NULL");
    if (!attr || attr->size != sizeof *attr)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_context_query: attr must start as PSRT_CONTEXT_ATTR_INIT");
    psrti_worker_facts_t f;
    psrti_worker_facts(ctx->worker, &f);
    attr->rank = ctx->rank;
    attr->workers = ctx->workers;
    attr->servers = ctx->servers;
    attr->live_workers = f.live_workers;
    attr->live_servers = f.live_servers;
    attr->view = f.view;
    attr->embedded = ctx->server != NULL;
    attr->pushed_bytes = f.counts.pushed_bytes;
    attr->pulled_bytes = f.counts.pulled_bytes;
    memcpy(attr->transports, f.transports, sizeof attr->transports);
    return PSRT_OK;
}

psrt_status_t psrt_context_members(psrt_context_t *ctx, psrt_role_t role, psrt_member_t *members,
                                   uint32_t *count_p)
{
    if (!ctx || !count_p)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_context_members: ctx or count_p is NULL");
    if (role != PSRT_ROLE_WORKER && role != PSRT_ROLE_SERVER)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_context_members: role %d is not worker or server",
                          (int)role);
    if (*count_p && (!members || members[0].size != sizeof *members))
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt_context_members: members must start as PSRT_MEMBER_INIT");
    *count_p = psrti_worker_members(ctx->worker, role, members, *count_p);
    return PSRT_OK;
}

psrt_status_t psrt_barrier(psrt_context_t *ctx, const char *name, uint32_t count,
                           uint64_t timeout_ns)
{
    if (!ctx) return psrti_fail(PSRT_ERR_INVALID, "psrt_barrier: ctx is NULL");
    if (!name || !*name || strlen(name) > PSRTI_NAME_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "psrt_barrier: name has 1 to %d bytes", PSRTI_NAME_MAX);
    if (count > ctx->workers)
        return psrti_fail(PSRT_ERR_INVALID, "barrier %s: count is %u, but the job has %u workers",
                          name, count, ctx->workers);
    psrt_status_t rc = psrti_worker_may_wait(ctx->worker, "psrt_barrier");
    return rc ? rc : psrti_worker_barrier(ctx->worker, name, count, timeout_ns);
}

void *psrt_alloc(psrt_context_t *ctx, uint64_t bytes)
{
    if (ctx && bytes) return psrti_worker_alloc(ctx->worker, bytes);
    psrti_fail(PSRT_ERR_INVALID, "psrt_alloc: %s", ctx ? "0 bytes" : "the context is NULL");
    return NULL;
}

void psrt_free(psrt_context_t *ctx, void *ptr)
{
    if (ctx && ptr) psrti_worker_free(ctx->worker, ptr);
}

/* ---- servers and coordinator ------------------------------------------------------------------- */

static psrt_status_t check_server_params(const psrt_server_params_t *params, const char *call)
{
    if (params && params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID, "%s: params must start as PSRT_SERVER_PARAMS_INIT",
                          call);
    return PSRT_OK;
}

static psrt_status_t run_server(const psrti_config_t *config, const volatile int *stop)
{
    psrti_place_t place;
    psrti_jobkey_t key;
    psrt_status_t rc = psrti_api_place(config, "server", &place);
    if (!rc) rc = load_plugins(config);
    if (!rc) rc = psrti_api_key(config, &key);
    if (rc) return rc;
    psrti_server_start_t sp = { .config = config,
                                .key = &key,
                                .rank = place.rank,
                                .workers = place.workers,
                                .servers = place.servers,
                                .coordinator = place.coordinator };
    psrti_server_t *server = NULL;
    rc = psrti_server_start(&sp, &server);
    if (!rc) rc = psrti_server_wait(server, stop);
    char text[PSRTI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", psrt_last_error());
    psrti_server_stop(server);
    psrti_jobkey_wipe(&key);
    return rc ? psrti_fail(rc, "%s", text) : PSRT_OK;
}

psrt_status_t psrt_server_run(const psrt_server_params_t *params)
{
    psrti_config_t *config;
    psrt_status_t rc = check_server_params(params, "psrt_server_run");
    if (!rc) rc = psrti_api_config(params ? params->settings : NULL, &config);
    if (rc) return rc;
    rc = run_server(config, params ? params->stop : NULL);
    psrti_config_destroy(config);
    return rc;
}

static psrt_status_t run_coordinator(const psrti_config_t *config, const volatile int *stop)
{
    psrti_place_t place;
    psrti_jobkey_t key;
    psrt_status_t rc = psrti_api_place(config, "coordinator", &place);
    if (!rc) rc = psrti_api_key(config, &key);
    if (rc) return rc;
    const char *dir = psrti_config_text(config, PSRTI_CONF_JOB_DIR);
    char state[4096] = "";
    if (*dir) snprintf(state, sizeof state, "%s/coordinator.state", dir);
    const char *addr =
        strncmp(place.coordinator, "tcp://", 6) == 0 ? place.coordinator + 6 : place.coordinator;
    char bind[PSRT_ADDR_MAX];
    rc = psrti_bind_address("PSRT_COORDINATOR", addr, NULL, bind, sizeof bind);
    psrti_coordinator_params_t cp = {
        .config = config,
        .key = &key,
        .workers = place.workers,
        .servers = place.servers,
        .transports = "zmq",
        .bind_address = bind,
        .listen_fd = (int)psrti_config_int(config, PSRTI_CONF_LISTEN_FD),
        .state_file = *state ? state : NULL,
    };
    psrti_coordinator_t *coord = NULL;
    if (!rc) rc = psrti_coordinator_open(&cp, &coord);
    if (!rc) rc = psrti_coordinator_serve(coord, stop);
    char text[PSRTI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", psrt_last_error());
    psrti_coordinator_close(coord);
    psrti_jobkey_wipe(&key);
    return rc ? psrti_fail(rc, "%s", text) : PSRT_OK;
}

psrt_status_t psrt_coordinator_run(const psrt_server_params_t *params)
{
    psrti_config_t *config;
    psrt_status_t rc = check_server_params(params, "psrt_coordinator_run");
    if (!rc) rc = psrti_api_config(params ? params->settings : NULL, &config);
    if (rc) return rc;
    rc = run_coordinator(config, params ? params->stop : NULL);
    psrti_config_destroy(config);
    return rc;
}
