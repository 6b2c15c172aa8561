/* SPDX-License-Identifier: Apache-2.0 */
/* Ends that the user asks for: cancel and deadline.
 *
 * What was never sent in the session that is up ends at once. What was is taken back: CANCEL goes to its
 * server, whose answer says that it is applied by then, or never will be. A server that does not answer
 * within cancel_ns is fenced: the transport makes the memory quiet, and the next session begins only
 * when the server has closed this one. The step of a push that is cut short ends by CLOCK, as if the
 * worker had nothing to contribute: see end_step_without in part.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/client_int.h"

/* What the text of an op says was missing; more is better. */
enum { TOLD_NOTHING = 1, TOLD_UNSENT, TOLD_SERVER, TOLD_STEP, TOLD_WORKERS };

/* ---- texts ------------------------------------------------------------------------------------- */

/* Of a table in a group, the workers may be missing in another table of it. */
static void name_workers(char *buf, size_t size, size_t *pos, const psrt_hdr_t *hdr,
                         const char *group)
{
    const char *before = ", waits for";
    for (unsigned i = 0; i < 64; i++) {
        if (!(hdr->length >> i & 1)) continue;
        psrti_append(buf, size, pos, "%s worker:%u", before, hdr->seq_floor + i);
        before = ",";
    }
    if (*group) psrti_append(buf, size, pos, " in group %s", group);
}

/* "deadline passed: push_pull of table w, step 3, waits for worker:1"; `answer` may be NULL. */
static void tell(psrti_client_t *c, const psrti_part_t *p, int what, const psrt_hdr_t *answer)
{
    psrti_cop_t *op = p->op;
    char text[PSRTI_NAME_MAX + 256];
    size_t pos = 0;
    if (op->told >= what) return;
    op->told = what;
    uint32_t server = c->view->owners[c->view->vshards[p->vshard].owner].server;
    psrti_append(text, sizeof text, &pos, "%s: %s of table %s, step %llu",
                 psrt_status_text(op->asked),
                 !p->grad   ? "pull"
                 : p->value ? "push_pull"
                            : "push",
                 p->table->spec.name, (unsigned long long)p->step);
    if (what == TOLD_WORKERS)
        name_workers(text, sizeof text, &pos, answer, p->table->spec.group);
    else if (what == TOLD_STEP)
        psrti_append(text, sizeof text, &pos, ", waits for the other workers to end step %llu",
                     (unsigned long long)p->step - 2);
    else if (what != TOLD_NOTHING)
        psrti_append(text, sizeof text, &pos, ", %s server:%u",
                     what == TOLD_UNSENT ? "was not sent yet to" : "has no answer from", server);
    free(op->text);
    op->text = strdup(text);
}

/* ---- cutting short ----------------------------------------------------------------------------- */

static void recall(psrti_client_t *c, psrti_part_t *p)
{
    psrti_list_push(&c->recalled, &p->node);
    c->next_recall = 0;
}

/* Nobody will serve the part any more. One that is in flight ends when its transport says so, or by a
 * fence. */
static void cut(psrti_client_t *c, psrti_part_t *p, int what, const psrt_hdr_t *answer)
{
    psrti_cop_t *op = p->op;
    int in_flight = p->in_flight;
    if (op->result.status == PSRT_OK) op->result.status = op->asked;
    if (op->result.status == op->asked) tell(c, p, what, answer);
    c->counts.canceled++;
    psrti_part_end(c, p, op->asked);
    if (in_flight) recall(c, p);
}

/* May this session still bring the part to its server, or has it? */
static int is_out(const psrti_client_t *c, const psrti_part_t *p)
{
    if (!p->tries || !p->seq) return 0; /* without a number: what was sent was refused */
    const psrti_cowner_t *o = &c->owners[p->owner];
    return o->up && p->session == o->session;
}

/* Why a part was not sent: two steps before its own are open, or its server has no room or no link. */
static int unsent(const psrti_part_t *p)
{
    const psrti_ctable_t *t = p->table;
    int gated = p->type == PSRTI_T_PUSH && t->spec.consistency == PSRTI_SYNC &&
                p->step > t->slice[p->slice].version + 1;
    return gated ? TOLD_STEP : TOLD_UNSENT;
}

static void take_back(psrti_client_t *c, psrti_part_t *p)
{
    p->abandoned = 1;
    p->give_up = c->now + c->cancel_ns;
    if (p->state == PSRTI_PART_ENDED) {
        recall(c, p);
    } else if (is_out(c, p)) {
        psrti_part_unready(c, p);
        psrti_list_remove(&p->node);
        psrti_list_remove(&p->wait_node);
        p->state = PSRTI_PART_CANCELED;
        p->due = 0;
        recall(c, p);
    } else {
        cut(c, p, p->tries ? TOLD_SERVER : unsent(p), NULL);
    }
}

