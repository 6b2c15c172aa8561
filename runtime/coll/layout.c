/* SPDX-License-Identifier: Apache-2.0 */
/* Where the blocks of a plan lie in a call's buffers, and how they are cut in chunks.
 *
 * CUT: the data are one row, cut in chunks first, each chunk in the plan's blocks. PARTS: each rank has a part, chunk c
 * is piece c of every part. V: parts of different lengths, piece c of each. A sum that is not computed in the type of
 * the data is computed in scratch, chunk by chunk, and rounded once. */
#include "kernels/reduce.h"
#include "runtime/coll/coll_int.h"

#define LINE PSRTI_COLL_LINE

typedef psrti_collrun_t run_t;
typedef psrti_collexec_t exec_t;

int psrti_layout_is_exchange(uint8_t what)
{
    return what == PSRTI_COLL_ALLTOALL || what == PSRTI_COLL_ALLTOALLV;
}

int psrti_layout_is_pair(uint8_t what)
{
    return what == PSRTI_COLL_SEND_TO || what == PSRTI_COLL_RECV_FROM;
}

psrti_collective_t psrti_layout_collective(uint8_t what)
{
    if (what == PSRTI_COLL_ALLGATHERV) return PSRTI_COLL_ALLGATHER;
    if (what == PSRTI_COLL_ALLTOALLV) return PSRTI_COLL_ALLTOALL;
    return (psrti_collective_t)what;
}

static uint8_t layout_of(uint8_t what)
{
    switch (what) {
    case PSRTI_COLL_ALLGATHERV:
    case PSRTI_COLL_ALLTOALLV: return PSRTI_LAYOUT_V;
    case PSRTI_COLL_ALLGATHER:
    case PSRTI_COLL_REDUCE_SCATTER:
    case PSRTI_COLL_ALLTOALL:
    case PSRTI_COLL_GATHER:
    case PSRTI_COLL_SCATTER: return PSRTI_LAYOUT_PARTS;
    default: return PSRTI_LAYOUT_CUT;
    }
}

static uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

static uint64_t longest(const uint64_t *counts, uint32_t n)
{
    uint64_t max = 0;
    for (uint32_t i = 0; counts && i < n; i++)
        max = PSRTI_MAX(max, counts[i]);
    return max;
}

