/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of messages and the ring of retired descriptors of a lane. */
#include <string.h>

#include "transport/shm/shm.h"

#define RING_BYTES (SHM_UNITS * SHM_UNIT)
#define REPORT_UNITS (SHM_UNITS / 4) /* what was read is told to the peer this often */

static uint32_t units_of(uint32_t bytes) { return (bytes + SHM_UNIT - 1) / SHM_UNIT; }

static uint8_t *unit_at(shm_lane_t *lane, uint64_t pos)
{
    return lane->ring + pos % SHM_UNITS * SHM_UNIT;
}

static _Atomic uint32_t *word(const uint8_t *unit, unsigned index)
{
    return (_Atomic uint32_t *)(uintptr_t)unit + index;
}

/* Differs from zero, and between neighbouring laps of the ring. */
static uint32_t commit_value(uint64_t pos) { return (uint32_t)pos | 0x80000000u; }

/* Units in front of an entry that would cross the end of the ring. */
static uint32_t pad_of(uint64_t head, uint32_t units)
{
    uint32_t left = SHM_UNITS - (uint32_t)(head % SHM_UNITS);
    return units > left ? left : 0;
}

bool psrti_shm_lane_room(shm_ep_t *ep, uint32_t bytes)
{
    uint32_t units = units_of(bytes);
    /* One more: the commit word behind the entry is cleared before the entry is committed. */
    uint32_t need = pad_of(ep->head, units) + units + 1;
    if (SHM_UNITS - (ep->head - ep->tail) >= need) return true;

    uint64_t consumed = atomic_load_explicit(&ep->peer->consumed, memory_order_seq_cst);
    if (consumed - ep->tail > ep->head - ep->tail) {
        ep->failed = PSRT_ERR_PROTOCOL;
        return false;
    }
    ep->tail = consumed;
    return SHM_UNITS - (ep->head - ep->tail) >= need;
}

static void put(shm_ep_t *ep, uint32_t units, uint32_t info)
{
    uint8_t *at = unit_at(ep->own, ep->head);
    atomic_store_explicit(word(unit_at(ep->own, ep->head + units), 0), 0, memory_order_relaxed);
    atomic_store_explicit(word(at, 1), info, memory_order_relaxed);
    atomic_store_explicit(word(at, 0), commit_value(ep->head), memory_order_seq_cst);
    ep->head += units;
}

uint8_t *psrti_shm_lane_begin(shm_ep_t *ep, uint32_t bytes)
{
    uint32_t pad = pad_of(ep->head, units_of(bytes));
    if (pad) put(ep, pad, SHM_PAD | pad << 16);
    return unit_at(ep->own, ep->head);
}

void psrti_shm_lane_commit(shm_ep_t *ep, uint32_t bytes, int kind, uint8_t slot, uint32_t len)
{
    put(ep, units_of(bytes), (uint32_t)kind | (uint32_t)slot << 8 | len << 16);
    shm_notify(ep);
}

/* The peer may change anything at any time: every word is read once. */
shm_entry_t psrti_shm_lane_peek(shm_ep_t *ep)
{
    static const shm_entry_t malformed = { .kind = -1 };
    for (int pads = 0; pads < 2; pads++) {
        const uint8_t *at = unit_at(ep->peer, ep->pos);
        uint32_t commit = atomic_load_explicit(word(at, 0), memory_order_acquire);
        if (commit == 0) return (shm_entry_t){ 0 };
        if (commit != commit_value(ep->pos)) return malformed;

        uint32_t info = atomic_load_explicit(word(at, 1), memory_order_relaxed);
        shm_entry_t entry = {
            .kind = info & 0xff, .slot = (uint8_t)(info >> 8), .len = info >> 16, .at = at
        };
        uint32_t left = SHM_UNITS - (uint32_t)(ep->pos % SHM_UNITS);
        switch (entry.kind) {
        case SHM_INLINE: entry.units = units_of(SHM_ENTRY_HEAD + entry.len); break;
        case SHM_DESC: entry.units = units_of(SHM_ENTRY_HEAD + sizeof(shm_desc_t)); break;
        case SHM_FREE: entry.units = 1; break;
        case SHM_PAD: entry.units = left; break;
        default: return malformed;
        }
        if (entry.units > left || (entry.kind == SHM_INLINE && entry.len > SHM_EAGER))
            return malformed;
        if (entry.kind != SHM_PAD) return entry;
        if (entry.len != left || left == SHM_UNITS) return malformed;
        psrti_shm_lane_skip(ep, &entry);
    }
    return malformed; /* a pad ends at the start of the ring, where no second one can be */
}

void psrti_shm_lane_skip(shm_ep_t *ep, const shm_entry_t *entry)
{
    ep->pos += entry->units;
    if (ep->pos - ep->reported < REPORT_UNITS) return;
    ep->reported = ep->pos;
    atomic_store_explicit(&ep->own->consumed, ep->pos, memory_order_seq_cst);
    shm_notify(ep);
}

static uint32_t retired_lap(uint32_t index) { return (index / SHM_SLOTS + 1) << 8; }

int psrti_shm_lane_retired(shm_ep_t *ep)
{
    uint32_t index = ep->retire_read;
    uint32_t entry =
        atomic_load_explicit(&ep->peer->retired[index % SHM_SLOTS], memory_order_acquire);
    if ((entry & ~0xffu) != retired_lap(index)) {
        uint32_t before = index < SHM_SLOTS ? 0 : retired_lap(index - SHM_SLOTS);
        return (entry & ~0xffu) == before ? -1 : -2;
    }
    ep->retire_read++;
    return (int)(entry & 0xff);
}

void psrti_shm_lane_retire(shm_ep_t *ep, uint8_t slot)
{
    uint32_t index = ep->retire_head++;
    atomic_store_explicit(&ep->own->retired[index % SHM_SLOTS], retired_lap(index) | slot,
                          memory_order_seq_cst);
    shm_notify(ep);
}

bool psrti_shm_lane_pending(const shm_ep_t *ep)
{
    /* seq_cst: `sleeping` was stored before, see shm_wake_if_asleep. */
    if (atomic_load_explicit(word(unit_at(ep->peer, ep->pos), 0), memory_order_seq_cst))
        return true;
    uint32_t entry =
        atomic_load_explicit(&ep->peer->retired[ep->retire_read % SHM_SLOTS], memory_order_seq_cst);
    return (entry & ~0xffu) == retired_lap(ep->retire_read) ||
           atomic_load_explicit(&ep->peer->closed, memory_order_seq_cst);
}
