/* SPDX-License-Identifier: Apache-2.0 */
/* Carrying out a call: chunk by chunk, round by round. What a message or an ended send makes possible is put on
 * coll->ready and done by psrti_coll_drain, so that nothing here calls itself. Whatever may fail the communicator frees
 * the run: callers look at comm->state before they go on. */
#include <stdlib.h>
#include <string.h>

#include "kernels/reduce.h"
#include "runtime/coll/coll_int.h"

typedef psrti_collrun_t run_t;
typedef psrti_collexec_t exec_t;
typedef psrti_collcell_t cell_t;
typedef psrti_collmove_t move_t;

static psrti_coll_t *coll_of(const run_t *run) { return run->op->comm->coll; }

void psrti_exec_ready(exec_t *exec)
{
    if (psrti_list_empty(&exec->node)) psrti_list_push(&coll_of(exec->run)->ready, &exec->node);
}

/* ---- rounds ------------------------------------------------------------------------------------- */

static void move_data(exec_t *exec, const move_t *m, const void *data, uint64_t len)
{
    const run_t *run = exec->run;
    const psrti_kernels_t *k = coll_of(run)->p.kernels;
    char *dst = psrti_layout_at(exec, m->dst), *src;

    switch ((psrti_coll_kind_t)m->kind) {
    case PSRTI_COLL_COPY: data = psrti_layout_at(exec, m->src); /* fall through */
    case PSRTI_COLL_RECV:
        if (dst != data) k->copy(dst, data, len * run->size);
        return;
    case PSRTI_COLL_ADD:
        psrti_fold(k, (psrt_dtype_t)run->dtype, (psrt_redop_t)run->op->call.redop, dst, dst,
                   psrti_layout_at(exec, m->src), len);
        return;
    case PSRTI_COLL_FOLD_FIRST:
    case PSRTI_COLL_FOLD_LAST:
        src = psrti_layout_at(exec, m->src);
        if (m->kind == PSRTI_COLL_FOLD_FIRST)
            psrti_fold(k, (psrt_dtype_t)run->dtype, (psrt_redop_t)run->op->call.redop, dst, data,
                       src, len);
        else
            psrti_fold(k, (psrt_dtype_t)run->dtype, (psrt_redop_t)run->op->call.redop, dst, src,
                       data, len);
        return;
    case PSRTI_COLL_SEND: return;
    }
}

/* Carries out a move that receives, straight out of the message. 0: the communicator failed of it. */
static int take(exec_t *exec, uint32_t i, psrt_msg_t *msg, uint32_t rank)
{
    run_t *run = exec->run;
    const psrti_coll_env_t *env = &coll_of(run)->env;
    const move_t *move = &run->sched->moves[i];
    const void *data = NULL;
    psrt_status_t status = PSRT_OK;

    if (msg->len) {
        status = env->map(env->arg, rank, msg, &data);
        if (status == PSRT_OK) {
            move_data(exec, move, data, msg->len / run->size);
            status = env->verify(env->arg, rank, msg);
        }
    }
    exec->cells[i].state = PSRTI_CELL_DONE;
    run->has_moved = 1;
    if (status == PSRT_OK) return 1;
    psrti_comm_withdrawn(run->op->comm, run->sched->ways[move->way].member, status);
    return 0;
}

static int take_parcel(exec_t *exec, uint32_t i)
{
    psrti_coll_t *coll = coll_of(exec->run);
    psrti_parcel_t *p = exec->cells[i].parcel;
    exec->cells[i].parcel = NULL;
    int ok;
    if (p->is_held) {
        ok = take(exec, i, &p->msg, p->rank);
    } else {
        if (p->msg.len)
            move_data(exec, &exec->run->sched->moves[i], p->msg.data, p->msg.len / exec->run->size);
        exec->cells[i].state = PSRTI_CELL_DONE;
        ok = 1;
    }
    psrti_parcel_free(coll, p);
    return ok;
}

/* Begins a round. 0: the communicator failed. */
static int enter(exec_t *exec)
{
    const psrti_collsched_t *s = exec->run->sched;
    for (uint32_t i = s->round_at[exec->round]; i < s->round_at[exec->round + 1]; i++) {
        const move_t *m = &s->moves[i];
        if (m->kind == PSRTI_COLL_SEND) {
            psrti_cell_post(exec, i);
            continue;
        }
        uint64_t len = psrti_layout_len(exec, m);
        if (!psrti_move_receives(m)) {
            if (len) move_data(exec, m, NULL, len);
        } else if (psrti_exec_skips(exec, len)) {
            exec->cells[i].state = PSRTI_CELL_DONE;
        } else if (!exec->cells[i].parcel) {
            exec->left++;
        } else if (!take_parcel(exec, i)) {
            return 0;
        }
    }
    return 1;
}

