/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of several ranks in one process, between them links that do what real ones may: messages of a pair keep
 * their order, those of different pairs overtake one another, sends say AGAIN, payloads that are sent by reference are
 * free only when the receiver let go, links die. Everything follows from a seed. */
#ifndef PSRT_TESTS_COLL_FABRIC_H
#define PSRT_TESTS_COLL_FABRIC_H

#include "runtime/coll/coll.h"
#include "support/test.h"
#include "transport/frame.h"

#define FB_RANKS 9
#define FB_SECOND 1000000000ull

typedef struct fb_msg {
    psrti_list_t node; /* in a lane, or held */
    uint32_t from, to;
    psrt_hdr_t hdr;
    const void *data; /* the sender's, or `copy` */
    void *copy;
    uint64_t len;
    psrt_tx_t *tx; /* pending */
    int is_stale;
} fb_msg_t;

typedef struct fb_rank {
    psrti_coll_t *coll;
    int is_dead, is_stopped; /* stopped: nothing reaches it, its links stay */
    psrti_list_t done;       /* messages whose payload is free: its tx are due */
} fb_rank_t;

typedef struct fb_lane {
    psrti_list_t queue; /* from one rank to another */
    int is_up, said_again;
    unsigned count;
} fb_lane_t;

typedef struct fabric {
    uint32_t n;
    uint64_t random, now;
    uint64_t by_ref; /* payloads above this are sent by reference   */
    uint64_t most;   /* payloads above this are refused; 0: none    */
    unsigned window; /* messages on a lane before it may say AGAIN  */
    int wants_links; /* dials when asked; else links are there      */
    psrti_coll_params_t params;
    psrti_view_t *view;
    fb_rank_t rank[FB_RANKS];
    fb_lane_t lane[FB_RANKS][FB_RANKS];
    psrti_list_t held[FB_RANKS];
    uint64_t sent, delivered, drops, bad;
    uint64_t scratch; /* allocations of env.alloc that live */
    uint64_t kill_at; /* after so many deliveries `victim` dies; 0: never */
    uint32_t victim;
    uint64_t refused; /* messages answered RX_BAD */
    uint64_t notes, note_bytes;
    void (*on_ended)(psrti_collop_t *op); /* as soon as an operation ended; NULL: nothing */
} fabric_t;

/* Links are up; chunk, eager and timeout as in params (zeros: 256, 1024 bytes and 10 s). */
void fb_open(fabric_t *fb, uint32_t n, uint64_t seed, const psrti_coll_params_t *params);
void fb_close(fabric_t *fb);
uint32_t fb_random(fabric_t *fb, uint32_t below);

/* Moves something at random; 0: nothing can move but time. */
int fb_step(fabric_t *fb);
/* Moves until nothing can, letting ranks idle. */
void fb_settle(fabric_t *fb);
/* What a rank has sent arrives, and nothing else moves; more of it may wait for its links. */
void fb_deliver_from(fabric_t *fb, uint32_t rank);
void fb_collect(fabric_t *fb); /* takes what ended */
/* As fb_settle, then lets time pass; up to `ns`, or until all of these ended. */
void fb_wait(fabric_t *fb, uint64_t ns, psrti_collop_t *const *ops, size_t count);
void fb_until_ended(fabric_t *fb, psrti_collop_t *const *ops, size_t count);

void fb_kill(fabric_t *fb, uint32_t rank);          /* links are lost, the view says so */
void fb_cut(fabric_t *fb, uint32_t a, uint32_t b);  /* a link is lost, nobody died     */
void fb_link(fabric_t *fb, uint32_t a, uint32_t b); /* up again                        */
void fb_restart(fabric_t *fb, uint32_t rank);       /* a new incarnation of a dead one */
psrt_rx_t fb_inject(fabric_t *fb, uint32_t from, uint32_t to, psrt_hdr_t hdr, const void *data);

/* A communicator of ranks 0 .. n - 1 on every living rank, ready. */
void fb_world(fabric_t *fb, const char *name, psrti_comm_t *comms[FB_RANKS]);
/* Ended with this status; a failure has all of the texts. NULL ends. Frees the text. */
void fb_expect(psrti_collop_t *op, psrt_status_t status, ...);

#endif
