/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters set for a step: a worker's requests, a server's answers. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/member_internal.h"

typedef struct set_wait {
    psrti_list_t node;
    uint64_t request, from_step;
    uint32_t table;
    double value;
    char key[];
} set_wait_t;

/* ---- workers --------------------------------------------------------------------------------- */

/* One at a time: so the coordinator need remember only the last one that it granted. */
void psrti_member_ask_set(psrti_member_core_t *m)
{
    Psrt__Set body = PSRT__SET__INIT;

    if (psrti_list_empty(&m->sets) || !psrti_member_can_ask(m)) return;
    const set_wait_t *s = PSRTI_LIST_ENTRY(m->sets.next, set_wait_t, node);
    body.request = s->request;
    body.table = s->table;
    body.key = (char *)s->key;
    body.value = s->value;
    body.from_step = s->from_step;
    PSRTI_CONTROL(msg, SET, set, &body);
    m->env.send(m->env.arg, &msg);
}

psrt_status_t psrti_member_core_set(psrti_member_core_t *m, uint64_t request, uint32_t table,
                                    const char *key, double value, uint64_t from_step)
{
    size_t len = strlen(key) + 1;
    int first = psrti_list_empty(&m->sets);
    set_wait_t *s = calloc(1, sizeof *s + len);

    if (!s) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory to set %s", key);
    s->request = request;
    s->table = table;
    s->value = value;
    s->from_step = from_step;
    memcpy(s->key, key, len);
    psrti_list_push(&m->sets, &s->node);
    if (first) psrti_member_ask_set(m);
    return PSRT_OK;
}

psrt_status_t psrti_member_on_set_done(psrti_member_core_t *m, const Psrt__SetDone *msg)
{
    psrt_status_t st = psrti_status_from_wire(msg->status);
    set_wait_t *s = PSRTI_LIST_ENTRY(m->sets.next, set_wait_t, node);

    if (st == PSRT_ERR_PROTOCOL) return st;
    if (psrti_list_empty(&m->sets) || s->request != msg->request) return PSRT_OK;
    psrti_list_remove(&s->node);
    free(s);
    m->env.set_done(m->env.arg, msg->request, st, msg->text, msg->step);
    psrti_member_ask_set(m);
    return PSRT_OK;
}

void psrti_member_sets_free(psrti_member_core_t *m)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&m->sets)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, set_wait_t, node));
}

/* ---- servers --------------------------------------------------------------------------------- */

psrt_status_t psrti_member_on_set_prepare(psrti_member_core_t *m, const Psrt__SetPrepare *msg)
{
    psrti_member_set_t set = { msg->number, msg->table, msg->key, msg->value, msg->from_step };

    if (msg->number == 0) return PSRT_ERR_PROTOCOL;
    m->env.set_prepare(m->env.arg, &set);
    return PSRT_OK;
}

/* What is lost with a connection the coordinator asks for again. */
void psrti_member_core_set_prepared(psrti_member_core_t *m, uint64_t number, uint64_t step,
                                    psrt_status_t status, const char *text)
{
    Psrt__SetPrepared body = PSRT__SET_PREPARED__INIT;

    body.number = number;
    body.step = step;
    body.status = (int32_t)status;
    body.text = (char *)text;
    PSRTI_CONTROL(msg, SET_PREPARED, set_prepared, &body);
    if (m->state == MEMBER_JOINED) m->env.send(m->env.arg, &msg);
}

void psrti_member_core_set_ended(psrti_member_core_t *m, uint64_t number)
{
    Psrt__SetEnded body = PSRT__SET_ENDED__INIT;

    body.number = number;
    PSRTI_CONTROL(msg, SET_ENDED, set_ended, &body);
    if (m->state == MEMBER_JOINED) m->env.send(m->env.arg, &msg);
}
