/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the launcher's controller and its agents, over TCP: authenticated both ways by the
 * job's secret and encrypted (libsodium's secretstream).
 *
 * Invariants: nothing is delivered, and no more than a few bytes are kept, before the other side has
 * proved the key on this very connection (a record of another one, or what this side said itself, is
 * refused). Messages arrive whole, once and in order, or the channel ends. An end that the other side
 * did not ask for is told from one that it did. A silent peer ends the channel in bounded time. */
#ifndef PSRTI_LAUNCHER_CHANNEL_H
#define PSRTI_LAUNCHER_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <psrt/status.h>

#include "base/jobkey.h"

#define PSRTI_CHANNEL_MESSAGE_MAX (64u << 20)

typedef struct psrti_channel psrti_channel_t;

/* All from the loop. */
typedef struct psrti_channel_events {
    void (*open)(void *arg); /* the other side has the key; messages may be sent from here on */
    void (*message)(void *arg, const void *data, size_t len); /* valid during the call */
    void (*drained)(void *arg); /* what was sent has left; NULL: nobody asks */
    /* The last call, also for a channel that never opened; the channel is freed after it. `why` is
     * NULL when either side closed it. */
    void (*closed)(void *arg, const char *why);
    void *arg;
} psrti_channel_events_t;

typedef struct psrti_channel_params {
    uv_loop_t *loop;
    const psrti_jobkey_t *key;   /* copied */
    uint64_t open_ms;            /* time to connect and to prove the key */
    uint64_t beat_ms, silent_ms; /* how often this side says that it lives; how long the other may
                                    say nothing */
    psrti_channel_events_t events;
} psrti_channel_params_t;

/* For uv_listen's callback: takes the connection that waits. */
psrt_status_t psrti_channel_accept(const psrti_channel_params_t *params, uv_stream_t *listener,
                                   psrti_channel_t **channel_p);
psrt_status_t psrti_channel_dial(const psrti_channel_params_t *params,
                                 const struct sockaddr *address, psrti_channel_t **channel_p);

/* Whom events go to from now on: whoever accepted learns only from a message who dialled. */
void psrti_channel_set_arg(psrti_channel_t *channel, void *arg);
/* Copies the message. Not before open, nor more than PSRTI_CHANNEL_MESSAGE_MAX. */
void psrti_channel_send(psrti_channel_t *channel, const void *data, size_t len);
size_t psrti_channel_backlog(const psrti_channel_t *channel);   /* bytes that have not left yet */
void psrti_channel_pause(psrti_channel_t *channel, int paused); /* delivers nothing while paused */
/* What was sent leaves first, for `silent_ms` at most. */
void psrti_channel_close(psrti_channel_t *channel);
/* Waits for nothing: what has not left is lost. */
void psrti_channel_abort(psrti_channel_t *channel);
/* The other side's address on the connection, without the port. */
void psrti_channel_peer(const psrti_channel_t *channel, char *text, size_t size);
/* This side's address on the connection, without the port: the other side can reach it. */
void psrti_channel_local(const psrti_channel_t *channel, char *text, size_t size);

#endif
