/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-memory transport: what its files share.
 *
 * Two processes that connect exchange one memfd each, the `lane`: its owner writes it, the peer maps
 * it read-only. Everything that one side tells the other (messages, what it has read, what it has
 * finished with, that it sleeps, that it closed) lies in its own lane, so a broken peer cannot damage
 * ours, and there are no locks that a killed process could leave behind. The socket of the pair
 * carries the handshake, descriptors of data segments, and one byte to wake a sleeping peer.
 *
 *   lane.c  the ring of messages and the ring of retired descriptors
 *   seg.c   segments (memfds), the memory of mem_alloc, the arena
 *   fence.c who reads what, and taking memory away from a reader
 *   conn.c  listener, dialling, handshake, packets on the socket
 *   ep.c    sending, losing and closing an endpoint
 *   recv.c  receiving
 *   shm.c   the table, interfaces, progress, sleeping
 */
#ifndef PSRTI_SHM_H
#define PSRTI_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <psrt/ext/transport_v1.h>

#include "base/list.h"
#include "base/map.h"
#include "base/stage.h"
#include "transport/frame.h"

#define SHM_UNIT 64u
#define SHM_UNITS 1024u /* 64 KiB: 31 messages of eager size, 512 of 64 bytes */
#define SHM_SLOTS 256u  /* descriptors in flight an endpoint and direction    */
#define SHM_EAGER 2048u
#define SHM_HUGE (2u << 20)
/* While it suffices, only so much of the arena is used, over and over: what was read of it stays in a cache that all cores
 * share, and has left those of single cores, which are slow to give up a line. Processes that share a core share such a
 * lap too: what one of them does drives out what another has read. */
#define SHM_ARENA_LAP (2u << 20)
#define SHM_ARENA_LAP_LEAST (256u << 10)
#define SHM_MAX_SEGMENTS 65536u /* of one peer, mapped here */

/* ---- shared memory ---------------------------------------------------------------------------- */

typedef struct shm_lane {
    _Alignas(
        64) _Atomic uint32_t closed; /* 1: the owner closed; its payloads may change           */
    _Atomic uint32_t sleeping;       /* odd: the owner sleeps; incremented at every change     */
    _Alignas(
        64) _Atomic uint64_t consumed; /* units of the peer's ring that the owner is done with */
    /* Bit s: the owner may be reading the payload of the peer's descriptor slot s. Set before it looks at
     * the peer's `closed`, which the peer sets before it looks here: one of the two sees the other. */
    _Alignas(64) _Atomic uint64_t reading[SHM_SLOTS / 64];
    /* Slots of the peer's descriptors that the owner is done with, in the order it was: entry i is
     * (i / SHM_SLOTS + 1) << 8 | slot. A slot is reused only after its entry was read, so at most
     * SHM_SLOTS are unread and the ring cannot overflow. */
    _Alignas(1024) _Atomic uint32_t retired[SHM_SLOTS];
    _Alignas(4096) uint8_t ring[SHM_UNITS * SHM_UNIT];
} shm_lane_t;
_Static_assert(sizeof(shm_lane_t) == 4096 + SHM_UNITS * SHM_UNIT, "layout of the lane");

/* An entry of the ring starts at a unit: commit word, info word, body of the frame header, which fill it;
 * then the payload or a descriptor. The commit word is nonzero once the entry is complete. Invariant: the commit word at
 * the producer's head is zero, because the producer clears the next one before it commits; old
 * payload bytes can therefore never look like a committed entry. */
#define SHM_ENTRY_HEAD (8u + PSRTI_FRAME_BODY_BYTES)
_Static_assert(SHM_ENTRY_HEAD == SHM_UNIT, "a message without payload is one line");
enum { SHM_PAD = 1, SHM_INLINE, SHM_DESC, SHM_FREE };

typedef struct shm_desc {
    uint32_t seg, reserved; /* id of a segment, never reused by an interface */
    uint64_t off, len;
} shm_desc_t;

/* ---- packets of the socket --------------------------------------------------------------------- */

#define SHM_MAGIC 0x6d687350u /* "Pshm" */
#define SHM_VERSION 3u

enum { SHM_PK_HELLO = 1, SHM_PK_WELCOME, SHM_PK_READY, SHM_PK_SEG, SHM_PK_WAKE };

