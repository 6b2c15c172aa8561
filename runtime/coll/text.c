/* SPDX-License-Identifier: Apache-2.0 */
/* What people read: calls, and what an operation that does not move is waiting for. */
#include <string.h>

#include "runtime/coll/coll_int.h"

#define PROBE (500 * PSRTI_NS_PER_MS) /* nothing moved for so long: members are asked */

typedef psrti_comm_t comm_t;

static const char *name_of(uint8_t what)
{
    switch (what) {
    case PSRTI_COLL_ALLGATHERV: return "allgatherv";
    case PSRTI_COLL_ALLTOALLV: return "alltoallv";
    case PSRTI_COLL_SEND_TO: return "send";
    case PSRTI_COLL_RECV_FROM: return "receive";
    default:
        return what < PSRTI_COLL_COUNT ? psrti_collective_name((psrti_collective_t)what)
                                       : "an unknown collective";
    }
}

void psrti_coll_call_text(const psrti_coll_call_t *call, char *buf, size_t size)
{
    size_t at = 0;
    (void)psrti_append(buf, size, &at, "%s", name_of(call->what));
    if (call->what == PSRTI_COLL_BARRIER) return;
    (void)psrti_append(buf, size, &at, " of %llu %s", (unsigned long long)call->count,
                       psrt_dtype_name((psrt_dtype_t)call->dtype));
    if (psrti_layout_reduces(call->what))
        (void)psrti_append(buf, size, &at, " %s", psrt_redop_name((psrt_redop_t)call->redop));
    if (call->what == PSRTI_COLL_BROADCAST || call->what == PSRTI_COLL_SCATTER)
        (void)psrti_append(buf, size, &at, " from rank %u", call->root);
    if (call->what == PSRTI_COLL_REDUCE || call->what == PSRTI_COLL_GATHER)
        (void)psrti_append(buf, size, &at, " to rank %u", call->root);
}

static void describe_call(const psrti_collop_t *op, char *buf, size_t size)
{
    char call[128];
    size_t at = 0;
    psrti_coll_call_text(&op->call, call, sizeof call);
    (void)psrti_append(buf, size, &at, "%s", call);
    if (op->call.what == PSRTI_COLL_SEND_TO)
        (void)psrti_append(buf, size, &at, " to rank %u", op->call.root);
    if (op->call.what == PSRTI_COLL_RECV_FROM)
        (void)psrti_append(buf, size, &at, " from rank %u", op->call.root);
    if (op->seq)
        (void)psrti_append(buf, size, &at, ", call %llu",
                           psrti_comm_number(op->comm, op->call.what, op->seq));
    (void)psrti_append(buf, size, &at, op->seq ? " of %s" : ", in %s", op->comm->title);
}

/* ---- what is missing ---------------------------------------------------------------------------- */

typedef int (*member_test_fn)(const psrti_collop_t *op, uint32_t member);

static int has_not_come(const psrti_collop_t *op, uint32_t m)
{
    return m != op->comm->rank && !op->comm->members[m].handle;
}

static int is_in_call(const psrti_collop_t *op, uint32_t m)
{
    return m != op->comm->rank && (!psrti_layout_is_pair(op->call.what) || op->call.root == m);
}

static int has_not_called(const psrti_collop_t *op, uint32_t m)
{
    return is_in_call(op, m) && psrti_run_known(op->run, m)->heard < op->seq;
}

/* A message of it that the round needs has not come. */
static int owes_data(const psrti_collop_t *op, uint32_t m)
{
    const psrti_collrun_t *run = op->run;
    uint32_t w = run->sched->way_of[m];
    for (uint32_t c = 0; w != PSRTI_COLL_NOBODY && c < PSRTI_COLL_WINDOW; c++) {
        const psrti_collexec_t *exec = run->execs[c];
        if (!exec || !exec->is_active || exec->is_over) continue;
        for (uint32_t i = run->sched->round_at[exec->round];
             i < run->sched->round_at[exec->round + 1]; i++)
            if (psrti_move_receives(&run->sched->moves[i]) && run->sched->moves[i].way == w &&
                exec->cells[i].state == PSRTI_CELL_IDLE)
                return 1;
    }
    return 0;
}

static int is_awaited(const psrti_collop_t *op, uint32_t m)
{
    return m < 32 && op->awaited >> m & 1;
}

/* "rank 1, rank 3 (worker:3 at b) and 7 more"; how many there are. */
static uint32_t list_members(const psrti_collop_t *op, member_test_fn test, char *buf, size_t size)
{
    uint32_t n = 0;
    size_t at = 0;
    char name[128];
    *buf = 0;
    for (uint32_t m = 0; m < op->comm->size; m++) {
        if (!test(op, m) || ++n > 4) continue;
        (void)psrti_append(buf, size, &at, "%s%s", n > 1 ? ", " : "",
                           psrti_member_name(op->comm, m, name));
    }
    if (n > 4) (void)psrti_append(buf, size, &at, " and %u more", n - 4);
    return n;
}

