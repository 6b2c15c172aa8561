/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libzmq itself does between two processes of this host: the bound for transport zmq.
 *
 * One DEALER, one ROUTER, loopback TCP, one I/O thread in each process and the job's security level, as
 * the transport has them. The stream sends messages in place (zmq_msg_init_data) from touched memory,
 * and the receiver drops them unread; the ping-pong is 64 bytes there and back.
 */
#ifndef BENCH_LIMITS_ZMQ_H
#define BENCH_LIMITS_ZMQ_H

#include <stdint.h>

typedef struct limits_zmq limits_zmq_t;

/* Starts the other process: before the first thread of this one. A cell has about so many seconds. NULL
 * after it printed what failed. */
limits_zmq_t *limits_zmq_start(const char *security, double seconds);
/* Ends it. NULL allowed. */
void limits_zmq_stop(limits_zmq_t *limits);

/* A new cell: its rounds send memory of so many bytes (64 MiB at most) over and over. 0 or -1. */
int limits_zmq_begin(limits_zmq_t *limits, uint64_t bytes);
/* One round: a stream of each message size away from this process (push), towards it (pull) or both,
 * then the ping-pong. 0 or -1. */
int limits_zmq_measure(limits_zmq_t *limits, int push, int pull);

/* Medians of the rounds: of the best message size, where both ways were measured of one after the other;
 * of a round trip. */
double limits_zmq_gbps(limits_zmq_t *limits);
double limits_zmq_ping_us(limits_zmq_t *limits);

#endif