typedef struct shm_hello { /* HELLO and WELCOME, with the descriptor of the sender's lane */
    uint32_t magic;
    uint16_t version, kind;
    uint8_t nonce[16];
    uint32_t task, units;
    uint64_t incarnation, lane_bytes;
    uint64_t reserved[2];
} shm_hello_t;
_Static_assert(sizeof(shm_hello_t) == 64, "bytes of HELLO and WELCOME");

typedef struct shm_seg_packet { /* with the descriptor of the segment */
    uint32_t kind, id;
    uint64_t bytes;
} shm_seg_packet_t;
/* READY and WAKE are one byte. */

/* ---- process memory --------------------------------------------------------------------------- */

typedef struct shm_iface shm_iface_t;
typedef struct shm_ep shm_ep_t;

/* Equal units of a segment, for the arena and for small allocations. */
typedef struct shm_units {
    uint64_t *bits; /* 1: taken */
    uint32_t count, taken, next;
} shm_units_t;

typedef enum shm_seg_kind {
    SHM_SEG_LARGE,
    SHM_SEG_POOL,
    SHM_SEG_ARENA,
    SHM_SEG_TEMP
} shm_seg_kind_t;

typedef struct shm_seg { /* own segment, mapped for writing */
    uint8_t *base;       /* NULL: freed, until all peers were told */
    uint64_t size;
    int fd;
    uint32_t id, slot; /* slot: index in iface->segs and ep->passed */
    shm_seg_kind_t kind;
    shm_units_t units; /* POOL: pages; ARENA: SHM_ARENA_UNIT */
    uint16_t *run;     /* POOL: pages of the allocation that starts here */
    uint64_t *private; /* by page, 1: no longer the peers' memory, see fence.c; NULL: none */
} shm_seg_t;

typedef struct shm_rseg { /* a peer's segment, mapped read-only */
    const uint8_t *base;
    uint64_t size;
    uint32_t refs; /* one of the endpoint's table, one a message */
} shm_rseg_t;

typedef struct shm_tx { /* a descriptor in flight */
    psrt_tx_t *tx;      /* NULL: the payload was copied, nobody waits */
    shm_seg_t *seg;     /* NULL: slot is free */
    shm_seg_kind_t kind;
    bool folded; /* what the peer reads it adds up, and cannot take back */
    uint64_t off, len;
    uint32_t unit, units; /* ARENA */
} shm_tx_t;

/* A message that was delivered and is not retired. Handles of messages are (gen, index), so that a
 * release after ep_close finds nothing instead of freed memory. */
typedef struct shm_hold {
    psrti_list_t node; /* ep->holds or iface->free_holds */
    uint32_t index, gen;
    shm_ep_t *ep;
    shm_rseg_t *seg; /* NULL: private copy, already retired at the sender */
    void *copy;      /* large private copy */
    uint8_t slot;
    _Alignas(64) uint8_t eager[SHM_EAGER];
} shm_hold_t;

typedef enum shm_state {
    SHM_DIAL,    /* dialler: to connect                        */
    SHM_WELCOME, /* dialler: sent HELLO                        */
    SHM_HELLO,   /* acceptor: unknown to the user until UP     */
    SHM_READY,   /* acceptor: sent WELCOME                     */
    SHM_UP,
    SHM_LOST,   /* reported, the user has to close            */
    SHM_LINGER, /* closed; arena units wait for the peer's acknowledgement */
    SHM_DEAD    /* to be freed                                */
} shm_state_t;

struct shm_ep {
    psrt_ep_t super;
    shm_state_t state;
    int sock, pidfd;
    bool gone;            /* the peer closed or died: it touches nothing any more  */
    psrt_status_t failed; /* not OK: found outside progress, to be reported by it */
    bool sock_full;       /* EPOLLOUT is awaited                                   */
    bool told;            /* something in this turn: it may have to be woken       */
    bool blocked;         /* a send said AGAIN                                     */
    bool blocked_in_place;
    uint64_t blocked_len;

    shm_lane_t *own, *peer;
    uint64_t head, tail; /* units written, units the peer is known to have read */
    uint32_t retire_read;
    uint32_t woken; /* value of peer->sleeping that a wake byte was sent for */
    uint64_t in_flight;
    uint32_t free_count;
    uint8_t free_slots[SHM_SLOTS];
    shm_tx_t tx[SHM_SLOTS];
    uint32_t *passed; /* by segment slot: id the peer was given, 0 none */
    uint32_t passed_count;

