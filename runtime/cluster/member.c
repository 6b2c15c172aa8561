/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that owns the net and the core. */
#include "runtime/cluster/member.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/cluster/member_driver.h"

#define GOODBYE_NS PSRTI_NS_PER_S

/* ---- what the core asks for ------------------------------------------------------------------ */

static void env_dial(void *arg)
{
    psrti_member_t *m = arg;
    psrti_link_t *link;
    psrt_status_t st = psrti_net_connect(m->net, (const char(*)[PSRT_ADDR_MAX])m->coordinator, 1,
                                         PSRTI_TASK(PSRTI_COORDINATOR, 0), 0, &link);

    if (st == PSRT_OK) {
        m->ctrl.link = link;
        return;
    }
    m->dial_failed = 1;
    snprintf(m->dial_text, sizeof m->dial_text, "%s", psrt_last_error());
}

static void env_drop(void *arg)
{
    psrti_member_t *m = arg;

    m->dial_failed = 0;
    if (m->ctrl.link) psrti_net_drop(m->net, m->ctrl.link);
    psrti_ctrl_reset(&m->ctrl);
}

/* A coordinator that does not read for so long is as good as silent: the heartbeats find that
 * out. */
static void env_send(void *arg, const Psrt__Control *msg)
{
    psrti_member_t *m = arg;

    if (psrti_ctrl_send(&m->ctrl, msg) != PSRT_OK)
        psrti_error("a control message to the coordinator was not sent");
}

static void env_joined(void *arg, uint64_t incarnation)
{
    psrti_member_t *m = arg;

    psrti_net_set_incarnation(m->net, incarnation);
    if (m->p.on_joined) m->p.on_joined(m->p.arg, incarnation);
}

static void env_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                     const uint32_t *table, const uint64_t *from_step)
{
    psrti_member_t *m = arg;

    if (m->p.on_view) m->p.on_view(m->p.arg, view, worker, count, table, from_step);
    pthread_mutex_lock(&m->lock);
    m->ready = 1;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void env_declared(void *arg, uint64_t request, size_t count,
                         const psrti_member_table_t *tables)
{
    psrti_member_t *m = arg;

    if (m->p.on_declared) m->p.on_declared(m->p.arg, request, count, tables);
}

static void env_hold(void *arg, size_t count, const psrti_member_table_t *tables)
{
    psrti_member_t *m = arg;

    if (m->p.on_hold) m->p.on_hold(m->p.arg, count, tables);
}

static void env_prepare(void *arg, uint64_t view, uint32_t worker)
{
    psrti_member_t *m = arg;

    if (m->p.on_prepare) m->p.on_prepare(m->p.arg, view, worker);
}

static void env_set_prepare(void *arg, const psrti_member_set_t *set)
{
    psrti_member_t *m = arg;

    if (m->p.on_set_prepare) m->p.on_set_prepare(m->p.arg, set);
}

static void env_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    psrti_member_t *m = arg;

    if (m->p.on_set_end) m->p.on_set_end(m->p.arg, number, commit, from_step);
}

static void finish_waiter(psrti_member_t *m, waiter_t *w, psrt_status_t status, const char *text)
{
    psrti_list_remove(&w->node);
    w->done = 1;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", text);
    pthread_cond_broadcast(&m->changed);
}

/* Barriers and sets share the numbers. */
static void env_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                         uint64_t step)
{
    psrti_member_t *m = arg;

    pthread_mutex_lock(&m->lock);
    PSRTI_LIST_FOREACH_SAFE(node, next, &m->waiters)
    {
        waiter_t *w = PSRTI_LIST_ENTRY(node, waiter_t, node);
        if (w->request != request) continue;
        w->step = step;
        finish_waiter(m, w, status, text);
    }
    pthread_mutex_unlock(&m->lock);
}

static void env_barrier_done(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    env_set_done(arg, request, status, text, 0);
}

/* Whoever waits learns why nothing will come any more. Needs the lock. */
static void set_ended(psrti_member_t *m, psrt_status_t status, const char *text)
{
    if (m->ended) return;
    m->ended = 1;
    m->status = status;
    snprintf(m->text, sizeof m->text, "%s", text);
    psrt_status_t st = status == PSRT_OK ? PSRT_ERR_CLOSED : status;
    PSRTI_LIST_FOREACH_SAFE(node, next, &m->waiters)
    finish_waiter(m, PSRTI_LIST_ENTRY(node, waiter_t, node), st, text);
    pthread_cond_broadcast(&m->changed);
}

static void env_end(void *arg, psrt_status_t status, const char *text)
{
    psrti_member_t *m = arg;

    if (m->p.on_end) m->p.on_end(m->p.arg, status, text);
    pthread_mutex_lock(&m->lock);
    set_ended(m, status, text);
    pthread_mutex_unlock(&m->lock);
}

/* ---- events of the net ----------------------------------------------------------------------- */

