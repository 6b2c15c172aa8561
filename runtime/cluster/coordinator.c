/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cluster/coordinator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"
#include "runtime/cluster/coord_core.h"
#include "runtime/cluster/ctrl_link.h"

#define STOP_CHECK_NS (100 * PSRTI_NS_PER_MS)
#define STATE_MAX (64u << 20)

typedef struct peer {
    uint64_t id;
    psrti_ctrl_link_t ctrl;
} peer_t;

struct psrti_coordinator {
    psrti_net_t *net;
    psrti_coord_t *core;
    psrti_map_t peers;
    uint64_t next_peer, max_message;
    char addr[1][PSRT_ADDR_MAX];
    char *state_file, *state_temp;
    int ended;
    psrt_status_t status;
    char text[PSRTI_ERROR_MAX];
};

/* ---- what the core asks for ------------------------------------------------------------------ */

static void peer_free(psrti_coordinator_t *c, peer_t *peer)
{
    psrti_map_remove(&c->peers, peer->id);
    psrti_ctrl_reset(&peer->ctrl);
    free(peer);
}

/* A peer that does not read is cut off; if it is alive it registers again. It is only marked here:
 * the core is in the middle of an event. */
static void env_send(void *arg, uint64_t id, const Psrt__Control *msg)
{
    psrti_coordinator_t *c = arg;
    peer_t *peer = psrti_map_get(&c->peers, id);

    if (!peer || !peer->ctrl.link) return;
    if (psrti_ctrl_send(&peer->ctrl, msg) == PSRT_OK) return;
    psrti_net_drop(c->net, peer->ctrl.link);
    psrti_ctrl_reset(&peer->ctrl);
}

static void env_close(void *arg, uint64_t id)
{
    psrti_coordinator_t *c = arg;
    peer_t *peer = psrti_map_get(&c->peers, id);

    if (!peer) return;
    if (peer->ctrl.link) psrti_net_drop(c->net, peer->ctrl.link);
    peer_free(c, peer);
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        text += n;
        len -= (size_t)n;
    }
    return 1;
}

static int env_persist(void *arg, const char *text, size_t len, int append)
{
    psrti_coordinator_t *c = arg;
    const char *path = append ? c->state_file : c->state_temp;
    int flags = append ? O_APPEND : O_CREAT | O_TRUNC;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    int ok = fd >= 0 && write_all(fd, text, len) && fsync(fd) == 0;
    int error = errno;

    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = 0;
        error = errno;
    }
    if (ok && !append && rename(c->state_temp, c->state_file) != 0) {
        ok = 0;
        error = errno;
    }
    /* The job goes on: it only could not survive a restart of the coordinator. */
    if (!ok) psrti_error("coordinator state %s: %s", c->state_file, strerror(error));
    return ok;
}

static void env_note(void *arg, psrt_log_level_t level, const char *text)
{
    (void)arg;
    psrti_log(level, "%s", text);
}

static void env_finish(void *arg, psrt_status_t status, const char *text)
{
    psrti_coordinator_t *c = arg;

    c->ended = 1;
    c->status = status;
    snprintf(c->text, sizeof c->text, "%s", text);
}

/* ---- events of the net ----------------------------------------------------------------------- */

static void link_up(psrti_coordinator_t *c, psrti_link_t *link)
{
    peer_t *peer = calloc(1, sizeof *peer);

    if (!peer || psrti_map_put(&c->peers, c->next_peer + 1, peer) != PSRT_OK) {
        free(peer);
        psrti_net_drop(c->net, link);
        return;
    }
    peer->id = ++c->next_peer;
    psrti_ctrl_init(&peer->ctrl, c->net, c->max_message);
    peer->ctrl.link = link;
    link->user = peer;
    psrti_coord_peer_up(c->core, peer->id, link->task, psrti_now_ns());
}

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    psrti_coordinator_t *c = arg;
    peer_t *peer = link->user;
    char name[32];

    if (event == PSRTI_LINK_UP) {
        link_up(c, link);
        return;
    }
    if (!peer) return;
    if (event == PSRTI_LINK_WRITABLE) {
        (void)psrti_ctrl_flush(&peer->ctrl);
        return;
    }
    psrti_debug("connection of %s lost: %s (%s)", psrti_task_name(link->task, name), text,
                psrt_status_text(status));
    uint64_t id = peer->id;
    peer_free(c, peer);
    psrti_coord_peer_lost(c->core, id, psrti_now_ns());
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    psrti_coordinator_t *c = arg;
    peer_t *peer = link->user;
    Psrt__Control *control;
    char name[32];

    if (!peer) return PSRT_RX_BAD;
    psrt_status_t st = psrti_ctrl_receive(&peer->ctrl, msg, &control);
    if (st == PSRT_OK) {
        st = psrti_coord_message(c->core, peer->id, control, psrti_now_ns());
        if (st != PSRT_OK)
            psrti_warn("%s: message %s: %s", psrti_task_name(link->task, name),
                       psrti_wire_name(control), psrt_status_text(st));
        psrti_wire_free(control);
    } else {
        psrti_warn("%s: control frame: %s", psrti_task_name(link->task, name),
                   psrt_status_text(st));
    }
    return st == PSRT_OK ? PSRT_RX_DONE : PSRT_RX_BAD;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* NULL with OK: there is none yet. */