    uint64_t pos, reported; /* units read, units told to the peer */
    uint32_t retire_head;
    uint64_t busy[SHM_SLOTS / 64]; /* the peer's slots that are not retired */
    psrti_map_t rsegs;             /* id -> shm_rseg_t */
    uint32_t last_id;
    shm_rseg_t *last;
    psrti_list_t holds;

    uint64_t deadline_ns; /* of the handshake */
    pid_t peer_pid;
    uint32_t peer_task;
    char name[40]; /* dialler: socket file */
};

struct shm_iface {
    psrt_iface_t super;
    psrt_iface_params_t params;
    uint8_t nonce[16];
    int dir_fd, epoll_fd, listen_fd, spare_fd;
    char name[40];     /* own socket file, empty if not listening */
    char *private_dir; /* made here, removed at close              */
    uint64_t host;
    bool in_progress, armed, accept_failed;
    bool told;                        /* an endpoint was */
    unsigned connecting, quiet, dead; /* endpoints that are not UP yet; calls; endpoints to free */
    uint64_t tick;

    shm_ep_t **eps;
    uint32_t ep_count, ep_cap;
    shm_seg_t **segs; /* by slot, NULL free */
    uint32_t seg_count, seg_cap, next_id, freed_segs;
    shm_seg_t **ranges; /* LARGE and POOL by address */
    uint32_t range_count;
    shm_seg_t *arena;
    unsigned cores;      /* that this process may use */
    psrti_stage_t stage; /* of copies into the arena */
    shm_hold_t **holds;  /* by index */
    uint32_t hold_count, hold_cap;
    psrti_list_t free_holds;
};

static inline shm_iface_t *shm_iface_of(const shm_ep_t *ep)
{
    return (shm_iface_t *)ep->super.iface;
}

/* ---- lane.c ----------------------------------------------------------------------------------- */

typedef struct shm_entry {
    int kind; /* 0: none, -1: malformed */
    uint8_t slot;
    uint32_t len;   /* INLINE: payload bytes */
    uint32_t units; /* to skip */
    const uint8_t *at;
} shm_entry_t;

/* Is there room for an entry of so many bytes? Sets ep->failed if the peer lies. */
bool psrti_shm_lane_room(shm_ep_t *ep, uint32_t bytes);
/* Where to write the entry, after lane_room said yes. */
uint8_t *psrti_shm_lane_begin(shm_ep_t *ep, uint32_t bytes);
void psrti_shm_lane_commit(shm_ep_t *ep, uint32_t bytes, int kind, uint8_t slot, uint32_t len);
/* Looks at the next entry; its header is checked against the ring, its contents are not. */
shm_entry_t psrti_shm_lane_peek(shm_ep_t *ep);
void psrti_shm_lane_skip(shm_ep_t *ep, const shm_entry_t *entry);
/* Next slot that the peer retired: 0..SHM_SLOTS-1, -1 for none, -2 malformed. */
int psrti_shm_lane_retired(shm_ep_t *ep);
void psrti_shm_lane_retire(shm_ep_t *ep, uint8_t slot);
bool psrti_shm_lane_pending(const shm_ep_t *ep); /* is there anything to read? */

/* ---- seg.c ------------------------------------------------------------------------------------ */

shm_seg_t *psrti_shm_seg_find(shm_iface_t *iface, const void *data, uint64_t len);
psrt_status_t psrti_shm_seg_temp(shm_iface_t *iface, uint64_t bytes, shm_seg_t **seg_p);
void psrti_shm_seg_free(shm_iface_t *iface, shm_seg_t *seg);
void psrti_shm_segs_flush(shm_iface_t *iface); /* tells peers of freed segments */
void psrti_shm_segs_destroy(shm_iface_t *iface);
psrt_status_t psrti_shm_mem_alloc(psrt_iface_t *iface, uint64_t bytes, void **ptr_p);
void psrti_shm_mem_free(psrt_iface_t *iface, void *ptr);
/* Does a copy of `len` bytes go into a segment of its own? */
bool psrti_shm_arena_too_small(const shm_iface_t *iface, uint64_t len);
psrt_status_t psrti_shm_arena_create(shm_iface_t *iface);
/* Room for len bytes: takes it (AGAIN if full), or only tells. */
psrt_status_t psrti_shm_arena_take(shm_iface_t *iface, uint64_t len, shm_tx_t *tx, uint64_t *off_p);
bool psrti_shm_arena_fits(shm_iface_t *iface, uint64_t len);
void psrti_shm_arena_give(shm_tx_t *tx);
void psrti_shm_rseg_unref(shm_rseg_t *rseg);