static int may_enter(const exec_t *exec, uint32_t round)
{
    const psrti_collsched_t *s = exec->run->sched;
    for (uint32_t f = s->fence_at[round]; f < s->fence_at[round + 1]; f++)
        if (exec->cells[s->fences[f]].state != PSRTI_CELL_DONE) return 0;
    return 1;
}

/* ---- chunks ------------------------------------------------------------------------------------- */

static exec_t *exec_get(psrti_collsched_t *s)
{
    psrti_list_t *spare = psrti_list_pop(&s->spare_execs);
    if (spare) return PSRTI_LIST_ENTRY(spare, exec_t, node);
    exec_t *exec = malloc(sizeof *exec + s->nmoves * sizeof exec->cells[0]);
    if (!exec) return NULL;
    psrti_list_init(&exec->node);
    exec->scratch = NULL;
    exec->scratch_bytes = 0;
    for (uint32_t i = 0; i < s->nmoves; i++) {
        exec->cells[i].exec = exec;
        psrti_list_init(&exec->cells[i].out.node);
    }
    return exec;
}

/* The state of a chunk; made when it is begun, or when its first message comes. NULL: no memory. */
exec_t *psrti_run_exec(run_t *run, uint64_t chunk)
{
    exec_t **at = &run->execs[chunk % PSRTI_COLL_WINDOW];
    exec_t *exec = *at;
    if (exec) return exec;
    exec = exec_get(run->sched);
    if (!exec) return NULL;
    exec->run = run;
    exec->chunk = chunk;
    exec->is_active = exec->is_over = 0;
    exec->round = exec->left = exec->pending = 0;
    for (uint32_t i = 0; i < run->sched->nmoves; i++) {
        exec->cells[i].state = PSRTI_CELL_IDLE;
        exec->cells[i].parcel = NULL;
    }
    psrti_layout_place(exec);
    return *at = exec;
}

static void recycle(run_t *run, uint64_t chunk)
{
    exec_t **at = &run->execs[chunk % PSRTI_COLL_WINDOW];
    psrti_list_remove(&(*at)->node);
    psrti_list_push(&run->sched->spare_execs, &(*at)->node);
    *at = NULL;
}

/* 0: the communicator failed. */
static int open_chunks(run_t *run)
{
    psrti_comm_t *comm = run->op->comm;
    while (run->opened < run->cut.chunks && run->active < PSRTI_COLL_ACTIVE &&
           run->opened < run->base + PSRTI_COLL_WINDOW) {
        exec_t *exec = psrti_run_exec(run, run->opened);
        if (!exec || psrti_layout_open(exec) != PSRT_OK) {
            psrti_comm_fail_memory(comm, run->op);
            return 0;
        }
        exec->is_active = 1;
        run->active++;
        run->opened++;
        if (!enter(exec)) return 0;
        psrti_exec_ready(exec);
    }
    return 1;
}

static void send_ready(run_t *run, uint32_t w, int wants_answer)
{
    uint32_t member = run->sched->ways[w].member;
    psrti_run_tell_ready(run, member, run->ways[w].granted, wants_answer);
}

/* Lets those who send more than they may without a word begin, and those who have not heard of us for long know. */
static void announce(run_t *run)
{
    for (uint32_t w = 0; w < run->sched->nways; w++) {
        const psrti_collway_t *way = &run->sched->ways[w];
        if (!way->nrecvs) continue;
        if (run->op->seq >= psrti_run_known(run, way->member)->told + PSRTI_COLL_AHEAD / 2 ||
            psrti_layout_bound(run, way) > coll_of(run)->p.eager)
            send_ready(run, w, 0);
    }
}

/* Lets senders go on; half a window at once. */
static void grant(run_t *run)
{
    uint64_t may = PSRTI_MIN(run->base + PSRTI_COLL_WINDOW, run->cut.chunks);
    for (uint32_t w = 0; w < run->sched->nways; w++) {
        psrti_collwayrun_t *way = &run->ways[w];
        if (!run->sched->ways[w].nrecvs || may <= way->granted) continue;
        if (may < run->cut.chunks && may < way->granted + PSRTI_COLL_WINDOW / 2) continue;
        way->granted = may;
        send_ready(run, w, 0);
    }
}