static psrt_status_t read_state(const char *path, char **text_p)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    struct stat sb;

    *text_p = NULL;
    if (!path || (!file && errno == ENOENT)) return PSRT_OK;
    if (!file || fstat(fileno(file), &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size > STATE_MAX) {
        psrt_status_t st = psrti_fail(PSRT_ERR_IO, "coordinator state %s: %s", path,
                                      file ? "not a file of sensible size" : strerror(errno));
        if (file) fclose(file);
        return st;
    }
    char *text = calloc(1, (size_t)sb.st_size + 1);
    size_t n = text ? fread(text, 1, (size_t)sb.st_size, file) : 0;
    int failed = ferror(file);
    fclose(file);
    if (!text || failed || n != (size_t)sb.st_size) {
        free(text);
        return psrti_fail(PSRT_ERR_IO, "coordinator state %s cannot be read", path);
    }
    *text_p = text;
    return PSRT_OK;
}

static psrt_status_t open_core(psrti_coordinator_t *c, const psrti_coordinator_params_t *p)
{
    psrti_coord_params_t cp = {
        .workers = p->workers,
        .servers = p->servers,
        .start_workers = (uint32_t)psrti_config_int(p->config, PSRTI_CONF_START_WORKERS),
        .vshards = (uint32_t)psrti_config_int(p->config, PSRTI_CONF_VSHARDS),
        .heartbeat_ns = psrti_config_u64(p->config, PSRTI_CONF_HEARTBEAT),
        .lease_ns = psrti_config_u64(p->config, PSRTI_CONF_LEASE),
        .start_timeout_ns = psrti_config_u64(p->config, PSRTI_CONF_START_TIMEOUT),
        .drain_ns = psrti_config_u64(p->config, PSRTI_CONF_DRAIN_TIMEOUT),
    };
    psrti_coord_env_t env = { c,        env_send,  env_close, p->state_file ? env_persist : NULL,
                              env_note, env_finish };
    char *state = NULL, job[33];

    for (size_t i = 0; i < sizeof p->key->nonce; i++)
        snprintf(job + 2 * i, 3, "%02x", p->key->nonce[i]);
    cp.job = job;
    if (p->state_file) {
        c->state_file = strdup(p->state_file);
        if (!c->state_file || asprintf(&c->state_temp, "%s.tmp", p->state_file) < 0)
            return psrti_fail(PSRT_ERR_NO_MEMORY, "coordinator: no memory");
    }
    psrt_status_t st = read_state(p->state_file, &state);
    cp.state = state;
    if (st == PSRT_OK) st = psrti_coord_new(&cp, &env, psrti_now_ns(), &c->core);
    free(state);
    return st;
}

static psrt_status_t open_net(psrti_coordinator_t *c, const psrti_coordinator_params_t *p)
{
    psrti_net_params_t np = {
        .config = p->config,
        .key = p->key,
        .task = PSRTI_TASK(PSRTI_COORDINATOR, 0),
        .transports = p->transports,
        .listen = 1,
        .listen_fd = p->listen_fd,
        .bind_address = p->bind_address,
        .control = 1,
        .arg = c,
        .on_link = on_link,
        .on_msg = on_msg,
    };
    psrt_status_t st = psrti_net_open(&np, &c->net);

    if (st == PSRT_OK && psrti_net_addrs(c->net, c->addr, 1) == 0)
        st = psrti_fail(PSRT_ERR_INTERNAL, "coordinator: no address to listen on");
    return st;
}

psrt_status_t psrti_coordinator_open(const psrti_coordinator_params_t *params,
                                     psrti_coordinator_t **coord_p)
{
    psrti_coordinator_t *c = calloc(1, sizeof *c);

    if (!c) return psrti_fail(PSRT_ERR_NO_MEMORY, "coordinator: no memory");
    c->max_message = psrti_config_u64(params->config, PSRTI_CONF_MAX_MESSAGE);
    psrt_status_t st = open_net(c, params);
    if (st == PSRT_OK) st = open_core(c, params);
    if (st != PSRT_OK) {
        psrti_coordinator_close(c);
        return st;
    }
    *coord_p = c;
    return PSRT_OK;
}

const char *psrti_coordinator_addr(const psrti_coordinator_t *coord) { return coord->addr[0]; }

psrt_status_t psrti_coordinator_serve(psrti_coordinator_t *c, const volatile int *stop)
{
    uint64_t next = 0;

    while (!c->ended && !(stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))) {
        unsigned events = psrti_net_progress(c->net);
        uint64_t now = psrti_now_ns();

        /* A tick looks at every task, and must not follow every message of one. */
        if (!events || now >= next) next = psrti_coord_tick(c->core, now);
        if (c->ended || events) continue;
        psrti_net_sleep(c->net, PSRTI_MIN(next > now ? next - now : 0, STOP_CHECK_NS));
    }
    /* A state is for the successor of a coordinator that died, not for the next job. */
    if (c->ended && c->state_file) (void)unlink(c->state_file);
    if (!c->ended || c->status == PSRT_OK) return PSRT_OK;
    return psrti_fail(c->status, "%s", c->text);
}

void psrti_coordinator_close(psrti_coordinator_t *c)
{
    size_t pos = 0;

    if (!c) return;
    psrti_net_close(c->net);
    psrti_coord_free(c->core);
    for (peer_t *peer; (peer = psrti_map_next(&c->peers, &pos, NULL)) != NULL;) {
        psrti_ctrl_reset(&peer->ctrl);
        free(peer);
    }
    psrti_map_clear(&c->peers);
    free(c->state_file);
    free(c->state_temp);
    free(c);
}