/* ---- fence.c ---------------------------------------------------------------------------------- */

/* Receiver: from here on a descriptor's payload may be read. False: the sender withdrew it. */
bool psrti_shm_read_begin(shm_ep_t *ep, uint8_t slot);
void psrti_shm_read_end(shm_ep_t *ep, uint8_t slot);
/* Sender, after `closed` was set: may the peer be reading this slot, now or later? */
bool psrti_shm_is_read(const shm_ep_t *ep, uint8_t slot);
bool psrti_shm_peer_is_dead(const shm_ep_t *ep);
/* From here on what is written to [off, off + len) of the segment stays in this process. */
void psrti_shm_seg_privatize(shm_seg_t *seg, uint64_t off, uint64_t len);
bool psrti_shm_seg_is_private(const shm_seg_t *seg, uint64_t off, uint64_t len);

/* ---- conn.c ----------------------------------------------------------------------------------- */

psrt_status_t psrti_shm_dir_open(shm_iface_t *iface);
psrt_status_t psrti_shm_listen(shm_iface_t *iface);
void psrti_shm_listen_close(shm_iface_t *iface); /* and the directory */
uint64_t psrti_shm_host_id(void);
/* Takes "shm:<host>:<name>" apart; false if it is none. */
bool psrti_shm_addr_parse(const char *addr, uint64_t *host_p, char name[40]);
void psrti_shm_accept(shm_iface_t *iface);
void psrti_shm_dial(shm_ep_t *ep);
void psrti_shm_sock_read(shm_ep_t *ep);
/* Hands the segment to the peer once. ERR_AGAIN: the socket is full. */
psrt_status_t psrti_shm_pass_seg(shm_ep_t *ep, const shm_seg_t *seg);
void psrti_shm_wake(shm_ep_t *ep);
psrt_status_t psrti_shm_watch(shm_ep_t *ep);

/* ---- ep.c ------------------------------------------------------------------------------------- */

shm_ep_t *psrti_shm_ep_new(shm_iface_t *iface, shm_state_t state);
void psrti_shm_ep_up(shm_ep_t *ep);
/* Reports LOST (or drops a connection that never was UP), with one log line. */
void psrti_shm_ep_lose(shm_ep_t *ep, psrt_status_t status, const char *why);
void psrti_shm_ep_close(psrt_ep_t *ep);
void psrti_shm_ep_free(shm_ep_t *ep);
void psrti_shm_ep_linger_end(shm_ep_t *ep);
bool psrti_shm_tx_retired(shm_ep_t *ep, uint8_t slot);
bool psrti_shm_ep_writable(shm_ep_t *ep); /* blocked, and no longer */
psrt_status_t psrti_shm_send(psrt_ep_t *ep, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                             uint32_t flags, psrt_tx_t *tx);

/* ---- recv.c ----------------------------------------------------------------------------------- */

unsigned psrti_shm_ep_poll(shm_ep_t *ep);
void psrti_shm_hold_put(shm_iface_t *iface, shm_hold_t *hold);
void psrti_shm_release(psrt_iface_t *iface, psrt_msg_t *msg);
psrt_status_t psrti_shm_verify(psrt_iface_t *iface, const psrt_msg_t *msg);

/* ---- shm.c ------------------------------------------------------------------------------------ */

void psrti_shm_reap(shm_iface_t *iface); /* frees dead endpoints */

/* The value of the peer's `sleeping` if it sleeps and no wake is on its way, else 0.
 *
 * Sleeping: the writer stores (seq_cst), then reads `sleeping` (seq_cst); the sleeper stores
 * `sleeping`, then reads what was written. One of the two sees the other. */
static inline uint32_t shm_asleep(const shm_ep_t *ep)
{
    uint32_t asleep = atomic_load_explicit(&ep->peer->sleeping, memory_order_seq_cst);
    return (asleep & 1) && asleep != ep->woken ? asleep : 0;
}

static inline void shm_wake_if_asleep(shm_ep_t *ep)
{
    uint32_t asleep = shm_asleep(ep);
    if (!asleep) return;
    ep->woken = asleep;
    psrti_shm_wake(ep);
}

/* Something was written for the peer. Within progress it is woken at the end of the turn, when it finds all that
 * the turn has for it; where cores are short it would else take the one that the turn runs on. */
static inline void shm_notify(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_iface_of(ep);
    if (iface->in_progress)
        ep->told = iface->told = true;
    else
        shm_wake_if_asleep(ep);
}

#endif