static psrti_part_t *next_to_take_back(const psrti_cop_t *op)
{
    for (psrti_list_t *n = op->parts.next; n != &op->parts; n = n->next) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, op_node);
        if (!p->give_up) return p;
    }
    return NULL;
}

void psrti_client_cancel(psrti_client_t *c, psrti_cop_t *op, psrt_status_t status)
{
    psrti_part_t *p;
    if (op->ended || op->asked) return;
    op->asked = status;
    psrti_list_remove(&op->timed);
    while ((p = next_to_take_back(op)))
        take_back(c, p); /* may end it, and so change the list */
}

void psrti_cancel_answered(psrti_client_t *c, psrti_part_t *p, const psrt_hdr_t *hdr)
{
    cut(c, p, hdr->length ? TOLD_WORKERS : TOLD_NOTHING, hdr);
}

/* First recalled part of an owner's that is not only in flight. */
static psrti_part_t *recalled_of(const psrti_client_t *c, uint32_t owner)
{
    for (psrti_list_t *n = c->recalled.next; n != &c->recalled; n = n->next) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, node);
        if (p->owner == owner && p->state == PSRTI_PART_CANCELED) return p;
    }
    return NULL;
}

void psrti_cancel_lost(psrti_client_t *c, uint32_t owner)
{
    psrti_part_t *p;
    while ((p = recalled_of(c, owner)))
        cut(c, p, TOLD_SERVER, NULL);
}

/* ---- timers ------------------------------------------------------------------------------------ */

void psrti_cancel_watch(psrti_client_t *c, psrti_cop_t *op)
{
    psrti_list_push(&c->timed, &op->timed);
    c->next_deadline = PSRTI_MIN(c->next_deadline, op->deadline);
}

/* First op whose deadline passed; without one, next_deadline is right. */
static psrti_cop_t *late_op(psrti_client_t *c)
{
    c->next_deadline = UINT64_MAX;
    for (psrti_list_t *n = c->timed.next; n != &c->timed; n = n->next) {
        psrti_cop_t *op = PSRTI_LIST_ENTRY(n, psrti_cop_t, timed);
        if (op->deadline <= c->now) return op;
        c->next_deadline = PSRTI_MIN(c->next_deadline, op->deadline);
    }
    return NULL;
}

static void send_cancel(psrti_client_t *c, psrti_part_t *p)
{
    psrti_cowner_t *o = &c->owners[p->owner];
    psrt_hdr_t hdr;
    psrti_part_header(c, p, &hdr);
    hdr.type = PSRTI_T_CANCEL;
    hdr.flags = (uint16_t)((p->flags & PSRTI_F_PULL) | (p->due ? PSRTI_F_RETRY : 0));
    hdr.dtype = hdr.codec = 0;
    if (c->env.send(c->env.arg, p->owner, &hdr, NULL, 0, NULL) == PSRT_ERR_AGAIN)
        o->full = 1; /* link_writable brings us back */
    else
        p->due = c->now + c->retry_ns;
}

/* Sends the CANCELs that are due. Returns the first part that was not answered in time. */
static psrti_part_t *scan_recalled(psrti_client_t *c)
{
    c->next_recall = UINT64_MAX;
    for (psrti_list_t *n = c->recalled.next; n != &c->recalled; n = n->next) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, node);
        if (p->give_up <= c->now) return p;
        c->next_recall = PSRTI_MIN(c->next_recall, p->give_up);
        if (p->state != PSRTI_PART_CANCELED) continue;
        if (p->due <= c->now && !c->owners[p->owner].full) send_cancel(c, p);
        if (p->due > c->now) c->next_recall = PSRTI_MIN(c->next_recall, p->due);
    }
    return NULL;
}

void psrti_cancel_progress(psrti_client_t *c, uint64_t *next)
{
    psrti_cop_t *op;
    psrti_part_t *stuck;
    if (c->now >= c->next_deadline)
        while ((op = late_op(c)))
            psrti_client_cancel(c, op, PSRT_ERR_DEADLINE);
    while (c->now >= c->next_recall && (stuck = scan_recalled(c))) {
        c->counts.fences++;
        c->next_recall = 0;
        c->env.fence(c->env.arg, stuck->owner);
    }
    *next = PSRTI_MIN(*next, PSRTI_MIN(c->next_deadline, c->next_recall));
}
