/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads what, and taking memory away from a reader.
 *
 * A receiver adds what it reads to a sum, and cannot take it back; it may be stopped in the middle, for
 * any time. The sender that closes must give the memory to its user at once. So it finds out which of its
 * descriptors the peer may be reading, by bits in the peer's lane, and maps their pages anew, privately,
 * from the same file: the contents stay as they are, for every thread of this process, and what is written
 * from then on goes to copies of the pages. The file's own pages are written by nobody any more, and the
 * reader finds in them what was sent. Descriptors that it has not begun with it refuses by `closed`.
 *
 * Pages lost to the peers that way are sent by copy for the rest of the segment's life. They are few: a
 * message or two a server thread, when one is stopped in mid-fold. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "transport/shm/shm.h"

#define PAGE 4096u

/* ---- who reads --------------------------------------------------------------------------------- */

static _Atomic uint64_t *word_of(shm_lane_t *lane, uint8_t slot)
{
    return &lane->reading[slot / 64];
}

bool psrti_shm_read_begin(shm_ep_t *ep, uint8_t slot)
{
    uint64_t now = atomic_load_explicit(word_of(ep->own, slot), memory_order_relaxed);
    atomic_store_explicit(word_of(ep->own, slot), now | 1ull << (slot % 64), memory_order_seq_cst);
    if (!atomic_load_explicit(&ep->peer->closed, memory_order_seq_cst)) return true;
    psrti_shm_read_end(ep, slot);
    return false;
}

void psrti_shm_read_end(shm_ep_t *ep, uint8_t slot)
{
    uint64_t now = atomic_load_explicit(word_of(ep->own, slot), memory_order_relaxed);
    atomic_store_explicit(word_of(ep->own, slot), now & ~(1ull << (slot % 64)),
                          memory_order_release);
}

bool psrti_shm_is_read(const shm_ep_t *ep, uint8_t slot)
{
    uint64_t bits = atomic_load_explicit(word_of(ep->peer, slot), memory_order_seq_cst);
    return bits >> (slot % 64) & 1;
}

bool psrti_shm_peer_is_dead(const shm_ep_t *ep)
{
    struct pollfd fd = { .fd = ep->pidfd, .events = POLLIN };
    return ep->pidfd >= 0 && poll(&fd, 1, 0) == 1;
}

/* ---- taking away ------------------------------------------------------------------------------- */

static uint64_t pages_of(const shm_seg_t *seg) { return (seg->size + PAGE - 1) / PAGE; }

void psrti_shm_seg_privatize(shm_seg_t *seg, uint64_t off, uint64_t len)
{
    uint64_t first = off / PAGE, end = (off + len + PAGE - 1) / PAGE;
    if (!seg->private) seg->private = calloc(pages_of(seg) / 64 + 1, sizeof *seg->private);
    if (!seg->private) goto err;
    /* A page that is private already has other contents than its file. */
    for (uint64_t i = first; i < end; i++) {
        uint64_t run = i;
        while (run < end && !(seg->private[run / 64] >> (run % 64) & 1))
            run++;
        if (run > i && mmap(seg->base + i * PAGE, (run - i) * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_FIXED, seg->fd, (off_t)(i * PAGE)) == MAP_FAILED)
            goto err;
        for (; i < run; i++)
            seg->private[i / 64] |= 1ull << (i % 64);
    }
    return;
err:
    psrti_error("shm: a stopped peer may read %llu bytes that are about to change: %s",
                (unsigned long long)len, strerror(errno));
}

bool psrti_shm_seg_is_private(const shm_seg_t *seg, uint64_t off, uint64_t len)
{
    if (!seg->private) return false;
    for (uint64_t i = off / PAGE; i < (off + len + PAGE - 1) / PAGE; i++)
        if (seg->private[i / 64] >> (i % 64) & 1) return true;
    return false;
}
