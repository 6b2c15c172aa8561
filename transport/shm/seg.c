/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: sealed memfds, own ones for writing and those of peers for reading. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfd.h"
#include "transport/shm/shm.h"

#define PAGE 4096u
#define POOL_LEAST SHM_HUGE
#define POOL_MOST (16 * SHM_HUGE)
#define ARENA_UNIT (16u << 10)

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* ---- segments of peers ------------------------------------------------------------------------- */

void psrti_shm_rseg_unref(shm_rseg_t *rseg)
{
    if (--rseg->refs > 0) return;
    munmap((void *)(uintptr_t)rseg->base, rseg->size);
    free(rseg);
}

/* ---- units of a segment ----------------------------------------------------------------------- */

static bool unit_taken(const shm_units_t *u, uint32_t i) { return u->bits[i / 64] >> (i % 64) & 1; }

static void units_mark(shm_units_t *u, uint32_t start, uint32_t n, bool taken)
{
    for (uint32_t i = start; i < start + n; i++) {
        uint64_t bit = 1ull << (i % 64);
        u->bits[i / 64] = taken ? u->bits[i / 64] | bit : u->bits[i / 64] & ~bit;
    }
    u->taken += taken ? n : -n;
}

/* First run of n free units in [from, to), or `to`. */
static uint32_t units_search(const shm_units_t *u, uint32_t n, uint32_t from, uint32_t to)
{
    uint32_t run = 0;
    for (uint32_t i = from; i < to; i++) {
        if (i % 64 == 0 && u->bits[i / 64] == UINT64_MAX) {
            run = 0;
            i += 63;
            continue;
        }
        run = unit_taken(u, i) ? 0 : run + 1;
        if (run == n) return i + 1 - n;
    }
    return to;
}

/* Next fit: chunks are retired roughly in the order in which they were taken. */
static bool units_find(const shm_units_t *u, uint32_t n, uint32_t *start_p)
{
    if (n > u->count - u->taken) return false;
    uint32_t start = units_search(u, n, u->next, u->count);
    if (start == u->count) {
        uint32_t to = PSRTI_MIN(u->count, u->next + n);
        start = units_search(u, n, 0, to);
        if (start == to) return false;
    }
    *start_p = start;
    return true;
}

static psrt_status_t units_init(shm_units_t *u, uint64_t count)
{
    u->bits = calloc(count / 64 + 1, sizeof *u->bits);
    u->count = (uint32_t)count;
    return u->bits ? PSRT_OK : psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
}

/* ---- own segments ----------------------------------------------------------------------------- */

static psrt_status_t seg_slot(shm_iface_t *iface, uint32_t *slot_p)
{
    uint32_t slot = 0;
    while (slot < iface->seg_count && iface->segs[slot])
        slot++;
    if (slot == iface->seg_cap) {
        uint32_t cap = PSRTI_MAX(16u, 2 * slot);
        shm_seg_t **segs = realloc(iface->segs, cap * sizeof(*segs));
        if (segs) iface->segs = segs;
        shm_seg_t **ranges = realloc(iface->ranges, cap * sizeof(*ranges));
        if (ranges) iface->ranges = ranges;
        if (!segs || !ranges) return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
        iface->seg_cap = cap;
    }
    *slot_p = slot;
    return PSRT_OK;
}

static void range_insert(shm_iface_t *iface, shm_seg_t *seg)
{
    uint32_t i = iface->range_count++;
    for (; i > 0 && iface->ranges[i - 1]->base > seg->base; i--)
        iface->ranges[i] = iface->ranges[i - 1];
    iface->ranges[i] = seg;
}

static void range_remove(shm_iface_t *iface, const shm_seg_t *seg)
{
    uint32_t i = 0;
    while (i < iface->range_count && iface->ranges[i] != seg)
        i++;
    if (i == iface->range_count) return;
    iface->range_count--;
    for (; i < iface->range_count; i++)
        iface->ranges[i] = iface->ranges[i + 1];
}

static psrt_status_t seg_create(shm_iface_t *iface, uint64_t bytes, shm_seg_kind_t kind,
                                shm_seg_t **seg_p)
{
    uint32_t slot = 0;
    psrt_status_t status = seg_slot(iface, &slot);
    if (status != PSRT_OK) return status;
    shm_seg_t *seg = calloc(1, sizeof *seg);
    if (!seg) return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
    void *base = NULL;
    status = psrti_memfd_create(bytes, true, &seg->fd, &base);
    if (status != PSRT_OK) {
        free(seg);
        return status;
    }
    seg->base = base;
    seg->size = bytes;
    seg->kind = kind;
    seg->id = ++iface->next_id;
    seg->slot = slot;
    iface->segs[slot] = seg;
    if (slot == iface->seg_count) iface->seg_count++;
    if (kind == SHM_SEG_LARGE || kind == SHM_SEG_POOL) range_insert(iface, seg);
    *seg_p = seg;
    return PSRT_OK;
}