static void on_link(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text)
{
    psrti_member_t *m = arg;

    if (link != m->ctrl.link) return;
    if (event == PSRTI_LINK_UP) {
        psrti_member_core_link_up(m->core, psrti_now_ns());
    } else if (event == PSRTI_LINK_WRITABLE) {
        (void)psrti_ctrl_flush(&m->ctrl);
    } else {
        psrti_ctrl_reset(&m->ctrl);
        psrti_member_core_link_lost(m->core, status, text, psrti_now_ns());
    }
}

static psrt_rx_t on_msg(void *arg, psrti_link_t *link, psrt_msg_t *msg)
{
    psrti_member_t *m = arg;
    Psrt__Control *control;

    if (link != m->ctrl.link) return PSRT_RX_DONE;
    psrt_status_t st = psrti_ctrl_receive(&m->ctrl, msg, &control);
    if (st == PSRT_OK) {
        st = psrti_member_core_message(m->core, control, psrti_now_ns());
        if (st != PSRT_OK)
            psrti_warn("coordinator: message %s: %s", psrti_wire_name(control),
                       psrt_status_text(st));
        psrti_wire_free(control);
    }
    return st == PSRT_OK ? PSRT_RX_DONE : PSRT_RX_BAD;
}

/* ---- thread ---------------------------------------------------------------------------------- */

static psrt_status_t run_command(psrti_member_t *m, const command_t *cmd)
{
    switch (cmd->kind) {
    case CMD_DECLARE:
        return psrti_member_core_declare(m->core, cmd->number, cmd->count, cmd->first);
    case CMD_BARRIER:
        return psrti_member_core_barrier(m->core, cmd->number, cmd->first, cmd->value);
    case CMD_HELD: return psrti_member_core_held(m->core, cmd->count, cmd->first);
    case CMD_WITHDRAW: psrti_member_core_withdraw(m->core, cmd->number); return PSRT_OK;
    case CMD_USED: psrti_member_core_used(m->core, cmd->value); return PSRT_OK;
    case CMD_PREPARED:
        psrti_member_core_prepared(m->core, cmd->number, cmd->count, cmd->first, cmd->second);
        return PSRT_OK;
    case CMD_SET:
        return psrti_member_core_set(m->core, cmd->number, cmd->value, cmd->first, cmd->set_to,
                                     cmd->step);
    case CMD_SET_PREPARED:
        psrti_member_core_set_prepared(m->core, cmd->number, cmd->step, cmd->status, cmd->first);
        return PSRT_OK;
    case CMD_SET_ENDED: psrti_member_core_set_ended(m->core, cmd->number); return PSRT_OK;
    case CMD_LEAVE: psrti_member_core_leave(m->core, (int)cmd->value); return PSRT_OK;
    }
    return PSRT_OK;
}

void psrti_member_command_free(command_t *cmd)
{
    if (cmd->kind == CMD_HELD) {
        const psrti_member_table_t *tables = cmd->first;
        for (size_t i = 0; i < cmd->count; i++)
            free((char *)tables[i].text);
    }
    free(cmd);
}

static unsigned run_commands(psrti_member_t *m)
{
    unsigned n = 0;

    for (;; n++) {
        pthread_mutex_lock(&m->lock);
        psrti_list_t *node = psrti_list_pop(&m->commands);
        pthread_mutex_unlock(&m->lock);
        if (!node) return n;
        command_t *cmd = PSRTI_LIST_ENTRY(node, command_t, node);
        if (run_command(m, cmd) != PSRT_OK)
            psrti_error("a request to the coordinator was not made: %s", psrt_last_error());
        psrti_member_command_free(cmd);
    }
}

/* After the end, until the core has heard that the coordinator has its answer to Finish. A task that hung up
 * before might leave it unsaid: then the coordinator cannot tell it from one that has not heard. */
static void say_goodbye(psrti_member_t *m)
{
    const uint64_t until = psrti_now_ns() + GOODBYE_NS;

    for (uint64_t now; m->ctrl.link && (now = psrti_now_ns()) < until;) {
        (void)psrti_ctrl_flush(&m->ctrl);
        if (!psrti_net_progress(m->net) && m->ctrl.link) psrti_net_sleep(m->net, until - now);
    }
}

static void *thread_main(void *arg)
{
    psrti_member_t *m = arg;

    while (!atomic_load(&m->stop) && !psrti_member_core_ended(m->core)) {
        unsigned events = psrti_net_progress(m->net);
        events += run_commands(m);
        if (m->dial_failed) {
            m->dial_failed = 0;
            psrti_member_core_link_lost(m->core, PSRT_ERR_UNREACHABLE, m->dial_text,
                                        psrti_now_ns());
        }
        uint64_t now = psrti_now_ns();
        uint64_t next = psrti_member_core_tick(m->core, now);
        if (psrti_member_core_is_current(m->core)) atomic_store(&m->seen, now);
        if (!events && !m->dial_failed && !psrti_member_core_ended(m->core))
            psrti_net_sleep(m->net, next > now ? next - now : 0);
    }
    pthread_mutex_lock(&m->lock);
    set_ended(m, PSRT_ERR_CLOSED, "this task left the job");
    pthread_mutex_unlock(&m->lock);
    if (psrti_member_core_ended(m->core)) say_goodbye(m);
    return NULL;
}

