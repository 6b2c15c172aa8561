/* SPDX-License-Identifier: Apache-2.0 */
/* Links of a worker whose owners cannot be reached yet: patience, and its end. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/worker_int.h"
#include "support/test.h"

#define OWNERS 2

typedef struct rig {
    psrti_worker_t w;
    psrti_config_t *config;
    psrti_jobkey_t key;
    char nobody[PSRT_ADDR_MAX]; /* an address at which nobody listens any more */
} rig_t;

static void no_links(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                     const char *text)
{
    (void)arg, (void)link, (void)event, (void)status, (void)text;
}

static void find_dead_address(rig_t *r)
{
    psrti_net_params_t np = { .config = r->config,
                              .key = &r->key,
                              .task = PSRTI_TASK(PSRTI_SERVER, 0),
                              .transports = "inproc",
                              .listen = 1,
                              .listen_fd = -1,
                              .on_link = no_links };
    psrti_net_t *net;
    cr_assert_eq(psrti_net_open(&np, &net), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_net_addrs(net, &r->nobody, 1), 1);
    psrti_net_close(net);
}

static void open_rig(rig_t *r, const char *timeout)
{
    psrti_client_env_t env = psrti_links_env;
    memset(r, 0, sizeof *r);
    cr_assert_eq(psrti_config_create(&r->config), PSRT_OK);
    cr_assert_eq(psrti_config_set(r->config, "PSRT_COORDINATOR_TIMEOUT", timeout), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&r->key), PSRT_OK);
    find_dead_address(r);
    psrti_worker_t *w = &r->w;
    w->p = (psrti_worker_start_t){
        .config = r->config, .key = &r->key, .workers = 1, .servers = OWNERS, .transports = "inproc"
    };
    env.arg = w;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    psrti_list_init(&w->inbox);
    w->next_redial = UINT64_MAX;
    cr_assert_eq(psrti_kernels_select("scalar", &w->kernels), PSRT_OK);
    cr_assert_eq(
        psrti_client_create(0, PSRTI_NS_PER_S, PSRTI_NS_PER_S, w->kernels, &env, &w->client),
        PSRT_OK);
    psrti_list_init(&w->comms);
    psrti_list_init(&w->fusions);
    psrti_list_init(&w->smalls);
    psrti_list_init(&w->active_smalls);
    cr_assert_eq(psrti_comms_open(w), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrti_links_open(w), PSRT_OK, "%s", psrt_last_error());
}

static void close_rig(rig_t *r)
{
    psrti_worker_t *w = &r->w;
    psrti_links_drop(w);
    psrti_comms_close(w);
    psrti_client_destroy(w->client);
    psrti_net_close(w->net);
    psrti_view_unref(w->view);
    free(w->links);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    psrti_config_destroy(r->config);
}

/* The first `alive` owners are alive, at the dead address. */
static void tell_view(rig_t *r, uint64_t number, uint32_t alive)
{
    psrti_view_t *view = psrti_view_new(1, OWNERS, 8);
    cr_assert_not_null(view);
    view->number = number;
    for (uint32_t i = 0; i < OWNERS; i++) {
        view->owners[i].server = i;
        view->owners[i].incarnation = 1;
        view->owners[i].alive = i < alive;
        view->owners[i].naddrs = 1;
        strcpy(view->owners[i].addr[0], r->nobody);
    }
    psrti_links_view(&r->w, view);
    psrti_view_unref(view);
}

Test(links, a_chunk_of_a_collective_fits_in_a_message)
{
    psrti_worker_t w = { 0 };
    psrti_config_t *config;
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_config_set(config, "PSRT_COLL_CHUNK", "2MiB"), PSRT_OK);
    cr_assert_eq(psrti_config_set(config, "PSRT_MAX_MESSAGE", "1MiB"), PSRT_OK);
    w.p = (psrti_worker_start_t){ .config = config, .workers = 2 };
    cr_assert_eq(psrti_comms_open(&w), PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "PSRT_COLL_CHUNK is 2MiB") &&
                  strstr(psrt_last_error(), "PSRT_MAX_MESSAGE, which is 1MiB"),
              "%s", psrt_last_error());
    psrti_config_destroy(config);
}

/* One owner is lost in the very move in which another one is due to be dialled again. */
Test(links, a_loss_is_no_reason_to_give_up, .timeout = 60)
{
    rig_t r;
    open_rig(&r, "60s");
    tell_view(&r, 1, 1);
    while (!r.w.links[0].down_since)
        psrti_baton_move(&r.w);
    while (psrti_now_ns() < r.w.next_redial) {}
    tell_view(&r, 2, 2);
    cr_assert_eq(r.w.links[1].down_since, 0);
    psrti_baton_move(&r.w);
    cr_assert_eq(r.w.status, PSRT_OK, "%s", r.w.text);
    cr_assert_neq(r.w.links[1].down_since, 0);
    close_rig(&r);
}

Test(links, patience_ends, .timeout = 60)
{
    rig_t r;
    open_rig(&r, "100ms");
    uint64_t start = psrti_now_ns();
    tell_view(&r, 1, 1);
    while (!r.w.status)
        psrti_baton_move(&r.w);
    cr_assert_eq(r.w.status, PSRT_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(r.w.text, "server:0 lives, but could not be reached"), "%s",
                       r.w.text);
    cr_assert_gt(psrti_now_ns() - start, 100 * PSRTI_NS_PER_MS);
    close_rig(&r);
}
