/* SPDX-License-Identifier: Apache-2.0 */
/* Links between workers against views, which may be older than the links or newer. */
#include "runtime/worker/worker_int.h"
#include "support/test.h"

typedef struct rig {
    psrti_worker_t w; /* rank 1, listens   */
    psrti_net_t *net; /* rank 0, has dialled */
    psrti_config_t *config;
    psrti_jobkey_t key;
} rig_t;

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    if (arg) psrti_peers_on_link(arg, link, event, status, text);
}

static psrti_net_t *open_net(rig_t *r, uint32_t rank, uint64_t incarnation, psrti_worker_t *w)
{
    psrti_net_params_t np = { .config = r->config,
                              .key = &r->key,
                              .task = PSRTI_TASK(PSRTI_WORKER, rank),
                              .incarnation = incarnation,
                              .transports = "inproc",
                              .listen = w != NULL,
                              .listen_fd = -1,
                              .arg = w,
                              .on_link = on_link };
    psrti_net_t *net;
    cr_assert_eq(psrti_net_open(&np, &net), PSRT_OK, "%s", psrt_last_error());
    return net;
}

static void tell_view(rig_t *r, uint64_t incarnation, int alive, int finished)
{
    psrti_view_unref(r->w.view);
    r->w.view = psrti_view_new(2, 0, 8);
    cr_assert_not_null(r->w.view);
    r->w.view->workers[0].incarnation = incarnation;
    r->w.view->workers[0].alive = alive;
    r->w.view->workers[0].finished = finished;
    r->w.view->workers[1].alive = 1;
    psrti_peers_view(&r->w);
}

/* A life of rank 0 has a link to rank 1. */
static void open_rig(rig_t *r, uint64_t incarnation)
{
    *r = (rig_t){ .w.p = { .key = &r->key, .rank = 1, .workers = 2 } };
    char addr[1][PSRT_ADDR_MAX];
    psrti_link_t *link;
    cr_assert_eq(psrti_config_create(&r->config), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&r->key), PSRT_OK);
    r->w.p.config = r->config;
    psrti_list_init(&r->w.comms);
    psrti_list_init(&r->w.fusions);
    psrti_list_init(&r->w.smalls);
    psrti_list_init(&r->w.active_smalls);
    cr_assert_eq(psrti_comms_open(&r->w), PSRT_OK, "%s", psrt_last_error());
    r->w.net = open_net(r, 1, 1, &r->w);
    r->net = open_net(r, 0, incarnation, NULL);
    cr_assert_eq(psrti_net_addrs(r->w.net, addr, 1), 1);
    cr_assert_eq(psrti_net_connect(r->net, addr, 1, PSRTI_TASK(PSRTI_WORKER, 1), 0, &link),
                 PSRT_OK);
    while (!r->w.peers[0].up) {
        psrti_net_progress(r->net);
        psrti_net_progress(r->w.net);
    }
    cr_assert_eq(r->w.peers[0].incarnation, incarnation);
}

static void close_rig(rig_t *r)
{
    psrti_peers_drop(&r->w);
    psrti_comms_close(&r->w);
    psrti_net_close(r->net);
    psrti_net_close(r->w.net);
    psrti_view_unref(r->w.view);
    psrti_config_destroy(r->config);
}

/* The new life was faster than the news of the old one's end. */
Test(peers, a_death_does_not_close_the_link_of_the_next_life, .timeout = 60)
{
    rig_t r;
    open_rig(&r, 2);
    tell_view(&r, 1, 1, 0);
    tell_view(&r, 1, 0, 0);
    tell_view(&r, 1, 0, 1);
    cr_assert(r.w.peers[0].up);
    tell_view(&r, 2, 1, 0);
    cr_assert(r.w.peers[0].up);
    close_rig(&r);
}

Test(peers, the_end_of_this_life_closes_its_link, .timeout = 60)
{
    rig_t r;
    open_rig(&r, 2);
    tell_view(&r, 2, 0, 0);
    cr_assert(!r.w.peers[0].up);
    close_rig(&r);
    open_rig(&r, 2);
    tell_view(&r, 3, 1, 0);
    cr_assert(!r.w.peers[0].up, "it was started anew");
    close_rig(&r);
}

/* Its own end closes the link, behind all that it sent. */
Test(peers, a_life_that_left_in_order_keeps_its_link, .timeout = 60)
{
    rig_t r;
    open_rig(&r, 2);
    tell_view(&r, 2, 0, 1);
    cr_assert(r.w.peers[0].up);
    close_rig(&r);
}