static void describe_missing(const psrti_collop_t *op, char *buf, size_t size)
{
    char who[320];
    size_t at = 0;
    uint32_t n;
    if (op->is_flat) {
        n = list_members(op, is_awaited, who, sizeof who);
        (void)psrti_append(buf, size, &at, n ? "%s %s not called it" : "all ranks called it", who,
                           n > 1 ? "have" : "has");
    } else if (!op->run)
        (void)psrti_append(buf, size, &at, "calls before it have not ended");
    else if ((n = list_members(op, has_not_called, who, sizeof who)) != 0)
        (void)psrti_append(buf, size, &at, "%s %s not called it", who, n > 1 ? "have" : "has");
    else if (list_members(op, owes_data, who, sizeof who))
        (void)psrti_append(buf, size, &at, "all ranks called it; data of %s are missing", who);
    else
        (void)psrti_append(buf, size, &at, "all ranks called it; data are on their way");
}

void psrti_coll_describe(const psrti_collop_t *op, char *buf, size_t size)
{
    const comm_t *comm = op->comm;
    char who[320];
    size_t at = 0;
    if (comm->creation == op) {
        uint32_t n = list_members(op, has_not_come, who, sizeof who);
        (void)psrti_append(buf, size, &at, "creation of %s: %s %s not created it", comm->title, who,
                           n > 1 ? "have" : "has");
        return;
    }
    describe_call(op, buf, size);
    if (op->ended || comm->state != PSRTI_COMM_READY) return;
    describe_missing(op, who, sizeof who);
    at = strlen(buf);
    (void)psrti_append(buf, size, &at, ": %s", who);
}

/* ---- when nothing moves --------------------------------------------------------------------------- */

/* The oldest call that has not ended. */
static psrti_collop_t *oldest(const psrti_colllane_t *lane)
{
    psrti_collop_t *op = NULL;
    for (uint32_t i = 0; i <= lane->mask; i++)
        if (lane->slots[i].op && (!op || lane->slots[i].op->seq < op->seq)) op = lane->slots[i].op;
    return op;
}

static psrti_collop_t *next_oldest(const comm_t *comm, uint32_t *at)
{
    for (; *at <= 2 * comm->size; ++*at) {
        const psrti_pair_t *pair = *at ? comm->members[(*at - 1) / 2].pair : NULL;
        psrti_collop_t *op = !*at   ? oldest(&comm->lane)
                             : pair ? oldest(*at % 2 ? &pair->send : &pair->recv)
                                    : NULL;
        if (!op) continue;
        ++*at;
        return op;
    }
    return NULL;
}

/* Asks the members of a call that does not move what they have called: whoever called something else hears of it. */
static void probe(psrti_collop_t *op)
{
    comm_t *comm = op->comm;
    for (uint32_t m = 0; m < comm->size; m++) {
        uint32_t w = op->run->sched->way_of[m];
        if (!is_in_call(op, m) || comm->members[m].is_closed) continue;
        psrti_run_tell_ready(
            op->run, m, w == PSRTI_COLL_NOBODY ? PSRTI_COLL_WINDOW : op->run->ways[w].granted, 1);
    }
}

void psrti_comm_time_out(comm_t *comm, const psrti_collop_t *op)
{
    char text[PSRTI_COLL_TEXT], name[128];
    size_t at;
    psrti_coll_describe(op, text, sizeof text);
    at = strlen(text);
    (void)psrti_append(text, sizeof text, &at, "; nothing moved for %.3g s on %s",
                       (double)comm->coll->p.timeout / 1e9,
                       psrti_member_name(comm, comm->rank, name));
    psrti_comm_fail(comm, PSRT_ERR_TIMEOUT, text);
}

/* Looks after the oldest call of each lane. */
void psrti_comm_watch(comm_t *comm, uint64_t now)
{
    const psrti_coll_params_t *p = &comm->coll->p;
    uint64_t soon = p->timeout ? PSRTI_MIN(PROBE, p->timeout / 4) : PROBE;
    psrti_collop_t *op;

    for (uint32_t at = 0; comm->state == PSRTI_COMM_READY && (op = next_oldest(comm, &at));) {
        psrti_collrun_t *run = op->run;
        if (run->has_moved) {
            run->has_moved = 0;
            run->since = now;
        } else if (p->timeout && now >= run->since + p->timeout) {
            psrti_comm_time_out(comm, op);
        } else if (now >= run->since + soon) {
            probe(op);
        }
    }
}