static void seg_forget(shm_iface_t *iface, shm_seg_t *seg)
{
    iface->segs[seg->slot] = NULL;
    free(seg);
}

/* The memory goes now; the record stays until every peer that knows the segment was told. */
void psrti_shm_seg_free(shm_iface_t *iface, shm_seg_t *seg)
{
    range_remove(iface, seg);
    munmap(seg->base, seg->size);
    close(seg->fd);
    free(seg->units.bits);
    free(seg->run);
    free(seg->private);
    seg->base = NULL;
    seg->private = NULL;
    seg->units.bits = NULL;
    seg->run = NULL;
    iface->freed_segs++;
    if (!iface->in_progress) psrti_shm_segs_flush(iface);
}

/* True when `ep` knows nothing of the segment any more. */
static bool announce_free(shm_ep_t *ep, const shm_seg_t *seg)
{
    if (!ep || seg->slot >= ep->passed_count || ep->passed[seg->slot] != seg->id) return true;
    if (ep->state == SHM_UP) {
        if (!psrti_shm_lane_room(ep, SHM_UNIT)) return false;
        uint8_t *at = psrti_shm_lane_begin(ep, SHM_UNIT);
        memcpy(at + 8, &seg->id, sizeof seg->id);
        psrti_shm_lane_commit(ep, SHM_UNIT, SHM_FREE, 0, 0);
    }
    ep->passed[seg->slot] = 0;
    return true;
}

void psrti_shm_segs_flush(shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->seg_count && iface->freed_segs > 0; i++) {
        shm_seg_t *seg = iface->segs[i];
        if (!seg || seg->base) continue;
        bool all = true;
        for (uint32_t e = 0; e < iface->ep_count; e++)
            all &= announce_free(iface->eps[e], seg);
        if (!all) continue;
        seg_forget(iface, seg);
        iface->freed_segs--;
    }
}

void psrti_shm_segs_destroy(shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->seg_count; i++) {
        shm_seg_t *seg = iface->segs[i];
        if (!seg) continue;
        if (seg->base) psrti_shm_seg_free(iface, seg);
        if (iface->segs[i]) seg_forget(iface, seg);
    }
    free(iface->segs);
    free(iface->ranges);
}

/* The segment of mem_alloc that holds all of [data, data + len), or NULL. */
shm_seg_t *psrti_shm_seg_find(shm_iface_t *iface, const void *data, uint64_t len)
{
    const uint8_t *at = data;
    uint32_t low = 0, high = iface->range_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (iface->ranges[mid]->base <= at)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0) return NULL;
    shm_seg_t *seg = iface->ranges[low - 1];
    uint64_t off = (uint64_t)(at - seg->base);
    return off < seg->size && len <= seg->size - off ? seg : NULL;
}

/* ---- memory for users ------------------------------------------------------------------------- */

/* What is smaller than a huge page lies with others on huge pages. As much again as there is, within
 * bounds: little for little use, few segments for much. */
static uint64_t pool_bytes(const shm_iface_t *iface)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < iface->range_count && bytes < POOL_MOST; i++)
        if (iface->ranges[i]->kind == SHM_SEG_POOL) bytes += iface->ranges[i]->size;
    return PSRTI_MIN(PSRTI_MAX(bytes, POOL_LEAST), POOL_MOST);
}

static psrt_status_t pool_create(shm_iface_t *iface, shm_seg_t **seg_p)
{
    uint64_t bytes = pool_bytes(iface);
    psrt_status_t status = seg_create(iface, bytes, SHM_SEG_POOL, seg_p);
    if (status != PSRT_OK) return status;
    shm_seg_t *seg = *seg_p;
    seg->run = calloc(bytes / PAGE, sizeof *seg->run);
    status = units_init(&seg->units, bytes / PAGE);
    if (status == PSRT_OK && seg->run) return PSRT_OK;
    psrti_shm_seg_free(iface, seg);
    return psrti_fail(PSRT_ERR_NO_MEMORY, "shm: out of memory");
}

