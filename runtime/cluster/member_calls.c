/* SPDX-License-Identifier: Apache-2.0 */
/* What any thread may call. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cluster/member_driver.h"

#define LEAVE_WAIT_NS (2 * PSRTI_NS_PER_S)
#define WITHDRAW_WAIT_NS PSRTI_NS_PER_S

/* A command with room for `bytes` behind it. */
static command_t *command_new(command_kind_t kind, size_t bytes)
{
    command_t *cmd = calloc(1, sizeof *cmd + bytes);

    if (!cmd) {
        psrti_error("no memory for a request to the coordinator");
        return NULL;
    }
    cmd->kind = kind;
    cmd->first = cmd + 1;
    return cmd;
}

static void submit(psrti_member_t *m, command_t *cmd)
{
    if (!cmd) return;
    pthread_mutex_lock(&m->lock);
    psrti_list_push(&m->commands, &cmd->node);
    pthread_mutex_unlock(&m->lock);
    psrti_net_wake(m->net);
}

void psrti_member_declare(psrti_member_t *m, uint64_t request, size_t count,
                          const psrti_table_spec_t *specs)
{
    command_t *cmd = command_new(CMD_DECLARE, count * sizeof *specs);

    if (!cmd) return;
    cmd->number = request;
    cmd->count = count;
    memcpy(cmd + 1, specs, count * sizeof *specs);
    submit(m, cmd);
}

void psrti_member_used(psrti_member_t *m, uint32_t table)
{
    command_t *cmd = command_new(CMD_USED, 0);

    if (!cmd) return;
    cmd->value = table;
    submit(m, cmd);
}

void psrti_member_held(psrti_member_t *m, size_t count, const psrti_member_table_t *tables)
{
    command_t *cmd = command_new(CMD_HELD, count * sizeof *tables);

    if (!cmd) return;
    psrti_member_table_t *copy = (psrti_member_table_t *)(cmd + 1);
    cmd->count = count;
    for (size_t i = 0; i < count; i++) {
        copy[i].id = tables[i].id;
        copy[i].status = tables[i].status;
        if (tables[i].status != PSRT_OK && tables[i].text) copy[i].text = strdup(tables[i].text);
    }
    submit(m, cmd);
}

void psrti_member_prepared(psrti_member_t *m, uint64_t view, size_t count, const uint32_t *table,
                           const uint64_t *open_step)
{
    command_t *cmd = command_new(CMD_PREPARED, count * (sizeof *open_step + sizeof *table));

    if (!cmd) return;
    uint64_t *steps = (uint64_t *)(cmd + 1);
    uint32_t *ids = (uint32_t *)(steps + count);
    if (count) {
        memcpy(steps, open_step, count * sizeof *steps);
        memcpy(ids, table, count * sizeof *ids);
    }
    cmd->number = view;
    cmd->count = count;
    cmd->first = ids;
    cmd->second = steps;
    submit(m, cmd);
}

static struct timespec at_time(uint64_t ns)
{
    struct timespec ts = { (time_t)(ns / PSRTI_NS_PER_S), (long)(ns % PSRTI_NS_PER_S) };
    return ts;
}

/* Sleeps until something changed or the time came; false after the deadline. Needs the lock. */
static int wait_change(psrti_member_t *m, uint64_t deadline)
{
    if (deadline == UINT64_MAX) return pthread_cond_wait(&m->changed, &m->lock) == 0;
    struct timespec ts = at_time(deadline);
    return pthread_cond_timedwait(&m->changed, &m->lock, &ts) != ETIMEDOUT;
}

static uint64_t deadline_in(uint64_t timeout_ns)
{
    uint64_t now = psrti_now_ns();
    return timeout_ns > UINT64_MAX / 4 ? UINT64_MAX : now + timeout_ns;
}

