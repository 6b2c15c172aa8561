/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport table, version 1: how a frame and its payload travel between two tasks.
 *
 * A message is a 64-byte frame header plus a payload that the receiver already holds, or may map or
 * fetch through a descriptor. The same table serves parameter traffic and collectives.
 *
 * Rules that hold for every slot and every transport:
 *  - An interface belongs to one thread at a time; the caller serialises. Only `wake` may be called
 *    from any thread.
 *  - No slot blocks. Callbacks (on_msg, on_ep, tx->done) come only from inside `progress`, except
 *    that `send` may return OK instead of calling done, and `ep_close` calls done for what was
 *    pending.
 *  - A transport never aborts, exits, prints, or changes signal handling. Bad input from a peer
 *    closes that endpoint with one log line and touches nothing else.
 *  - Messages of one endpoint with the same `stripe` arrive in the order in which they were sent, at
 *    most once, whole, or the endpoint is LOST. (`fault` breaks this on purpose.)
 *  - After LOST the endpoint delivers nothing more; the user must still ep_close it.
 */
#ifndef PSRT_EXT_TRANSPORT_V1_H
#define PSRT_EXT_TRANSPORT_V1_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Frame header in host form; docs/wire-format.md gives the bytes. On the wire it is 64 bytes, little
 * endian, in this order; transport/frame.h encodes, validates and decodes it. */
typedef struct psrt_hdr {
    uint16_t magic;     /* PSRTI_MAGIC                                                        */
    uint8_t version;    /* PSRTI_WIRE_VERSION                                                 */
    uint8_t type;       /* psrti_frame_type_t                                                 */
    uint16_t flags;     /* PSRTI_F_*                                                          */
    uint8_t dtype;      /* psrt_dtype_t of the payload, 0 for none                            */
    uint8_t codec;      /* 0: raw                                                             */
    uint32_t session;   /* given by the accepting side in WELCOME; 0 in HELLO                 */
    uint32_t term;      /* term of the virtual shard                                          */
    uint64_t seq;       /* number of a mutating request per (client, vshard), or tag of a pull */
    uint64_t step;      /* push: its step; pull: lowest version wanted; reply: the version    */
    uint32_t table;     /* table id                                                           */
    uint16_t vshard;    /* virtual shard                                                      */
    uint16_t seq_floor; /* seq minus the client's floor                                       */
    uint64_t offset;    /* first element, counted from the start of the table                 */
    uint64_t length;    /* elements of the table for data frames, payload bytes for others    */
    uint8_t priority;   /* 0 lowest .. 255                                                    */
    uint8_t status;     /* minus psrt_status_t of a reply                                     */
    uint16_t reserved;  /* 0                                                                  */
    uint32_t crc;       /* CRC32C of the 60 bytes before it                                   */
} psrt_hdr_t;

/* Where a payload lies that was not sent along. Opaque to everyone but the transport that made it. */
typedef struct psrt_rdesc {
    uint16_t kind, rail;
    uint32_t seg, gen, rkey;
    uint64_t off, len;
} psrt_rdesc_t;

/* Completion of a send that returned PENDING. `done` is called exactly once: OK when the transport
 * and the receiver no longer touch the payload, else why it was given up (the payload is no longer
 * touched then either). `priv` belongs to the transport while pending. */
typedef struct psrt_tx {
    void (*done)(struct psrt_tx *tx, psrt_status_t status);
    uint64_t priv[6];
} psrt_tx_t;

typedef struct psrt_iface psrt_iface_t; /* a transport's own struct begins with this one */
typedef struct psrt_ep psrt_ep_t;       /* likewise                                      */

typedef struct psrt_msg {
    psrt_hdr_t hdr;   /* private, validated copy (frame CRC, magic, version, payload length)     */
    const void *data; /* payload, readable until DONE or release; NULL: map or fetch `rd`        */
    uint64_t len;     /* payload bytes                                                           */
    psrt_rdesc_t rd;  /* valid if data is NULL and len > 0                                       */
    uint32_t flags;   /* 0                                                                       */
    psrt_ep_t *ep;    /* endpoint it came from                                                   */
    void *impl;       /* transport's own                                                         */
} psrt_msg_t;

typedef enum psrt_rx {
    PSRT_RX_DONE, /* payload no longer needed                                                     */
    PSRT_RX_HOLD, /* receiver copied *msg and calls release(iface, its copy) later, or did already */
    PSRT_RX_BAD   /* peer misbehaves: close the endpoint, report LOST with ERR_PROTOCOL           */
} psrt_rx_t;

typedef enum psrt_ep_event {
    PSRT_EP_UP,       /* connected (dialled: ep_open's endpoint; accepted: a new endpoint)        */
    PSRT_EP_WRITABLE, /* a send returned AGAIN before; try again                                  */
    PSRT_EP_LOST      /* gone; `status` says why; close it                                        */
} psrt_ep_event_t;

/* Every transport's interface and endpoint structs begin with these. */
struct psrt_transport_ops;
struct psrt_iface {
    const struct psrt_transport_ops *ops;
    void *arg; /* of the callbacks */
};
struct psrt_ep {
    psrt_iface_t *iface;
    void *user; /* free for the user of the endpoint */
};