uint64_t psrti_layout_sum(const uint64_t *counts, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

/* The bytes by which the algorithm of a call is chosen. Of an alltoallv a rank knows only its own counts, and all must
 * choose alike. */
uint64_t psrti_layout_measure(const psrti_comm_t *comm, const psrti_coll_call_t *call)
{
    uint64_t count = call->count, bytes;
    if (call->what == PSRTI_COLL_ALLTOALLV) return UINT64_MAX;
    if (call->what == PSRTI_COLL_ALLGATHERV)
        count = psrti_layout_sum(call->out_counts, comm->size) / comm->size;
    if (!psrti_mul_u64(count, psrt_dtype_size((psrt_dtype_t)call->dtype), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* The part of the data that is cut in chunks. */
static uint64_t to_cut(const psrti_comm_t *comm, const psrti_coll_call_t *call)
{
    if (layout_of(call->what) != PSRTI_LAYOUT_V) return call->count;
    uint64_t out = longest(call->out_counts, comm->size);
    return call->what == PSRTI_COLL_ALLGATHERV
               ? out
               : PSRTI_MAX(out, longest(call->in_counts, comm->size));
}

/* How the data are cut: alike on all ranks, since they have the same call and the same settings. */
psrti_collcut_t psrti_layout_cut(const psrti_collop_t *op, uint32_t size, uint32_t nblocks)
{
    psrti_collcut_t cut = { .layout = layout_of(op->call.what), .chunks = 1 };
    const psrti_coll_params_t *p = &op->comm->coll->p;
    uint64_t n = to_cut(op->comm, &op->call), line = LINE / size;
    uint64_t most = PSRTI_MAX(1, PSRTI_MIN(p->chunk, p->message) / size);

    if (cut.layout == PSRTI_LAYOUT_CUT)
        most = PSRTI_MAX(most, PSRTI_MIN(most * PSRTI_MAX(1, nblocks), p->message / size));
    cut.elements = n;
    if (n <= most) return cut;
    cut.chunks = divide_up(n, most);
    if (cut.layout == PSRTI_LAYOUT_V) { /* parts of their own: pieces of one length */
        cut.elements = most;
        return cut;
    }
    cut.elements = divide_up(divide_up(n, cut.chunks), line) * line;
    cut.chunks = divide_up(n, cut.elements);
    return cut;
}

/* A message for each block: where several of them do not lie side by side, or are too much for one. */
int psrti_layout_splits(const psrti_collop_t *op, uint8_t algorithm, uint32_t size,
                        psrti_collcut_t cut)
{
    if (cut.layout != PSRTI_LAYOUT_PARTS) return cut.layout == PSRTI_LAYOUT_V;
    uint64_t widest =
        psrti_coll_plan_widest(psrti_layout_collective(op->call.what), algorithm, op->comm->topo);
    return cut.chunks > 1 || cut.elements > op->comm->coll->p.message / size / widest;
}

/* Bytes that come this way at most. */
uint64_t psrti_layout_bound(const run_t *run, const psrti_collway_t *way)
{
    uint64_t n = to_cut(run->op->comm, &run->op->call), bytes;
    if (run->cut.layout == PSRTI_LAYOUT_CUT) /* whole lines, in each chunk */
        n = divide_up(n, run->sched->nblocks) + run->cut.chunks * LINE;
    if (!psrti_mul_u64(n, run->size, &bytes) || !psrti_mul_u64(bytes, way->nblocks, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* ---- one chunk ---------------------------------------------------------------------------------- */

static uint64_t part_of(const run_t *run, uint64_t n, uint32_t nblocks)
{
    uint64_t line = LINE / run->size, part = nblocks ? divide_up(n, nblocks) : 0;
    return n >= nblocks * line * 4 ? divide_up(part, line) * line : part;
}

/* Where the chunk is, as far as lengths go: enough to receive it. */
void psrti_layout_place(exec_t *exec)
{
    const run_t *run = exec->run;
    uint64_t n = to_cut(run->op->comm, &run->op->call);

    exec->lo = PSRTI_MIN(n, exec->chunk * run->cut.elements);
    exec->hi = exec->lo + PSRTI_MIN(n - exec->lo, run->cut.elements);
    exec->part = run->cut.layout == PSRTI_LAYOUT_CUT
                     ? part_of(run, exec->hi - exec->lo, run->sched->nblocks)
                     : exec->hi - exec->lo;
}

static uint64_t v_len(const exec_t *exec, uint64_t count)
{
    uint64_t end = PSRTI_MIN(exec->hi, count);
    return end > exec->lo ? end - exec->lo : 0;
}

/* Whether a reference to `in` means parts of its own: else all parts are those of `out`. */
static uint64_t v_count(const run_t *run, psrti_coll_ref_t ref)
{
    const psrti_coll_call_t *call = &run->op->call;
    if (ref.buffer == PSRTI_COLL_OUT) return call->out_counts[ref.block];
    return call->what == PSRTI_COLL_ALLGATHERV ? call->out_counts[run->op->comm->rank]
                                               : call->in_counts[ref.block];
}

static uint64_t cut_end(const exec_t *exec, uint64_t block)
{
    uint64_t n = exec->hi - exec->lo;
    return block > 0 && exec->part > n / block ? n : PSRTI_MIN(n, block * exec->part);
}

uint64_t psrti_layout_len(const exec_t *exec, const psrti_collmove_t *m)
{
    const run_t *run = exec->run;
    if (!m->nblocks) return 0;
    switch (run->cut.layout) {
    case PSRTI_LAYOUT_CUT:
        return cut_end(exec, (uint64_t)m->like + m->nblocks) - cut_end(exec, m->like);
    case PSRTI_LAYOUT_PARTS: return m->nblocks * exec->part;
    default:
        if (m->kind == PSRTI_COLL_COPY)
            return PSRTI_MIN(v_len(exec, v_count(run, m->src)), v_len(exec, v_count(run, m->dst)));
        return v_len(exec, v_count(run, m->kind == PSRTI_COLL_SEND ? m->src : m->dst));
    }
}

static uint64_t v_offset(const run_t *run, psrti_coll_ref_t ref)
{
    const psrti_coll_call_t *call = &run->op->call;
    if (ref.buffer == PSRTI_COLL_OUT) return call->out_offsets[ref.block];
    return call->what == PSRTI_COLL_ALLGATHERV ? 0 : call->in_offsets[ref.block];
}

char *psrti_layout_at(const exec_t *exec, psrti_coll_ref_t ref)
{
    const run_t *run = exec->run;
    uint64_t at = ref.block * exec->stride[ref.buffer];
    if (run->cut.layout == PSRTI_LAYOUT_V && ref.buffer != PSRTI_COLL_TMP)
        at = v_offset(run, ref) + exec->lo;
    return exec->base[ref.buffer] + at * run->size;
}

/* ---- scratch ------------------------------------------------------------------------------------ */

static uint64_t in_blocks(const run_t *run)
{
    if (run->cut.layout == PSRTI_LAYOUT_CUT) return 1; /* a row of hi - lo */
    return run->op->call.what == PSRTI_COLL_REDUCE_SCATTER ? run->op->comm->size : 1;
}

static psrt_status_t get_scratch(exec_t *exec, uint64_t bytes)
{
    psrti_coll_t *coll = exec->run->op->comm->coll;
    if (bytes <= exec->scratch_bytes) return PSRT_OK;
    if (exec->scratch) coll->env.free(coll->env.arg, exec->scratch);
    exec->scratch_bytes = 0;
    exec->scratch = coll->env.alloc(coll->env.arg, bytes);
    if (!exec->scratch) return PSRT_ERR_NO_MEMORY;
    exec->scratch_bytes = bytes;
    return PSRT_OK;
}

static uint64_t whole_lines(uint64_t elements, uint32_t size)
{
    uint64_t line = LINE / size;
    return divide_up(elements, line) * line;
}

static void widen(exec_t *exec)
{
    const run_t *run = exec->run;
    const psrti_coll_call_t *call = &run->op->call;
    size_t narrow = psrt_dtype_size((psrt_dtype_t)call->dtype);
    for (uint64_t b = 0; b < in_blocks(run); b++)
        psrti_widen(
            run->op->comm->coll->p.kernels, (psrt_dtype_t)call->dtype, (psrt_redop_t)call->redop,
            (char *)exec->scratch + b * (exec->hi - exec->lo) * run->size,
            (const char *)call->in + (b * call->count + exec->lo) * narrow, exec->hi - exec->lo);
}

static void point_to_scratch(exec_t *exec)
{
    const run_t *run = exec->run;
    int scatters = run->op->call.what == PSRTI_COLL_REDUCE_SCATTER;
    exec->base[PSRTI_COLL_IN] = exec->base[PSRTI_COLL_OUT] = exec->scratch;
    if (scatters) exec->base[PSRTI_COLL_OUT] += run->op->comm->rank * exec->part * run->size;
    if (run->sched->is_apart)
        exec->base[PSRTI_COLL_OUT] += whole_lines(exec->hi - exec->lo, run->size) * run->size;
    exec->stride[PSRTI_COLL_IN] = exec->stride[PSRTI_COLL_OUT] = exec->part;
    widen(exec);
}

static void point_to_user(exec_t *exec)
{
    const run_t *run = exec->run;
    const psrti_coll_call_t *call = &run->op->call;
    uint64_t at = run->cut.layout == PSRTI_LAYOUT_V ? 0 : exec->lo * run->size;
    uint64_t stride = run->cut.layout == PSRTI_LAYOUT_CUT ? exec->part : call->count;
    const char *in = run->copied ? run->copied : call->in;
    exec->base[PSRTI_COLL_IN] = in ? (char *)(uintptr_t)in + at : NULL; /* is only read */
    exec->base[PSRTI_COLL_OUT] = call->out ? (char *)call->out + at : NULL;
    exec->stride[PSRTI_COLL_IN] = exec->stride[PSRTI_COLL_OUT] = stride;
}

/* Called in place, and the plan needs an input of its own. */
static int copies_in(const run_t *run)
{
    const psrti_coll_call_t *call = &run->op->call;
    return run->sched->is_apart && !run->is_wide && call->in == call->out;
}

/* Copies of the row that are in scratch. */
static unsigned scratch_rows(const run_t *run)
{
    if (run->is_wide) return run->sched->is_apart ? 2 : 1;
    return copies_in(run) ? 1 : 0;
}

static void point_to_copy(exec_t *exec)
{
    const run_t *run = exec->run;
    run->op->comm->coll->p.kernels->copy(exec->scratch, exec->base[PSRTI_COLL_IN],
                                         (exec->hi - exec->lo) * run->size);
    exec->base[PSRTI_COLL_IN] = exec->scratch;
}

/* Buffers of an exec that is worked on. */
psrt_status_t psrti_layout_open(exec_t *exec)
{
    const run_t *run = exec->run;
    uint64_t n = exec->hi - exec->lo, tmp = run->sched->tmp ? exec->part : 0;
    uint64_t rows = scratch_rows(run) * whole_lines(in_blocks(run) * n, run->size);

    if (rows || tmp) {
        psrt_status_t status = get_scratch(exec, (rows + run->sched->tmp * tmp) * run->size);
        if (status != PSRT_OK) return status;
    }
    if (run->is_wide && n)
        point_to_scratch(exec);
    else
        point_to_user(exec);
    if (copies_in(run) && n) point_to_copy(exec);
    exec->base[PSRTI_COLL_TMP] = exec->scratch ? (char *)exec->scratch + rows * run->size : NULL;
    exec->stride[PSRTI_COLL_TMP] = tmp;
    return PSRT_OK;
}

int psrti_layout_reduces(uint8_t what)
{
    return what == PSRTI_COLL_ALLREDUCE || what == PSRTI_COLL_REDUCE ||
           what == PSRTI_COLL_REDUCE_SCATTER;
}

/* The sums are there and nobody reads them any more: rounds and divides them. */
void psrti_layout_close(exec_t *exec)
{
    const run_t *run = exec->run;
    const psrti_coll_call_t *call = &run->op->call;
    uint64_t n = exec->hi - exec->lo;

    if (!n || !psrti_layout_reduces(call->what)) return;
    if (call->what == PSRTI_COLL_REDUCE && call->root != run->op->comm->rank) return;
    if (!run->is_wide && call->redop != PSRT_AVG) return;
    psrti_narrow(run->op->comm->coll->p.kernels, (psrt_dtype_t)call->dtype,
                 (psrt_redop_t)call->redop,
                 (char *)call->out + exec->lo * psrt_dtype_size((psrt_dtype_t)call->dtype),
                 exec->base[PSRTI_COLL_OUT], n, run->op->comm->size);
}

/* The type in which messages travel. */
uint8_t psrti_layout_dtype(const psrti_coll_call_t *call)
{
    if (!psrti_layout_reduces(call->what)) return call->dtype;
    return (uint8_t)psrti_acc_dtype((psrt_dtype_t)call->dtype, (psrt_redop_t)call->redop);
}

/* Bytes of the input of an exchange, up to the end of its last part. */
uint64_t psrti_layout_input_bytes(const run_t *run)
{
    const psrti_coll_call_t *call = &run->op->call;
    uint64_t end = 0;
    if (call->what == PSRTI_COLL_ALLTOALL) return call->count * run->op->comm->size * run->size;
    for (uint32_t r = 0; r < run->op->comm->size; r++)
        if (call->in_counts[r]) end = PSRTI_MAX(end, call->in_offsets[r] + call->in_counts[r]);
    return end * run->size;
}