static int start_thread(psrti_member_t *m)
{
    sigset_t all, old;

    /* The host's signals are handled on the host's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&m->thread, NULL, thread_main, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    m->running = error == 0;
    return error;
}

/* ---- life ------------------------------------------------------------------------------------ */

static psrt_status_t open_core(psrti_member_t *m)
{
    const psrti_config_t *config = m->p.config;
    psrti_member_env_t env = { m,
                               env_dial,
                               env_drop,
                               env_send,
                               env_joined,
                               env_view,
                               env_declared,
                               env_hold,
                               env_prepare,
                               env_barrier_done,
                               env_set_prepare,
                               env_set_end,
                               env_set_done,
                               env_end };
    psrti_member_core_params_t cp = {
        .task = m->p.task,
        .workers = m->p.workers,
        .servers = m->p.servers,
        .nthreads = m->p.nthreads,
        .threads = m->threads,
        .host = m->host,
        .coordinator = m->coordinator[0],
        .pid = (uint32_t)getpid(),
        .heartbeat_ns = psrti_config_u64(config, PSRTI_CONF_HEARTBEAT),
        .lease_ns = psrti_config_u64(config, PSRTI_CONF_LEASE),
        .start_timeout_ns = psrti_config_u64(config, PSRTI_CONF_START_TIMEOUT),
        .coordinator_timeout_ns = psrti_config_u64(config, PSRTI_CONF_COORDINATOR_TIMEOUT),
    };

    if (getrandom(&cp.nonce, sizeof cp.nonce, 0) != sizeof cp.nonce)
        return psrti_fail(PSRT_ERR_IO, "getrandom: %s", strerror(errno));
    cp.nonce |= 1;
    return psrti_member_core_new(&cp, &env, psrti_now_ns(), &m->core);
}

static psrt_status_t open_net(psrti_member_t *m)
{
    psrti_net_params_t np = {
        .config = m->p.config,
        .key = m->p.key,
        .task = m->p.task,
        .transports = strncmp(m->coordinator[0], "inproc:", 7) == 0 ? "inproc" : "zmq",
        .listen_fd = -1,
        .control = 1,
        .arg = m,
        .on_link = on_link,
        .on_msg = on_msg,
    };

    return psrti_net_open(&np, &m->net);
}

static psrt_status_t fill(psrti_member_t *m, const psrti_member_params_t *params)
{
    m->p = *params;
    if (strlen(params->coordinator) >= PSRT_ADDR_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "address of the coordinator is longer than %d bytes",
                          PSRT_ADDR_MAX - 1);
    strcpy(m->coordinator[0], params->coordinator);
    if (gethostname(m->host, sizeof m->host - 1) != 0) strcpy(m->host, "?");
    m->threads = calloc(params->nthreads + 1, sizeof *m->threads);
    if (!m->threads) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a member");
    for (uint32_t i = 0; i < params->nthreads; i++)
        m->threads[i] = params->threads[i];
    return PSRT_OK;
}

static psrti_member_t *member_alloc(void)
{
    psrti_member_t *m = calloc(1, sizeof *m);
    pthread_condattr_t attr;

    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attr);
    pthread_condattr_destroy(&attr);
    psrti_list_init(&m->commands);
    psrti_list_init(&m->waiters);
    psrti_list_init(&m->ctrl.queue);
    atomic_init(&m->seen, psrti_now_ns());
    atomic_init(&m->stop, 0);
    return m;
}

psrt_status_t psrti_member_start(const psrti_member_params_t *params, psrti_member_t **member_p)
{
    psrti_member_t *m = member_alloc();

    if (!m) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a member");
    psrt_status_t st = fill(m, params);
    if (st == PSRT_OK) st = open_net(m);
    if (st == PSRT_OK) {
        psrti_ctrl_init(&m->ctrl, m->net, psrti_config_u64(params->config, PSRTI_CONF_MAX_MESSAGE));
        st = open_core(m);
    }
    int error = st == PSRT_OK ? start_thread(m) : 0;
    if (error) st = psrti_fail(PSRT_ERR_LIMIT, "cannot start a thread: %s", strerror(error));
    if (st != PSRT_OK)
        psrti_member_stop(m);
    else
        *member_p = m;
    return st;
}

void psrti_member_stop(psrti_member_t *m)
{
    if (!m) return;
    atomic_store(&m->stop, 1);
    if (m->running) {
        psrti_net_wake(m->net);
        pthread_join(m->thread, NULL);
    }
    for (psrti_list_t *node; (node = psrti_list_pop(&m->commands)) != NULL;)
        psrti_member_command_free(PSRTI_LIST_ENTRY(node, command_t, node));
    psrti_net_close(m->net);
    psrti_ctrl_reset(&m->ctrl);
    psrti_member_core_free(m->core);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m->threads);
    free(m);
}