static void run_complete(run_t *run)
{
    psrti_collop_t *op = run->op;
    psrti_comm_t *comm = op->comm;
    psrti_colllane_t *lane = run->lane;
    if (run->is_broken) return; /* the communicator fails */
    lane->slots[op->seq & lane->mask].op = NULL;
    lane->running--;
    psrti_run_free(run);
    psrti_coll_end(op, PSRT_OK, NULL);
    psrti_lane_pump(comm, lane);
}

static void finish(exec_t *exec)
{
    run_t *run = exec->run;
    psrti_layout_close(exec);
    exec->is_over = 1;
    run->active--;
    while (run->base < run->opened && run->execs[run->base % PSRTI_COLL_WINDOW]->is_over)
        recycle(run, run->base++);
    if (run->base == run->cut.chunks) {
        run_complete(run);
        return;
    }
    if (run->cut.chunks > PSRTI_COLL_WINDOW) grant(run);
    (void)open_chunks(run);
}

void psrti_exec_advance(exec_t *exec)
{
    if (exec->run->refused != PSRT_OK) {
        psrti_run_refused(exec->run);
        return;
    }
    while (exec->is_active && !exec->is_over && !exec->left) {
        if (exec->round + 1 < exec->run->sched->rounds) {
            if (!may_enter(exec, exec->round + 1)) return;
            exec->round++;
            if (!enter(exec)) return;
            continue;
        }
        if (!exec->pending) finish(exec);
        return;
    }
}

/* A message for a move of this chunk: carried out now or kept. */
psrt_rx_t psrti_exec_message(exec_t *exec, uint32_t i, psrt_msg_t *msg, uint32_t rank,
                             psrti_parcel_t *parcel)
{
    psrti_coll_t *coll = coll_of(exec->run);
    psrti_comm_t *comm = exec->run->op->comm;
    psrt_rx_t rx = PSRT_RX_DONE;
    cell_t *cell = &exec->cells[i];
    int now = exec->is_active && exec->run->sched->moves[i].round == exec->round;

    if (!parcel && !now) {
        parcel = psrti_parcel_new(coll, rank, msg, &rx);
        if (!parcel) {
            psrti_comm_fail_memory(comm, exec->run->op);
            return PSRT_RX_DONE;
        }
    }
    cell->parcel = parcel;
    if (!now) return rx;
    if (parcel ? take_parcel(exec, i) : take(exec, i, msg, rank)) {
        exec->left--;
        psrti_exec_ready(exec);
    }
    return PSRT_RX_DONE;
}

/* ---- calls -------------------------------------------------------------------------------------- */

static run_t *run_get(psrti_collsched_t *s)
{
    psrti_list_t *spare = psrti_list_pop(&s->spare_runs);
    run_t *run = spare ? PSRTI_LIST_ENTRY(spare, run_t, node)
                       : malloc(sizeof *run + s->nways * sizeof run->ways[0]);
    if (!run) return NULL;
    memset(run, 0, sizeof *run);
    psrti_list_init(&run->node);
    run->sched = s;
    s->users++;
    return run;
}

void psrti_run_free(run_t *run)
{
    psrti_collop_t *op = run->op;
    for (uint32_t c = 0; c < PSRTI_COLL_WINDOW; c++)
        if (run->execs[c]) recycle(run, c);
    if (run->copied) coll_of(run)->env.free(coll_of(run)->env.arg, run->copied);
    run->sched->users--;
    psrti_list_remove(&run->node);
    psrti_list_push(&run->sched->spare_runs, &run->node);
    op->run = NULL;
}

static void doom_cell(run_t *run, const move_t *m, cell_t *cell)
{
    psrti_coll_t *coll = coll_of(run);
    if (psrti_move_receives(m)) {
        if (cell->parcel) psrti_parcel_free(coll, cell->parcel);
        cell->parcel = NULL;
    } else if (cell->state == PSRTI_CELL_QUEUED) {
        psrti_peer_unqueue(coll, cell);
    } else if (cell->state == PSRTI_CELL_WAITING) {
        psrti_list_remove(&cell->out.node);
    }
}

/* The last word on a doomed run. */
void psrti_run_perish(run_t *run)
{
    psrti_collop_t *op = run->op;
    psrti_comm_t *comm = op->comm;
    psrti_run_free(run);
    psrti_coll_end(op, comm->status, comm->text);
}

