/* SPDX-License-Identifier: Apache-2.0 */
/* On which address a task listens, and so which address it tells the others. */
#ifndef PSRTI_BIND_H
#define PSRTI_BIND_H

#include <psrt/ext/transport_v1.h>

/* `wanted`: an IP address, an interface's name, a host name, each with an optional ":port"; or "": the
 * address of the interface that leads to `coordinator` ("tcp://host:port"; anything else: loopback).
 * Writes "a.b.c.d[:port]" or "[v6][:port]". ERR_INVALID names `what` (the variable that has the address)
 * and lists the interfaces there are. */
psrt_status_t psrti_bind_address(const char *what, const char *wanted, const char *coordinator,
                                 char *out, size_t size);

#endif