psrt_status_t psrti_member_wait_ready(psrti_member_t *m)
{
    pthread_mutex_lock(&m->lock);
    while (!m->ready && !m->ended)
        (void)wait_change(m, UINT64_MAX);
    psrt_status_t st = PSRT_OK;
    if (m->ended)
        st = psrti_fail(m->status == PSRT_OK ? PSRT_ERR_CLOSED : m->status, "%s", m->text);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* Submits a request whose answer `w` waits for, numbered in the order of the queue; or returns the
 * error of a member that ended. Takes the command. */
static psrt_status_t submit_waiting(psrti_member_t *m, waiter_t *w, command_t *cmd)
{
    if (!cmd) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a request to the coordinator");
    pthread_mutex_lock(&m->lock);
    if (m->ended) {
        psrt_status_t st = m->status == PSRT_OK ? PSRT_ERR_CLOSED : m->status;
        psrti_fail_text(m->text);
        pthread_mutex_unlock(&m->lock);
        free(cmd);
        return st;
    }
    w->request = cmd->number = ++m->next_request;
    psrti_list_push(&m->waiters, &w->node);
    psrti_list_push(&m->commands, &cmd->node);
    pthread_mutex_unlock(&m->lock);
    psrti_net_wake(m->net);
    return PSRT_OK;
}

/* Asks who is missing and waits a moment for the answer; it may be that all came meanwhile.
 * Needs the lock. */
static void give_up(psrti_member_t *m, waiter_t *w, const char *name)
{
    uint64_t deadline = deadline_in(WITHDRAW_WAIT_NS);
    command_t *cmd = command_new(CMD_WITHDRAW, 0);

    if (cmd) cmd->number = w->request;
    pthread_mutex_unlock(&m->lock);
    submit(m, cmd);
    pthread_mutex_lock(&m->lock);
    while (cmd && !w->done && wait_change(m, deadline))
        continue;
    if (w->done && (w->status != PSRT_ERR_TIMEOUT || *w->text)) return;
    if (!w->done) psrti_list_remove(&w->node);
    w->status = PSRT_ERR_TIMEOUT;
    snprintf(w->text, sizeof w->text, "barrier \"%s\" was not reached by all in time", name);
}

psrt_status_t psrti_member_barrier(psrti_member_t *m, const char *name, uint32_t count,
                                   uint64_t timeout_ns)
{
    uint64_t deadline = deadline_in(timeout_ns);
    waiter_t w = { .status = PSRT_OK };

    if (strlen(name) > PSRTI_NAME_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "name of a barrier is longer than %d bytes",
                          PSRTI_NAME_MAX);
    size_t len = strlen(name) + 1;
    command_t *cmd = command_new(CMD_BARRIER, len);
    if (cmd) {
        cmd->value = count;
        memcpy(cmd + 1, name, len);
    }
    psrt_status_t st = submit_waiting(m, &w, cmd);
    if (st != PSRT_OK) return st;
    pthread_mutex_lock(&m->lock);
    while (!w.done && wait_change(m, deadline))
        continue;
    if (!w.done) give_up(m, &w, name);
    pthread_mutex_unlock(&m->lock);
    return w.status == PSRT_OK ? PSRT_OK : psrti_fail(w.status, "%s", w.text);
}

psrt_status_t psrti_member_set(psrti_member_t *m, uint32_t table, const char *key, double value,
                               uint64_t from_step, uint64_t *step_p)
{
    size_t len = strlen(key) + 1;
    waiter_t w = { .status = PSRT_OK };
    command_t *cmd = command_new(CMD_SET, len);

    if (cmd) {
        cmd->value = table;
        cmd->set_to = value;
        cmd->step = from_step;
        memcpy(cmd + 1, key, len);
    }
    psrt_status_t st = submit_waiting(m, &w, cmd);
    if (st != PSRT_OK) return st;
    pthread_mutex_lock(&m->lock);
    while (!w.done)
        (void)wait_change(m, UINT64_MAX);
    pthread_mutex_unlock(&m->lock);
    if (w.status != PSRT_OK) return psrti_fail(w.status, "%s", w.text);
    *step_p = w.step;
    return PSRT_OK;
}

void psrti_member_set_prepared(psrti_member_t *m, uint64_t number, uint64_t step,
                               psrt_status_t status, const char *text)
{
    size_t len = strlen(text) + 1;
    command_t *cmd = command_new(CMD_SET_PREPARED, len);

    if (!cmd) return;
    cmd->number = number;
    cmd->step = step;
    cmd->status = status;
    memcpy(cmd + 1, text, len);
    submit(m, cmd);
}

void psrti_member_set_ended(psrti_member_t *m, uint64_t number)
{
    command_t *cmd = command_new(CMD_SET_ENDED, 0);

    if (!cmd) return;
    cmd->number = number;
    submit(m, cmd);
}

void psrti_member_leave(psrti_member_t *m, int failed)
{
    uint64_t deadline = deadline_in(LEAVE_WAIT_NS);
    command_t *cmd = command_new(CMD_LEAVE, 0);

    if (!cmd) return;
    cmd->value = failed != 0;
    submit(m, cmd);
    pthread_mutex_lock(&m->lock);
    while (!m->ended && wait_change(m, deadline))
        continue;
    pthread_mutex_unlock(&m->lock);
}

uint64_t psrti_member_lease_seen(const psrti_member_t *m) { return atomic_load(&m->seen); }