/* The communicator failed: the operation ends when no send of it is under way. */
void psrti_run_doom(run_t *run)
{
    psrti_comm_t *comm = run->op->comm;
    for (uint32_t c = 0; c < PSRTI_COLL_WINDOW; c++) {
        exec_t *exec = run->execs[c];
        if (!exec) continue;
        psrti_list_remove(&exec->node);
        for (uint32_t i = 0; i < run->sched->nmoves; i++)
            doom_cell(run, &run->sched->moves[i], &exec->cells[i]);
    }
    run->lane->slots[run->op->seq & run->lane->mask].op = NULL;
    run->lane->running--;
    psrti_list_push(&comm->dying, &run->node);
    comm->doomed++;
    if (run->inflight) return;
    psrti_list_remove(&run->node);
    comm->doomed--;
    psrti_run_perish(run);
}

/* A worker that has not let go of this operation's memory. */
uint32_t psrti_run_stuck_at(const run_t *run)
{
    for (uint32_t c = 0; c < PSRTI_COLL_WINDOW; c++)
        for (uint32_t i = 0; run->execs[c] && i < run->sched->nmoves; i++)
            if (run->execs[c]->cells[i].state == PSRTI_CELL_SENT)
                return run->op->comm->ranks[run->sched->ways[run->sched->moves[i].way].member];
    return PSRTI_COLL_NOBODY;
}

static int is_in_place_exchange(const psrti_coll_call_t *call)
{
    return psrti_layout_is_exchange(call->what) && call->in && call->in == call->out;
}

/* The input of an exchange in place: its plans write parts of the output before those of the input were sent. */
static psrt_status_t copy_input(run_t *run)
{
    const psrti_coll_call_t *call = &run->op->call;
    psrti_coll_t *coll = coll_of(run);
    uint64_t bytes = is_in_place_exchange(call) ? psrti_layout_input_bytes(run) : 0;
    if (!bytes) return PSRT_OK;
    run->copied = coll->env.alloc(coll->env.arg, bytes);
    if (!run->copied) return PSRT_ERR_NO_MEMORY;
    coll->p.kernels->copy(run->copied, call->in, bytes);
    return PSRT_OK;
}

static void init_ways(run_t *run)
{
    for (uint32_t w = 0; w < run->sched->nways; w++) {
        const psrti_collknown_t *known = psrti_run_known(run, run->sched->ways[w].member);
        run->ways[w] = (psrti_collwayrun_t){ .may_send = PSRTI_COLL_WINDOW,
                                             .granted = PSRTI_COLL_WINDOW,
                                             .is_ready = known->heard >= run->op->seq };
        psrti_list_init(&run->ways[w].waiting);
    }
}

static psrt_status_t run_new(psrti_collop_t *op, run_t **run_p)
{
    psrti_comm_t *comm = op->comm;
    const psrti_coll_call_t *call = &op->call;
    uint8_t dtype = psrti_layout_dtype(call);
    uint32_t size = dtype ? (uint32_t)psrt_dtype_size((psrt_dtype_t)dtype) : 1;
    uint8_t algorithm = psrti_comm_algorithm(comm, call);
    psrti_collcut_t cut = psrti_layout_cut(op, size, 1);
    psrti_collsched_t *sched;
    int split = psrti_layout_splits(op, algorithm, size, cut);

    psrt_status_t status = psrti_sched_get(comm, call->what, algorithm, call->root, split, &sched);
    if (status != PSRT_OK) return status;
    run_t *run = run_get(sched);
    if (!run) return PSRT_ERR_NO_MEMORY;
    run->op = op;
    op->run = run;
    run->dtype = dtype;
    run->is_wide = dtype != call->dtype;
    run->size = size;
    run->cut = cut.layout == PSRTI_LAYOUT_CUT ? psrti_layout_cut(op, size, sched->nblocks) : cut;
    run->sig = psrti_sig_of(comm, call, algorithm);
    init_ways(run);
    status = copy_input(run);
    if (status != PSRT_OK) psrti_run_free(run);
    *run_p = run;
    return status;
}

/* Begins a call whose turn it is. */
void psrti_run_begin(psrti_collop_t *op, psrti_colllane_t *lane)
{
    psrti_comm_t *comm = op->comm;
    run_t *run;
    psrt_status_t status = run_new(op, &run);
    lane->next = op->seq + 1;
    if (status != PSRT_OK) {
        psrti_comm_fail_memory(comm, op);
        psrti_coll_end(op, comm->status, comm->text);
        return;
    }
    run->lane = lane;
    lane->slots[op->seq & lane->mask].op = op;
    lane->running++;
    run->has_moved = 1;
    psrti_comm_busy(comm);
    if (!psrti_comm_check_closed(comm, op)) return;
    announce(run);
    if (!psrti_recv_early(op)) return;
    (void)open_chunks(run);
}