static psrt_status_t pool_alloc(shm_iface_t *iface, uint64_t bytes, void **ptr_p)
{
    uint32_t pages = (uint32_t)(round_up(bytes, PAGE) / PAGE), start = 0;
    shm_seg_t *seg = NULL;
    for (uint32_t i = 0; i < iface->range_count && !seg; i++) {
        shm_seg_t *pool = iface->ranges[i];
        if (pool->kind == SHM_SEG_POOL && units_find(&pool->units, pages, &start)) seg = pool;
    }
    if (!seg) {
        psrt_status_t status = pool_create(iface, &seg);
        if (status != PSRT_OK) return status;
        start = 0;
    }
    units_mark(&seg->units, start, pages, true);
    seg->run[start] = (uint16_t)pages;
    *ptr_p = seg->base + (uint64_t)start * PAGE;
    memset(*ptr_p, 0, (size_t)pages * PAGE);
    return PSRT_OK;
}

psrt_status_t psrti_shm_mem_alloc(psrt_iface_t *iface_, uint64_t bytes, void **ptr_p)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    if (bytes == 0) return psrti_fail(PSRT_ERR_INVALID, "shm: allocation of 0 bytes");
    if (bytes < SHM_HUGE) return pool_alloc(iface, bytes, ptr_p);
    shm_seg_t *seg;
    psrt_status_t status = seg_create(iface, bytes, SHM_SEG_LARGE, &seg);
    if (status == PSRT_OK) *ptr_p = seg->base;
    return status;
}

void psrti_shm_mem_free(psrt_iface_t *iface_, void *ptr)
{
    shm_iface_t *iface = (shm_iface_t *)iface_;
    shm_seg_t *seg = ptr ? psrti_shm_seg_find(iface, ptr, 1) : NULL;
    if (!seg) return;
    if (seg->kind == SHM_SEG_POOL) {
        uint32_t start = (uint32_t)(((uint8_t *)ptr - seg->base) / PAGE);
        if (seg->run[start] == 0) return;
        units_mark(&seg->units, start, seg->run[start], false);
        seg->run[start] = 0;
        if (seg->units.taken > 0) return;
    }
    psrti_shm_seg_free(iface, seg);
}

/* ---- arena: copies of payloads from ordinary memory ------------------------------------------- */

/* Half of the arena, so that two senders' copies do not wait for a gap that never comes. */
bool psrti_shm_arena_too_small(const shm_iface_t *iface, uint64_t len)
{
    return len > iface->params.arena / 2;
}

psrt_status_t psrti_shm_seg_temp(shm_iface_t *iface, uint64_t bytes, shm_seg_t **seg_p)
{
    return seg_create(iface, bytes, SHM_SEG_TEMP, seg_p);
}

psrt_status_t psrti_shm_arena_create(shm_iface_t *iface)
{
    if (iface->arena) return PSRT_OK;
    uint64_t bytes = round_up(iface->params.arena, ARENA_UNIT);
    shm_seg_t *seg;
    psrt_status_t status = seg_create(iface, bytes, SHM_SEG_ARENA, &seg);
    if (status != PSRT_OK) return status;
    status = units_init(&seg->units, bytes / ARENA_UNIT);
    if (status != PSRT_OK) {
        psrti_shm_seg_free(iface, seg);
        return status;
    }
    iface->arena = seg;
    return PSRT_OK;
}

static uint32_t arena_units(uint64_t len)
{
    return (uint32_t)(round_up(len, ARENA_UNIT) / ARENA_UNIT);
}

bool psrti_shm_arena_fits(shm_iface_t *iface, uint64_t len)
{
    uint32_t start;
    return !iface->arena || units_find(&iface->arena->units, arena_units(len), &start);
}

/* Each endpoint is a thread of another process, or of this one, that wants a core. */
static uint32_t lap_units(const shm_iface_t *iface)
{
    uint64_t lap = SHM_ARENA_LAP, threads = (uint64_t)iface->ep_count + 1;
    if (threads > iface->cores) lap = lap * iface->cores / threads;
    return (uint32_t)(PSRTI_MAX(lap, SHM_ARENA_LAP_LEAST) / ARENA_UNIT);
}

psrt_status_t psrti_shm_arena_take(shm_iface_t *iface, uint64_t len, shm_tx_t *tx, uint64_t *off_p)
{
    shm_seg_t *seg = iface->arena;
    uint32_t units = arena_units(len), start;
    if (!units_find(&seg->units, units, &start)) return PSRT_ERR_AGAIN;
    units_mark(&seg->units, start, units, true);
    uint32_t lap = PSRTI_MIN(seg->units.count, lap_units(iface));
    seg->units.next = start + units >= lap ? 0 : start + units;
    tx->seg = seg;
    tx->kind = SHM_SEG_ARENA;
    tx->unit = start;
    tx->units = units;
    *off_p = (uint64_t)start * ARENA_UNIT;
    return PSRT_OK;
}

void psrti_shm_arena_give(shm_tx_t *tx) { units_mark(&tx->seg->units, tx->unit, tx->units, false); }
