/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a host, and which of them the tasks of other hosts are to dial. */
#ifndef PSRTI_LAUNCHER_NETIF_H
#define PSRTI_LAUNCHER_NETIF_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <psrt/status.h>

#define PSRTI_NETIF_MAX 64 /* addresses of a host that are looked at */

typedef struct psrti_netif {
    char interface[32];
    char address[INET6_ADDRSTRLEN];
    unsigned prefix; /* bits of the network */
} psrti_netif_t;

/* Those of this host, IPv4 first; loopback and link-local ones only when there are no others. */
size_t psrti_netif_list(psrti_netif_t netifs[PSRTI_NETIF_MAX]);

/* "10.1.0.0/16" or "fd00::/8". ERR_INVALID says what is wrong. */
psrt_status_t psrti_netif_check_subnet(const char *subnet);
int psrti_netif_in_subnet(const char *address, const char *subnet);
int psrti_netif_same_network(const psrti_netif_t *a, const psrti_netif_t *b);
/* 0: no numeric address. */
int psrti_netif_sockaddr(const char *address, uint16_t port, struct sockaddr_storage *sa);

/* On all addresses of this host and a port that the system chooses. Nothing of `tcp` is left to close
 * when it fails. */
psrt_status_t psrti_netif_listen(uv_loop_t *loop, uv_tcp_t *tcp, uv_connection_cb on_connection,
                                 uint16_t *port_p);

/* One host's addresses, those that may be used and were found to be reachable marked. */
typedef struct psrti_netif_choice {
    const psrti_netif_t *netifs;
    size_t count;
    uint64_t usable; /* bit i: netifs[i] */
    size_t chosen;   /* out */
} psrti_netif_choice_t;

/* For each host one of the usable ones: in a network that all of them share when there is one, else
 * its first. Each has one at least. */
void psrti_netif_choose(psrti_netif_choice_t *hosts, size_t count);

/* For uv_listen's callback: lets the connection that waits go. One that is not taken over would stop the
 * listener. */
void psrti_netif_refuse(uv_stream_t *listener);

#endif
