/* SPDX-License-Identifier: Apache-2.0 */
/* On which address a task listens, and so which address it tells the others. */
#ifndef PSRTI_BIND_H
#define PSRTI_BIND_H

#include <psrt/ext/transport_v1.h>

#include "base/config.h"

/* `wanted`: an IP address, an interface's name, a host name, each with an optional ":port"; or "": the
 * address of the interface that leads to `coordinator` ("tcp://host:port"; anything else: loopback).
 * Writes "a.b.c.d[:port]" or "[v6][:port]". ERR_INVALID names `what` (the variable that has the address)
 * and lists the interfaces there are. */
psrt_status_t psrti_bind_address(const char *what, const char *wanted, const char *coordinator,
                                 char *out, size_t size);

/* Where a task's thread listens by PSRT_BIND_ADDRESS, PSRT_PORT and PSRT_LISTEN_FD: the address as above,
 * and the inherited socket, -1 for none. A port in PSRT_BIND_ADDRESS counts as PSRT_PORT. */
psrt_status_t psrti_bind_thread(const psrti_config_t *config, const char *coordinator,
                                uint32_t thread, char address[PSRT_ADDR_MAX], int *fd_p);

#endif