typedef struct psrt_iface_params {
    size_t size;
    /* Called from progress. May send, may close any endpoint of the interface. */
    psrt_rx_t (*on_msg)(void *arg, psrt_msg_t *msg);
    void (*on_ep)(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status);
    void *arg;
    int listen;    /* 1: accept connections; iface_addr then gives the address          */
    int listen_fd; /* zmq: listening TCP socket to adopt, -1 for none                   */
    const char *bind_address; /* zmq: address to bind, "127.0.0.1", "[::1]"; NULL: loopback;
                                 a port may follow, "127.0.0.1:5000", else the system chooses      */
    const char *job_dir; /* shm: 0700 directory for sockets; NULL: a private one is made      */
    const uint8_t *job_nonce; /* 16 bytes, identify the job */
    const uint8_t *secret; /* 32 bytes: CURVE secret key of the job; NULL with security off     */
    int security;  /* psrt_security_t: of this interface, not the level of the job              */
    uint32_t task; /* own task id and incarnation, for identities and log lines          */
    uint64_t incarnation;
    uint64_t max_message; /* largest payload accepted, bytes                                   */
    uint64_t arena;       /* bytes of staging for pushes from ordinary memory                  */
    uint64_t window;      /* payload bytes in flight an endpoint before send says AGAIN        */
} psrt_iface_params_t;

typedef enum psrt_security { PSRT_SECURITY_ENCRYPTED, PSRT_SECURITY_OFF } psrt_security_t;

#define PSRT_TRANSPORT_CAP_SAME_PROCESS 1u /* reaches only tasks of this process */
#define PSRT_TRANSPORT_CAP_SAME_HOST 2u    /* reaches only tasks of this host    */
#define PSRT_TRANSPORT_CAP_ZERO_COPY 4u    /* buffers from mem_alloc are not copied by send */
/* Threads of its own move the bytes, on both sides; iface_open starts them, with the CPU mask of its caller. */
#define PSRT_TRANSPORT_CAP_THREADS 8u

#define PSRT_ADDR_MAX 256

#define PSRT_SEND_MORE 1u /* hint: more sends follow before progress, wake the peer later */

typedef struct psrt_transport_ops {
    size_t size;
    const char *name;
    uint32_t caps;
    int score; /* default preference; higher wins; overridden by PSRT_TRANSPORT */

    /* required */
    /* OK if usable on this machine, else why not, with a readable line in `why` (at least 128). */
    psrt_status_t (*probe)(char *why, size_t why_size);
    psrt_status_t (*iface_open)(const psrt_iface_params_t *params, psrt_iface_t **iface_p);
    /* Closes all endpoints first. Blocks a bounded time (below 2 s) at most. */
    void (*iface_close)(psrt_iface_t *iface);
    /* Address for a peer's ep_open, a text below PSRT_ADDR_MAX, published through the coordinator. */
    psrt_status_t (*iface_addr)(psrt_iface_t *iface, char *addr, size_t size);
    /* Can a peer with this address be reached from here (same process, host, ...)? No I/O. */
    int (*reachable)(psrt_iface_t *iface, const char *addr);
    /* Dials. Sends are accepted after UP (before: AGAIN). LOST if it cannot connect. */
    psrt_status_t (*ep_open)(psrt_iface_t *iface, const char *addr, psrt_ep_t **ep_p);
    /* Fences: after the return the memory of this endpoint's messages is its owner's, who may write
     * it at once, however long a receiver has been stopped. One that goes on reading a payload finds
     * what was sent, or, in a VALUE, verify says ERR_STALE. What it has not begun to read it is not
     * given any more. Pending tx are done with ERR_CANCELED; held messages of it need no release but
     * allow it. LOST fences in the same way. */
    void (*ep_close)(psrt_ep_t *ep);
    /* OK: sent, payload no longer touched, tx->done is NOT called. PENDING (PSRT_IN_PROGRESS):
     * tx->done will be called. ERR_AGAIN: nothing happened, WRITABLE follows. Other: ep lost.
     * `data` may be any memory; the transport picks inline, copy or descriptor by itself. With tx
     * NULL, the payload must be at most eager_max bytes and is copied. */
    psrt_status_t (*send)(psrt_ep_t *ep, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                          uint32_t flags, psrt_tx_t *tx);
    /* Ends a HOLD. `msg` is the receiver's copy. */
    void (*release)(psrt_iface_t *iface, psrt_msg_t *msg);
    /* Does all I/O that can be done now; returns the number of events (messages, completions,
     * endpoint changes) handled, bounded by an internal budget. */
    unsigned (*progress)(psrt_iface_t *iface);
    /* Before sleeping on wait_fd: OK if nothing is pending and the descriptor will become readable
     * on the next event; ERR_BUSY if progress must be called first. Of a payload of a quarter of the window
     * and more the completion may wait for the peer's progress, whose word of it is an event. */
    psrt_status_t (*arm)(psrt_iface_t *iface);
    int (*wait_fd)(psrt_iface_t *iface); /* for epoll, readable when progress is wanted */

    /* optional (NULL: absent) */
    /* Memory that peers read in place. Zeroed, page aligned. */
    psrt_status_t (*mem_alloc)(psrt_iface_t *iface, uint64_t bytes, void **ptr_p);
    void (*mem_free)(psrt_iface_t *iface, void *ptr);
    /* Descriptor to readable memory, valid until release. ERR_STALE: sender withdrew it. */
    psrt_status_t (*map)(psrt_iface_t *iface, psrt_msg_t *msg, const void **ptr_p);
    /* After reading mapped memory and before using what was read, in case it can be undone (a VALUE
     * that was copied): OK if it was stable all along, ERR_STALE if the sender withdrew it meanwhile.
     * What cannot be undone (a PUSH that was added) is stable anyway while on_msg runs. NULL: always
     * stable. */
    psrt_status_t (*verify)(psrt_iface_t *iface, const psrt_msg_t *msg);
    /* Bytes that were sent, also with OK, and that peers have not taken: a close now may withdraw them. NULL: what
     * was sent with OK arrives also after a close. */
    uint64_t (*untaken)(psrt_iface_t *iface);
} psrt_transport_ops_t;

#ifdef __cplusplus
}
#endif
#endif
