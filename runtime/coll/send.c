/* SPDX-License-Identifier: Apache-2.0 */
/* Sending the data of a call, as far as the receiver may be sent to: before it said READY only a little of each call, then
 * a window of chunks. */
#include <string.h>

#include "base/log.h"
#include "runtime/coll/coll_int.h"

typedef psrti_collrun_t run_t;
typedef psrti_collexec_t exec_t;
typedef psrti_collcell_t cell_t;
typedef psrti_collmove_t move_t;

static psrti_coll_t *coll_of(const run_t *run) { return run->op->comm->coll; }

psrti_collknown_t *psrti_run_known(const run_t *run, uint32_t member)
{
    psrti_collmember_t *m = &run->op->comm->members[member];
    if (run->op->call.what == PSRTI_COLL_SEND_TO) return &m->pair->send_known;
    if (run->op->call.what == PSRTI_COLL_RECV_FROM) return &m->pair->recv_known;
    return &m->known;
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void send_over(cell_t *cell)
{
    cell->state = PSRTI_CELL_DONE;
    cell->exec->pending--;
    psrti_exec_ready(cell->exec);
}

static void on_sent(psrt_tx_t *tx, psrt_status_t status)
{
    cell_t *cell = PSRTI_CONTAINER_OF(tx, cell_t, tx);
    run_t *run = cell->exec->run;
    psrti_comm_t *comm = run->op->comm;
    const psrti_collway_t *way = &run->sched->ways[psrti_cell_move(cell)->way];

    run->inflight--;
    send_over(cell);
    if (comm->state == PSRTI_COMM_FAILED) {
        psrti_list_remove(&cell->exec->node);
        if (run->inflight) return;
        psrti_run_perish(run);
        psrti_comm_undoom(comm);
        return;
    }
    run->has_moved = 1;
    if (status != PSRT_OK && !comm->members[way->member].is_closed) run->is_broken = 1;
}

/* The link did not take a message. Whoever sends is in the midst of its run: if the loss of the link does not say why, the
 * communicator fails when the chunk goes on. */
static void broke(run_t *run, uint32_t member, psrt_status_t status)
{
    psrti_comm_t *comm = run->op->comm;
    char name[128];
    run->is_broken = 1;
    if (status == PSRT_ERR_PEER_LOST || run->refused != PSRT_OK) return;
    run->refused = status;
    snprintf(comm->text, sizeof comm->text, "%s: cannot send to %s: %s", comm->title,
             psrti_member_name(comm, member, name), psrt_last_error());
}

void psrti_run_refused(run_t *run)
{
    char text[PSRTI_COLL_TEXT];
    memcpy(text, run->op->comm->text, sizeof text);
    psrti_comm_fail(run->op->comm, run->refused, text);
}

const move_t *psrti_cell_move(const cell_t *cell)
{
    return &cell->exec->run->sched->moves[cell - cell->exec->cells];
}

/* The signature of the call, as this member is to see it. */
static void sign(const run_t *run, uint32_t member, int is_data, psrt_hdr_t *hdr)
{
    const psrti_comm_t *comm = run->op->comm;
    psrti_collsig_t sig = psrti_sig_for(run, member, is_data, 1);
    *hdr = (psrt_hdr_t){ .type = PSRTI_T_COLL,
                         .dtype = sig.dtype,
                         .seq = run->op->seq,
                         .step = sig.count,
                         .table = comm->members[member].handle,
                         .vshard = (uint16_t)sig.root,
                         .priority = (uint8_t)(sig.what | sig.redop << 4),
                         .status = sig.algorithm };
}

psrt_status_t psrti_cell_send(cell_t *cell, uint32_t rank)
{
    exec_t *exec = cell->exec;
    run_t *run = exec->run;
    const move_t *move = psrti_cell_move(cell);
    uint32_t member = run->sched->ways[move->way].member;
    psrti_coll_t *coll = coll_of(run);
    uint64_t len = psrti_layout_len(exec, move) * run->size;
    psrt_hdr_t hdr;

    sign(run, member, 1, &hdr);
    hdr.seq_floor = PSRTI_COLL_DATA;
    hdr.term = (uint32_t)exec->chunk;
    hdr.offset = move->index;
    hdr.length = len;
    psrti_collknown_t *known = psrti_run_known(run, member);
    cell->tx.done = on_sent;
    cell->state = PSRTI_CELL_SENT;
    run->inflight++;
    psrt_status_t status = coll->env.send(
        coll->env.arg, rank, &hdr, len ? psrti_layout_at(exec, move->src) : NULL, len, &cell->tx);
    if (status == PSRT_OK || status == PSRT_IN_PROGRESS)
        known->told = PSRTI_MAX(known->told, run->op->seq);
    if (status == PSRT_IN_PROGRESS) return status;
    run->inflight--;
    if (status == PSRT_ERR_AGAIN) {
        cell->state = PSRTI_CELL_QUEUED;
        return status;
    }
    if (status != PSRT_OK) broke(run, member, status);
    send_over(cell);
    return status;
}

static int may_send(run_t *run, uint32_t w, const exec_t *exec, uint64_t bytes)
{
    psrti_collwayrun_t *way = &run->ways[w];
    psrti_collknown_t *known = psrti_run_known(run, run->sched->ways[w].member);
    if (run->op->seq > known->heard + PSRTI_COLL_AHEAD) {
        known->is_blocked = 1;
        return 0;
    }
    return exec->chunk < way->may_send &&
           (way->is_ready || way->sent + bytes <= coll_of(run)->p.eager);
}

static void transmit(cell_t *cell, uint64_t bytes)
{
    run_t *run = cell->exec->run;
    uint32_t w = psrti_cell_move(cell)->way;
    run->ways[w].sent += bytes;
    psrti_peer_send_cell(coll_of(run), run->op->comm->ranks[run->sched->ways[w].member], cell);
}

static cell_t *cell_at(psrti_list_t *waiting)
{
    return PSRTI_CONTAINER_OF(PSRTI_LIST_ENTRY(waiting, psrti_collout_t, node), cell_t, out);
}

/* Low chunks go first: the credit of a high one may depend on them. */
static void wait_for_credit(psrti_collwayrun_t *way, cell_t *cell)
{
    psrti_list_t *after = way->waiting.prev;
    while (after != &way->waiting && cell_at(after)->exec->chunk > cell->exec->chunk)
        after = after->prev;
    cell->state = PSRTI_CELL_WAITING;
    psrti_list_insert_before(after->next, &cell->out.node);
}

/* Sends what waited for the other's READY, as far as it goes. */
void psrti_way_flush(run_t *run, uint32_t w)
{
    psrti_list_t *waiting = &run->ways[w].waiting;
    while (!psrti_list_empty(waiting)) {
        cell_t *cell = cell_at(waiting->next);
        uint64_t bytes = psrti_layout_len(cell->exec, psrti_cell_move(cell)) * run->size;
        if (!may_send(run, w, cell->exec, bytes)) return;
        psrti_list_remove(&cell->out.node);
        transmit(cell, bytes);
    }
}

void psrti_cell_post(exec_t *exec, uint32_t i)
{
    run_t *run = exec->run;
    const move_t *move = &run->sched->moves[i];
    cell_t *cell = &exec->cells[i];
    uint64_t len = psrti_layout_len(exec, move);
    psrti_collwayrun_t *way = &run->ways[move->way];

    if (psrti_exec_skips(exec, len)) {
        cell->state = PSRTI_CELL_DONE;
        return;
    }
    exec->pending++;
    if (psrti_list_empty(&way->waiting) && may_send(run, move->way, exec, len * run->size)) {
        transmit(cell, len * run->size);
        return;
    }
    wait_for_credit(way, cell);
    psrti_way_flush(run, move->way);
}

void psrti_run_tell_ready(run_t *run, uint32_t member, uint64_t granted, int wants_answer)
{
    psrti_comm_t *comm = run->op->comm;
    psrti_collknown_t *known = psrti_run_known(run, member);
    psrt_hdr_t hdr;
    sign(run, member, 0, &hdr);
    hdr.seq_floor = PSRTI_COLL_READY;
    hdr.term = (uint32_t)PSRTI_MIN(granted, UINT32_MAX);
    hdr.offset = wants_answer != 0;
    known->told = PSRTI_MAX(known->told, run->op->seq);
    psrti_peer_tell(comm->coll, comm->ranks[member], &hdr, NULL, 0);
}
