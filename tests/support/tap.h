/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between one TCP client and a server on the loopback that keeps what both say. */
#ifndef PSRT_TESTS_SUPPORT_TAP_H
#define PSRT_TESTS_SUPPORT_TAP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { TAP_TO_SERVER, TAP_TO_CLIENT };

typedef struct tap {
    uint16_t port; /* dial 127.0.0.1 here */
    uint16_t server_port;
    int listener;
    pthread_t thread;
    struct {
        uint8_t *bytes;
        _Atomic size_t count; /* of the bytes that may be read, also while the relay runs */
    } said[2];
} tap_t;

/* server: "tcp://127.0.0.1:PORT" */
void tap_open(tap_t *tap, const char *server);
/* After one of the two hung up. */
void tap_close(tap_t *tap);
/* Do these bytes appear in what was said, in either direction? */
int tap_shows(const tap_t *tap, const void *bytes, size_t size);
/* Another connection to the server, a descriptor. */
int tap_dial(const tap_t *tap);
int tap_say(int fd, const uint8_t *bytes, size_t size); /* 0: the server hung up */

#endif
